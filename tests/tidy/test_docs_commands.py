"""Goal: every `holdfast` command in the documents can be typed. Method: its flags, by --help."""

from __future__ import annotations

import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
import typer

from holdfast.cli.command_table import COMMANDS, function_named

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
# What a prompt or a code span shows: `holdfast`, the command, and the rest up to a comment or pipe.
TYPED = re.compile(r"(?:^\$ |\| |`)holdfast ([a-z][a-z-]*)([^`|#\n]*)", re.MULTILINE)
# Behind the words of `enter` stands another command, with flags of its own.
ENTER = re.compile(r"(?: --(?:zone|node|data-dir) \S+)*")


def typed() -> list[tuple[str, str, str]]:
    """Page, command and arguments of each command in the documents."""
    return [
        (str(page.relative_to(ROOT)), match[1], match[2])
        for page in PAGES
        for match in TYPED.finditer(page.read_text(encoding="utf-8"))
    ]


def words_of(command: str, arguments: str) -> tuple[str, ...]:
    """The command, and the one inside it that is typed, if it has such: `storage format`."""
    first = arguments.split()[:1]
    has_commands = isinstance(function_named(command), typer.Typer)
    return (command, *first) if has_commands and first and first[0][0] != "-" else (command,)


@cache
def flags_of(command: tuple[str, ...]) -> set[str]:
    """Flags that a command's help shows."""
    done = subprocess.run(
        [sys.executable, "-m", "holdfast.cli", *command, "--help"],
        capture_output=True,
        text=True,
        env={"COLUMNS": "300", "TERM": "dumb", "NO_COLOR": "1"},
        timeout=60,
        check=True,
    )
    return set(re.findall(r"(?<![\w-])--?[a-zA-Z][a-z-]*", done.stdout))


def test_every_command_exists() -> None:
    commands = typed()
    assert commands
    for page, command, _ in commands:
        assert command in COMMANDS, f"{page} types holdfast {command}"


@pytest.mark.process
@pytest.mark.slow
def test_every_flag_exists() -> None:
    for page, command, words in typed():
        arguments = "".join(ENTER.findall(words)[:1]) if command == "enter" else words
        for flag in re.findall(r"(?:^|\s)(--?[a-zA-Z][a-z-]*)", arguments):
            known = flags_of(words_of(command, arguments))
            assert flag in known, f"{page} types holdfast {command} {flag}"
