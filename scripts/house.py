#!/usr/bin/env python3
"""Count what keeps the house in order: rooms, circles, arrows, names, sizes, assertions.

    scripts/house.py                   the working tree
    scripts/house.py 01ac33e           that revision beside the working tree
    scripts/house.py 01ac33e v0.2      two revisions, or folders that hold a `src`

`--names` lists what was counted in the last tree, `--json` prints all of it for a program.
Every import counts, those under TYPE_CHECKING and inside functions too: whoever reads a module
must know what it names. The order of the rooms is that of the `layers` contracts in this
repository's pyproject.toml, for old trees as well: a module that has a room's name counts as it.
What typer calls has its command's options as parameters, and its help as docstring: of that only
the rest counts.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import subprocess
import tarfile
import tempfile
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "holdfast"

# Folders that are read as a list: a file per API, message, scenario or kind of fault.
CATALOGUES = ("node/api", "wire/messages", "wire/records", "lab/scenarios", "testing/simulation")
# What is decided in `core` and performed in `node` may carry one name.
PURE, PERFORMED = "core", "node"
MODULES_MAX, LINES_MAX, PARAMETERS_MAX = 20, 60, 6

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Module:
    """One file of the tree."""

    name: str  # dotted, as imported
    folder: str  # below the package; "." is its top, another package's is its own name
    is_package: bool
    tree: ast.Module
    nodes: list[ast.AST]  # all of the tree

    @property
    def stem(self) -> str:
        return self.name.rpartition(".")[2]

    def at(self, node: ast.stmt, what: str) -> str:
        """Say where something stands, for a person."""
        return f"{self.folder}/{self.stem}.py:{node.lineno} {what}".removeprefix("./")


@dataclass
class Counts:
    """What was found in one tree. Lists name each finding."""

    modules: dict[str, int] = field(default_factory=dict)  # of each folder, without __init__.py
    crowded: list[str] = field(default_factory=list)
    circles: list[str] = field(default_factory=list)
    arrows_up: list[str] = field(default_factory=list)
    names_twice: list[str] = field(default_factory=list)
    long_functions: list[str] = field(default_factory=list)
    long_parameter_lists: list[str] = field(default_factory=list)
    none_assertions: list[str] = field(default_factory=list)
    statements: dict[str, int] = field(default_factory=dict)


# What is printed: a title, the field, and the most that is wanted.
GOALS = (
    (f"folders over {MODULES_MAX} modules", "crowded", 0),
    ("circles of imports", "circles", 0),
    ("arrows that run up in node and core", "arrows_up", 0),
    ("module names used twice or more", "names_twice", 7),
    (f"functions over {LINES_MAX} lines", "long_functions", 0),
    (f"parameter lists over {PARAMETERS_MAX}", "long_parameter_lists", 11),
    ('assertions of "is not None"', "none_assertions", 29),
)


def count(sources: Path, layers: Sequence[Sequence[frozenset[str]]]) -> Counts:
    """Count all of it in the packages that lie in `sources`."""
    modules = list(read_modules(sources))
    graph = imports(modules)
    counts = Counts()
    counts.modules = dict(
        sorted(Counter(each.folder for each in modules if not each.is_package).items())
    )
    counts.crowded = [
        f"{folder} ({modules_there})"
        for folder, modules_there in counts.modules.items()
        if modules_there > MODULES_MAX and folder not in CATALOGUES
    ]
    counts.circles = [" <-> ".join(sorted(circle)) for circle in circles(graph)]
    counts.arrows_up = sorted(arrows_up(graph, layers))
    counts.names_twice = names_twice(modules)
    statements: Counter[str] = Counter()
    for module in modules:
        statements[module.folder.partition("/")[0]] += statements_in(module)
        for node in module.nodes:
            if isinstance(node, Function):
                measure(module, node, counts)
        counts.none_assertions += none_assertions(module)
    counts.statements = dict(sorted(statements.items()))
    return counts


def read_modules(sources: Path) -> Iterator[Module]:
    """Parse every Python file below `sources`."""
    for path in sorted(sources.rglob("*.py")):
        inside = path.relative_to(sources)
        is_package = inside.name == "__init__.py"
        name = ".".join(inside.parent.parts if is_package else inside.with_suffix("").parts)
        folder = "/".join(inside.parent.parts).removeprefix(PACKAGE).lstrip("/") or "."
        tree = ast.parse(path.read_bytes(), str(path))
        yield Module(name, folder, is_package, tree, list(ast.walk(tree)))


# -- imports -----------------------------------------------------------------------------------


def imports(modules: Sequence[Module]) -> dict[str, set[str]]:
    """Return which modules of the tree each one imports, wherever in it the import stands."""
    names = {module.name for module in modules}
    graph: dict[str, set[str]] = {}
    for module in modules:
        found: set[str] = set()
        for node in module.nodes:
            if isinstance(node, ast.Import):
                found.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                base = _imported_from(module, node)
                # `from package import name` means the module of that name where there is one.
                for alias in node.names:
                    inner = f"{base}.{alias.name}"
                    found.add(inner if inner in names else base)
        graph[module.name] = (found & names) - {module.name}
    return graph


def _imported_from(module: Module, node: ast.ImportFrom) -> str:
    if node.level == 0:
        return node.module or ""
    parts = module.name.split(".")
    up = node.level - 1 if module.is_package else node.level
    return ".".join([*parts[: len(parts) - up], *filter(None, [node.module])])


def circles(graph: Mapping[str, set[str]]) -> list[set[str]]:
    """Return the groups of modules of which each one imports, over others, every other one."""
    reached = {name: _reachable(graph, name) for name in graph}
    found: list[set[str]] = []
    seen: set[str] = set()
    for name in sorted(graph):
        if name in reached[name] and name not in seen:
            circle = {other for other in reached[name] if name in reached[other]}
            seen |= circle
            found.append(circle)
    return found


def _reachable(graph: Mapping[str, set[str]], start: str) -> set[str]:
    found: set[str] = set()
    left = [start]
    while left:
        for name in graph[left.pop()] - found:
            found.add(name)
            left.append(name)
    return found


def arrows_up(
    graph: Mapping[str, set[str]], layers: Sequence[Sequence[frozenset[str]]]
) -> Iterator[str]:
    """Yield each import from one layer into a higher one, or between two rooms of one layer."""
    for contract in layers:
        rooms = {room: height for height, layer in enumerate(contract) for room in layer}
        for name, imported in graph.items():
            here = _room(name, rooms)
            for other in imported:
                there = _room(other, rooms)
                if here and there and here != there and rooms[there] <= rooms[here]:
                    yield f"{name} -> {other}"


def _room(name: str, rooms: Iterable[str]) -> str | None:
    return next((room for room in rooms if f"{name}.".startswith(f"{room}.")), None)


def read_layers(pyproject: Path) -> list[list[frozenset[str]]]:
    """Read the layers contracts of import-linter, the highest layer first."""
    linter = tomllib.loads(pyproject.read_text())["tool"]["importlinter"]
    found = []
    for contract in linter["contracts"]:
        if contract["type"] != "layers":
            continue
        for container in contract.get("containers", [""]):
            prefix = f"{container}." if container else ""
            found.append(
                [
                    frozenset(prefix + room.strip(" ()") for room in layer.split("|"))
                    for layer in contract["layers"]
                ]
            )
    return found


# -- names and sizes ---------------------------------------------------------------------------


def names_twice(modules: Sequence[Module]) -> list[str]:
    """Return the names of modules that stand in several folders, with those folders."""
    folders: dict[str, list[str]] = defaultdict(list)
    for module in modules:
        if not (module.is_package or module.stem == "__main__" or module.folder in CATALOGUES):
            folders[module.stem].append(module.folder)
    return [
        f"{name} ({', '.join(found)})"
        for name, found in sorted(folders.items())
        if len(found) > 1
        and sorted(folder.partition("/")[0] for folder in found) != [PURE, PERFORMED]
    ]


def measure(module: Module, function: Function, counts: Counts) -> None:
    """Note a function that is too long, or takes too much."""
    end, taken = function.end_lineno or function.lineno, len(parameters_of(function))
    lines = end - function.lineno + 1
    if max(lines - LINES_MAX, taken - PARAMETERS_MAX) <= 0:
        return
    if is_command(module, function):
        body = function.body[ast.get_docstring(function) is not None :]
        lines, taken = end - body[0].lineno + 1, 0
    if lines > LINES_MAX:
        counts.long_functions.append(module.at(function, f"{function.name} ({lines})"))
    if taken > PARAMETERS_MAX:
        counts.long_parameter_lists.append(module.at(function, f"{function.name} ({taken})"))


def parameters_of(function: Function) -> list[ast.arg]:
    """Return what a caller may pass: all but `self` and `cls`."""
    taken = function.args
    every = [*taken.posonlyargs, *taken.args, *taken.kwonlyargs, taken.vararg, taken.kwarg]
    return [each for each in every if each is not None and each.arg not in {"self", "cls"}]


def is_command(module: Module, function: Function) -> bool:
    """Return whether typer calls it: its parameters are a command's options."""
    if not module.folder.startswith("cli"):
        return False
    marked = {
        target.id
        for node in module.tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name) and "typer." in ast.unparse(node.value)
    }
    for parameter in parameters_of(function):
        kind = ast.unparse(parameter.annotation) if parameter.annotation else ""
        if "typer." in kind or kind in marked:
            return True
    return False


def none_assertions(module: Module) -> Iterator[str]:
    """Yield each `assert` of which a part says that something is not None."""
    for node in module.nodes:
        if isinstance(node, ast.Assert) and any(
            isinstance(part, ast.Compare)
            and isinstance(part.ops[-1], ast.IsNot)
            and isinstance(part.comparators[-1], ast.Constant)
            and part.comparators[-1].value is None
            for part in ast.walk(node.test)
        ):
            yield module.at(node, ast.unparse(node.test))


def statements_in(module: Module) -> int:
    """Return the number of statements, docstrings aside."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    statements = docstrings = 0
    for node in module.nodes:
        statements += isinstance(node, ast.stmt)
        docstrings += isinstance(node, documented) and ast.get_docstring(node, False) is not None
    return statements - docstrings


# -- trees and printing ------------------------------------------------------------------------


def count_tree(tree: str, layers: Sequence[Sequence[frozenset[str]]]) -> Counts:
    """Count in a folder, or in what git has under that name."""
    if Path(tree).is_dir():
        return count(Path(tree) / "src", layers)
    packed = subprocess.run(
        ["/usr/bin/env", "git", "archive", tree, "src"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        check=True,
    ).stdout
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            for member in archive.getmembers():
                archive.extract(member, folder)  # what git has packed is our own
        return count(Path(folder) / "src", layers)


def table(trees: Mapping[str, Counts]) -> Iterator[str]:
    """Yield the lines of the table, a column a tree."""
    found = list(trees.values())
    yield _line("", [*trees, "goal"])
    for title, name, most in GOALS:
        yield _line(title, [*(len(getattr(each, name)) for each in found), f"<= {most}"])
    for title, name in (("statements", "statements"), ("modules", "modules")):
        yield ""
        per_folder = [getattr(each, name) for each in found]
        totals = [sum(each.values()) for each in per_folder]
        yield _line(title, [*totals, _change(totals)])
        for folder in sorted({folder for each in per_folder for folder in each}):
            there = [each.get(folder, 0) for each in per_folder]
            over = name == "modules" and there[-1] > MODULES_MAX
            remark = ("catalogue" if folder in CATALOGUES else "crowded") if over else ""
            yield _line(f"  {folder}", [*there, remark or _change(there)])


def _change(numbers: Sequence[int]) -> str:
    return f"{numbers[-1] - numbers[0]:+d}" if len(numbers) > 1 else ""


def _line(title: str, cells: Sequence[object]) -> str:
    return (f"{title:38}" + "".join(f"{cell!s:>12}" for cell in cells)).rstrip()


def main() -> None:
    """Print the counts of one tree, or of two side by side."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("trees", nargs="*", help="folders or git revisions; one more: this tree")
    parser.add_argument("--names", action="store_true", help="list what was counted")
    parser.add_argument("--json", action="store_true", help="everything, for a program")
    options = parser.parse_args()
    layers = read_layers(ROOT / "pyproject.toml")
    named = {tree: tree for tree in options.trees}
    if len(options.trees) < 2:
        named["now"] = str(ROOT)
    trees = {name: count_tree(tree, layers) for name, tree in named.items()}
    if options.json:
        print(json.dumps({name: vars(counts) for name, counts in trees.items()}, indent=1))
        return
    print("\n".join(table(trees)))
    if options.names:
        last = list(trees.values())[-1]
        for title, name, _ in GOALS:
            print(f"\n{title}:", *getattr(last, name), sep="\n  ")


if __name__ == "__main__":
    main()
