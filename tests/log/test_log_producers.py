"""Idempotence in one partition: duplicates, order, epochs, expiry, truncation.

Rules: producers.md#sequences, producers.md#duplicates, producers.md#producer-state.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.log.errors import CorruptFileError
from holdfast.log.producers import ENDED_KEPT, Producers, decode_snapshot, encode_snapshot
from holdfast.wire.batch_header import CONTROL, TRANSACTIONAL, BatchHeader
from holdfast.wire.errors import ErrorCode

PID = 1000
SEQUENCE_MAX = 0x7FFFFFFF
OK, OLD = ErrorCode.NONE, ErrorCode.INVALID_PRODUCER_EPOCH
DISORDER = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def header(
    base: int, sequence: int, count: int, *, epoch: int = 0, attributes: int = 0
) -> BatchHeader:
    return BatchHeader(
        base, 100, 0, 2, 0, attributes, count - 1, 5, 1_000 + base, PID, epoch, sequence, count
    )  # fmt: skip


def written(*batches: BatchHeader) -> Producers:
    producers = Producers()
    for batch in batches:
        producers.update(batch, 0)
    return producers


def test_an_unknown_producer_may_begin_anywhere() -> None:
    assert Producers().check(PID, 3, 77, 0) == (OK, None, -1)


@pytest.mark.parametrize(
    ("epoch", "first", "last_delta", "error", "duplicate"),
    [
        (0, 30, 9, OK, None),  # what comes next
        (0, 31, 0, DISORDER, None),  # a gap
        (0, 20, 9, OK, 120),  # the last one again
        (0, 0, 9, OK, 100),  # the first of three again
        (0, 20, 4, DISORDER, None),  # a part of one is no duplicate
        (0, 10, 19, DISORDER, None),  # nor are two of them together
        (1, 0, 0, OK, None),  # a new epoch begins at 0
        (1, 30, 0, DISORDER, None),
        (-1, 30, 0, OLD, None),
    ],
)
def test_check(
    epoch: int, first: int, last_delta: int, error: ErrorCode, duplicate: int | None
) -> None:
    producers = written(header(100, 0, 10), header(110, 10, 10), header(120, 20, 10))
    found = producers.check(PID, epoch, first, last_delta)
    assert (found.error, found.duplicate_offset) == (error, duplicate)
    if duplicate is not None:
        assert found.duplicate_timestamp == 1_000 + duplicate


def test_only_five_batches_are_remembered() -> None:
    producers = written(*(header(number, number, 1) for number in range(6)))
    assert producers.check(PID, 0, 0, 0).error == DISORDER
    assert producers.check(PID, 0, 1, 0).duplicate_offset == 1


def test_sequences_wrap_at_31_bits() -> None:
    producers = written(header(0, SEQUENCE_MAX - 1, 4))  # MAX-1, MAX, 0, 1
    assert producers.check(PID, 0, 2, 0) == (OK, None, -1)
    assert producers.check(PID, 0, SEQUENCE_MAX - 1, 3).duplicate_offset == 0
    ends_at_max = written(header(0, SEQUENCE_MAX - 1, 2))
    assert ends_at_max.check(PID, 0, 0, 0) == (OK, None, -1)


def test_a_new_epoch_forgets_the_old_ones_batches() -> None:
    producers = written(header(0, 0, 5), header(5, 0, 5, epoch=1))
    assert producers.check(PID, 0, 5, 0).error == OLD
    assert producers.check(PID, 1, 0, 4).duplicate_offset == 5
    assert producers.check(PID, 1, 5, 0).error == OK


def test_expiry_counts_silence_here_and_spares_open_transactions() -> None:
    producers = written(header(0, 0, 1))
    assert producers.expire(999, 1_000) == 0
    assert producers.expire(1_000, 1_000) == 1
    assert producers.check(PID, 0, 50, 0).error == OK
    open_transaction = written(header(0, 0, 1, attributes=TRANSACTIONAL))
    assert open_transaction.expire(1_000, 1_000) == 0
    open_transaction.update(header(1, -1, 1, attributes=TRANSACTIONAL | CONTROL), 0)
    assert open_transaction.expire(1_000, 1_000) == 1


def test_truncation_restores_what_is_still_remembered() -> None:
    producers = written(header(0, 0, 1), header(1, 1, 1), header(2, 2, 1))
    assert producers.truncate(2)
    assert producers.check(PID, 0, 2, 0) == (OK, None, -1)
    assert producers.truncate(0)
    assert len(producers) == 0, "a producer that began behind the cut is unknown again"


@pytest.mark.parametrize("epochs", [(0,) * 8, (0, 0, 0, 1)])
def test_truncation_says_when_the_log_must_be_asked(epochs: tuple[int, ...]) -> None:
    """Older batches fell out of the window, or a new epoch pushed them out."""
    sequences = [number if epoch == 0 else 0 for number, epoch in enumerate(epochs)]
    producers = written(
        *(header(n, s, 1, epoch=e) for n, (s, e) in enumerate(zip(sequences, epochs, strict=True)))
    )
    assert not producers.truncate(2)


@given(
    st.lists(
        st.tuples(st.integers(0, 2**62), st.integers(0, 32766), st.integers(0, SEQUENCE_MAX)),
        unique_by=lambda entry: entry[0],
        max_size=5,
    )
)
def test_a_snapshot_keeps_the_last_batch_of_each(found: list[tuple[int, int, int]]) -> None:
    producers = Producers()
    for offset, (pid, epoch, sequence) in enumerate(found):
        batch = header(offset, sequence, 1, epoch=epoch)._replace(producer_id=pid)
        producers.update(batch, 0)
    data = encode_snapshot(producers.snapshot())
    restored = Producers()
    restored.restore(decode_snapshot(data, "file"), 0)
    assert restored.snapshot() == producers.snapshot()
    for offset, (pid, epoch, sequence) in enumerate(found):
        assert restored.check(pid, epoch, sequence, 0).duplicate_offset == offset


def test_a_damaged_snapshot_is_refused() -> None:
    data = encode_snapshot(written(header(0, 0, 1)).snapshot())
    for index in range(len(data)):
        flipped = bytearray(data)
        flipped[index] ^= 1
        with pytest.raises(CorruptFileError):
            decode_snapshot(bytes(flipped), "file")
        with pytest.raises(CorruptFileError):
            decode_snapshot(data[:index], "file")


def marker(base: int, *, epoch: int = 0) -> BatchHeader:
    return header(base, -1, 1, epoch=epoch, attributes=CONTROL | TRANSACTIONAL)


def test_a_transaction_is_undecided_until_its_marker_is_committed() -> None:
    """Another leader may put the other marker there."""
    producers = written(header(100, 0, 10, attributes=TRANSACTIONAL))
    assert producers.first_undecided(110) == 100
    producers.update(marker(110, epoch=1), 0)
    producers.update(header(111, 0, 1, epoch=1, attributes=TRANSACTIONAL), 0)
    producers.update(marker(112, epoch=2), 0)
    assert [producers.first_undecided(each) for each in (110, 111, 112, 113)] == [
        100, 111, 111, None,
    ]  # fmt: skip


def test_what_many_markers_have_ended_is_undecided_until_all_are_committed() -> None:
    producers = Producers()
    for number in range(2 * ENDED_KEPT):
        producers.update(header(2 * number, number, 1, attributes=TRANSACTIONAL), 0)
        producers.update(marker(2 * number + 1), 0)
    end = 4 * ENDED_KEPT
    assert producers.first_undecided(0) == 0
    assert producers.first_undecided(2 * ENDED_KEPT) == 0, "too early, but not too late"
    assert producers.first_undecided(2 * ENDED_KEPT + 2) == 2 * ENDED_KEPT + 2
    assert producers.first_undecided(end - 1) == end - 2
    assert producers.first_undecided(end) is None


@pytest.mark.parametrize(("offset", "is_exact"), [(111, True), (110, False), (105, False)])
def test_a_marker_that_is_cut_off_makes_the_log_be_asked(offset: int, is_exact: bool) -> None:
    """What it has ended is open again, and its producer's epoch is the one before."""
    producers = written(header(100, 0, 10, attributes=TRANSACTIONAL), marker(110, epoch=1))
    assert producers.truncate(offset) == is_exact
    producers.clear()
    assert producers.truncate(0)
