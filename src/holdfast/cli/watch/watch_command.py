"""`holdfast watch`, the command."""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from holdfast.cli.exit_status import CommandError, refuse_if
from holdfast.cli.shared_options import DataDir, data_dir
from holdfast.cli.watch.samples import Sample, Sampler
from holdfast.cli.watch.screen import Memory, fitted, frame
from holdfast.cluster import LocalCluster

HOME, CLEAR_BELOW, CLEAR_LINE = "\x1b[H", "\x1b[J", "\x1b[K"
OTHER_SCREEN, BACK = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"


def watch(
    topics: Annotated[
        list[str] | None, typer.Argument(metavar="[TOPIC]...", help="These alone; else all.")
    ] = None,
    data_dir_option: DataDir = None,
    every: Annotated[float, typer.Option(help="Seconds from one look to the next.")] = 0.5,
    record: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write every look there, too: a line of JSON each."),
    ] = None,
    looks: Annotated[
        int | None, typer.Option(help="End after so many looks; else at Ctrl-C.")
    ] = None,
) -> None:
    """Show leaders, replicas in sync, ends of logs, group lag, broken links and elections.

    For whoever breaks a cluster in another terminal. It looks at nodes over a way that no cut
    touches. Where the output is no terminal each look is printed below the one before.
    """
    refuse_if(every <= 0, "--every is greater than 0.")
    refuse_if(looks is not None and looks < 1, "--looks is at least 1.")
    cluster = LocalCluster.open(data_dir(data_dir_option))
    memory = Memory()
    with ExitStack() as stack, suppress(KeyboardInterrupt):
        file = None
        if record is not None:
            try:
                file = stack.enter_context(record.open("a", encoding="utf-8"))
            except OSError as error:
                raise CommandError(f"--record {record}: {error.strerror}.") from None
        show = stack.enter_context(shown())
        sampler = stack.enter_context(Sampler(cluster, topics or []))
        left = looks
        while left is None or left > 0:
            begin_s = time.monotonic()
            sample = sampler.look()
            memory.take(sample)
            if file is not None:
                file.write(json.dumps(as_json(sample)) + "\n")
                file.flush()
            rows = shutil.get_terminal_size().lines if sys.stdout.isatty() else None
            show(frame(sample, memory, rows))
            left = None if left is None else left - 1
            if left != 0:
                time.sleep(max(0.0, every - (time.monotonic() - begin_s)))


def as_json(sample: Sample) -> dict[str, Any]:
    """Return a sample as plain values; partitions by name."""
    values = asdict(sample)
    values["partitions"] = {
        f"{topic}-{number}": found for (topic, number), found in values["partitions"].items()
    }
    return values


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

    out.write(OTHER_SCREEN)
    try:
        yield draw
    finally:
        out.write(BACK)
        out.flush()
