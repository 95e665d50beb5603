"""Goal: our half of a fetch session understands Apache Kafka's, and knows of it what it relies on.

Method: a real broker of Apache Kafka is asked what ours says, as a consumer; beside that,
by hand, what a leader does with a partition that one request forgets and names. Rules:
replication.md#sessions-between-brokers.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from holdfast.clients.blocking_driver import Driver
from holdfast.cluster.processes import wait_until
from holdfast.core.metadata.image import PartitionKey
from holdfast.core.replica.follower_session import FollowerSession, Position, Question
from holdfast.node.broker.fetch_lane import forgotten_topics
from holdfast.wire.administration import create_topic
from holdfast.wire.batch import Record, build_batch
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from holdfast.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)

pytestmark = [pytest.mark.apache, pytest.mark.slow]
VERSION = 17
News = dict[PartitionKey, tuple[int, int]]  # the high watermark, the bytes of records


class Reader:
    """Follows a topic on a broker, one partition's records after the other's."""

    def __init__(self, driver: Driver, topic: str, partitions: int) -> None:
        self.driver = driver
        self.topic = topic
        self.topic_id = driver.topic_id(topic)
        self.session = FollowerSession()
        self.ends = {(self.topic_id, index): 0 for index in range(partitions)}
        for key in self.ends:
            self.session.name(key)

    def position(self, key: PartitionKey) -> Position:
        return Position(leader_epoch=-1, end=self.ends[key], last_epoch=-1, start=-1)

    def produce(self, index: int) -> None:
        batch = bytes(build_batch([Record(value=b"x", timestamp=1_767_225_600_000)]))
        data = TopicProduceData(
            name=self.topic, partition_data=[PartitionProduceData(index=index, records=batch)]
        )
        request = ProduceRequest(acks=1, timeout_ms=30_000, topic_data=[data])
        answer = self.driver.send(request, version=9)
        assert answer.responses[0].partition_responses[0].error_code == 0

    def ask(self, asked: Question) -> FetchResponse:
        request = FetchRequest(
            max_wait_ms=100,
            min_bytes=1,
            max_bytes=1_000_000,
            session_id=asked.session_id,
            session_epoch=asked.session_epoch,
            topics=[
                FetchTopic(
                    topic_id=topic_id,
                    partitions=[
                        FetchPartition(
                            partition=index, fetch_offset=position.end, partition_max_bytes=100_000
                        )
                    ],
                )
                for (topic_id, index), position in asked.named.items()
            ],
            forgotten_topics_data=forgotten_topics(asked.forgotten),
        )
        answer: FetchResponse = self.driver.send(request, version=VERSION)
        return answer

    def next(self) -> Question:
        asked = self.session.next(self.position)
        assert asked is not None
        return asked

    def round(self, *, takes: bool = True) -> News:
        """Ask, and take the answer in."""
        answer = self.ask(self.next())
        assert answer.error_code == 0
        self.session.answered(answer.session_id)
        news = news_of(answer)
        for key, (high_watermark, size) in news.items():
            if size and takes:
                self.ends[key] = high_watermark
            self.session.settle(key, self.position(key))
        return news


def news_of(answer: FetchResponse) -> News:
    return {
        (bytes(topic.topic_id), data.partition_index): (
            data.high_watermark,
            len(data.records or b""),
        )
        for topic in answer.responses
        for data in topic.partitions
    }


@pytest.fixture
def reader(apache_kafka: str, request: pytest.FixtureRequest) -> Iterator[Reader]:
    name = f"sessions-{abs(hash(request.node.name))}"
    with Driver(apache_kafka) as driver:
        driver.perform(create_topic(name, partitions=3, replication_factor=1))
        for index in range(3):
            driver.leader(name, index)
        made = Reader(driver, name, 3)
        positions = {key: made.position(key) for key in made.ends}
        everything = Question(0, -1, positions, [], has_more=False)
        wait_until(
            lambda: {mark for mark, _ in news_of(made.ask(everything)).values()} == {0},
            timeout_s=30,
            what="all partitions to be led",
        )
        yield made


def test_what_moved_is_named_and_what_has_news_is_answered(reader: Reader) -> None:
    assert len(reader.round()) == 3
    assert reader.next().session_id > 0
    reader.session.lost()
    reader.round()
    assert reader.round() == {}
    reader.produce(1)
    assert list(reader.round()) == [(reader.topic_id, 1)]
    asked = reader.next()
    assert list(asked.named) == [(reader.topic_id, 1)]
    assert news_of(reader.ask(asked)) == {}
    reader.session.answered(asked.session_id)
    assert reader.round() == {}


def test_a_partition_that_is_left_is_answered_for_no_more(reader: Reader) -> None:
    reader.round()
    reader.session.forget((reader.topic_id, 2))
    reader.round()
    reader.produce(2)
    assert reader.round() == {}


def test_a_partition_that_one_request_forgets_and_names_is_forgotten(reader: Reader) -> None:
    """So a partition in doubt takes two requests."""
    reader.round()
    key = reader.topic_id, 0
    asked = reader.next()
    both = asked._replace(named={key: reader.position(key)}, forgotten=[key])
    reader.ask(both)
    reader.session.answered(asked.session_id)
    reader.produce(0)
    assert reader.round() == {}


def test_what_was_said_once_is_not_said_again_because_it_is_named_but_because_it_was_forgotten(
    reader: Reader,
) -> None:
    reader.round()
    reader.session.name((reader.topic_id, 0))
    assert reader.round() == {}
    reader.session.doubt((reader.topic_id, 0))
    assert reader.round() == {}
    assert reader.round() == {(reader.topic_id, 0): (0, 0)}


def test_a_session_that_is_refused_begins_anew(reader: Reader) -> None:
    reader.round()
    for session_id, error in (
        (0, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        (1, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
    ):
        asked = reader.next()
        wrong = asked._replace(
            session_id=asked.session_id + session_id, session_epoch=asked.session_epoch + 7
        )
        answer = reader.ask(wrong)
        assert answer.error_code == error
        reader.session.refused(error)
        assert len(reader.round()) == 3
        assert reader.round() == {}
