"""The end of every run: workloads end, all is read back, replicas are compared byte by byte."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from holdfast.clients.recorder import Recorder
from holdfast.clients.replica_files import DamagedFileError, stored_batches
from holdfast.judge.history import ReplicaBatch
from holdfast.lab.run import SETTLE_S, WORK_S, Run
from holdfast.lab.scenario import LabError
from holdfast.lab.wants import names

FINAL_READ_S = 40.0


def conclude(run: Run) -> None:
    """Leave in the history what the verdict rests on."""
    run.stop_workers()
    ends = settled_ends(run)
    if final_read(run, ends):
        note_replicas(run)


def settled_ends(run: Run) -> dict[int, int]:
    """Wait until all replicas of each partition end at one offset; those that do."""
    ends: dict[int, dict[int, int]] = {}

    def settled() -> bool:
        for partition, state in run.view.partitions.items():
            ends[partition] = {node: end_of(run, node, partition) for node in state.replicas}
        return all(len(set(each.values())) == 1 for each in ends.values())

    try:
        run.wait("replicas to end at one offset", settled, SETTLE_S)
    except LabError:
        run.check("replicas", "end at one offset", str(ends), kept=False)
    return {
        p: next(iter(each.values())) for p, each in ends.items() if len(set(each.values())) == 1
    }


def final_read(run: Run, ends: Mapping[int, int]) -> bool:
    """Read all partitions to their end in a new process. False, and a failed check, if it can't.

    The end is the high watermark, once it has come to where the replicas end: with acks=1 it may
    lag behind what was acknowledged, and that is no loss.
    """
    run.note("reading everything back")
    wanted = [f"{partition}:{end}" for partition, end in ends.items()]
    worker = run.start_reader("final", until_end=True, timeout=FINAL_READ_S, end=wanted)
    try:
        worker.wait(FINAL_READ_S + WORK_S)
    except LabError as error:
        expected = f"{names(run.partitions)} read to the end"
        return run.check("final read", expected, str(error), kept=False)
    return True


def note_replicas(run: Run) -> None:
    """Write every replica's batches into the history."""
    with Recorder(run.history / "replicas.jsonl", "replicas") as recorder:
        for partition, state in run.view.partitions.items():
            for node in state.replicas:
                _note_replica(run, recorder, node, partition)


def end_of(run: Run, node: int, partition: int) -> int:
    """Where a replica's files end; -1 while they can't be read."""
    end = 0
    try:
        for batch in stored_batches(replica_directory(run, node, partition)):
            end = batch.last_offset + 1
    except (OSError, DamagedFileError):
        return -1
    return end


def replica_directory(run: Run, node: int, partition: int, topic: str | None = None) -> Path:
    """Where a node keeps a partition. FileNotFoundError: nowhere."""
    name = f"{topic or run.topic}-{partition}"
    for root in log_directories(run, node):
        if (root / name).is_dir():
            return root / name
    raise FileNotFoundError(f"node {node} has no directory {name}")


def _note_replica(run: Run, recorder: Recorder, node: int, partition: int) -> None:
    try:
        for batch in stored_batches(replica_directory(run, node, partition)):
            recorder.record(
                ReplicaBatch,
                topic=run.topic,
                partition=partition,
                node=node,
                offset=batch.offset,
                last_offset=batch.last_offset,
                epoch=batch.epoch,
                digest=batch.digest,
            )
    except (OSError, DamagedFileError) as error:
        run.check(f"P{partition}, files of {node}", "whole", str(error), kept=False)


def log_directories(run: Run, node: int) -> list[Path]:
    """Every log directory of a node, as its properties name them. FileNotFoundError: none."""
    config = Path(run.cluster.node(node).config_file)
    for line in config.read_text(encoding="utf-8").splitlines():
        key, _, value = line.partition("=")
        if key.strip() in {"log.dirs", "log.dir"}:
            return [Path(each.strip()) for each in value.split(",")]
    raise FileNotFoundError(f"{config} names no log.dirs")
