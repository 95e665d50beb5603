"""What ends a command that has started processes: they must end before it does.

Owns which signals do, and that the first of them is the only one: whoever closes a terminal sends
two, and an impatient person more. A clean-up that is cut short leaves brokers and clients behind,
which go on writing for ever.
"""

from __future__ import annotations

import os
import shlex
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
STDERR = 2
WORDS = b"\nEverything that was started is being ended.\n"


@contextmanager
def interrupted_once() -> Iterator[None]:
    """Raise KeyboardInterrupt at the first Ctrl-C, SIGTERM or hang-up, and pass over the others.

    It is raised once more behind the block: whatever that has ended with, it was interrupted.
    """
    from holdfast.cluster.ending import Interrupt  # noqa: PLC0415 - of what starts processes

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        Interrupt.came = True
        with suppress(OSError):  # the terminal may be gone
            os.write(STDERR, WORDS)
        raise KeyboardInterrupt

    try:
        with handling(ENDING, interrupt):
            yield
    finally:
        came, Interrupt.came = Interrupt.came, False
        if came:
            raise KeyboardInterrupt


@contextmanager
def handling(
    numbers: Sequence[int], handler: Callable[[int, FrameType | None], None]
) -> Iterator[None]:
    """Have the first of these signals handled in the block, and pass over all that follow."""
    before = {number: signal.getsignal(number) for number in numbers}

    def handle(number: int, frame: FrameType | None) -> None:
        for each in numbers:
            signal.signal(each, signal.SIG_IGN)
        handler(number, frame)

    for number, usual in before.items():
        if usual is not signal.SIG_IGN:  # under nohup a hang-up stays ignored
            signal.signal(number, handle)
    try:
        yield
    finally:
        for number, usual in before.items():
            signal.signal(number, usual)


def kept_in(directory: Path) -> str:
    """Say where an interrupted run has left what it saw, and who judges that."""
    return f"What was seen until then: holdfast check {shlex.quote(str(directory))}"
