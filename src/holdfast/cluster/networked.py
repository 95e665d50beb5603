"""The network of a cluster: where each node stands in it, its making, its end, the way in.

Owns what of `cluster.network` a local cluster uses: namespaces, or the proxies that stand in for
them. Only clusters that have a network load this. It decides nothing about nodes' processes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Final

from holdfast.cluster import plan, processes
from holdfast.cluster.layout import (
    PLACE_VARIABLE,
    ClusterError,
    ClusterRecord,
    NodeRecord,
    UsageError,
)
from holdfast.cluster.network import addresses, ground
from holdfast.cluster.network.addresses import Plan
from holdfast.cluster.network.ground import Network, StandInError
from holdfast.cluster.network.links import link_requests
from holdfast.cluster.network.links.link_calls import LOOK_S, Links
from holdfast.cluster.network.proxies import proxy_ground
from holdfast.cluster.network.proxies.proxy_ground import Proxies
from holdfast.cluster.nodes import WayIn, state_of
from holdfast.cluster.processes import State

FOLDER: Final = "network"
SOURCE_VARIABLE: Final = "HOLDFAST_SOURCE_ADDRESS"  # from which a node dials (`runtime.real`)
AGENT_MODULE: Final = "links.link_agent"  # as `ground.make` names it


class Part(Enum):
    """A process that serves a network: what it is called, and what is so without it."""

    AGENT = (
        "the agent of its links",
        "links stay as they are, and which are broken nobody says",
    )
    DOOR = (
        "the door for clients outside",
        "they reach no broker, whatever the links are; clients inside do (`holdfast enter`)",
    )
    WATCH_DOOR = (
        "the door by which nodes are watched",
        "what nodes do is not seen from here; among themselves they go on",
    )
    PROXIES = (
        "its proxies",
        "nothing passes between nodes, and which links are broken nobody says",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """A process that serves a network and does not do so now. Its state is never `running`."""

    part: Part
    pid: int
    state: State

    def __str__(self) -> str:
        name, without = self.part.value
        if self.state is State.STOPPED:
            fate, remedy = "stands still", f"`kill -CONT {self.pid}` lets it go on"
        else:
            fate, remedy = "has ended", "`holdfast down` and `holdfast up` start all anew"
        return f"network: {name}, process {self.pid}, {fate}: {without}. {remedy}."

    @property
    def blinds(self) -> bool:
        """Whether nothing is known of nodes but of their processes. Who is inside needs no door."""
        return self.part is Part.WATCH_DOOR and PLACE_VARIABLE not in os.environ

    @property
    def keeps_links(self) -> bool:
        """Whether it is the one that tells which links are broken."""
        return self.part in {Part.AGENT, Part.PROXIES}


def plan_of(record: ClusterRecord) -> Plan:
    """Return the places of a cluster's network. UsageError: zones that there can't be."""
    planned = addresses.plan_network(
        record.nodes, record.zones, replicates_apart=record.replicates_apart
    )
    return addresses.on_loopback(planned) if record.network == plan.PROXIES else planned


def apart(record: ClusterRecord) -> ClusterRecord:
    """Return the record of a cluster whose brokers have a second address each, for replication."""
    planned = addresses.plan_network(record.nodes, record.zones, replicates_apart=True)
    nodes = [
        replace(each, replication_host=planned.place(addresses.second_name(str(each.id))).address)
        if each.is_broker
        else each
        for each in record.nodes
    ]
    return replace(record, nodes=tuple(nodes))


def placed(record: ClusterRecord, watch_ports: Sequence[int]) -> ClusterRecord:
    """Return the record of a cluster with a network from what it would be without one.

    Its nodes have the ports that the machine outside sees. `watch_ports`: those of the observer,
    one a broker and, behind proxies, one a controller. Nodes' racks are their zones.
    """
    places = plan_of(record)
    ports = iter(watch_ports)
    watch = {node.id: next(ports) for node in record.brokers}
    voters = {node.id: next(ports, None) for node in record.controllers}
    nodes = []
    for node in record.nodes:
        place = places.place(str(node.id))
        here = replace(node, host=place.address, rack=place.zone)
        if record.network == plan.PROXIES:
            here = _behind_proxy(here, watch, voters)
        else:
            here = _in_namespace(here, watch)
        nodes.append(here)
    return replace(record, nodes=tuple(nodes))


def _in_namespace(node: NodeRecord, watch: Mapping[int, int]) -> NodeRecord:
    """Return a node that has all ports of its place, and is reached from outside at its old ones.

    Nobody but who watches asks a controller from outside.
    """
    if not node.is_broker:
        return replace(node, port=plan.INSIDE_CONTROLLER_PORT, watch_port=node.port)
    return replace(
        node,
        port=plan.INSIDE_PORT,
        controller_port=plan.INSIDE_CONTROLLER_PORT if node.is_controller else None,
        outside_port=node.port,
        watch_port=watch[node.id],
        watch_voter_port=node.controller_port,
    )


def _behind_proxy(
    node: NodeRecord, watch: Mapping[int, int], voters: Mapping[int, int | None]
) -> NodeRecord:
    """Return a node whose ports are a relay's; it listens on others, which the observer dials."""
    if not node.is_broker:
        return replace(node, watch_port=voters[node.id])
    return replace(node, watch_port=watch[node.id], watch_voter_port=voters.get(node.id))


class ClusterNetwork:
    """The network in a cluster's directory, if it stands or not."""

    def __init__(self, directory: Path, record: ClusterRecord) -> None:
        assert record.network is not None, "a cluster without a network"
        self._cluster, self._record = directory, record
        self.directory = directory / FOLDER

    def make(self, *, settle: bool) -> Network | Proxies:
        """Make it. ClusterError: it can't be had here, or one stands already."""
        _refuse_inside()
        self.directory.mkdir(exist_ok=True)
        places = plan_of(self._record)
        if self._record.network == plan.PROXIES:
            listeners = {str(node.id): _listeners(node) for node in self._record.nodes}
            return proxy_ground.make(self.directory, places, listeners, settle=settle)
        doors, watch = ways_in(self._record)
        return ground.make(self.directory, places, doors=doors, watch=watch, settle=settle)

    def open(self) -> Network | Proxies:
        """Open the one that stands. ClusterError: none does, and what to do."""
        if not (self.directory / ground.DESCRIPTION).exists():
            raise ClusterError(
                f"The cluster in {self._cluster} is not running, and its network is made when it "
                "starts: `holdfast up` does that. If it is at it just now, wait until it is ready."
            )
        try:
            return ground.open_network(self.directory)
        except StandInError:
            return proxy_ground.open_proxies(self.directory)

    def refuse_if_gone(self, record: ClusterRecord) -> None:
        """ClusterError: nodes of this cluster run, and its network does not stand any more."""
        alive = any(state_of(node) is not State.DEAD for node in record.nodes)
        if alive and not self.stands():
            raise ClusterError(
                f"The network of the cluster in {self._cluster} has gone, and its nodes are cut "
                "off for good: `holdfast down` ends them, `holdfast up` starts all anew."
            )

    def troubles(self) -> tuple[Trouble, ...]:
        """Return which processes of a network that stands do not serve it.

        One that was killed leaves the others: what is asked over it fails then, and would read
        like a fault of the cluster's.
        """
        try:
            found = self.open()
        except ClusterError:
            return ()
        states = [
            (part, pid, processes.state(pid, process))
            for part, pid, process in self._serving(found)
        ]
        return tuple(
            Trouble(part=part, pid=pid, state=state)
            for part, pid, state in states
            if state is not State.RUNNING
        )

    def _serving(self, found: Network | Proxies) -> Iterator[tuple[Part, int, str]]:
        if isinstance(found, Proxies):
            yield Part.PROXIES, found.pid, found.process
            return
        # Doors have one name: which is whose, their order says (`ground.make`).
        ways = zip((Part.DOOR, Part.WATCH_DOOR), ways_in(self._record), strict=True)
        doors = iter([part for part, leads in ways if leads])
        for each in found.servants:
            part = Part.AGENT if each.name == AGENT_MODULE else next(doors)
            yield part, each.pid, each.process

    def refuse_unseen(self) -> None:
        """ClusterError: what nodes do can't be seen, since the door to them does not serve."""
        for trouble in self.troubles():
            if trouble.blinds:
                raise ClusterError(f"{trouble}")

    def namespaces(self) -> frozenset[Path]:
        """Return the places' namespaces, as `/proc` names them; none where none can be entered."""
        with suppress(ClusterError, OSError):
            found = self.open()
            if isinstance(found, Network):
                files = Path(f"/proc/{found.holder.pid}/fd")
                numbers = found.holder.descriptors.values()
                return frozenset((files / str(number)).readlink() for number in numbers)
        return frozenset()

    def broken_links(self) -> int | None:
        """Return with how many links something is wrong; None: nobody says, or not at once."""
        try:
            links = Links(self.directory, LOOK_S).status()["links"]
        except ClusterError:
            return None
        return sum(not link_requests.is_whole(each) for each in links)

    def stands(self) -> bool:
        try:
            self.open()
        except ClusterError:
            return False
        return True

    def end(self) -> None:
        """End it, or remove what is left of one that has gone."""
        try:
            found = self.open()
        except ClusterError:
            ground.clear(self.directory)
            return
        found.end()

    def way_in(self, node: NodeRecord) -> WayIn:
        """Return how a node's process comes to stand in its place.

        ClusterError: it has gone, or nobody could see whether the node serves.
        """
        _refuse_inside()
        found = self.open()
        self.refuse_unseen()
        if isinstance(found, Network):
            return WayIn(found.prefix(str(node.id)))
        return WayIn(environment={SOURCE_VARIABLE: node.host})

    def enter(self, place: str) -> tuple[list[str], dict[str, str]]:
        """Return the words before a command that is to run in a place, and its environment.

        UsageError: there is no such place, or none can be entered.
        """
        _refuse_inside()
        found = self.open()
        if not isinstance(found, Network):
            raise UsageError(
                f"Proxies stand in for the network of {self._cluster}, so there is no place to "
                f"enter. Run the command as it is: to the links it is `{addresses.HOST}`."
            )
        return found.prefix(place), {**os.environ, PLACE_VARIABLE: place}


def ways_in(record: ClusterRecord) -> tuple[dict[int, str], dict[int, str]]:
    """Return ports outside and where they lead: the clients' doors, and the observer's."""
    doors, watch = {}, {}
    for node in record.nodes:
        if node.outside_port is not None:
            doors[node.outside_port] = f"{node.host}:{plan.INSIDE_DOOR_PORT}"
        if node.watch_port is not None:
            watch[node.watch_port] = node.address
        if node.watch_voter_port is not None:
            watch[node.watch_voter_port] = f"{node.host}:{node.voter_port}"
    return doors, watch


def inside(namespaces: frozenset[Path]) -> dict[int, str]:
    """Return the processes that stand in one of these namespaces, and the command of each.

    But for this one and those that it comes from: who asks from inside knows where that is.
    """
    found: dict[int, str] = {}
    ours = _ancestry() if namespaces else ()
    for path in Path("/proc").iterdir() if namespaces else ():
        if not path.name.isdecimal() or int(path.name) in ours:
            continue
        with suppress(OSError):  # it has ended, or is another user's
            if (path / "ns" / "net").readlink() in namespaces:
                words = (path / "cmdline").read_bytes().split(b"\0")
                found[int(path.name)] = b" ".join(words).decode(errors="replace").strip()
    return found


def _ancestry() -> set[int]:
    """Return this process, its parent, and so on."""
    pid, found = os.getpid(), set[int]()
    with suppress(OSError):  # one has ended: whom it came from nobody says any more
        while pid:
            found.add(pid)
            _, _, fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(") ")
            pid = int(fields.split()[1])
    return found


def _listeners(node: NodeRecord) -> list[tuple[int, int]]:
    """Return the ports that a relay has, and beside each the node's own."""
    found = [(node.port, node.listen_port)]
    if node.controller_port is not None:
        found.append((node.controller_port, node.listen_voter_port))
    return found


def _refuse_inside() -> None:
    """UsageError: who runs in a place of a network can't come into another from there."""
    place = os.environ.get(PLACE_VARIABLE)
    if place is not None:
        raise UsageError(
            f"This runs in the place {place} of a network, from where no other place can be "
            "entered: run it outside."
        )
