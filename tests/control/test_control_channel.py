"""Goal: the channel finds a controller, heals, and says so in time when there is none.

Method: a controller and a channel on two simulated machines.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from tests.control.control_world import leads

from holdfast.node.broker.controller_channel import (
    WAITING_MAX,
    ControllerAddress,
    ControllerChannel,
    ControllerUnavailableError,
)
from holdfast.testing.ground.runtime import World
from holdfast.testing.simulated_cluster import CONTROLLER, CONTROLLER_PORT, SimulatedCluster
from holdfast.wire.messages.describe_cluster import DescribeClusterRequest

HERE = ControllerAddress(CONTROLLER, "controller", CONTROLLER_PORT)
NOWHERE = ControllerAddress(-1, "controller", 1)
QUESTION = DescribeClusterRequest(endpoint_type=2)
Story = Callable[[SimulatedCluster, ControllerChannel], Coroutine[Any, Any, None]]


def _play(story: Story, *addresses: ControllerAddress) -> None:
    world = World(1)

    async def main() -> None:
        cluster = SimulatedCluster(world, brokers=0)
        runtime = world.machine("asker").boot()
        channel = ControllerChannel(
            runtime, addresses or [HERE], client_id="asker", request_timeout_ms=2000
        )
        await story(cluster, channel)
        await channel.close()

    world.run(main)


async def _up(cluster: SimulatedCluster) -> None:
    cluster.start_node(CONTROLLER)
    await cluster.until(lambda: leads(cluster), "the controller leads")


def test_what_is_asked_before_there_is_a_controller_waits_for_it() -> None:
    async def story(cluster: SimulatedCluster, channel: ControllerChannel) -> None:
        channel.start()
        asked = channel.send(QUESTION)
        await asyncio.sleep(1)
        assert not asked.done()
        await _up(cluster)
        assert (await asked).controller_id == CONTROLLER
        assert channel.connected

    _play(story)


def test_without_a_controller_it_says_so_when_the_time_is_over() -> None:
    async def story(_cluster: SimulatedCluster, channel: ControllerChannel) -> None:
        channel.start()
        loop = asyncio.get_running_loop()
        began = loop.time()
        with pytest.raises(ControllerUnavailableError, match="controller:9093"):
            await channel.send(QUESTION, timeout_ms=700)
        assert 0.7 <= loop.time() - began < 0.8

    _play(story)


def test_the_next_address_is_tried() -> None:
    async def story(cluster: SimulatedCluster, channel: ControllerChannel) -> None:
        await _up(cluster)
        channel.start()
        assert (await channel.send(QUESTION)).controller_id == CONTROLLER

    _play(story, NOWHERE, HERE)


def test_who_follows_is_asked_again_over_the_same_connection() -> None:
    """Goal: an election is no flood of connections. Method: two of three voters are down."""
    dialled = 0

    async def main() -> None:
        nonlocal dialled
        cluster = SimulatedCluster(world, brokers=0, controllers=3)
        cluster.start_node(CONTROLLER)
        await cluster.until(lambda: cluster.quorum_of(CONTROLLER) is not None, "one of them is up")
        runtime = world.machine("asker").boot()
        network, connect = runtime.network, runtime.network.connect

        async def count(factory: Any, host: str, port: int) -> Any:
            nonlocal dialled
            dialled += 1
            return await connect(factory, host, port)

        network.connect = count  # type: ignore[method-assign]
        channel = ControllerChannel(runtime, [HERE], client_id="asker")
        channel.start()
        await asyncio.sleep(5)
        assert not channel.connected
        await channel.close()

    world = World(1)
    world.run(main)
    assert dialled == 1


def test_a_lost_connection_fails_what_was_written_and_heals() -> None:
    async def story(cluster: SimulatedCluster, channel: ControllerChannel) -> None:
        await _up(cluster)
        channel.start()
        await channel.send(QUESTION)
        asked = channel.send(QUESTION)
        cluster.crash(CONTROLLER)
        with pytest.raises(ControllerUnavailableError):  # never twice: it may have been done
            await asked
        await _up(cluster)
        assert (await channel.send(QUESTION)).controller_id == CONTROLLER

    _play(story)


def test_the_log_says_once_a_minute_that_the_connection_is_lost(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Seen to fail: strangers at a controller's port broke it all the time, each with a line."""

    async def story(cluster: SimulatedCluster, channel: ControllerChannel) -> None:
        await _up(cluster)
        channel.start()
        for _ in range(5):
            await channel.send(QUESTION)
            channel.drop()
            await cluster.until(lambda: not channel.connected, "it is lost")

    caplog.set_level("INFO", "holdfast.channel")
    _play(story)
    assert [each for each in caplog.messages if "lost" in each] == [
        "the connection to the controller is lost"
    ]


def test_a_silent_controller_costs_one_time_out() -> None:
    async def story(cluster: SimulatedCluster, channel: ControllerChannel) -> None:
        await _up(cluster)
        channel.start()
        await channel.send(QUESTION)
        cluster.world.fabric.cut("controller", "asker")
        with pytest.raises(ControllerUnavailableError):
            await channel.send(QUESTION, timeout_ms=500)
        cluster.world.fabric.heal_all()
        assert (await channel.send(QUESTION)).controller_id == CONTROLLER

    _play(story)


def test_the_number_of_those_who_wait_is_bounded() -> None:
    async def story(_cluster: SimulatedCluster, channel: ControllerChannel) -> None:
        channel.start()
        waiting = [channel.send(QUESTION) for _ in range(WAITING_MAX)]
        with pytest.raises(ControllerUnavailableError, match="too many"):
            await channel.send(QUESTION)
        await channel.close()
        outcomes = await asyncio.gather(*waiting, return_exceptions=True)
        assert all(isinstance(each, ControllerUnavailableError) for each in outcomes)
        with pytest.raises(ControllerUnavailableError, match="shutting down"):
            await channel.send(QUESTION)

    _play(story)
