"""Committed offsets: kept, read back, and where a member begins.

Goal: what was committed is what is read back, to the byte of its metadata; a group begins there,
and where it has committed nothing, where its reset policy says. Method: one client's members.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.group_clients.members import Client, Committed, Member, read, share, until
from tests.group_clients.records import produce

pytestmark = [pytest.mark.turns, pytest.mark.slow]

Join = Callable[..., Member]
NewTopic = Callable[..., str]


def test_what_was_never_committed_is_nothing(join: Join, topic: NewTopic) -> None:
    name, member = topic(1), join()
    member.subscribe(name)
    share([member], [(name, 0)])
    assert member.committed((name, 0)) is None


def test_an_offset_and_its_words_come_back(
    target: str, join: Join, topic: NewTopic, client: Client
) -> None:
    name, member = topic(2), join()
    produce(target, name, {0: 10, 1: 10})
    member.subscribe(name)
    read([member], 20)
    words = "déjà vu " * 100
    member.commit({(name, 0): Committed(4, words), (name, 1): Committed(7, "")})
    for asked in (member, join()):
        first = asked.committed((name, 0))
        assert first is not None
        assert first.offset == 4
        if client.name != "aiokafka":  # it shows no metadata
            assert first.metadata == words
        second = asked.committed((name, 1))
        assert second is not None
        assert second.offset == 7


def test_a_commit_goes_back_when_its_owner_says_so(
    target: str, join: Join, topic: NewTopic
) -> None:
    name, member = topic(1), join()
    produce(target, name, {0: 10})
    member.subscribe(name)
    read([member], 10)
    for offset in (9, 3):
        member.commit({(name, 0): Committed(offset, "")})
        found = member.committed((name, 0))
        assert found is not None
        assert found.offset == offset
    member.close()
    again = join()
    again.subscribe(name)
    (given,) = read([again], 7).values()
    assert [record.offset for record in given] == list(range(3, 10))


@pytest.mark.parametrize("reset", ["earliest", "latest"])
def test_where_nothing_is_committed_the_policy_says(
    target: str, join: Join, topic: NewTopic, reset: str
) -> None:
    name, member = topic(1), join(reset=reset)
    produce(target, name, {0: 5})
    member.subscribe(name)
    given = [record.offset for record in share([member], [(name, 0)])[member]]

    def last_seen() -> bool:
        produce(target, name, {0: 1}, first=5)
        given.extend(record.offset for record in member.poll(0.5))
        return bool(given)

    until(last_seen, [], "a record")
    assert (given[0] == 0) == (reset == "earliest")
    assert given[0] >= (5 if reset == "latest" else 0)


def test_who_assigns_partitions_commits_without_members(
    target: str, join: Join, topic: NewTopic, client: Client
) -> None:
    if client.protocol == "consumer":
        pytest.skip("who speaks the new protocol only has to be a member")
    name, alone = topic(1), join()
    produce(target, name, {0: 5})
    alone.assign((name, 0))
    read([alone], 5)
    alone.commit({(name, 0): Committed(2, "alone")})
    alone.close()
    again = join()
    again.assign((name, 0))
    (given,) = read([again], 3).values()
    assert [record.offset for record in given] == [2, 3, 4]


def test_many_partitions_in_one_commit(target: str, join: Join, topic: NewTopic) -> None:
    name, member = topic(50), join()
    produce(target, name, dict.fromkeys(range(50), 2))
    member.subscribe(name)
    read([member], 100)
    member.commit({(name, partition): Committed(1, f"{partition}") for partition in range(50)})
    member.close()
    again = join()
    again.subscribe(name)
    given = read([again], 50)[again]
    assert sorted((record.partition, record.offset) for record in given) == [
        (partition, 1) for partition in range(50)
    ]


def test_an_offset_beyond_the_end_is_reset(target: str, join: Join, topic: NewTopic) -> None:
    name, member = topic(1), join()
    produce(target, name, {0: 3})
    member.subscribe(name)
    read([member], 3)
    member.commit({(name, 0): Committed(1000, "")})
    member.close()
    again = join(reset="earliest")
    again.subscribe(name)
    (given,) = read([again], 3).values()
    assert [record.offset for record in given] == [0, 1, 2]
