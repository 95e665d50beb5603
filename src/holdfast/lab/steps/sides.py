"""What scenarios do to the links of a run's network, and how clients come to stand on each side.

Owns cutting and healing, with the entries in the history, and the questions that one side alone is
asked. Where relays stand in for the network, clients can't be told apart: then nodes are cut from
each other alone, and who stands beside one is told that one's address.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Collection, Container, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from holdfast.clients.blocking_driver import NoLeaderError, UnreachableError, UnsupportedError
from holdfast.cluster import plan
from holdfast.cluster.layout import ClusterError, ClusterRecord
from holdfast.cluster.network.addresses import HOST, Kind, Plan
from holdfast.cluster.network.link_table import Pair
from holdfast.cluster.network.links import link_requests
from holdfast.cluster.network.links.link_calls import Links
from holdfast.cluster.network.possible import WITH_PROXIES
from holdfast.cluster.networked import plan_of
from holdfast.cluster.probe import PartitionState, ask
from holdfast.judge.history import (
    Acknowledged,
    LeaderChange,
    LeaderClaim,
    LinkChange,
    Refused,
    Send,
    Unknown,
)
from holdfast.judge.timeline import CUT, HEAL, WHOLE
from holdfast.judge.verdict import Anomaly
from holdfast.lab.evidence import events_of
from holdfast.lab.parameters import LabError, refuse_if
from holdfast.lab.report import Table
from holdfast.lab.report.words import LOSSY, SLOW, SWALLOWED
from holdfast.lab.run import Run
from holdfast.lab.workload_processes import Worker

ASK_S = 2.0
OBSERVED = "observer.jsonl"  # what the run's observer writes
# A client whose packets vanish learns of it when a request has taken too long: librdkafka's own
# bounds are 30 and 60 s, and until then it sends nothing to whoever leads now.
PATIENT: Mapping[str, Any] = {"config": ["request.timeout.ms=4000", "socket.timeout.ms=5000"]}
ANSWER_MS = 2000  # a client without patience waits no longer, so that it goes on asking
AGAIN_S = 60.0  # after healing: TCP waits longer and longer before it tries again
LOOK_S = 1.0  # between two questions for first bytes; the kernel notes when they came
LINKS_SHOWN = 60
READING: Mapping[str, Any] = {"config": ["socket.timeout.ms=5000"]}
# How a raw client's sends are refused that no broker has seen.
NOT_ASKED = frozenset(each.__name__ for each in (NoLeaderError, UnreachableError, UnsupportedError))


# What a control with acks=1 only counts: its producer is not idempotent. Never where it is: there
# a broker has to put in order, and leave out, whatever its client sends again.
LATE = frozenset({Anomaly.REORDERED, Anomaly.DUPLICATED})
LATE_BECAUSE = (
    "a client that gave up a connection has what it sent there delivered once the network heals, "
    "behind what it sent later, and it may send once more, to the next leader, what the former "
    "one had taken, even with retries=0; without idempotence nobody puts that in order, or leaves "
    "it out."
)


class Event(NamedTuple):
    """One event where it stands, or stood."""

    partition: int
    offset: int
    id: str


def acknowledged_of(
    history: Path, begin_ms: float, end_ms: float, told_by_ms: float = math.inf
) -> set[Event]:
    """Return what a client sent in [begin_ms, end_ms) and was told is kept, before `told_by_ms`."""
    sent: set[str] = set()
    found: set[Event] = set()
    for event in events_of([history]):
        if isinstance(event, Send) and begin_ms <= event.at_ms < end_ms:
            sent.add(event.id)
        elif event.at_ms >= told_by_ms:
            break
        elif isinstance(event, Acknowledged) and event.id in sent and event.offset is not None:
            found.add(Event(event.partition, event.offset, event.id))
    return found


def all_acknowledged_ms(
    histories: Sequence[Path], begin_ms: float, end_ms: float, partitions: Collection[int]
) -> float | None:
    """Return when each partition had acknowledged to one of these clients what it sent meanwhile.

    Sent in [begin_ms, end_ms), and acknowledged before its end; None: a partition never did.
    """
    sent: set[str] = set()
    waiting = set(partitions)
    for event in events_of(histories):
        if event.at_ms >= end_ms:
            break
        if isinstance(event, Send) and event.at_ms >= begin_ms:
            sent.add(event.id)
        elif isinstance(event, Acknowledged) and event.id in sent:
            waiting.discard(event.partition)
            if not waiting:
                return event.at_ms
    return None


def expect_silent(
    run: Run,
    client: Worker,
    when: str,
    begin_ms: float,
    end_ms: float,
    told_by_ms: float = math.inf,
) -> None:
    """Check that nothing is acknowledged of what a raw client sent in [begin_ms, end_ms).

    LabError: it asked no broker meanwhile, so none could acknowledge anything.
    """
    refuse_if(
        not asked_of(client.history, begin_ms, end_ms),
        f"{client.name} reached no broker in {(end_ms - begin_ms) / 1000:.1f} s ({when})",
    )
    found = acknowledged_of(client.history, begin_ms, end_ms, told_by_ms)
    run.check(
        f"{client.name}, {when}",
        "none acknowledged",
        f"{len(found)} acknowledged",
        kept=not found,
    )


def expect_one_leader_an_epoch(run: Run) -> None:
    """Check that no two brokers were taken for the leader of one epoch, whoever was asked."""
    leaders: dict[tuple[int, int], set[int]] = {}
    for event in events_of([run.history / OBSERVED]):
        if isinstance(event, LeaderChange | LeaderClaim) and event.leader >= 0:
            leaders.setdefault((event.partition, event.epoch), set()).add(event.leader)
    several = [
        f"P{partition}, epoch {epoch}: {', '.join(map(str, sorted(found)))}"
        for (partition, epoch), found in sorted(leaders.items())
        if len(found) > 1
    ]
    run.check(
        "leaders of each epoch, by all who were asked",
        "one",
        "; ".join(several) or "one",
        kept=not several,
    )


def asked_of(history: Path, begin_ms: float, end_ms: float) -> int:
    """Count what a raw client sent in [begin_ms, end_ms) that a broker was asked to take."""
    sent: set[str] = set()
    asked: set[str] = set()
    for event in events_of([history]):
        if isinstance(event, Send):
            if begin_ms <= event.at_ms < end_ms:
                sent.add(event.id)
        elif isinstance(event, Acknowledged | Unknown) or (
            isinstance(event, Refused) and event.error not in NOT_ASKED
        ):
            asked.add(event.id)
    return len(sent & asked)


def sent_ms_of(history: Path, ids: Container[str]) -> list[float]:
    """Return when each of these events was sent, in order of time."""
    sends = (event for event in events_of([history]) if isinstance(event, Send))
    return sorted(event.at_ms for event in sends if event.id in ids)


class Side(NamedTuple):
    """Where a client stands, None for outside, and whom it asks first."""

    place: str | None
    servers: str

    @property
    def flags(self) -> dict[str, Any]:
        """What a client of the run is started with."""
        return {"place": self.place, "bootstrap_server": self.servers}


@dataclass(frozen=True, eq=False, slots=True)  # two that say the same are two
class Held:
    """A fault of links that holds: the request that began it, and the nodes it was done to."""

    request: Mapping[str, Any]
    nodes: tuple[int, ...] = ()


class FirstBytes:
    """Asks the agent of links, once they are healed, when the first byte passed, in a thread.

    It asks until the run's nodes have ended, and puts a table into the run's. To ask also ends what
    is waited for on links that have spoken, so that it costs them nothing.
    """

    TITLE = "From healing to the first byte, by link"

    def __init__(self, run: Run, links: Links) -> None:
        self._run, self._links = run, links
        self._told: Sequence[Mapping[str, Any]] = ()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._ask, name="first bytes", daemon=True)

    def start(self) -> None:
        """Begin, unless it has begun already."""
        if self._thread.ident is None:
            self._run.afterwards.callback(self._end)
            self._thread.start()

    def _ask(self) -> None:
        while not self._ending.wait(LOOK_S):
            with suppress(ClusterError):  # the network ends before who asks does
                self._told = self._links.first_bytes()

    def _end(self) -> None:
        self._ending.set()
        self._thread.join()
        if self._told and all(table.title != self.TITLE for table in self._run.tables):
            self._run.tables.append(first_bytes(self._told))


def first_bytes(told: Sequence[Mapping[str, Any]]) -> Table:
    """Return a table of each link's heals, those that were silent longest first."""
    heals: dict[Pair, list[Mapping[str, Any]]] = {}
    for each in told:
        heals.setdefault((each["from"], each["to"]), []).append(each)
    rows: list[tuple[float, list[str]]] = []
    for (source, target), those in heals.items():
        seen = sorted(each["after_s"] for each in those if each["after_s"] is not None)
        again = sum(each["cut_again"] for each in those)
        nothing = len(those) - len(seen) - again
        first = f"{seen[0]:.2f}" if seen else "-"
        last = f"{seen[-1]:.2f}" if seen else "-"
        counts = [str(len(those)), first, last, str(again), str(nothing)]
        rows.append((seen[-1] if seen else -1.0, [f"{source} -> {target}", *counts]))
    rows.sort(key=lambda row: row[0], reverse=True)
    shown = f" The first {LINKS_SHOWN} of {len(rows)} links." if len(rows) > LINKS_SHOWN else ""
    return Table(
        title=FirstBytes.TITLE,
        header=["link", "healed", "s, least", "s, most", "cut again", "nothing"],
        rows=[row for _, row in rows[:LINKS_SHOWN]],
        note="Until the first TCP segment with data passed, of whatever connection. Cut again: "
        "before that. Nothing: none until the run's end, or in five minutes; many links have "
        f"nothing to carry.{shown}",
    )


class Sides:
    """A run's network: what is cut in it, and who is where.

    Faults may hold the same link. Whoever ends one of them opens what no other one holds.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._held: list[Held] = []  # in the order in which they began
        self._deaf: tuple[Pair, ...] = ()  # links whose answers are being swallowed
        self._links = run.cluster.links()
        self._first_bytes = FirstBytes(run, self._links)
        self.record: ClusterRecord = run.cluster.record
        self.plan: Plan = plan_of(self.record)
        if not self.has_places:
            run.note(WITH_PROXIES)

    @property
    def has_places(self) -> bool:
        """Whether clients stand in the network as well, so that they can be cut off."""
        return self.record.network == plan.NAMESPACES

    def of(self, *nodes: int) -> Side:
        """Return where clients of these brokers stand, beside the first of them."""
        found = [self.record.node(node) for node in nodes]
        if not self.has_places:
            return Side(None, ",".join(each.outside_address for each in found))
        return Side(self._clients(nodes[0]), ",".join(each.address for each in found))

    def _clients(self, node: int) -> str:
        """Return the place of the clients in a node's zone."""
        zone = self.plan.place(str(node)).zone
        return next(p.name for p in self.plan.places if p.kind is Kind.CLIENT and p.zone == zone)

    def nodes_of(self, zone: str) -> list[int]:
        """Return the nodes of a zone, brokers first."""
        return [int(p.name) for p in self.plan.members(zone) if p.name.isdecimal()]

    def isolate(self, *nodes: int, clients: bool = True) -> float:
        """Cut nodes, and the clients beside the first of them, from all others but the observer.

        Return from when on that holds, in monotonic ms.
        """
        names = [str(node) for node in nodes]
        if not self.has_places:
            others = [str(node.id) for node in self.record.nodes if node.id not in nodes]
            return self.cut(",".join(names), ",".join(others), nodes, "from all other nodes")
        beside = [self._clients(nodes[0])] if clients else []
        detail = f"with {beside[0]}, from all others" if beside else "from all others"
        return self._cut({"do": "isolate", "a": ",".join([*names, *beside])}, nodes, detail)

    def isolate_zone(self, zone: str) -> float:
        """Cut a zone's nodes and clients from all others; return from when on, in monotonic ms."""
        return self.isolate(*self.nodes_of(zone))

    def cut(
        self, a: str, b: str, nodes: Sequence[int], detail: str, *, one_way: bool = False
    ) -> float:
        """Cut the links between A and B. `nodes` are those that the history says it was done to.

        Return from when on that holds, in monotonic ms.
        """
        return self._cut({"do": "cut", "a": a, "b": b, "one_way": one_way}, nodes, detail)

    def _cut(self, request: Mapping[str, Any], nodes: Sequence[int], detail: str) -> float:
        for node in nodes:
            self._run.record_fault(CUT, node, detail)
        self._changed(self._begin(request, nodes), CUT)
        return time.monotonic() * 1000

    def _begin(self, request: Mapping[str, Any], nodes: Sequence[int] = ()) -> list[Pair]:
        """Begin a fault; return the links that it changed."""
        changed = self._links.change(request)
        self._held.append(Held(request, tuple(nodes)))
        return changed

    @property
    def latest(self) -> Held:
        """The fault that was begun last: what `end` is told."""
        return self._held[-1]

    def end(self, fault: Held) -> None:
        """End one fault: what others hold as well stays as it is, with no moment in between."""
        before = self._states()
        self._held.remove(fault)
        still_cut = {node for each in self._held for node in each.nodes}
        for node in dict.fromkeys(fault.nodes):
            if node not in still_cut:
                self._run.record_fault(HEAL, node)
        self._links.hold([each.request for each in self._held], watch=self._watch())
        now = self._states()
        changed = [pair for pair, state in before.items() if now.get(pair) != state]
        self._changed(changed, WHOLE)
        for state in (LOSSY, SLOW):  # what another fault holds, and showed less than this one
            left = [pair for pair in changed if now.get(pair) == state]
            if left:
                self._changed(left, state)

    def _watch(self) -> bool:
        """See to it that first bytes are asked for; say whether they can be seen."""
        if self.has_places:
            self._first_bytes.start()
        return self.has_places

    def _states(self) -> dict[Pair, str]:
        """Return the worst that is wrong with each link that is not whole."""
        table = link_requests.held(self.plan, [each.request for each in self._held])
        return {
            pair: CUT if link.cut is not None else LOSSY if link.lose else SLOW
            for pair, link in table.items()
            if not link.is_whole
        }

    def client_of(self, side: Side) -> str:
        """Return the name that links have for the clients of a side."""
        return HOST if side.place is None else side.place

    def swallow(self, node: int, api: str, count: int, *, close: bool) -> None:
        """Swallow so many of a node's answers to the clients in its zone."""
        client = self.client_of(self.of(node))
        then = "the connection is closed then" if close else "the connection stays, silent"
        self._run.note(f"the next {count} answers of {node} to {api} are swallowed; {then}")
        pairs = self._links.drop_responses(client, str(node), api, count=count, close=close)
        self._changed(pairs, SWALLOWED)
        self._deaf = tuple(pairs)

    def swallowed(self, count: int) -> int:
        """Return how many answers were swallowed since, once it is so many; before that, none."""
        found = [link["answers"] for link in self._links.status()["links"] if link["answers"]]
        seen: int = sum(each["swallowed"] for each in found)
        if seen < count:
            return 0
        if self._deaf:
            self._changed(self._deaf, WHOLE)
            self._deaf = ()
        return seen

    def slow(self, a: str, b: str, *, latency: str | None = None, rate: str | None = None) -> float:
        """Delay what passes between two nodes, or bound it, each way; return from when on."""
        how = " and ".join(each for each in (latency and f"{latency} late", rate) if each)
        self._run.note(f"the link between {a} and {b} is slowed: {how}, each way")
        request = {"do": "slow", "a": a, "b": b, "latency": latency, "rate": rate}
        self._changed(self._begin(request), SLOW)
        return time.monotonic() * 1000

    def lose(self, a: str, b: str, share: str) -> None:
        """Let a share of the packets between two nodes vanish."""
        self._run.note(f"{share} of the packets between {a} and {b} vanish")
        self._changed(self._begin({"do": "lose", "a": a, "b": b, "share": share}), LOSSY)

    def dropped(self) -> int:
        """Return how many packets all cut and lossy links have dropped so far."""
        return sum(self.dropped_by_link().values())

    def dropped_by_link(self) -> dict[Pair, int]:
        """Return how many packets each link has dropped so far that was ever cut or lossy."""
        links = self._links.status()["links"]
        return {(each["from"], each["to"]): sum(each["dropped"].values()) for each in links}

    def links_of(self, fault: Held) -> frozenset[Pair]:
        """Return the links that a fault holds, whoever else holds them, too."""
        return frozenset(link_requests.held(self.plan, [fault.request]))

    def must_drop(self, what: str, before: int = 0) -> None:
        """LabError: no packet was dropped since `before` of them were, so `what` was not made."""
        refuse_if(self.has_places and self.dropped() <= before, f"{what} has dropped no packet")

    def heal(self) -> float:
        """Make all links whole; return the moment before, in monotonic ms."""
        at_ms = time.monotonic() * 1000
        for node in dict.fromkeys(node for each in self._held for node in each.nodes):
            self._run.record_fault(HEAL, node)
        self._held.clear()
        self._changed(self._links.heal(watch=self._watch()), WHOLE)
        return at_ms

    def _changed(self, pairs: Sequence[tuple[str, str]], state: str) -> None:
        self._run.record(LinkChange, pairs=tuple(pairs), state=state)

    def look_past(self, *brokers: int) -> None:
        """Let the observer ask others than these, whose knowledge gets old, and these alone."""
        for broker in brokers:
            self._run.observer.avoid(broker)
            self._run.observer.ask_alone(broker)
        self._run.sync_view()

    def look_again(self, *brokers: int) -> None:
        """Let the observer ask these again."""
        for broker in brokers:
            self._run.observer.allow(broker)

    def believes(self, broker: int, partition: int) -> PartitionState:
        """Return what this one broker says of a partition, over a way that is never cut.

        LabError: it does not answer.
        """
        address = self._run.cluster.node(broker).watch_address
        try:
            answer = ask(address, [self._run.topic], timeout_s=ASK_S)
        except ClusterError as error:
            raise LabError(str(error)) from error
        state = None if answer is None else answer.topics[self._run.topic].get(partition)
        if state is None:
            raise LabError(f"node {broker} does not say who leads {self._run.topic}-{partition}")
        return state
