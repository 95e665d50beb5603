"""One node's copy of a partition, as the oracle has seen it: what it holds, and has lost.

Owns no rule: what must hold of it is `truth`'s.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from holdfast.testing.simulation.chain import Chain, Entry, Name


class Durable(Protocol):
    """The one thing that is asked of a log: how far it survives a power cut."""

    @property
    def recovery_point(self) -> int: ...


@dataclass(slots=True, eq=False)
class Replica:
    """One node's copy, as the oracle has seen it."""

    node: int
    log: Durable | None  # None: its process is dead
    chain: Chain = field(default_factory=Chain)
    start: int = 0
    high_watermark: int = 0
    settled: bool = False  # its process has taken up all that it found
    epoch: int = -1  # the last in which it has led; -1: none
    durable: int = 0  # when its process died
    kept: int = 0  # synced by an earlier process: this one may not know it yet
    ghost: Chain | None = None  # what it held before it lost some of it
    lost: dict[Name, str] = field(default_factory=dict)  # what it held, and has not got back

    @property
    def synced(self) -> int:
        return max(self.kept, self.durable if self.log is None else self.log.recovery_point)

    def holds(self, entry: Entry) -> bool:
        """Whether it has this batch, or had when its leader last heard of it."""
        found = self.chain.at(entry.base)
        if found is None and self.ghost is not None:
            found = self.ghost.at(entry.base)
        return found == entry

    def __str__(self) -> str:
        chain = self.chain
        tail = ", ".join(f"[{entry}]" for entry in chain.entries[-3:])
        life = "dead" if self.log is None else "alive"
        return (
            f"node {self.node} ({life}): start {self.start}, high watermark {self.high_watermark}, "
            f"end {chain.end}, synced {self.synced}, last batches {tail or 'none'}"
        )


class Asked(NamedTuple):
    """Whom a client has asked to take a batch, as he was then."""

    replica: Replica | None
    epoch: int  # the last in which he had led, in any of his processes; -1: none

    def still_leads(self, replica: Replica | None) -> bool:
        """Whether he has gone on in one epoch since he was asked, so that this one has answered."""
        return replica is not None and replica is self.replica and replica.epoch == self.epoch >= 0
