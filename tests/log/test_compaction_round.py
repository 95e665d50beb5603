"""Goal: a round leaves the last record of each key, and nothing of it lies.

Method: real logs over the memory disk, compacted in both implementations, on the loop and in jobs;
a naive model says what must stay, and what is there is read with a reader that knows nothing of
compaction. Hypothesis draws batches of all codecs, with tombstones, empty values, headers and
producers, where segments end, when rounds are taken, and how many keys the map may hold.
Seen to fail: with each of the bugs that `scripts/mutations_compaction.py` lists for it.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.log.compaction_kit import (
    COMPACTORS,
    DAY_MS,
    Model,
    Wanted,
    advanced,
    append_all,
    check_batches,
    compact,
    end_of,
    headers_of,
    keyed,
    make_round,
    producers_of,
    records_of,
    roll,
    values_of,
)
from tests.log.log_kit import (
    NOW_MS,
    after_crash,
    crash,
    everything,
    memory_disk,
    new_log,
    offset_entries,
    reopened,
    small_settings,
    time_entries,
    virtual,
    with_body,
)

from holdfast.log.compaction import cleaned_segment
from holdfast.log.compaction.batch_rewrite import HORIZON, has_horizon
from holdfast.log.compaction.compaction_steps import JOB_TURNS
from holdfast.log.errors import CorruptFileError
from holdfast.log.files import FileCache
from holdfast.log.log import Log
from holdfast.log.recovery import rebuild
from holdfast.log.segment import Segment
from holdfast.runtime.ports import Runtime
from holdfast.wire.batch import Codec, Record, build_batch, read_header, read_records
from holdfast.wire.walker.record_compaction import COMPACTOR, PYTHON, Compactor

SETTINGS = small_settings(segment_bytes=100_000, index_interval_bytes=200)
KEYS = [None, b"", b"a", b"b", b"c", b"key of some length"]
BATCHES = st.builds(
    Wanted,
    records=st.lists(
        st.builds(
            Record,
            key=st.sampled_from(KEYS),
            value=st.none() | st.sampled_from([b"", b"1", b"2" * 90]),
            timestamp=st.integers(NOW_MS - 2**20, NOW_MS) | st.just(-1) | st.just(5),
            headers=st.lists(st.tuples(st.just("h"), st.none() | st.just(b"x")), max_size=2).map(
                tuple
            ),
        ),
        min_size=1,
        max_size=5,
    ),
    codec=st.sampled_from(Codec),
    fields=st.sampled_from([{}, {}, {"log_append_time_ms": NOW_MS}]),
)
EVENTS = st.lists(
    BATCHES
    | BATCHES
    | st.just("roll")
    | st.tuples(st.integers(0, 2 * DAY_MS), st.sampled_from([72, 100_000])),
    min_size=3,
    max_size=14,
)
WAYS = [
    pytest.param(compactor, is_aside, id=f"{compactor.name}, {'jobs' if is_aside else 'slices'}")
    for compactor in COMPACTORS
    for is_aside in (False, True)
]


class History:
    """A log whose rounds a model takes, too."""

    def __init__(self, log: Log, compactor: Compactor, is_aside: bool) -> None:
        self.log = log
        self.options: dict[str, Any] = {"compactor": compactor, "is_aside": is_aside}
        self.model = Model([])
        self.written: dict[int, Any] = {}
        self.clean = 0  # the checkpoint
        self.now_ms = NOW_MS
        self.sequence = 0

    def append(self, batch: Wanted) -> None:
        if len(batch.records) % 2:
            fields = {"producer_id": 7, "producer_epoch": 1, "base_sequence": self.sequence}
            batch = batch._replace(fields={**batch.fields, **fields})
            self.sequence += len(batch.records)
        (base,) = append_all(self.log, [batch])
        data = self.log.read(base, 1 << 20, self.log.end).records
        self.written[base] = read_header(data)
        self.model.records += [(base, record) for record in read_records(data)]

    async def compact(self, later_ms: int, map_bytes: int) -> None:
        await self.log.flush()  # a job that writes the old indexes must be done
        self.now_ms += later_ms
        bound = self.log._segments.active.base
        while self.clean < bound:
            bases = self.log._segments.bases[:]
            done = compact(
                self.log,
                first_dirty=self.clean,
                now_ms=self.now_ms,
                map_bytes=map_bytes,
                **self.options,
            )
            assert done.checkpoint is not None
            assert self.clean < done.checkpoint <= bound, "a round must get on"
            self.clean = done.checkpoint
            copied = min(base for base in bases if base >= self.clean)
            self.model.take_round(self.clean, self.now_ms, copied=copied)
            self.check()

    def check(self) -> None:
        assert records_of(self.log) == self.model.left()
        check_batches(self.log, self.written)
        for header in headers_of(everything(self.log)):
            stays = self.model.horizons.get(header.base_offset)
            if header.record_count:
                assert has_horizon(header) == (stays is not None)
                if stays is not None:
                    assert header.base_timestamp == stays
        check_segments(self.log)


def check_segments(log: Log) -> None:
    """Check that segments follow each other without a hole, and their indexes are those of them."""
    segments = log._segments.all
    for segment, following in pairwise(segments):
        headers = [header for _, header in segment.headers(0)]
        assert headers[-1].next_offset == following.base, "a round leaves no hole at an end"
        files = FileCache(log.home.runtime.disk, 4)
        fresh = Segment(files, segment.prefix, segment.base)
        fresh.size = segment.size
        assert rebuild(files, fresh, log.settings.index_interval_bytes)[2] == ""
        fresh.seal()
        assert offset_entries(fresh.offsets) == offset_entries(segment.offsets)
        assert time_entries(fresh.times) == time_entries(segment.times)
        assert fresh.max_timestamp == segment.max_timestamp
        assert segment.is_indexed
        assert segment.is_sealed


@pytest.mark.turns
@pytest.mark.slow
@pytest.mark.parametrize(("compactor", "is_aside"), WAYS)
@settings(deadline=None, max_examples=60)
@given(events=EVENTS)
def test_rounds_leave_what_a_model_says(
    compactor: Compactor, is_aside: bool, events: list[Any]
) -> None:
    async def body(runtime: Runtime) -> None:
        directories, log = new_log(runtime, SETTINGS)
        history = History(log, compactor, is_aside)
        for event in [*events, "roll", (DAY_MS, 72), (DAY_MS, 100_000)]:
            if event == "roll":
                roll(log)
            elif isinstance(event, Wanted):
                history.append(event)
            else:
                await history.compact(*event)
        await log.flush()
        before = everything(log)
        crash(directories)
        _, log = reopened(after_crash(runtime, power=True), SETTINGS)
        assert everything(log) == before

    virtual(body)


# --- tombstones ---


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("compactor", COMPACTORS, ids=lambda compactor: str(compactor.name))
def test_a_tombstone_is_stamped_and_then_goes(codec: Codec, compactor: Compactor) -> None:
    async def body(runtime: Runtime) -> None:
        _, log = new_log(runtime, SETTINGS)
        append_all(log, [keyed(("a", "1"), ("b", "1"), codec=codec)])
        pairs = [("a", None), ("c", "1"), ("d", "")]
        append_all(log, [keyed(*pairs, timestamp=NOW_MS - 2**33, codec=codec)])
        roll(log)
        append_all(log, [keyed(("e", "1"))])
        await log.flush()

        def take(now_ms: int) -> list[tuple[int, str, str | None]]:
            compact(log, now_ms=now_ms, compactor=compactor)
            return values_of(log)

        left = [(1, "b", "1"), (2, "a", None), (3, "c", "1"), (4, "d", ""), (5, "e", "1")]
        assert take(NOW_MS) == left
        first, second, _ = headers_of(everything(log))
        assert (first.attributes, second.attributes) == (codec, codec | HORIZON)
        assert second.base_timestamp == NOW_MS + DAY_MS
        assert second.max_timestamp == NOW_MS - 2**33 + 2
        stamps = [record.timestamp for record in records_of(log)]
        assert stamps[1:4] == [NOW_MS - 2**33 + number for number in range(3)]
        assert take(NOW_MS + 1) == left
        assert headers_of(everything(log))[1] == second, "it is stamped once"
        assert take(NOW_MS + DAY_MS - 1) == left
        assert take(NOW_MS + DAY_MS) == [each for each in left if each[1] != "a"]
        assert headers_of(everything(log))[1].attributes == codec | HORIZON, "as Kafka leaves it"

    virtual(body)


def test_a_tombstone_behind_the_maps_end_is_stamped_but_stays() -> None:
    """The map has room for one key: what comes behind it no round has looked at."""

    async def body(runtime: Runtime) -> None:
        _, log = new_log(runtime, SETTINGS)
        append_all(log, [keyed(("a", "1"), ("b", "1"), ("b", None))])
        roll(log)
        append_all(log, [keyed(("c", "1"))])
        await log.flush()
        assert compact(log, map_bytes=48).checkpoint == 1
        assert values_of(log)[:3] == [(0, "a", "1"), (1, "b", "1"), (2, "b", None)]
        assert has_horizon(headers_of(everything(log))[0])
        later = NOW_MS + 2 * DAY_MS
        done = compact(log, map_bytes=48, first_dirty=1, now_ms=later)
        assert done.checkpoint == 3
        assert values_of(log) == [(0, "a", "1"), (3, "c", "1")]

    virtual(body)


def test_an_endless_delete_retention_is_endless() -> None:
    async def body(runtime: Runtime) -> None:
        _, log = new_log(runtime, SETTINGS)
        append_all(log, [keyed(("a", None), timestamp=-1)])
        roll(log)
        append_all(log, [keyed(("c", "1"))])
        await log.flush()
        for now_ms in (NOW_MS, 2**62):
            compact(log, now_ms=now_ms, settings={"delete_retention_ms": 2**63 - 1})
            assert records_of(log)[0] == Record(b"a", None, -1)
            assert headers_of(everything(log))[0].base_timestamp == 2**63 - 1

    virtual(body)


def test_the_largest_timestamp_is_of_what_stays() -> None:
    async def body(runtime: Runtime) -> None:
        _, log = new_log(runtime, SETTINGS)
        append_all(log, [keyed(("a", "1"), ("b", "1"), ("c", "1"), timestamp=NOW_MS)])
        append_all(log, [keyed(("d", "1"), ("c", "1"), log_append_time_ms=NOW_MS + 9)])
        append_all(log, [keyed(("c", "2"))])
        roll(log)
        append_all(log, [keyed(("e", "1"))])
        await log.flush()
        compact(log)
        first, second, *_ = headers_of(everything(log))
        assert (first.record_count, first.max_timestamp) == (2, NOW_MS + 1)
        assert (second.record_count, second.max_timestamp) == (1, NOW_MS + 9)
        assert (first.base_timestamp, second.base_timestamp) == (NOW_MS, NOW_MS)

    virtual(body)


# --- what stays without records ---


def test_the_last_batch_of_a_producer_and_of_a_group_stay_empty() -> None:
    async def body(runtime: Runtime) -> None:
        _, log = new_log(runtime, SETTINGS)
        wanted = [
            keyed(("a", "1"), ("b", "1"), producer_id=7, producer_epoch=3, base_sequence=10),
            keyed(("a", "1"), ("b", "1"), producer_id=7, producer_epoch=3, base_sequence=12),
            keyed(("a", "1"), ("b", "1"), producer_id=8, producer_epoch=0, base_sequence=0),
            keyed(("a", "1"), codec=Codec.ZSTD, timestamp=NOW_MS + 9),
        ]
        append_all(log, wanted, epoch=4)
        roll(log)
        append_all(log, [keyed(("a", "2"), ("b", "2"))], epoch=5)
        roll(log)
        append_all(log, [keyed(("c", "1"))], epoch=5)
        await log.flush()
        settings = {"segment_bytes": 1}  # each segment is a group
        seven = producers_of(log)[7]
        done = compact(log, settings=settings, producers={7: seven, 99: seven})
        assert done.host.taken == [([0], 0)], "the other one stays as it is"
        assert done.work.tally.batches_dropped == 2
        empty, last, *_ = headers_of(everything(log))
        assert (empty.base_offset, empty.last_offset, empty.record_count) == (2, 3, 0)
        assert (empty.producer_id, empty.producer_epoch, empty.base_sequence) == (7, 3, 12)
        assert (empty.leader_epoch, empty.size) == (4, 61)
        assert (last.base_offset, last.last_offset, last.record_count) == (6, 6, 0)
        assert (last.attributes, last.base_timestamp, last.max_timestamp) == (0, -1, NOW_MS + 9)
        before = everything(log)
        assert compact(log, settings=settings, producers={7: seven}).host.taken == []
        assert everything(log) == before
        # A producer that is forgotten needs no batch, nor does an end that is none any more.
        done = compact(log, producers={})
        assert done.host.taken == [([0, 7], 0)]
        assert [header.base_offset for header in headers_of(everything(log))] == [7, 9]

    virtual(body)


# --- batches that nobody can read ---

INSIDE = slice(61, None)
HARMS: dict[str, Callable[[bytes], bytes]] = {
    "its CRC is wrong": lambda data: data,  # the file is spoilt later
    "does not inflate": lambda data: with_body(data, data[61:-9], attributes=Codec.GZIP),
    "not behind the one before": lambda data: with_body(data, data[61:64] + b"\4" + data[65:]),
    "1 bytes behind its last record": lambda data: with_body(data, data[INSIDE] + b"\0"),
    "2 records where its header counts 3": lambda data: with_body(
        data, data[INSIDE], record_count=3, last_offset_delta=4
    ),
    "3 records can't have 2 offsets": lambda data: with_body(data, data[INSIDE], record_count=3),
    "record 1: a record has a number of headers": lambda data: with_body(data, data[61:-1] + b"\2"),
}


@pytest.mark.parametrize("compactor", COMPACTORS, ids=lambda compactor: str(compactor.name))
@pytest.mark.parametrize("why", HARMS)
def test_what_nobody_can_read_stays_whole(compactor: Compactor, why: str) -> None:
    """Its keys count for nothing, it is named once, and behind it no tombstone goes."""

    async def body(runtime: Runtime) -> None:
        _, log = new_log(runtime, SETTINGS)
        append_all(log, [keyed(("a", "old"), ("b", "old"))])
        whole = keyed(("a", "new"), ("b", "new"))
        spoilt = HARMS[why](bytes(build_batch(whole.records)))
        log.append_as_leader(memoryview(bytearray(spoilt)), 0)
        if "CRC" in why:
            memory_disk(runtime).corrupt(f"{log.directory}/{0:020d}.log", log.size - 2, b"W")
        kept = log.read(2, 1, log.end).records
        (deleted,) = append_all(log, [keyed(("c", None))])
        roll(log)
        append_all(log, [keyed(("d", "1"))])
        await log.flush()
        done = compact(log, compactor=compactor)
        assert done.work.tally.unreadable == 1
        (named,) = done.work.tally.named
        assert why in named
        assert "the batch at offset 2 stays whole" in named
        assert log.read(2, 1, log.end).records == kept
        old = headers_of(everything(log))[0]
        assert (old.base_offset, old.record_count) == (0, 2), "nothing later is known of a and b"
        assert done.checkpoint == log.end - 1
        later = NOW_MS + 3 * DAY_MS
        done = compact(log, compactor=compactor, first_dirty=done.checkpoint, now_ms=later)
        assert done.work.tally.unreadable == 0, "it was named by the round before"
        tombstone = headers_of(everything(log))[2]
        assert (tombstone.base_offset, tombstone.record_count) == (deleted, 1), "it went"

    virtual(body)


@pytest.mark.slow
def test_a_batch_that_is_too_large_to_be_held_is_copied_in_pieces() -> None:
    async def body(runtime: Runtime) -> None:
        settings = small_settings(segment_bytes=1 << 30)
        _, log = new_log(runtime, settings)
        append_all(log, [keyed(("a", "1"))])
        append_all(log, [Wanted([Record(b"a", bytes(17 << 20))])])
        append_all(log, [keyed(("a", "2"), ("b", "1")), keyed(("b", "2"))])
        roll(log)
        append_all(log, [keyed(("c", "1"))])
        await log.flush()
        kept = log.read(1, 1, log.end).records
        done = compact(log, compactor=PYTHON, settings={"max_message_bytes": 1})
        assert done.work.tally.named == [
            f"the batch at offset 1 stays whole: it has {len(kept)} bytes"
        ]
        assert log.read(1, 1, log.end).records == kept
        assert [r.offset for r in records_of(log)] == [1, 2, 4, 5]

    virtual(body)


# --- turns ---


def test_in_python_no_slice_is_long() -> None:
    """A batch of many records, in a codec, is looked at and copied by turns."""

    async def body(runtime: Runtime) -> None:
        _, log = new_log(runtime, small_settings(segment_bytes=1 << 30))
        records = [Record(b"%d" % (n % 700), b"v" * 20, NOW_MS) for n in range(3_000)]
        append_all(log, [Wanted(records, Codec.ZSTD), Wanted(records, Codec.NONE)])
        roll(log)
        append_all(log, [keyed(("c", "1"))])
        await log.flush()
        compaction, work, _ = make_round(log, compactor=PYTHON)
        spent: list[float] = []
        steps, wanted = compaction.steps(), None
        while True:
            try:
                wanted = advanced(steps, wanted)
            except StopIteration as end:
                checkpoint = end.value
                break
            spent.append(work.effort.spent)
        assert checkpoint == 6_000
        assert len(spent) > 50
        assert max(spent) < 2.5, "that is more than a slice"
        assert [r.offset for r in records_of(log)] == [*range(5_300, 6_001)]

    virtual(body)


@pytest.mark.slow
def test_aside_the_work_is_jobs_of_some_megabytes() -> None:
    async def body(runtime: Runtime) -> None:
        _, log = new_log(runtime, small_settings(segment_bytes=1 << 30))
        for number in range(24):
            append_all(log, [Wanted([Record(b"%d" % number, bytes(1 << 20))])])
        append_all(log, [Wanted([Record(b"0", b"")])])
        roll(log)
        append_all(log, [keyed(("c", "1"))])
        await log.flush()
        done = compact(log, compactor=COMPACTOR, is_aside=True)
        assert all(map(callable, done.turns))
        # 24 MB are read twice and written once, a megabyte or so a turn.
        assert 72 / JOB_TURNS - 2 <= len(done.turns) <= 72 / JOB_TURNS + 12
        assert done.work.tally.bytes_done > 70 << 20

    virtual(body)


def test_what_is_written_is_synced_as_it_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    """One sync of a gigabyte at the end would take seconds."""
    monkeypatch.setattr(cleaned_segment, "SYNC_BYTES", 400)
    monkeypatch.setattr(cleaned_segment, "WRITE_BYTES", 100)

    async def body(runtime: Runtime) -> None:
        _, log = new_log(runtime, SETTINGS)
        append_all(log, [keyed((f"{number}", "1" * 50)) for number in range(20)])
        append_all(log, [keyed(("0", "2"))])
        roll(log)
        append_all(log, [keyed(("c", "1"))])
        await log.flush()
        done = compact(log, is_aside=False)
        names = [getattr(turn, "__name__", "") for turn in done.turns]
        assert names.count("sync") > 3
        assert [record.offset for record in records_of(log)] == [*range(1, 22)]

    virtual(body)


@pytest.mark.parametrize("first_dirty", [0, 2], ids=["dirty", "clean"])
def test_damage_ends_a_round_and_leaves_the_log_as_it_is(first_dirty: int) -> None:
    async def body(runtime: Runtime) -> None:
        _, log = new_log(runtime, SETTINGS)
        append_all(log, [keyed(("a", "1")), keyed(("a", "2"))])
        roll(log)
        append_all(log, [keyed(("a", "3"))])
        roll(log)
        append_all(log, [keyed(("a", "4"))])
        await log.flush()
        memory_disk(runtime).corrupt(f"{log.directory}/{0:020d}.log", 16, b"\x01")  # the magic
        names = runtime.disk.list(log.directory)
        compaction, *_ = make_round(log, first_dirty=first_dirty)
        with pytest.raises(CorruptFileError, match="no batch at byte 0"):
            end_of(compaction.steps())
        assert runtime.disk.list(log.directory) == names

    virtual(body)


@pytest.mark.parametrize("last_delta", [2, 50])
def test_a_batch_that_claims_offsets_of_others_ends_a_round(last_delta: int) -> None:
    """What is made of it would cover them: recovery would take their segments for replaced ones."""

    async def body(runtime: Runtime) -> None:
        _, log = new_log(runtime, SETTINGS)
        append_all(log, [keyed(("a", "1"), ("b", "1")), keyed(("a", "2"))])
        roll(log)
        append_all(log, [keyed(("a", "3"))])
        await log.flush()
        path = f"{log.directory}/{0:020d}.log"
        memory_disk(runtime).corrupt(path, 23, last_delta.to_bytes(4, "big"))
        compaction, *_ = make_round(log)
        with pytest.raises(CorruptFileError, match="no batch"):
            end_of(compaction.steps())

    virtual(body)
