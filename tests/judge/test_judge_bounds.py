"""Goal: what is no history is refused in words that say where and why, and all has its bound.

Method: each refusal met once, and compared whole; each bound met exactly, and passed by one.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from itertools import chain

import pytest
from msgspec.structs import replace
from tests.judge.histories import Story
from tests.judge.judge_stories import two

from holdfast.judge import checker, replicas
from holdfast.judge.checker import Checker, judge
from holdfast.judge.deliveries import Reader
from holdfast.judge.history import (
    LINE_BYTES_MAX,
    Delivered,
    Event,
    HistoryError,
    Note,
    Send,
    decode_event,
    encode_event,
    merge,
    read_events,
    read_runs,
)
from holdfast.judge.partition import PartitionFold
from holdfast.judge.sends import HistoryTooLargeError

# -- a history that contradicts itself -------------------------------------------------------------


@pytest.mark.parametrize(
    ("story", "words"),
    [
        (lambda: Story().send(0).send(0), "two sends have the id 'p:0'"),
        (lambda: Story().ack(0, 0), "an outcome of 'p:0', which was never sent here"),
        (lambda: Story().send(0).ack(0, 0).refuse(0), "'p:0' has two outcomes"),
        (lambda: Story().send(0).refuse(0).doubt(0), "'p:0' has two outcomes"),
        (
            lambda: two().deny(1),
            "lab was refused a deletion that it never asked for",
        ),
        (
            lambda: two().delete(1, by="a").delete(1, by="b").deny(1, by="a").deny(1, by="a"),
            "a was refused a deletion that it never asked for",
        ),
    ],
)
def test_a_contradiction_is_told(story: Callable[[], Story], words: str) -> None:
    with pytest.raises(HistoryError) as error:
        judge(story().events)
    assert str(error.value) == words


def test_an_outcome_is_told_by_who_has_sent() -> None:
    sent, outcome = Story().send(0, by="a").ack(0, 0, by="a").events
    with pytest.raises(HistoryError) as error:
        judge([sent, replace(outcome, process="b")])
    assert str(error.value) == "b tells an outcome of 'a:0', not its own"


def test_a_number_that_is_too_large_is_told_with_its_event() -> None:
    events = Story().send(0).ack(0, 1 << 64).events
    with pytest.raises(HistoryError) as error:
        judge(events)
    assert str(error.value).startswith("a number is too large (")
    assert str(error.value).endswith(f"): {events[1]}")


# -- bounds ----------------------------------------------------------------------------------------


def test_a_partition_holds_just_so_many_records() -> None:
    fold = PartitionFold("foo", 0, records_max=2)
    *held, last = (event for event in Story().send(0, 1, 2).events if isinstance(event, Send))
    for event in held:
        fold.send(event)
    with pytest.raises(HistoryTooLargeError) as error:
        fold.send(last)
    assert str(error.value) == "foo-0 has more than 2 records"


def test_a_reader_is_given_just_so_many_records() -> None:
    reader = Reader("live", "foo", 0, records_max=2)
    story = Story().read(0, 0).read(1, 1).read(2, 2)
    *held, last = (event for event in story.events if isinstance(event, Delivered))
    for event in held:
        reader.add(event, -1)
    with pytest.raises(HistoryTooLargeError) as error:
        reader.add(last, -1)
    assert str(error.value) == "live read more than 2 records of foo-0"


def test_a_replica_has_just_so_many_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replicas, "BATCHES_MAX", 2)
    story = Story().batch(1, 0, 0).batch(1, 1, 1).batch(2, 0, 0)
    judge(story.events)
    with pytest.raises(HistoryTooLargeError) as error:
        judge(story.batch(1, 2, 2).events)
    assert str(error.value) == "replica 1 has more than 2 batches"


def test_a_history_has_just_so_many_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checker, "PARTITIONS_MAX", 2)
    story = Story().send(0).send(0, partition=1).send(1)
    judge(story.events)
    with pytest.raises(HistoryTooLargeError) as error:
        judge(story.send(0, partition=2).events)
    assert str(error.value) == "the judge holds 2 partitions, not more"


def test_notes_of_the_run_stand_with_the_verdict() -> None:
    assert Checker().finish(["one", "two"]).judgement.notes == ("one", "two")
    assert Checker().finish().judgement.notes == ()


# -- lines -----------------------------------------------------------------------------------------


def note(text: str, at_ms: float = 1.0) -> Note:
    return Note(at_ms=at_ms, wall_ms=1, process="p", text=text)


def line(text: str = "a") -> bytes:
    return encode_event(note(text)).encode()


def longest() -> bytes:
    """Return a line that is just not too long."""
    found = line("x" * (LINE_BYTES_MAX - len(line(""))))
    assert len(found) == LINE_BYTES_MAX
    return found


Read = Callable[..., Iterator[Event]]


def read_blocks(blocks: Iterable[bytes], source: str = "history") -> Iterator[Event]:
    return chain.from_iterable(read_runs(blocks, source))


@pytest.mark.parametrize("read", [read_events, read_blocks])
def test_a_line_may_be_just_so_long(read: Read) -> None:
    (event,) = read([longest()])
    assert isinstance(event, Note)
    longer = longest().replace(b"x", b"xx", 1)
    with pytest.raises(HistoryError) as error:
        list(read([line(), longer], "a.jsonl"))
    assert str(error.value) == f"a.jsonl:2: line of {len(longer)} bytes"


@pytest.mark.parametrize("read", [read_events, read_blocks])
@pytest.mark.parametrize("broken", [b"{}\n", b"[]\n", b"\xff\n", b"[" * 50_000 + b"\n"])
def test_a_line_that_is_no_event_is_named(read: Read, broken: bytes) -> None:
    with pytest.raises(HistoryError) as error:
        list(read([line(), line("b"), broken, line("c")], "a.jsonl"))
    shown = broken if read is read_events else broken.rstrip(b"\n") + b"\n"
    assert str(error.value).startswith("a.jsonl:3: no event (")
    assert str(error.value).endswith(f"): {shown[:120]!r}")
    with pytest.raises(HistoryError, match=r"^history:1: no event \("):
        list(read([broken]))


def test_lines_may_be_counted_from_anywhere() -> None:
    with pytest.raises(HistoryError, match=r"^a\.jsonl:8: no event"):
        list(read_events([line(), b"{}\n"], "a.jsonl", 7))


def test_a_line_alone_that_is_no_event_is_shown() -> None:
    with pytest.raises(HistoryError) as error:
        decode_event("{" + "x" * 200)
    assert str(error.value).startswith("no event (")
    assert str(error.value).endswith(f"): {'{' + 'x' * 119!r}")


def test_blocks_without_an_end_are_bounded() -> None:
    """A file that is no history must not be taken into memory whole."""
    part = b"x" * (LINE_BYTES_MAX // 4)
    assert list(read_blocks([line() + part, part, part, part[: -len(line())]])) == [note("a")]
    with pytest.raises(HistoryError) as error:
        list(read_blocks([line() + line("b"), part, part, part, part, b"y"], "a.jsonl"))
    assert str(error.value) == "a.jsonl:3: line without an end"
    with pytest.raises(HistoryError, match=r"^history:3: line without an end$"):
        list(read_blocks([line() + line("b") + part * 4 + b"y"]))


def test_blocks_name_the_line_wherever_they_are_cut() -> None:
    data = line() + line("b") + line("c") + b"{}\n" + line("d")
    for size in range(1, len(data)):
        blocks = [data[begin : begin + size] for begin in range(0, len(data), size)]
        with pytest.raises(HistoryError, match=r"^a\.jsonl:4: no event"):
            list(read_blocks(blocks, "a.jsonl"))


def test_whatever_stands_before_a_broken_line_is_read() -> None:
    events = read_blocks([line() + line("b") + b"{}\n"])
    assert [next(events), next(events)] == [note("a"), note("b")]


# -- several files ---------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(30))
def test_merge_goes_by_the_clock_and_then_by_the_file(seed: int) -> None:
    chance = random.Random(seed)
    files: list[list[Event]] = [
        [
            note(f"{number}-{place}", at_ms)
            for place, at_ms in enumerate(sorted(chance.choices(range(12), k=chance.randint(0, 9))))
        ]
        for number in range(chance.randint(1, 5))
    ]
    every = [(event.at_ms, number, event) for number, file in enumerate(files) for event in file]
    wanted = [event for _, _, event in sorted(every, key=lambda each: each[:2])]
    assert list(merge(*files)) == wanted
