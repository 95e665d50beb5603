"""What scenarios do to the disk of a node that is dead.

Owns every deletion and every cut of a node's files, and puts each into the history as a note. The
processes of a lab share one machine's page cache, which SIGKILL spares: what a power cut would take
from a node is taken from its files here, by hand, and the report says so.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable

from holdfast.clients.replica_files import (
    RECOVERY_POINTS,
    DamagedFileError,
    checkpointed,
    position_of,
)
from holdfast.cluster.processes import has_gone
from holdfast.lab.parameters import LabError, refuse_if
from holdfast.lab.run import Run
from holdfast.lab.steps.closing import end_of, log_directories, replica_directory

CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
GONE_S = 10.0


def replace_disk(run: Run, node: int) -> None:
    """Give a dead node empty log directories: nothing is left, not even who it was."""
    _wait_gone(run, node)
    for directory in log_directories(run, node):
        shutil.rmtree(directory)
    run.damage(node, "its disks are new, and empty")


def lose_replicas(
    run: Run,
    node: int,
    partitions: Iterable[int],
    detail: str = "what it had of the topic is gone",
) -> None:
    """Take away what a dead node had of these partitions, and leave it the rest of its disk."""
    for partition in partitions:
        lose_replica(run, node, partition)
    run.damage(node, detail)


def lose_replica(run: Run, node: int, partition: int, topic: str | None = None) -> None:
    """Take away what a dead node had of one partition.

    The caller says so with `Run.damage`, once for all that a node loses.
    """
    _wait_gone(run, node)
    shutil.rmtree(replica_directory(run, node, partition, topic))


def cut_back(run: Run, node: int, partition: int, end: int) -> None:
    """Let a dead node's replica end at this offset, as a power cut does with what wasn't synced.

    LabError: it does not hold so much, or it had synced what would be cut away: then no power cut
    could take it.
    """
    _wait_gone(run, node)
    directory = replica_directory(run, node, partition)
    # Up to where it is synced for certain, as its directory's checkpoint says.
    before, synced = end_of(run, node, partition), checkpointed(directory, RECOVERY_POINTS)
    refuse_if(
        not synced <= end < before,
        f"node {node} holds P{partition} up to {before} and has synced it up to {synced}: "
        f"a power cut can't leave it with {end}",
    )
    try:
        found = position_of(directory, end)
    except DamagedFileError as error:
        raise LabError(str(error)) from error
    assert found is not None, "the log ends beyond the cut"
    segment, position = found
    with segment.open("r+b") as file:
        file.truncate(position)
    for later in directory.glob("*.log"):
        if later.name > segment.name:
            later.unlink()
    for root in log_directories(run, node):
        (root / CLEAN_SHUTDOWN).unlink(missing_ok=True)
    run.damage(
        node,
        f"what it had not synced of P{partition} is lost: it ended at {before}, now at "
        f"{end_of(run, node, partition)} (synced up to {synced})",
    )


def _wait_gone(run: Run, node: int) -> None:
    """Wait until nothing of a dead node writes any more: its first thread ends before others."""
    assert run.cluster.state(node) == "dead", f"node {node} is alive"
    record = run.cluster.node(node)
    run.wait(f"the end of node {node}", lambda: has_gone(record.pid, record.process), GONE_S)
