"""What a broker does about a replica that lies where the metadata does not place it."""

from __future__ import annotations

import asyncio

import pytest
from tests.log.log_kit import (
    TOPIC_ID,
    crash,
    memory_disk,
    open_directories,
    small_settings,
    virtual,
)

from holdfast.core.metadata.image import UNASSIGNED_DIRECTORY, MetadataImage
from holdfast.log.copies import KNOWN_DIRECTORIES
from holdfast.node.broker.controller_channel import ControllerAddress, ControllerChannel
from holdfast.node.broker.registration import Registration
from holdfast.node.broker.replica_directories import Assignments
from holdfast.runtime.ports import Runtime
from holdfast.testing.ground.disk import DiskFault
from holdfast.wire.records import metadata as records

PATHS = ("/one", "/two")


@pytest.mark.parametrize(
    ("recorded", "missing", "claimed"),
    [
        ("/two", True, True),
        ("nowhere yet", True, True),
        ("/one", True, False),
        ("/two", False, False),  # there is no copy in it: that was seen at the start
        ("a disk that log.dirs names no more", False, True),
        ("nowhere yet", False, False),
    ],
)
def test_it_is_claimed_while_a_copy_may_be_out_of_reach(
    recorded: str, missing: bool, claimed: bool
) -> None:
    """Seen to fail with the claim left out, and with it made in every case."""

    async def body(runtime: Runtime) -> None:
        directories = open_directories(runtime, PATHS)
        ids = {each.path: each.directory_id for each in directories.directories}
        ids["nowhere yet"] = UNASSIGNED_DIRECTORY
        ids["a disk that log.dirs names no more"] = bytes(range(16))
        log = directories.create("t", 0, TOPIC_ID, small_settings())
        assert log.home.path == "/one"
        await log.flush()
        crash(directories)
        if missing:
            memory_disk(runtime).inject(DiskFault(operations={"lock"}, prefix="/two"))
        directories = open_directories(runtime, PATHS)
        image = MetadataImage()
        image.apply(
            [
                records.TopicRecord(name="t", topic_id=TOPIC_ID),
                records.PartitionRecord(
                    partition_id=0,
                    topic_id=TOPIC_ID,
                    replicas=[1],
                    isr=[1],
                    leader=1,
                    leader_epoch=0,
                    partition_epoch=0,
                    directories=[ids[recorded]],
                ),
            ]
        )
        channel = ControllerChannel(runtime, [ControllerAddress(0, "controller", 1)], client_id="1")
        assignments = Assignments(channel, Registration(1, epoch=1), image, directories)
        assignments.look([(TOPIC_ID, 0)])
        await asyncio.sleep(0.1)
        assert runtime.disk.exists(f"{log.directory}/{KNOWN_DIRECTORIES}") is claimed
        assignments.close()
        await channel.close()

    virtual(body)
