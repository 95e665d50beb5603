"""Goal: what members of a group did is judged with the run, and decides its exit status.

Method: made-up histories of runs with a group, in folders as runs leave them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.lab.group_runs import GroupRun, kept, never_calm, skipping, worse
from tests.lab.test_lab_report import Parsed

from holdfast.judge.groups.verdict import Commits, GroupAnomaly
from holdfast.judge.verdict import Anomaly
from holdfast.lab.journal import HISTORY, MANIFEST, Exit, Journal, write_manifest
from holdfast.lab.outcome import Outcome, PartResult, report_of
from holdfast.lab.parameters import Parameters
from holdfast.lab.prove import judge_part
from holdfast.lab.report.page import render_page
from holdfast.lab.run import Run
from holdfast.lab.scenario import Part, Scenario
from holdfast.lab.soak.group_campaigns import result_of

AFTER = Parameters(commits=Commits.AFTER)
Expected = dict[str, tuple[int, int]]


def nothing(_run: Run) -> None:
    raise AssertionError("no run here")


MAIN = Part(name="main", title="Main", steps=nothing)
CONTROL = Part(
    name="control",
    title="Control",
    steps=nothing,
    change={"commits": Commits.BEFORE},
    breaks_group=GroupAnomaly.SKIPPED,
)


def judged(folder: Path, part: Part, run: GroupRun, expected: Expected | None = None) -> PartResult:
    """Judge a part whose run has left this history."""
    directory = folder / part.name
    run.write(directory / HISTORY)
    write_manifest(folder, "proof")
    Journal(directory).end(folder / MANIFEST, groups_expected=expected)
    return judge_part(part, AFTER, directory)


@pytest.mark.parametrize(
    ("story", "main", "control"),
    [
        (kept, True, False),
        (skipping, False, True),
        (worse, False, False),
        (never_calm, False, False),
    ],
)
def test_a_part_keeps_the_promise_of_groups_and_a_control_breaks_it(
    tmp_path: Path, story: Callable[[], GroupRun], main: bool, control: bool
) -> None:
    result = judged(tmp_path, MAIN, story())
    assert result.as_it_must is main
    assert result.seen_broken is (story in {skipping, worse})
    assert judged(tmp_path / "c", CONTROL, story()).as_it_must is control


def test_a_group_that_skips_breaks_no_control_of_the_log(tmp_path: Path) -> None:
    """Goal: one name, two things: a reader that is passed over is not a group that skips."""
    of_log = replace(CONTROL, breaks_group=None, breaks_with=Anomaly.SKIPPED)
    assert not judged(tmp_path, of_log, skipping()).as_it_must


@pytest.mark.parametrize(
    ("expected", "as_it_must"),
    [
        ({"repeated": (2, 2), "skipped": (0, 0)}, True),
        ({"repeated": (0, 1)}, False),
        ({"processed": (9, 99)}, False),
        ({"skipped": (1, 1)}, False),
    ],
)
def test_counts_of_groups_are_held_against_what_must_be_seen(
    tmp_path: Path, expected: Expected, as_it_must: bool
) -> None:
    result = judged(tmp_path, MAIN, kept(), expected)
    assert result.as_it_must is as_it_must
    assert len(result.checks) == len(expected)


def test_without_a_promise_to_groups_nothing_of_them_is_held_against_a_run(tmp_path: Path) -> None:
    directory = tmp_path / "main"
    skipping().write(directory / HISTORY)
    write_manifest(tmp_path, "proof")
    Journal(directory).end(tmp_path / MANIFEST)
    assert judge_part(MAIN, Parameters(), directory).as_it_must


def test_the_report_shows_what_groups_did_with_evidence(tmp_path: Path) -> None:
    scenario = Scenario(
        name="made-up", summary="Made up.", text="", defaults=AFTER, parts=(MAIN, CONTROL)
    )
    results = (judged(tmp_path, MAIN, kept()), judged(tmp_path / "c", CONTROL, skipping()))
    outcome = Outcome(
        scenario=scenario, parameters=AFTER, exit=Exit.KEPT, verdict="Kept.", results=results,
        directory=tmp_path, report=None,
    )  # fmt: skip
    page = Parsed(render_page(report_of(outcome, "holdfast prove made-up")))
    assert (
        "Nothing is skipped; only what was not committed is processed again." in page.first_screen
    )
    assert "SIGKILL of consumer wa" in page.first_screen
    assert "8 processed" in page.first_screen
    assert "3 skipped, by groups" in page.first_screen
    assert "in the log, behind it was committed or processed, and nobody did it" in page.text
    assert "✗ 3 skipped, by a group" in page.text
    assert "g: foo-0: nobody processed offsets 1 to 3, and 6 is reached" in page.text
    assert "wa group_commit group=g partition=0 id=n1 offset=4" in page.text
    assert "again, as allowed" in page.text
    values = outcome.as_json()
    json.dumps(values)
    main, control = values["parts"]
    assert main["groups"]["counts"]["repeated"] == 2
    assert control["groups"]["broken"] == ["skipped"]


def test_parameters_with_groups_come_back_from_a_file() -> None:
    assert Parameters.from_json(json.loads(json.dumps(AFTER.as_json()))) == AFTER
    assert Parameters.from_json(json.loads(json.dumps(Parameters().as_json()))) == Parameters()
    old = Parameters().as_json()
    del old["commits"]
    assert Parameters.from_json(old) == Parameters()


@pytest.mark.parametrize(
    ("story", "broke_off", "kept_", "words"),
    [
        (kept, None, True, "8 processed, 2 again, 0 skipped"),
        (skipping, None, False, "3 skipped"),
        (skipping, "too busy", False, "It broke off: too busy"),
        (kept, "too busy", None, "could not be made: too busy"),
        (never_calm, None, None, "never left in peace"),
    ],
)
def test_a_long_run_of_a_group_is_kept_broken_or_not_made(
    story: Callable[[], GroupRun], broke_off: str | None, kept_: bool | None, words: str
) -> None:
    row = result_of(story().evidence(), AFTER, [], broke_off)
    assert row["kept"] is kept_
    assert words in row["verdict"]
    json.dumps(row)


def test_a_failed_check_breaks_a_long_run() -> None:
    assert result_of(kept().evidence(), AFTER, ["at the end"], None)["kept"] is False
