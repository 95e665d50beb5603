"""What a process keeps for the next range, and its child must not use: connections.

A child that forks off has the parent's sockets. Two that ask over one of them read each other's
answers: rows of another range, or none.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


def forget_in_child(kept: dict[K, V], let_go: Callable[[V], None]) -> dict[K, V]:
    """Have a child begin with nothing in `kept`; `let_go` gets each thing that was there."""

    def forget() -> None:
        while kept:
            let_go(kept.popitem()[1])

    os.register_at_fork(after_in_child=forget)
    return kept


def leak(client: Any) -> None:
    """Keep a client of librdkafka from ever being destroyed.

    Its threads stayed in the parent, and to destroy it waits for them.
    """
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(client))
