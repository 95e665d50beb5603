"""Reads the demo's whole log, by assignment, from the beginning to the end it has now.

Owns one history file of deliveries: the evidence of what the log holds. It knows nothing of the
pipeline's reader, on purpose.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from holdfast.clients.payload import digest_of
from holdfast.clients.recorder import Recorder
from holdfast.judge.history import Delivered, ReadEnd

POLL_S = 0.1
BATCH = 1000
ASK_S = 5.0

Identify = Callable[[bytes | None], str | None]


class ReadTimeoutError(RuntimeError):
    """The log was not read to its end in time."""


def read_whole_log(
    bootstrap: str,
    topic: str,
    partitions: Sequence[int],
    recorder: Recorder,
    identify: Identify,
    *,
    timeout_s: float,
) -> dict[int, int]:
    """Record every record of `topic`; return where each partition ended. ReadTimeoutError."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "client.id": recorder.process,
            "group.id": recorder.process,  # asked for by the client, never used
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            "check.crcs": True,
        },
        logger=None,
    )
    try:
        deadline = time.monotonic() + timeout_s
        bounds = {number: _bounds(consumer, topic, number, deadline) for number in partitions}
        consumer.assign([TopicPartition(topic, n, begin) for n, (begin, _) in bounds.items()])
        position = {number: begin for number, (begin, _) in bounds.items()}
        while any(position[number] < end for number, (_, end) in bounds.items()):
            if time.monotonic() > deadline:
                raise ReadTimeoutError(f"{topic}: not read to its end: {position} of {bounds}")
            for message in consumer.consume(BATCH, POLL_S):
                _take(message, position, bounds, recorder, identify)
        for number, (begin, end) in bounds.items():
            recorder.record(ReadEnd, topic=topic, partition=number, begin=begin, end=end)
        recorder.flush()
    finally:
        consumer.close()
    return {number: end for number, (_, end) in bounds.items()}


def _bounds(consumer: Any, topic: str, number: int, deadline: float) -> tuple[int, int]:
    while True:
        try:
            low, high = consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=ASK_S)
        except KafkaException as error:
            if time.monotonic() > deadline:
                raise ReadTimeoutError(f"{topic}-{number}: {error.args[0].str()}") from error
            consumer.poll(POLL_S)
        else:
            return int(low), int(high)


def _take(
    message: Any,
    position: dict[int, int],
    bounds: dict[int, tuple[int, int]],
    recorder: Recorder,
    identify: Identify,
) -> None:
    number = message.partition()
    error = message.error()
    if error is not None:
        if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - its public name
            position[number] = max(position[number], message.offset())
        return
    position[number] = message.offset() + 1
    if message.offset() >= bounds[number][1]:
        return  # written after we asked: no part of this read
    value, key = message.value(), message.key()
    epoch = message.leader_epoch()
    recorder.record(
        Delivered,
        topic=message.topic(),
        partition=number,
        offset=message.offset(),
        id=identify(value),
        digest=digest_of(value),
        key=None if key is None else key.decode(errors="replace"),
        epoch=epoch if epoch is not None and epoch >= 0 else None,
    )
