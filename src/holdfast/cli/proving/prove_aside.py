"""What `prove --all` has found broken, and would make again: it is put aside, and counts.

Owns which runs in a folder are such, where they are put, and what is said of them until somebody
removes them. Of some nobody knows of which code they are: such a run ended before it was stamped,
was killed, or its disk was full. Others are of this code, and of another profile, for which they
count. Removes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import NamedTuple

from holdfast.lab import matrix
from holdfast.lab.journal import MANIFEST, Exit, FolderError, read_journal, read_manifest
from holdfast.lab.matrix import Row
from holdfast.lab.parameters import LabError, Parameters
from holdfast.lab.prove import judge_again, judge_part
from holdfast.lab.scenario import Part, load_scenario

ASIDE = ".broken-"  # in the name of what is put aside, behind the scenario's; then a number
WHY = "put-aside.txt"  # in it: by what it was broken
UNSAID = "nobody has written down by what."


class Asked(NamedTuple):
    """A run that is asked for: where it goes, of which code it would be, under which profile."""

    directory: Path
    engine: str
    scenario: str
    code: str
    profile: str

    @property
    def folder(self) -> Path:
        return matrix.folder_of(self.directory, self.engine, self.scenario)

    def counts(self, folder: Path) -> bool:
        """Say whether what lies in a folder counts here: unless it is of another code or profile.

        What nobody knows of it does not keep it from that.
        """
        is_of_profile = matrix.profile_in(folder) in (None, self.profile)
        return is_of_profile and not _is_of_other(folder, self.code)


def broken_in(asked: Asked, say: Callable[[str], None]) -> Row | None:
    """Return what a run that has to be made again has broken; None: nothing, or of other code.

    It may be of another profile. One without a verdict is judged by what it has left, as far as
    that can be read; where it can't be, that is said. OSError.
    """
    folder = asked.folder
    if not folder.is_dir() or _is_of_other(folder, asked.code):
        return None
    row = matrix.row_of(asked.directory, asked.engine, asked.scenario)
    if row is not None:
        return row if Exit(row.exit) is Exit.BROKEN else None
    told = _seen_broken(asked, say)
    if told is None:
        return None
    row = matrix.not_made(asked.directory, asked.engine, asked.scenario, told)
    return replace(row, exit=int(Exit.BROKEN))


def put_aside(directory: Path, row: Row) -> None:
    """Put a broken run beside where the next one goes. OSError."""
    folder = directory / row.folder
    profile = matrix.profile_in(folder) or matrix.PROFILE
    under = "" if profile == matrix.PROFILE else f"{profile}-"
    with suppress(OSError):  # a full disk; its name says as much as counts
        (folder / WHY).write_text(row.verdict + "\n", encoding="utf-8")
    others = (folder.with_name(f"{folder.name}{ASIDE}{under}{number}") for number in count(1))
    folder.rename(next(path for path in others if not path.exists()))


def told(asked: Asked) -> str:
    """Say what was put aside of a run and counts, and where it lies; "": nothing was. OSError."""
    return " ".join(
        f"Broken before: {_why(path)} It lies in {path.relative_to(asked.directory)}, and counts "
        f"until that is removed{_for_code(path)}."
        for path in _counted(asked)
    )


def told_of_others(asked: Asked) -> str:
    """Say the same of what counts under another profile. OSError."""
    return " ".join(
        f"Broken before under --profile {matrix.profile_in(path)}: {_why(path)} It lies in "
        f"{path.relative_to(asked.directory)}, and counts for that profile alone."
        for path in _found(asked)
        if not asked.counts(path) and not _is_of_other(path, asked.code)
    )


def counted(asked: Asked, row: Row | None) -> Row | None:
    """Return a row with what was put aside: what was broken stays so, whatever came of the next.

    OSError: nobody can look.
    """
    words = told(asked)
    if not words:
        return row
    if row is not None:
        verdict = f"{words} Since then: {row.word}. {row.verdict}"
        return replace(row, exit=int(Exit.BROKEN), verdict=verdict)
    newest = _counted(asked)[-1]
    return replace(
        matrix.not_made(asked.directory, asked.engine, asked.scenario, words),
        exit=int(Exit.BROKEN),
        folder=str(newest.relative_to(asked.directory)),
        has_report=(newest / "report.html").exists(),
    )


def _is_of_other(folder: Path, code: str) -> bool:
    """Say whether what lies in a folder is of another code, and says nothing of this one."""
    return matrix.code_in(folder) not in (None, code)


def _for_code(path: Path) -> str:
    """Say for how long a run that was put aside counts beside."""
    is_stamped = matrix.code_in(path) is not None
    return ", or the code is another one" if is_stamped else ": nobody knows of which code it was"


def _counted(asked: Asked) -> list[Path]:
    return [path for path in _found(asked) if asked.counts(path)]


def _found(asked: Asked) -> list[Path]:
    """Return where runs of a scenario were put aside, in the order in which they were. OSError."""
    folder = asked.folder
    found = folder.parent.glob(f"{folder.name}{ASIDE}*")
    return sorted(
        (path for path in found if path.is_dir()), key=lambda path: (len(path.name), path)
    )


def _why(path: Path) -> str:
    try:
        return (path / WHY).read_text(encoding="utf-8").strip() or UNSAID
    except (OSError, ValueError):
        return UNSAID


def _seen_broken(asked: Asked, say: Callable[[str], None]) -> str | None:
    """Return what a run without a verdict has broken; None: nothing that can be read."""
    try:
        outcome = judge_again(asked.folder)
    except Exception as problem:  # noqa: BLE001 - whatever it is, it keeps nobody from the others
        words = _broken_by_part(asked.folder)
        if words is None:
            say(
                f"{asked.engine} {asked.scenario}: a run without a verdict can't be judged, and "
                f"nothing of it that can is broken: {problem}"
            )
        return words
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
    # It is torn, was changed behind its end, is of older code, or there is an error of ours.
    with suppress(Exception):
        result = judge_part(part, base, directory)
        return result.failed_by if result.seen_broken else ""
    with suppress(FolderError):  # its histories are torn: there are the checks that it has made
        checks = read_journal(directory, directory.parent / MANIFEST).checks
        # What was late may be a busy machine's: a run that was killed does not say.
        return ", ".join(check.name for check in checks if not check.kept and not check.late)
    return ""
