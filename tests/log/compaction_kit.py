"""What the tests of compaction share: logs with keys, a host that is a log, and a naive model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from tests.log.log_kit import NOW_MS, everything

from holdfast.config.topic import TopicSettings
from holdfast.log.compaction.compaction_due import SegmentFacts
from holdfast.log.compaction.compaction_round import LastOfProducer, Round, RoundPlan
from holdfast.log.compaction.compaction_steps import Compaction
from holdfast.log.log import Log
from holdfast.log.segment import Segment
from holdfast.wire.batch import (
    BatchHeader,
    Codec,
    Record,
    batches,
    build_batch,
    crc_matches,
    read_records,
)
from holdfast.wire.walker.record_compaction import COMPACTOR, PYTHON, Compactor

SECRET = bytes(range(16))
DAY_MS = 86_400_000
COMPACTORS = list({compactor.name: compactor for compactor in (PYTHON, COMPACTOR)}.values())


def compaction_settings(settings: TopicSettings, **changes: Any) -> TopicSettings:
    return settings.replace(**({"delete_retention_ms": DAY_MS} | changes))


def facts_of(segment: Segment) -> SegmentFacts:
    return SegmentFacts(
        segment.base,
        segment.size,
        segment.first_timestamp,
        segment.max_timestamp[0],
        segment.offsets.count * segment.offsets.entry_size,
        segment.times.count * segment.times.entry_size,
    )


def sealed(log: Log) -> list[SegmentFacts]:
    return [facts_of(segment) for segment in log._segments.all[:-1]]


class LogHost:
    """The log's own, watched."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.taken: list[tuple[Sequence[int], int]] = []

    def is_as_planned(self, bases: Sequence[int]) -> bool:
        return self.log.compaction.is_as_planned(bases)

    def take_over(self, bases: Sequence[int], segment: Segment, removed: Sequence[str]) -> None:
        self.log.compaction.take_over(bases, segment, removed)
        self.taken.append((bases, segment.base))


def producers_of(log: Log) -> dict[int, LastOfProducer]:
    return {entry[0]: LastOfProducer(entry[3], entry[1]) for entry in log._producers.snapshot()}


@dataclass(kw_only=True)
class Done:
    """A round that was taken."""

    checkpoint: int | None
    work: Round
    host: LogHost
    turns: list[object]


def make_round(
    log: Log,
    *,
    first_dirty: int = 0,
    now_ms: int = NOW_MS,
    compactor: Compactor = COMPACTOR,
    is_aside: bool | None = None,
    map_bytes: int = 1 << 20,
    settings: Mapping[str, Any] | None = None,
    **changes: Any,
) -> tuple[Compaction, Round, LogHost]:
    plan = RoundPlan(
        directory=log.directory,
        segments=sealed(log),
        first_dirty=first_dirty,
        bound=log._segments.active.base,
        now_ms=now_ms,
        secret=SECRET,
        map_bytes=map_bytes,
        producers=producers_of(log),
    )
    plan = replace(plan, **changes)
    disk = log.home.runtime.disk
    chosen = compaction_settings(log.settings, **(settings or {}))
    work = Round(disk, log.home.files, plan, chosen, compactor, is_aside=is_aside)
    host = LogHost(log)
    compaction = Compaction(disk, log.home.files, work, host)
    log.compaction._under_way = compaction  # which it ends when it is cut, say
    return compaction, work, host


Turn = Any  # what steps have yielded


def advanced(steps: Any, wanted: Turn) -> Turn:
    """Take one step more, as `runtime.sliced_work` does. StopIteration: it was the last one."""
    if not callable(wanted):
        return steps.send(None)
    try:
        outcome = wanted()
    except Exception as error:  # noqa: BLE001 - whatever a job ends with, its steps are told
        return steps.throw(error)
    return steps.send(outcome)


def end_of(steps: Any, wanted: Turn = None, turns: list[Turn] | None = None) -> Any:
    """Take all steps that are left; return what they return."""
    while True:
        try:
            wanted = advanced(steps, wanted)
        except StopIteration as end:
            return end.value
        if turns is not None:
            turns.append(wanted)


def compact(log: Log, **options: Any) -> Done:
    """Take a whole round at once."""
    compaction, work, host = make_round(log, **options)
    turns: list[Turn] = []
    checkpoint = end_of(compaction.steps(), turns=turns)
    log.compaction.done(checkpoint)
    return Done(checkpoint=checkpoint, work=work, host=host, turns=turns)


# --- logs with keys ---


class Wanted(NamedTuple):
    """A batch that is to be appended."""

    records: Sequence[Record]
    codec: Codec = Codec.NONE
    fields: Mapping[str, Any] = {}


def keyed(*pairs: tuple[str | None, str | None], timestamp: int = NOW_MS, **fields: Any) -> Wanted:
    """Return a batch of records with these keys and values."""
    records = [
        Record(
            None if key is None else key.encode(),
            None if value is None else value.encode(),
            timestamp + number,
        )
        for number, (key, value) in enumerate(pairs)
    ]
    codec = fields.pop("codec", Codec.NONE)
    return Wanted(records, codec, fields)


def append_all(log: Log, wanted: Sequence[Wanted], *, epoch: int = 0) -> list[int]:
    """Append batches; return the offset of each."""
    return [
        log.append_as_leader(
            memoryview(build_batch(batch.records, codec=batch.codec, **batch.fields)), epoch
        )
        for batch in wanted
    ]


def roll(log: Log) -> None:
    """Seal what is there, if anything is."""
    if log._segments.active.size:
        log._roll()


# --- what is there ---


def headers_of(data: bytes) -> list[BatchHeader]:
    return [header for _, header in batches(data)]


def whole_batches(data: bytes) -> Iterator[tuple[BatchHeader, bytes]]:
    for position, header in batches(data):
        assert crc_matches(data, position), f"the CRC of the batch at {header.base_offset}"
        yield header, data[position : position + header.size]


def records_in(data: bytes) -> list[Record]:
    """Return all records but markers."""
    return [
        record
        for header, batch in whole_batches(data)
        if not header.is_control
        for record in read_records(batch)
    ]


def records_of(log: Log) -> list[Record]:
    return records_in(everything(log))


def values_of(log: Log) -> list[tuple[int, str, str | None]]:
    """Return offset, key and value of each record, as text."""
    return [
        (
            record.offset,
            "" if record.key is None else record.key.decode(),
            None if record.value is None else record.value.decode(),
        )
        for record in records_of(log)
    ]


def latest_of(records: Sequence[Record]) -> dict[bytes | None, Record]:
    """Return what a consumer of all of them has of each key; one that is deleted is not there."""
    found = {record.key: record for record in records}
    return {key: record for key, record in found.items() if record.value is not None}


def check_batches(log: Log, written: Mapping[int, BatchHeader]) -> None:
    """Check what must never change of a batch, by its base offset."""
    expected = log.start
    for header in headers_of(everything(log)):
        assert header.base_offset >= expected, "offsets go back"
        before = written[header.base_offset]
        for name in ("last_offset_delta", "leader_epoch", "producer_id", "producer_epoch"):
            assert getattr(header, name) == getattr(before, name), name
        assert header.base_sequence == before.base_sequence
        assert header.is_log_append_time == before.is_log_append_time
        assert header.is_transactional == before.is_transactional
        assert header.is_control == before.is_control
        assert header.codec == (before.codec if header.record_count else Codec.NONE)
        assert header.record_count <= before.record_count
        expected = header.next_offset


class Model:
    """What must stay, by going through all records again and again."""

    def __init__(self, records: Sequence[tuple[int, Record]]) -> None:
        """Each record with the base offset of its batch."""
        self.records = list(records)
        self.horizons: dict[int, int] = {}  # by base offset

    def take_round(
        self, end: int, now_ms: int, retention_ms: int = DAY_MS, *, copied: int = 2**62
    ) -> None:
        """Take a round whose map ended at `end`, and that copied all segments below `copied`."""
        self.records = [
            (base, record)
            for base, record in self.records
            if self._stays(base, record, end, now_ms)
        ]
        for base, record in self.records:
            if record.value is None and base < copied:
                self.horizons.setdefault(base, now_ms + retention_ms)

    def _stays(self, base: int, record: Record, end: int, now_ms: int) -> bool:
        if record.offset >= end:
            return True
        if record.key is None or any(
            later.key == record.key and record.offset < later.offset < end
            for _, later in self.records
        ):
            return False
        return record.value is not None or self.horizons.get(base, now_ms + 1) > now_ms

    def left(self) -> list[Record]:
        return [record for _, record in self.records]
