"""Records that a client sent without timestamps are kept as long as any others.

Goal: no acknowledged record is deleted before retention.ms because of what its client did not say.
Method: a real broker whose retention looks five times a second. librdkafka sends no timestamps (-1,
and leaves 0 in its header), beside a backfill of honest old ones, which has to expire: when that is
gone, retention has looked at all. Once more after SIGKILL. About 8 s. Seen to fail: with the
header's claim believed the records are gone.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from holdfast.cluster import LocalCluster
from holdfast.cluster.processes import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.serial]

BOUND_S = 30.0
DAY_MS = 86_400_000
OFTEN = {"log.retention.check.interval.ms": "200", "log.initial.task.delay.ms": "100"}


def send(bootstrap: str, topic: str, timestamp: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(3):
        producer.produce(topic, b"%d" % number, timestamp=timestamp)
    assert producer.flush(BOUND_S) == 0


def beginning(bootstrap: str, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "none"})
    low, _ = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=BOUND_S)
    consumer.close()
    return int(low)


def values(bootstrap: str, topic: str) -> list[tuple[bytes, int]]:
    """The first three records from the log's beginning on, with their timestamps."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "none"})
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    found: list[tuple[bytes, int]] = []
    deadline = time.monotonic() + BOUND_S
    while len(found) < 3 and time.monotonic() < deadline:
        message = consumer.poll(0.2)
        if message is not None:
            assert message.error() is None, message.error()
            found.append((message.value(), message.timestamp()[1]))
    consumer.close()
    return found


def test_records_without_timestamps_stay_while_old_ones_expire(tmp_path: Path) -> None:
    with LocalCluster.create(tmp_path / "c", brokers=1, port=0, config=OFTEN) as cluster:
        cluster.start()
        bootstrap = cluster.bootstrap_servers
        admin = AdminClient({"bootstrap.servers": bootstrap})
        config = {"retention.ms": str(DAY_MS)}
        names = ["absent", "past", "past-again"]
        made = admin.create_topics([NewTopic(name, 1, 1, config=config) for name in names])
        for each in made.values():
            each.result(timeout=BOUND_S)
        old_ms = int(time.time() * 1000) - 2 * DAY_MS
        send(bootstrap, "absent", -1)
        for name in names[1:]:
            send(bootstrap, name, old_ms)
            wait_until(
                lambda topic=name: beginning(bootstrap, topic) == 3,  # type: ignore[misc]
                timeout_s=BOUND_S,
                what="the backfill to expire",
            )
            expected = [(b"0", -1), (b"1", -1), (b"2", -1)]
            assert values(bootstrap, "absent") == expected
            log = Path(cluster.node(cluster.broker_ids[0]).log_file).read_text()
            assert f"{name}-0: offsets 0 to 2 (" in log
            assert "the largest timestamp of the records" in log
            broker = cluster.broker_ids[0]
            cluster.kill(broker, "KILL")
            cluster.wait_signalled(broker, "KILL")
            cluster.start_node(broker)
            cluster.wait_serving(broker)
