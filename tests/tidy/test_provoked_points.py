"""The list of points where a rare branch can be provoked is the code's.

Goal: no point is forgotten in the list, none is listed that no longer exists, and each has one
place, so that what fired is known. Method: read the source for every `provoke("...")`.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from holdfast.testing.ground.provoke import POINTS

SOURCE = Path(__file__).parents[2] / "src" / "holdfast"
ASKED = re.compile(r'provoke\(\s*"([^"]*)"')


def test_every_point_is_listed_and_has_one_place() -> None:
    found = Counter(
        name for path in SOURCE.rglob("*.py") for name in ASKED.findall(path.read_text())
    )
    assert dict(found) == dict.fromkeys(POINTS, 1)
    assert list(POINTS) == sorted(POINTS)
