"""Goal: offsets only move forward, whatever the cluster says. Method: tables and random cases."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.pipelines import offsets as moves
from holdfast.pipelines.offsets import (
    Gaps,
    Known,
    Offsets,
    OffsetsError,
    Partition,
    Position,
    Range,
)
from holdfast.wire.well_known import EARLIEST, LATEST

A, B, C = Partition("a", 0), Partition("a", 1), Partition("b", 0)
OFFSETS = st.dictionaries(
    st.builds(Partition, st.sampled_from(["a", "b"]), st.integers(0, 4)), st.integers(0, 60)
)


def test_text_is_the_jvm_connectors_and_canonical() -> None:
    text = moves.to_text({C: 3, B: 2, A: 1})
    assert text == '{"a":{"0":1,"1":2},"b":{"0":3}}'
    assert moves.from_text(text) == {A: 1, B: 2, C: 3}


@pytest.mark.slow
@given(OFFSETS)
def test_text_round_trip(offsets: Offsets) -> None:
    assert moves.from_text(moves.to_text(offsets)) == offsets


@pytest.mark.parametrize(
    "text",
    ["", "[]", "7", '{"a":[0]}', '{"a":{"x":1}}', '{"a":{"0":-3}}', '{"a":{"0":"1"}}',
     '{"a":{"0":true}}', '{"a":{"0":1.5}}', "[" * 100_000, '{"a":{"²":1}}'],
)  # fmt: skip
def test_text_that_is_no_offsets_is_refused(text: str) -> None:
    with pytest.raises(OffsetsError):
        moves.from_text(text)


def test_a_position_says_which_topics_it_counts() -> None:
    """Text without ids is what older checkpoints have; a topic whose id is not told has none."""
    position = Position({A: 1, B: 2, C: 3}, {"a": "id-of-a"})
    text = moves.to_text(position.offsets, position.ids)
    assert text == '{"a":{"id":"id-of-a","0":1,"1":2},"b":{"0":3}}'
    assert moves.position_from_text(text) == position
    assert moves.position_from_json(moves.position_to_json(position)) == position
    assert moves.position_from_text('{"a":{"0":1}}') == Position({A: 1})
    with pytest.raises(OffsetsError, match="'id' is no partition"):
        moves.from_text(text)  # startingOffsets are a user's, and say nothing of ids


def test_an_id_is_the_same_however_it_is_spelt() -> None:
    """Kafka's base64 has other signs than librdkafka's, which checkpoints of before have."""
    before = moves.position_from_text('{"a":{"id":"q+/w","0":1}}')
    assert before == moves.position_from_text('{"a":{"id":"q-_w","0":1}}')
    assert moves.position_to_json(before)["a"]["id"] == "q-_w"
    assert moves.made_anew(before.ids, {"a": moves.spelt("q+/w")}) == {}


@pytest.mark.parametrize("text", ["[]", '{"a":{"id":3,"0":1}}', '{"a":{"id":"","0":1}}', '{"a":1}'])
def test_text_that_is_no_position_is_refused(text: str) -> None:
    with pytest.raises(OffsetsError):
        moves.position_from_text(text)


def test_an_id_that_is_not_told_proves_nothing() -> None:
    changed = moves.made_anew({"a": "1", "b": "2", "c": "3"}, {"a": "1", "b": "9", "d": "4"})
    assert changed == {"b": ("2", "9")}
    (said,) = moves.made_anew_text(changed)
    assert "topic 'b' was deleted and made anew" in said
    assert "--begin-anew 2" in said


def test_a_beginning_past_the_end_is_said() -> None:
    assert moves.out_of_log({A: 9, B: 4}, {A: 5, B: 4}) == {
        A: "startingOffsets is 9, but the log ends at 5"
    }


def test_named_offsets_are_resolved() -> None:
    wanted = {A: EARLIEST, B: LATEST, C: 7}
    assert moves.resolve(wanted, {A: 3}, {B: 9}) == {A: 3, B: 9, C: 7}


@pytest.mark.slow
@given(OFFSETS, OFFSETS, OFFSETS, st.none() | st.integers(1, 100))
def test_advance_never_moves_back_and_never_past_the_end(
    start: Offsets, earliest: Offsets, latest: Offsets, rows_max: int | None
) -> None:
    end = moves.advance(start, earliest, latest, rows_max)
    for partition, offset in start.items():
        assert offset <= end[partition] <= max(offset, latest.get(partition, offset))
    for partition in earliest.keys() - start.keys():
        assert end[partition] == earliest[partition], "a new partition enters empty"


@pytest.mark.slow
@given(OFFSETS, OFFSETS, st.integers(1, 100))
def test_a_limit_is_kept_and_used_up(start: Offsets, latest: Offsets, rows_max: int) -> None:
    end = moves.advance(start, {}, latest, rows_max)
    rows = sum(end[p] - start[p] for p in start)
    there = sum(max(0, latest.get(p, 0) - start[p]) for p in start)
    assert rows == min(there, rows_max)


def test_a_small_partition_is_not_starved() -> None:
    end = moves.advance({A: 0, B: 0}, {}, {A: 1_000_000, B: 1}, 100)
    assert end == {A: 99, B: 1}


def test_what_aged_out_does_not_use_up_the_limit() -> None:
    """Offsets 0 to 89 are gone: ten rows from 90 on are what a limit of ten gives."""
    assert moves.advance({A: 0}, {A: 90}, {A: 200}, 10) == {A: 100}


def test_a_partition_without_leader_stays_where_it_is() -> None:
    assert moves.advance({A: 5, B: 6}, {A: 0}, {A: 9}, None) == {A: 9, B: 6}


def test_ranges_leave_out_what_is_not_due() -> None:
    planned = moves.ranges({A: 5, B: 6}, {A: 9, B: 6, C: 4})
    assert planned == [Range(A, 5, 9)], "B is empty, and C was pinned by this very batch"
    assert moves.ranges({A: 9}, {A: 5}) == [], "a replay of batch 0 under latest"


def test_loss_is_said_with_the_offsets() -> None:
    assert moves.aged_out({A: 5, B: 5}, {A: 9, B: 5}) == {
        A: "offsets 5 to 8 are gone, the log starts at 9"
    }
    assert moves.cut_short({A: 5, B: 5}, {}, Known({A: 3, B: 5}, {}))[A].startswith("read up to 5")
    assert moves.vanished({A: 1, B: 1}, [B]) == {A: "no longer exists"}


def test_special_offsets_are_kafkas() -> None:
    assert (LATEST, EARLIEST) == (-1, -2)
    assert moves.from_text('{"a":{"0":-2,"1":-1}}') == {
        Partition("a", 0): EARLIEST,
        Partition("a", 1): LATEST,
    }


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[", "not JSON: .*line 1"),
        ("[]", r"offsets are an object of topics, not \[\]"),
        ('{"a":[]}', "topic 'a': an object of partitions is wanted"),
        ('{"a":{"x":1}}', "topic 'a': 'x' is no partition"),
        ('{"a":{"0":-3}}', "a-0: -3 is no offset"),
        ('{"a":{"0":true}}', "a-0: True is no offset"),
    ],
)
def test_a_refusal_says_what_is_wrong_and_where(text: str, words: str) -> None:
    for read in (moves.from_text, moves.position_from_text):
        with pytest.raises(OffsetsError, match=words):
            read(text)


def test_an_id_that_is_none_is_refused_by_its_topic() -> None:
    with pytest.raises(OffsetsError, match="topic 'a': '' is no id of a topic"):
        moves.position_from_text('{"a":{"id":"","0":1}}')


def test_no_loss_where_nothing_is_known_or_nothing_is_missing() -> None:
    """Method: a partition of which the cluster told nothing, and two that stand at its edges."""
    start = {Partition("a", 0): 7, Partition("a", 1): 5, Partition("a", 2): 0}
    edges = {Partition("a", 1): 5, Partition("a", 2): 0}
    assert moves.aged_out(start, edges) == {}
    assert moves.cut_short(start, {}, Known(edges, {})) == {}
    assert moves.out_of_log(start, edges) == {}
    above, below = {Partition("a", 1): 6}, {Partition("a", 1): 4}
    assert moves.cut_short(start, {}, Known(above, {})) == {}
    assert moves.aged_out(start, below) == {}
    assert moves.cut_short(start, {}, Known(below, {})) == {
        B: "read up to 5, but the log ends at 4: it was truncated, or its topic was made anew"
    }


def test_epochs_and_gaps_stand_beside_the_numbers() -> None:
    position = Position({A: 9, B: 2}, {"a": "x"}, None, {A: 3}, {A: ((3, 5), (6, 7))})
    told = moves.position_to_json(position)
    gaps = {"0": [[3, 5], [6, 7]]}
    assert told == {"a": {"id": "x", "0": 9, "1": 2, "epochs": {"0": 3}, "gaps": gaps}}
    text = '{"a":{"id":"x","0":9,"1":2,"epochs":{"0":3},"gaps":{"0":[[3,5],[6,7]]}}}'
    assert moves.position_from_text(text) == position
    assert moves.ranges({A: 3, B: 2}, position.offsets, position.gaps) == [Range(A, 5, 9)]


def test_where_a_log_was_cut_stands_beside_the_numbers() -> None:
    position = Position({A: 9}, {"a": "x"}, None, {A: 3}, {}, {A: ((3, 5),)})
    told = moves.position_to_json(position)
    assert told == {"a": {"id": "x", "0": 9, "epochs": {"0": 3}, "cuts": {"0": [[3, 5]]}}}
    assert moves.position_from_json(told) == position


def test_a_log_parts_where_an_epoch_ends_before_what_was_read_in_it() -> None:
    read = Known({A: 9, B: 9}, {A: 3, B: 4})
    cuts = moves.parted(read, {A: 8, B: 9})
    assert cuts == {A: 8}
    assert moves.cuts_text(read, cuts) == {
        A: "an election cut the log: from offset 8 on, up to 9, are other records now than leader "
        "epoch 3 had"
    }


@pytest.mark.parametrize(
    "beside",
    [
        '"cuts":{"0":[3,9]}', '"cuts":7',
        '"gaps":[]', '"gaps":{"0":[]}', '"gaps":{"0":[3,9]}', '"gaps":{"0":[[3]]}',
        '"gaps":{"0":[[9,3]]}', '"gaps":{"0":[[3,"9"]]}', '"gaps":{"x":[[3,9]]}',
        '"gaps":{"0":[[-1,9]]}', '"gaps":{"0":[[3,9,12]]}', '"gaps":{"0":7}', '"epochs":7',
        '"epochs":{"0":"3"}', '"epochs":{"x":3}',
    ],
)  # fmt: skip
def test_what_is_no_epoch_and_no_gap_is_refused(beside: str) -> None:
    with pytest.raises(OffsetsError):
        moves.position_from_text('{"a":{"0":9,' + beside + "}}")


def test_gaps_that_adjoin_are_one() -> None:
    late: Gaps = {A: ((3, 5),), B: ((1, 2),)}
    more: Gaps = {A: ((5, 7),), C: ((0, 4),)}
    assert moves.with_gaps(late, more) == {A: ((3, 7),), B: ((1, 2),), C: ((0, 4),)}
    assert moves.with_gaps({A: ((3, 5),)}, {A: ((6, 7),)}) == {A: ((3, 5), (6, 7))}
