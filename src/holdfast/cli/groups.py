"""Commands that have commands of their own, and what every command refuses alike.

Kafka's tools take the address before the action (`features --bootstrap-server X describe`), people
type it behind; both are read here. Owns no option: they are in `shared_options.py`.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, TypeVar

import typer
import typer.core

from holdfast.cli.exit_status import refuse_if
from holdfast.cli.shared_options import BootstrapServer, ClusterDir, Target, target

T = TypeVar("T")
CONTEXT: dict[str, Any] = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


def without_types(parameters: list[Any]) -> list[Any]:
    """Show flags as flags: typer writes "<bool>" behind them, and `--json true` is a mistake."""
    for each in parameters:
        if isinstance(each, typer.core.TyperOption) and each.is_flag:
            each.metavar = ""
    return parameters


class Group(typer.core.TyperGroup):
    """A command that has commands."""

    def get_params(self, ctx: Any) -> list[Any]:
        return without_types(super().get_params(ctx))


class Command(typer.core.TyperCommand):
    """Refuses an option that is said twice: of two values one would be ignored."""

    def get_params(self, ctx: Any) -> list[Any]:
        return without_types(super().get_params(ctx))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        _, _, order = self.make_parser(ctx).parse_args(args=list(args))
        for parameter, times in Counter(map(id, order)).items():
            if times > 1:
                self._refuse_repeated(ctx, next(each for each in order if id(each) == parameter))
        return super().parse_args(ctx, args)

    def _refuse_repeated(self, ctx: Any, parameter: Any) -> None:
        is_option = isinstance(parameter, typer.core.TyperOption)
        if is_option and not (parameter.multiple or parameter.is_flag):
            ctx.fail(f"{parameter.opts[0]} is given more than once, and takes one value.")


def group(help_: str) -> typer.Typer:
    """Make a command that has commands."""
    return typer.Typer(
        cls=Group, help=help_, add_completion=False, no_args_is_help=True, context_settings=CONTEXT
    )


def remember_target(
    context: typer.Context,
    bootstrap_server: BootstrapServer = None,
    data_dir_option: ClusterDir = None,
) -> None:
    """Keep the address that stands before the action, as Kafka's tools want it there."""
    context.obj = (bootstrap_server, data_dir_option)


def target_of(context: typer.Context, server: str | None, directory: Path | None) -> Target:
    """Return whom to ask: named before or behind the action, or the local cluster."""
    earlier_server, earlier_directory = context.obj
    return target(
        either(earlier_server, server, "--bootstrap-server"),
        either(earlier_directory, directory, "--data-dir"),
    )


def either(before: T | None, behind: T | None, option: str) -> T | None:
    """Return what an option was given as, on whichever side. CommandError: on both."""
    refuse_if(
        before is not None and behind is not None,
        f"{option} is given before the action and behind it: once is enough.",
    )
    return behind if before is None else before
