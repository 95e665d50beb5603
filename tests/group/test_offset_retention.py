"""Goal: offsets expire when Kafka's do, and a check looks only at what may have expired.

Method: cases at the edge of each time; the work of a check is counted by the groups that are asked.
Seen to fail: with an offset that expires a moment early or late, with an empty group's offsets
counted from their commits, with a subscribed topic's offsets not kept, with a check that looks at
all groups, and with an own retention that is not kept over a load.

Rules: committed-offsets.md#expiry.
"""

from __future__ import annotations

from collections import Counter

import pytest
from tests.group.shard_kit import Coordinator, Offsets

from holdfast.core.deadlines import NEVER_MS
from holdfast.core.group.classic.classic_group import ClassicGroup
from holdfast.core.group.offsets.tombstone_batch import RECORDS_MAX
from holdfast.wire.errors import ErrorCode

RETENTION_MS = 10_000
CHECK_MS = 1000
ONE: Offsets = {("t", 0): 1}


def quick(**more: int) -> Coordinator:
    settings = {"offsets_retention_ms": RETENTION_MS, "offsets_retention_check_ms": CHECK_MS}
    return Coordinator(**settings | more)


@pytest.mark.parametrize("moved", [False, True])
def test_a_simple_group_expires_by_its_commits(moved: bool) -> None:
    coordinator = quick()
    coordinator.pass_time(500)
    coordinator.commit("g", ONE)
    coordinator.pass_time(500)
    if moved:
        coordinator.move()  # from now on checks are counted anew: at the same times as before
    coordinator.pass_time(RETENTION_MS - 1)
    assert coordinator.offsets("g") == ONE, "it expires between two checks"
    coordinator.pass_time(1)
    assert coordinator.offsets("g") == {}
    assert coordinator.state("g") == "Dead"


def test_a_check_at_the_very_moment_finds_it() -> None:
    coordinator = quick()
    coordinator.commit("g", ONE)
    coordinator.pass_time(RETENTION_MS - 1)
    assert coordinator.offsets("g") == ONE
    coordinator.pass_time(1)
    assert coordinator.offsets("g") == {}


@pytest.mark.parametrize("retention_ms", [-2, -5 * CHECK_MS, -(1 << 63)])
def test_what_was_to_expire_before_it_was_committed_goes_with_the_next_check(
    retention_ms: int,
) -> None:
    """Seen to fail: one from before the last check went at once, and not as in Apache Kafka."""
    coordinator = quick()
    coordinator.pass_time(3 * CHECK_MS + 1)
    coordinator.commit("g", ONE, retention_ms=retention_ms)
    coordinator.pass_time(CHECK_MS - 2)
    assert coordinator.offsets("g") == ONE
    coordinator.pass_time(1)
    assert coordinator.offsets("g") == {}


def test_an_empty_group_expires_since_it_is_empty() -> None:
    coordinator = quick()
    (a,) = coordinator.stable("g", "a", session_ms=1_800_000)
    coordinator.commit("g", ONE, member_id=a, generation=1)
    coordinator.pass_time(5 * RETENTION_MS)
    coordinator.leave("g", (a, None))
    coordinator.pass_time(3000)
    coordinator.move()
    coordinator.pass_time(RETENTION_MS - 3001)
    assert coordinator.offsets("g") == ONE
    coordinator.pass_time(1)
    assert coordinator.offsets("g") == {}
    assert coordinator.state("g") == "Dead"


def test_nothing_expires_while_it_is_not_known_who_reads_it() -> None:
    coordinator = quick()
    (a,) = coordinator.stable("g", "a", session_ms=1_800_000, protocols={"range": b"?"})
    coordinator.commit("g", ONE, member_id=a, generation=1)
    (b,) = coordinator.stable("h", "b", session_ms=1_800_000, protocol_type="connect")
    coordinator.commit("h", ONE, member_id=b, generation=1)
    coordinator.pass_time(5 * RETENTION_MS)
    assert coordinator.offsets("g") == coordinator.offsets("h") == ONE
    coordinator.new_member("h", protocol_type="connect")
    coordinator.pass_time(5 * RETENTION_MS)
    assert coordinator.offsets("h") == ONE, "nor while it rebalances"


def test_a_stable_group_loses_what_its_members_stopped_to_read() -> None:
    coordinator = quick()
    (a,) = coordinator.stable("g", "a", session_ms=1_800_000)  # it reads t
    coordinator.commit("g", {("t", 0): 1, ("u", 0): 1}, member_id=a, generation=1)
    coordinator.pass_time(RETENTION_MS)
    assert coordinator.offsets("g") == ONE
    assert coordinator.state("g") == "Stable"


@pytest.mark.parametrize("moved", [False, True])
def test_a_client_may_ask_for_another_retention(moved: bool) -> None:
    coordinator = quick()
    coordinator.commit("g", {("t", 0): 1}, retention_ms=3000, version=4)
    coordinator.commit("g", {("t", 1): 1}, retention_ms=2 * RETENTION_MS, version=4)
    coordinator.commit("g", {("t", 2): 1}, retention_ms=2**63 - 1, version=4)
    coordinator.commit("g", {("t", 3): 1}, retention_ms=-(2**63), version=4)
    if moved:
        coordinator.move()
    coordinator.pass_time(2999)
    assert coordinator.offsets("g").keys() == {("t", 0), ("t", 1), ("t", 2)}
    coordinator.pass_time(1)
    assert coordinator.offsets("g").keys() == {("t", 1), ("t", 2)}
    coordinator.pass_time(2 * RETENTION_MS - 3001)
    assert coordinator.offsets("g").keys() == {("t", 1), ("t", 2)}
    coordinator.pass_time(1)
    assert coordinator.offsets("g").keys() == {("t", 2)}


def test_a_commit_begins_the_time_anew() -> None:
    coordinator = quick()
    for _ in range(5):
        coordinator.commit("g", ONE)
        coordinator.pass_time(RETENTION_MS - 1)
        assert coordinator.offsets("g") == ONE
    coordinator.pass_time(CHECK_MS)
    assert coordinator.offsets("g") == {}


def test_a_group_without_offsets_is_gone_with_the_next_check() -> None:
    coordinator = quick()
    coordinator.join("g")
    (a,) = coordinator.stable("h", "a", session_ms=6000)
    coordinator.pass_time(CHECK_MS)
    assert (coordinator.state("g"), coordinator.state("h")) == ("Dead", "Stable")
    coordinator.leave("h", (a, None))
    coordinator.pass_time(CHECK_MS - 1)
    assert coordinator.state("h") == "Empty"
    coordinator.move()
    coordinator.pass_time(CHECK_MS)
    assert coordinator.state("h") == "Dead"
    coordinator.commit("i", ONE)
    coordinator.pass_time(CHECK_MS)
    assert coordinator.state("i") == "Empty"
    coordinator.delete_offsets("i", ("t", 0))
    coordinator.pass_time(CHECK_MS)
    assert coordinator.state("i") == "Dead"
    assert coordinator.shard.deadline_ms == NEVER_MS


def test_many_offsets_expire_in_parts() -> None:
    coordinator = quick()
    count = 2 * RECORDS_MAX + 1
    coordinator.commit("g", {("t", index): 1 for index in range(count)})
    coordinator.now_ms += RETENTION_MS + 300  # late: between two checks
    shard, sizes = coordinator.shard, []
    while shard.deadline_ms <= coordinator.now_ms:
        decision = shard.due(coordinator.now_ms)
        sizes.append(len(decision.records))
        shard.apply(decision)
    assert [size for size in sizes if size] == [RECORDS_MAX, RECORDS_MAX, 2]
    assert coordinator.state("g") == "Dead"


def test_a_check_looks_at_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    coordinator = quick()
    asked: Counter[str] = Counter()
    expires = ClassicGroup.offsets_expire_from

    def counted(group: ClassicGroup, committed_ms: int) -> int | None:
        asked[group.group_id] += 1
        return expires(group, committed_ms)

    monkeypatch.setattr(ClassicGroup, "offsets_expire_from", counted)
    for count in range(100):
        coordinator.commit(f"g{count}", ONE)
    coordinator.pass_time(RETENTION_MS // 2)
    coordinator.commit("late", ONE)
    coordinator.commit("g1", ONE)
    asked.clear()
    coordinator.pass_time(RETENTION_MS // 2)
    assert len(asked) == 101
    assert set(asked.values()) <= {1, 2}
    asked.clear()
    coordinator.pass_time(RETENTION_MS // 2 - CHECK_MS)
    assert not asked, "there was a check, and nothing could have expired"
    coordinator.pass_time(CHECK_MS)
    assert asked == {"late": 1, "g1": 1}


def test_the_first_check_is_one_interval_after_a_load() -> None:
    coordinator = quick()
    coordinator.commit("g", ONE)
    coordinator.now_ms += 2 * RETENTION_MS
    coordinator.move()
    coordinator.pass_time(CHECK_MS - 1)
    assert coordinator.offsets("g") == ONE
    coordinator.pass_time(1)
    assert coordinator.offsets("g") == {}


def test_a_load_does_not_look_at_all_offsets(monkeypatch: pytest.MonkeyPatch) -> None:
    coordinator = quick()
    for count in range(10):
        coordinator.commit(f"g{count}", ONE)
    monkeypatch.setattr(ClassicGroup, "offsets_expire_from", lambda *_: pytest.fail("looked at"))
    coordinator.move()
    coordinator.pass_time(CHECK_MS)
    assert coordinator.commit("g1", ONE) == {("t", 0): ErrorCode.NONE}
