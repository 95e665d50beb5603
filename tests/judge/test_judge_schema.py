"""Goal: how a history's lines are spelt stays as it is: names, fields, and what is left out.

Method: the whole schema, compared; and what reads files of lines, at its edges.
"""

from __future__ import annotations

import inspect

import pytest
from msgspec.structs import fields

from holdfast.judge.history import (
    KINDS,
    LINE_BYTES_MAX,
    Event,
    HistoryError,
    Note,
    PartitionEvent,
    encode_event,
    in_runs,
    read_events,
    read_runs,
)

# By event: what may be absent, and what it is then.
OPTIONAL: dict[str, dict[str, object]] = {
    "expected": {},
    "retention": {"retention_ms": None, "retention_bytes": None},
    "compaction": {"is_on": True},
    "delete_records": {},
    "deletion_refused": {},
    "send": {"key": None, "timestamp": None},
    "acknowledged": {"offset": None},
    "refused": {"message": ""},
    "unknown": {"message": ""},
    "delivered": {
        "id": None, "key": None, "timestamp": None, "epoch": None, "committed_end": None,
    },
    "position": {"told": False},
    "read_end": {"asked_ms": None},
    "replica": {},
    "replica_batch": {"size": 0},
    "replica_record": {"id": None, "key": None, "timestamp": None},
    "fault": {"detail": ""},
    "leader": {},
    "claim": {},
    "link": {},
    "isr": {},
    "note": {},
}  # fmt: skip


def note(text: str) -> Note:
    return Note(at_ms=1.0, wall_ms=1, process="p", text=text)


def test_events_have_their_names_and_what_they_may_leave_out() -> None:
    found = {
        name: {field.name: field.default for field in fields(kind) if not field.required}
        for name, kind in KINDS.items()
    }
    assert found == OPTIONAL
    kinds = [type(value) for each in found.values() for value in each.values()]
    wanted = [type(value) for each in OPTIONAL.values() for value in each.values()]
    assert kinds == wanted  # False is no 0
    assert {name: kind.KIND for name, kind in KINDS.items()} == {name: name for name in OPTIONAL}
    assert Event.KIND == ""


@pytest.mark.parametrize("kind", [Event, PartitionEvent, *KINDS.values()])
def test_events_are_made_by_name(kind: type[Event]) -> None:
    ways = {each.kind for each in inspect.signature(kind).parameters.values()}
    assert ways == {inspect.Parameter.KEYWORD_ONLY}


@pytest.mark.parametrize("kind", [Event, PartitionEvent, *KINDS.values()])
def test_an_event_never_changes(kind: type[Event]) -> None:
    assert kind.__struct_config__.frozen


@pytest.mark.parametrize(
    "line",
    [
        b'{"event":"note","at_ms":1,"wall_ms":1,"process":"p","text":"\xff"}',
        b'{"x":' + b"[" * 100_000,
    ],
)
def test_what_no_text_is_is_refused_with_its_place(line: bytes) -> None:
    with pytest.raises(HistoryError, match=r"^history:1: "):
        list(read_events([line + b"\n"]))
    with pytest.raises(HistoryError, match=r"^history:1: "):
        list(read_runs([line + b"\n"]))


def test_events_with_blanks_are_read_where_a_later_line_is_none() -> None:
    runs = read_runs([(encode_event(note("a b")) + "no event\n").encode()], "p.jsonl")
    assert next(runs) == [note("a b")]
    with pytest.raises(HistoryError, match=r"p\.jsonl:2: "):
        next(runs)


def test_a_line_may_be_as_long_as_it_may_be() -> None:
    assert list(read_runs([b"x" * LINE_BYTES_MAX])) == []  # its end may yet come
    with pytest.raises(HistoryError, match=r"^history:1: line without an end"):
        list(read_runs([b"x" * (LINE_BYTES_MAX + 1)]))


def test_runs_are_as_long_as_asked_for() -> None:
    events = [note(str(number)) for number in range(5)]
    assert list(in_runs(events, 2)) == [events[:2], events[2:4], events[4:]]
