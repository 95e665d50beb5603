"""aiokafka, unmodified: every codec, idempotent and plain producers, reading by assignment."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

if TYPE_CHECKING:
    from tests.clients_conformance.conftest import Target

NewTopicName = Callable[[], str]
CODECS = [None, "gzip", "snappy", "lz4", "zstd"]
BOUND_S = 30.0


def run(main: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(main, BOUND_S))


async def create(target: Target, topic: str) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=target.bootstrap)
    await admin.start()
    try:
        # This client can't ask for the cluster's default of copies.
        copies = min(3, target.brokers)
        await admin.create_topics([NewTopic(topic, num_partitions=1, replication_factor=copies)])
    finally:
        await admin.close()


async def consume(target: Target, topic: str, count: int, **settings: object) -> list[Any]:
    consumer = AIOKafkaConsumer(
        bootstrap_servers=target.bootstrap, enable_auto_commit=False, group_id=None, **settings
    )
    partition = TopicPartition(topic, 0)
    await consumer.start()
    try:
        consumer.assign([partition])
        await consumer.seek_to_beginning(partition)
        return [await consumer.getone() for _ in range(count)]
    finally:
        await consumer.stop()


@pytest.mark.parametrize("codec", CODECS, ids=str)
@pytest.mark.parametrize("idempotent", [True, False], ids=["idempotent", "plain"])
def test_records_come_back_as_they_were_sent(
    target: Target, new_topic: NewTopicName, codec: str | None, idempotent: bool
) -> None:
    """Goal: keys, values, headers, order and offsets survive. Method: 100 records a codec."""
    topic = new_topic()
    values = [b"value %d " % number * 20 for number in range(100)]

    async def main() -> None:
        await create(target, topic)
        producer = AIOKafkaProducer(
            bootstrap_servers=target.bootstrap,
            compression_type=codec,
            enable_idempotence=idempotent,
            linger_ms=20,
        )
        await producer.start()
        try:
            futures = [
                await producer.send(topic, value, key=b"k", partition=0, headers=[("h", b"x")])
                for value in values
            ]
            sent = [await future for future in futures]
        finally:
            await producer.stop()
        assert [found.offset for found in sent] == list(range(100))
        records = await consume(target, topic, 100)
        assert [record.value for record in records] == values
        assert [record.offset for record in records] == list(range(100))
        assert (records[0].key, records[0].headers) == (b"k", (("h", b"x"),))

    run(main())


def test_read_committed_and_offsets(target: Target, new_topic: NewTopicName) -> None:
    """Goal: read_committed, ends, and offsets by time. Method: two records, times set by hand."""
    topic = new_topic()
    base = int(time.time() * 1000) - 60_000

    async def main() -> None:
        await create(target, topic)
        producer = AIOKafkaProducer(bootstrap_servers=target.bootstrap)
        await producer.start()
        try:
            for number in range(2):
                await producer.send_and_wait(
                    topic, b"%d" % number, partition=0, timestamp_ms=base + number * 1000
                )
        finally:
            await producer.stop()
        records = await consume(target, topic, 2, isolation_level="read_committed")
        assert [record.value for record in records] == [b"0", b"1"]
        partition = TopicPartition(topic, 0)
        consumer = AIOKafkaConsumer(bootstrap_servers=target.bootstrap, group_id=None)
        await consumer.start()
        try:
            assert await consumer.beginning_offsets([partition]) == {partition: 0}
            assert await consumer.end_offsets([partition]) == {partition: 2}
            found = await consumer.offsets_for_times({partition: base + 1})
            assert found[partition].offset == 1
        finally:
            await consumer.stop()

    run(main())
