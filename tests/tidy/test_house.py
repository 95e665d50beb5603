"""Goal: `scripts/house.py` counts right.

Method: a small tree with one of each thing that is counted, and beside it what must not count.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import house

LAYERS = [
    [
        frozenset({"holdfast.node.api"}),
        frozenset({"holdfast.node.broker", "holdfast.node.controller"}),
        frozenset({"holdfast.node.door"}),
    ]
]
LONG = "def long():\n" + "    pass\n" * house.LINES_MAX
FILES = {
    "__init__.py": '"""The package."""\n',
    # An import that nobody runs, one that runs late, and one of a parent: all of them count.
    "node/api/fetch.py": "from holdfast.node.broker import replica\n",
    "node/broker/__init__.py": "",
    "node/broker/replica.py": (
        "from typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n"
        "    from holdfast.node.api.fetch import Fetch\n"
    ),
    "node/broker/requests.py": "from ..controller import requests\n",
    "node/controller/requests.py": "def late():\n    import holdfast.node.door.server\n",
    "node/door/server.py": "from . import connection\nfrom .connection import Connection\n",
    "node/door/connection.py": "import asyncio\n",
    # A pure half and its performed half share a name, and so may messages and their API.
    "core/replica.py": "",
    "wire/messages/fetch.py": "",
    "log/fetch.py": "",
    "cli/__init__.py": "",
    "cli/topics.py": (
        "import typer\n"
        "NAME = typer.Option()\n"
        "def topics(a: NAME, b, c, d, e, f, g):\n    pass\n" + LONG
    ),
    "log/sizes.py": (
        '"""Docstrings are no statements."""\n'
        "class Log:\n"
        '    """Neither is this."""\n'
        "    def six(self, a, b, c, /, d, *, e, f): ...\n"
        "    def seven(self, a, b, c, *rest, d, e, **others):\n"
        '        """Nor this."""\n'
        "        assert a is not None, b\n"
        "        assert b and c is not None\n"
        "        assert d is None\n"
        '        "but this is"\n'
    ),
}


@pytest.fixture
def counts(tmp_path: Path) -> house.Counts:
    for name, text in FILES.items():
        path = tmp_path / "src" / "holdfast" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return house.count_tree(str(tmp_path), LAYERS)


def test_circles_and_arrows(counts: house.Counts) -> None:
    assert counts.circles == ["holdfast.node.api.fetch <-> holdfast.node.broker.replica"]
    assert counts.arrows_up == [
        "holdfast.node.broker.replica -> holdfast.node.api.fetch",
        "holdfast.node.broker.requests -> holdfast.node.controller.requests",
    ]


def test_names_beside_catalogues_and_pairs(counts: house.Counts) -> None:
    assert counts.names_twice == ["requests (node/broker, node/controller)"]


def test_sizes(counts: house.Counts) -> None:
    assert counts.long_functions == [f"cli/topics.py:5 long ({house.LINES_MAX + 1})"]
    assert counts.long_parameter_lists == ["log/sizes.py:5 seven (7)"]
    assert [found.partition(" ")[2] for found in counts.none_assertions] == [
        "a is not None",
        "b and c is not None",
    ]
    assert counts.statements["log"] == 8  # a class, two functions, what they do
    assert counts.modules["node/broker"] == 2  # its __init__.py is none


def test_a_folder_with_too_many_modules(tmp_path: Path) -> None:
    for folder in ("log", "node/api"):
        there = tmp_path / "src" / "holdfast" / folder
        there.mkdir(parents=True)
        for number in range(house.MODULES_MAX + 1):
            (there / f"part_{number}.py").touch()
    assert house.count_tree(str(tmp_path), LAYERS).crowded == ["log (21)"]


def test_layers_are_those_of_import_linter(tmp_path: Path) -> None:
    pyproject = tmp_path / "pyproject.toml"
    pyproject.write_text(
        "[[tool.importlinter.contracts]]\n"
        'type = "forbidden"\n'
        "[[tool.importlinter.contracts]]\n"
        'type = "layers"\n'
        'containers = ["holdfast.node"]\n'
        'layers = ["api", "broker | controller", "door"]\n'
    )
    assert house.read_layers(pyproject) == LAYERS


def test_two_trees_side_by_side(counts: house.Counts) -> None:
    shown = list(house.table({"before": counts, "now": house.Counts(statements={"log": 4})}))
    assert "  log" + f"{8:>45}" + f"{4:>12}" + f"{-4:>12}" in shown


@pytest.mark.slow
def test_this_house_has_no_circle_and_no_arrow_that_runs_up() -> None:
    counts = house.count_tree(str(house.ROOT), house.read_layers(house.ROOT / "pyproject.toml"))
    assert (counts.circles, counts.arrows_up, counts.crowded) == ([], [], [])
