"""Goal: what was seen broken stays broken, whatever of ours goes wrong behind it.

Method: the steps, the end and the judging of runs without a process raise an error of ours.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.lab.test_lab_gave_up import NoCluster
from tests.lab.test_lab_verdict import LOSSY, PHANTOM, SCENARIO, prove

from holdfast.judge.groups.history import encode_any
from holdfast.lab import prove as proving
from holdfast.lab.journal import Exit, FolderError
from holdfast.lab.outcome import Outcome
from holdfast.lab.parameters import LabError
from holdfast.lab.prove import CRASH
from holdfast.lab.run import Run

CHECK = "P0 keeps its leader"


def proof(tmp_path: Path, steps: Callable[[Run], None], begin: Any = NoCluster) -> Outcome:
    """Prove a scenario without its control; these are its steps."""
    main, *controls = SCENARIO.parts
    scenario = replace(SCENARIO, parts=(replace(main, steps=steps), *controls))
    return proving.prove(
        scenario, scenario.defaults, tmp_path / "out", command="x", control=False, begin=begin
    )


def broken(run: Run) -> None:
    run.check(CHECK, "0", "1", kept=False)


def of_ours(*_: object) -> Any:
    raise KeyError("of ours")


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.parametrize("is_broken", [True, False])
@pytest.mark.parametrize("error", [LabError("busy"), KeyError("of ours")], ids=["lab", "ours"])
def test_an_error_behind_a_failed_check_leaves_it_broken(
    tmp_path: Path, error: Exception, *, is_broken: bool
) -> None:
    """Seen to fail: an error of ours made it a run that could not be made."""

    def steps(run: Run) -> None:
        if is_broken:
            broken(run)
        raise error

    outcome = proof(tmp_path, steps)
    assert outcome.exit is (Exit.BROKEN if is_broken else Exit.NOT_MADE)
    assert (CHECK in outcome.verdict) is is_broken
    assert str(error) in str(outcome.error)
    is_ours = isinstance(error, KeyError)
    assert ("please report it" in str(outcome.error)) is is_ours
    assert (tmp_path / "out" / CRASH).exists() is is_ours
    (result,) = outcome.results
    again = proving.judge_part(result.part, outcome.parameters, tmp_path / "out" / "main")
    assert again.seen_broken is is_broken


@pytest.mark.slow
@pytest.mark.process
def test_an_error_behind_what_is_in_the_history_leaves_it_broken(tmp_path: Path) -> None:
    """Method: a record that nobody has sent is read, which no settings allow; then the error."""

    def steps(run: Run) -> None:
        lines = "".join(f"{encode_any(event)}\n" for event in PHANTOM.events)
        (run.history / "clients.jsonl").write_text(lines)
        of_ours()

    outcome = proof(tmp_path, steps)
    assert outcome.exit is Exit.BROKEN
    assert "phantom" in outcome.verdict


class EndsBadly(NoCluster):
    """A run whose end is an error of ours."""

    def __exit__(self, kind: object, reason: BaseException | None, trace: object) -> None:
        super().__exit__(kind, reason, trace)
        of_ours()


@pytest.mark.slow
@pytest.mark.process
def test_an_error_at_the_end_of_a_run_leaves_what_was_seen_before(tmp_path: Path) -> None:
    def steps(run: Run) -> None:
        broken(run)
        raise LabError("busy")

    outcome = proof(tmp_path, steps, EndsBadly)
    assert outcome.exit is Exit.BROKEN
    assert outcome.error is not None
    assert outcome.error.startswith("busy; this is an error of ours")


def damaged(*_: object) -> Any:
    raise FolderError("the journal is damaged.")


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.parametrize("fails", [of_ours, damaged])
@pytest.mark.parametrize(
    ("late", "code"), [(None, Exit.NOT_MADE), (True, Exit.NOT_MADE), (False, Exit.BROKEN)]
)
def test_checks_that_failed_for_certain_are_broken_also_where_nothing_can_be_judged(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    fails: Callable[..., Any],
    late: bool | None,
    code: Exit,
) -> None:
    """Seen to fail: they were lost with what could not be read. `late`: None is no check at all."""

    def steps(run: Run) -> None:
        if late is not None:
            broken(run)
            run.checks[-1] = replace(run.checks[-1], late=late)
        raise LabError("busy")

    monkeypatch.setattr(proving, "judge_part", fails)
    outcome = proof(tmp_path, steps)
    assert outcome.exit is code
    assert (CHECK in outcome.verdict) is (code is Exit.BROKEN)
    if code is Exit.BROKEN:
        assert "busy; it can't be judged: " in str(outcome.error)


def test_a_second_error_of_ours_leaves_what_was_written_of_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen to fail: the file that is to be reported had the last one alone."""
    prove(tmp_path, monkeypatch, {"main": LOSSY, "control": LOSSY})
    found = proving._run_part

    def run_part(part: Any, *more: Any) -> Any:
        return of_ours() if part.is_control else found(part, *more)

    def report(*_: object) -> None:
        raise IndexError("in the report")

    monkeypatch.setattr(proving, "_run_part", run_part)
    monkeypatch.setattr(proving, "write_report", report)
    outcome = proving.prove(SCENARIO, SCENARIO.defaults, tmp_path / "again", command="x")
    assert outcome.exit is Exit.BROKEN
    told = (tmp_path / "again" / CRASH).read_text()
    assert told.index("KeyError: 'of ours'") < told.index("IndexError: in the report")
