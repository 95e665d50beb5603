"""Goal: every verdict of the judge fires, and only where it should.

Method: histories made by hand, each wrong in one way; the count of every anomaly is compared, so
that a history for one verdict also shows that the others keep still. Evidence is checked to name
the events.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from tests.judge.histories import Story
from tests.judge.judge_stories import BAD, GOOD, UNDECIDED, anomalies, clean, three, two

from holdfast.judge.checker import judge
from holdfast.judge.findings import FINDINGS_MAX
from holdfast.judge.history import HistoryError, Send
from holdfast.judge.partition import PartitionFold
from holdfast.judge.sends import HistoryTooLargeError
from holdfast.judge.verdict import Anomaly, Judgement, Observed


def test_a_clean_history_passes() -> None:
    judgement = judge(clean().events).judgement
    assert not judgement.findings
    assert judgement.decided
    assert judgement.observed is Observed.EXACTLY_ONCE
    counts = judgement.counts
    assert (counts.sent, counts.acknowledged, counts.refused) == (5, 2, 1)
    assert (counts.unknown, counts.unknown_in_log, counts.in_log) == (2, 1, 3)
    assert counts.delivered == 2


@pytest.mark.parametrize(("story", "expected"), [row[1:] for row in BAD], ids=[r[0] for r in BAD])
def test_a_bad_history_is_caught(story: Callable[[], Story], expected: dict[Anomaly, int]) -> None:
    assert anomalies(story()) == expected


def test_every_verdict_has_a_bad_history() -> None:
    assert {anomaly for row in BAD for anomaly in row[2]} == set(Anomaly)


@pytest.mark.parametrize("story", [row[1] for row in GOOD], ids=[row[0] for row in GOOD])
def test_what_looks_odd_and_is_right(story: Callable[[], Story]) -> None:
    assert not anomalies(story())
    assert judge(story().events).judgement.decided


@pytest.mark.parametrize(
    ("story", "words"), [r[1:] for r in UNDECIDED], ids=[r[0] for r in UNDECIDED]
)
def test_what_is_open_is_undecided_and_says_why(story: Callable[[], Story], words: str) -> None:
    judgement = judge(story().events).judgement
    assert not anomalies(story())
    assert not judgement.decided
    assert judgement.observed is Observed.UNDECIDED
    (why,) = judgement.undecided
    assert re.search(words, why)


def test_a_history_of_nothing_is_undecided() -> None:
    assert judge([]).judgement.undecided == ("the history speaks of no partition",)


def test_what_expired_is_counted_with_its_reason() -> None:
    story = three().retention(ms=0).final(1, 2, begin=1)
    story.send(3, partition=1).ack(3, 0, partition=1).delete(1, partition=1)
    judgement = judge(story.final(begin=1, partition=1).events).judgement
    assert judgement.counts.expired == 2
    expected = "2 expired as allowed (1 by retention.ms=0, 1 by DeleteRecords before offset 1)"
    assert judgement.expired_text == expected
    (expiry,) = judgement.partitions[1].expiries
    assert expiry.event in story.events
    assert not judge(two().final(0, 1).events).judgement.expired_text


def test_size_says_how_much_may_go() -> None:
    story = two().retention(size=100).final(1, begin=1).batch(0, 1, 1)
    assert "1 by retention.bytes=100" in judge(story.events).judgement.expired_text


def test_a_number_beyond_64_bits_is_no_history() -> None:
    with pytest.raises(HistoryError, match="too large"):
        judge(Story().send(0).ack(0, 1 << 64).events)


def test_evidence_names_the_events() -> None:
    story = Story().send(0, 1).ack(0, 0).ack(1, 1).final(0)
    (finding,) = judge(story.events).judgement.findings
    assert finding.anomaly is Anomaly.LOST
    assert [event.KIND for event in finding.events] == ["send", "acknowledged"]
    assert "p:1" in finding.text
    assert "offset 1" in finding.text


def test_the_gravest_finding_comes_first() -> None:
    story = two().read(0, 0).final(9, begin=1)
    found = [finding.anomaly for finding in judge(story.events).judgement.findings]
    assert found[0] is Anomaly.LOST
    assert {Anomaly.PHANTOM, Anomaly.VANISHED} <= set(found)


def test_findings_are_bounded_and_counts_are_not() -> None:
    many = range(FINDINGS_MAX * 3)
    story = Story().send(*many)
    for number in many:
        story.ack(number, number)
    judgement = judge(story.final().events).judgement
    assert judgement.count(Anomaly.LOST) == len(many)
    assert len(judgement.findings) == FINDINGS_MAX


def test_without_a_whole_read_nothing_is_decided() -> None:
    judgement = judge(Story().send(0).ack(0, 0).read(0, 0).events).judgement
    assert not judgement.decided
    assert judgement.observed is Observed.UNDECIDED
    assert not judgement.count(Anomaly.LOST)


def test_a_partition_without_a_whole_read_leaves_the_run_undecided() -> None:
    story = Story().send(0).ack(0, 0).final(0).send(1, partition=1).ack(1, 0, partition=1)
    assert not judge(story.events).judgement.decided


def test_the_last_whole_read_counts() -> None:
    """An earlier one may have been made before the truncation; then it is a witness of loss."""
    story = Story().send(0, 1).ack(0, 0).ack(1, 1)
    story.read(0, 0, by="first").read(1, 1, by="first").end(0, 2, by="first").final(0)
    assert anomalies(story) == {Anomaly.LOST: 1, Anomaly.VANISHED: 1}


@pytest.mark.parametrize(
    ("story", "observed"),
    [
        (Story().send(0).ack(0, 0).final(0), Observed.EXACTLY_ONCE),
        (Story().send(0).ack(0, 0).final(0, 0), Observed.AT_LEAST_ONCE),
        (Story().send(0).ack(0, 0).final(), Observed.AT_MOST_ONCE),
        (Story().send(0, 1).ack(0, 0).ack(1, 1).final(0, 0), Observed.NEITHER),
    ],
)
def test_observed_semantics(story: Story, observed: Observed) -> None:
    assert judge(story.events).judgement.observed is observed


@pytest.mark.parametrize(
    "story",
    [
        Story().send(0).send(0),
        Story().ack(0, 0),
        Story().send(0).ack(0, 0).doubt(0),
    ],
    ids=["one id twice", "an outcome of nothing", "two outcomes"],
)
def test_a_history_that_contradicts_itself_is_no_history(story: Story) -> None:
    with pytest.raises(HistoryError):
        judge(story.events)


def test_memory_has_a_bound() -> None:
    fold = PartitionFold("foo", 0, records_max=3)
    *first, last = (event for event in Story().send(0, 1, 2, 3).events)
    for event in first:
        assert isinstance(event, Send)
        fold.send(event)
    assert isinstance(last, Send)
    with pytest.raises(HistoryTooLargeError):
        fold.send(last)


def test_partitions_are_judged_apart() -> None:
    story = Story().send(0).ack(0, 0).final(0)
    story.send(1, partition=1).ack(1, 0, partition=1).final(partition=1)
    judgement: Judgement = judge(story.events).judgement
    assert [each.anomalies for each in judgement.partitions] == [{}, {Anomaly.LOST: 1}]
    assert judgement.broken({Anomaly.LOST, Anomaly.PHANTOM}) == (Anomaly.LOST,)
