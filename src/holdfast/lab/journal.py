"""What a run writes down of itself as it goes, so that its folder can be judged again.

The manifest says what was to be run; the journal of a run on a cluster has each check in the moment
in which it was made, and at last how the run ended, with a seal over the histories that belong to
it. A journal without an end is that of a run that was killed. Nothing here judges anything.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any

import msgspec

from holdfast.lab.evidence import history_files
from holdfast.lab.report import Check, Table

FORMAT = 1
MANIFEST = "run.json"
JOURNAL = "journal.jsonl"
HISTORY = "history"
KILLED = "the run was ended before it came to its end"


class Exit(IntEnum):
    """What became of a promise. Not made: nothing was seen broken, and nothing was proven."""

    KEPT = 0
    BROKEN = 1
    NOT_MADE = 2

    @property
    def kept(self) -> bool | None:
        """Whether the promise was kept; None: nobody knows."""
        return None if self is Exit.NOT_MADE else self is Exit.KEPT


class FolderError(Exception):
    """A folder can't be judged: it holds no run, or not what the run left. One clear sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """What a journal says. `broke_off` is None only when the run came to its end."""

    checks: tuple[Check, ...]
    tables: tuple[Table, ...] = ()
    lost_expected: int | None = None
    expired_expected: Mapping[str, int] | None = None
    groups_expected: Mapping[str, tuple[int, int]] | None = None
    lost_named: tuple[tuple[int, int, str], ...] | None = None  # by partition, offset and id
    broke_off: str | None = None
    starved: str | None = None  # which nodes the machine gave too little of a processor
    unreached: str | None = None  # when a cluster elsewhere did not answer the lab
    told: tuple[str, ...] = ()  # what the steps have to say beside their checks


def write_manifest(directory: Path, kind: str, **values: Any) -> None:
    """Say what is about to be run in this folder, before it is."""
    text = json.dumps({"format": FORMAT, "kind": kind, **values}, indent=2) + "\n"
    (directory / MANIFEST).write_text(text, encoding="utf-8")


def read_manifest(directory: Path) -> dict[str, Any]:
    """Return what was to be run in this folder, its kind included. FolderError: it holds no run."""
    path = directory / MANIFEST
    if not directory.is_dir():
        what = "it is no folder" if directory.exists() else "there is no such folder"
        raise FolderError(f"{directory}: {what}.")
    try:
        values = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise FolderError(
            f"{directory} holds no run of holdfast: there is no {MANIFEST}."
        ) from None
    except OSError as error:
        raise FolderError(f"{path}: {error.strerror}.") from error
    except (ValueError, RecursionError) as error:
        raise FolderError(f"{path} is damaged: {error}.") from error
    if not isinstance(values, dict) or not isinstance(values.get("kind"), str):
        raise FolderError(f"{path} is damaged: it does not say what was run.")
    if values.pop("format", None) != FORMAT:
        raise FolderError(f"{path} was written by another version of holdfast.")
    return values


class Journal:
    """The journal of one run, written as it goes: a line that was written survives any kill."""

    def __init__(self, directory: Path) -> None:
        """Create it anew. OSError when that can't be done."""
        self._directory = directory
        self.unreached: str | None = None  # of `Recorded`
        self._checks = 0
        self._file = (directory / JOURNAL).open("xb", buffering=0)

    def check(self, check: Check) -> None:
        self._checks += 1
        self._write({"check": asdict(check)})

    def end(
        self,
        manifest: Path,
        broke_off: str | None = None,
        tables: Iterable[Table] = (),
        lost_expected: int | None = None,
        expired_expected: Mapping[str, int] | None = None,
        groups_expected: Mapping[str, tuple[int, int]] | None = None,
        lost_named: Iterable[tuple[int, int, str]] | None = None,
        starved: str | None = None,
        told: Iterable[str] = (),
    ) -> None:
        """Write how the run ended, and seal what it leaves; every history is closed by now."""
        files = [manifest, *history_files(self._directory / HISTORY)]
        self._write(
            {
                "end": {
                    "checks": self._checks,
                    "broke_off": broke_off,
                    "starved": starved,
                    "unreached": self.unreached,
                    "told": [*told],
                    "lost_expected": lost_expected,
                    "expired_expected": expired_expected,
                    "groups_expected": groups_expected,
                    "lost_named": None if lost_named is None else [*lost_named],
                    "tables": [asdict(table) for table in tables],
                    "sealed": {path.name: _digest(path) for path in files},
                }
            }
        )
        self.close()

    def close(self) -> None:
        self._file.close()

    def _write(self, row: Mapping[str, object]) -> None:
        view = memoryview((json.dumps(row, ensure_ascii=False) + "\n").encode())
        while view:
            view = view[self._file.write(view) :]


def read_journal(directory: Path, manifest: Path) -> Recorded:
    """Return what a run wrote of itself. FolderError: it is damaged, or its files were changed."""
    path = directory / JOURNAL
    try:
        *lines, rest = path.read_bytes().split(b"\n")
    except OSError as error:
        raise FolderError(f"{path}: {error.strerror}.") from error
    checks: list[Check] = []
    end: Mapping[str, Any] | None = None
    try:
        for line in lines:
            row = json.loads(line)
            if end is not None:
                raise FolderError(f"{path} is damaged: it goes on behind its end.")
            if "check" in row:
                checks.append(msgspec.convert(row["check"], Check))
            else:
                end = row["end"]
        if end is None:  # what is torn at the end of a killed run's journal was not written
            return Recorded(checks=tuple(checks), broke_off=KILLED)
        if rest:
            raise FolderError(f"{path} is damaged: it goes on behind its end.")
        if end["checks"] != len(checks):
            raise FolderError(f"{path} is damaged: it has {len(checks)} of its checks.")
        _verify(directory, manifest, end["sealed"])
        return Recorded(
            checks=tuple(checks),
            tables=tuple(msgspec.convert(each, Table) for each in end["tables"]),
            lost_expected=msgspec.convert(end["lost_expected"], int | None),
            # None also where the run was before there was one
            expired_expected=msgspec.convert(end.get("expired_expected"), dict[str, int] | None),
            groups_expected=msgspec.convert(
                end.get("groups_expected"), dict[str, tuple[int, int]] | None
            ),
            lost_named=msgspec.convert(
                end.get("lost_named"), tuple[tuple[int, int, str], ...] | None
            ),
            broke_off=msgspec.convert(end["broke_off"], str | None),
            starved=msgspec.convert(end.get("starved"), str | None),
            unreached=msgspec.convert(end.get("unreached"), str | None),
            told=msgspec.convert(end.get("told", ()), tuple[str, ...]),
        )
    except OSError as error:
        raise FolderError(f"{error.filename}: {error.strerror}.") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise FolderError(f"{path} is damaged: {error!r}.") from error


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _verify(directory: Path, manifest: Path, sealed: Mapping[str, str]) -> None:
    """Hold the files against the seal: what was changed afterwards proves nothing."""
    there = {path.name: path for path in (manifest, *history_files(directory / HISTORY))}
    for name in sorted(sealed.keys() | there.keys()):
        if name not in there:
            raise FolderError(f"{directory}: {name} is missing; the run left it.")
        if name not in sealed:
            raise FolderError(f"{there[name]} was added after the run.")
        if _digest(there[name]) != sealed[name]:
            raise FolderError(
                f"{there[name]} was changed after the run: it proves nothing any more."
            )
