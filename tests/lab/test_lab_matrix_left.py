"""Goal: what a run of `prove --all` has left counts only where it is whole, and as what it came to.

Method: one scenario whose proof is a function; another code, a disk that is full, an interruption.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.lab.test_lab_matrix import GROUNDS, verdict

from holdfast.cli.proving import prove_all
from holdfast.cluster import ClusterError, LocalCluster, apache, layout
from holdfast.cluster.ending import Interrupt
from holdfast.lab import matrix
from holdfast.lab.journal import Exit

NAME = "rack-loss"
NO_ROOM = "[Errno 28] No space left on device"


@pytest.fixture
def proofs(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    return without_clusters(monkeypatch)


def without_clusters(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Return where proofs are made, all of them kept. No cluster is."""
    made: list[Path] = []

    def prove(_scenario: Any, _parameters: Any, folder: Path, **_: Any) -> Any:
        made.append(folder)
        verdict(folder.parent.parent, folder.parent.name, folder.name, Exit.KEPT)
        (folder / matrix.STAMP).unlink()  # it is not the run that gives it
        (folder / "a history").write_text("of it")
        return SimpleNamespace(exit=Exit.KEPT, verdict="Kept.")

    monkeypatch.setattr(prove_all, "prove", prove)
    monkeypatch.setattr(prove_all, "code_of", lambda _engine, _name: "a code")
    monkeypatch.setattr(prove_all, "files_of", lambda _engine, _name: ())
    monkeypatch.setattr(prove_all, "SCENARIOS", [NAME])
    return made


def row(tmp_path: Path) -> matrix.Row:
    (found,) = all_of(tmp_path)[0].rows
    return found


def all_of(tmp_path: Path, *, control: bool = True) -> tuple[prove_all.Made, list[str]]:
    """Return what all of it came to, and what was said."""
    said: list[str] = []
    made = prove_all.prove_all(tmp_path, ["embedded"], control=control, say=said.append)
    return made, said


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


def no_room(*_words: Any, **_flags: Any) -> None:
    raise OSError(28, "No space left on device")


def nobody_knows(*_words: Any) -> None:
    raise ClusterError("the cluster's description can't be read")


@pytest.mark.parametrize("code", [Exit.BROKEN, Exit.KEPT])
@pytest.mark.parametrize(
    ("owner", "name", "fails"),
    [(matrix, "stamp", no_room), (prove_all, "grounds_of", nobody_knows)],
    ids=["a full disk", "no description"],
)
def test_what_can_not_be_stamped_keeps_what_it_came_to(
    tmp_path: Path,
    proofs: list[Path],
    monkeypatch: pytest.MonkeyPatch,
    code: Exit,
    owner: Any,
    name: str,
    fails: Any,
) -> None:
    """Seen to fail: what was broken was not made, and gone the next time."""

    def prove(_scenario: Any, _parameters: Any, folder: Path, **_: Any) -> Any:
        verdict(tmp_path, "embedded", NAME, code, verdict="3 lost.")
        (folder / matrix.STAMP).unlink()
        patched.setattr(owner, name, fails)
        return SimpleNamespace(exit=code, verdict="3 lost.")

    with monkeypatch.context() as patched:
        patched.setattr(prove_all, "prove", prove)
        found = row(tmp_path)
    assert found.word == ("broken" if code is Exit.BROKEN else "not made")
    assert found.verdict.endswith("3 lost.")
    assert found.verdict.startswith("Nobody can say on what this rests")
    assert found.code is None, "it is run again"
    again, said = all_of(tmp_path)
    assert (again.rows[0].word, len(proofs)) == ("broken" if code is Exit.BROKEN else "kept", 1)
    assert any("3 lost." in line for line in said) == (code is Exit.BROKEN)


def test_what_is_broken_stays_so_where_an_error_of_ours_follows(
    tmp_path: Path, proofs: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def prove(_scenario: Any, _parameters: Any, folder: Path, **_: Any) -> Any:
        verdict(tmp_path, "embedded", NAME, Exit.BROKEN, verdict="3 lost.")
        (folder / matrix.STAMP).unlink()
        raise ZeroDivisionError("behind its verdict")

    monkeypatch.setattr(prove_all, "prove", prove)
    found = row(tmp_path)
    assert found.word == "broken"
    assert found.verdict.startswith("It crashed (ZeroDivisionError: behind its verdict)")
    assert found.verdict.endswith(" 3 lost.")
    assert not proofs


def test_what_is_broken_is_broken_also_where_no_page_can_be_written(
    tmp_path: Path, proofs: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    real, codes = matrix.write, [Exit.KEPT, Exit.BROKEN]

    def prove(_scenario: Any, _parameters: Any, folder: Path, **_: Any) -> Any:
        code = codes.pop()
        verdict(folder.parent.parent, folder.parent.name, NAME, code)
        monkeypatch.setattr(matrix, "write", no_room)
        return SimpleNamespace(exit=code, verdict="3 lost.")

    monkeypatch.setattr(prove_all, "prove", prove)
    assert row(tmp_path).word == "broken"
    monkeypatch.setattr(matrix, "write", real)
    made, _ = all_of(tmp_path / "other")
    assert (made.rows[0].word, made.status, made.page) == ("kept", Exit.NOT_MADE, None)
    assert made.stopped == f"{tmp_path / 'other' / matrix.PAGE} can't be written: {NO_ROOM}."
    assert not proofs


@pytest.mark.parametrize("code", [Exit.KEPT, Exit.BROKEN])
def test_what_was_decided_before_is_told_where_no_page_can_be_written_at_all(
    tmp_path: Path, proofs: list[Path], monkeypatch: pytest.MonkeyPatch, code: Exit
) -> None:
    """Seen to fail: status 2, with nothing of what was broken."""
    verdict(tmp_path, "embedded", NAME, code)
    matrix.stamp(
        matrix.folder_of(tmp_path, "embedded", NAME), "a code", GROUNDS, with_controls=True
    )
    matrix.write(tmp_path, [], {})
    monkeypatch.setattr(matrix, "write", no_room)
    made, _ = all_of(tmp_path)
    assert made.status is (Exit.BROKEN if code is Exit.BROKEN else Exit.NOT_MADE)
    assert made.stopped is not None
    assert [each.exit for each in made.rows] == [code]
    assert not proofs


@pytest.mark.parametrize("code", [Exit.KEPT, Exit.BROKEN])
@pytest.mark.parametrize("reason", ["the code", "the engine", "the folder"])
def test_what_is_broken_is_broken_also_where_a_later_run_can_not_be_made(
    tmp_path: Path,
    proofs: list[Path],
    monkeypatch: pytest.MonkeyPatch,
    code: Exit,
    reason: str,
) -> None:
    """Method: behind the first of two, the code is another one, an engine gone, a folder stuck.

    Seen to fail: it raised, and the command ended with 2 and without the row.
    """

    def prove(_scenario: Any, _parameters: Any, folder: Path, **_: Any) -> Any:
        verdict(tmp_path, "embedded", folder.name, code)
        return SimpleNamespace(exit=code, verdict="3 lost.")

    def gone(_engine: str, name: str) -> str:
        if name == "retention" and next(looks, None) is None:
            raise ClusterError("No Apache Kafka.")
        return "a code"

    def another(_engine: str, name: str) -> str:
        return "a code" if name == NAME or next(looks, None) else "another code"

    def stuck(path: Path) -> bool:
        if path.name == "retention":
            raise PermissionError(13, "Permission denied", str(path))
        return False

    looks = iter([1])
    if reason == "the folder":
        monkeypatch.setattr("holdfast.lab.keeping.remove", stuck)
    else:
        monkeypatch.setattr(prove_all, "code_of", another if reason == "the code" else gone)
    monkeypatch.setattr(prove_all, "prove", prove)
    monkeypatch.setattr(prove_all, "SCENARIOS", [NAME, "retention"])
    made, _ = all_of(tmp_path)
    assert [each.exit for each in made.rows] == [code]
    assert made.status is (Exit.BROKEN if code is Exit.BROKEN else Exit.NOT_MADE)
    assert made.stopped is not None
    told = {"the code": "was changed", "the engine": "No Apache", "the folder": "Permission"}
    assert told[reason] in made.stopped
    assert made.page == tmp_path / matrix.PAGE
    assert "So far: 1 of 2 on embedded." in made.page.read_text()
    assert not proofs


def test_an_interruption_that_a_proof_has_passed_over_ends_all(
    tmp_path: Path, proofs: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Method: Ctrl-C comes while the last steps of a proof are made; it raises nothing there."""
    inner = vars(prove_all)["prove"]

    def prove(*words: Any, **flags: Any) -> Any:
        monkeypatch.setattr(Interrupt, "came", True)
        return inner(*words, **flags)

    monkeypatch.setattr(prove_all, "prove", prove)
    monkeypatch.setattr(prove_all, "SCENARIOS", [NAME, "retention"])
    with pytest.raises(KeyboardInterrupt):
        row(tmp_path)
    assert len(proofs) == 1
    assert len(matrix.written(tmp_path) or []) == 1, "what it came to is kept"


def test_a_control_s_figures_are_none_of_the_row_s(tmp_path: Path) -> None:
    verdict(tmp_path, "embedded", NAME, Exit.KEPT)
    file = matrix.folder_of(tmp_path, "embedded", NAME) / "verdict.json"
    values = json.loads(file.read_text())
    values["parts"][-1] |= {"share_acknowledged": 0.1, "gap_ms_longest": 9e9}
    file.write_text(json.dumps(values))
    found = matrix.row_of(tmp_path, "embedded", NAME)
    assert found is not None
    assert (found.share_acknowledged, found.gap_ms) == (0.5, 3100.0)


def test_a_page_that_can_not_be_written_whole_leaves_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "page.html"
    matrix.put(page, "before")
    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", no_room)
        with pytest.raises(OSError, match="No space"):
            matrix.put(page, "half")
    assert page.read_text() == "before"


def test_half_a_page_of_ours_is_nothing_strange(tmp_path: Path) -> None:
    for name in (matrix.LOCK, f".{matrix.MATRIX}", f".{matrix.PAGE}"):
        (tmp_path / name).touch()
    with matrix.held(tmp_path):
        pass


def test_one_part_by_proxies_makes_all_of_it_one_by_proxies(tmp_path: Path) -> None:
    for part, how in {"main": "namespaces", "control": "proxies", "second": None}.items():
        cluster = tmp_path / part / "cluster"
        cluster.parent.mkdir()
        LocalCluster.create(cluster, brokers=1, controllers=1, port=0)
        layout.write(cluster, replace(layout.read(cluster), network=how))
    assert prove_all.grounds_of(tmp_path, None).network == "proxies"


@pytest.mark.slow  # it reads what imports what
def test_two_builds_of_one_apache_kafka_are_two_codes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen to fail: a verdict on one build stood for another of the same version."""

    def code(build: str) -> str:
        monkeypatch.setattr(apache, "find_home", lambda **_: str(tmp_path / build))
        return prove_all.code_of("apache", NAME)

    for build in ("one", "same", "other"):
        (tmp_path / build / "libs").mkdir(parents=True)
        jar = tmp_path / build / "libs" / "kafka_2.13-4.3.1.jar"
        jar.write_text("one" if build == "same" else build)
    assert code("one") == code("same")
    assert code("one") != code("other")
    (tmp_path / "same" / "libs" / "kafka-raft-4.3.1.jar").write_text("a part")
    assert code("one") != code("same")
    assert " of 4.3.1 " in code("one")
