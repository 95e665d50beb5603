"""Clients that ask for much and take nothing, or send much and never all of it.

Goal: they cost a broker little memory, and others no answer. Method: real processes, the attacks as
an expert made them, and the most memory that the broker's process has ever had.

Rules: connections.md#what-a-client-may-owe.
"""

from __future__ import annotations

import os
import re
import socket
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from struct import pack

import pytest
from tests.log.log_kit import make_batch

from holdfast.clients.blocking_driver import Driver, NoLeaderError
from holdfast.cluster import LocalCluster
from holdfast.cluster.processes import State, wait_until
from holdfast.config.figures import ANSWER_BYTES, CONNECTIONS_UNFINISHED, REQUEST_BYTES
from holdfast.wire.administration import create_topic
from holdfast.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from holdfast.wire.messages.metadata import MetadataRequest
from holdfast.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

pytestmark = [
    pytest.mark.slow,
    pytest.mark.process,
    pytest.mark.skipif(sys.platform != "linux", reason="the most memory is asked of /proc"),
]

MB = 1_000_000
MIB = 1024 * 1024
GROWTH_MAX = 150 * MIB
FRAME_BYTES_MAX = 8 * MIB
UNFINISHED_MAX = 16 * MIB
PRODUCE = 0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    config = {
        "socket.request.max.bytes": str(FRAME_BYTES_MAX),
        "holdfast.request.bytes.max": str(UNFINISHED_MAX),
    }
    directory = tmp_path_factory.mktemp("cluster")
    with LocalCluster.create(directory, brokers=1, combined=True, port=0, config=config) as made:
        made.start()
        yield made


@pytest.fixture
def honest(cluster: LocalCluster) -> Iterator[Driver]:
    with Driver(cluster.bootstrap_servers, "honest") as driver:
        yield driver


def largest_rss(cluster: LocalCluster) -> int:
    """Return the most bytes that the broker has ever had in memory."""
    (node,) = cluster.status().nodes
    assert node.state is State.RUNNING
    text = Path(f"/proc/{node.node.pid}/status").read_text()
    found = re.search(r"VmHWM:\s+(\d+) kB", text)
    assert found is not None
    return int(found[1]) * 1024


def grown(cluster: LocalCluster, before: int) -> bool:
    return largest_rss(cluster) - before > GROWTH_MAX


def figure(cluster: LocalCluster, name: str) -> int:
    (node,) = cluster.status().nodes
    return int(node.figures[name])


def produce(driver: Driver, topic: str, size: int = MB) -> None:
    data = PartitionProduceData(index=0, records=make_batch(size=size))
    request = ProduceRequest(
        acks=1,
        timeout_ms=10_000,
        topic_data=[TopicProduceData(name=topic, partition_data=[data])],
    )
    answer = driver.send(request, node=0, version=9)
    assert answer.responses[0].partition_responses[0].error_code == 0


def id_of(driver: Driver, topic: str) -> bytes:
    """A topic's id, once the broker that is asked has heard of it."""

    def told() -> bytes | None:
        try:
            return driver.topic_id(topic)
        except NoLeaderError:
            return None

    return wait_until(told, timeout_s=30, what=f"a broker that knows {topic}")


def fetch(driver: Driver, topic: str, size: int) -> FetchRequest:
    wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=size)
    return FetchRequest(
        max_wait_ms=60_000,
        min_bytes=1,
        max_bytes=size,
        topics=[FetchTopic(topic_id=id_of(driver, topic), partitions=[wanted])],
        session_epoch=-1,
    )


def test_large_answers_behind_one_that_waits(cluster: LocalCluster, honest: Driver) -> None:
    """Seen to fail: sixty fetches of 20 MB behind a parked one took 1.2 GB."""
    for name in ("large", "silent"):
        honest.perform(create_topic(name, partitions=1), node="controller")
    for _ in range(21):
        produce(honest, "large")
    before = largest_rss(cluster)
    with Driver(cluster.bootstrap_servers, "greedy") as greedy:
        peer = greedy.peer(0)
        peer.post(fetch(honest, "silent", MB))
        for _ in range(60):
            peer.post(fetch(honest, "large", 20 * MB))
        wait_until(
            lambda: figure(cluster, ANSWER_BYTES) > 10 * MIB,
            timeout_s=30,
            what="answers that wait",
        )
        assert len(honest.send(MetadataRequest(), node=0).brokers) == 1
        assert not grown(cluster, before)
        produce(honest, "silent", 100)
        sizes = [
            sum(len(each.records or b"") for each in peer.take().responses[0].partitions)
            for _ in range(4)
        ]
        assert [size // MB for size in sizes] == [0, 8, 8, 8], "in their order, once it reads"
    wait_until(lambda: not figure(cluster, ANSWER_BYTES), timeout_s=30, what="nothing is held")
    assert not grown(cluster, before)


def test_many_waits_of_one_connection_that_one_batch_wakes(
    cluster: LocalCluster, honest: Driver
) -> None:
    """Seen to fail: five hundred fetches that waited for the same megabyte took 474 MB."""
    honest.perform(create_topic("woken", partitions=1), node="controller")
    topic = fetch(honest, "woken", MB)
    before = largest_rss(cluster)
    with Driver(cluster.bootstrap_servers, "greedy") as greedy:
        peer = greedy.peer(0)
        for _ in range(500):
            peer.post(topic)
        produce(honest, "woken", MB - 1000)
        wait_until(
            lambda: figure(cluster, ANSWER_BYTES) > MIB or grown(cluster, before),
            timeout_s=30,
            what="answers",
        )
        assert len(honest.send(MetadataRequest(), node=0).brokers) == 1
        assert not grown(cluster, before)
    wait_until(lambda: not figure(cluster, ANSWER_BYTES), timeout_s=30, what="nothing is held")


def test_large_requests_that_never_become_whole(cluster: LocalCluster, honest: Driver) -> None:
    """Seen to fail: each connection kept what it had sent, up to socket.request.max.bytes."""
    honest.perform(create_topic("whole", partitions=1), node="controller")
    before = largest_rss(cluster)
    host, _, port = cluster.bootstrap_servers.rpartition(":")
    part = pack(">ihh", FRAME_BYTES_MAX, PRODUCE, 9) + os.urandom(FRAME_BYTES_MAX // 2)
    greedy: list[socket.socket] = []
    try:
        for _ in range(60):
            greedy.append(socket.create_connection((host, int(port)), timeout=30))
            with suppress(OSError):  # it is closed on meanwhile
                greedy[-1].sendall(part)
        wait_until(
            lambda: figure(cluster, CONNECTIONS_UNFINISHED) > 50 or grown(cluster, before),
            timeout_s=30,
            what="closed connections",
        )
        assert not grown(cluster, before)
        assert figure(cluster, REQUEST_BYTES) <= UNFINISHED_MAX
        produce(honest, "whole")
    finally:
        for each in greedy:
            each.close()
    wait_until(lambda: not figure(cluster, REQUEST_BYTES), timeout_s=30, what="nothing is held")
