"""Goal: every option of Spark's own Kafka connector that has a counterpart in ours means the same.

Method: both connectors in one session, given the same options; rows, columns, tasks and offsets of
batches are compared, on a broker of ours and on Apache Kafka. `make apache` brings the connector.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.apache.connectors import (
    BEGIN_MS,
    JVM,
    OURS,
    Log,
    Options,
    Pair,
    Stream,
    changes,
    fresh_name,
    jars,
)

from holdfast.cluster import LocalCluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.apache,
    pytest.mark.slow,
    pytest.mark.spark,
    pytest.mark.timeout(1800),
]


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    found = jars()
    if not found:
        pytest.skip("there is no JVM connector: `make apache` brings it by Maven")
    from holdfast.pipelines.session import local_session  # noqa: PLC0415 - only who asks pays

    more = {
        "spark.jars": ",".join(found),
        "spark.sql.streaming.noDataProgressEventInterval": "0",
        "spark.sql.streaming.numRecentProgressUpdates": "5",
    }
    session = local_session("both connectors", extra=more)
    yield session
    session.stop()


@pytest.fixture(scope="module", params=["holdfast", "apache"])
def pair(
    request: pytest.FixtureRequest,
    spark: SparkSession,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Pair]:
    """Both connectors, and one broker of either kind."""
    if request.param == "apache":
        pair = Pair(spark, Log(request.getfixturevalue("apache_kafka"), fresh_name("both")))
        pair.log.fill()
        yield pair
        pair.log.close()
        return
    with LocalCluster.create(tmp_path_factory.mktemp("both"), brokers=1, port=0) as cluster:
        cluster.start()
        pair = Pair(spark, Log(cluster.bootstrap_servers, fresh_name("both")))
        pair.log.fill()
        yield pair
        pair.log.close()


Case = Callable[[Log], Options]


def offsets(log: Log, **topics: Any) -> str:
    """Return an option's JSON of these topics' partitions, in the order of their numbers."""
    return json.dumps(
        {
            log.topic(suffix): {str(number): value for number, value in enumerate(values)}
            for suffix, values in topics.items()
        }
    )


def ms(seconds: int) -> str:
    return str(BEGIN_MS + 1000 * seconds)


def of(suffix: str, **options: str) -> Case:
    return lambda log: {"subscribe": log.topic(suffix), **options}


SAME: dict[str, Case] = {
    "subscribe": of("a"),
    "subscribe two, one of them empty": lambda log: {
        "subscribe": f"{log.topic('b')},{log.topic('empty')}"
    },
    "subscribePattern": lambda log: {"subscribePattern": f"{log.name}-[ab]"},
    "subscribePattern is searched for in names": lambda log: {
        "subscribePattern": f"{log.name[3:]}-[a]"
    },
    "subscribePattern of nobody": lambda log: {"subscribePattern": f"^{log.name[3:]}"},
    "assign": lambda log: {"assign": json.dumps({log.topic("a"): [0, 2], log.topic("b"): [0]})},
    "offsets of each partition, earliest and latest among them": lambda log: {
        "subscribe": log.topic("a"),
        "startingOffsets": offsets(log, a=[3, -2, 1]),
        "endingOffsets": offsets(log, a=[7, 5, -1]),
    },
    "startingTimestamp, endingTimestamp": of("a", startingTimestamp=ms(2), endingTimestamp=ms(4)),
    "an ending time after all records": of("a", endingTimestamp=ms(100)),
    "by time for each partition": lambda log: {
        "subscribe": log.topic("a"),
        "startingOffsetsByTimestamp": offsets(log, a=[BEGIN_MS, BEGIN_MS + 1500, BEGIN_MS]),
        "endingOffsetsByTimestamp": offsets(log, a=[BEGIN_MS + 5000, BEGIN_MS + 9000, BEGIN_MS]),
    },
    "startingOffsetsByTimestampStrategy": of(
        "a", startingTimestamp=ms(6), startingOffsetsByTimestampStrategy="latest"
    ),
    "a timestamp counts before times of partitions, and these before offsets": lambda log: {
        "subscribe": log.topic("a"),
        "startingTimestamp": ms(1),
        "startingOffsetsByTimestamp": offsets(log, a=[BEGIN_MS, BEGIN_MS, BEGIN_MS]),
        "startingOffsets": "earliest",
        "endingOffsetsByTimestamp": offsets(log, a=[BEGIN_MS + 3000] * 3),
        "endingOffsets": "latest",
    },
    "includeHeaders": of("a", includeHeaders="true"),
    "options of streams have no effect": of(
        "a", maxOffsetsPerTrigger="2", minOffsetsPerTrigger="2", maxTriggerDelay="1s"
    ),
    "names of connections": of("b", groupIdPrefix="mine", **{"kafka.client.id": "a"}),
    "kafka.group.id": of("b", **{"kafka.group.id": "mine"}),
    "patience": of(
        "b",
        **{
            "kafkaConsumer.pollTimeoutMs": "30000",
            "fetchOffset.numRetries": "5",
            "fetchOffset.retryIntervalMs": "50",
        },
    ),
    "the Kafka client's own": of(
        "a",
        **{
            "kafka.isolation.level": "read_committed",
            "kafka.client.rack": "r1",
            "kafka.fetch.max.wait.ms": "50",
            "kafka.fetch.min.bytes": "1",
            "kafka.fetch.max.bytes": "100000",
            "kafka.max.partition.fetch.bytes": "20000",
            "kafka.receive.buffer.bytes": "65536",
            "kafka.request.timeout.ms": "20000",
            "kafka.security.protocol": "PLAINTEXT",
        },
    ),
    "a lost beginning is passed over": of(
        "cut", startingOffsets="earliest", failOnDataLoss="false"
    ),
    "names in other letters": of("b", STARTINGOFFSETS="earliest", IncludeHeaders="TRUE"),
}

SAME_TASKS: dict[str, Case] = {
    "minPartitions": of("a", minPartitions="7"),
    "minPartitions of fewer": of("a", minPartitions="2"),
    "both": of("a", maxRecordsPerPartition="4", minPartitions="6"),
    "neither": of("a"),
}

REFUSED: dict[str, Case] = {
    "no topic": lambda _log: {},
    "two ways to name topics": lambda log: {"subscribe": log.topic("a"), "subscribePattern": "b"},
    "a least that is more than the most": of(
        "a", minOffsetsPerTrigger="3", maxOffsetsPerTrigger="2"
    ),
    "a batch from the end": of("a", startingOffsets="latest"),
    "a batch to the beginning": of("a", endingOffsets="earliest"),
    "an offset without a meaning": of("a", startingOffsets="soon"),
    "offsets of some partitions": lambda log: {
        "subscribe": log.topic("a"),
        "startingOffsets": offsets(log, a=[1]),
    },
    "offsets of another topic": lambda log: {
        "subscribe": log.topic("a"),
        "startingOffsets": offsets(log, b=[1]),
    },
    "no record is that late": of("a", startingTimestamp=ms(100)),
    "a time that is none": of("a", startingTimestamp="yesterday"),
    "a strategy that is none": of(
        "a", startingTimestamp=ms(1), startingOffsetsByTimestampStrategy="guess"
    ),
    "assign without JSON": lambda log: {"assign": log.topic("a")},
    "minPartitions of none": of("a", minPartitions="0"),
    "commits": of("a", **{"kafka.enable.auto.commit": "true"}),
    "resets": of("a", **{"kafka.auto.offset.reset": "latest"}),
    "a deserializer": of("a", **{"kafka.value.deserializer": "a.b.C"}),
    "an offset that is gone": lambda log: {
        "subscribe": log.topic("cut"),
        "startingOffsets": offsets(log, cut=[1]),
    },
}


@pytest.mark.parametrize("case", SAME)
def test_both_read_the_same(pair: Pair, case: str) -> None:
    options = SAME[case](pair.log)
    columns, rows = pair.rows(JVM, options)
    assert pair.rows(OURS, options) == (columns, rows)
    assert bool(rows) == ("nobody" not in case)


@pytest.mark.parametrize("case", SAME_TASKS)
def test_both_cut_ranges_into_the_same_tasks(pair: Pair, case: str) -> None:
    options = SAME_TASKS[case](pair.log)
    assert pair.tasks(OURS, options) == pair.tasks(JVM, options)


def test_a_bound_on_tasks_holds_in_batch_queries_too(pair: Pair) -> None:
    """Theirs looks at it there only beside `minPartitions`, above the number of partitions."""
    options = of("a", maxRecordsPerPartition="3")(pair.log)
    sizes = {name: sorted(map(len, pair.tasks(name, options))) for name in (JVM, OURS)}
    assert sizes == {JVM: [3, 5, 8], OURS: [2, 2, 3, 3, 3, 3]}


@pytest.mark.parametrize("name", ["topic", "startingOffset"])
def test_what_has_no_effect_is_refused_by_ours_alone(pair: Pair, name: str) -> None:
    options = of("b", **{name: "t"})(pair.log)
    assert len(pair.rows(JVM, options)[1]) == 4
    with pytest.raises(Exception, match=f"OptionError: {name.lower()}: "):
        pair.rows(OURS, options)


@pytest.mark.parametrize("case", REFUSED)
def test_both_refuse(pair: Pair, case: str) -> None:
    options = REFUSED[case](pair.log)
    for connector in (JVM, OURS):
        with pytest.raises(Exception, match=r"."):
            pair.rows(connector, options)


def both(pair: Pair, folder: Path, options: Options) -> tuple[Stream, Stream]:
    return tuple(Stream(pair, name, options, folder / name) for name in (JVM, OURS))  # type: ignore[return-value]


STREAMED: dict[str, Case] = {
    "from a time on": of("a", startingTimestamp=ms(2)),
    "from a time on for each partition": lambda log: {
        "subscribe": log.topic("a"),
        "startingOffsetsByTimestamp": offsets(log, a=[BEGIN_MS + 6500, BEGIN_MS + 9000, BEGIN_MS]),
        "startingOffsetsByTimestampStrategy": "latest",
    },
    "from offsets on": lambda log: {
        "subscribe": log.topic("a"),
        "startingOffsets": offsets(log, a=[2, -1, -2]),
        "includeHeaders": "true",
    },
    "assigned partitions in small tasks": lambda log: {
        "assign": json.dumps({log.topic("a"): [0, 1]}),
        "startingOffsets": "earliest",
        "maxRecordsPerPartition": "2",
        "minPartitions": "3",
    },
    "a lost beginning is passed over": lambda log: {
        "subscribe": log.topic("cut"),
        "startingOffsets": offsets(log, cut=[1]),
        "failOnDataLoss": "false",
    },
}


@pytest.mark.parametrize("case", STREAMED)
def test_both_stream_the_same(pair: Pair, case: str, tmp_path: Path) -> None:
    theirs, ours = both(pair, tmp_path, STREAMED[case](pair.log))
    for stream in (theirs, ours):
        stream.read_all()
    assert sorted(ours.rows) == sorted(theirs.rows)
    assert ours.rows
    assert ours.ends()[-1] == theirs.ends()[-1]


@pytest.mark.parametrize("connector", [JVM, OURS])
def test_what_was_lost_ends_a_stream(pair: Pair, connector: str, tmp_path: Path) -> None:
    gone = {"subscribe": pair.log.topic("cut"), "startingOffsets": offsets(pair.log, cut=[1])}
    with pytest.raises(Exception, match=r"(?i)data.?loss|lost|no longer|offset"):
        Stream(pair, connector, gone, tmp_path / "checkpoint").read_all()


@pytest.mark.parametrize("level", ["read_committed", "read_uncommitted"])
def test_aborted_records_are_read_where_that_is_asked_for(pair: Pair, level: str) -> None:
    if not pair.log.transact(level):
        pytest.skip("this broker has no transactions")
    options = of(level, **{"kafka.isolation.level": level})(pair.log)
    columns, rows = pair.rows(JVM, options)
    assert pair.rows(OURS, options) == (columns, rows)
    assert [row.value for row in rows] == (
        [b"kept"] if level == "read_committed" else [b"aborted", b"kept"]
    )


def test_a_limit_cuts_one_partition_in_the_same_places(pair: Pair, tmp_path: Path) -> None:
    """And a query that is started again goes on where it was."""
    pair.log.create("limited", 1)
    pair.log.write("limited", 0, 7)
    topic = pair.log.topic("limited")
    given = {"subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "3"}
    streams = both(pair, tmp_path, given)
    for stream in streams:
        stream.read_all()
    pair.log.write("limited", 0, 4, first=7)
    for stream in streams:
        stream.read_all()
    theirs, ours = streams
    assert changes(ours.ends()) == changes(theirs.ends())
    assert [end[topic]["0"] for end in changes(ours.ends())] == [3, 6, 7, 10, 11]
    assert ours.rows == theirs.rows


def test_a_limit_over_partitions_is_kept_exactly_by_ours(pair: Pair, tmp_path: Path) -> None:
    """Both come to the same rows; of what rounding leaves over ours makes use, theirs does not."""
    given = {
        "subscribe": pair.log.topic("a"),
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "6",
    }
    theirs, ours = both(pair, tmp_path, given)
    for stream in (theirs, ours):
        stream.read_all()
    assert sorted(ours.rows, key=lambda row: row[:3]) == sorted(
        theirs.rows, key=lambda row: row[:3]
    )
    assert [sum(end[pair.log.topic("a")].values()) for end in changes(ours.ends())] == [6, 12, 16]
    assert sum(theirs.ends()[0][pair.log.topic("a")].values()) == 5


def test_what_is_too_little_waits_for_more(pair: Pair, tmp_path: Path) -> None:
    pair.log.create("least", 1)
    topic = pair.log.topic("least")
    pair.log.write("least", 0, 4)
    given = {
        "subscribe": topic,
        "startingOffsets": "earliest",
        "minOffsetsPerTrigger": "10",
        "maxTriggerDelay": "1h",
    }
    streams = both(pair, tmp_path, given)
    try:
        for stream in streams:
            stream.start({"processingTime": "0 seconds"})
            stream.come_to({topic: {"0": 4}})
        pair.log.write("least", 0, 3, first=4)
        for stream in streams:
            stream.see({topic: {"0": 7}})
        pair.log.write("least", 0, 7, first=7)
        for stream in streams:
            stream.come_to({topic: {"0": 14}})
    finally:
        for stream in streams:
            if stream.query is not None:
                stream.query.stop()
    theirs, ours = streams
    assert [end[topic]["0"] for end in changes(theirs.ends())] == [4, 14]
    assert changes(ours.ends()) == changes(theirs.ends())
    assert ours.rows == theirs.rows


def test_from_the_end_on_with_partitions_and_topics_that_come_later(
    pair: Pair, tmp_path: Path
) -> None:
    """What is new in a running query is read from its beginning; what was there before is not."""
    pair.log.create("later-1", 1)
    pair.log.write("later-1", 0, 3)
    one, two = pair.log.topic("later-1"), pair.log.topic("later-2")
    given = {"subscribePattern": f"{pair.log.name}-later-.", "kafka.metadata.max.age.ms": "500"}
    streams = both(pair, tmp_path, given)
    try:
        for stream in streams:
            stream.start({"processingTime": "0 seconds"})
            stream.see({one: {"0": 3}})
        pair.log.write("later-1", 0, 2, first=3)
        pair.log.grow("later-1", 2)
        pair.log.write("later-1", 1, 2)
        pair.log.create("later-2", 1)
        pair.log.write("later-2", 0, 1)
        for stream in streams:
            stream.come_to({one: {"0": 5, "1": 2}, two: {"0": 1}})
    finally:
        for stream in streams:
            if stream.query is not None:
                stream.query.stop()
    theirs, ours = ([row[:3] for row in sorted(stream.rows)] for stream in streams)
    assert ours == theirs
    assert ours == [(one, 0, 3), (one, 0, 4), (one, 1, 0), (one, 1, 1), (two, 0, 0)]
