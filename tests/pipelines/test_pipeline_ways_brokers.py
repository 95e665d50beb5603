"""Goal: on real brokers both ways of reading a range give the same rows.

Method: librdkafka's producer writes with each codec, headers, nulls and either kind of timestamp;
a log is compacted; a leader is killed in the middle of a range. Our client's rows, decoded by C and
by Python, are held against librdkafka's for random ranges. On Apache Kafka, too, where
HOLDFAST_TEST_BOOTSTRAP names one.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource
from tests.cluster.waiting import wait_for_leader
from tests.pipelines.conftest import EXTERNAL, Topics
from tests.pipelines.test_pipeline_ways import DECODERS, forget_clients, ranges, table

from holdfast.cluster import LocalCluster
from holdfast.cluster.processes import wait_until
from holdfast.pipelines.offsets import Partition
from holdfast.pipelines.read_range import librdkafka_range
from holdfast.pipelines.reading.access import Access
from holdfast.pipelines.reading.range_rows import ROWS_MAX
from holdfast.pipelines.reading.wire_range import wire_range


@pytest.fixture(autouse=True)
def _no_client_outlives_the_cluster() -> Iterator[None]:
    yield
    forget_clients()


def written(bootstrap: str, topic: str, chance: random.Random, count: int, **settings: str) -> None:
    """Write records of all kinds into partition 0, in batches of several sizes."""
    named = {name.replace("_", "."): value for name, value in settings.items()}
    producer = Producer(
        {"bootstrap.servers": bootstrap, "enable.idempotence": True, **named}, logger=None
    )
    for number in range(count):
        headers = [("h", b"x"), ("h", None), ("ü", b"")] if chance.random() < 0.3 else None
        producer.produce(
            topic,
            None if chance.random() < 0.2 else chance.randbytes(chance.choice([0, 9, 700])),
            None if chance.random() < 0.2 else b"%d" % chance.randint(0, 9),
            0,
            headers=headers,
            timestamp=chance.choice([0, 1_600_000_000_000 + number]),
        )
        if chance.random() < 0.05:
            producer.flush(30)
    assert producer.flush(60) == 0


def hold_against(topic: str, how: Access, chance: random.Random, end: int, count: int) -> None:
    partition = Partition(topic, 0)
    for start, stop in ranges(chance, end, count):
        theirs = table(librdkafka_range(partition, start, stop, how), how)
        for decoder in DECODERS:
            ours = table(wire_range(partition, start, stop, how, decoder=decoder), how)
            assert ours == theirs, f"{decoder.name}, [{start}, {stop})"


def access(bootstrap: str, fetch_bytes: int = 20_000) -> Access:
    client = (("bootstrap.servers", bootstrap),)
    return Access(client=client, headers=True, fetch_bytes=fetch_bytes, silence_ms_max=30_000)


@pytest.mark.slow
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_each_codec(topics: Topics, codec: str) -> None:
    chance = random.Random(codec)
    kind = chance.choice(["CreateTime", "LogAppendTime"])
    topic = topics.create(1, message_timestamp_type=kind)
    written(topics.bootstrap, topic, chance, 400, compression_type=codec, linger_ms="5")
    hold_against(topic, access(topics.bootstrap), chance, 400, 4)


@pytest.mark.slow
@pytest.mark.process
def test_a_log_that_was_compacted(tmp_path: Path) -> None:
    chance, count = random.Random(3), 500
    config = {"log.cleaner.backoff.ms": "50"}
    with LocalCluster.create(tmp_path, brokers=1, port=0, config=config) as cluster:
        cluster.start()
        topics = Topics(cluster.bootstrap_servers)
        topic = topics.create(
            1, cleanup_policy="compact", min_cleanable_dirty_ratio="0.01", segment_ms="1"
        )
        now_ms = int(time.time() * 1000)
        for number in range(10):  # a segment each: their own time rolls them, not how long it takes
            values = [b"%d-%d" % (number, n) for n in range(count // 10)]
            stamps = [now_ms + 1_000 * (number - 10)] * len(values)
            topics.write(topic, 0, values, b"%d" % (number % 4), stamps)
        how = access(topics.bootstrap)

        def rows() -> int:
            return len(table(wire_range(Partition(topic, 0), 0, count, how), how))

        wait_until(lambda: rows() < count // 2, timeout_s=60, what="compaction")
        # From here on it must stay as it is: all ways shall read the same log.
        kept = ConfigEntry("cleanup.policy", "delete", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[kept])
        admin = AdminClient({"bootstrap.servers": topics.bootstrap})
        admin.incremental_alter_configs([resource])[resource].result(30)
        forget_clients()
        cluster.down()
        cluster.start()
        hold_against(topic, how, chance, count, 8)
        forget_clients()


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.serial
@pytest.mark.skipif(EXTERNAL is not None, reason="kills a broker, so it has to be one of ours")
def test_a_leader_that_dies_in_the_middle(topics: Topics, request: pytest.FixtureRequest) -> None:
    cluster: LocalCluster = request.getfixturevalue("cluster")
    topic, count = topics.create(1, copies=3), 3 * ROWS_MAX
    topics.write(topic, 0, [b"%d" % number for number in range(count)])
    how = access(cluster.bootstrap_servers, 50_000)
    reading = wire_range(Partition(topic, 0), 0, count, how)
    batches = [next(reading)]
    leader = wait_for_leader(cluster, topic, 0).leader
    cluster.kill(leader, "KILL")
    try:
        batches += reading
    finally:
        cluster.start_node(leader)
    rows = table(iter(batches), how)
    assert [(row["offset"], row["value"]) for row in rows] == [
        (number, b"%d" % number) for number in range(count)
    ]
