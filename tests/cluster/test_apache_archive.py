"""Goal: nodes begin with classes that were archived whole, or with none, and no node is left.

Method: `scripts/apache/kafka.sh` with a program in Java's place, which listens where a node would,
and writes an archive when it is told to end.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.cluster.apache import ARCHIVE
from holdfast.cluster.processes import State, identify, send, state, wait_until

pytestmark = [pytest.mark.process, pytest.mark.slow]

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "apache" / "kafka.sh"
BOUND_S = 60.0
JAVA = """\
#!{python}
import os, signal, socket, sys
from pathlib import Path

words = sys.argv[1:]
options = dict(word.split("=", 1) for word in words if word.startswith("-XX:") and "=" in word)
if "random-uuid" in words:
    sys.exit(Path(options["-XX:SharedArchiveFile"]).read_text() != "of this Java")
if "kafka.Kafka" not in words:
    sys.exit()
assert "-XX:SharedArchiveFile" not in options, "Java takes no archive and makes one"

def end(*_):
    file = Path(options["-XX:ArchiveClassesAtExit"])
    if os.environ.get("DIES"):
        file.write_text("of th")
        os.kill(os.getpid(), signal.SIGKILL)
    file.write_text("of this Java")
    os._exit(143)

signal.signal(signal.SIGTERM, end)
Path(os.environ["PID"]).write_text(str(os.getpid()))
taken = Path(os.environ.get("TAKEN", "none"))
if taken.exists():
    taken.unlink()
    sys.exit("Address already in use")
told = dict(line.split("=", 1) for line in Path(words[-1]).read_text().split())
port = int(told["advertised.listeners"].rpartition(":")[2])
server = None if os.environ.get("NEVER") else socket.create_server(("127.0.0.1", port))
while True:
    signal.pause() if server is None else server.accept()
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """What has the script run in these folders, with a program in Java's place."""
    home, java = tmp_path / "kafka", tmp_path / "java" / "bin" / "java"
    (home / "libs").mkdir(parents=True)
    (home / "libs" / "kafka_2.13-4.3.1.jar").touch()
    java.parent.mkdir(parents=True)
    java.write_text(JAVA.format(python=sys.executable))
    java.chmod(0o755)
    (tmp_path / "t").mkdir()
    paths = {"KAFKA_HOME": home, "JAVA_HOME": tmp_path / "java", "TMPDIR": tmp_path / "t"}
    found = {name: str(path) for name, path in paths.items()}
    return {**os.environ, **found, "PID": str(tmp_path / "pid")}


def run(command: str, environment: dict[str, str]) -> int:
    return subprocess.run(
        [SCRIPT, command], env=environment, capture_output=True, timeout=BOUND_S, check=False
    ).returncode


def test_an_archive_of_another_java_is_known_and_replaced(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    """Seen to fail: once there was an archive it stayed, and nodes passed over it for ever."""
    archive = tmp_path / "kafka" / ARCHIVE
    assert run("archived", environment) != 0
    archive.write_text("of another Java")
    assert run("archived", environment) != 0
    assert run("archive", environment) == 0
    assert run("archived", environment) == 0
    assert archive.read_text() == "of this Java"
    assert [*(tmp_path / "t").iterdir()] == []


def test_a_port_that_somebody_else_has_costs_another_try(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    """Seen to fail: one port was tried, of those that every connection of the machine is given."""
    taken = tmp_path / "taken"
    taken.touch()
    assert run("archive", {**environment, "TAKEN": str(taken)}) == 0
    assert not taken.exists()
    assert [*(tmp_path / "t").iterdir()] == []


def test_an_archive_that_was_not_written_to_its_end_is_none(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    """Seen to fail: a JVM that begins with one that was cut off ends by SIGBUS, each of them."""
    (tmp_path / "kafka" / ARCHIVE).write_text("of this Java")
    assert run("archive", {**environment, "DIES": "1"}) != 0
    kept = {path.name: path.read_text() for path in (tmp_path / "kafka").glob("classes*")}
    assert kept == {ARCHIVE: "of this Java"}


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_whatever_ends_the_making_of_an_archive_ends_its_node(
    tmp_path: Path, environment: dict[str, str], ending: signal.Signals
) -> None:
    """Seen to fail: a shell's jobs do not hear Ctrl-C, so that a broker ran on for ever."""
    script = subprocess.Popen(
        [SCRIPT, "archive"],
        env={**environment, "NEVER": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    pid_file = tmp_path / "pid"
    wait_until(
        lambda: pid_file.exists() and pid_file.read_text(), timeout_s=BOUND_S, what="the node"
    )
    pid = int(pid_file.read_text())
    process = identify(pid)
    try:
        os.killpg(script.pid, ending) if ending is signal.SIGINT else script.terminate()
        script.wait(BOUND_S)
        wait_until(lambda: state(pid, process) is State.DEAD, timeout_s=BOUND_S, what="its end")
    finally:
        send(pid, process, signal.SIGKILL)
    assert [*(tmp_path / "t").iterdir()] == []
