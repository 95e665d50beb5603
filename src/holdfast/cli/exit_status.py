"""How a command ends: exit statuses, and the errors that are one line on standard error."""

from __future__ import annotations

import time

STARTED = time.monotonic()  # of this process, as nearly as can be: this module is loaded first

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_UNDECIDED = 2
EXIT_INTERRUPTED = 130


class CommandError(Exception):
    """A command can't do what it was asked; the text says why and what to do instead."""

    def __init__(self, text: str, *, code: int = EXIT_FAILED) -> None:
        super().__init__(text)
        self.code = code


class InterruptedCommandError(CommandError):
    """Ctrl-C: the text says how far the command had come, and how to go on."""

    def __init__(self, text: str = "") -> None:
        super().__init__(f"\nInterrupted. {text}".rstrip(" "), code=EXIT_INTERRUPTED)


def refuse_if(condition: object, text: str) -> None:
    """Refuse what was typed if this is so. CommandError: `text`, with the exit status of usage."""
    if condition:
        raise CommandError(text, code=EXIT_USAGE)
