"""`make mutate` changes all that a rule can be wrong in, and names each change by its text.

Goal: no set, number, comparison or statement is left out unnoticed, and a reason outlives edits
around it. Method: a made-up module, and every change of it that is to be had.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from changes import Change

    Changes = Callable[[str, str], Iterator[Change]]

MODULE = '''"""A module's own words."""
from dataclasses import dataclass

FORBIDDEN = frozenset({"lost", "doubled"})


@dataclass(frozen=True)
class Rule:
    limit: int = 3

    @property
    def told(self) -> str:
        """Say it."""
        assert self.limit
        if self.limit < 5 and FORBIDDEN:
            raise ValueError(self.limit)
        return "none"
'''


@pytest.fixture(scope="module")
def changes() -> Changes:
    """Import it for who runs these: the parser takes a second, which no other worker should pay."""
    from changes import changes  # noqa: PLC0415 - see above

    return changes


def test_every_rule_is_changed_and_nothing_else(changes: Changes) -> None:
    found = {change.key.removeprefix("m.py:") for change in changes("m.py", MODULE)}
    condition = "Rule.told: if self.limit < 5 and FORBIDDEN: => "
    wanted = {
        ': FORBIDDEN = frozenset({"lost", "doubled"}) => FORBIDDEN = frozenset({"doubled"})',
        ': FORBIDDEN = frozenset({"lost", "doubled"}) => FORBIDDEN = frozenset({"lost", })',
        ': FORBIDDEN = frozenset({"lost", "doubled"}) => FORBIDDEN = frozenset(None)',
        "Rule: limit: int = 3 => limit: int = 4",
        condition + "if self.limit <= 5 and FORBIDDEN:",
        condition + "if self.limit < 6 and FORBIDDEN:",
        condition + "if self.limit < 5 or FORBIDDEN:",
        condition + "if not (self.limit < 5 and FORBIDDEN):",
        "Rule.told: raise ValueError(self.limit) => pass",
        'Rule.told: return "none" => return None',
        'Rule.told: return "none" => return "XXnone"',
    }
    assert wanted <= found, wanted - found
    left_alone = ("dataclass", "property", "assert", "words", "Say it", "import")
    assert not [key for key in found for words in left_alone if words in key]


def test_a_change_keeps_its_name_when_lines_move_and_alike_ones_are_told_apart(
    changes: Changes,
) -> None:
    before = [change.key for change in changes("m.py", MODULE)]
    assert len(set(before)) == len(before)
    moved = MODULE.replace("class Rule:", "class Rule:\n    # A line more.\n")
    assert [change.key for change in changes("m.py", moved)] == before
    twice = "def f(a):\n    a += 1\n    a += 1\n"
    keys = [change.key for change in changes("m.py", twice)]
    assert "m.py:f: a += 1 => a -= 1" in keys
    assert "m.py:f: a += 1 => a -= 1 #2" in keys
