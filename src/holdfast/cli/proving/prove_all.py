"""`holdfast prove --all`: every scenario on every engine, one page; goes on where it ended."""

from __future__ import annotations

import importlib.util
import json
import shutil
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from holdfast.cluster import apache
from holdfast.cluster.layout import EMBEDDED, OLDER
from holdfast.lab import background, matrix
from holdfast.lab.matrix import Row
from holdfast.lab.prove import prove
from holdfast.lab.scenario import PIPELINES, SCENARIOS, WITH_ZOOKEEPER, load_scenario
from holdfast.lab.soak.exercised import by_scenario

SPARK = "pyspark"
CRASH = "crash.txt"  # in a run's folder
# What our nodes alone run: the lab and its clients speak the protocol by `wire`, and read `config`.
OURS_ALONE = ("core", "log", "node", "runtime")


def prove_all(
    directory: Path,
    engines: Sequence[str],
    *,
    command: str,
    control: bool,
    say: Callable[[str], None],
) -> tuple[list[Row], Path]:
    """Run what has not been decided in this folder yet; return all rows, and the page.

    The page is written after each run. OSError: it can't be. LabError, ClusterError: there is no
    such engine, or another one writes into the folder.
    """
    for engine in engines:
        if engine != EMBEDDED:  # said at once, not when all of ours are done
            apache.find_home(with_zookeeper=engine == OLDER)
    with matrix.held(directory):
        names = list(scenarios(say))
        rows: list[Row] = []
        page = directory / matrix.PAGE
        for engine in engines:
            mine = [name for name in names if engine != OLDER or name in WITH_ZOOKEEPER]
            for place, name in enumerate(mine, start=1):
                code = code_of(engine, name)
                row = matrix.row_of(directory, engine, name)
                head = f"[{engine} {place} of {len(mine)}] {name}"
                if row is not None and matrix.is_done(row, code, with_controls=control):
                    say(f"{head}: {row.word} already")
                else:
                    say(head)
                    row = run(directory, engine, name, command=command, control=control, say=say)
                rows.append(row)
                page = matrix.write(directory, rows)
    return rows, page


def code_of(engine: str, scenario: str) -> str:
    """Return a name for all that a verdict is of. ClusterError: there is no such engine."""
    paths = by_scenario(scenario)
    if engine == EMBEDDED:
        return background.fingerprint(paths)
    nodes = tuple(f"holdfast/{folder}/" for folder in OURS_ALONE)
    theirs = ("holdfast/cluster/apache.py", "holdfast/cluster/zookeeper.py")
    ours = (*(path for path in paths if not path.startswith(nodes)), *theirs)
    found = apache.version(apache.find_home(with_zookeeper=engine == OLDER))
    assert found is not None, "it was found"
    return f"{background.fingerprint(ours)} of {'.'.join(map(str, found))}"


def run(
    directory: Path,
    engine: str,
    name: str,
    *,
    command: str,
    control: bool,
    say: Callable[[str], None],
) -> Row:
    """Run one scenario into its folder, in the place of a run that does not count.

    One that crashes is not made, and keeps nobody from the others.
    """
    folder = matrix.folder_of(directory, engine, name)
    if folder.exists():
        shutil.rmtree(folder)
    code = code_of(engine, name)
    try:
        scenario = load_scenario(name)
        parameters = scenario.with_flags({"engine": engine})
        prove(scenario, parameters, folder, command=command, control=control, say=say)
        if code_of(engine, name) == code:
            matrix.stamp(folder, code, with_controls=control)
    except Exception as problem:  # noqa: BLE001 - whatever it is, it is kept, and others go on
        folder.mkdir(parents=True, exist_ok=True)
        (folder / CRASH).write_text(traceback.format_exc(), encoding="utf-8")
        why = f"It crashed ({type(problem).__name__}: {problem}): {folder / CRASH}"
        say(why)
        return matrix.not_made(directory, engine, name, why)
    row = matrix.row_of(directory, engine, name)
    return row or matrix.not_made(directory, engine, name, "Its verdict could not be written.")


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
