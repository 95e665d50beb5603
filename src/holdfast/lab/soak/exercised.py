"""Which files a campaign exercises, where its folders hold what only others use.

A scenario runs its own module and the steps that this one takes, a sink its own store. What is
changed elsewhere in those folders ends none of its proofs. Owns the look into what imports what.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator
from functools import cache
from itertools import chain
from pathlib import PurePosixPath
from typing import Final

from holdfast.lab.background import (
    LAB,
    NETWORK_SCENARIOS,
    PIPELINE_SCENARIOS,
    SINK_KILLS,
    SOURCE,
    files_of,
)
from holdfast.lab.scenario import DRAWN, NETWORKS, PIPELINES, SCENARIOS

# Here each scenario uses some of the modules; of the rest of the lab's, any run uses any.
_LAB: Final = "holdfast/lab/"
_BY_NEED: Final = tuple(f"{_LAB}{folder}/" for folder in ("scenarios", "soak", "steps"))
_CAMPAIGNS: Final = f"{_LAB}soak/scenario_campaigns.py"

# The command line: with what it begins, where each command is, and what `prove` has for others
# than a scenario on a cluster of its own.
_CLI: Final = "holdfast/cli"
_BEGINS: Final = tuple(f"{_CLI}/{name}.py" for name in ("__init__", "__main__", "command_table"))
_COMMANDS: Final = {
    "prove": "prove.py",
    "nodes": "local/local_cluster.py",
    "links": "links/link_commands.py",
}
_PROVING: Final = f"{_CLI}/proving/"

# What is used without being imported: nodes begin with it.
_BESIDE: Final = {"storm": ("holdfast/runtime/settable_clock.py",)}

# What `write` loads for some kinds of tables alone, by the target's scheme.
_SQL: Final = ("catalogs.py", "merging.py", "sql_store.py")
_STORES: Final = {
    "sqlite": _SQL,
    "postgresql": (*_SQL, "postgresql_copy.py", "postgresql_store.py"),
    "parquet": ("parquet/store.py",),
    "delta": ("delta_store.py", "delta_table.py"),
    "iceberg": ("iceberg/",),
    "redis": ("key_value/", "merging.py"),
}


def by_scenario(name: str) -> tuple[str, ...]:
    """Return the files that a scenario runs, below src."""
    place = {**SCENARIOS, **DRAWN}[name].replace(".", "/")
    module = f"holdfast/lab/scenarios/{place}.py"
    files = _of_scenarios(name)
    others = [file for file in files if not file.startswith(_BY_NEED)]
    begin = [file for file in others if file.startswith(_LAB)]  # what else there is imports no step
    needed = _needed([_CAMPAIGNS, module, *begin], files).union(others)
    return (*(file for file in files if file in needed), *_BESIDE.get(name, ()))


def _of_scenarios(name: str) -> tuple[str, ...]:
    if name in PIPELINES:
        return _files(PIPELINE_SCENARIOS)
    return _files(NETWORK_SCENARIOS if name in NETWORKS or name in DRAWN else LAB)


def by_commands(*names: str) -> tuple[str, ...]:
    """Return the files of the command line that these commands take."""
    files = [file for file in _files((_CLI,)) if not file.startswith(_PROVING)]
    needed = _needed([*_BEGINS, *(f"{_CLI}/{_COMMANDS[name]}" for name in names)], files)
    return tuple(file for file in files if file in needed)


def by_sink(scheme: str) -> tuple[str, ...]:
    """Return the files that a table of this kind takes: all but what is other kinds' alone."""
    others = tuple(
        f"holdfast/pipelines/sinks/{place}"
        for place in {*chain.from_iterable(_STORES.values())} - {*_STORES[scheme]}
    )
    return tuple(file for file in _files(SINK_KILLS) if not file.startswith(others))


@cache
def _files(paths: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(files_of(paths))


def _needed(begin: Iterable[str], files: Collection[str]) -> set[str]:
    """Return what is begun with, and all of these files that it imports, at whatever remove."""
    among, found, waiting = set(files), set[str](), list(begin)
    while waiting:
        file = waiting.pop()
        if file not in found:
            found.add(file)
            waiting += [each for each in _imports(file) if each in among]
    return found


@cache
def _imports(file: str) -> tuple[str, ...]:
    """Return the files that a file may import, anywhere in it: modules, and their packages."""
    if not file.endswith(".py"):
        return ()
    names: list[str] = []
    for node in _statements(ast.parse((SOURCE / file).read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            assert node.level == 0, f"{file}: a relative import"
            names += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    places = [PurePosixPath(*name.split(".")) for name in names if name.startswith("holdfast.")]
    packages = [parent / "__init__.py" for place in places for parent in [place, *place.parents]]
    return tuple(map(str, [*(place.with_suffix(".py") for place in places), *packages]))


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a node and all statements in it: no expression imports, and there are many of them."""
    yield node
    for field in ("body", "handlers", "orelse", "finalbody", "cases"):
        for child in getattr(node, field, ()):
            yield from _statements(child)
