"""Goal: whatever the steps come to, the log is read back once. Method: a scene, no cluster."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from holdfast.lab.demo import steps
from holdfast.lab.demo.demo_plan import DemoPlan, Places
from holdfast.lab.demo.steps import Scene, Standing
from holdfast.lab.parameters import LabError
from holdfast.lab.run import Run


class Quiet:
    def step(self, text: str) -> None:
        assert text

    def standing(self, now: Standing) -> None:
        raise AssertionError(now)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was read back; each read runs out of time."""
    done: list[str] = []

    def conclude(run: Any) -> None:
        done.append(run.topic)
        raise LabError("the end was not reached in 40 s")

    monkeypatch.setattr(steps, "conclude", conclude)
    return done


def scene(directory: Path) -> Scene:
    plan = DemoPlan(kind="payments", events=4, rate=1, topic="t", query="q")
    run = SimpleNamespace(topic="t", note=lambda _text: None)
    found = Scene(cast("Run", run), plan, Places(directory), Quiet())
    driver: Any = SimpleNamespace(ended_by_itself=False, kill=list, stop=list)
    found.drivers.append(driver)
    found._producer = cast("Any", SimpleNamespace(stop=list))
    return found


def test_a_last_read_that_ran_out_of_time_is_not_made_again(
    tmp_path: Path, reads: list[str]
) -> None:
    made = scene(tmp_path)
    with pytest.raises(LabError, match="not reached"):
        made.conclude()
    made.break_off()
    assert reads == ["t"]


def test_what_broke_off_before_it_is_read_back(tmp_path: Path, reads: list[str]) -> None:
    made = scene(tmp_path)
    made.break_off()
    assert reads == ["t"]
