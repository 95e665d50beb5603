"""Who may lead in one epoch: one broker, and every broker has a number, 0 as well."""

from __future__ import annotations

import pytest
from tests.judge.histories import Story

from holdfast.judge.checker import judge
from holdfast.judge.verdict import Anomaly


@pytest.mark.parametrize(("one", "other"), [(0, 1), (1, 0)])
def test_broker_0_is_one_of_two_leaders(one: int, other: int) -> None:
    story = Story().send(0).ack(0, 0).final(0).lead(one, 3).lead(other, 3, by="another")
    (finding,) = judge(story.events).judgement.findings
    assert finding.anomaly is Anomaly.DIVERGED
    assert f"had named {one}" in finding.text
