"""`read_range`: offsets [start, end) of one partition as Arrow record batches.

Owns the consumers of this process. It joins no group and commits nothing: a consumer is assigned
one partition at one offset. What lies inside is librdkafka today and may be exchanged; the source
knows only `read_range`, `Access` and the errors.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from holdfast.pipelines.intake import headers
from holdfast.pipelines.intake.connection import Client, open_consumer
from holdfast.pipelines.offsets import DataLossError, Partition

# What Spark makes of the seven columns' types; it compares the schemas of the first batch exactly.
ARROW_SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("timestampType", pa.int32()),
    ]
)
ARROW_SCHEMA_WITH_HEADERS = ARROW_SCHEMA.append(pa.field("headers", headers.ARROW_TYPE))
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


class ReadError(RuntimeError):
    """A range could not be read whole in time, or the cluster refuses it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """How to reach the log. Hashable: it is the key under which a consumer is kept."""

    client: Client
    fail_on_data_loss: bool = True
    silence_ms_max: int = 120_000  # how long to wait for the next record before giving up
    headers: bool = False  # whether batches have the eighth column


# Workers outlive tasks, and a consumer's connections are dear: keep the idle ones.
_idle: dict[Access, Any] = {}


def read_range(
    partition: Partition, start: int, end: int, access: Access
) -> Iterator[pa.RecordBatch]:
    """Yield the records at offsets [start, end), in order, as batches with the columns of Spark's.

    Holes (compaction, transaction markers) are passed over: the range ends when the position or
    the end of the partition has reached `end`. DataLossError: offsets of the range are gone, and
    `fail_on_data_loss` is set. ReadError: silence for too long, or a refusal.
    """
    assert 0 <= start <= end, f"{partition}: no range [{start}, {end})"
    if start == end:
        return
    consumer = _idle.pop(access, None) or open_consumer(access.client)
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
                raise ReadError(
                    f"{self.partition}: nothing came at offset {self.position} of a range that "
                    f"ends at {self.end}, for {self.access.silence_ms_max} ms "
                    "(kafkaConsumer.pollTimeoutMs)"
                )

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
            self._lost(f"the log ends at {latest}, before {self.end}")
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
            self._lost(f"offset {self.position} is outside of the log [{earliest}, {latest})")
            self.position = self.end if latest < self.position else min(earliest, self.end)
        if self.position < self.end:
            self._assign()

    def _watermarks(self) -> tuple[int, int]:
        target = TopicPartition(self.partition.topic, self.partition.number)
        earliest, latest = self.consumer.get_watermark_offsets(target, timeout=WATERMARKS_S)
        return int(earliest), int(latest)

    def _lost(self, said: str) -> None:
        text = f"{self.partition}: {said}"
        if self.access.fail_on_data_loss:
            raise DataLossError(data_loss_text([text]))
        log.warning("going on without data that was lost: %s", text)


def data_loss_text(said: list[str]) -> str:
    """Say what is gone, and which option decides about it."""
    return (
        "Some data was lost before it was read: "
        + "; ".join(said)
        + ". To go on without it, set the option failOnDataLoss to false."
    )


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
