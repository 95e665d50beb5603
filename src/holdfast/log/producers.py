"""What each producer wrote last to one partition and the snapshot's bytes.

Owns duplicate detection and the order of sequences. Pure; leader and followers build the same
state from the same batches.

Rules: producers.md#sequences, producers.md#duplicates, producers.md#producer-state.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from struct import Struct as Layout
from struct import error as StructError  # noqa: N812 - the library's name says too little
from typing import Final, NamedTuple, TypeAlias

from holdfast.log.errors import CorruptFileError
from holdfast.wire.batch_header import SEQUENCE_MAX, BatchHeader
from holdfast.wire.checksum import crc32c
from holdfast.wire.errors import ErrorCode

BATCHES_KEPT: Final = 5  # a client has at most as many in flight, so older ones are never retried
ENDED_KEPT: Final = 64  # transactions whose markers may not be committed yet
_NONE: Final = -1
_SNAPSHOT_VERSION: Final = 1
_SNAPSHOT_HEAD: Final = Layout(">hIi")  # version, CRC of what follows it, count of entries
_CRC_END: Final = 6
_SNAPSHOT_ENTRY: Final = Layout(">qhiqiqiq")

SnapshotEntry: TypeAlias = tuple[int, int, int, int, int, int, int, int]
"""Producer id, epoch, last sequence, last offset, offset delta, timestamp, coordinator epoch,
first offset of the open transaction (-1: none)."""


class ProducerCheck(NamedTuple):
    """Verdict on a client's batch.

    With `duplicate_offset` the batch is there already, at that base offset, stamped
    `duplicate_timestamp`: answer success with these, append nothing.
    """

    error: ErrorCode
    duplicate_offset: int | None = None
    duplicate_timestamp: int = -1


ACCEPTED: Final = ProducerCheck(ErrorCode.NONE)
_EPOCH_IS_OLD: Final = ProducerCheck(ErrorCode.INVALID_PRODUCER_EPOCH)
_OUT_OF_ORDER: Final = ProducerCheck(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)


class WrittenBatch(NamedTuple):
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_sequence(self) -> int:
        return (self.last_sequence - self.offset_delta) & SEQUENCE_MAX


class Producer:
    """One producer's state. `seen_ms` is this node's wall clock when it last wrote."""

    __slots__ = ("batches", "coordinator_epoch", "epoch", "first_known", "seen_ms", "transaction")

    def __init__(self, epoch: int, first_known: int) -> None:
        self.epoch = epoch
        self.batches: list[WrittenBatch] = []  # oldest first, at most BATCHES_KEPT
        self.first_known = first_known  # nothing of it lies before this offset; -1: unknown
        self.transaction = _NONE  # first offset of its open transaction
        self.coordinator_epoch = _NONE
        self.seen_ms = 0


class Producers:
    """Every producer that this partition remembers."""

    __slots__ = ("_ended", "_last_marker", "_producers")

    def __init__(self) -> None:
        self._producers: dict[int, Producer] = {}
        # Transactions that have ended, each by its first offset and its marker's, in the order of
        # the markers: until a marker is committed another one may come to stand there.
        self._ended: deque[tuple[int, int]] = deque()
        self._last_marker = _NONE  # its offset

    def __len__(self) -> int:
        return len(self._producers)

    def first_undecided(self, high_watermark: int) -> int | None:
        """Return where the oldest transaction began whose end is not committed; None: all are.

        The high watermark never goes back, but for a truncation.
        """
        ended = self._ended
        while ended and ended[0][1] < high_watermark:
            ended.popleft()
        begun = [each.transaction for each in self._producers.values()]
        begun += [first for first, _ in ended]
        return min((offset for offset in begun if offset != _NONE), default=None)

    def get(self, producer_id: int) -> Producer | None:
        return self._producers.get(producer_id)

    def items(self) -> list[tuple[int, Producer]]:
        """Return all of them by their ids, in the order in which they came."""
        return list(self._producers.items())

    def check(self, producer_id: int, epoch: int, first: int, last_delta: int) -> ProducerCheck:
        """Judge a client's batch by its header's numbers. Changes nothing."""
        producer = self._producers.get(producer_id)
        if producer is None:
            return ACCEPTED  # its state may have expired (KIP-360)
        if epoch < producer.epoch:
            return _EPOCH_IS_OLD
        if epoch > producer.epoch:
            return ACCEPTED if first == 0 else _OUT_OF_ORDER
        if not producer.batches:
            return ACCEPTED  # only a marker is known in this epoch
        last = (first + last_delta) & SEQUENCE_MAX
        for batch in reversed(producer.batches):
            if batch.last_sequence == last and batch.first_sequence == first:
                base = batch.last_offset - batch.offset_delta
                return ProducerCheck(ErrorCode.NONE, base, batch.timestamp)
        expected = (producer.batches[-1].last_sequence + 1) & SEQUENCE_MAX
        return ACCEPTED if first == expected else _OUT_OF_ORDER

    def update(self, header: BatchHeader, now_ms: int) -> None:
        """Take in a batch that is in the log. `header` has its final offsets."""
        assert header.producer_id >= 0, "a batch without a producer changes nothing here"
        producer = self._producers.get(header.producer_id)
        begun = _NONE if producer is None else producer.transaction
        if producer is None:
            producer = Producer(header.producer_epoch, header.base_offset)
            self._producers[header.producer_id] = producer
        elif header.producer_epoch != producer.epoch:
            producer.epoch = header.producer_epoch
            producer.batches.clear()
            producer.transaction = _NONE
            producer.first_known = _NONE  # what the older epoch wrote is forgotten here
        producer.seen_ms = now_ms
        if header.is_control:
            producer.transaction = _NONE
            self._note_end(begun, header.last_offset)
            return
        if header.is_transactional and producer.transaction == _NONE:
            producer.transaction = header.base_offset
        if header.base_sequence >= 0:
            batches = producer.batches
            if len(batches) == BATCHES_KEPT:
                del batches[0]
            last = header.base_offset + header.last_offset_delta
            batches.append(
                WrittenBatch(
                    header.last_sequence, last, header.last_offset_delta, header.max_timestamp
                )
            )

    def _note_end(self, first: int, marker: int) -> None:
        """Take note of a marker, which has ended the transaction that began at `first`, if any."""
        self._last_marker = marker
        if first == _NONE:
            return
        ended = self._ended
        ended.append((first, marker))
        if len(ended) > ENDED_KEPT:  # the oldest two count as one, until both are committed
            oldest, _ = ended.popleft()
            second, last = ended.popleft()
            ended.appendleft((min(oldest, second), last))

    def truncate(self, offset: int) -> bool:
        """Forget batches from `offset` on. False: not all could be restored, so replay the log.

        It can be restored as long as one batch before `offset` is still remembered, or if the
        producer is known to have begun there; otherwise older batches fell out of the window. What
        a marker has ended is open again without it, and its epoch may have been another.
        """
        exact = self._last_marker < offset
        for producer_id, producer in list(self._producers.items()):
            batches = producer.batches
            cut = bool(batches) and batches[-1].last_offset >= offset
            while batches and batches[-1].last_offset >= offset:
                batches.pop()
            if producer.transaction >= offset:
                producer.transaction = _NONE
            if producer.first_known >= offset:
                del self._producers[producer_id]
            elif producer.transaction != _NONE or (cut and not batches):
                exact = False
        return exact

    def clear(self) -> None:
        self._producers.clear()
        self._ended.clear()
        self._last_marker = _NONE

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Forget who has been silent for `expiration_ms`, open transactions excepted."""
        gone = [
            producer_id
            for producer_id, producer in self._producers.items()
            if now_ms - producer.seen_ms >= expiration_ms and producer.transaction == _NONE
        ]
        for producer_id in gone:
            del self._producers[producer_id]
        return len(gone)

    def snapshot(self) -> list[SnapshotEntry]:
        """Return what a snapshot keeps: one batch of each producer."""
        entries: list[SnapshotEntry] = []
        for producer_id, producer in self._producers.items():
            last = producer.batches[-1] if producer.batches else _NO_BATCH
            entries.append(
                (
                    producer_id,
                    producer.epoch,
                    last.last_sequence,
                    last.last_offset,
                    last.offset_delta,
                    last.timestamp,
                    producer.coordinator_epoch,
                    producer.transaction,
                )
            )
        return entries

    def restore(self, entries: Iterable[SnapshotEntry], now_ms: int) -> None:
        """Replace the state by a snapshot's. Silence is counted from `now_ms`."""
        self.clear()
        for producer_id, epoch, sequence, last, delta, timestamp, coordinator, begun in entries:
            producer = Producer(epoch, _NONE)
            if last >= 0:
                producer.batches.append(WrittenBatch(sequence, last, delta, timestamp))
            producer.coordinator_epoch = coordinator
            producer.transaction = begun
            producer.seen_ms = now_ms
            self._producers[producer_id] = producer


_NO_BATCH: Final = WrittenBatch(_NONE, _NONE, 0, _NONE)


def encode_snapshot(entries: Iterable[SnapshotEntry]) -> bytes:
    """Return the content of a `.snapshot` file."""
    body = [_SNAPSHOT_ENTRY.pack(*entry) for entry in entries]
    data = bytearray(_SNAPSHOT_HEAD.pack(_SNAPSHOT_VERSION, 0, len(body)) + b"".join(body))
    data[2:_CRC_END] = crc32c(memoryview(data)[_CRC_END:]).to_bytes(4, "big")
    return bytes(data)


def decode_snapshot(data: bytes, path: str) -> list[SnapshotEntry]:
    """Read a `.snapshot` file. CorruptFileError: use an older one, or replay the log."""
    try:
        version, crc, count = _SNAPSHOT_HEAD.unpack_from(data)
    except StructError as error:
        raise CorruptFileError(f"{path}: cut short") from error
    if version != _SNAPSHOT_VERSION:
        raise CorruptFileError(f"{path}: version {version}, only {_SNAPSHOT_VERSION} is known")
    if len(data) != _SNAPSHOT_HEAD.size + count * _SNAPSHOT_ENTRY.size:
        raise CorruptFileError(f"{path}: {len(data)} bytes for {count} producers")
    if crc32c(memoryview(data)[_CRC_END:]) != crc:
        raise CorruptFileError(f"{path}: wrong CRC")
    return list(_SNAPSHOT_ENTRY.iter_unpack(data[_SNAPSHOT_HEAD.size :]))
