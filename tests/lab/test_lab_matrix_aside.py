"""Goal: what `prove --all` has found broken stays so, also where nobody knows of which code it was.

Method: verdicts by hand without a stamp, and folders without a verdict, as a killed run leaves
them; then all is begun again.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.judge.histories import Story
from tests.lab import test_lab_check
from tests.lab.test_lab_check import (
    BAD,
    FINE,
    GOOD,
    LOSSY,
    MAIN,
    UNREAD,
    parts,
    write_part,
    write_run,
)
from tests.lab.test_lab_matrix import GROUNDS, verdict
from tests.lab.test_lab_matrix_left import NAME, NO_ROOM, all_of, no_room, without_clusters

from holdfast.cli.proving import prove_all
from holdfast.lab import matrix
from holdfast.lab.journal import HISTORY, MANIFEST, Exit

CONTROL = [*parts(GOOD)][1]


@pytest.fixture
def proofs(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    return without_clusters(monkeypatch)


def unstamped(tmp_path: Path, code: Exit = Exit.BROKEN, name: str = NAME) -> Path:
    verdict(tmp_path, "embedded", name, code, verdict="3 lost.")
    folder = matrix.folder_of(tmp_path, "embedded", name)
    (folder / matrix.STAMP).unlink()
    (folder / "a history").write_text("of what was broken")
    return folder


def test_what_is_broken_and_of_nobody_knows_which_code_is_put_aside_and_counts(
    tmp_path: Path, proofs: list[Path]
) -> None:
    """Seen to fail: it was removed, and all was kept, with status 0."""
    matrix.write(tmp_path, [], {})
    folder = unstamped(tmp_path)
    for _ in range(2):
        made, said = all_of(tmp_path)
        assert made.status is Exit.BROKEN
        assert made.rows[0].verdict == (
            f"Broken before: 3 lost. It lies in embedded/{NAME}.broken-1, and counts until that is "
            "removed: nobody knows of which code it was. Since then: kept. It was so."
        )
        assert f"embedded {NAME}: {made.rows[0].verdict.partition(' Since then')[0]}" in said
        assert f"embedded/{NAME}.broken-1" in (tmp_path / matrix.PAGE).read_text()
    aside = folder.with_name(f"{NAME}.broken-1")
    assert (aside / "a history").read_text() == "of what was broken"
    assert (folder / matrix.STAMP).exists()
    assert proofs == [folder], "it was made again, once"


def test_what_was_put_aside_counts_until_all_of_it_is_removed(
    tmp_path: Path, proofs: list[Path]
) -> None:
    matrix.write(tmp_path, [], {})
    for _ in range(2):
        folder = unstamped(tmp_path)
        made, _ = all_of(tmp_path)
    for number in (1, 2):
        aside = folder.with_name(f"{NAME}.broken-{number}")
        assert f"{aside.relative_to(tmp_path)}, and counts" in made.rows[0].verdict
        shutil.rmtree(aside)
    made, _ = all_of(tmp_path)
    assert (made.status, made.rows[0].verdict) == (Exit.KEPT, "It was so.")
    assert len(proofs) == 2


def test_what_was_put_aside_counts_also_where_nothing_is_made_in_its_place(
    tmp_path: Path, proofs: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Method: interrupted amid the run that takes its place; the next one finds changed code."""

    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    matrix.write(tmp_path, [], {})
    unstamped(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(prove_all, "prove", interrupted)
        with pytest.raises(KeyboardInterrupt):
            all_of(tmp_path)
    page = (tmp_path / matrix.PAGE).read_text()
    assert "So far: 0 of 1 on embedded." in page
    assert f'href="embedded/{NAME}.broken-1/report.html"' in page
    looks = iter(["a code"])
    monkeypatch.setattr(prove_all, "code_of", lambda _engine, _name: next(looks, "another code"))
    made, _ = all_of(tmp_path)
    assert made.stopped is not None
    assert (made.status, made.rows[0].word) == (Exit.BROKEN, "broken")
    assert not proofs


def test_what_is_broken_counts_also_where_it_can_not_be_put_aside(
    tmp_path: Path, proofs: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    matrix.write(tmp_path, [], {})
    folder = unstamped(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", no_room)
        made, _ = all_of(tmp_path)
    assert (made.status, made.stopped) == (Exit.BROKEN, NO_ROOM)
    assert made.rows[0].verdict == "3 lost."
    assert (folder / "a history").exists()
    assert not proofs


def test_what_was_broken_while_the_code_was_changed_counts_at_once(
    tmp_path: Path, proofs: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Method: behind its run the code is another one; then all is begun with that.

    Seen to fail: it had no row, and was removed.
    """

    def prove(*_: Any, **__: Any) -> Any:
        unstamped(tmp_path)
        codes.append("another code")

    codes = ["a code"]
    monkeypatch.setattr(prove_all, "code_of", lambda _engine, _name: codes[-1])
    with monkeypatch.context() as patched:
        patched.setattr(prove_all, "prove", prove)
        made, _ = all_of(tmp_path)
    assert made.stopped is not None
    assert (made.status, made.rows[0].verdict) == (Exit.BROKEN, "3 lost.")
    made, _ = all_of(tmp_path)
    assert (made.status, made.stopped, len(proofs)) == (Exit.BROKEN, None, 1)
    assert made.rows[0].verdict.startswith("Broken before: 3 lost.")


@pytest.mark.parametrize("is_of_before", [False, True], ids=["today's", "of before"])
def test_what_another_code_has_broken_says_nothing_of_this_one(
    tmp_path: Path, proofs: list[Path], *, is_of_before: bool
) -> None:
    """Method: its stamp, also of a version that did not say on what a verdict rests."""
    matrix.write(tmp_path, [], {})
    folder = unstamped(tmp_path)
    matrix.stamp(folder, "another code", GROUNDS, with_controls=True)
    if is_of_before:
        values = {"code": "another code", "controls": True}
        (folder / matrix.STAMP).write_text(json.dumps(values))
    made, _ = all_of(tmp_path)
    assert (made.status, made.rows[0].verdict) == (Exit.KEPT, "It was so.")
    assert proofs == [folder]


def killed(tmp_path: Path, write: Callable[[Path], object]) -> tuple[prove_all.Made, set[str]]:
    """Return what all comes to behind a run without a verdict, and what lies there then."""
    matrix.write(tmp_path, [], {})
    folder = matrix.folder_of(tmp_path, "embedded", test_lab_check.SCENARIO)
    folder.parent.mkdir()
    write(folder)
    made, _ = all_of(tmp_path)
    return made, {path.name for path in folder.parent.iterdir()}


def failed_check(folder: Path) -> Path:
    def main(part: Path, story: Story) -> None:
        write_part(part, story, (FINE, BAD), ended=False)

    return write_run(folder, {MAIN: UNREAD}, main=main)


def torn(folder: Path, part: str) -> None:
    (history,) = (folder / part / HISTORY).iterdir()
    history.write_bytes(bytes(64) + b"\n" + history.read_bytes())


@pytest.mark.parametrize(
    ("write", "word"),
    [
        (failed_check, "leaders"),
        (lambda folder: write_run(folder, {MAIN: LOSSY}), "1 lost"),
        (lambda folder: torn(failed_check(folder), MAIN), "leaders"),
        (lambda folder: torn(write_run(folder, parts(LOSSY)), CONTROL), "1 lost"),
    ],
    ids=["a check", "a loss", "a check beside what is torn", "a loss beside a torn control"],
)
def test_what_a_killed_run_has_broken_counts_until_it_is_removed(
    tmp_path: Path,
    proofs: list[Path],
    monkeypatch: pytest.MonkeyPatch,
    write: Callable[[Path], object],
    word: str,
) -> None:
    """Method: what the lab's own journal and histories say, in a folder without a verdict.

    Seen to fail: it was removed without a word.
    """
    monkeypatch.setattr(prove_all, "SCENARIOS", [test_lab_check.SCENARIO])
    made, there = killed(tmp_path, write)
    name = test_lab_check.SCENARIO
    assert there == {name, f"{name}.broken-1"}
    assert made.status is Exit.BROKEN
    assert word in made.rows[0].verdict
    assert len(proofs) == 1


@pytest.mark.parametrize(
    "write",
    [
        lambda folder: write_run(folder, {MAIN: GOOD}),
        lambda folder: (failed_check(folder) / MANIFEST).unlink(),
        lambda folder: torn(write_run(folder, {MAIN: GOOD}), MAIN),
        lambda folder: torn(write_run(folder, {MAIN: LOSSY}), MAIN),
        Path.mkdir,
    ],
    ids=["nothing", "no manifest", "torn", "changed behind its end", "empty"],
)
def test_a_killed_run_of_which_nothing_broken_can_be_read_is_made_again(
    tmp_path: Path,
    proofs: list[Path],
    monkeypatch: pytest.MonkeyPatch,
    write: Callable[[Path], object],
) -> None:
    monkeypatch.setattr(prove_all, "SCENARIOS", [test_lab_check.SCENARIO])
    made, there = killed(tmp_path, write)
    assert there == {test_lab_check.SCENARIO}
    assert made.status is Exit.KEPT
    assert len(proofs) == 1


@pytest.mark.parametrize("code", [Exit.BROKEN, Exit.KEPT])
def test_what_is_broken_needs_no_control(tmp_path: Path, proofs: list[Path], code: Exit) -> None:
    """Method: without controls; then with them. Seen to fail: it was removed, and made again."""
    verdict(tmp_path, "embedded", NAME, code, verdict="3 lost.")
    folder = matrix.folder_of(tmp_path, "embedded", NAME)
    matrix.stamp(folder, "a code", GROUNDS, with_controls=False)
    matrix.write(tmp_path, [], {})
    made, said = all_of(tmp_path)
    assert made.rows[0].word == ("broken" if code is Exit.BROKEN else "kept")
    assert len(proofs) == (code is Exit.KEPT)
    assert (f"[embedded 1 of 1] {NAME}: broken already" in said) is (code is Exit.BROKEN)
