"""What it costs to make columns of a log: rows for a second of this process's CPU, both ways.

Two measurements. `decode` is of batches that lie in memory: cut, checked, inflated, and made into
Arrow, compiled and in Python. `range` is `read_range` of a topic on one broker of ours, over our
client with each decoder, and over librdkafka; of the broker's CPU nothing counts. Each round has
all of them in turn. Prints medians and what half of the rounds lie between; writes them to
bench/results/TIME-columns.json.

    python bench/columns.py [--rounds 5] [--rows 200000] [--only decode|range]
"""

from __future__ import annotations

import argparse
import itertools
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import median, quantiles
from typing import Final

import pyarrow as pa
from confluent_kafka import Producer

from engines import ROOT, STEADY, Holdfast, machine
from holdfast.pipelines.offsets import Partition
from holdfast.pipelines.read_range import librdkafka_range
from holdfast.pipelines.reading.access import Access
from holdfast.pipelines.reading.fetched_batches import scan
from holdfast.pipelines.reading.range_rows import RangeRows
from holdfast.pipelines.reading.wire_range import wire_range
from holdfast.wire.batch import Codec, Record, build_batch
from holdfast.wire.walker.record_columns import DECODER, PYTHON, Decoder

# Bytes of a value, records a batch: the last one is what producers write that wait for nothing.
SHAPES: Final = ((100, 1_000), (1_024, 100), (100, 1))
CODECS: Final = (Codec.NONE, Codec.LZ4, Codec.ZSTD)
_NOWHERE: Final = Access(client=(("bootstrap.servers", "127.0.0.1:1"),))
_DECODERS: Final = {DECODER.name: DECODER, PYTHON.name: PYTHON}

Read = Callable[[], Iterator[pa.RecordBatch]]


def value_of(number: int, size: int) -> bytes:
    """Return a value that compresses as text does: half of it is the same everywhere."""
    return (b"%020d" % (number * 2_654_435_761 % 10**20) + b"the same in each; " * 60)[:size]


def log_of(rows: int, size: int, batch_rows: int, codec: Codec) -> bytes:
    """Return batches, one behind the other."""
    log = bytearray()
    for first in range(0, rows, batch_rows):
        numbers = range(first, min(first + batch_rows, rows))
        records = [Record(b"%08d" % n, value_of(n, size), 1_700_000_000_000 + n) for n in numbers]
        log += build_batch(records, base_offset=first, codec=codec)
    return bytes(log)


def decoded(log: bytes, rows: int, decoder: Decoder) -> Iterator[pa.RecordBatch]:
    """Make rows of a log as an answer brings it."""
    reading = RangeRows(Partition("decode", 0), 0, rows, _NOWHERE, decoder)
    yield from reading.take(scan(log), None)
    yield from reading.rest()


def rate(read: Read, rows: int) -> float:
    """Read once; return rows for a second of CPU."""
    begin_s = time.process_time()
    found = sum(batch.num_rows for batch in read())
    spent_s = time.process_time() - begin_s
    assert found == rows, f"{found} rows where there are {rows}"
    return rows / spent_s


def measure(cases: dict[str, tuple[Read, int]], rounds: int) -> dict[str, list[float]]:
    """Return each case's rates; the first round warms up."""
    rates: dict[str, list[float]] = {name: [] for name in cases}
    for number in range(rounds + 1):
        for name, (read, rows) in cases.items():
            found = rate(read, rows)
            if number:
                rates[name].append(found)
    return rates


def decode_cases(rows: int) -> dict[str, tuple[Read, int]]:
    """Return what is read from memory."""
    cases: dict[str, tuple[Read, int]] = {}
    for (size, batch_rows), codec in itertools.product(SHAPES, CODECS):
        if codec and batch_rows == 1:
            continue  # nobody compresses those
        log = log_of(rows, size, batch_rows, codec)
        for name, decoder in _DECODERS.items():
            case = f"decode, {size} B, {batch_rows} a batch, {codec.name.lower()}, {name}"
            cases[case] = partial(decoded, log, rows, decoder), rows
    return cases


def topic_of(size: int, batch_rows: int) -> str:
    return f"bench-{size}-{batch_rows}"


def range_cases(rows: int, bootstrap: str) -> dict[str, tuple[Read, int]]:
    """Fill a topic for each size; return what is read from it."""
    cases: dict[str, tuple[Read, int]] = {}
    access = Access(client=(("bootstrap.servers", bootstrap),))
    # Kept for the next range, it would go on talking of a broker that is gone.
    quiet = Access(client=(("bootstrap.servers", bootstrap), ("log_level", "0")))
    for size, batch_rows in SHAPES:
        partition = Partition(topic_of(size, batch_rows), 0)
        settings = {"linger.ms": 50, "batch.num.messages": batch_rows}
        producer = Producer({"bootstrap.servers": bootstrap, **settings}, logger=None)
        for number in range(rows):
            producer.produce(partition.topic, value_of(number, size), b"%08d" % number)
            if number % 10_000 == 0:
                producer.flush(60)
        assert producer.flush(60) == 0, "not all of it was written"
        for name, decoder in _DECODERS.items():
            read = partial(wire_range, partition, 0, rows, access, decoder=decoder)
            cases[f"range, {size} B, {batch_rows} a batch, ours, {name}"] = read, rows
        read = partial(librdkafka_range, partition, 0, rows, quiet)
        cases[f"range, {size} B, {batch_rows} a batch, librdkafka"] = read, rows
    return cases


def main() -> None:
    """Measure, tell, and write it down."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--only", choices=["decode", "range"])
    options = parser.parse_args()
    rates: dict[str, list[float]] = {}
    if options.only != "range":
        rates |= measure(decode_cases(options.rows), options.rounds)
    if options.only != "decode":
        with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as directory:
            engine = Holdfast(Path(directory), STEADY)
            engine.start()
            try:
                for shape in SHAPES:
                    engine.create(topic_of(*shape), 1)
                cases = range_cases(options.rows, engine.bootstrap)
                rates |= measure(cases, options.rounds)
            finally:
                engine.stop()
    print(f"{'thousand rows for a second of CPU':44}")
    for name, found in rates.items():
        low, _, high = quantiles(found, n=4) if len(found) > 1 else found * 3
        print(f"{name:44}{median(found) / 1e3:8.0f} ({low / 1e3:.0f}-{high / 1e3:.0f})")
    path = ROOT / "bench" / "results" / time.strftime("%Y-%m-%dT%H%M-columns.json")
    path.write_text(json.dumps({"machine": machine(), "rows_per_cpu_s": rates}, indent=1))
    print(f"written to {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
