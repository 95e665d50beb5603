"""`holdfast storage format` and `holdfast node`: one node by hand, and every way not to start."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from holdfast.cluster import probe
from holdfast.cluster.nodes import new_cluster_id
from holdfast.cluster.ports import free_ports
from holdfast.cluster.processes import wait_until

pytestmark = pytest.mark.slow
BOUND_S = 60.0
COMMAND = [sys.executable, "-m", "holdfast.cli"]


def properties(directory: Path, *, node: int, ports: list[int], data: Path | None = None) -> Path:
    """Write a combined node's file with Kafka's own keys."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "server.properties"
    broker, controller = ports
    path.write_text(
        "# one node by hand\n"
        "process.roles=broker,controller\n"
        f"node.id={node}\n"
        f"controller.quorum.voters={node}@127.0.0.1:{controller}\n"
        f"listeners=PLAINTEXT://127.0.0.1:{broker},CONTROLLER://127.0.0.1:{controller}\n"
        "controller.listener.names=CONTROLLER\n"
        f"log.dirs={data or directory / 'data'}\n"
    )
    return path


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=BOUND_S,
        check=False,
    )


def refused(*arguments: object) -> str:
    """Run what must fail with one clear line, and return the line."""
    done = run(*arguments)
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    lines = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1, done.stderr
    return lines[0]


def is_serving(port: int) -> bool:
    answer = probe.ask(("127.0.0.1", port))
    return answer is not None and bool(answer.brokers)


@contextmanager
def running(config: Path, port: int) -> Iterator[subprocess.Popen[bytes]]:
    """A node in the foreground of another process, once it serves."""
    with (config.parent / "log").open("wb") as log:
        process = subprocess.Popen([*COMMAND, "node", "--config", str(config)], stderr=log)
    try:
        wait_until(
            lambda: is_serving(port),
            timeout_s=BOUND_S,
            what="the node to serve",
        )
        yield process
    finally:
        process.kill()
        process.wait(BOUND_S)


@pytest.mark.serial
def test_a_node_by_hand(tmp_path: Path) -> None:
    """Goal: format, run, stop, as the documentation says. Method: also all that must be refused
    while it runs and after.
    """
    ports = free_ports(2)
    config = properties(tmp_path / "one", node=1, ports=ports)
    cluster_id = new_cluster_id()
    assert "not formatted" in refused("node", "--config", config)
    assert run("storage", "format", "-t", cluster_id, "-c", config).returncode == 0
    again = refused("storage", "format", "-t", cluster_id, "-c", config)
    assert cluster_id in again
    assert run("storage", "format", "-t", cluster_id, "-c", config, "-g").returncode == 0
    with running(config, ports[0]) as process:
        assert "in use by another process" in refused("node", "--config", config)
        beside = properties(tmp_path / "two", node=1, ports=[ports[0], free_ports(1)[0]])
        assert run("storage", "format", "-t", cluster_id, "-c", beside).returncode == 0
        assert str(ports[0]) in refused("node", "--config", beside)
        process.send_signal(signal.SIGTERM)
        assert process.wait(BOUND_S) == 0
    other = properties(
        tmp_path / "three", node=2, ports=free_ports(2), data=tmp_path / "one" / "data"
    )
    assert "node" in refused("node", "--config", other)


@pytest.mark.process
@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("log.segment.bytes=a lot", "log.segment.bytes"),
        ("zookeeper.connect=localhost:2181", "controller.quorum.voters"),
        ("listeners=SASL_SSL://:9092", "SASL_SSL"),
        ("node.id=7", "node.id=7"),
    ],
)
def test_settings_that_can_not_be_honoured(tmp_path: Path, override: str, said: str) -> None:
    """Goal: the error names key and value. Method: one of each kind."""
    config = properties(tmp_path, node=1, ports=free_ports(2))
    assert said in refused("node", "--config", config, "--override", override)


@pytest.mark.process
def test_a_file_that_is_no_text(tmp_path: Path) -> None:
    """Goal: whatever is named as the file, one line says what is wrong. Method: bytes."""
    path = tmp_path / "server.properties"
    path.write_bytes(b"node.id=1\n\xb9\xff")
    done = run("node", "--config", path)
    assert done.returncode == 2
    assert "is no text in UTF-8 at byte 10" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.process
def test_a_controllers_port_in_use(tmp_path: Path) -> None:
    """Goal: the error names the port. Method: listen on it."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken = server.getsockname()[1]
        config = properties(tmp_path, node=1, ports=[free_ports(1)[0], taken])
        run("storage", "format", "-t", new_cluster_id(), "-c", config)
        assert str(taken) in refused("node", "--config", config)
