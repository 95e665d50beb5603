"""Bugs in what waits, and in whose turn it is, as a sceptic would put them.

Owns the list for the tests that each names: a wait that is over and still registered, a crowd that
is told or ended in one go, work of one client before that of all others.
"""

from __future__ import annotations

from mutation import Mutation, one

FETCH = "node/api/fetch.py"
PRODUCE = "node/api/produce.py"
ROOM = "node/door/waiting_room.py"
SLICED = "runtime/sliced_work.py"
TURNS = "runtime/turns.py"
LEFT = "node/door/left_behind.py"
TEST_CONNECTION = "tests/node/test_connection.py"
TEST_DEEP = "tests/node/test_deep_produce.py"
TEST_WAITING = "tests/node/test_waiting.py"
TEST_TURNS = "tests/node/test_waiting_turns.py"
TEST_SLICED = "tests/runtime/test_sliced_work.py"
TEST_SESSIONS = "tests/node/test_fetch_sessions.py"
TEST_FETCH_WAITS = "tests/node/test_fetch_waits.py"

WAITS: tuple[Mutation, ...] = (
    one(
        "what happened before a wait was registered is not seen",
        "a lost wake-up",
        ROOM,
        "            parked.ask()\n        if not parked.finished:\n",
        "            pass\n        if not parked.finished:\n",
        tests=("tests/node/test_waiting.py::test_what_has_happened_before_is_seen_at_once",),
    ),
    one(
        "a wait has no deadline",
        "a deadline that is lost",
        ROOM,
        "            self._end_after(parked, timeout_ms)\n",
        "            pass\n",
        tests=("tests/node/test_waiting.py::test_a_deadline_answers_with_what_there_is",),
    ),
    one(
        "a wait that is over is registered still",
        "cancel without unregistering",
        ROOM,
        "        self._end_never(parked)\n"
        "        for key in parked.keys:\n            self.unwatch(key, parked)\n",
        "        self._end_never(parked)\n",
        tests=(
            "tests/node/test_waiting.py::test_what_nobody_waits_for_any_more_is_not_registered",
        ),
    ),
    one(
        "a key that nobody watches is kept",
        "cancel without unregistering",
        ROOM,
        "            if not watchers:\n                del self._watchers[key]\n",
        "",
        tests=(
            "tests/node/test_waiting.py::test_what_nobody_waits_for_any_more_is_not_registered",
        ),
    ),
    one(
        "a wait that is over is kept until its time",
        "a crowd that is answered at once, and waits for a minute each",
        ROOM,
        "        self._end_never(parked)\n",
        "",
        tests=(f"{TEST_WAITING}::test_a_wait_that_was_answered_leaves_no_timer",),
    ),
    one(
        "a wait that is over is asked again",
        "a request that is answered twice",
        ROOM,
        "        if not self.finished and self.wait.try_complete():\n",
        "        if self.wait.try_complete():\n",
        tests=(
            "tests/node/test_waiting.py::test_who_is_put_away_by_another_one_s_answer_is_not_asked",
        ),
    ),
    one(
        "a wait whose deadline has passed waits on",
        "a request that is answered twice",
        ROOM,
        "        self.forget()\n        wait.expire()\n",
        "        wait.expire()\n",
        tests=("tests/node/test_waiting.py::test_a_deadline_answers_with_what_there_is",),
    ),
    one(
        "a wait that breaks takes all others of its turn along",
        "waits that nobody asks again",
        ROOM,
        "            for watcher in left:\n"
        "                self._behind.add(watcher, watcher.sender)\n",
        "            for watcher in left:\n                self._behind.remove(watcher)\n",
        tests=("tests/node/test_waiting.py::test_a_wait_that_breaks_costs_the_others_nothing",),
    ),
    one(
        "acks=all waits expire a step too early",
        "timeout.ms is not kept",
        ROOM,
        " // step_ms + 1) * step_ms\n",
        " // step_ms) * step_ms\n",
        tests=("tests/node/test_waiting.py::test_a_deadline_comes_in_its_step_and_never_early",),
    ),
    one(
        "a wait for an offset is settled one record later",
        "a boundary",
        ROOM,
        "        while heap and heap[0][0] <= high_watermark:\n",
        "        while heap and heap[0][0] < high_watermark:\n",
        tests=(
            "tests/node/test_waiting.py::test_offsets_are_released_in_their_order_and_not_before",
        ),
    ),
    one(
        "a wait that has expired is settled",
        "a request that is answered twice",
        ROOM,
        "            _, _, wait, part = heapq.heappop(heap)\n            if not wait.finished:\n",
        "            _, _, wait, part = heapq.heappop(heap)\n            if wait is not None:\n",
        tests=("tests/node/test_waiting.py::test_an_expired_wait_is_neither_settled_nor_kept",),
    ),
    one(
        "an answered produce keeps its deadline",
        "cancel without unregistering",
        PRODUCE,
        "            self.finished = True\n           "
        " self._broker.waiting.keep(self, self._deadline_ms)\n",
        "            self.finished = True\n",
        tests=("tests/node/test_lost_connections.py::test_a_deadline_is_over_with_its_request",),
    ),
    one(
        "a stalled partition collects the waits that have expired",
        "cancel without unregistering",
        "node/broker/replicas.py",
        "                partition.acknowledgements.drop_finished()\n",
        "                pass\n",
        tests=(
            "tests/node/test_lost_connections.py::test_a_stalled_partition_does_not_collect_who_has_given_up",
        ),
    ),
    one(
        "a fetch that was answered watches on",
        "cancel without unregistering",
        FETCH,
        "        if not self._session.session_id:\n            self._session.unwatch()\n",
        "",
        tests=("tests/node/test_lost_connections.py::test_nothing_waits_for_who_has_left",),
    ),
    one(
        "a deletion that is over watches on",
        "cancel without unregistering",
        "node/api/delete_records.py",
        "        for key in self._left:\n            self._broker.waiting.unwatch(key, self)\n",
        "",
        tests=("tests/node/test_lost_connections.py::test_nothing_waits_for_who_has_left",),
    ),
    one(
        "a fetch waits for as long as a client says",
        "2^31-1 milliseconds",
        FETCH,
        "min(self._request.max_wait_ms, WAIT_MS_MAX)\n",
        "self._request.max_wait_ms\n",
        tests=("tests/node/test_fetch_sessions.py::test_no_fetch_waits_for_longer_than_a_minute",),
    ),
    one(
        "a node that stops answers nobody",
        "requests that wait when a node stops",
        ROOM,
        "        while self._parked:\n            next(iter(self._parked)).expire()\n",
        "",
        tests=("tests/node/test_waiting.py::test_closing_answers_everybody",),
    ),
    # -- crowds ---------------------------------------------------------------------------------
    one(
        "a whole crowd hears of a change in one turn",
        "90,000 parked fetches of one partition",
        ROOM,
        "list(islice(watchers, few) if is_crowd else watchers):\n",
        "list(watchers):\n",
        tests=(f"{TEST_WAITING}::test_a_crowd_hears_of_a_change_by_turns",),
    ),
    one(
        "the rest of a crowd never hears of a change",
        "a fetch that waits beside 64 others",
        ROOM,
        "        elif is_crowd:\n",
        "        elif not watchers:\n",
        tests=(f"{TEST_WAITING}::test_a_crowd_hears_of_a_change_by_turns",),
    ),
    one(
        "a crowd that is being told does not hear of the next change",
        "a lost wake-up",
        ROOM,
        "        self._again = True\n",
        "        pass\n",
        tests=(f"{TEST_WAITING}::test_a_crowd_hears_of_a_change_by_turns",),
    ),
    one(
        "those behind the first of a crowd move up, and count as told",
        "a fetch that waits until its time is over",
        ROOM,
        "            self._left = iter(list(watchers))\n",
        "            self._left = iter(list(islice(watchers, CROWD, None)))\n",
        tests=(f"{TEST_WAITING}::test_nobody_of_a_crowd_is_passed_over_as_others_are_answered",),
    ),
    one(
        "a crowd goes before those that are woken meanwhile",
        "a neighbour's fetch behind 90,000 others",
        ROOM,
        "                self._behind.remove(watcher)\n                watcher.ask()\n",
        "                self._behind.add(watcher, watcher.sender)\n",
        tests=(f"{TEST_WAITING}::test_a_crowd_hears_of_a_change_by_turns",),
    ),
    one(
        "one of a crowd is told after it has left",
        "a session that is over",
        ROOM,
        "                if watcher in watchers:\n",
        "                if watcher is not None:\n",
        tests=(f"{TEST_WAITING}::test_one_of_a_crowd_that_has_left_is_not_told",),
    ),
    one(
        "a session's request does not hear of what changed in this turn",
        "a partition that is called quiet and is not",
        FETCH,
        "    session.hear()\n",
        "",
        tests=(f"{TEST_SESSIONS}::test_a_request_hears_of_what_changed_in_the_same_turn",),
    ),
    one(
        "a session's request that ends does not hear of what it was not told yet",
        "an empty answer in a crowd, though data came",
        FETCH,
        "            self._session.hear()\n        self._give({})\n",
        "            pass\n        self._give({})\n",
        tests=(
            f"{TEST_SESSIONS}::test_a_request_whose_time_is_over_hears_of_what_it_was_not_told_yet",
        ),
    ),
    one(
        "waits that end together end in one turn",
        "88,000 fetches that end in one millisecond",
        ROOM,
        "            if not wait.finished:\n                wait.expire()\n"
        "            if self._loop.time() >= until:\n                break\n",
        "            if not wait.finished:\n                wait.expire()\n",
        tests=(f"{TEST_WAITING}::test_those_that_end_together_end_by_turns",),
    ),
    # -- turns ----------------------------------------------------------------------------------
    one(
        "waits end in the order of their times, whosever they are",
        "a wait of 500 ms behind 50,000 of one client",
        ROOM,
        "                self._over.add(wait, wait.sender)\n",
        "                self._over.add(wait, None)\n",
        tests=(f"{TEST_TURNS}::test_who_ends_does_not_stand_behind_all_of_another",),
    ),
    one(
        "one wait ends before it is known whose the others are",
        "a wait of 500 ms behind 50,000 of one client",
        ROOM,
        "        while self._ended and not (known >= SORTED_MIN and self._loop.time() >= until):\n",
        "        while self._ended and not known:\n",
        tests=(f"{TEST_TURNS}::test_who_ends_does_not_stand_behind_all_of_another",),
    ),
    one(
        "those left behind are asked in the order in which they came",
        "a fetch behind 50,000 of one client",
        ROOM,
        "            for watcher in left:\n"
        "                self._behind.add(watcher, watcher.sender)\n",
        "            for watcher in left:\n                self._behind.add(watcher, None)\n",
        tests=(f"{TEST_TURNS}::test_who_is_woken_does_not_stand_behind_all_of_another",),
    ),
    one(
        "a crowd is asked in the order in which it came",
        "a fetch behind 50,000 of one client",
        ROOM,
        "                self._behind.add(watcher, watcher.sender)\n            told += 1\n",
        "                self._behind.add(watcher, None)\n            told += 1\n",
        tests=(f"{TEST_TURNS}::test_a_crowd_is_told_sooner_than_it_is_asked",),
    ),
    one(
        "one of a crowd is told for each that is asked",
        "a fetch behind 50,000 of one client",
        ROOM,
        "not (told and told % CROWD == 0 and self._loop.time() >= until):\n",
        "not (told and self._loop.time() >= until):\n",
        tests=(f"{TEST_TURNS}::test_a_crowd_is_told_sooner_than_it_is_asked",),
    ),
    one(
        "who is told again loses its place among those left behind",
        "a fetch that is woken in each turn, and never asked",
        TURNS,
        "        if each not in self._client_of:\n            self._client_of[each] = client\n",
        "        self.remove(each)\n        if True:\n            self._client_of[each] = client\n",
        tests=(f"{TEST_TURNS}::test_who_is_woken_all_the_time_keeps_its_place",),
    ),
    one(
        "all that was woken is told of in one turn",
        "10,000 partitions with 64 watchers each",
        ROOM,
        "            self._tell_of(key, few)\n            if self._loop.time() >= until:\n",
        "            self._tell_of(key, few)\n            if not self._woken:\n",
        tests=(f"{TEST_TURNS}::test_many_keys_are_told_of_in_several_turns",),
    ),
    one(
        "what was woken and not told of in a turn is not told of",
        "a lost wake-up",
        ROOM,
        "            if self._loop.time() >= until:\n                break\n\n    def _tell_of(",
        "            if self._loop.time() >= until:\n                self._woken.clear()\n\n"
        "    def _tell_of(",
        tests=(f"{TEST_TURNS}::test_nobody_misses_a_change",),
    ),
    one(
        "what was woken and not told of waits for the next change",
        "a lost wake-up",
        ROOM,
        "            is_over = not (self._woken or self._due or self._behind or self._crowds)\n",
        "            is_over = not (self._due or self._behind or self._crowds)\n",
        tests=(f"{TEST_TURNS}::test_nobody_misses_a_change",),
    ),
    one(
        "a timer stays when the last of its waits was answered",
        "a timer for each millisecond in which anybody waited",
        ROOM,
        "            ending.timer.cancel()\n            del self._ending[parked.ends_ms]\n",
        "            pass\n",
        tests=(f"{TEST_WAITING}::test_a_wait_that_was_answered_leaves_no_timer",),
    ),
    one(
        "an answer to a fetch is as large as a client says",
        "50 MiB read in one go",
        FETCH,
        "settings.fetch_max_bytes, READ_BYTES_MAX)\n",
        "settings.fetch_max_bytes)\n",
        tests=(f"{TEST_SESSIONS}::test_an_answer_is_read_in_one_go_up_to_a_bound",),
    ),
    one(
        "a fetch waits for more than an answer can hold",
        "min.bytes of 16 MiB, of which an answer has 8",
        FETCH,
        "        enough = min(self._request.min_bytes, self._bytes_max())\n",
        "        enough = self._request.min_bytes\n",
        tests=(f"{TEST_FETCH_WAITS}::test_all_that_an_answer_can_hold_is_enough",),
    ),
    # -- long work ------------------------------------------------------------------------------
    one(
        "long work of one client goes before that of all others",
        "13,000 look-ups before one append",
        TURNS,
        "        self._clients.move_to_end(client)\n",
        "",
        tests=(f"{TEST_SLICED}::test_who_begins_many_waits_for_himself",),
    ),
    one(
        "appends wait behind all look-ups",
        "look-ups on a thousand connections",
        SLICED,
        "        self._kinds.move_to_end(kind)\n",
        "",
        tests=(f"{TEST_SLICED}::test_who_begins_many_waits_for_himself",),
    ),
    one(
        "work that nobody waits for takes its turn",
        "look-ups whose clients have gone",
        SLICED,
        "        piece.is_over = True\n        self._waiting.remove(piece)\n",
        "        piece.is_over = True\n",
        tests=(f"{TEST_SLICED}::test_what_nobody_waits_for_takes_no_turn_and_is_not_kept",),
    ),
    # -- what a client has left behind ----------------------------------------------------------
    one(
        "a batch that is looked into is thrown away when its client leaves",
        "acks=0, flush and close: nothing was appended",
        PRODUCE,
        "    deferred.outlives = True\n",
        "",
        tests=(f"{TEST_DEEP}::test_what_was_received_is_appended_although_its_client_has_left",),
    ),
    one(
        "an append waits to be committed for who has left",
        "acks=all for nobody",
        PRODUCE,
        "        if deferred.is_left:\n",
        "        if deferred.is_answered:\n",
        tests=(f"{TEST_DEEP}::test_what_was_received_is_appended_although_its_client_has_left",),
    ),
    one(
        "who leaves work behind gives his place back",
        "a bomb, a close, and the next connection",
        LEFT,
        "        if admission.admit(self):\n",
        "        if admission:\n",
        tests=(f"{TEST_CONNECTION}::test_who_leaves_work_behind_keeps_his_place_until_it_is_done",),
    ),
    one(
        "work that was left behind keeps bytes that nobody counts",
        "a bomb, a close, and the next connection",
        LEFT,
        "            ledger.note(self, answer.kept)",
        "            ledger.note(self, 0)",
        tests=(f"{TEST_CONNECTION}::test_work_that_was_left_behind_ends_where_too_much_is_held",),
    ),
    one(
        "work that was left behind does not end where too much is held",
        "a bomb, a close, and the next connection",
        LEFT,
        "        self._settle(self._answer)\n        self._answer.lost()\n",
        "        self._settle(self._answer)\n",
        tests=(f"{TEST_CONNECTION}::test_work_that_was_left_behind_ends_where_too_much_is_held",),
    ),
)
