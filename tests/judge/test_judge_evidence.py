"""How much evidence the judge keeps: as much as is asked for, since who forgives must see all."""

from __future__ import annotations

from tests.judge.histories import Story

from holdfast.judge.checker import judge
from holdfast.judge.findings import FINDINGS_MAX


def test_all_evidence_is_kept_where_it_is_asked_for() -> None:
    many = range(FINDINGS_MAX * 3)
    story = Story().send(*many)
    for number in many:
        story.ack(number, number)
    judgement = judge(story.final().events, findings_max=len(many)).judgement
    assert len(judgement.findings) == len(many)
