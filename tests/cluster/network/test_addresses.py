"""Goal: a cluster's shape gives places, addresses and groups that a user can name.

Method: shapes, and what is planned for them.
"""

from __future__ import annotations

import json

import pytest
from tests.cluster.network.conftest import record, small_plan

from holdfast.cluster.layout import BROKER, CONTROLLER, UsageError
from holdfast.cluster.network import addresses
from holdfast.cluster.network.addresses import Kind, plan_network


def names(plan: addresses.Plan, group: str) -> list[str]:
    return [place.name for place in plan.members(group)]


def test_places_and_addresses() -> None:
    plan = small_plan()
    assert {place.name: place.address for place in plan.places} == {
        "0": "10.1.0.1",
        "1": "10.1.0.2",
        "100": "10.1.0.101",
        "client-a": "10.2.0.1",
        "client-b": "10.2.0.2",
        "host": "10.3.0.1",
        "observer": "10.4.0.1",
    }
    assert names(plan, "a") == ["0", "100", "client-a"]
    assert names(plan, "b") == ["1", "client-b"]
    assert names(plan, "brokers") == ["0", "1"]
    assert names(plan, "controllers") == ["100"]
    assert names(plan, "clients") == ["client-a", "client-b", "host"]
    assert names(plan, "all") == ["0", "1", "100", "client-a", "client-b", "host"]
    assert addresses.from_json(json.loads(json.dumps(addresses.to_json(plan)))) == plan


def test_zones_are_taken_in_turn() -> None:
    nodes = [record(number, BROKER) for number in range(5)]
    nodes += [record(100 + number, CONTROLLER) for number in range(3)]
    plan = plan_network(nodes, ("a", "b", "c"))
    assert names(plan, "a") == ["0", "3", "100", "client-a"]
    assert names(plan, "c") == ["2", "102", "client-c"]


def test_racks_are_zones_where_no_zones_are_named() -> None:
    nodes = [record(0, BROKER, rack="x"), record(1, BROKER, rack="y"), record(100, CONTROLLER)]
    plan = plan_network(nodes)
    assert names(plan, "x") == ["0", "100", "client-x"]
    with pytest.raises(UsageError, match="rack 'x' is none of the zones a, b"):
        plan_network(nodes, ("a", "b"))


def test_without_zones_there_is_one_place_for_clients() -> None:
    plan = plan_network([record(0, BROKER, CONTROLLER)])
    assert [place.name for place in plan.places] == ["0", "client", "host", "observer"]
    assert plan.place("0").kind is Kind.BOTH
    assert names(plan, "brokers") == names(plan, "controllers") == ["0"]


@pytest.mark.parametrize(
    "zone", ["all", "0", "host", "A", "a_b", "", "a" * 21, "brokers", "client-a"]
)
def test_names_that_no_zone_can_have(zone: str) -> None:
    with pytest.raises(UsageError, match="can't be named"):
        plan_network([record(0, BROKER)], (zone,))


def test_a_zone_named_twice_and_too_many_places() -> None:
    with pytest.raises(UsageError, match="named twice"):
        plan_network([record(0, BROKER)], ("a", "a"))
    with pytest.raises(UsageError, match="at most 200 places"):
        plan_network([record(number, BROKER) for number in range(200)])


def test_who_is_meant_is_guessed_and_all_are_named() -> None:
    with pytest.raises(UsageError, match=r"\(is client-a meant\?\).*zones a, b; groups brokers"):
        small_plan().members("client-aa")
    with pytest.raises(UsageError, match="no place 'x'"):
        small_plan().place("x")


def test_of_clients_behind_proxies_is_told_only_who_may_mean_them() -> None:
    """A number is a node's, and none that there is: where clients are is beside the point."""
    plan = addresses.on_loopback(small_plan())
    told = "Behind proxies all clients are host"
    for name, is_told in (("client-z", True), ("z", True), ("9", False)):
        with pytest.raises(UsageError) as refused:
            plan.members(name)
        assert (told in str(refused.value)) == is_told, name


def test_commands_of_ip() -> None:
    plan = plan_network([record(0, BROKER)])
    assert addresses.router_commands(plan, ["/a", "/b", "/c", "/d"]).splitlines()[:5] == [
        "link set dev lo up",
        "link add to0 type veth peer name net netns /a",
        "addr add 10.0.0.1/32 dev to0",
        "link set dev to0 up",
        "route add 10.1.0.1/32 dev to0 src 10.0.0.1",
    ]
    assert "addr add 10.1.0.1/32 dev net\n" in addresses.place_commands(plan.place("0"))
    assert "10.1.0.1 node-0\n10.2.0.1 client\n" in addresses.hosts_text(plan)


def test_brokers_have_a_second_address_for_replication() -> None:
    """Goal: each of both networks can be cut without the other; a node's name stands for both."""
    nodes = [record(0, BROKER), record(1, BROKER, CONTROLLER), record(100, CONTROLLER)]
    plan = plan_network(nodes, ("a", "b"), replicates_apart=True)
    assert [place.address for place in plan.members("replication")] == ["10.5.0.1", "10.5.0.2"]
    assert names(plan, "0") == ["0", "replication-0"]
    assert names(plan, "node-0") == ["0"]
    assert names(plan, "b") == ["1", "replication-1", "client-b"]
    assert names(plan, "brokers") == ["0", "1"]
    assert {*names(plan, "replication")} < {*names(plan, "all")}
    assert "replication-0" not in [place.name for place in plan.namespaces]
    router = addresses.router_commands(plan, [str(n) for n in range(len(plan.namespaces))])
    assert "route add 10.5.0.1/32 dev to0 src 10.0.0.1\n" in router
    assert router.count("link add") == len(plan.namespaces)
    inside = addresses.place_commands(plan.place("0"), plan.seconds(plan.place("0")))
    assert inside.endswith(
        "addr add 10.5.0.1/32 dev net\nroute add 10.5.0.0/16 via 10.0.0.1 dev net src 10.5.0.1\n"
    )
    assert "10.5.0.2 replication-1\n" in addresses.hosts_text(plan)
    assert addresses.from_json(json.loads(json.dumps(addresses.to_json(plan)))) == plan


def test_without_it_replication_is_no_group() -> None:
    with pytest.raises(UsageError, match="groups brokers, controllers, clients, all"):
        small_plan().members("replication")
