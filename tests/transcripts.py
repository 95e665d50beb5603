"""Golden transcripts: a story and what came of it, in one text file.

A story's commands stand above a rule; below it, up to an empty line, stands what they led to.
"""

from __future__ import annotations

from collections.abc import Callable

RULE = "----"


def retold(text: str, command: Callable[[list[str]], list[str]]) -> str:
    """Return a transcript with what really happens: what `command` says of each line's words."""
    out: list[str] = []
    outcome: list[str] = []
    inside = False  # between the rule and the empty line: what was expected, which is left out
    for line in text.splitlines():
        if inside:
            if line:
                continue
            inside = False
        if line == RULE:
            out += [RULE, *outcome]
            outcome, inside = [], True
            continue
        out.append(line)
        if line and not line.startswith("#"):
            outcome += command(line.split())
    return "\n".join(out).rstrip("\n") + "\n"
