"""What clients may make a node hold for them: answers that wait for their turn, or to be taken.

Owns the bounds of a connection, and the sum over all of them. Where that comes near its bound, who
owes much is not read any more and answers become short; past it, who owes the most is closed on.

Rules: connections.md#what-a-client-may-owe.
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import Final, NamedTuple, Protocol

from holdfast.config.node import NodeSettings
from holdfast.node.door.seldom import Seldom

logger = logging.getLogger("holdfast.budget")

LIGHT_BYTES: Final = 64 * 1024  # whoever owes no more is not counted
MIB: Final = 1024 * 1024


class Debtor(Protocol):
    """A connection whose answers are held."""

    peer: str

    @property
    def host(self) -> str:
        """The address that it comes from."""

    def abort(self) -> None:
        """Close at once."""


class Bounds(NamedTuple):
    """Of one connection; past any of them it is not read."""

    requests: int = 1000  # without an answer yet
    partitions: int = 200_000  # that they wait for
    answer_bytes: int = 16 * MIB  # of answers that wait or may come to be so large; and unsent ones


class Budget:
    """Bytes of answers that are held for who has not taken them, over all connections."""

    def __init__(self, most: int = 1 << 62, bounds: Bounds = Bounds()) -> None:  # noqa: B008 - immutable
        self.bounds = bounds
        self.held = 0  # (a metric)
        self.closed = 0  # connections closed on because they owed the most (a metric)
        self._most = most
        self._debts: dict[Debtor, int] = {}
        self._seldom = Seldom(logger)

    @classmethod
    def of(cls, settings: NodeSettings) -> Budget:
        """As it is configured."""
        return cls(
            settings.holdfast_answer_bytes_max,
            Bounds(
                settings.holdfast_connection_requests_max,
                settings.holdfast_connection_partitions_max,
                settings.holdfast_connection_answer_bytes_max,
            ),
        )

    @property
    def is_tight(self) -> bool:
        """Whether who owes more than a little is not read for now."""
        return 2 * self.held > self._most

    @property
    def room(self) -> int:
        """How large an answer may become, in bytes; its first batch may always be in it."""
        return max(0, self._most // 2 - self.held)

    def owes(self, debtor: Debtor, size: int) -> None:
        """Take note of how many bytes are held for a connection now."""
        self.held += size - self._debts.pop(debtor, 0)
        if size:
            self._debts[debtor] = size
        while self.held > self._most:
            self._close_on_one()

    def _close_on_one(self) -> None:
        by_address: Counter[str] = Counter()
        for debtor, size in self._debts.items():
            by_address[debtor.host] += size
        (address, _), *_ = by_address.most_common(1)
        worst = max(
            (each for each in self._debts if each.host == address),
            key=lambda each: self._debts[each],
        )
        size = self._debts.pop(worst)
        self.held -= size
        self.closed += 1
        self._seldom.warning(
            "closing the connection of %s, which has not taken %d MiB of answers: all that are held"
            " come to more than holdfast.answer.bytes.max allows",
            worst.peer,
            size // MIB,
        )
        worst.abort()
