"""Bugs in fetch sessions, as a sceptic would put them; more are in `mutations_following`.

Owns the list for the tests that each names: who has to go, an epoch that is not looked at, what a
session that is put away leaves behind.
"""

from __future__ import annotations

from mutation import Mutation, one

CACHE = "core/replica/session_cache.py"
SESSION = "node/api/fetch_session.py"
FOLLOWER = "core/replica/follower_session.py"
FETCH = "node/api/fetch.py"


SESSIONS: tuple[Mutation, ...] = (
    # -- sessions: which of them are kept -------------------------------------------------------
    one(
        "any epoch goes on with a session",
        "KIP-227: INVALID_FETCH_SESSION_EPOCH",
        CACHE,
        "        if epoch != session.next_epoch:\n",
        "        if epoch < 0:\n",
        tests=("tests/core/test_session_cache.py::test_epochs_count_up_and_begin_again_at_one",),
    ),
    one(
        "an epoch may be said twice",
        "KIP-227: an answer that was lost",
        CACHE,
        "        if epoch != session.next_epoch:\n",
        "        if epoch not in (session.next_epoch, session.next_epoch - 1):\n",
        tests=("tests/core/test_session_cache.py::test_epochs_count_up_and_begin_again_at_one",),
    ),
    one(
        "after the largest epoch comes none",
        "KIP-227",
        CACHE,
        "1 if epoch == EPOCH_MAX else epoch + 1",
        "epoch + 1",
        tests=("tests/core/test_session_cache.py::test_epochs_count_up_and_begin_again_at_one",),
    ),
    one(
        "whoever names a follower's session goes on with it",
        "an acknowledgement of what another one has",
        CACHE,
        "        if session is None or session.owner != owner:\n",
        "        if session is None:\n",
        tests=("tests/core/test_session_cache.py::test_epochs_count_up_and_begin_again_at_one",),
    ),
    one(
        "a session that is put away is not told",
        "watchers without a session",
        CACHE,
        "        if session is not None:\n            session.close()\n",
        "        del session\n",
        tests=("tests/core/test_session_cache.py::test_who_has_to_go",),
    ),
    one(
        "a session is used when it is made, and never again",
        "KIP-227: who uses its session keeps it",
        CACHE,
        "        session.used_ms = now_ms\n        return session",
        "        return session",
        tests=(
            "tests/core/test_session_cache.py::test_a_larger_one_takes_the_slot_of_one_that_has_been_there_for_long",
        ),
    ),
    one(
        "the session that is worth most has to go",
        "KIP-227: eviction order",
        CACHE,
        "        least = min(self._sessions.values(), key=lambda each: each.rank)\n",
        "        least = max(self._sessions.values(), key=lambda each: each.rank)\n",
        tests=(
            "tests/core/test_session_cache.py::test_of_several_the_one_that_is_worth_least_has_to_go",
        ),
    ),
    one(
        "the smallest session has to go, be it a follower's",
        "KIP-227: followers' sessions are privileged",
        CACHE,
        "        return self.is_privileged, self.size, self.session_id\n",
        "        return False, self.size, self.session_id\n",
        tests=(
            "tests/core/test_session_cache.py::test_of_several_the_one_that_is_worth_least_has_to_go",
        ),
    ),
    one(
        "the oldest session has to go, whatever it keeps",
        "KIP-227: eviction order",
        CACHE,
        "        return self.is_privileged, self.size, self.session_id\n",
        "        return self.is_privileged, self.created_ms, self.session_id\n",
        tests=(
            "tests/core/test_session_cache.py::test_of_several_the_one_that_is_worth_least_has_to_go",
        ),
    ),
    one(
        "of two that are alike the newcomer takes the slot at once",
        "KIP-227: two that take the slot from each other for ever",
        CACHE,
        "least.size < session.size and now_ms - least.created_ms > STALE_MS",
        "least.size < session.size",
        tests=("tests/core/test_session_cache.py::test_who_has_to_go",),
    ),
    one(
        "of two that are alike the newcomer takes the slot of one as large",
        "KIP-227: two that take the slot from each other for ever",
        CACHE,
        "may_go = least.size < session.size and",
        "may_go = least.size <= session.size and",
        tests=(
            "tests/core/test_session_cache.py::test_a_larger_one_takes_the_slot_of_one_that_has_been_there_for_long",
        ),
    ),
    one(
        "a session is stale at the end of its time, not after it",
        "a boundary",
        CACHE,
        "                if now_ms - each.used_ms > STALE_MS:\n",
        "                if now_ms - each.used_ms >= STALE_MS:\n",
        tests=("tests/core/test_session_cache.py::test_who_has_to_go",),
    ),
    one(
        "one slot more than there are",
        "max.incremental.fetch.session.cache.slots",
        CACHE,
        "            len(self._sessions) < self._slots and",
        "            len(self._sessions) <= self._slots and",
        tests=("tests/core/test_session_cache.py::test_who_has_to_go",),
    ),
    one(
        "sessions keep any number of partitions",
        "200 MB of sessions",
        CACHE,
        " and self.partitions + session.size <= PARTITIONS_MAX\n",
        "\n",
        tests=("tests/core/test_session_cache.py::test_partitions_are_bounded_over_all_sessions",),
    ),
    one(
        "a session grows without a bound once it is kept",
        "200 MB of sessions",
        FETCH,
        "    if session.size > size and sessions.is_crowded(session):\n",
        "    if session.size < 0 and sessions.is_crowded(session):\n",
        tests=(
            "tests/node/test_fetch_sessions.py::test_a_session_that_grows_too_large_is_put_away",
        ),
    ),
    # -- sessions: what they know ---------------------------------------------------------------
    one(
        "a session that is put away goes on watching",
        "a session evicted in the middle",
        SESSION,
        "            self.parked.expire()\n        self.unwatch()\n",
        "            self.parked.expire()\n",
        tests=(
            "tests/node/test_fetch_sessions.py::test_a_session_that_has_to_go_answers_what_waits_and_watches_nothing",
        ),
    ),
    one(
        "a session that is put away leaves its request unanswered",
        "a session evicted in the middle",
        SESSION,
        "        if self.parked is not None:\n           "
        " self.parked.expire()\n        self.unwatch()\n",
        "        self.unwatch()\n",
        tests=(
            "tests/node/test_fetch_sessions.py::test_a_session_that_has_to_go_answers_what_waits_and_watches_nothing",
        ),
    ),
    one(
        "two requests of a session wait at once",
        "answers leave in the order of their requests",
        FETCH,
        "        session.parked.expire()  # answers leave in the order of their requests\n",
        "        pass\n",
        tests=(
            "tests/node/test_fetch_sessions.py::test_a_waiting_request_is_answered_before_the_next_one_of_its_session",
        ),
    ),
    one(
        "topics by name and by id are one session's",
        "FETCH_SESSION_TOPIC_ID_ERROR",
        FETCH,
        "    if session.by_id != by_id:\n",
        "    if session.by_id and False:\n",
        tests=("tests/node/test_fetch_sessions.py::test_who_asks_wrongly_is_told_to_begin_anew",),
    ),
    one(
        "what a session forgets it watches still",
        "watchers without a partition",
        SESSION,
        "            self._changed.pop(asked, None)\n            self._unwatch(asked)\n",
        "            self._changed.pop(asked, None)\n",
        tests=(
            "tests/node/test_fetch_sessions.py::test_what_is_forgotten_is_neither_read_nor_waited_for",
        ),
    ),
    one(
        "what a session has forgotten may still fill its answers",
        "the size that an answer may come to have",
        SESSION,
        "        if asked is not None:\n            self.bytes_max -="
        " asked.wanted.partition_max_bytes\n",
        "        if asked is not None:\n",
        tests=(
            "tests/node/test_fetch_sessions.py::test_a_fetch_that_waits_says_how_large_it_may_become",
        ),
    ),
    one(
        "whoever has much to read is served first, each time",
        "rules: fetch.md#fetch-sessions, the last ones never get anything",
        SESSION,
        "            self.stirred[asked] = self.stirred.pop(asked)\n",
        "",
        tests=(
            "tests/node/test_fetch_sessions.py::test_who_has_much_to_read_of_one_partition_gets_the_others_too",
        ),
    ),
    one(
        "a reader that had to cut its log is told the high watermark once",
        "a follower that never hears of a commit",
        SESSION,
        "            asked.told = None  # whoever has to cut its log takes"
        " nothing else from the answer\n",
        "",
        tests=(
            "tests/node/test_fetch_sessions.py::test_who_had_to_cut_its_log_is_told_the_high_watermark_again",
        ),
    ),
    one(
        "who has come back is taken for the one before",
        "KIP-903 in a session",
        FETCH,
        "    if reader.is_superseded or reader.broker_epoch != session.broker_epoch:\n",
        "    if reader.is_superseded:\n",
        tests=(
            "tests/node/test_fetch_sessions.py::test_who_has_come_back_says_so_of_all_that_its_session_keeps",
        ),
    ),
    one(
        "a session that was ended by a new beginning is kept as well",
        "KIP-227: a full request ends the session that it names",
        FETCH,
        "        if session_id:\n            sessions.remove(session_id)\n    "
        "    return FetchSession",
        "        return FetchSession",
        tests=(
            "tests/node/test_fetch_sessions.py::test_a_session_ends_by_its_final_epoch_and_by_a_new_beginning",
        ),
    ),
    one(
        "an answer of another session is taken for ours",
        "KIP-227, the follower's half",
        FOLLOWER,
        "        elif session_id == self._id:\n",
        "        elif session_id >= 0:\n",
        tests=(
            "tests/core/test_follower_session.py::test_a_session_that_the_leader_ended_or_mistook_begins_anew",
        ),
    ),
    one(
        "what was removed and has come again takes the answer to its former life",
        "KIP-227, the follower's half",
        FOLLOWER,
        "        return None if key in self._leaving else self._told.get(key)\n",
        "        return self._told.get(key)\n",
        tests=(
            "tests/core/test_follower_session.py::test_an_answer_about_what_was_removed_and_has_come_again_is_of_another_life",
        ),
    ),
)
