"""Goal: consumers that name their rack read there, and go on when that replica dies (KIP-392).

Method: three brokers in three racks with Kafka's RackAwareReplicaSelector; librdkafka and
kafka-python, unmodified, in the rack of a follower. librdkafka's own statistics say whom the bytes
came from; then the follower is killed, and no record may be missing or come twice.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from holdfast.clients.blocking_driver import Driver
from holdfast.cluster import LocalCluster
from holdfast.config.node_keys import RACK_AWARE
from holdfast.wire.administration import create_topic

kafka = pytest.importorskip("kafka")

pytestmark = [pytest.mark.slow, pytest.mark.serial]
BOUND_S = 60.0
SIZE = 1000


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    directory = tmp_path_factory.mktemp("racks")
    with LocalCluster.create(
        directory,
        brokers=3,
        controllers=1,
        port=0,
        racks=["a", "b", "c"],
        config={"replica.selector.class": RACK_AWARE},
    ) as made:
        made.start()
        yield made


def create(cluster: LocalCluster, topic: str) -> None:
    """Broker 0 leads; 1, in rack b, and 2, in rack c, follow."""
    with Driver(cluster.bootstrap_servers) as driver:
        driver.perform(create_topic(topic, assignment={0: [0, 1, 2]}))


def produce(cluster: LocalCluster, topic: str, first: int, count: int) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all"})
    for number in range(first, first + count):
        producer.produce(topic, value=b"%0*d" % (SIZE, number), partition=0)
    assert producer.flush(BOUND_S) == 0


def read(consumer: Consumer, count: int) -> list[int]:
    numbers: list[int] = []
    deadline = time.monotonic() + BOUND_S
    while len(numbers) < count and time.monotonic() < deadline:
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            numbers.append(int(message.value()))
    return numbers


def test_librdkafka_reads_in_its_rack_and_goes_on_without_it(cluster: LocalCluster) -> None:
    create(cluster, "near")
    produce(cluster, "near", 0, 3000)
    received: dict[int, int] = {}

    def note(text: str) -> None:
        for broker in json.loads(text)["brokers"].values():
            if broker["nodeid"] >= 0:
                received[broker["nodeid"]] = broker["rxbytes"]

    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "unused",
            "enable.auto.commit": False,
            "client.rack": "b",
            "statistics.interval.ms": 100,
            "stats_cb": note,
            "topic.metadata.refresh.interval.ms": 1000,
        }
    )
    try:
        consumer.assign([TopicPartition("near", 0, OFFSET_BEGINNING)])
        assert read(consumer, 3000) == list(range(3000))
        deadline = time.monotonic() + BOUND_S
        while received.get(1, 0) < 3000 * SIZE and time.monotonic() < deadline:
            consumer.poll(0.1)
        assert received[1] > 0.95 * sum(received.values()), received

        cluster.kill(1)
        produce(cluster, "near", 3000, 500)
        assert read(consumer, 500) == list(range(3000, 3500))
    finally:
        consumer.close()
        cluster.start_node(1)


def test_kafka_python_reads_in_its_rack(cluster: LocalCluster) -> None:
    create(cluster, "close")
    produce(cluster, "close", 0, 500)
    consumer: Any = kafka.KafkaConsumer(
        bootstrap_servers=cluster.bootstrap_servers.split(","),
        client_rack="b",
        consumer_timeout_ms=int(BOUND_S * 1000),
    )
    try:
        partition = kafka.TopicPartition("close", 0)
        consumer.assign([partition])
        consumer.seek_to_beginning(partition)
        numbers = [int(next(consumer).value) for _ in range(500)]
    finally:
        consumer.close()
    assert numbers == list(range(500))
