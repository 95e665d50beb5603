"""Three controllers, unmodified, in virtual time: who leads, what is told, what survives.

Goal: the loss of any one controller costs moments, of two only changes of metadata, and no answer
that was given is ever taken back. Method: simulated clusters; controllers are killed, lose power,
are cut off; then topics, epochs and logs are looked at. Times are virtual.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import pytest
from tests.control.control_world import created, creation
from tests.simulation.promises import Promises

from holdfast.node.controller.controller import Controller
from holdfast.runtime.dial import dial
from holdfast.testing.ground.runtime import World
from holdfast.testing.simulated_cluster import CONTROLLER_PORT, SimulatedCluster
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from holdfast.wire.uuids import METADATA_TOPIC_ID

pytestmark = [pytest.mark.turns, pytest.mark.slow]
Story = Callable[[SimulatedCluster], Coroutine[Any, Any, None]]
QUORUM_STATE = "/data/__cluster_metadata-0/quorum-state"


def play(story: Story, *, seed: int = 1, controllers: int = 3, **more: Any) -> None:
    world = World(seed)

    async def main() -> None:
        cluster = SimulatedCluster(world, controllers=controllers, **more)
        await cluster.start()
        await story(cluster)

    world.run(main)


def controller(cluster: SimulatedCluster, node: int) -> Controller:
    found = cluster.nodes[node].controller
    assert found is not None
    return found


def active(cluster: SimulatedCluster) -> int:
    found = cluster.active_controller()
    assert found is not None, "nobody is active"
    return found


async def until_another(cluster: SimulatedCluster, old: int, *, seconds: float = 20) -> int:
    await cluster.until(
        lambda: cluster.active_controller() not in (None, old),
        "another controller is active",
        seconds=seconds,
    )
    return active(cluster)


async def until_agreed(cluster: SimulatedCluster) -> None:
    """Every controller has the same log, all of it committed."""

    def agreed() -> bool:
        ends = set()
        for node in cluster.controllers:
            found = cluster.nodes.get(node)
            if found is None or found.controller is None or found.controller.log is None:
                return False
            ends.add((found.controller.log.end, found.controller.log.committed))
        return len(ends) == 1 and all(end == committed for end, committed in ends)

    await cluster.until(agreed, "the controllers' logs agree")


def isolate(cluster: SimulatedCluster, node: int, *others: int) -> None:
    here = cluster.machine(node).name
    for other in others:
        there = cluster.machine(other).name
        cluster.world.fabric.cut(here, there)
        cluster.world.fabric.cut(there, here)


@pytest.mark.parametrize("controllers", [3, 5])
@pytest.mark.parametrize("power", [False, True])
def test_the_active_controller_is_lost_and_clients_notice_nothing(
    controllers: int, power: bool
) -> None:
    """Seen failing when followers wait for a time-out although the leader's process is gone."""

    async def story(cluster: SimulatedCluster) -> None:
        work = Promises(cluster)
        await work.start()
        loop = asyncio.get_running_loop()
        for _ in range(3):
            old = active(cluster)
            began = loop.time()
            if power:
                cluster.power_cut(old, torn=True)
            else:
                cluster.crash(old)
            await until_another(cluster, old)
            # A machine without power is silent; what a killed process leaves is not.
            assert loop.time() - began < (2.5 if power else 0.5)
            assert not [b.broker_id for b in cluster.image.brokers.values() if b.fenced]
            cluster.start_node(old)
            await asyncio.sleep(3)
        await work.stop()
        await work.check()
        await until_agreed(cluster)
        assert not [b.broker_id for b in cluster.image.brokers.values() if b.fenced]

    play(story, controllers=controllers)


def test_without_two_of_three_only_changes_of_metadata_stop() -> None:
    async def story(cluster: SimulatedCluster) -> None:
        work = Promises(cluster, pause_ms=100)  # for a minute, and only that it goes on
        await work.start()
        await cluster.until(lambda: work.acknowledged > 20, "every producer has its id")
        first, second = cluster.controllers[:2]
        cluster.crash(first)
        cluster.crash(second)
        await asyncio.sleep(20)
        before = work.acknowledged
        await asyncio.sleep(5)
        assert work.acknowledged > before, "leaders go on leading"
        assert cluster.active_controller() is None
        with pytest.raises(OSError, match="no answer"):  # the client is less patient than brokers
            await cluster.client().ask(creation("refused"))
        assert "refused" not in cluster.image.topics
        cluster.start_node(first)
        client = cluster.client()
        await client.until(partial(created, client, "accepted"))
        await work.stop()
        await work.check()

    play(story, config={"replica.lag.time.max.ms": "30000"})


def test_one_that_is_cut_off_resigns_and_decides_nothing_more() -> None:
    """Goal: it still hears brokers, and must not take anything from them for good."""

    async def story(cluster: SimulatedCluster) -> None:
        old = active(cluster)
        epoch = controller(cluster, old).epoch
        isolate(cluster, old, *(node for node in cluster.controllers if node != old))
        asking = asyncio.ensure_future(cluster.client().ask(creation("t")))
        new = await until_another(cluster, old)
        assert controller(cluster, new).epoch > epoch
        await cluster.until(lambda: not controller(cluster, old).active, "it resigns")
        answer = await asyncio.gather(asking, return_exceptions=True)
        log = controller(cluster, old).log
        assert log is not None
        cluster.world.fabric.heal_all()
        await until_agreed(cluster)
        client = cluster.client()
        found = controller(cluster, new).image.topics.get("t")
        given = getattr(answer[0], "topics", None)
        if given and given[0].error_code == ErrorCode.NONE:
            assert found is not None, "answered, and taken back"
            assert found.topic_id == bytes(given[0].topic_id)
        await client.until(partial(created, client, "after"))

    for seed in range(4):
        play(story, seed=seed)


def test_a_machine_that_is_silent_holds_no_search_up() -> None:
    """Brokers ask the others again while one that has no power does not answer.

    Seen failing when a search ends only once every address has answered or timed out.
    """

    async def story(cluster: SimulatedCluster) -> None:
        old = active(cluster)
        cluster.power_cut(next(node for node in cluster.controllers if node != old), torn=False)
        await asyncio.sleep(2)
        began = asyncio.get_running_loop().time()
        cluster.crash(old)
        await until_another(cluster, old)
        client = cluster.client()
        await client.until(partial(created, client, "t"))
        assert asyncio.get_running_loop().time() - began < 0.6

    for seed in range(4):
        play(story, seed=seed, controllers=5)


@pytest.mark.parametrize("one_way", [True, False])
def test_a_cut_link_between_two_controllers_makes_no_elections(one_way: bool) -> None:
    async def story(cluster: SimulatedCluster) -> None:
        old = active(cluster)
        epoch = controller(cluster, old).epoch
        other = next(node for node in cluster.controllers if node != old)
        names = cluster.machine(other).name, cluster.machine(old).name
        cluster.world.fabric.cut(*names)
        if not one_way:
            cluster.world.fabric.cut(*reversed(names))
        await asyncio.sleep(30)
        assert active(cluster) == old
        assert controller(cluster, old).epoch == epoch, "pre-votes disturb nobody"
        client = cluster.client()
        await client.until(partial(created, client, "t"))
        cluster.world.fabric.heal_all()
        await until_agreed(cluster)
        assert controller(cluster, old).epoch == epoch

    play(story)


@pytest.mark.parametrize("torn", [False, True])
def test_what_was_answered_survives_the_power_cut_of_all(torn: bool) -> None:
    """Metadata counts once a majority has synced it; partitions' records make no such promise."""

    async def story(cluster: SimulatedCluster) -> None:
        client = cluster.client()
        known: dict[str, bytes] = {}
        for number in range(4):
            name = f"t{number}"
            known[name] = await client.until(partial(created, client, name))
            for node in cluster.controllers:
                cluster.power_cut(node, torn=torn)
            for node in cluster.controllers:
                cluster.start_node(node)
            await cluster.until(lambda: cluster.active_controller() is not None, "one is active")
            topics = controller(cluster, active(cluster)).image.topics
            assert known == {each: topics[each].topic_id for each in known}
        await until_agreed(cluster)
        assert not cluster.exits

    for seed in range(2):
        play(story, seed=seed)


def test_a_decision_that_was_never_committed_is_never_answered() -> None:
    """The followers hear nothing of it, and the leader dies: whoever asked may not be told yes."""

    async def story(cluster: SimulatedCluster) -> None:
        old = active(cluster)
        others = [node for node in cluster.controllers if node != old]
        isolate(cluster, old, *others)
        client = cluster.client()
        asking = asyncio.ensure_future(client.ask(creation("t")))
        log = controller(cluster, old).log
        assert log is not None
        await cluster.until(lambda: log.end > log.committed, "decided, not committed")
        await asyncio.sleep(0.3)
        assert "t" in controller(cluster, old).image.topics, "its own image runs ahead"
        assert not asking.done()
        cluster.crash(old)
        new = await until_another(cluster, old)
        cluster.world.fabric.heal_all()
        outcome = (await asyncio.gather(asking, return_exceptions=True))[0]
        if not isinstance(outcome, BaseException):
            topic = outcome.topics[0]
            there = controller(cluster, new).image.topics.get("t")
            assert topic.error_code != ErrorCode.NONE or (
                there is not None and there.topic_id == bytes(topic.topic_id)
            )
        cluster.start_node(old)
        await client.until(partial(created, client, "after"))
        await until_agreed(cluster)

    for seed in range(4):
        play(story, seed=seed)


def test_one_that_steps_down_throws_its_memory_away() -> None:
    """What it had decided alone is not in the image from which it follows."""

    async def story(cluster: SimulatedCluster) -> None:
        old = active(cluster)
        isolate(cluster, old, *(node for node in cluster.controllers if node != old))
        client = cluster.client()
        asking = asyncio.ensure_future(client.ask(creation("alone")))
        await cluster.until(lambda: "alone" in controller(cluster, old).image.topics, "decided")
        await cluster.until(lambda: not controller(cluster, old).active, "it resigns")
        await asyncio.sleep(0.1)
        assert "alone" not in controller(cluster, old).image.topics
        cluster.world.fabric.heal_all()
        await asyncio.gather(asking, return_exceptions=True)
        await until_agreed(cluster)
        images = [controller(cluster, node).image for node in cluster.controllers]
        assert len({image.offset for image in images}) == 1
        assert len({frozenset(image.topics) for image in images}) == 1

    play(story)


def test_a_stop_hands_leadership_over_at_once() -> None:
    async def story(cluster: SimulatedCluster) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(3):
            old = active(cluster)
            began = loop.time()
            await cluster.stop(old)
            await until_another(cluster, old)
            assert loop.time() - began < 0.5
            cluster.start_node(old)
            await asyncio.sleep(2)

    play(story)


def test_a_damaged_or_missing_quorum_state_is_refused_by_name() -> None:
    """Forgetting a vote could elect two leaders: there is nothing to fall back on."""

    async def story(cluster: SimulatedCluster) -> None:
        node = next(each for each in cluster.controllers if each != active(cluster))
        for damage in (b"{", b'{"leaderId":1}', b"", None):
            cluster.crash(node)
            disk = cluster.machine(node).disk
            kept = disk.read(QUORUM_STATE)
            if damage is None:
                disk.remove(QUORUM_STATE)
            else:
                disk.write_atomic(QUORUM_STATE, damage)
            known = len(cluster.exits)
            cluster.start_node(node)
            await cluster.until(lambda known=known: len(cluster.exits) > known, "it gives up")  # type: ignore[misc]
            assert QUORUM_STATE in cluster.exits[-1]
            cluster.machine(node).disk.write_atomic(QUORUM_STATE, kept)
            cluster.start_node(node)
            await until_agreed(cluster)

    play(story)


def test_a_controller_whose_loop_has_died_ends() -> None:
    """It would look alive and follow nobody. Seen failing when the mistake is only logged."""

    async def story(cluster: SimulatedCluster) -> None:
        broken = next(node for node in cluster.controllers if node != active(cluster))
        quorum = controller(cluster, broken).quorum
        assert quorum is not None

        def append(_: object) -> ErrorCode:
            raise AssertionError("a mistake of ours")

        quorum.log.append_fetched = append  # type: ignore[method-assign, assignment]
        await cluster.client().create_topic("t")
        await cluster.until(lambda: cluster.failure(broken) is not None, "its process ends")
        assert "a mistake of ours" in str(cluster.failure(broken))
        cluster.crash(broken)
        cluster.start_node(broken)
        await until_agreed(cluster)

    play(story)


def test_only_a_fetch_that_names_its_directory_acknowledges() -> None:
    """A broker in a voter's process has the voter's id; what it read is not on the voter's disk.

    Seen failing when the id alone makes a voter.
    """

    async def story(cluster: SimulatedCluster) -> None:
        old = active(cluster)
        others = [node for node in cluster.controllers if node != old]
        isolate(cluster, old, *others)
        asking = asyncio.ensure_future(cluster.client().ask(creation("t")))
        log = controller(cluster, old).log
        assert log is not None
        await cluster.until(lambda: log.committed < log.durable_end == log.end, "synced here")
        runtime = cluster.world.machine("reader").boot()
        connection = await dial(runtime, cluster.machine(old).name, CONTROLLER_PORT, "reader")
        for directory, counts in ((bytes(16), False), (b"directory-of-one", True)):
            wanted = FetchPartition(
                partition=0,
                fetch_offset=log.end,
                last_fetched_epoch=log.last_epoch,
                partition_max_bytes=1 << 20,
                replica_directory_id=directory,
            )
            request = FetchRequest(
                replica_state=ReplicaState(replica_id=others[0]),
                max_wait_ms=0,
                topics=[FetchTopic(topic_id=METADATA_TOPIC_ID, partitions=[wanted])],
            )
            answer = await connection.send(request)
            assert answer.responses[0].partitions[0].error_code == ErrorCode.NONE
            assert (log.committed == log.end) is counts
        connection.close()
        await asyncio.gather(asking, return_exceptions=True)

    play(story)


def test_brokers_that_are_controllers_too_elect_and_lead() -> None:

    async def story(cluster: SimulatedCluster) -> None:
        client = cluster.client()
        known = {}
        for number in range(3):
            known[f"t{number}"] = await client.until(partial(created, client, f"t{number}"))
            old = active(cluster)
            cluster.crash(old)
            new = await until_another(cluster, old)
            topics = controller(cluster, new).image.topics
            assert known == {each: topics[each].topic_id for each in known}
            cluster.start_node(old)
            await cluster.until_ready(old)
        await until_agreed(cluster)

    play(story, combined=True)
