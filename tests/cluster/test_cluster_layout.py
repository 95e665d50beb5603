"""The description of a cluster: what is written is read, and what isn't one is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from holdfast.cluster import layout
from holdfast.cluster.layout import ClusterError, ClusterRecord, NodeRecord


def node(number: int, *roles: str, **fields: object) -> NodeRecord:
    values: dict[str, object] = {
        "id": number,
        "roles": roles or ("broker",),
        "host": "127.0.0.1",
        "port": 9092 + number,
        "log_file": f"/x/{number}/node.log",
        "config_file": f"/x/{number}/server.properties",
    }
    return NodeRecord(**(values | fields))  # type: ignore[arg-type]


RECORD = ClusterRecord(
    cluster_id="4L6g3nShT-eMCtK--X86sw",
    nodes=(
        node(0, "broker", "controller", controller_port=9192, rack="a"),
        node(1, pid=42, process="boot/7", start_time=1.5),
        node(100, "controller"),
    ),
)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    """Goal: nothing is lost on the way. Method: a record with every field set somewhere."""
    layout.write(tmp_path, RECORD)
    assert layout.read(tmp_path) == RECORD


def test_the_file_has_what_is_promised(tmp_path: Path) -> None:
    """Goal: programs find bootstrap_servers and each node's facts. Method: plain json."""
    layout.write(tmp_path, RECORD)
    values = json.loads((tmp_path / "cluster.json").read_text())
    assert values["bootstrap_servers"] == "127.0.0.1:9092,127.0.0.1:9093"
    promised = {"id", "roles", "host", "port", "pid", "start_time", "log_file"}
    assert all(promised <= found.keys() for found in values["nodes"])


def test_a_directory_without_a_cluster(tmp_path: Path) -> None:
    """Goal: the error says what to do. Method: read an empty and a missing directory."""
    for directory in (tmp_path, tmp_path / "missing"):
        with pytest.raises(ClusterError, match="holdfast up"):
            layout.read(directory)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"format": 1, "nodes": 3}', '{"format": 2}']
)
def test_a_damaged_description(tmp_path: Path, text: str) -> None:
    """Goal: whatever stands there, one clear error. Method: a few ways to be wrong."""
    (tmp_path / "cluster.json").write_text(text)
    with pytest.raises(ClusterError, match=r"cluster\.json can't be read"):
        layout.read(tmp_path)


def test_an_unknown_node_is_named() -> None:
    """Goal: the error lists those that exist. Method: ask for 7."""
    with pytest.raises(ClusterError, match=r"no node 7.*0, 1, 100"):
        RECORD.node(7)


def test_only_one_command_changes_a_directory(tmp_path: Path) -> None:
    """Goal: two commands never start nodes at once. Method: take the lock twice."""
    with layout.locked(tmp_path), pytest.raises(ClusterError, match="Another command"):  # noqa: SIM117
        with layout.locked(tmp_path):
            pass
    with layout.locked(tmp_path):
        pass
