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
from dataclasses import dataclass
from itertools import islice
from typing import Final, NamedTuple, Protocol

from holdfast.config.addresses import OVERRIDES, network_of, override_of
from holdfast.config.key import ConfigError
from holdfast.config.node import NodeSettings
from holdfast.node.door.seldom import Seldom

logger = logging.getLogger("holdfast.admission")

LOOKED_AT: Final = 64  # of those who may have to go, for each who has to
FAR_MORE: Final = 4  # times what another network has, and
LARGE_PART: Final = 8  # more than the so-manieth part of all: whatever it waits for, it goes first
FEW: Final = 8  # of so few it says nothing that most of them wait
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
        """Whether it waits for an answer, or is in the middle of taking one."""

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
            _overrides(settings.max_connections_per_ip_overrides),
        )


def _overrides(members: tuple[str, ...]) -> dict[str, int]:
    """Return the most of some addresses, as sockets write them."""
    found = {}
    for member in members:
        try:
            address, most = override_of(member)
        except ConfigError as error:
            # It was taken before such were refused, and stands in the metadata log.
            logger.warning("%s; nothing comes of it", error)
        else:
            found[address] = most
    return found


@dataclass(slots=True, eq=False)
class _Seat:
    """The place of one guest."""

    guest: Guest
    network: str
    is_owed: bool | None = None  # as it was when it was looked at last; None: it was not yet


class _Place:
    """Connections of one kind, how many each network has of it, and how many of them wait."""

    def __init__(self) -> None:
        self.seats: dict[Guest, _Seat] = {}  # those that were looked at last stand last
        self.by_network: Counter[str] = Counter()
        self.known = 0  # have been looked at, and of them
        self.owed = 0  # waited then

    def __len__(self) -> int:
        return len(self.seats)

    def add(self, guest: Guest) -> None:
        seat = self.seats[guest] = _Seat(guest, network_of(guest.host))
        self.by_network[seat.network] += 1

    def take(self, guest: Guest) -> bool:
        """Free its seat. False: it has none."""
        seat = self.seats.pop(guest, None)
        if seat is None:
            return False
        self._know(seat, None)
        _decrease(self.by_network, seat.network)
        return True

    def look(self) -> list[_Seat]:
        """Return a few, and the next time others."""
        found = list(islice(self.seats.values(), LOOKED_AT))
        for seat in found:
            self.seats[seat.guest] = self.seats.pop(seat.guest)
            is_owed = seat.guest.is_owed
            if is_owed is not seat.is_owed:
                self._know(seat, is_owed)
        return found

    def _know(self, seat: _Seat, is_owed: bool | None) -> None:
        self.known += (is_owed is not None) - (seat.is_owed is not None)
        self.owed += bool(is_owed) - bool(seat.is_owed)
        seat.is_owed = is_owed


class Admission:
    """The connections of one role of a node, whatever the listener."""

    def __init__(
        self,
        descriptors: int = UNLIMITED,
        limits: Limits = Limits(),  # noqa: B008 - immutable
        role: str = "broker",
    ) -> None:
        """`descriptors` is how many connections the system allows, `role` a word for the log."""
        self._limits = limits
        self.refused = 0  # newcomers turned away, and guests closed on for them (a metric)
        self._descriptors = descriptors
        self._role = role
        self._strangers = _Place()
        self._protected = _Place()
        self._by_address: Counter[str] = Counter()
        self._full = Seldom(logger)
        self._crowded = Seldom(logger)

    def __len__(self) -> int:
        return len(self._strangers) + len(self._protected)

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
        too_many = len(self._strangers) - self._strangers_most(len(self._protected))
        if is_less and too_many > 0:
            logger.warning(
                "the %s closes %d of its %d connections: max.connections is %d now",
                self._role,
                too_many,
                len(self),
                limits.node,
            )
            self._close_some()

    def _strangers_most(self, protected: int) -> int:
        """Return how many strangers max.connections leaves room for beside so many protected ones.

        Those are let in whatever it says, and strangers go for them, but only down to a half:
        anybody can reach a port.
        """
        most = self._limits.node
        return most - min(protected, (most + 1) // 2)

    def _close_some(self) -> None:
        """Close strangers that there are too many of, a few in each turn of the loop."""
        too_many = len(self._strangers) - self._strangers_most(len(self._protected))
        for _ in range(min(CLOSED_AT_ONCE, too_many)):
            self._close_one(self._strangers)
        if too_many > CLOSED_AT_ONCE:
            asyncio.get_running_loop().call_soon(self._close_some)

    def admit(self, newcomer: Guest) -> bool:
        """Give a newcomer a place; False: there is none for it, close it."""
        address = newcomer.host
        if self._has_enough(address) or not self._has_room(newcomer):
            self.refused += 1
            return False
        self._by_address[address] += 1
        self._place_of(newcomer).add(newcomer)
        return True

    def _has_enough(self, address: str) -> bool:
        """Return whether an address has as many as it may."""
        override = self._limits.overrides.get(address)
        allowed = self._limits.address if override is None else override
        held = self._by_address[address]
        if held < allowed:
            return False
        self._crowded.warning(
            "the %s closes a new connection of %s, which has %d: %s allows %d",
            self._role,
            address,
            held,
            "max.connections.per.ip" if override is None else OVERRIDES,
            allowed,
        )
        return True

    def _has_room(self, newcomer: Guest) -> bool:
        """Return whether there is a place, once whoever has to go for it has gone."""
        is_protected = newcomer.is_protected
        most = self._strangers_most(len(self._protected) + is_protected)
        if len(self._strangers) + (not is_protected) > most:
            reason = f"max.connections={self._limits.node}"
            if not most and not is_protected:
                return self._say_closed(reason)
            if self._strangers.seats:
                self._say_full(reason)
                self._close_one(self._strangers)
        if len(self) >= self._descriptors:
            reason = "the limit on open files (raise it: ulimit -n)"
            if not self._descriptors:
                return self._say_closed(reason)
            self._say_full(reason)
            # Past half they have only one another's places: anybody can reach a port.
            if len(self._protected) > len(self) // 2:
                self._close_one(self._protected)
            else:
                self._close_one(self._strangers, self._protected)
        return True

    def _say_closed(self, reason: str) -> bool:
        self._full.warning(
            "the %s closes every new connection: %s leaves no place", self._role, reason
        )
        return False

    def _say_full(self, reason: str) -> None:
        self._full.warning(
            "the %s is full: %d connections are open, and no more are allowed by %s: for each new "
            "one the one goes that was silent for the longest time, and first of an address that "
            "has many",
            self._role,
            len(self),
            reason,
        )

    def leave(self, guest: Guest) -> None:
        """Take note that a connection is closed; it need not have been admitted."""
        if self._place_of(guest).take(guest):
            _decrease(self._by_address, guest.host)

    def _place_of(self, guest: Guest) -> _Place:
        return self._protected if guest.is_protected else self._strangers

    def _close_one(self, *places: _Place) -> None:
        """Close one connection. Not all are looked at, or a flood of them would cost the loop."""
        looked_at = [
            (seat.guest, place.by_network[seat.network])
            for place in places
            for seat in place.look()
        ]
        total = sum(len(place) for place in places)
        known = sum(place.known for place in places)
        owed = sum(place.owed for place in places)
        # Who waits for an answer stays, but may not for that keep all places: anybody can wait.
        # It doesn't help who has far more than another, and nobody once most of all wait.
        fair = max(FAR_MORE * min(held for _, held in looked_at), total // LARGE_PART)
        waiting_counts = total < FEW or 2 * owed <= known

        def worth(one: tuple[Guest, int]) -> tuple[bool, bool, bool, int, float]:
            guest, held = one
            return (
                held <= fair,
                guest.is_protected,
                waiting_counts and guest.is_owed,
                -held,
                guest.active_at,
            )

        going, _ = min(looked_at, key=worth)
        self.refused += 1
        going.abort()
        self.leave(going)


def _decrease(counter: Counter[str], name: str) -> None:
    """Count one less, and keep no entry for nothing: there are many addresses."""
    counter[name] -= 1
    if not counter[name]:
        del counter[name]


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
        self.controllers = Admission(apart, limits, role="controller")

    def of(self, listener: str) -> Admission:
        """Return what counts the connections of a listener."""
        return self.controllers if listener in self._controller_listeners else self.brokers

    def __len__(self) -> int:
        return len(self.brokers) + len(self.controllers)

    @property
    def refused(self) -> int:
        return self.brokers.refused + self.controllers.refused
