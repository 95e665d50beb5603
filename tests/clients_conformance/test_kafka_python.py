"""kafka-python, unmodified: topics, codecs, both kinds of producer, reading by assignment."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

with warnings.catch_warnings():
    # It reads its schemas in a way that Python 3.11 calls deprecated; some of them later on.
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka.codec
    from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
    from kafka.errors import InvalidReplicationFactorError, TopicAlreadyExistsError

if TYPE_CHECKING:
    from tests.clients_conformance.conftest import Target

pytestmark = pytest.mark.filterwarnings("ignore:read_text is deprecated")

NewTopicName = Callable[[], str]
BOUND_S = 30.0
BOUND_MS = 30_000
LIBRARIES = {
    None: lambda: True,
    "gzip": kafka.codec.has_gzip,
    "snappy": kafka.codec.has_snappy,
    "lz4": kafka.codec.has_lz4,
    "zstd": kafka.codec.has_zstd,
}


def create(target: Target, name: str, **options: object) -> None:
    admin = KafkaAdminClient(bootstrap_servers=target.bootstrap)
    admin.create_topics({name: options}, timeout_ms=BOUND_MS, wait_for_metadata=True)
    admin.close()


def consume(target: Target, topic: str, count: int, **settings: object) -> list[Any]:
    consumer = KafkaConsumer(
        bootstrap_servers=target.bootstrap, enable_auto_commit=False, group_id=None, **settings
    )
    partition = TopicPartition(topic, 0)
    consumer.assign([partition])
    consumer.seek_to_beginning(partition)
    records: list[Any] = []
    deadline = time.monotonic() + BOUND_S
    while len(records) < count:
        assert time.monotonic() < deadline, f"{len(records)} of {count} records"
        for found in consumer.poll(timeout_ms=500).values():
            records += found
    consumer.close()
    return records


@pytest.mark.slow
@pytest.mark.parametrize("codec", list(LIBRARIES), ids=str)
@pytest.mark.parametrize("idempotent", [True, False], ids=["idempotent", "plain"])
def test_records_come_back_as_they_were_sent(
    target: Target, new_topic: NewTopicName, codec: str | None, idempotent: bool
) -> None:
    """Goal: keys, values, headers, order and offsets survive. Method: 100 records a codec."""
    if not LIBRARIES[codec]():
        pytest.skip(f"kafka-python's library for {codec} is not installed")
    topic = new_topic()
    create(target, topic, num_partitions=1)
    producer = KafkaProducer(
        bootstrap_servers=target.bootstrap,
        compression_type=codec,
        enable_idempotence=idempotent,
        acks="all",
        linger_ms=20,
    )
    values = [b"value %d " % number * 20 for number in range(100)]
    sent = [
        producer.send(topic, value, key=b"k", partition=0, headers=[("h", b"x")])
        for value in values
    ]
    offsets = [future.get(timeout=BOUND_S).offset for future in sent]
    producer.close()
    assert offsets == list(range(100))
    records = consume(target, topic, 100)
    assert [record.value for record in records] == values
    assert [record.offset for record in records] == offsets
    assert (records[0].key, records[0].headers) == (b"k", [("h", b"x")])


def test_read_committed(target: Target, new_topic: NewTopicName) -> None:
    """Goal: read_committed works where there are no transactions. Method: read with it."""
    topic = new_topic()
    create(target, topic, num_partitions=1)
    producer = KafkaProducer(bootstrap_servers=target.bootstrap)
    producer.send(topic, b"a", partition=0).get(timeout=BOUND_S)
    producer.close()
    (record,) = consume(target, topic, 1, isolation_level="read_committed")
    assert record.value == b"a"


@pytest.mark.slow
def test_offsets(target: Target, new_topic: NewTopicName) -> None:
    """Goal: beginning, end and offsets by time. Method: three records with times set by hand."""
    topic = new_topic()
    create(target, topic, num_partitions=1)
    base = int(time.time() * 1000) - 60_000
    producer = KafkaProducer(bootstrap_servers=target.bootstrap)
    for number in range(3):
        sent = producer.send(topic, b"x", partition=0, timestamp_ms=base + number * 1000)
        sent.get(timeout=BOUND_S)
    producer.close()
    partition = TopicPartition(topic, 0)
    consumer = KafkaConsumer(bootstrap_servers=target.bootstrap, group_id=None)
    assert consumer.beginning_offsets([partition]) == {partition: 0}
    assert consumer.end_offsets([partition]) == {partition: 3}
    found = consumer.offsets_for_times({partition: base + 1})[partition]
    assert (found.offset, found.timestamp) == (1, base + 1000)
    assert consumer.offsets_for_times({partition: base + 5000})[partition] is None
    consumer.close()


def test_topics_and_their_errors(target: Target, new_topic: NewTopicName) -> None:
    """Goal: proper errors for a second creation and too many copies. Method: both, then delete."""
    topic = new_topic()
    create(target, topic, num_partitions=2)
    admin = KafkaAdminClient(bootstrap_servers=target.bootstrap)
    with pytest.raises(TopicAlreadyExistsError):
        admin.create_topics({topic: {"num_partitions": 1}})
    with pytest.raises(InvalidReplicationFactorError):
        admin.create_topics({new_topic(): {"num_partitions": 1, "replication_factor": 9}})
    admin.create_partitions({topic: 3})
    deadline = time.monotonic() + BOUND_S
    while len(admin.describe_topics([topic])[0]["partitions"]) != 3:
        assert time.monotonic() < deadline
    admin.delete_topics([topic])
    while topic in admin.list_topics():
        assert time.monotonic() < deadline
    admin.close()
