"""Goal: what is written is what is read, a killed writer's last line is passed over, and anything
else that isn't an event is refused with its place. Method: every kind of event there and back.
"""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from holdfast.judge.history import (
    KINDS,
    Event,
    Fault,
    HistoryError,
    Note,
    decode_event,
    encode_event,
    merge,
    read_events,
)

VALUES: dict[str, object] = {
    "int": 7,
    "float": 1234.5,
    "str": 'ä \n"x',
    "int | None": 3,
    "str | None": "k",
    "tuple[int, ...]": (2, 0, 1),
}


def example(kind: type[Event]) -> Event:
    return kind(**{field.name: VALUES[str(field.type)] for field in fields(kind)})  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS.keys())
def test_there_and_back(kind: type[Event]) -> None:
    event = example(kind)
    line = encode_event(event)
    assert line.endswith("\n")
    assert line.count("\n") == 1
    assert decode_event(line) == event


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS.keys())
def test_what_is_optional_may_be_absent(kind: type[Event]) -> None:
    empty = {field.name: None for field in fields(kind) if str(field.type).endswith("None")}
    event = replace(example(kind), **empty)  # type: ignore[arg-type]
    assert decode_event(encode_event(event)) == event


def note(text: str, at_ms: float = 1.0) -> Note:
    return Note(at_ms=at_ms, wall_ms=1, process="p", text=text)


def test_a_torn_last_line_is_passed_over() -> None:
    whole = encode_event(note("a"))
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
        '{"event":"isr","at_ms":1,"wall_ms":1,"process":"p","topic":"t","partition":0,"isr":["0"]}',
    ],
)
def test_a_broken_line_in_the_middle_is_refused_with_its_place(line: str) -> None:
    with pytest.raises(HistoryError, match=r"producer\.jsonl:2: "):
        list(read_events([encode_event(note("a")), line + "\n"], source="producer.jsonl"))


def test_a_line_without_end_is_refused() -> None:
    with pytest.raises(HistoryError, match="characters"):
        list(read_events(["x" * (2 << 20) + "\n"]))


def test_merge_goes_by_the_clock_and_keeps_each_process_in_order() -> None:
    left = [note("a", 1.0), note("b", 3.0), note("c", 3.0)]
    fault = Fault(at_ms=2.0, wall_ms=1, process="lab", action="KILL", node=2)
    assert list(merge(left, [fault])) == [left[0], fault, left[1], left[2]]
