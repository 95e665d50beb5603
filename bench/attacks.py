"""What an attack costs an honest neighbour: acks=all without it, beside it, and beside processes
that burn the same CPU without a word to the brokers.

The neighbour sends one record after the other, each acknowledged by three replicas. An attack runs
in a process of its own for as long, against the same brokers, on a topic of its own; what the
brokers and the attacker used of the CPU meanwhile, beyond what they used without it, is what the
control burns. A machine of few cores slows the neighbour with the control too, so what the brokers
are to blame for is the ratio of the two.

    python bench/attacks.py [--only NAME,NAME] [--seconds S] [--rounds N]

All of them: the result goes to bench/results/attacks-TIME.json, and its table into
docs/design/attacks.md.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from attacker_kit import Target, wait_until_led
from attackers import ATTACKS, BOMB_BYTES, SMALL_BOMB_BYTES
from engines import STEADY
from holdfast.clients.blocking_driver import Driver, DriverError
from holdfast.cluster.local import LocalCluster
from holdfast.wire.administration import create_topic
from holdfast.wire.batch import Codec, Record, build_batch
from holdfast.wire.compression import INFLATED_BYTES_SMALL, compress, decompress
from holdfast.wire.errors import InflatedError
from holdfast.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from scale import cpu_of

ROOT = Path(__file__).resolve().parent.parent
_NEIGHBOUR = "neighbour"
_PRODUCE_VERSION = 9
_PATIENCE_S = 30.0
_REST_S = 2.0
_BURNT_MIN = 0.05  # cores
_BEGIN_S = 1.0  # an attack has been under way for so long when its cost is looked at
_CONTEXT = multiprocessing.get_context("spawn")


class Seen(NamedTuple):
    """What the neighbour saw in one stretch of time."""

    p50_ms: float
    p99_ms: float
    worst_ms: float
    sent: int
    failed: int
    broker_cores: float
    all_cores: float  # the brokers and the attacker


class Bench:
    """One cluster and its honest neighbour."""

    def __init__(self, directory: Path, seconds: float) -> None:
        self.seconds = seconds
        # A slow neighbour of a small machine must not be taken for a dead broker.
        self.cluster = LocalCluster.create(directory, controllers=1, port=0, config=STEADY)

    def start(self) -> None:
        self.cluster.start()
        with Driver(self.cluster.bootstrap_servers, timeout_s=_PATIENCE_S) as driver:
            driver.perform(create_topic(_NEIGHBOUR, partitions=1, replication_factor=3))
            wait_until_led(driver, _NEIGHBOUR)
            node = driver.leader(_NEIGHBOUR, 0)
        self.target = Target(*self._address(node), self.cluster.bootstrap_servers, node)
        self._watch()  # warm

    def _address(self, node: int) -> tuple[str, int]:
        found = self.cluster.node(node)
        return found.host, found.port

    def measure(self, name: str, rounds: int) -> dict[str, Any]:
        """Run one attack and its control by turns, beside what the neighbour sees alone."""
        prepare, run = ATTACKS[name]
        alone = [self._watch()]
        prepared = prepare(self.target) if prepare is not None else None
        seen = []
        for number in range(rounds):
            if number:
                alone.append(self._watch())
            with_it = self._beside(run, self.target, prepared)
            time.sleep(_REST_S)
            # The neighbour sends less when it is hurt: what its own records cost does not count.
            own_cores = alone[-1].broker_cores * with_it.sent / alone[-1].sent
            burnt = max(_BURNT_MIN, with_it.all_cores - own_cores)
            likewise, how = CONTROLS.get(name, (burn, None))
            control = self._beside(likewise, burnt, how)
            seen.append(
                {
                    "alone": alone[-1]._asdict(),
                    "with": with_it._asdict(),
                    "control": control._asdict(),
                    "burnt_cores": burnt,
                    "p50_ratio": with_it.p50_ms / control.p50_ms,
                    "p99_ratio": with_it.p99_ms / control.p99_ms,
                }
            )
        return {"attack": name, "rounds": seen}

    def _beside(self, run: Callable[..., None], *arguments: Any) -> Seen:
        process = _CONTEXT.Process(target=run, args=arguments, daemon=True)
        process.start()
        try:
            time.sleep(_BEGIN_S)
            seen = self._watch(process.pid)
            if not process.is_alive():
                raise RuntimeError(f"{run.__name__} ended before it was looked at: nobody attacked")
            return seen
        finally:
            process.kill()
            process.join()

    def _watch(self, attacker: int | None = None) -> Seen:
        """Produce for a while; how long each record took, and what CPU was used meanwhile."""
        batch = bytes(build_batch([Record(value=b"x" * 100, timestamp=int(time.time() * 1000))]))
        data = PartitionProduceData(index=0, records=batch)
        request = ProduceRequest(
            acks=-1,
            timeout_ms=int(_PATIENCE_S * 1000),
            topic_data=[TopicProduceData(name=_NEIGHBOUR, partition_data=[data])],
        )
        times: list[float] = []
        failed = 0
        brokers, other = self._brokers_cpu(), _cpu_or_none(attacker)
        began = time.monotonic()
        while time.monotonic() - began < self.seconds:
            sent = time.perf_counter()
            try:
                with Driver(self.cluster.bootstrap_servers, timeout_s=_PATIENCE_S) as driver:
                    peer = driver.peer(driver.leader(_NEIGHBOUR, 0))
                    sent = time.perf_counter()
                    while time.monotonic() - began < self.seconds:
                        answer = peer.send(request, version=_PRODUCE_VERSION)
                        now = time.perf_counter()
                        failed += bool(answer.responses[0].partition_responses[0].error_code)
                        times.append((now - sent) * 1000)
                        sent = time.perf_counter()
            except DriverError:
                failed += 1
                times.append((time.perf_counter() - sent) * 1000)
        took = time.monotonic() - began
        brokers = self._brokers_cpu() - brokers
        other = max(0.0, _cpu_or_none(attacker) - other)
        times.sort()
        return Seen(
            median(times), times[int(len(times) * 0.99)], times[-1], len(times), failed,
            brokers / took, (brokers + other) / took,
        )  # fmt: skip

    def _brokers_cpu(self) -> float:
        return sum(_cpu_or_none(node.pid) for node in self.cluster.nodes)


def _cpu_or_none(pid: int | None) -> float:
    with suppress(OSError):
        return 0.0 if pid is None else cpu_of(pid)
    return 0.0


def burn(cores: float, _: None) -> None:
    """Use so much CPU and say nothing: as many processes as that takes, each for its share."""
    for whole in range(int(cores)):
        if os.fork() == 0:
            _burn_share(1.0, os.getppid())
            os._exit(whole)
    _burn_share(cores - int(cores), 0)


def _burn_share(share: float, parent: int) -> None:
    """Work for this share of each hundredth of a second, as long as the parent lives."""
    while not parent or os.getppid() == parent:
        began, used = time.monotonic(), time.process_time()
        while time.process_time() - used < share / 100:
            pass
        time.sleep(max(0.001, 0.01 - (time.monotonic() - began)))


def _inflate(cores: float, size: int) -> None:
    """Use so much CPU for what a broker does with bombs of this size, and say nothing."""
    bomb = compress(Codec.GZIP, bytes(size))
    while True:
        began, used = time.monotonic(), time.process_time()
        with suppress(InflatedError):
            compress(Codec.LZ4, decompress(Codec.GZIP, bomb, INFLATED_BYTES_SMALL))
        used = time.process_time() - used
        time.sleep(max(0.001, used / cores - (time.monotonic() - began)))


# What burns where it matters what is done with the CPU: new memory costs everybody.
CONTROLS: dict[str, tuple[Callable[..., None], int | None]] = {
    "gzip-bomb": (_inflate, BOMB_BYTES),
    "small-bomb": (_inflate, SMALL_BOMB_BYTES),
}


def _middle(measured: dict[str, Any], *path: str) -> float:
    """Return the median of a figure over the rounds."""

    def one(found: Any) -> float:
        for key in path:
            found = found[key]
        return float(found)

    return median(one(each) for each in measured["rounds"])


def row(measured: dict[str, Any]) -> str:
    """One line of the table: medians of the rounds, each by itself."""
    cells = [measured["attack"]]
    for kind in ("alone", "with", "control"):
        p50, p99 = (_middle(measured, kind, f"{part}_ms") for part in ("p50", "p99"))
        cells.append(f"{p50:.2f} / {p99:.1f}")
    worst = (_middle(measured, kind, "worst_ms") for kind in ("alone", "with", "control"))
    cells.append(" / ".join(f"{each:.0f}" for each in worst))
    cells.append(f"{_middle(measured, 'burnt_cores'):.2f}")
    ratios = [_middle(measured, f"{part}_ratio") for part in ("p50", "p99")]
    text = " / ".join(f"{each:.2f}" for each in ratios)
    cells.append(f"**{text}**" if max(ratios) > BOUND else text)
    cells.append(str(sum(each["with"]["failed"] for each in measured["rounds"])))
    return "| " + " | ".join(cells) + " |"


BOUND = 2.0  # what an attack may cost, as often as its control; past it a row is in bold
HEAD = (
    "| attack | alone p50 / p99 ms | with it | same CPU elsewhere | worst of each ms | cores "
    "| ratio | refused |\n|--|--|--|--|--|--|--|--|\n"
)
PAGE = ROOT / "docs" / "design" / "attacks.md"
BEGIN, END = "<!-- the table: make attacks writes it -->\n", "<!-- its end -->\n"


def render(report: dict[str, Any], result: str) -> str:
    """Return what the page says of one run."""
    rows = [row(each) for each in report["attacks"]]
    over = sum("**" in each for each in rows)
    load = ", ".join(f"{each:.1f}" for each in report["load_average"])
    return (
        f"[One run](../../bench/results/{result}) of {report['began'][:10]}, on {report['cpus']}\n"
        f"cores, {report['rounds']} rounds of {report['seconds']:g} s each; the load was {load} at"
        f" its end.\n{over or 'None'} of them cost more than {BOUND:g} times their control.\n\n"
        + HEAD
        + "".join(each + "\n" for each in rows)
    )


def with_table(page: str, table: str) -> str:
    """Return the page with another table between its two marks."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    assert rest, "the page has lost its marks"
    assert after, "the page has lost its marks"
    return before + BEGIN + table + END + after


def main() -> None:
    """Measure, print a table, write bench/results/attacks-TIME.json."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--only", default=",".join(ATTACKS), metavar="NAME,NAME")
    parser.add_argument("--seconds", type=float, default=5.0, help="length of each of the three")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    names = options.only.split(",")
    if unknown := set(names) - set(ATTACKS):
        parser.error(f"{', '.join(unknown)}: there are {', '.join(ATTACKS)}")
    rows = []
    sys.stdout.write(HEAD)
    for name in names:
        directory = Path(tempfile.mkdtemp(prefix="holdfast-attacks-"))
        bench = Bench(directory / "cluster", options.seconds)
        try:
            bench.start()
            rows.append(bench.measure(name, options.rounds))
            sys.stdout.write(row(rows[-1]) + "\n")
            sys.stdout.flush()
        finally:
            bench.cluster.down()
            shutil.rmtree(directory, ignore_errors=True)
    if set(names) == set(ATTACKS):
        _keep(rows, options)


def _keep(rows: list[dict[str, Any]], options: argparse.Namespace) -> None:
    report = {
        "began": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "cpus": os.cpu_count(),
        "load_average": os.getloadavg(),
        "seconds": options.seconds,
        "rounds": options.rounds,
        "attacks": rows,
    }
    name = f"attacks-{time.strftime('%Y-%m-%dT%H%M')}.json"
    (ROOT / "bench" / "results" / name).write_text(json.dumps(report, indent=1) + "\n")
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(with_table(page, render(report, name)), encoding="utf-8")


if __name__ == "__main__":
    main()
