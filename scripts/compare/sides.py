"""The two clusters: one broker each, combined with its controller, with the same settings."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from holdfast.clients.blocking_driver import Driver, DriverError
from holdfast.cluster.local import LocalCluster
from holdfast.cluster.ports import free_ports
from holdfast.cluster.processes import wait_until

KAFKA: Final = Path(__file__).resolve().parents[1] / "apache" / "kafka.sh"
START_S: Final = 240.0  # of a machine that has much else to do, too
# What the steps depend on, or what would make one side slow.
SETTINGS: Final = {
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "3000",
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.max.size": "3",
    "group.initial.rebalance.delay.ms": "0",
    "group.max.session.timeout.ms": "600000",
    "group.max.size": "3",
    "group.min.session.timeout.ms": "1000",
    "log.cleaner.backoff.ms": "100",
    # Records that a step sends are years old, and a slow run must not lose them.
    "log.initial.task.delay.ms": "600000",
    "log.retention.check.interval.ms": "600000",
    "message.timestamp.before.max.ms": str((1 << 63) - 1),
    "offsets.topic.num.partitions": "5",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.replication.factor": "1",
}


def is_there() -> bool:
    """Whether Apache Kafka was brought and can be run."""
    return subprocess.run([KAFKA, "available"], check=False).returncode == 0


@contextmanager
def ours(directory: Path, settings: Mapping[str, str] = SETTINGS) -> Iterator[str]:
    """A broker of ours; its address."""
    with LocalCluster.create(
        directory / "holdfast", brokers=1, combined=True, port=0, config=settings
    ) as cluster:
        cluster.start(timeout_s=START_S)
        yield cluster.bootstrap_servers


@contextmanager
def theirs(directory: Path, settings: dict[str, str] = SETTINGS) -> Iterator[str]:
    """A broker of Apache Kafka; its address."""
    (port,) = free_ports(1)
    lines = [f"{key}={value}" for key, value in settings.items()]
    place = directory / "apache"
    with (directory / "apache.log").open("wb") as log:
        process = subprocess.Popen(
            [KAFKA, "single", place, str(port), *lines], stdout=log, stderr=subprocess.STDOUT
        )
    try:
        wait_until(
            lambda: _serves(f"127.0.0.1:{port}"), timeout_s=START_S, what="Apache Kafka to serve"
        )
        yield f"127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def _serves(address: str) -> bool:
    try:
        with Driver(address, timeout_s=5) as driver:
            return bool(driver.nodes())
    except DriverError:
        return False
