"""What the lab's own clients write of themselves on a real broker: the judge rests on it.

Goal: the history tells what the cluster said of a reader's position from what the reader wished,
when a whole read asked for its end, and that a producer's records carried no timestamps. Method:
real clients in this process, on a topic whose beginning was deleted by name. Seen to fail: without
`told`, with the end's time taken after its answer, and with a timestamp that only the history has.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from holdfast.clients import admin
from holdfast.clients.driver import Driver
from holdfast.clients.raw_consumer import RawConsumer
from holdfast.clients.recorder import Recorder
from holdfast.clients.verifiable_consumer import Options as Reading
from holdfast.clients.verifiable_consumer import VerifiableConsumer
from holdfast.clients.verifiable_producer import Options as Sending
from holdfast.clients.verifiable_producer import VerifiableProducer
from holdfast.cluster.processes import wait_until
from holdfast.judge.history import (
    NO_TIMESTAMP,
    Acknowledged,
    Delivered,
    Event,
    Position,
    ReadEnd,
    Send,
    read_events,
)

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


def sent(target: Target, topic: str, path: Path) -> list[Event]:
    """Make a topic, and send to it without timestamps; return what the producer wrote down."""
    with Driver(target.bootstrap) as driver:
        admin.place_topic(driver, topic, 1, target.brokers)
    options = Sending(
        bootstrap=target.bootstrap,
        topic=topic,
        history=path,
        process="p",
        partitions=1,
        messages=COUNT,
        timestamp=NO_TIMESTAMP,
    )
    with Recorder(path, "p") as recorder:
        assert VerifiableProducer(options, recorder).run() == 0
    return events(path)


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
        admin.delete_records(driver, {(topic, 0): BEGIN})

    raw = tmp_path / "raw.jsonl"
    stopping = threading.Event()
    with Recorder(raw, "raw") as recorder:
        reader = RawConsumer(target.bootstrap, topic, 0, recorder)
        thread = threading.Thread(target=reader.run, args=(stopping,))
        thread.start()
        try:
            wait_until(
                lambda: COUNT - 1 in delivered(raw), timeout_s=BOUND_S, what="the last record"
            )
        finally:
            stopping.set()
            thread.join()
    assert positions(raw) == [(0, False), (BEGIN, True)]

    options = Reading(
        bootstrap=target.bootstrap,
        topic=topic,
        history=tmp_path / "end.jsonl",
        process="end",
        partitions=(0,),
        until_end=True,
        timeout_s=BOUND_S,
    )
    before_ms = time.monotonic() * 1000
    with Recorder(options.history, "end") as recorder:
        assert VerifiableConsumer(options, recorder).run()
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
