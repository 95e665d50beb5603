"""Goal: a cluster with a network is laid out so that everybody finds everybody. Method: no process.

Where nodes listen, what they advertise, by which ports the machine outside reaches them, and what
is refused; each for namespaces and for proxies.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.cluster import LocalCluster, layout, networked, nodes, plan, processes
from holdfast.cluster.layout import PLACE_VARIABLE, ClusterError, ClusterRecord, UsageError
from holdfast.cluster.network.addresses import Plan
from holdfast.cluster.network.entering import Holder
from holdfast.cluster.network.ground import Network, Servant
from holdfast.cluster.network.possible import NAMESPACES, PROXIES, Possibility
from holdfast.cluster.networked import Part
from holdfast.cluster.processes import State
from holdfast.config.node import NodeSettings
from holdfast.config.properties import parse_properties
from holdfast.runtime import real


def made(folder: Path, how: str, **options: object) -> LocalCluster:
    wanted: dict[str, object] = {"port": 0, "zones": ("a", "b"), **options}
    return LocalCluster.create(folder, network=Possibility(how), **wanted)  # type: ignore[arg-type]


def settings(record: ClusterRecord, node_id: int) -> NodeSettings:
    text = Path(record.node(node_id).config_file).read_text()
    return NodeSettings.from_properties(parse_properties(text))[0]


def endpoints(found: object) -> list[str]:
    return [f"{each.name}://{each.host}:{each.port}" for each in found]  # type: ignore[attr-defined]


def test_nodes_in_namespaces(tmp_path: Path) -> None:
    """A broker has its place's address, a door outside, and its zone as its rack."""
    record = made(tmp_path, NAMESPACES).record
    assert (record.network, record.zones) == (NAMESPACES, ("a", "b"))
    broker, controller = record.node(1), record.node(101)
    assert (broker.address, broker.rack) == ("10.1.0.2:9092", "b")
    assert broker.outside_address == f"127.0.0.1:{broker.outside_port}"
    assert broker.outside_address in record.bootstrap_servers.split(",")
    assert broker.address in record.inside_servers.split(",")
    assert broker.watch_address == ("127.0.0.1", broker.watch_port)
    assert (controller.address, controller.rack) == ("10.1.0.102:9093", "b")
    assert controller.voter_watch_address == ("127.0.0.1", controller.watch_port)
    found = settings(record, 1)
    assert endpoints(found.listeners) == ["PLAINTEXT://10.1.0.2:9092", "OUTSIDE://10.1.0.2:19092"]
    assert endpoints(found.advertised_listeners) == [
        "PLAINTEXT://10.1.0.2:9092",
        f"OUTSIDE://{broker.outside_address}",
    ]
    assert "broker.rack=b" in Path(broker.config_file).read_text()
    assert "broker.rack" not in Path(controller.config_file).read_text()
    assert "10.1.0.101:9093" in Path(broker.config_file).read_text()


def test_ways_in_lead_to_every_listener(tmp_path: Path) -> None:
    """Clients' doors lead to brokers, the observer's to all; each port of the machine once."""
    record = made(tmp_path, NAMESPACES, combined=True).record
    doors, watch = networked.ways_in(record)
    assert sorted(doors.values()) == [f"10.1.0.{n}:19092" for n in (1, 2, 3)]
    assert sorted(watch.values()) == sorted(
        f"10.1.0.{n}:{port}" for n in (1, 2, 3) for port in (9092, 9093)
    )
    assert not doors.keys() & watch.keys()
    combined = record.node(0)
    assert combined.voter_watch_address == ("127.0.0.1", combined.watch_voter_port)


@pytest.mark.parametrize("combined", [False, True])
def test_nodes_behind_proxies(tmp_path: Path, combined: bool) -> None:
    """A node listens on other ports than it advertises, which its voters' addresses are, too."""
    record = made(tmp_path, PROXIES, combined=combined).record
    broker, voter = record.node(1), record.node(1 if combined else 101)
    assert broker.outside_address == broker.address == f"127.1.0.2:{broker.port}"
    assert broker.watch_address == ("127.1.0.2", broker.watch_port)
    found = settings(record, 1)
    assert endpoints(found.listeners)[0] == f"PLAINTEXT://127.1.0.2:{broker.watch_port}"
    assert endpoints(found.advertised_listeners)[0] == f"PLAINTEXT://{broker.address}"
    own = settings(record, voter.id)
    assert endpoints(own.listeners)[-1] == "CONTROLLER://{}:{}".format(*voter.voter_watch_address)
    assert (
        endpoints(own.advertised_listeners)[-1] == f"CONTROLLER://{voter.host}:{voter.voter_port}"
    )
    ports = [port for node in record.nodes for _, port in nodes.outside_ports(node)]
    assert len({*ports}) == len(ports) == 12


def test_ports_as_they_are_counted(tmp_path: Path) -> None:
    """`--port`, and what another one makes of a cluster that is there."""
    cluster = made(tmp_path, NAMESPACES, port=21_000)
    record = cluster.record
    assert record.bootstrap_servers == "127.0.0.1:21000,127.0.0.1:21001,127.0.0.1:21002"
    assert [node.watch_port for node in record.nodes] == [
        21_200,
        21_201,
        21_202,
        21_100,
        21_101,
        21_102,
    ]
    cluster.move(22_000)
    moved = cluster.record
    assert moved.bootstrap_servers == "127.0.0.1:22000,127.0.0.1:22001,127.0.0.1:22002"
    assert [node.watch_port for node in moved.nodes] == [
        22_200,
        22_201,
        22_202,
        22_100,
        22_101,
        22_102,
    ]
    assert [node.address for node in moved.nodes] == [node.address for node in record.nodes]
    assert "OUTSIDE://127.0.0.1:22001" in Path(moved.node(1).config_file).read_text()
    with pytest.raises(UsageError, match="must lie between 1 and 65535"):
        cluster.move(65_400)


def test_the_description_says_it(tmp_path: Path) -> None:
    """What is written is read; without a network nothing of one is written."""
    record = made(tmp_path / "one", NAMESPACES).record
    assert layout.read(tmp_path / "one") == record
    values = json.loads((tmp_path / "one" / "cluster.json").read_text())
    assert (values["network"], values["zones"]) == (NAMESPACES, ["a", "b"])
    LocalCluster.create(tmp_path / "two", port=0)
    plain = (tmp_path / "two" / "cluster.json").read_text()
    assert not [word for word in ("network", "zones", "rack", '_port": null') if word in plain]


def test_who_runs_inside_asks_inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From a place doors can't be seen, and no other place can be entered."""
    cluster = made(tmp_path, NAMESPACES)
    monkeypatch.setenv(PLACE_VARIABLE, "client-a")
    assert cluster.node(0).watch_address == ("10.1.0.1", 9092)
    assert cluster.node(100).voter_watch_address == ("10.1.0.101", 9093)
    with pytest.raises(UsageError, match="runs in the place client-a of a network"):
        cluster.start()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"zones": ("a", "a")}, "a zone is named twice"),
        ({"zones": ("Host",)}, "can't be named 'Host'"),
        ({"config": {"broker.rack": "x"}}, "with --zones each broker's is its zone"),
        ({"racks": ("a", "b", "x")}, "'x' is none of the zones"),
        ({"network": False}, "add --network"),
    ],
)
def test_what_is_refused_leaves_nothing(
    tmp_path: Path, options: dict[str, object], reason: str
) -> None:
    values: dict[str, object] = {"port": 0, "zones": ("a", "b"), "network": Possibility(NAMESPACES)}
    with pytest.raises(UsageError, match=reason):
        LocalCluster.create(tmp_path / "c", **(values | options))  # type: ignore[arg-type]
    assert not (tmp_path / "c").exists()


def test_a_cluster_without_a_network_and_one_that_is_down(tmp_path: Path) -> None:
    """One sentence each, which says what to do."""
    plain = LocalCluster.create(tmp_path / "plain", port=0)
    with pytest.raises(UsageError, match=r"no network of its own.*holdfast up --network"):
        plain.links()
    down = made(tmp_path / "down", NAMESPACES)
    with pytest.raises(ClusterError, match=r"is not running.*holdfast up"):
        down.links()
    assert plain.is_down
    assert down.is_down
    assert down.down() == []


@pytest.mark.process
@pytest.mark.slow
def test_a_node_that_nobody_wrote_down_is_found(tmp_path: Path) -> None:
    """A command that was killed between the start of a node and its note of it.

    Method: a process with the node's command line that is none, as it is before it enters.
    """
    cluster = made(tmp_path, NAMESPACES)
    node = cluster.node(1)
    code = "print(flush=True); input()"
    words = ["-c", code, *nodes.command_of(cluster.record, node)[1:]]
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, *words], stdin=pipe, stdout=pipe) as stray:
        try:
            assert stray.stdout is not None
            assert stray.stdout.readline(), "it has its command line"
            found = nodes.with_strays(cluster.record)
            assert found.node(1).pid == stray.pid
            assert {each.pid for each in found.nodes} == {None, stray.pid}
            assert not cluster.is_down
            with pytest.raises(ClusterError, match=r"running already \(nodes 1\)"):
                cluster.start()
            assert cluster.down() == []
            assert processes.identify(stray.pid) is None, "it has been ended"
        finally:
            stray.kill()


@pytest.mark.process
def test_what_is_left_of_a_process() -> None:
    """It has gone when nothing of it is left; a zombie alone is nothing, a stranger is not it."""
    pid = os.spawnv(
        os.P_NOWAIT, sys.executable, [sys.executable, "-c", "import time; time.sleep(60)"]
    )
    process = processes.identify(pid)
    try:
        assert not processes.has_gone(pid, process)
        assert processes.has_gone(pid, "another boot/1")
        assert processes.has_gone(None, None)
    finally:
        os.kill(pid, 9)
    processes.wait_until(lambda: processes.has_gone(pid, process), timeout_s=10, what="its end")


@pytest.mark.process
def test_who_serves_a_network_is_asked_each_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: of what does not serve it is told what it is, and what to do. Method: a network that is
    written down, each of whose processes is one of this test's, in each state.
    """
    cluster = made(tmp_path, NAMESPACES)
    network = cluster.network()
    assert network.troubles() == (), "none stands"
    names = ("links.link_agent", "relays.door", "relays.door")
    words = [sys.executable, "-c", "import time; time.sleep(60)"]
    pids = [os.spawnv(os.P_NOWAIT, sys.executable, words) for _ in names]
    servants = tuple(
        Servant(name=name, pid=pid, process=processes.identify(pid) or "")
        for name, pid in zip(names, pids, strict=True)
    )
    try:
        me = processes.identify(os.getpid())
        assert me is not None
        holder = Holder(pid=os.getpid(), process=me, user=False, descriptors={})
        stands = Network(
            directory=network.directory, plan=plan_of(cluster), holder=holder, servants=servants
        )
        monkeypatch.setattr(network, "open", lambda: stands)
        assert network.troubles() == ()
        for at, part in enumerate((Part.AGENT, Part.DOOR, Part.WATCH_DOOR)):
            (stopped,) = signalled(network, pids[at], signal.SIGSTOP)
            assert (stopped.part, stopped.pid, stopped.state) == (part, pids[at], State.STOPPED)
            assert f"process {pids[at]}, stands still: " in str(stopped)
            assert str(stopped).endswith(f"`kill -CONT {pids[at]}` lets it go on.")
            assert stopped.blinds is (part is Part.WATCH_DOOR)
            assert stopped.keeps_links is (part is Part.AGENT)
            assert signalled(network, pids[at], signal.SIGCONT) == ()
        (ended,) = signalled(network, pids[2], signal.SIGKILL)
        assert "has ended: what nodes do is not seen from here" in str(ended)
        assert str(ended).endswith("`holdfast down` and `holdfast up` start all anew.")
        with pytest.raises(ClusterError, match="the door by which nodes are watched"):
            network.refuse_unseen()
        with pytest.raises(ClusterError, match="the door by which nodes are watched"):
            network.way_in(cluster.node(0))
        monkeypatch.setenv(PLACE_VARIABLE, "client-a")  # from where nodes are asked directly
        network.refuse_unseen()
    finally:
        for each in servants:
            processes.send(each.pid, each.process, signal.SIGKILL)
            processes.wait_until(
                lambda each=each: processes.has_gone(each.pid, each.process),  # type: ignore[misc]
                timeout_s=30,
                what="its end",
            )


def plan_of(cluster: LocalCluster) -> Plan:
    return networked.plan_of(cluster.record)


def signalled(
    network: networked.ClusterNetwork, pid: int, number: signal.Signals
) -> tuple[networked.Trouble, ...]:
    """Send a signal, and return what is wrong once it has taken effect."""
    before = network.troubles()
    os.kill(pid, number)
    processes.wait_until(lambda: network.troubles() != before, timeout_s=30, what=number.name)
    return network.troubles()


def test_ports_of_a_standing_network_are_its_own(tmp_path: Path) -> None:
    """Whoever starts one node looks at what that node listens on, and not at doors and relays."""
    inside = made(tmp_path / "n", NAMESPACES).node(0)
    assert nodes.outside_ports(inside, own=True) == []
    assert len(nodes.outside_ports(inside)) == 2
    behind = made(tmp_path / "p", PROXIES).node(0)
    assert nodes.outside_ports(behind, own=True) == [("127.1.0.1", behind.watch_port)]


def test_a_shape_has_ports_for_all() -> None:
    for network, count in ((None, 6), (plan.NAMESPACES, 9), (plan.PROXIES, 12)):
        shape = plan.Shape(network=network)
        assert shape.ports_needed == len({*plan.standard_ports(9092, shape)}) == count
    assert replace(plan.Shape(), network=PROXIES).watched == 6


def test_a_node_reads_the_variable_that_a_cluster_sets() -> None:
    """Neither imports the other, so the name stands twice."""
    assert networked.SOURCE_VARIABLE == real.SOURCE_VARIABLE


def test_a_network_for_replication_alone(tmp_path: Path) -> None:
    """Goal: brokers find each other there, clients don't hear of it, and ports may change."""
    key = plan.BETWEEN_BROKERS
    config = {key: plan.REPLICATION}
    cluster = made(tmp_path / "one", NAMESPACES, config=config, port=21_000)
    cluster.move(22_000)
    cluster.configure({**config, "num.io.threads": "3"})  # as `up` does when it is said again
    record = cluster.record
    assert record.replicates_apart
    assert [place.name for place in networked.plan_of(record).members("replication")] == [
        f"replication-{node.id}" for node in record.brokers
    ]
    found = settings(record, 1)
    assert found.inter_broker_listener_name == plan.REPLICATION
    wanted = [
        "PLAINTEXT://10.1.0.2:9092",
        "OUTSIDE://127.0.0.1:22001",
        "REPLICATION://10.5.0.2:9094",
    ]
    assert endpoints(found.advertised_listeners) == wanted
    assert endpoints(found.listeners)[-1] == wanted[-1]
    assert not made(tmp_path / "two", NAMESPACES).record.replicates_apart
    with pytest.raises(UsageError, match=f"{key}=REPLICATION: .* takes namespaces"):
        made(tmp_path / "three", PROXIES, config=config)
    for how in (NAMESPACES, PROXIES):
        with pytest.raises(UsageError, match=f"{key}: each node has its own"):
            made(tmp_path / "four", how, config={key: "OTHER"})
    with pytest.raises(UsageError, match=f"{key}: each node has its own"):
        LocalCluster.create(tmp_path / "five", port=0, config=config)
