"""`make compare` tells one difference once, and knows of each whether it is meant.

Goal: what follows from a difference is not told beside it, nothing else goes untold, and an entry
matches what it names. Method: made-up answers, and the two files as they are.
"""

from __future__ import annotations

import pytest

from compare.answers import EMPTY, NO_ANSWER, NOTHING, SOMETHING, Difference, differences
from compare.reasons import (
    EXPLAINED,
    MEND,
    SOMETIMES,
    TO_MEND,
    WHY,
    Reason,
    known,
    reason_of,
    unused,
)


def differing(ours: dict[str, str], theirs: dict[str, str]) -> list[tuple[str, str, str]]:
    return [one[1:] for one in differences("a step", ours, theirs)]


def test_a_value_that_differs_is_told() -> None:
    ours = {"error_code": "NONE", "topics.count": "1", "topics[a.b].version": "1"}
    assert differing(ours, ours) == []
    assert differing(ours, {**ours, "topics[a.b].version": "2"}) == [
        ("topics[a.b].version", "1", "2")
    ]


def test_an_entry_that_one_lacks_is_told_once() -> None:
    """Seen to fail: told by each of its fields, and by how many entries there are."""
    theirs = {
        "topics.count": "2",
        "topics[a.b].name": "a.b",
        "topics[a.b].keys.count": "1",
        "topics[a.b].keys[x.y].value": "1",
        "topics[c].name": "c",
    }
    ours = {"topics.count": "1", "topics[c].name": "c"}
    assert differing(ours, theirs) == [("topics[a.b]", NOTHING, SOMETHING)]
    assert differing(theirs, ours) == [("topics[a.b]", SOMETHING, NOTHING)]


@pytest.mark.parametrize(
    ("left_out", "there", "told"),
    [
        ({"keys": "None"}, {"keys.count": "1", "keys[a].value": "1"}, ("keys", "None", SOMETHING)),
        ({"keys": "None"}, {"keys.count": "0"}, ("keys", "None", EMPTY)),
        (
            {"keys.count": "0"},
            {"keys.count": "1", "keys[a].value": "1"},
            ("keys", EMPTY, SOMETHING),
        ),
        ({"next": "None"}, {"next.topic": "a", "next.index": "0"}, ("next", "None", SOMETHING)),
    ],
)
def test_a_list_or_a_struct_that_one_leaves_out_is_told_once(
    left_out: dict[str, str], there: dict[str, str], told: tuple[str, str, str]
) -> None:
    assert differing(left_out, there) == [told]


def test_what_is_refused_differs_in_that_alone() -> None:
    """And what stands beside it, or has errors in both, is told all the same."""
    ours = {
        "topics[a].error_code": "INVALID_CONFIG",
        "topics[a].configs": "None",
        "topics[a].partitions": "-1",
        "topics[b].error_code": "INVALID_CONFIG",
        "topics[b].partitions": "-1",
        "throttle": "0",
    }
    theirs = {
        "topics[a].error_code": "NONE",
        "topics[a].configs.count": "1",
        "topics[a].configs[k].value": "v",
        "topics[a].partitions": "3",
        "topics[b].error_code": "INVALID_REQUEST",
        "topics[b].partitions": "0",
        "throttle": "1",
    }
    assert differing(ours, theirs) == [
        ("topics[a].error_code", "INVALID_CONFIG", "NONE"),
        ("topics[b].error_code", "INVALID_CONFIG", "INVALID_REQUEST"),
        ("topics[b].partitions", "-1", "0"),
        ("throttle", "0", "1"),
    ]


def test_an_answer_that_one_does_not_give_is_told_once() -> None:
    theirs = {"error_code": "NONE", "session": "1"}
    lost = {NO_ANSWER: "none: AnswerLostError"}
    assert differing(lost, theirs) == [(NO_ANSWER, "none: AnswerLostError", SOMETHING)]


@pytest.mark.parametrize(
    ("entry", "matches"),
    [
        ({}, True),
        ({"step": "create *"}, True),
        ({"step": "created*"}, False),
        ({"path": "topics[a].error_code"}, True),
        ({"path": ["topics[b]*", "topics[*].error_code"]}, True),
        ({"path": ["topics[b]*", "topics[*].error"]}, False),
        ({"path": "*", "ours": "NONE", "theirs": "NONE"}, False),
    ],
)
def test_an_entry_matches_what_it_names(entry: dict[str, str | list[str]], matches: bool) -> None:
    one = Difference("create it", "topics[a].error_code", "NONE", "INVALID_CONFIG")
    assert (reason_of(one, [entry]) is entry) is matches


def test_an_entry_without_a_difference_is_told_unless_chance_decides() -> None:
    """Seen to fail: theirs draw who of three leads, and a run in three told of that entry."""
    always: Reason = {"step": "a", WHY: "meant"}
    drawn: Reason = {"step": "b", SOMETIMES: "it is drawn", WHY: "so"}
    assert unused([always, drawn], [None, always]) == []
    assert unused([always, drawn], [None, drawn]) == [always]


def test_each_entry_says_what_is_known() -> None:
    """A field's name that is misspelt would match everything, and so would an entry of no value."""
    fields = set(Difference._fields)
    for entry in known():
        assert set(entry) - fields - {SOMETIMES} in ({WHY}, {MEND}), entry
        assert "path" in entry, entry
        assert {"ours", "theirs"} & set(entry) or "step" in entry, entry
    assert WHY + " =" not in TO_MEND.read_text(encoding="utf-8")
    assert MEND + " =" not in EXPLAINED.read_text(encoding="utf-8")
