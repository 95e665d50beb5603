"""All scenarios side by side, on each engine: one page, made of what their runs have written.

Owns the folder that holds the runs, which of them need not be made again, and the page. How one is
run is for `lab.prove`.
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from holdfast.lab.journal import Exit
from holdfast.lab.keeping import VERDICT
from holdfast.lab.parameters import LabError
from holdfast.lab.report.page import templates
from holdfast.lab.report.scales import duration

MATRIX, PAGE = "matrix.json", "matrix.html"
LOCK = ".lock"
STAMP = "code.json"  # in a run's folder, written last: which code it holds for


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One scenario on one engine, of its parts that are no control. Times in ms."""

    scenario: str
    engine: str
    exit: int
    promise: str
    verdict: str
    share_acknowledged: float | None  # the least of all parts
    gap_ms: float | None  # the longest in which a partition acknowledged nothing
    recovered_ms: float | None  # the longest from a fault to an acknowledgement
    controls_failed_by: str  # by what each control failed, as it must
    folder: str  # of the run, from the page
    code: str | None  # that its verdict is of; None: nobody knows, or it was changed meanwhile
    with_controls: bool  # whether what must fail was run as well
    has_report: bool

    @property
    def word(self) -> str:
        return {Exit.KEPT: "kept", Exit.BROKEN: "broken"}.get(Exit(self.exit), "not made")


def folder_of(directory: Path, engine: str, scenario: str) -> Path:
    """Return where the run of a scenario on an engine lies, or will."""
    return directory / engine / scenario


@contextmanager
def held(directory: Path) -> Iterator[None]:
    """Hold the folder: two at once would remove each other's runs. LabError: another one does."""
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / LOCK).open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise LabError(
                f"{directory}: another `prove --all` writes there. Wait for it, or name another "
                "folder by --output."
            ) from None
        yield


def stamp(folder: Path, code: str, *, with_controls: bool) -> None:
    """Say which code the verdict in a run's folder is of. OSError."""
    text = json.dumps({"code": code, "controls": with_controls}) + "\n"
    (folder / STAMP).write_text(text, encoding="utf-8")


def _stamped(folder: Path) -> tuple[str | None, bool]:
    """Return the code that a verdict is of, and whether with controls."""
    try:
        values = json.loads((folder / STAMP).read_bytes())
        return str(values["code"]), bool(values["controls"])
    except (OSError, ValueError, KeyError, TypeError):
        return None, False


def row_of(directory: Path, engine: str, scenario: str) -> Row | None:
    """Return what a run has come to; None: there is none that has ended."""
    folder = folder_of(directory, engine, scenario)
    code, with_controls = _stamped(folder)
    try:
        values = json.loads((folder / VERDICT).read_bytes())
        proofs = [part for part in values["parts"] if not part["control"]]
        controls = [part for part in values["parts"] if part["control"]]
        return Row(
            scenario=scenario,
            engine=engine,
            exit=int(values["exit"]),
            promise=values["promise"],
            verdict=values["verdict"],
            share_acknowledged=_least(part["share_acknowledged"] for part in proofs),
            gap_ms=_most(part["gap_ms_longest"] for part in proofs),
            recovered_ms=_most(part["recovered_ms_longest"] for part in proofs),
            controls_failed_by="; ".join(map(_failure, controls)),
            folder=str(folder.relative_to(directory)),
            code=code,
            with_controls=with_controls,
            has_report=(folder / "report.html").exists(),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def not_made(directory: Path, engine: str, scenario: str, why: str) -> Row:
    """Return the row of a run of which there is no verdict."""
    return Row(
        scenario=scenario,
        engine=engine,
        exit=int(Exit.NOT_MADE),
        promise="",
        verdict=why,
        share_acknowledged=None,
        gap_ms=None,
        recovered_ms=None,
        controls_failed_by="",
        folder=str(folder_of(directory, engine, scenario).relative_to(directory)),
        code=None,
        with_controls=False,
        has_report=False,
    )


def is_done(row: Row | None, code: str, *, with_controls: bool) -> bool:
    """Say whether a run need not be made again: it was decided, of this code, with what is asked.

    A verdict holds for one code: of another one it says nothing.
    """
    return (
        row is not None
        and Exit(row.exit) is not Exit.NOT_MADE
        and row.code == code
        and (row.with_controls or not with_controls)
    )


def worst(rows: Iterable[Row]) -> Exit:
    """Return what all of them come to: broken, if one is; not made, if one is not."""
    exits = {Exit(row.exit) for row in rows}
    return next((e for e in (Exit.BROKEN, Exit.NOT_MADE) if e in exits), Exit.KEPT)


def write(directory: Path, rows: Sequence[Row]) -> Path:
    """Write the matrix as data and as a page; return the page. OSError."""
    text = json.dumps([asdict(row) for row in rows], indent=2) + "\n"
    for name, content in ((MATRIX, text), (PAGE, render(rows))):
        whole = directory / f".{name}"  # who looks meanwhile sees the one before
        whole.write_text(content, encoding="utf-8")
        whole.replace(directory / name)
    return directory / PAGE


def render(rows: Sequence[Row]) -> str:
    """Return the page: a row a scenario, and beside each other what the engines made of it."""
    engines = list(dict.fromkeys(row.engine for row in rows))
    scenarios = list(dict.fromkeys(row.scenario for row in rows))
    found = {(row.scenario, row.engine): row for row in rows}
    lines = [(name, [found.get((name, engine)) for engine in engines]) for name in scenarios]
    differ = [
        name for name, cells in lines if len({cell.word for cell in cells if cell is not None}) > 1
    ]
    page: str = (
        templates()
        .get_template("matrix.html")
        .render(engines=engines, lines=lines, differ=differ, shown=_shown, share=_share)
    )
    return page


def _shown(ms: float | None) -> str:
    return "-" if ms is None else duration(ms)


def _share(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f} %"


def _failure(part: dict[str, Any]) -> str:
    broken = [f"{part['anomalies'][name]:,} {name}" for name in part["broken"]]
    failed = [f"not so: {check['name']}" for check in part["checks"] if not check["kept"]]
    return ", ".join([*broken, *failed[:1]]) or "nothing"


def _least(values: Iterable[float | None]) -> float | None:
    return min((value for value in values if value is not None), default=None)


def _most(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)
