"""A seed's run is the same bit for bit, whatever the faults, whatever the process.

Goal: a failing seed can be played again. Method: whole plans of the simulator, some with provoked
branches and shuffled turns, and one run with every fault of the ground; the hash over all that
happened is compared between runs, and between processes with other hash seeds.
"""

from __future__ import annotations

import asyncio
import errno
import os
import random
import subprocess
import sys

import pytest
from tests.simulation.promises import Promises

from holdfast.testing.ground.disk import DiskFault
from holdfast.testing.ground.links import Weather
from holdfast.testing.ground.provoke import POINTS
from holdfast.testing.ground.runtime import World
from holdfast.testing.simulated_cluster import SimulatedCluster
from holdfast.testing.simulation.drawing import LIGHT, draw_plan
from holdfast.testing.simulation.run import run_plan

pytestmark = pytest.mark.slow

SEEDS = (5, 10)


def every_fault(seed: int) -> str:
    """Play all that can happen to a machine or a link once; the hash, and how much went in."""
    world = World(seed)
    world.loop.shuffle = random.Random(seed)
    fabric, draw = world.fabric, world.random

    async def main() -> None:
        cluster = SimulatedCluster(world)
        await cluster.start()
        fabric.weather = Weather(loss=0.01, reorder=0.01, duplicate=0.01, bytes_per_s=10_000_000)
        fabric.give_up_s = 10
        world.provocations.chances = dict.fromkeys(POINTS, 0.01)
        work = Promises(cluster, partitions=2)
        await work.start()
        hosts = [cluster.machine(broker).name for broker in cluster.brokers]
        for turn in range(3):
            one, other = draw.sample(hosts, 2)
            machine = world.machine(one)
            fabric.clog(one, other, draw.random())
            fabric.forget(one, other)
            await asyncio.sleep(draw.random())
            fabric.reset(one, other)
            fabric.cut(one, other)
            machine.step_clock(-500)
            machine.drift_clock(100)
            machine.slow_disk((1_000, 50_000))
            machine.pause()
            await asyncio.sleep(draw.random() * 3)
            machine.resume()
            fabric.heal_all()
            machine.disk.inject(
                DiskFault(operations={"sync"}, code=errno.ENOSPC, rate=0.01, times=1)
            )
            await asyncio.sleep(draw.random())
            machine.disk.heal()
            victim = cluster.brokers[turn]
            if world.machine(hosts[turn]).process is not None:
                cluster.power_cut(victim, torn=True)
            machine.slow_disk()
            await asyncio.sleep(4)
            for broker in cluster.brokers:
                process = cluster.machine(broker).process
                if process is None or not process.alive:
                    cluster.start_node(broker)
            await cluster.until_ready(*cluster.brokers)
        fabric.weather = Weather()
        world.provocations.stop()
        await work.stop()
        await work.check()

    world.run(main)
    return f"{world.trace.digest} {world.trace.count}"


def plans() -> list[str]:
    """The hash of a few whole runs."""
    return [run_plan(draw_plan(seed, LIGHT)).digest for seed in SEEDS]


def elsewhere(call: str, hash_seed: str) -> str:
    """What a function here returns in a process of its own."""
    code = f"""
import importlib.util, logging
logging.disable(logging.CRITICAL)
spec = importlib.util.spec_from_file_location("played", {__file__!r})
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
print(module.{call})
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        timeout=200,
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
    )
    return done.stdout.strip()


@pytest.mark.process
def test_every_fault_is_in_the_hash_and_repeats() -> None:
    here = every_fault(1)
    assert here == every_fault(1) == elsewhere("every_fault(1)", "7")


@pytest.mark.process
def test_a_plan_s_run_depends_on_nothing_but_its_seed() -> None:
    drawn = [draw_plan(seed, LIGHT) for seed in SEEDS]
    assert any(plan.provoked for plan in drawn)
    assert any(plan.shuffled for plan in drawn)
    here = plans()
    assert str(here) == elsewhere("plans()", "1")
    assert len(set(here)) == len(SEEDS)
