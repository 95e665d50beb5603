"""Goal: the page of all scenarios is one table, where engines stand side by side.

Method: verdicts by hand in a folder; the page's text, and what a Chromium makes of it on a desk and
on a telephone, light and dark.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.lab.browser import Browser, chromium
from tests.lab.test_lab_matrix import GROUNDS, verdict
from tests.lab.test_lab_report_chromium import DESK, SIZES, SMALLEST_PX, TELEPHONE

from holdfast.judge.promise import promise_for
from holdfast.lab import matrix
from holdfast.lab.journal import Exit
from holdfast.lab.scenario import DRAWN, SCENARIOS, load_scenario

THEIRS = replace(GROUNDS, engine_version="4.3.1")
OLDER = replace(GROUNDS, engine_version="3.9.1")
PROMISE = load_scenario("rack-loss").with_flags({}).promise_text


def text_of(page: str) -> str:
    """Return what a page says, a bar for each row of tags and white space."""
    return re.sub(r"\s*(<[^>]*>\s*)+", "|", page[page.index("<main>") :])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two scenarios on two engines, one of which differs, and one on a third engine alone."""
    for engine, exit_, grounds in (
        ("embedded", Exit.KEPT, GROUNDS),
        ("apache", Exit.BROKEN, THEIRS),
    ):
        verdict(tmp_path, engine, "retention", Exit.KEPT, grounds, promise=PROMISE)
        told = "It was so." if exit_ is Exit.KEPT else "Broken: 3 lost."
        verdict(tmp_path, engine, "rack-loss", exit_, grounds, promise=PROMISE, verdict=told)
        verdict(tmp_path, engine, "controller-down", Exit.KEPT, grounds, promise=PROMISE)
    verdict(tmp_path, "apache-3.9", "controller-down", Exit.KEPT, OLDER, promise=PROMISE)
    return tmp_path


def rows_in(folder: Path) -> list[matrix.Row]:
    found = [
        matrix.row_of(folder, engine, name)
        for engine in ("embedded", "apache", "apache-3.9")
        for name in ("retention", "rack-loss", "controller-down")
    ]
    return [row for row in found if row is not None]


def test_a_scenario_is_one_row_of_one_table(folder: Path) -> None:
    page = matrix.write(folder, rows_in(folder), {}).read_text()
    assert page.count("<table") == 1
    for name in ("retention", "rack-loss", "controller-down"):
        assert page.count(f'<tr id="{name}"') == 1
        for engine in ("embedded", "apache"):
            assert page.count(f'href="{engine}/{name}/report.html"') == 1
    assert 'href="apache-3.9/controller-down/report.html"' in page
    assert "|embedded|Apache Kafka 4.3.1|" in text_of(page)


def test_where_engines_differ_is_first_and_said_in_words(folder: Path) -> None:
    """Method: the one that differs was run second."""
    page = matrix.write(folder, rows_in(folder), {}).read_text()
    text = text_of(page)
    assert "|rack-loss|: kept on embedded, broken on Apache Kafka 4.3.1|" in text
    assert page.index('<tr id="rack-loss"') < page.index('<tr id="retention"')
    assert "Broken: 3 lost." in text
    assert "|Engines agree|" not in text


def test_engines_that_agree_are_said_to(folder: Path) -> None:
    rows = [row for row in rows_in(folder) if row.scenario != "rack-loss"]
    text = text_of(matrix.write(folder, rows, {}).read_text())
    assert "Engines agree" in text
    assert "Engines differ" not in text
    alone = [row for row in rows if row.engine == "embedded"]
    assert "Engines" not in text_of(matrix.write(folder, alone, {}).read_text())


def rows_of(tmp_path: Path, runs: dict[tuple[str, str], Exit]) -> list[matrix.Row]:
    for (engine, name), code in runs.items():
        verdict(tmp_path, engine, name, code, GROUNDS if engine == "embedded" else THEIRS)
    rows = [matrix.row_of(tmp_path, *run) for run in runs]
    return [row for row in rows if row is not None]


def test_engines_that_have_shown_nothing_do_not_agree(tmp_path: Path) -> None:
    """Seen to fail: two engines on which nothing could be made agreed, in green."""
    runs = {(engine, "rack-loss"): Exit.NOT_MADE for engine in ("embedded", "apache")}
    text = text_of(matrix.write(tmp_path, rows_of(tmp_path, runs), {}).read_text())
    assert "Engines agree" not in text
    assert "|Nothing is shown|Not made on any engine:|rack-loss|" in text
    runs |= {(engine, "retention"): Exit.KEPT for engine in ("embedded", "apache")}
    text = text_of(matrix.write(tmp_path, rows_of(tmp_path, runs), {}).read_text())
    assert "Engines agree|The same verdict in the one scenario that" in text
    assert "Not made on any engine:|rack-loss|" in text
    alone = rows_of(tmp_path, {("embedded", "rack-loss"): Exit.NOT_MADE})
    assert "Nothing is shown" not in text_of(matrix.write(tmp_path, alone, {}).read_text())


def test_what_one_engine_alone_could_not_make_is_a_difference(tmp_path: Path) -> None:
    """Goal: what the other one has shown is not called nothing."""
    runs = {("embedded", "rack-loss"): Exit.KEPT, ("apache", "rack-loss"): Exit.NOT_MADE}
    rows = rows_of(tmp_path, runs)
    text = text_of(matrix.write(tmp_path, rows, {}).read_text())
    assert "Nothing is shown" not in text
    line = matrix.Line(scenario="rack-loss", rows=rows)
    assert (line.differs, line.shows_nothing, line.agrees) == (True, False, False)


def test_the_worst_of_all_rows_is_what_they_come_to(tmp_path: Path) -> None:
    codes = {"rack-loss": Exit.NOT_MADE, "retention": Exit.BROKEN, "split-brain": Exit.KEPT}
    rows = rows_of(tmp_path, {("embedded", name): code for name, code in codes.items()})
    assert matrix.worst(rows) is Exit.BROKEN
    assert matrix.worst([rows[0], rows[2]]) is Exit.NOT_MADE
    assert matrix.worst(rows[2:]) is Exit.KEPT


def test_where_both_broken_and_not_made_differ_what_is_broken_stands_first(tmp_path: Path) -> None:
    runs = {
        ("embedded", "rack-loss"): Exit.NOT_MADE,
        ("embedded", "retention"): Exit.KEPT,
        ("apache", "rack-loss"): Exit.KEPT,
        ("apache", "retention"): Exit.BROKEN,
    }
    page = matrix.write(tmp_path, rows_of(tmp_path, runs), {}).read_text()
    assert page.index('href="#retention"') < page.index('href="#rack-loss"')
    assert '<div class="callout verdict broken">' in page


@pytest.mark.parametrize("with_controls", [(True, True), (True, False), (False, False)])
def test_the_page_says_which_controls_were_left_out(
    tmp_path: Path, with_controls: tuple[bool, bool]
) -> None:
    """Seen to fail: of runs with --no-control it said that each has a control, which must fail."""
    names = ("rack-loss", "retention")
    rows = rows_of(tmp_path, {("embedded", name): Exit.KEPT for name in names})
    rows = [replace(row, with_controls=has) for row, has in zip(rows, with_controls, strict=True)]
    rows.append(matrix.not_made(tmp_path, "embedded", "split-brain", "It crashed."))
    text = text_of(matrix.write(tmp_path, rows, {}).read_text())
    assert ("each has a control, which must fail." in text) == all(with_controls)
    assert ("Their controls, which must fail, were left out" in text) == (not any(with_controls))
    left_out = text.count("Its control was left out (--no-control).")
    assert left_out == (1 if len({*with_controls}) > 1 else 0)


def test_the_page_says_what_could_not_be_run_here(tmp_path: Path) -> None:
    """Seen to fail: without Spark the page had eight scenarios less, and no word of them."""
    rows = rows_of(tmp_path, {("embedded", "rack-loss"): Exit.KEPT})
    unplanned = {"there is no pyspark": ["pipeline-gaps", "pipeline-zombie"]}
    text = text_of(matrix.write(tmp_path, rows, {}, unplanned).read_text())
    assert "Not run here (there is no pyspark): pipeline-gaps, pipeline-zombie." in text
    assert "Not run here" not in text_of(matrix.write(tmp_path, rows, {}).read_text())


def test_how_many_each_engine_has_kept_is_said_above(folder: Path) -> None:
    rows = [*rows_in(folder), matrix.not_made(folder, "embedded", "split-brain", "It crashed.")]
    text = text_of(matrix.write(folder, rows, {}).read_text())
    assert "|embedded|3 kept, 1 not made|" in text
    assert "|Apache Kafka 4.3.1|2 kept, 1 broken|" in text


def test_the_promise_is_there_in_short_and_whole(folder: Path) -> None:
    text = text_of(matrix.write(folder, rows_in(folder), {}).read_text())
    assert "nothing lost (at least 2 of 3 copies)" in text
    assert text.count(PROMISE) == 3, "once a scenario"


@pytest.mark.parametrize("name", [*SCENARIOS, *DRAWN])
def test_every_scenario_s_promise_has_a_short_form(name: str) -> None:
    """Seen to fail: a sentence that has none is told as it is, and is no short one."""
    promise = load_scenario(name).with_flags({}).promise_text
    short = matrix.in_short(promise)
    assert 0 < len(short) < 110
    assert not any(sentence in short for sentence in re.split(r"(?<=\.) ", promise))


@pytest.mark.parametrize(
    ("flags", "short"),
    [
        ({}, "nothing lost (at least 2 of 3 copies)"),
        ({"replication_factor": 1, "min_isr": 1}, "nothing lost while its only disk is kept"),
        ({"acks": "1", "min_isr": 1}, "lost with its leader (acks=1)"),
        ({"acks": "0", "min_isr": 1}, "anything may be lost (acks=0)"),
        ({"unclean": True}, "lost where a replica that lacks it leads"),
    ],
)
def test_what_may_be_lost_is_said_in_short(flags: dict[str, Any], short: str) -> None:
    settings: dict[str, Any] = {"acks": "all", "replication_factor": 3, "min_isr": 2}
    promise = promise_for(**settings | flags, idempotent=False, retries=5).text
    assert matrix.in_short(promise).startswith(f"{short} · ")


def test_a_promise_that_nobody_has_shortened_is_told_as_it_is() -> None:
    assert matrix.in_short("All is well. Nobody weeps.") == "All is well. · Nobody weeps."
    assert matrix.in_short("") == ""


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.chromium
@pytest.mark.skipif(chromium() is None, reason="Debian's chromium is not installed")
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("screen", [DESK, TELEPHONE], ids=["desk", "telephone"])
def test_a_person_can_read_the_table(
    browser: Browser, folder: Path, screen: tuple[int, int], *, dark: bool
) -> None:
    """Goal: nothing is cut off or pushed aside, and verdicts of one scenario are side by side."""
    page = matrix.write(folder, rows_in(folder), {})
    width, height = screen
    browser.open(page, width=width, height=height, dark=dark)
    assert browser.ask("document.documentElement.scrollWidth") <= width, "it must be pushed aside"
    assert browser.ask(PUSHED) == []
    assert browser.ask(SIZES)[0][0] >= SMALLEST_PX
    tops = browser.ask(
        "Array.from(document.querySelectorAll('#rack-loss .badge'))"
        ".map((each) => Math.round(each.getBoundingClientRect().top))"
    )
    assert len(tops) == 2
    assert len(set(tops)) == 1, "one is below the other"
    assert browser.ask("document.querySelector('.callout').getBoundingClientRect().bottom") < height


# Cells whose content does not fit in them.
PUSHED = """
Array.from(document.querySelectorAll("td, th, .scroll")).filter((each) => each.checkVisibility()
  && each.scrollWidth > each.clientWidth + 1).map((each) => each.innerText)
"""
