"""How fast a simulated cluster runs: virtual minutes for each second of processor time.

Three brokers and three controllers under a light load: a hundred produced batches a virtual second,
acks=all, replicated three times. Prints one line for each way of sending: every batch in a
request of its own, and several to a request, as producers that linger send them.

    python bench/simulate.py [--seconds 60] [--rate 100] [--controllers 3] [--profile]
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import pstats
import sys
import time
from dataclasses import dataclass

from holdfast.testing.ground.runtime import World
from holdfast.testing.simulated_client import ClusterClient
from holdfast.testing.simulated_cluster import SimulatedCluster
from holdfast.wire.batch import Record, build_batch
from holdfast.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

BROKERS = 3
RECORDS = 5
VALUE = b"x" * 100
VERSION = 12


@dataclass(slots=True)
class Measured:
    """One run."""

    batches: int
    virtual_s: float
    processor_s: float
    events: int

    @property
    def minutes_a_second(self) -> float:
        return self.virtual_s / 60 / self.processor_s


def measure(*, seconds: float, rate: int, together: int, controllers: int, seed: int) -> Measured:
    """Run a cluster for so many virtual seconds; `together` batches go into one request."""
    world = World(seed)
    batches = 0

    async def produce(client: ClusterClient, leader: int, partitions: list[int]) -> None:
        nonlocal batches
        stamp = client.runtime.clock.wall_ms()
        batch = bytes(build_batch([Record(value=VALUE, timestamp=stamp)] * RECORDS))
        data = [PartitionProduceData(index=one, records=batch) for one in partitions]
        request = ProduceRequest(
            acks=-1, timeout_ms=1000, topic_data=[TopicProduceData(name="t", partition_data=data)]
        )
        answer = await client.ask(request, node=leader, version=VERSION)
        assert all(one.error_code == 0 for one in answer.responses[0].partition_responses)
        batches += len(partitions)

    async def main() -> float:
        cluster = SimulatedCluster(world, controllers=controllers)
        await cluster.start()
        client = cluster.client()
        await client.create_topic("t", partitions=BROKERS * together)
        led: dict[int, list[int]] = {}
        for partition in range(BROKERS * together):
            led.setdefault(await client.leader("t", partition), []).append(partition)
        assert [len(led[leader]) for leader in led] == [together] * BROKERS, "evenly led"
        loop = asyncio.get_running_loop()
        sending: list[asyncio.Task[None]] = []
        began, end = time.process_time(), loop.time() + seconds
        while loop.time() < end:
            for leader, partitions in sorted(led.items()):
                sending.append(loop.create_task(produce(client, leader, partitions)))
                await asyncio.sleep(len(partitions) / rate)
        used = time.process_time() - began
        await asyncio.gather(*sending)
        return used

    used = world.run(main)
    return Measured(batches, seconds, used, world.trace.count)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--rate", type=int, default=100, help="produced batches a virtual second")
    parser.add_argument("--controllers", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--profile", action="store_true", help="where the time goes")
    options = parser.parse_args()
    profile = cProfile.Profile()
    for together in (1, 4, 8):
        if options.profile:
            profile.enable()
        found = measure(
            seconds=options.seconds,
            rate=options.rate,
            together=together,
            controllers=options.controllers,
            seed=options.seed,
        )
        profile.disable()
        print(
            f"{together} batches a request: {found.batches} batches in {found.virtual_s:.0f} "
            f"virtual s took {found.processor_s:.2f} s of processor time: "
            f"{found.minutes_a_second:.2f} cluster-minutes a second; {found.events} events"
        )
    if options.profile:
        pstats.Stats(profile, stream=sys.stdout).sort_stats("tottime").print_stats(40)


if __name__ == "__main__":
    main()
