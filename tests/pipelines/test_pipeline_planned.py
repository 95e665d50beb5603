"""Goal: what a batch covers comes from Spark's checkpoint, and says which topics it counts.

Method: checkpoints as Spark 4 writes them, by hand.
"""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path

import pytest

from holdfast.pipelines import planned
from holdfast.pipelines.offsets import Partition, Position, to_text
from holdfast.pipelines.planned import (
    Checkpoint,
    PlanError,
    Planned,
    Reader,
    parse_offset_log,
    places,
    planned_ranges,
)

P, Q = Partition("t", 0), Partition("t", 1)
HEAD = 'v1\n{"batchWatermarkMs":0,"batchTimestampMs":1,"conf":{}}\n'


def test_one_source_and_a_source_without_offset() -> None:
    assert parse_offset_log(HEAD + '{"t": {"0": 4}}', "offsets/3") == [Position({P: 4})]
    with_id = HEAD + '-\n{"t":{"id":"x","0":4}}\n'
    assert parse_offset_log(with_id, "offsets/3") == [None, Position({P: 4}, {"t": "x"})]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "version v1"),
        ("v2\n{}\n{}", "version v1"),
        (HEAD, "version v1"),
        (HEAD + '{"logOffset":3}', "not those of holdfast"),
    ],
)
def test_what_can_not_be_read_is_said(text: str, said: str) -> None:
    with pytest.raises(PlanError, match=said):
        parse_offset_log(text, "offsets/3")


def test_ranges_between_two_entries() -> None:
    assert planned_ranges([Position({P: 3})], [Position({P: 9, Q: 5})]) == (
        Planned(Reader(P), 3, 9),
        Planned(Reader(Q), 5, 5),
    )
    assert planned_ranges(None, [Position({P: 3})]) == (Planned(Reader(P), 3, 3),), "batch 0 pins"
    with pytest.raises(PlanError, match="backwards"):
        planned_ranges([Position({P: 3})], [Position({P: 2})])
    with pytest.raises(PlanError, match="1 sources, and now it has 2"):
        planned_ranges([Position({P: 3})], [Position({P: 3})] * 2)


def test_two_sources_of_one_topic_have_ranges_of_their_own() -> None:
    """A self-join reads each partition twice, and its sources need not be equally far."""
    before = [Position({P: 3}), None, Position({P: 1, Q: 1})]
    after = [Position({P: 9}), None, Position({P: 4, Q: 1})]
    assert planned_ranges(before, after) == (
        Planned(Reader(P, 0), 3, 9),
        Planned(Reader(P, 2), 1, 4),
        Planned(Reader(Q, 2), 1, 1),
    ), "their places tell them apart, whatever else each of them reads"
    assert places(before) == {P: (0, 2), Q: (2,)}
    assert str(Reader(P, 1)) == "t-0, source 1"
    assert str(Reader(P, 0)) == "t-0"


def test_a_topic_made_anew_appears_for_the_first_time() -> None:
    """Its offsets are lower than those of the one before, and count other records."""
    before, after = Position({P: 50}, {"t": "old"}), Position({P: 0}, {"t": "new"})
    assert planned_ranges([before], [after]) == (Planned(Reader(P), 0, 0, "new"),)
    learnt = planned_ranges([Position({P: 5})], [Position({P: 7}, {"t": "new"})])
    assert learnt == (Planned(Reader(P), 5, 7, "new"),), "an older entry tells no id"


def write(folder: Path, number: int, end: int, watermark: int = 0) -> None:
    head = json.dumps({"batchWatermarkMs": watermark, "batchTimestampMs": 1, "conf": {}})
    entry = f"v1\n{head}\n{to_text({P: end}, {'t': 'x'})}"
    (folder / "offsets" / str(number)).write_text(entry)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "a checkpoint"
    (made / "offsets").mkdir(parents=True)
    (made / "metadata").write_text('{"id":"the-id"}')
    write(made, 0, 2)
    write(made, 1, 7)
    return made


def test_a_checkpoint_may_be_a_path(tmp_path: Path) -> None:
    """Seen to fail: Spark takes one, and the first batch ended with an AttributeError."""
    (tmp_path / "metadata").write_text('{"id":"x"}')
    assert Checkpoint(tmp_path).id() == "x"


@pytest.mark.parametrize("scheme", ["", "file:", "file://"])
@pytest.mark.parametrize("name", ["a%20b", "a#b", "a?b", "a b"])
def test_a_checkpoint_is_where_spark_makes_it(tmp_path: Path, scheme: str, name: str) -> None:
    """Seen to fail: behind file: % and # were a URL's, and the first batch found no checkpoint."""
    (tmp_path / name).mkdir()
    (tmp_path / name / "metadata").write_text('{"id":"x"}')
    assert Checkpoint(f"{scheme}{tmp_path}/{name}").id() == "x"


@pytest.mark.parametrize("scheme", ["", "file:"])
def test_a_batch_of_a_checkpoint(folder: Path, scheme: str) -> None:
    checkpoint = Checkpoint(scheme + str(folder))
    first, second = checkpoint.batch(0), checkpoint.batch(1)
    assert first.ranges == (Planned(Reader(P), 2, 2, "x"),)
    assert second.ranges == (Planned(Reader(P), 2, 7, "x"),)
    assert (second.number, second.checkpoint, second.stateful) == (1, "the-id", False)
    assert (first.known, second.known) == ({}, {P: (0,)})
    assert first.plan != second.plan
    with pytest.raises(PlanError, match="offsets/2"):
        checkpoint.batch(2)
    (folder / "state").mkdir()
    assert checkpoint.batch(1).stateful
    (folder / "state").rmdir()
    assert checkpoint.batch(1).stateful, "looking again would list a large state for every batch"


def test_the_checkpoint_is_the_running_querys_own(folder: Path) -> None:
    checkpoint = Checkpoint(str(folder))
    assert checkpoint.batch(1, "the-id") == checkpoint.batch(1)
    with pytest.raises(PlanError, match=r"of another query \(its id is the-id, .* is other\)"):
        checkpoint.batch(1, "other")


def test_what_spark_has_done_is_what_its_commit_log_says(folder: Path) -> None:
    """A batch that is only planned is not done; a source of another kind says nothing of ours."""
    checkpoint = Checkpoint(str(folder))
    assert checkpoint.done() is None
    (folder / "commits").mkdir()
    assert checkpoint.done() is None
    for name in ("0", "9", "10", ".11.crc", ".12.tmp", "13.compact"):
        (folder / "commits" / name).touch()
    assert checkpoint.done() == 10, "numbers, not words"
    (folder / "offsets" / "10").write_text('v1\n{}\n-\n{"rate":7}\n{"t":{"id":"x","0":4}}\n5')
    assert checkpoint.positions(10) == [Position({P: 4}, {"t": "x"})]


def test_another_watermark_is_another_plan(folder: Path) -> None:
    """It decides which windows close, though the batch has the same offsets."""
    checkpoint = Checkpoint(str(folder))
    before = checkpoint.batch(1)
    write(folder, 1, 7, watermark=9)
    assert checkpoint.batch(1).ranges == before.ranges
    assert checkpoint.batch(1).plan != before.plan


@pytest.mark.parametrize("text", ["", "{}", "[1]"])
def test_a_checkpoint_without_an_id_is_none(folder: Path, text: str) -> None:
    (folder / "metadata").write_text(text)
    with pytest.raises(PlanError, match="not what Spark writes"):
        Checkpoint(str(folder)).batch(0)
    (folder / "metadata").unlink()
    with pytest.raises(PlanError, match="is this the query's checkpoint"):
        Checkpoint(str(folder)).batch(0)


def test_a_checkpoint_elsewhere_needs_spark() -> None:
    with pytest.raises(PlanError, match="needs the Spark session"):
        Checkpoint("s3a://bucket/checkpoint").batch(0)


def test_a_path_may_end_with_a_slash_and_a_broken_entry_is_named(folder: Path) -> None:
    folder = folder.rename(folder.with_name("checkpoint of X"))
    assert Checkpoint(f"{folder}/").batch(1) == Checkpoint(str(folder)).batch(1)
    (folder / "offsets" / "1").write_text("v9\n{}\n{}")
    with pytest.raises(PlanError, match=f"^{folder}/offsets/1: not an offset log"):
        Checkpoint(f"{folder}/").batch(1)
    (folder / "offsets" / "1").write_text("v1\n{}\n[]")
    words = r"holdfast \(.*\); the sink can't tell what its batches cover$"
    with pytest.raises(PlanError, match=words):
        Checkpoint(str(folder)).batch(1)


def test_a_checkpoint_of_this_machine_needs_no_spark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    monkeypatch.delitem(sys.modules, planned.__name__)
    found = runpy.run_module(planned.__name__, run_name="planned", alter_sys=True)
    (tmp_path / "metadata").write_text('{"id":"x"}')
    assert found["Checkpoint"](str(tmp_path)).id() == "x"


def test_what_the_log_lacked_is_part_of_the_plan() -> None:
    told = parse_offset_log(HEAD + '{"t":{"0":9,"epochs":{"0":3},"gaps":{"0":[[1,2],[3,5]]}}}', "x")
    before = [Position({P: 3})]
    assert planned_ranges(before, told) == (Planned(Reader(P), 3, 9, gaps=((1, 2), (3, 5))),)
    again = [*told, *told]
    assert [each.gaps for each in planned_ranges(told, told)] == [()]
    moved = [*told, Position({P: 10})]
    assert [each.gaps for each in planned_ranges(again, moved)] == [(), ()], "the other one stands"
