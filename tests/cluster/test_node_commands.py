"""Goal: a command has a bound, and what became of it is said; nothing of one that hangs is left.

Method: real commands of the shell.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.cluster.elsewhere.node_commands import NodeCommands
from holdfast.cluster.elsewhere.nodes_file import NodesFile
from holdfast.cluster.layout import BROKER, ClusterError, NodeRecord
from holdfast.cluster.processes import wait_until

pytestmark = [pytest.mark.process]
NODE = NodeRecord(id=1, roles=(BROKER,), host="h", port=1, log_file="", config_file="")
BOUND_S = 30.0


def commands(directory: Path, script: str, timeout_s: float = BOUND_S) -> NodeCommands:
    file = NodesFile(
        path=Path("nodes.toml"),
        servers="h:1",
        timeout_s=timeout_s,
        start_timeout_s=1.0,
        commands={"kill": ("sh", "-c", script), "start": ("no-such-program",)},
        nodes={},
    )
    return NodeCommands(file, directory / "commands", {"HOLDFAST_TEST": "told"})


def test_what_a_command_says_is_kept(tmp_path: Path) -> None:
    commands(tmp_path, "echo {id} $HOLDFAST_TEST").run("kill", NODE)
    log = (tmp_path / "commands" / "node-1.log").read_text().splitlines()
    assert (log[0], log[-1]) == ("$ sh -c 'echo 1 $HOLDFAST_TEST'", "1 told")


def test_a_command_that_fails_is_named_with_what_it_said(tmp_path: Path) -> None:
    tried = commands(tmp_path, "echo not allowed >&2; exit 3")
    with pytest.raises(ClusterError) as failed:
        tried.run("kill", NODE)
    assert str(failed.value) == (
        "`sh -c 'echo not allowed >&2; exit 3'` failed with exit status 3. It said: not allowed"
    )
    with pytest.raises(ClusterError, match=r"`no-such-program`: there is no program"):
        tried.run("start", NODE)
    with pytest.raises(ClusterError, match=r"nodes\.toml has no command `pause` for node 1"):
        tried.run("pause", NODE)


@pytest.mark.slow
def test_a_command_that_talks_without_end_is_ended_before_the_disk_is_full(tmp_path: Path) -> None:
    """Method: 16 MiB are a tenth of a second; it is killed long before its bound."""
    tried = commands(tmp_path, "exec yes the same again and again and again and again")
    with pytest.raises(ClusterError, match=r"said more than 16 MiB, and was killed: what it sta"):
        tried.run("kill", NODE)
    quiet = commands(tmp_path, "echo done")  # into the same file: each counts what it says itself
    quiet.run("kill", NODE)


@pytest.mark.slow
def test_a_command_that_hangs_is_ended_with_what_it_has_started(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    script = f"sleep 60 & echo $! $$ >{pids}.part; mv {pids}.part {pids}; echo waiting; wait"
    tried = commands(tmp_path, script, timeout_s=0.5)
    tried.begin("kill", NODE)
    wait_until(pids.exists, timeout_s=BOUND_S, what="the command")
    with pytest.raises(ClusterError, match=r"has not ended after 0\.5 s, and was killed\. It said"):
        tried.finish(NODE.id)
    for pid in pids.read_text().split():
        wait_until(lambda pid=pid: has_ended(pid), timeout_s=BOUND_S, what="its end")  # type: ignore[misc]


def test_what_still_runs_is_waited_for(tmp_path: Path) -> None:
    """Goal: nothing of a command is still to come. Method: one fails, behind one that does well."""
    done = tmp_path / "done"
    tried = commands(tmp_path, f"echo x >>{done}; test -e {done}.two || {{ touch {done}.two; "
                     "exit 0; }; exit 1")  # fmt: skip
    tried.begin("kill", NODE)
    tried.begin("kill", NODE)
    tried.settle()
    tried.finish(NODE.id)
    assert done.read_text().split() == ["x", "x"]


def test_a_command_whose_words_can_not_be_kept_is_run(tmp_path: Path) -> None:
    """Method: the folder of its log has gone."""
    done = tmp_path / "done"
    commands(tmp_path / "gone", f"touch {done}").run("kill", NODE)
    assert done.exists()


def has_ended(pid: str) -> bool:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return True
    return text[text.rfind(")") + 2] == "Z"
