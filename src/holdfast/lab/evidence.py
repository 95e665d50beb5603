"""Reads the history files of a run and has them judged. The only place where the lab opens them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from typing import BinaryIO

from holdfast.judge.checker import Checker, Evidence
from holdfast.judge.history import Event, merge_runs, read_runs

HISTORY_SUFFIX = ".jsonl"
BLOCK_BYTES = 1 << 16


def history_files(directory: Path) -> list[Path]:
    return sorted(directory.glob(f"*{HISTORY_SUFFIX}"))


def events_of(paths: Iterable[Path]) -> Iterator[Event]:
    """All events of these files in the order of the clock. HistoryError, OSError."""
    return chain.from_iterable(runs_of(paths))


def runs_of(paths: Iterable[Path]) -> Iterator[list[Event]]:
    """Yield the same, as many at a time as were read."""
    with ExitStack() as stack:
        files = [(path, stack.enter_context(path.open("rb"))) for path in paths]
        yield from merge_runs(*(read_runs(_blocks(file), path.name) for path, file in files))


def evidence_of(paths: Iterable[Path], also: Callable[[Event], None] | None = None) -> Evidence:
    """Have these files judged; `also` is shown every event, so that they are read only once."""
    checker = Checker()
    for run in runs_of(paths):
        checker.feed(run)
        if also is not None:
            for event in run:
                also(event)
    return checker.finish()


def _blocks(file: BinaryIO) -> Iterator[bytes]:
    while block := file.read(BLOCK_BYTES):
        yield block
