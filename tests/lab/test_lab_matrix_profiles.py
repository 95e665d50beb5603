"""Goal: what `prove --all` has found broken under one profile counts for that one, and stays.

Method: verdicts by hand, and folders as a killed run leaves them, under one profile; then all of it
is begun under another one in the same folder.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from tests.lab import test_lab_check
from tests.lab.test_lab_check import LOSSY, MAIN, write_run
from tests.lab.test_lab_matrix import GROUNDS, verdict
from tests.lab.test_lab_matrix_left import NAME, NO_ROOM, no_room, without_clusters

from holdfast.cli.proving import prove_all
from holdfast.lab import matrix
from holdfast.lab.journal import MANIFEST, Exit

OTHER = {"lab": "kafka", "kafka": "lab"}
STAMPS = {"lab": "a code", "kafka": "a code, profile kafka"}
ASIDE = {"lab": "broken-1", "kafka": "broken-kafka-1"}


@pytest.fixture
def proofs(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    return without_clusters(monkeypatch)


def all_under(directory: Path, profile: str) -> tuple[prove_all.Made, list[str]]:
    """Return what all of it came to under a profile, and what was said."""
    said: list[str] = []
    made = prove_all.prove_all(
        directory, ["embedded"], profile=profile, control=True, say=said.append
    )
    return made, said


def broken_under(directory: Path, profile: str, code: str | None = None) -> Path:
    """Return the folder of a run that was broken under a profile; `code`: of another one."""
    matrix.write(directory, [], {})
    settings = {"acks": "all", "profile": profile}
    verdict(directory, "embedded", NAME, Exit.BROKEN, verdict="3 lost.", settings=settings)
    folder = matrix.folder_of(directory, "embedded", NAME)
    stamp = STAMPS[profile].replace("a code", code or "a code")
    matrix.stamp(folder, stamp, GROUNDS, with_controls=True)
    (folder / "a history").write_text("of what was broken")
    return folder


@pytest.mark.parametrize("profile", OTHER)
def test_what_is_broken_under_one_profile_is_put_aside_by_another_and_counts_for_the_first(
    tmp_path: Path, proofs: list[Path], profile: str
) -> None:
    """Seen to fail: it was removed without a word, and the first profile kept all then."""
    folder = broken_under(tmp_path, profile)
    made, said = all_under(tmp_path, OTHER[profile])
    assert (made.status, made.rows[0].verdict) == (Exit.KEPT, "It was so.")
    aside = folder.with_name(f"{NAME}.{ASIDE[profile]}")
    assert (aside / "a history").read_text() == "of what was broken"
    assert any(
        f"Broken before under --profile {profile}: 3 lost. It lies in "
        f"{aside.relative_to(tmp_path)}, and counts for that profile alone" in line
        for line in said
    )
    made, _ = all_under(tmp_path, profile)
    assert made.status is Exit.BROKEN
    assert made.rows[0].verdict.startswith("Broken before: 3 lost.")
    assert "nobody knows of which code" not in made.rows[0].verdict
    shutil.rmtree(aside)
    assert all_under(tmp_path, profile)[0].status is Exit.KEPT
    assert len(proofs) == 2


@pytest.mark.parametrize("profile", OTHER)
def test_what_another_code_has_broken_under_another_profile_is_not_put_aside(
    tmp_path: Path, proofs: list[Path], profile: str
) -> None:
    folder = broken_under(tmp_path, profile, "another code")
    assert all_under(tmp_path, OTHER[profile])[0].status is Exit.KEPT
    assert [path.name for path in folder.parent.iterdir()] == [NAME]
    assert proofs == [folder]


def test_what_was_put_aside_with_its_code_counts_for_that_code(
    tmp_path: Path, proofs: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Method: put aside by another profile; then the code is another one, and once more itself."""
    folder = broken_under(tmp_path, "kafka")
    all_under(tmp_path, "lab")
    with monkeypatch.context() as patched:
        patched.setattr(prove_all, "code_of", lambda _engine, _name: "another code")
        made, said = all_under(tmp_path, "kafka")
        assert made.status is Exit.KEPT
        assert not any("3 lost." in line for line in said)
    assert (folder.with_name(f"{NAME}.{ASIDE['kafka']}") / "a history").exists()
    assert all_under(tmp_path, "kafka")[0].status is Exit.BROKEN
    assert len(proofs) == 3


@pytest.mark.parametrize("is_judged", [True, False], ids=["with a verdict", "killed"])
def test_what_has_no_stamp_counts_for_the_profile_that_it_was_run_under(
    tmp_path: Path, proofs: list[Path], monkeypatch: pytest.MonkeyPatch, *, is_judged: bool
) -> None:
    """Seen to fail: what was broken under Kafka's profile was broken under the lab's."""
    name = test_lab_check.SCENARIO
    monkeypatch.setattr(prove_all, "SCENARIOS", [name])
    matrix.write(tmp_path, [], {})
    folder = matrix.folder_of(tmp_path, "embedded", name)
    folder.parent.mkdir()
    write_run(folder, {MAIN: LOSSY})
    values = json.loads((folder / MANIFEST).read_text())
    values["parameters"]["profile"] = "kafka"
    (folder / MANIFEST).write_text(json.dumps(values))
    journal = folder / MAIN / "journal.jsonl"  # without its end, which is of the manifest before
    journal.write_bytes(b"".join(journal.read_bytes().splitlines(keepends=True)[:-1]))
    if is_judged:
        settings = {"acks": "all", "profile": "kafka"}
        verdict(tmp_path, "embedded", name, Exit.BROKEN, settings=settings)
        (folder / matrix.STAMP).unlink()
    assert all_under(tmp_path, "lab")[0].status is Exit.KEPT
    assert folder.with_name(f"{name}.{ASIDE['kafka']}").is_dir()
    made, _ = all_under(tmp_path, "kafka")
    assert made.status is Exit.BROKEN
    assert "nobody knows of which code" in made.rows[0].verdict
    assert len(proofs) == 2


def test_what_can_not_be_put_aside_counts_for_no_other_profile(
    tmp_path: Path, proofs: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = broken_under(tmp_path, "kafka")
    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", no_room)
        made, _ = all_under(tmp_path, "lab")
    assert (made.status, made.stopped, made.rows) == (Exit.NOT_MADE, NO_ROOM, [])
    assert (folder / "a history").exists()
    assert not proofs
