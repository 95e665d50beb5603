"""What each test came to, and what is known of those that don't pass.

A reason in reasons.toml names tests by a pattern, what they come to, and why. One that names
nothing any more is as wrong as a test that fails without one.
"""

from __future__ import annotations

import fnmatch
import tomllib
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

REASONS: Final = Path(__file__).with_name("reasons.toml")
PASSED, SKIPPED, FAILED = "passed", "skipped", "failed"
_KINDS: Final = {"skipped": SKIPPED, "failure": FAILED, "error": FAILED}


class Outcome(NamedTuple):
    """What one test came to."""

    test: str
    came_to: str
    said: str = ""  # when it did not pass


class Reason(NamedTuple):
    """Why tests don't pass."""

    tests: str  # a pattern: * is any text
    came_to: str
    why: str
    is_of_several: bool  # it may be so with more than one broker, and only then


def outcomes(path: Path) -> list[Outcome]:
    """Read what pytest has written with --junitxml."""
    found = []
    for case in ET.parse(path).getroot().iter("testcase"):  # noqa: S314 - pytest wrote it here
        file = case.get("classname", "").removeprefix("test.integration.").replace(".", "::")
        told = next((one for one in case if one.tag in _KINDS), None)
        name = f"{file}::{case.get('name')}"
        if told is None:
            found.append(Outcome(name, PASSED))
        else:
            found.append(Outcome(name, _KINDS[told.tag], told.get("message", "").split("\n")[0]))
    return found


def reasons(brokers: int) -> list[Reason]:
    """Return what is known of a run on so many brokers."""
    known = [
        Reason(one["tests"], one["came_to"], one["why"], one.get("on") == "several brokers")
        for one in tomllib.loads(REASONS.read_text(encoding="utf-8"))["reason"]
    ]
    return [one for one in known if brokers > 1 or not one.is_of_several]


def reason_of(outcome: Outcome, known: Sequence[Reason]) -> Reason | None:
    """Return why it did not pass, if that is known."""
    for one in known:
        pattern = one.tests.replace("[", "[[]")
        if one.came_to == outcome.came_to and fnmatch.fnmatchcase(outcome.test, pattern):
            return one
    return None
