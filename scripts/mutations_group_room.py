"""Bugs in what the coordinator's room does not do for a heartbeat, and does by turns.

Owns the list for the tests that each names.
"""

from __future__ import annotations

from mutation import Mutation, one

LED = "node/coordinator/led_shard.py"
COORDINATOR = "node/coordinator/coordinator.py"
GROUPS = "node/coordinator/groups.py"
TEST_MESSAGES = "tests/wire/test_group_messages.py"
TEST_IMPORT = "tests/coordinator/test_groups_import.py"
TEST_LED = "tests/coordinator/test_led_shard.py"
TEST_TOPIC = "tests/coordinator/test_offsets_topic.py"
TEST_ROOM = "tests/coordinator/test_coordinator.py"
TOLD_AT_ONCE = "test_a_heartbeat_that_tells_of_nothing_new_waits_for_nothing_and_leaves_nothing"
IMPORTED_BY_TURNS = "test_who_follows_a_shard_has_imported_all_by_turns_before_it_leads"
TOLD_AT_THE_END = "test_who_leads_meanwhile_is_told_of_at_the_end_or_when_somebody_asks"

GROUP_ROOM: tuple[Mutation, ...] = (
    one(
        "offsets are kept as named tuples",
        "the collector looks at a million objects, and nobody is served meanwhile",
        "core/group/offsets/offset_store.py",
        "partitions[partition] = committed[:]",
        "partitions[partition] = committed",
        tests=("tests/group/test_offset_store.py",),
    ),
    one(
        "an expiry before the commit is looked for in a check that was long ago",
        "what a client committed is there until the next check",
        "core/group/offsets/offset_retention.py",
        "bring_forward(group_id, max(expires_ms, committed_ms))",
        "bring_forward(group_id, expires_ms)",
        tests=("tests/group/test_offset_retention.py",),
    ),
    one(
        "a heartbeat's answer overtakes commits of its turn",
        "answers leave in their order",
        LED,
        "        if not self.is_current or self._commits or not self._around.calls.is_quiet:\n",
        "        if not self.is_current or not self._around.calls.is_quiet:\n",
        tests=(f"{TEST_LED}::{TOLD_AT_ONCE}",),
    ),
    one(
        "what is told at once may not be committed",
        "an answer tells of what is committed",
        LED,
        "if decision.records or self.partition.acknowledgement(self._end) is None:",
        "if decision.records:",
        tests=(f"{TEST_LED}::{TOLD_AT_ONCE}",),
    ),
    one(
        "who asks for patterns to be looked at is forgotten meanwhile",
        "topics count that a member may describe",
        LED,
        "            if is_mine and not self.shard.wants_refresh:\n",
        "            if is_mine:\n",
        tests=(f"{TEST_LED}::test_who_asks_for_patterns_to_be_looked_at_is_known_meanwhile",),
    ),
    one(
        "a shard that is over is freed in one go",
        "nobody is held up for longer than a slice",
        COORDINATOR,
        "            self._put_away(led)\n",
        "            pass\n",
        tests=(f"{TEST_ROOM}::test_a_shard_that_is_over_is_freed_a_little_at_a_time",),
    ),
    one(
        "the coordinator is imported in one go",
        "nobody is held up for longer than a slice",
        GROUPS,
        "            self._import_next(iter(IMPORTS))",
        "            self._import_next(iter(IMPORTS[-1:]))",
        tests=(f"{TEST_IMPORT}::{IMPORTED_BY_TURNS}",),
    ),
    one(
        "who leads while the coordinator is imported is never told of",
        "who leads a shard coordinates its groups",
        GROUPS,
        "            self._roles.append(partition)\n",
        "",
        tests=(f"{TEST_IMPORT}::{TOLD_AT_THE_END}",),
    ),
    one(
        "a commit may name as many as any other request",
        "what is refused anyway is refused before it is decoded",
        "wire/messages/offset_commit.py",
        ", elements_max=ELEMENTS_MAX",
        "",
        tests=(f"{TEST_MESSAGES}::test_a_commit_names_fewer_than_other_requests",),
    ),
    one(
        "the topic of offsets is made with the first broker that is there",
        "groups whose commits have one replica, or never come true",
        "node/coordinator/offsets_topic.py",
        "        return max(1, brokers) if now_ms - self._brokers_since_ms >= ALONE_MS else None\n",
        "        return max(1, brokers) if now_ms >= self._brokers_since_ms else None\n",
        tests=(f"{TEST_TOPIC}::test_it_waits_for_brokers_that_are_on_their_way",),
    ),
)
