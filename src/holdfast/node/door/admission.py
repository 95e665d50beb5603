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
CONTROLLERS_PART: Final = 4  # the so-manieth part of what there are files for, where both roles are
UNLIMITED: Final = 2_147_483_647


class Guest(Protocol):
    """A connection, as far as its place matters."""

    active_at: float  # loop time, seconds
    is_protected: bool  # came by the listener that brokers have beside clients'

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


class _Place:
    """Connections of one kind, and how many each address has of it."""

    def __init__(self) -> None:
        self.guests: dict[Guest, None] = {}  # those that were looked at last stand last
        self.by_address: Counter[str] = Counter()

    def add(self, guest: Guest) -> None:
        self.guests[guest] = None
        self.by_address[guest.host] += 1

    def take(self, guest: Guest) -> None:
        if guest not in self.guests:
            return
        del self.guests[guest]
        self.by_address[guest.host] -= 1
        if not self.by_address[guest.host]:
            del self.by_address[guest.host]

    def look(self) -> list[Guest]:
        """Return a few, and the next time others."""
        found = list(islice(self.guests, LOOKED_AT))
        for each in found:
            self.guests[each] = self.guests.pop(each)
        return found


class Admission:
    """The connections of one role of a node, whatever the listener."""

    def __init__(self, descriptors: int = UNLIMITED, limits: Limits = Limits()) -> None:  # noqa: B008 - immutable
        """`descriptors` is how many connections the system allows."""
        self._limits = limits
        self.refused = 0  # newcomers turned away, and guests closed on for them (a metric)
        self._descriptors = descriptors
        self._strangers = _Place()
        self._protected = _Place()
        self._full = Seldom(logger)
        self._crowded = Seldom(logger)

    def __len__(self) -> int:
        return len(self._strangers.guests) + len(self._protected.guests)

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
        for _ in range(min(CLOSED_AT_ONCE, len(self) - self._most)):
            self.refused += 1
            self._make_room()
        if len(self) > self._most:
            asyncio.get_running_loop().call_soon(self._close_some)

    def admit(self, newcomer: Guest) -> bool:
        """Give a newcomer a place; False: its address has too many, close it."""
        address = newcomer.host
        allowed = self.limits.overrides.get(address, self.limits.address)
        held = self._strangers.by_address[address] + self._protected.by_address[address]
        if held >= allowed:
            self.refused += 1
            self._crowded.warning(
                "closing a connection of %s, which has %d: max.connections.per.ip allows no more",
                address,
                allowed,
            )
            return False
        most = self._most
        if len(self) >= most:
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
        self._place_of(newcomer).add(newcomer)
        return True

    def leave(self, guest: Guest) -> None:
        """Take note that a connection is closed; it need not have been admitted."""
        self._place_of(guest).take(guest)

    def _place_of(self, guest: Guest) -> _Place:
        return self._protected if guest.is_protected else self._strangers

    def _make_room(self) -> None:
        """Close one connection. Not all are looked at, or a flood of them would cost the loop.

        Those by the protected listener go last, but not when they are more than half of all:
        anybody can reach a port.
        """
        are_protected = len(self._protected.guests) <= len(self) // 2
        candidates = self._strangers.look() + self._protected.look()
        held = {each: self._place_of(each).by_address[each.host] for each in candidates}
        # Who waits for an answer stays, but may not for that keep all places: anybody can wait.
        fair = max(FAR_MORE * min(held.values()), len(self) // LARGE_PART)
        going = min(
            candidates,
            key=lambda each: (
                held[each] <= fair,
                each.is_protected and are_protected,
                each.is_owed,
                -held[each],
                each.active_at,
            ),
        )
        going.abort()
        self.leave(going)


class Admissions:
    """What a node lets in: a broker's listeners together, and a controller's apart from them.

    They have a count each, as in Apache Kafka: no client takes a place of those who have to reach
    the controller, and nobody at a controller's port takes one of a client.
    """

    def __init__(self, settings: NodeSettings, descriptors: int = UNLIMITED) -> None:
        """`descriptors` is how many connections the system allows the node."""
        limits = Limits.of(settings)
        self._controller_listeners = frozenset(settings.controller_listener_names)
        has_both = settings.is_broker and settings.is_controller
        apart = descriptors // CONTROLLERS_PART if has_both else descriptors
        self.brokers = Admission(descriptors - apart if has_both else descriptors, limits)
        self.controllers = Admission(apart, limits)

    def of(self, listener: str) -> Admission:
        """Return what counts the connections of a listener."""
        return self.controllers if listener in self._controller_listeners else self.brokers

    def __len__(self) -> int:
        return len(self.brokers) + len(self.controllers)

    @property
    def refused(self) -> int:
        return self.brokers.refused + self.controllers.refused
