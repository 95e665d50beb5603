"""Records for members to read."""

from __future__ import annotations

from confluent_kafka import Producer

BOUND_S = 30.0


def produce(bootstrap: str, topic: str, counts: dict[int, int], *, first: int = 0) -> int:
    """Write so many records to each partition, their values counting from `first`; how many."""
    producer = Producer({"bootstrap.servers": bootstrap})
    for partition, count in counts.items():
        for number in range(first, first + count):
            producer.produce(topic, b"%d" % number, partition=partition)
    assert producer.flush(BOUND_S) == 0
    return sum(counts.values())
