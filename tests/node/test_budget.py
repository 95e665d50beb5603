"""Bytes that are held for connections: who is closed on, and who is held up by whom.

Goal: what some clients hold costs neither others nor the cluster itself their connections. Method:
the ledger by itself, and the budgets of a node by its settings.

Rules: connections.md#what-a-client-may-owe.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import pytest

from holdfast.config.node import NodeSettings
from holdfast.node.api.fetch_readers import FollowerReader
from holdfast.node.door.budget import Bounds, Budgets
from holdfast.node.door.ledger import ANSWERS, MIB, REQUESTS, UNLIMITED, Kind, Ledger


class Holder:
    def __init__(self, ledger: Ledger, host: str) -> None:
        self.ledger = ledger
        self.host = self.peer = host
        self.is_closed = False

    def abort(self) -> None:
        self.is_closed = True
        self.ledger.note(self, 0)  # as its end is told again


def on_a_loop(scenario: Callable[[], None]) -> None:
    async def body() -> None:
        scenario()

    asyncio.run(body())


NODE, ADDRESS = 100, 80


@pytest.mark.parametrize(
    ("sizes", "closed"),
    [
        ([("a", 40), ("b", 30), ("b", 30)], []),
        ([("a", 45), ("b", 30), ("b", 26)], [1]),
        ([("a", 60), ("b", 35), ("c", 6)], [0]),
        ([("a", ADDRESS + 1)], [0]),
        ([("b", 10), ("a", 40), ("a", 41)], [2]),
    ],
    ids=["within", "of the address with the most", "not the last", "alone", "an address"],
)
def test_who_holds_the_most_is_closed_on(sizes: list[tuple[str, int]], closed: list[int]) -> None:
    def scenario() -> None:
        ledger = Ledger(ANSWERS, NODE, ADDRESS)
        holders = [Holder(ledger, host) for host, _ in sizes]
        for holder, (_, size) in zip(holders, sizes, strict=True):
            ledger.note(holder, size)
        assert [index for index, each in enumerate(holders) if each.is_closed] == closed
        assert ledger.closed == len(closed)
        for holder in holders:
            ledger.note(holder, 0)
        assert (ledger.held, ledger.room("a"), ledger.room("b")) == (0, ADDRESS // 2, ADDRESS // 2)

    on_a_loop(scenario)


def test_an_address_that_holds_much_leaves_others_their_room() -> None:
    """Seen to fail: what one address left unread made the answers of all others short."""

    def scenario() -> None:
        ledger = Ledger(ANSWERS, 10 * NODE, ADDRESS)
        for _ in range(ADDRESS // 10):
            ledger.note(Holder(ledger, "greedy"), 10)
        assert (ledger.held, ledger.closed) == (ADDRESS, 0)
        assert (ledger.is_tight("greedy"), ledger.room("greedy")) == (True, 0)
        assert (ledger.is_tight("other"), ledger.room("other")) == (False, ADDRESS // 2)

    on_a_loop(scenario)


@pytest.mark.parametrize(
    ("kind", "bounds", "key"),
    [
        (ANSWERS, (1, UNLIMITED), "holdfast.answer.bytes.max"),
        (ANSWERS, (UNLIMITED, 1), "holdfast.address.answer.bytes.max"),
        (REQUESTS, (1, UNLIMITED), "holdfast.request.bytes.max"),
        (REQUESTS, (UNLIMITED, 1), "holdfast.address.request.bytes.max"),
    ],
)
def test_the_log_says_once_a_minute_which_key_allows_no_more(
    kind: Kind, bounds: tuple[int, int], key: str, caplog: pytest.LogCaptureFixture
) -> None:
    def scenario() -> None:
        ledger = Ledger(kind, *bounds)
        for _ in range(50):
            ledger.note(Holder(ledger, "greedy"), 2 * MIB)
        assert ledger.closed == 50

    caplog.set_level(logging.WARNING, "holdfast.budget")
    on_a_loop(scenario)
    (line,) = caplog.messages
    assert "closing the connection of greedy" in line
    assert f"2 MiB: together that is more than {key} allows" in line


def test_a_connection_has_the_bounds_of_its_keys() -> None:
    settings, _ = NodeSettings.from_properties(
        {
            "node.id": "1",
            "process.roles": "broker",
            "controller.quorum.voters": "9@h:1",
            "controller.listener.names": "CONTROLLER",
            "holdfast.connection.requests.max": "7",
            "holdfast.connection.partitions.max": "1234",
            "holdfast.connection.answer.bytes.max": "1000000",
        }
    )
    assert Budgets(settings).of("PLAINTEXT").bounds == Bounds(7, 1234, 1_000_000)


def test_what_clients_hold_stops_neither_replication_nor_a_quorum() -> None:
    """Seen to fail: all listeners shared one budget, and followers got a batch at a time."""

    def scenario() -> None:
        settings, _ = NodeSettings.from_properties(
            {
                "node.id": "1",
                "process.roles": "broker,controller",
                "controller.quorum.voters": "1@h:1",
                "controller.listener.names": "CONTROLLER",
                "listeners": "CLIENTS://:1,MORE://:2,BROKERS://:3,CONTROLLER://:4",
                "listener.security.protocol.map": ",".join(
                    f"{name}:PLAINTEXT" for name in ("CLIENTS", "MORE", "BROKERS", "CONTROLLER")
                ),
                "inter.broker.listener.name": "BROKERS",
                "holdfast.answer.bytes.max": str(4 * MIB),
                "holdfast.address.answer.bytes.max": str(3 * MIB),
                "holdfast.request.bytes.max": str(3 * MIB),
                "holdfast.address.request.bytes.max": str(2 * MIB),
            }
        )
        budgets = Budgets(settings)
        clients = budgets.of("CLIENTS")
        assert budgets.of("MORE") is clients
        clients.answers.note(Holder(clients.answers, "a"), 3 * MIB)
        largest = settings.socket_request_max_bytes
        clients.requests.note(Holder(clients.requests, "a"), largest)
        assert clients.requests.closed == 0, "the largest request has room where it is the only one"
        assert (budgets.answer_bytes, budgets.request_bytes) == (3 * MIB, largest)
        for own in (budgets.of("BROKERS"), budgets.of("CONTROLLER")):
            assert own.answers.room("a") == 3 * MIB // 2
            assert not own.requests.is_tight("a")
        assert FollowerReader.room > 100 * MIB, "also where brokers have no listener of their own"

    on_a_loop(scenario)
