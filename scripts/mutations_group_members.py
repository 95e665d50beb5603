"""Bugs in what a group of the consumer protocol remembers, waits for and gives away to be done.

Owns the list for the tests that each names.
"""

from __future__ import annotations

from mutation import Mutation, one

STEP = "core/group/consumer/consumer_step.py"
TEST_SHARD = "tests/group/test_consumer_shard.py"
TEST_PATTERNS = "tests/group/test_consumer_patterns.py"

GROUP_MEMBERS: tuple[Mutation, ...] = (
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
)
