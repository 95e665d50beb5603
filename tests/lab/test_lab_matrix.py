"""Goal: the page of all scenarios says what each engine's run came to, and what is not run again.

Method: verdicts by hand in a folder; the page's rows, and what differs between engines.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from holdfast.lab import matrix
from holdfast.lab.journal import Exit


def verdict(directory: Path, engine: str, scenario: str, exit_: Exit, **changes: Any) -> None:
    part = {
        "control": False,
        "share_acknowledged": 0.98,
        "gap_ms_longest": 3100.0,
        "recovered_ms_longest": 3200.0,
        "anomalies": {"lost": 0},
        "broken": [],
        "checks": [],
    }
    control = {**part, "control": True, "anomalies": {"lost": 20}, "broken": ["lost"]}
    values = {
        "exit": int(exit_),
        "promise": "Nothing is lost.",
        "verdict": "It was so.",
        "parts": [part, {**part, "share_acknowledged": 0.5, "gap_ms_longest": 9.0}, control],
        **changes,
    }
    folder = matrix.folder_of(directory, engine, scenario)
    folder.mkdir(parents=True)
    (folder / "verdict.json").write_text(json.dumps(values))


def test_a_row_has_the_worst_of_the_parts_that_prove(tmp_path: Path) -> None:
    verdict(tmp_path, "embedded", "rack-loss", Exit.KEPT)
    row = matrix.row_of(tmp_path, "embedded", "rack-loss")
    assert row is not None
    assert (row.word, row.share_acknowledged, row.gap_ms) == ("kept", 0.5, 3100.0)
    assert row.controls_failed_by == "20 lost"
    assert row.folder == "embedded/rack-loss"
    assert matrix.is_done(row)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"exit": 9, "parts": []}', '{"parts": 1}'])
def test_what_can_not_be_read_is_run_again(tmp_path: Path, text: str) -> None:
    verdict(tmp_path, "embedded", "rack-loss", Exit.KEPT)
    (tmp_path / "embedded" / "rack-loss" / "verdict.json").write_text(text)
    assert matrix.row_of(tmp_path, "embedded", "rack-loss") is None
    assert not matrix.is_done(None)


def test_what_was_not_made_is_run_again(tmp_path: Path) -> None:
    verdict(tmp_path, "apache", "rack-loss", Exit.NOT_MADE, parts=[])
    row = matrix.row_of(tmp_path, "apache", "rack-loss")
    assert row is not None
    assert row.word == "not made"
    assert not matrix.is_done(row)


def test_the_page_has_both_engines_and_names_where_they_differ(tmp_path: Path) -> None:
    for engine, exit_ in {"embedded": Exit.KEPT, "apache": Exit.BROKEN}.items():
        verdict(tmp_path, engine, "rack-loss", exit_)
        verdict(tmp_path, engine, "retention", Exit.KEPT)
    rows = [
        row
        for engine in ("embedded", "apache")
        for name in ("rack-loss", "retention")
        if (row := matrix.row_of(tmp_path, engine, name)) is not None
    ]
    page = matrix.write(tmp_path, rows).read_text()
    assert "Engines differ</b><span>rack-loss</span>" in page
    assert page.count('href="apache/rack-loss/report.html"') == 1
    assert "<h2>embedded</h2>" in page
    assert "50.0 %" in page
    assert json.loads((tmp_path / "matrix.json").read_text())[0]["scenario"] == "rack-loss"
    assert matrix.worst(rows) is Exit.BROKEN
    assert matrix.worst(rows[:2]) is Exit.KEPT
