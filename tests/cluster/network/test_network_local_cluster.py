"""Goal: a local cluster in a network is hurt, watched and ended like any other, and cut besides.

Method: `LocalCluster` itself, as a test or the lab uses it; a producer outside, which comes in by
doors. A leader is isolated and the observer sees on both sides; nodes are killed and come back into
their places; the network is killed; the command that makes all that is killed at any moment.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from tests.cluster.network.conftest import MARK, marked_processes, nothing_is_left
from tests.cluster.waiting import wait_for_leader

from holdfast.clients.blocking_driver import Driver
from holdfast.cluster import ClusterError, LocalCluster, probe
from holdfast.cluster.network import ground, possible
from holdfast.cluster.network.possible import Possibility
from holdfast.cluster.probe import PartitionState
from holdfast.cluster.processes import State, wait_until
from holdfast.wire.administration import create_topic

pytestmark = [pytest.mark.serial, pytest.mark.slow]

PATIENCE_S = 60.0


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cluster's directory; in the end none of its processes is left, and no network."""
    monkeypatch.setenv(MARK, str(tmp_path))
    yield tmp_path / "cluster"
    network = tmp_path / "cluster" / "network"
    network.mkdir(parents=True, exist_ok=True)  # where it has not come to that
    nothing_is_left(str(tmp_path), network)


def needs_namespaces(possibility: Possibility) -> None:
    if possibility.how != possible.NAMESPACES:
        pytest.skip(f"no network namespaces here: {possibility.reason}")


def make_topic(cluster: LocalCluster) -> int:
    """Create the topic, and return who leads it: 0, whom commands would ask first."""
    asked = create_topic("t", assignment={0: [0, 1, 2]}, timeout_ms=20_000)
    with Driver(cluster.bootstrap_servers) as driver:
        driver.perform(asked, node="controller")
    return wait_for_leader(cluster, "t", 0).leader


def produce(producer: Producer, values: range) -> None:
    """Produce these and wait until each is acknowledged by all in sync."""
    failed: list[Any] = []

    def delivered(error: Any, _: Any) -> None:
        if error is not None:
            failed.append(error)

    for value in values:
        producer.produce("t", str(value), partition=0, on_delivery=delivered)
    assert producer.flush(PATIENCE_S) == 0
    assert failed == []


def read_all(bootstrap: str, count: int) -> list[int]:
    options = {"bootstrap.servers": bootstrap, "group.id": "g", "auto.offset.reset": "earliest"}
    consumer = Consumer(options)
    try:
        consumer.assign([TopicPartition("t", 0, 0)])
        return [int(each.value()) for each in consumer.consume(count, timeout=PATIENCE_S)]
    finally:
        consumer.close()


def seen_by(cluster: LocalCluster, node: int) -> PartitionState:
    """Return the topic's partition as this broker shows it to the observer."""
    found = probe.ask(cluster.node(node).watch_address, ["t"])
    assert found is not None
    return found.topics["t"][0]


def isolate_leader(cluster: LocalCluster) -> tuple[int, int]:
    """Cut the leader from all: another one leads, and the observer sees both. Returns the two."""
    leader = make_topic(cluster)
    bootstrap = cluster.bootstrap_servers
    # So long a client waits for a leader that hears nothing, before it asks who leads now.
    options = {"socket.timeout.ms": 3000, "enable.idempotence": True, "acks": "all"}
    producer = Producer({"bootstrap.servers": bootstrap, **options})
    produce(producer, range(5))
    cluster.links().isolate(str(leader))
    produce(producer, range(5, 10))
    # Who is cut off answers the observer, but the cluster knows better than it.
    now = wait_for_leader(cluster, "t", 0, other_than=leader)
    alone = seen_by(cluster, leader)
    assert alone.leader == leader, "it can't know, and still believes that it leads"
    assert alone.leader_epoch < now.leader_epoch
    seen = cluster.status()
    assert {each.node.id for each in seen.nodes if not each.serving} == {leader}
    assert seen.broken_links
    assert seen.under_replicated == 1
    (found,) = [each for each in seen.nodes if each.node.id == leader]
    assert found.state is State.RUNNING
    assert found.figures, "it still tells of itself, by the observer's way"
    return leader, now.leader


def heal(cluster: LocalCluster, before: int, now: int) -> None:
    """Make all links whole: the old leader follows, and nothing is lost. Then lose an answer."""
    bootstrap = cluster.bootstrap_servers
    cluster.links().heal()
    wait_until(
        lambda: (it := seen_by(cluster, before)).leader == now and len(it.isr) == 3,
        timeout_s=PATIENCE_S,
        what="all three in sync, which the old leader knows, too",
        poll_s=0.1,
    )
    assert cluster.status().broken_links == 0
    produce(Producer({"bootstrap.servers": bootstrap, "acks": "all"}), range(10, 15))
    assert read_all(bootstrap, 15) == [*range(15)]
    # An acknowledgement that gets lost: who may not number its batches writes the record again.
    cluster.links().drop_responses("host", "brokers", "Produce")
    plain = Producer({"bootstrap.servers": bootstrap, "acks": "all", "socket.timeout.ms": 1000})
    produce(plain, range(15, 16))
    assert read_all(bootstrap, 17)[-2:] == [15, 15]


def test_a_leader_is_isolated_nodes_come_back_and_the_network_goes(
    possibility: Possibility, folder: Path
) -> None:
    needs_namespaces(possibility)
    zones = ("a", "b", "c")
    with LocalCluster.create(folder, controllers=1, port=0, network=possibility, zones=zones) as it:
        it.start()
        assert [node.rack for node in it.nodes] == ["a", "b", "c", "a"]
        heal(it, *isolate_leader(it))
        for node in (1, 100):
            it.kill(node)
            assert not it.start_node(node).host.startswith("127.")
        network = ground.open_network(folder / "network")
        os.kill(network.holder.pid, signal.SIGKILL)
        wait_until(lambda: not network.stands(), timeout_s=PATIENCE_S, what="the holder's end")
        assert it.status().network_stands is False
        for refused in (it.links, lambda: it.start_node(1)):
            it.kill(1) if it.state(1) is State.RUNNING else None
            with pytest.raises(ClusterError, match=r"has gone.*holdfast down.*holdfast up"):
                refused()
        it.down()
        assert it.is_down


def test_proxies_stand_in(folder: Path) -> None:
    """The same where namespaces are denied: nodes are told apart by what they dial from."""
    how = Possibility(possible.PROXIES, "by choice.")
    with LocalCluster.create(folder, controllers=1, port=0, network=how) as cluster:
        cluster.start()
        isolate_leader(cluster)
        cluster.links().heal()
        cluster.kill(1)
        cluster.start_node(1)
        with pytest.raises(ClusterError, match="Single packets can be lost or reordered only"):
            cluster.links().lose("0", "1", "5%")


# Until when `up` may go on, each as the file that it waits for: half a network, half a cluster.
MOMENTS = ("network/network.json", "broker-0/node.log")


@pytest.mark.parametrize("moment", MOMENTS)
def test_up_is_killed_at_any_moment(possibility: Possibility, folder: Path, moment: str) -> None:
    """Goal: `down` ends what there is. Method: SIGKILL when a file is there."""
    needs_namespaces(possibility)
    words = [sys.executable, "-m", "holdfast.cli"]
    at = ["--data-dir", str(folder)]
    arguments = ["up", "--network", "--brokers", "1", "--combined", "--port", "0", "--detach", *at]
    with subprocess.Popen([*words, *arguments], stdout=subprocess.DEVNULL) as up:
        file = folder / moment
        wait_until(file.exists, timeout_s=PATIENCE_S, what=str(file), poll_s=0.001)
        up.kill()
    down = subprocess.run([*words, "down", *at], capture_output=True, text=True, check=False)
    assert down.returncode == 0, down.stderr
    wait_until(
        lambda: not marked_processes(str(folder.parent)), timeout_s=PATIENCE_S, what="all ends"
    )
    assert LocalCluster.open(folder).is_down
