"""Goal: the rules about readers hold at their edges: the second of two, a tie, an empty log.

Method: as in test_judge_edges.py; evidence has to be events of the history, whole.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.judge.histories import Story
from tests.judge.judge_stories import anomalies, two
from tests.judge.test_judge_edges import OPEN

from holdfast.judge.checker import judge
from holdfast.judge.deliveries import Reader, Records
from holdfast.judge.history import Delivered, Send
from holdfast.judge.sends import Sends
from holdfast.judge.verdict import Anomaly

LATE = "{} records were read when the last whole read had begun, behind its end"
GIVEN = "records are gone that readers were given or told to pass over"


def five() -> Story:
    story = Story().send(*range(5))
    for number in range(5):
        story.ack(number, number)
    return story


EDGES: list[tuple[str, Callable[[], Story], dict[Anomaly, int], list[str]]] = [
    (
        "a second stranger was only read before its send",
        lambda: two().read(0, 9, by="a").read(2, 2, by="b").send(2).ack(2, 2).final(0, 1, 2),
        {Anomaly.DIVERGED: 1, Anomaly.PHANTOM: 1, Anomaly.VANISHED: 1},
        [
            "offset 0 holds p:9, which nobody sent here",
            "offset 0: a read p:9, final read p:0, in one epoch",
            "a read p:9 at offset 0; now p:0 stands there",
            "clocks disagree: b read p:2 before it was sent",
        ],
    ),
    (
        "two records at one offset, one behind the other, and nobody reads to the end",
        lambda: (
            Story()
            .send(0, 1)
            .doubt(0)
            .doubt(1)
            .read(0, 0, committed_end=1)
            .read(0, 1, committed_end=2)
        ),
        {Anomaly.REORDERED: 1, Anomaly.VANISHED: 1},
        [
            "live was at offset 1 and was given 0",
            "live read p:0 at offset 0; now p:1 stands there",
            "it was not read to its end",
        ],
    ),
    (
        "the last reader goes on behind its end",
        lambda: Story().send(0, 1).ack(0, 0).doubt(1).final(0).read(1, 1, by="final"),
        {},
        [LATE.format(1)],
    ),
    (
        "the last reader reads past its end, and again from its beginning",
        lambda: (
            Story()
            .send(0, 1, 2)
            .ack(0, 0)
            .doubt(1)
            .doubt(2)
            .read(0, 0, by="final")
            .read(5, 2, by="final")
            .end(0, 1)
            .position(0, by="final")
            .read(0, 1, by="final")
        ),
        {Anomaly.VANISHED: 1},
        ["final read p:1 at offset 0; now p:0 stands there"],
    ),
    (
        "the log is empty, and what is due was read where it ends",
        lambda: Story().send(0).doubt(0).retention(ms=0).read(1, 0).pause(9).end(1, 1),
        {Anomaly.VANISHED: 1},
        ["live read p:0 at offset 1; now nothing stands there"],
    ),
    (
        "two were read and are gone, and may have gone by size",
        lambda: (
            Story()
            .send(0, 1, 2)
            .doubt(0)
            .doubt(1)
            .ack(2, 2)
            .read(0, 0)
            .read(1, 1)
            .retention(size=100)
            .send(3)
            .doubt(3)
            .final(2, begin=2)
            .batch(0, 2, 2, size=50)
        ),
        {},
        [OPEN.format(2, GIVEN)],
    ),
    (
        "the first record of all was sent when the end was known, and read",
        lambda: Story().end(0, 0).send(0).doubt(0).read(0, 0),
        {},
        [],
    ),
    (
        "read behind the end, and sent at the moment at which that was asked for",
        lambda: Story().send(0).doubt(0).read(0, 0).end(0, 0, asked_ms=1001.0),
        {},
        [LATE.format(1)],
    ),
    (
        "one record was read at two offsets, and is at neither",
        lambda: Story().send(0, 1).doubt(0).ack(1, 0).read(0, 0).read(1, 0).final(1),
        {Anomaly.DIVERGED: 1, Anomaly.VANISHED: 2},
        [
            "offset 0: final read p:1, live read p:0, in one epoch",
            "live read p:0 at offset 0; now p:1 stands there",
            "live read p:0 at offset 1; now nothing stands there",
        ],
    ),
    (
        "passed over one, and then told to pass over another",
        lambda: five().read(0, 0).read(2, 2).position(4, told=True).read(4, 4).final(*range(5)),
        {Anomaly.SKIPPED: 2},
        [f"live was not given offset {n}, and went on behind it" for n in (1, 3)],
    ),
    (
        "passed over one, and another before the end that it says it came to",
        lambda: five().read(0, 0, by="a").read(2, 2, by="a").end(2, 4, by="a").final(*range(5)),
        {Anomaly.SKIPPED: 2},
        [f"a was not given offset {n}, and went on behind it" for n in (1, 3)],
    ),
    (
        "a reader that tells a timestamp once keeps it in evidence",
        lambda: (
            Story()
            .send(0, timestamp=5)
            .send(1)
            .doubt(0)
            .doubt(1)
            .read(0, 0, timestamp=5)
            .lead(1, 1)
            .read(1, 1)
            .read(1, 1, by="final")
            .end(0, 2)
        ),
        {Anomaly.VANISHED: 1},
        ["live read p:0 at offset 0; now nothing stands there"],
    ),
]


@pytest.mark.parametrize(
    ("story", "counted", "told"), [row[1:] for row in EDGES], ids=[row[0] for row in EDGES]
)
def test_an_edge(story: Callable[[], Story], counted: dict[Anomaly, int], told: list[str]) -> None:
    assert anomalies(story()) == counted
    events = sorted(story().events, key=lambda event: event.at_ms)
    (partition,) = judge(events).judgement.partitions
    assert [finding.text for finding in partition.findings] + list(partition.undecided) == told
    for finding in partition.findings:
        assert all(event in events for event in finding.events)


def test_what_a_reader_may_hold_is_laid_out_together_and_no_more() -> None:
    sends = Sends("foo", 0, 9)
    story = Story().send(0, 1, 2).read(0, 0).read(1, 1).read(2, 2)
    for event in story.events:
        if isinstance(event, Send):
            sends.add(event)
    given = [event for event in story.events if isinstance(event, Delivered)]
    records, reader = Records(sends), Reader("live", "foo", 0, records_max=2)
    assert reader.laid_out(given, records) is None
    columns = reader.laid_out(given[:2], records)
    assert columns is not None
    reader.extend(columns, tells_timestamp=False)
    assert reader.laid_out(given[2:], records) is None
