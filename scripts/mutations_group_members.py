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
TEST_MIGRATION = "tests/group/test_consumer_migration.py"
TEST_PATTERNS = "tests/group/test_consumer_patterns.py"
NOT_AGAIN = "test_what_can_t_be_written_is_not_found_out_again_with_each_heartbeat"

TEST_ANSWERS = "tests/group/test_consumer_answers.py"

GROUP_MEMBERS: tuple[Mutation, ...] = (
    one(
        "a member is told once what it has",
        "who waits no longer for the answer never gives up what it has to, and is put out for that",
        HEARTBEAT,
        "is_told = is_news or is_unclear or tellings.is_due(member_id, now_ms)\n",
        "is_told = is_news or is_unclear\n",
        tests=(
            f"{TEST_ANSWERS}::test_what_a_member_has_to_give_up_it_is_told_until_it_says_so",
            f"{TEST_ANSWERS}::test_what_a_member_is_given_it_is_told_until_it_has_it",
        ),
    ),
    one(
        "a member is told what it has for ever",
        "bytes in each heartbeat",
        HEARTBEAT,
        "    if confirms and not is_unclear:\n",
        "    if owned == {}:\n",
        tests=(f"{TEST_ANSWERS}::test_what_a_member_has_to_give_up_it_is_told_until_it_says_so",),
    ),
    one(
        "what a member confirms is what the same answer tells it",
        "two members read one partition for good: it never hears that it lost it",
        HEARTBEAT,
        "confirms = owned == before.assigned == after.assigned\n",
        "confirms = owned == after.assigned\n",
        tests=(f"{TEST_ANSWERS}::test_what_is_taken_in_the_request_that_says_so_is_not_confirmed",),
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
        "what a member says is always of what it was told last",
        "two members read one partition for good: it goes on to what it was told in between",
        HEARTBEAT,
        "    is_unclear = confirms and tellings.is_unclear(member_id)\n",
        "    is_unclear = False\n",
        tests=(f"{TEST_ANSWERS}::test_a_late_word_of_the_first_is_not_one_of_the_reduced",),
    ),
    one(
        "who says that it has what another one has is left in that",
        "two members read one partition for good",
        HEARTBEAT,
        "        or _has_more(owned, after)\n",
        "",
        tests=(
            f"{TEST_ANSWERS}::test_who_says_that_it_has_what_another_one_has_is_told_what_is_its_own",
        ),
    ),
    one(
        "who holds up others is told ever more rarely",
        "a rebalance that waits for a minute where a heartbeat would do",
        TELLINGS,
        "not (is_news or is_awaited)",
        "not is_news",
        tests=(f"{TEST_ANSWERS}::test_what_a_member_has_to_give_up_it_is_told_until_it_says_so",),
    ),
    one(
        "who does not confirm is told as often for good",
        "bytes in each heartbeat",
        TELLINGS,
        "            gap_ms = min(max(gap_ms, 2 * before.gap_ms), GAP_MAX * interval_ms)\n",
        "            pass\n",
        tests=(f"{TEST_ANSWERS}::test_who_has_what_it_is_told_is_told_ever_more_rarely",),
    ),
    one(
        "a new coordinator takes it that everybody has heard everything",
        "what was given is read by nobody",
        TELLINGS,
        "        self._unconfirmed[member_id] = _Telling(now_ms, 0, is_unclear=True)\n",
        "",
        tests=(
            f"{TEST_ANSWERS}::test_a_new_coordinator_tells_again_what_was_given",
            f"{TEST_ANSWERS}::test_a_new_coordinator_tells_until_it_is_done_what_has_to_be_given_up",
        ),
    ),
    one(
        "a new coordinator takes it that what a member says is of what it was told last",
        "two members read one partition for good, after a fail-over",
        TELLINGS,
        "_Telling(now_ms, 0, is_unclear=True)",
        "_Telling(now_ms, 0, is_unclear=False)",
        tests=(f"{TEST_ANSWERS}::test_a_late_word_of_the_first_is_not_one_of_the_reduced",),
    ),
    one(
        "who is told again says what it says of that",
        "two members read one partition for good: its word is of something older",
        TELLINGS,
        "(is_news or before.is_unclear)",
        "is_news",
        tests=(f"{TEST_ANSWERS}::test_a_late_word_of_the_first_is_not_one_of_the_reduced",),
    ),
    one(
        "a group that becomes a classic one rebalances only for a new subscription",
        "a partition that nobody reads: its owner has not heard that it has it",
        "core/group/consumer/consumer_classic.py",
        "            member.settled(core.state.epoch)\n",
        "            member.member_id\n",
        tests=(
            f"{TEST_MIGRATION}::test_a_downgrade_in_the_middle_of_a_rebalance_leaves_no_partition_unread",
        ),
    ),
    one(
        "a timer of the classic protocol outlives a member's change to the other one",
        "a member that beats is put out",
        "core/group/consumer/consumer_group.py",
        "        return member.classic is None\n",
        "        return False\n",
        tests=(
            f"{TEST_MIGRATION}::test_a_member_that_changed_protocol_is_not_put_out_by_a_timer_of_the_old_one",
        ),
    ),
    one(
        "a member takes a static one's place under the id of a third",
        "a pattern that nobody has, and offsets that never expire",
        HEARTBEAT,
        "if existing.member_id != member_id and member_id in core.state.members:\n",
        "if not member_id:\n",
        tests=(f"{TEST_SHARD}::test_no_member_takes_a_place_under_another_ones_id",),
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
