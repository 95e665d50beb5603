"""A partition as its replicas tell it, and what follows for one message.

Goal: "committed" is said of what is committed, and "unknown" where nobody tells. Method: tables of
what replicas may say, and a scripted cluster whose brokers tell as much as Apache Kafka's do, or
less.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
from tests.clients.scripted import Scripted

from holdfast.clients.blocking_driver import AnswerLostError
from holdfast.clients.partition_inspection import (
    EPOCHS_MAX,
    Epoch,
    Inspection,
    Standing,
    inspect,
    verdict,
)
from holdfast.clients.replica_statements import Statement, first_batch
from holdfast.clients.topic_descriptions import Partition, Topic
from holdfast.wire.batch_header import BATCH_LENGTH_MIN, HEADER, HEADER_SIZE, read_header
from holdfast.wire.batch_records import Record, build_batch
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from holdfast.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from holdfast.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from holdfast.wire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from holdfast.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from holdfast.wire.well_known import EARLIEST

KEY = ("t", 0)


def said(node: int, **values: Any) -> Statement:
    return Statement(node=node, **values)


def inspection(leader: int = 0, high: int | None = 10, **replica: Any) -> Inspection:
    """A partition of two replicas; broker 0's log is [2, 12) and 1's [2, 10), unless told."""
    first = {"log_start": 2, "log_end": 12, "high_watermark": high} | replica
    return Inspection(
        topic=Topic(name="t", topic_id="", internal=False),
        partition=Partition(index=0, leader=leader, replicas=[0, 1], isr=[0]),
        leader_epoch=3,
        high_watermark=high,
        last_stable=high,
        replicas=[said(0, **first), said(1, log_start=2, log_end=10, high_watermark=8)],
        epochs=[],
        silences=[],
    )


@pytest.mark.parametrize(
    ("offset", "standing", "holds"),
    [
        (1, Standing.DELETED, [False, False]),
        (2, Standing.COMMITTED, [True, True]),
        (9, Standing.COMMITTED, [True, True]),
        (10, Standing.NOT_COMMITTED, [True, False]),
        (11, Standing.NOT_COMMITTED, [True, False]),
        (12, Standing.NOT_WRITTEN, [False, False]),
    ],
)
def test_what_became_of_a_message(
    offset: int, standing: Standing, holds: list[bool | None]
) -> None:
    found = verdict(inspection(), offset)
    assert (found.standing, [each.holds for each in found.copies]) == (standing, holds)


@pytest.mark.parametrize(
    ("seen", "offset", "standing"),
    [
        (inspection(leader=-1, high=None), 7, Standing.COMMITTED),  # broker 1 knows 8
        (inspection(leader=-1, high=None), 8, Standing.UNKNOWN),
        (inspection(high=None), 9, Standing.UNKNOWN),
        (inspection(log_end=10, log_end_is_least=True), 11, Standing.UNKNOWN),
        (inspection(log_end=10, log_end_is_least=True), 9, Standing.COMMITTED),
        (inspection(log_end=None, log_start=None), 9, Standing.COMMITTED),
        (inspection(log_end=None, log_start=None), 10, Standing.UNKNOWN),
    ],
)
def test_what_nobody_tells(seen: Inspection, offset: int, standing: Standing) -> None:
    assert verdict(seen, offset).standing is standing


@pytest.mark.parametrize(
    ("replica", "offset", "reaches"),
    [
        (said(0), 5, None),
        (said(0, log_start=6), 5, False),
        (said(0, log_end=5), 5, False),
        (said(0, log_end=6), 5, True),
        (said(0, log_end=5, log_end_is_least=True), 5, None),
        (said(0, log_end=6, log_end_is_least=True), 5, True),
    ],
)
def test_who_reaches(replica: Statement, offset: int, reaches: bool | None) -> None:
    assert replica.reaches(offset) is reaches


BATCH = bytes(build_batch([Record(value=b"a"), Record(value=b"b")], base_offset=4, leader_epoch=1))
OTHER = bytes(build_batch([Record(value=b"z")], base_offset=4, leader_epoch=2))


def test_a_copy_was_seen_where_the_same_batch_was_read() -> None:
    seen = inspection()
    for replica, data in zip(seen.replicas, (BATCH, OTHER), strict=True):
        replica.batch = read_header(data)
    for offset in (4, 5):
        found = verdict(seen, offset)
        assert found.batch == read_header(BATCH)
        assert [each.seen for each in found.copies] == [True, False]
    assert verdict(seen, 6).batch is None  # what was read is not its batch
    seen.replicas[1].batch = read_header(BATCH)
    assert [each.seen for each in verdict(seen, 4).copies] == [True, True]


# What compaction took.


def sparse() -> bytes:
    """A batch of offsets 4 to 7 that has lost 5 and 6."""
    whole = build_batch([Record(value=b"v")] * 4, base_offset=4, leader_epoch=1)
    size = (len(whole) - HEADER_SIZE) // 4
    body = whole[HEADER_SIZE : HEADER_SIZE + size] + whole[-size:]
    length = BATCH_LENGTH_MIN + len(body)
    return HEADER.pack(*read_header(whole)._replace(batch_length=length, record_count=2)) + body


SPARSE = sparse()


def read_at(offset: int, *batches: bytes | None) -> Inspection:
    """What is known when each replica was read at an offset, and answered with a batch."""
    seen = inspection(log_end=20, high=15)
    for replica, data in zip(seen.replicas, batches, strict=True):
        replica.log_end, replica.read_at = 20, offset
        replica.batch, replica.missing = first_batch(data)
    return seen


@pytest.mark.parametrize(
    ("offset", "batches", "standing", "holds"),
    [
        (4, (SPARSE, SPARSE), Standing.COMMITTED, [True, True]),
        (5, (SPARSE, SPARSE), Standing.REMOVED, [False, False]),
        (7, (SPARSE, SPARSE), Standing.COMMITTED, [True, True]),
        (3, (SPARSE, SPARSE), Standing.REMOVED, [False, False]),  # before the next batch
        (5, (SPARSE, BATCH), Standing.REMOVED, [False, True]),  # the follower is behind
        (5, (BATCH, SPARSE), Standing.COMMITTED, [True, False]),  # the leader is
        (5, (SPARSE, None), Standing.REMOVED, [False, None]),  # it was not read
        (5, (SPARSE[:-1], BATCH), Standing.COMMITTED, [True, True]),  # nobody can read it
    ],
)
def test_what_compaction_took(
    offset: int, batches: tuple[bytes | None, ...], standing: Standing, holds: list[bool | None]
) -> None:
    """Goal: below the high watermark a log has holes. Method: reads that met one, or did not."""
    found = verdict(read_at(offset, *batches), offset)
    assert (found.standing, [each.holds for each in found.copies]) == (standing, holds)
    assert (found.batch is None) == (standing is Standing.REMOVED)


def test_a_read_elsewhere_shows_nothing() -> None:
    """A batch behind the offset is the next one only for who asked at the offset."""
    seen = read_at(4, SPARSE, SPARSE)
    assert verdict(seen, 3).standing is Standing.COMMITTED


# Asking.


class Brokers:
    """Three replicas of t-0, whose logs end at `ends`; broker 1 leads, and 8 are committed."""

    def __init__(self, cluster: Scripted, *, followers_tell: bool) -> None:
        self.ends = {0: 8, 1: 9, 2: 6}
        self.high = {0: 8, 1: 8, 2: 7}
        self.start = 0
        # epoch: where it begins
        self.epochs = {0: 0, 2: 3, 3: 5}
        self._followers_tell = followers_tell
        cluster.leaders = {KEY: 1}
        cluster.answers |= {
            ListOffsetsRequest: self.offsets,
            FetchRequest: self.fetch,
            DescribeLogDirsRequest: self.directories,
            OffsetForLeaderEpochRequest: self.epoch_end,
        }

    def offsets(self, node: int, request: ListOffsetsRequest) -> ListOffsetsResponse:
        (topic,) = request.topics
        (asked,) = topic.partitions
        answer = ListOffsetsPartitionResponse(partition_index=0)
        if node != 1 and not (self._followers_tell and request.replica_id == -2):
            answer.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        elif asked.timestamp == EARLIEST:
            answer.offset = self.start
        else:
            inspects = self._followers_tell and request.replica_id == -2
            answer.offset = self.ends[node] if inspects else self.high[node]
        parts = [ListOffsetsTopicResponse(name="t", partitions=[answer])]
        return ListOffsetsResponse(topics=parts)

    def fetch(self, node: int, request: FetchRequest) -> FetchResponse:
        (asked,) = request.topics[0].partitions
        data = PartitionData(partition_index=0, high_watermark=-1, log_start_offset=-1)
        if self.start <= asked.fetch_offset <= self.ends[node]:
            data.high_watermark, data.log_start_offset = self.high[node], self.start
            data.records = BATCH if 4 <= asked.fetch_offset < 6 else None
        else:
            data.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
        return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[data])])

    def directories(self, node: int, _request: Any) -> DescribeLogDirsResponse:
        part = DescribeLogDirsPartition(
            partition_size=100 + node, offset_lag=max(0, self.high[node] - self.ends[node])
        )
        topic = DescribeLogDirsTopic(name="t", partitions=[part])
        result = DescribeLogDirsResult(log_dir=f"/{node}", topics=[topic])
        return DescribeLogDirsResponse(results=[result])

    def epoch_end(self, _node: int, request: Any) -> OffsetForLeaderEpochResponse:
        (asked,) = request.topics[0].partitions
        known = [epoch for epoch in self.epochs if epoch <= asked.leader_epoch]
        later = [begin for epoch, begin in self.epochs.items() if epoch > asked.leader_epoch]
        answer = EpochEndOffset(partition=0)
        answer.leader_epoch = max(known, default=asked.leader_epoch)
        answer.end_offset = min(later, default=self.ends[1])
        parts = [OffsetForLeaderTopicResult(topic="t", partitions=[answer])]
        return OffsetForLeaderEpochResponse(topics=parts)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A cluster that describes t-0 with three replicas."""
    made = Scripted()
    topic = Topic(name="t", topic_id="", internal=False)
    topic.partitions.append(Partition(index=0, leader=1, replicas=[0, 1, 2], isr=[0, 1]))
    monkeypatch.setattr(
        "holdfast.clients.partition_inspection.described",
        lambda _driver, names: [topic] if names == ["t"] else [],
    )
    return made


def test_brokers_that_tell_everything(cluster: Any) -> None:
    """Apache Kafka's: an inspector is told where each log ends."""
    Brokers(cluster, followers_tell=True)
    seen = inspect(cluster, KEY, 4)
    assert seen is not None
    assert (seen.high_watermark, seen.leader_epoch) == (8, 3)
    assert [(each.log_start, each.log_end, each.log_end_is_least) for each in seen.replicas] == [
        (0, 8, False),
        (0, 9, False),
        (0, 6, False),
    ]
    assert [each.high_watermark for each in seen.replicas] == [8, 8, 7]
    assert [each.size_bytes for each in seen.replicas] == [100, 101, 102]
    assert seen.epochs == [Epoch(3, 5, 9), Epoch(2, 3, 5), Epoch(0, 0, 3)]
    assert [each.silences for each in seen.replicas] == [[], [], []]
    assert all(each.seen for each in verdict(seen, 4).copies)


def test_brokers_that_tell_less(cluster: Any) -> None:
    """Ours: the leader's end comes with its epoch, a follower's follows from its lag."""
    Brokers(cluster, followers_tell=False)
    seen = inspect(cluster, KEY)
    assert seen is not None
    assert [(each.log_start, each.log_end, each.log_end_is_least) for each in seen.replicas] == [
        (0, 8, True),
        (0, 9, False),
        (0, 6, False),
    ]
    assert [each.silences for each in seen.replicas] == [[], [], []]


def test_a_replica_that_is_silent(cluster: Any) -> None:
    Brokers(cluster, followers_tell=True)
    cluster.alive.remove(2)
    seen = inspect(cluster, KEY)
    assert seen is not None
    assert seen.replicas[2].log_end is None
    assert seen.replicas[2].silences == ["can't connect to node 2"]
    assert verdict(seen, 3).copies[2].holds is None


def test_answers_that_are_lost(cluster: Any) -> None:
    """Goal: one API that fails leaves the others told. Method: each, at every broker."""
    for gone in (FetchRequest, DescribeLogDirsRequest, OffsetForLeaderEpochRequest):
        Brokers(cluster, followers_tell=True)

        def lose(_node: int, _request: Any) -> Any:
            raise AnswerLostError("the connection broke")

        cluster.answers[gone] = lose
        seen = inspect(cluster, KEY)
        assert seen is not None
        assert [each.log_end for each in seen.replicas] == [8, 9, 6]
        assert seen.replicas[1].silences == ["the connection broke"]


def test_a_partition_without_a_leader(cluster: Any) -> None:
    brokers = Brokers(cluster, followers_tell=True)
    cluster.leaders = {KEY: -1}
    seen = inspect(cluster, KEY)
    assert seen is not None
    assert (seen.high_watermark, seen.last_stable) == (None, None)
    assert seen.silences == ["offsets of t-0: LEADER_NOT_AVAILABLE"]
    assert [each.log_end for each in seen.replicas] == list(brokers.ends.values())


def test_what_is_not_there(cluster: Any) -> None:
    Brokers(cluster, followers_tell=True)
    assert inspect(cluster, ("u", 0)) is None
    assert inspect(cluster, ("t", 1)) is None


def test_epochs_of_which_nothing_is_left(cluster: Any) -> None:
    """Goal: no more questions than answers of interest. Method: a log that begins in epoch 2."""
    brokers = Brokers(cluster, followers_tell=True)
    brokers.start = 4
    seen = inspect(cluster, KEY)
    assert seen is not None
    assert seen.epochs == [Epoch(3, 5, 9), Epoch(2, 3, 5)]
    assert len(cluster.asked_for(OffsetForLeaderEpochRequest)) == 3


def test_no_more_epochs_than_a_bound(cluster: Any) -> None:
    brokers = Brokers(cluster, followers_tell=True)
    brokers.ends[1] = 1000
    brokers.epochs = {epoch: epoch for epoch in range(EPOCHS_MAX + 10)}
    cluster_epoch = max(brokers.epochs)
    described = cluster._topic("t")
    described.partitions[0].leader_epoch = cluster_epoch
    cluster._topic = lambda _name: described
    seen = inspect(cluster, KEY)
    assert seen is not None
    assert len(seen.epochs) == EPOCHS_MAX
    assert seen.epochs[-1].start is None


class CutOff:
    """A cluster in which broker 0 was cut off: it still says that it leads, in epoch 3.

    The others say that 1 leads in epoch 4. A driver asks the first of its servers for everything
    that is not a replica's own to say.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, later: int = 4) -> None:
        self.leads = {0: (0, 3), 1: (1, later), 2: (1, later)}
        self.began: list[str] = []
        self._patch = monkeypatch
        monkeypatch.setattr("holdfast.clients.partition_inspection.Driver", self.informed)
        monkeypatch.setattr(
            "holdfast.clients.partition_inspection.described",
            lambda driver, _names: [self.topic(driver.first)],
        )

    def topic(self, node: int) -> Topic:
        leader, _ = self.leads[node]
        topic = Topic(name="t", topic_id="", internal=False)
        topic.partitions.append(Partition(index=0, leader=leader, replicas=[0, 1, 2], isr=[leader]))
        return topic

    def informed(self, address: str) -> Any:
        self.began.append(address)
        return nullcontext(self.driver(int(address.removeprefix("h:"))))

    def driver(self, first: int) -> Any:
        made = Scripted()
        Brokers(made, followers_tell=True)

        def told(node: int, _request: Any) -> MetadataResponse:
            leader, epoch = self.leads[node]
            one = MetadataResponsePartition(partition_index=0, leader_id=leader, leader_epoch=epoch)
            return MetadataResponse(topics=[MetadataResponseTopic(name="t", partitions=[one])])

        made.answers[MetadataRequest] = told
        self._patch.setattr(made, "metadata", lambda _topics: told(first, None), raising=False)
        self._patch.setattr(made, "first", first, raising=False)
        self._patch.setattr(made, "nodes", lambda: {n: ("h", n) for n in (1, 2)}, raising=False)
        return made


@pytest.mark.parametrize("asked", [0, 1])
def test_a_leader_that_was_cut_off_is_not_believed(
    asked: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: right after a heal the answer is that of the latest epoch, whoever is asked first."""
    cluster = CutOff(monkeypatch)
    seen = inspect(cluster.driver(asked), KEY)
    assert seen is not None
    assert (seen.partition.leader, seen.leader_epoch) == (1, 4)
    assert seen.differing == {0: (0, 3)}
    assert cluster.began == (["h:1"] if asked == 0 else [])


@pytest.mark.parametrize("later", [2, 3])
def test_an_earlier_epoch_or_the_same_is_said_and_not_followed(
    later: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = CutOff(monkeypatch, later=later)
    seen = inspect(cluster.driver(0), KEY)
    assert seen is not None
    assert (seen.partition.leader, cluster.began) == (0, [])
    assert seen.differing == {1: (1, later), 2: (1, later)}


def test_who_knows_better_may_be_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: then what was told first stands, and that others say otherwise."""
    cluster = CutOff(monkeypatch)
    driver = cluster.driver(0)
    monkeypatch.setattr(driver, "nodes", dict)
    seen = inspect(driver, KEY)
    assert seen is not None
    assert (seen.partition.leader, seen.differing) == (0, {1: (1, 4), 2: (1, 4)})


def test_of_several_that_know_better_the_latest_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = CutOff(monkeypatch)
    cluster.leads[2] = (2, 5)
    seen = inspect(cluster.driver(0), KEY)
    assert seen is not None
    assert (seen.partition.leader, seen.leader_epoch) == (2, 5)
    assert cluster.began == ["h:2"]


def test_a_broker_that_tells_no_epoch_differs_from_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: where epochs can't be compared, nobody is said to be right. Method: an old broker."""
    cluster = CutOff(monkeypatch)
    cluster.leads[0] = (0, -1)
    seen = inspect(cluster.driver(0), KEY)
    assert seen is not None
    assert (seen.differing, cluster.began) == ({}, [])
