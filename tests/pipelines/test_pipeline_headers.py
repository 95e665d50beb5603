"""Goal: headers come as they were written, whatever is in them. Method: a real broker.

A key that is not UTF-8 can't be written through the client, so its batch is made by hand.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from pyspark.sql.pandas.types import to_arrow_schema
from tests.pipelines.conftest import Topics

from holdfast.clients.blocking_driver import Driver
from holdfast.pipelines.intake.headers import headers_of
from holdfast.pipelines.options import parse
from holdfast.pipelines.read_range import ARROW_SCHEMA_WITH_HEADERS
from holdfast.pipelines.source import SCHEMA, BatchReader, HoldfastSource, schema_of
from holdfast.wire.batch import build_batch
from holdfast.wire.batch_header import assign_max_timestamp
from holdfast.wire.batch_records import Record
from holdfast.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

BY_NAME = 12  # the last version of Produce that names topics
GOOD = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "a"}


pytestmark = pytest.mark.usefixtures("no_consumer_outlives_the_cluster")


# What our own client does not have, so that the range is read over librdkafka.
LIBRDKAFKA = {"kafka.socket.keepalive.enable": "true"}


def read(
    topics: Topics, topic: str, count: int, **more: str
) -> list[list[tuple[str, bytes | None]] | None]:
    options = {
        "kafka.bootstrap.servers": topics.bootstrap,
        "subscribe": topic,
        "includeHeaders": "true",
        **more,
    }
    reader = BatchReader(parse(options, "batch"))
    (task,) = reader.partitions()
    table = pa.Table.from_batches(list(reader.read(task)), ARROW_SCHEMA_WITH_HEADERS)
    assert table.num_rows == count
    reader._planner.close()
    return [
        None if found is None else [(one["key"], one["value"]) for one in found]
        for found in table.column("headers").to_pylist()
    ]


@pytest.mark.slow
def test_headers_keep_their_order_repetitions_and_nulls(topics: Topics) -> None:
    topic = topics.create(1)
    producer = Producer({"bootstrap.servers": topics.bootstrap, "enable.idempotence": True})
    written = [
        [("b", b"1"), ("a", None), ("b", b""), ("", b"2"), ("b", b"\xff")],
        None,
        [],
        [("\u00e4", b"3")],
    ]
    for headers in written:
        producer.produce(topic, b"v", partition=0, headers=headers)
    assert producer.flush(60) == 0
    assert read(topics, topic, 4) == [written[0], None, None, written[3]], (
        "none is null, as in Java"
    )


@pytest.mark.slow
def test_a_key_that_is_not_text_ends_no_query(topics: Topics) -> None:
    topic = topics.create(1)
    topics.settle(topic, 1)
    now = time.time_ns() // 1_000_000  # what is older than a week is deleted at once
    records = [
        Record(b"k", b"v", now, (("x", b"1"), ("AB", b"2"), ("x", None))),
        Record(b"k", b"v", now, (("AB", b"1"), ("x", b"2"), ("ACD", None))),
        Record(b"k", b"v", now, (("x", b"1"),)),
    ]
    spoilt = spoil(bytes(build_batch(records)), now)
    part = PartitionProduceData(index=0, records=spoilt)
    request = ProduceRequest(
        acks=-1, timeout_ms=30_000, topic_data=[TopicProduceData(name=topic, partition_data=[part])]
    )
    with Driver(topics.bootstrap) as driver:
        answer = driver.send(request, node=driver.leader(topic, 0), version=BY_NAME)
    assert answer.responses[0].partition_responses[0].error_code == 0
    # A worker has read many headers before: the interpreter calls what it has called often in
    # another way, in which nobody sees the client's error.
    many = topics.create(1)
    part = PartitionProduceData(
        index=0, records=bytes(build_batch([Record(b"k", b"v", now, (("x", b"1"),))] * 200))
    )
    topics.settle(many, 1)
    request.topic_data = [TopicProduceData(name=many, partition_data=[part])]
    with Driver(topics.bootstrap) as driver:
        driver.send(request, node=driver.leader(many, 0), version=BY_NAME)
    assert read(topics, many, 200, **LIBRDKAFKA) == [[("x", b"1")]] * 200
    # librdkafka tells the bytes of the first one only.
    for more, second in (({}, "\ufffdCD"), (LIBRDKAFKA, "\ufffd")):
        assert read(topics, topic, 3, **more) == [
            [("x", b"1"), ("\ufffdB", b"2"), ("x", None)],
            [("\ufffdB", b"1"), ("x", b"2"), (second, None)],
            [("x", b"1")],
        ]


def spoil(batch: bytes, newest: int) -> bytes:
    """Return the batch with bytes in two headers' names that no text has, and its CRC right."""
    spoilt = bytearray(batch.replace(b"AB", b"\xffB").replace(b"ACD", b"\xfeCD"))
    assign_max_timestamp(spoilt, newest)
    return bytes(spoilt)


class Odd:
    """A message whose headers can't be had for another reason."""

    def __init__(self, fail: Callable[[], None]) -> None:
        self.headers = fail


def test_another_error_is_not_taken_for_a_key() -> None:
    def fail() -> None:
        raise SystemError("out of luck")

    with pytest.raises(SystemError, match="out of luck"):
        headers_of(Odd(fail))


def test_the_eighth_column_is_spark_s() -> None:
    """It compares the schemas of the first batch exactly, names inside of the column included."""
    options = parse({**GOOD, "includeHeaders": "true"}, None)
    expected = to_arrow_schema(schema_of(options), timezone="UTC")
    assert expected.field("headers").type == ARROW_SCHEMA_WITH_HEADERS.field("headers").type
    assert str(expected.field("headers").type) == str(
        ARROW_SCHEMA_WITH_HEADERS.field("headers").type
    )
    source = HoldfastSource({**GOOD, "includeHeaders": "true"})
    assert source.schema().simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,"
        "timestamp:timestamp,timestampType:int,headers:array<struct<key:string,value:binary>>>"
    )
    assert HoldfastSource(GOOD).schema() == SCHEMA
    source.reader(source.schema())
    with pytest.raises(ValueError, match="schema: the source has columns of its own"):
        source.streamReader(SCHEMA)
