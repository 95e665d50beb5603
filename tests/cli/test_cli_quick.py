"""The quick reading of command lines: what it reads, typer reads alike; the rest it leaves."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import pytest
import typer

from holdfast.cli import command_table as table
from holdfast.cli import quick
from holdfast.cli.command_table import COMMANDS


def command(
    number: Annotated[int, typer.Argument()],
    *,
    flag: Annotated[bool, typer.Option("--flag")] = False,
    count: Annotated[int | None, typer.Option("--count", "-c", min=1)] = None,
    pairs: Annotated[list[str] | None, typer.Option("--pair")] = None,
    path: Annotated[Path | None, typer.Option("--path")] = None,
) -> None:
    pass


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("7", {"number": 7}),
        ("7 --flag", {"number": 7, "flag": True}),
        ("--count 3 7", {"number": 7, "count": 3}),
        ("--count=3 7", {"number": 7, "count": 3}),
        ("-c 3 7", {"number": 7, "count": 3}),
        ("7 --pair a=1 --pair b=2", {"number": 7, "pairs": ["a=1", "b=2"]}),
        ("7 --pair=a=1", {"number": 7, "pairs": ["a=1"]}),
        ("7 --path /x", {"number": 7, "path": Path("/x")}),
    ],
)
def test_plain_lines_are_read(line: str, expected: dict[str, object]) -> None:
    """Goal: the right values. Method: a table; typer must find the same."""
    assert quick.values_of(command, line.split()) == expected
    app = typer.Typer(add_completion=False)
    app.command()(command)
    with typer.main.get_command(app).make_context("x", line.split()) as context:
        assert {name: context.params[name] for name in expected} == expected


@pytest.mark.parametrize(
    "line",
    [
        "",  # an argument is missing
        "x",  # not a number
        "7 8",  # one argument too many
        "7 --nope",
        "7 --count 1 --count 2",  # one value would be ignored
        "7 --count",  # no value
        "7 --count x",
        "7 --count 0",  # below its bound
        "7 --flag=1",
        "7 -c3",
        "7 --help",
        "--",
    ],
)
def test_anything_else_is_left_to_typer(line: str) -> None:
    """Goal: no guess is ever made. Method: mistakes and whatever isn't plain."""
    assert quick.values_of(command, line.split()) is None


def undeclared(number: int, word: str = "x") -> None:
    pass


def test_commands_that_declare_otherwise_are_left_to_typer() -> None:
    """Goal: only what we understand. Method: bare annotations, and an app."""
    assert quick.values_of(undeclared, ["1"]) is None
    assert quick.values_of(typer.Typer(), []) is None


@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "storage"])
def test_every_command_can_be_read(name: str) -> None:
    """Goal: no declaration puzzles us. Method: help is left to typer, without an exception."""
    assert quick.values_of(table.function_named(name), ["--help"]) is None
