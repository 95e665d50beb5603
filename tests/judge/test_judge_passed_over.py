"""Goal: what a reader was not given is told, whatever else it was given.

Method: readers that begin and end as they should and lack something between; positions that the
cluster told, over what was gone, what was not there yet, and what was neither.
"""

from __future__ import annotations

import pytest
from tests.judge.histories import Story
from tests.judge.judge_stories import anomalies, three, two

from holdfast.judge.verdict import Anomaly


def test_two_in_the_middle_that_a_reader_was_not_given_are_told() -> None:
    story = Story().send(0, 1, 2, 3)
    for number in range(4):
        story.ack(number, number)
    story.read(0, 0).read(3, 3).end(0, 4, by="live").final(0, 1, 2, 3)
    assert anomalies(story) == {Anomaly.SKIPPED: 2}


def test_what_is_handed_out_twice_makes_up_for_nothing() -> None:
    story = Story().send(0, 1, 2, 3)
    for number in range(4):
        story.ack(number, number)
    story.read(0, 0).read(1, 1).read(1, 1).read(3, 3).end(0, 4, by="live").final(0, 1, 2, 3)
    assert anomalies(story)[Anomaly.SKIPPED] == 1


def test_a_position_behind_what_is_gone_passes_nothing_over() -> None:
    story = three().delete(2).position(0).position(2, told=True).read(2, 2).final(2, begin=2)
    assert anomalies(story) == {}


@pytest.mark.parametrize(("skew", "skipped"), [(-1.0, {Anomaly.SKIPPED: 1}), (-2.0, {})])
def test_what_is_sent_in_the_moment_of_a_position_may_have_been_there(
    skew: float, skipped: dict[Anomaly, int]
) -> None:
    """A position is told at the moment of the send, and a millisecond before it."""
    story = Story().position(0).send(0).position(1, told=True, skew=skew)
    assert anomalies(story.ack(0, 0).final(0)) == skipped


def test_one_that_was_not_there_yet_excuses_no_other() -> None:
    story = Story().position(0).send(1).ack(1, 1, skew=-0.5).position(2, told=True)
    story.send(2, by="q").ack(2, 0, by="q").read(0, 2, by="final", of="q").read(1, 1, by="final")
    assert anomalies(story.end(0, 2))[Anomaly.SKIPPED] == 1


def test_one_that_may_be_gone_excuses_no_other() -> None:
    story = three().position(0).delete(1).position(2, told=True).read(2, 2).final(0, 1, 2)
    assert anomalies(story) == {Anomaly.SKIPPED: 1}


def test_a_log_that_begins_late_is_held_against_readers_from_there() -> None:
    """The wrong record, read alone at the log's beginning, is another place's right one."""
    story = three().send(3).ack(3, 3).delete(1).read(1, 3).final(1, 2, 3, begin=1)
    assert anomalies(story) == {Anomaly.DIVERGED: 1, Anomaly.VANISHED: 1}
    assert anomalies(two().delete(1).read(1, 1).final(1, begin=1)) == {}
