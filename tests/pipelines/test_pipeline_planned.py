"""Goal: a batch's range comes from Spark's offset log, and the table never has a gap or a second
row. Method: offset logs as Spark 4 writes them, and every position of a table against a plan.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.pipelines.offsets import Partition, Range, to_text
from holdfast.pipelines.planned import (
    Due,
    OffsetLog,
    PlanError,
    due,
    parse_offset_log,
    planned_ranges,
)

P, Q = Partition("t", 0), Partition("t", 1)
HEAD = 'v1\n{"batchWatermarkMs":0,"batchTimestampMs":1,"conf":{}}\n'


def test_one_source_and_a_source_without_offset() -> None:
    assert parse_offset_log(HEAD + '{"t": {"0": 4}}', "offsets/3") == {P: 4}
    assert parse_offset_log(HEAD + '-\n{"t":{"0":4}}\n', "offsets/3") == {P: 4}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "version v1"),
        ("v2\n{}\n{}", "version v1"),
        (HEAD, "version v1"),
        (HEAD + '{"logOffset":3}', "not those of holdfast"),
        (HEAD + '{"t":{"0":4}}\n{"t":{"0":9}}', "two sources"),
    ],
)
def test_what_can_not_be_read_is_said(text: str, said: str) -> None:
    with pytest.raises(PlanError, match=said):
        parse_offset_log(text, "offsets/3")


def test_ranges_between_two_entries() -> None:
    assert planned_ranges({P: 3}, {P: 9, Q: 5}) == [Range(P, 3, 9), Range(Q, 5, 5)]
    assert planned_ranges(None, {P: 3}) == [Range(P, 3, 3)], "batch 0 pins, it reads nothing"
    with pytest.raises(PlanError, match="backwards"):
        planned_ranges({P: 3}, {P: 2})


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        (None, [Due(P, 10, 10, 20, None)]),  # the first time
        (10, [Due(P, 10, 10, 20, 10)]),  # what usually happens
        (15, [Due(P, 10, 15, 20, 15)]),  # the checkpoint was removed: other batches, half there
        (20, []),  # a crash between the table's commit and Spark's
        (35, []),  # far behind, all of it there
    ],
)
def test_what_is_due(stored: int | None, expected: list[Due]) -> None:
    assert due([Range(P, 10, 20)], {} if stored is None else {P: stored}) == expected


def test_a_gap_is_refused_even_by_an_empty_batch() -> None:
    """A deleted checkpoint and startingOffsets=latest would silently skip rows."""
    for planned in (Range(P, 10, 20), Range(P, 10, 10)):
        with pytest.raises(PlanError, match=r"ends at offset 9.*goes on at 10"):
            due([planned], {P: 9})


def test_a_partition_is_remembered_before_its_first_row() -> None:
    assert due([Range(Q, 5, 5)], {P: 3}) == [Due(Q, 5, 5, 5, None)]


@pytest.mark.parametrize("scheme", ["", "file:"])
def test_the_log_of_a_checkpoint(tmp_path: Path, scheme: str) -> None:
    folder = tmp_path / "a checkpoint" / "offsets"
    folder.mkdir(parents=True)
    (folder / "0").write_text(HEAD + to_text({P: 2}))
    (folder / "1").write_text(HEAD + to_text({P: 7}))
    log = OffsetLog(scheme + str(folder.parent))
    assert log.planned(0) == [Range(P, 2, 2)]
    assert log.planned(1) == [Range(P, 2, 7)]
    with pytest.raises(PlanError, match="offsets/2"):
        log.planned(2)
