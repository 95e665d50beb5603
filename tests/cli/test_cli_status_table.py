"""The table of `status` and `up`: what a terminal of any width shows."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from holdfast.cli.local.status_table import _summary, render
from holdfast.cluster.layout import NodeRecord
from holdfast.cluster.nodes import ClusterStatus, NodeStatus
from holdfast.cluster.processes import State
from holdfast.config.figures import LOOP_LAG_MS_MAX

ADDRESS = "127.0.0.1:29092"


def shown(width: int) -> str:
    node = NodeRecord(
        id=0,
        roles=("broker", "controller"),
        host="127.0.0.1",
        port=29092,
        log_file="",
        config_file="",
        pid=1234567,
    )
    status = NodeStatus(
        node=node,
        state=State.RUNNING,
        resident_bytes=31_000_000,
        serving=True,
        leaders=3,
        in_sync=5,
        replicas=5,
        active=True,
        lag=0,
        figures={LOOP_LAG_MS_MAX: 12345},
    )
    seen = ClusterStatus(cluster_id="x", bootstrap_servers=ADDRESS, nodes=(status,))
    file = io.StringIO()
    Console(file=file, width=width).print(render(seen, width))
    return file.getvalue()


@pytest.mark.parametrize("width", [80, 106, 107, 200])
def test_nothing_is_cut_off(width: int) -> None:
    """Goal: ports can be read. Method: the widest role; seen to end in 127.0.0.1:290… at 80."""
    text = shown(width)
    assert "…" not in text
    for word in ("broker+controller", ADDRESS, "running", "5/5", "active"):
        assert word in text


def test_without_a_controller_nothing_is_said_of_leaders() -> None:
    """Goal: an old picture isn't shown as present. Method: counts that there are none of."""
    seen = ClusterStatus(
        cluster_id="x", bootstrap_servers=ADDRESS, nodes=(), topics=1, partitions=2
    )
    text = _summary(seen).plain
    assert text.startswith("1 topic, 2 partitions, as they were when a controller was last active")
    assert "all replicas in sync" not in text


def test_what_a_narrow_terminal_leaves_out() -> None:
    """Goal: process, memory and loop lag go first. Method: both widths."""
    assert ("12345 ms" in shown(80), "12345 ms" in shown(120)) == (False, True)
    assert ("1234567" in shown(80), "31 MB" in shown(80)) == (False, False)
    assert ("1234567" in shown(120), "31 MB" in shown(120)) == (True, True)
