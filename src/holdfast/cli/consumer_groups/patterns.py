"""`holdfast groups --validate-regex`: whether brokers take a pattern, which is to be one of RE2."""

from __future__ import annotations

from importlib import import_module

import typer

from holdfast.cli.exit_status import EXIT_FAILED, CommandError


def say_whether_valid(pattern: str) -> None:
    """Print whether a pattern is one of RE2's. CommandError: RE2 is not installed."""
    try:
        re2 = import_module("re2")
    except ImportError:
        raise CommandError(
            "--validate-regex: this needs the Python package google-re2 (pip install google-re2)."
        ) from None
    options = re2.Options()
    options.log_errors = False
    try:
        re2.compile(pattern, options=options)
    except re2.error as error:
        reason = error.args[0] if error.args else ""
        text = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        print(f"The regular expression `{pattern}` is invalid: {text}.")
        raise typer.Exit(EXIT_FAILED) from None
    print(f"The regular expression `{pattern}` is valid.")
