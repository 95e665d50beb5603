"""Thousands of schedules of the pure quorum: one leader an epoch, nothing committed is ever lost.

Goal: the invariants (rules: quorum.md#quorum-invariants) hold under kills, power cuts, cuts of
links in one and both directions, lost and repeated messages; and once all is well, everybody
follows one leader. Method: `quorum_world`, each seed its own schedule.
Seen to fail when a vote is answered before it is saved, when the leader counts its own unsynced
end, when a restarted leader leads on in its epoch, when the watermark moves without a record of the
own epoch, and when a voter votes for a shorter log.
"""

from __future__ import annotations

import random

import pytest
from tests.quorum.quorum_world import QuorumWorld

SEEDS = 40
SAFETY_MS = 60_000
LIVENESS_MS = 20_000


def schedule(seed: int, *, voters: int) -> QuorumWorld:
    draw = random.Random(f"schedule/{seed}")
    world = QuorumWorld(seed, voters=voters, loss=draw.choice([0.0, 0.02, 0.2]))
    world.frailty = draw.choice([0.0, 0.1])
    until = 0
    while until < SAFETY_MS:
        until += draw.randint(50, 3000)
        world.run(until)
        node, other = draw.sample(range(voters), 2)
        happens = draw.random()
        if happens < 0.15:
            world.kill(node, power=draw.random() < 0.6)
        elif happens < 0.35:
            for dead in sorted(set(world.disks) - set(world.processes)):
                world.start(dead)
        elif happens < 0.45:
            world.cut(node, other, both=draw.random() < 0.5)
        elif happens < 0.5:
            for each in range(voters):
                if each != node:
                    world.cut(node, each, both=True)
        elif happens < 0.65:
            world.cuts.clear()
        elif happens < 0.68:
            for each in list(world.processes):
                world.kill(each, power=True)
            world.run(until + 100)
            for each in world.disks:
                world.start(each)
        leader = world.leading()
        if leader is not None:
            for _ in range(draw.randint(0, 4)):
                world.append(leader)
    world.frailty = 0.0
    world.heal()
    world.run(until + LIVENESS_MS)
    world.check_live()
    return world


@pytest.mark.slow
@pytest.mark.parametrize("voters", [2, 3, 4, 5])
def test_schedules(voters: int) -> None:
    total: dict[str, int] = {}
    for seed in range(SEEDS):
        for what, count in schedule(seed, voters=voters).counts.items():
            total[what] = total.get(what, 0) + count
    wanted = ["leaders", "commits", "power cuts", "kills", "resignations"]
    if voters > 2:  # a majority of two is both: nobody is ever elected without the other
        wanted.append("truncations")
    for what in wanted:
        assert total.get(what, 0) > 10, f"hardly any {what}: the schedules are too tame"


@pytest.mark.slow
def test_a_quiet_quorum_holds_one_election() -> None:
    for seed in range(40):
        world = QuorumWorld(seed, voters=3)
        world.run(60_000)
        world.check_live()
        assert len(world.leaders) == 1, f"seed {seed}: {world.leaders}"


@pytest.mark.slow
@pytest.mark.parametrize("both", [True, False])
def test_a_cut_link_between_a_follower_and_the_leader_disturbs_nobody(both: bool) -> None:
    """Pre-votes: who hears from the leader refuses, so the epoch stays (KIP-996)."""
    for seed in range(20):
        world = QuorumWorld(seed, voters=3)
        world.run(10_000)
        leader = world.leading()
        assert leader is not None
        follower = next(node for node in world.disks if node != leader.node)
        world.cut(leader.node, follower, both=both)
        world.run(40_000)  # nothing is written: its log is as long as everybody's
        assert world.leading() is leader, f"seed {seed}"
        world.append(leader)
        world.run(70_000)
        assert world.leading() is leader, f"seed {seed}"
        assert len(world.committed) == len(leader.disk.log), "the other two are a majority"
        world.heal()
        world.run(80_000)
        world.check_live()
        assert len(world.leaders) == 1


def test_a_leader_without_a_majority_resigns_and_commits_nothing() -> None:
    """Check quorum: 1.5 x the fetch time-out after the last fetch, at the latest twice that."""
    for seed in range(20):
        world = QuorumWorld(seed, voters=3)
        world.run(10_000)
        leader = world.leading()
        assert leader is not None
        for node in world.disks:
            if node != leader.node:
                world.cut(leader.node, node, both=True)
        committed = len(world.committed)
        world.append(leader)
        world.run(13_500)
        assert not leader.machine.leading
        assert leader.machine.committed == committed
        world.run(20_000)
        new = world.leading()
        assert new is not None
        assert new.machine.epoch > 1
        world.heal()
        world.run(40_000)
        world.check_live()
