"""Assignors: eager and cooperative ones of each client, and the broker's own (KIP-848)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.group_clients.members import Client, Member, share

pytestmark = [pytest.mark.turns, pytest.mark.slow]

Join = Callable[..., Member]
NewTopic = Callable[..., str]

OF = {
    "librdkafka": ("range", "roundrobin", "cooperative-sticky"),
    "librdkafka-consumer": ("uniform", "range"),
    "kafka-python": ("range", "roundrobin", "cooperative-sticky"),
    "aiokafka": ("range", "roundrobin", "sticky"),
}


@pytest.mark.parametrize("number", [0, 1, 2])
def test_three_share_two_topics_and_two_after_one_has_left(
    join: Join, topic: NewTopic, client: Client, number: int
) -> None:
    if number >= len(OF[client.name]):
        pytest.skip("it has fewer")
    assignor = OF[client.name][number]
    names = [topic(3, "-one"), topic(3, "-two")]
    partitions = [(name, partition) for name in names for partition in range(3)]
    members = [join(assignor=assignor) for _ in range(3)]
    for member in members:
        member.subscribe(*names)
    share(members, partitions)
    members[0].close()
    share(members[1:], partitions, evenly=assignor != "range")


def test_members_with_two_assignors_agree_on_one(
    join: Join, topic: NewTopic, client: Client
) -> None:
    if client.name != "librdkafka":
        pytest.skip("the others are asked for one at a time here")
    name = topic(4)
    both, one = join(assignor="range,roundrobin"), join(assignor="roundrobin")
    both.subscribe(name)
    one.subscribe(name)
    share([both, one], [(name, partition) for partition in range(4)])
