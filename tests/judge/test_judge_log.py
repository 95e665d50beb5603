"""Goal: the log as one reader found it is what it was given last at each offset, and is looked up.

Method: a few hundred made-up readers, against a dictionary; and reads that begin where they say.
"""

from __future__ import annotations

import random
from array import array

import pytest
from tests.judge.histories import Story

from holdfast.judge.deliveries import Log, Reader, is_dense
from holdfast.judge.history import Delivered, Position, ReadEnd
from holdfast.judge.reader_rules import strays


def reader_of(offsets: list[int], codes: list[int] | None = None) -> Reader:
    reader = Reader("live", "foo", 0, records_max=1000)
    for place, offset in enumerate(offsets):
        (event,) = Story().read(offset, offset).events
        assert isinstance(event, Delivered)
        reader.add(event, offset if codes is None else codes[place])
    return reader


def offsets_of(chance: random.Random) -> list[int]:
    """Return offsets as readers are given them: dense, with holes, or back and forth."""
    begin, count = chance.randint(0, 3), chance.randint(0, 6)
    kind = chance.randrange(4)
    if kind == 0:
        return list(range(begin, begin + count))
    if kind == 1:
        return sorted(chance.sample(range(12), count))
    if kind == 2:
        return [begin, *range(begin + 2, begin + 2 + count), begin + 1]
    return [chance.randrange(8) for _ in range(count)]


def check_log(seed: int) -> None:
    chance = random.Random(seed)
    offsets = offsets_of(chance)
    codes = [chance.randrange(-3, 9) for _ in offsets]
    begin = chance.randint(0, len(offsets))
    end = chance.randint(begin, len(offsets))
    low = chance.randint(0, 6)
    high = chance.choice([low, low + 3, 99])
    log = Log(reader_of(offsets, codes), begin, end, low, high)
    last = {offsets[index]: index for index in range(begin, end) if low <= offsets[index] < high}
    stand = sorted(last)
    assert list(log.offsets) == stand
    assert list(log.indexes) == [last[offset] for offset in stand]
    assert list(log.codes) == [codes[last[offset]] for offset in stand]
    assert len(log) == len(stand)
    holes = stand and stand[-1] - stand[0] != len(stand) - 1
    assert log.dense_from == (None if holes or not stand else stand[0])
    for offset in range(14):
        assert log.place(offset) == sum(each < offset for each in stand)
        assert log.find(offset) == (stand.index(offset) if offset in last else -1)


def test_a_log_is_what_was_given_last() -> None:
    for seed in range(300):
        check_log(seed)


def check_strays(seed: int) -> None:
    chance = random.Random(seed)
    stand, given = offsets_of(chance), offsets_of(chance)
    log = Log(reader_of(stand), 0, len(stand), 0, 99)
    codes = [offset if chance.random() < 0.8 else 77 for offset in given]
    wanted = [
        index
        for index, (offset, code) in enumerate(zip(given, codes, strict=True))
        if offset not in stand or code != offset
    ]
    assert list(strays(log, reader_of(given, codes))) == wanted


def test_who_strays_from_a_log_is_found_one_by_one() -> None:
    for seed in range(300):
        check_strays(seed)


@pytest.mark.parametrize(
    ("offsets", "dense"),
    [
        ([], True),
        ([5], True),
        ([5, 6, 7], True),
        ([5, 7], False),
        ([5, 5, 7], False),
        ([5, 7, 6, 8], False),
        ([7, 6, 5], False),
    ],
)
def test_what_is_dense_has_no_hole_and_rises(offsets: list[int], dense: bool) -> None:
    assert is_dense(array("q", offsets)) is dense


def read_by(story: Story) -> Reader:
    reader = Reader("final", "foo", 0, records_max=99)
    for event in story.events:
        if isinstance(event, Delivered):
            reader.add(event, event.offset)
        elif isinstance(event, Position):
            reader.move(event)
        elif isinstance(event, ReadEnd):
            reader.end(event)
    return reader


@pytest.mark.parametrize(
    ("story", "reads"),
    [
        (Story().read(0, 0).read(1, 1).end(0, 2), [(0, 2, 1001.0)]),
        (Story().read(0, 0).end(0, 1, asked_ms=7.0), [(0, 1, 7.0)]),
        (Story().end(3, 3), [(0, 0, 1001.0)]),
        (Story().position(0).read(0, 0).end(0, 1), [(0, 1, 1001.0)]),
        (Story().read(0, 0).position(1).read(1, 1).end(1, 2), [(1, 2, 1002.0)]),
        (Story().read(0, 0).position(0).read(0, 0).end(0, 1), [(1, 2, 1002.0)]),
        # A position behind the beginning is on the way.
        (Story().read(0, 0).position(2).read(2, 2).end(1, 3), [(0, 2, 1001.0)]),
        # The next read begins behind the one before, or where its own position was set.
        (
            Story().read(0, 0).end(0, 1).read(0, 0).end(0, 1).position(0).end(0, 0),
            [(0, 1, 1001.0), (1, 2, 1003.0), (2, 2, 1005.0)],
        ),
    ],
)
def test_where_a_whole_read_begins(story: Story, reads: list[tuple[int, int, float]]) -> None:
    reader = read_by(story)
    assert [reader.whole_read(number) for number in range(len(reader.ends))] == reads


def test_a_reader_says_where_it_stood_when_its_position_was_set() -> None:
    story = Story().read(0, 0).read(1, 1).position(5).position(3).read(3, 3)
    found = [
        (each.begin, each.end, None if each.position is None else each.position.offset,
         each.stood_at)
        for each in read_by(story).stretches()
    ]  # fmt: skip
    assert found == [(0, 2, None, 0), (2, 2, 5, 2), (2, 3, 3, 5)]
    empty, at_once = read_by(Story().position(4)).stretches()
    assert (empty.begin, empty.end, empty.position, empty.stood_at) == (0, 0, None, 0)
    assert (at_once.begin, at_once.end, at_once.stood_at) == (0, 0, 0)
