"""What the lab's own clients write of themselves on a real broker: the judge rests on it.

Goal: the history tells what the cluster said of a reader's position from what the reader wished,
when a whole read asked for its end, that a producer's records carried no timestamps, and which
timestamps and headers were read. Method: real clients in this process, on a topic whose beginning
was deleted by name. Seen to fail: without `told`, with the end's time taken after its answer, with
a timestamp that only the history has, and with a client's own time beside that of the history.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from holdfast.clients.administration import all_have
from holdfast.clients.blocking_driver import Driver
from holdfast.clients.workload.payload import digest_of, value_for
from holdfast.clients.workload.raw_consumer import RawConsumer
from holdfast.clients.workload.raw_producer import RawProducer
from holdfast.clients.workload.recorder import Recorder
from holdfast.clients.workload.verifiable_consumer import Options as Reading
from holdfast.clients.workload.verifiable_consumer import VerifiableConsumer
from holdfast.clients.workload.verifiable_producer import Options as Sending
from holdfast.clients.workload.verifiable_producer import VerifiableProducer
from holdfast.cluster.processes import wait_until
from holdfast.judge.checker import judge
from holdfast.judge.history import (
    NO_TIMESTAMP,
    Acknowledged,
    Delivered,
    Event,
    Position,
    ReadEnd,
    Send,
    merge,
    read_events,
)
from holdfast.judge.verdict import Observed
from holdfast.wire import administration
from holdfast.wire.administration import delete_records

if TYPE_CHECKING:
    from tests.clients_conformance.conftest import Target

pytestmark = [pytest.mark.slow, pytest.mark.serial]

BOUND_S = 20.0
COUNT, BEGIN = 12, 5


def events(path: Path) -> list[Event]:
    with path.open("rb") as file:
        return list(read_events(file))


def positions(path: Path) -> list[tuple[int, bool]]:
    return [(each.offset, each.told) for each in events(path) if isinstance(each, Position)]


def delivered(path: Path) -> list[int]:
    return [each.offset for each in events(path) if isinstance(each, Delivered)]


def place(
    driver: Driver,
    topic: str,
    partitions: int,
    copies: int,
    configs: Mapping[str, str] | None = None,
) -> None:
    asked = administration.create_topic(
        topic, partitions=partitions, replication_factor=copies, configs=configs
    )
    driver.perform(asked)


def make(target: Target, topic: str, configs: Mapping[str, str] | None = None) -> None:
    with Driver(target.bootstrap) as driver:
        place(driver, topic, 1, target.brokers, configs)


def send(target: Target, topic: str, path: Path, timestamp: int | None) -> list[Event]:
    """Send with one timestamp; return what the producer wrote down."""
    options = Sending(
        bootstrap=target.bootstrap,
        topic=topic,
        history=path,
        process=path.stem,
        partitions=1,
        messages=COUNT,
        timestamp=timestamp,
    )
    with Recorder(path, path.stem) as recorder:
        assert VerifiableProducer(options, recorder).run() == 0
    return events(path)


def sent(target: Target, topic: str, path: Path) -> list[Event]:
    """Make a topic, and send to it without timestamps; return what the producer wrote down."""
    make(target, topic)
    return send(target, topic, path, NO_TIMESTAMP)


def read_raw(target: Target, topic: str, path: Path, last: int, *, early: bool = False) -> None:
    """Let the raw reader read from offset 0 until it was given the last."""
    stopping = threading.Event()
    with Recorder(path, "raw") as recorder:
        reader = RawConsumer(target.bootstrap, topic, 0, recorder, early_watermark=early)
        thread = threading.Thread(target=reader.run, args=(stopping,))
        thread.start()
        try:
            wait_until(lambda: last in delivered(path), timeout_s=BOUND_S, what="the last record")
        finally:
            stopping.set()
            thread.join()
    assert reader.failure is None


def read_to_end(target: Target, topic: str, path: Path) -> Reading:
    options = Reading(
        bootstrap=target.bootstrap,
        topic=topic,
        history=path,
        process="end",
        partitions=(0,),
        until_end=True,
        timeout_s=BOUND_S,
    )
    with Recorder(options.history, "end") as recorder:
        assert VerifiableConsumer(options, recorder).run()
    return options


@pytest.mark.parametrize("early", [False, True])
def test_a_high_watermark_bounds_an_answer_of_whom_it_is_said(
    target: Target, new_topic: Callable[[], str], tmp_path: Path, early: bool
) -> None:
    """Goal: no record of Apache Kafka is called uncommitted by a watermark older than the read.

    `early`: by the next answer's, which is there once the last record is written down.
    """
    topic = new_topic()
    sent(target, topic, tmp_path / "sent.jsonl")
    read_raw(target, topic, tmp_path / "raw.jsonl", COUNT - 1, early=early)
    given = [each for each in events(tmp_path / "raw.jsonl") if isinstance(each, Delivered)]
    assert [each.committed_end for each in given] == [COUNT] * COUNT


def test_a_partition_that_never_tells_its_end_hides_no_other(
    target: Target, new_topic: Callable[[], str], tmp_path: Path
) -> None:
    """Partition 0 holds nothing, while its replicas are said to end at 1. It is not whole either.

    Seen to fail: with all the time spent on the one that is asked first.
    """
    topic, path = new_topic(), tmp_path / "end.jsonl"
    with Driver(target.bootstrap) as driver:
        place(driver, topic, 2, target.brokers)
    with (
        Recorder(tmp_path / "sent.jsonl", "sent") as recorder,
        closing(RawProducer(target.bootstrap, topic, recorder)) as client,
    ):
        # A new topic's leader may hear of it a moment later: it refuses, and this client asks once.
        wait_until(
            lambda: isinstance(client.send(1, "k"), Acknowledged),
            timeout_s=BOUND_S,
            what="a record to be acknowledged",
        )
    options = Reading(
        bootstrap=target.bootstrap,
        topic=topic,
        history=path,
        process="end",
        partitions=(0, 1),
        ends=((0, 1), (1, 1)),
        until_end=True,
        timeout_s=4.0,
    )
    with Recorder(path, "end") as recorder:
        assert not VerifiableConsumer(options, recorder).run()
    assert [each.partition for each in events(path) if isinstance(each, Delivered)] == [1]
    assert [each.partition for each in events(path) if isinstance(each, ReadEnd)] == [1]


@pytest.mark.parametrize("kind", ["CreateTime", "LogAppendTime"])
def test_what_was_sent_is_read_back_with_its_timestamps_and_headers(
    target: Target, new_topic: Callable[[], str], tmp_path: Path, kind: str
) -> None:
    """Method: both producers, every kind of timestamp, both readers; and the judge over it all."""
    topic = new_topic()
    make(target, topic, {"message.timestamp.type": kind})
    with Driver(target.bootstrap) as driver:
        nodes = driver.nodes()
        wait_until(
            lambda: all_have(driver, nodes, topic, {"message.timestamp.type": kind}),
            timeout_s=BOUND_S,
            what="every broker to have heard of it",
        )
        assert not all_have(driver, nodes, topic, {"message.timestamp.type": "Other"})
    stamps = (None, NO_TIMESTAMP, 5, 1_700_000_000_000)
    for number, timestamp in enumerate(stamps):
        send(target, topic, tmp_path / f"p{number}.jsonl", timestamp)
        with (
            Recorder(tmp_path / f"q{number}.jsonl", f"q{number}") as recorder,
            closing(RawProducer(target.bootstrap, topic, recorder, timestamp=timestamp)) as client,
        ):
            for _ in range(COUNT):
                assert isinstance(client.send(0, "k"), Acknowledged)
    total = 2 * COUNT * len(stamps)
    read_raw(target, topic, tmp_path / "raw.jsonl", total - 1)
    read_to_end(target, topic, tmp_path / "end.jsonl")
    histories = [events(path) for path in sorted(tmp_path.glob("*.jsonl"))]
    judgement = judge(merge(*histories)).judgement
    assert not judgement.findings
    assert judgement.observed is Observed.EXACTLY_ONCE
    given = [each for events in histories for each in events if isinstance(each, Delivered)]
    assert len(given) == 2 * total
    assert {each.timestamp is None for each in given} == {kind == "LogAppendTime"}
    # Each without its headers is another record.
    bare = [digest_of(value_for(*id_parts(each), 100)) != each.digest for each in given]
    assert sum(bare) == len(given) // 4


def id_parts(event: Delivered) -> tuple[str, int]:
    assert event.id is not None
    process, _, number = event.id.partition(":")
    return process, int(number)


def test_a_producer_without_timestamps_says_so_and_sends_none(
    target: Target, new_topic: Callable[[], str], tmp_path: Path
) -> None:
    topic = new_topic()
    found = sent(target, topic, tmp_path / "p.jsonl")
    stamps = [each.timestamp for each in found if isinstance(each, Send)]
    assert stamps == [NO_TIMESTAMP] * COUNT
    assert sum(isinstance(each, Acknowledged) for each in found) == COUNT
    consumer = Consumer({"bootstrap.servers": target.bootstrap, "group.id": "none"})
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    received: list[int] = []
    deadline = time.monotonic() + BOUND_S
    while len(received) < COUNT and time.monotonic() < deadline:
        for message in consumer.consume(COUNT, 0.2):
            assert message.error() is None, message.error()
            received.append(message.timestamp()[1])
    consumer.close()
    assert received == stamps


def test_readers_tell_what_they_were_told_from_what_they_wished(
    target: Target, new_topic: Callable[[], str], tmp_path: Path
) -> None:
    topic = new_topic()
    sent(target, topic, tmp_path / "p.jsonl")
    with Driver(target.bootstrap) as driver:
        driver.perform(delete_records(topic, 0, BEGIN), node=driver.leader(topic, 0))

    read_raw(target, topic, tmp_path / "raw.jsonl", COUNT - 1)
    assert positions(tmp_path / "raw.jsonl") == [(0, False), (BEGIN, True)]

    before_ms = time.monotonic() * 1000
    options = read_to_end(target, topic, tmp_path / "end.jsonl")
    assert positions(options.history) == [(BEGIN, True)]
    assert delivered(options.history) == list(range(BEGIN, COUNT))
    (end,) = [each for each in events(options.history) if isinstance(each, ReadEnd)]
    assert (end.begin, end.end) == (BEGIN, COUNT)
    assert end.asked_ms is not None
    # Before the answer, of which the position is the first trace.
    (position,) = [each for each in events(options.history) if isinstance(each, Position)]
    assert before_ms <= end.asked_ms < position.at_ms

    eof = replace(options, history=tmp_path / "eof.jsonl", until_end=False, until_eof=True)
    with Recorder(eof.history, "eof") as recorder:
        assert VerifiableConsumer(eof, recorder).run()
    assert positions(eof.history) == [(0, False), (BEGIN, True)]
    assert delivered(eof.history) == list(range(BEGIN, COUNT))
