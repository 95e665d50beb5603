"""Who owns what: members come and go, and each partition has one owner.

Goal: what users of groups rely on, in every client. Method: members of the same client in one
group; who owns what is asked of themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions
from tests.group_clients.members import REFUSALS, Member, read, share, until
from tests.group_clients.records import produce

pytestmark = [pytest.mark.turns, pytest.mark.slow]

Join = Callable[..., Member]
NewTopic = Callable[..., str]


def of(topic: str, count: int) -> list[tuple[str, int]]:
    return [(topic, partition) for partition in range(count)]


def test_one_member_has_all(join: Join, topic: NewTopic) -> None:
    name, member = topic(4), join()
    member.subscribe(name)
    share([member], of(name, 4))


def test_two_share_and_who_is_left_takes_over(join: Join, topic: NewTopic) -> None:
    name, first = topic(4), join()
    first.subscribe(name)
    share([first], of(name, 4))
    second = join()
    second.subscribe(name)
    share([first, second], of(name, 4))
    first.close()
    share([second], of(name, 4))


def test_more_members_than_partitions(join: Join, topic: NewTopic) -> None:
    name, members = topic(2), [join() for _ in range(3)]
    for member in members:
        member.subscribe(name)
    share(members, of(name, 2))
    until(
        lambda: sorted(len(member.assignment()) for member in members) == [0, 1, 1],
        members,
        "two owners and one without",
    )


def test_members_with_other_topics(join: Join, topic: NewTopic) -> None:
    """Each has only what it subscribed to."""
    one, two = topic(2, "-one"), topic(2, "-two")
    left, right = join(), join()
    left.subscribe(one)
    right.subscribe(one, two)
    wanted = sorted(of(one, 2) + of(two, 2))

    def is_shared() -> bool:
        has, others = left.assignment(), right.assignment()
        assert {name for name, _ in has} <= {one}
        return sorted([*has, *others]) == wanted and set(of(two, 2)) <= others

    until(is_shared, [left, right], "each to have what it asked for")


def test_two_groups_read_the_same(target: str, join: Join, topic: NewTopic, name: str) -> None:
    read_by_both, count = topic(2), 0
    count = produce(target, read_by_both, {0: 5, 1: 5})
    for group in (f"{name}-a", f"{name}-b"):
        member = join(group)
        member.subscribe(read_by_both)
        (given,) = read([member], count).values()
        assert len(given) == count
        member.close()


def test_what_was_committed_goes_to_the_next_owner(
    target: str, join: Join, topic: NewTopic
) -> None:
    """Nothing is skipped, and nothing is read again, when an owner commits before it leaves."""
    name, first = topic(4), join()
    produce(target, name, dict.fromkeys(range(4), 10))
    first.subscribe(name)
    before = read([first], 40)[first]
    first.commit()
    first.close()
    second, third = join(), join()
    second.subscribe(name)
    third.subscribe(name)
    # What the second read before the third came, without a commit, the third would read again.
    early = share([second, third], of(name, 4))
    produce(target, name, dict.fromkeys(range(4), 5), first=10)
    after = [record for given in read([second, third], 20).values() for record in given]
    after += [record for given in early.values() for record in given]
    seen = sorted((record.partition, record.offset) for record in before + after)
    assert seen == [(partition, offset) for partition in range(4) for offset in range(15)]


def test_a_topic_that_grows_is_noticed(target: str, join: Join, topic: NewTopic) -> None:
    name, member = topic(2), join()
    member.subscribe(name)
    share([member], of(name, 2))
    admin = AdminClient({"bootstrap.servers": target})
    for done in admin.create_partitions([NewPartitions(name, 4)]).values():
        done.result(30)
    share([member], of(name, 4))


def test_a_subscription_can_change(join: Join, topic: NewTopic) -> None:
    one, two = topic(2, "-one"), topic(3, "-two")
    member = join()
    member.subscribe(one)
    share([member], of(one, 2))
    member.subscribe(two)
    share([member], of(two, 3))


def test_a_member_that_reads_on_while_others_come(target: str, join: Join, topic: NewTopic) -> None:
    """Everything is read by somebody, whoever came in the middle of it."""
    name, members = topic(4), [join()]
    members[0].subscribe(name)
    seen: set[tuple[int, int]] = set()
    for round_ in range(3):
        produce(target, name, dict.fromkeys(range(4), 5), first=5 * round_)
        wanted = {(partition, offset) for partition in range(4) for offset in range(5 * round_ + 5)}

        def all_seen(wanted: set[tuple[int, int]] = wanted) -> bool:
            for member in members:
                seen.update((record.partition, record.offset) for record in member.poll())
            return wanted <= seen

        until(all_seen, [], "all records of the round")
        for member in members:
            with suppress(*REFUSALS):  # while the group rebalances: it is read again
                member.commit()
        members.append(join())
        members[-1].subscribe(name)
