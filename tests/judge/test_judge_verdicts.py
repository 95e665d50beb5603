"""Goal: every verdict of the judge fires, and only where it should.

Method: histories made by hand, each wrong in one way; the count of every anomaly is compared, so
that a history for one verdict also shows that the others keep still. Evidence is checked to name
the events. At the end the rules are broken one by one, and the tables must notice each time.
"""

from __future__ import annotations

import inspect
import sys
import types
from collections.abc import Callable

import pytest

from holdfast.judge import partition as rules
from holdfast.judge.checker import judge
from holdfast.judge.history import HistoryError, PartitionEvent
from holdfast.judge.partition import FINDINGS_MAX, HistoryTooLargeError, PartitionFold
from holdfast.judge.verdict import Anomaly, Judgement, Observed
from holdfast.testing.histories import Story


def clean() -> Story:
    """A run without anything wrong: two acknowledged, one refused, two in doubt (one is there)."""
    return (
        Story()
        .send(0, 1, 2, 3, 4)
        .ack(0, 0)
        .ack(1, 1)
        .refuse(2)
        .doubt(3)
        .doubt(4)
        .position(0)
        .read(0, 0)
        .read(1, 1)
        .final(0, 1, 4)
        .batch(0, 0, 2)
        .batch(1, 0, 2)
    )


def anomalies(story: Story) -> dict[Anomaly, int]:
    judgement = judge(story.events).judgement
    return {anomaly: n for anomaly in Anomaly if (n := judgement.count(anomaly))}


def test_a_clean_history_passes() -> None:
    judgement = judge(clean().events).judgement
    assert not judgement.findings
    assert judgement.decided
    assert judgement.observed is Observed.EXACTLY_ONCE
    counts = judgement.counts
    assert (counts.sent, counts.acknowledged, counts.refused) == (5, 2, 1)
    assert (counts.unknown, counts.unknown_in_log, counts.in_log) == (2, 1, 3)
    assert counts.delivered == 2


BAD: list[tuple[str, Callable[[], Story], dict[Anomaly, int]]] = [
    (
        "an acknowledged record is not there",
        lambda: Story().send(0, 1).ack(0, 0).ack(1, 1).final(0),
        {Anomaly.LOST: 1},
    ),
    (
        "another record stands where it was acknowledged",
        lambda: Story().send(0, 1).ack(0, 0).send(2).ack(2, 0).final(2),
        {Anomaly.LOST: 1},
    ),
    (
        "acknowledged without an offset (acks=0), and not there",
        lambda: Story().send(0).ack(0, None).final(),
        {Anomaly.LOST: 1},
    ),
    (
        "one record stands three times",
        lambda: Story().send(0, 1).ack(0, 0).ack(1, 1).final(0, 1, 0, 0),
        {Anomaly.DUPLICATED: 2},
    ),
    (
        "a record in doubt stands twice",
        lambda: Story().send(0).doubt(0).final(0, 0),
        {Anomaly.DUPLICATED: 1},
    ),
    (
        "the log has them in another order than they were sent",
        lambda: Story().send(0, 1, 2).doubt(0).ack(1, 0).ack(2, 2).final(1, 0, 2),
        {Anomaly.REORDERED: 1},
    ),
    (
        "a reader is taken back without a word",
        lambda: Story().send(0, 1).ack(0, 0).ack(1, 1).read(0, 0).read(1, 1).read(0, 0).final(0, 1),
        {Anomaly.REORDERED: 1},
    ),
    (
        "it stands elsewhere than the acknowledgement said",
        lambda: Story().send(1, 0).doubt(1).ack(0, 5).final(1, 0),
        {Anomaly.DIVERGED: 1},
    ),
    (
        "replicas hold different bytes",
        lambda: clean().batch(2, 0, 2, digest="other"),
        {Anomaly.DIVERGED: 1},
    ),
    (
        "a replica lacks a batch",
        lambda: clean().batch(0, 3, 5).batch(2, 0, 2).batch(2, 3, 5),
        {Anomaly.DIVERGED: 1},
    ),
    (
        "two readers see different records in one epoch",
        lambda: (
            Story()
            .send(0, 1)
            .ack(0, 0)
            .doubt(1)
            .read(0, 0, by="a", epoch=3)
            .read(0, 1, by="b", epoch=3)
            .final(0, epoch=3)
        ),
        {Anomaly.DIVERGED: 1, Anomaly.VANISHED: 1},
    ),
    (
        "a record that nobody sent",
        lambda: Story().send(0).ack(0, 0).final(0, 9),
        {Anomaly.PHANTOM: 1},
    ),
    (
        "a record without an id of ours",
        lambda: Story().send(0).ack(0, 0).final(0).read(1, None),
        {Anomaly.PHANTOM: 1},
    ),
    (
        "the bytes are others than those sent",
        lambda: Story().send(0).ack(0, 0).read(0, 0, digest="x", by="final").end(0, 1),
        {Anomaly.PHANTOM: 1},
    ),
    (
        "a refused record is in the log",
        lambda: Story().send(0).refuse(0).final(0),
        {Anomaly.RESURRECTED: 1},
    ),
    (
        "a refused record was read, and is gone again",
        lambda: Story().send(0).refuse(0).read(0, 0).final(),
        {Anomaly.RESURRECTED: 1, Anomaly.VANISHED: 1},
    ),
    (
        "read and then gone",
        lambda: Story().send(0, 1).doubt(0).doubt(1).read(0, 0).read(1, 1).final(0),
        {Anomaly.VANISHED: 1},
    ),
    (
        "read and then another there",
        lambda: Story().send(0, 1).doubt(0).ack(1, 0).read(0, 0, epoch=1).final(1, epoch=2),
        {Anomaly.VANISHED: 1},
    ),
    (
        "one reader is given another record at an offset, later",
        lambda: Story().send(0, 1).doubt(0).ack(1, 0).read(0, 0).position(0).read(0, 1).final(1),
        {Anomaly.VANISHED: 1},
    ),
    (
        "handed out at the high watermark",
        lambda: Story().send(0).ack(0, 0).read(0, 0, committed_end=0).final(0),
        {Anomaly.UNCOMMITTED: 1},
    ),
    (
        "a consumer passed over a record",
        lambda: (
            Story().send(0, 1, 2).ack(0, 0).ack(1, 1).ack(2, 2).read(0, 0).read(2, 2).final(0, 1, 2)
        ),
        {Anomaly.SKIPPED: 1},
    ),
]


@pytest.mark.parametrize(("story", "expected"), [row[1:] for row in BAD], ids=[r[0] for r in BAD])
def test_a_bad_history_is_caught(story: Callable[[], Story], expected: dict[Anomaly, int]) -> None:
    assert anomalies(story()) == expected


def test_every_verdict_has_a_bad_history() -> None:
    assert {anomaly for row in BAD for anomaly in row[2]} == set(Anomaly)


GOOD: list[tuple[str, Callable[[], Story]]] = [
    ("nothing at all was sent", lambda: Story().final()),
    ("a hole in the offsets", lambda: (
        Story().send(0, 1).ack(0, 0).ack(1, 7).read(0, 0, by="final").read(7, 1, by="final")
        .end(0, 8)
    )),
    ("retention took the beginning", lambda: (
        Story().send(0, 1).ack(0, 0).ack(1, 1).read(0, 0).read(1, 1).final(1, begin=1)
    )),
    ("a reader re-reads after a seek", lambda: (
        Story().send(0).ack(0, 0).read(0, 0).position(0).read(0, 0).final(0)
    )),
    ("a reader stops before the end", lambda: (
        Story().send(0, 1).ack(0, 0).ack(1, 1).read(0, 0).final(0, 1)
    )),
    ("a reader joins late", lambda: (
        Story().send(0, 1).ack(0, 0).ack(1, 1).position(1).read(1, 1).final(0, 1)
    )),
    ("below the committed end", lambda: (
        Story().send(0).ack(0, 0).read(0, 0, committed_end=1).final(0)
    )),
    ("two readers, two epochs, the first in doubt and never read again", lambda: (
        Story().send(0, 1).ack(0, 0).ack(1, 1).read(0, 0, epoch=1).read(1, 1, epoch=2)
        .final(0, 1)
    )),
]  # fmt: skip


@pytest.mark.parametrize("story", [row[1] for row in GOOD], ids=[row[0] for row in GOOD])
def test_what_looks_odd_and_is_right(story: Callable[[], Story]) -> None:
    assert not anomalies(story())


def test_evidence_names_the_events() -> None:
    story = Story().send(0, 1).ack(0, 0).ack(1, 1).final(0)
    (finding,) = judge(story.events).judgement.findings
    assert finding.anomaly is Anomaly.LOST
    assert [event.KIND for event in finding.events] == ["send", "acknowledged"]
    assert "p:1" in finding.text
    assert "offset 1" in finding.text


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
        assert isinstance(event, PartitionEvent)
        fold.feed(event)
    assert isinstance(last, PartitionEvent)
    with pytest.raises(HistoryTooLargeError):
        fold.feed(last)


def test_partitions_are_judged_apart() -> None:
    story = Story().send(0).ack(0, 0).final(0)
    story.send(1, partition=1).ack(1, 0, partition=1).final(partition=1)
    judgement: Judgement = judge(story.events).judgement
    assert [each.anomalies for each in judgement.partitions] == [{}, {Anomaly.LOST: 1}]
    assert judgement.broken({Anomaly.LOST, Anomaly.PHANTOM}) == (Anomaly.LOST,)


# Each row is a bug that the judge could have: text of its rules, and what a bug would make of it.
MUTANTS: list[tuple[str, str]] = [
    ("self._judge_strangers()", "pass"),
    ("self._judge_resurrected()", "pass"),
    ("self._judge_replicas()", "pass"),
    ("self._judge_readers_agree()", "pass"),
    ("self._judge_acknowledged(positions, final)", "pass"),
    ("self._judge_duplicates(positions)", "pass"),
    ("self._judge_order(log)", "pass"),
    ("self._judge_vanished(reader, final)", "pass"),
    ("self._judge_skipped(reader, final)", "pass"),
    ("fate.send.digest == delivered.digest", "True"),
    ("isinstance(fate.outcome, Refused)", "isinstance(fate.outcome, Acknowledged)"),
    ("isinstance(fate.outcome, Refused)", "isinstance(fate.outcome, Refused | Unknown)"),
    ("if not isinstance(outcome, Acknowledged):", "if not isinstance(outcome, Refused):"),
    ("if not isinstance(outcome, Acknowledged):", "if isinstance(outcome, Refused):"),
    ("delivered.offset >= end:", "delivered.offset > end:"),
    ("delivered.offset >= end:", "delivered.offset + 1 >= end:"),
    ("delivered.offset < reader.next_offset", "delivered.offset < reader.next_offset - 9"),
    ("reader.next_offset = delivered.offset + 1", "reader.next_offset = delivered.offset + 2"),
    ("self._reader(event.process).next_offset = event.offset", "pass"),
    ("earlier is not None and not _same_record(earlier, delivered)", "False"),
    ("outcome.offset is not None and outcome.offset < begin:", "False:"),
    ("all(d.offset != outcome.offset for d in found)", "False"),
    ("len(found) > 1", "len(found) > 2"),
    ("weight=len(found) - 1", "weight=1"),
    ("before[0].order > fate.order", "before[0].order < fate.order"),
    ("before[0].order > fate.order", "False"),
    ("offset < final.whole.begin or", ""),
    ("first < delivered.offset < last", "delivered.offset < last"),
    ("first < delivered.offset < last", "first < delivered.offset"),
    ("(delivered.offset, delivered.epoch), delivered)", "(delivered.offset, None), delivered)"),
    ("right is not None and left.digest == right.digest", "right is not None"),
    ("left is not None and right is not None and", "left is None or right is None or"),
    ("return max(", "return min("),
    ("if begin <= offset < end", "if begin < offset < end"),
]


@pytest.mark.parametrize(("rule", "bug"), MUTANTS, ids=[f"{a} -> {b}" for a, b in MUTANTS])
def test_a_broken_rule_is_noticed(rule: str, bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    source = inspect.getsource(rules)
    assert source.count(rule) == 1, "the rule was rewritten: rewrite its mutant"
    module = types.ModuleType("holdfast.judge.partition_mutant")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(compile(source.replace(rule, bug), "mutant", "exec"), module.__dict__)
    monkeypatch.setattr("holdfast.judge.checker.PartitionFold", module.PartitionFold)
    assert wrong_somewhere()


def wrong_somewhere() -> bool:
    """Say whether the judge errs, or stumbles, over any of the histories above."""
    early = Story().send(0, 1).ack(0, 0).ack(1, 1).read(0, 0, by="first").end(0, 1, by="first")
    rows = [(story(), expected) for _, story, expected in BAD]
    rows += [(story(), {}) for _, story in GOOD]
    rows += [(clean(), {}), (early.final(0, 1), {})]
    try:
        return any(anomalies(story) != expected for story, expected in rows)
    except (AttributeError, AssertionError):
        return True


def test_the_rules_as_they_stand_are_right() -> None:
    assert not wrong_somewhere()
