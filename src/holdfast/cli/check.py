"""`holdfast check`: judge the folder of a run again, without running anything."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.exit_status import EXIT_USAGE, CommandError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from holdfast.lab.folders import Judged
    from holdfast.lab.report import Check


def check(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="What `holdfast prove` or `demo` has left.")
    ],
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")] = False,
) -> None:
    """Judge the folder of a run again: its history, the checks that were made, the demo's table.

    A run that broke off or was killed is judged by what was seen until then. Exit status: 0 the
    promise was kept, 1 it was broken, 2 the folder decides nothing or can't be read.
    """
    from rich.console import Console  # noqa: PLC0415 - other commands start without it

    from holdfast.lab.folders import judge_folder  # noqa: PLC0415
    from holdfast.lab.journal import FolderError  # noqa: PLC0415

    try:
        found = judge_folder(directory)
    except FolderError as error:
        raise CommandError(str(error), code=EXIT_USAGE) from error
    if as_json:
        print(json.dumps(found.values))
    else:
        console = Console()
        with console.capture() as shown:  # rich would end the program by itself on a closed pipe
            print_judged(console, found)
        print(shown.get(), end="")
    raise typer.Exit(int(found.exit))


def print_judged(console: Console, found: Judged) -> None:
    """Print each part's checks, what failed with what was expected, and the verdict."""
    from rich.markup import escape  # noqa: PLC0415 - as above

    for chapter in found.chapters:
        console.print()
        if chapter.title:
            console.print(f"[bold]{escape(chapter.title)}[/]", highlight=False, soft_wrap=True)
        print_checks(console, chapter.checks)
        if chapter.text:
            console.print(f"  {escape(chapter.text)}", highlight=False, soft_wrap=True)
    console.print()
    colour = ("bold green", "bold red", "bold yellow")[found.exit]
    console.print(f"[{colour}]{escape(found.verdict)}[/]", highlight=False, soft_wrap=True)


def print_checks(console: Console, checks: Sequence[Check]) -> None:
    from rich.markup import escape  # noqa: PLC0415 - as above

    for each in checks:
        mark = "[green]✓[/]" if each.kept else "[red]✗[/]"
        console.print(f"{mark} {escape(each.name)}", highlight=False, soft_wrap=True)
        if not each.kept:
            console.print(f"    expected {escape(each.expected)}", soft_wrap=True)
        console.print(f"    [dim]seen[/]     {escape(each.seen)}", soft_wrap=True)
