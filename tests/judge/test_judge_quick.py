"""Goal: of millions of events those that hold nothing odd are taken in together, column by column.

Method: the slow way, one delivery after the other, is taken away from histories that don't need it,
and its use is counted where they do. That both ways say the same is in test_judge_runs.py.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.judge.histories import WALL_MS, Story
from tests.judge.judge_stories import WEEK_MS, clean, three, two
from tests.judge.test_judge_runs import STORIES

from holdfast.judge import partition, reader_rules
from holdfast.judge.checker import judge
from holdfast.judge.history import Delivered
from holdfast.judge.partition import PartitionFold

USUAL: dict[str, Callable[[], Story]] = {
    "as in any run": clean,
    "one record": lambda: Story().send(0).ack(0, 0).read(0, 0).final(0),
    "with keys, the first of them at an offset of its own": lambda: (
        Story()
        .send(0, key="a")
        .send(1, key="b")
        .ack(0, 5)
        .ack(1, 6)
        .read(5, 0, key="a")
        .read(6, 1, key="b")
    ),
    "with timestamps, those of the client and those of the clock": lambda: (
        Story()
        .send(0, timestamp=WEEK_MS)
        .send(1)
        .ack(0, 0)
        .ack(1, 1)
        .read(0, 0, timestamp=WEEK_MS)
        .read(1, 1, timestamp=WALL_MS + 1002)
    ),
    "below the committed end, and with epochs": lambda: (
        two().read(0, 0, committed_end=1, epoch=0).read(1, 1, committed_end=2, epoch=1)
    ),
    "with holes": lambda: two().read(3, 0).read(7, 1),
    "several readers of several partitions": lambda: (
        two()
        .send(2, partition=1)
        .ack(2, 0, partition=1)
        .read(0, 0, by="a")
        .read(0, 2, by="a", partition=1)
        .read(0, 0, by="b")
        .read(1, 1, by="a")
        .read(0, 2, by="b", partition=1)
    ),
    "on from where it was set": lambda: three().read(0, 0).position(2).read(2, 2).final(0, 1, 2),
    "read in the very moment of its send": lambda: (
        Story().send(0).read(0, 0, skew=-1.0).ack(0, 0).final(0)
    ),
}
ODD: dict[str, Callable[[], Story]] = {
    "an offset twice": lambda: two().read(0, 0).read(0, 0),
    "an offset that was passed over": lambda: two().read(1, 1).read(0, 0),
    "an offset below the one before, in another run": lambda: (
        two().read(1, 1).lead(1, 1).read(0, 0).read(1, 1)
    ),
    "at the committed end": lambda: two().read(0, 0, committed_end=0).read(1, 1, committed_end=2),
    "a committed end that is not told each time": lambda: (
        two().read(0, 0, committed_end=1).read(1, 1)
    ),
    "what nobody sent": lambda: two().read(0, 0).read(1, 9),
    "no id": lambda: two().read(0, None),
    "another digest": lambda: two().read(0, 0, digest="e"),
    "another key": lambda: two().read(0, 0, key="k"),
    "another timestamp": lambda: two().read(0, 0, timestamp=WALL_MS + 1),
    "not sent yet": lambda: Story().send(0).read(1, 1).send(1),
    "not sent yet by the clock": lambda: Story().send(0).send(1).read(1, 1, skew=-1.5),
}


def slowly_taken(story: Story, monkeypatch: pytest.MonkeyPatch) -> int:
    """Judge a history in one run, and return how many deliveries were looked at one by one."""
    found: list[Delivered] = []
    deliver = PartitionFold.deliver

    def noted(self: PartitionFold, delivered: Delivered, later: int) -> None:
        found.append(delivered)
        deliver(self, delivered, later)

    monkeypatch.setattr(PartitionFold, "deliver", noted)
    judge(story.events)
    return len(found)


@pytest.mark.parametrize("name", USUAL)
def test_what_is_usual_is_taken_in_together(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert slowly_taken(USUAL[name](), monkeypatch) == 0


@pytest.mark.parametrize("name", ODD)
def test_what_is_odd_is_looked_at(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    story = ODD[name]()
    assert slowly_taken(story, monkeypatch) > 0


@pytest.mark.parametrize("behind", [0, 1, 2])
def test_what_is_read_before_it_was_sent_is_told_whatever_else_is_sent(behind: int) -> None:
    story = two().read(0, 0).read(2, 2).send(2).ack(2, 2).send(*range(3, 3 + behind))
    judgement = judge(story.final(0, 1, 2).events).judgement
    assert judgement.undecided == ("foo-0: clocks disagree: live read p:2 before it was sent",)


@pytest.mark.parametrize("name", STORIES)
def test_pieces_of_any_length_give_one_verdict(name: str) -> None:
    events = sorted(STORIES[name]().events, key=lambda event: event.at_ms)
    whole = judge(events)
    with pytest.MonkeyPatch.context() as patch:
        for length in (1, 2):
            patch.setattr(reader_rules, "PIECE", length)
            patch.setattr(partition, "STEPS_MAX", length)
            assert judge(events) == whole
