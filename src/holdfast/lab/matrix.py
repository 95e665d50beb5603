"""All scenarios side by side, on each engine: one page, made of what their runs have written.

Owns the folder that holds the runs, which of them need not be made again, and the page. How one is
run is for `lab.prove`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from holdfast.lab.journal import Exit
from holdfast.lab.keeping import VERDICT
from holdfast.lab.report.page import templates
from holdfast.lab.report.scales import duration

MATRIX, PAGE = "matrix.json", "matrix.html"


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

    @property
    def word(self) -> str:
        return {Exit.KEPT: "kept", Exit.BROKEN: "broken"}.get(Exit(self.exit), "not made")


def folder_of(directory: Path, engine: str, scenario: str) -> Path:
    """Return where the run of a scenario on an engine lies, or will."""
    return directory / engine / scenario


def row_of(directory: Path, engine: str, scenario: str) -> Row | None:
    """Return what a run has come to; None: there is none that has ended."""
    folder = folder_of(directory, engine, scenario)
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
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def is_done(row: Row | None) -> bool:
    """Say whether a run need not be made again: it was decided."""
    return row is not None and Exit(row.exit) is not Exit.NOT_MADE


def worst(rows: Iterable[Row]) -> Exit:
    """Return what all of them come to: broken, if one is; not made, if one is not."""
    exits = {Exit(row.exit) for row in rows}
    return next((e for e in (Exit.BROKEN, Exit.NOT_MADE) if e in exits), Exit.KEPT)


def write(directory: Path, rows: Sequence[Row]) -> Path:
    """Write the matrix as data and as a page; return the page. OSError."""
    text = json.dumps([asdict(row) for row in rows], indent=2) + "\n"
    (directory / MATRIX).write_text(text, encoding="utf-8")
    page = directory / PAGE
    page.write_text(render(rows), encoding="utf-8")
    return page


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
