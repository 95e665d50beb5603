"""Requests that parse and ask for what can't be: the proper code, nothing changed.

And the edges of fetching that clients depend on. Method throughout: our own driver, whose messages
are held against two other codecs elsewhere.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import crc32c
import pytest

from holdfast.clients.blocking_driver import AnswerLostError, Driver
from holdfast.wire.batch_header import batches
from holdfast.wire.batch_records import Record, build_batch
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages import create_topics, fetch, list_offsets
from holdfast.wire.messages import produce as produce_api
from holdfast.wire.structs import ConfigValue

if TYPE_CHECKING:
    from tests.clients_conformance.conftest import Target

NewTopicName = Callable[[], str]
PRODUCE_VERSION = 9  # the last before topic ids: partitions are named
FETCH_VERSION = 12
LATEST = -1
BATCH_CRC_AT = 17
BOUND_MS = 20_000


@pytest.fixture
def driver(target: Target) -> Iterator[Driver]:
    with Driver(target.bootstrap) as made:
        yield made


def create(driver: Driver, name: str, **fields: Any) -> Any:
    """Send one CreateTopics and return its result."""
    settings = {"num_partitions": 1, "replication_factor": -1} | fields
    topic = create_topics.CreatableTopic(name=name, **settings)
    request = create_topics.CreateTopicsRequest(topics=[topic], timeout_ms=BOUND_MS)
    (result,) = driver.send(request, node="controller").topics
    return result


@pytest.fixture
def topic(target: Target, driver: Driver, new_topic: NewTopicName) -> str:
    """Make a topic with one partition that has a leader everywhere."""
    name = new_topic()
    assert create(driver, name).error_code == ErrorCode.NONE
    wait_for_leader(driver, target, name)
    return name


def wait_for_leader(driver: Driver, target: Target, name: str) -> None:
    """Wait until the leader itself serves the partition."""
    for _ in range(2000):
        described = driver.metadata([name]).topics[0]
        if described.partitions and described.partitions[0].leader_id >= 0:
            found = list_latest(driver, name)
            if found.error_code == ErrorCode.NONE:
                return
    pytest.fail(f"{name} got no leader in {target.bootstrap}")


def list_latest(driver: Driver, name: str) -> Any:
    request = list_offsets.ListOffsetsRequest(
        replica_id=-1,
        topics=[
            list_offsets.ListOffsetsTopic(
                name=name,
                partitions=[list_offsets.ListOffsetsPartition(partition_index=0, timestamp=LATEST)],
            )
        ],
    )
    return driver.send(request, node=driver.leader(name, 0)).topics[0].partitions[0]


def produce(
    driver: Driver, name: str, records: bytes | None, *, acks: int = -1, partition: int = 0
) -> Any:
    """Send these bytes as the records of one partition and return its response."""
    request = produce_api.ProduceRequest(
        acks=acks,
        timeout_ms=BOUND_MS,
        topic_data=[
            produce_api.TopicProduceData(
                name=name,
                partition_data=[produce_api.PartitionProduceData(index=partition, records=records)],
            )
        ],
    )
    leader = driver.leader(name, 0) if partition == 0 and name else None
    response = driver.send(request, node=leader, version=PRODUCE_VERSION)
    return response.responses[0].partition_responses[0]


def batch(*values: bytes, base_offset: int = 0) -> bytes:
    return bytes(build_batch([Record(value=value) for value in values], base_offset=base_offset))


def damaged() -> bytes:
    data = bytearray(batch(b"a"))
    data[-1] ^= 1
    return bytes(data)


def changed(position: int, layout: str, value: int) -> bytes:
    """Return a batch with one field of its header changed, under a CRC that is right."""
    data = bytearray(batch(b"a"))
    struct.pack_into(layout, data, position, value)
    struct.pack_into(">I", data, BATCH_CRC_AT, crc32c.crc32c(bytes(data[BATCH_CRC_AT + 4 :])))
    return bytes(data)


REFUSED: dict[str, tuple[bytes | None, ErrorCode]] = {
    "wrong CRC": (damaged(), ErrorCode.CORRUPT_MESSAGE),
    "two batches": (batch(b"a") + batch(b"b"), ErrorCode.INVALID_RECORD),
    "no bytes": (b"", ErrorCode.INVALID_RECORD),
    "null": (None, ErrorCode.INVALID_RECORD),
    "base offset": (batch(b"a", base_offset=5), ErrorCode.INVALID_RECORD),
    "cut short": (batch(b"a")[:-5], ErrorCode.INVALID_RECORD),
    "longer than the frame": (changed(8, ">i", 100_000), ErrorCode.INVALID_RECORD),
    "too short a length": (changed(8, ">i", 10), ErrorCode.CORRUPT_MESSAGE),
    "old magic": (changed(16, ">b", 1), ErrorCode.INVALID_RECORD),
    "unknown magic": (changed(16, ">b", 9), ErrorCode.CORRUPT_MESSAGE),
    "control batch": (changed(21, ">h", 0x20), ErrorCode.INVALID_RECORD),
    "last offset": (changed(23, ">i", 3), ErrorCode.INVALID_RECORD),
    "count": (changed(57, ">i", 3), ErrorCode.INVALID_RECORD),
}


@pytest.mark.parametrize("case", list(REFUSED))
def test_damaged_records_are_refused(target: Target, driver: Driver, topic: str, case: str) -> None:
    """Goal: the proper code, nothing appended, the connection lives. Method: produce, list."""
    if case == "null" and target.local is None:
        pytest.skip("Apache Kafka 4.3 never answers a Produce whose records are null")
    records, code = REFUSED[case]
    result = produce(driver, topic, records)
    assert ErrorCode(result.error_code) == code
    assert result.base_offset == -1
    assert list_latest(driver, topic).offset == 0
    good = produce(driver, topic, batch(b"good"))
    assert (good.error_code, good.base_offset) == (0, 0)


def test_one_refused_partition_leaves_the_other_be(
    target: Target, driver: Driver, new_topic: NewTopicName
) -> None:
    """Goal: partitions of one request are answered each by itself. Method: one good, one bad."""
    name = new_topic()
    assert create(driver, name, num_partitions=1).error_code == 0
    wait_for_leader(driver, target, name)
    request = produce_api.ProduceRequest(
        acks=-1,
        timeout_ms=BOUND_MS,
        topic_data=[
            produce_api.TopicProduceData(
                name=name,
                partition_data=[
                    produce_api.PartitionProduceData(index=0, records=batch(b"a")),
                    produce_api.PartitionProduceData(index=99, records=batch(b"b")),
                ],
            )
        ],
    )
    response = driver.send(request, node=driver.leader(name, 0), version=PRODUCE_VERSION)
    codes = {
        result.index: ErrorCode(result.error_code)
        for result in response.responses[0].partition_responses
    }
    assert codes == {0: ErrorCode.NONE, 99: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


def test_acks_that_do_not_exist(driver: Driver, topic: str) -> None:
    """Goal: acks=2 is refused by its own code. Method: produce with it."""
    result = produce(driver, topic, batch(b"a"), acks=2)
    assert ErrorCode(result.error_code) == ErrorCode.INVALID_REQUIRED_ACKS
    assert list_latest(driver, topic).offset == 0


def test_a_failure_under_acks_zero_closes_the_connection(driver: Driver, topic: str) -> None:
    """Goal: the only signal that acks=0 has. Method: a wrong CRC, then the connection's end."""
    leader = driver.peer(driver.leader(topic, 0))
    request = produce_api.ProduceRequest(
        acks=0,
        timeout_ms=BOUND_MS,
        topic_data=[
            produce_api.TopicProduceData(
                name=topic,
                partition_data=[produce_api.PartitionProduceData(index=0, records=damaged())],
            )
        ],
    )
    leader.post(request, version=PRODUCE_VERSION)
    with pytest.raises(AnswerLostError):
        leader.take(timeout_s=10.0)


BAD_TOPICS: dict[str, tuple[str | None, dict[str, Any], ErrorCode]] = {
    "a space": ("no good", {}, ErrorCode.INVALID_TOPIC_EXCEPTION),
    "empty": ("", {}, ErrorCode.INVALID_TOPIC_EXCEPTION),
    "dot": (".", {}, ErrorCode.INVALID_TOPIC_EXCEPTION),
    "two dots": ("..", {}, ErrorCode.INVALID_TOPIC_EXCEPTION),
    "too long": ("x" * 250, {}, ErrorCode.INVALID_TOPIC_EXCEPTION),
    "a path": ("../x", {}, ErrorCode.INVALID_TOPIC_EXCEPTION),
    "no partitions": (None, {"num_partitions": 0}, ErrorCode.INVALID_PARTITIONS),
    "too many copies": (None, {"replication_factor": 99}, ErrorCode.INVALID_REPLICATION_FACTOR),
    "no copies": (None, {"replication_factor": 0}, ErrorCode.INVALID_REPLICATION_FACTOR),
    "unknown config": (
        None,
        {"configs": [ConfigValue(name="nope", value="1")]},
        ErrorCode.INVALID_CONFIG,
    ),
    "bad value": (
        None,
        {"configs": [ConfigValue(name="retention.ms", value="soon")]},
        ErrorCode.INVALID_CONFIG,
    ),
    "unknown broker": (
        None,
        {
            "num_partitions": -1,
            "assignments": [
                create_topics.CreatableReplicaAssignment(partition_index=0, broker_ids=[4711])
            ],
        },
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
    ),
}


@pytest.mark.parametrize("case", list(BAD_TOPICS))
def test_topics_that_can_not_be(driver: Driver, new_topic: NewTopicName, case: str) -> None:
    """Goal: the proper code and a message that helps; no topic. Method: CreateTopics, metadata."""
    given, fields, code = BAD_TOPICS[case]
    name = new_topic() if given is None else given
    result = create(driver, name, **fields)
    assert ErrorCode(result.error_code) == code
    assert result.error_message
    assert name not in {found.name for found in driver.metadata().topics}


def test_a_topic_that_is_not_there(driver: Driver, new_topic: NewTopicName) -> None:
    """Goal: metadata says so and creates nothing unless asked. Method: ask twice."""
    name = new_topic()
    for _ in range(2):
        (described,) = driver.metadata([name]).topics
        assert ErrorCode(described.error_code) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert not described.partitions


def fetch_from(driver: Driver, name: str, offset: int, **fields: Any) -> Any:
    """Fetch from one offset and return the partition's data."""
    settings = {"max_wait_ms": 500, "min_bytes": 1, "max_bytes": 1 << 20} | fields
    request = fetch.FetchRequest(
        session_epoch=-1,
        topics=[
            fetch.FetchTopic(
                topic=name,
                partitions=[
                    fetch.FetchPartition(
                        partition=0, fetch_offset=offset, partition_max_bytes=1 << 20
                    )
                ],
            )
        ],
        **settings,
    )
    response = driver.send(request, node=driver.leader(name, 0), version=FETCH_VERSION)
    return response.responses[0].partitions[0]


def test_a_fetch_in_the_middle_of_a_batch_returns_all_of_it(driver: Driver, topic: str) -> None:
    """Goal: a batch is never split or skipped. Method: batches 0-2 and 3-5, fetch at 4."""
    produce(driver, topic, batch(b"a", b"b", b"c"))
    produce(driver, topic, batch(b"d", b"e", b"f"))
    for offset, expected in ((0, [0, 3]), (1, [0, 3]), (2, [0, 3]), (3, [3]), (4, [3]), (5, [3])):
        data = fetch_from(driver, topic, offset)
        assert ErrorCode(data.error_code) == ErrorCode.NONE
        found = [header.base_offset for _, header in batches(data.records)]
        assert found == expected, offset


def test_the_first_batch_comes_whole_however_large(driver: Driver, topic: str) -> None:
    """Goal: max_bytes can't hold up a reader (KIP-74). Method: a bound of one byte."""
    produce(driver, topic, batch(b"x" * 5000))
    data = fetch_from(driver, topic, 0, max_bytes=1)
    assert [header.base_offset for _, header in batches(data.records)] == [0]


@pytest.mark.parametrize("offset", [-5, 7])
def test_a_fetch_outside_the_log(driver: Driver, topic: str, offset: int) -> None:
    """Goal: OFFSET_OUT_OF_RANGE before the start and behind the end. Method: fetch there."""
    produce(driver, topic, batch(b"a"))
    assert ErrorCode(fetch_from(driver, topic, offset).error_code) == ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_fetch_at_the_end_waits_and_is_empty(driver: Driver, topic: str) -> None:
    """Goal: the end is no error. Method: fetch there, with hardly any time to wait."""
    produce(driver, topic, batch(b"a"))
    data = fetch_from(driver, topic, 1, max_wait_ms=10)
    assert ErrorCode(data.error_code) == ErrorCode.NONE
    assert not data.records
    assert data.high_watermark == 1
