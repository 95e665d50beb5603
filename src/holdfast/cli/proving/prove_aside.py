"""What `prove --all` has found broken, and nobody knows of which code: it is put aside, and counts.

Owns which runs in a folder are such, where they are put, and what is said of them until somebody
removes them. A run has no code where it ended before it was stamped: it was killed, or its disk was
full. Removes nothing.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from itertools import count
from pathlib import Path

from holdfast.judge.history import HistoryError
from holdfast.lab import matrix
from holdfast.lab.journal import MANIFEST, Exit, FolderError, read_journal, read_manifest
from holdfast.lab.matrix import Row
from holdfast.lab.parameters import LabError, Parameters
from holdfast.lab.prove import judge_again, judge_part
from holdfast.lab.scenario import Part, load_scenario

ASIDE = ".broken-"  # in the name of what is put aside, between the scenario's and a number
WHY = "put-aside.txt"  # in it: by what it was broken
UNSAID = "nobody has written down by what."
# What a part can't be judged for: it is torn, or was changed behind its end.
UNREADABLE = (FolderError, HistoryError, OSError, ValueError, RecursionError)


def broken_in(directory: Path, engine: str, scenario: str, code: str) -> Row | None:
    """Return what a run that has to be made again has broken; None: nothing, or of other code.

    One without a verdict is judged by what it has left, as far as that can be read.
    """
    folder = matrix.folder_of(directory, engine, scenario)
    if not folder.is_dir() or matrix.code_in(folder) not in (None, code):
        return None
    row = matrix.row_of(directory, engine, scenario)
    if row is not None:
        return row if Exit(row.exit) is Exit.BROKEN else None
    told = _seen_broken(folder)
    if told is None:
        return None
    row = matrix.not_made(directory, engine, scenario, told)
    return replace(row, exit=int(Exit.BROKEN))


def put_aside(directory: Path, row: Row) -> None:
    """Put a broken run beside where the next one goes. OSError."""
    folder = directory / row.folder
    with suppress(OSError):  # a full disk; its name says as much as counts
        (folder / WHY).write_text(row.verdict + "\n", encoding="utf-8")
    others = (folder.with_name(f"{folder.name}{ASIDE}{number}") for number in count(1))
    folder.rename(next(path for path in others if not path.exists()))


def told(directory: Path, engine: str, scenario: str) -> str:
    """Say what was put aside of a scenario, and where it lies; "": nothing was."""
    return " ".join(
        f"Broken before: {_why(path)} It lies in {path.relative_to(directory)}, and counts until "
        "that is removed: nobody knows of which code it was."
        for path in _found(directory, engine, scenario)
    )


def counted(directory: Path, engine: str, scenario: str, row: Row | None) -> Row | None:
    """Return a row with what was put aside: what was broken stays so, whatever came of the next."""
    words = told(directory, engine, scenario)
    if not words:
        return row
    if row is not None:
        verdict = f"{words} Since then: {row.word}. {row.verdict}"
        return replace(row, exit=int(Exit.BROKEN), verdict=verdict)
    newest = _found(directory, engine, scenario)[-1]
    return replace(
        matrix.not_made(directory, engine, scenario, words),
        exit=int(Exit.BROKEN),
        folder=str(newest.relative_to(directory)),
        has_report=(newest / "report.html").exists(),
    )


def _found(directory: Path, engine: str, scenario: str) -> list[Path]:
    """Return where runs of a scenario were put aside, in the order in which they were."""
    folder = matrix.folder_of(directory, engine, scenario)
    found = folder.parent.glob(f"{folder.name}{ASIDE}*")
    return sorted(
        (path for path in found if path.is_dir()), key=lambda path: (len(path.name), path)
    )


def _why(path: Path) -> str:
    try:
        return (path / WHY).read_text(encoding="utf-8").strip() or UNSAID
    except (OSError, ValueError):
        return UNSAID


def _seen_broken(folder: Path) -> str | None:
    """Say what a run without a verdict has broken; None: nothing that can be read."""
    try:
        outcome = judge_again(folder)
    except FolderError:
        return _broken_by_part(folder)
    return outcome.verdict if outcome.exit is Exit.BROKEN else None


def _broken_by_part(folder: Path) -> str | None:
    """Say the same of a folder that can't be judged as a whole: each part to prove by itself."""
    try:
        manifest = read_manifest(folder)
        base = Parameters.from_json(manifest["parameters"])
        known = {part.name: part for part in load_scenario(manifest["scenario"]).parts}
        parts = [known[name] for name in manifest["parts"]]
    except (FolderError, LabError, KeyError, TypeError, ValueError, AttributeError):
        return None
    for part in parts:
        words = "" if part.is_control else _broken_in_part(part, base, folder / part.name)
        if words:
            return f"Broken ({part.title}: {words}). Not all that it has left can be read."
    return None


def _broken_in_part(part: Part, base: Parameters, directory: Path) -> str:
    with suppress(*UNREADABLE):
        result = judge_part(part, base, directory)
        return result.failed_by if result.seen_broken else ""
    with suppress(FolderError):  # its histories are torn: there are the checks that it has made
        checks = read_journal(directory, directory.parent / MANIFEST).checks
        # What was late may be a busy machine's: a run that was killed does not say.
        return ", ".join(check.name for check in checks if not check.kept and not check.late)
    return ""
