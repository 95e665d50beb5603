"""Reads the history files of a run and has them judged. The only place where the lab opens them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path

from holdfast.judge.checker import Checker, Evidence
from holdfast.judge.findings import FINDINGS_MAX
from holdfast.judge.groups.history import read_any_runs
from holdfast.judge.groups.verdict import GroupJudgement
from holdfast.judge.history import Event, merge_runs

BLOCK_BYTES = 1 << 16
NO_GROUP = "groups are promised something, and the history speaks of none"


def history_files(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.jsonl"))


def events_of(paths: Iterable[Path]) -> Iterator[Event]:
    """All events of these files in the order of the clock. HistoryError, OSError."""
    return chain.from_iterable(runs_of(paths))


def runs_of(paths: Iterable[Path]) -> Iterator[list[Event]]:
    """Yield the same, as many at a time as were read."""
    with ExitStack() as stack:
        files = [(path, stack.enter_context(path.open("rb"))) for path in paths]
        yield from merge_runs(
            *(
                read_any_runs(iter(partial(f.read, BLOCK_BYTES), b""), path.name)
                for path, f in files
            )
        )


def evidence_of(
    paths: Iterable[Path],
    *also: Callable[[Event], None],
    with_groups: bool = False,
    findings_max: int = FINDINGS_MAX,
) -> Evidence:
    """Have these files judged; `also` are shown every event, so that they are read only once.

    `with_groups`: groups were promised something. Without any group that is not known to be kept.
    `findings_max`: of how many of each anomaly evidence is kept, in each partition.
    """
    checker = Checker(findings_max)
    for run in runs_of(paths):
        checker.feed(run)
        for feed in also:
            for event in run:
                feed(event)
    evidence = checker.finish()
    if with_groups and not evidence.groups.partitions:
        return replace(evidence, groups=GroupJudgement(unknown_groups=(NO_GROUP,)))
    return evidence
