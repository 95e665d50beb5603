"""Bugs in what a group of the consumer protocol remembers, waits for and gives away to be done.

Owns the list for the tests that each names.
"""

from __future__ import annotations

from mutation import Mutation, one

HEARTBEAT = "core/group/consumer/consumer_heartbeat.py"
PATTERNS = "core/group/consumer/consumer_patterns.py"
STEP = "core/group/consumer/consumer_step.py"
MADE_ANEW = "test_a_topic_that_is_made_anew_while_nobody_leads_has_no_offsets_of_the_one_before"
TELLINGS = "core/group/consumer/consumer_tellings.py"
TEST_COORDINATOR = "tests/coordinator/test_coordinator.py"
TEST_SHARD = "tests/group/test_consumer_shard.py"
TEST_PATTERNS = "tests/group/test_consumer_patterns.py"
NOT_AGAIN = "test_what_can_t_be_written_is_not_found_out_again_with_each_heartbeat"

TEST_ANSWERS = "tests/group/test_consumer_answers.py"

GROUP_MEMBERS: tuple[Mutation, ...] = (
    one(
        "a member is told once what it has",
        "who waits no longer for the answer never gives up what it has to, and is put out for that",
        HEARTBEAT,
        "    is_told = is_news or tellings.has_to_hear(\n"
        "        member_id, now_ms, core.settings.heartbeat_interval_ms\n"
        "    )\n",
        "    is_told = is_news\n",
        tests=(
            f"{TEST_ANSWERS}::test_what_a_member_has_to_give_up_it_is_told_until_it_says_so",
            f"{TEST_ANSWERS}::test_what_a_member_is_given_it_is_told_until_it_has_it",
        ),
    ),
    one(
        "a member is told what it has for ever",
        "bytes in each heartbeat",
        HEARTBEAT,
        "    if owned == before.assigned == after.assigned:\n",
        "    if not is_silent and not owned:\n",
        tests=(f"{TEST_ANSWERS}::test_what_a_member_has_to_give_up_it_is_told_until_it_says_so",),
    ),
    one(
        "what a member confirms is what the same answer tells it",
        "two members read one partition for good: it never hears that it lost it",
        HEARTBEAT,
        "owned == before.assigned == after.assigned:\n",
        "owned == after.assigned:\n",
        tests=(f"{TEST_ANSWERS}::test_what_a_member_confirms_is_what_it_was_told_before",),
    ),
    one(
        "who has not heard of its epoch is told nothing more",
        "it reads on what it was told before",
        HEARTBEAT,
        "has_changed = request.member_epoch != before.epoch or before.assigned",
        "has_changed = before.assigned",
        tests=("tests/group/test_consumer_transcripts.py::test_transcript",),
    ),
    one(
        "who can't know that it has something to give up is only told again",
        "it is put out after the whole rebalance time-out",
        HEARTBEAT,
        "and is_silent and _has_to_speak(core, after):\n",
        "and is_silent and not after.member_id:\n",
        tests=(
            f"{TEST_ANSWERS}::test_who_can_not_know_that_it_has_to_give_up_is_made_to_tell_everything",
        ),
    ),
    one(
        "who has said what it has is made to say it again and again",
        "each slow callback costs a look for the coordinator every few seconds",
        TELLINGS,
        "            count = None if before.silent is None else before.silent + 1\n",
        "            count = (before.silent or 0) + 1\n",
        tests=(
            f"{TEST_ANSWERS}::test_who_is_at_giving_up_is_left_alone_once_it_has_said_what_it_has",
        ),
    ),
    one(
        "a new coordinator takes it that everybody has heard everything",
        "what was given is read by nobody",
        TELLINGS,
        "        self._loaded.add(member_id)\n",
        "",
        tests=(f"{TEST_ANSWERS}::test_a_new_coordinator_tells_again_what_was_given_and_once",),
    ),
    one(
        "a new coordinator tells once what has to be given up",
        "its answer is lost, and the member is put out",
        TELLINGS,
        "        if gives_up:\n            self._unconfirmed[member_id] = _Telling(now_ms, 0)\n",
        "",
        tests=(
            f"{TEST_ANSWERS}::test_a_new_coordinator_tells_until_it_is_done_what_has_to_be_given_up",
        ),
    ),
    one(
        "who has gone is still to be told what it has",
        "memory in no budget",
        "core/group/consumer/consumer_core.py",
        "        self.tellings.confirmed(member_id)\n        for kind",
        "        for kind",
        tests=(f"{TEST_ANSWERS}::test_who_has_gone_is_told_nothing_any_more",),
    ),
    one(
        "what the log tells of a time to come is waited for",
        "a group that gets nothing for an hour, since another coordinator's clock was ahead",
        STEP,
        "        return 0 <= self._now_ms - since_ms <= milliseconds\n",
        "        return self._now_ms - since_ms <= milliseconds\n",
        tests=(
            f"{TEST_SHARD}::test_a_clock_that_was_ahead_holds_up_no_assignment",
            f"{TEST_PATTERNS}::test_a_clock_that_was_ahead_holds_up_no_refresh",
        ),
    ),
    one(
        "a member keeps each instance that it ever was",
        "names that nobody else may have, and memory in no budget",
        "core/group/consumer/consumer_state.py",
        "        if before is not None:\n            # It may be another instance",
        "        if before and not after:\n            # It may be another instance",
        tests=(f"{TEST_SHARD}::test_an_instance_that_a_member_is_no_more_is_free",),
    ),
    one(
        "all patterns of a group are compiled in one go",
        "a stranger holds up the loop for seconds, and takes gigabytes",
        PATTERNS,
        "        self._patterns = iter(refresh.patterns)\n",
        "        self._patterns = iter(refresh.patterns)\n"
        "        every = {each: compiled(each) for each in refresh.patterns}\n"
        "        self._compiled = every.__getitem__\n",
        tests=(f"{TEST_PATTERNS}::test_patterns_are_compiled_one_at_a_time_and_let_go",),
    ),
    one(
        "what patterns match has no bound",
        "names sorted and encoded for a batch that no log takes",
        PATTERNS,
        "        if self._room < 0:\n",
        "        if self._room < -(1 << 40):\n",
        tests=(f"{TEST_PATTERNS}::test_patterns_that_match_more_than_a_batch_takes_are_given_up",),
    ),
    one(
        "what the log has no room for is found out again with each heartbeat",
        "all topics are looked at for nothing, without an end",
        STEP,
        "        last_ms = [core.refresh_failed_ms, None if some is None else some.at_ms]\n",
        "        last_ms = [None if some is None else some.at_ms]\n",
        tests=(f"{TEST_PATTERNS}::{NOT_AGAIN}",),
    ),
    one(
        "a group may have any number of patterns",
        "each topic is looked at thousands of times over",
        STEP,
        "        if len(self._patterns_after()) > PATTERNS_MAX:\n",
        "        if not self._patterns_after():\n",
        tests=(f"{TEST_PATTERNS}::test_a_group_has_so_many_different_patterns",),
    ),
    one(
        "all topics that members name are read, however many",
        "a rebalance that holds up the loop for seconds",
        "core/group/classic/classic_state.py",
        "            if left < 0:\n                return None",
        "            if left < -(1 << 40):\n                return None",
        tests=("tests/group/test_committed_offsets.py::test_who_names_very_many_topics_reads_any",),
    ),
    one(
        "a classic group changes over, whatever its members tell",
        "a heartbeat that holds up the loop for seconds",
        "core/group/consumer/consumer_migration.py",
        "    if told > TOLD_BYTES_MAX:\n",
        "    if told < 0:\n",
        tests=("tests/group/test_consumer_migration.py::test_what_can_t_be_upgraded",),
    ),
    one(
        "offsets are told of whichever topic has the name",
        "a new topic is read from where the old one was read up to: records are skipped",
        "core/group/offsets/offset_requests.py",
        "                    id_now(topic) if topic_id == NULL_UUID else topic_id,\n",
        "                    topic_id,\n",
        tests=(f"{TEST_COORDINATOR}::{MADE_ANEW}",),
    ),
    one(
        "all offsets of a group are told, whichever topics they are of",
        "a new topic is read from where the old one was read up to: records are skipped",
        "core/group/offsets/offset_requests.py",
        "            if (indexes := _partitions_of(id_now(topic), each))\n",
        "            if (indexes := list(each))\n",
        tests=(f"{TEST_COORDINATOR}::{MADE_ANEW}",),
    ),
)
