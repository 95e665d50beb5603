"""Goal: assignors give each partition to one of its subscribers, evenly, and move little.

Method: tables for what is exact, hypothesis for what always holds: one owner, balance, stickiness,
the same outcome for the same group. Rules: consumer-groups.md#assignors, consumer-groups.md#range,
consumer-groups.md#uniform.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from random import Random
from typing import TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.group.assignors import (
    ASSIGNORS,
    Partitions,
    Subscriber,
    assign_range,
    assign_uniform,
    partition_count,
)

Sizes: TypeAlias = dict[bytes, int]
Shares: TypeAlias = dict[str, Partitions]
A, B, C = b"a" * 16, b"b" * 16, b"c" * 16


def member(
    name: str, topics: str, instance: str | None = None, **target: Sequence[int]
) -> Subscriber:
    """Make `member("m", "ab", a=[0, 1])`, who subscribes to a and b and is to have a-0 and a-1."""
    return Subscriber(
        member_id=name,
        topics=frozenset(topic.encode() * 16 for topic in topics),
        target={topic.encode() * 16: tuple(numbers) for topic, numbers in target.items()},
        instance_id=instance,
    )


def shown(shares: Shares) -> dict[str, str]:
    return {
        name: " ".join(
            f"{chr(topic[0])}{index}" for topic, numbers in share.items() for index in numbers
        )
        for name, share in sorted(shares.items())
    }


RANGE: list[tuple[str, list[Subscriber], Sizes, dict[str, str]]] = [
    (
        "one topic: the first ones get one more",
        [member("m1", "a"), member("m2", "a"), member("m3", "a")],
        {A: 7},
        {"m1": "a0 a1 a2", "m2": "a3 a4", "m3": "a5 a6"},
    ),
    (
        "two topics of one size: the same numbers of each",
        [member("m2", "ab"), member("m1", "ab")],
        {A: 3, B: 3},
        {"m1": "a0 a1 b0 b1", "m2": "a2 b2"},
    ),
    (
        "more members than partitions: the last ones get none",
        [member("m1", "a"), member("m2", "a"), member("m3", "a")],
        {A: 2},
        {"m1": "a0", "m2": "a1", "m3": ""},
    ),
    (
        "different subscriptions: each topic among its own",
        [member("m1", "ab"), member("m2", "b"), member("m3", "bc")],
        {A: 2, B: 3, C: 1},
        {"m1": "a0 a1 b0", "m2": "b1", "m3": "b2 c0"},
    ),
    (
        "static members come first, by instance, whatever their ids are",
        [member("m1", "a"), member("m9", "a", instance="y"), member("m0", "a", instance="z")],
        {A: 3},
        {"m9": "a0", "m0": "a1", "m1": "a2"},
    ),
    (
        "what a member had does not count",
        [member("m1", "a", a=[3]), member("m2", "a", a=[0, 1, 2])],
        {A: 4},
        {"m1": "a0 a1", "m2": "a2 a3"},
    ),
    ("nobody subscribes to anything", [member("m1", "")], {}, {"m1": ""}),
    ("nobody is there", [], {}, {}),
]

UNIFORM: list[tuple[str, list[Subscriber], Sizes, dict[str, str]]] = [
    (
        "a first member gets all",
        [member("m1", "ab")],
        {A: 2, B: 1},
        {"m1": "a0 a1 b0"},
    ),
    (
        "a second one gets half, the last ones",
        [member("m1", "a", a=[0, 1, 2, 3]), member("m2", "a")],
        {A: 4},
        {"m1": "a0 a1", "m2": "a2 a3"},
    ),
    (
        "who had one more keeps it, whatever its id is",
        [member("m1", "a", a=[0]), member("m2", "a", a=[1, 2]), member("m3", "a", a=[3])],
        {A: 4},
        {"m1": "a0", "m2": "a1 a2", "m3": "a3"},
    ),
    (
        "new partitions go to who has least",
        [member("m1", "a", a=[0, 1]), member("m2", "a", a=[2])],
        {A: 4},
        {"m1": "a0 a1", "m2": "a2 a3"},
    ),
    (
        "what is no more is forgotten: partitions, topics, subscriptions",
        [member("m1", "a", a=[0, 9], b=[0]), member("m2", "a", a=[1])],
        {A: 2},
        {"m1": "a0", "m2": "a1"},
    ),
    (
        "of two who were to have the same one it is the first",
        [member("m1", "a", a=[0]), member("m2", "a", a=[0])],
        {A: 2},
        {"m1": "a0", "m2": "a1"},
    ),
    (
        "a topic with one subscriber counts for its balance",
        [member("m1", "ab"), member("m2", "a")],
        {A: 2, B: 2},
        {"m1": "b0 b1", "m2": "a0 a1"},
    ),
    (
        "overlapping subscriptions: partitions move along",
        [member("m1", "a"), member("m2", "ab", a=[0, 1, 2, 3]), member("m3", "b", b=[0, 1])],
        {A: 4, B: 2},
        {"m1": "a2 a3", "m2": "a0 a1", "m3": "b0 b1"},
    ),
    ("nobody subscribes to anything", [member("m1", "")], {}, {"m1": ""}),
    ("nobody is there", [], {}, {}),
]


@pytest.mark.parametrize(
    ("members", "sizes", "expected"),
    [case[1:] for case in RANGE],
    ids=[case[0] for case in RANGE],
)
def test_range(members: list[Subscriber], sizes: Sizes, expected: dict[str, str]) -> None:
    assert shown(assign_range(members, sizes)) == expected


@pytest.mark.parametrize(
    ("members", "sizes", "expected"),
    [case[1:] for case in UNIFORM],
    ids=[case[0] for case in UNIFORM],
)
def test_uniform(members: list[Subscriber], sizes: Sizes, expected: dict[str, str]) -> None:
    assert shown(assign_uniform(members, sizes)) == expected


# -- what always holds -------------------------------------------------------------------------

topic_ids = st.sampled_from([bytes([number]) * 16 for number in range(6)])


@st.composite
def groups(draw: st.DrawFn, *, homogeneous: bool = False) -> tuple[list[Subscriber], Sizes]:
    """Return members with any targets, which need not be possible, and topics of any size."""
    sizes = draw(st.dictionaries(topic_ids, st.integers(1, 12)))
    subscriptions = st.frozensets(st.sampled_from(sorted(sizes))) if sizes else st.just(frozenset())
    shared = draw(subscriptions)
    targets = st.dictionaries(
        topic_ids, st.sets(st.integers(0, 14), min_size=1).map(lambda each: tuple(sorted(each)))
    )
    count = draw(st.integers(1, 9))
    members = [
        Subscriber(
            member_id=f"m{number}",
            topics=shared if homogeneous else draw(subscriptions),
            target=draw(targets),
            instance_id=draw(st.none() | st.just(f"i{number}")),
        )
        for number in range(count)
    ]
    return members, sizes


def check_owners(members: Sequence[Subscriber], sizes: Mapping[bytes, int], shares: Shares) -> None:
    """Each partition that anybody subscribes to has one owner, who subscribes to its topic."""
    subscribers = {each.member_id: each.topics for each in members}
    assert shares.keys() == subscribers.keys()
    owned = [
        (topic, index)
        for name, share in shares.items()
        for topic, numbers in share.items()
        for index in numbers
        if topic in subscribers[name]
    ]
    wanted = {topic for topics in subscribers.values() for topic in topics}
    assert sorted(owned) == sorted((t, index) for t in wanted for index in range(sizes[t]))
    assert sum(map(partition_count, shares.values())) == len(owned)
    for share in shares.values():
        assert list(share) == sorted(share)
        assert all(numbers and list(numbers) == sorted(numbers) for numbers in share.values())


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(ASSIGNORS))
@given(group=groups())
def test_each_partition_has_one_owner_among_its_subscribers(
    name: str, group: tuple[list[Subscriber], Sizes]
) -> None:
    members, sizes = group
    check_owners(members, sizes, ASSIGNORS[name](members, sizes))


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(ASSIGNORS))
@given(group=groups(), seed=st.integers())
def test_the_order_of_members_does_not_matter(
    name: str, group: tuple[list[Subscriber], Sizes], seed: int
) -> None:
    members, sizes = group
    mixed = list(members)
    Random(seed).shuffle(mixed)
    turned = dict(reversed(sizes.items()))
    assert ASSIGNORS[name](mixed, turned) == ASSIGNORS[name](members, sizes)


@pytest.mark.slow
@given(group=groups(homogeneous=True))
def test_uniform_is_balanced_within_one_where_all_subscribe_to_the_same(
    group: tuple[list[Subscriber], Sizes],
) -> None:
    members, sizes = group
    counts = [partition_count(share) for share in assign_uniform(members, sizes).values()]
    assert max(counts) - min(counts) <= 1


@pytest.mark.slow
@given(group=groups(homogeneous=True))
def test_uniform_moves_only_what_balance_needs(group: tuple[list[Subscriber], Sizes]) -> None:
    """Nobody loses a partition but for being above what everybody is to have."""
    members, sizes = group
    had = valid_targets(members, sizes)
    shares = assign_uniform(members, sizes)
    total = sum(sizes[topic] for topic in members[0].topics)
    least, longer = divmod(total, len(members))
    above = sum(len(each) > least for each in had.values())
    must_go = sum(max(0, len(each) - least - 1) for each in had.values()) + max(0, above - longer)
    lost = 0
    for each in members:
        has = {(t, i) for t, numbers in shares[each.member_id].items() for i in numbers}
        lost += len(had[each.member_id] - has)
        if len(had[each.member_id]) <= least:
            assert had[each.member_id] <= has, "one that has too little has lost something"
    assert lost == must_go


def valid_targets(
    members: Sequence[Subscriber], sizes: Mapping[bytes, int]
) -> dict[str, set[tuple[bytes, int]]]:
    """Return what members were to have and may have still: what two claim is the first one's."""
    taken: set[tuple[bytes, int]] = set()
    result: dict[str, set[tuple[bytes, int]]] = {}
    for each in sorted(members, key=lambda one: one.member_id):
        mine = {
            (topic, index)
            for topic, numbers in each.target.items()
            if topic in each.topics
            for index in numbers
            if index < sizes[topic]
        } - taken
        taken |= mine
        result[each.member_id] = mine
    return result


@pytest.mark.slow
@given(group=groups())
def test_uniform_leaves_what_is_even_as_it_is(group: tuple[list[Subscriber], Sizes]) -> None:
    members, sizes = group
    shares = assign_uniform(members, sizes)
    again = [replace(each, target=shares[each.member_id]) for each in members]
    assert assign_uniform(again, sizes) == shares


@pytest.mark.slow
@given(group=groups())
def test_uniform_leaves_no_topic_whose_subscribers_differ_by_more_than_one_and_could_share(
    group: tuple[list[Subscriber], Sizes],
) -> None:
    """No single move of a partition to another subscriber of its topic makes things more even."""
    members, sizes = group
    shares = assign_uniform(members, sizes)
    counts = {name: partition_count(share) for name, share in shares.items()}
    for topic in sizes:
        having = [each.member_id for each in members if topic in each.topics]
        for giver in having:
            if topic in shares[giver]:
                assert all(counts[giver] - counts[taker] <= 1 for taker in having)


@pytest.mark.slow
@given(group=groups(homogeneous=True), size=st.integers(1, 12))
def test_range_gives_the_same_numbers_of_topics_of_one_size(
    group: tuple[list[Subscriber], Sizes], size: int
) -> None:
    members, sizes = group
    even = dict.fromkeys(sizes, size)
    for share in assign_range(members, even).values():
        assert all(one == other for one, other in pairwise(share.values()))


@pytest.mark.parametrize("assign", ASSIGNORS.values(), ids=ASSIGNORS)
def test_hundreds_of_members_and_thousands_of_partitions(
    assign: Callable[[Sequence[Subscriber], Mapping[bytes, int]], Shares],
) -> None:
    """Goal: a large group with overlapping subscriptions is assigned, and all of it is right."""
    chance = Random(848)
    topics = [number.to_bytes(16) for number in range(100)]
    sizes = dict.fromkeys(topics, 100)
    members = [
        Subscriber(member_id=f"m{number:03}", topics=frozenset(chance.sample(topics, 50)))
        for number in range(500)
    ]
    shares = assign(members, sizes)
    check_owners(members, sizes, shares)
    fewer = [replace(each, target=shares[each.member_id]) for each in members[50:]]
    check_owners(fewer, sizes, assign(fewer, sizes))
