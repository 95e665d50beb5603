"""There are no groups and transactions yet, and whoever wants one is told so at once.

Goal: no user polls None for ever, in any client; and who assigns partitions notices nothing of it.
Method: each client subscribes, and an error that says it has to come within a bound of seconds,
while a consumer of the same group that was assigned its partition reads on without any. Seen to
fail: with a coordinator that is not served (librdkafka says nothing), and with one that is refused
(an assigned consumer is given the error).
"""

from __future__ import annotations

import asyncio
import time
import warnings
from typing import TYPE_CHECKING, Any

import aiokafka
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Producer, TopicPartition

with warnings.catch_warnings():
    # It reads its schemas in a way that Python 3.11 calls deprecated; some of them later on.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaConsumer
    from kafka.errors import UnsupportedVersionError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.clients_conformance.conftest import Target

BOUND_S = 30.0
WORDS = "API version not supported"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:read_text is deprecated"),
]


def topic_with_records(target: Target, name: str) -> str:
    producer = Producer(
        {"bootstrap.servers": target.bootstrap, "topic.metadata.refresh.interval.ms": 100}
    )
    for number in range(3):
        producer.produce(name, b"%d" % number, partition=0)
    assert producer.flush(BOUND_S) == 0
    return name


def polled(consumer: Any, count: int) -> list[Any]:
    """The first messages or errors, or fewer when the bound is over."""
    found: list[Any] = []
    deadline = time.monotonic() + BOUND_S
    while len(found) < count and time.monotonic() < deadline:
        message = consumer.poll(0.2)
        if message is not None:
            found.append(message)
    return found


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_librdkafka_gives_its_user_the_error(
    target: Target, new_topic: Callable[[], str], protocol: str
) -> None:
    name = topic_with_records(target, new_topic())
    settings = {"bootstrap.servers": target.bootstrap, "group.id": "g", "group.protocol": protocol}
    consumer = Consumer(settings)
    consumer.subscribe([name])
    (message,) = polled(consumer, 1)
    assert WORDS in message.error().str()
    consumer.close()


def test_who_assigns_partitions_without_an_offset_is_told(
    target: Target, new_topic: Callable[[], str]
) -> None:
    """Goal: an error, not a dead process. Method: an offset is asked of the group, as by default.

    Seen to fail: librdkafka crashed, and Python with it, where OffsetFetch was not served.
    """
    name = topic_with_records(target, new_topic())
    consumer = Consumer({"bootstrap.servers": target.bootstrap, "group.id": "g"})
    consumer.assign([TopicPartition(name, 0)])
    (message,) = polled(consumer, 1)
    assert WORDS in message.error().str()
    consumer.close()


def test_who_assigns_partitions_notices_nothing(
    target: Target, new_topic: Callable[[], str]
) -> None:
    name = topic_with_records(target, new_topic())
    consumer = Consumer({"bootstrap.servers": target.bootstrap, "group.id": "g"})
    consumer.assign([TopicPartition(name, 0, OFFSET_BEGINNING)])
    assert [(one.error(), one.value()) for one in polled(consumer, 3)] == [
        (None, b"0"),
        (None, b"1"),
        (None, b"2"),
    ]
    with pytest.raises(KafkaException, match="not supported"):
        consumer.commit(offsets=[TopicPartition(name, 0, 3)], asynchronous=False)
    assert consumer.poll(1.0) is None, "an error that nobody has asked for"
    consumer.close()


def test_kafka_python_gives_its_user_the_error(
    target: Target, new_topic: Callable[[], str]
) -> None:
    name = topic_with_records(target, new_topic())
    consumer = KafkaConsumer(name, bootstrap_servers=target.bootstrap, group_id="g")
    with pytest.raises(UnsupportedVersionError):
        consumer.poll(timeout_ms=int(BOUND_S * 1000))
    consumer.close()


def test_aiokafka_gives_its_user_the_error(target: Target, new_topic: Callable[[], str]) -> None:
    name = topic_with_records(target, new_topic())

    async def read() -> None:
        consumer = aiokafka.AIOKafkaConsumer(name, bootstrap_servers=target.bootstrap, group_id="g")
        try:
            with pytest.raises(aiokafka.errors.KafkaError, match="UnsupportedVersionError"):
                await asyncio.wait_for(consumer.start(), BOUND_S)
        finally:
            await consumer.stop()

    asyncio.run(read())


def test_a_transactional_producer_gives_its_user_the_error(target: Target) -> None:
    producer = Producer({"bootstrap.servers": target.bootstrap, "transactional.id": "x"})
    with pytest.raises(KafkaException, match="Transactions are not served") as refused:
        producer.init_transactions(BOUND_S)
    assert refused.value.args[0].fatal()
