"""Goal: what a run of `prove --all` has left counts only where it is whole, and as what it came to.

Method: one scenario whose proof is a function; another code, a disk that is full, an interruption.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.lab.test_lab_matrix import verdict

from holdfast.cli.proving import prove_all
from holdfast.lab import matrix
from holdfast.lab.journal import Exit

NAME = "rack-loss"


@pytest.fixture
def proofs(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Where proofs were made. No cluster is."""
    made: list[Path] = []

    def prove(_scenario: Any, _parameters: Any, folder: Path, **_: Any) -> Any:
        made.append(folder)
        verdict(folder.parent.parent, folder.parent.name, NAME, Exit.KEPT)
        (folder / matrix.STAMP).unlink()  # it is not the run that gives it
        (folder / "a history").write_text("of it")
        return SimpleNamespace(exit=Exit.KEPT, verdict="Kept.")

    monkeypatch.setattr(prove_all, "prove", prove)
    monkeypatch.setattr(prove_all, "code_of", lambda _engine, _name: "a code")
    monkeypatch.setattr(prove_all, "files_of", lambda _engine, _name: ())
    monkeypatch.setattr(prove_all, "SCENARIOS", [NAME])
    return made


def row(tmp_path: Path) -> matrix.Row:
    rows, _ = prove_all.prove_all(tmp_path, ["embedded"], control=True, say=lambda _line: None)
    (found,) = rows
    return found


@pytest.mark.parametrize("code", [Exit.BROKEN, Exit.NOT_MADE])
def test_what_a_run_came_to_is_in_its_row_also_where_it_could_not_be_written(
    tmp_path: Path, proofs: list[Path], monkeypatch: pytest.MonkeyPatch, code: Exit
) -> None:
    def unwritten(_scenario: Any, _parameters: Any, folder: Path, **_: Any) -> Any:
        folder.mkdir(parents=True)
        return SimpleNamespace(exit=code, verdict="The verdict can't be written: no room.")

    monkeypatch.setattr(prove_all, "prove", unwritten)
    found = row(tmp_path)
    assert (found.exit, found.verdict) == (code, "The verdict can't be written: no room.")
    assert matrix.worst([found]) is code
    assert found.code is None, "it is run again"
    assert not proofs


def test_half_a_run_that_was_being_removed_does_not_count(
    tmp_path: Path, proofs: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Method: another code is there for a while, and removes the run before: interrupted amid it.

    Then the code is as it was.
    """

    def interrupted(path: Path) -> None:
        (path / "a history").unlink()
        raise KeyboardInterrupt

    row(tmp_path)
    folder = matrix.folder_of(tmp_path, "embedded", NAME)
    with monkeypatch.context() as patched:
        patched.setattr(prove_all, "code_of", lambda _engine, _name: "another code")
        patched.setattr("shutil.rmtree", interrupted)
        with pytest.raises(KeyboardInterrupt):
            row(tmp_path)
    assert matrix.row_of(tmp_path, "embedded", NAME) is None
    assert row(tmp_path).word == "kept"
    assert proofs == [folder, folder]
    assert {path.name for path in folder.parent.iterdir()} == {NAME}, "and the half is gone"
