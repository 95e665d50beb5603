"""Bytes of one kind that a node holds for its connections, and who is closed on when they are many.

Owns the sums, over all connections and over those of each address. It knows nothing of what the
bytes are: it never looks at a connection beyond its address.

Rules: connections.md#what-a-client-may-owe.
"""

from __future__ import annotations

import logging
from typing import Final, NamedTuple, Protocol

from holdfast.node.door.seldom import Seldom

logger = logging.getLogger("holdfast.budget")

MIB: Final = 1024 * 1024
UNLIMITED: Final = 1 << 62


class Debtor(Protocol):
    """A connection for which bytes are held."""

    peer: str

    @property
    def host(self) -> str:
        """The address that it comes from."""

    def abort(self) -> None:
        """Close at once."""


class Kind(NamedTuple):
    """What is held, as the log says it."""

    reason: str
    key: str  # behind "holdfast." for all connections, and behind "holdfast.address." for one's


ANSWERS: Final = Kind("has not taken its answers", "answer.bytes.max")
REQUESTS: Final = Kind("has sent requests that wait or are not whole", "request.bytes.max")


class Ledger:
    """Of one kind: who holds how much of it."""

    def __init__(self, kind: Kind, most: int = UNLIMITED, address_most: int = UNLIMITED) -> None:
        self.held = 0  # (a metric)
        self.closed = 0  # connections closed on because they had the most (a metric)
        self._kind = kind
        self._most = most
        self._address_most = address_most
        self._sizes: dict[Debtor, int] = {}
        self._by_address: dict[str, int] = {}
        self._seldom = Seldom(logger)

    def is_tight(self, host: str) -> bool:
        """Whether half of what all may have, or of what this address may have, is held."""
        return 2 * self.held > self._most or 2 * self._by_address.get(host, 0) > self._address_most

    def room(self, host: str) -> int:
        """Return how many bytes more this address may have before it is tight."""
        of_address = self._address_most // 2 - self._by_address.get(host, 0)
        return max(0, min(self._most // 2 - self.held, of_address))

    def note(self, debtor: Debtor, size: int) -> None:
        """Take note of how many bytes are held for a connection now. May close on it, or another.

        The bound of an address comes first: so nobody else loses a connection to it.
        """
        host = debtor.host
        self._put(debtor, size)
        while self._by_address.get(host, 0) > self._address_most:
            self._close_on_one(host, f"address.{self._kind.key}")
        while self.held > self._most:
            greediest = max(self._by_address, key=self._by_address.__getitem__)
            self._close_on_one(greediest, self._kind.key)

    def _put(self, debtor: Debtor, size: int) -> None:
        change = size - self._sizes.pop(debtor, 0)
        if size:
            self._sizes[debtor] = size
        self.held += change
        host = debtor.host
        of_address = self._by_address.pop(host, 0) + change
        assert of_address >= 0, "more was given back than was held"
        if of_address:
            self._by_address[host] = of_address

    def _close_on_one(self, host: str, key: str) -> None:
        """Close the connection of this address that has the most."""
        sizes = self._sizes
        worst = max((each for each in sizes if each.host == host), key=sizes.__getitem__)
        size = sizes[worst]
        self._put(worst, 0)
        self.closed += 1
        self._seldom.warning(
            "closing the connection of %s, which %s, %d MiB: together that is more than "
            "holdfast.%s allows",
            worst.peer,
            self._kind.reason,
            size // MIB,
            key,
        )
        worst.abort()
