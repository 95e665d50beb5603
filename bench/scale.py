"""Ten partitions to ten thousand: what a cluster of three brokers takes for each of them.

Every number of partitions gets a cluster of its own, of real processes, with sessions of 9 s and
three replicas of everything. What is asked for of `--only` is measured in this order:

    create      the request, until it is answered, and until every partition took a record
    idle        the brokers' CPU together, in cores, over 10 s after all is quiet
    round-trip  one record to one partition, acks=all; beside 3 partitions in the same cluster
    metadata    Metadata of all topics
    memory      RSS a broker
    kill        SIGKILL of a broker, until the last partition took a record; then its return
    restart     `down`, and `up` until every ISR is whole

    python bench/scale.py [--partitions 10,100,1000] [--only create,kill] [--keep DIR]
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import struct
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import scale_curves
from attacker_kit import wait_until_led
from engines import STEADY, memory_mb
from holdfast.clients.blocking_driver import Driver, DriverError, Peer
from holdfast.cluster import LocalCluster
from holdfast.cluster.layout import ClusterError
from holdfast.wire.administration import create_topic
from holdfast.wire.batch import Record, build_batch
from holdfast.wire.frame import encode_request
from holdfast.wire.messages.metadata import MetadataRequest
from holdfast.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from sweep import Sweep, Swept

ROOT = Path(__file__).resolve().parent.parent
SIZES = (10, 100, 1_000, 3_000, 10_000)
STEPS = ("create", "idle", "round-trip", "metadata", "memory", "kill", "restart")
_SMALL = "three"
_TOPIC_MAX = 5_000  # one request makes 10,000 records at most, as at Apache Kafka
_VICTIM = 1
_BOUND_S = 180.0
_QUIET_S, _IDLE_S = 5.0, 10.0
_ROUND_TRIPS, _WARM_TRIPS = 400, 200
_METADATA_CALLS = 15
_METADATA_VERSION = 13  # as current clients
_PRODUCE_VERSION = 9
_TICKS = os.sysconf("SC_CLK_TCK")


class Scale:
    """One cluster with one number of partitions, and what was measured of it."""

    def __init__(self, directory: Path, partitions: int) -> None:
        self.partitions = partitions
        self.measured: dict[str, float] = {"partitions": partitions}
        self.cluster = LocalCluster.create(directory, port=0, config=STEADY)
        full, rest = divmod(partitions, _TOPIC_MAX)
        sizes = [_TOPIC_MAX] * full + [rest] * bool(rest)
        self._topics = {f"scale-{number}": size for number, size in enumerate(sizes)}
        self._sweep = Sweep(self.cluster.bootstrap_servers, self._topics, _BOUND_S)

    def run(self, steps: list[str]) -> None:
        """Measure what is asked for; without its creation there is nothing to measure."""
        self.cluster.start()
        try:
            self._create_topics({_SMALL: 3})
            with Driver(self.cluster.bootstrap_servers, timeout_s=_BOUND_S) as driver:
                wait_until_led(driver, _SMALL)
            if "round-trip" in steps:
                self._note(small_round_trip_ms=median(self._round_trips(_SMALL)))
            self._create()
            known: dict[str, Callable[[], None]] = {
                "idle": self._idle,
                "round-trip": self._round_trip,
                "metadata": self._metadata,
                "memory": self._memory,
                "kill": self._kill,
                "restart": self._restart,
            }
            for name, measure in known.items():
                if name in steps:
                    measure()
        finally:
            self.cluster.down(timeout_s=_BOUND_S)

    # -- the steps -----------------------------------------------------------------------------

    def _create(self) -> None:
        began = time.monotonic()
        cpu_s = self._all_cpu_s()
        self._create_topics(self._topics)
        answered_s = time.monotonic() - began
        self._sweep.learn()
        swept = self._sweep.run(began)
        self._note(
            create_answer_s=answered_s,
            create_s=swept.seconds,
            create_client_cpu_s=swept.cpu_s,
            create_cpu_s=self._all_cpu_s() - cpu_s,
            create_missing=swept.missing,
        )
        again = self._sweep.run(time.monotonic())
        self._note(sweep_s=again.seconds, sweep_client_cpu_s=again.cpu_s)

    def _idle(self) -> None:
        time.sleep(_QUIET_S)
        before, began = self._cpu_s(), time.monotonic()
        time.sleep(_IDLE_S)
        self._note(idle_cores=(self._cpu_s() - before) / (time.monotonic() - began))

    def _round_trip(self) -> None:
        times = sorted(self._round_trips("scale-0"))
        self._note(
            round_trip_ms=median(times),
            round_trip_p99_ms=times[int(len(times) * 0.99)],
            round_trip_ratio=median(times) / self.measured["small_round_trip_ms"],
        )

    def _metadata(self) -> None:
        times, size = self._metadata_calls(_METADATA_CALLS)
        self._note(metadata_ms=median(times), metadata_ms_max=max(times), metadata_bytes=size)

    def _metadata_calls(self, count: int) -> tuple[list[float], int]:
        """Ask for all topics; return how long each answer took, in ms, and how large it is."""
        node = self.cluster.record.brokers[0]
        frame = encode_request(MetadataRequest(topics=None), _METADATA_VERSION, 1, "scale")
        times, size = [], 0
        with socket.create_connection((node.host, node.port), _BOUND_S) as connection:
            for _ in range(count):
                began = time.perf_counter()
                connection.sendall(frame)
                size = _receive_frame(connection)
                times.append((time.perf_counter() - began) * 1000)
        return times, size

    def _memory(self) -> None:
        """The mean of the brokers, and the largest of them, which is what the goal is about."""
        each = [memory_mb([pid])["rss_mb"] for pid in self._pids()]
        self._note(rss_mb=sum(each) / len(each), rss_mb_max=max(each))

    def _kill(self) -> None:
        fenced = self._times_fenced()
        self._sweep.learn()
        began = time.monotonic()
        self.cluster.kill(_VICTIM)
        swept = self._sweep.run(began, without=[_VICTIM])
        self._note(
            kill_s=swept.seconds,
            kill_half_s=swept.median_s,
            kill_client_cpu_s=swept.cpu_s,
            kill_missing=swept.missing,
            kill_healthy_fenced=self._times_fenced() - fenced,
        )
        say_refusals(swept)
        began = time.monotonic()
        self.cluster.start_node(_VICTIM, timeout_s=_BOUND_S)
        self._note(return_serves_s=time.monotonic() - began)
        missing = self._wait_whole()
        self._note(
            return_missing=missing,
            return_s=time.monotonic() - began,
            return_healthy_fenced=self._times_fenced() - fenced,
        )

    def _restart(self) -> None:
        began = time.monotonic()
        killed = self.cluster.down(timeout_s=_BOUND_S)
        self._note(down_s=time.monotonic() - began, down_killed=len(killed))
        self.cluster.start(timeout_s=_BOUND_S)
        self._note(serves_again_s=time.monotonic() - began)
        self._note(metadata_cold_ms=self._metadata_calls(1)[0][0])  # nobody has asked this process
        missing = self._wait_whole()
        self._note(restart_s=time.monotonic() - began, restart_missing=missing)
        self._note(restart_rss_mb=memory_mb(self._pids())["rss_mb"])

    # -- what they need ------------------------------------------------------------------------

    def _create_topics(self, topics: dict[str, int]) -> None:
        """Ask for all of them at once, and wait for the answers."""
        asked = [
            create_topic(
                name,
                partitions=partitions,
                replication_factor=3,
                configs={"min.insync.replicas": "2"},
                timeout_ms=int(_BOUND_S * 1000),
            )
            for name, partitions in topics.items()
        ]
        with Driver(self.cluster.bootstrap_servers, timeout_s=_BOUND_S) as driver:
            peer = driver.peer()
            for each in asked:
                peer.post(each.message)
            for each in asked:
                each.read(peer.take())

    def _round_trips(self, topic: str) -> list[float]:
        """Produce to partition 0, one record after the other; milliseconds."""
        batch = bytes(build_batch([Record(value=b"x" * 100, timestamp=int(time.time() * 1000))]))
        data = PartitionProduceData(index=0, records=batch)
        request = ProduceRequest(
            acks=-1,
            timeout_ms=30_000,
            topic_data=[TopicProduceData(name=topic, partition_data=[data])],
        )
        with Driver(self.cluster.bootstrap_servers, timeout_s=_BOUND_S) as driver:
            peer = driver.peer(driver.leader(topic, 0))
            while _refused(peer, request):
                time.sleep(0.05)
            times = []
            # The first ones warm up: what they are compared with has had longer to do so.
            for _ in range(_WARM_TRIPS + _ROUND_TRIPS):
                began = time.perf_counter()
                code = _refused(peer, request)
                times.append((time.perf_counter() - began) * 1000)
                assert not code, code
            return times[_WARM_TRIPS:]

    def _wait_whole(self) -> int:
        """Wait until every partition has a leader and all three replicas in sync.

        Return how many have not, within the bound.
        """
        deadline = time.monotonic() + _BOUND_S
        while time.monotonic() < deadline:
            try:
                with Driver(self.cluster.bootstrap_servers, timeout_s=_BOUND_S) as driver:
                    topics = driver.metadata([*self._topics]).topics
            except DriverError:
                topics = []
            whole = sum(
                len(each.isr_nodes) == 3 and each.leader_id >= 0
                for topic in topics
                for each in topic.partitions
            )
            if whole == self.partitions:
                return 0
            time.sleep(0.2 + self.partitions / 20_000)
        say(f"only {whole} of {self.partitions} ISRs are whole after {_BOUND_S:.0f} s")
        return self.partitions - whole

    def _pids(self) -> list[int]:
        return [node.pid for node in self.cluster.record.brokers if node.pid is not None]

    def _cpu_s(self) -> float:
        return sum(map(cpu_of, self._pids()))

    def _all_cpu_s(self) -> float:
        return sum(cpu_of(node.pid) for node in self.cluster.nodes if node.pid is not None)

    def _times_fenced(self) -> int:
        """How often a broker was fenced that nobody had killed, by what the controllers say."""
        said = set()
        for node in self.cluster.record.controllers:
            for line in Path(node.log_file).read_text(errors="replace").splitlines():
                if line.endswith(" is fenced") and f"broker {_VICTIM} is" not in line:
                    said.add((line.partition(".")[0], line.rpartition(": ")[2]))
        return len(said)

    def _note(self, **measured: float) -> None:
        self.measured |= measured
        words = ", ".join(f"{name} {value:,.3f}" for name, value in measured.items())
        say(f"{self.partitions:,} partitions: {words}")


def _refused(peer: Peer, request: ProduceRequest) -> int:
    answer = peer.send(request, version=_PRODUCE_VERSION)
    code: int = answer.responses[0].partition_responses[0].error_code
    return code


def cpu_of(pid: int) -> float:
    """Seconds of CPU that a process has used."""
    text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii")
    fields = text.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def _receive_frame(connection: socket.socket) -> int:
    """Read one answer and forget it; return how large it was."""
    (size,) = struct.unpack(">i", connection.recv(4, socket.MSG_WAITALL))
    rest = int(size)
    while rest:
        rest -= len(connection.recv(min(rest, 1 << 20)))
    return int(size)


def say_refusals(swept: Swept) -> None:
    """Say what the producer met."""
    if swept.refused:
        say("refused: " + ", ".join(f"{name} {count}" for name, count in swept.refused.items()))


def say(text: str) -> None:
    """Show progress."""
    sys.stderr.write(f"scale: {text}\n")
    sys.stderr.flush()


def measure(partitions: int, steps: list[str], keep: Path | None) -> dict[str, float]:
    """Measure one number of partitions; what was measured until something failed is kept."""
    directory = Path(tempfile.mkdtemp(prefix="holdfast-scale-")) if keep is None else keep
    scale = Scale(directory / str(partitions), partitions)
    try:
        scale.run(steps)
    except (RuntimeError, DriverError, ClusterError) as error:
        say(f"{partitions:,} partitions: {error}")
    finally:
        if keep is None:
            shutil.rmtree(directory, ignore_errors=True)
    return scale.measured


def main() -> None:
    """Measure, write bench/results/scale-TIME.json, draw the curves."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--partitions", default=",".join(map(str, SIZES)), metavar="N,N")
    parser.add_argument("--only", default=",".join(STEPS), metavar="STEP,STEP")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="make the clusters here")
    parser.add_argument("--draw", type=Path, metavar="RESULT", help="draw this, measure nothing")
    options = parser.parse_args()
    if options.draw:
        scale_curves.draw(json.loads(options.draw.read_text()), ROOT / "docs" / "design")
        return
    steps = options.only.split(",")
    if unknown := set(steps) - set(STEPS):
        parser.error(f"{', '.join(unknown)}: there are {', '.join(STEPS)}")
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    report: dict[str, Any] = {
        "began": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "cpus": os.cpu_count(),
        "load_average": os.getloadavg(),
        "rows": [measure(int(size), steps, options.keep) for size in options.partitions.split(",")],
    }
    if set(steps) != set(STEPS) or len(report["rows"]) < len(SIZES):
        sys.stdout.write(json.dumps(report, indent=1) + "\n")
        return
    target = ROOT / "bench" / "results" / f"scale-{time.strftime('%Y-%m-%dT%H%M')}.json"
    target.write_text(json.dumps(report, indent=1) + "\n")
    scale_curves.draw(report, ROOT / "docs" / "design")
    say(f"written to {target.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
