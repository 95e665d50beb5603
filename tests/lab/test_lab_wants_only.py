"""What a partition was like when it was waited for: a report says no more than was asked for."""

from __future__ import annotations

import pytest

from holdfast.lab.steps.wants import Want, want


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (want(), want()),
        (want(leader=2), want(leader=1)),
        (want(isr=[2]), want(isr=[1, 3])),
        (want(leader=2, isr=[2]), want(leader=1, isr=[1, 3])),
    ],
)
def test_only_what_is_asked_for_is_told(asked: Want, told: Want) -> None:
    assert want(leader=1, isr=[1, 3]).only(asked) == told
