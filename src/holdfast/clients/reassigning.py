"""Moving partitions of any Kafka from outside: what is where, throttles, and what is left to do.

Owns the throttle's configs, which must be set before a move and cleared after it. Asks once each
time; who waits, and for how long, is the caller's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from holdfast.clients.admin import AdminError, alter_broker, alter_topic, reassignments
from holdfast.clients.driver import Driver
from holdfast.clients.placement_plan import Assignment, TopicPartition
from holdfast.wire.errors import ErrorCode

RATES: Final = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
MOVING: Final = "is still in progress"
REPLICAS: Final = (
    "leader.replication.throttled.replicas",
    "follower.replication.throttled.replicas",
)


def racks(driver: Driver) -> dict[int, str | None]:
    """The brokers alive, each with its rack."""
    return {broker.node_id: broker.rack for broker in driver.metadata([]).brokers}


def assignment(
    driver: Driver, topics: Sequence[str] | None = None, *, internal: bool = False
) -> Assignment:
    """Who holds each partition of these topics; None: of all, its own with `internal` only.

    A partition that is moving shows those on their way, too. AdminError: a topic is not there.
    """
    found: Assignment = {}
    for topic in driver.metadata(topics).topics:
        if topic.error_code:
            raise AdminError(f"topic {topic.name}", topic.error_code, None)
        if topic.name is None or (topics is None and topic.is_internal and not internal):
            continue
        for partition in topic.partitions:
            found[topic.name, partition.partition_index] = list(partition.replica_nodes)
    return dict(sorted(found.items()))


def without_moves(driver: Driver, current: Assignment) -> Assignment:
    """The same, as it will be when all that is moving has arrived."""
    moves = reassignments(driver)
    return {key: moves[key].target if key in moves else nodes for key, nodes in current.items()}


def throttle(
    driver: Driver, current: Assignment, target: Mapping[TopicPartition, Sequence[int]], rate: int
) -> list[int]:
    """Let these moves take `rate` bytes a second from, and bring as many to, each broker.

    Those who hold a partition are throttled as leaders, those who get it as followers. Returns the
    brokers concerned. To be called before the moves begin.
    """
    brokers: set[int] = set()
    topics: dict[str, tuple[list[str], list[str]]] = {}
    for key, nodes in sorted(target.items()):
        name, partition = key
        leaders, followers = topics.setdefault(name, ([], []))
        leaders += [f"{partition}:{node}" for node in current[key]]
        followers += [f"{partition}:{node}" for node in nodes if node not in current[key]]
        brokers |= {*nodes, *current[key]}
    for name, lists in topics.items():
        alter_topic(
            driver, name, {key: ",".join(each) for key, each in zip(REPLICAS, lists, strict=True)}
        )
    set_rates(driver, brokers, rate)
    return sorted(brokers)


def set_rates(driver: Driver, brokers: Iterable[int], rate: int) -> None:
    """Set, or change, what moves may take."""
    for broker in sorted(brokers):
        alter_broker(driver, broker, dict.fromkeys(RATES, str(rate)))


def clear_throttle(driver: Driver, topics: Iterable[str], brokers: Iterable[int]) -> None:
    """Take the throttle off these topics and brokers; that a topic is gone is no error."""
    for broker in sorted(set(brokers)):
        alter_broker(driver, broker, dict.fromkeys(RATES))
    for name in sorted(set(topics)):
        try:
            alter_topic(driver, name, dict.fromkeys(REPLICAS))
        except AdminError as error:
            if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise


def outstanding(
    driver: Driver, target: Mapping[TopicPartition, Sequence[int]]
) -> dict[TopicPartition, str]:
    """Of these targets the ones that are not reached, each with a word why."""
    moves = reassignments(driver)
    held = assignment(driver, internal=True)  # all: one that is gone must not hide the others
    left: dict[TopicPartition, str] = {}
    for key, nodes in sorted(target.items()):
        if key in moves:
            left[key] = MOVING
        elif key not in held:
            left[key] = "is of a topic or partition that is not there"
        elif held[key] != list(nodes):
            left[key] = f"did not arrive: it is on {','.join(map(str, held[key]))}"
    return left
