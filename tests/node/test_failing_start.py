"""A node that can't start, or of which a part can't be stopped, leaves its disks as after an end.

Method: a node of both roles in a simulated machine is stopped, then something fails.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from tests.control.control_world import CLUSTER_ID

from holdfast.config.node import NodeSettings
from holdfast.log.checkpoints import read_clean_shutdown
from holdfast.log.errors import DirectoryError, StorageError
from holdfast.node.broker.broker import Broker
from holdfast.node.controller.controller import Controller
from holdfast.node.controller.storage_format import format_directories
from holdfast.node.node import Node
from holdfast.runtime.ports import Runtime
from holdfast.testing.ground.disk import DiskFault, MemoryDisk
from holdfast.testing.ground.runtime import World

PROPERTIES = {
    "process.roles": "broker,controller",
    "node.id": "7",
    "listeners": "PLAINTEXT://solo:9092,CONTROLLER://solo:9093",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "7@solo:9093",
    "log.dirs": "/data/a,/data/b",
    "metadata.log.dir": "/data/metadata",
}


def marks(disk: MemoryDisk) -> list[int | None]:
    return [read_clean_shutdown(disk, path) for path in ("/data/a", "/data/b")]


def with_node(
    story: Callable[[Callable[[], Node], MemoryDisk, Node], Coroutine[Any, Any, None]],
) -> None:
    """Run a story with how to make a node, its disk, and one that serves."""
    world = World(1)

    async def main() -> None:
        runtime: Runtime = world.machine("solo").boot()
        settings, _ = NodeSettings.from_properties(PROPERTIES)
        format_directories(
            runtime.disk, runtime.random, settings, CLUSTER_ID, ignore_formatted=True
        )

        def make() -> Node:
            return Node(runtime, settings, machine_name="solo")

        node = make()
        await node.start()
        serving = asyncio.ensure_future(node.serve())
        await node.ready
        serving.cancel()
        assert isinstance(runtime.disk, MemoryDisk)
        await story(make, runtime.disk, node)

    world.run(main)


@pytest.mark.parametrize(
    ("failing", "error"),
    [
        ("/data/metadata/__cluster_metadata-0/quorum-state", StorageError),  # once loaded
        ("/data/metadata/log-start-offset", DirectoryError),  # while loading
    ],
)
@pytest.mark.parametrize("is_stopped", [True, False])
def test_a_start_that_fails_costs_no_directory_its_mark(
    failing: str, error: type[Exception], is_stopped: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen to fail: with `stop` left to errors of the network, and `load` out of its reach.

    The marks were gone for good and the locks were kept: the next start read all logs of all disks
    again, and had no proof of a clean stop for the controller. And with an error of `stop` raised.
    """

    async def story(make: Callable[[], Node], disk: MemoryDisk, node: Node) -> None:
        await node.stop()
        before = marks(disk)
        assert None not in before
        disk.inject(DiskFault(operations={"read"}, prefix=failing))
        if not is_stopped:
            stop = Node.stop

            async def fail(node: Node) -> None:
                await stop(node)
                raise KeyError

            monkeypatch.setattr(Node, "stop", fail)
        with pytest.raises(error):
            await make().start()
        assert marks(disk) == before
        assert not disk._platter.locks

    with_node(story)


def test_a_part_that_can_not_be_stopped_keeps_no_other_one_from_its_end(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Seen to fail: with the broker's error ending `stop`: no log was closed and none unlocked."""

    async def story(_: Callable[[], Node], disk: MemoryDisk, node: Node) -> None:
        async def fail(part: object) -> None:
            raise KeyError(type(part).__name__)

        stop = Broker.stop

        async def stopped(broker: Broker) -> None:
            await stop(broker)
            await fail(broker)

        monkeypatch.setattr(Broker, "stop", stopped)
        monkeypatch.setattr(Controller, "shut_down", fail)
        with pytest.raises(KeyError, match="Broker"):
            await node.stop()
        assert "Controller" in caplog.text
        assert None not in marks(disk)
        assert not disk._platter.locks

    with_node(story)
