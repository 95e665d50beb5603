"""Goal: what members of a group did is judged with the run, and decides its exit status.

Method: made-up histories of runs with a group, in folders as runs leave them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from tests.lab.group_runs import RECORDS, GroupRun, kept, never_calm, skipping, worse
from tests.lab.test_lab_report import Parsed

from holdfast.judge.groups.history import GROUP_KINDS
from holdfast.judge.groups.verdict import Commits, GroupAnomaly
from holdfast.judge.history import Delivered
from holdfast.judge.verdict import Anomaly, Observed
from holdfast.lab.journal import HISTORY, MANIFEST, Exit, Journal, write_manifest
from holdfast.lab.outcome import Outcome, PartResult, report_of
from holdfast.lab.parameters import Parameters
from holdfast.lab.prove import _verdict, judge_part
from holdfast.lab.report.groups import observed_text
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


def outcome_of(folder: Path, results: Sequence[PartResult]) -> Outcome:
    scenario = Scenario(
        name="made-up", summary="Made up.", text="", defaults=AFTER, parts=(MAIN, CONTROL)
    )
    return Outcome(
        scenario=scenario, parameters=AFTER, exit=Exit.KEPT, verdict="Kept.",
        results=tuple(results), directory=folder, report=None,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("story", "main", "control", "why_not"),
    [
        (kept, True, False, "nothing was skipped"),
        (skipping, False, True, ""),
        (worse, False, False, "besides, there was: .*by a group"),
        (never_calm, False, False, "not decided: "),
    ],
)
def test_a_part_keeps_the_promise_of_groups_and_a_control_breaks_it(
    tmp_path: Path, story: Callable[[], GroupRun], main: bool, control: bool, why_not: str
) -> None:
    result = judged(tmp_path, MAIN, story())
    assert result.as_it_must is main
    assert result.seen_broken is (story in {skipping, worse})
    result = judged(tmp_path / "c", CONTROL, story())
    assert result.as_it_must is control
    assert control or re.match(why_not, result.why_not)


def test_a_run_without_its_group_proves_nothing(tmp_path: Path) -> None:
    """Goal: what nobody has written down was not seen, and so not kept."""
    run = kept()
    run.events = [event for event in run.events if event.KIND not in GROUP_KINDS]
    result = judged(tmp_path, MAIN, run)
    assert not result.as_it_must
    assert "the history speaks of none" in result.sentence()
    assert _verdict([result], None)[0] is Exit.NOT_MADE
    assert (
        "Not decided: groups are promised something"
        in Parsed(render_page(report_of(outcome_of(tmp_path, [result]), "x"))).text
    )
    without = replace(MAIN, change={"commits": None})
    assert judged(tmp_path / "none", without, run).as_it_must


def test_a_group_that_did_nothing_proves_nothing(tmp_path: Path) -> None:
    run = GroupRun()
    run.join("a").own("a", 1, 6)
    result = judged(tmp_path, MAIN, run.end())
    assert not result.as_it_must
    assert "g: its members processed nothing" in result.undecided


def test_what_an_excuse_was_used_for_stands_in_the_sentence(tmp_path: Path) -> None:
    run = GroupRun()
    run.join("a").own("a").do("a", 0).revoke("a").commit("", 3).own("a", 2, 3).do("a", 3, 4, 5)
    assert "an operator passed over 2" in judged(tmp_path, MAIN, run.end()).sentence()


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
    results = (judged(tmp_path, MAIN, kept()), judged(tmp_path / "c", CONTROL, skipping()))
    outcome = outcome_of(tmp_path, results)
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


@pytest.mark.parametrize(
    ("story", "words"),
    [
        (kept, "Observed: exactly once in the log, at least once by groups."),
        (skipping, "Observed: exactly once in the log, at most once by groups."),
        (never_calm, "Observed: exactly once in the log, undecided by groups (g: foo-0: it"),
    ],
)
def test_what_groups_saw_is_not_what_the_log_has(
    tmp_path: Path, story: Callable[[], GroupRun], words: str
) -> None:
    """Goal: nobody reads "exactly once" where a group has skipped records."""
    assert words in judged(tmp_path, MAIN, story()).sentence()


def test_what_clients_do_by_themselves_is_counted_in_its_part_alone(tmp_path: Path) -> None:
    """Goal: records that a client sends again in another epoch are not the cluster's doing."""
    run = kept()
    end = run.events.pop()
    run.add(Delivered, "final", offset=RECORDS, id="p:0", digest="d")
    run.add(type(end), "final", begin=0, end=RECORDS + 1)
    counted = replace(
        MAIN,
        counted=frozenset({Anomaly.DUPLICATED}),
        counted_of=frozenset({"p"}),
        because="Clients do so.",
    )
    result = judged(tmp_path, counted, run)
    assert not result.broken
    assert "1 duplicated" in result.sentence()
    page = Parsed(render_page(report_of(outcome_of(tmp_path, [result]), "x")))
    assert "Clients do so." in page.text
    assert "not forbidden" in page.text
    assert judged(tmp_path / "other", MAIN, run).broken == (Anomaly.DUPLICATED,)


def test_a_broken_check_is_named_in_the_verdict(tmp_path: Path) -> None:
    result = judged(tmp_path, MAIN, kept(), {"repeated": (0, 1)})
    code, text = _verdict([result], None)
    assert code is Exit.BROKEN
    assert text.startswith("Broken (Main: not so: records of groups: repeated).")


def test_what_is_skipped_and_done_again_is_neither() -> None:
    run = GroupRun()
    run.join("a").own("a").do("a", 0, 1, 3).commit("a", 2).fault("a", "KILL")
    run.join("b", 2).own("b", 2, 2).do("b", 3, 4, 5)
    evidence = run.end().evidence()
    assert evidence.groups.observed is Observed.NEITHER
    assert "neither (skipped, and done again) by groups" in observed_text(evidence)


def test_a_control_says_by_what_it_failed(tmp_path: Path) -> None:
    results = [judged(tmp_path, MAIN, kept()), judged(tmp_path / "c", CONTROL, skipping())]
    code, text = _verdict(results, None)
    assert code is Exit.KEPT
    assert text.endswith("The control failed, as it must (Control: 3 skipped by groups).")


def test_a_failed_check_breaks_a_long_run() -> None:
    assert result_of(kept().evidence(), AFTER, ["at the end"], None)["kept"] is False


@pytest.mark.parametrize(
    ("engine", "words"),
    [("embedded", "Made up."), ("apache", "Made up. Nodes are Apache Kafka's.")],
)
def test_a_report_says_at_its_top_whose_nodes_it_is_about(
    tmp_path: Path, engine: str, words: str
) -> None:
    outcome = outcome_of(tmp_path, [judged(tmp_path, MAIN, kept())])
    there = replace(outcome, parameters=replace(AFTER, engine=engine))
    assert report_of(there, "x").summary == words
