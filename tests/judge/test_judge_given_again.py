"""Which of two records stood where the other one was acknowledged.

Goal: of records that may have expired, the one that gave way is told from the one that took its
place, and no other is blamed. Method: columns filled by hand, and the judge over two stories.
"""

from __future__ import annotations

import pytest
from tests.judge.histories import Story

from holdfast.judge.checker import judge
from holdfast.judge.given_again import GivenAgain
from holdfast.judge.sends import Sends
from holdfast.judge.verdict import Anomaly

NONE = -1


def given(*rows: tuple[int, float, float]) -> GivenAgain:
    """Hold against each other: (offset, sent at ms, acknowledged at ms) of each record."""
    sends = Sends("foo", 0, len(rows))
    for offset, sent_ms, answered_ms in rows:
        sends.offsets.append(offset)
        sends.sent_ms.append(sent_ms)
        sends.answered_ms.append(answered_ms)
    return GivenAgain(sends, range(len(rows)))


@pytest.mark.parametrize(
    ("rows", "instead"),
    [
        # One after the other, as a log gives offsets.
        ([(0, 1.0, 2.0), (1, 3.0, 4.0)], [NONE, NONE]),
        # Offset 5 was given twice: who was sent last is taken for the one that has it, whoever was
        # acknowledged first. An answer may be late by itself.
        ([(5, 1.0, 2.0), (5, 1.5, 3.0)], [1, NONE]),
        ([(5, 1.0, 3.0), (5, 1.5, 2.0)], [1, NONE]),
        ([(5, 1.5, 3.0), (5, 1.0, 2.0)], [NONE, 0]),
        ([(5, 1.0, 3.0), (5, 1.0, 2.0)], [1, NONE]),
        # Sent once the other's acknowledgement was there, and acknowledged before it in the log.
        ([(5, 1.0, 2.0), (3, 3.0, 4.0)], [1, NONE]),
        # Sent before or at that moment: it may have been on its way for so long.
        ([(5, 1.0, 2.0), (3, 2.0, 4.0)], [NONE, NONE]),
        # Who has gone for certain takes nobody's place: the first may have stood at 5 again.
        ([(5, 1.0, 9.0), (5, 2.0, 3.0), (2, 4.0, 5.0)], [NONE, 2, NONE]),
        # The first row is one like any other.
        ([(3, 3.0, 4.0), (5, 1.0, 2.0)], [NONE, 0]),
        ([(2, 4.0, 5.0), (5, 1.0, 9.0), (5, 2.0, 3.0)], [NONE, NONE, 0]),
        # Of two that were sent at one moment the one with the smaller offset is named.
        ([(5, 1.0, 2.0), (3, 3.0, 4.0), (4, 3.0, 4.0)], [1, NONE, NONE]),
        # Of several the one that was sent last.
        ([(5, 1.0, 2.0), (3, 4.0, 5.0), (4, 3.0, 3.5)], [1, NONE, 1]),
        # A clock that ran backwards: known no earlier than it was sent.
        ([(5, 3.0, 2.0), (4, 2.5, 4.0)], [NONE, NONE]),
    ],
)
def test_who_has_the_place(rows: list[tuple[int, float, float]], instead: list[int]) -> None:
    held = given(*rows)
    assert [held.instead_of(row) for row in range(len(rows))] == instead


def test_which_of_two_that_were_in_flight_together_is_lost_nobody_claims() -> None:
    story = Story().retention(ms=0).send(0, 1).ack(1, 0).ack(0, 0).pause(10).final(begin=1)
    (finding,) = judge(story.events).judgement.findings
    assert finding.anomaly is Anomaly.LOST
    assert finding.text == (
        "p:0 and p:1 were both acknowledged at offset 0: the log can't have kept both"
    )


def test_the_first_that_was_sent_may_have_another_s_place() -> None:
    story = Story().retention(ms=0).send(0, skew=1.5).send(1).ack(1, 0).ack(0, 0).pause(10)
    (finding,) = judge(story.final(begin=1).events).judgement.findings
    assert finding.text.startswith("p:1 and p:0 were both acknowledged at offset 0")


def test_who_was_sent_after_an_acknowledgement_is_said_to_be() -> None:
    story = Story().retention(ms=0).send(0).ack(0, 3).send(1).ack(1, 3).pause(10).final(begin=4)
    (finding,) = judge(story.events).judgement.findings
    assert finding.anomaly is Anomaly.LOST
    assert finding.text == (
        "p:0 was acknowledged at offset 3 and p:1, which was sent after that, at 3: "
        "the log can't have kept both"
    )


def test_who_was_told_no_offset_has_nobody_s_place() -> None:
    story = Story().retention(ms=0).send(0).ack(0, 5).send(1).ack(1, None).pause(10)
    assert not judge(story.final(begin=6).events).judgement.findings
