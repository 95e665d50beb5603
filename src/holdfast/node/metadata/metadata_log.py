"""The metadata log of a controller: the replica `__cluster_metadata-0` and its commit point.

Owns its batches (which records go into one, each in its last version) and where two logs part. What
is committed, the quorum says; what records mean, nobody says here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from holdfast.config.node import NodeSettings
from holdfast.config.topic import TopicSettings
from holdfast.core.metadata.image import MetadataRecord
from holdfast.core.quorum.voter_set import VoterSet
from holdfast.log.directories import LogDirectories
from holdfast.log.log import EpochEnd, Log, Slice
from holdfast.runtime.ports import Runtime
from holdfast.wire.batch import (
    HEADER_SIZE,
    ControlType,
    Record,
    batches,
    build_batch,
    control_key,
    crc_matches,
    read_control_type,
    read_records,
)
from holdfast.wire.codec import decode, encode
from holdfast.wire.errors import ErrorCode, WireError
from holdfast.wire.records import decode_record, encode_record
from holdfast.wire.records.control import (
    KRaftVersionRecord,
    LeaderChangeMessage,
    LeaderChangeVoter,
)
from holdfast.wire.uuids import METADATA_TOPIC_ID
from holdfast.wire.well_known import METADATA_TOPIC

BATCH_BYTES_MAX: Final = 8 * 1024 * 1024  # Apache Kafka's replicas of this log take no larger one
_DECODED_AT_ONCE: Final = 200  # records: some milliseconds
_RECORD_OVERHEAD_MAX: Final = 20  # what stands around a record's value


class MetadataLogError(Exception):
    """The metadata log can't be used. The text names the file and says where and why."""


class CommittedBatch(NamedTuple):
    """The records of one batch; none for a control batch, which says nothing of the cluster."""

    records: list[MetadataRecord]
    last_offset: int
    epoch: int
    kraft_version: int | None = None  # where it is a control batch that sets this level


def decode_batches(data: bytes | memoryview) -> Iterator[CommittedBatch]:
    """Decode whole batches of the metadata log. WireError: they do not parse."""
    return (batch for batch in decode_in_turns(data) if batch is not None)


def decode_in_turns(data: bytes | memoryview) -> Iterator[CommittedBatch | None]:
    """As `decode_batches`; None: this is long, and others may have their turn before it goes on."""
    view = memoryview(data)
    for position, header in batches(view):
        batch = view[position : position + header.size]
        if not crc_matches(batch):
            raise WireError(f"the batch at offset {header.base_offset} has a wrong CRC")
        records: list[MetadataRecord] = []
        kraft_version = None
        if header.is_control:
            kraft_version = _kraft_version(batch)
        else:
            encoded = read_records(batch)
            for first in range(0, len(encoded), _DECODED_AT_ONCE):
                if first:
                    yield None
                some = encoded[first : first + _DECODED_AT_ONCE]
                records += [decode_record(record.value or b"") for record in some]
        yield CommittedBatch(records, header.last_offset, header.leader_epoch, kraft_version)


def _kraft_version(batch: memoryview) -> int | None:
    for record in read_records(batch):
        if read_control_type(record.key) == ControlType.KRAFT_VERSION:
            return decode(KRaftVersionRecord, 0, record.value or b"").k_raft_version
    return None


class MetadataLog:
    """Appends, truncates, syncs and reads. What is below `committed` is never truncated."""

    def __init__(self, runtime: Runtime, log: Log) -> None:
        self.committed = log.start
        # Epoch of the last record in the snapshot that ends at an offset; -1: there is none.
        self.snapshot_epoch: Callable[[int], int] = lambda _: -1
        self._runtime = runtime
        self.replica: Final = log  # itself, for the snapshots that lie beside it

    @classmethod
    def open(
        cls, runtime: Runtime, settings: NodeSettings, directories: LogDirectories
    ) -> MetadataLog:
        """Find the replica in directories that have been loaded, or make it."""
        log = directories.get(METADATA_TOPIC, 0)
        own = TopicSettings(
            segment_bytes=settings.metadata_log_segment_bytes,
            segment_ms=settings.metadata_log_segment_ms,
            retention_ms=-1,  # it is never cut by time or size
            retention_bytes=-1,
        )
        if log is None:
            log = directories.create(METADATA_TOPIC, 0, METADATA_TOPIC_ID, own)
        log.settings = own
        log.in_order = True
        return cls(runtime, log)

    @property
    def end(self) -> int:
        return self.replica.end

    @property
    def start(self) -> int:
        return self.replica.start

    @property
    def last_epoch(self) -> int:
        """Epoch of the last record; -1 when there never was one."""
        return self.epoch_before(self.replica.end)

    @property
    def durable_end(self) -> int:
        """Return the offset below which all survives a power cut, in the log or in a snapshot."""
        return max(self.replica.start, min(self.replica.recovery_point, self.replica.end))

    # -- as a leader ---------------------------------------------------------------------------

    def append(self, records: Sequence[MetadataRecord], epoch: int) -> int:
        """Append records; return the offset of the last. They are not durable yet.

        They are one batch, so that they are there together or not at all: of half a registration
        a broker would stay in the ISRs of replicas that it has lost. Only what no replica of Apache
        Kafka's takes in one, a hundred thousand records or more, is several.
        Rules: metadata-log.md#a-decision-is-one-batch.
        """
        assert records, "nothing to append"
        for batch in _in_batches(records, self._runtime.clock.wall_ms()):
            self.replica.append_batches_as_leader(memoryview(build_batch(batch)), epoch)
        return self.replica.end - 1

    def append_control(self, records: Sequence[tuple[ControlType, bytes]], epoch: int) -> int:
        """Append control records in one batch; return the offset of the last."""
        now_ms = self._runtime.clock.wall_ms()
        batch = [Record(control_key(kind), value, now_ms) for kind, value in records]
        self.replica.append_batches_as_leader(memoryview(build_batch(batch, control=True)), epoch)
        return self.replica.end - 1

    def begin_epoch(
        self, epoch: int, leader_id: int, voters: VoterSet, granting: Sequence[int]
    ) -> None:
        """Begin a leader epoch of our own with the LeaderChange record.

        Rules: quorum.md#a-new-epoch.
        """
        assert epoch > self.replica.latest_epoch, "an epoch begins once"
        self.replica.start_epoch(epoch)
        message = LeaderChangeMessage(
            leader_id=leader_id,
            voters=[LeaderChangeVoter(voter_id=each.node_id) for each in voters.voters],
            granting_voters=[
                LeaderChangeVoter(voter_id=each.node_id)
                for each in voters.voters
                if each.node_id in granting
            ],
        )
        # Version 1 has the voters' directories, but Kafka's own readers take version 0 for granted.
        self.append_control([(ControlType.LEADER_CHANGE, encode(message, 0))], epoch)

    # -- as a follower -------------------------------------------------------------------------

    def append_fetched(self, records: memoryview | bytes) -> ErrorCode:
        """Append what the leader sent, from our end on; as `Log.append_as_follower`."""
        return self.replica.append_as_follower(memoryview(records))

    def diverges(self, offset: int, epoch: int) -> EpochEnd | None:
        """Return where a log that ends at `offset` with `epoch` parts from ours; None: nowhere.

        An empty log agrees with every other. Rules: metadata-log.md#where-two-metadata-logs-part.
        """
        if offset == 0 or epoch < 0:
            return None
        found = self.replica.epoch_end(epoch)
        if found.epoch == epoch and found.end >= offset:
            return None
        if found.epoch < 0:
            # An epoch that we never heard of: go back to the last one that we have.
            return EpochEnd(max(self.replica.latest_epoch, 0), self.replica.end)
        return found

    def epoch_before(self, offset: int) -> int:
        """Epoch of the record just below `offset`; -1 where nothing is known below it.

        Of what lies before the log's start only a snapshot can tell. A voter that has forgotten
        it would take its log for an empty one, and elect somebody who lacks what is committed.
        """
        log = self.replica
        if offset > log.start:
            return log.epoch_at(offset - 1)
        found = self.snapshot_epoch(offset)
        return found if found >= 0 else log.latest_epoch

    def goes_on_from(self, offset: int, epoch: int) -> bool:
        """Return whether this log goes on from a snapshot that ends at `offset` with `epoch`.

        What has other records there has a tail of another epoch, which was never committed: of an
        older one, or of a later one whose leader nobody followed. And of a log that was thrown away
        there may be left nothing but such an epoch.
        """
        log = self.replica
        if offset <= log.start:
            return not (log.start == log.end == offset and log.latest_epoch > epoch)
        return offset <= log.end and log.epoch_at(offset - 1) in {-1, epoch}

    def lacks(self, offset: int, epoch: int) -> bool:
        """Return whether a log that ends at `offset` with `epoch` can't go on with ours.

        It is behind our start; or it ends in an epoch that was over there, and what it has of that
        can't be compared any more, unless it is just what a snapshot of ours ends with.
        """
        start = self.replica.start
        if offset < start:
            return True
        if start == 0 or epoch < 0 or epoch >= self.replica.epoch_at(start):
            return False
        return not (offset == start and epoch == self.snapshot_epoch(start))

    def truncate_at(self, diverging: EpochEnd) -> None:
        """Cut off what the leader says it does not have (KIP-595)."""
        own = self.replica.epoch_end(diverging.epoch)
        offset = diverging.end if own.end < 0 else min(own.end, diverging.end)
        if own.epoch < 0 and self.replica.latest_epoch > diverging.epoch:
            offset = min(offset, self.replica.start)  # all that we have is of later epochs
        assert offset >= self.committed, "what is committed would be truncated"
        self.replica.truncate_to(offset)

    def restart_at(self, offset: int, epoch: int = -1) -> None:
        """Throw away every record: a snapshot that ends at `offset` with `epoch` says it all."""
        assert offset >= self.committed, "a snapshot that is older than what is committed"
        self.replica.reset_to(offset)
        if epoch >= 0:
            self.replica.start_epoch(epoch)
        self.committed = self.replica.high_watermark = offset

    # -- both ----------------------------------------------------------------------------------

    def sync(self) -> asyncio.Future[None]:
        """Make everything durable that is appended now. StorageError, in the future: it is not."""
        return self.replica.flush()

    def commit(self, offset: int) -> None:
        """Take everything below `offset` for committed."""
        assert self.committed <= offset <= self.replica.end, "committed what was not appended"
        self.committed = self.replica.high_watermark = offset

    def read(self, offset: int, bytes_max: int, bound: int | None = None) -> Slice:
        """Read batches below `bound`: by default the committed ones."""
        return self.replica.read(offset, bytes_max, self.committed if bound is None else bound)

    def read_committed(self, offset: int, bytes_max: int) -> list[CommittedBatch]:
        """Decode committed batches from `offset` on; none at the end.

        MetadataLogError: what stands there can't be read.
        """
        part = self.read(offset, bytes_max)
        try:
            found = list(decode_batches(part.records))
        except WireError as error:
            raise MetadataLogError(
                f"{self.replica.directory}: the metadata log can't be read from offset {offset}: "
                f"{error}"
            ) from error
        if part.error is not ErrorCode.NONE or (not found and offset < self.committed):
            raise MetadataLogError(
                f"{self.replica.directory}: the metadata log can't be read at offset {offset} "
                f"({part.error.name}); restore the directory from a copy"
            )
        return found


def _in_batches(records: Sequence[MetadataRecord], now_ms: int) -> Iterator[list[Record]]:
    batch: list[Record] = []
    size = HEADER_SIZE
    for record in records:
        value = encode_record(record)
        whole = len(value) + _RECORD_OVERHEAD_MAX
        if batch and size + whole > BATCH_BYTES_MAX:
            yield batch
            batch, size = [], HEADER_SIZE
        batch.append(Record(None, value, now_ms))
        size += whole
    yield batch
