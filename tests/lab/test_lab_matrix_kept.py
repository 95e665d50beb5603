"""Goal: what is kept of `prove --all` says no more than it did, and links to none of its runs.

Method: a folder of verdicts by hand, on two engines, kept elsewhere and read; and matrices that
say less than their runs, that are not whole, that can't be read, or that their runs gainsay.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.lab.test_lab_matrix import CODE, GROUNDS, SETTINGS, verdict

import matrix_page
from holdfast.cli.proving import prove_all, prove_aside
from holdfast.cluster.plan import PROXIES
from holdfast.lab import background, matrix
from holdfast.lab.journal import Exit
from holdfast.lab.matrix import Row
from holdfast.lab.scenario import PIPELINES, SCENARIOS

RUNS = [("embedded", "rack-loss"), ("embedded", "disk-lost"), ("apache", "disk-lost")]
WHOLE = len(SCENARIOS) - len(PIPELINES)  # where no pipeline was run
FIGURES = "50.0 % · 3.10 s · 3.20 s"


@pytest.fixture(autouse=True)
def _files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look into one file alone for a name of the code that is here, which takes long."""
    monkeypatch.setattr(matrix_page, "files_of", lambda *_: ("holdfast/lab/matrix.py",))


def row_at(directory: Path, engine: str, scenario: str) -> Row:
    row = matrix.row_of(directory, engine, scenario)
    assert row is not None
    return row


def put(directory: Path, rows: Sequence[Row]) -> Path:
    directory.mkdir(exist_ok=True)
    matrix.write(directory, rows, {"embedded": 2, "apache": 2})
    return directory


def written(directory: Path) -> Path:
    theirs = replace(GROUNDS, engine_version="4.3.1")
    verdict(directory, "embedded", "rack-loss", Exit.KEPT)
    verdict(directory, "embedded", "disk-lost", Exit.BROKEN)
    verdict(directory, "apache", "disk-lost", Exit.KEPT, theirs)
    return put(directory, [row_at(directory, *run) for run in RUNS])


def stamped(directory: Path, scenario: str, **changes: Any) -> Row:
    """Return the row of a run of ours that was kept, and was stamped with something else."""
    verdict(directory, "embedded", scenario, Exit.KEPT)
    grounds = replace(GROUNDS, network=changes.get("network"))
    folder = matrix.folder_of(directory, "embedded", scenario)
    code, with_controls = changes.get("code", CODE), changes.get("with_controls", True)
    matrix.stamp(folder, code, grounds, with_controls=with_controls)
    return row_at(directory, "embedded", scenario)


def read(directory: Path, kept: Path) -> list[str]:
    """Keep a folder; return the lines to read."""
    matrix_page.keep(directory, kept)
    return (kept / "README.md").read_text(encoding="utf-8").splitlines()


def row_in(lines: Sequence[str], scenario: str) -> str:
    return next(line for line in lines if line.startswith(f"| `{scenario}` |"))


def test_what_is_kept_has_each_row_beside_its_other_engine(tmp_path: Path) -> None:
    lines = read(written(tmp_path / "all"), tmp_path / "kept")
    assert f"- embedded: 2 of {WHOLE} scenarios: 1 kept, 1 broken." in lines
    assert f"- Apache Kafka 4.3.1: 1 of {WHOLE} scenarios: 1 kept." in lines
    assert "| scenario | embedded | Apache Kafka 4.3.1 |" in lines
    assert row_in(lines, "rack-loss") == f"| `rack-loss` | kept · {FIGURES} | not run there |"
    both = f"| `disk-lost` | broken · {FIGURES} | kept · {FIGURES} |"
    assert row_in(lines, "disk-lost") == both
    assert "- `disk-lost` on embedded: Broken. It was so." in lines


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


def test_what_was_put_aside_stays_broken_though_the_next_run_was_kept(tmp_path: Path) -> None:
    directory = tmp_path / "all"
    verdict(directory, "embedded", "rack-loss", Exit.KEPT)
    before = directory / "embedded" / f"rack-loss{prove_aside.ASIDE}1"
    before.mkdir()
    (before / prove_aside.WHY).write_text("20 lost.")
    asked = prove_aside.Asked(directory, "embedded", "rack-loss", CODE, matrix.PROFILE)
    row = prove_aside.counted(asked, row_at(directory, "embedded", "rack-loss"))
    assert row is not None
    lines = read(put(directory, [row]), tmp_path / "kept")
    assert row_in(lines, "rack-loss") == f"| `rack-loss` | broken · {FIGURES} |"
    assert "on embedded: Broken before: 20 lost." in "\n".join(lines)
    [kept] = json.loads((tmp_path / "kept" / matrix.MATRIX).read_bytes())
    assert kept["exit"] == Exit.BROKEN


def test_what_was_put_aside_and_not_run_again_is_no_scenario_that_is_made(tmp_path: Path) -> None:
    directory = tmp_path / "all"
    (directory / "embedded" / f"rack-loss{prove_aside.ASIDE}1").mkdir(parents=True)
    asked = prove_aside.Asked(directory, "embedded", "rack-loss", CODE, matrix.PROFILE)
    row = prove_aside.counted(asked, None)
    assert row is not None
    lines = read(put(directory, [row]), tmp_path / "kept")
    assert f"- embedded: 0 of {WHOLE} scenarios: 1 broken." in lines
    assert "(b) It was put aside, and was not run again." in "\n".join(lines)
    assert row_in(lines, "rack-loss").startswith("| `rack-loss` | broken (a) (b) · ")


def test_a_run_that_could_not_be_stamped_is_not_made(tmp_path: Path) -> None:
    directory = tmp_path / "all"
    verdict(directory, "embedded", "rack-loss", Exit.KEPT)
    (directory / "embedded" / "rack-loss" / matrix.STAMP).unlink()
    why = "Nobody can say on what this rests, so that it is made again: a full disk."
    row = matrix.not_made(directory, "embedded", "rack-loss", f"{why} It was so.")
    lines = read(put(directory, [row]), tmp_path / "kept")
    assert row_in(lines, "rack-loss").startswith("| `rack-loss` | not made (a) · ")
    assert f"- `rack-loss` on embedded: Not made. {why}" in "\n".join(lines)


def test_a_run_that_crashed_is_named(tmp_path: Path) -> None:
    why = "It crashed (OSError: no space): embedded/rack-loss/crash.txt"
    row = matrix.not_made(tmp_path / "all", "embedded", "rack-loss", why)
    lines = read(put(tmp_path / "all", [row]), tmp_path / "kept")
    assert f"- embedded: 1 of {WHOLE} scenarios: 1 not made." in lines
    assert f"- `rack-loss` on embedded: Not made. {why}" in lines


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda row: row.pop("gap_held_ms"), "has no gap_held_ms"),
        (lambda row: row["grounds"].pop("librdkafka"), "has no librdkafka"),
        (lambda row: row.pop("verdict"), "has no verdict"),
        (lambda row: row.update(exit=9), "exit 9"),
        (lambda row: row.update(exit=True), "exit True"),
        (lambda row: row.update(verdict=None), "verdict None"),
        (lambda row: row.update(share_acknowledged="all"), "share_acknowledged 'all'"),
        (lambda row: row.update(luck=1), "luck"),
        (lambda row: row["grounds"].update(network="luck"), "network 'luck'"),
        (lambda row: row.update(settings={"acks": 1}), "settings"),
    ],
)
def test_a_row_that_can_not_be_read_is_named(
    tmp_path: Path, change: Callable[[dict[str, Any]], object], words: str
) -> None:
    directory = written(tmp_path / "all")
    rows = json.loads((directory / matrix.MATRIX).read_bytes())
    change(rows[1])
    (directory / matrix.MATRIX).write_text(json.dumps(rows))
    with pytest.raises(SystemExit, match=f"embedded disk-lost.*{words}"):
        matrix_page.keep(directory, tmp_path / "kept")
    assert not (tmp_path / "kept").exists()


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([], "no rows"),
        ({}, "has no"),
        (["kept"], "row 1"),
        ([{"engine": "embedded"}], "row 1"),
    ],
)
def test_what_is_no_matrix_is_not_kept(tmp_path: Path, rows: Any, words: str) -> None:
    (tmp_path / matrix.MATRIX).write_text(json.dumps(rows))
    with pytest.raises(SystemExit, match=words):
        matrix_page.keep(tmp_path, tmp_path / "kept")
    (tmp_path / matrix.MATRIX).unlink()
    with pytest.raises(SystemExit, match="has no"):
        matrix_page.keep(tmp_path, tmp_path / "kept")
    assert not (tmp_path / "kept").exists()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"engine": "rabbit"}, "rabbit rack-loss.*no such engine"),
        ({"scenario": "luck"}, "embedded luck.*no such scenario"),
        ({"engine": "apache-3.9"}, "apache-3.9 rack-loss.*no such scenario"),
    ],
)
def test_a_row_of_what_is_not_planned_is_named(
    tmp_path: Path, changes: Mapping[str, str], words: str
) -> None:
    directory = written(tmp_path / "all")
    rows = json.loads((directory / matrix.MATRIX).read_bytes())
    rows[0].update(changes)
    (directory / matrix.MATRIX).write_text(json.dumps(rows))
    with pytest.raises(SystemExit, match=words):
        matrix_page.keep(directory, tmp_path / "kept")


def test_a_row_that_is_there_twice_is_named(tmp_path: Path) -> None:
    directory = written(tmp_path / "all")
    rows = json.loads((directory / matrix.MATRIX).read_bytes())
    (directory / matrix.MATRIX).write_text(json.dumps([*rows, rows[1]]))
    with pytest.raises(SystemExit, match="row 4: embedded disk-lost is there twice"):
        matrix_page.keep(directory, tmp_path / "kept")


def broken_since(directory: Path) -> None:
    verdict(directory, "embedded", "rack-loss", Exit.BROKEN)


def kept_since(directory: Path) -> None:
    verdict(directory, "embedded", "disk-lost", Exit.KEPT)


def run_again(directory: Path) -> None:
    verdict(directory, "embedded", "rack-loss", Exit.KEPT, verdict="It was so again.")


def of_other_code(directory: Path) -> None:
    stamped(directory, "rack-loss", code="fedcba9876543210")


def gone(directory: Path) -> None:
    (directory / "embedded" / "rack-loss" / "verdict.json").unlink()


def never_stamped(directory: Path) -> None:
    row = matrix.not_made(directory, "embedded", "rack-loss", "It crashed.")
    put(directory, [row, *(row_at(directory, *run) for run in RUNS[1:])])


def broken_unstamped(directory: Path) -> None:
    never_stamped(directory)
    broken_since(directory)
    (directory / "embedded" / "rack-loss" / matrix.STAMP).unlink()


def kept_unstamped(directory: Path) -> None:
    (directory / "embedded" / "rack-loss" / matrix.STAMP).unlink()
    put(directory, [row_at(directory, *run) for run in RUNS])
    verdict(directory, "embedded", "rack-loss", Exit.NOT_MADE, promise="Nothing is doubled.")
    (directory / "embedded" / "rack-loss" / matrix.STAMP).unlink()


@pytest.mark.parametrize(
    ("change", "scenario"),
    [
        (broken_since, "rack-loss"),
        (kept_since, "disk-lost"),
        (run_again, "rack-loss"),
        (of_other_code, "rack-loss"),
        (gone, "rack-loss"),
        (never_stamped, "rack-loss"),
        (broken_unstamped, "rack-loss"),
        (kept_unstamped, "rack-loss"),
    ],
)
def test_a_matrix_that_its_runs_gainsay_is_not_kept(
    tmp_path: Path, change: Callable[[Path], None], scenario: str
) -> None:
    directory = written(tmp_path / "all")
    change(directory)
    words = f"embedded {scenario}.*run `prove --all --output {directory}` again"
    with pytest.raises(SystemExit, match=words):
        matrix_page.keep(directory, tmp_path / "kept")
    assert not (tmp_path / "kept").exists()


def test_what_is_not_whole_says_how_far_it_is(tmp_path: Path) -> None:
    directory = tmp_path / "all"
    theirs = replace(GROUNDS, engine_version="3.9.2")
    verdict(directory, "apache-3.9", "controller-down", Exit.KEPT, theirs)
    rows = [
        stamped(directory, "rack-loss"),
        stamped(directory, "pipeline-zombie"),
        row_at(directory, "apache-3.9", "controller-down"),
    ]
    lines = read(put(directory, rows), tmp_path / "kept")
    page = (tmp_path / "kept" / matrix.PAGE).read_text(encoding="utf-8")
    count = WHOLE + 1
    assert f"So far: 2 of {count} on embedded; 1 of 1 on apache-3.9." in page
    assert f"- embedded: 2 of {count} scenarios: 2 kept." in lines
    assert "- Apache Kafka 3.9.2: 1 of 1 scenario: 1 kept." in lines
    assert "- Apache Kafka 4: not run there." in lines
    assert row_in(lines, "disk-lost") == "| `disk-lost` | not run there |  |"
    assert row_in(lines, "pipeline-zombie") == f"| `pipeline-zombie` | kept · {FIGURES} |  |"
    others = [name for name in SCENARIOS if name in PIPELINES and name != "pipeline-zombie"]
    told = " ".join(" ".join(lines).split())
    quoted = ", ".join(f"`{name}`" for name in others)
    assert f"Not run there (they need pyspark): {quoted}." in told
    assert f"Not run here (they need pyspark): {', '.join(others)}." in page
    assert row_in(lines, others[0]) == f"| `{others[0]}` | not run there |  |"


def test_what_is_whole_is_not_said_to_be_on_its_way(tmp_path: Path) -> None:
    directory = tmp_path / "all"
    rows = [stamped(directory, name) for name in SCENARIOS]
    lines = read(put(directory, rows), tmp_path / "kept")
    count = len(SCENARIOS)
    assert f"- embedded: {count} of {count} scenarios: {count} kept." in lines
    assert "So far" not in (tmp_path / "kept" / matrix.PAGE).read_text(encoding="utf-8")
    assert not [line for line in lines if line.startswith("|") and "not run there" in line]
    assert "are not kept" not in "\n".join(lines)


def test_what_shows_less_than_others_bears_a_mark(tmp_path: Path) -> None:
    directory = tmp_path / "all"
    quick = matrix.code_under(CODE, "quick")
    verdict(directory, "embedded", "retention", Exit.BROKEN)
    (directory / "embedded" / "retention" / matrix.STAMP).unlink()
    rows = [
        stamped(directory, "rack-loss"),
        stamped(directory, "disk-lost", with_controls=False),
        stamped(directory, "split-brain", network=PROXIES),
        stamped(directory, "disk-full", code=quick, with_controls=False),
        row_at(directory, "embedded", "retention"),
    ]
    lines = read(put(directory, rows), tmp_path / "kept")
    names = [row.scenario for row in rows]
    words = {name: row_in(lines, name).split(" · ")[0].split("| ")[-1] for name in names}
    letters = {words[name] for name in ("disk-lost", "split-brain", "retention")}
    assert words["rack-loss"] == "kept"
    assert len(letters) == 3
    assert words["disk-full"].count("(") == 2
    legend = {line[2:5]: line[6:] for line in lines if line.startswith("- (")}
    of = {name: [legend[mark] for mark in words[name].split()[1:]] for name in names}
    assert [each.startswith("Its control was left out") for each in of["disk-lost"]] == [True]
    assert [each.startswith("Links were broken by proxies") for each in of["split-brain"]] == [True]
    assert "It was run under --profile quick, and not under the usual one, lab." in of["disk-full"]
    assert [each.startswith("It has no stamp") for each in of["retention"]] == [True]


@pytest.mark.slow
def test_what_is_of_other_code_than_most_bears_a_mark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(matrix_page, "files_of", prove_all.files_of)
    directory = tmp_path / "all"
    ours = {
        name: background.fingerprint(prove_all.files_of("embedded", name))
        for name in ("rack-loss", "disk-lost")
    }
    rows = [stamped(directory, name, code=code) for name, code in ours.items()]
    rows.append(stamped(directory, "retention"))
    lines = read(put(directory, rows), tmp_path / "kept")
    assert row_in(lines, "rack-loss") == f"| `rack-loss` | kept · {FIGURES} |"
    assert row_in(lines, "retention") == f"| `retention` | kept (a) · {FIGURES} |"
    told = " ".join(" ".join(lines).split())
    assert "(a) It is not of the code that lay in this repository" in told
    assert "2 of 3 rows are of the code that lay in this repository" in told
    assert "1 is of other code." in told
    rows = [stamped(directory, name) for name in ("disk-lost", "retention")]
    lines = read(put(directory, [row_at(directory, *RUNS[0]), *rows]), tmp_path / "kept")
    assert row_in(lines, "rack-loss") == f"| `rack-loss` | kept (a) · {FIGURES} |"
    assert row_in(lines, "retention") == f"| `retention` | kept · {FIGURES} |"
    told = " ".join(" ".join(lines).split())
    assert "(a) It is of the code that lay in this repository" in told
    assert "1 of 3 rows is of the code that lay in this repository" in told


def test_what_is_of_another_build_than_most_bears_a_mark(tmp_path: Path) -> None:
    directory = tmp_path / "all"
    theirs = replace(GROUNDS, engine_version="4.3.1")
    names = ("rack-loss", "disk-lost", "retention")
    for name, build in zip(names, ("aa", "aa", "bb"), strict=True):
        verdict(directory, "apache", name, Exit.KEPT)
        folder = matrix.folder_of(directory, "apache", name)
        matrix.stamp(folder, f"{CODE} of 4.3.1 {build}", theirs, with_controls=True)
    rows = [row_at(directory, "apache", name) for name in names]
    lines = read(put(directory, rows), tmp_path / "kept")
    assert row_in(lines, "rack-loss") == f"| `rack-loss` | kept · {FIGURES} |"
    assert row_in(lines, "retention") == f"| `retention` | kept (a) · {FIGURES} |"
    told = " ".join(" ".join(lines).split())
    assert "2 rows are of Apache Kafka 4.3.1, build aa." in told
    assert "1 row is of Apache Kafka 4.3.1, build bb." in told


def test_lines_to_read_are_no_longer_than_elsewhere(tmp_path: Path) -> None:
    why = "It crashed (OSError: <no|space>): " + "embedded/rack-loss " * 20
    row = matrix.not_made(tmp_path / "all", "embedded", "rack-loss", why)
    lines = read(put(tmp_path / "all", [row]), tmp_path / "kept")
    assert max(len(line) for line in lines if not line.startswith("|")) <= 120
    assert "&lt;no|space&gt;" in "\n".join(lines)


def test_a_profile_is_known_by_what_a_run_without_a_stamp_was_set_to(tmp_path: Path) -> None:
    directory = tmp_path / "all"
    settings = {**SETTINGS, "profile": "quick"}
    verdict(directory, "embedded", "rack-loss", Exit.BROKEN, settings=settings)
    (directory / "embedded" / "rack-loss" / matrix.STAMP).unlink()
    rows = [row_at(directory, "embedded", "rack-loss"), stamped(directory, "retention")]
    lines = read(put(directory, rows), tmp_path / "kept")
    assert "It was run under --profile quick, and not under the usual one, lab." in "\n".join(lines)
