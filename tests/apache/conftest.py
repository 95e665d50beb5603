"""One broker of Apache Kafka for the tests of this folder; they are skipped where there is none."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.clients.blocking_driver import Driver, DriverError
from holdfast.cluster.ports import free_ports
from holdfast.cluster.processes import wait_until

KAFKA = Path(__file__).resolve().parents[2] / "scripts" / "apache" / "kafka.sh"
START_S = 90.0


@pytest.fixture(scope="session")
def kafka_tools() -> Path:
    """The script that runs Apache Kafka's tools."""
    if subprocess.run([KAFKA, "available"], check=False).returncode:
        pytest.skip("there is no Apache Kafka: `make apache` brings it")
    return KAFKA


@pytest.fixture(scope="session")
def apache_kafka(kafka_tools: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a broker of Apache Kafka."""
    (port,) = free_ports(1)
    directory = tmp_path_factory.mktemp("apache")
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(
            [kafka_tools, "single", directory, str(port)], stdout=log, stderr=subprocess.STDOUT
        )
    try:
        wait_until_served(f"127.0.0.1:{port}")
        yield f"127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def wait_until_served(address: str) -> None:
    def served() -> bool:
        try:
            with Driver(address, timeout_s=5) as driver:
                return bool(driver.nodes())
        except DriverError:
            return False

    wait_until(served, timeout_s=START_S, what="Apache Kafka to serve")
