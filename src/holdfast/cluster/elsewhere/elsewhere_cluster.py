"""A cluster that somebody else runs: asked over the Kafka protocol, hurt by its owner's commands.

Owns what was done to its brokers, and that all of it is undone in the end. Of their processes,
files and logs it knows nothing: that a command has had its effect is seen by whether the broker
answers. What it can't give raises `ClusterError`, and never passes for done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

from holdfast.clients.blocking_driver import parse_addresses
from holdfast.cluster import probe, processes
from holdfast.cluster.elsewhere.node_commands import NodeCommands
from holdfast.cluster.elsewhere.nodes_file import (
    CUT,
    HEAL,
    KILL,
    PAUSE,
    RESUME,
    START,
    TERMINATE,
    UNDONE_BY,
    NodesFile,
)
from holdfast.cluster.layout import (
    BROKER,
    ClusterError,
    ClusterRecord,
    NodeRecord,
    UsageError,
    WaitError,
)
from holdfast.cluster.nodes import ClusterStatus
from holdfast.cluster.probe import PartitionState
from holdfast.cluster.processes import State

if TYPE_CHECKING:
    from holdfast.cluster.network.links.link_calls import Links
    from holdfast.cluster.networked import ClusterNetwork
    from holdfast.cluster.quorum import QuorumState

ANSWER_S: Final = 1.0  # who stands still does not answer within it
EFFECT_S: Final = 45.0  # for a command's effect to be seen: a controlled shutdown may take 30 s
DOUBT_S: Final = 10.0  # for that of one that was interrupted
SERVE_S: Final = 30.0
SILENT_LOOKS: Final = 2
SHOWN_MAX: Final = 3  # partitions, in an error
WITHOUT_ID: Final = "without an id"
POLL_S: Final = 0.05
COMMAND_OF: Final[Mapping[str, str]] = {
    "KILL": KILL,
    "TERM": TERMINATE,
    "STOP": PAUSE,
    "CONT": RESUME,
    "CUT": CUT,
    "HEAL": HEAL,
}
_STATE: Final[Mapping[str, State]] = {
    KILL: State.DEAD,
    TERMINATE: State.DEAD,
    PAUSE: State.STOPPED,
    CUT: State.STOPPED,  # it says as little
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Brokers of a cluster as one of them shows them, and which of them may be used."""

    servers: str
    cluster_id: str
    brokers: Mapping[int, tuple[str, int]]

    def record(self, ids: Iterable[int]) -> ClusterRecord:
        """Return these of them. Nobody knows their files."""
        nodes = tuple(
            NodeRecord(id=each, roles=(BROKER,), host=host, port=port, log_file="", config_file="")
            for each in ids
            for host, port in [self.brokers[each]]
        )
        return ClusterRecord(cluster_id=self.cluster_id, nodes=nodes)


def find(servers: str, *, option: str = "--bootstrap-server") -> Found:
    """Ask the first that answers for the cluster's brokers. UsageError: no such addresses, nobody.

    ClusterError: what answers is no broker.
    """
    try:
        addresses = parse_addresses(servers)
    except ValueError as error:
        raise UsageError(f"{option} {servers}: {error}.") from None
    for address in addresses:
        answer = probe.ask(address)
        if answer is not None and answer.brokers:
            return Found(
                servers=servers,
                cluster_id=answer.cluster_id or WITHOUT_ID,
                brokers=dict(sorted(answer.brokers.items())),
            )
    raise UsageError(f"{option} {servers}: nobody answers there.")


class ElsewhereCluster:
    """Those brokers of a cluster elsewhere that a run uses. It is there before, and afterwards."""

    def __init__(
        self, record: ClusterRecord, file: NodesFile | None, logs: Path, settings: Mapping[str, str]
    ) -> None:
        """Without a `file` nothing is done to it. `settings`: of the environment of commands."""
        self.record = record
        self.environment: Mapping[str, str] = {}  # it starts nothing by itself
        self.settles = True
        self.start_timeout_s = SERVE_S if file is None else file.start_timeout_s
        self._commands = None if file is None else NodeCommands(file, logs, settings)
        self._hurt: dict[int, str] = {}  # by node the command that has, or may have, hurt it
        self._sure: set[int] = set()  # of these, where the effect was seen
        self._starting: set[int] = set()  # of these, whom it was asked to start since
        self._touched: dict[int, None] = {}  # whom any command was for

    # What it consists of

    @property
    def nodes(self) -> tuple[NodeRecord, ...]:
        return self.record.nodes

    @property
    def bootstrap_servers(self) -> str:
        return self.record.bootstrap_servers

    @property
    def broker_ids(self) -> tuple[int, ...]:
        return tuple(node.id for node in self.record.brokers)

    @property
    def controller_ids(self) -> tuple[int, ...]:
        """None that could be hurt: nobody asks a stranger's controllers."""
        return ()

    @property
    def engine(self) -> str:
        return " of a cluster elsewhere"

    def node(self, node_id: int) -> NodeRecord:
        return self.record.node(node_id)

    def state(self, node_id: int) -> State:
        """Say what was done to a node. What has become of it by itself nobody knows.

        Nor whether one that was asked to start, and doesn't serve, is dead.
        """
        if node_id in self._starting:
            return State.RUNNING
        return _STATE.get(self._hurt.get(node_id, ""), State.RUNNING)

    # Hurting, and starting again

    def start(self, *, timeout_s: float = SERVE_S) -> None:
        """See that it serves: every broker answers at its own address, and shows the others."""
        waiting = dict.fromkeys(self.broker_ids)

        def serve() -> bool:
            for each in list(waiting):
                if self._shown_by(each) >= set(self.broker_ids):
                    del waiting[each]
            return not waiting

        try:
            processes.wait_until(serve, timeout_s=min(timeout_s, SERVE_S), what="the brokers")
        except WaitError:
            node = self.node(next(iter(waiting)))
            raise ClusterError(
                f"node {node.id}, which the cluster says is at {node.address}, does not answer "
                "from here, or does not know the others"
            ) from None

    def kill(
        self,
        node_id: int,
        signal: str = "KILL",
        *,
        wait: bool = True,
        timeout_s: float | None = None,
    ) -> None:
        """Have something done to a broker, by the command for it (`COMMAND_OF`)."""
        node, name = self.node(node_id), COMMAND_OF[signal]
        commands = self._with_commands(f"`{name}`")
        self._touched[node_id] = None
        if name in {RESUME, HEAL}:
            commands.run(name, node)
            self.wait_serving(node_id, timeout_s=timeout_s or self.start_timeout_s)
            return
        self._hurt[node_id] = name  # before it is begun: it may be interrupted
        self._sure.discard(node_id)
        self._starting.discard(node_id)
        commands.begin(name, node)
        if wait:
            self.wait_signalled(node_id, signal, timeout_s=timeout_s)

    def wait_signalled(self, node_id: int, signal: str, *, timeout_s: float | None = None) -> None:
        """Wait until the command has ended, and the broker answers no more."""
        commands = self._with_commands(signal)
        commands.finish(node_id)
        if COMMAND_OF[signal] in {RESUME, HEAL}:
            return
        node, bound_s = self.node(node_id), timeout_s or EFFECT_S
        try:
            self._wait(lambda: self._is_silent(node_id), bound_s)
        except WaitError:
            raise ClusterError(
                f"{commands.last[node_id]} ended well, and node {node_id} still answers at "
                f"{node.address} {bound_s:g} s later"
            ) from None
        self._sure.add(node_id)

    def start_node(
        self, node_id: int, *, wait: bool = True, timeout_s: float | None = None
    ) -> NodeRecord:
        """Have a broker started; with `wait`, return when it serves requests."""
        node = self.node(node_id)
        self._touched[node_id] = None
        self._starting.add(node_id)
        self._with_commands(f"`{START}`").begin(START, node)
        if wait:
            self.wait_serving(node_id, timeout_s=timeout_s or self.start_timeout_s)
        return node

    def wait_serving(self, node_id: int, *, timeout_s: float = SERVE_S) -> None:
        """Wait until a broker shows itself, behind the command that may still run for it."""
        commands = self._with_commands(f"`{START}`")
        commands.finish(node_id)
        try:
            self._wait(lambda: node_id in self._shown_by(node_id), timeout_s)
        except WaitError:
            last = commands.last.get(node_id, "nothing was run")
            raise ClusterError(
                f"node {node_id} does not serve at {self.node(node_id).address} {timeout_s:g} s "
                f"after {last}"
            ) from None
        self._hurt.pop(node_id, None)
        self._starting.discard(node_id)

    def wait_whole(self) -> None:
        """Wait until all that the cluster keeps, whoever's it is, is on every replica that it has.

        ClusterError: it is not in time. To hurt one more broker then may cost others their data.
        """
        missing: list[str] = []

        def whole() -> bool:
            missing[:] = self._not_whole()
            return not missing

        try:
            self._wait(whole, self.start_timeout_s)
        except WaitError:
            more = f" and {len(missing) - SHOWN_MAX} more" if len(missing) > SHOWN_MAX else ""
            raise ClusterError(
                f"the cluster is not whole after {self.start_timeout_s:g} s, so no broker of it is "
                f"hurt: {', '.join(missing[:SHOWN_MAX])}{more}"
            ) from None

    def _not_whole(self) -> list[str]:
        """Return which partitions lack a replica in sync, and which."""
        for node in self.nodes:
            answer = probe.ask(node.watch_address, None)
            if answer is not None:
                return [
                    f"{topic}-{number} has {sorted(state.isr)} of {sorted(state.replicas)} in sync"
                    for topic, partitions in answer.topics.items()
                    for number, state in partitions.items()
                    if set(state.isr) != set(state.replicas)
                ]
        return ["nobody answers"]

    @property
    def is_hurt(self) -> bool:
        """Whether a broker is, or may be, hurt now."""
        return bool(self._hurt)

    def restore(self, say: Callable[[str], None]) -> list[str]:
        """Undo what was done: let go on, heal, start. Return what could not be undone.

        It may be called again when it was interrupted: what is undone is not done again.
        """
        commands = self._commands
        if commands is None or not self._touched:
            return []
        ended_well = commands.settle()
        left: dict[int, str] = {}
        for node_id, name in list(self._hurt.items()):
            try:
                if self._has_started(node_id, ended_well=node_id in ended_well):
                    say(f"undone: node {node_id} was asked to start, and serves")
                else:
                    self._undo(commands, node_id, name, say)
            except (ClusterError, OSError) as error:
                left[node_id] = str(error)
        for node_id in list(self._touched):
            if node_id not in left:
                try:
                    self.wait_serving(node_id, timeout_s=self.start_timeout_s)
                except (ClusterError, OSError) as error:
                    left[node_id] = str(error)
        return [
            f"node {node_id} ({self._hurt.get(node_id, 'touched')}): {text}"
            for node_id, text in left.items()
        ]

    def _has_started(self, node_id: int, *, ended_well: bool) -> bool:
        """Whether a broker serves that its owner's command was asked to start before.

        A second start of one that only takes its time may harm it. ClusterError: the command has
        `ended_well`, and the broker does not come to serve.
        """
        if node_id not in self._starting:
            return False
        try:
            self.wait_serving(node_id, timeout_s=self.start_timeout_s)
        except ClusterError:
            if ended_well:
                raise
            return False
        return True

    def _undo(
        self, commands: NodeCommands, node_id: int, name: str, say: Callable[[str], None]
    ) -> None:
        undo = UNDONE_BY[name]
        if undo == START and node_id not in self._sure:
            # Its command was interrupted, or failed: it may not have been hurt at all.
            bound_s = EFFECT_S if name == TERMINATE else DOUBT_S
            try:
                self._wait(lambda: self._is_silent(node_id), bound_s)
            except WaitError:
                del self._hurt[node_id]
                return
        was_asked = node_id in self._starting
        if undo == START:  # before it is begun: it may be interrupted
            self._starting.add(node_id)
        try:
            commands.run(undo, self.node(node_id))
        except ClusterError as error:
            # Refused where there is nothing to undo: a start was under way when it was
            # interrupted, a pause was never begun, or somebody else has been quicker.
            bound_s = self.start_timeout_s if was_asked else 0.0
            try:
                self.wait_serving(node_id, timeout_s=bound_s)
            except ClusterError:
                raise error from None
        say(f"undone: {undo} of node {node_id}")

    def down(self, *, timeout_s: float = 0.0) -> list[int]:
        """Leave it as it is: it is not ours to stop."""
        del timeout_s
        return []

    def _with_commands(self, what: str) -> NodeCommands:
        if self._commands is None:
            raise ClusterError(
                f"{what}: nothing may be done to this cluster; --nodes FILE.toml says how it is"
            )
        return self._commands

    # Looking

    def partitions(self, topic: str) -> dict[int, PartitionState] | None:
        """Return a topic's partitions as a broker shows them; None: nobody answered."""
        for node in self.nodes:
            if self.state(node.id) is State.RUNNING:
                answer = probe.ask(node.watch_address, [topic])
                if answer is not None:
                    return answer.topics.get(topic, {})
        return None

    def answers(self) -> bool | None:
        """Whether a broker answers to which nothing was done; None: there is no such broker."""
        asked = [each for each in self.broker_ids if each not in self._hurt]
        for each in asked:
            with suppress(ClusterError):  # what answers there is no broker of this cluster
                if self._shown_by(each):
                    return True
        # One that was hurt while it was asked is silent for that.
        return False if any(each not in self._hurt for each in asked) else None

    def _shown_by(self, node_id: int) -> set[int]:
        """Return the brokers that a broker shows; none: it does not answer.

        ClusterError: what answers there is of another cluster, which may know the same ids.
        """
        node = self.node(node_id)
        answer = probe.ask(node.watch_address, timeout_s=ANSWER_S)
        if answer is None:
            return set()
        found, own = answer.cluster_id or WITHOUT_ID, self.record.cluster_id
        if found != own:
            raise ClusterError(
                f"node {node_id}: what answers at {node.address} is of the cluster {found}, and "
                f"not of {own}"
            )
        return set(answer.brokers)

    def _is_silent(self, node_id: int) -> bool:
        """Whether a broker does not answer, twice: one that is only slow is not dead."""
        address = self.node(node_id).watch_address
        return all(probe.ask(address, timeout_s=ANSWER_S) is None for _ in range(SILENT_LOOKS))

    def _wait(self, condition: Callable[[], bool], timeout_s: float) -> None:
        """WaitError: it does not come true in time."""
        processes.wait_until(condition, timeout_s=timeout_s, what="a broker", poll_s=POLL_S)

    # What only a cluster of one's own has

    def quorum(self) -> QuorumState | None:
        self._refuse("its controllers")

    def wait_for_active_controller(
        self, *, other_than: int | None = None, timeout_s: float = 0.0
    ) -> QuorumState:
        del other_than, timeout_s
        self._refuse("its controllers")

    def status(self) -> ClusterStatus:
        self._refuse("its processes")

    def network(self) -> ClusterNetwork:
        self._refuse("its network")

    def links(self) -> Links:
        self._refuse("its links")

    def refuse_broken_network(self) -> None:
        """Nothing: whose it is, nobody here has made it."""

    def _refuse(self, what: str) -> NoReturn:
        raise ClusterError(f"This cluster is not the lab's own: of {what} nothing is known here.")
