"""More of replication's known traps, each at the one moment that matters.

Goal: what has lost, doubled or blocked something in a Kafka-like system once does not here. Method:
unmodified nodes on the virtual-time loop; links are cut, clogged or reset and processes killed or
paused. Each test says with which fix taken out it was seen to fail.
Rules: losses.md#jepsen, losses.md#replication-traps.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.simulation.promises import Promises
from tests.simulation.test_sim_traps import LAG_S, SESSION_S, Stage, play

from holdfast.log.log import Log
from holdfast.node.broker.leading_replica import LeadingReplica
from holdfast.testing.ground.links import Weather
from holdfast.testing.ground.runtime import World
from holdfast.testing.simulated_client import AnswerError, ClusterClient
from holdfast.testing.simulated_cluster import CONTROLLER, SimulatedCluster
from holdfast.wire.batch_header import read_header
from holdfast.wire.errors import ErrorCode


def log_of(stage: Stage, broker: int) -> Log:
    found = stage.cluster.nodes[broker].directories.get("t", 0)
    assert found is not None
    return found


def isr(stage: Stage) -> tuple[int, ...]:
    found = stage.cluster.image.partition("t", 0)
    assert found is not None
    return tuple(found.isr)


def test_followers_keep_what_lies_above_their_high_watermark() -> None:
    """KIP-101, KAFKA-1211: a follower's high watermark lags; cutting to it loses what all had.

    Two leaders die one after the other, and the third has heard from neither what is committed.
    Seen to fail: `Partition.follow` truncates to the high watermark.
    """

    async def scenario(stage: Stage) -> None:
        await stage.produce(b"a")
        await stage.produce(b"b")
        assert [log_of(stage, n).end for n in (0, 1, 2)] == [2, 2, 2]
        assert log_of(stage, 2).high_watermark < 2, "it learns that with its next fetch"
        stage.cut_brokers(1, 2)
        stage.cluster.crash(0)
        await stage.until_leader(1)
        stage.cluster.crash(1)
        await stage.until_leader(2)
        stage.world.fabric.heal_all()
        for broker in (0, 1):
            await stage.restart(broker)
        await stage.until_isr(0, 1, 2)
        assert await stage.values() == [b"a", b"b"]
        assert len(set(stage.copies())) == 1

    play(scenario)


def test_three_quick_elections_leave_no_dirty_suffix() -> None:
    """KIP-279, KAFKA-6361: leaders 0, 1, 2, 0, each with a suffix of its own or with none.

    Who comes back asks for an epoch that the leader never had, at an offset that it has.
    Seen to fail: `fetch_request` says -1 for the last fetched epoch.
    """

    async def scenario(stage: Stage) -> None:
        await stage.produce(b"a")
        stage.cut_brokers(0, 1, 2, CONTROLLER)
        await stage.client.produce("t", 0, [b"dirty in epoch 0"], acks=1, node=0)
        await stage.until_leader(1)
        stage.cut_brokers(1, 2)
        await stage.client.leader("t", 0)
        await stage.client.produce("t", 0, [b"dirty", b"in epoch 1"], acks=1, node=1)
        stage.cluster.crash(1)
        await stage.until_leader(2)
        stage.world.fabric.heal_all()
        await stage.until_isr(0, 2)
        await stage.cluster.stop(2)
        await stage.until_leader(0)
        await stage.client.leader("t", 0)
        for value in (b"b", b"c", b"d", b"e"):
            await stage.client.produce("t", 0, [value], acks=1, node=0)
        await stage.restart(1)
        await stage.restart(2)
        await stage.until_isr(0, 1, 2)
        assert await stage.values() == [b"a", b"b", b"c", b"d", b"e"]
        assert len(set(stage.copies())) == 1

    play(scenario)


def test_a_follower_below_the_new_epoch_s_start_does_not_join() -> None:
    """KAFKA-7128: a new leader's high watermark lags, so that "holds all below it" says too little.

    Broker 2 has one record of eleven. Broker 1, just elected, has all, but as long as it hears
    nothing of broker 3 it knows only of the first one that it is committed.
    Seen to fail: `Leader.may_join` compares with the high watermark alone.
    """
    world = World(1)

    async def main() -> None:
        cluster = SimulatedCluster(world, brokers=4)
        await cluster.start()
        client = cluster.client()
        await client.create_topic("u", assignments=[[0, 1, 3, 2]])
        fabric = world.fabric

        def cut(broker: int, *others: int) -> None:
            for other in others:
                fabric.cut(f"broker-{broker}", f"broker-{other}")
                fabric.cut(f"broker-{other}", f"broker-{broker}")

        def members() -> tuple[int, ...]:
            found = cluster.image.partition("u", 0)
            assert found is not None
            return tuple(found.isr)

        def log(broker: int) -> Log:
            found = cluster.nodes[broker].directories.get("u", 0)
            assert found is not None
            return found

        await client.leader("u", 0)
        await client.produce("u", 0, [b"a"], acks=-1, node=0)
        await asyncio.sleep(1)
        cut(2, 0, 1, 3)
        await client.produce("u", 0, [b"x" * 20_000] * 10, acks=1, node=0)
        await cluster.until(lambda: log(0).high_watermark == 11, "all is committed")
        assert members() == (0, 1, 3)
        cut(1, 3)
        cluster.crash(0)
        await cluster.until(lambda: members() == (1, 3), "broker 1 leads")
        assert (log(1).high_watermark, log(1).end, log(2).end) == (1, 11, 1)
        # Its fetches get through; what they are answered takes longer than it waits for it.
        fabric.change_weather("broker-1", "broker-2", Weather(bytes_per_s=20_000))
        for one, other in (("broker-1", "broker-2"), ("broker-2", "broker-1")):
            fabric.heal(one, other)
        for _ in range(30):
            await asyncio.sleep(0.1)
            assert log(1).high_watermark == log(2).end == 1
            assert 2 not in members(), "it lacks what is committed"
        fabric.change_weather("broker-1", "broker-2", None)
        fabric.heal_all()
        await cluster.until(lambda: 2 in members(), "it has caught up")
        assert log(2).end == 11

    world.run(main)


def test_under_min_isr_a_laggard_does_not_flap() -> None:
    """KAFKA-19996: with the high watermark frozen everybody "holds all that is committed".

    Seen to fail: `Leader.may_join` does not ask for the follower to be caught up.
    """

    async def scenario(stage: Stage) -> None:
        await stage.produce(b"a")
        stage.cut_brokers(0, 1, 2)
        await stage.client.leader("t", 0)
        for _ in range(40):
            await stage.client.produce("t", 0, [b"x" * 10_000], acks=1, node=0)
        await stage.until_isr(0)
        # One follower comes back over a line on which it takes 20 s to catch up.
        fabric = stage.world.fabric
        fabric.change_weather("broker-0", "broker-1", Weather(bytes_per_s=20_000))
        for one, other in (("broker-0", "broker-1"), ("broker-1", "broker-0")):
            fabric.heal(one, other)
        changes: set[tuple[int, ...]] = set()
        for _ in range(2 * LAG_S * 10):
            await asyncio.sleep(0.1)
            if log_of(stage, 1).end < log_of(stage, 0).end:
                changes.add(isr(stage))
        assert changes == {(0,)}
        fabric.change_weather("broker-0", "broker-1", None)
        fabric.heal_all()
        await stage.until_isr(0, 1, 2)

    play(scenario)


def test_a_leader_that_was_voted_out_acknowledges_nothing() -> None:
    """KAFKA-20634: its offsets fill with other records, and its high watermark passes them.

    The append is parked until long after that. Seen to fail: `Partition.acknowledgement` says NONE
    where nobody leads any more.
    """

    async def scenario(stage: Stage) -> None:
        await stage.produce(b"a")
        patient = stage.cluster.client("patient")
        patient._timeout_ms = 120_000
        await patient.leader("t", 0)
        stage.cut_brokers(0, 1, 2, CONTROLLER)
        parked = asyncio.get_running_loop().create_task(
            patient.produce("t", 0, [b"lost"], acks=-1, node=0)
        )
        await stage.until_leader(1)
        await stage.produce(b"b")
        await stage.produce(b"c")
        assert not parked.done()
        stage.world.fabric.heal_all()
        with pytest.raises(AnswerError) as caught:
            await parked
        assert caught.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        await stage.until_isr(0, 1, 2)
        assert await stage.values() == [b"a", b"b", b"c"]

    play(scenario)


def test_a_zombie_leader_acknowledges_nothing_that_it_can_t_keep() -> None:
    """SIGSTOP for longer than the session, with an append in its socket, then SIGCONT.

    Seen to fail: `Leader.acknowledgement` compares with the log end.
    """

    async def scenario(stage: Stage) -> None:
        await stage.produce(b"a")
        patient = stage.cluster.client("patient")
        patient._timeout_ms = 120_000
        await patient.leader("t", 0)
        stage.cluster.machine(0).pause()
        late = asyncio.get_running_loop().create_task(
            patient.produce("t", 0, [b"from before"], acks=-1, node=0)
        )
        await stage.until_leader(1)
        await stage.produce(b"b")
        assert not late.done()
        stage.cluster.machine(0).resume()
        with pytest.raises((AnswerError, OSError)):
            await late
        await stage.until_isr(0, 1, 2)
        assert await stage.values() == [b"a", b"b"]
        assert len(set(stage.copies())) == 1

    play(scenario)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_answers_that_get_lost_double_nothing(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Redpanda 3039: an idempotent producer repeats what was appended, and its leader changes.

    Seen to fail: `Producers.check` takes a duplicate for a new batch.
    """

    async def scenario(stage: Stage) -> None:
        world: World = stage.world
        sent: list[int] = []  # the sequence of each attempt
        produce = ClusterClient.produce_batch

        async def noted(client: ClusterClient, topic: str, *rest: Any, **named: Any) -> int:
            sent.append(read_header(rest[1]).base_sequence)
            return await produce(client, topic, *rest, **named)

        monkeypatch.setattr(ClusterClient, "produce_batch", noted)
        work = Promises(stage.cluster, partitions=1)
        await work.start()

        async def disturb() -> None:
            while True:
                await asyncio.sleep(world.random.random() * 0.05)
                for broker in (0, 1, 2):
                    world.fabric.reset("client", f"broker-{broker}")

        trouble = asyncio.get_running_loop().create_task(disturb())
        await stage.cluster.until(lambda: work.acknowledged > 60, "half of it")
        stage.cluster.crash(0)
        await stage.cluster.until(lambda: work.acknowledged > 120, "the other half")
        trouble.cancel()
        await stage.restart(0)
        await stage.until_isr(0, 1, 2)
        await work.stop()
        assert len(sent) > len(set(sent)), "some were sent again"
        await work.check()

    play(scenario, seed)


def test_a_fetch_from_before_the_restart_counts_for_nothing() -> None:
    """KIP-903, KAFKA-14139: an empty disk under a known broker, and a fetch that was on its way.

    The fetch says "I have all" and arrives after the broker has come back with nothing. Seen to
    fail: neither `Follower.may_count` nor the controller nor the fetch's check look at the epoch.
    """

    async def scenario(stage: Stage) -> None:
        await stage.produce(*(b"%d" % n for n in range(20)))
        fabric = stage.world.fabric
        await asyncio.sleep(2 * SESSION_S)
        stage.cluster.crash(1)
        stage.cluster.machine(1).wipe_disk()
        await stage.until_isr(0, 2)
        # What it fetched last is as good as new to the leader, were it not for the epoch.
        leader = stage.cluster.nodes[0].broker
        assert leader is not None
        partition = leader.partitions.leading("t", 0)
        assert isinstance(partition, LeadingReplica)
        old = partition.state.followers[1]
        epoch, end = old.broker_epoch, old.log_end
        stage.cluster.start_node(1)
        fabric.clog("broker-1", "broker-0", 4)  # it is heard by the controller only
        await stage.cluster.until(
            lambda: stage.cluster.image.brokers[1].epoch > epoch, "it is registered anew"
        )
        now_ms = stage.cluster.machine(0).clock.monotonic_ms
        partition.state.fetched(1, end, 0, epoch, now_ms())
        for _ in range(20):
            await asyncio.sleep(0.1)
            assert partition.state.propose_join(1, now_ms()) is None
            assert 1 not in isr(stage)
        await stage.until_isr(0, 1, 2)
        assert log_of(stage, 1).end == 20

    play(scenario)
