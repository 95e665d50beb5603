"""Rare branches taken on purpose lose nothing, and each of them really is taken.

Goal: what a provoked branch does is something a node can live with; and none of the points is dead.
Method: a cluster with writers and a reader, every point provoked often; each broker crashes once
and ends cleanly once.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from tests.simulation.promises import Promises

from holdfast.testing.ground.provoke import POINTS, Provocations
from holdfast.testing.ground.runtime import World
from holdfast.testing.simulated_cluster import SimulatedCluster
from holdfast.testing.simulation.drawing import GROUPS, draw_plan
from holdfast.testing.simulation.run import run_plan

pytestmark = pytest.mark.slow

# Passed a few times a minute; the others many times a second.
RARE = {
    "checkpoint.left-out",
    "close.at-once",
    "isr.answer-late",
    "isr.answer-lost",
    "producer-ids.answer-lost",
}
# Passed where there are groups.
OF_COORDINATORS = {
    "answers.by-turns",
    "answers.none-at-once",
    "commits.alone",
    "held.expire-early",
    "shard.append-refused",
    "shard.due-by-turns",
    "shard.load-fails",
    "shard.load-late",
}
# Passed where a topic is compacted: `tests/simulate/test_simulate_compacted.py` has some.
ELSEWHERE = {"compaction.round", "compaction.small-map"}
CONFIG = {"replica.lag.time.max.ms": "3000"}


def test_every_rare_branch_is_taken_and_nothing_is_lost() -> None:
    counts = [provoked(seed) for seed in (1, 2, 3, 4)]
    idle = [
        name
        for name in POINTS
        if name not in OF_COORDINATORS | ELSEWHERE and not any(one[name] for one in counts)
    ]
    assert not idle, "these points were passed and never fired, or never passed"


def test_every_rare_branch_of_a_coordinator_is_taken_and_no_commit_is_lost() -> None:
    """Method: whole runs with groups, each with half of the points, until all have been passed."""
    idle = dict.fromkeys(sorted(OF_COORDINATORS))
    for seed in (7, 11, *range(1, 7)):  # the first two had them all when this was written
        outcome = run_plan(replace(draw_plan(seed, GROUPS), provoked=True))
        assert outcome.is_clean, outcome.violation
        idle = {name: None for name in idle if not outcome.counts[f"provoked: {name}"]}
        if not idle:
            return
    assert not idle, "these points were passed and never fired, or never passed"


def provoked(seed: int) -> dict[str, int]:
    """Run one cluster; how often each point fired."""
    world = World(seed)

    async def main() -> None:
        cluster = SimulatedCluster(world, config=CONFIG)
        await cluster.start()
        world.provocations.chances = {name: 0.4 if name in RARE else 0.05 for name in POINTS}
        work = Promises(cluster, partitions=3)
        await work.start()
        for broker in cluster.brokers:
            await asyncio.sleep(8)
            cluster.crash(broker)
            await asyncio.sleep(6)
            cluster.start_node(broker)
            await cluster.until_ready(broker)
            await cluster.stop(broker)
            cluster.start_node(broker)
            await cluster.until_ready(broker)
        await asyncio.sleep(8)
        world.provocations.stop()
        await work.stop()
        await work.check()
        assert work.acknowledged > 100

    world.run(main)
    return world.provocations.counts


def test_nothing_is_provoked_unless_it_is_asked_for() -> None:
    world = World(1)

    async def main() -> None:
        cluster = SimulatedCluster(world)
        await cluster.start()
        work = Promises(cluster)
        await work.start()
        await asyncio.sleep(2)
        await work.stop()
        await work.check()

    world.run(main)
    assert not any(world.provocations.counts.values())
    with pytest.raises(AssertionError, match="no such points"):
        world.provocations.chances = {"what.is-this": 1.0}
    picked = Provocations(2).pick()
    assert 0 < len(picked) < len(POINTS)
