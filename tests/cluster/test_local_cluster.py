"""A cluster of real processes: started, hurt, watched, resumed, refused."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from tests.cluster.waiting import live_brokers, wait_for_isr, wait_for_leader, wait_for_live_brokers

from holdfast.clients.blocking_driver import Driver
from holdfast.cluster import ClusterError, LocalCluster, layout
from holdfast.cluster.ports import free_ports
from holdfast.cluster.processes import State
from holdfast.config.figures import FIGURES
from holdfast.wire.administration import create_topic

pytestmark = pytest.mark.serial
ALL = (0, 1, 2, 100, 101, 102)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    directory = tmp_path_factory.mktemp("cluster")
    with LocalCluster.create(directory, port=0) as made:
        made.start()
        yield made


def create(cluster: LocalCluster, name: str, assignments: dict[int, list[int]]) -> None:
    asked = create_topic(name, assignment=assignments, timeout_ms=20_000)
    with Driver(cluster.bootstrap_servers) as driver:
        driver.perform(asked, node="controller")


def test_all_nodes_serve_once_it_has_started(cluster: LocalCluster) -> None:
    """Goal: `start` returns when everything serves. Method: the status right after it."""
    seen = cluster.status()
    assert [(found.node.id, found.state, found.serving) for found in seen.nodes] == [
        (number, State.RUNNING, True) for number in ALL
    ]
    assert all(found.resident_bytes for found in seen.nodes)
    assert all(found.figures.keys() == FIGURES.keys() for found in seen.nodes)
    assert live_brokers(cluster) == {0, 1, 2}
    assert seen.running


@pytest.mark.slow
def test_a_crash_and_a_return(cluster: LocalCluster) -> None:
    """Goal: kill, waits and start tell the truth. Method: SIGKILL a leader, bring it back."""
    create(cluster, "crash", {0: [1, 2, 0], 1: [2, 0, 1]})
    wait_for_leader(cluster, "crash", 0, leader=1)
    wait_for_isr(cluster, "crash", 0, [0, 1, 2])
    cluster.kill(1)
    assert cluster.state(1) is State.DEAD
    after = wait_for_leader(cluster, "crash", 0, other_than=1)
    assert after.leader in {0, 2}
    wait_for_isr(cluster, "crash", 0, [0, 2])
    wait_for_live_brokers(cluster, [0, 2])
    status = cluster.status()
    assert status.under_replicated == 2
    assert not status.nodes[1].serving
    with pytest.raises(ClusterError, match="not running"):
        cluster.kill(1, "TERM")
    before = cluster.node(1)
    cluster.start_node(1)
    assert cluster.node(1).process != before.process
    wait_for_isr(cluster, "crash", 0, [0, 1, 2])
    with pytest.raises(ClusterError, match="runs already"):
        cluster.start_node(1)


@pytest.mark.slow
def test_a_controlled_shutdown(cluster: LocalCluster) -> None:
    """Goal: TERM waits until the node has handed over. Method: the leader's, then its return."""
    create(cluster, "term", {0: [2, 0, 1]})
    wait_for_isr(cluster, "term", 0, [0, 1, 2])
    cluster.kill(2, "TERM")
    state = wait_for_leader(cluster, "term", 0, other_than=2)
    assert 2 not in state.isr
    cluster.start_node(2)
    wait_for_isr(cluster, "term", 0, [0, 1, 2])


@pytest.mark.slow
def test_a_frozen_node(cluster: LocalCluster) -> None:
    """Goal: STOP is neither dead nor running. Method: STOP, an attempt to start, CONT."""
    cluster.kill(0, "STOP")
    assert cluster.state(0) is State.STOPPED
    with pytest.raises(ClusterError, match="--signal CONT"):
        cluster.start_node(0)
    wait_for_live_brokers(cluster, [1, 2])
    cluster.kill(0, "CONT")
    wait_for_live_brokers(cluster, [0, 1, 2])


def test_a_second_start_is_refused(cluster: LocalCluster) -> None:
    """Goal: one directory, one cluster. Method: resume what runs; create over it."""
    with pytest.raises(ClusterError, match=r"running already \(nodes 0, 1, 2, 100, 101, 102\)"):
        LocalCluster.resume(cluster.directory)
    with pytest.raises(ClusterError, match="already holds a cluster"):
        LocalCluster.create(cluster.directory)


def test_an_unknown_signal_or_node(cluster: LocalCluster) -> None:
    """Goal: refusals name what there is. Method: one of each."""
    with pytest.raises(ClusterError, match=r"HUP.*KILL, TERM, STOP, CONT"):
        cluster.kill(0, "HUP")
    with pytest.raises(ClusterError, match="no node 7"):
        cluster.kill(7)


@pytest.mark.slow
def test_down_and_up_again_with_the_same_data(tmp_path: Path) -> None:
    """Goal: a directory is resumed with its topics, and with new settings. Method: one broker."""
    with LocalCluster.create(tmp_path, brokers=1, combined=True, port=0) as cluster:
        cluster.start()
        create(cluster, "kept", {0: [0]})
        wait_for_leader(cluster, "kept", 0, leader=0)
        assert cluster.down() == []
        assert not cluster.status().running
        assert cluster.down() == []
        cluster.configure({"num.partitions": "3"})
        again = LocalCluster.resume(tmp_path)
        wait_for_leader(again, "kept", 0, leader=0)
        assert again.cluster_id == cluster.cluster_id


@pytest.mark.slow
def test_a_cluster_moves_to_other_ports(tmp_path: Path) -> None:
    """Goal: a port that someone else has taken meanwhile is no dead end. Method: two brokers."""
    with LocalCluster.create(tmp_path, brokers=2, port=0) as cluster:
        cluster.start()
        create(cluster, "moved", {0: [0, 1]})
        wait_for_isr(cluster, "moved", 0, [0, 1])
        cluster.down()
        cluster.move(free_run())
        cluster.start()
        wait_for_isr(cluster, "moved", 0, [0, 1])
        wait_for_leader(cluster, "moved", 0)


def free_run() -> int:
    """Return the first of many free ports in a row, as far as a cluster's controllers."""
    for _ in range(10):
        ports = free_ports(101)
        if ports[-1] - ports[0] == 100:
            return ports[0]
    pytest.fail("no free ports in a row")


def test_a_port_in_use(tmp_path: Path) -> None:
    """Goal: the error names port and node before anything starts. Method: listen on it."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(ClusterError, match=rf"Port {port} of node 0.*--port"):
            LocalCluster.create(tmp_path, brokers=1, port=port)
        cluster = LocalCluster.create(tmp_path, brokers=1, port=0)
        before = cluster.record
        with pytest.raises(ClusterError, match=rf"Port {port} of node 0.*--port"):
            cluster.move(port)
        assert cluster.record == before
    with (
        socket.create_server(("127.0.0.1", cluster.node(0).port)),
        pytest.raises(ClusterError, match=r"Port \d+ of node 0.*--port"),
    ):
        cluster.start()
    assert not cluster.status().running


def test_a_setting_that_no_node_can_use(tmp_path: Path) -> None:
    """Goal: a refused --config is no dead end: nothing of it stays. Method: at first, and later."""
    for config in ({"num.partitions": "abc"}, {"zookeeper.connect": "a:2181"}):
        with pytest.raises(ClusterError, match=next(iter(config))):
            LocalCluster.create(tmp_path, brokers=1, port=0, config=config)
    cluster = LocalCluster.create(tmp_path, brokers=1, port=0)
    files = [Path(node.config_file) for node in cluster.nodes]
    before = [file.read_text() for file in files]
    with pytest.raises(ClusterError, match=r"num\.partitions=abc"):
        cluster.configure({"num.io.threads": "2", "num.partitions": "abc"})
    assert [file.read_text() for file in files] == before


def test_a_directory_of_something_else(tmp_path: Path) -> None:
    """Goal: nobody's files are mixed with ours. Method: a stranger's file, a file as directory."""
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(ClusterError, match=r"letter\.txt"):
        LocalCluster.create(tmp_path)
    with pytest.raises(ClusterError, match="can't be used"):
        LocalCluster.create(tmp_path / "letter.txt")


@pytest.mark.slow
def test_a_node_that_can_not_start_says_why(tmp_path: Path) -> None:
    """Goal: the error carries the node's own words, and nothing is left running. Method: a value
    that can't be honoured.
    """
    cluster = LocalCluster.create(tmp_path, brokers=1, port=0)
    file = Path(cluster.node(0).config_file)
    good = file.read_text()
    file.write_text(good + "log.segment.bytes=a lot\n")
    with pytest.raises(ClusterError, match=r"log\.segment\.bytes"):
        cluster.start()
    assert not cluster.status().running
    file.write_text(good + "num.partitions=many\n")  # only the last attempt's words are shown
    with pytest.raises(ClusterError, match=r"num\.partitions") as caught:
        cluster.start()
    assert "log.segment.bytes" not in str(caught.value)


@pytest.mark.slow
def test_the_data_of_another_cluster(tmp_path: Path) -> None:
    """Goal: a node refuses directories of another cluster. Method: change the cluster's id."""
    cluster = LocalCluster.create(tmp_path, brokers=1, combined=True, port=0)
    cluster.start()
    cluster.down()
    record = layout.read(tmp_path)
    changed = layout.ClusterRecord(cluster_id="AAAAAAAAAAAAAAAAAAAAAA", nodes=record.nodes)
    layout.write(tmp_path, changed)
    with pytest.raises(ClusterError, match=record.cluster_id):
        cluster.start()
    assert not cluster.status().running


# Ends this process when it would write down what it has started.
KILLED = """
import os, sys
from holdfast.cluster import LocalCluster, layout
cluster = LocalCluster.open(sys.argv[1])
layout.write = lambda *_: os.kill(os.getpid(), 9)
cluster.start_node(0, wait=False) if sys.argv[2:] else cluster.start(wait=False)
"""


def killed(directory: Path, *words: str) -> None:
    command = [sys.executable, "-P", "-c", KILLED, str(directory), *words]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL


@pytest.mark.slow
def test_who_starts_nodes_is_killed_before_they_are_written_down(tmp_path: Path) -> None:
    """Goal: the next command knows them. Seen to fail: a stranger had the port, and to take others
    was the advice, which gave the nodes' files to a second process of each.
    """
    with LocalCluster.create(tmp_path, brokers=1, controllers=1, port=0) as cluster:
        before = cluster.record
        killed(tmp_path)
        again: Sequence[Callable[[], object]] = (
            cluster.start,
            lambda: cluster.move(free_ports(1)[0]),
        )
        for refused in again:
            with pytest.raises(ClusterError, match=r"running already .*holdfast down.* stops it"):
                refused()
            assert cluster.record == before
        cluster.down()
        cluster.start()
        cluster.kill(0)
        killed(tmp_path, "0")
        with pytest.raises(ClusterError, match=r"Node 0 runs already, as process \d+\."):
            cluster.start_node(0)
        cluster.wait_serving(0)
        cluster.kill(0)
        cluster.start_node(0)
