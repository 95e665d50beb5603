"""Static members (KIP-345): who comes back within its session has what it had.

Goal: no rebalance for a restart; one instance has one member. Method: members with instance ids,
which don't leave when they are closed.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.group_clients.members import SESSION_MS, Client, Member, share, until

pytestmark = [pytest.mark.turns, pytest.mark.slow]

Join = Callable[..., Member]
NewTopic = Callable[..., str]


def test_who_comes_back_has_what_it_had(join: Join, topic: NewTopic) -> None:
    name = topic(4)
    partitions = [(name, partition) for partition in range(4)]
    first, second = join(instance="one"), join(instance="two")
    first.subscribe(name)
    second.subscribe(name)
    share([first, second], partitions)
    had, others = first.assignment(), second.assignment()
    first.close()
    again = join(instance="one")
    again.subscribe(name)
    until(lambda: bool(again.assignment()), [again, second], "its partitions")
    assert again.assignment() == had
    assert second.assignment() == others


def test_who_does_not_come_back_is_replaced(join: Join, topic: NewTopic, client: Client) -> None:
    if client.protocol == "consumer":
        pytest.skip(f"its session is the broker's, 45 s, and not {SESSION_MS} ms")
    name = topic(2)
    partitions = [(name, 0), (name, 1)]
    first, second = join(instance="one"), join(instance="two")
    first.subscribe(name)
    second.subscribe(name)
    share([first, second], partitions)
    first.close()
    share([second], partitions)
