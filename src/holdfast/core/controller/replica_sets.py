"""The replicas of a partition while they are changed: who is added, who leaves, when it is done.

Owns the arithmetic. It knows no cluster and makes no records: `reassignment` takes the requests,
and `elections.change` writes down what comes of them.

Rules: topics.md#reassignment, topics.md#completed-reassignment, topics.md#cancelled-reassignment.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.core.metadata.image import Partition


@dataclass(frozen=True, slots=True)
class ReplicaSet:
    """Who holds a partition: all replicas in preference order, those coming and those leaving."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()

    @classmethod
    def of(cls, partition: Partition) -> ReplicaSet:
        """As the image has it."""
        return cls(partition.replicas, partition.adding, partition.removing)

    @property
    def is_changing(self) -> bool:
        """Whether a reassignment is under way."""
        return bool(self.adding or self.removing)

    @property
    def original(self) -> tuple[int, ...]:
        """Who held it before the reassignment: where a cancellation leads back to."""
        return tuple(node for node in self.replicas if node not in self.adding)

    @property
    def target(self) -> tuple[int, ...]:
        """Who holds it after the reassignment."""
        return tuple(node for node in self.replicas if node not in self.removing)

    def towards(self, target: Sequence[int]) -> ReplicaSet:
        """Begin, or redirect, a reassignment.

        Whoever is being added for an earlier target and is not in this one goes at once: it never
        was one of the partition's own.
        """
        assert target, "a partition without a replica"
        assert len(set(target)) == len(target), "a replica twice"
        original = self.original
        leaving = tuple(node for node in original if node not in target)
        return ReplicaSet(
            replicas=(*target, *leaving),
            adding=tuple(node for node in target if node not in original),
            removing=leaving,
        )

    def reverted(self) -> ReplicaSet:
        """Give the reassignment up: everybody who held it before, and nobody else.

        Preference follows the present list, for the order before the reassignment is not kept.
        """
        return ReplicaSet(self.original)

    def completed_by(self, isr: Sequence[int]) -> ReplicaSet | None:
        """The set once all of the target are in sync; None while that is not so."""
        if not self.is_changing:
            return None
        target = self.target
        if not target or not set(target) <= set(isr):
            return None
        return ReplicaSet(target)

    def kept(self, nodes: Sequence[int]) -> list[int]:
        """Those of `nodes` that are replicas still, in their order."""
        return [node for node in nodes if node in self.replicas]
