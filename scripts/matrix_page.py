"""Keep what `holdfast prove --all` has written: its page, its data, and a table to read here.

    python scripts/matrix_page.py DIR

DIR is the folder that `prove --all --output DIR` has written to. The runs themselves stay there:
the page that is kept in docs/design/matrix/ links to none of them. What is kept says no more than
the matrix in DIR does: its rows are taken as they were written, and refused where they can't be
read, or where their runs now say something else.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, fields, replace
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from textwrap import fill
from typing import Any

from holdfast.cli.proving.prove_all import SPARK, files_of
from holdfast.cluster.layout import ENGINES, OLDER
from holdfast.cluster.plan import NAMESPACES, PROXIES
from holdfast.lab import background, matrix
from holdfast.lab.journal import Exit
from holdfast.lab.matrix import Grounds, Row
from holdfast.lab.report.figures import NONE, percent
from holdfast.lab.report.scales import duration
from holdfast.lab.scenario import PIPELINES, SCENARIOS, WITH_ZOOKEEPER

ROOT = Path(__file__).parents[1]
KEPT = ROOT / "docs" / "design" / "matrix"
HOW = ROOT / "docs" / "how-to" / "prove.md"
COLUMNS = 120
MISSING = "not run there"
UNDER = matrix.code_under("", "")  # what stands in a code before a profile that is another one
BUILD = " of "  # in a code, before the version and the build of an Apache Kafka
HERE = "the code that lay in this repository when this was kept"
# By how a value of a row or of its grounds is annotated: as what JSON may give it.
KINDS: Mapping[str, tuple[type, ...]] = {
    "str": (str,),
    "str | None": (str, type(None)),
    "int": (int,),
    "float | None": (float, int, type(None)),
    "bool": (bool,),
    "Mapping[str, str]": (dict,),
    "Grounds | None": (dict, type(None)),
}
HEAD = (
    "What [`holdfast prove --all`]({how}) had written by {day}. A scenario breaks a cluster of its "
    "own, and judges whether that kept what it promises; embedded is a cluster of holdfast's own "
    "nodes. The page, [matrix.html](matrix.html), has each promise, verdict and control; the data, "
    "[matrix.json](matrix.json), also names the code that each row is of."
)
CELLS = (
    "Each cell has, in this order: the verdict (letters behind it are explained below the table); "
    "the share of events that were acknowledged, the least of the scenario's parts; the longest "
    "time in which a partition acknowledged nothing; and the longest time from a fault to an "
    f"acknowledgement. What was not measured is shown as {NONE}."
)
NAMES = (
    "A row names its code by a hash of those files of holdfast that its scenario takes: the same "
    "code has another name in each scenario."
)


def rows_of(directory: Path) -> list[Row]:
    """Return the rows of a folder as its matrix has them, without links to reports.

    SystemExit: it has none, one can't be read, or one's run says something else by now.
    """
    try:
        written = json.loads((directory / matrix.MATRIX).read_bytes())
    except (OSError, ValueError):
        written = None
    if not isinstance(written, list):
        raise SystemExit(f"{directory} has no {matrix.MATRIX} that `prove --all` has written.")
    if not written:
        raise SystemExit(f"{directory}: its {matrix.MATRIX} has no rows.")
    found: dict[tuple[str, str], Row] = {}
    for number, values in enumerate(written, 1):
        row = _row(values, f"{directory}, row {number}")
        name = f"{directory}, row {number}: {row.engine} {row.scenario}"
        _refuse_unplanned(row, name)
        if (row.engine, row.scenario) in found:
            raise SystemExit(f"{name} is there twice.")
        if not _is_said_by_its_run(row, directory):
            raise SystemExit(
                f"{name} is {row.word} in {matrix.MATRIX}, and the run's folder does not say so: "
                f"run `prove --all --output {shlex.quote(str(directory))}` again."
            )
        found[row.engine, row.scenario] = replace(row, has_report=False)
    return [*found.values()]


def _row(values: Any, name: str) -> Row:
    """Return a row that is made of its JSON alone. SystemExit: something is missing, or unknown."""
    if isinstance(values, dict) and {"engine", "scenario"} <= values.keys():
        name = f"{name}: {values['engine']} {values['scenario']}"
    grounds = _checked(Row, values, name)["grounds"]
    if grounds is not None:
        grounds = Grounds(**_checked(Grounds, grounds, name))
        if grounds.network not in {None, NAMESPACES, PROXIES}:
            raise SystemExit(f"{name}: nobody knows the network {grounds.network!r}.")
    if values["exit"] not in {*Exit}:
        raise SystemExit(f"{name}: nobody knows the exit {values['exit']!r}.")
    if not all(isinstance(value, str) for value in values["settings"].values()):
        raise SystemExit(f"{name}: nobody knows the settings {values['settings']!r}.")
    return Row(**{**values, "grounds": grounds})


def _checked(of: type[Row | Grounds], values: Any, name: str) -> dict[str, Any]:
    if not isinstance(values, dict):
        raise SystemExit(f"{name} is no row of ours.")
    kinds = {each.name: KINDS[str(each.type)] for each in fields(of)}
    missing, strange = kinds.keys() - values.keys(), values.keys() - kinds.keys()
    if missing:
        raise SystemExit(f"{name} has no {', '.join(sorted(missing))}.")
    if strange:
        raise SystemExit(f"{name}: nobody knows its {', '.join(sorted(strange))}.")
    for key, value in values.items():
        if type(value) not in kinds[key]:
            raise SystemExit(f"{name}: nobody knows the {key} {value!r}.")
    return values


def _refuse_unplanned(row: Row, name: str) -> None:
    if row.engine not in ENGINES:
        raise SystemExit(f"{name}: there is no such engine here.")
    if row.scenario not in _scenarios_of(row.engine):
        raise SystemExit(f"{name}: there is no such scenario here for this engine.")


def _is_said_by_its_run(row: Row, directory: Path) -> bool:
    """Say whether a run's folder bears out its row, or lets it say less than the run itself.

    It says less where a broken run was put aside, where the run crashed, or has no stamp.
    """
    now = matrix.row_of(directory, row.engine, row.scenario)
    if now is None:  # nothing has ended there, as a crash leaves it
        return row.code is None and Exit(row.exit) is not Exit.KEPT
    is_alike = row == replace(now, exit=row.exit, verdict=row.verdict, has_report=row.has_report)
    if is_alike and row.exit == now.exit:
        return row.verdict.endswith(now.verdict)
    if Exit(now.exit) is Exit.BROKEN or Exit(row.exit) is Exit.KEPT:
        return False
    if is_alike:  # what makes it less stands before what the run has said
        return row.verdict != now.verdict and row.verdict.endswith(now.verdict)
    return row.code is None and now.code is None


def _scenarios_of(engine: str) -> list[str]:
    return [name for name in SCENARIOS if engine != OLDER or name in WITH_ZOOKEEPER]


def unplanned_of(rows: Sequence[Row]) -> list[str]:
    """Return the pipelines of which there is no row: where there is no Spark, none is planned."""
    there = {row.scenario for row in rows}
    planned = {name for row in rows for name in _scenarios_of(row.engine)}
    return [name for name in SCENARIOS if name in (PIPELINES & planned) - there]


def planned_of(rows: Sequence[Row]) -> dict[str, list[str]]:
    """Return the scenarios that each engine of these rows is to have."""
    left_out = unplanned_of(rows)
    return {
        engine: [name for name in _scenarios_of(engine) if name not in left_out]
        for engine in dict.fromkeys(row.engine for row in rows)
    }


def _is_in_place(row: Row) -> bool:
    """Say whether a row is of the run where it belongs; if not, that was put aside."""
    return row.folder == str(matrix.folder_of(Path(), row.engine, row.scenario))


def tallies_of(rows: Sequence[Row]) -> str:
    """Return a list in Markdown: of each engine what its rows came to, and how many are there."""
    lines = []
    planned = planned_of(rows)
    for engine in (*planned, *(each for each in ENGINES if each not in planned)):
        mine = [row for row in rows if row.engine == engine]
        words = MISSING
        if mine:
            made, count = sum(map(_is_in_place, mine)), len(planned[engine])
            words = f"{made} of {_counted(count, 'scenario')}: {matrix.tally(mine)}"
        lines.append(f"- {matrix.title_of(engine, rows)}: {words}.")
    return "\n".join(lines) + "\n"


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _is(count: int) -> str:
    return "is" if count == 1 else "are"


def _profile(row: Row) -> str:
    """Return under which profile a row was made, by its stamp, or by its settings."""
    if row.code is not None:
        return row.code.partition(UNDER)[2] or matrix.PROFILE
    return row.settings.get("profile", matrix.PROFILE)


def _build(row: Row) -> str:
    """Return the version and the build of the Apache Kafka that a row is of; "": of none."""
    version, _, build = (row.code or "").partition(UNDER)[0].partition(BUILD)[2].partition(" ")
    return f"Apache Kafka {version}, build {build}" if version else ""


def _is_of_code_here(row: Row) -> bool | None:
    """Say whether a row is of the code that lies here; None: nobody knows of which it is."""
    if row.code is None:
        return None
    code = row.code.partition(UNDER)[0].partition(BUILD)[0]
    return code == background.fingerprint(files_of(row.engine, row.scenario))


class Marks:
    """What is to be known of some rows, and not of most; each thing gets a letter."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.of_here = {(row.engine, row.scenario): _is_of_code_here(row) for row in rows}
        counts = Counter(self.of_here.values())
        # Where none or all are of the code here, this is said of them all.
        self._marked = counts[False] > counts[True] if counts[False] and counts[True] else None
        self._builds = {
            engine: Counter(filter(None, (_build(row) for row in rows if row.engine == engine)))
            for engine in ENGINES
        }
        said = (words for row in rows for words in self._words(row))
        self.letters = {words: _letter(at) for at, words in enumerate(dict.fromkeys(said))}

    def of(self, row: Row) -> list[str]:
        """Return the letters of a row."""
        return [self.letters[words] for words in self._words(row)]

    def _words(self, row: Row) -> Iterator[str]:
        if row.code is None or row.grounds is None:
            yield (
                "It has no stamp: nobody knows of which code it is, what else it rests on, or "
                "whether its control was run."
            )
        elif not row.with_controls:
            yield (
                "Its control was left out (--no-control): nothing shows that the fault did what "
                "it was to do."
            )
        if not _is_in_place(row):
            yield "It was put aside, and was not run again."
        if row.grounds is not None and row.grounds.network == PROXIES:
            yield "Links were broken by proxies, which show less than network namespaces."
        if _profile(row) != matrix.PROFILE:
            yield (
                f"It was run under --profile {_profile(row)}, and not under the usual one, "
                f"{matrix.PROFILE}."
            )
        of_here = self.of_here[row.engine, row.scenario]
        if of_here is not None and of_here is self._marked:
            yield f"It is of {HERE}; most rows are not." if of_here else f"It is not of {HERE}."
        builds = self._builds[row.engine]
        if _build(row) and _build(row) != builds.most_common(1)[0][0]:
            yield f"It is of {_build(row)}; most rows of this engine are of another one."

    def codes(self) -> str:
        """Return how many rows are of which code."""
        counts = Counter(self.of_here.values())
        here, rows = counts[True], _counted(counts.total(), "row")
        which = f"{here} of {rows}" if here else f"None of the {rows}"
        said = [f"{which} {_is(max(here, 1))} of {HERE}."]
        if counts[False]:
            said.append(f"{counts[False]} {_is(counts[False])} of other code.")
        if counts[False] > 1:
            said.append("Their names do not tell whether these are of one and the same code.")
        if counts[None]:
            said.append(f"Of {_counted(counts[None], 'row')} nobody knows of which code.")
        builds: Counter[str] = sum(self._builds.values(), Counter())
        said += [
            f"{_counted(count, 'row')} {_is(count)} of {name}."
            for name, count in builds.most_common()
        ]
        return " ".join(said)


def _letter(at: int) -> str:
    return f"({chr(ord('a') + at)})" if at < 26 else f"({at + 1})"


def table_of(rows: Sequence[Row], marks: Marks) -> str:
    """Return a table in Markdown: a line a scenario, its engines side by side."""
    planned = planned_of(rows)
    found = {(row.scenario, row.engine): row for row in rows}
    titles = [matrix.title_of(engine, rows) for engine in planned]
    lines = [f"| scenario | {' | '.join(titles)} |", f"|--|{'--|' * len(planned)}"]
    for scenario in SCENARIOS:
        if not any(scenario in _scenarios_of(engine) for engine in planned):
            continue
        cells = []
        for engine in planned:
            row = found.get((scenario, engine))
            gap = MISSING if scenario in _scenarios_of(engine) else ""
            cells.append(gap if row is None else _cell(row, marks))
        lines.append(f"| `{scenario}` | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _cell(row: Row, marks: Marks) -> str:
    times = [NONE if ms is None else duration(ms) for ms in (row.gap_ms, row.recovered_ms)]
    word = " ".join([row.word, *marks.of(row)])
    return " · ".join([word, percent(row.share_acknowledged), *times])


def _filled(words: str, *, in_list: bool = False) -> str:
    """Return a paragraph, or an item of a list, in lines as they are in all documents."""
    return fill(
        words,
        COLUMNS,
        initial_indent="- " if in_list else "",
        subsequent_indent="  " if in_list else "",
        break_on_hyphens=False,
    )


def _failed(row: Row, rows: Sequence[Row]) -> str:
    """Return what a row that was not kept has to say."""
    is_said = row.verdict.lower().startswith(row.word)
    words = row.verdict if is_said else f"{row.word.capitalize()}. {row.verdict}"
    title = matrix.title_of(row.engine, rows)
    return f"`{row.scenario}` on {title}: {escape(words, quote=False)}"


def page_of(rows: Sequence[Row], when: datetime) -> str:
    """Return what is to be read: how much there is of it, the table, and what was not kept."""
    marks = Marks(rows)
    left_out = ", ".join(f"`{name}`" for name in unplanned_of(rows))
    has_gaps = OLDER in planned_of(rows) and any(row.engine != OLDER for row in rows)
    cells = [CELLS, f"Where a cell is empty, {matrix.title_of(OLDER, rows)} has no such scenario."]
    failed = [_failed(row, rows) for row in rows if Exit(row.exit) is not Exit.KEPT]
    told = [f"{letter} {words}" for words, letter in marks.letters.items()]
    how = os.path.relpath(HOW, KEPT)
    parts = [
        "# All scenarios, on each engine",
        _filled(HEAD.format(how=how, day=f"{when:%-d %B %Y}")),
        tallies_of(rows).rstrip(),
        _filled(f"Not run there (they need {SPARK}): {left_out}.") if left_out else "",
        _filled(f"{NAMES} {marks.codes()}"),
        _filled(" ".join(cells if has_gaps else cells[:1])),
        table_of(rows, marks).rstrip(),
        "\n".join(_filled(each, in_list=True) for each in told),
        "## What was broken, or not made" if failed else "",
        "\n".join(_filled(each, in_list=True) for each in failed),
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


def keep(directory: Path, kept: Path) -> None:
    """Write the page, the data and the table of a folder into another one."""
    rows = rows_of(directory)
    counts = {engine: len(names) for engine, names in planned_of(rows).items()}
    left_out = unplanned_of(rows)
    unplanned = {f"they need {SPARK}": left_out} if left_out else {}
    when = datetime.fromtimestamp((directory / matrix.MATRIX).stat().st_mtime, UTC)
    kept.mkdir(parents=True, exist_ok=True)
    content = [asdict(row) for row in rows]
    matrix.put(kept / matrix.MATRIX, json.dumps(content, indent=2) + "\n")
    matrix.put(kept / matrix.PAGE, matrix.render(rows, counts, unplanned))
    matrix.put(kept / "README.md", page_of(rows, when))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    keep(Path(sys.argv[1]), KEPT)
