"""The network and the controllers of a run that is played: cuts are made, and hold."""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, Self

from tests.lab.played import Played

from holdfast.cluster import ClusterError
from holdfast.cluster.quorum import QuorumReplica, QuorumState
from holdfast.lab.parameters import refuse_if
from holdfast.lab.scenarios.networks.storm_machines import Met
from holdfast.lab.steps.controllers import Change
from holdfast.lab.steps.sides import Side
from holdfast.lab.steps.storm_plan import Deed


class PlayedSides:
    """What stands in for `Sides`: it writes down what is done to links."""

    def __init__(self, played: Any) -> None:
        self._played: Played = played
        self._dropped = 0
        self.has_places = True
        self.latest = ""  # what was begun last
        self._isolated: dict[str, tuple[int, ...]] = {}
        nodes = [str(node.id) for node in played.cluster.nodes]
        self.plan = SimpleNamespace(places=[SimpleNamespace(name=name) for name in nodes])

    def of(self, *nodes: int) -> Side:
        return Side(f"client-{nodes[0]}", ",".join(map(str, nodes)))

    def client_of(self, side: Side) -> str:
        return str(side.place)

    def nodes_of(self, zone: str) -> list[int]:
        number = "abc".index(zone)
        return [number, 100 + number]

    def isolate(self, *nodes: int, clients: bool = True) -> float:
        self._played.now_ms += 1
        self._begin(f"isolate {nodes}{'' if clients else ' without clients'}", nodes)
        self._isolated[self.latest] = nodes
        for node in nodes:
            if node in self._played.cluster.broker_ids:
                self._played.apart[node] = dict(self._played.view.partitions)
            else:
                self._played.mute.add(node)
        return self._played.now_ms

    def isolate_zone(self, zone: str) -> float:
        return self.isolate(*self.nodes_of(zone))

    def cut(
        self, a: str, b: str, nodes: Sequence[int], detail: str, *, one_way: bool = False
    ) -> float:
        text = f"cut {a} from {b}{' one way' if one_way else ''}, {tuple(nodes)} {detail}"
        self._begin(text, [*nodes, *self._ends(a, b)])
        if detail in {"cut off", "unheard", "deaf"} and not self._played.lie.is_leaky:
            self._played.cut_clients |= {each for each in (a, b) if each.startswith("client")}
        self._played.is_zoned |= "node-" in a
        self._played.mute |= set(nodes) & set(self._played.cluster.controller_ids)
        return self._played.now_ms

    def _ends(self, *names: str) -> list[int]:
        """Return the brokers that links with these ends join; a group has them all."""
        if {"replication", "brokers", "all"} & set(names):
            return list(self._played.cluster.broker_ids)
        ours = [name for name in names if not name.startswith("client")]
        numbers = [each.rpartition("-")[2] for name in ours for each in name.split(",")]
        return [int(number) for number in numbers if number.isdigit()]

    def _begin(self, text: str, hindered: Sequence[int] = ()) -> None:
        self._played.now_ms += 1
        self._played.do(text)
        self._played.hindrances[text] = frozenset(hindered)
        self.latest = text
        self._dropped += 0 if self._played.lie.is_leaky else 7

    def swallow(self, node: int, api: str, count: int, *, close: bool) -> None:
        self._begin(f"swallow {count} answers of {node} to {api}{', close' if close else ''}")
        self._played.swallows = 0 if self._played.is_patient else count

    def swallowed(self, count: int) -> int:
        return count

    def slow(self, a: str, b: str, *, latency: str | None = None, rate: str | None = None) -> float:
        self.latest = f"slow {a} to {b}: {latency or rate}"
        self._played.do(self.latest)
        self._played.hindrances[self.latest] = frozenset(self._ends(a, b))
        self._played.slow_ms = 0.0 if self._played.lie.is_hasty else 2000.0
        return self._played.now_ms

    def dropped(self) -> int:
        return self._dropped

    def dropped_by_link(self) -> dict[tuple[str, str], int]:
        return {("0", "1"): self._dropped}

    def links_of(self, _fault: str) -> frozenset[tuple[str, str]]:
        return frozenset({("0", "1")})

    def must_drop(self, what: str, before: int = 0) -> None:
        self._played.do(f"{what} must drop packets")
        refuse_if(self._dropped <= before, f"{what} has dropped no packet")

    def heal(self) -> float:
        self._played.do("heal")
        self._played.now_ms += 1
        at_ms = self._played.now_ms
        self._played.now_ms += 1
        self._played.slow_ms, self._played.is_zoned = 0.0, False
        self._played.cut_clients.clear()
        self._played.apart.clear()
        self._played.mute.clear()
        self._played.hindrances.clear()
        return at_ms

    def end(self, fault: str) -> None:
        self._played.do(f"end of: {fault}")
        del self._played.hindrances[fault]
        for node in self._isolated.pop(fault, ()):
            self._played.apart.pop(node, None)
            self._played.mute.discard(node)

    def lose(self, a: str, b: str, share: str) -> None:
        self._begin(f"lose {share} from {a} to {b}", self._ends(a, b))

    def look_past(self, *brokers: int) -> None: ...

    def look_again(self, *brokers: int) -> None: ...

    def believes(self, broker: int, partition: int) -> Any:
        if self._played.lie.is_humble:
            return self._played.view.partitions[partition]
        return self._played.apart[broker][partition]


class PlayedQuorum:
    """The controllers: one that lives and is heard is active, if a majority of them is."""

    def __init__(self, played: Played) -> None:
        self._played = played
        self._leader, self._epoch = played.cluster.controller_ids[0], 3
        cluster = played.cluster
        cluster.quorum = self.look
        cluster.wait_for_active_controller = self.wait
        played.mute = set()

    def look(self) -> QuorumState | None:
        voters = self._played.cluster.controller_ids
        heard = [node for node in voters if self._played.hears(node)]
        if 2 * len(heard) <= len(voters) and not self._played.lie.is_unled:
            return None
        if heard and self._leader not in heard:
            self._leader = heard[0]
            self._epoch += not self._played.lie.is_stale
        if self._played.lie.is_restless:
            self._epoch += 1
        replicas = tuple(
            QuorumReplica(
                id=node, directory_id=b"", log_end=9, last_fetch_ms=0, last_caught_up_ms=0
            )
            for node in voters
        )
        return QuorumState(
            leader=self._leader,
            epoch=self._epoch,
            high_watermark=9,
            voters=replicas,
            observers=(),
        )

    def wait(self, *, other_than: int | None, timeout_s: float) -> QuorumState:
        found = self.look()
        is_vacant = self._played.lie.is_vacant and other_than is not None
        if found is None or found.leader == other_than or is_vacant:
            raise ClusterError(f"no active controller in {timeout_s:g} s")
        return found


class PlayedChanger:
    """What stands in for who changes metadata: each change is made at once, if anybody can."""

    def __init__(self, played: Played) -> None:
        self._played = played
        self.changes = [Change(0.0, 1.0, None)]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def first_after(self, at_ms: float) -> Change | None:
        return Change(at_ms, at_ms + 1, None) if self._played.can_change else None

    def made_since(self, at_ms: float) -> int:
        assert at_ms < math.inf
        is_led = self._played.cluster.quorum() is not None
        return int(is_led or self._played.lie.is_leaky)


class PlayedMachines:
    """What stands in for `Machines`: disks run full, and who has one ends by itself."""

    def __init__(self, played: Played) -> None:
        self._played = played
        self._wrong: set[int] = set()
        self.cannot: dict[Deed, str] = {}
        played.do("each node is started anew, on a disk and by a clock of its own")

    def fill(self, node: int) -> bool:
        self._played.do(f"fill the disk of {node}")
        self._played.signal(node, "KILL")
        return True

    def look(self, node: int) -> bool:
        return bool(self._played.cluster.state(node) == "dead")

    def make_room(self, node: int) -> Met:
        self._played.do(f"make room for {node}")
        return Met.ENDED

    def is_wrong(self, node: int) -> bool:
        return node in self._wrong

    def set_clock(self, node: int, minutes: int) -> None:
        (self._wrong.add if minutes else self._wrong.discard)(node)
        self._played.do(f"the clock of {node} is {minutes} minutes ahead")
