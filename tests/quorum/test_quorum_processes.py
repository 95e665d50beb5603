"""Three controllers as real processes: the active one is killed, and another is active at once.

Goal: real sockets, real disks, SIGKILL; what was answered is known to the next controller, and to
those that come back. Method: `holdfast up`'s own clusters, one broker, three kills.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from holdfast.clients.blocking_driver import Driver
from holdfast.cluster import LocalCluster
from holdfast.wire.administration import create_topic
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.metadata import MetadataRequest

pytestmark = [pytest.mark.slow, pytest.mark.serial]


FAILOVER_S = 2.0  # what a new active controller may take; it is measured in tens of milliseconds


def create(driver: Driver, name: str) -> None:
    """Create a topic, again until it is answered with success or is there."""
    give_up = time.monotonic() + 30
    asked = create_topic(name, partitions=1, replication_factor=1, timeout_ms=5000)
    while time.monotonic() < give_up:
        code = driver.send(asked.message).topics[0].error_code
        if code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            return
        assert code in (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_CONTROLLER), code
    raise AssertionError(f"{name} could not be created")


def test_the_active_controller_is_killed_three_times(tmp_path: Path) -> None:
    names = []
    with LocalCluster.create(tmp_path / "c", brokers=1, controllers=3, port=0) as cluster:
        cluster.start()
        with Driver(cluster.bootstrap_servers) as driver:
            for number in range(3):
                create(driver, f"before-{number}")
                old = cluster.wait_for_active_controller().leader
                cluster.kill(old)
                new = cluster.wait_for_active_controller(other_than=old, timeout_s=FAILOVER_S)
                assert new.leader != old
                create(driver, f"after-{number}")
                cluster.start_node(old)
                names += [f"before-{number}", f"after-{number}"]
            found = driver.send(MetadataRequest(topics=None)).topics
    assert {topic.name for topic in found} >= set(names)
