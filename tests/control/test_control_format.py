"""Goal: `storage format` makes directories of one cluster and one node, and touches no other.

Method: a disk in memory.
"""

from __future__ import annotations

import pytest
from tests.control.control_world import CLUSTER_ID

from holdfast.config.node import NodeSettings
from holdfast.core.metadata.feature_levels import BOOTSTRAP, has_consumer_protocol
from holdfast.log.checkpoints import read_meta_properties
from holdfast.node.controller.bootstrap_checkpoint import BOOTSTRAP_FILE, bootstrap_levels
from holdfast.node.controller.storage_format import (
    Beginning,
    FormatError,
    format_directories,
    random_cluster_id,
)
from holdfast.node.metadata.metadata_log import MetadataLogError
from holdfast.testing.ground.disk import MemoryDisk
from holdfast.testing.ground.runtime import SeededRandom
from holdfast.wire.well_known import ELIGIBLE_LEADER_REPLICAS, GROUP_VERSION

OFF = {ELIGIBLE_LEADER_REPLICAS: 0}
SETTINGS = NodeSettings(node_id=3, log_dirs=("/x/a", "/x/b"), metadata_log_dir="/y/m")


def _disk() -> MemoryDisk:
    return MemoryDisk("seed", now_ms=lambda: 0)


def test_every_directory_gets_an_id_of_its_own() -> None:
    disk, random = _disk(), SeededRandom(1)
    done = format_directories(disk, random, SETTINGS, CLUSTER_ID)
    assert [(each.directory, each.fresh) for each in done] == [
        ("/x/a", True),
        ("/x/b", True),
        ("/y/m", True),
    ]
    found = [read_meta_properties(disk, each.directory) for each in done]
    assert all(each is not None and each.cluster_id == CLUSTER_ID for each in found)
    assert all(each is not None and each.node_id == 3 for each in found)
    assert len({each.directory_id for each in found if each is not None}) == 3


def test_a_power_cut_right_after_takes_nothing_away() -> None:
    disk = _disk()
    format_directories(disk, SeededRandom(1), SETTINGS, CLUSTER_ID)
    after = disk.power_cut()
    for directory in ("/x/a", "/x/b", "/y/m"):
        assert read_meta_properties(after, directory) is not None


def test_formatted_directories_are_left_alone() -> None:
    disk, random = _disk(), SeededRandom(1)
    format_directories(disk, random, SETTINGS, CLUSTER_ID)
    before = disk.read("/x/a/meta.properties")
    with pytest.raises(FormatError, match="--ignore-formatted"):
        format_directories(disk, random, SETTINGS, CLUSTER_ID)
    done = format_directories(disk, random, SETTINGS, CLUSTER_ID, ignore_formatted=True)
    assert not any(each.fresh for each in done)
    assert disk.read("/x/a/meta.properties") == before


def test_a_refusal_formats_nothing_at_all() -> None:
    disk, random = _disk(), SeededRandom(1)
    one = SETTINGS.replace(log_dirs=("/x/b",), metadata_log_dir="/x/b")
    format_directories(disk, random, one, CLUSTER_ID)
    with pytest.raises(FormatError):
        format_directories(disk, random, SETTINGS, CLUSTER_ID)
    assert not disk.exists("/x/a")


@pytest.mark.parametrize(
    ("node_id", "cluster_id", "text"),
    [
        (4, CLUSTER_ID, "belongs to node 3, not 4"),
        (3, random_cluster_id(SeededRandom(2)), "belongs to cluster"),
        (3, "too short", "random-uuid"),
    ],
)
def test_strangers_are_refused_even_then(node_id: int, cluster_id: str, text: str) -> None:
    disk, random = _disk(), SeededRandom(1)
    format_directories(disk, random, SETTINGS, CLUSTER_ID)
    with pytest.raises(FormatError, match=text):
        format_directories(
            disk, random, SETTINGS.replace(node_id=node_id), cluster_id, ignore_formatted=True
        )


def test_a_controller_may_begin_with_other_features() -> None:
    disk = _disk()
    assert bootstrap_levels(disk, SETTINGS) == BOOTSTRAP, "not formatted: the usual ones"
    format_directories(disk, SeededRandom(1), SETTINGS, CLUSTER_ID, Beginning(OFF))
    kept = {name: level for name, level in BOOTSTRAP.items() if name not in OFF}
    assert bootstrap_levels(disk, SETTINGS) == kept
    assert has_consumer_protocol(kept)
    classic = _disk()
    format_directories(
        classic, SeededRandom(1), SETTINGS, CLUSTER_ID, Beginning({GROUP_VERSION: 0})
    )
    assert not has_consumer_protocol(bootstrap_levels(classic, SETTINGS))
    path = f"{SETTINGS.metadata_log_dir}/{BOOTSTRAP_FILE}"
    for spoilt in range(0, disk.size(path), 7):
        damaged = _disk()
        format_directories(damaged, SeededRandom(1), SETTINGS, CLUSTER_ID, Beginning(OFF))
        damaged.corrupt(path, spoilt, b"\xee")
        with pytest.raises(MetadataLogError, match=BOOTSTRAP_FILE):
            bootstrap_levels(damaged, SETTINGS)


@pytest.mark.parametrize(
    ("features", "says"),
    [
        ({"no.such": 1}, "no feature"),
        ({ELIGIBLE_LEADER_REPLICAS: 2}, "0 to 1"),
        ({GROUP_VERSION: 2}, "0 to 1"),
    ],
)
def test_features_that_are_not_there_are_refused(features: dict[str, int], says: str) -> None:
    disk = _disk()
    with pytest.raises(FormatError, match=says):
        format_directories(disk, SeededRandom(1), SETTINGS, CLUSTER_ID, Beginning(features))
    assert not disk.exists(SETTINGS.metadata_log_dir), "nothing was written"
