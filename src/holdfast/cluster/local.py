"""A cluster of our own nodes on this machine: make it, start it, hurt it, wait for it, stop it.

Owns the life of the processes in one directory. Everything it learns about partitions it asks over
the Kafka protocol; it never looks into a node's files. Methods block; every wait has a bound and
raises `ClusterError` with what was waited for. Several commands may work on one directory at once:
what they change goes through the directory's lock, and each reads `cluster.json` again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.cluster import layout, nodes, plan, probe, processes
from holdfast.cluster.ending import end_all
from holdfast.cluster.layout import (
    EMBEDDED,
    OLDER,
    ClusterError,
    ClusterRecord,
    NodeRecord,
    UsageError,
    WaitError,
)
from holdfast.cluster.nodes import KILL_TIMEOUT_S, STOP_TIMEOUT_S, ClusterStatus, NodeStatus
from holdfast.cluster.plan import LOCAL_PROFILE
from holdfast.cluster.ports import free_ports
from holdfast.cluster.probe import PartitionState
from holdfast.cluster.processes import State

if TYPE_CHECKING:
    from holdfast.cluster.network.ground import Network
    from holdfast.cluster.network.links.link_calls import Links
    from holdfast.cluster.network.possible import Possibility
    from holdfast.cluster.network.proxies.proxy_ground import Proxies
    from holdfast.cluster.networked import ClusterNetwork
    from holdfast.cluster.quorum import QuorumState

__all__ = ["LOCAL_PROFILE", "ClusterStatus", "LocalCluster", "NodeStatus"]

START_TIMEOUT_S = 30.0
WAIT_TIMEOUT_S = 30.0


def _how(network: bool | Possibility) -> str | None:
    """Return how a new cluster has a network of its own; None: it has none."""
    if network is False:
        return None
    from holdfast.cluster.network import possible  # noqa: PLC0415 - only with a network

    return possible.look().how if network is True else network.how


def _kafka_home(how: str | None, *, with_zookeeper: bool) -> str:
    """Return the folder of the Apache Kafka whose nodes a new cluster has. ClusterError."""
    from holdfast.cluster.apache import find_home  # noqa: PLC0415 - only for its nodes

    if how == plan.PROXIES:
        raise UsageError(
            "Nodes of Apache Kafka in a network of their own take namespaces: proxies can't tell "
            "apart which of them dials."
        )
    return find_home(with_zookeeper=with_zookeeper)


class LocalCluster(AbstractContextManager["LocalCluster"]):
    """One cluster in one directory.

    Make it with `create`, then `start` it; `open` one that exists; `resume` opens and starts it.
    As a context manager it is stopped at the end.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.environment: Mapping[str, str] = {}  # laid over our own for every node it starts
        self.settles = True  # its network stays when this process ends, as its nodes do
        self._held: Network | Proxies | None = None  # a network that does not
        layout.refuse_moved(directory, layout.read(directory))  # and says so if there is none

    def __repr__(self) -> str:
        return f"LocalCluster({str(self.directory)!r})"

    def __exit__(self, *_: object) -> None:
        self.down()

    # Making and opening

    @classmethod
    def create(
        cls,
        directory: str | Path,
        *,
        brokers: int = 3,
        controllers: int | None = None,
        combined: bool = False,
        port: int = plan.PORT,
        config: Mapping[str, str] | None = None,
        racks: Sequence[str] | None = None,
        features: Mapping[str, int] | None = None,
        network: bool | Possibility = False,
        zones: Sequence[str] = (),
        engine: str = EMBEDDED,
    ) -> LocalCluster:
        """Write the directory of a new cluster; nothing is started.

        Broker n listens on `port` + n, controller n on `port` + 100 + n; with port 0 all of them
        are free ports. `controllers`: None for three with three or more brokers, else one; with
        `combined` they run inside the first brokers. `config` goes to every node, before the local
        profile. `racks`: one a broker. `features`: levels that the cluster begins with in place of
        the usual ones. `network`: in a network of its own, whose links can be broken, with these
        `zones` (`docs/design/networks.md`); a Possibility is what has been found of that already.
        Where `config` has inter.broker.listener.name=REPLICATION, brokers of such a network have a
        second address each, for replication alone. `engine`: whose nodes these are; of an Apache
        Kafka on this machine, `config` is its own. Before 4.0 one ZooKeeper stands where
        controllers do otherwise.
        """
        how = _how(network)
        zookeeper = engine == OLDER
        kafka_home = None if engine == EMBEDDED else _kafka_home(how, with_zookeeper=zookeeper)
        if zones and how is None:
            raise UsageError("--zones are those of a network: add --network.")
        if zones and "broker.rack" in (config or {}):
            raise UsageError("--config broker.rack: with --zones each broker's is its zone.")
        shape = plan.Shape(
            brokers=brokers,
            controllers=1 if zookeeper and controllers is None else controllers,
            combined=combined,
            racks=racks,
            network=how,
            config=dict(config or {}),
        )
        ports = plan.standard_ports(port, shape) if port else free_ports(shape.ports_needed)
        path = Path(directory).absolute()
        record = plan.plan_nodes(path, nodes.new_cluster_id(), shape, ports)
        record = replace(record, kafka_home=kafka_home, zookeeper=zookeeper)
        if how is not None:
            from holdfast.cluster import networked  # noqa: PLC0415 - only with a network

            record = replace(record, network=how, zones=tuple(zones))
            if plan.replicates_apart(shape.config, how):
                record = networked.apart(record)
                shape = replace(shape, config=plan.without_replication(shape.config))
            record = networked.placed(record, plan.watch_ports(ports, shape))
        plan.refuse_own(shape.config, len(record.nodes))
        texts = {node: plan.properties(record, node, shape) for node in record.nodes}
        for text in texts.values() if config else ():
            plan.refuse_unusable(text)
        if zookeeper:
            from holdfast.cluster import zookeeper as older  # noqa: PLC0415 - only with one

            older.refuse_unfit(shape)
            texts = {node: older.properties(record, node, shape) for node in record.nodes}
        with nodes.claimed(path, record):
            for node in record.nodes:
                nodes.check_ports(node)
            for node, text in texts.items():
                file = Path(node.config_file)
                file.parent.mkdir(exist_ok=True)
                file.write_text(text)
            nodes.format_directories(record, features or {})
            layout.write(path, record)
        return cls(path)

    @classmethod
    def open(cls, directory: str | Path) -> LocalCluster:
        """Open the cluster of a directory, running or not. ClusterError when there is none."""
        return cls(Path(directory).absolute())

    @classmethod
    def resume(cls, directory: str | Path, *, timeout_s: float = START_TIMEOUT_S) -> LocalCluster:
        """Open the cluster of a directory and start it."""
        cluster = cls.open(directory)
        cluster.start(timeout_s=timeout_s)
        return cluster

    # What it consists of

    @property
    def record(self) -> ClusterRecord:
        """What `cluster.json` says now."""
        return layout.read(self.directory)

    @property
    def nodes(self) -> tuple[NodeRecord, ...]:
        return self.record.nodes

    @property
    def cluster_id(self) -> str:
        return self.record.cluster_id

    @property
    def bootstrap_servers(self) -> str:
        """Addresses of all brokers, host:port, separated by commas."""
        return self.record.bootstrap_servers

    @property
    def broker_ids(self) -> tuple[int, ...]:
        return tuple(node.id for node in self.record.brokers)

    @property
    def controller_ids(self) -> tuple[int, ...]:
        return tuple(node.id for node in self.record.controllers)

    @property
    def engine(self) -> str:
        """Whose nodes these are, behind their count: " of Apache Kafka 4.3.1"; nothing for ours."""
        home = self.record.kafka_home
        if home is None:
            return ""
        from holdfast.cluster.apache import version  # noqa: PLC0415 - only for its nodes

        keeper = " with ZooKeeper" if self.record.zookeeper else ""
        return f" of Apache Kafka {'.'.join(map(str, version(home) or ()))}{keeper}"

    def node(self, node_id: int) -> NodeRecord:
        """Return the record of one node. ClusterError when there is none of this id."""
        return self.record.node(node_id)

    def state(self, node_id: int) -> State:
        """Say whether a node's process runs, is stopped, or is dead."""
        return nodes.state_of(self.node(node_id))

    def configure(self, config: Mapping[str, str]) -> None:
        """Set keys in every node's properties file; a node reads it when it starts.

        ClusterError, and nothing is changed, when a node could not use them.
        """
        if self.record.replicates_apart:
            config = plan.without_replication(config)  # it is so
        if not config:
            return
        self._refuse_with_zookeeper("--config")
        plan.refuse_own(config, len(self.nodes))
        with layout.locked(self.directory):
            files = [Path(node.config_file) for node in self.nodes]
            texts = [plan.with_config(file.read_text(), config) for file in files]
            for text in texts:
                plan.refuse_unusable(text)
            for file, text in zip(files, texts, strict=True):
                file.write_text(text)

    def _refuse_with_zookeeper(self, option: str) -> None:
        if self.record.zookeeper:
            raise UsageError(f"{option}: a cluster with ZooKeeper stays as it was made.")

    def move(self, port: int) -> None:
        """Give a cluster that isn't running other ports, counted from `port`."""
        with layout.locked(self.directory):
            self._refuse_running(nodes.with_strays(self.record))
            self._refuse_with_zookeeper("--port")
            record = plan.moved(self.record, port)
            if record.network is not None:
                from holdfast.cluster import networked  # noqa: PLC0415 - only with a network

                shape = plan.shape_of(record)
                ports = plan.standard_ports(port, shape)
                record = networked.placed(record, plan.watch_ports(ports, shape))
            for node in record.nodes:
                nodes.check_ports(node)
            for node in record.nodes:
                file = Path(node.config_file)
                file.write_text(plan.with_config(file.read_text(), plan.addresses(record, node)))
            layout.write(self.directory, record)

    # Starting and stopping

    def start(self, *, timeout_s: float = START_TIMEOUT_S, wait: bool = True) -> None:
        """Start all nodes at once; with `wait`, return when the cluster serves requests.

        That is: every broker is unfenced, and every broker's metadata shows every broker. When a
        broker or half of the controllers fail meanwhile, the others are stopped and the error says
        what the log of one of them said. Whoever interrupts the wait finds all of them stopped.
        """
        begun = False
        try:
            with layout.locked(self.directory):
                record = self.record
                self._check_startable(record)
                begun = True
                # Controllers first: their election is what everything else waits for.
                order = sorted(record.nodes, key=lambda node: not node.is_controller)
                network = self._network(record)
                if network is not None:
                    self._make(network, record)
                try:
                    for node in order:
                        way = None if network is None else network.way_in(node)
                        spawned = nodes.spawn(record, node, self.environment, way)
                        record = record.with_node(spawned)
                finally:  # whatever has been started is known, so that `down` finds it
                    layout.write(self.directory, record)
            if wait:
                self.wait_ready(timeout_s=timeout_s)
        except BaseException as reason:  # Ctrl-C, too: nobody has a cluster yet to be taken down
            end_all([lambda: self.down(timeout_s=KILL_TIMEOUT_S)] if begun else [], reason)
            raise

    def _check_startable(self, record: ClusterRecord) -> None:
        """Raise ClusterError: a node runs already, or its port is taken."""
        self._refuse_running(nodes.with_strays(record))
        if record.network is None:
            for node in record.nodes:
                nodes.check_ports(node)

    def _refuse_running(self, record: ClusterRecord) -> None:
        """Raise ClusterError: a node runs."""
        alive = [node for node in record.nodes if nodes.state_of(node) is not State.DEAD]
        if alive:
            raise ClusterError(self._already_running(record, alive))

    def start_node(
        self, node_id: int, *, wait: bool = True, timeout_s: float = START_TIMEOUT_S
    ) -> NodeRecord:
        """Start one node that is dead; with `wait`, return when it serves requests."""
        with layout.locked(self.directory):
            known = self.record
            known.node(node_id)
            record = nodes.with_strays(known)
            if record != known:  # a command was killed before it had written down what it started
                layout.write(self.directory, record)
            node = record.node(node_id)
            state = nodes.state_of(node)
            if state is State.STOPPED:
                raise ClusterError(
                    f"Node {node_id} is stopped, not dead: `holdfast kill {node_id} --signal CONT` "
                    "lets it go on."
                )
            if state is State.RUNNING:
                raise ClusterError(f"Node {node_id} runs already, as process {node.pid}.")
            network = self._network(record)
            if network is not None and not network.stands():
                network.refuse_if_gone(nodes.with_strays(record))
                self._make(network, record)
            in_use = network is not None
            nodes.check_ports(node, patience_s=nodes.PORT_PATIENCE_S, own=in_use)
            way = None if network is None else network.way_in(node)
            started = nodes.spawn(record, node, self.environment, way)
            layout.write(self.directory, record.with_node(started))
        if wait:
            self.wait_serving(node_id, timeout_s=timeout_s)
        return started

    def kill(
        self,
        node_id: int,
        signal: str = "KILL",
        *,
        wait: bool = True,
        timeout_s: float | None = None,
    ) -> None:
        """Send KILL, TERM, STOP or CONT to one node; with `wait`, return when it has taken effect.

        TERM is a controlled shutdown, which takes as long as it takes to hand over leadership.
        """
        if signal not in processes.SIGNALS:
            raise ClusterError(f"Signal {signal} is not one of {', '.join(processes.SIGNALS)}.")
        node = self.node(node_id)
        if not processes.send(node.pid, node.process, processes.SIGNALS[signal]):
            raise ClusterError(f"Node {node_id} is not running.")
        if wait:
            self.wait_signalled(node_id, signal, timeout_s=timeout_s)

    def wait_signalled(self, node_id: int, signal: str, *, timeout_s: float | None = None) -> None:
        """Wait until a signal that was sent to a node has taken effect."""
        node = self.node(node_id)
        expected = {"STOP": State.STOPPED, "CONT": State.RUNNING}.get(signal, State.DEAD)
        bound_s = STOP_TIMEOUT_S if signal == "TERM" else KILL_TIMEOUT_S
        processes.wait_until(
            lambda: nodes.state_of(node) is expected,
            timeout_s=timeout_s or bound_s,
            what=f"node {node_id} to be {expected} after SIG{signal}",
        )

    def down(self, *, timeout_s: float = STOP_TIMEOUT_S) -> list[int]:
        """Stop all nodes cleanly, brokers first, because they hand over to a live controller.

        Returns the ids of nodes that didn't end in time and were killed.
        """
        killed: list[int] = []
        with layout.locked(self.directory):
            record = nodes.with_strays(self.record)
            network = self._network(record)
            groups = (
                [node for node in record.nodes if not node.is_controller],
                [node for node in record.nodes if node.is_broker and node.is_controller],
                [node for node in record.nodes if not node.is_broker],
            )
            for group in groups:
                killed += nodes.stop(group, timeout_s)
            if network is not None:
                self._end(network)
            # Whoever watches these processes learns from this that they were stopped on purpose.
            for node in record.nodes:
                record = record.with_node(replace(node, pid=None, process=None, start_time=None))
            layout.write(self.directory, record)
        return killed

    @property
    def is_down(self) -> bool:
        """True if nothing of it runs: no node, and no network."""
        record = self.record
        network = self._network(record)
        if network is not None and network.stands():
            return False
        record = nodes.with_strays(record)
        return all(nodes.state_of(node) is State.DEAD for node in record.nodes)

    # Its network, if it has one

    def network(self) -> ClusterNetwork:
        """Return the cluster's network. UsageError: it was made without one."""
        found = self._network(self.record)
        if found is None:
            raise UsageError(
                f"The cluster in {self.directory} has no network of its own, so its links can't be "
                "touched: `holdfast up --network`, with another --data-dir, makes one that has."
            )
        return found

    def links(self) -> Links:
        """Return what breaks and heals links. ClusterError: there is no network, or it has gone."""
        from holdfast.cluster.network.links.link_calls import Links  # noqa: PLC0415 - only with one

        network = self.network()
        if not network.stands():
            network.refuse_if_gone(nodes.with_strays(self.record))
        network.open()  # which says so if none stands
        return Links(network.directory)

    def refuse_broken_network(self) -> None:
        """ClusterError: of the network that ends with this process a part has ended before."""
        ended = None if self._held is None else self._held.ended()
        if ended is not None:
            raise ClusterError(f"The cluster's network is broken: {ended}, has ended by itself.")

    def _network(self, record: ClusterRecord) -> ClusterNetwork | None:
        if record.network is None:
            return None
        from holdfast.cluster.networked import ClusterNetwork  # noqa: PLC0415 - only with a network

        return ClusterNetwork(self.directory, record)

    def _make(self, network: ClusterNetwork, record: ClusterRecord) -> None:
        """Make the network, in the place of one that all nodes have left: links are whole then."""
        self._end(network)
        for node in record.nodes:
            nodes.check_ports(node)
        made = network.make(settle=self.settles)
        self._held = None if self.settles else made

    def _end(self, network: ClusterNetwork) -> None:
        held, self._held = self._held, None
        if held is None:
            network.end()
        else:
            held.end()

    # Waiting

    def wait_ready(self, *, timeout_s: float = START_TIMEOUT_S) -> None:
        """Wait until every broker shows every broker in its metadata.

        A minority of controllers may have ended: the others serve without them.
        """
        record = self.record
        expected = {node.id for node in record.brokers}
        waiting = {node.id: node for node in record.brokers}

        def ready() -> bool:
            for node_id, node in list(waiting.items()):
                answer = probe.ask(node.watch_address)
                if answer is None or not expected <= answer.brokers.keys():
                    break
                del waiting[node_id]
            if not waiting:
                return True
            nodes.raise_if_hopeless(record)
            return False

        try:
            processes.wait_until(
                ready, timeout_s=timeout_s, what=f"{len(expected)} brokers that serve requests"
            )
        except WaitError as error:
            raise nodes.with_log(error, next(iter(waiting.values()))) from None

    def wait_serving(self, node_id: int, *, timeout_s: float = START_TIMEOUT_S) -> None:
        """Wait until one node serves: a broker shows itself unfenced, a controller accepts."""
        node = self.node(node_id)

        def serving() -> bool:
            nodes.raise_if_dead([node])
            return nodes.is_serving(node)

        try:
            processes.wait_until(serving, timeout_s=timeout_s, what=f"node {node_id} to serve")
        except WaitError as error:
            raise nodes.with_log(error, node) from None

    def partitions(self, topic: str) -> dict[int, PartitionState] | None:
        """Return a topic's partitions as a running broker shows them; None: nobody answered.

        Empty when the topic is not there.
        """
        snapshot = self._ask([topic])
        return None if snapshot is None else snapshot.topics.get(topic, {})

    def topic_names(self) -> list[str] | None:
        """Return the topics as a running broker shows them; None: nobody answered."""
        snapshot = self._ask(None)
        return None if snapshot is None else sorted(snapshot.topics)

    def quorum(self) -> QuorumState | None:
        """Ask the controllers that run which of them is active; None: none of them is."""
        from holdfast.cluster import quorum  # noqa: PLC0415 - `up` starts without our client

        if self.record.zookeeper:
            return None  # it is no quorum, and does not speak Kafka's protocol
        running = [n for n in self.record.controllers if nodes.state_of(n) is State.RUNNING]
        return quorum.ask(node.voter_watch_address for node in running)

    def wait_for_active_controller(
        self, *, other_than: int | None = None, timeout_s: float = WAIT_TIMEOUT_S
    ) -> QuorumState:
        """Wait until a controller is active, and not the one named."""

        def found() -> QuorumState | None:
            state = self.quorum()
            return None if state is None or state.leader in {-1, other_than} else state

        other = "" if other_than is None else f" other than {other_than}"
        return processes.wait_until(found, timeout_s=timeout_s, what=f"an active controller{other}")

    def status(self) -> ClusterStatus:
        """Look at every process, and ask a broker and the controllers for the rest."""
        record = self.record
        network = self._network(record)
        snapshot = self._ask(None)
        quorum = self.quorum()
        partitions = [
            state
            for topic in (snapshot.topics.values() if snapshot else ())
            for state in topic.values()
        ]
        keeper = nodes.keeper_serves(record)
        current = snapshot is not None and (quorum is not None or keeper is True)
        return ClusterStatus(
            cluster_id=record.cluster_id,
            bootstrap_servers=record.bootstrap_servers,
            nodes=tuple(
                nodes.node_status(node, snapshot, partitions, quorum) for node in record.nodes
            ),
            active_controller=None if quorum is None else quorum.leader,
            controller_epoch=None if quorum is None else quorum.epoch,
            keeper_serves=keeper,
            topics=len(snapshot.topics) if snapshot is not None else None,
            partitions=len(partitions) if snapshot is not None else None,
            under_replicated=sum(len(s.isr) < len(s.replicas) for s in partitions)
            if current
            else None,
            leaderless=sum(s.leader < 0 for s in partitions) if current else None,
            network_stands=None if network is None else network.stands(),
            broken_links=None if network is None else network.broken_links(),
        )

    def _ask(self, topics: Sequence[str] | None) -> probe.Snapshot | None:
        """Ask the first broker that runs and answers; of a network the one that knows most."""
        record = self.record
        for node in self._by_knowledge(record) if record.network else record.brokers:
            if nodes.state_of(node) is State.RUNNING:
                answer = probe.ask(node.watch_address, topics)
                if answer is not None:
                    return answer
        return None

    def _by_knowledge(self, record: ClusterRecord) -> list[NodeRecord]:
        """Return the brokers, those first whose metadata are the latest.

        One that is cut off answers the observer, and tells what once was.
        """
        quorum = self.quorum()
        if quorum is None:
            return [*record.brokers]
        lags = {node.id: quorum.lag(node.id) for node in record.brokers}
        return sorted(
            record.brokers, key=lambda node: math.inf if (lag := lags[node.id]) is None else lag
        )

    def _already_running(self, record: ClusterRecord, alive: Sequence[NodeRecord]) -> str:
        names = ", ".join(str(node.id) for node in alive)
        sentence = f"The cluster in {self.directory} is running already (nodes {names})."
        dead = [node for node in record.nodes if node not in alive]
        if dead:
            missing = ", ".join(str(node.id) for node in dead)
            return f"{sentence} Not running: {missing}; `holdfast start NODE` starts one."
        return f"{sentence} `holdfast down` stops it; --data-dir names another directory."
