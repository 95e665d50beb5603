"""Goal: proofs do not fill the disk, and nothing that somebody may still need is removed.

Method: folders as `holdfast prove` leaves them, each with one reason to stay.
"""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.cluster import LocalCluster, layout, processes
from holdfast.lab import keeping
from holdfast.lab.journal import Exit

KEEP = 2


def proof(root: Path, second: int, code: object = 0, name: str = "one-broker-down") -> Path:
    """Make the folder of a run that began and ended in this second."""
    path = root / f"{name}-20260102-0304{second:02d}-77"
    (path / "main").mkdir(parents=True)
    (path / keeping.VERDICT).write_text(json.dumps({"exit": code}))
    os.utime(path / keeping.VERDICT, (second, second))
    return path


def left(root: Path) -> set[str]:
    return {path.name for path in root.iterdir()}


def test_of_what_was_kept_the_newest_stay(tmp_path: Path) -> None:
    """By their time, whatever the scenario is called."""
    old, older = proof(tmp_path, 2, name="write-anomaly"), proof(tmp_path, 1)
    new = {proof(tmp_path, 3, name="add-broker").name, proof(tmp_path, 4).name}
    assert keeping.remove_old(tmp_path, KEEP) == [older.name, old.name]
    assert left(tmp_path) == new
    assert keeping.remove_old(tmp_path, KEEP) == []
    assert keeping.remove_old(tmp_path / "nothing", KEEP) == []


def test_a_long_run_does_not_go_at_its_own_end(tmp_path: Path) -> None:
    """Others began behind it and ended before it."""
    long = proof(tmp_path, 1)
    others = [proof(tmp_path, second) for second in (2, 3)]
    os.utime(long / keeping.VERDICT, (4, 4))
    assert keeping.remove_old(tmp_path, KEEP) == [others[0].name]
    assert long.exists()


def test_what_was_not_kept_stays(tmp_path: Path) -> None:
    proof(tmp_path, 1, code=Exit.BROKEN)
    proof(tmp_path, 2, code=Exit.NOT_MADE)
    (proof(tmp_path, 3) / keeping.VERDICT).unlink()  # it is still running, or was killed
    (proof(tmp_path, 4) / keeping.VERDICT).write_text('{"exit": 0')
    (proof(tmp_path, 5) / keeping.VERDICT).write_text("[0]")
    before = left(tmp_path)
    kept = proof(tmp_path, 6)
    assert keeping.remove_old(tmp_path, 0) == [kept.name]
    assert left(tmp_path) == before


def test_what_a_user_has_named_or_put_there_stays(tmp_path: Path) -> None:
    proofs = tmp_path / "proofs"
    elsewhere = proof(tmp_path, 1)
    proof(proofs, 2).rename(proofs / "for-the-talk")
    (proofs / elsewhere.name).symlink_to(elsewhere)
    (proofs / "one-broker-down-20260102-030405-78").write_text("a file")
    before = left(proofs)
    assert keeping.remove_old(proofs, 0) == []
    assert left(proofs) == before
    assert elsewhere.exists()


@pytest.mark.parametrize("part", ["main", "attempt-2/main"], ids=["a proof", "an attempt"])
def test_a_run_whose_cluster_is_up_again_stays(tmp_path: Path, part: str) -> None:
    """Seen to fail: a replay of several attempts was removed under its running cluster."""
    path = proof(tmp_path, 1)
    cluster = LocalCluster.create(path / part / "cluster", brokers=1, port=0)
    node, pid = cluster.nodes[0], os.getpid()
    running = replace(node, pid=pid, process=processes.identify(pid))
    layout.write(cluster.directory, cluster.record.with_node(running))
    assert keeping.remove_old(tmp_path, 0) == []
    layout.write(cluster.directory, cluster.record.with_node(node))
    assert keeping.remove_old(tmp_path, 0) == [path.name]
    assert left(tmp_path) == set()


def test_a_removal_that_was_interrupted_is_gone_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half a run must not look like one that was killed."""
    proof(tmp_path, 1)

    def interrupted(_path: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("holdfast.lab.keeping.shutil.rmtree", interrupted)
        with pytest.raises(KeyboardInterrupt):
            keeping.remove_old(tmp_path, 0)
    (name,) = left(tmp_path)
    assert name.startswith(".removed-")
    assert keeping.remove_old(tmp_path, 0) == []
    assert left(tmp_path) == set()


def test_a_run_whose_files_go_while_it_is_looked_at_keeps_nobody_from_going(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Method: the folder of a part goes once its cluster is found. Python 3.12 passes over that.

    Seen to fail: none was removed.
    """
    going, other = proof(tmp_path, 1), proof(tmp_path, 2)
    LocalCluster.create(going / "main" / "cluster", brokers=1, port=0)
    real = LocalCluster.open

    def opened(directory: Path) -> LocalCluster:
        found = real(directory)
        shutil.rmtree(directory.parent)
        return found

    monkeypatch.setattr(LocalCluster, "open", opened)
    assert other.name in keeping.remove_old(tmp_path, 0)
    assert not other.exists()
