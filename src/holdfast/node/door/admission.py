"""Who may have a connection: so many of a node and of an address, that files are left for logs.

Owns the counts, and who has to go when there is no place for a newcomer: a flood of silent
connections must not keep others out, nor cut a node off from the rest of its cluster.

Rules: connections.md#how-many.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping
from itertools import islice
from typing import Final, NamedTuple, Protocol

from holdfast.config.node import NodeSettings
from holdfast.node.door.seldom import Seldom

logger = logging.getLogger("holdfast.admission")

LOOKED_AT: Final = 64  # of those who may have to go, for each who has to
FAR_MORE: Final = 4  # times what another address has, and
LARGE_PART: Final = 8  # more than the so-manieth part of all: whatever it waits for, it goes first
CLOSED_AT_ONCE: Final = 50  # in one turn of the loop, when fewer are allowed than there are
UNLIMITED: Final = 2_147_483_647


class Guest(Protocol):
    """A connection, as far as its place matters."""

    active_at: float  # loop time, seconds
    is_protected: bool  # came by a listener of the cluster itself

    @property
    def host(self) -> str:
        """The address that it comes from."""

    @property
    def is_owed(self) -> bool:
        """Whether it waits for an answer."""

    def abort(self) -> None:
        """Close at once."""


class Limits(NamedTuple):
    """How many connections there may be."""

    node: int = UNLIMITED
    address: int = UNLIMITED
    overrides: Mapping[str, int] = {}

    @classmethod
    def of(cls, settings: NodeSettings) -> Limits:
        return cls(
            settings.max_connections,
            settings.max_connections_per_ip,
            {
                address: int(most)
                for address, _, most in (
                    each.rpartition(":") for each in settings.max_connections_per_ip_overrides
                )
            },
        )


class Admission:
    """All connections of a node, whatever the listener."""

    def __init__(self, descriptors: int = UNLIMITED, limits: Limits = Limits()) -> None:  # noqa: B008 - immutable
        """`descriptors` is how many connections the system allows."""
        self._limits = limits
        self.refused = 0  # newcomers turned away, and guests closed on for them (a metric)
        self._descriptors = descriptors
        self._guests: dict[Guest, None] = {}  # those that were looked at last stand last
        self._by_address: Counter[str] = Counter()
        self._full = Seldom(logger)
        self._crowded = Seldom(logger)

    def __len__(self) -> int:
        return len(self._guests)

    @property
    def limits(self) -> Limits:
        """How many there may be; if that becomes less than there are of the node, some have to go.

        Of an address that may have fewer than it has nobody goes, but nobody is let in either.
        """
        return self._limits

    @limits.setter
    def limits(self, limits: Limits) -> None:
        is_less = limits.node < self._limits.node
        self._limits = limits
        if is_less:
            self._close_some()

    @property
    def _most(self) -> int:
        return min(self._limits.node, self._descriptors)

    def _close_some(self) -> None:
        """Close whoever there are too many of, a few in each turn of the loop."""
        for _ in range(min(CLOSED_AT_ONCE, len(self._guests) - self._most)):
            self.refused += 1
            self._make_room()
        if len(self._guests) > self._most:
            asyncio.get_running_loop().call_soon(self._close_some)

    def admit(self, newcomer: Guest) -> bool:
        """Give a newcomer a place; False: its address has too many, close it."""
        address = newcomer.host
        allowed = self.limits.overrides.get(address, self.limits.address)
        if self._by_address[address] >= allowed:
            self.refused += 1
            self._crowded.warning(
                "closing a connection of %s, which has %d: max.connections.per.ip allows no more",
                address,
                allowed,
            )
            return False
        most = self._most
        if len(self._guests) >= most:
            self.refused += 1
            self._full.warning(
                "%d connections are open, as many as %s: for each new one the one goes that was "
                "silent for the longest time, and first of an address that has many",
                most,
                "max.connections allows"
                if most == self.limits.node
                else "the limit on open files leaves (raise it: ulimit -n)",
            )
            if most == 0:
                return False
            self._make_room()
        self._guests[newcomer] = None
        self._by_address[address] += 1
        return True

    def leave(self, guest: Guest) -> None:
        """Take note that a connection is closed; it need not have been admitted."""
        if guest in self._guests:
            del self._guests[guest]
            self._by_address[guest.host] -= 1
            if not self._by_address[guest.host]:
                del self._by_address[guest.host]

    def _make_room(self) -> None:
        """Close one connection. Not all are looked at, or a flood of them would cost the loop."""
        candidates = list(islice(self._guests, LOOKED_AT))
        for each in candidates:
            self._guests[each] = self._guests.pop(each)
        # Who waits for an answer stays, but may not for that keep all places: anybody can wait.
        held = self._by_address
        fair = FAR_MORE * min(held[each.host] for each in candidates)
        fair = max(fair, len(self._guests) // LARGE_PART)
        going = min(
            candidates,
            key=lambda each: (
                held[each.host] <= fair,
                each.is_protected,
                each.is_owed,
                -held[each.host],
                each.active_at,
            ),
        )
        going.abort()
        self.leave(going)
