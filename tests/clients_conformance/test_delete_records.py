"""Goal: unmodified clients delete records and find what is left. Method: two client libraries."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from holdfast.clients.blocking_driver import Driver
from holdfast.cluster.processes import wait_until
from holdfast.wire.administration import create_topic

if TYPE_CHECKING:
    from tests.clients_conformance.conftest import Target

kafka = pytest.importorskip("kafka")

BOUND_S = 30.0


def filled(target: Target, topic: str) -> None:
    with Driver(target.bootstrap) as driver:
        node = min(driver.nodes())
        driver.perform(create_topic(topic, assignment={0: sorted(driver.nodes())}))
        wait_until(
            lambda: driver.metadata([topic]).topics[0].error_code == 0 or None,
            timeout_s=BOUND_S,
            what=f"{topic} on broker {node}",
        )
    producer = Producer({"bootstrap.servers": target.bootstrap, "acks": "all"})
    for number in range(20):
        producer.produce(topic, value=str(number), partition=0)
    assert producer.flush(BOUND_S) == 0


def first_offset(client: Any, topic: str) -> int:
    asked = {TopicPartition(topic, 0): OffsetSpec.earliest()}
    (future,) = client.list_offsets(asked).values()
    offset: int = future.result(timeout=BOUND_S).offset
    return offset


def test_confluent(target: Target, new_topic: Callable[[], str]) -> None:
    topic = new_topic()
    filled(target, topic)
    client: Any = AdminClient({"bootstrap.servers": target.bootstrap})

    def delete(offset: int) -> int:
        (future,) = client.delete_records([TopicPartition(topic, 0, offset)]).values()
        low_watermark: int = future.result(timeout=BOUND_S).low_watermark
        return low_watermark

    assert delete(7) == 7
    assert first_offset(client, topic) == 7
    with pytest.raises(KafkaException, match="_OUT_OF_RANGE"):
        delete(21)
    assert delete(-1) == 20
    assert first_offset(client, topic) == 20


def test_kafka_python(target: Target, new_topic: Callable[[], str]) -> None:
    topic = new_topic()
    filled(target, topic)
    client: Any = kafka.KafkaAdminClient(bootstrap_servers=target.bootstrap.split(","))
    try:
        client.delete_records({kafka.TopicPartition(topic, 0): 5})
    finally:
        client.close()
    assert first_offset(AdminClient({"bootstrap.servers": target.bootstrap}), topic) == 5
