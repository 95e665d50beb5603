"""Batches of groups' records are those that the usual builder makes of them.

Goal: the bytes in the log are the same, whatever the number and size of records, and what they take
is told beforehand, or a little more. Method: made-up records, both ways.
Rules: group-records.md#frame, batches.md#records.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from holdfast.node.coordinator.record_batches import (
    BATCH_OVERHEAD,
    RECORD_BYTES_MIN,
    batch_of,
    encoded,
    size_of,
)
from holdfast.wire.batch import Codec, Record, build_batch
from holdfast.wire.records.group_records import encode_key, encode_value
from holdfast.wire.records.group_tables import GroupMetadataKey, GroupMetadataValue
from holdfast.wire.records.offset_records import CommittedOffset, OffsetKey

NOW_MS = 1_767_225_600_000
SIZES = st.integers(0, 300) | st.sampled_from([63, 64, 127, 8191, 8192, 20_000])
DATA = SIZES.map(bytes)


@given(st.lists(st.tuples(DATA, st.none() | DATA), min_size=1, max_size=6), st.sampled_from(Codec))
def test_a_batch_is_the_one_that_is_built_of_records(
    pairs: list[tuple[bytes, bytes | None]], codec: Codec
) -> None:
    usual = build_batch([Record(key, value, NOW_MS) for key, value in pairs], codec=codec)
    batch = batch_of(pairs, NOW_MS, codec)
    assert batch == usual
    assert not batch.readonly
    if codec is Codec.NONE:
        assert len(batch) <= BATCH_OVERHEAD + size_of(pairs)


def test_a_batch_of_very_many_is_too() -> None:
    pairs = [(b"k", b"v")] * 5000
    usual = build_batch([Record(key, value, NOW_MS) for key, value in pairs])
    assert batch_of(pairs, NOW_MS, Codec.NONE) == usual


def test_records_of_both_kinds_have_the_usual_bytes() -> None:
    group = GroupMetadataKey(group="g"), GroupMetadataValue(generation=3)
    offset = OffsetKey("g", "t", 0), CommittedOffset(5, 1, "", NOW_MS)
    assert encoded([group, offset, (group[0], None), (offset[0], None)]) == [
        (encode_key(group[0]), encode_value(group[1])),
        (encode_key(offset[0]), encode_value(offset[1])),
        (encode_key(group[0]), None),
        (encode_key(offset[0]), None),
    ]


def test_no_committed_offset_is_smaller_than_the_smallest() -> None:
    records = encoded([(OffsetKey("", "t", 0), CommittedOffset(0, -1, "", 0))] * 100)
    size = len(batch_of(records, NOW_MS, Codec.NONE)) - BATCH_OVERHEAD
    assert size >= 100 * RECORD_BYTES_MIN
