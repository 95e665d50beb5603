"""Goal: a compacted topic keeps each key's last value on each replica, whoever is killed meanwhile.

Method: three brokers as processes, a topic of small segments, rounds as often as they can be; keys
are written again and again with acks=all while one broker after another is killed with SIGKILL and
comes back. At the end a consumer's read and the files of all three replicas are held against what
was acknowledged. Which moments of a round are met is left to chance here: all of them are in
`tests/log/test_compaction_power.py`.
Seen to fail: with a map that claims the record before which it was full.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cluster.waiting import wait_for_isr, wait_for_leader

from holdfast.clients.blocking_driver import Driver, DriverError
from holdfast.cluster import LocalCluster
from holdfast.cluster.processes import wait_until
from holdfast.config.figures import COMPACTION_ROUNDS, LOGS_NOT_COMPACTED
from holdfast.wire.administration import create_topic
from holdfast.wire.batch import Codec, Record, build_batch, read_records
from holdfast.wire.batch_header import batches, crc_matches
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from holdfast.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

pytestmark = [pytest.mark.serial, pytest.mark.slow, pytest.mark.timeout(400)]

NODES = {
    "log.cleaner.backoff.ms": "20",
    "log.cleaner.threads": "2",
    "min.insync.replicas": "2",
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "300",
    "replica.lag.time.max.ms": "3000",
}
TOPIC = {
    "cleanup.policy": "compact",
    "segment.ms": "40",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "200",
    "file.delete.delay.ms": "100",
}
KEYS = 40
DELETED = b"k7"  # its last record has no value
PATIENCE_S = 60
PRODUCE_VERSION, FETCH_VERSION = 9, 12
_START_MS = 1_767_225_600_000

Written = dict[bytes, bytes | None]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    made = LocalCluster.create(tmp_path, brokers=3, port=0, config=NODES)
    made.start()
    yield made
    made.down()


class Producer:
    """Writes keys until they are acknowledged, and remembers the last value of each."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._servers = cluster.bootstrap_servers
        self._driver: Driver | None = None
        self.number = 0
        self.latest: Written = {}
        self.ever: dict[bytes, set[bytes | None]] = {}

    def write(self, count: int) -> None:
        for _ in range(count):
            pairs: list[tuple[bytes, bytes | None]] = []
            for _ in range(5):
                self.number += 1
                key = b"k%d" % (self.number * 7 % KEYS)
                gone = key == DELETED or self.number % 11 == 0
                pairs.append((key, None if gone else b"%d" % self.number * 5))
            self._append(pairs)
            for key, value in pairs:
                self.latest[key] = value
                self.ever.setdefault(key, set()).add(value)

    def _append(self, pairs: list[tuple[bytes, bytes | None]]) -> None:
        stamp = _START_MS + self.number * 10
        codec = list(Codec)[self.number % len(Codec)]
        batch = bytes(build_batch([Record(*pair, stamp) for pair in pairs], codec=codec))
        data = TopicProduceData(
            name="t", partition_data=[PartitionProduceData(index=0, records=batch)]
        )
        request = ProduceRequest(acks=-1, timeout_ms=5_000, topic_data=[data])
        wait_until(lambda: self._sent(request), timeout_s=PATIENCE_S, what="an acknowledgement")

    def _sent(self, request: ProduceRequest) -> bool:
        """Whether it was acknowledged; what is sent twice has the same values."""
        try:
            if self._driver is None:
                self._driver = Driver(self._servers)
            leader = self._driver.leader("t", 0, refresh=self.number % 100 == 0)
            answer = self._driver.send(request, node=leader, version=PRODUCE_VERSION)
        except (DriverError, OSError):
            self.close()
            return False
        code = answer.responses[0].partition_responses[0].error_code
        if code:
            assert code != ErrorCode.INVALID_RECORD
            self.close()
        return not code

    def close(self) -> None:
        if self._driver is not None:
            self._driver.close()
            self._driver = None


def rounds(cluster: LocalCluster) -> list[int]:
    figures = [found.figures for found in cluster.status().nodes if found.node.is_broker]
    assert not any(found.get(LOGS_NOT_COMPACTED) for found in figures)
    return [int(found.get(COMPACTION_ROUNDS) or 0) for found in figures]


def consumed(cluster: LocalCluster) -> list[Record]:
    """Read all of the topic as a consumer does, through holes and emptied batches."""
    found: list[Record] = []
    with Driver(cluster.bootstrap_servers) as driver:
        offset = 0
        while True:
            asked = FetchPartition(
                partition=0, fetch_offset=offset, partition_max_bytes=1 << 20, log_start_offset=-1
            )
            topics = [FetchTopic(topic="t", partitions=[asked])]
            request = FetchRequest(
                replica_id=-1, max_wait_ms=0, min_bytes=0, max_bytes=1 << 24, topics=topics
            )
            leader = driver.leader("t", 0, refresh=True)
            part = (
                driver.send(request, node=leader, version=FETCH_VERSION).responses[0].partitions[0]
            )
            assert not part.error_code
            data = bytes(part.records or b"")
            if not data:
                assert offset == part.high_watermark
                return found
            for position, header in batches(data):
                batch = data[position : position + header.size]
                found += [each for each in read_records(batch) if each.offset >= offset]
                offset = header.next_offset


def stored(directory: Path) -> list[Record]:
    """Read what one replica's files hold."""
    found: list[Record] = []
    for path in sorted(directory.glob("*.log")):
        data = path.read_bytes()
        for position, header in batches(data):
            assert crc_matches(data, position)
            found += read_records(data[position : position + header.size])
    return found


def check(records: list[Record], producer: Producer) -> None:
    offsets = [record.offset for record in records]
    assert offsets == sorted(set(offsets))
    latest: Written = dict.fromkeys(producer.latest)
    for record in records:
        assert record.key is not None
        assert record.value in producer.ever[record.key]
        latest[record.key] = record.value
    assert latest == producer.latest


def test_each_keys_last_value_survives_brokers_that_are_killed_in_rounds(
    cluster: LocalCluster,
) -> None:
    with Driver(cluster.bootstrap_servers) as driver:
        asked = create_topic("t", assignment={0: [0, 1, 2]}, configs=TOPIC, timeout_ms=20_000)
        driver.perform(asked, node="controller")
    wait_for_leader(cluster, "t", 0)
    producer = Producer(cluster)
    producer.write(60)
    for victim in (0, 1, 2, 0, 1, 2):
        before = rounds(cluster)
        producer.write(40)
        wait_until(
            lambda: rounds(cluster)[victim] > before[victim],  # noqa: B023 - asked at once
            timeout_s=PATIENCE_S,
            what=f"rounds of broker {victim}",
        )
        producer.write(3)
        cluster.kill(victim)
        producer.write(40)
        cluster.start_node(victim)
        wait_for_isr(cluster, "t", 0, [0, 1, 2])
    check(consumed(cluster), producer)
    producer.close()
    cluster.down()
    for broker in cluster.broker_ids:
        records = stored(cluster.directory / f"broker-{broker}" / "data" / "t-0")
        check(records, producer)
        assert len(records) < producer.number / 4, "it was compacted"
