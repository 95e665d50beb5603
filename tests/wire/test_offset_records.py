"""Committed offsets are read the quick way as they are read the usual way.

Goal: whatever the quick way reads, it reads as `group_records` does, and what is damaged it leaves
to that; records by offset, key and value are those that the usual walk finds. Method: made-up
records in every version, whole, cut and changed at random, and both ways side by side.
Rules: group-records.md#frame, batches.md#records.
"""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.wire.batch import Record, build_batch, read_header
from holdfast.wire.batch_header import HEADER_SIZE, BatchHeader
from holdfast.wire.batch_records import walk_pairs, walk_records
from holdfast.wire.errors import EncodeError, WireError
from holdfast.wire.records.group_records import decode_key, decode_value, encode_key, encode_value
from holdfast.wire.records.group_tables import (
    GroupMetadataKey,
    LegacyOffsetCommitKey,
    OffsetCommitKey,
    OffsetCommitValue,
)
from holdfast.wire.records.offset_records import CommittedOffset, OffsetKey, OffsetReader

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
LONGS = st.integers(-(2**63), 2**63 - 1)
INTS = st.integers(-(2**31), 2**31 - 1)
KEYS = st.builds(OffsetCommitKey, group=TEXTS, topic=TEXTS, partition=INTS)
HEADERS = st.lists(st.tuples(TEXTS, st.none() | st.binary(max_size=9)), max_size=3).map(tuple)
VALUES = st.builds(
    OffsetCommitValue,
    offset=LONGS,
    leader_epoch=INTS,
    metadata=TEXTS | st.text("m", max_size=300),
    commit_timestamp=LONGS,
    topic_id=st.just(bytes(16)) | st.binary(min_size=16, max_size=16),
)


@given(KEYS)
def test_a_key_is_the_same_both_ways(key: OffsetCommitKey) -> None:
    found = OffsetReader().key(encode_key(key))
    assert found == (key.group, key.topic, key.partition)


@given(VALUES, st.sampled_from([0, 1, 2, 3, 4]))
def test_a_value_is_the_same_both_ways_or_left_to_the_usual_one(
    value: OffsetCommitValue, version: int
) -> None:
    data = encode_value(value, version)
    usual = decode_value(OffsetCommitKey(), data)
    found = OffsetReader().value(data)
    is_short = len(value.metadata.encode()) < 127
    assert (found is not None) == (version == 4 and is_short)
    if found is not None:
        assert isinstance(usual, OffsetCommitValue)
        assert found == _offset_of(usual)


def _offset_of(value: OffsetCommitValue) -> CommittedOffset:
    return CommittedOffset(
        value.offset,
        value.leader_epoch,
        value.metadata,
        value.commit_timestamp,
        value.expire_timestamp,
        bytes(value.topic_id),
    )


@given(KEYS, VALUES, st.just(-1) | LONGS)
def test_what_is_written_is_the_same_both_ways(
    key: OffsetCommitKey, value: OffsetCommitValue, expires_ms: int
) -> None:
    value.expire_timestamp = expires_ms
    named = OffsetKey(key.group, key.topic, key.partition)
    assert encode_key(named) == encode_key(key)
    assert encode_value(_offset_of(value)) == encode_value(value)


def test_what_has_no_bytes_is_told() -> None:
    for key in (OffsetKey("g" * 32_768, "t", 0), OffsetKey("g", "t" * 32_768, 0)):
        with pytest.raises(EncodeError):
            encode_key(key)
    with pytest.raises(EncodeError):
        encode_key(OffsetKey("g", "t", 2**31))
    for committed in (
        CommittedOffset(2**63, 0, "", 0),
        CommittedOffset(0, 2**31, "", 0),
        CommittedOffset(0, 0, "", 2**63),
        CommittedOffset(0, 0, "m" * 32_768, 0, expires_ms=1),
        CommittedOffset(0, 0, "", 0, expires_ms=2**63),
    ):
        with pytest.raises(EncodeError):
            encode_value(committed)


def test_other_keys_are_left_to_the_usual_way() -> None:
    reader = OffsetReader()
    assert reader.key(encode_key(GroupMetadataKey(group="g"))) is None
    assert reader.key(encode_key(LegacyOffsetCommitKey(group="g", topic="t", partition=0))) is None
    assert reader.key(b"") is None


@given(KEYS, VALUES, st.randoms(use_true_random=False))
def test_what_is_damaged_is_read_as_the_usual_way_reads_it_or_not_at_all(
    key: OffsetCommitKey, value: OffsetCommitValue, draw: Random
) -> None:
    reader = OffsetReader()
    spoilt = _spoilt(encode_key(key), draw)
    names = reader.key(spoilt)
    if names is not None:
        usual_key = decode_key(spoilt)
        assert type(usual_key) is OffsetCommitKey
        assert names == (usual_key.group, usual_key.topic, usual_key.partition)
    spoilt = _spoilt(encode_value(value), draw)
    found = reader.value(spoilt)
    if found is not None:
        usual = decode_value(OffsetCommitKey(), spoilt)
        assert isinstance(usual, OffsetCommitValue)
        assert found == _offset_of(usual)


def _spoilt(data: bytes, draw: Random) -> bytes:
    changed = bytearray(data)
    at = draw.randrange(len(changed))
    how = draw.randrange(4)
    if how == 0:
        del changed[at:]
    elif how == 1:
        changed += bytes(draw.randrange(1, 4))
    elif how == 2:
        changed.insert(at, draw.randrange(256))
    else:
        changed[at] = draw.randrange(256)
    return bytes(changed)


def test_names_that_come_again_are_the_same_objects() -> None:
    """A million offsets must not keep a million copies of a topic's name and id."""
    reader = OffsetReader()
    key = OffsetCommitKey(group="g", topic="some topic", partition=0)
    value = OffsetCommitValue(topic_id=bytes(range(16)), metadata="")
    one, other = (reader.key(encode_key(key)) for _ in range(2))
    assert one is not None
    assert other is not None
    assert one.topic is other.topic
    first, second = (reader.value(encode_value(value)) for _ in range(2))
    assert first is not None
    assert second is not None
    assert first.topic_id is second.topic_id


# -- records by offset, key and value ------------------------------------------------------------

RECORDS = st.lists(
    st.builds(
        Record,
        key=st.none() | st.binary(max_size=200),
        value=st.none() | st.binary(max_size=200),
        timestamp=st.integers(-1, 2**40),
        headers=st.lists(st.tuples(TEXTS, st.none() | st.binary(max_size=9)), max_size=3).map(
            tuple
        ),
    ),
    min_size=1,
    max_size=8,
)


def _batch(records: list[Record]) -> tuple[BatchHeader, bytes]:
    batch = bytes(build_batch(records, base_offset=1000))
    return read_header(batch), batch[HEADER_SIZE:]


@given(RECORDS)
def test_pairs_are_those_of_the_records(records: list[Record]) -> None:
    header, body = _batch(records)
    usual = [(each.offset, each.key, each.value) for each in walk_records(header, body)]
    assert list(walk_pairs(header, body)) == usual


@given(RECORDS, st.randoms(use_true_random=False))
def test_damaged_records_give_pairs_or_an_error_of_ours(
    records: list[Record], draw: Random
) -> None:
    """And what the usual walk reads to its end has the same pairs."""
    header, body = _batch(records)
    spoilt = _spoilt(body, draw)
    try:
        pairs = list(walk_pairs(header, spoilt))
    except WireError:
        with pytest.raises(WireError):
            list(walk_records(header, spoilt))
        return
    try:
        usual = list(walk_records(header, spoilt))
    except WireError:
        return  # its headers or its timestamp, which are not looked at
    assert pairs == [(each.offset, each.key, each.value) for each in usual]


@pytest.mark.parametrize("count", [-1, 2, 1 << 20])
def test_a_count_of_records_that_lies_is_told(count: int) -> None:
    header, body = _batch([Record(b"k", b"v", 0)])
    with pytest.raises(WireError):
        list(walk_pairs(header._replace(record_count=count), body))
    with pytest.raises(WireError):
        list(walk_pairs(header._replace(record_count=0), body))
