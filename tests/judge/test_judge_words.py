"""Goal: the words of a verdict stay what they are: reports, files and scripts of users hold them.

Method: every word, whole.
"""

from __future__ import annotations

import pytest
from tests.judge.histories import Story
from tests.judge.judge_stories import three, two

from holdfast.judge import timeline
from holdfast.judge.checker import judge
from holdfast.judge.history import DeleteRecords, Retention
from holdfast.judge.verdict import MEANING, Anomaly, Availability, Excuse, Expiry, Observed


def test_every_anomaly_has_its_word_and_its_meaning() -> None:
    assert {each.value: meaning for each, meaning in MEANING.items()} == {
        "lost": "acknowledged, and not in the log after healing",
        "duplicated": "in the log more than once",
        "reordered": "not in the order in which its producer sent, or a reader went back",
        "diverged": "two witnesses disagree about one offset: replicas, readers, acknowledgement",
        "phantom": "in the log, and nobody sent it there, or not with these bytes",
        "resurrected": "refused for certain, and yet in the log",
        "vanished": "read by a consumer, and then gone",
        "uncommitted read": "handed to a consumer at or past the high watermark",
        "skipped": "in the log, and passed over by a consumer",
    }
    assert list(MEANING) == list(Anomaly)


def test_what_was_observed_has_its_words() -> None:
    assert [each.value for each in Observed] == [
        "exactly once",
        "at least once",
        "at most once",
        "neither: lost and duplicated",
        "undecided",
    ]


PLACE = {"at_ms": 1.0, "wall_ms": 1, "process": "lab", "topic": "foo", "partition": 0}


@pytest.mark.parametrize(
    ("excuse", "event", "text"),
    [
        (Excuse.TIME, Retention(**PLACE, retention_ms=5, retention_bytes=9), "retention.ms=5"),  # type: ignore[arg-type]
        (Excuse.SIZE, Retention(**PLACE, retention_ms=5, retention_bytes=9), "retention.bytes=9"),  # type: ignore[arg-type]
        (Excuse.DELETED, DeleteRecords(**PLACE, offset=1234), "DeleteRecords before offset 1,234"),  # type: ignore[arg-type]
    ],
)
def test_an_excuse_is_told_with_its_limit(
    excuse: Excuse, event: Retention | DeleteRecords, text: str
) -> None:
    assert Expiry(excuse=excuse, count=1, event=event).text == text


def test_the_share_that_was_acknowledged() -> None:
    assert Availability(sent=4, acknowledged=1).share == 0.25
    assert Availability(sent=1, acknowledged=1).share == 1.0
    assert Availability(sent=3).share == 0.0


def test_what_was_forbidden_is_told_in_the_order_of_its_graveness() -> None:
    story = two().read(0, 0).final(9, begin=1)
    judgement = judge(story.events).judgement
    assert judgement.broken(Anomaly) == (Anomaly.LOST, Anomaly.PHANTOM, Anomaly.VANISHED)
    assert judgement.broken({Anomaly.VANISHED, Anomaly.SKIPPED}) == (Anomaly.VANISHED,)
    assert judgement.broken(()) == ()


def test_findings_of_several_partitions_are_told_by_graveness_and_then_by_partition() -> None:
    story = three().final(0, 1, 9)
    story.send(5, partition=1).ack(5, 0, partition=1).final(partition=1)
    found = judge(story.events).judgement.findings
    assert [(each.anomaly, each.partition) for each in found] == [
        (Anomaly.LOST, 0),
        (Anomaly.LOST, 1),
        (Anomaly.PHANTOM, 0),
    ]


def test_a_history_of_nothing_has_no_partition_to_speak_of() -> None:
    judgement = judge(Story().events).judgement
    assert judgement.undecided == ("the history speaks of no partition",)
    assert (judgement.expired, judgement.expired_text, judgement.findings) == ({}, "", ())
    assert judgement.observed is Observed.UNDECIDED


def test_what_is_done_to_a_node_has_its_words() -> None:
    assert {"KILL", "STOP", "exit"} == timeline.DOWN_ACTIONS
    assert {"KILL", "STOP", "TERM", "CUT"} == timeline.HURTS
    assert {"start", "CONT", "HEAL"} == timeline.UP_ACTIONS
    assert timeline.DISK == "DISK"
