"""`make bench`: measure, write bench/results/TIME.json, print a table.

Every case runs on every engine in turn, round after round, so that what else the machine does
falls on all of them; the figure is the median of the rounds, and what to quote is the ratio.

    python bench/run.py [--quick] [--rounds N] [--seconds S] [--warm S] [--no-apache] [--only WORD]
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import compaction
import controllers
import goals
import groups
import judging
import moments
import table
from engines import (
    ROOT,
    Apache,
    ApacheThree,
    Engine,
    Floor,
    Holdfast,
    HoldfastThree,
    apache_available,
    machine,
    memory_mb,
)
from rounds import Results

_BATCH_BYTES = 100_000
_BYTES_MAX = 500_000_000
_SIZES = (100, 128, 1024)
_CONNECTIONS = (1, 8, 64)
_CURVE = (100, 1_000, 10_000, 100_000, 1_000_000)
# An engine is warm when a request costs it 95 % of what it did before, or more.
_SETTLED = 0.95
_SPANS_MAX = 12  # of half the time that is asked for each


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One measurement: `load` is bench/load.py's job but for topic, targets and processes."""

    name: str
    load: dict[str, Any]
    partitions: int = 1
    then_fetch: bool = False


def batched(size: int, *, acks: int, connections: int) -> dict[str, Any]:
    """A load of batches of about 100 KB, five in flight on each connection."""
    return {
        "mode": "produce",
        "acks": acks,
        "message_bytes": size,
        "batch_records": max(_BATCH_BYTES // size, 1),
        "connections": connections,
        "in_flight": 5,
        "bytes_max": _BYTES_MAX,
    }


def single(connections: int, *, acks: int) -> dict[str, Any]:
    """A load of one message of 128 bytes a request, one in flight on each connection."""
    return {"mode": "produce", "acks": acks, "message_bytes": 128, "connections": connections}


def one_broker_cases() -> list[Case]:
    """Cases without replicas, which the floor can do too."""
    cases = [
        Case(
            name=f"1 broker, acks=1, batches of {size} B messages",
            load=batched(size, acks=1, connections=1),
            then_fetch=True,
        )
        for size in _SIZES
    ]
    cases += [
        Case(
            name=f"1 broker, acks=1, one message a request, {count} connections",
            load=single(count, acks=1),
        )
        for count in _CONNECTIONS
    ]
    return cases


def three_broker_cases() -> list[Case]:
    """Cases with three replicas."""
    cases = [
        Case(
            name=f"RF 3, acks={'all' if acks < 0 else acks}, batches of {size} B messages",
            load=batched(size, acks=acks, connections=3),
            partitions=3,
            then_fetch=acks < 0,
        )
        for acks in (1, -1)
        for size in _SIZES
    ]
    cases += [
        Case(
            name=f"RF 3, acks=all, one message a request, {count} connections",
            load=single(count, acks=-1),
            partitions=3,
        )
        for count in _CONNECTIONS
    ]
    cases += [
        Case(
            name=f"RF 3, acks=all, payload {size} B",
            load=batched(size, acks=-1, connections=3),
            partitions=3,
        )
        for size in _CURVE
    ]
    cases.append(
        Case(
            name="RF 3, acks=all, end to end, 1000 messages/s of 128 B",
            load={"mode": "end-to-end", "acks": -1, "message_bytes": 128, "rate": 1000},
        )
    )
    return cases


def run_case(case: Case, engine: Engine, results: Results, seconds: float, mark: int) -> None:
    """Run one case on one engine, on a topic of its own."""
    topic = f"bench-{mark}"
    targets = engine.create(topic, case.partitions)
    try:
        job = {"topic": topic, "targets": targets, "seconds": seconds, "pids": engine.pids()}
        if case.load["mode"] == "end-to-end":
            job["seconds"] = 3 * seconds
        results.add(case.name, engine.name, load(job | case.load))
        if case.then_fetch:
            size = case.load["message_bytes"]
            fetch = {"mode": "fetch", "message_bytes": size, "connections": len(targets)}
            results.add(f"{case.name}: fetch", engine.name, load(job | fetch))
    finally:
        engine.delete(topic)


def load(job: dict[str, Any]) -> dict[str, float]:
    """Run bench/load.py in a process of its own, so that its memory and its GIL are its own."""
    command = [sys.executable, str(ROOT / "bench" / "load.py"), json.dumps(job)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode:
        raise RuntimeError(f"{job['topic']}: {done.stderr.strip()[-500:]}")
    measured: dict[str, float] = json.loads(done.stdout)
    return measured


def run_group(
    engines: list[Engine], cases: list[Case], options: argparse.Namespace, results: Results
) -> None:
    """Start the engines, run the cases round by round, stop the engines."""
    started: list[Engine] = []
    cases = [case for case in cases if options.only in case.name]
    if not cases:
        return
    try:
        for engine in engines:
            say(f"starting {engine.name}, {engine.brokers} broker(s)")
            began = time.monotonic()
            engine.start()
            started.append(engine)
            measured = {"ready_s": time.monotonic() - began} | memory_mb(engine.pids())
            results.add(f"{engine.brokers} broker(s), just ready", engine.name, measured)
        marks = itertools.count()
        for case in cases:
            say(f"warming up: {case.name}")
            for engine in started:
                is_floor = engine.name == "floor"  # nothing in it compiles, and its file only grows
                warm_s = min(options.warm, 1.0) if is_floor else options.warm
                if not warm_up(case, engine, warm_s, marks):
                    say(f"{engine.name} is not warm yet: {case.name}")
                    results.still_warming.append(f"{case.name}, {engine.name}")
        for number in range(options.rounds):
            for case in cases:
                say(f"round {number + 1}/{options.rounds}: {case.name}")
                for engine in started:
                    run_case(case, engine, results, options.seconds, next(marks))
        for engine in started:
            measured = memory_mb(engine.pids())
            results.add(f"{engine.brokers} broker(s), after the load", engine.name, measured)
    finally:
        for engine in started:
            engine.stop()


def warm_up(case: Case, engine: Engine, seconds: float, marks: Iterator[int]) -> bool:
    """Load a case for so long, and on until a request's CPU falls no more; False: it still did.

    A JVM compiles what it is seen to do, in the CPU time that the load leaves it: on a busy machine
    ten seconds are not enough. Ours gets the same.
    """
    before = math.inf
    for number in range(_SPANS_MAX):
        cost = _cost_of_span(case, engine, seconds / 2, marks)
        if number and cost >= _SETTLED * before:
            return True
        before = cost
    return False


def _cost_of_span(case: Case, engine: Engine, seconds: float, marks: Iterator[int]) -> float:
    """Load a case for so long; return the CPU of a request. A run ends early at its bytes."""
    discarded = Results()
    loaded_s = 0.0
    while loaded_s < seconds:
        run_case(case, engine, discarded, seconds - loaded_s, next(marks))
        loaded_s = sum(discarded.values[case.name][engine.name]["wall_s"])
    metrics = discarded.values[case.name][engine.name]
    return min(metrics["cpu_us_per_request"])


def say(text: str) -> None:
    """Show progress where it doesn't get into the table."""
    sys.stderr.write(f"bench: {text}\n")


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="one short round, without Apache")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.0, help="length of one measurement")
    parser.add_argument(
        "--warm", type=float, default=10.0, help="load before it, a case, an engine"
    )
    parser.add_argument("--no-apache", action="store_true")
    parser.add_argument("--only", default="", metavar="WORD", help="cases whose name has it")
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.seconds, options.warm, options.no_apache = 1, 0.5, 0.5, True
    # Where Python is told to keep no compiled code, every start would compile all of it again.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    with_apache = not options.no_apache and apache_available()
    if not with_apache:
        say("without Apache Kafka" + ("" if options.no_apache else " (`make apache` brings it)"))

    results = Results()
    began = time.monotonic()
    report: dict[str, Any] = {"began": time.strftime("%Y-%m-%dT%H:%M:%S%z"), "machine": machine()}
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as name:
        directory = Path(name)
        ones: list[Engine] = [Floor(directory), Holdfast(directory)]
        threes: list[Engine] = [HoldfastThree(directory)]
        if with_apache:
            ones.append(Apache(directory))
            threes.append(ApacheThree(directory))
        run_group(ones, one_broker_cases(), options, results)
        run_group(threes, three_broker_cases(), options, results)
        if not options.only:
            moments.measure(directory, options.rounds, results.add, with_apache=with_apache)
        if options.only in controllers.NAME:
            controllers.measure(directory, options.rounds, results.add, with_apache=with_apache)
        if options.only in judging.NAME:
            judging.measure(directory, options.rounds, results.add)
        engines = ["holdfast", "apache"] if with_apache else ["holdfast"]
        sizes = groups.QUICK if options.quick else groups.FULL
        groups.measure(directory, engines, sizes, options.rounds, results.add, options.only)
        compaction.measure(directory, options.rounds, results.add, options.only)
    report |= {"rounds": options.rounds, "warm_s": options.warm}
    report["still_warming"] = results.still_warming
    report["took_s"] = round(time.monotonic() - began)
    report["cases"] = results.summary()
    asked = () if options.quick else (*groups.GOALS, *compaction.GOALS)
    report["goals"] = goals.judged(asked, report["cases"])
    target = ROOT / "bench" / "results" / f"{time.strftime('%Y-%m-%dT%H%M')}.json"
    target.parent.mkdir(exist_ok=True)
    target.write_text(json.dumps(report, indent=1) + "\n")
    sys.stdout.write(table.render(report))
    rows = [row for row in report["goals"] if row["case"] in report["cases"]]
    sys.stdout.write("\n" + goals.render(rows) if rows else "")
    say(f"written to {target.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
