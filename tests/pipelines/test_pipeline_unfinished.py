"""Goal: whoever meets a checkpoint that Spark refuses for ever is told what to do, and it helps.

Method: what a driver leaves that was killed in its first moments, and what a checkpoint looks like
that has lost its entries; Spark itself refuses both in the same words.
"""

from __future__ import annotations

import shutil

import pytest
from tests.pipelines.bench import Bench, values

from holdfast.pipelines import driver

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(300)]


def refused(bench: Bench, *, removable: bool) -> str:
    from pyspark.errors import StreamingQueryException  # noqa: PLC0415 - after the session

    sink = bench.sink()
    with pytest.raises(StreamingQueryException) as said:
        bench.run(bench.stream(), sink)
    told = driver.why(str(said.value), sink, str(bench.checkpoint))
    assert told["unfinished"] is removable
    return str(told["error"])


def test_what_was_killed_while_it_was_made_may_be_removed_and_what_was_used_may_not(
    bench: Bench,
) -> None:
    bench.topics.write(bench.topic, 0, values("a", 3))
    left = bench.checkpoint / "offsets" / ".0.a1b2c3.tmp"
    left.parent.mkdir(parents=True)
    left.write_text("v1")
    told = refused(bench, removable=True)
    assert f"{bench.checkpoint}: a driver was killed while it made this checkpoint" in told
    assert "remove the folder" in told
    shutil.rmtree(bench.checkpoint)
    bench.run(bench.stream())
    assert len(bench.rows()) == 3
    for name in ("offsets", "commits"):
        for entry in (bench.checkpoint / name).iterdir():
            entry.unlink()
    left.write_text("v1")
    told = refused(bench, removable=False)
    assert "the tables have batch 1 of this checkpoint: the entries were lost" in told
    assert "remove the folder" not in told
