"""Bugs in what a group of the consumer protocol remembers, waits for and gives away to be done.

Owns the list for the tests that each names.
"""

from __future__ import annotations

from mutation import Mutation, one

PATTERNS = "core/group/consumer/consumer_patterns.py"
STEP = "core/group/consumer/consumer_step.py"
MADE_ANEW = "test_a_topic_that_is_made_anew_while_nobody_leads_has_no_offsets_of_the_one_before"
TEST_COORDINATOR = "tests/coordinator/test_coordinator.py"
TEST_SHARD = "tests/group/test_consumer_shard.py"
TEST_PATTERNS = "tests/group/test_consumer_patterns.py"
NOT_AGAIN = "test_what_can_t_be_written_is_not_found_out_again_with_each_heartbeat"

TEST_ANSWERS = "tests/group/test_consumer_answers.py"

GROUP_MEMBERS: tuple[Mutation, ...] = (
    one(
        "a member is told once what it has",
        "who waits no longer for the answer never gives up what it has to, and is put out for that",
        "core/group/consumer/consumer_heartbeat.py",
        "    if has_changed or is_full or core.has_to_hear_again(after.member_id, now_ms):\n",
        "    if has_changed or is_full:\n",
        tests=(
            f"{TEST_ANSWERS}::test_what_a_member_has_to_give_up_it_is_told_until_it_says_so",
            f"{TEST_ANSWERS}::test_what_a_member_is_given_it_is_told_until_it_has_it",
        ),
    ),
    one(
        "a member is told what it has for ever",
        "bytes in each heartbeat",
        "core/group/consumer/consumer_heartbeat.py",
        "    if owned == step.after.assigned:\n",
        "    if owned is not None and not step.after.assigned:\n",
        tests=(f"{TEST_ANSWERS}::test_what_a_member_has_to_give_up_it_is_told_until_it_says_so",),
    ),
    one(
        "who has gone is still to be told what it has",
        "memory in no budget",
        "core/group/consumer/consumer_core.py",
        "        self.confirmed(member_id)\n        for kind",
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
