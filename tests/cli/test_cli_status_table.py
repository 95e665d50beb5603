"""The table of `status` and `up`: what a terminal of any width shows."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from holdfast.cli.local.looking import is_healthy
from holdfast.cli.local.status_table import _summary, _troubles, render
from holdfast.cluster.layout import NodeRecord
from holdfast.cluster.nodes import ClusterStatus, NodeStatus, node_status
from holdfast.cluster.processes import START_MARK, State
from holdfast.config.figures import LOG_DIRS_OFFLINE, LOOP_LAG_MS_MAX, REPLICAS_SET_ASIDE

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


@pytest.mark.parametrize("serves", [True, False])
def test_with_zookeeper_no_controller_is_missed(serves: bool) -> None:
    """Goal: a cluster in which all is well isn't said to have no controller. Seen to fail."""
    node = NodeRecord(id=100, roles=("controller",), host="h", port=1, log_file="", config_file="p")
    seen = ClusterStatus(
        cluster_id="x",
        bootstrap_servers=ADDRESS,
        nodes=(NodeStatus(node=node, state=State.RUNNING, serving=serves),),
        topics=1,
        partitions=2,
        under_replicated=0 if serves else None,
        leaderless=0 if serves else None,
        keeper_serves=serves,
    )
    file = io.StringIO()
    Console(file=file, width=200).print(render(seen, 200))
    text = file.getvalue()
    assert "controller is active: " not in text
    assert "zookeeper" in text
    assert ("all replicas in sync" in text, "metadata can't change" in text) == (serves, not serves)
    assert is_healthy(seen) is serves


def test_of_a_cluster_that_is_down_it_is_said_what_starts_it() -> None:
    """Goal: nobody looks for a fault in what was taken down. Method: one node, dead and alive."""
    node = NodeRecord(id=0, roles=("broker",), host="h", port=1, log_file="", config_file="p")
    for state, said in (
        (State.DEAD, ["Nothing of it runs: `holdfast up` starts it."]),
        (State.STOPPED, ["no controller is active: metadata can't change", "No broker answers."]),
    ):
        nodes = (NodeStatus(node=node, state=state),)
        seen = ClusterStatus(cluster_id="x", bootstrap_servers=ADDRESS, nodes=nodes)
        file = io.StringIO()
        Console(file=file, width=120).print(render(seen, 120))
        assert file.getvalue().splitlines()[3:] == said


def test_what_a_narrow_terminal_leaves_out() -> None:
    """Goal: process, memory and loop lag go first. Method: both widths."""
    assert ("12345 ms" in shown(80), "12345 ms" in shown(120)) == (False, True)
    assert ("1234567" in shown(80), "31 MB" in shown(80)) == (False, False)
    assert ("1234567" in shown(120), "31 MB" in shown(120)) == (True, True)


def test_why_a_disk_or_a_node_is_missing_stands_below_the_table() -> None:
    """Goal: a full disk is named where a user looks first, and counts as trouble. Method: two."""
    node = NodeRecord(
        id=1, roles=("broker",), host="h", port=1, log_file="node.log", config_file="p"
    )
    full = "/more: the disk is full: No space left on device, 0 of 8 bytes are free"
    well = NodeStatus(node=node, state=State.RUNNING, serving=True)
    seen = ClusterStatus(
        cluster_id="x",
        bootstrap_servers=ADDRESS,
        nodes=(
            replace(well, figures={LOG_DIRS_OFFLINE: full}),
            replace(well, state=State.DEAD, ended_with="no log directory works: /data"),
            replace(well, figures={REPLICAS_SET_ASIDE: "t-0 from broker 2: it is damaged"}),
        ),
        active_controller=1,
    )
    assert [each.plain for each in _troubles(seen)] == [
        f"node 1 has log directories offline: {full}",
        "node 1 ended: no log directory works: /data",
        "node 1 has set replicas aside: t-0 from broker 2: it is damaged",
    ]
    for one, healthy in ((seen.nodes[0], False), (seen.nodes[2], False), (well, True)):
        assert is_healthy(replace(seen, nodes=(one,))) is healthy


def test_a_node_that_ended_by_itself_is_quoted(tmp_path: Path) -> None:
    """Goal: what it wrote last, and only of its last start. Method: logs as a node writes them."""
    for lines, said in (
        (["x", "error: the disk is full"], "the disk is full"),
        (["error: the disk is full", START_MARK, "serves"], None),
        (["error: the disk is full", "serves"], None),
        ([], None),
    ):
        log = tmp_path / "node.log"
        log.write_text("".join(f"{line}\n" for line in lines))
        node = NodeRecord(
            id=1, roles=("broker",), host="h", port=1, log_file=str(log), config_file="p"
        )
        assert node_status(node, None, (), None).ended_with == said
