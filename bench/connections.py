"""What connections cost a broker: memory of idle ones, CPU of those that ask now and then.

One broker of its own, and its controller in another process. Each step opens its connections, of
which each has asked once what the broker can do, as clients do; what is measured is what the broker
has more than before. The 1,000 that ask send one Metadata of one topic a second, spread evenly.

    python bench/connections.py [--idle N] [--asking N] [--seconds S]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from engines import STEADY, memory_mb
from holdfast.clients.blocking_driver import Driver
from holdfast.cluster import LocalCluster
from holdfast.wire.administration import create_topic
from holdfast.wire.frame import encode_request
from holdfast.wire.messages.api_versions import ApiVersionsRequest
from holdfast.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from scale import cpu_of

ROOT = Path(__file__).resolve().parent.parent
TOPIC = "asked"
_METADATA_VERSION = 12
_AT_ONCE = 50  # connections that are opened at the same time
_QUIET_S = 3.0
_FILES_SPARE = 500
IDLE_GOAL_MB, ASKING_GOAL_CORES = 100.0, 0.1


class Asking(asyncio.Protocol):
    """One connection: counts whole answers, and forgets them."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport
        self.answers = 0
        self.lost = False
        self._left = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self._left += data
        while len(self._left) >= 4:
            size = 4 + int.from_bytes(self._left[:4])
            if len(self._left) < size:
                return
            self._left = self._left[size:]
            self.answers += 1

    def connection_lost(self, _error: Exception | None) -> None:
        self.lost = True


async def opened(host: str, port: int, count: int) -> list[Asking]:
    """Open connections, each of which has had its first answer."""
    loop = asyncio.get_running_loop()
    hello = encode_request(ApiVersionsRequest(), 0, 1, "bench")
    found: list[Asking] = []
    while len(found) < count:
        some = min(_AT_ONCE, count - len(found))
        pairs = await asyncio.gather(
            *(loop.create_connection(Asking, host, port) for _ in range(some))
        )
        for _, one in pairs:
            one.transport.write(hello)
        found += [one for _, one in pairs]
        await answered(found, 1)
    return found


async def answered(asking: list[Asking], answers: int) -> None:
    """Wait until each has had so many answers. RuntimeError: the broker closes them, or is late."""
    deadline = time.monotonic() + 30
    while any(one.answers < answers for one in asking):
        if any(one.lost for one in asking) or time.monotonic() > deadline:
            lost = sum(one.lost for one in asking)
            raise RuntimeError(f"{lost} of {len(asking)} connections were closed, others wait")
        await asyncio.sleep(0.01)


async def measure_idle(place: tuple[str, int], pid: int, count: int) -> dict[str, float]:
    """What so many connections that say nothing cost in memory, and in CPU."""
    before = memory_mb([pid])["rss_mb"]
    asking = await opened(*place, count)
    await asyncio.sleep(_QUIET_S)
    cpu_s, began = cpu_of(pid), time.monotonic()
    await asyncio.sleep(_QUIET_S)
    measured = {
        "idle_connections": count,
        "idle_rss_mb": memory_mb([pid])["rss_mb"],
        "idle_more_mb": memory_mb([pid])["rss_mb"] - before,
        "idle_cores": (cpu_of(pid) - cpu_s) / (time.monotonic() - began),
        "idle_closed": sum(one.lost for one in asking),
    }
    await closed(asking)
    return measured


async def measure_asking(
    place: tuple[str, int], pid: int, count: int, seconds: int
) -> dict[str, float]:
    """What so many connections cost of the CPU that have one request a second each."""
    topic = MetadataRequestTopic(name=TOPIC)
    request = MetadataRequest(topics=[topic], allow_auto_topic_creation=False)
    frame = encode_request(request, _METADATA_VERSION, 1, "bench")
    asking = await opened(*place, count)
    await asyncio.sleep(_QUIET_S)
    cpu_s, own_s, began = cpu_of(pid), time.process_time(), time.monotonic()
    for number in range(count * seconds):
        due = began + number / count
        if (wait := due - time.monotonic()) > 0:
            await asyncio.sleep(wait)
        asking[number % count].transport.write(frame)
    await answered(asking, 1 + seconds)
    took = time.monotonic() - began
    measured = {
        "asking_connections": count,
        "asking_requests_per_s": count * seconds / took,
        "asking_cores": (cpu_of(pid) - cpu_s) / took,
        "asking_cpu_us_per_request": (cpu_of(pid) - cpu_s) / (count * seconds) * 1e6,
        "asking_client_cores": (time.process_time() - own_s) / took,
    }
    await closed(asking)
    return measured


async def closed(asking: list[Asking]) -> None:
    """Close them; the broker has seen it before the next thing is measured."""
    for one in asking:
        one.transport.close()
    await asyncio.sleep(_QUIET_S)


@contextmanager
def broker() -> Iterator[tuple[tuple[str, int], int]]:
    """A broker with one topic: its address, and its process."""
    directory = Path(tempfile.mkdtemp(prefix="holdfast-connections-"))
    cluster = LocalCluster.create(directory / "cluster", brokers=1, port=0, config=STEADY)
    try:
        cluster.start()
        with Driver(cluster.bootstrap_servers) as driver:
            driver.perform(create_topic(TOPIC, partitions=3, replication_factor=1))
        node = cluster.record.brokers[0]
        assert node.pid is not None
        yield (node.host, node.port), node.pid
    finally:
        cluster.down()
        shutil.rmtree(directory, ignore_errors=True)


def main() -> None:
    """Measure, print, write bench/results/connections-TIME.json."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--idle", type=int, default=5_000)
    parser.add_argument("--asking", type=int, default=1_000)
    parser.add_argument("--seconds", type=int, default=10)
    options = parser.parse_args()
    files, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = max(options.idle, options.asking) + _FILES_SPARE
    if files < wanted:
        if most < wanted:
            parser.error(f"{most} open files are allowed, {wanted} are needed: ulimit -Hn")
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))
    report: dict[str, Any] = {
        "began": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "cpus": os.cpu_count(),
        "load_average": os.getloadavg(),
    }
    with broker() as (place, pid):  # the load first: RSS after it
        report |= asyncio.run(measure_asking(place, pid, options.asking, options.seconds))
        report |= asyncio.run(measure_idle(place, pid, options.idle))
    sys.stdout.write(json.dumps(report, indent=1) + "\n")
    sys.stdout.write(
        f"{options.idle:,} idle: {report['idle_rss_mb']:.0f} MB, {report['idle_more_mb']:.0f} of "
        f"them theirs (goal {IDLE_GOAL_MB:.0f}); {options.asking:,} with one request a second: "
        f"{report['asking_cores']:.1%} of a core (goal {ASKING_GOAL_CORES:.0%})\n"
    )
    if (options.idle, options.asking) == (5_000, 1_000):
        name = f"connections-{time.strftime('%Y-%m-%dT%H%M')}.json"
        (ROOT / "bench" / "results" / name).write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
