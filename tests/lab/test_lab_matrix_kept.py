"""Goal: what is kept of `prove --all` says what its runs have said, and links to none of them.

Method: a folder of verdicts by hand, on two engines, kept elsewhere and read.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tests.lab.test_lab_matrix import GROUNDS, verdict

import matrix_page
from holdfast.lab import matrix
from holdfast.lab.journal import Exit


def written(directory: Path) -> Path:
    theirs = replace(GROUNDS, engine_version="4.3.1")
    verdict(directory, "embedded", "rack-loss", Exit.KEPT)
    verdict(directory, "embedded", "disk-lost", Exit.BROKEN)
    verdict(directory, "apache", "disk-lost", Exit.KEPT, theirs)
    runs = [("embedded", "rack-loss"), ("embedded", "disk-lost"), ("apache", "disk-lost")]
    rows = [row for run in runs if (row := matrix.row_of(directory, *run)) is not None]
    matrix.write(directory, rows, {"embedded": 2, "apache": 2})
    return directory


def test_what_is_kept_has_each_row_beside_its_other_engine(tmp_path: Path) -> None:
    matrix_page.keep(written(tmp_path / "all"), tmp_path / "kept")
    table = (tmp_path / "kept" / "README.md").read_text(encoding="utf-8").splitlines()
    assert "- embedded: 1 kept, 1 broken." in table
    assert "- Apache Kafka 4.3.1: 1 kept." in table
    assert table[-4:] == [
        "| scenario | embedded | Apache Kafka 4.3.1 |",
        "|--|--|--|",
        "| `rack-loss` | kept · 50.0 % · 3.10 s · 3.20 s |  |",
        "| `disk-lost` | broken · 50.0 % · 3.10 s · 3.20 s | kept · 50.0 % · 3.10 s · 3.20 s |",
    ]


def test_what_is_kept_links_to_no_report_that_stays_behind(tmp_path: Path) -> None:
    matrix_page.keep(written(tmp_path / "all"), tmp_path / "kept")
    page = (tmp_path / "all" / matrix.PAGE).read_text(encoding="utf-8")
    kept = (tmp_path / "kept" / matrix.PAGE).read_text(encoding="utf-8")
    assert "rack-loss/report.html" in page
    assert "report.html" not in kept
    assert "Nothing is lost." in kept
    rows = json.loads((tmp_path / "kept" / matrix.MATRIX).read_bytes())
    assert [row["has_report"] for row in rows] == [False] * 3
    assert len({row["code"] for row in rows}) == 1


def test_what_is_not_whole_is_not_kept(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="has no"):
        matrix_page.keep(tmp_path, tmp_path / "kept")
    directory = written(tmp_path / "all")
    (directory / "embedded" / "disk-lost" / "verdict.json").unlink()
    with pytest.raises(SystemExit, match="1 of its runs have no verdict"):
        matrix_page.keep(directory, tmp_path / "kept")
    assert not (tmp_path / "kept").exists()
