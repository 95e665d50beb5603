"""The bytes of a snapshot of the metadata log, as Apache Kafka writes them.

Owns the batches of a `.checkpoint` file: first a control batch with the SnapshotHeader (and, in a
cluster whose voters stand in the log, KRaftVersion and Voters), then the records of an image, last
a control batch with the SnapshotFooter. Offsets count from 0 within the file; every batch carries
the epoch of the snapshot. It never touches a disk or a connection.

Rules: metadata-log.md#snapshots.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final

from holdfast.core.metadata.image import MetadataImage
from holdfast.core.metadata.image_records import SnapshotId, image_records, snapshot_id
from holdfast.node.metadata.metadata_log import MetadataLogError
from holdfast.wire.batch import (
    HEADER_SIZE,
    MAGIC,
    BatchHeader,
    ControlType,
    Record,
    build_batch,
    control_key,
    crc_matches,
    read_control_type,
    read_header,
    read_records,
)
from holdfast.wire.codec import decode, encode
from holdfast.wire.errors import WireError
from holdfast.wire.records import decode_record, encode_record
from holdfast.wire.records.control import (
    KRaftVersionRecord,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
)

RECORDS_PER_BATCH: Final = 200  # one to two milliseconds of encoding
BATCH_BYTES_MAX: Final = 64 * 1024 * 1024  # Kafka's largest has 8 MiB


class SnapshotError(MetadataLogError):
    """A snapshot can't be used. The text names it, and says where it is damaged and how."""


def snapshot_batches(
    image: MetadataImage,
    wall_ms: int,
    *,
    kraft_version: int = 0,
    voters: VotersRecord | None = None,
) -> Iterator[bytearray]:
    """The batches of a snapshot of a frozen image, each built when it is asked for.

    `wall_ms` is when the last record that it contains was written, as far as is known.
    """
    epoch = snapshot_id(image).epoch
    header = SnapshotHeaderRecord(last_contained_log_timestamp=wall_ms)
    head = [_control(ControlType.SNAPSHOT_HEADER, encode(header, 0), wall_ms)]
    if kraft_version > 0:
        version = KRaftVersionRecord(k_raft_version=kraft_version)
        head.append(_control(ControlType.KRAFT_VERSION, encode(version, 0), wall_ms))
        if voters is not None:
            head.append(_control(ControlType.KRAFT_VOTERS, encode(voters, 0), wall_ms))
    yield build_batch(head, base_offset=0, leader_epoch=epoch, control=True)
    offset = len(head)
    records = image_records(image)
    while part := list(islice(records, RECORDS_PER_BATCH)):
        values = [Record(None, encode_record(record), wall_ms) for record in part]
        yield build_batch(values, base_offset=offset, leader_epoch=epoch)
        offset += len(part)
    tail = [_control(ControlType.SNAPSHOT_FOOTER, encode(SnapshotFooterRecord(), 0), wall_ms)]
    yield build_batch(tail, base_offset=offset, leader_epoch=epoch, control=True)


def _control(kind: ControlType, value: bytes, wall_ms: int) -> Record:
    return Record(control_key(kind), value, wall_ms)


class SnapshotReader:
    """Makes an image of a snapshot's bytes, in whatever pieces they come."""

    def __init__(self, identity: SnapshotId, name: str) -> None:
        """`name` is what an error calls the snapshot: its path, or where it comes from."""
        self.identity = identity
        self.wall_ms = -1  # of the last record that it contains
        self.kraft_version = 0
        self.voters: VotersRecord | None = None
        self.position = 0  # so many bytes have been understood
        self._image = MetadataImage()
        self._name = name
        self._offset = 0  # that the next batch must begin with
        self._rest = b""  # the beginning of a batch whose end has not come yet
        self._ended = False

    @property
    def fed(self) -> int:
        """Return how many bytes have been handed over."""
        return self.position + len(self._rest)

    def feed(self, data: bytes | bytearray | memoryview) -> None:
        """Take the next bytes. SnapshotError: they are damaged."""
        self._rest = b"".join((self._rest, data))
        view, at = memoryview(self._rest), 0
        while len(view) - at >= HEADER_SIZE:
            header = read_header(view, at)
            if header.magic != MAGIC or not HEADER_SIZE < header.size <= BATCH_BYTES_MAX:
                raise self._error("no batch is there")
            if len(view) - at < header.size:
                break
            self._take(header, view[at : at + header.size])
            at += header.size
            self.position += header.size
        self._rest = bytes(view[at:])

    def finish(self) -> MetadataImage:
        """The image, once all bytes were fed. SnapshotError: the snapshot is not whole."""
        if self._rest:
            raise self._error("it is cut off in the middle of a batch")
        if not self._ended:
            raise self._error("it is cut off, its footer is missing")
        self._image.advance(self.identity.end_offset - 1, self.identity.epoch)
        return self._image

    def _take(self, header: BatchHeader, batch: memoryview) -> None:
        if not crc_matches(batch):
            raise self._error("a batch has a wrong CRC")
        if self._ended:
            raise self._error("something follows the footer")
        if header.base_offset != self._offset:
            raise self._error(f"a batch begins at offset {header.base_offset}")
        if header.leader_epoch != self.identity.epoch:
            raise self._error(f"a batch is of epoch {header.leader_epoch}")
        try:
            if header.is_control:
                for record in read_records(batch):
                    self._control(record)
            elif self._offset == 0:
                raise self._error("it does not begin with a header")
            else:
                self._image.apply(
                    decode_record(record.value or b"") for record in read_records(batch)
                )
        except WireError as error:
            raise self._error(str(error)) from error
        self._offset = header.next_offset

    def _control(self, record: Record) -> None:
        kind, value = read_control_type(record.key), record.value or b""
        if (kind == ControlType.SNAPSHOT_HEADER) != (self.wall_ms < 0):
            raise self._error("its header is not where it should be")
        if kind == ControlType.SNAPSHOT_HEADER:
            self.wall_ms = max(
                0, decode(SnapshotHeaderRecord, 0, value).last_contained_log_timestamp
            )
        elif kind == ControlType.SNAPSHOT_FOOTER:
            self._ended = True
        elif kind == ControlType.KRAFT_VERSION:
            self.kraft_version = decode(KRaftVersionRecord, 0, value).k_raft_version
        elif kind == ControlType.KRAFT_VOTERS:
            self.voters = decode(VotersRecord, 0, value)

    def _error(self, why: str) -> SnapshotError:
        return SnapshotError(
            f"{self._name} is damaged at byte {self.position} (offset {self._offset} within it): "
            f"{why}"
        )
