"""The oracle sees: a log's beginning may go by an event that is configured and due, and no other.

Goal: no bug passes as retention. Method: one segment is deleted under each policy at the moment at
which it may not go yet, and at the next; what a broker says of itself is never asked. Then the
judge's findings: one offset is excused, the next is not.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from math import inf
from typing import Any

import pytest
from tests.judge.histories import Story

from holdfast.judge.findings import FINDINGS_MAX
from holdfast.judge.history import Acknowledged, Delivered, Event, Replica
from holdfast.judge.verdict import Anomaly, Finding
from holdfast.testing.simulation.allowances import Forgiveness, Reason
from holdfast.testing.simulation.chain import Entry
from holdfast.testing.simulation.clients import History
from holdfast.testing.simulation.deletions import RETENTION_MS, Deletions, Policy, Stretch
from holdfast.testing.simulation.invariants import Invariant
from holdfast.testing.simulation.metadata import Metadata, State
from holdfast.testing.simulation.oracle import Oracle
from holdfast.testing.simulation.plan import Plan, ProducerPlan
from holdfast.testing.simulation.replica_seen import Replica as Copy
from holdfast.testing.simulation.truth import PartitionTruth
from holdfast.testing.simulation.verdict import is_deleted, is_empty_everywhere, unforgiven
from holdfast.wire.batch import Record, assign, assign_max_timestamp, build_batch, read_header
from holdfast.wire.records import metadata as wire

NOW_MS = 1_767_225_600_000
TOPIC_ID = bytes(range(16))


class Place:
    """A partition, one replica, and the batches that it holds; times count from NOW_MS."""

    def __init__(self, policy: Policy, *batches: list[int | None]) -> None:
        self.told: list[str] = []
        self.truth = PartitionTruth("t-0", lambda what, _: self.told.append(what), Counter())
        self.truth.deletions = Deletions(asked=lambda: 0, policy=lambda: policy)
        self.replica = Copy(1, None)
        self.truth.replicas[1] = self.replica
        self.ends = [0]
        for stamps in batches:
            self.append(stamps)

    def append(self, stamps: list[int | None], epoch: int = 0) -> None:
        """A batch of records so many milliseconds after NOW_MS; None: without a timestamp."""
        batch = build_batch(
            [Record(value=b"v", timestamp=-1 if at is None else NOW_MS + at) for at in stamps]
        )
        assign(batch, self.ends[-1], epoch)
        assert self.truth.deletions.read(batch) == ""
        header = read_header(batch)
        self.truth.appended(
            self.replica,
            Entry(header.base_offset, header.last_offset, epoch, header.crc),
            leads=True,
        )
        self.ends.append(header.next_offset)
        self.replica.high_watermark = header.next_offset

    def expire(
        self, batches: int, at_ms: int, *, first: int = 0, left: int = 0, written: int = 0
    ) -> bool:
        """Delete the segment of these batches; True: nobody has said that it may not go."""
        stretch = Stretch(self.ends[first], self.ends[batches], 1, NOW_MS + written)
        self.truth.expired(self.replica, stretch, left=left, now_ms=NOW_MS + at_ms)
        if not self.told:
            self.truth.started(self.replica, stretch.end)
        return not self.told


@pytest.mark.parametrize(
    ("policy", "batches", "left", "written", "due_at"),
    [
        (Policy(100), [[0], [50]], 0, 0, 151),
        (Policy(100), [[50], [0, 9]], 0, 0, 151),
        (Policy(100), [[None], [50]], 0, 900, 151),
        (Policy(100), [[None], [None]], 0, 50, 151),
        (Policy(100), [[-9_000], [-9_000]], 0, 900, -8_899),
        (Policy(), [[0]], 0, 0, RETENTION_MS + 1),
        (Policy(inf, 10), [[0]], 9, 0, None),
        (Policy(inf, 10), [[0]], 10, 0, 0),
        (Policy(inf), [[0]], 1 << 40, 0, None),
    ],
)
def test_a_segment_may_go_when_it_is_due(
    policy: Policy, batches: list[list[int | None]], left: int, written: int, due_at: int | None
) -> None:
    early = RETENTION_MS * 2 if due_at is None else due_at - 1
    if left < policy.size:
        place = Place(policy, *batches)
        assert not place.expire(len(batches), early, left=left, written=written)
        assert place.told == [Invariant.DUE_DELETED_ONLY]
        assert place.truth.deletions.bound == 0
    if due_at is not None:
        place = Place(policy, *batches)
        assert place.expire(len(batches), due_at, left=left, written=written)
        assert place.truth.deletions.bound == place.ends[-1]


def test_what_expired_on_one_replica_may_be_missing_on_another_and_nothing_more() -> None:
    place = Place(Policy(100), [0], [50], [60])
    assert place.expire(2, 151)
    other = Copy(2, None)
    place.truth.opened(other, [], start=0, high_watermark=0, cause="")
    place.truth.reset(other, 2)
    assert place.told == []
    place.truth.reset(other, 3)
    assert place.told == [Invariant.DUE_DELETED_ONLY]


def test_what_lies_before_a_log_start_was_judged_when_it_moved() -> None:
    place = Place(Policy(inf), [0], [50])
    place.truth.deletions.asked = lambda: 1
    place.truth.started(place.replica, 1)
    assert place.expire(1, 0)
    assert not place.expire(2, 0, first=1)


def test_a_process_that_did_not_see_a_segments_deleted_part_knows_its_timestamps() -> None:
    """A log is opened from its start on; the file before it may hold the largest timestamp."""
    place = Place(Policy(100), [0], [None])
    place.truth.deletions.asked = lambda: 1
    again = place.truth.replicas[1] = Copy(1, None)
    again.chain.append(place.replica.chain.entries[1])
    again.start, again.high_watermark = 1, 2
    place.replica = again
    assert place.expire(2, 101, written=90), "as old as the record that was deleted"
    assert not Place(Policy(100), [None], [None]).expire(2, 101, written=90)


@pytest.mark.parametrize("unseen", [0, 1])
def test_what_another_epoch_had_at_a_deleted_offset_makes_no_segment_young(unseen: int) -> None:
    """Where a power cut ended what all had, offsets were given out again, in other batches.

    Seen to fail: a young batch of a lost epoch stood for the old one that a segment held.
    """
    place = Place(Policy(100), [0])
    place.append([90])
    place.truth.replicas[1] = place.replica = Copy(1, None)
    place.truth.allowances.given.append(Forgiveness(epoch=1, offset=0, reason=Reason.UNCLEAN))
    place.ends = [0]
    place.append([0, 0], epoch=1)
    place.append([1], epoch=1)
    place.truth.deletions.asked = lambda: 2
    del place.replica.chain.entries[:unseen]
    place.replica.start = 2
    assert place.expire(2, 102)


def test_a_header_that_its_records_do_not_bear_out_is_told() -> None:
    batch = build_batch([Record(value=b"v", timestamp=-1)])
    assert Deletions().read(batch) == ""
    assign_max_timestamp(batch, 0)
    assert "its records -1" in Deletions().read(batch)


def test_the_policy_is_the_least_that_was_ever_configured() -> None:
    """A node may not have heard yet that more is to be kept."""
    metadata = Metadata(lambda *_: None, Counter(), {}, lambda *_: None)
    metadata.apply([wire.TopicRecord(name="t", topic_id=TOPIC_ID)], 1)
    partition = wire.PartitionRecord(
        partition_id=0, topic_id=TOPIC_ID, replicas=[1], isr=[1], leader=1
    )

    def set_to(key: str, value: str | None) -> Policy:
        record = wire.ConfigRecord(resource_type=2, resource_name="t", name=key, value=value)
        metadata.apply([record], metadata.end + 1)
        return metadata.policies[TOPIC_ID]

    metadata.apply([partition], 2)
    assert metadata.policies[TOPIC_ID] == (RETENTION_MS, inf)
    assert set_to("retention.ms", "-1") == (RETENTION_MS, inf)
    assert set_to("retention.ms", "500") == (500, inf)
    assert set_to("retention.bytes", "70") == (500, 70)
    assert set_to("retention.ms", None) == (500, 70)


def test_all_that_is_committed_may_go_until_it_is_known_how_much_that_was() -> None:
    metadata = Metadata(lambda *_: None, Counter(), {}, lambda *_: None)
    metadata.topics[TOPIC_ID] = "t"
    assert metadata.deletions_asked((TOPIC_ID, 0)) == 0
    metadata.deletions["t", 0] = 7
    metadata.deletions_open["t", 0] += 1
    assert metadata.deletions_asked((TOPIC_ID, 0)) == inf
    metadata.deletions_open["t", 0] -= 1
    assert metadata.deletions_asked((TOPIC_ID, 0)) == 7
    assert metadata.deletions_asked((TOPIC_ID, 1)) == 0


def found(anomaly: Anomaly, *events: Event) -> Finding:
    return Finding(anomaly=anomaly, topic="t", partition=0, text="", events=events)


def test_the_judge_is_overruled_only_below_what_may_be_gone() -> None:
    history = History()
    place: dict[str, Any] = {
        "at_ms": 0.0,
        "wall_ms": 0,
        "process": "p",
        "topic": "t",
        "partition": 0,
    }
    lost = found(Anomaly.LOST, Acknowledged(**place, id="p:1", offset=None))
    assert not is_deleted(lost, 9, history), "nobody knows where it was"
    history.places["p:1"] = 8
    assert is_deleted(lost, 9, history)
    assert not is_deleted(lost, 8, history)
    read = found(Anomaly.VANISHED, Delivered(**place, offset=8, digest=""))
    assert is_deleted(read, 9, history)
    assert not is_deleted(read, 8, history)
    assert not is_deleted(found(Anomaly.DUPLICATED, read.events[0]), 9, history)
    assert is_deleted(found(Anomaly.SKIPPED, read.events[0]), 9, history)
    assert not is_deleted(found(Anomaly.SKIPPED, read.events[0]), 8, history)


def of_foo() -> tuple[Oracle, Plan]:
    """Make an oracle and a plan of one partition, written to with acks=all."""
    oracle = Oracle()
    oracle.metadata.topics[TOPIC_ID] = "foo"
    oracle.metadata.partitions[TOPIC_ID, 0] = State(
        replicas=(1,), isr=(1,), leader=1, leader_epoch=1, partition_epoch=0
    )
    producer = ProducerPlan(
        topic="foo", partition=0, acks=-1, idempotent=True, retries=True, pause_ms=1
    )
    return oracle, Plan(
        seed=0, brokers=1, controllers=1, combined=True, elr=False, producers=(producer,)
    )


def test_a_loss_is_found_behind_however_many_that_are_allowed() -> None:
    """Method: an unclean election lets all but one go of more than the judge has evidence for."""
    many = range(FINDINGS_MAX * 2)
    oracle, plan = of_foo()
    history, story = History(), Story().send(*many)
    for number in many:
        story.ack(number, number)
        history.epochs[f"p:{number}"] = (1,)
    history.events = story.final().events
    allowances = oracle.truth((TOPIC_ID, 0)).allowances
    allowances.given.append(Forgiveness(2, 0, Reason.UNCLEAN, end=many[-1]))
    (left,) = unforgiven(plan, history, oracle)[1]
    assert [event.id for event in left.events if isinstance(event, Acknowledged)] == [
        f"p:{many[-1]}"
    ]


def test_a_wish_to_delete_that_nobody_has_carried_out_excuses_no_loss() -> None:
    """Goal: a lost record is found while "delete all that is committed" has no answer yet.

    Method: a history that lost its last record, judged with an oracle that lets everything go, and
    again when a log has begun behind that record.
    """
    oracle, plan = of_foo()
    oracle.metadata.deletions_open["foo", 0] += 1
    history = History()
    history.events = Story().send(0, 1).ack(0, 0).ack(1, 1).final(0).events
    history.places = {"p:0": 0, "p:1": 1}
    history.batches = {"p:0": 0, "p:1": 1}
    truth = oracle.truth((TOPIC_ID, 0))
    assert truth.deletions.bound == inf
    truth.deletions.reached = 1
    _, left = unforgiven(plan, history, oracle)
    assert [finding.anomaly for finding in left] == [Anomaly.LOST]
    truth.deletions.reached = 2
    assert unforgiven(plan, history, oracle)[1] == []


def test_a_replica_may_begin_later_only_as_far_as_what_may_be_gone() -> None:
    place: dict[str, Any] = {
        "at_ms": 0.0, "wall_ms": 0, "process": "r", "topic": "t", "partition": 0
    }  # fmt: skip

    def apart(begin: int, end: int = 20, first: int = 0) -> Finding:
        whole = Replica(**place, node=1, begin=first, end=20)
        return found(Anomaly.DIVERGED, whole, Replica(**place, node=2, begin=begin, end=end))

    assert is_deleted(apart(9), 9, History())
    assert not is_deleted(apart(10), 9, History())
    assert not is_deleted(apart(9, end=19), 9, History()), "its end is another matter"
    assert is_deleted(apart(9, first=9), 9, History()), "both, after the last read"
    assert not is_deleted(apart(9, first=9), 8, History())
    alone = Replica(**place, node=1, begin=9, end=20)
    assert is_deleted(found(Anomaly.DIVERGED, alone, alone), 9, History())
    assert not is_deleted(found(Anomaly.DIVERGED, alone, alone), 8, History())


def test_replicas_that_hold_nothing_may_end_apart_where_nobody_leads() -> None:
    """Seen to fail: every disk was replaced, and what the first new one had expired."""
    place: dict[str, Any] = {
        "at_ms": 0.0, "wall_ms": 0, "process": "r", "topic": "foo", "partition": 0
    }  # fmt: skip

    def apart(begin: int, end: int) -> Finding:
        empty = Replica(**place, node=1, begin=0, end=0)
        return found(Anomaly.DIVERGED, empty, Replica(**place, node=2, begin=begin, end=end))

    assert is_empty_everywhere(apart(9, 9), 9)
    assert not is_empty_everywhere(apart(9, 9), 8), "nothing has expired there"
    assert not is_empty_everywhere(apart(8, 9), 9), "it holds a record"
    oracle, _ = of_foo()
    assert oracle.is_led("foo", 0)
    assert not oracle.is_led("foo", 1)
    lost = replace(oracle.metadata.partitions[TOPIC_ID, 0], leader=-1)
    oracle.metadata.partitions[TOPIC_ID, 0] = lost
    assert not oracle.is_led("foo", 0)
