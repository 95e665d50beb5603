"""Keeps the folder of proofs from growing without end.

Owns which of the runs that `holdfast prove` has named itself may go: those whose promise was kept,
but for the newest. What was broken or is undecided is somebody's work to do, and stays; so does
what is still being written, whose cluster runs again, or what a user has given another name.
"""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from holdfast.cluster import ClusterError, LocalCluster
from holdfast.cluster.processes import State
from holdfast.lab.journal import Exit

KEPT_MAX = 20
VERDICT = "verdict.json"
_NAME = re.compile(r"[a-z-]+-\d{8}-\d{6}-\d+")
_REMOVED = ".removed-"  # begins the name of what is being removed: half of it proves nothing


def name_of(scenario: str, pid: int) -> str:
    """Return how the folder of a run that begins now is called."""
    return f"{scenario}-{time.strftime('%Y%m%d-%H%M%S')}-{pid}"


def remove_old(proofs: Path, keep: int = KEPT_MAX) -> list[str]:
    """Remove runs that were kept, all but the newest `keep`; return the names of what is gone.

    OSError: one could not be removed.
    """
    if not proofs.is_dir():
        return []
    for left in proofs.glob(f"{_REMOVED}*"):
        with suppress(FileNotFoundError):  # another command is at it
            shutil.rmtree(left)
    found = sorted(_kept(proofs), reverse=True)
    gone = []
    for _, path in reversed(found[keep:]):
        if remove(path):
            gone.append(path.name)
    return gone


def remove(path: Path) -> bool:
    """Remove a run, and what an interrupted removal has left of one; whether it was there. OSError.

    Under its own name there is all of it, or nothing: half of it would pass for the whole.
    """
    aside = path.with_name(_REMOVED + path.name)
    with suppress(FileNotFoundError):  # another command is at it
        if aside.exists():
            shutil.rmtree(aside)
    try:
        path.rename(aside)
    except FileNotFoundError:
        return False
    with suppress(FileNotFoundError):  # as above
        shutil.rmtree(aside)
    return True


def _kept(proofs: Path) -> Iterator[tuple[int, Path]]:
    """Yield when it ended and where: every run that was kept and that nobody uses.

    A name says when a run began: by that a long one would go at its own end, behind short ones.
    """
    for path in proofs.iterdir():
        if not _NAME.fullmatch(path.name) or path.is_symlink() or not path.is_dir():
            continue
        if _is_kept(path) and not _runs(path):
            with suppress(FileNotFoundError):  # as above
                yield (path / VERDICT).stat().st_mtime_ns, path


def _is_kept(path: Path) -> bool:
    try:
        verdict = json.loads((path / VERDICT).read_bytes())
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(verdict, dict) and verdict.get("exit") == Exit.KEPT


def _runs(path: Path) -> bool:
    """Whether a node of one of its clusters is alive; also when nobody can tell."""
    try:
        # A replay's lie deeper, below its attempts.
        clusters = [LocalCluster.open(file.parent) for file in path.rglob("cluster/cluster.json")]
        return any(
            each.state(node.id) is not State.DEAD for each in clusters for node in each.nodes
        )
    except (ClusterError, OSError):  # whoever is at work there removes and replaces files
        return True
