"""confluent-kafka, unmodified: topics, every codec, both kinds of producer, reading."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

if TYPE_CHECKING:
    from tests.clients_conformance.conftest import Target

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
BOUND_S = 30.0
NewTopicName = Callable[[], str]


def admin_of(target: Target) -> Any:
    return AdminClient({"bootstrap.servers": target.bootstrap})


def create(
    target: Target, name: str, config: Mapping[str, str] | None = None, *, partitions: int = 1
) -> None:
    topic = NewTopic(
        name, num_partitions=partitions, replication_factor=-1, config=dict(config or {})
    )
    admin = admin_of(target)  # kept: its futures fail when it goes
    admin.create_topics([topic])[name].result(timeout=BOUND_S)
    wait_until_known(target, name)


def wait_until_known(target: Target, name: str) -> None:
    """Wait until every broker knows the topic: the controller's answer is ahead of their images."""
    deadline = time.monotonic() + BOUND_S
    for address in target.bootstrap.split(","):
        admin = AdminClient({"bootstrap.servers": address})
        while admin.list_topics(name, timeout=BOUND_S).topics[name].error is not None:
            assert time.monotonic() < deadline, f"{address} does not hear of {name}"


def produce(target: Target, topic: str, values: list[bytes], **settings: object) -> list[Any]:
    """Send all to partition 0 and return the acknowledged messages."""
    delivered: list[Any] = []

    def report(error: KafkaError | None, message: Any) -> None:
        assert error is None, error
        delivered.append(message)

    producer = Producer({"bootstrap.servers": target.bootstrap, "linger.ms": 20} | settings)
    for number, value in enumerate(values):
        producer.produce(
            topic,
            value=value,
            key=b"key-%d" % number,
            partition=0,
            headers=[("number", b"%d" % number)],
            on_delivery=report,
        )
    assert producer.flush(BOUND_S) == 0
    return delivered


def consume(
    target: Target,
    topic: str,
    count: int,
    offset: int = OFFSET_BEGINNING,
    settings: Mapping[str, object] | None = None,
) -> list[Any]:
    """Read `count` messages of partition 0 by assignment."""
    consumer = Consumer(
        {"bootstrap.servers": target.bootstrap, "group.id": "unused", "enable.auto.commit": False}
        | dict(settings or {})
    )
    consumer.assign([TopicPartition(topic, 0, offset)])
    messages: list[Any] = []
    deadline = time.monotonic() + BOUND_S
    while len(messages) < count:
        assert time.monotonic() < deadline, f"{len(messages)} of {count} messages"
        for message in consumer.consume(count - len(messages), 1.0):
            assert message.error() is None, message.error()
            messages.append(message)
    consumer.close()
    return messages


@pytest.mark.slow
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("idempotent", [True, False], ids=["idempotent", "plain"])
def test_messages_come_back_as_they_were_sent(
    target: Target, new_topic: NewTopicName, codec: str, idempotent: bool
) -> None:
    """Goal: keys, values, headers, order and offsets survive. Method: 200 messages a codec."""
    topic = new_topic()
    create(target, topic)
    values = [b"value %d " % number * 20 for number in range(200)]
    delivered = produce(
        target,
        topic,
        values,
        **{"compression.type": codec, "enable.idempotence": idempotent},
    )
    assert [message.offset() for message in delivered] == list(range(200))
    messages = consume(target, topic, 200)
    assert [message.value() for message in messages] == values
    assert [message.key() for message in messages] == [b"key-%d" % n for n in range(200)]
    assert [message.offset() for message in messages] == list(range(200))
    assert messages[7].headers() == [("number", b"7")]


@pytest.mark.slow
@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_every_kind_of_acknowledgement(target: Target, new_topic: NewTopicName, acks: str) -> None:
    """Goal: acks 0, 1 and all work. Method: what was sent is read, whatever was acknowledged."""
    topic = new_topic()
    create(target, topic)
    produce(target, topic, [b"a", b"b"], acks=acks)
    assert [message.value() for message in consume(target, topic, 2)] == [b"a", b"b"]


@pytest.mark.slow
def test_empty_and_null_values(target: Target, new_topic: NewTopicName) -> None:
    """Goal: an empty value and none at all are told apart. Method: produce both, read both."""
    topic = new_topic()
    create(target, topic)
    producer = Producer({"bootstrap.servers": target.bootstrap})
    producer.produce(topic, value=b"", key=None, partition=0)
    producer.produce(topic, value=None, key=b"", partition=0, headers=[("h", None)])
    assert producer.flush(BOUND_S) == 0
    first, second = consume(target, topic, 2)
    assert (first.key(), first.value()) == (None, b"")
    assert (second.key(), second.value(), second.headers()) == (b"", None, [("h", None)])


@pytest.mark.slow
@pytest.mark.parametrize("level", ["read_committed", "read_uncommitted"])
def test_both_isolation_levels_read_all(
    target: Target, new_topic: NewTopicName, level: str
) -> None:
    """Goal: where there are no transactions both levels see the same. Method: read with each."""
    topic = new_topic()
    create(target, topic)
    produce(target, topic, [b"a", b"b", b"c"])
    messages = consume(target, topic, 3, settings={"isolation.level": level})
    assert [message.value() for message in messages] == [b"a", b"b", b"c"]


def test_reading_starts_in_the_middle_of_a_batch(target: Target, new_topic: NewTopicName) -> None:
    """Goal: no offset inside a batch is skipped or repeated. Method: one batch, start at each."""
    topic = new_topic()
    create(target, topic)
    produce(target, topic, [b"%d" % number for number in range(10)], **{"compression.type": "lz4"})
    for start in (1, 5, 9):
        messages = consume(target, topic, 10 - start, offset=start)
        assert [message.offset() for message in messages] == list(range(start, 10))


@pytest.mark.slow
def test_offsets_by_timestamp(target: Target, new_topic: NewTopicName) -> None:
    """Goal: ListOffsets finds the first record at or after a time. Method: times set by hand."""
    topic = new_topic()
    create(target, topic)
    base = int(time.time() * 1000) - 100_000
    producer = Producer({"bootstrap.servers": target.bootstrap})
    for number in range(10):
        producer.produce(topic, value=b"x", partition=0, timestamp=base + number * 1000)
        assert producer.flush(BOUND_S) == 0  # one batch each: the index has something to find
    specs = {
        "earliest": OffsetSpec.earliest(),
        "latest": OffsetSpec.latest(),
        "max": OffsetSpec.max_timestamp(),
        "exact": OffsetSpec.for_timestamp(base + 3000),
        "between": OffsetSpec.for_timestamp(base + 3001),
        "before": OffsetSpec.for_timestamp(base - 1),
        "after": OffsetSpec.for_timestamp(base + 9001),
    }
    partition = TopicPartition(topic, 0)
    admin = admin_of(target)
    found = {
        name: admin.list_offsets(
            {partition: spec}, isolation_level=IsolationLevel.READ_UNCOMMITTED
        )[partition].result(timeout=BOUND_S)
        for name, spec in specs.items()
    }
    offsets = {name: result.offset for name, result in found.items()}
    assert offsets == {
        "earliest": 0,
        "latest": 10,
        "max": 9,
        "exact": 3,
        "between": 4,
        "before": 0,
        "after": -1,
    }
    assert found["between"].timestamp == base + 4000


def test_topics_are_created_described_grown_and_deleted(
    target: Target, new_topic: NewTopicName
) -> None:
    """Goal: a topic's whole life through AdminClient. Method: each step seen in metadata."""
    topic = new_topic()
    admin = admin_of(target)
    create(target, topic, {"retention.ms": "123456"}, partitions=2)
    described = admin.list_topics(topic, timeout=BOUND_S).topics[topic]
    assert sorted(described.partitions) == [0, 1]
    assert len(described.partitions[0].replicas) == min(target.brokers, 3)
    with pytest.raises(KafkaException) as refused:
        create(target, topic)
    assert refused.value.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS
    admin.create_partitions([NewPartitions(topic, 4)])[topic].result(timeout=BOUND_S)
    wait_for(lambda: len(admin.list_topics(topic, timeout=BOUND_S).topics[topic].partitions) == 4)
    admin.delete_topics([topic])[topic].result(timeout=BOUND_S)
    wait_for(lambda: topic not in admin.list_topics(timeout=BOUND_S).topics)


def test_configs_are_described_and_changed(target: Target, new_topic: NewTopicName) -> None:
    """Goal: settings of topics change at run time. Method: set, append, subtract, delete; read."""
    topic = new_topic()
    create(target, topic, {"retention.ms": "123456"})
    admin = admin_of(target)

    def alter(name: str, value: str | None, operation: AlterConfigOpType) -> None:
        entry = ConfigEntry(name, value, incremental_operation=operation)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        admin.incremental_alter_configs([resource])[resource].result(timeout=BOUND_S)

    def value_of(name: str) -> str:
        resource = ConfigResource(ResourceType.TOPIC, topic)
        return str(admin.describe_configs([resource])[resource].result(timeout=BOUND_S)[name].value)

    assert value_of("retention.ms") == "123456"
    alter("retention.ms", "654321", AlterConfigOpType.SET)
    wait_for(lambda: value_of("retention.ms") == "654321")
    alter("cleanup.policy", "compact", AlterConfigOpType.APPEND)
    wait_for(lambda: value_of("cleanup.policy") == "delete,compact")
    alter("cleanup.policy", "compact", AlterConfigOpType.SUBTRACT)
    wait_for(lambda: value_of("cleanup.policy") == "delete")
    alter("retention.ms", None, AlterConfigOpType.DELETE)
    wait_for(lambda: value_of("retention.ms") == "604800000")


@pytest.mark.slow
def test_a_topic_is_created_by_producing(target: Target, new_topic: NewTopicName) -> None:
    """Goal: auto-creation. Method: produce to a name that isn't there."""
    topic = new_topic()
    produce(target, topic, [b"first"])
    assert consume(target, topic, 1)[0].value() == b"first"


@pytest.mark.slow
def test_a_record_that_is_too_large(target: Target, new_topic: NewTopicName) -> None:
    """Goal: max.message.bytes holds. Method: a topic with a small bound, a record above it."""
    topic = new_topic()
    create(target, topic, {"max.message.bytes": "2000"})
    outcomes: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": target.bootstrap})
    producer.produce(
        topic, value=b"x" * 5000, partition=0, on_delivery=lambda error, _: outcomes.append(error)
    )
    assert producer.flush(BOUND_S) == 0
    assert outcomes[0] is not None
    assert outcomes[0].code() == KafkaError.MSG_SIZE_TOO_LARGE
    produce(target, topic, [b"small"])
    assert consume(target, topic, 1)[0].value() == b"small"


def test_describe_cluster(target: Target) -> None:
    """Goal: DescribeCluster names every broker. Method: AdminClient.describe_cluster."""
    admin = admin_of(target)
    found = admin.describe_cluster().result(timeout=BOUND_S)
    assert len(found.nodes) == target.brokers
    assert found.cluster_id


def wait_for(condition: Callable[[], bool]) -> None:
    """Wait for what metadata shows a little later."""
    deadline = time.monotonic() + BOUND_S
    while not condition():
        assert time.monotonic() < deadline, "the change never showed"
