"""Goal: `storage format` writes the voters that a cluster begins with, and refuses what can't be.

Method: memory disks, and the reader of snapshots.
"""

from __future__ import annotations

import pytest

from holdfast.config.key import ConfigError
from holdfast.config.node import NodeSettings
from holdfast.core.metadata.image_records import SnapshotId
from holdfast.core.quorum.voter_changes import voters_of
from holdfast.core.quorum.voter_set import Voter
from holdfast.log.checkpoints import read_meta_properties
from holdfast.node.controller.storage_format import Beginning, FormatError, format_directories
from holdfast.node.metadata.snapshot_format import SnapshotReader
from holdfast.node.quorum.initial_voters import own_voter, parse_initial_controllers
from holdfast.testing.ground.disk import MemoryDisk
from holdfast.testing.ground.runtime import SeededRandom
from holdfast.wire.uuids import uuid_text

CLUSTER_ID = "S6zsVBQdQz6WrYmHb7WaQQ"
BEGINNING = "/data/__cluster_metadata-0/00000000000000000000-0000000000.checkpoint"
DIRECTORY = bytes(range(16))
INITIAL = f"1@one:9093:{uuid_text(DIRECTORY)},2@two:9093:{uuid_text(DIRECTORY[::-1])}"


def settings_of(**more: str) -> NodeSettings:
    properties = {
        "node.id": "1",
        "process.roles": "controller",
        "log.dirs": "/data",
        "listeners": "CONTROLLER://one:9093",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": "one:9093",
        **{key.replace("_", "."): value for key, value in more.items()},
    }
    return NodeSettings.from_properties({k: v for k, v in properties.items() if v})[0]


def test_of_several_listeners_the_first_name_counts() -> None:
    """Whoever reads a voters' record chooses so, too; else this node would seem to have moved.

    Seen failing when the first listener counts.
    """
    settings = settings_of(
        listeners="SECOND://two:9094,FIRST://one:9093",
        controller_listener_names="FIRST,SECOND",
        listener_security_protocol_map="FIRST:PLAINTEXT,SECOND:PLAINTEXT",
    )
    assert own_voter(settings, DIRECTORY) == Voter(1, "one", 9093, DIRECTORY)


def test_standalone_and_initial_controllers() -> None:
    for initial in (None, INITIAL):
        disk = MemoryDisk("seed", now_ms=lambda: 0)
        format_directories(
            disk,
            SeededRandom(1),
            settings_of(),
            CLUSTER_ID,
            Beginning(
                standalone=initial is None,
                initial_controllers=parse_initial_controllers(initial) if initial else None,
            ),
        )
        own = read_meta_properties(disk, "/data")
        assert own is not None
        reader = SnapshotReader(SnapshotId(0, 0), BEGINNING)
        reader.feed(disk.read(BEGINNING))
        assert not reader.finish().topics
        assert reader.kraft_version == 1
        assert reader.voters is not None
        voters = voters_of(reader.voters, ["CONTROLLER"])
        assert voters.find(1) == Voter(1, "one", 9093, own.directory_id)
        assert voters.ids == ((1, 2) if initial else (1,))
        if initial:
            assert own.directory_id == DIRECTORY


@pytest.mark.parametrize(
    ("changed", "standalone", "initial", "why"),
    [
        ({"controller_quorum_voters": "1@one:9093"}, True, "", "without controller.quorum.voters"),
        ({"listeners": "CONTROLLER://:9093"}, True, "", "can be reached"),
        ({}, True, INITIAL, "exclude each other"),
        ({}, False, INITIAL.replace("1@", "3@"), "not one of the initial controllers"),
        ({}, False, INITIAL.replace("one:9093", "one:9094"), "listens on one:9093"),
    ],
)
def test_refusals(changed: dict[str, str], standalone: bool, initial: str, why: str) -> None:
    disk = MemoryDisk("seed", now_ms=lambda: 0)
    with pytest.raises(FormatError, match=why):
        format_directories(
            disk,
            SeededRandom(1),
            settings_of(**changed),
            CLUSTER_ID,
            Beginning(
                standalone=standalone,
                initial_controllers=parse_initial_controllers(initial) if initial else None,
            ),
        )
    assert not disk.exists("/data/meta.properties")


@pytest.mark.parametrize("text", ["", "1@one:9093", "one:9093:AAAA", f"{INITIAL},{INITIAL}"])
def test_what_is_no_list_of_controllers(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_initial_controllers(text)
