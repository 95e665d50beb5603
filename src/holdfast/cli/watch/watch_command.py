"""`holdfast watch`, the command."""

from __future__ import annotations

import shutil
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer

from holdfast.cli.exit_status import refuse_if
from holdfast.cli.interrupts import handling
from holdfast.cli.shared_options import DataDir, data_dir
from holdfast.cli.watch.recording import Recording
from holdfast.cli.watch.samples import Sampler
from holdfast.cli.watch.screen import Memory, fitted, frame
from holdfast.cluster import LocalCluster

EVERY_S_MAX = 3600
ENDING = (signal.SIGTERM, signal.SIGHUP)
BY_SIGNAL = 128  # added to a signal's number: the exit status, as a shell has it
HOME, CLEAR_BELOW, CLEAR_LINE = "\x1b[H", "\x1b[J", "\x1b[K"
OTHER_SCREEN, BACK = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"


def watch(
    topics: Annotated[
        list[str] | None, typer.Argument(metavar="[TOPIC]...", help="These alone; else all.")
    ] = None,
    data_dir_option: DataDir = None,
    every: Annotated[
        float, typer.Option(help=f"Seconds from one look to the next, at most {EVERY_S_MAX}.")
    ] = 0.5,
    record: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write every look there, too: a line of JSON each, with what has changed since "
            "the one before. It grows by some 30 bytes a look for each partition that is written "
            "to.",
        ),
    ] = None,
    looks: Annotated[
        int | None, typer.Option(help="End after so many looks; else at Ctrl-C.")
    ] = None,
) -> None:
    """Show leaders, replicas in sync, ends of logs, group lag, broken links and elections.

    For whoever breaks a cluster in another terminal. It looks at nodes over a way that no cut
    touches. Where the output is no terminal each look is printed below the one before.
    """
    refuse_if(
        not 0 < every <= EVERY_S_MAX,
        f"--every {every:g}: it is greater than 0, and at most {EVERY_S_MAX} (seconds).",
    )
    refuse_if(looks is not None and looks < 1, "--looks is at least 1.")
    cluster = LocalCluster.open(data_dir(data_dir_option))
    memory = Memory()
    with handling(ENDING, end), ExitStack() as stack, suppress(KeyboardInterrupt):
        recording = None if record is None else stack.enter_context(Recording(record))
        show = stack.enter_context(shown())
        sampler = stack.enter_context(Sampler(cluster, topics or []))
        left = looks
        while left is None or left > 0:
            begin_s = time.monotonic()
            sample = sampler.look()
            memory.take(sample)
            if recording is not None:
                recording.take(sample)
            rows = shutil.get_terminal_size().lines if sys.stdout.isatty() else None
            show(frame(sample, memory, rows, topics or []))
            left = None if left is None else left - 1
            if left != 0:
                time.sleep(max(0.0, every - (time.monotonic() - begin_s)))


def end(number: int, _frame: FrameType | None) -> None:
    """End as an exception does, so that the terminal is put right."""
    raise SystemExit(BY_SIGNAL + number)


@contextmanager
def shown() -> Iterator[Any]:
    """Give what shows lines: in place of those before on a terminal, below them elsewhere."""
    out = sys.stdout
    if not out.isatty():
        yield lambda lines: print("\n".join([*lines, ""]), flush=True)
        return

    def draw(lines: list[str]) -> None:
        # What goes beyond the last row would push the first ones out; it may change its size.
        rows = fitted(lines, shutil.get_terminal_size().lines)
        out.write(HOME + "\r\n".join(f"{line}{CLEAR_LINE}" for line in rows) + CLEAR_BELOW)
        out.flush()

    try:
        out.write(OTHER_SCREEN)
        yield draw
    finally:
        with suppress(OSError):  # after a hang-up there is no terminal
            out.write(BACK)
            out.flush()
