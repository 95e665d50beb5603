"""Goal: one signal ends what it is to end, and no other one before or behind it does.

Method: this process sends itself signals, which take effect before the next line.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from types import FrameType

import pytest

from holdfast.cli.interrupts import handling

NUMBERS = (signal.SIGUSR1, signal.SIGUSR2)


@pytest.fixture
def passed_over() -> Iterator[None]:
    """Have signals that nobody handles passed over: they would end us."""
    before = {number: signal.signal(number, signal.SIG_DFL) for number in NUMBERS}
    yield
    for number, usual in before.items():
        signal.signal(number, usual)


@pytest.mark.usefixtures("passed_over")
def test_the_first_signal_is_the_only_one() -> None:
    """A clean-up that is cut short by another signal leaves processes behind."""
    came: list[int] = []

    def handle(number: int, _frame: FrameType | None) -> None:
        came.append(number)
        signal.raise_signal(number)  # amid the handler, too

    with handling(NUMBERS, handle):
        for number in (*NUMBERS, *NUMBERS):
            signal.raise_signal(number)
        assert came == [signal.SIGUSR1]
    assert [signal.getsignal(number) for number in NUMBERS] == [signal.SIG_DFL] * 2


@pytest.mark.usefixtures("passed_over")
def test_what_was_ignored_stays_ignored() -> None:
    """Under nohup a hang-up ends nothing; it is the shell that has it ignored."""
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    came: list[int] = []
    with handling(NUMBERS, lambda number, _: came.append(number)):
        signal.raise_signal(signal.SIGUSR1)
        assert signal.getsignal(signal.SIGUSR1) is signal.SIG_IGN
        signal.raise_signal(signal.SIGUSR2)
    assert came == [signal.SIGUSR2]
    assert signal.getsignal(signal.SIGUSR1) is signal.SIG_IGN
