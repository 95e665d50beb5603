"""Goal: each rule for groups is needed, and each excuse is as narrow as it is said to be.

Method: the rules are broken one by one, by exchanging text of their source, and the histories of
`group_stories` must notice each time.
"""

from __future__ import annotations

import inspect
import sys
import types
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest
from tests.judge.group_stories import ROWS, said

PACKAGE = "holdfast.judge.groups"


def mutants() -> Iterator[tuple[str, str, str]]:
    """Yield module, rule and bug of each row of `group_mutants.txt`."""
    module, rule = "", ""
    for line in (Path(__file__).parent / "group_mutants.txt").read_text().splitlines():
        text = line[2:].replace("\\n", "\n")
        if line.startswith("["):
            module = line[1:-1]
        elif line.startswith("-"):
            rule = text
        elif line.startswith("+"):
            yield module, rule, text


MUTANTS = list(mutants())


@pytest.mark.parametrize(
    ("module", "rule", "bug"),
    MUTANTS,
    ids=[f"{m}: {a.strip()} -> {b.strip()}" for m, a, b in MUTANTS],
)
def test_a_broken_rule_is_noticed(
    module: str, rule: str, bug: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = import_module(f"{PACKAGE}.{module}")
    source = inspect.getsource(real)
    assert source.count(rule) == 1, "the rule was rewritten: rewrite its mutant"
    broken = types.ModuleType(f"{real.__name__}_broken")
    monkeypatch.setitem(sys.modules, broken.__name__, broken)
    exec(compile(source.replace(rule, bug), "mutant", "exec"), broken.__dict__)
    users = [each for name, each in sys.modules.items() if name.startswith(f"{PACKAGE}.")]
    for name, value in vars(real).items():
        if getattr(value, "__module__", None) == real.__name__:
            for user in [*users, sys.modules["tests.judge.group_stories"]]:
                if user is not broken and getattr(user, name, None) is value:
                    monkeypatch.setattr(user, name, getattr(broken, name))
    assert wrong_somewhere()


def wrong_somewhere() -> bool:
    """Say whether the judge errs, or stumbles, over any of the histories."""
    try:
        return any(said(story().judged()) != expected for _, story, expected in ROWS)
    except (AttributeError, AssertionError, IndexError, TypeError, ValueError):
        return True


def test_the_rules_as_they_stand_are_right() -> None:
    assert not wrong_somewhere()
