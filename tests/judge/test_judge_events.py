"""Goal: an event is what was written, whole, and nothing that can't be one is taken for it.

Method: lines that are wrong in one thing alone, and evidence that has all that an event can say.
"""

from __future__ import annotations

import pytest
from tests.judge.histories import Story

from holdfast.judge.checker import judge
from holdfast.judge.history import HistoryError, decode_event

DELIVERED = (
    '{"event":"delivered","at_ms":1,"wall_ms":1,"process":"p","topic":"t","partition":PARTITION,'
    '"offset":OFFSET,"digest":"d"}'
)


def test_neither_an_offset_nor_a_partition_is_below_zero() -> None:
    right = DELIVERED.replace("PARTITION", "0").replace("OFFSET", "0")
    event = decode_event(right)
    with pytest.raises(AttributeError):
        event.at_ms = 2.0  # type: ignore[misc]
    for partition, offset in (("0", "-1"), ("-1", "0")):
        wrong = DELIVERED.replace("PARTITION", partition).replace("OFFSET", offset)
        with pytest.raises(HistoryError, match=">= 0"):
            decode_event(wrong)


def test_evidence_has_the_words_of_a_refusal() -> None:
    story = Story().send(0).refuse(0, message="too few replicas are in sync").final(0)
    (finding,) = judge(story.events).judgement.findings
    assert story.events[1] in finding.events


def test_a_hole_is_told_also_where_another_replica_ends_before_it() -> None:
    story = Story().send(0, 1, 2).ack(2, 2).final(0, 1, 2)
    story.batch(0, 0, 0).batch(0, 2, 2).batch(1, 0, 0)
    found = [finding.text for finding in judge(story.events).judgement.findings]
    hole = (
        "no replica has a batch for offset 1, which the last whole read was given (1 in this hole)"
    )
    assert hole in found
