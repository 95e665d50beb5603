"""Goal: a recipe's program starts with what it was told, or with what its help says.

Method: the command line of both programs, up to the driver's own work.
"""

from __future__ import annotations

import argparse
import runpy
import sys
from types import ModuleType
from typing import Any

import pytest
import sqlalchemy as sql

from holdfast.pipelines import driver, ledger, lines

REQUIRED = (
    *("--bootstrap-server", "localhost:9092", "--topic", "payments", "--database", "sqlite://"),
    *("--checkpoint", "here", "--query", "books"),
)
STATUS = 3


class Driver:
    """Stands for the driver, which needs Spark."""

    def __init__(self, module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "run", self.run)

    def run(self, options: argparse.Namespace, recipe: Any, frame: Any) -> int:
        self.options, self.recipe, self.frame = options, recipe, frame
        return STATUS


@pytest.mark.parametrize(
    ("arguments", "accounts", "opening"),
    [((), 20, 10_000_000), (("--accounts", "2", "--opening", "5"), 2, 5)],
)
def test_a_ledger_opens_the_accounts_that_it_was_told(
    arguments: tuple[str, ...], accounts: int, opening: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = Driver(ledger, monkeypatch)
    assert ledger.main([*REQUIRED, *arguments]) == STATUS
    assert started.options.topic == "payments"
    assert (started.options.accounts, started.options.opening) == (accounts, opening)
    assert started.frame is ledger.frame
    with sql.create_engine("sqlite://").begin() as connection:
        started.recipe.prepare(connection)
        opened = connection.execute(sql.select(ledger.balances)).all()
    assert [tuple(row) for row in opened] == [
        (f"account-{number:03d}", opening, opening) for number in range(accounts)
    ]


def test_lines_are_written_as_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    started = Driver(lines, monkeypatch)
    assert lines.main(REQUIRED) == STATUS
    assert started.options.query == "books"
    assert started.frame is lines.frame
    assert isinstance(started.recipe, lines.Lines)


@pytest.mark.parametrize("module", [ledger, lines])
def test_a_recipe_is_a_program(module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "run", lambda *_: STATUS)
    monkeypatch.setattr(sys, "argv", ["recipe", *REQUIRED])
    monkeypatch.delitem(sys.modules, module.__name__)
    with pytest.raises(SystemExit) as end:
        runpy.run_module(module.__name__, run_name="__main__")
    assert end.value.code == STATUS


@pytest.mark.parametrize(
    ("module", "what", "own"),
    [
        (
            ledger,
            "Payments into a ledger, by Spark.",
            (
                " --accounts ACCOUNTS how many accounts are opened"
                " --opening OPENING opening balance of each"
            ),
        ),
        (
            lines,
            "Lines into a table, by Spark.",
            " --hold FILE while it is there, wait after a table's commit",
        ),
    ],
)
def test_a_recipe_says_how_it_is_started(
    module: ModuleType, what: str, own: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        module.main(["--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert text.startswith(f"usage: python -m {module.__name__} [-h] --bootstrap-server ")
    assert f" {what} options: -h, --help " in text
    assert text.endswith(own)


@pytest.mark.parametrize("module", [ledger, lines])
def test_tables_are_there_for_others_who_have_no_spark(
    module: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    monkeypatch.delitem(sys.modules, module.__name__)
    found = runpy.run_module(module.__name__, run_name="tables")
    assert found["metadata"].tables.keys() == module.metadata.tables.keys()
