"""Plans a network: from a cluster's nodes and zones to places, addresses, and what sets them up.

A place is a namespace with one address; a broker's may have a second one, for replication alone,
which links know as a place of its own. Pure: nothing here is made, only named and written down.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from difflib import get_close_matches
from enum import StrEnum
from typing import Any, Final

from holdfast.cluster.layout import NodeRecord, UsageError

ROUTER: Final = "router"
ROUTER_ADDRESS: Final = "10.0.0.1"
HOST: Final = "host"  # what comes in through doors
WHY_HOST: Final = "who dials is known by the address that it dials from, and theirs is no node's"
OBSERVER: Final = "observer"  # the lab's own way, which nothing cuts
DEVICE: Final = "net"  # of each place, towards the router
PLACES_MAX: Final = 200
_IN_LAST_BYTE: Final = 250
_FIRST, _SECOND, _SECONDS = "10.1.", "10.5.", "10.5.0.0/16"  # addresses of nodes
_ZONE: Final = re.compile(r"[a-z][a-z0-9-]{0,19}")


class Kind(StrEnum):
    """What stands in a place."""

    BROKER = "broker"  # one that is a controller, too, is both groups'
    CONTROLLER = "controller"
    BOTH = "broker and controller"
    REPLICATION = "replication"  # a broker's second address
    CLIENT = "client"
    HOST = "host"
    OBSERVER = "observer"


# Groups by what stands in a place; a zone is a group as well.
_GROUPS: Final[Mapping[str, frozenset[Kind]]] = {
    "brokers": frozenset({Kind.BROKER, Kind.BOTH}),
    "controllers": frozenset({Kind.CONTROLLER, Kind.BOTH}),
    "replication": frozenset({Kind.REPLICATION}),
    "clients": frozenset({Kind.CLIENT, Kind.HOST}),
    "all": frozenset(Kind) - {Kind.OBSERVER},
}
_NAMES_TAKEN: Final = frozenset({*_GROUPS, ROUTER, HOST, OBSERVER, "client"})
_BEGINNINGS: Final = ("client-", "node-", "replication-")  # of names of places


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One namespace: its name, its address, what stands there, and in which zone."""

    name: str
    address: str
    kind: Kind
    zone: str | None = None
    beside: str | None = None  # of a second address: the place whose namespace has it

    @property
    def host_name(self) -> str:
        """What its address is called inside."""
        return f"node-{self.name}" if self.name.isdecimal() else self.name


@dataclass(frozen=True, slots=True)
class Plan:
    """All places of a network, nodes first."""

    places: tuple[Place, ...]

    def place(self, name: str) -> Place:
        """Return the place of this name. UsageError says which there are."""
        for place in self.places:
            if place.name == name:
                return place
        raise UsageError(f"There is no place {name!r} in this network{self._known(name)}")

    @property
    def namespaces(self) -> tuple[Place, ...]:
        """The places that are namespaces of their own."""
        return tuple(place for place in self.places if place.beside is None)

    def seconds(self, place: Place) -> tuple[Place, ...]:
        """Return the further addresses of a namespace."""
        return tuple(each for each in self.places if each.beside == place.name)

    @property
    def zones(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(place.zone for place in self.places if place.zone))

    def members(self, name: str) -> tuple[Place, ...]:
        """Return the places that a place's, a zone's or a group's name stands for.

        A node's name stands for all its addresses, its host name for the first alone. Several
        names are joined by commas. UsageError for any other name, and for the observer, through
        which the lab sees.
        """
        if "," in name:
            named = {place for each in name.split(",") for place in self.members(each)}
            return tuple(place for place in self.places if place in named)
        if name == OBSERVER:
            raise UsageError(
                f"{OBSERVER} is the way by which the cluster is watched: nothing is done to it."
            )
        found = tuple(
            place
            for place in self.places
            if name in {place.name, place.zone, place.beside, place.host_name}
            or place.kind in _GROUPS.get(name, ())
        )
        if not found:
            raise UsageError(f"There is no {name!r} in this network{self._known(name)}")
        return found

    def _known(self, name: str) -> str:
        single = [place.name for place in self.places if place.kind is not Kind.OBSERVER]
        near = get_close_matches(name, [*single, *self.zones, *_GROUPS], n=1)
        meant = f" (is {near[0]} meant?)" if near else ""
        zones = f"zones {', '.join(self.zones)}; " if self.zones else ""
        kinds = {place.kind for place in self.places}
        groups = ", ".join(group for group, those in _GROUPS.items() if kinds & those)
        # Whoever names no node may mean clients of a zone, or a zone that has nothing else.
        by_proxies = Kind.CLIENT not in kinds and not name.isdecimal()
        told = f" Behind proxies all clients are {HOST}: {WHY_HOST}." if by_proxies else ""
        return f"{meant}. There are {', '.join(single)}; {zones}groups {groups}.{told}"


def plan_network(
    nodes: Sequence[NodeRecord], zones: Sequence[str] = (), *, replicates_apart: bool = False
) -> Plan:
    """Return the places of these nodes, of the clients of each zone, of doors and the observer.

    `replicates_apart`: each broker has a second address, for replication. Zones are taken in turn
    by brokers, and in turn by controllers. Without zones those are the brokers' racks, if they have
    any. UsageError: a name that no zone can have, or too many places.
    """
    racks = [node.rack for node in nodes if node.is_broker and node.rack is not None]
    strangers = [rack for rack in racks if zones and rack not in zones]
    if strangers:
        raise UsageError(f"The rack {strangers[0]!r} is none of the zones {', '.join(zones)}.")
    names = tuple(dict.fromkeys(zones or racks))
    if zones and len(names) < len(zones):
        raise UsageError(f"--zones {','.join(zones)}: a zone is named twice.")
    for zone in names:
        _refuse_name(zone)
    places = [*_places_of_nodes(nodes, names)]
    if replicates_apart:
        places += [_second(place) for place in places if place.kind in _GROUPS["brokers"]]
    clients = names or (None,)
    places += [
        Place(
            name="client" if zone is None else f"client-{zone}",
            address=f"10.2.0.{number}",
            kind=Kind.CLIENT,
            zone=zone,
        )
        for number, zone in enumerate(clients, start=1)
    ]
    places.append(Place(name=HOST, address="10.3.0.1", kind=Kind.HOST))
    places.append(Place(name=OBSERVER, address="10.4.0.1", kind=Kind.OBSERVER))
    if len(places) > PLACES_MAX:
        raise UsageError(f"A network has at most {PLACES_MAX} places; this one needs {len(places)}")
    return Plan(tuple(places))


def _places_of_nodes(nodes: Sequence[NodeRecord], zones: Sequence[str]) -> list[Place]:
    places = []
    brokers = controllers = 0
    for node in nodes:
        turn = brokers if node.is_broker else controllers
        brokers += node.is_broker
        controllers += not node.is_broker
        kind = Kind.BROKER if node.is_broker else Kind.CONTROLLER
        if node.is_broker and node.is_controller:
            kind = Kind.BOTH
        zone = node.rack if node.rack in zones else None
        if zone is None and zones:
            zone = zones[turn % len(zones)]
        high, low = divmod(node.id, _IN_LAST_BYTE)
        assert high <= 255, "node ids are small on one machine"
        places.append(
            Place(name=str(node.id), address=f"{_FIRST}{high}.{low + 1}", kind=kind, zone=zone)
        )
    return places


def second_name(node: str) -> str:
    """Return the name of a broker's second address."""
    return f"{Kind.REPLICATION}-{node}"


def _second(place: Place) -> Place:
    return Place(
        name=second_name(place.name),
        address=place.address.replace(_FIRST, _SECOND, 1),
        kind=Kind.REPLICATION,
        zone=place.zone,
        beside=place.name,
    )


def _refuse_name(zone: str) -> None:
    if zone in _NAMES_TAKEN or zone.startswith(_BEGINNINGS) or not _ZONE.fullmatch(zone):
        raise UsageError(
            f"A zone can't be named {zone!r}: up to 20 small letters, digits and dashes, a letter "
            f"first, none of {', '.join(sorted(_NAMES_TAKEN))}, and nothing after "
            f"{', '.join(_BEGINNINGS)}."
        )


def router_device(plan: Plan, place: Place) -> str:
    """Return the name of the router's end of a place's veth pair."""
    return f"to{plan.places.index(place)}"


def router_commands(plan: Plan, namespace_paths: Sequence[str]) -> str:
    """Return what `ip -batch` does in the router. `namespace_paths`: one each, in order.

    Every end in the router has the router's one address, and a route to what is behind it.
    """
    lines = ["link set dev lo up"]
    for place, path in zip(plan.namespaces, namespace_paths, strict=True):
        device = router_device(plan, place)
        lines += [
            f"link add {device} type veth peer name {DEVICE} netns {path}",
            f"addr add {ROUTER_ADDRESS}/32 dev {device}",
            f"link set dev {device} up",
        ]
        lines += [
            f"route add {each.address}/32 dev {device} src {ROUTER_ADDRESS}"
            for each in (place, *plan.seconds(place))
        ]
    return "\n".join(lines) + "\n"


def place_commands(place: Place, seconds: Sequence[Place] = ()) -> str:
    """Return what `ip -batch` does in a place: its address, and everything over the router.

    `seconds`: its further addresses. What goes to others' second addresses comes from there.
    """
    lines = [
        "link set dev lo up",
        f"addr add {place.address}/32 dev {DEVICE}",
        f"link set dev {DEVICE} up",
        f"route add {ROUTER_ADDRESS}/32 dev {DEVICE} scope link src {place.address}",
        f"route add default via {ROUTER_ADDRESS} dev {DEVICE} src {place.address}",
    ]
    for second in seconds:
        to = f"{_SECONDS} via {ROUTER_ADDRESS} dev {DEVICE}"
        lines += [
            f"addr add {second.address}/32 dev {DEVICE}",
            f"route add {to} src {second.address}",
        ]
    return "\n".join(lines) + "\n"


def hosts_text(plan: Plan) -> str:
    """Return an /etc/hosts with every place: nobody has to ask a DNS that is not there."""
    lines = ["127.0.0.1 localhost", f"{ROUTER_ADDRESS} {ROUTER}"]
    lines += [f"{place.address} {place.host_name}" for place in plan.places]
    return "\n".join(lines) + "\n"


def on_loopback(plan: Plan) -> Plan:
    """Return the plan with an address of the loopback device for each place: 127.1.0.1 of 10.1.0.1.

    Where there are no namespaces who dials is known by the address that it dials from, which only
    nodes choose. So clients of zones have no places: nobody would be seen to dial from there, and
    what is done to their links could not be in force.
    """
    return Plan(
        tuple(
            replace(place, address=f"127.{place.address.partition('.')[2]}")
            for place in plan.places
            if place.kind is not Kind.CLIENT
        )
    )


def to_json(plan: Plan) -> list[dict[str, Any]]:
    """Return the plan as plain values."""
    return [asdict(place) for place in plan.places]


def from_json(values: Sequence[Mapping[str, Any]]) -> Plan:
    """Read a plan back. KeyError, TypeError or ValueError: it isn't one."""
    return Plan(
        tuple(
            Place(
                name=str(value["name"]),
                address=str(value["address"]),
                kind=Kind(value["kind"]),
                zone=value["zone"],
                beside=value.get("beside"),
            )
            for value in values
        )
    )
