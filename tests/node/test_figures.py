"""Goal: a node tells how long its loop was held up, whatever its role, and forgets it in time.

Method: a loop of virtual time whose clock a test moves; then a cluster in memory, asked over the
wire after one of its processes was paused. Seen to fail: with the least kept in place of the worst,
with nothing forgotten, with everything forgotten, and with a controller that answers nothing.
"""

from __future__ import annotations

import asyncio
import errno

import pytest
from tests.control.control_world import play

from holdfast.config.figures import LOG_DIRS_OFFLINE, LOOP_LAG_MS_MAX
from holdfast.config.key import ConfigType
from holdfast.runtime.dial import dial
from holdfast.runtime.loop_lag import INTERVAL_MS, WINDOW_MS, LoopLag
from holdfast.testing.ground.disk import DiskFault
from holdfast.testing.ground.loop import VirtualLoop, run
from holdfast.testing.ground.runtime import World
from holdfast.testing.simulated_client import RetryError
from holdfast.testing.simulated_cluster import (
    BROKER_PORT,
    CONTROLLER,
    CONTROLLER_PORT,
    SimulatedCluster,
)
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
)
from holdfast.wire.structs import ResourceType
from holdfast.wire.well_known import METADATA_TOPIC

PAUSE_S = 7.0


class HeldUp:
    """The loop's time, with what a callback has taken on top of it."""

    def __init__(self) -> None:
        self.held_ms = 0

    def wall_ms(self) -> int:
        raise AssertionError("a lag is no matter of the wall clock")

    def monotonic_ms(self) -> int:
        return round(VirtualLoop.running().now * 1000) + self.held_ms


def test_the_worst_of_the_last_minute_counts() -> None:
    async def story() -> None:
        clock = HeldUp()
        lag = LoopLag(clock)
        lag.start()

        async def held(by_ms: int) -> None:
            clock.held_ms += by_ms
            await asyncio.sleep(2 * INTERVAL_MS / 1000)

        await held(0)
        assert lag.worst_ms() == 0
        await held(80)
        await held(300)
        await held(40)
        assert lag.worst_ms() == 300
        await asyncio.sleep(WINDOW_MS / 2000)
        await held(50)
        assert lag.worst_ms() == 300
        await asyncio.sleep(WINDOW_MS / 2000)
        assert lag.worst_ms() == 50
        await asyncio.sleep(WINDOW_MS / 1000)
        assert lag.worst_ms() == 0
        lag.close()
        assert not VirtualLoop.running().timers()

    run(story)


async def told(
    cluster: SimulatedCluster, node: int, *names: str, of: tuple[ResourceType, str] | None = None
) -> tuple[int, list[DescribeConfigsResourceResult]]:
    """What a node answers of itself, or of the resource that is named."""
    machine = cluster.machine(node).name
    port = CONTROLLER_PORT if node == CONTROLLER else BROKER_PORT
    connection = await dial(cluster.client().runtime, machine, port, "asks")
    kind, name = of or (ResourceType.BROKER, str(node))
    asked = DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=list(names) or None
    )
    answer = await connection.send(DescribeConfigsRequest(resources=[asked]))
    connection.close()
    return answer.results[0].error_code, answer.results[0].configs


def test_brokers_and_controllers_tell_it_to_who_names_it() -> None:
    async def story(cluster: SimulatedCluster) -> None:
        for node in (1, CONTROLLER):
            code, before = await told(cluster, node, LOOP_LAG_MS_MAX)
            assert code == ErrorCode.NONE
            assert [(each.name, each.read_only) for each in before] == [(LOOP_LAG_MS_MAX, True)]
            cluster.machine(node).pause()
            await asyncio.sleep(PAUSE_S)
            cluster.machine(node).resume()
            await asyncio.sleep(1)
            _, after = await told(cluster, node, LOOP_LAG_MS_MAX, "node.id")
            values = {each.name: each.value for each in after}
            assert values["node.id"] == str(node)
            assert int(before[0].value or 0) < PAUSE_S * 500 < int(values[LOOP_LAG_MS_MAX] or 0)
            _, everything = await told(cluster, node)
            assert "node.id" in {each.name for each in everything}
            assert LOOP_LAG_MS_MAX not in {each.name for each in everything}, "it is no setting"

    play(story)


def test_a_node_tells_which_of_its_disks_is_full(caplog: pytest.LogCaptureFixture) -> None:
    """Seen to fail: nothing was told, and the log had the cause once for each of its leaders."""

    async def main() -> None:
        cluster = SimulatedCluster(world, config={"log.dirs": "/data,/more"})
        await cluster.start()
        client = cluster.client()
        await client.create_topic("t", assignments=[[0, 1, 2]] * 2)
        full = DiskFault(operations={"append"}, prefix="/more/", code=errno.ENOSPC)
        cluster.machine(0).disk.inject(full)
        with pytest.raises(RetryError, match="KAFKA_STORAGE_ERROR"):
            await client.produce("t", 1, [b"x"], acks=-1, node=0)
        for node, words in ((0, "/more: the disk is full: No space left on device, "), (1, "")):
            _, found = await told(cluster, node, LOG_DIRS_OFFLINE)
            assert (found[0].value or "").startswith(words)
            assert bool(found[0].value) is bool(words)
            assert found[0].config_type == ConfigType.STRING
        assert len([each for each in caplog.messages if "offline" in each]) == 1

    world = World(1)
    world.run(main)


def test_a_controller_tells_nothing_that_is_not_committed() -> None:
    async def story(cluster: SimulatedCluster) -> None:
        _, own = await told(cluster, CONTROLLER)
        assert all(each.read_only for each in own)
        broker, topic = ResourceType.BROKER, ResourceType.TOPIC
        for other in ((broker, "0"), (broker, ""), (topic, METADATA_TOPIC)):
            code, entries = await told(cluster, CONTROLLER, of=other)
            assert (code, entries) == (ErrorCode.INVALID_REQUEST, [])

    play(story)
