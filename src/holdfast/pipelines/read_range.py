"""`read_range`: offsets [start, end) of one partition as Arrow record batches.

Owns the choice between the two ways, and the consumers of the one that is librdkafka's: it joins no
group and commits nothing, and a consumer is assigned one partition at one offset. The source knows
only `read_range`, `Access` and the errors.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Generator, Iterator
from typing import Any, Final, NamedTuple

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from holdfast.pipelines.intake import headers
from holdfast.pipelines.intake.connection import open_consumer
from holdfast.pipelines.intake.forked import forget_in_child, is_forked, leak
from holdfast.pipelines.offsets import Partition
from holdfast.pipelines.reading.access import (
    ARROW_SCHEMA,
    ARROW_SCHEMA_WITH_HEADERS,
    UNPLANNED,
    Access,
    Plan,
    ReadError,
    data_loss_text,
)
from holdfast.pipelines.reading.told_offsets import Told, ends_of, forget
from holdfast.pipelines.reading.way import Way, way_of
from holdfast.pipelines.reading.wire_range import NotOursError, wire_range

__all__ = [
    "ARROW_SCHEMA",
    "ARROW_SCHEMA_WITH_HEADERS",
    "Access",
    "Plan",
    "ReadError",
    "data_loss_text",
    "read_range",
]

BATCH_ROWS = 10_000
FIRST_ROWS = 100  # of a range, whose records' size is not known
POLL_S = 0.2  # how often a wait looks at its deadline
CONSUMERS_MAX = 8
GONE_S = 30.0  # a topic whose records do not come for so long is looked for
GONE_LOOKS = 5
ENDS_S = 2.0
PAUSE_S = 0.1
_OUT_OF_RANGE = {KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET}  # noqa: SLF001
_UNKNOWN = {
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001 - its public name
    KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001
}
_CUT = KafkaError(KafkaError._LOG_TRUNCATION).str().removeprefix("Local: ")  # noqa: SLF001
# What the client says of a batch that it can't read, before it goes on behind it, if it does.
_DAMAGED = {KafkaError._BAD_MSG, KafkaError._BAD_COMPRESSION, KafkaError._NOT_IMPLEMENTED}  # noqa: SLF001
_HOPELESS = _UNKNOWN | _DAMAGED | {KafkaError.TOPIC_AUTHORIZATION_FAILED}
log = logging.getLogger(__name__)


class FetchedOffsets:
    """How far librdkafka has fetched, as its statistics tell.

    It shows nothing else of records that were aborted: whoever waits for rows would take them for
    silence.
    """

    def __init__(self) -> None:
        self._next: dict[Partition, int] = {}

    def __call__(self, text: str) -> None:
        self._next = {
            Partition(topic, told["partition"]): told["next_offset"]
            for topic, each in json.loads(text)["topics"].items()
            for told in each["partitions"].values()
        }

    def of(self, partition: Partition) -> int:
        return self._next.get(partition, -1)


class _Consumer(NamedTuple):
    client: Any
    fetched: FetchedOffsets
    ids: dict[str, str]  # of topics that it has read, where they were planned

    def knows_another(self, topic: str, topic_id: str | None) -> bool:
        """Return whether it has read another topic of that name; note which one it reads now.

        It keeps the epoch of that one's leader, and waits for one that is newer.
        """
        return topic_id is not None and self.ids.setdefault(topic, topic_id) != topic_id

    def close(self) -> None:
        self.client.close()


# Workers outlive tasks, and a consumer's connections are dear: keep the idle ones.
_idle: dict[Access, _Consumer] = forget_in_child({}, lambda kept: leak(kept.client))


def read_range(
    partition: Partition, start: int, end: int, access: Access, plan: Plan = UNPLANNED
) -> Generator[pa.RecordBatch, None, bool]:
    """Yield the records at offsets [start, end), in order, as batches with the columns of Spark's.

    Eight with `access.headers`. Holes (compaction, transaction markers) are passed over: the range
    ends when the position or the end of the partition has reached `end`. DataLossError: offsets of
    the range are gone, and `fail_on_data_loss` is set. ReadError: silence for too long, a refusal,
    a batch that is damaged, or a log that was cut where it was read already. A log that ends before
    the range does is no loss but in a newer leader epoch than that of the plan.

    Return whether it is certain that all that was yielded is of the topic with the plan's id.
    """
    assert 0 <= start <= end, f"{partition}: no range [{start}, {end})"
    if start == end:
        return True
    way = way_of(access.client)
    _tell(way)
    if way.is_ours:
        try:
            return (yield from wire_range(partition, start, end, access, plan))
        except NotOursError as refusal:
            log.info("%s: reading on over librdkafka: %s", partition, refusal.why)
            is_held, last_epoch = refusal.is_held, refusal.last_epoch
            if refusal.position > start:  # where no epoch was told
                plan = plan._replace(start_epoch=-1)
            start = refusal.position
    else:
        is_held, last_epoch = True, -1
    rest = librdkafka_range(partition, start, end, access, plan, last_epoch)
    return (yield from rest) and is_held


_told: Final[set[Way]] = set()


def _tell(way: Way) -> None:
    """Say once a process which way ranges are read."""
    if way not in _told:
        _told.add(way)
        log.info("reading over %s: %s", "our own client" if way.is_ours else "librdkafka", way.why)


def librdkafka_range(
    partition: Partition,
    start: int,
    end: int,
    access: Access,
    plan: Plan = UNPLANNED,
    last_epoch: int = -1,
) -> Generator[pa.RecordBatch, None, bool]:
    """Yield the same as `read_range`, over librdkafka, which reads by name.

    What was read before `start` ended in `last_epoch` (-1: nothing was, or that is not known).
    So nothing that it yields is certain to be of the plan's topic.
    """
    kept, process = _idle.pop(access, None) or _opened(access), os.getpid()
    if kept.knows_another(partition.topic, plan.topic_id):
        kept.close()
        kept = _opened(access)
        kept.knows_another(partition.topic, plan.topic_id)
    consumer = kept.client
    whole, is_empty = False, True
    try:
        reading = _Reading(
            consumer, partition, start, end, access=access, plan=plan, fetched=kept.fetched,
            last_epoch=last_epoch,
        )  # fmt: skip
        for batch in reading.batches():
            is_empty = False
            yield batch
        whole = True
    finally:
        # After an error its state is unknown; and a bound on what is kept.
        if os.getpid() != process:
            leak(consumer)  # it is the parent's, whose child was to give up this range
        elif is_forked() and not whole:
            leak(consumer)
        elif whole and access not in _idle and len(_idle) < CONSUMERS_MAX:
            consumer.unassign()
            _idle[access] = kept
        else:
            consumer.close()
    return is_empty


def _opened(access: Access) -> _Consumer:
    """Open a consumer. What it is asked to do by the connection's own settings counts."""
    settings = {"queued.max.messages.kbytes": str(max(access.fetch_bytes // 1024, 1))}
    fetched = FetchedOffsets()
    callbacks: dict[str, Any] = {}
    if dict(access.client).get("isolation.level") == "read_committed":
        every_ms = str(min(max(access.silence_ms_max // 5, 100), 10_000))
        settings["statistics.interval.ms"] = every_ms
        callbacks["stats_cb"] = fetched
    return _Consumer(open_consumer((*settings.items(), *access.client), **callbacks), fetched, {})


class _Reading:
    """One range being read: where it stands, and what each event does to that."""

    def __init__(
        self,
        consumer: Any,
        partition: Partition,
        start: int,
        end: int,
        *,
        access: Access,
        plan: Plan = UNPLANNED,
        fetched: FetchedOffsets | None = None,
        last_epoch: int = -1,
    ) -> None:
        self.consumer = consumer
        self.partition = partition
        self.position = start
        self.end = end
        self.access = access
        self.plan = plan
        self._process = os.getpid()
        self._last_epoch = last_epoch  # of the last record that came
        self._rows_max = FIRST_ROWS
        self._fetched = FetchedOffsets() if fetched is None else fetched
        self._seen = self._fetched.of(partition)

    def batches(self) -> Iterator[pa.RecordBatch]:
        self._assign()
        silence_s_max = self.access.silence_ms_max / 1000
        look_s = min(GONE_S, silence_s_max / 2)
        deadline = time.monotonic() + silence_s_max
        look_at = deadline - silence_s_max + look_s
        while self.position < self.end:
            if os.getpid() != self._process:
                raise ReadError(f"{self.partition}: the client is that of the process that forked")
            messages = self.consumer.consume(min(self._rows_max, self.end - self.position), POLL_S)
            records = self._sift(messages)
            if records:
                batch = to_arrow(records, self.partition, with_headers=self.access.headers)
                self._rows_max = self._rows_of(batch.nbytes // len(records))
                yield batch
            if records or self._has_come_on():
                deadline = time.monotonic() + silence_s_max
                look_at = deadline - silence_s_max + look_s
            elif time.monotonic() > look_at:
                self._look_for_topic()
                look_at = time.monotonic() + look_s
            if time.monotonic() > deadline and self.position < self.end:
                raise self.access.silent(self.partition, self.position, self.end)

    def _rows_of(self, record_bytes: int) -> int:
        """Return how many records to take at once, of which the last ones had that size.

        The client hands over what came in a moment, and its queue is filled meanwhile.
        """
        return min(max(self.access.fetch_bytes // max(record_bytes, 1), 1), BATCH_ROWS)

    def _has_come_on(self) -> bool:
        """Return whether more was fetched, though nothing of it gave a row."""
        before, self._seen = self._seen, self._fetched.of(self.partition)
        return self._seen > self.position and self._seen != before

    def _look_for_topic(self) -> None:
        """Give up the rest of a topic that was deleted, where that is no error.

        The client does not say so of one that it has never known.
        """
        if self.access.fail_on_data_loss:
            return
        for _ in range(GONE_LOOKS):  # brokers may hear of it one after the other
            try:
                told = self.consumer.list_topics(self.partition.topic, timeout=ENDS_S)
            except KafkaException:
                return
            described = told.topics.get(self.partition.topic)
            error = None if described is None else described.error
            if error is None or error.code() not in _UNKNOWN:
                return
            time.sleep(PAUSE_S)
        self.position = self.end
        self.access.lost(self.partition, "no broker knows the topic: it was deleted")

    def _assign(self, *, is_held: bool = True) -> None:
        """Ask from the position on. The client holds the leader's log against its last epoch."""
        topic, number = self.partition
        epoch = self.plan.start_epoch if self._last_epoch < 0 else self._last_epoch
        held = {"leader_epoch": epoch} if is_held and epoch >= 0 else {}
        self.consumer.assign([TopicPartition(topic, number, self.position, **held)])

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
        self._follow(records)
        return records

    def _at_end(self) -> None:
        """The end of the partition was met. Before `end` either the log is short, or we are early.

        Usually a new leader's high watermark lags for a moment: its answer about the log's end
        comes when it is sure (KIP-207), so ask for that, and go on reading. A log that really is
        shorter has lost the rest, once all that it has was read.
        """
        if self.position >= self.end:
            return
        _, latest = self._ends()
        if not latest.why and latest.offset <= self.position:
            self._is_shorter(latest)

    def _is_shorter(self, latest: Told) -> None:
        """Give up the rest, if its leader is newer than the one that told of the range's end.

        Any other was cut off from its cluster: the range's deadline bounds the wait for the next.
        """
        if not latest.epoch > self.plan.end_epoch >= 0:
            forget(self.access.client)
            time.sleep(PAUSE_S)
            return
        self.position = self.end
        self.access.lost(self.partition, f"the log ends at {latest.offset}, before {self.end}")

    def _refused(self, error: KafkaError) -> None:
        """An error event: pass over what the client mends itself, raise what it can't."""
        if _CUT.casefold() in error.str().casefold():  # whatever the code is
            self._was_cut(error.str())
        elif error.code() in _OUT_OF_RANGE:
            self._out_of_range()
        elif error.code() in _UNKNOWN and not self.access.fail_on_data_loss:
            self.position = self.end
            self.access.lost(self.partition, f"{error.str()}: it was deleted")
        elif error.fatal() or error.code() in _HOPELESS:
            raise ReadError(f"{self.partition}: {error.str()}")

    def _out_of_range(self) -> None:
        earliest, latest = self._ends()
        if earliest.why or latest.why:
            time.sleep(PAUSE_S)  # and ask again: the range's deadline bounds this
        elif self.position < earliest.offset:
            said = f"outside of the log [{earliest.offset}, {latest.offset})"
            self.access.lost(self.partition, f"offset {self.position} is {said}")
            self.position = min(earliest.offset, self.end)
        elif latest.offset < self.position:
            self._is_shorter(latest)
        if self.position < self.end:
            self._assign()

    def _was_cut(self, said: str) -> None:
        """The log is not the one any more that was read, or planned from, up to the position."""
        if self._last_epoch >= 0 and not self.access.fails_on_cut:
            raise ReadError(f"{self.partition}: {said}: the range has to be read anew")
        self.access.cut(self.partition, said)
        self._assign(is_held=False)

    def _follow(self, records: list[Any]) -> None:
        """Take the epochs of records that came. ReadError: they go back."""
        epochs = [message.leader_epoch() for message in records]
        if set(epochs) <= {self._last_epoch, None}:
            return
        for message, epoch in zip(records, epochs, strict=True):
            if epoch is not None and 0 <= epoch < self._last_epoch:
                raise ReadError(
                    f"{self.partition}: offset {message.offset()} is of leader epoch {epoch}, "
                    f"behind one of epoch {self._last_epoch}: the range has to be read anew"
                )
            self._last_epoch = max(self._last_epoch, -1 if epoch is None else epoch)

    def _ends(self) -> tuple[Told, Told]:
        return ends_of(self.access.client, self.partition, ENDS_S)


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
