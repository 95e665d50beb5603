"""Goal: whoever looks at the group `progressGroup` sees what the table has, its last batch as well,
and nothing that becomes of the group stops the query.

Method: Spark itself over real brokers, each kind of sink, runs that end and begin again; what the
group has is read by kafka-python.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import count
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient
from pyspark.errors import StreamingQueryException
from tests.pipelines import committed
from tests.pipelines.bench import Rows, values
from tests.pipelines.conftest import Topics
from tests.pipelines.test_pipeline_progress import member

from holdfast.cluster import LocalCluster
from holdfast.cluster.processes import wait_until
from holdfast.pipelines import follow, write
from holdfast.pipelines.planned import Checkpoint, PlanError
from holdfast.pipelines.progress import commits
from holdfast.pipelines.progress.follow import Followed
from holdfast.pipelines.sink import ExactlyOnceSink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import StreamingQuery
    from tests.pipelines.bench import Bench

pytestmark = [pytest.mark.turns, pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(300)]

AVAILABLE_NOW = {"availableNow": True}
wait = partial(wait_until, timeout_s=120)
_names = count()


@pytest.fixture(autouse=True)
def _nothing_is_remembered() -> Iterator[None]:
    yield
    commits._admins.clear()
    commits._said.clear()


@pytest.fixture
def group() -> str:
    return f"lag-{os.getpid()}-{next(_names)}"


def plain(frame: DataFrame) -> DataFrame:
    return frame.selectExpr(
        "topic", "partition", "offset", "timestamp", "CAST(value AS STRING) AS text"
    )


def written(
    bench: Bench, url: str, group: str, *, trigger: Any = AVAILABLE_NOW, **options: Any
) -> StreamingQuery:
    frame = plain(bench.stream(progressGroup=group, **options))
    checkpoint = str(bench.checkpoint)
    return write(frame, url, table="kept", query="q", checkpoint=checkpoint, trigger=trigger)


def seen(bench: Bench, group: str) -> dict[int, int]:
    return committed.offsets(bench.topics.bootstrap, group)


def put_back(bench: Bench, group: str) -> None:
    """Leave what a driver leaves that died before it came to the group."""
    admin = AdminClient({"bootstrap.servers": bench.topics.bootstrap})
    places = [TopicPartition(bench.topic, partition, 1) for partition in range(2)]
    asked = [ConsumerGroupTopicPartitions(group, places)]
    admin.alter_consumer_group_offsets(asked)[group].result(30)


def last_batch_and_replay(bench: Bench, url: str, group: str) -> None:
    """The driver may die between the table's commit and the group's: the batch is run again, is not
    written again, and is told.
    """
    for partition in range(2):
        bench.topics.write(bench.topic, partition, values("a", 5 + partition))
    written(bench, url, group, maxOffsetsPerTrigger=4).awaitTermination()
    assert seen(bench, group) == {0: 5, 1: 6}
    bench.lose_last_commit()
    put_back(bench, group)
    written(bench, url, group).awaitTermination()
    assert seen(bench, group) == {0: 5, 1: 6}
    said = committed.told(bench.topics.bootstrap, group).values()
    assert all(what.metadata.startswith("query=q batch=") for what in said)


def test_the_group_has_what_the_table_has_after_the_last_batch_and_after_a_replay(
    bench: Bench, database: str, group: str
) -> None:
    last_batch_and_replay(bench, database, group)


def test_so_with_parquet(bench: Bench, group: str, tmp_path: Path) -> None:
    last_batch_and_replay(bench, f"parquet://{tmp_path}/tables", group)


def test_a_query_that_begins_again_never_takes_the_group_back(bench: Bench, group: str) -> None:
    """Its checkpoint was removed, so that it reads again what the table has long had."""
    bench.topics.write(bench.topic, 0, values("a", 6))
    found: list[dict[int, int]] = []

    def look(_batch: int, _rows: int) -> None:
        found.append(seen(bench, group))

    def run() -> None:
        sink = ExactlyOnceSink(
            bench.url, "q", Rows(), checkpoint=str(bench.checkpoint), on_commit=look
        )
        bench.run(bench.stream(progressGroup=group, maxOffsetsPerTrigger=2), sink)
        sink.close()

    run()
    assert [each.get(0) for each in found] == [None, 0, 2, 4], "the table's commit comes first"
    assert seen(bench, group) == {0: 6, 1: 0}
    found.clear()
    shutil.rmtree(bench.checkpoint)
    run()
    assert len(found) == 4
    assert {each[0] for each in found} == {6}


def test_an_option_that_comes_later_is_told_at_once(bench: Bench, group: str) -> None:
    """Nothing new is in the log. Without a batch of its own the group would stay empty until then,
    and a tool that watches it would see nothing.
    """
    bench.topics.write(bench.topic, 0, values("a", 3))
    bench.run(bench.stream())
    bench.run(bench.stream(progressGroup=group))
    assert seen(bench, group) == {0: 3, 1: 0}
    assert len(bench.rows()) == 3


def test_each_source_tells_its_own_group_on_its_own_cluster(
    bench: Bench, group: str, tmp_path: Path
) -> None:
    bench.topics.write(bench.topic, 0, values("a", 3))
    with LocalCluster.create(tmp_path / "other-cluster", brokers=1, port=0) as cluster:
        cluster.start()
        others = Topics(cluster.bootstrap_servers)
        other = others.create(1, name="elsewhere")
        others.write(other, 0, values("b", 4))
        there = {"kafka.bootstrap.servers": others.bootstrap, "subscribe": other}
        here = bench.stream(progressGroup=group)
        bench.run(here.union(bench.stream(progressGroup=f"{group}-other", **there)))
        assert len(bench.rows()) == 7
        assert seen(bench, group) == {0: 3, 1: 0}
        assert committed.offsets(others.bootstrap, f"{group}-other") == {0: 4}
        assert not committed.told(others.bootstrap, group)
        commits._admins.clear()


def test_a_group_with_members_is_refused_and_later_stops_no_query(
    bench: Bench, group: str, tmp_path: Path
) -> None:
    """At the start an error names the option. Whoever joins later is in nobody's way: the table
    goes on, and the group when it is empty again.
    """
    url = f"sqlite:///{tmp_path}/kept.db"
    topic, bootstrap = bench.topic, bench.topics.bootstrap
    with (
        member(bootstrap, group, topic, "classic"),
        pytest.raises(StreamingQueryException, match=f"progressGroup: group '{group}' has 1 mem"),
    ):
        written(bench, url, group).awaitTermination()
    query = written(bench, url, group, trigger={"processingTime": "0 seconds"})
    try:
        bench.topics.write(topic, 0, values("a", 2))
        wait(lambda: seen(bench, group) == {0: 2, 1: 0}, what="the first commit")
        with member(bootstrap, group, topic, "consumer"):
            bench.topics.write(topic, 0, values("a", 3, 2))
            query.processAllAvailable()
            assert seen(bench, group) == {0: 2, 1: 0}
        bench.topics.write(topic, 1, values("b", 1))
        wait(lambda: seen(bench, group) == {0: 5, 1: 1}, what="a commit of both batches")
        assert query.isActive
    finally:
        query.stop()


# -- other sinks -----------------------------------------------------------------------------------


def elsewhere(bench: Bench, tmp_path: Path, **options: Any) -> StreamingQuery:
    """Start a query whose sink is Spark's own."""
    writer = plain(bench.stream(maxOffsetsPerTrigger=2, **options)).writeStream.format("parquet")
    writer = writer.option("checkpointLocation", str(bench.checkpoint)).trigger(availableNow=True)
    return writer.start(f"{tmp_path}/sparks-own")


def test_of_another_sink_what_spark_has_done_is_told(
    bench: Bench, group: str, tmp_path: Path
) -> None:
    """With the last batch; and what was done before a driver died that came to no more."""
    bench.topics.write(bench.topic, 0, values("a", 5))
    follow(elsewhere(bench, tmp_path, progressGroup=group), str(bench.checkpoint))
    assert seen(bench, group) == {0: 5, 1: 0}
    put_back(bench, group)
    ended = elsewhere(bench, tmp_path, progressGroup=group)
    ended.awaitTermination()
    follow(ended, str(bench.checkpoint))
    assert seen(bench, group) == {0: 5, 1: 0}


def test_of_a_query_that_goes_on_its_batches_are_told(bench: Bench, group: str) -> None:
    writer = bench.stream(progressGroup=group).writeStream.format("noop")
    query = writer.option("checkpointLocation", str(bench.checkpoint)).start()

    def told(end: int) -> bool:
        return seen(bench, group) == {0: 0, 1: end}

    with ThreadPoolExecutor(1) as other:
        followed = other.submit(follow, query, str(bench.checkpoint))
        try:
            for end in (2, 4):
                bench.topics.write(bench.topic, 1, values("a", 2))
                wait(partial(told, end), what="a commit")
        finally:
            query.stop()
        followed.result(60)


def test_a_checkpoint_may_lie_where_only_spark_reads(
    bench: Bench, group: str, tmp_path: Path
) -> None:
    """Method: Hadoop's own file system of links, which no path of this machine names."""
    context: Any = bench.spark.sparkContext
    where = "fs.viewfs.mounttable.lag.link./linked"
    context._jsc.hadoopConfiguration().set(where, f"file://{tmp_path}")
    location = "viewfs://lag/linked/checkpoint"
    bench.topics.write(bench.topic, 0, values("a", 3))
    follow(elsewhere(bench, tmp_path, progressGroup=group), location)
    assert seen(bench, group) == {0: 3, 1: 0}
    assert Checkpoint(location, bench.spark).done() == 2
    assert Checkpoint("viewfs://lag/linked/none", bench.spark).done() is None


def test_a_checkpoint_is_listed_while_spark_renames_files_in_it(
    bench: Bench, tmp_path: Path
) -> None:
    """Hadoop's file system looks at each file it lists, and a temporary one may have gone."""
    context: Any = bench.spark.sparkContext
    where = "fs.viewfs.mounttable.renames.link./linked"
    context._jsc.hadoopConfiguration().set(where, f"file://{tmp_path}")
    commits = tmp_path / "commits"
    commits.mkdir()
    (commits / "0").write_text("v1")
    enough = Event()

    def rename() -> None:
        while not enough.wait(0.01):
            for number in range(4):
                (commits / f".{number}.tmp").write_text("v1")
            for number in range(4):
                (commits / f".{number}.tmp").rename(commits / str(number))

    with ThreadPoolExecutor(1) as other:
        renaming = other.submit(rename)
        try:
            checkpoint = Checkpoint("viewfs://renames/linked", bench.spark)
            assert all(checkpoint.done() in range(4) for _ in range(20))
        finally:
            enough.set()
        renaming.result(60)


def test_what_was_in_vain_is_told_at_the_end(bench: Bench, group: str, tmp_path: Path) -> None:
    """Somebody was in the group for a while. No batch comes that would cover it."""
    bench.topics.write(bench.topic, 0, values("a", 3))
    query = elsewhere(bench, tmp_path, progressGroup=group)
    query.awaitTermination()
    followed = Followed(query, str(bench.checkpoint))
    with member(bench.topics.bootstrap, group, bench.topic, "classic"):
        followed.look()
        assert seen(bench, group) == {}
    followed.finish()
    assert seen(bench, group) == {0: 3, 1: 0}


def test_of_a_query_that_fails_no_more_is_told_than_is_done(bench: Bench, group: str) -> None:
    bench.topics.write(bench.topic, 0, values("a", 5))

    def fail(_frame: DataFrame, number: int) -> None:
        if number == 2:
            raise ZeroDivisionError

    writer = bench.stream(progressGroup=group, maxOffsetsPerTrigger=2).writeStream
    query = writer.option("checkpointLocation", str(bench.checkpoint)).foreachBatch(fail).start()
    with pytest.raises(StreamingQueryException, match="ZeroDivisionError"):
        follow(query, str(bench.checkpoint))
    assert seen(bench, group) == {0: 2, 1: 0}


def test_who_follows_the_wrong_query_is_told(
    bench: Bench, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    query = elsewhere(bench, tmp_path)
    follow(query, str(bench.checkpoint))
    with pytest.raises(PlanError, match="is this the query's checkpoint"):
        follow(query, str(tmp_path / "none"))
    name = query.id
    assert f"no source of query {name} has the option progressGroup" in caplog.messages
    other = tmp_path / "other"
    other.mkdir()
    (other / "metadata").write_text('{"id":"another"}')
    with pytest.raises(PlanError, match=r"of another query \(its id is another"):
        follow(query, str(other))
