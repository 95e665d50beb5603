"""Faults that are aimed at a moment hit it, and what they are aimed at is seen when it breaks.

Goal: a vote, a flush and an answer have moments of milliseconds in which a crash tells right from
wrong; a schedule drawn at random does not meet them. Method: each fault once, on a whole cluster;
then code that is wrong in just that moment. Seen to fail: with `after` and `in_job` ignored, with a
vote that is saved late, and with `_check_bytes` left out of `watch`. That each fault was performed
at all is all that the first four cases say.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial

import pytest

from holdfast.core.quorum.voter import Quorum
from holdfast.log import recovery
from holdfast.testing.ground.runtime import World
from holdfast.testing.simulated_cluster import CONTROLLER, SimulatedCluster
from holdfast.testing.simulation.oracle import Oracle
from holdfast.testing.simulation.plan import Event, Plan, ProducerPlan, ReaderPlan, TopicPlan
from holdfast.testing.simulation.run import run_plan
from holdfast.testing.simulation.watch import WatchedLog
from holdfast.wire.errors import ErrorCode


def test_power_goes_between_two_operations_of_a_job() -> None:
    world = World(1)
    machine = world.machine("here")

    async def main() -> None:
        runtime = machine.boot()
        disk = runtime.disk

        def job() -> None:
            for name in ("/a", "/b", "/c"):
                file = disk.open(name, create=True)
                file.append(b"x")
                file.sync()
                disk.sync_directory("/")

        machine.lie_in_wait("/b", machine.power_cut, after=3, in_job=True)
        disk.open("/b", create=True).close()  # by no job
        with pytest.raises(OSError, match="Input/output"):
            await runtime.worker.submit(job)

    world.run(main)
    found = {name: machine.disk.read(name) for name in ("/a", "/b") if machine.disk.exists(name)}
    assert found == {"/a": b"x", "/b": b"x"}, "the third operation on /b is the last"
    assert not machine.disk.exists("/c")


def quiet(*events: Event) -> Plan:
    """Three brokers and three controllers, to which nothing else happens."""
    configs = {"min.insync.replicas": "2", "segment.ms": "700"}
    return Plan(
        seed=7,
        brokers=3,
        controllers=3,
        combined=False,
        elr=True,
        seconds=16.0,
        events=events,
        topics=(TopicPlan(name="t0", partitions=1, replication_factor=3, configs=configs),),
        producers=(
            ProducerPlan(
                topic="t0", partition=0, acks=-1, idempotent=True, retries=True, pause_ms=500
            ),
        ),
        readers=(ReaderPlan(topic="t0"),),
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "event",
    [
        Event(at=5.0, kind="lost_vote", seconds=1.0, amount=1.0),
        Event(at=5.0, kind="split_vote", seconds=1.0, amount=1.0, detail="killed"),
        Event(at=5.0, kind="power_cut_in_job", target="broker:1", other=".index", amount=2.0),
        Event(at=5.0, kind="kill_after_write", target="leader:t0/0", seconds=0.2, amount=0.001),
    ],
    ids=lambda event: event.kind,
)
def test_each_aimed_fault_hits_and_breaks_nothing(event: Event) -> None:
    outcome = run_plan(quiet(event))
    assert outcome.violation is None, outcome.violation
    assert outcome.counts[event.kind] == 1, "it was passed over"


@pytest.mark.slow
def test_a_vote_that_is_answered_before_it_is_saved_elects_two(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answer = Quorum._answer

    def answer_at_once(
        self: Quorum, token: int, error: ErrorCode = ErrorCode.NONE, *, granted: bool = False
    ) -> None:
        answer(self, token, error, granted=granted)
        held, self._held = self._held, []
        self._effects += [effect for _, effect in held]

    events = [
        Event(at=at, kind="lost_vote", seconds=1.5, amount=at) for at in (4.0, 10.0, 16.0, 22.0)
    ]
    plan = replace(quiet(*events), seconds=30.0)
    assert run_plan(plan).violation is None
    monkeypatch.setattr(Quorum, "_answer", answer_at_once)
    violation = run_plan(plan).violation
    assert violation is not None
    assert violation.invariant == "one leader an epoch"


def test_a_batch_that_a_restart_takes_for_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovery, "_crc_is_right", lambda *_: True)
    world = World(1)
    oracle: Oracle | None = None

    async def main() -> None:
        nonlocal oracle
        made = oracle = Oracle(voters=lambda: (CONTROLLER,))
        cluster = SimulatedCluster(
            world, make_log=lambda node: partial(WatchedLog, oracle=made, node=node)
        )
        await cluster.start()
        client = cluster.client()
        await client.create_topic("t", partitions=1, replication_factor=3)
        leader = await client.leader("t", 0)
        await client.produce("t", 0, [b"one"], acks=-1, node=leader)
        assert made.violation is None
        cluster.crash(1)
        disk = cluster.machine(1).disk
        path = f"/data/t-0/{0:020d}.log"
        disk.corrupt(path, disk.size(path) - 1, b"?")
        cluster.start_node(1)
        await asyncio.wait_for(made.broken.wait(), 30)

    world.run(main)
    assert oracle is not None
    assert oracle.violation is not None
    assert oracle.violation.invariant == "what a restart finds is whole"
