"""Single moments: how long until a cluster serves, until a command answers, until a dead leader is
replaced.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from engines import ALERT, Apache, ApacheThree, HoldfastThree, free_port
from holdfast.clients.blocking_driver import Driver, DriverError
from holdfast.wire.batch import Record, build_batch
from holdfast.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)

Add = Callable[[str, str, dict[str, float]], None]

_BOUND_S = 60.0
_TOPIC = "moment"
_VERSION = 9  # of Produce: the topic by its name


def measure(directory: Path, rounds: int, add: Add, *, with_apache: bool) -> None:
    """Measure all moments."""
    for number in range(rounds):
        add("holdfast up, from typing it", "holdfast", _start_up(directory / f"up-{number}"))
    clusters: list[HoldfastThree | ApacheThree] = [HoldfastThree(directory / "failover", ALERT)]
    if with_apache:
        clusters.append(ApacheThree(directory / "failover", ALERT))
    for cluster in clusters:
        cluster.start()
        try:
            add("SIGKILL of a leader, session 3 s", cluster.name, _failover(cluster))
        finally:
            cluster.stop()


def _start_up(directory: Path) -> dict[str, float]:
    """Type `holdfast up`; a client tries to have an acks=all record acknowledged meanwhile."""
    port = free_port(beside=(1, 2, 100, 101, 102))  # three brokers, three controllers
    command = [sys.executable, "-m", "holdfast.cli"]
    data = ["--data-dir", str(directory)]
    began = time.monotonic()
    up = subprocess.Popen(
        [*command, "up", "--detach", "--port", str(port), *data], stdout=subprocess.DEVNULL
    )
    try:
        _first_acknowledgement(f"127.0.0.1:{port}")
        served = time.monotonic() - began
        if up.wait(_BOUND_S):
            raise RuntimeError("holdfast up failed")
        returned = time.monotonic() - began
        began = time.monotonic()
        listing = [*command, "topics", "--list", "--bootstrap-server", f"127.0.0.1:{port}"]
        subprocess.run(listing, check=True, stdout=subprocess.DEVNULL)
        listed = time.monotonic() - began
    finally:
        up.wait(_BOUND_S)
        subprocess.run([*command, "down", *data], check=False, stdout=subprocess.DEVNULL)
        shutil.rmtree(directory, ignore_errors=True)
    return {"first_ack_s": served, "up_returns_s": returned, "topics_list_s": listed}


def _first_acknowledgement(
    bootstrap: str, *, partition: int = 0, leader_other_than: int = -1
) -> int:
    """Try until a record is acknowledged by all in sync; return the leader that did."""
    deadline = time.monotonic() + _BOUND_S
    driver = Driver(bootstrap, timeout_s=_BOUND_S)
    while time.monotonic() < deadline:
        try:
            driver.metadata([_TOPIC], auto_creation=True)
            leader = driver.leader(_TOPIC, partition)
            if leader != leader_other_than:
                request = _produce(partition)
                answer = driver.send(request, node=leader, version=_VERSION, timeout_s=5)
                if not answer.responses[0].partition_responses[0].error_code:
                    driver.close()
                    return leader
        except DriverError:
            driver.close()
        time.sleep(0.005)
    raise RuntimeError(f"nothing was acknowledged within {_BOUND_S:.0f} s")


def _failover(cluster: HoldfastThree | Apache) -> dict[str, float]:
    """Kill a partition's leader; a client without back-off tries until it is acknowledged again."""
    cluster.create(_TOPIC, cluster.brokers)
    # In the cluster of Apache Kafka broker 0 is the controller too, which must live.
    for partition in range(cluster.brokers):
        leader = _first_acknowledgement(cluster.bootstrap, partition=partition)
        if leader:
            break
    cluster.kill(leader)
    began = time.monotonic()
    _first_acknowledgement(cluster.bootstrap, partition=partition, leader_other_than=leader)
    return {"unavailable_s": time.monotonic() - began}


def _produce(partition: int) -> ProduceRequest:
    batch = bytes(build_batch([Record(value=b"x", timestamp=int(time.time() * 1000))]))
    data = PartitionProduceData(index=partition, records=batch)
    topic = TopicProduceData(name=_TOPIC, partition_data=[data])
    return ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[topic])
