"""Goal: both ways of reading a range give the same rows, whatever the log holds.

Method: logs of batches made by hand, on canned brokers: each codec, headers, nulls, both kinds of
timestamps, transactions that were committed and aborted, holes, empty batches, old formats. For
random ranges our client's rows, decoded by C and by Python, are held against librdkafka's; and for
those that a list of records tells, against that list.
Seen to fail: with the marker of an abort that is not looked at, with aborted batches by their
producer alone, with a position that moves to the last record, and with the old format taken for
the log's end.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from tests.pipelines.canned_log import NUMBER, TOPIC, Aborted, CannedLog, Entry, old_message

from holdfast.pipelines import read_range as module
from holdfast.pipelines.offsets import Partition
from holdfast.pipelines.read_range import librdkafka_range, read_range
from holdfast.pipelines.reading import wire_range as wire_module
from holdfast.pipelines.reading.access import Access, ReadError
from holdfast.pipelines.reading.wire_range import NotOursError, wire_range
from holdfast.wire.batch import (
    Codec,
    Record,
    build_batch,
    read_header,
    transaction_marker,
)
from holdfast.wire.batch_header import CRC_START, HEADER, HEADER_SIZE
from holdfast.wire.checksum import crc32c
from holdfast.wire.walker.record_columns import DECODER, PYTHON

DECODERS = [PYTHON] if DECODER is PYTHON else [DECODER, PYTHON]
CANNED = Partition(TOPIC, NUMBER)
NAMES = ["", "h", "name", "é", "h" * 40]


@pytest.fixture
def log() -> Iterator[CannedLog]:
    with CannedLog() as made:
        yield made
        forget_clients()


def forget_clients() -> None:
    while module._idle:
        module._idle.popitem()[1].close()
    while wire_module._idle:
        wire_module._idle.popitem()[1].close()


def access(log: CannedLog, *more: tuple[str, str], **values: Any) -> Access:
    client = (("bootstrap.servers", log.bootstrap), *more)
    return Access(client=client, **{"headers": True, "silence_ms_max": 20_000, **values})


def table(batches: Iterator[pa.RecordBatch], how: Access) -> list[dict[str, Any]]:
    """Read all there is, with what librdkafka is worse at seen as it sees it."""
    read = pa.Table.from_batches(list(batches), how.schema)
    read.validate(full=True)
    rows: list[dict[str, Any]] = read.to_pylist()
    return rows


def all_ways(how: Access, start: int, end: int) -> list[dict[str, Any]]:
    """Return the rows that all ways read; they must be the same."""
    theirs = table(librdkafka_range(CANNED, start, end, how), how)
    for decoder in DECODERS:
        ours = table(wire_range(CANNED, start, end, how, decoder=decoder), how)
        assert ours == theirs, f"{decoder.name}, [{start}, {end})"
    return theirs


def some_records(chance: random.Random, count: int) -> list[Record]:
    def some_bytes(size_max: int) -> bytes | None:
        return None if chance.random() < 0.2 else chance.randbytes(chance.randint(0, size_max))

    return [
        Record(
            some_bytes(20),
            some_bytes(chance.choice([10, 200, 2_000])),
            chance.randint(0, 2**41),
            tuple((chance.choice(NAMES), some_bytes(9)) for _ in range(chance.choice([0, 0, 3]))),
        )
        for _ in range(count)
    ]


def ranges(chance: random.Random, end: int, count: int) -> Iterator[tuple[int, int]]:
    yield 0, end
    for _ in range(count):
        start = chance.randint(0, end - 1)
        yield start, chance.randint(start + 1, end)


def emptied(batch: bytearray) -> bytes:
    """Return a batch as compaction leaves one whose records are all gone."""
    header = read_header(batch)
    packed = bytearray(batch[:HEADER_SIZE])
    HEADER.pack_into(packed, 0, *header._replace(batch_length=HEADER_SIZE - 12, record_count=0))
    HEADER.pack_into(
        packed, 0, *read_header(packed)._replace(crc=crc32c(bytes(packed[CRC_START:])))
    )
    return bytes(packed)


def holed(batch: bytearray, chance: random.Random) -> bytes:
    """Return a batch as compaction leaves one of whose records some are gone."""
    header = read_header(batch)
    # What stays is written anew behind a record that makes the deltas right, which is then cut.
    body, at, kept = bytes(batch[HEADER_SIZE:]), 0, []
    while at < len(body):
        size, shift, behind = 0, 0, at
        while True:
            byte = body[behind]
            behind += 1
            size |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        following = behind + (size >> 1)
        if chance.random() < 0.5:
            kept.append(body[at:following])
        at = following
    whole = bytearray(batch[:HEADER_SIZE]) + b"".join(kept)
    header = header._replace(batch_length=len(whole) - 12, record_count=len(kept))
    HEADER.pack_into(whole, 0, *header)
    HEADER.pack_into(whole, 0, *header._replace(crc=crc32c(bytes(whole[CRC_START:]))))
    return bytes(whole)


@pytest.mark.slow
@pytest.mark.parametrize("codec", Codec)
def test_records_of_all_kinds(log: CannedLog, codec: Codec) -> None:
    chance = random.Random(codec)
    for number in range(12):
        log.add(
            build_batch(
                some_records(chance, chance.randint(1, 30)),
                base_offset=log.end + chance.choice([0, 0, 5]),
                codec=codec,
                log_append_time_ms=1_700_000_000_000 if number % 4 == 3 else None,
            )
        )
    how = access(log)
    for start, end in ranges(chance, log.end, 6):
        rows = all_ways(how, start, end)
        assert [row["offset"] for row in rows] == sorted({row["offset"] for row in rows})
    assert {row["timestampType"] for row in all_ways(how, 0, log.end)} == {0, 1}


def test_what_compaction_leaves(log: CannedLog) -> None:
    chance = random.Random(5)
    for number in range(12):
        batch = build_batch(some_records(chance, 10), base_offset=log.end)
        log.add(emptied(batch) if number in {0, 4, 5, 11} else holed(batch, chance))
    for start, end in ranges(chance, log.end, 12):
        all_ways(access(log), start, end)
    assert all_ways(access(log), 110, 120) == [], "it ends in a hole, and it ends"


def transactions(log: CannedLog, chance: random.Random) -> dict[str, set[int]]:
    """Write interleaved transactions of three producers; return offsets by their fate."""
    fates: dict[str, set[int]] = {"committed": set(), "aborted": set(), "plain": set()}
    begun: dict[int, list[int]] = {}
    for _ in range(60):
        producer = chance.randint(1, 3)
        first = log.end
        if producer in begun and chance.random() < 0.4:
            offsets = begun.pop(producer)
            commit = chance.random() < 0.5
            marker = transaction_marker(commit=commit, coordinator_epoch=0, timestamp=5)
            log.add(
                build_batch(
                    [marker], base_offset=first, producer_id=producer, producer_epoch=0,
                    transactional=True, control=True,
                )
            )  # fmt: skip
            fates["committed" if commit else "aborted"].update(offsets)
            if not commit:
                log.aborted.append(Aborted(producer, offsets[0], first))
            continue
        # No client writes plain batches in a transaction; they are not taken for a part of it.
        is_plain = chance.random() < 0.3
        records = some_records(chance, chance.randint(1, 4))
        log.add(
            build_batch(
                records, base_offset=first, producer_id=producer, producer_epoch=0,
                base_sequence=0, transactional=not is_plain,
            )
        )  # fmt: skip
        where = fates["plain"] if is_plain else begun.setdefault(producer, [])
        written = range(first, first + len(records))
        where.update(written) if isinstance(where, set) else where.extend(written)
    log.readable = min((offsets[0] for offsets in begun.values()), default=log.end)
    return {fate: {o for o in offsets if o < log.readable} for fate, offsets in fates.items()}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("level", ["read_committed", "read_uncommitted"])
def test_transactions(log: CannedLog, level: str, seed: int) -> None:
    chance = random.Random(seed)
    fates = transactions(log, chance)
    expected = fates["committed"] | fates["plain"]
    if level == "read_uncommitted":
        expected |= fates["aborted"]
    assert fates["aborted"], "the seed aborts nothing that can be read"
    assert log.readable is not None
    # So small that answers begin and end in the middle of transactions.
    how = access(log, ("isolation.level", level), fetch_bytes=chance.choice([1_000, 5_000]))
    for start, end in ranges(chance, log.readable, 8):
        rows = all_ways(how, start, end)
        assert [row["offset"] for row in rows] == sorted(
            offset for offset in expected if start <= offset < end
        )


@pytest.mark.slow
def test_records_that_were_aborted_are_no_silence(log: CannedLog) -> None:
    """They come one fetch after the other, for longer than silence may last, and give no row.

    Seen to end the range over librdkafka, which says nothing of them.
    """
    for number in range(30):
        records = [Record(b"k", bytes(30), 5)] * 10
        log.add(
            build_batch(
                records, base_offset=log.end, producer_id=1, producer_epoch=0,
                base_sequence=number * 10, transactional=True,
            )
        )  # fmt: skip
    marker = transaction_marker(commit=False, coordinator_epoch=0, timestamp=5)
    log.add(
        build_batch(
            [marker], base_offset=log.end, producer_id=1, producer_epoch=0, transactional=True,
            control=True,
        )
    )  # fmt: skip
    log.aborted.append(Aborted(1, 0, log.end - 1))
    log.add(build_batch([Record(b"k", b"kept", 5)], base_offset=log.end))
    small = ("max.partition.fetch.bytes", "300"), ("isolation.level", "read_committed")
    how = access(log, *small, silence_ms_max=1_000)
    for way, answers_after_s in ((wire_range, 0.05), (librdkafka_range, 0.5)):
        log.fetched.clear()
        log.answers_after_s = answers_after_s
        found = table(way(Partition(TOPIC, NUMBER), 0, log.end, how), how)
        assert [row["offset"] for row in found] == [301]
        # Librdkafka asks for more each time.
        assert len(log.fetched) * answers_after_s > 1, "or nothing would have been silent"


@pytest.mark.parametrize("magic", [0, 1])
def test_an_old_format_is_left_to_librdkafka(log: CannedLog, magic: int) -> None:
    """What came before it is not read twice, and what comes behind is read as well."""
    log.add(build_batch([Record(b"k", b"new", 5)] * 3))
    log.entries += [Entry(offset, offset, old_message(magic, offset)) for offset in range(3, 6)]
    log.add(build_batch([Record(b"k", b"newer", 9)] * 3, base_offset=6))
    how = access(log)
    rows = table(read_range(CANNED, 1, 8, how), how)
    assert [(row["offset"], row["value"]) for row in rows] == [
        (1, b"new"), (2, b"new"), (3, b"old"), (4, b"old"), (5, b"old"), (6, b"newer"),
        (7, b"newer"),
    ]  # fmt: skip
    assert rows == table(librdkafka_range(CANNED, 1, 8, how), how)
    with pytest.raises(NotOursError) as old:
        list(wire_range(CANNED, 4, 8, how))
    assert old.value.position == 4


def test_timestamps_that_are_none(log: CannedLog) -> None:
    log.add(build_batch([Record(b"k", b"v", -1), Record(b"k", b"v", 0), Record(None, None, -7)]))
    all_ways(access(log), 0, 3)


@pytest.mark.slow
def test_damage_is_told_with_its_place(log: CannedLog) -> None:
    sound = build_batch([Record(b"k", b"v", 5)] * 3)
    log.add(sound, build_batch([Record(b"k", b"v" * 99, 5)] * 3, base_offset=3, codec=Codec.GZIP))
    how = access(log)
    batch = log.entries[1].data
    spoilt = batch[:-5] + bytes([batch[-5] ^ 1]) + batch[-4:]
    log.entries[1] = Entry(3, 5, spoilt)
    with pytest.raises(ReadError, match=r"canned-0.*batch at offset 3: its checksum is wrong"):
        table(read_range(CANNED, 0, 6, how), how)
    rightly = bytearray(batch)
    header = read_header(rightly)
    HEADER.pack_into(rightly, 0, *header._replace(record_count=4))
    crc = crc32c(bytes(rightly[CRC_START:]))
    HEADER.pack_into(rightly, 0, *header._replace(record_count=4, crc=crc))
    log.entries[1] = Entry(3, 5, bytes(rightly))
    with pytest.raises(ReadError, match=r"offset 3: record number 3: .*another number of records"):
        table(read_range(CANNED, 0, 6, how), how)
    assert len(table(read_range(CANNED, 0, 3, how), how)) == 3, "what lies before is sound"
    bomb = build_batch([Record(b"k", bytes(65 << 20), 5)], base_offset=3, codec=Codec.GZIP)
    log.entries[1] = Entry(3, 3, bytes(bomb))
    small = access(log, fetch_bytes=1 << 20)
    with pytest.raises(ReadError, match=r"offset 3: .*more than 67108864 bytes.*maxBytesPerFetch"):
        table(read_range(CANNED, 0, 4, small), small)
    large = access(log, fetch_bytes=17 << 20)
    assert len(table(read_range(CANNED, 0, 4, large), large)) == 4


def test_librdkafka_hands_over_as_many_bytes_at_once_as_are_asked_for(log: CannedLog) -> None:
    for _ in range(300):
        log.add(build_batch([Record(b"k", bytes(10_000), 5)], base_offset=log.end))
    how = access(log, ("socket.keepalive.enable", "true"), fetch_bytes=200_000)
    found = list(read_range(CANNED, 0, 300, how))
    assert sum(batch.num_rows for batch in found) == 300
    assert max(batch.nbytes for batch in found[1:]) <= 200_000


def test_a_damaged_batch_of_an_aborted_transaction_hides_nothing(log: CannedLog) -> None:
    """How many offsets it has, and that it was aborted, its header says, which is checked, too."""
    batch = build_batch(
        [Record(b"k", b"v", 5)] * 3, producer_id=1, producer_epoch=0, transactional=True
    )
    spoilt = bytearray(batch)
    HEADER.pack_into(spoilt, 0, *read_header(batch)._replace(last_offset_delta=50))
    log.entries.append(Entry(0, 2, bytes(spoilt)))
    log.aborted.append(Aborted(1, 0, 3))
    marker = transaction_marker(commit=False, coordinator_epoch=0, timestamp=5)
    log.add(
        build_batch(
            [marker], base_offset=3, producer_id=1, producer_epoch=0, transactional=True,
            control=True,
        )
    )  # fmt: skip
    log.add(build_batch([Record(b"k", b"v", 5)] * 30, base_offset=4))
    how = access(log, ("isolation.level", "read_committed"), fetch_bytes=10)
    with pytest.raises(ReadError, match="batch at offset 0: its checksum is wrong"):
        table(read_range(CANNED, 0, 34, how), how)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_librdkafka_gives_no_damaged_record(log: CannedLog, codec: Codec) -> None:
    """By itself it looks at no checksum, and goes on behind what it can't read."""
    log.add(build_batch([Record(b"k", b"v", 5)] * 3))
    log.add(build_batch([Record(b"k", b"v" * 99, 5)] * 3, base_offset=3, codec=codec))
    log.add(build_batch([Record(b"k", b"v", 5)] * 3, base_offset=6))
    batch = log.entries[1].data
    log.entries[1] = Entry(3, 5, batch[:-30] + bytes([batch[-30] ^ 1]) + batch[-29:])
    how = access(log, ("socket.keepalive.enable", "true"))
    with pytest.raises(ReadError, match=r"canned-0: MessageSet at offset 3 .*CRC32C"):
        table(read_range(CANNED, 0, 9, how), how)
    assert len(table(read_range(CANNED, 0, 3, how), how)) == 3, "what lies before is sound"
    careless = access(log, ("check.crcs", "false"))
    if codec is Codec.NONE:
        assert len(table(read_range(CANNED, 0, 9, careless), careless)) == 9, "as it was asked for"
    else:
        with pytest.raises(ReadError, match=r"canned-0: Decompression"):
            table(read_range(CANNED, 0, 9, careless), careless)
