"""Goal: on a machine that starves the nodes, what only came too late makes no verdict "broken".

Method: steps are played on a cluster that does what it must, but for one expectation of each part
to prove: that one comes only behind its bound, before the next one. Each check that fails by that
has to be about a bound itself, or to rest on one that has failed (`given`).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.lab import played_stage
from tests.lab.played import Played
from tests.lab.played_clients import Worker
from tests.lab.played_stage import play
from tests.lab.test_lab_played_steps import PLAYED

from holdfast.lab.scenario import load_scenario
from holdfast.lab.steps.wants import Want

# What comes by nobody's doing: such an expectation can't be late.
STAYS = "metadata stay as they were"
# Nothing may be acknowledged there, late or not; the cluster that is played does, until it is told
# that followers are dropped.
NEVER = "sent to 1 while it is alone"


class Late(Played):
    """A run one of whose expectations comes too late; the others are in time."""

    late_at: int | None = None  # which one
    runs: list[Late] = []  # noqa: RUF012 - of one test, which empties it

    def __init__(self, *args: Any, **flags: Any) -> None:
        super().__init__(*args, **flags)
        self.expected = 0
        self.which = ""
        self._coming: dict[int, Want] = {}
        self.runs.append(self)

    def _come(self, but: Mapping[int, Want]) -> None:
        """Let come what was late, unless it is overtaken."""
        coming, self._coming = self._coming, {}
        if left := {p: each for p, each in coming.items() if p not in but}:
            super().expect(f"{self.which}, at last", left)

    def expect(self, when: str, wanted: Mapping[int, Want], _bound_s: float = 0.0) -> bool:
        number, self.expected = self.expected, self.expected + 1
        self._flow()  # all that is sent until then goes by what was before
        if number != self.late_at or STAYS in when:
            self._come(wanted)
            return super().expect(when, wanted)
        self.which, self._coming = when, dict(wanted)
        return self.check(when, "", "", kept=False, late=True)

    def expect_flow(self, worker: Worker, when: str, *told: Any) -> bool:
        self._come({})
        return super().expect_flow(worker, when, *told)


@pytest.mark.parametrize("name", PLAYED)
def test_what_rests_on_what_came_too_late_is_late_as_well(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(played_stage, "Played", Late)
    wrong = []
    for part in load_scenario(name).parts:
        if part.is_control:
            continue
        number, expected = -1, 0
        while number < expected:
            Late.runs.clear()
            Late.late_at = number if number >= 0 else None
            play(monkeypatch, tmp_path, name, part.name)
            run, number = Late.runs[0], number + 1
            expected = run.expected if Late.late_at is None else expected
            wrong += [f"{part.name}, {run.which}: {each}" for each in run.wrong if each != NEVER]
    assert not wrong
