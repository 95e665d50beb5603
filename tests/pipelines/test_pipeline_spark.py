"""Goal: Spark reads exactly what the log holds, and the sink writes exactly what was planned.

Method: one session, small topics on a real cluster; queries run with Trigger.AvailableNow, so each
ends by itself when it has read what was there.
"""

from __future__ import annotations

import shutil
import time
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from tests.pipelines.bench import Bench, values

from holdfast.pipelines.fence import FencedError
from holdfast.pipelines.offsets import Partition, position_from_json, position_from_text
from holdfast.pipelines.planned import PlanError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(300)]


def test_a_batch_reads_between_two_offsets(bench: Bench) -> None:
    assert bench.batch().count() == 0
    bench.topics.write(bench.topic, 0, values("a", 10))
    bench.topics.write(bench.topic, 1, values("b", 10))
    frame = bench.batch()
    assert frame.columns == [
        "key", "value", "topic", "partition", "offset", "timestamp", "timestampType",
    ]  # fmt: skip
    assert frame.count() == 20
    start = f'{{"{bench.topic}":{{"0":4,"1":-2}}}}'
    end = f'{{"{bench.topic}":{{"0":6,"1":1}}}}'
    part = bench.batch(startingOffsets=start, endingOffsets=end)
    assert sorted(bytes(row.value) for row in part.collect()) == [b"a4", b"a5", b"b0"]
    assigned = bench.options(assign=f'{{"{bench.topic}":[1]}}')
    del assigned["subscribe"]
    only = bench.spark.read.format("holdfast").options(**assigned).load()
    assert {row.partition for row in only.collect()} == {1}


def test_what_is_wrong_with_a_query_is_said(bench: Bench) -> None:
    from pyspark.errors import AnalysisException  # noqa: PLC0415 - after the session

    # Nothing has to be asked for: loading is enough.
    with pytest.raises(AnalysisException, match="OptionError: foo: unknown option"):
        bench.batch(foo="bar")
    nearest = "kafka.fetch.mn.bytes: neither .* the nearest that is known is kafka.fetch.min.bytes"
    with pytest.raises(AnalysisException, match=nearest):
        bench.batch(**{"kafka.fetch.mn.bytes": "1"})
    with pytest.raises(
        AnalysisException, match=r"kafka\.sasl\.password: a secret is not"
    ) as refused:
        bench.batch(**{"kafka.sasl.password": "hunter2"})
    assert "hunter2" not in str(refused.value)
    with pytest.raises(AnalysisException, match="'nothing-there' does not exist"):
        bench.batch(subscribe="nothing-there").count()
    with pytest.raises(AnalysisException, match="name every partition to be read"):
        bench.batch(startingOffsets=f'{{"{bench.topic}":{{"0":0}}}}').count()


def test_a_batch_begins_at_a_time_has_headers_and_is_cut_into_tasks(bench: Bench) -> None:
    begin = time.time_ns() // 1_000_000 - 60_000
    stamps = [begin + n for n in range(10)]
    bench.topics.write(bench.topic, 0, values("a", 10), timestamps_ms=stamps)
    frame = bench.batch(
        startingTimestamp=begin + 2,
        endingTimestamp=begin + 9,
        startingOffsetsByTimestampStrategy="latest",  # partition 1 is empty
        includeHeaders="true",
        maxRecordsPerPartition=3,
    )
    assert frame.columns[-1] == "headers"
    assert frame.rdd.getNumPartitions() == 3
    rows = frame.select("value", "headers").collect()
    assert sorted(bytes(row.value) for row in rows) == values("a", 7, 2)
    assert {row.headers for row in rows} == {None}
    producer = Producer({"bootstrap.servers": bench.topics.bootstrap})
    producer.produce(bench.topic, b"c", partition=1, headers=[("x", b"1"), ("x", None)])
    assert producer.flush(60) == 0
    (row,) = bench.batch(includeHeaders="true").where("partition = 1").collect()
    assert [(one.key, one.value and bytes(one.value)) for one in row.headers] == [
        ("x", b"1"), ("x", None),
    ]  # fmt: skip


def test_a_stream_takes_topics_that_come_to_match(bench: Bench) -> None:
    """A second life of the query, so the offsets of the first have what it had."""
    first = f"{bench.topic}-of-a-pattern"
    bench.topics.create(1, name=first)
    bench.topics.settle(first, 1)
    bench.topics.write(first, 0, values("a", 3))
    wanted = bench.options(subscribePattern=f"{bench.topic}-of-.*", startingOffsets="earliest")
    del wanted["subscribe"]
    stream = bench.spark.readStream.format("holdfast").options(**wanted)
    bench.run(stream.load())
    second = bench.topics.create(1, name=f"{bench.topic}-of-others")
    bench.topics.settle(second, 1)
    bench.topics.write(second, 0, values("b", 2))
    bench.run(stream.load())
    assert sorted(value for _, _, value in bench.rows()) == ["a0", "a1", "a2", "b0", "b1"]


def test_a_stream_waits_until_enough_is_there(bench: Bench) -> None:
    sizes: list[int] = []
    frame = bench.stream(minOffsetsPerTrigger=5, maxTriggerDelay="1d")
    bench.topics.write(bench.topic, 0, values("a", 2))
    query = (
        frame.writeStream.foreachBatch(lambda rows, _: sizes.append(rows.count()))
        .option("checkpointLocation", str(bench.checkpoint))
        .start()
    )
    try:
        query.processAllAvailable()
        assert sum(sizes) == 2, "the first waits for nothing"
        bench.topics.write(bench.topic, 0, values("a", 4, 2))
        query.processAllAvailable()
        assert sum(sizes) == 2
        bench.topics.write(bench.topic, 1, values("b", 1))
        query.processAllAvailable()
        assert [size for size in sizes if size] == [2, 5]
    finally:
        query.stop()


def test_filters_do_not_hide_where_a_batch_ends(bench: Bench) -> None:
    """Every row of the last batches is filtered out, and still the table says that they are done.

    Then the checkpoint is lost: the whole log is planned again, in other batches, and no row
    comes twice.
    """
    bench.topics.write(bench.topic, 0, values("a", 100))
    bench.topics.write(bench.topic, 1, values("b", 100))
    every_third = "offset < 50 AND offset % 3 = 0"
    query = bench.run(bench.stream(maxOffsetsPerTrigger=30).where(every_third))
    wanted = [(p, n, f"{'ab'[p]}{n}") for p in (0, 1) for n in range(0, 50, 3)]
    assert bench.rows() == wanted
    assert bench.next_offsets() == {0: 100, 1: 100}
    sizes = [progress["numInputRows"] for progress in query.recentProgress]
    assert sum(sizes) == 200
    assert max(sizes) == 30, "maxOffsetsPerTrigger is kept, and used"

    shutil.rmtree(bench.checkpoint)
    bench.topics.write(bench.topic, 0, values("a", 20, 100))
    bench.run(bench.stream(maxOffsetsPerTrigger=70).where("offset < 50 AND offset % 3 = 0"))
    assert bench.rows() == wanted
    assert bench.next_offsets() == {0: 120, 1: 100}


def test_a_batch_that_is_half_there_is_completed(bench: Bench) -> None:
    """The checkpoint is lost and batches are cut elsewhere: only what is missing is written."""
    bench.topics.write(bench.topic, 0, values("a", 10))
    bench.run(bench.stream())
    shutil.rmtree(bench.checkpoint)
    bench.topics.write(bench.topic, 0, values("a", 5, 10))
    bench.topics.write(bench.topic, 1, values("b", 5))
    bench.run(bench.stream())
    expected = [(0, n, f"a{n}") for n in range(15)] + [(1, n, f"b{n}") for n in range(5)]
    assert bench.rows() == expected

    shutil.rmtree(bench.checkpoint)
    bench.topics.write(bench.topic, 0, values("a", 1, 15))
    from pyspark.errors import StreamingQueryException  # noqa: PLC0415 - after the session

    sink = bench.sink()
    with pytest.raises(StreamingQueryException):
        bench.run(bench.stream().select("value"), sink)
    assert isinstance(sink.failure, PlanError)
    assert "keep topic, partition and offset" in str(sink.failure)
    assert bench.rows() == expected


def test_a_query_that_would_leave_a_gap_is_refused(bench: Bench) -> None:
    """The checkpoint is lost, and the query starts at latest: rows in between would be skipped."""
    from pyspark.errors import StreamingQueryException  # noqa: PLC0415 - after the session

    bench.topics.write(bench.topic, 0, values("a", 10))
    bench.run(bench.stream())
    shutil.rmtree(bench.checkpoint)
    bench.topics.write(bench.topic, 0, values("a", 5, 10))
    sink = bench.sink()
    with pytest.raises(StreamingQueryException):
        bench.run(bench.stream(startingOffsets="latest"), sink)
    assert isinstance(sink.failure, PlanError)
    assert "ends at offset 10" in str(sink.failure)


def test_a_new_partition_is_read_from_its_beginning_by_each_source(bench: Bench) -> None:
    """A union reads the topic twice; the slower part, and a lost checkpoint, change nothing."""

    def frame() -> DataFrame:
        return bench.stream().union(bench.stream(maxOffsetsPerTrigger=2))

    bench.topics.write(bench.topic, 0, values("a", 3))
    bench.run(frame())
    bench.topics.grow(bench.topic, 3)
    bench.topics.write(bench.topic, 2, values("c", 4))
    bench.run(frame())
    rows = [(0, n, f"a{n}") for n in range(3)] + [(2, n, f"c{n}") for n in range(4)]
    assert bench.rows() == sorted(rows * 2)
    shutil.rmtree(bench.checkpoint)
    bench.run(bench.stream().union(bench.stream()))
    assert bench.rows() == sorted(rows * 2)


def test_a_replaced_sink_is_fenced_in_spark_too(bench: Bench) -> None:
    from pyspark.errors import StreamingQueryException  # noqa: PLC0415 - after the session

    bench.topics.write(bench.topic, 0, values("a", 3))
    old = bench.sink()
    young = bench.sink()
    with pytest.raises(StreamingQueryException):
        bench.run(bench.stream(), old)
    assert isinstance(old.failure, FencedError)
    bench.run(bench.stream(), young)
    assert len(bench.rows()) == 3


def test_loss_stops_the_query_unless_told_otherwise(bench: Bench) -> None:
    from pyspark.errors import StreamingQueryException  # noqa: PLC0415 - after the session

    bench.topic = bench.topics.create(1, segment_ms="1", retention_ms="1")
    bench.run(bench.stream())  # pins offset 0
    begin = bench.topics.age_out(bench.topic, 0, values("old", 5))
    with pytest.raises(StreamingQueryException, match="failOnDataLoss"):
        bench.run(bench.stream())
    bench.run(bench.stream(failOnDataLoss="false"))
    assert bench.next_offsets()[0] >= begin
    assert all(offset >= begin for _, offset, _ in bench.rows())


def test_progress_shows_how_far_behind_a_query_is(bench: Bench) -> None:
    bench.topics.write(bench.topic, 0, values("a", 10))
    query = bench.run(bench.stream(maxOffsetsPerTrigger=4))
    sources = [p["sources"][0] for p in query.recentProgress if p["numInputRows"]]
    here = Partition(bench.topic, 0)
    lags = [
        offset_of(source["latestOffset"], here) - offset_of(source["endOffset"], here)
        for source in sources
    ]
    assert lags == [6, 2, 0]


def offset_of(told: Any, partition: Partition) -> int:
    """Spark hands offsets on as text or as values."""
    position = position_from_text(told) if isinstance(told, str) else position_from_json(told)
    return position.offsets[partition]
