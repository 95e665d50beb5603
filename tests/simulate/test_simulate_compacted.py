"""The oracle sees: compaction takes what a later record of its key has replaced, and nothing else.

Goal: no loss passes as compaction, and none of its holes breaks another check. Method: small logs
with keys, of which a replica is said to have stored this or that; then the judge's findings; then
seeds whose topics are compacted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.judge.history import Acknowledged, Delivered
from holdfast.judge.verdict import Anomaly, Finding
from holdfast.testing.simulation.chain import Entry
from holdfast.testing.simulation.compacted import Stored, stored
from holdfast.testing.simulation.compacted_truth import CompactedTruth
from holdfast.testing.simulation.drawing import LIGHT, draw_plan
from holdfast.testing.simulation.invariants import Invariant
from holdfast.testing.simulation.replica_seen import Replica
from holdfast.testing.simulation.run import run_plan
from holdfast.testing.simulation.session_reader import SessionReader
from holdfast.testing.simulation.verdict import is_replaced
from holdfast.wire.batch import Record, assign, build_batch

DAY_MS = 86_400_000
NOW_MS = 1_767_225_600_000
Pair = tuple[str, str | None]


class Place:
    """A partition, its leader with a batch for each of these lists of keys and values."""

    def __init__(self, *batches: list[Pair], retention_ms: int = DAY_MS) -> None:
        self.told: list[str] = []
        self.now_ms = 0.0
        self.truth = CompactedTruth(
            "t-0",
            lambda what, text: self.told.append(f"{what}: {text}"),
            Counter(),
            retention_ms=retention_ms,
            now_ms=lambda: self.now_ms,
        )
        self.leader = self.replica(1)
        self.batches: list[bytes] = []
        for pairs in batches:
            self.append(pairs)
        self.leader.high_watermark = self.leader.chain.end

    def replica(self, node: int) -> Replica:
        made = self.truth.replicas[node] = Replica(node, None)
        return made

    def append(self, pairs: list[Pair]) -> None:
        records = [
            Record(key.encode(), None if value is None else value.encode(), NOW_MS + number)
            for number, (key, value) in enumerate(pairs)
        ]
        batch = build_batch(records)
        assign(batch, self.leader.chain.end, 0)
        self.batches.append(bytes(batch))
        self.truth.compacted.wrote(batch)
        (one,) = stored(batch)
        self.truth.appended(self.leader, one.entry, leads=True)

    def less(self, *gone: int, without: Collection[int] = ()) -> list[Stored]:
        """What is stored without these records, and without these batches."""
        found = []
        for number, batch in enumerate(self.batches):
            (one,) = stored(batch)
            left = [said for said in one.records if said.offset not in gone]
            if number not in without:
                newest = max((said.timestamp for said in left), default=0)
                header = one.header._replace(record_count=len(left), max_timestamp=newest)
                entry = one.entry._replace(crc=one.entry.crc ^ bool(gone))
                found.append(Stored(entry, header, left))
        return found

    def is_right(self, found: list[Stored], replica: Replica | None = None) -> bool:
        held = self.leader if replica is None else replica
        before = len(self.told)
        self.truth.check_stored(held, found, 0, held.chain.end)
        return len(self.told) == before


THREE: list[list[Pair]] = [[("a", "1"), ("b", "2")], [("a", "3")], [("c", "4"), ("b", "5")]]


def test_a_record_may_go_for_a_later_one_and_no_other_may() -> None:
    for gone, right in (((0,), True), ((0, 1), True), ((2,), False), ((3,), False), ((4,), False)):
        place = Place(*THREE)
        assert place.is_right(place.less(*gone)) is right, gone
        assert right or Invariant.COMPACTED_RIGHTLY in place.told[0]
    place = Place(*THREE)
    assert place.is_right(place.less(0, 1, without={0})), "with its batch"
    assert not place.is_right(place.less(without={1}))


def test_what_is_not_committed_replaces_nothing() -> None:
    place = Place(*THREE)
    place.leader.high_watermark = 4
    assert not place.is_right(place.less(1))
    place = Place(*THREE)
    place.leader.high_watermark = 0
    place.truth.check_stored(place.leader, place.less(1), 0, 5, is_found=True)
    assert not place.told, "who began anew does not know how much was committed"


def test_what_compaction_has_taken_is_not_cut_off() -> None:
    """A hole goes with the cut behind it. What nothing has replaced, or lies behind it, is lost."""
    for gone, end, asked, right in (
        ((0, 1), 0, 2, True),
        ((0,), 0, 2, False),
        ((0, 1), 0, 1, False),
    ):
        place = Place(*THREE)
        place.leader.high_watermark = 0
        place.truth.committed_until(place.leader, 5, 5)
        assert place.is_right(place.less(*gone))
        later, place.leader.chain.entries[1:] = place.leader.chain.entries[1:], []
        assert len(later) == 2
        place.truth.truncated(place.leader, end, asked)
        assert (not place.told) is right, (gone, asked)


def test_a_reader_is_promised_what_compaction_has_left() -> None:
    """Who began anew may know a high watermark below all that there is still."""
    place = Place(*THREE)
    assert place.is_right(place.less(0, 1, without={0}))
    reader: Any = SessionReader.__new__(SessionReader)
    reader._plan = SimpleNamespace(topic="t")
    reader._oracle = SimpleNamespace(named=lambda *_: place.truth)
    reader._next = {0: 0}
    place.leader.log = SimpleNamespace(recovery_point=0)
    for high_watermark, is_promised in ((0, False), (2, False), (3, True)):
        place.leader.high_watermark = high_watermark
        assert (reader._promised(0, place.leader.node) is not None) is is_promised
    reader._next = {0: 3}
    assert reader._promised(0, place.leader.node) is None


def test_what_is_there_is_what_was_written_there() -> None:
    place = Place(*THREE)
    whole = place.less()
    for changed in (
        whole[1]._replace(records=[whole[1].records[0]._replace(value=7)]),
        whole[1]._replace(records=[whole[1].records[0]._replace(key=b"z")]),
        whole[1]._replace(entry=whole[1].entry._replace(last=3)),
        whole[1]._replace(header=whole[1].header._replace(max_timestamp=NOW_MS + 9)),
        Stored(Entry(2, 2, 7, 0), whole[1].header, whole[1].records),
    ):
        assert not place.is_right([whole[0], changed, whole[2]])


def test_a_deleted_key_is_forgotten_when_its_time_has_come() -> None:
    place = Place([("a", "1")], [("a", None)], [("z", "9")])
    assert place.is_right(place.less(0))
    assert not place.is_right(place.less(0, 1)), "consumers have a day to hear of it"
    place.now_ms = DAY_MS
    assert not place.is_right(place.less(1)), "and what it deletes would be back"
    assert place.is_right(place.less(0, 1))


def test_who_was_away_for_longer_keeps_what_was_deleted_meanwhile() -> None:
    """As in Apache Kafka: its leader has forgotten the deletion by then."""
    place = Place([("a", "1")], [("a", None)], [("z", "9")])
    follower = place.replica(2)
    place.truth.fetched(follower, place.less()[:1])
    place.now_ms = DAY_MS
    assert place.is_right(place.less(0, 1, without={0, 1}))
    place.truth.fetched(follower, place.less(without={0, 1}))
    assert not place.told
    assert follower.chain.entries == place.leader.chain.entries
    assert place.is_right(place.less(1, without={1}), follower)
    other = place.replica(3)
    place.truth.fetched(other, place.less())
    assert not place.is_right(place.less(1, without={1}), other), "this one had heard of it"


def test_a_follower_of_a_compacted_leader_holds_what_was_appended() -> None:
    place = Place(*THREE)
    assert place.is_right(place.less(0, 1, without={0}))
    follower = place.replica(2)
    place.truth.fetched(follower, place.less(0, 1, without={0}))
    assert not place.told
    assert follower.chain.entries == place.leader.chain.entries
    place.truth.fetched(place.replica(3), place.less(without={1}))
    assert place.told, "nothing has replaced what this one leaves out"


def test_a_process_finds_what_a_dead_one_has_compacted() -> None:
    place = Place(*THREE)
    found = place.less(0, 1, without={0})
    fresh = Replica(1, None)
    place.truth.opened(fresh, [one.entry for one in found], start=0, high_watermark=0, cause="")
    place.truth.check_stored(fresh, found, 0, fresh.chain.end, is_found=True)
    assert not place.told
    assert fresh.chain.entries == place.leader.chain.entries


# --- the judge's findings ---


def finding(anomaly: Anomaly, event: Acknowledged | Delivered) -> Finding:
    return Finding(anomaly=anomaly, topic="t", partition=0, text="", events=(event,))


def test_the_judge_excuses_what_was_replaced_and_nothing_else() -> None:
    place = Place([("a", "p:0|x"), ("b", "p:1|x")], [("a", "p:2|x")])
    assert place.is_right(place.less(0))
    at: dict[str, Any] = {"at_ms": 1.0, "wall_ms": 1, "process": "p", "topic": "t", "partition": 0}
    for number, right in ((0, True), (1, False), (2, False)):
        name = f"p:{number}"
        lost = Acknowledged(**at, id=name, offset=number)
        assert is_replaced(finding(Anomaly.LOST, lost), place.truth) is right
        read = Delivered(**at, id=name, offset=number, digest="", epoch=0, committed_end=None)
        for anomaly in (Anomaly.VANISHED, Anomaly.SKIPPED):
            assert is_replaced(finding(anomaly, read), place.truth) is right
        assert not is_replaced(finding(Anomaly.PHANTOM, read), place.truth)


# --- seeds ---


@pytest.mark.slow
@pytest.mark.parametrize("seed", [10, 20, 75])
def test_seeds_compact(seed: int) -> None:
    """Rounds happen, under faults, and take something: else nothing of this was tried."""
    plan = draw_plan(seed, LIGHT)
    assert any(topic.is_compacted for topic in plan.topics)
    assert all(
        one.keyed == topic.is_compacted
        for topic in plan.topics
        for one in plan.producers
        if one.topic == topic.name
    )
    outcome = run_plan(plan)
    assert outcome.is_clean, outcome.violation
    for name in (
        "segments that were compacted",
        "records that compaction took",
        "batches that delete keys",
    ):
        assert outcome.counts[name], name
    if plan.provoked:
        for point in ("compaction.round", "compaction.small-map"):
            assert outcome.counts[f"provoked: {point}"], point


def test_a_seed_with_rare_branches_is_among_them() -> None:
    assert draw_plan(75, LIGHT).provoked
