"""Goal: with thousands of partitions the death of one broker is that broker's death alone, and
nothing that has to be done for so many holds up a loop.

Method: three brokers as processes hold all partitions, with sessions of 9 s; one is killed, and
comes back. Every partition is led, no healthy broker was ever fenced by what the metadata log says,
every ISR is whole, and no callback of any node was long (`LoopWatch`), but for a start and the end.
How long it takes is for `make scale` to say.
Seen to fail: with a collector that looks at all that lives.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.loop_watch import LoopWatch

from holdfast.clients.blocking_driver import Driver
from holdfast.cluster import LocalCluster
from holdfast.cluster.processes import wait_until
from holdfast.node.metadata.metadata_log import decode_batches
from holdfast.wire.administration import create_topic
from holdfast.wire.batch import Record, build_batch
from holdfast.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from holdfast.wire.records.metadata import BrokerRegistrationChangeRecord, FenceBrokerRecord

PATIENCE_S = 240
TOPICS = [f"t{number}" for number in range(5)]
PARTITIONS = 1_000  # of each: 5,000 in all
VICTIM = 1
BROKERS = {0, 1, 2}
PRODUCE_VERSION = 9
SESSION = {"broker.session.timeout.ms": "9000", "broker.heartbeat.interval.ms": "2000"}

pytestmark = [pytest.mark.serial, pytest.mark.slow, pytest.mark.timeout(4 * PATIENCE_S)]


@pytest.fixture
def watch(tmp_path: Path) -> LoopWatch:
    return LoopWatch(tmp_path / "long-callbacks")


@pytest.fixture
def cluster(tmp_path: Path, watch: LoopWatch) -> Iterator[LocalCluster]:
    made = LocalCluster.create(tmp_path / "cluster", brokers=3, port=0, config=SESSION)
    made.environment = watch.environment
    made.start()
    yield made
    made.down(timeout_s=PATIENCE_S)


def wait_until_led(cluster: LocalCluster, among: set[int]) -> None:
    """Wait until these brokers lead all partitions and are the ISR of each."""

    def led() -> bool:
        return all(
            sum(each.leader in among and set(each.isr) == among for each in found.values())
            == PARTITIONS
            for found in (cluster.partitions(topic) or {} for topic in TOPICS)
        )

    what = f"{PARTITIONS} partitions of each topic to be led and in sync among {among}"
    wait_until(led, timeout_s=PATIENCE_S, what=what, poll_s=1.0)


def produce_to_all(cluster: LocalCluster) -> None:
    """Have a record acknowledged by all in sync in every partition, wherever it is led by then."""
    missing = {(topic, index) for topic in TOPICS for index in range(PARTITIONS)}

    def none_missing() -> bool:
        with Driver(cluster.bootstrap_servers, timeout_s=PATIENCE_S) as driver:
            for topic in TOPICS:
                leaders = cluster.partitions(topic) or {}
                for node in BROKERS:
                    led = [
                        index
                        for index, each in sorted(leaders.items())
                        if each.leader == node and (topic, index) in missing
                    ]
                    if led:
                        missing.difference_update(taken(driver, node, topic, led))
        return not missing

    wait_until(none_missing, timeout_s=PATIENCE_S, what="a record in every partition", poll_s=1.0)


def taken(driver: Driver, node: int, topic: str, partitions: list[int]) -> set[tuple[str, int]]:
    """Send one record to each of these; return which were acknowledged."""
    batch = bytes(build_batch([Record(value=b"x" * 100, timestamp=1)]))
    data = [PartitionProduceData(index=index, records=batch) for index in partitions]
    request = ProduceRequest(
        acks=-1,
        timeout_ms=PATIENCE_S * 1000,
        topic_data=[TopicProduceData(name=topic, partition_data=data)],
    )
    answer = driver.peer(node).send(request, version=PRODUCE_VERSION)
    return {
        (topic, each.index)
        for each in answer.responses[0].partition_responses
        if not each.error_code
    }


def fenced(cluster: LocalCluster) -> set[int]:
    """Which brokers were ever fenced, by the longest metadata log that a controller has."""
    logs = [
        b"".join(
            part.read_bytes()
            for part in sorted((Path(node.config_file).parent / "data").rglob("*.log"))
            if part.parent.name == "__cluster_metadata-0"
        )
        for node in cluster.record.controllers
    ]
    found = set()
    for batch in decode_batches(max(logs, key=len)):
        for record in batch.records:
            if isinstance(record, FenceBrokerRecord):
                found.add(record.id)
            elif isinstance(record, BrokerRegistrationChangeRecord) and record.fenced > 0:
                found.add(record.broker_id)
    return found


def test_one_broker_of_three_dies_and_no_other_is_taken_for_dead(
    cluster: LocalCluster, watch: LoopWatch
) -> None:
    watch.arm()
    with Driver(cluster.bootstrap_servers, timeout_s=PATIENCE_S) as driver:
        for topic in TOPICS:
            driver.perform(
                create_topic(
                    topic,
                    partitions=PARTITIONS,
                    replication_factor=3,
                    timeout_ms=PATIENCE_S * 1000,
                )
            )
    wait_until_led(cluster, BROKERS)
    produce_to_all(cluster)
    assert fenced(cluster) == set()
    cluster.kill(VICTIM)
    wait_until_led(cluster, BROKERS - {VICTIM})
    produce_to_all(cluster)
    watch.pause()
    cluster.start_node(VICTIM, timeout_s=PATIENCE_S)
    watch.arm()
    wait_until_led(cluster, BROKERS)
    produce_to_all(cluster)
    watch.check()
    assert fenced(cluster) == {VICTIM}, "a healthy broker lost its session"
