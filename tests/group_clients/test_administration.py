"""What an operator sees of groups and does to them, by confluent-kafka's admin client."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AclOperation, AdminClient
from tests.group_clients.members import Client, Committed, Member, read, share, until
from tests.group_clients.records import produce

pytestmark = [pytest.mark.turns, pytest.mark.slow]

Join = Callable[..., Member]
NewTopic = Callable[..., str]
BOUND_S = 30.0


@pytest.fixture
def admin(target: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": target})


MAY_ALL = {
    AclOperation.READ,
    AclOperation.DELETE,
    AclOperation.DESCRIBE,
    AclOperation.DESCRIBE_CONFIGS,
    AclOperation.ALTER_CONFIGS,
}


def described(admin: AdminClient, group: str) -> Any:
    asked = admin.describe_consumer_groups([group], include_authorized_operations=True)
    return asked[group].result(BOUND_S)


def until_it_is(state: str, admin: AdminClient, group: str, members: Sequence[Member] = ()) -> Any:
    """Wait for a group's state, which a member may know before its coordinator does."""
    found: list[Any] = []

    def is_there() -> bool:
        found.append(described(admin, group))
        return bool(found[-1].state.name == state)

    until(is_there, members, f"{group} to be {state}")
    return found[-1]


def code_of(done: Any) -> int:
    with pytest.raises(KafkaException) as raised:
        done.result(BOUND_S)
    error: KafkaError = raised.value.args[0]
    return int(error.code())


def test_a_group_is_listed_and_described(
    join: Join, topic: NewTopic, name: str, admin: AdminClient, client: Client
) -> None:
    read_by_all, members = topic(4), [join(), join()]
    for member in members:
        member.subscribe(read_by_all)
    share(members, [(read_by_all, partition) for partition in range(4)])
    found = until_it_is("STABLE", admin, name, members)
    assert len(found.members) == 2
    assert found.type.name.lower() == client.protocol
    assert set(found.authorized_operations) == MAY_ALL
    owned = [
        (each.topic, each.partition)
        for member in found.members
        for each in member.assignment.topic_partitions
    ]
    assert sorted(owned) == [(read_by_all, partition) for partition in range(4)]
    listed = {each.group_id: each for each in admin.list_consumer_groups().result(BOUND_S).valid}
    assert listed[name].state.name == "STABLE"
    assert listed[name].type.name.lower() == client.protocol
    for member in members:
        member.close()
    until_it_is("EMPTY", admin, name)


def test_offsets_are_listed_altered_and_deleted(
    target: str, join: Join, topic: NewTopic, name: str, admin: AdminClient
) -> None:
    held, member = topic(2), join()
    produce(target, held, {0: 5, 1: 5})
    member.subscribe(held)
    read([member], 10)
    member.commit({(held, 0): Committed(3, "words"), (held, 1): Committed(4, "")})

    def listed() -> dict[int, tuple[int, str]]:
        asked = [ConsumerGroupTopicPartitions(name)]
        found = admin.list_consumer_group_offsets(asked)[name].result(BOUND_S)
        return {
            # confluent-kafka reads metadata up to a zero byte, which only its own commits end with.
            each.partition: (each.offset, (each.metadata or "")[: len("words")])
            for each in found.topic_partitions
        }

    assert listed() == {0: (3, "words"), 1: (4, "")}
    other = [ConsumerGroupTopicPartitions(name, [TopicPartition(held, 0, 1)])]
    (refused,) = admin.alter_consumer_group_offsets(other)[name].result(BOUND_S).topic_partitions
    assert refused.error.code() == KafkaError.UNKNOWN_MEMBER_ID
    assert code_of(admin.delete_consumer_groups([name])[name]) == KafkaError.NON_EMPTY_GROUP
    member.close()
    until_it_is("EMPTY", admin, name)
    done = admin.alter_consumer_group_offsets(other)[name].result(BOUND_S)
    assert all(each.error is None for each in done.topic_partitions)
    assert listed()[0][0] == 1
    admin.delete_consumer_groups([name])[name].result(BOUND_S)
    assert code_of(admin.delete_consumer_groups([name])[name]) == KafkaError.GROUP_ID_NOT_FOUND


def test_a_group_that_nobody_has_can_not_be_deleted(admin: AdminClient, name: str) -> None:
    assert code_of(admin.delete_consumer_groups([name])[name]) == KafkaError.GROUP_ID_NOT_FOUND
