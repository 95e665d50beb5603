"""Goal: two folders of `prove --all` are held against each other, and nothing is run for it.

Method: verdicts by hand in two folders; what the command prints, its page, its status and JSON.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.lab.browser import Browser, chromium
from tests.lab.test_lab_matrix import GROUNDS, SETTINGS, verdict
from tests.lab.test_lab_matrix_page import PUSHED, text_of
from tests.lab.test_lab_report_chromium import DESK, SIZES, SMALLEST_PX, TELEPHONE

from holdfast.cli.proving import prove_all, prove_beside
from holdfast.lab import matrix
from holdfast.lab.journal import Exit

if TYPE_CHECKING:
    from tests.cli.conftest import Run

NAMES = ["rack-loss", "retention", "split-brain"]


def folder(
    directory: Path,
    exits: dict[str, Exit],
    *,
    engine: str = "embedded",
    grounds: matrix.Grounds = GROUNDS,
    **changes: Any,
) -> Path:
    """Make a folder as `prove --all` leaves it, with these verdicts of one engine more."""
    for name, exit_ in exits.items():
        told = {Exit.KEPT: "Kept: all is there.", Exit.BROKEN: "Broken: 3 lost."}[exit_]
        verdict(directory, engine, name, exit_, grounds, **{"verdict": told, **changes})
    found = [
        matrix.row_of(directory, file.parent.parent.name, file.parent.name)
        for file in sorted(directory.glob("*/*/verdict.json"))
    ]
    matrix.write(directory, [row for row in found if row is not None], {})
    return directory


def part(**changes: Any) -> dict[str, Any]:
    return {
        "control": False,
        "share_acknowledged": 0.98,
        "gap_ms_longest": 3000.0,
        "gap_held_ms": 0.0,
        "recovered_ms_longest": None,
        "recovered_held_ms": None,
        "starved": None,
        **changes,
    }


@pytest.fixture
def today(tmp_path: Path) -> Path:
    exits = dict.fromkeys(NAMES, Exit.KEPT)
    return folder(tmp_path / "today", exits, parts=[part()])


@pytest.fixture
def before(tmp_path: Path) -> Path:
    slower = part(share_acknowledged=0.935, gap_ms_longest=1500.0)
    exits = {"retention": Exit.BROKEN, "rack-loss": Exit.KEPT, "disk-lost": Exit.KEPT}
    return folder(tmp_path / "last week", exits, parts=[slower])


@pytest.fixture(autouse=True)
def _nothing_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: Any, **__: Any) -> None:
        raise AssertionError("it ran something")

    monkeypatch.setattr(prove_all, "prove", never)
    monkeypatch.setattr(prove_all, "prove_all", never)


def beside(run: Run, one: Path, other: Path, *more: str) -> Any:
    return run("prove", "--all", "--output", str(one), "--beside", str(other), *more)


def test_what_differs_in_verdict_is_printed(run: Run, today: Path, before: Path) -> None:
    outcome = beside(run, today, before)
    assert outcome.status == 1, "as of diff: something differs"
    assert outcome.errors == ""
    lines = outcome.output.splitlines()
    assert lines[0] == "1 of 2 verdicts differs:"
    assert lines[1] == "  retention on embedded: kept in today, broken in last week"
    alone = "Not compared: split-brain on embedded (only in today), disk-lost on embedded (only in "
    assert any(line.startswith(alone) for line in lines)
    assert lines[-1] == f"Page:    {today / prove_beside.PAGE}"
    assert (today / prove_beside.PAGE).exists()
    assert not (before / prove_beside.PAGE).exists()


def test_the_same_verdicts_end_well(run: Run, today: Path, tmp_path: Path) -> None:
    other = folder(tmp_path / "other", dict.fromkeys(NAMES, Exit.KEPT))
    outcome = beside(run, today, other)
    assert outcome.status == 0
    assert outcome.output.startswith("None of 3 verdicts differs.\n")


def test_the_page_has_both_values_and_what_became_of_them(
    run: Run, today: Path, before: Path
) -> None:
    beside(run, today, before)
    page = (today / prove_beside.PAGE).read_text()
    text = text_of(page)
    assert page.count("<table") == 1
    assert page.index('id="embedded-retention"') < page.index('id="embedded-rack-loss"')
    assert "|98.0 %|93.5 %|+4.5 points|" in text
    assert "|3.00 s|1.50 s|2.00 times|" in text
    assert "|-|-|-|" in text, "nobody has recovered"
    assert "|retention|: kept in today, broken in last week|" in text
    assert 'href="embedded/retention/report.html"' in page
    assert 'href="../last%20week/embedded/retention/report.html"' in page
    assert "Broken: 3 lost." in text
    assert 'id="embedded-disk-lost"' not in page
    assert "disk-lost" in text


def test_machines_are_told_the_same(run: Run, today: Path, before: Path) -> None:
    outcome = beside(run, today, before, "--json")
    assert outcome.status == 1
    told = json.loads(outcome.output)
    assert told["folders"] == [str(today), str(before)]
    assert (told["compared"], told["differ"]) == (2, 1)
    assert told["alone"] == [["split-brain on embedded"], ["disk-lost on embedded"]]
    first = told["rows"][0]
    assert first["scenario"] == "retention"
    assert first["engines"] == ["embedded", "embedded"]
    assert first["verdicts"] == ["kept", "broken"]
    assert first["differs"] is True
    assert first["share_acknowledged"] == [0.98, 0.935]
    assert first["share_difference"] == pytest.approx(0.045)
    assert first["gap_ms"] == [3000.0, 1500.0]
    assert first["gap_ratio"] == 2.0
    assert first["recovered_ms"] == [None, None]
    assert first["recovered_ratio"] is None
    assert first["settings"] == {}
    assert first["same_code"] is True


def test_one_engine_is_held_against_another(run: Run, today: Path, tmp_path: Path) -> None:
    """Method: a folder of ours, and one of Apache Kafka's, have no engine in common."""
    theirs = replace(GROUNDS, engine_version="4.3.1")
    exits = {"rack-loss": Exit.BROKEN, "retention": Exit.KEPT}
    other = folder(tmp_path / "theirs", exits, engine="apache", grounds=theirs)
    outcome = beside(run, today, other)
    kept, broken = "kept in today (embedded)", "broken in theirs (Apache Kafka 4.3.1)"
    assert f"  rack-loss: {kept}, {broken}\n" in outcome.output
    text = text_of((today / prove_beside.PAGE).read_text())
    assert "|today (embedded)|theirs (Apache Kafka 4.3.1)|" in text


def test_engines_in_common_are_each_held_against_themselves(
    run: Run, today: Path, tmp_path: Path
) -> None:
    """Method: Apache Kafka's rows are in one of them alone, and are not compared; then in both."""
    theirs = replace(GROUNDS, engine_version="4.3.1")
    exits = dict.fromkeys(NAMES, Exit.KEPT)
    folder(today, {"rack-loss": Exit.BROKEN}, engine="apache", grounds=theirs)
    other = folder(tmp_path / "other", exits)
    outcome = beside(run, today, other)
    assert outcome.status == 0
    assert "Not compared: all on Apache Kafka 4.3.1 (only in today)." in outcome.output
    folder(other, exits, engine="apache", grounds=replace(theirs, engine_version="4.4.0"))
    outcome = beside(run, today, other)
    assert outcome.output.startswith("1 of 4 verdicts differs:\n  rack-loss on apache: broken in")
    assert "Apache Kafka 4.3.1 | Apache Kafka 4.4.0" in outcome.output
    outcome = beside(run, today, other, "--engine", "embedded")
    assert outcome.output.startswith("None of 3 verdicts differs.\n")


def test_what_else_is_not_the_same_is_said(run: Run, today: Path, tmp_path: Path) -> None:
    """Goal: nobody takes another code, version or setting for a change of the cluster's."""
    exits = dict.fromkeys(NAMES, Exit.KEPT)
    newer = replace(GROUNDS, python="3.12.1")
    other = folder(tmp_path / "other", exits, grounds=newer, settings=SETTINGS | {"acks": "1"})
    stamp = matrix.folder_of(other, "embedded", "retention")
    matrix.stamp(stamp, "another code", newer, with_controls=False)
    folder(other, {})
    outcome = beside(run, today, other)
    assert outcome.status == 0
    assert "The code is another one in 1 of 3.\n" in outcome.output
    assert "Made with: Python 3.11.9 | Python 3.12.1.\n" in outcome.output
    assert (
        "Other settings: acks all | 1 (in 3), its control run | left out (in 1)." in outcome.output
    )
    text = text_of((today / prove_beside.PAGE).read_text())
    assert "acks all | 1" in text
    assert "its control run | left out" in text
    assert "Python 3.11.9 | Python 3.12.1" in text


def test_a_folder_of_an_older_version_is_read_as_far_as_it_goes(
    run: Run, today: Path, before: Path
) -> None:
    """Method: times that were held were not told once, nor grounds; and something is new."""
    rows = json.loads((before / matrix.MATRIX).read_bytes())
    for row in rows:
        del row["gap_held_ms"], row["gap_ms"], row["grounds"]
        row["of tomorrow"] = 1
    (before / matrix.MATRIX).write_text(json.dumps(rows))
    outcome = beside(run, today, before)
    assert outcome.status == 1
    assert "last week was written by another version, which doesn't say: gap_ms, " in outcome.output
    assert "|3.00 s|-|-|" in text_of((today / prove_beside.PAGE).read_text())


def test_a_row_that_was_not_made_has_no_report_and_differs(
    run: Run, today: Path, before: Path
) -> None:
    crashed = matrix.not_made(before, "embedded", "rack-loss", "It crashed.")
    matrix.write(before, [crashed], {})
    outcome = beside(run, today, before)
    assert "  rack-loss on embedded: kept in today, not made in last week\n" in outcome.output
    assert "Other settings" not in outcome.output, "nobody knows with which it began"
    assert "The code is" not in outcome.output
    assert "It crashed." in text_of((today / prove_beside.PAGE).read_text())


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (None, "there is no such folder"),
        ("", "has no matrix.json that `prove --all` has written"),
        ('[{"title": "a film"}]', "has no matrix.json that `prove --all` has written"),
        ("[]", "there is no verdict in it yet"),
        (
            '[{"scenario": "a", "engine": "b", "exit": 9, "verdict": ""}]',
            "has no matrix.json that `prove --all` has written",
        ),
        (
            '[{"scenario": "a", "engine": "b", "exit": 0, "verdict": "", "gap_ms": "long"}]',
            "has no matrix.json that `prove --all` has written",
        ),
        (
            '[{"scenario": "a", "engine": ["b"], "exit": 0, "verdict": ""}]',
            "has no matrix.json that `prove --all` has written",
        ),
    ],
)
def test_a_folder_of_something_else_is_refused(
    run: Run, today: Path, tmp_path: Path, text: str | None, told: str
) -> None:
    other = tmp_path / "other"
    if text is not None:
        other.mkdir()
        (other / matrix.MATRIX).write_text(text)
    outcome = beside(run, today, other)
    assert (outcome.status, outcome.output) == (2, "")
    assert f"--beside {other}: " in outcome.errors
    assert told in outcome.errors
    assert not (today / prove_beside.PAGE).exists()


@pytest.mark.parametrize(
    "change",
    [
        {"grounds": "wires"},
        {"grounds": {"network": "wires"}},
        {"grounds": {"librdkafka": 2}},
        {"grounds": {"engine_version": 4}},
        {"settings": ["acks"]},
        {"settings": {"acks": 1}},
        {"gap_ms": float("nan")},
        {"gap_held_ms": True},
        {"exit": True},
        {"promise": 5},
        {"verdict": None},
        {"starved": None},
        {"code": 7},
        {"with_controls": "no"},
    ],
    ids=str,
)
def test_a_row_of_another_kind_is_refused_and_ends_in_no_traceback(
    run: Run, today: Path, before: Path, change: dict[str, Any]
) -> None:
    """Seen to fail: tracebacks, and a page with "librdkafka None"."""
    rows = json.loads((before / matrix.MATRIX).read_bytes())
    if isinstance(grounds := change.get("grounds"), dict):
        change = {"grounds": rows[0]["grounds"] | grounds}
    rows[0] |= change
    (before / matrix.MATRIX).write_text(json.dumps(rows))
    outcome = beside(run, today, before)
    assert (outcome.status, outcome.output) == (2, "")
    assert "has no matrix.json that `prove --all` has written" in outcome.errors


def test_grounds_that_are_not_all_told_are_told_of_nobody(
    run: Run, today: Path, before: Path
) -> None:
    rows = json.loads((before / matrix.MATRIX).read_bytes())
    for row in rows:
        del row["grounds"]["librdkafka"]
    (before / matrix.MATRIX).write_text(json.dumps(rows))
    outcome = beside(run, today, before)
    assert outcome.status == 1
    assert "last week was written by another version, which doesn't say: grounds." in outcome.output
    assert "None" not in outcome.output.replace("None of", "")


def test_what_is_broken_stands_before_what_was_not_made(run: Run, tmp_path: Path) -> None:
    codes = {"rack-loss": Exit.NOT_MADE, "retention": Exit.BROKEN, "split-brain": Exit.KEPT}
    for name, codes_there in {"one": codes, "other": dict.fromkeys(codes, Exit.KEPT)}.items():
        for scenario, code in codes_there.items():
            verdict(tmp_path / name, "embedded", scenario, code)
        found = [matrix.row_of(tmp_path / name, "embedded", scenario) for scenario in codes]
        matrix.write(tmp_path / name, [row for row in found if row is not None], {})
    lines = beside(run, tmp_path / "one", tmp_path / "other").output.splitlines()
    assert [line.split()[0] for line in lines[1:3]] == ["retention", "rack-loss"]


def test_two_engines_are_of_two_codes_and_versions_and_nobody_says_so(
    run: Run, today: Path, tmp_path: Path
) -> None:
    """Their titles say which they are; the change of a code would be said of each row."""
    grounds = replace(GROUNDS, engine_version="4.3.1")
    theirs = dict.fromkeys(NAMES, Exit.KEPT)
    there = folder(tmp_path / "there", theirs, engine="apache", grounds=grounds)
    for row in (found := json.loads((there / matrix.MATRIX).read_bytes())):
        row["code"] = "another"
    (there / matrix.MATRIX).write_text(json.dumps(found))
    output = beside(run, today, there).output
    assert "The code is" not in output
    assert "Made with" not in output


@pytest.mark.parametrize(
    ("now", "then", "much"),
    [(2.0, 1.0, True), (1.0, 2.0, True), (1.9, 1.0, False), (1.0, 1.9, False), (1.0, None, False)],
)
def test_what_is_twice_as_long_or_half_as_long_is_much(
    now: float, then: float | None, much: bool
) -> None:
    assert prove_beside.is_much(now, then) is much


def test_a_folder_that_nothing_was_run_into_says_how(run: Run, today: Path, tmp_path: Path) -> None:
    """Goal: --beside runs nothing, so what has to be run first is said."""
    outcome = beside(run, tmp_path / "new one", today)
    assert (outcome.status, outcome.output) == (2, "")
    assert f"--output {tmp_path / 'new one'}: there is no such folder" in outcome.errors
    assert f"`holdfast prove --all --output '{tmp_path / 'new one'}'` runs" in outcome.errors
    assert not (tmp_path / "new one").exists()


def test_a_folder_beside_itself_is_refused(run: Run, today: Path, tmp_path: Path) -> None:
    """Method: also by another name."""
    link = tmp_path / "link"
    link.symlink_to(today)
    for other in (today, link):
        outcome = beside(run, today, other)
        assert (outcome.status, outcome.output) == (2, "")
        assert "it is the same folder" in outcome.errors
        assert str(today / matrix.PAGE) in outcome.errors


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--engine", "apache"], "no verdict of apache; it has embedded"),
        (["--engine", ""], "no verdict of ''; it has embedded"),
        (["--no-control"], "--no-control has no effect with --beside"),
        (["--profile", "kafka"], "--profile has no effect with --beside and --output"),
        (["--profile", "fast"], "--profile has no effect with --beside and --output"),
    ],
)
def test_what_can_t_be_compared_is_refused(
    run: Run, today: Path, before: Path, words: list[str], told: str
) -> None:
    outcome = beside(run, today, before, *words)
    assert (outcome.status, outcome.output) == (2, "")
    assert told in outcome.errors


def test_a_page_that_can_t_be_written_is_said(run: Run, today: Path, before: Path) -> None:
    """Method: a folder is where the page would be."""
    (today / prove_beside.PAGE).mkdir()
    outcome = beside(run, today, before)
    assert (outcome.status, outcome.output) == (2, "")
    assert f"{today / prove_beside.PAGE} can't be written: " in outcome.errors


def test_a_profile_that_there_is_not_is_refused_without_a_folder_too(
    run: Run, before: Path
) -> None:
    outcome = run("prove", "--all", "--profile", "fast", "--beside", str(before))
    assert (outcome.status, outcome.output) == (2, "")
    assert "--profile fast: it is lab or kafka." in outcome.errors


def test_what_was_made_in_neither_is_no_agreement(run: Run, tmp_path: Path) -> None:
    """Seen to fail: two folders in which nothing could be made had no verdict that differs."""
    runs = {"rack-loss": Exit.NOT_MADE, "retention": Exit.KEPT}
    for name in ("one", "other"):
        for scenario, code in runs.items():
            verdict(tmp_path / name, "embedded", scenario, code)
        rows = [matrix.row_of(tmp_path / name, "embedded", scenario) for scenario in runs]
        matrix.write(tmp_path / name, [row for row in rows if row is not None], {})
    done = beside(run, tmp_path / "one", tmp_path / "other")
    assert done.status == 2
    assert "None of 1 verdicts differs." in done.output
    assert "1 of 2 not made in both, which shows nothing: rack-loss on embedded." in done.output
    page = text_of((tmp_path / "one" / prove_beside.PAGE).read_text())
    assert "No verdict differs|The one that was made has the same in both." in page
    assert "Nothing is shown|Not made in both:|rack-loss|" in page


def test_folders_that_share_nothing_are_refused(run: Run, today: Path, tmp_path: Path) -> None:
    other = folder(tmp_path / "other", {"disk-lost": Exit.KEPT})
    outcome = beside(run, today, other)
    assert outcome.status == 2
    assert "no scenario is in both" in outcome.errors
    theirs = folder(tmp_path / "theirs", {"rack-loss": Exit.KEPT}, engine="apache")
    folder(theirs, {"controller-down": Exit.KEPT}, engine="apache-3.9")
    outcome = beside(run, today, theirs)
    assert outcome.status == 2
    assert "they have no engine in common" in outcome.errors
    assert "--engine embedded,apache" in outcome.errors
    assert beside(run, today, theirs, "--engine", "embedded,apache").status == 0


def test_beside_goes_with_all(run: Run, tmp_path: Path) -> None:
    for words in (["rack-loss"], [], ["--list"]):
        outcome = run("prove", *words, "--beside", str(tmp_path))
        assert (outcome.status, outcome.output) == (2, "")
        assert "--beside" in outcome.errors or "leave the rest out" in outcome.errors


def test_two_folders_of_one_name_are_told_apart(run: Run, tmp_path: Path) -> None:
    exits = {"rack-loss": Exit.KEPT}
    one, other = (folder(tmp_path / day / "out", exits) for day in ("monday", "friday"))
    outcome = beside(run, one, other)
    assert outcome.output.startswith("The one verdict is the same in both.\n")
    text = text_of((one / prove_beside.PAGE).read_text())
    assert "|monday/out|friday/out|" in text


@pytest.mark.parametrize(
    ("now", "then", "told"),
    [
        (3000.0, 1500.0, "2.00 times"),
        (3000.0, 3010.0, "1.00 times"),
        (10.0, 3000.0, "0.003 times"),
        (3000.0, 10.0, "300 times"),
        (3000.0, 0.0, "-"),
        (0.0, 3000.0, "0 times"),
        (None, 3000.0, "-"),
        (3000.0, None, "-"),
    ],
)
def test_times_have_a_ratio(now: float | None, then: float | None, told: str) -> None:
    assert prove_beside.times(now, then) == told


@pytest.mark.parametrize(
    ("now", "then", "told"),
    [
        (0.98, 0.935, "+4.5 points"),
        (0.5, 1.0, "-50.0 points"),
        (1.0, 1.0, "0"),
        (1.0, 0.99999, "+0.001 points"),
        (None, 0.99999, "-"),
    ],
)
def test_shares_have_a_difference(now: float | None, then: float | None, told: str) -> None:
    assert prove_beside.points(now, then) == told


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.chromium
@pytest.mark.skipif(chromium() is None, reason="Debian's chromium is not installed")
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("screen", [DESK, TELEPHONE], ids=["desk", "telephone"])
def test_a_person_can_read_them_side_by_side(
    run: Run, browser: Browser, today: Path, before: Path, screen: tuple[int, int], *, dark: bool
) -> None:
    beside(run, today, before)
    width, height = screen
    browser.open(today / prove_beside.PAGE, width=width, height=height, dark=dark)
    assert browser.ask("document.documentElement.scrollWidth") <= width, "it must be pushed aside"
    assert browser.ask(PUSHED) == []
    assert browser.ask(SIZES)[0][0] >= SMALLEST_PX
    tops = browser.ask(
        "Array.from(document.querySelectorAll('#embedded-retention .badge'))"
        ".map((each) => Math.round(each.getBoundingClientRect().top))"
    )
    assert len(tops) == 2
    assert len(set(tops)) == 1, "one is below the other"
    assert browser.ask("document.querySelector('.callout').getBoundingClientRect().bottom") < height


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.chromium
@pytest.mark.skipif(chromium() is None, reason="Debian's chromium is not installed")
@pytest.mark.parametrize("width", [TELEPHONE[0], 320])
def test_long_names_of_folders_push_nothing_aside(
    run: Run, browser: Browser, tmp_path: Path, width: int
) -> None:
    """Seen to fail: at 38 letters the page was wider than a telephone; at 320 px badges clipped."""
    exits = dict.fromkeys(NAMES, Exit.BROKEN)
    one = folder(tmp_path / ("x" * 38), exits)
    other = folder(tmp_path / ("2026-11-22-" + "nightly" * 6), dict.fromkeys(NAMES, Exit.KEPT))
    not_made = matrix.not_made(other, "embedded", "rack-loss", "It crashed.")
    rows = [matrix.row_of(other, "embedded", name) for name in NAMES[1:]]
    matrix.write(other, [not_made, *(row for row in rows if row is not None)], {})
    assert beside(run, one, other).status == 1
    browser.open(one / prove_beside.PAGE, width=width, height=844, dark=False)
    assert browser.ask("document.documentElement.scrollWidth") <= width, "it must be pushed aside"
    assert browser.ask(PUSHED) == []
    assert browser.ask(SIZES)[0][0] >= SMALLEST_PX
