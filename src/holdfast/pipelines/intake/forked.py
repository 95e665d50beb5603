"""What a process keeps for the next range, and its child must not use: connections.

A child that forks off has the parent's sockets. Two that ask over one of them read each other's
answers: rows of another range, or none. It has the parent's locks too, as they were: one that
another thread held, as those of librdkafka hold libc's to look up a name, is held for good.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


_is_forked = False


def _note() -> None:
    global _is_forked  # noqa: PLW0603 - of the process
    _is_forked = True


os.register_at_fork(after_in_child=_note)


def is_forked() -> bool:
    """Say whether this process was forked by one that may have had clients of librdkafka.

    To destroy a client that got nowhere may last for ever then: its threads wait for such a lock.
    """
    return _is_forked


def forget_in_child(kept: dict[K, V], let_go: Callable[[V], None]) -> dict[K, V]:
    """Have a child begin with nothing in `kept`; `let_go` gets each thing that was there."""

    def forget() -> None:
        while kept:
            let_go(kept.popitem()[1])

    os.register_at_fork(after_in_child=forget)
    return kept


def leak(client: Any) -> None:
    """Keep a client of librdkafka from ever being destroyed.

    To destroy it waits for its threads, which stayed in the parent, or can't end (`is_forked`).
    """
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(client))
