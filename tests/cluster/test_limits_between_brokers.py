"""A batch that lies in a log over every limit of today, and what else its leader replicates.

Goal: a follower that comes back gets it, and a topic beside it is in sync long before. Method:
real processes; 101 MiB written while the follower is dead, under a limit that is lowered then. Seen
to fail: with answers of 100 MiB at most, both topics stay out of sync for ever.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cluster.waiting import wait_for_isr, wait_for_leader

from holdfast.clients.blocking_driver import Driver
from holdfast.cluster import LocalCluster
from holdfast.config.figures import REPLICAS_SET_ASIDE
from holdfast.wire.administration import alter_configs, create_topic
from holdfast.wire.batch import Record, build_batch
from holdfast.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from holdfast.wire.structs import ResourceType

pytestmark = pytest.mark.serial
SIZE = 101 << 20
LIMITS = {
    "socket.request.max.bytes": str(SIZE + (1 << 20)),
    "replica.fetch.response.max.bytes": "100000",
    "replica.lag.time.max.ms": "2000",
    "min.insync.replicas": "1",
}


def produce(driver: Driver, topic: str, size: int) -> None:
    batch = bytes(build_batch([Record(value=bytes(size), timestamp=1_767_225_600_000)]))
    data = TopicProduceData(
        name=topic,
        topic_id=driver.topic_id(topic),
        partition_data=[PartitionProduceData(index=0, records=batch)],
    )
    request = ProduceRequest(acks=1, timeout_ms=30_000, topic_data=[data])
    answer = driver.send(request, node=driver.leader(topic, 0, refresh=True))
    assert answer.responses[0].partition_responses[0].error_code == 0


@pytest.mark.slow
def test_a_batch_over_every_limit_stops_nobody(tmp_path: Path) -> None:
    with LocalCluster.create(tmp_path, brokers=2, port=0, config=LIMITS) as cluster:
        cluster.start()
        with Driver(cluster.bootstrap_servers) as driver:
            for name in ("large", "beside"):
                asked = create_topic(
                    name,
                    assignment={0: [0, 1]},
                    configs={"max.message.bytes": str(SIZE + 1000)},
                    timeout_ms=20_000,
                )
                driver.perform(asked, node="controller")
                wait_for_leader(cluster, name, 0, leader=0)
            cluster.kill(1)
            wait_for_isr(cluster, "beside", 0, [0])
            produce(driver, "large", SIZE)
            produce(driver, "beside", 10)
            for name in ("large", "beside"):
                changes = {"max.message.bytes": "2000"}
                driver.perform(alter_configs(ResourceType.TOPIC, name, changes), node="controller")
        cluster.start_node(1)
        wait_for_isr(cluster, "beside", 0, [0, 1])
        wait_for_isr(cluster, "large", 0, [0, 1])
        assert not any(found.figures.get(REPLICAS_SET_ASIDE) for found in cluster.status().nodes)
        log = Path(cluster.node(1).log_file).read_text(encoding="utf-8")
        assert "more than max.message.bytes allows now" in log
