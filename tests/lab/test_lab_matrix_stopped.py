"""Goal: what stops `prove --all`, and what it can't judge, hides nothing that is broken.

Method: folders that today's code can't judge, and a folder that can't be read any more once
something in it is known to be broken.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.judge.histories import Story
from tests.lab import test_lab_check
from tests.lab.test_lab_check import BAD, FINE, MAIN, UNREAD, write_part, write_run
from tests.lab.test_lab_matrix import GROUNDS, verdict
from tests.lab.test_lab_matrix_aside import unstamped
from tests.lab.test_lab_matrix_left import NAME, all_of, without_clusters

from holdfast.cli.proving import prove_all
from holdfast.lab import matrix, prove
from holdfast.lab.journal import Exit, FolderError, write_manifest
from holdfast.lab.scenario import load_scenario

ISOLATED = "broker-isolated"


@pytest.fixture
def proofs(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    return without_clusters(monkeypatch)


def of_older_code(folder: Path, checks: Any = (FINE,)) -> Path:
    """Write a run killed in its control, with defaults that the control of today can't have."""
    scenario = load_scenario(ISOLATED)
    folder.mkdir(parents=True)
    write_manifest(
        folder,
        "proof",
        scenario=ISOLATED,
        parameters=scenario.defaults.as_json() | {"replication_factor": 2, "min_isr": 1},
        parts=[part.name for part in scenario.parts],
        command="holdfast prove",
    )
    for part in scenario.parts:
        told = (FINE,) if part.is_control else checks
        write_part(folder / part.name, UNREAD, told, ended=not part.is_control)
    return folder


def test_a_folder_whose_settings_suit_no_part_of_today_is_a_folder_that_can_not_be_judged(
    tmp_path: Path,
) -> None:
    """Seen to fail: it was a LabError, which nobody expects of a folder, and named none."""
    folder = of_older_code(tmp_path / "run")
    with pytest.raises(FolderError, match=r"min-isr") as problem:
        prove.judge_again(folder)
    assert str(folder) in str(problem.value)


@pytest.mark.parametrize("checks", [(FINE,), (FINE, BAD)], ids=["nothing seen", "seen broken"])
def test_what_is_broken_counts_also_beside_a_folder_of_older_code(
    tmp_path: Path, proofs: list[Path], monkeypatch: pytest.MonkeyPatch, checks: Any
) -> None:
    """Seen to fail: all ended before it had run anything, each time, and named no folder."""
    monkeypatch.setattr(prove_all, "SCENARIOS", [NAME, ISOLATED])
    monkeypatch.setattr(prove_all, "NETWORKS", ())  # nobody need look for one
    matrix.write(tmp_path, [], {})
    verdict(tmp_path, "embedded", NAME, Exit.BROKEN, verdict="3 lost.")
    stamped = matrix.folder_of(tmp_path, "embedded", NAME)
    matrix.stamp(stamped, "a code", GROUNDS, with_controls=True)
    folder = of_older_code(matrix.folder_of(tmp_path, "embedded", ISOLATED), checks)
    made, said = all_of(tmp_path)
    assert (made.status, made.stopped) == (Exit.BROKEN, None)
    is_broken = checks[-1] is BAD
    assert [row.word for row in made.rows] == ["broken", "broken" if is_broken else "kept"]
    told = [line for line in said if line.startswith(f"embedded {ISOLATED}: ")]
    assert ("Broken before" if is_broken else "can't be judged") in told[0]
    assert proofs == [folder]


def test_an_error_of_ours_amid_a_folder_names_it_and_keeps_nobody_from_the_others(
    tmp_path: Path, proofs: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Method: what is left of one part is judged with an error, and the checks are there.

    Seen to fail: a traceback, and no row.
    """

    def main(part: Path, story: Story) -> None:
        write_part(part, story, (FINE, BAD), ended=False)

    def fails(*_: Any) -> None:
        raise ZeroDivisionError("of ours")

    name = test_lab_check.SCENARIO
    monkeypatch.setattr(prove_all, "SCENARIOS", [NAME, name])
    monkeypatch.setattr(prove, "judge_recorded", fails)
    matrix.write(tmp_path, [], {})
    unstamped(tmp_path)
    write_run(matrix.folder_of(tmp_path, "embedded", name), {MAIN: UNREAD}, main=main)
    made, _ = all_of(tmp_path)
    assert [row.word for row in made.rows] == ["broken", "broken"]
    assert "leaders" in made.rows[1].verdict
    assert len(proofs) == 2


def unreadable(monkeypatch: pytest.MonkeyPatch, directory: Path, method: str) -> None:
    real: Callable[..., Any] = getattr(Path, method)

    def fails(path: Path, *words: Any) -> Any:
        if path.is_relative_to(directory):
            raise OSError(errno.EIO, "Input/output error", str(path))
        return real(path, *words)

    monkeypatch.setattr(Path, method, fails)


@pytest.mark.parametrize("method", ["is_dir", "glob"])
def test_what_is_known_to_be_broken_is_told_where_nothing_can_be_read_any_more(
    tmp_path: Path, proofs: list[Path], monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """Method: behind the first of two, its disk fails. Seen to fail: it raised, without a row."""

    def broken(_scenario: Any, _parameters: Any, folder: Path, **_: Any) -> Any:
        verdict(tmp_path, "embedded", folder.name, Exit.BROKEN, verdict="3 lost.")
        unreadable(monkeypatch, tmp_path, method)
        return SimpleNamespace(exit=Exit.BROKEN, verdict="3 lost.")

    monkeypatch.setattr(prove_all, "prove", broken)
    monkeypatch.setattr(prove_all, "SCENARIOS", [NAME, "retention"])
    made, _ = all_of(tmp_path)
    assert made.status is Exit.BROKEN
    assert made.stopped is not None
    assert [row.scenario for row in made.rows] == [NAME]
    assert not proofs


def test_what_was_put_aside_is_told_where_nothing_can_be_read_any_more(
    tmp_path: Path, proofs: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Method: what takes its place is kept, and the disk fails. Seen to fail: it raised."""

    def kept(*words: Any, **flags: Any) -> Any:
        outcome = inner(*words, **flags)
        unreadable(monkeypatch, tmp_path, "glob")
        return outcome

    inner = vars(prove_all)["prove"]
    matrix.write(tmp_path, [], {})
    unstamped(tmp_path)
    monkeypatch.setattr(prove_all, "prove", kept)
    made, _ = all_of(tmp_path)
    assert (made.status, made.rows[0].word) == (Exit.BROKEN, "broken")
    assert made.stopped is not None
    assert len(proofs) == 1


def test_what_is_just_put_aside_is_told_where_nothing_can_be_read_any_more(
    tmp_path: Path, proofs: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Method: the disk fails before the first page. Seen to fail: it raised."""

    def put_aside(path: Path, target: Path) -> Path:
        found = rename(path, target)
        unreadable(monkeypatch, tmp_path, "is_dir")
        return found

    rename = Path.rename
    matrix.write(tmp_path, [], {})
    unstamped(tmp_path)
    monkeypatch.setattr(Path, "rename", put_aside)
    made, _ = all_of(tmp_path)
    assert (made.status, made.rows[0].verdict) == (Exit.BROKEN, "3 lost.")
    assert not proofs
