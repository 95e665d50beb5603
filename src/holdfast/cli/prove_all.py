"""`holdfast prove --all`: every scenario on every engine, one page; goes on where it ended."""

from __future__ import annotations

import importlib.util
import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from holdfast.lab import matrix
from holdfast.lab.matrix import Row
from holdfast.lab.outcome import Outcome
from holdfast.lab.prove import prove
from holdfast.lab.scenario import PIPELINES, SCENARIOS, load_scenario

SPARK = "pyspark"


def prove_all(
    directory: Path,
    engines: Sequence[str],
    *,
    command: str,
    control: bool,
    say: Callable[[str], None],
) -> tuple[list[Row], Path]:
    """Run what has not been decided in this folder yet; return all rows, and the page.

    The page is written after each run. OSError: it can't be. LabError: there is no such engine.
    """
    directory.mkdir(parents=True, exist_ok=True)
    names = list(scenarios(say))
    rows: dict[tuple[str, str], Row] = {}
    page = directory / matrix.PAGE
    for engine in engines:
        for place, name in enumerate(names, start=1):
            row = matrix.row_of(directory, engine, name)
            head = f"[{engine} {place} of {len(names)}] {name}"
            if matrix.is_done(row):
                say(f"{head}: {row.word if row else ''} already")
            else:
                say(f"{head}")
                outcome = run(directory, engine, name, command=command, control=control, say=say)
                row = matrix.row_of(directory, engine, name)
                assert row is not None, f"{outcome.directory} has no verdict"
            assert row is not None
            rows[name, engine] = row
            page = matrix.write(directory, list(rows.values()))
    return list(rows.values()), page


def run(
    directory: Path,
    engine: str,
    name: str,
    *,
    command: str,
    control: bool,
    say: Callable[[str], None],
) -> Outcome:
    """Run one scenario into its folder, in the place of a run that was not decided."""
    scenario = load_scenario(name)
    folder = matrix.folder_of(directory, engine, name)
    shutil.rmtree(folder, ignore_errors=True)
    parameters = scenario.with_flags({"engine": engine})
    return prove(scenario, parameters, folder, command=command, control=control, say=say)


def scenarios(say: Callable[[str], None]) -> Iterator[str]:
    """Yield the scenarios that can be run here."""
    has_spark = importlib.util.find_spec(SPARK) is not None
    if not has_spark:
        say(f"{len(PIPELINES)} scenarios of Spark are left out: pip install 'holdfast[spark]'.")
    for name in SCENARIOS:
        if has_spark or name not in PIPELINES:
            yield name


def as_json(directory: Path) -> str:
    """Return the matrix as it was written."""
    return json.dumps(json.loads((directory / matrix.MATRIX).read_bytes()), indent=2)
