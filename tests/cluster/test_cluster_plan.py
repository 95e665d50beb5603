"""What a cluster consists of, decided without starting anything."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.cluster import plan
from holdfast.cluster.layout import ClusterError, ClusterRecord
from holdfast.cluster.plan import Shape

DIRECTORY = Path("/data")


def planned(shape: Shape, port: int = 9092) -> ClusterRecord:
    return plan.plan_nodes(DIRECTORY, "id", shape, plan.standard_ports(port, shape))


def keys(text: str) -> dict[str, str]:
    pairs = [line.partition("=") for line in text.splitlines() if line and line[0] != "#"]
    assert len({key for key, _, _ in pairs}) == len(pairs), "a key stands twice"
    return {key: value for key, _, value in pairs}


def test_three_brokers_and_three_controllers_of_their_own() -> None:
    """Goal: the ids and ports that the documentation promises. Method: the default shape."""
    record = planned(Shape())
    assert [(node.id, node.port, node.roles) for node in record.nodes] == [
        (0, 9092, ("broker",)),
        (1, 9093, ("broker",)),
        (2, 9094, ("broker",)),
        (100, 9192, ("controller",)),
        (101, 9193, ("controller",)),
        (102, 9194, ("controller",)),
    ]
    assert record.bootstrap_servers == "127.0.0.1:9092,127.0.0.1:9093,127.0.0.1:9094"


def test_a_broker_knows_its_voters_and_listeners() -> None:
    """Goal: nodes of one plan find each other. Method: read the keys of both kinds."""
    shape = Shape(racks=["a", "b", "c"])
    record = planned(shape)
    broker = keys(plan.properties(record, record.node(1), shape))
    assert broker["process.roles"] == "broker"
    assert broker["controller.quorum.voters"].startswith("100@127.0.0.1:9192,101@")
    assert broker["listeners"] == "PLAINTEXT://127.0.0.1:9093"
    assert broker["broker.rack"] == "b"
    assert broker["log.dirs"] == "/data/broker-1/data"
    controller = keys(plan.properties(record, record.node(100), shape))
    assert controller["listeners"] == "CONTROLLER://127.0.0.1:9192"
    assert "advertised.listeners" not in controller


def test_three_controllers_of_their_own() -> None:
    """Goal: voters have ids and ports in a row, and every node knows all. Method: ask for three."""
    shape = Shape(controllers=3)
    record = planned(shape)
    assert [(node.id, node.port) for node in record.controllers] == [
        (100, 9192),
        (101, 9193),
        (102, 9194),
    ]
    voters = "100@127.0.0.1:9192,101@127.0.0.1:9193,102@127.0.0.1:9194"
    for node in record.nodes:
        found = keys(plan.properties(record, node, shape))
        assert found["controller.quorum.voters"] == voters
    moved = plan.moved(record, 19_092)
    assert [node.port for node in moved.nodes] == [19_092, 19_093, 19_094, 19_192, 19_193, 19_194]


@pytest.mark.parametrize(
    ("brokers", "combined", "asked", "voters"),
    [
        (3, False, None, 3),
        (3, True, None, 3),
        (1, False, None, 1),
        (2, False, None, 1),
        (1, True, None, 1),
        (5, False, 5, 5),
        (3, True, 3, 3),
    ],
)
def test_how_many_controllers(brokers: int, combined: bool, asked: int | None, voters: int) -> None:
    """Goal: small clusters have one, others what was asked for. Method: by shape."""
    shape = Shape(brokers=brokers, combined=combined, controllers=asked)
    assert len(planned(shape).controllers) == voters


def test_combined_puts_controllers_into_the_first_brokers() -> None:
    """Goal: no process more than brokers. Method: plan combined brokers, move them."""
    shape = Shape(brokers=2, combined=True)
    record = planned(shape)
    assert [node.id for node in record.nodes] == [0, 1]
    first = keys(plan.properties(record, record.node(0), shape))
    assert first["process.roles"] == "broker,controller"
    assert first["listeners"] == "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9192"
    second = keys(plan.properties(record, record.node(1), shape))
    assert second["process.roles"] == "broker"
    assert second["controller.quorum.voters"] == "0@127.0.0.1:9192"
    three = planned(Shape(brokers=4, controllers=3, combined=True))
    assert [(node.id, node.voter_port) for node in three.controllers] == [
        (0, 9192),
        (1, 9193),
        (2, 9194),
    ]
    moved = plan.moved(three, 9392)
    assert [node.controller_port for node in moved.nodes] == [9492, 9493, 9494, None]


@pytest.mark.parametrize(("brokers", "replicated"), [(1, False), (2, False), (3, True), (5, True)])
def test_the_local_profile(brokers: int, replicated: bool) -> None:
    """Goal: copies and min ISR only where three brokers can keep them. Method: by size."""
    values = plan.profile(Shape(brokers=brokers))
    assert values["broker.session.timeout.ms"] == "3000"
    assert (values.get("default.replication.factor") == "3") == replicated
    assert values["offsets.topic.replication.factor"] == str(min(brokers, 3))
    assert (values.get("min.insync.replicas") == "2") == replicated


def test_what_the_user_says_replaces_the_profile() -> None:
    """Goal: --config wins. Method: a key of the profile, given."""
    shape = Shape(config={"min.insync.replicas": "1", "num.partitions": "4"})
    record = planned(shape)
    found = keys(plan.properties(record, record.node(0), shape))
    assert found["min.insync.replicas"] == "1"
    assert found["num.partitions"] == "4"


def test_settings_are_changed_in_a_file_that_is_there() -> None:
    """Goal: resuming with --config changes one key and keeps the rest. Method: twice."""
    text = plan.with_config("# title\na=1\nb=2\n", {"b": "3", "c": "4"})
    assert keys(text) == {"a": "1", "b": "3", "c": "4"}
    assert text.startswith("# title\n")
    assert keys(plan.with_config(text, {"b": "5"})) == {"a": "1", "b": "5", "c": "4"}


@pytest.mark.parametrize(
    ("shape", "option"),
    [
        ({"brokers": 0}, "--brokers"),
        ({"brokers": 101}, "--brokers"),
        ({"controllers": 0}, "--controllers 0"),
        ({"controllers": 10}, "--controllers 10"),
        ({"controllers": 3, "brokers": 2, "combined": True}, "--combined.*2 brokers"),
        ({"racks": ["a"]}, "1 racks for 3 brokers"),
    ],
)
def test_what_can_not_be_had_is_refused(shape: dict[str, object], option: str) -> None:
    """Goal: the error names the option and the reason. Method: each bound."""
    with pytest.raises(ClusterError, match=option):
        Shape(**shape)  # type: ignore[arg-type]


@pytest.mark.parametrize("port", [-1, 65_500])
def test_ports_outside_the_range(port: int) -> None:
    """Goal: --port is checked with all ports that follow from it. Method: both ends."""
    with pytest.raises(ClusterError, match="--port"):
        plan.standard_ports(port, Shape())
