"""Goal: what is written is what is read, a killed writer's last line is passed over, and anything
else that isn't an event is refused with its place. Method: every kind of event there and back.
"""

from __future__ import annotations

import random
from itertools import accumulate, chain

import msgspec
import pytest
from msgspec.structs import fields, replace

from holdfast.judge.history import (
    KINDS,
    Event,
    Fault,
    HistoryError,
    Note,
    decode_event,
    encode_event,
    in_runs,
    merge,
    merge_runs,
    read_events,
)

VALUES: tuple[object, ...] = (7, 1234.5, 'ä \n"x', True, (2, 0, 1), False, (("a", "b"),))


def example(kind: type[Event]) -> Event:
    """An event in which every field has a value, none its default."""
    values = {}
    for field in fields(kind):
        for value in VALUES:
            try:
                values[field.name] = msgspec.convert(value, field.type, strict=True)
            except msgspec.ValidationError:
                continue
            if values[field.name] != field.default:
                break
        assert values[field.name] != field.default
    return kind(**values)


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS.keys())
def test_there_and_back(kind: type[Event]) -> None:
    event = example(kind)
    line = encode_event(event)
    assert line.endswith("\n")
    assert line.count("\n") == 1
    assert decode_event(line) == event


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS.keys())
def test_what_is_optional_may_be_absent(kind: type[Event]) -> None:
    empty = {field.name: field.default for field in fields(kind) if not field.required}
    event = replace(example(kind), **empty)
    line = encode_event(event)
    assert decode_event(line) == event
    assert not any(f'"{name}"' in line for name in empty)


def note(text: str, at_ms: float = 1.0) -> Note:
    return Note(at_ms=at_ms, wall_ms=1, process="p", text=text)


def test_a_torn_last_line_is_passed_over() -> None:
    whole = encode_event(note("a")).encode()
    for cut in range(1, len(whole)):
        assert list(read_events([whole, whole[:-cut]])) == [note("a")]


@pytest.mark.parametrize(
    "line",
    [
        "{}",
        "[]",
        "null",
        "{",
        '{"event":"no such"}',
        '{"event":["send"]}',
        '{"event":"note","at_ms":1,"wall_ms":1,"process":"p"}',
        '{"event":"note","at_ms":1,"wall_ms":1,"process":"p","text":5}',
        '{"event":"note","at_ms":"1","wall_ms":1,"process":"p","text":""}',
        '{"event":"note","at_ms":1,"wall_ms":true,"process":"p","text":""}',
        '{"event":"note","at_ms":1,"wall_ms":1,"process":"p","text":"","more":1}',
        '{"event":"delivered","at_ms":1,"wall_ms":1,"process":"p","topic":"t","partition":0,"offset":-1}',
        '{"event":"isr","at_ms":1,"wall_ms":1,"process":"p","topic":"t","partition":0,"isr":["0"]}',
    ],
)
def test_a_broken_line_in_the_middle_is_refused_with_its_place(line: str) -> None:
    with pytest.raises(HistoryError, match=r"producer\.jsonl:2: "):
        list(
            read_events([encode_event(note("a")).encode(), line.encode() + b"\n"], "producer.jsonl")
        )


def test_a_line_without_end_is_refused() -> None:
    with pytest.raises(HistoryError, match=r"history:1: line of \d+ bytes"):
        list(read_events([b"x" * (2 << 20) + b"\n"]))


# As they were written before records had timestamps and replicas extents.
PLACE = '"at_ms":1.5,"wall_ms":1,"process":"p","topic":"t","partition":0'
OLD = [
    f'{{"event":"send",{PLACE},"id":"p:0","digest":"0a","size":9,"key":"k"}}',
    f'{{"event":"acknowledged",{PLACE},"id":"p:0"}}',
    f'{{"event":"refused",{PLACE},"id":"p:0","error":"E","message":""}}',
    f'{{"event":"delivered",{PLACE},"offset":0,"digest":"0a"}}',
    f'{{"event":"position",{PLACE},"offset":0,"reason":"beginning"}}',
    f'{{"event":"read_end",{PLACE},"begin":0,"end":1}}',
    f'{{"event":"replica_batch",{PLACE},"node":1,"offset":0,"last_offset":0,"epoch":0,"digest":"b"}}',
]


@pytest.mark.parametrize("line", OLD)
def test_histories_that_were_written_before_are_read(line: str) -> None:
    event = decode_event(line)
    assert decode_event(encode_event(event)) == event


def test_merge_goes_by_the_clock_and_keeps_each_process_in_order() -> None:
    left = [note("a", 1.0), note("b", 3.0), note("c", 3.0)]
    fault = Fault(at_ms=2.0, wall_ms=1, process="lab", action="KILL", node=2)
    assert list(merge(left, [fault])) == [left[0], fault, left[1], left[2]]


def test_merge_does_not_hang_on_how_the_histories_are_cut() -> None:
    """Each event stands where the latest moment of its history so far does; then, as given."""
    for seed in range(300):
        chance = random.Random(seed)
        histories = [
            [note(f"{number}:{n}", float(chance.randrange(12))) for n in range(chance.randrange(9))]
            for number in range(chance.randint(1, 4))
        ]
        placed = [
            (latest_ms, number, n)
            for number, history in enumerate(histories)
            for n, latest_ms in enumerate(accumulate((event.at_ms for event in history), max))
        ]
        wanted = [histories[number][n] for _, number, n in sorted(placed)]
        cut = [in_runs(history, chance.randint(1, 4)) for history in histories]
        assert list(chain.from_iterable(merge_runs(*cut))) == wanted, f"seed {seed}"
        assert list(merge(*histories)) == wanted, f"seed {seed}"
