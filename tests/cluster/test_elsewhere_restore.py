"""Goal: an undo that is interrupted, and done again, starts no broker twice.

Method: an owner's command that writes down each start; Ctrl-C while it runs, or while the broker
boots; a broker that serves then, only takes its time, or was never started.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.cluster import probe, processes
from holdfast.cluster.elsewhere.elsewhere_cluster import ElsewhereCluster
from holdfast.cluster.elsewhere.nodes_file import NodesFile
from holdfast.cluster.layout import BROKER, ClusterRecord, NodeRecord

pytestmark = pytest.mark.process
NODE = NodeRecord(id=1, roles=(BROKER,), host="h", port=1, log_file="", config_file="")


@pytest.mark.parametrize(
    ("ends", "serves", "starts", "left"),
    [(0, True, 1, 0), (0, False, 1, 1), (7, True, 1, 0), (7, False, 2, 1)],
    ids=["it serves", "it takes its time", "it says that it failed", "it failed"],
)
def test_a_start_that_was_interrupted_is_not_begun_again(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    ends: int,
    serves: bool,
    starts: int,
    left: int,
) -> None:
    started = tmp_path / "started"
    script = f"echo start >> {started}; exit {ends}"
    file = NodesFile(
        path=Path("nodes.toml"),
        servers="h:1",
        timeout_s=30.0,
        start_timeout_s=0.2,
        commands={"kill": ("true",), "start": ("sh", "-c", script)},
        nodes={},
    )
    record = ClusterRecord(cluster_id="c", nodes=(NODE,))
    cluster = ElsewhereCluster(record, file, tmp_path, {})
    is_up = False
    answer = SimpleNamespace(cluster_id="c", brokers={1: ("h", 1)})
    monkeypatch.setattr(probe, "ask", lambda *_, **__: answer if is_up else None)
    cluster.kill(1, "KILL")
    wait_until = processes.wait_until

    def interrupted(condition: Any, **told: Any) -> Any:
        nonlocal is_up
        if told["what"] != "a command":
            return wait_until(condition, **told)
        monkeypatch.setattr(processes, "wait_until", wait_until)
        is_up = serves
        raise KeyboardInterrupt

    monkeypatch.setattr(processes, "wait_until", interrupted)
    said: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        cluster.restore(said.append)
    assert len(cluster.restore(said.append)) == left
    assert started.read_text().split() == ["start"] * starts
    assert len(said) == 1 - left
    assert cluster.is_hurt == bool(left)
