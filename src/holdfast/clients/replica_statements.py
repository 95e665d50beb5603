"""What one broker says of its replica of a partition, to anybody who asks as a client may.

Owns the questions, and which broker answers which: Apache Kafka's brokers tell an inspector where
their own log ends, leader or not; those that don't are asked as a consumer would. Never asks twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NamedTuple

from holdfast.clients.blocking_driver import Driver, DriverError, Peer
from holdfast.clients.log_offsets import AN_INSPECTOR, told_by
from holdfast.wire.administration import AdminError, TopicPartition
from holdfast.wire.batch_header import BatchHeader, read_header
from holdfast.wire.batch_records import read_records
from holdfast.wire.errors import WireError, error_name
from holdfast.wire.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from holdfast.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from holdfast.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from holdfast.wire.well_known import EARLIEST, LATEST

# A broker sends one batch whole, however little is asked for.
ONE_BATCH: Final = 1


class Led(NamedTuple):
    """Who leads a partition, -1: nobody, and in which epoch."""

    leader: int
    epoch: int


@dataclass(slots=True, kw_only=True)
class Statement:
    """What is told of one replica; None: it isn't. `log_end_is_least`: it may end further on."""

    node: int
    log_start: int | None = None
    log_end: int | None = None
    log_end_is_least: bool = False
    high_watermark: int | None = None
    size_bytes: int | None = None
    directory: str | None = None
    lag: int | None = None  # of the log behind what the replica itself knows to be committed
    batch: BatchHeader | None = None  # the one that was asked for, or what is next to it
    read_at: int | None = None  # where `batch` was read: none before it reaches that offset
    missing: frozenset[int] = frozenset()  # offsets of `batch` that have no message any more
    led_by: Led | None = None  # as its broker's metadata say
    silences: list[str] = field(default_factory=list)  # what isn't told, and why

    def reaches(self, offset: int) -> bool | None:
        """Say whether its log goes beyond an offset and has not begun behind it; None: not told."""
        if self.log_start is not None and offset < self.log_start:
            return False
        if self.log_end is None:
            return None
        if offset < self.log_end:
            return True
        return None if self.log_end_is_least else False

    def shows(self, offset: int) -> bool | None:
        """Say whether a read at this offset met its message; None: nothing was read there."""
        if self.batch is None or self.read_at != offset:
            return None
        is_inside = self.batch.base_offset <= offset <= self.batch.last_offset
        return is_inside and offset not in self.missing


def statement(
    driver: Driver, node: int, key: TopicPartition, topic_id: bytes, probes: Sequence[int]
) -> Statement:
    """Ask a broker about its replica. `probes`: where to read, the first that it has.

    A consumer's read tells the high watermark; at an offset below it comes the batch, too.
    """
    said = Statement(node=node)
    try:
        peer = driver.peer(node)
    except DriverError as error:
        said.silences.append(str(error))
        return said
    refused = [
        _refused(ask)
        for ask in (
            partial(_ends, said, peer, key),
            partial(_directory, said, peer, key),
            partial(_read, said, peer, key, topic_id, probes),
            partial(_led_by, said, peer, key),
        )
    ]
    _conclude(said)
    is_known = said.log_start is not None and said.log_end is not None
    # That a follower doesn't tell its log's ends is no matter where they follow from the rest.
    said.silences += [why for why in (refused[1:] if is_known else refused) if why]
    return said


def _refused(ask: Callable[[], None]) -> str:
    """Ask, and return why there was no answer; "": there was one."""
    try:
        ask()
    except (DriverError, AdminError) as error:
        return str(error)
    return ""


def _ends(said: Statement, peer: Peer, key: TopicPartition) -> None:
    start = told_by(peer, {key: EARLIEST}, replica=AN_INSPECTOR)[key]
    if isinstance(start, AdminError):
        raise start
    said.log_start = start.offset
    end = told_by(peer, {key: LATEST}, replica=AN_INSPECTOR)[key]
    if isinstance(end, AdminError):
        raise end
    said.log_end = end.offset


def _directory(said: Statement, peer: Peer, key: TopicPartition) -> None:
    asked = DescribableLogDirTopic(topic=key[0], partitions=[key[1]])
    for result in peer.send(DescribeLogDirsRequest(topics=[asked])).results:
        for topic in result.topics:
            for one in topic.partitions:
                if (topic.name, one.partition_index) == key and not one.is_future_key:
                    said.directory = result.log_dir
                    said.size_bytes = one.partition_size
                    said.lag = one.offset_lag


def _led_by(said: Statement, peer: Peer, key: TopicPartition) -> None:
    """Ask who leads: a broker that was cut off answers what was so before. Old ones don't tell."""
    asked = [MetadataRequestTopic(name=key[0])]
    for topic in peer.send(MetadataRequest(topics=asked, allow_auto_topic_creation=False)).topics:
        for one in topic.partitions:
            if (topic.name, one.partition_index) == key and one.leader_epoch >= 0:
                said.led_by = Led(one.leader_id, one.leader_epoch)


def _read(
    said: Statement, peer: Peer, key: TopicPartition, topic_id: bytes, probes: Sequence[int]
) -> None:
    code = 0
    for offset in dict.fromkeys(_places(said, probes)):
        data = _fetched(peer, key, topic_id, offset)
        if data.error_code:
            code = data.error_code
            continue
        said.high_watermark = data.high_watermark
        if said.log_start is None and data.log_start_offset >= 0:
            said.log_start = data.log_start_offset
        said.read_at = offset
        said.batch, said.missing = first_batch(data.records)
        return
    raise AdminError(f"reading {key[0]}-{key[1]}", code, subject=f"{key[0]}-{key[1]}")


def _places(said: Statement, probes: Sequence[int]) -> Iterator[int]:
    yield from probes
    if said.log_end is not None:
        yield said.log_end
    if said.log_start is not None:
        yield said.log_start


def _fetched(peer: Peer, key: TopicPartition, topic_id: bytes, offset: int) -> Any:
    topic, partition = key
    wanted = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=ONE_BATCH)
    request = FetchRequest(
        max_bytes=ONE_BATCH,
        topics=[FetchTopic(topic=topic, topic_id=topic_id, partitions=[wanted])],
    )
    response = peer.send(request)
    if response.error_code or not response.responses:
        raise DriverError(f"Fetch from {peer.name}: {error_name(response.error_code)}")
    return response.responses[0].partitions[0]


def first_batch(
    records: bytes | memoryview | None,
) -> tuple[BatchHeader | None, frozenset[int]]:
    """Return a batch's header, and the offsets of which compaction has left no message in it."""
    if not records:
        return None, frozenset()
    try:
        header = read_header(records)
    except WireError:
        return None, frozenset()
    offsets = frozenset(range(header.base_offset, header.next_offset))
    if header.record_count >= len(offsets):
        return header, frozenset()
    try:
        left = {each.offset for each in read_records(records)}
    except WireError:  # nobody can read it: that something is missing is not known
        return header, frozenset()
    return header, offsets - left


def _conclude(said: Statement) -> None:
    """Take the log's end from what else is told, where the broker doesn't tell it."""
    if said.log_end is not None or said.high_watermark is None:
        return
    said.log_end = said.high_watermark - (said.lag or 0)
    said.log_end_is_least = not said.lag
