"""Goal: what was seen broken stays broken, whatever of ours goes wrong behind it.

Method: the steps, the end and the judging of runs without a process raise an error of ours.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from tests.judge.histories import Story
from tests.lab.test_lab_gave_up import NoCluster
from tests.lab.test_lab_verdict import CONTROL, GOOD, LOSSY, PHANTOM, SCENARIO, UNREAD, prove

from holdfast.judge.groups.history import encode_any
from holdfast.lab import prove as proving
from holdfast.lab.journal import Exit, FolderError, write_manifest
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


def has_read(run: Run, story: Story) -> None:
    """Leave this history, as clients of the run would."""
    lines = "".join(f"{encode_any(event)}\n" for event in story.events)
    (run.history / "clients.jsonl").write_text(lines)


@pytest.mark.slow
@pytest.mark.process
def test_an_error_behind_what_is_in_the_history_leaves_it_broken(tmp_path: Path) -> None:
    """Method: a record that nobody has sent is read, which no settings allow; then the error."""

    def steps(run: Run) -> None:
        has_read(run, PHANTOM)
        of_ours()

    outcome = proof(tmp_path, steps)
    assert outcome.exit is Exit.BROKEN
    assert "phantom" in outcome.verdict


def no_room(run: Run) -> None:
    """Let the lab's disk be full for the journal's next line."""
    run.journal.close()
    run.journal._file = Path("/dev/full").open("wb", buffering=0)  # noqa: SIM115 - it closes it


def no_words(run: Run) -> None:
    """Let the journal's end be nothing that can be written: a mistake of ours."""
    run.groups_expected = {"g": cast("Any", object())}


NO_END = [(no_room, "[Errno 28] "), (no_words, "this is an error of ours, please report it")]


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.parametrize(("unended", "why"), NO_END, ids=["no room", "ours"])
@pytest.mark.parametrize(
    ("story", "broken_off", "code"),
    [
        (PHANTOM, None, Exit.BROKEN),
        (PHANTOM, "busy", Exit.BROKEN),
        (GOOD, None, Exit.NOT_MADE),
        (UNREAD, None, Exit.NOT_MADE),
    ],
    ids=["broken", "broken, and broke off", "kept", "not read"],
)
def test_what_a_history_shows_is_seen_also_where_the_journal_can_not_be_ended(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    unended: Callable[[Run], None],
    why: str,
    story: Story,
    broken_off: str | None,
    code: Exit,
) -> None:
    """Goal: `prove` says what `check` says of the same folder. Seen to fail: it was not made."""

    def steps(run: Run) -> None:
        has_read(run, story)
        unended(run)
        if broken_off is not None:
            raise LabError(broken_off)

    outcome = proof(tmp_path, steps)
    assert outcome.exit is code, outcome.verdict
    assert ("phantom" in outcome.verdict) is (code is Exit.BROKEN)
    before = "" if broken_off is None else f"{broken_off}; "
    assert str(outcome.error).startswith(f"{before}its journal can't be ended: {why}")
    assert outcome.report is not None
    assert outcome.report.exists()
    monkeypatch.setattr(proving, "load_scenario", lambda _name: SCENARIO)
    assert proving.judge_again(tmp_path / "out").exit is code


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.parametrize(("unended", "why"), NO_END, ids=["no room", "ours"])
@pytest.mark.parametrize(
    ("story", "code"), [(PHANTOM, Exit.BROKEN), (LOSSY, Exit.NOT_MADE)], ids=["own", "must break"]
)
def test_a_control_whose_journal_can_not_be_ended_breaks_what_no_settings_allow(
    tmp_path: Path, unended: Callable[[Run], None], why: str, story: Story, code: Exit
) -> None:
    """Seen to fail: what was read and never sent was taken for a control that was not made."""

    def steps(run: Run) -> None:
        has_read(run, story)
        unended(run)

    control = replace(CONTROL, steps=steps)
    base = SCENARIO.defaults
    write_manifest(tmp_path, "proof", scenario="x", parameters={}, parts=["control"], command="x")
    result = proving._run_part(control, base, tmp_path / "c", lambda _line: None, NoCluster)
    found, verdict = proving._verdict([result], result.broke_off)
    assert found is code
    assert why in str(result.broke_off)
    assert ("the control's own promise" in verdict) is (code is Exit.BROKEN)


@pytest.mark.slow
@pytest.mark.process
def test_a_check_that_the_journal_has_no_room_for_stays_broken(tmp_path: Path) -> None:
    """Seen to fail: it did, and nobody looked at the history, which has more to say."""

    def steps(run: Run) -> None:
        has_read(run, UNREAD)
        no_room(run)
        broken(run)

    outcome = proof(tmp_path, steps)
    assert outcome.exit is Exit.BROKEN
    (result,) = outcome.results
    assert CHECK in {check.name for check in result.checks if not check.kept}
    assert result.evidence.judgement.counts.acknowledged == 1, "its history is judged"


@pytest.mark.slow
@pytest.mark.process
def test_what_is_only_late_is_excused_also_without_an_end_of_the_journal(tmp_path: Path) -> None:
    """Method: the lab has not reached the cluster, as it says in the end that can't be written."""

    def steps(run: Run) -> None:
        has_read(run, GOOD)
        run.journal.unreached = "the cluster did not answer the lab"
        broken(run)
        run.checks[-1] = replace(run.checks[-1], late=True)
        no_room(run)

    outcome = proof(tmp_path, steps)
    assert outcome.exit is Exit.NOT_MADE
    assert outcome.results[0].unreached == "the cluster did not answer the lab"


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
