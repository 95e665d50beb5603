"""The command line that runs something in a place of a network (`enter.py` does it)."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_SCRIPT: Final = str(Path(__file__).with_name("enter.py"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """The process that holds a network, and by which descriptor it holds each place."""

    pid: int
    process: str  # what tells it from a later one with its pid
    user: bool  # the network has a user namespace of its own
    descriptors: dict[str, int]


def python(script: str, *arguments: str) -> list[str]:
    """Return the command that starts one of our scripts in milliseconds: no site, no paths."""
    return [sys.executable, "-I", "-S", "-B", script, *arguments]


def prefix(holder: Holder, place: str, files: Path | None) -> list[str]:
    """Return the words that, put before a command, run it in a place.

    `files`: the directory whose `hosts` and `resolv.conf` the command sees in /etc; None: none.
    """
    shown = "-" if files is None else str(files)
    user = "1" if holder.user else "0"
    descriptor = str(holder.descriptors[place])
    return python(_SCRIPT, str(holder.pid), holder.process, descriptor, user, shown)
