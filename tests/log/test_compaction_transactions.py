"""Goal: what a transaction aborted goes, and a marker stays as long as it says something.

Method: logs with transactions and their markers over the memory disk; the list of the aborted ones
is given, as the transaction index will give it. A reader of committed records, with the index that
the round wrote, must see the same before and after.
Seen to fail: with each of the bugs that `scripts/mutations_compaction.py` lists for it.
"""

from __future__ import annotations

from struct import iter_unpack
from typing import Any

import pytest
from tests.log.compaction_kit import (
    COMPACTORS,
    DAY_MS,
    SECRET,
    Wanted,
    append_all,
    compact,
    end_of,
    headers_of,
    keyed,
    roll,
    values_of,
    whole_batches,
)
from tests.log.log_kit import NOW_MS, everything, memory_disk, new_log, small_settings, virtual

from holdfast.log.compaction.batch_rewrite import has_horizon
from holdfast.log.compaction.compaction_round import LastOfProducer
from holdfast.log.compaction.seen_transactions import SeenTransactions
from holdfast.log.compaction.transaction_index import AbortedTransaction, write_transactions
from holdfast.log.log import Log
from holdfast.log.segment import TRANSACTION_INDEX_SUFFIX
from holdfast.runtime.ports import Runtime
from holdfast.wire.batch import (
    BatchHeader,
    ControlType,
    Record,
    build_batch,
    control_key,
    read_header,
    transaction_marker,
)
from holdfast.wire.walker.record_compaction import Compactor

SETTINGS = small_settings(segment_bytes=100_000)
BY_ONE: dict[str, Any] = {"producer_id": 1, "producer_epoch": 0, "transactional": True}
SEQUENCE: dict[str, Any] = {"base_sequence": 0}


def write(log: Log, producer: int, *pairs: tuple[str, str | None], sequence: int = 0) -> None:
    fields = {**BY_ONE, "producer_id": producer, "base_sequence": sequence}
    append_all(log, [keyed(*pairs, **fields)])


def mark(log: Log, producer: int, *, commit: bool, timestamp: int = NOW_MS) -> None:
    record = transaction_marker(commit=commit, coordinator_epoch=3, timestamp=timestamp)
    fields = {**BY_ONE, "producer_id": producer}
    log.append_as_leader(memoryview(build_batch([record], control=True, **fields)), 0)


def end(log: Log) -> None:
    roll(log)
    append_all(log, [keyed(("end", "1"))])


def markers(log: Log) -> list[BatchHeader]:
    return [header for header in headers_of(everything(log)) if header.is_control]


@pytest.mark.parametrize("compactor", COMPACTORS, ids=lambda compactor: str(compactor.name))
def test_what_was_aborted_goes_and_its_keys_count_for_nothing(compactor: Compactor) -> None:
    async def body(runtime: Runtime) -> None:
        _, log = new_log(runtime, SETTINGS)
        append_all(log, [keyed(("a", "good"), ("b", "good"))])
        write(log, 1, ("a", "aborted"), ("b", None))
        write(log, 2, ("c", "committed"))
        mark(log, 1, commit=False)
        mark(log, 2, commit=True)
        end(log)
        await log.flush()
        aborted = [AbortedTransaction(1, 2, 5, 2)]
        compact(log, compactor=compactor, aborted=aborted, producers={})
        assert values_of(log) == [
            (0, "a", "good"), (1, "b", "good"), (4, "c", "committed"), (7, "end", "1"),
        ]  # fmt: skip
        assert [header.base_offset for header in markers(log)] == [5, 6]
        # The first one's data went in that very round, so only the next one finds none.
        assert [has_horizon(header) for header in markers(log)] == [False, False]
        index = runtime.disk.read(f"{log.directory}/{0:020d}.txnindex")
        assert list(iter_unpack(">hqqqq", index)) == [(0, 1, 2, 5, 2)]

    virtual(body)


def test_a_marker_goes_by_steps() -> None:
    """When its records are gone, then when its time has come; its last producer's stays, empty."""

    async def body(runtime: Runtime) -> None:
        _, log = new_log(runtime, SETTINGS)
        write(log, 1, ("a", "1"))
        mark(log, 1, commit=True, timestamp=NOW_MS - 7)
        write(log, 2, ("a", "2"))
        mark(log, 2, commit=True)
        end(log)
        await log.flush()
        first: dict[str, Any] = {"producers": {}}
        compact(log, **first)
        assert [header.base_offset for header in headers_of(everything(log))] == [1, 2, 3, 4]
        assert not has_horizon(markers(log)[0]), "its record was there when the round passed"
        compact(log, **first)
        gone, other = markers(log)
        assert (has_horizon(gone), gone.base_timestamp) == (True, NOW_MS + DAY_MS)
        assert gone.max_timestamp == NOW_MS - 7
        (record,) = [
            record
            for header, batch in whole_batches(everything(log))
            if header == gone
            for record in records_in_any(batch)
        ]
        assert (record.key, record.timestamp) == (control_key(ControlType.COMMIT), NOW_MS - 7)
        assert not has_horizon(other)
        compact(log, now_ms=NOW_MS + DAY_MS - 1, **first)
        assert len(markers(log)) == 2
        later = NOW_MS + DAY_MS
        known = {1: LastOfProducer(-1, 0)}  # nothing but its marker
        compact(log, now_ms=later, producers=known)
        empty, _ = markers(log)
        assert (empty.base_offset, empty.record_count, empty.producer_epoch) == (1, 0, 0)
        assert empty.is_transactional
        before = everything(log)
        compact(log, now_ms=later, producers=known)
        assert everything(log) == before
        compact(log, now_ms=later, producers={1: LastOfProducer(-1, 1)})
        assert [header.base_offset for header in markers(log)] == [3]

    virtual(body)


def records_in_any(batch: bytes) -> list[Record]:
    from holdfast.wire.batch import read_records  # noqa: PLC0415 - markers, too

    return read_records(batch)


def test_a_marker_stays_while_an_emptied_batch_of_its_transaction_does() -> None:
    async def body(runtime: Runtime) -> None:
        _, log = new_log(runtime, SETTINGS)
        write(log, 1, ("a", "aborted"))
        mark(log, 1, commit=False)
        end(log)
        await log.flush()
        aborted = [AbortedTransaction(1, 0, 1, 0)]
        known = {1: LastOfProducer(0, 0)}
        for now_ms in (NOW_MS, NOW_MS + 2 * DAY_MS, NOW_MS + 4 * DAY_MS):
            compact(log, aborted=aborted, producers=known, now_ms=now_ms)
            empty, marker, _ = headers_of(everything(log))
            assert (empty.record_count, marker.record_count) == (0, 1)
            assert not has_horizon(marker)
        compact(log, aborted=aborted, producers={})
        compact(log, aborted=aborted, producers={})
        (marker,) = markers(log)
        assert has_horizon(marker)

    virtual(body)


def test_a_transaction_may_lie_in_several_groups() -> None:
    async def body(runtime: Runtime) -> None:
        _, log = new_log(runtime, SETTINGS)
        write(log, 1, ("a", "1"))
        roll(log)
        write(log, 1, ("b", "1"), sequence=1)
        mark(log, 1, commit=False)
        end(log)
        await log.flush()
        aborted = [AbortedTransaction(1, 0, 2, 0)]
        settings = {"segment_bytes": 1}
        compact(log, aborted=aborted, producers={}, settings=settings)
        assert values_of(log) == [(3, "end", "1")]
        names = runtime.disk.list(log.directory)
        indexes = [name for name in names if name.endswith(".txnindex")]
        assert indexes == [f"{1:020d}.txnindex"], "that of the segment with the marker"

    virtual(body)


@pytest.mark.parametrize("is_sealed", [False, True])
def test_what_was_aborted_counts_for_nothing_wherever_its_marker_is(is_sealed: bool) -> None:
    """Also in a segment that the round does not touch: a sealed one, or the active one."""

    async def body(runtime: Runtime) -> None:
        settings = SETTINGS.replace(
            cleanup_policy=("compact",), min_compaction_lag_ms=is_sealed * DAY_MS
        )
        _, log = new_log(runtime, settings)
        append_all(log, [keyed(("a", "good"), ("b", "good"))])
        write(log, 1, ("a", "aborted"), ("b", None))
        roll(log)
        mark(log, 1, commit=False, timestamp=NOW_MS + DAY_MS)
        path = log._segments.active.prefix + TRANSACTION_INDEX_SUFFIX
        write_transactions(runtime.disk, path, [AbortedTransaction(1, 2, 4, 2)])
        if is_sealed:
            end(log)
        log.high_watermark = log.end
        await log.flush()
        now_ms = NOW_MS + DAY_MS + 1000
        dirty = log.compaction.dirty(now_ms)
        assert (dirty.first, dirty.bound) == (0, 4)
        compaction, _ = log.compaction.begin(dirty, now_ms, SECRET, 1 << 20)
        log.compaction.done(end_of(compaction.steps()))
        assert values_of(log)[:2] == [(0, "a", "good"), (1, "b", "good")]
        assert [header.record_count for header in headers_of(everything(log))][:3] == [2, 0, 1]
        index = runtime.disk.read(path)
        assert list(iter_unpack(">hqqqq", index)) == [(0, 1, 2, 4, 2)]

    virtual(body)


@pytest.mark.parametrize("commit", [False, True])
def test_a_transaction_whose_marker_is_not_committed_is_not_looked_at(commit: bool) -> None:
    """The next leader may not have the marker: then the other one may come to stand there."""

    async def body(runtime: Runtime) -> None:
        settings = SETTINGS.replace(cleanup_policy=("compact",))
        _, log = new_log(runtime, settings)
        append_all(log, [keyed(("a", "good"))])
        roll(log)
        write(log, 1, ("a", "undecided"))
        roll(log)
        mark(log, 1, commit=commit)
        await log.flush()
        log.high_watermark = 2
        assert log.compaction.dirty(NOW_MS).bound == 1
        log.high_watermark = 3
        assert log.compaction.dirty(NOW_MS).bound == 2
        log.high_watermark = 2
        log.truncate_to(2)
        assert log.compaction.dirty(NOW_MS).bound == 1, "it is open again"

    virtual(body)


def test_a_marker_that_nobody_can_read_ends_its_transaction_all_the_same() -> None:
    """What its producer writes next is committed; to take it for aborted would be a loss."""

    async def body(runtime: Runtime) -> None:
        _, log = new_log(runtime, SETTINGS)
        write(log, 1, ("a", "aborted"))
        mark(log, 1, commit=False)
        path = f"{log.directory}/{0:020d}.log"
        memory_disk(runtime).corrupt(path, log.size - 1, b"\xff")
        write(log, 1, ("b", "committed"), sequence=1)
        mark(log, 1, commit=True)
        end(log)
        await log.flush()
        aborted = [AbortedTransaction(1, 0, 1, 0)]
        for _ in range(2):
            done = compact(log, aborted=aborted, producers={}, now_ms=NOW_MS + 9 * DAY_MS)
            data = everything(log)
            assert [header.base_offset for header in headers_of(data)] == [1, 2, 3, 4]
        assert "offset 1 stays whole: its CRC is wrong" in done.work.tally.named[0]

    virtual(body)


@pytest.mark.slow
def test_readers_are_told_of_an_aborted_batch_that_stays_whole() -> None:
    """It is too large to be looked into: so its entry in the index stays, and its marker does."""

    async def body(runtime: Runtime) -> None:
        _, log = new_log(runtime, small_settings(segment_bytes=1 << 30))
        append_all(log, [Wanted([Record(b"a", bytes(17 << 20))], fields=BY_ONE | SEQUENCE)])
        mark(log, 1, commit=False)
        end(log)
        await log.flush()
        aborted = [AbortedTransaction(1, 0, 1, 0)]
        for _ in range(2):
            compact(log, aborted=aborted, producers={}, settings={"max_message_bytes": 1})
            assert [header.record_count for header in headers_of(everything(log))] == [1, 1, 1]
        append_all(log, [keyed(("x", "1")), keyed(("x", "2"))])
        roll(log)
        await log.flush()
        compact(log, aborted=aborted, producers={}, settings={"max_message_bytes": 1})
        index = runtime.disk.read(f"{log.directory}/{0:020d}.txnindex")
        assert list(iter_unpack(">hqqqq", index)) == [(0, 1, 0, 1, 0)]

    virtual(body)


def test_control_records_of_other_kinds_stay() -> None:
    async def body(runtime: Runtime) -> None:
        _, log = new_log(runtime, SETTINGS)
        for key in (control_key(ControlType.LEADER_CHANGE), b"\0\0\0\x63", b"?", None):
            batch = build_batch([Record(key, b"v", NOW_MS)], control=True)
            log.append_as_leader(memoryview(batch), 0)
        end(log)
        await log.flush()
        before = everything(log)
        for _ in range(3):
            compact(log, now_ms=NOW_MS + 9 * DAY_MS, producers={})
        assert everything(log) == before

    virtual(body)


def test_transactions_that_are_seen() -> None:
    """Of two that overlap, by different producers, and of two of one producer."""

    def batch(offset: int, producer: int, **fields: Any) -> BatchHeader:
        return read_header(
            build_batch(
                [Record()], base_offset=offset, **{**BY_ONE, "producer_id": producer, **fields}
            )
        )

    first, second = AbortedTransaction(1, 0, 3, 0), AbortedTransaction(1, 5, 7, 5)
    seen = SeenTransactions([second, first])
    assert seen.is_aborted(batch(0, 1))
    assert not seen.is_aborted(batch(1, 2))
    assert not seen.is_aborted(batch(2, 1, transactional=False))
    assert not seen.may_go(batch(3, 1), ControlType.ABORT)
    assert seen.take_kept() == [first]
    assert not seen.may_go(batch(4, 2), ControlType.COMMIT)
    assert seen.may_go(batch(4, 2), ControlType.COMMIT), "nothing of a second one was seen"
    assert not seen.may_go(batch(4, 2), ControlType.LEADER_CHANGE)
    assert seen.may_go(batch(7, 1), ControlType.ABORT), "no batch of it is left"
    assert seen.take_kept() == []
    assert not seen.is_aborted(batch(8, 1)), "this one is another, which was committed"
    third, fourth = AbortedTransaction(1, 10, 12, 10), AbortedTransaction(1, 14, 16, 14)
    seen = SeenTransactions([third, fourth])
    assert seen.is_aborted(batch(10, 1))
    assert not seen.is_aborted(batch(13, 1)), "the marker before it can't be read"
    assert seen.is_aborted(batch(14, 1))
    assert seen.take_kept() == [third]
