"""Reads a plain command line without typer's machinery, which takes 80 ms to load.

Only what is beyond doubt: options that are known, each with a value that converts. Anything else
(help, mistakes, bundled short options) is left to typer, which says it better. Owns no option: it
reads what the commands declare for typer.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from typer.models import ArgumentInfo, OptionInfo

SCALARS: dict[type, Callable[[str], Any]] = {int: int, float: float, str: str, Path: Path}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parameter:
    """One option or argument of a command."""

    name: str
    info: OptionInfo | ArgumentInfo
    kind: type
    many: bool
    required: bool


class _NotPlainError(Exception):
    """The command line, or the command, is more than we read."""


def values_of(function: Callable[..., None], arguments: Sequence[str]) -> dict[str, Any] | None:
    """Return what to call a command with, by parameter; None: ask typer."""
    if not inspect.isfunction(function) or hasattr(function, "context_settings"):
        return None  # an app with commands of its own, or one that reads its line otherwise
    try:
        return _parse(_parameters(function), list(arguments))
    except _NotPlainError:
        return None


def _parameters(function: Callable[..., None]) -> list[_Parameter]:
    hints = get_type_hints(function, include_extras=True)
    found = []
    for name, parameter in inspect.signature(function).parameters.items():
        if get_origin(hints.get(name)) is not Annotated:
            raise _NotPlainError
        annotated, *extras = get_args(hints[name])
        infos = [extra for extra in extras if isinstance(extra, OptionInfo | ArgumentInfo)]
        if len(infos) != 1 or infos[0].callback or infos[0].envvar:
            raise _NotPlainError
        kind, many = _kind(annotated)
        required = parameter.default is inspect.Parameter.empty
        found.append(_Parameter(name=name, info=infos[0], kind=kind, many=many, required=required))
    return found


def _kind(annotated: Any) -> tuple[type, bool]:
    """Return the scalar type of a parameter, and whether it takes several."""
    if get_origin(annotated) in {Union, types.UnionType}:
        (annotated,) = [kind for kind in get_args(annotated) if kind is not types.NoneType]
    if get_origin(annotated) is list:
        return get_args(annotated)[0], True
    return annotated, False


def _parse(parameters: Sequence[_Parameter], arguments: list[str]) -> dict[str, Any]:
    options = {
        text: found
        for found in parameters
        if isinstance(found.info, OptionInfo)
        for text in _names(found.info)
    }
    positional = [found for found in parameters if isinstance(found.info, ArgumentInfo)]
    values: dict[str, Any] = {}
    rest = iter(arguments)
    for argument in rest:
        text, equals, value = argument.partition("=")
        if not argument.startswith("-") or argument == "-":
            if not positional or positional[0].many:
                raise _NotPlainError
            found = positional.pop(0)
            values[found.name] = _converted(found, argument)
            continue
        if text not in options or (equals and not text.startswith("--")):
            raise _NotPlainError
        found = options[text]
        if found.kind is bool:
            if equals:
                raise _NotPlainError
            values[found.name] = True
        else:
            converted = _converted(found, value if equals else next(rest, None))
            if found.many:
                values.setdefault(found.name, []).append(converted)
            elif found.name in values:
                raise _NotPlainError  # said twice
            else:
                values[found.name] = converted
    if any(found.required and found.name not in values for found in parameters):
        raise _NotPlainError
    return values


def _names(info: OptionInfo) -> list[str]:
    """Return the option's names. Inside Annotated, typer keeps the first one as a default."""
    first = [info.default] if isinstance(info.default, str) else []
    return [*first, *(info.param_decls or ())]


def _converted(parameter: _Parameter, text: str | None) -> Any:
    if text is None or parameter.kind not in SCALARS:
        raise _NotPlainError
    try:
        value = SCALARS[parameter.kind](text)
    except ValueError:
        raise _NotPlainError from None
    low, high = parameter.info.min, parameter.info.max
    if (low is not None and value < low) or (high is not None and value > high):
        raise _NotPlainError
    return value
