"""Goal: a verdict does not hang on how many events come at once.

Method: every history that was made by hand is judged in runs of several lengths; all that is found
has to be the same, evidence, times and rates included.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.judge.histories import Story
from tests.judge.test_judge_edges import EDGES, judged
from tests.judge.test_judge_told import MADE

STORIES: dict[str, Callable[[], Story]] = {**MADE, **{row[0]: row[1] for row in EDGES}}


@pytest.mark.parametrize("name", STORIES)
def test_runs_of_any_length_give_one_verdict(name: str) -> None:
    events = sorted(STORIES[name]().events, key=lambda event: event.at_ms)
    alone = judged(events, 1)
    for length in (2, 3, len(events) + 1):
        assert judged(events, length) == alone, f"runs of {length}"
