"""What `record.validation=deep` costs a broker: each codec, two sizes, with both record walkers.

Three brokers run at once: one believes headers, one looks at records, one looks at them with the
walker in Python; one of them is loaded at a time, round after round, so that what else the machine
does falls on all. Batches hold 100 KB of records, before they are compressed; acks=1. Prints the
CPU of a request in microseconds, the median of all rounds, and the ratio to `header`; writes it to
bench/results/TIME-validation.json.

    python bench/validation.py [--rounds 5] [--seconds 1]
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from statistics import median, quantiles
from typing import Final

from engines import ROOT, STEADY, Holdfast, machine
from holdfast.wire.batch import Codec
from holdfast.wire.walker.record_walker import FORCED_BY, WALKER
from run import batched, load

SIZES: Final = (100, 1024)
HEADER, DEEP, PYTHON = "header", f"deep, {WALKER}", "deep, python"


class Validating(Holdfast):
    """A broker that validates in one way."""

    def __init__(self, directory: Path, name: str) -> None:
        super().__init__(
            directory / name.replace(", ", "-"),
            STEADY | {"record.validation": name.partition(",")[0]},
        )
        self.name = name

    def start(self) -> None:
        os.environ[FORCED_BY] = "python" if self.name == PYTHON else ""
        super().start()


def cost(engine: Validating, topic: str, codec: Codec, size: int, seconds: float) -> float:
    """Load one broker with a topic of its own; return its microseconds of CPU a request."""
    targets = engine.create(topic, 1)
    job = {"topic": topic, "targets": targets, "seconds": seconds, "pids": engine.pids()}
    try:
        shape = batched(size, acks=1, connections=1) | {"codec": codec.name}
        return load(job | shape)["cpu_us_per_request"]
    finally:
        engine.delete(topic)


def main() -> None:
    """Measure all cases on all three."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0, help="length of one measurement")
    options = parser.parse_args()
    names = dict.fromkeys((HEADER, DEEP, PYTHON))
    cases = list(itertools.product(SIZES, Codec))
    costs: dict[str, dict[str, list[float]]] = {
        f"{size} B, {codec.name.lower()}": {name: [] for name in names} for size, codec in cases
    }
    marks = itertools.count()
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as directory, ExitStack() as stack:
        engines = [Validating(Path(directory), name) for name in names]
        for engine in engines:
            engine.start()
            stack.callback(engine.stop)
        for number in range(options.rounds + 1):  # the first one warms up
            for (size, codec), values in zip(cases, costs.values(), strict=True):
                for engine in engines:
                    topic = f"bench-{next(marks)}"
                    measured = cost(engine, topic, codec, size, options.seconds)
                    if number:
                        values[engine.name].append(measured)
    print(f"{'us of CPU a request':20}" + "".join(f"{name:>28}" for name in names))
    for case, values in costs.items():
        print(f"{case:20}" + "".join(f"{told(v, values[HEADER]):>28}" for v in values.values()))
    path = ROOT / "bench" / "results" / time.strftime("%Y-%m-%dT%H%M-validation.json")
    path.write_text(json.dumps({"machine": machine(), "cpu_us_per_request": costs}, indent=1))
    print(f"written to {path.relative_to(ROOT)}")


def told(values: list[float], before: list[float]) -> str:
    """Say a median, between what half of its rounds lie, and its ratio."""
    low, _, high = quantiles(values, n=4)
    return f"{median(values):.0f} ({low:.0f}-{high:.0f}) {median(values) / median(before):.2f}x"


if __name__ == "__main__":
    main()
