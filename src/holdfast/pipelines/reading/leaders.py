"""Which leader is the newest, by all brokers; and where an epoch ends, by leaders. For planners.

Asked over our own client: librdkafka's has neither question. Each one is a few connections that are
opened for it and closed again: it comes where a query begins, and after elections.

Rules: fetch.md#epoch-check, replication.md#diverging-logs.
"""

from __future__ import annotations

import random
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from holdfast.clients.blocking_driver import Driver, DriverError, Peer, UnsupportedError
from holdfast.pipelines.offsets import Epochs, Partition
from holdfast.pipelines.reading.access import PASSING
from holdfast.pipelines.reading.way import Client, wire_settings
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponseTopic,
)
from holdfast.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from holdfast.wire.uuids import NULL_UUID, uuid_text

# Of a cluster that is cut in two the smaller part is wrong: so many brokers are not all in it.
BROKERS_MAX: Final = 30
ASK_S: Final = 10.0  # those that were not asked in this time are left out
_CONNECT_S: Final = 2.0
_ANSWER_S: Final = 5.0
_A_CONSUMER: Final = -1


class Newest(NamedTuple):
    """The newest epochs that any broker knows of, and where brokers are."""

    epochs: Epochs
    addresses: tuple[str, ...] = ()


class Spread(NamedTuple):
    """Which ids brokers tell of topics ("": one tells something else), and whether each answered.

    A topic that those who answer do not know has none.
    """

    ids: dict[str, set[str]]
    is_whole: bool


class Question(NamedTuple):
    """Where does an epoch end, in the log of who leads in another one?"""

    epoch: int
    leader_epoch: int


class EpochEnd(NamedTuple):
    """Where an epoch ends in a log. `epoch` is an older one if the log has nothing of that."""

    epoch: int
    offset: int


def newest(client: Client, partitions: Collection[Partition]) -> Newest:
    """Ask many brokers who leads. Whom nobody answers knows of no epoch; it raises nothing.

    Where brokers tell different ids of a topic it was made anew a moment ago, and epochs of the one
    say nothing of the other.
    """
    topics = sorted({partition.topic for partition in partitions})
    with _asking(client) as driver, suppress(DriverError):
        told = driver.metadata(topics)
        brokers = random.sample(told.brokers, min(BROKERS_MAX, len(told.brokers)))
        others = all_told(driver, brokers, topics)
        answers = [told, *(one for one in others if one is not None)]
        found: dict[str, list[MetadataResponseTopic]] = {}
        for topic in (topic for answer in answers for topic in answer.topics):
            if topic.name is not None and not topic.error_code:
                found.setdefault(topic.name, []).append(topic)
        epochs: Epochs = {}
        for name, each in found.items():
            if len({topic.topic_id for topic in each}) == 1:
                for one in (one for topic in each for one in topic.partitions):
                    partition = Partition(name, one.partition_index)
                    epochs[partition] = max(one.leader_epoch, epochs.get(partition, -1))
        return Newest(
            {p: epochs[p] for p in partitions if epochs.get(p, -1) >= 0},
            tuple(map(_address, brokers)),
        )
    return Newest({})


def ids_told(client: Client, topics: Iterable[str]) -> Spread:
    """Ask each broker which topics these are. Whom nobody answers knows nothing; it raises nothing.

    Those that lag or were cut off are looked for, so none is left out by lot.
    """
    names, is_whole = sorted({*topics}), False
    ids: dict[str, set[str]] = {name: set() for name in names}
    with _asking(client) as driver, suppress(DriverError):
        told = driver.metadata(names)
        others = list(all_told(driver, told.brokers, names))
        is_whole = bool(others) and None not in others
        for topic in (one for answer in [told, *others] if answer for one in answer.topics):
            if topic.name in ids and topic.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                has_id = not topic.error_code and topic.topic_id != NULL_UUID
                ids[topic.name].add(uuid_text(topic.topic_id) if has_id else "")
    return Spread(ids, is_whole)


def _address(broker: MetadataResponseBroker) -> str:
    host = f"[{broker.host}]" if ":" in broker.host else broker.host
    return f"{host}:{broker.port}"


def _asking(client: Client) -> Driver:
    settings = wire_settings(client)
    return Driver(settings.bootstrap, settings.client_id, timeout_s=_ANSWER_S, connect_s=_CONNECT_S)


def all_told(
    driver: Driver, brokers: Iterable[MetadataResponseBroker], topics: Sequence[str]
) -> Iterator[MetadataResponse | None]:
    """Yield what each of these brokers says of topics; None: it does not answer, or not in time.

    They are drawn by lot: those that say nothing may take all the time, and whoever looks again
    must not begin with the same ones.
    """
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=name) for name in topics],
        allow_auto_topic_creation=False,
    )
    drawn, until_s = list(brokers), time.monotonic() + ASK_S
    random.shuffle(drawn)
    for broker in drawn:
        answer = None
        if time.monotonic() < until_s:
            with suppress(DriverError):
                answer = driver.send(request, node=broker.node_id)
        yield answer


def epoch_ends(client: Client, asked: Mapping[Partition, Question]) -> dict[Partition, int | None]:
    """Return where epochs end in the logs of leaders; None: its leader can't tell.

    Whose leader does not answer, or leads in another epoch, is left out; who refuses for good can't
    tell. It raises nothing.
    """
    found: dict[Partition, int | None] = {}
    with _asking(client) as driver, suppress(DriverError):
        for node, theirs in _by_leader(driver, asked).items():
            with suppress(DriverError):
                ends, refused = ends_told_by(driver.peer(node), theirs)
                found |= {p: None if end is None else end.offset for p, end in ends.items()}
                found |= {p: None for p, code in refused.items() if code not in PASSING}
    return found


def _by_leader(
    driver: Driver, asked: Mapping[Partition, Question]
) -> dict[int, dict[Partition, Question]]:
    """Sort questions by the nodes that lead in the epochs that are meant, as any broker says."""
    topics = sorted({partition.topic for partition in asked})
    told = driver.metadata(topics)
    nodes = _leading(told, asked)
    if nodes.keys() != asked.keys():  # who was asked has not heard of the election
        for one in all_told(driver, told.brokers, topics):
            nodes |= {} if one is None else _leading(one, asked)
            if nodes.keys() == asked.keys():
                break
    sorted_out: dict[int, dict[Partition, Question]] = {}
    for partition, node in nodes.items():
        sorted_out.setdefault(node, {})[partition] = asked[partition]
    return sorted_out


def _leading(told: MetadataResponse, asked: Mapping[Partition, Question]) -> dict[Partition, int]:
    return {
        partition: one.leader_id
        for topic in told.topics
        for one in topic.partitions
        if (partition := Partition(topic.name or "", one.partition_index)) in asked
        and one.leader_id >= 0
        and one.leader_epoch >= asked[partition].leader_epoch
    }


def ends_told_by(
    peer: Peer, asked: Mapping[Partition, Question]
) -> tuple[dict[Partition, EpochEnd | None], dict[Partition, int]]:
    """Ask one leader where epochs end; return what it says, and what it refuses, by code.

    DriverError: it does not answer.
    """
    topics: dict[str, OffsetForLeaderTopic] = {}
    for partition, question in asked.items():
        topic = topics.setdefault(partition.topic, OffsetForLeaderTopic(topic=partition.topic))
        topic.partitions.append(
            OffsetForLeaderPartition(
                partition=partition.number,
                current_leader_epoch=question.leader_epoch,
                leader_epoch=question.epoch,
            )
        )
    request = OffsetForLeaderEpochRequest(replica_id=_A_CONSUMER, topics=list(topics.values()))
    try:
        response = peer.send(request)
    except UnsupportedError:
        return dict.fromkeys(asked), {}
    ends: dict[Partition, EpochEnd | None] = {}
    refused: dict[Partition, int] = {}
    for topic in response.topics:
        for one in topic.partitions:
            partition = Partition(topic.topic, one.partition)
            if one.error_code:
                refused[partition] = one.error_code
            else:
                end = EpochEnd(one.leader_epoch, one.end_offset)
                ends[partition] = end if end.offset >= 0 else None
    return ends, refused
