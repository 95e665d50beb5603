"""What an attack costs an honest neighbour: acks=all without it, beside it, and beside processes
that burn the same CPU without a word to the brokers.

The neighbour sends one record after the other, each acknowledged by three replicas. An attack runs
in a process of its own for as long, against the same brokers, on a topic of its own; what the
brokers and the attacker used of the CPU meanwhile, beyond what they used without it, is what the
control burns. A machine of few cores slows the neighbour with the control too, so what the brokers
are to blame for is the ratio of the two.

    python bench/attacks.py [--only NAME,NAME] [--seconds S]
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

from attackers import ATTACKS, Target, wait_until_led
from engines import STEADY
from holdfast.clients.blocking_driver import Driver, DriverError
from holdfast.cluster.local import LocalCluster
from holdfast.wire.administration import create_topic
from holdfast.wire.batch import Record, build_batch
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

    def measure(self, name: str) -> dict[str, Any]:
        """Run one attack, then its control; all against what the neighbour sees alone."""
        alone = self._watch()
        prepare, run = ATTACKS[name]
        prepared = prepare(self.target) if prepare is not None else None
        with_it = self._beside(run, self.target, prepared)
        time.sleep(2)
        # The neighbour sends less when it is hurt: what its own records cost does not count.
        own_cores = alone.broker_cores * with_it.sent / alone.sent
        burnt = max(0.05, with_it.all_cores - own_cores)
        control = self._beside(burn, burnt, None)
        return {
            "attack": name,
            "alone": alone._asdict(),
            "with": with_it._asdict(),
            "control": control._asdict(),
            "burnt_cores": burnt,
            "p50_ratio": with_it.p50_ms / control.p50_ms,
            "p99_ratio": with_it.p99_ms / control.p99_ms,
        }

    def _beside(self, run: Callable[..., None], *arguments: Any) -> Seen:
        process = _CONTEXT.Process(target=run, args=arguments, daemon=True)
        process.start()
        try:
            time.sleep(_BEGIN_S)
            return self._watch(process.pid)
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
    """Work for this share of each twentieth of a second, as long as the parent lives."""
    while not parent or os.getppid() == parent:
        began, used = time.monotonic(), time.process_time()
        while time.process_time() - used < share / 20:
            pass
        time.sleep(max(0.001, 0.05 - (time.monotonic() - began)))


def row(measured: dict[str, Any]) -> str:
    """One line of the table."""
    cells = [measured["attack"]]
    for kind in ("alone", "with", "control"):
        seen = measured[kind]
        cells.append(f"{seen['p50_ms']:.2f} / {seen['p99_ms']:.1f}")
    cells.append(f"{measured['burnt_cores']:.2f}")
    cells.append(f"{measured['p50_ratio']:.2f} / {measured['p99_ratio']:.2f}")
    cells.append(str(measured["with"]["failed"]))
    return "| " + " | ".join(cells) + " |"


HEAD = (
    "| attack | alone p50 / p99 ms | with it | same CPU elsewhere | cores | ratio | refused |\n"
    "|--|--|--|--|--|--|--|\n"
)


def main() -> None:
    """Measure, print a table, write bench/results/attacks-TIME.json."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--only", default=",".join(ATTACKS), metavar="NAME,NAME")
    parser.add_argument("--seconds", type=float, default=10.0, help="length of each of the three")
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
            rows.append(bench.measure(name))
            sys.stdout.write(row(rows[-1]) + "\n")
            sys.stdout.flush()
        finally:
            bench.cluster.down()
            shutil.rmtree(directory, ignore_errors=True)
    if set(names) == set(ATTACKS):
        report = {
            "began": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
            "cpus": os.cpu_count(),
            "load_average": os.getloadavg(),
            "attacks": rows,
        }
        target = ROOT / "bench" / "results" / f"attacks-{time.strftime('%Y-%m-%dT%H%M')}.json"
        target.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
