"""What clients may make a node hold for them: answers that wait or are not taken, and requests,
as they come in and while they wait.

Owns the bounds of a connection, and which connections share what is held. Near its bound a
connection is not read and answers become short; past it, who has the most is closed on (`ledger`).

Rules: connections.md#what-a-client-may-owe.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple

from holdfast.config.node import NodeSettings
from holdfast.node.door.ledger import ANSWERS, MIB, REQUESTS, Ledger

LIGHT_BYTES: Final = 64 * 1024  # whoever has no more is not counted


class Bounds(NamedTuple):
    """Of one connection; past any of them it is not read."""

    requests: int = 1000  # without an answer yet
    partitions: int = 200_000  # that they wait for
    answer_bytes: int = 16 * MIB  # of answers that wait or may come to be so large; and unsent ones


@dataclass(slots=True)
class Budget:
    """Of the connections that share one."""

    bounds: Bounds = Bounds()  # noqa: RUF009 - immutable
    answers: Ledger = field(default_factory=partial(Ledger, ANSWERS))  # not taken by their clients
    requests: Ledger = field(default_factory=partial(Ledger, REQUESTS))  # not whole, or waiting

    @classmethod
    def of(cls, settings: NodeSettings) -> Budget:
        """As it is configured. The largest request always has room, if it is the only one."""
        largest = settings.socket_request_max_bytes + LIGHT_BYTES
        return cls(
            Bounds(
                settings.holdfast_connection_requests_max,
                settings.holdfast_connection_partitions_max,
                settings.holdfast_connection_answer_bytes_max,
            ),
            Ledger(
                ANSWERS,
                settings.holdfast_answer_bytes_max,
                settings.holdfast_address_answer_bytes_max,
            ),
            Ledger(
                REQUESTS,
                max(largest, settings.holdfast_request_bytes_max),
                max(largest, settings.holdfast_address_request_bytes_max),
            ),
        )


class Budgets:
    """One for all clients, and one for each listener of the cluster itself.

    So what clients hold never stops replication or a quorum that has a listener of its own.
    """

    def __init__(self, settings: NodeSettings) -> None:
        own = (settings.inter_broker_listener_name, *settings.controller_listener_names)
        self._clients = Budget.of(settings)
        self._own = {name: Budget.of(settings) for name in own}
        self._all = (self._clients, *self._own.values())

    def of(self, listener: str) -> Budget:
        """Return what the connections of a listener share."""
        return self._own.get(listener, self._clients)

    @property
    def answer_bytes(self) -> int:
        return sum(each.answers.held for each in self._all)

    @property
    def request_bytes(self) -> int:
        return sum(each.requests.held for each in self._all)

    @property
    def closed_for_answers(self) -> int:
        return sum(each.answers.closed for each in self._all)

    @property
    def closed_for_requests(self) -> int:
        return sum(each.requests.closed for each in self._all)
