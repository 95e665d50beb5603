"""What the commands of all clients here share: which cluster and topic, and whose history."""

from __future__ import annotations

import argparse
import signal
from collections.abc import Callable
from pathlib import Path

# The exit status of a producer that no promise of order is left to: its client has met a gap.
GAVE_UP = 3


def client_parser(
    program: str, about: str | None, *, process: str, named: str = "name in the history"
) -> argparse.ArgumentParser:
    """Return a parser of the options that every client has. `process` is its own name."""
    parser = argparse.ArgumentParser(prog=program, description=about)
    add = parser.add_argument
    add("--bootstrap-server", required=True)
    add("--topic", required=True)
    add("--history", type=Path, required=True, help="file of JSON lines, made anew")
    add("--process", default=process, help=named)
    add("--partitions", type=int, required=True, help="how many the topic has")
    return parser


def on_stop(stop: Callable[[], object]) -> None:
    """Call this when the process is asked to end, by SIGTERM or Ctrl-C."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop())
