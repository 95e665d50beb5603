"""Goal: `make compare` sees what differs, and only that. Method: answers made by hand."""

from __future__ import annotations

from typing import Any

import pytest

from compare.answers import NOTHING, SOMETHING, Difference, differences, plain
from compare.reasons import Reason, reason_of
from holdfast.wire.batch import Record, build_batch
from holdfast.wire.messages.delete_topics import DeletableTopicResult, DeleteTopicsResponse
from holdfast.wire.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData

ID = b"i" * 16


def deleted(*names: str, code: int = 0, words: str | None = None, version: int = 6) -> Any:
    answer = DeleteTopicsResponse(
        throttle_time_ms=0,
        responses=[
            DeletableTopicResult(name=name, topic_id=ID, error_code=code, error_message=words)
            for name in names
        ],
    )
    return plain(answer, version, {ID: "t"})


def fetched(value: bytes) -> dict[str, str]:
    batch = build_batch([Record(key=b"k", value=value, timestamp=5)], base_offset=7)
    partition = PartitionData(partition_index=3, records=bytes(batch), high_watermark=9)
    topic = FetchableTopicResponse(topic_id=ID, partitions=[partition])
    return plain(FetchResponse(session_id=0, responses=[topic]), 17, {ID: "t"})


def test_the_same_answers_differ_in_nothing() -> None:
    assert differences("s", deleted("a", "b"), deleted("b", "a")) == []
    assert differences("s", fetched(b"v"), fetched(b"v")) == []


def test_an_error_is_named_and_its_words_count_as_words() -> None:
    ours = deleted("a", code=3, words="ours")
    assert differences("s", ours, deleted("a", code=3, words="theirs")) == []
    assert differences("s", ours, deleted("a", code=3)) == [
        Difference("s", "responses[a].error_message", "words", "no words")
    ]
    (difference,) = differences("s", deleted("a", code=3), deleted("a", code=0))
    assert difference[1:] == ("responses[a].error_code", "UNKNOWN_TOPIC_OR_PARTITION", "NONE")


def test_what_is_there_twice_and_what_is_not_there_are_seen() -> None:
    found = {one.path: one for one in differences("s", deleted("a", "a"), deleted("a"))}
    assert list(found) == ["responses[a#2]"]
    assert found["responses[a#2]"][2:] == (SOMETHING, NOTHING)


def test_a_version_has_its_own_fields_and_ids_have_names() -> None:
    assert deleted("a")["responses[a].topic_id"] == "the id of t"
    assert "responses[a].topic_id" not in deleted("a", version=5)


def test_records_are_looked_into() -> None:
    (difference,) = differences("s", fetched(b"v"), fetched(b"w"))
    assert difference.path == "responses[the id of t].partitions[3].records[0]"
    assert "b'v'" in difference.ours
    assert "b'w'" in difference.theirs


@pytest.mark.parametrize(
    ("entry", "explains"),
    [
        ({"step": "delete *", "path": "responses[[]*].error_code", "why": "x"}, False),
        ({"step": "delete *", "path": "responses[*].error_code", "why": "x"}, True),
        ({"step": "delete *", "path": "responses[*].error_code", "ours": "B", "why": "x"}, False),
        ({"path": "*", "ours": "A", "theirs": "B", "why": "x"}, True),
        ({"step": "create *", "path": "*", "why": "x"}, False),
    ],
)
def test_a_reason_holds_for_what_it_names(entry: Reason, explains: bool) -> None:
    one = Difference("delete a v6", "responses[a].error_code", "A", "B")
    assert (reason_of(one, [entry]) is entry) == explains
