"""The metadata log of a controller: the replica `__cluster_metadata-0` and its commit point.

Owns its batches (which records go into one, in which versions), what is committed (with one voter:
what has been synced), the replay at start and the check that nothing committed is damaged. It knows
nothing of what records mean.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from holdfast.config.node import NodeSettings
from holdfast.config.topic import TopicSettings
from holdfast.core.image import MetadataRecord
from holdfast.core.names import METADATA_TOPIC
from holdfast.core.state import RECORDS_PER_REQUEST_MAX
from holdfast.log.directories import LogDirectories
from holdfast.log.log import Log, Slice
from holdfast.runtime.ports import Disk, Runtime
from holdfast.wire.batch import (
    HEADER_SIZE,
    MAGIC,
    ControlType,
    Record,
    batches,
    build_batch,
    control_key,
    crc_matches,
    read_header,
    read_records,
)
from holdfast.wire.codec import encode
from holdfast.wire.errors import ErrorCode, WireError
from holdfast.wire.records import decode_record, encode_record
from holdfast.wire.records.control import LeaderChangeMessage, LeaderChangeVoter
from holdfast.wire.uuids import METADATA_TOPIC_ID, NULL_UUID, uuid_text

READ_BYTES: Final = 1024 * 1024
QUORUM_STATE: Final = "quorum-state"

# Records that are not written in their last version: none, for metadata.version 25 allows them all.
_VERSIONS: Final[dict[type, int]] = {}


class MetadataLogError(Exception):
    """The metadata log can't be used. The text names the file and says where and why."""


class CommittedBatch(NamedTuple):
    """The records of one batch; none for a control batch, which says nothing of the cluster."""

    records: list[MetadataRecord]
    last_offset: int
    epoch: int


def record_version(record: MetadataRecord) -> int | None:
    """The version in which a record is written; None is its last one."""
    return _VERSIONS.get(type(record))


def metadata_settings(settings: NodeSettings) -> TopicSettings:
    """The metadata log's own settings: it is never cut by time or size."""
    return TopicSettings(
        segment_bytes=settings.metadata_log_segment_bytes,
        segment_ms=settings.metadata_log_segment_ms,
        retention_ms=-1,
        retention_bytes=-1,
    )


def decode_batches(data: bytes | memoryview) -> Iterator[CommittedBatch]:
    """Decode whole batches of the metadata log. WireError: they do not parse."""
    view = memoryview(data)
    for position, header in batches(view):
        batch = view[position : position + header.size]
        if not crc_matches(batch):
            raise WireError(f"the batch at offset {header.base_offset} has a wrong CRC")
        records: list[MetadataRecord] = []
        if not header.is_control:
            records = [decode_record(record.value or b"") for record in read_records(batch)]
        yield CommittedBatch(records, header.last_offset, header.leader_epoch)


class MetadataLog:
    """Appends, syncs and reads; `committed` is the first offset that is not durable yet."""

    def __init__(self, runtime: Runtime, settings: NodeSettings, log: Log) -> None:
        self.committed = log.start
        self.epoch = max(log.latest_epoch, 0)
        self._runtime = runtime
        self._node_id = settings.node_id
        self._log = log

    @classmethod
    def open(
        cls, runtime: Runtime, settings: NodeSettings, directories: LogDirectories
    ) -> MetadataLog:
        """Find the replica in directories that have been loaded, or make it."""
        log = directories.get(METADATA_TOPIC, 0)
        own = metadata_settings(settings)
        if log is None:
            log = directories.create(METADATA_TOPIC, 0, METADATA_TOPIC_ID, own)
        log.settings = own
        return cls(runtime, settings, log)

    @property
    def end(self) -> int:
        return self._log.end

    @property
    def start(self) -> int:
        return self._log.start

    @property
    def empty(self) -> bool:
        return self._log.end == 0

    @property
    def replica(self) -> Log:
        """The replica itself, for the snapshots that lie beside it."""
        return self._log

    def restart_at(self, offset: int) -> None:
        """Throw away every record: a snapshot that reaches up to `offset` says it all."""
        self._log.reset_to(offset)
        self.committed = offset

    def replay(self, apply: Callable[[CommittedBatch], None], offset: int = 0) -> None:
        """Hand over every batch from `offset` on. MetadataLogError: one can't be read."""
        offset = max(offset, self._log.start)
        while offset < self._log.end:
            part = self._log.read(offset, READ_BYTES, self._log.end)
            try:
                for batch in decode_batches(part.records):
                    apply(batch)
            except WireError as error:
                raise MetadataLogError(
                    f"{self._log.directory}: the metadata log can't be read from offset {offset}: "
                    f"{error}"
                ) from error
            if part.error is not ErrorCode.NONE or part.next_offset <= offset:
                raise MetadataLogError(
                    f"{self._log.directory}: the metadata log can't be read at offset {offset} "
                    f"({part.error.name}); restore the directory from a copy"
                )
            offset = part.next_offset

    def begin_epoch(self, state_path: str) -> None:
        """Start a leader epoch of our own, never used before, and say so in the log.

        The epoch is on the disk before a record can carry it: after a power cut that takes records
        away, the pair of epoch and offset must not come back for other records.
        """
        disk = self._runtime.disk
        self.epoch = max(_last_epoch(disk, state_path), self._log.latest_epoch) + 1
        state = (
            f'{{"leaderId":{self._node_id},"leaderEpoch":{self.epoch},"votedId":-1,'
            f'"votedDirectoryId":"{uuid_text(NULL_UUID)}","data_version":1}}'
        )
        disk.write_atomic(state_path, state.encode())
        self._log.start_epoch(self.epoch)
        voter = LeaderChangeVoter(voter_id=self._node_id)
        message = LeaderChangeMessage(
            leader_id=self._node_id, voters=[voter], granting_voters=[voter]
        )
        record = Record(
            control_key(ControlType.LEADER_CHANGE),
            encode(message, 0),
            self._runtime.clock.wall_ms(),
        )
        self._append(build_batch([record], control=True))

    def append(self, records: Sequence[MetadataRecord]) -> int:
        """Append records; return the offset of the last. They are not durable yet.

        One batch holds them all up to the bound, so that they are there together or not at all.
        """
        assert records, "nothing to append"
        now_ms = self._runtime.clock.wall_ms()
        for first in range(0, len(records), RECORDS_PER_REQUEST_MAX):
            part = records[first : first + RECORDS_PER_REQUEST_MAX]
            self._append(
                build_batch(
                    [
                        Record(None, encode_record(record, record_version(record)), now_ms)
                        for record in part
                    ]
                )
            )
        return self._log.end - 1

    def _append(self, batch: bytearray) -> None:
        self._log.append_batches_as_leader(memoryview(batch), self.epoch)

    def sync(self) -> asyncio.Future[None]:
        """Make everything durable that is appended now. StorageError, in the future: it is not."""
        return self._log.flush()

    def commit(self, offset: int) -> None:
        """Everything below `offset` is durable."""
        assert self.committed <= offset <= self._log.end, "committed what was not appended"
        self.committed = offset
        self._log.high_watermark = offset

    def read(self, offset: int, bytes_max: int) -> Slice:
        """Read committed batches."""
        return self._log.read(offset, bytes_max, self.committed)


def _last_epoch(disk: Disk, path: str) -> int:
    """The epoch of the last leadership, 0 when there was none."""
    if not disk.exists(path):
        return 0
    # One number of a small file that only controllers write: importing json costs more start-up
    # time than all else here.
    found = re.search(rb'"leaderEpoch"\s*:\s*(\d+)\s*[,}]', disk.read(path))
    if found is None:
        raise MetadataLogError(
            f"{path} is damaged, it holds no leaderEpoch: restore it, or the metadata log with it, "
            "from a copy"
        )
    return int(found[1])


def check_metadata_log(disk: Disk, directory: str) -> None:
    """Refuse a metadata log that is damaged before its end. To be called before logs are loaded.

    Recovery cuts any log at its first bad batch, which is right for a tail that a crash has torn.
    But what stands before a batch that is whole was synced, hence committed, and cutting it would
    forget topics and configurations. Raises MetadataLogError.
    """
    path = f"{directory}/{METADATA_TOPIC}-0"
    if not disk.exists(path):
        return
    names = [name for name in disk.list(path) if name.endswith(".log")]
    for name in names:
        file = f"{path}/{name}"
        data = memoryview(disk.read(file))
        position = _whole_until(data)
        if position == len(data):
            continue
        if name != names[-1] or _whole_batch_after(data, position):
            offset = _offset_at(data, position, name)
            raise MetadataLogError(
                f"{file} is damaged at byte {position} (offset {offset}), and whole batches "
                "follow: the controller does not start, for what it committed there would be "
                "forgotten. Restore the file from a copy."
            )


def _whole_until(data: memoryview) -> int:
    """Where the first bad batch begins; the length when there is none."""
    position = 0
    try:
        for found, header in batches(data):
            if not crc_matches(data[found : found + header.size]):
                return found
            position = found + header.size
    except WireError:
        return _after_last_good(data)
    return position


def _after_last_good(data: memoryview) -> int:
    """As `_whole_until`, where a header itself is nonsense."""
    position = 0
    while position + HEADER_SIZE <= len(data):
        header = read_header(data, position)
        end = position + header.size
        if header.magic != MAGIC or header.size < HEADER_SIZE or end > len(data):
            break
        if not crc_matches(data[position:end]):
            break
        position = end
    return position


def _whole_batch_after(data: memoryview, position: int) -> bool:
    """Whether a whole batch stands anywhere behind a bad one."""
    for start in range(position + 1, len(data) - HEADER_SIZE + 1):
        if data[start + 16] != MAGIC:
            continue
        header = read_header(data, start)
        end = start + header.size
        plausible = header.size > HEADER_SIZE and end <= len(data) and header.base_offset >= 0
        if plausible and header.record_count > 0 and crc_matches(data[start:end]):
            return True
    return False


def _offset_at(data: memoryview, position: int, name: str) -> int:
    """The offset that the bad batch should have: what follows the last good one."""
    offset = int(name.removesuffix(".log"))
    for found, header in batches(data[:position]):
        assert found < position, "a batch behind the damage"
        offset = header.next_offset
    return offset
