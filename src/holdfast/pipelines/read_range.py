"""`read_range`: offsets [start, end) of one partition as Arrow record batches.

Owns the choice between the two ways, and the consumers of the one that is librdkafka's: it joins no
group and commits nothing, and a consumer is assigned one partition at one offset. The source knows
only `read_range`, `Access` and the errors.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from holdfast.pipelines.intake import headers
from holdfast.pipelines.intake.connection import open_consumer
from holdfast.pipelines.offsets import Partition
from holdfast.pipelines.reading.access import (
    ARROW_SCHEMA,
    ARROW_SCHEMA_WITH_HEADERS,
    Access,
    ReadError,
    data_loss_text,
)
from holdfast.pipelines.reading.way import Way, way_of
from holdfast.pipelines.reading.wire_range import OldFormatError, wire_range

__all__ = [
    "ARROW_SCHEMA",
    "ARROW_SCHEMA_WITH_HEADERS",
    "Access",
    "ReadError",
    "data_loss_text",
    "read_range",
]

BATCH_ROWS = 10_000
POLL_S = 0.2  # how often a wait looks at its deadline
CONSUMERS_MAX = 8
WATERMARKS_S = 2.0
_OUT_OF_RANGE = {KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET}  # noqa: SLF001
_HOPELESS = {
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001 - its public name
    KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001
}
log = logging.getLogger(__name__)


# Workers outlive tasks, and a consumer's connections are dear: keep the idle ones.
_idle: dict[Access, Any] = {}


def read_range(
    partition: Partition, start: int, end: int, access: Access
) -> Iterator[pa.RecordBatch]:
    """Yield the records at offsets [start, end), in order, as batches with the columns of Spark's.

    Eight with `access.headers`. Holes (compaction, transaction markers) are passed over: the range
    ends when the position or the end of the partition has reached `end`. DataLossError: offsets of
    the range are gone, and `fail_on_data_loss` is set. ReadError: silence for too long, a refusal,
    or a batch that is damaged.
    """
    assert 0 <= start <= end, f"{partition}: no range [{start}, {end})"
    if start == end:
        return
    way = way_of(access.client)
    _tell(way)
    if way.is_ours:
        try:
            yield from wire_range(partition, start, end, access)
        except OldFormatError as old:
            log.info("%s: messages of an old format from offset %d on", partition, old.position)
            start = old.position
        else:
            return
    yield from librdkafka_range(partition, start, end, access)


_told: Final[set[Way]] = set()


def _tell(way: Way) -> None:
    """Say once a process which way ranges are read."""
    if way not in _told:
        _told.add(way)
        log.info("reading over %s: %s", "our own client" if way.is_ours else "librdkafka", way.why)


def librdkafka_range(
    partition: Partition, start: int, end: int, access: Access
) -> Iterator[pa.RecordBatch]:
    """Yield the same as `read_range`, over librdkafka."""
    consumer = _idle.pop(access, None) or _opened(access)
    whole = False
    try:
        yield from _Reading(consumer, partition, start, end, access=access).batches()
        whole = True
    finally:
        # After an error its state is unknown; and a bound on what is kept.
        if whole and access not in _idle and len(_idle) < CONSUMERS_MAX:
            consumer.unassign()
            _idle[access] = consumer
        else:
            consumer.close()


def _opened(access: Access) -> Any:
    held = str(max(access.fetch_bytes // 1024, 1))
    return open_consumer((("queued.max.messages.kbytes", held), *access.client))


class _Reading:
    """One range being read: where it stands, and what each event does to that."""

    def __init__(
        self, consumer: Any, partition: Partition, start: int, end: int, *, access: Access
    ) -> None:
        self.consumer = consumer
        self.partition = partition
        self.position = start
        self.end = end
        self.access = access

    def batches(self) -> Iterator[pa.RecordBatch]:
        self._assign()
        silence_s_max = self.access.silence_ms_max / 1000
        deadline = time.monotonic() + silence_s_max
        while self.position < self.end:
            messages = self.consumer.consume(min(BATCH_ROWS, self.end - self.position), POLL_S)
            records = self._sift(messages)
            if records:
                yield to_arrow(records, self.partition, with_headers=self.access.headers)
                deadline = time.monotonic() + silence_s_max
            elif time.monotonic() > deadline:
                raise self.access.silent(self.partition, self.position, self.end)

    def _assign(self) -> None:
        self.consumer.assign(
            [TopicPartition(self.partition.topic, self.partition.number, self.position)]
        )

    def _sift(self, messages: list[Any]) -> list[Any]:
        """Return the records of the range; move the position by records and by events."""
        records = []
        for message in messages:
            error = message.error()
            if error is None:
                if message.offset() < self.end:
                    records.append(message)
                self.position = message.offset() + 1
            elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - its public name
                self.position = max(self.position, message.offset())
                self._at_end()
            else:
                self._refused(error)
            if self.position >= self.end:
                break
        return records

    def _at_end(self) -> None:
        """The end of the partition was met. Before `end` either the log is short, or we are early.

        Usually a new leader's high watermark lags for a moment: its answer about the log's end
        comes when it is sure (KIP-207), so ask for that, and go on reading. A log that really is
        shorter has lost the rest.
        """
        if self.position >= self.end:
            return
        try:
            _, latest = self._watermarks()
        except KafkaException:
            return  # no leader just now: the range's deadline bounds this
        if latest < self.end:
            self.access.lost(self.partition, f"the log ends at {latest}, before {self.end}")
            self.position = self.end

    def _refused(self, error: KafkaError) -> None:
        """An error event: pass over what the client mends itself, raise what it can't."""
        if error.code() in _OUT_OF_RANGE:
            self._out_of_range()
        elif error.fatal() or error.code() in _HOPELESS:
            raise ReadError(f"{self.partition}: {error.str()}")

    def _out_of_range(self) -> None:
        try:
            earliest, latest = self._watermarks()
        except KafkaException:
            self._assign()  # ask again: the range's deadline bounds this
            return
        if not earliest <= self.position <= latest:
            self.access.lost(
                self.partition,
                f"offset {self.position} is outside of the log [{earliest}, {latest})",
            )
            self.position = self.end if latest < self.position else min(earliest, self.end)
        if self.position < self.end:
            self._assign()

    def _watermarks(self) -> tuple[int, int]:
        target = TopicPartition(self.partition.topic, self.partition.number)
        earliest, latest = self.consumer.get_watermark_offsets(target, timeout=WATERMARKS_S)
        return int(earliest), int(latest)


def to_arrow(
    messages: list[Any], partition: Partition, *, with_headers: bool = False
) -> pa.RecordBatch:
    """Turn messages of one partition into one record batch."""
    count = len(messages)
    stamps = [message.timestamp() for message in messages]
    millis = pa.array([stamp[1] if stamp[0] else None for stamp in stamps], pa.int64())
    # librdkafka: 0 not available, 1 create time, 2 append time; the JVM connector: -1, 0, 1.
    kinds = pa.array([stamp[0] - 1 for stamp in stamps], pa.int32())
    batch = pa.RecordBatch.from_arrays(
        [
            pa.array([message.key() for message in messages], pa.binary()),
            pa.array([message.value() for message in messages], pa.binary()),
            pa.repeat(pa.scalar(partition.topic, pa.string()), count),
            pa.repeat(pa.scalar(partition.number, pa.int32()), count),
            pa.array([message.offset() for message in messages], pa.int64()),
            millis.cast(pa.timestamp("ms", tz="UTC")).cast(pa.timestamp("us", tz="UTC")),
            kinds,
        ],
        schema=ARROW_SCHEMA,
    )
    if not with_headers:
        return batch
    return pa.RecordBatch.from_arrays(
        [*batch.columns, headers.column(messages)], schema=ARROW_SCHEMA_WITH_HEADERS
    )
