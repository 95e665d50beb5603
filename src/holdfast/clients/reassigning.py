"""Moving partitions of any Kafka from outside: what is where, throttles, and what is left to do.

Owns the throttle's configs, which must be set before a move and cleared after it, and the waits
until all has arrived.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from holdfast.clients.blocking_driver import Driver, DriverError
from holdfast.clients.placement_plan import Assignment, TopicPartition
from holdfast.wire.administration import AdminError, alter_configs, reassignments
from holdfast.wire.errors import RETRIABLE, ErrorCode
from holdfast.wire.structs import ResourceType

RATES: Final = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
MOVING: Final = "is still in progress"
LIST_BYTES_MAX: Final = 32_767  # of a setting; Kafka refuses longer ones
ALL_REPLICAS: Final = "*"
LOOK_S: Final = 0.2
SETTLE_S: Final = 3.0  # a broker's metadata may be so far behind the controller's answer
UNSEEN_S: Final = 120.0  # so long nobody may be able to look: a controller, or a broker, restarts
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
    moves = driver.perform(reassignments())
    return {key: moves[key].target if key in moves else nodes for key, nodes in current.items()}


def _listed(replicas: Sequence[str]) -> str:
    text = ",".join(replicas)
    return text if len(text) <= LIST_BYTES_MAX else ALL_REPLICAS


def throttle(
    driver: Driver, current: Assignment, target: Mapping[TopicPartition, Sequence[int]], rate: int
) -> list[int]:
    """Let these moves take `rate` bytes a second from, and bring as many to, each broker.

    Those who hold a partition are throttled as leaders, those who get it as followers; so are those
    of these topics' partitions that move already. Returns the brokers concerned. To be called
    before the moves begin. Where a topic has more of them than a setting can name, all of its
    replicas are throttled, of which those in sync never wait.
    """
    moves = driver.perform(reassignments())
    wanted = {key: move.target for key, move in moves.items()} | {**target}
    named = {name for name, _ in target}
    brokers: set[int] = set()
    topics: dict[str, tuple[list[str], list[str]]] = {}
    for key, nodes in sorted(wanted.items()):
        name, partition = key
        if name not in named or key not in current:
            continue
        arriving = moves[key].adding if key in moves else []
        holders = [node for node in current[key] if node not in arriving]
        getting = dict.fromkeys([*nodes, *arriving])
        leaders, followers = topics.setdefault(name, ([], []))
        leaders += [f"{partition}:{node}" for node in holders]
        followers += [f"{partition}:{node}" for node in getting if node not in holders]
        brokers |= {*getting, *holders}
    for name, lists in topics.items():
        configs = {key: _listed(each) for key, each in zip(REPLICAS, lists, strict=True)}
        driver.perform(alter_configs(ResourceType.TOPIC, name, configs))
    set_rates(driver, brokers, rate)
    return sorted(brokers)


def set_rates(driver: Driver, brokers: Iterable[int], rate: int) -> None:
    """Set, or change, what moves may take."""
    _alter_brokers(driver, brokers, dict.fromkeys(RATES, str(rate)))


def _alter_brokers(
    driver: Driver, brokers: Iterable[int], configs: Mapping[str, str | None]
) -> None:
    """Change the settings of each broker: Apache Kafka's takes none but its own.

    Of one that is dead any other is asked, which takes them in a cluster of ours.
    """
    alive = driver.nodes()
    for broker in sorted(set(brokers)):
        asked = alter_configs(ResourceType.BROKER, str(broker), configs)
        driver.perform(asked, node=broker if broker in alive else None)


def clear_throttle(driver: Driver, topics: Iterable[str], brokers: Iterable[int]) -> None:
    """Take the throttle off these topics and brokers; that a topic is gone is no error."""
    _alter_brokers(driver, brokers, dict.fromkeys(RATES))
    for name in sorted(set(topics)):
        try:
            driver.perform(alter_configs(ResourceType.TOPIC, name, dict.fromkeys(REPLICAS)))
        except AdminError as error:
            if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise


def outstanding(
    driver: Driver, target: Mapping[TopicPartition, Sequence[int]]
) -> dict[TopicPartition, str]:
    """Of these targets the ones that are not reached, each with a word why."""
    moves = driver.perform(reassignments())
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


def arrivals(driver: Driver, target: Mapping[TopicPartition, Sequence[int]]) -> Iterator[int]:
    """Wait until none of these targets moves any more; yield how many have arrived meanwhile.

    A move takes hours, in which a controller or a broker may restart: nobody can look for a while.
    What does not move has not come to its target for certain: `settled` says.
    """
    shown = -1
    seen_at = time.monotonic()
    while True:
        try:
            moving = list(outstanding(driver, target).values()).count(MOVING)
        except (AdminError, DriverError) as error:
            may_pass = not isinstance(error, AdminError) or error.code in RETRIABLE
            if not may_pass or time.monotonic() > seen_at + UNSEEN_S:
                raise
        else:
            seen_at = time.monotonic()
            if not moving:
                return
            if moving != shown:
                shown = moving
                yield len(target) - moving
        time.sleep(LOOK_S)


def settled(
    driver: Driver, target: Mapping[TopicPartition, Sequence[int]]
) -> dict[TopicPartition, str]:
    """What is outstanding, after giving a broker's metadata time to follow the controller's."""
    deadline = time.monotonic() + SETTLE_S
    while True:
        left = outstanding(driver, target)
        if set(left.values()) <= {MOVING} or time.monotonic() > deadline:
            return left
        time.sleep(LOOK_S)
