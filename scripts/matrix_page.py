"""Keep what `holdfast prove --all` has written: its page, its data, and a table to read here.

    python scripts/matrix_page.py DIR

DIR is the folder that `prove --all --output DIR` has written to. The runs themselves stay there:
the page that is kept in docs/design/matrix/ links to none of them.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path

from holdfast.lab import matrix
from holdfast.lab.matrix import Row
from holdfast.lab.report.figures import NONE, percent
from holdfast.lab.report.scales import duration

ROOT = Path(__file__).parents[1]
KEPT = ROOT / "docs" / "design" / "matrix"
HOW = ROOT / "docs" / "how-to" / "prove.md"
HEAD = """# All scenarios, on each engine

What [`holdfast prove --all`]({how}) has written, until {day}: its page,
[matrix.html](matrix.html), has each promise, verdict and control; its data,
[matrix.json](matrix.json), names the code that each row is of. Here are, of each scenario: its
verdict; the share of events that were acknowledged, the least of its parts; the longest in which a
partition acknowledged nothing; and the longest from a fault to an acknowledgement.

{tallies}

"""


def rows_of(directory: Path) -> list[Row]:
    """Return the rows of a folder, in its order, as they stand in its runs. SystemExit: none."""
    written = matrix.written(directory)
    if written is None:
        raise SystemExit(f"{directory} has no {matrix.MATRIX} that `prove --all` has written.")
    rows = [
        row
        for each in written
        if (row := matrix.row_of(directory, each["engine"], each["scenario"])) is not None
    ]
    if len(rows) < len(written):
        raise SystemExit(f"{directory}: {len(written) - len(rows)} of its runs have no verdict.")
    return [replace(row, has_report=False) for row in rows]


def table_of(rows: Sequence[Row]) -> str:
    """Return a table in Markdown: a line a scenario, its engines side by side."""
    engines = list(dict.fromkeys(row.engine for row in rows))
    found = {(row.scenario, row.engine): row for row in rows}
    titles = [matrix.title_of(engine, rows) for engine in engines]
    lines = [f"| scenario | {' | '.join(titles)} |", f"|--|{'--|' * len(engines)}"]
    for scenario in dict.fromkeys(row.scenario for row in rows):
        cells = [_cell(found.get((scenario, engine))) for engine in engines]
        lines.append(f"| `{scenario}` | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _cell(row: Row | None) -> str:
    if row is None:
        return ""
    times = [NONE if ms is None else duration(ms) for ms in (row.gap_ms, row.recovered_ms)]
    return " · ".join([row.word, percent(row.share_acknowledged), *times])


def keep(directory: Path, kept: Path) -> None:
    """Write the page, the data and the table of a folder into another one."""
    rows = rows_of(directory)
    counts = {
        engine: sum(row.engine == engine for row in rows)
        for engine in dict.fromkeys(row.engine for row in rows)
    }
    when = datetime.fromtimestamp((directory / matrix.MATRIX).stat().st_mtime, UTC)
    tallies = [
        f"- {matrix.title_of(engine, rows)}: "
        f"{matrix.tally(row for row in rows if row.engine == engine)}."
        for engine in counts
    ]
    kept.mkdir(parents=True, exist_ok=True)
    content = [asdict(row) for row in rows]
    matrix.put(kept / matrix.MATRIX, json.dumps(content, indent=2) + "\n")
    matrix.put(kept / matrix.PAGE, matrix.render(rows, counts))
    head = HEAD.format(
        day=f"{when:%-d %B %Y}", how=os.path.relpath(HOW, KEPT), tallies="\n".join(tallies)
    )
    matrix.put(kept / "README.md", head + table_of(rows))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    keep(Path(sys.argv[1]), KEPT)
