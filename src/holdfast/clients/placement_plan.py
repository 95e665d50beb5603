"""Where replicas should go when brokers come or leave, or a topic gets more of them. Pure.

Owns the choice for those who ask for a purpose and not for brokers: as little is moved as the
purpose takes. Racks come first, then even numbers. The cluster itself decides nothing of this: what
comes out is a target for AlterPartitionReassignments.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

TopicPartition = tuple[str, int]
Assignment = dict[TopicPartition, list[int]]


class PlanError(Exception):
    """What is asked for can't be had; the text says why."""


class Planner:
    """Changes an assignment step by step, and knows how much each broker holds meanwhile."""

    def __init__(
        self, current: Mapping[TopicPartition, Sequence[int]], racks: Mapping[int, str | None]
    ) -> None:
        """`racks` names the brokers that may be used, each with its rack."""
        self.planned: Assignment = {key: list(nodes) for key, nodes in sorted(current.items())}
        self._current = {key: list(nodes) for key, nodes in current.items()}
        self._racks = racks
        held = Counter(node for nodes in self.planned.values() for node in nodes)
        self._load = {node: held[node] for node in sorted(racks)}

    @property
    def changes(self) -> Assignment:
        """The partitions whose replicas are others, or in another order, than before."""
        return {key: nodes for key, nodes in self.planned.items() if nodes != self._current[key]}

    def use_only_known_brokers(self) -> None:
        """Leave every broker that is not to be used."""
        held = {node for nodes in self.planned.values() for node in nodes}
        self.leave(sorted(held - self._load.keys()))

    def leave(self, brokers: Sequence[int]) -> None:
        """Put another in the place of each replica on these brokers, which are not to be used."""
        assert not set(brokers) & self._load.keys(), "a broker to be left is to be used"
        led = [nodes for nodes in self.planned.values() if nodes[0] in brokers]
        for key, nodes in self.planned.items():
            for position, node in enumerate(list(nodes)):
                if node not in brokers:
                    continue
                nodes[position] = self._choose(key, [each for each in nodes if each != node])
                self._load[nodes[position]] += 1
        self._spread_leaders(led)

    def set_factor(self, factor: int) -> None:
        """Give every partition so many replicas; the first of its list stays the first."""
        for key, nodes in self.planned.items():
            while len(nodes) < factor:
                nodes.append(self._choose(key, nodes))
                self._load[nodes[-1]] += 1
            while len(nodes) > factor:
                gone = max(nodes[1:], key=lambda node: (self._crowd(node, nodes), self._held(node)))
                nodes.remove(gone)
                if gone in self._load:
                    self._load[gone] -= 1

    def spread(self) -> None:
        """Even out how many replicas each broker holds, and how many it is to lead."""
        for _ in range(sum(self._load.values())):
            if not self._move_one():
                break
        self._spread_leaders(list(self.planned.values()))

    def _move_one(self) -> bool:
        """Move one replica from a broker with many to one with few. False: it is even."""
        by_load = sorted(self._load, key=lambda node: (self._load[node], node))
        for crowded in reversed(by_load):
            for idle in by_load:
                if self._load[crowded] - self._load[idle] <= 1:
                    break
                for nodes in self.planned.values():
                    if (
                        crowded in nodes
                        and idle not in nodes
                        and self._may_swap(nodes, crowded, idle)
                    ):
                        nodes[nodes.index(crowded)] = idle
                        self._load[crowded] -= 1
                        self._load[idle] += 1
                        return True
        return False

    def _may_swap(self, nodes: Sequence[int], out: int, into: int) -> bool:
        """Whether the replicas lie in as many racks as before."""
        after = [into if node == out else node for node in nodes]
        return self._racks_of(after) >= self._racks_of(nodes)

    def _spread_leaders(self, lists: Sequence[list[int]]) -> None:
        """Let others of these lists be their first, until that makes nothing more even."""
        leads = Counter(nodes[0] for nodes in self.planned.values())
        for _ in range(len(lists)):
            moved = False
            for nodes in lists:
                best = min(nodes, key=lambda node: leads[node])
                if leads[nodes[0]] - leads[best] > 1:
                    leads[nodes[0]] -= 1
                    leads[best] += 1
                    nodes.remove(best)
                    nodes.insert(0, best)
                    moved = True
            if not moved:
                return

    def _choose(self, key: TopicPartition, others: Sequence[int]) -> int:
        """The broker for one more replica: another rack than the others', then who has least."""
        free = [node for node in self._load if node not in others]
        if not free:
            raise PlanError(
                f"{key[0]}-{key[1]} needs {len(others) + 1} brokers, and there are "
                f"{len(self._load)} to use: {', '.join(map(str, self._load)) or 'none'}."
            )
        return min(
            free, key=lambda node: (self._crowd(node, [*others, node]), self._load[node], node)
        )

    def _crowd(self, node: int, nodes: Sequence[int]) -> int:
        """How many of the replicas lie in this broker's rack; without racks all do."""
        return sum(1 for each in nodes if self._racks.get(each) == self._racks.get(node))

    def _held(self, node: int) -> int:
        return self._load.get(node, 0)

    def _racks_of(self, nodes: Sequence[int]) -> int:
        return len({self._racks.get(node) for node in nodes})
