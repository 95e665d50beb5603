"""One look at a local cluster: who leads, what is in sync, where logs end, which links are broken.

Asks nodes over the observer's way, which no cut touches, and never for long: a node that does not
answer is part of the picture. Groups are asked by a thread of its own, since theirs takes longer.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self

from holdfast.cli.local.looking import asked_by_door
from holdfast.cli.watch.group_watch import GroupLag, GroupLags
from holdfast.cli.watch.known_topics import KnownTopics, Latest, put_aside
from holdfast.clients.blocking_driver import DriverError, Peer
from holdfast.cluster import ClusterError, LocalCluster
from holdfast.cluster.layout import NodeRecord
from holdfast.cluster.probe import Snapshot, ask
from holdfast.cluster.processes import State
from holdfast.cluster.quorum import QuorumState
from holdfast.lab.report.link_chart import bands_between
from holdfast.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from holdfast.wire.uuids import uuid_text
from holdfast.wire.well_known import LATEST

ANSWER_S = 0.5
FRESH_MS = 1000  # a broker asks for metadata at least every half second
WRONG = {"cut": "cut", "lose": "lossy", "slow": "slow", "answers": "answers swallowed"}
RUNNING = str(State.RUNNING)
UNKNOWN_LINKS = "not known: the network is gone, or the agent of its links does not answer"
INTERNAL = "__"  # begins the names of topics of the cluster's own

if TYPE_CHECKING:
    from holdfast.cluster.networked import Trouble

TopicPartition = tuple[str, int]
NO_IDS: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """One partition at one moment. `end`: up to where it can be read; None: nobody says."""

    leader: int
    epoch: int
    isr: tuple[int, ...]
    replicas: tuple[int, ...]
    end: int | None = None
    topic_id: str | None = None  # as Kafka writes it; None: nobody says

    def is_other_than(self, known: Partition) -> bool:
        """Say whether this is of another topic than `known`, of the same name."""
        return None not in {self.topic_id, known.topic_id} and self.topic_id != known.topic_id

    def is_older_than(self, known: Partition) -> bool:
        """Say whether this is of the same topic as `known` for certain, and was before it."""
        is_same = self.topic_id is not None and self.topic_id == known.topic_id
        return is_same and self.epoch < known.epoch


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One look at everything.

    `at_s` is that of the wall's clock, which may be set; what lasts is reckoned by `monotonic_s`.
    """

    at_s: float
    monotonic_s: float
    nodes: Mapping[int, str]  # states of processes, by node
    active: tuple[int, int] | None  # the active controller and its epoch
    answered: tuple[int, ...]  # brokers that told what they know of partitions
    knows_topics: bool = True  # one of them is known to know which topics there are (`has_latest`)
    all_agree: bool = False  # all brokers that run show which there are (`KnownTopics.agree`)
    with_zookeeper: bool = False  # which is not asked who is the active controller
    partitions: Mapping[TopicPartition, Partition] = field(default_factory=dict)
    put_aside: frozenset[TopicPartition] = frozenset()  # told of, but by who may be cut off
    links: Sequence[str] = ()  # those that are broken, in words
    troubles: Sequence[str] = ()  # what of its network does not serve
    is_blind: bool = False  # so that nodes can't be asked: what is not told is not known
    lags: Mapping[str, GroupLag] = field(default_factory=dict)  # by group

    @property
    def tells_all(self) -> bool:
        """Whether what is not told of is not there.

        Only a controller deletes, so a broker that does not know of a partition without one has
        started and not caught up. So may one of whom the controller has not heard yet, and one that
        is cut off has heard of nothing since. All of them together show it nevertheless.
        """
        is_told = self.knows_topics and self.active is not None
        return bool(self.answered) and (self.all_agree or is_told)


class Sampler:
    """Looks at one cluster again and again. A context manager."""

    def __init__(self, cluster: LocalCluster, topics: Sequence[str]) -> None:
        """`topics`: none for all but the cluster's own."""
        self._cluster = cluster
        self._topics = topics
        self._peers: dict[int, Peer] = {}
        self._known = KnownTopics()
        self._groups = GroupLags()

    def __enter__(self) -> Self:
        self._groups.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._groups.stop()
        for peer in self._peers.values():
            peer.close()

    def look(self) -> Sample:
        """Look now. ClusterError: there is no cluster any more."""
        cluster = self._cluster
        nodes = {node.id: str(cluster.state(node.id)) for node in cluster.nodes}
        if gone := self._gone():
            return self._unseen(nodes, (), gone)
        told, troubles = asked_by_door(cluster, lambda: self._told(nodes))
        gone = self._gone()  # it may have gone meanwhile, as a door may stop
        if told is None or gone:
            return self._unseen(nodes, troubles, gone)
        return replace(told, links=self._links(troubles), troubles=[str(each) for each in troubles])

    def _told(self, nodes: Mapping[int, str]) -> Sample:
        """Return what nodes tell, as far as they do so at once."""
        quorum = self._cluster.quorum()
        running = [node for node in self._cluster.record.brokers if nodes[node.id] == RUNNING]
        brokers = latest_first(running, quorum)
        self._groups.go_by({node.id: node.watch_address for node in brokers})
        answers = self._answers(brokers)
        agree = self._known.agree(answers, [node.id for node in running])
        ids = NO_IDS if agree else self._known.ids
        partitions, knows = told_by(answers, quorum, self._topics, ids)
        is_all = knows or agree
        self._known.take(
            answers,
            {place: Latest(each.topic_id, each.epoch) for place, each in partitions.items()},
            is_all=is_all,
        )
        ends = self._ends(partitions, nodes)
        is_older = self._cluster.record.zookeeper
        return Sample(
            at_s=time.time(),
            monotonic_s=time.monotonic(),
            nodes=nodes,
            active=None if quorum is None or quorum.leader < 0 else (quorum.leader, quorum.epoch),
            answered=tuple(answers),
            knows_topics=knows or (agree and is_older),
            all_agree=agree,
            with_zookeeper=is_older,
            partitions={
                place: replace(found, end=ends.get(place)) for place, found in partitions.items()
            },
            put_aside=frozenset() if is_all else put_aside(answers.values(), partitions.keys()),
            lags=self._groups.latest(),
        )

    def _gone(self) -> list[str]:
        """Return what is to be said of a network that has gone under its nodes; else nothing."""
        if self._cluster.record.network is not None:
            try:
                self._cluster.network().refuse_if_gone(self._cluster.record)
            except ClusterError as error:
                return [str(error)]
        return []

    def _unseen(
        self, nodes: Mapping[int, str], troubles: Sequence[Trouble], gone: Sequence[str]
    ) -> Sample:
        """Return what can be told while nobody can be asked: to try would take as long as it may.

        Of groups nothing: they are asked by the same way.
        """
        self._groups.go_by({})
        return Sample(
            at_s=time.time(),
            monotonic_s=time.monotonic(),
            nodes=nodes,
            active=None,
            answered=(),
            links=self._links(troubles),
            troubles=[*gone, *map(str, troubles)],
            is_blind=True,
        )

    def _answers(self, brokers: Iterable[NodeRecord]) -> dict[int, Snapshot]:
        """Return what brokers say of partitions, as far as they say it at once."""
        answers: dict[int, Snapshot] = {}
        for node in brokers:
            with suppress(ClusterError):
                answer = ask(
                    node.watch_address, self._topics or None, with_ids=True, timeout_s=ANSWER_S
                )
                answers |= {} if answer is None else {node.id: answer}
        return answers

    def _ends(
        self, partitions: Mapping[TopicPartition, Partition], nodes: Mapping[int, str]
    ) -> dict[TopicPartition, int]:
        """Return up to where partitions can be read, as far as their leaders answer at once."""
        by_leader: dict[int, list[TopicPartition]] = {}
        for place, found in partitions.items():
            if nodes.get(found.leader) == RUNNING:
                by_leader.setdefault(found.leader, []).append(place)
        ends: dict[TopicPartition, int] = {}
        for leader, places in by_leader.items():
            with suppress(DriverError, ClusterError):
                ends |= self._ends_at(leader, places)
        return ends

    def _ends_at(self, leader: int, places: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        peer = self._peers.get(leader)
        if peer is None or peer.is_stale():
            host, port = self._cluster.node(leader).watch_address
            peer = self._peers[leader] = Peer(host, port, "holdfast-watch", timeout_s=ANSWER_S)
        topics: dict[str, list[int]] = {}
        for topic, number in places:
            topics.setdefault(topic, []).append(number)
        asked = [
            ListOffsetsTopic(
                name=topic,
                partitions=[
                    ListOffsetsPartition(partition_index=number, timestamp=LATEST)
                    for number in numbers
                ],
            )
            for topic, numbers in topics.items()
        ]
        response = peer.send(ListOffsetsRequest(topics=asked))
        return {
            (topic.name, each.partition_index): each.offset
            for topic in response.topics
            for each in topic.partitions
            if not each.error_code
        }

    def _links(self, troubles: Iterable[Trouble]) -> list[str]:
        """Return the links that are broken. Who does not say so is not waited for for long."""
        if self._cluster.record.network is None:
            return []
        from holdfast.cluster.network.links.link_calls import LOOK_S  # noqa: PLC0415 - only with one

        if any(each.keeps_links for each in troubles):
            return [UNKNOWN_LINKS]
        try:
            links = self._cluster.links().within(LOOK_S).status()["links"]
        except ClusterError:
            return [UNKNOWN_LINKS]
        return in_words(links)


def in_words(links: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return links that are broken, in words: what is wrong with many alike is one line."""
    alike: dict[str, list[tuple[str, str]]] = {}
    for link in links:
        wrong = [word for word in ("cut", "lose", "slow", "answers") if link[word]]
        if wrong:
            alike.setdefault(", ".join(map(WRONG.__getitem__, wrong)), []).append(
                (link["from"], link["to"])
            )
    return [
        f"{band.name}: {wrong}" for wrong, pairs in alike.items() for band in bands_between(pairs)
    ]


def latest_first(brokers: Iterable[NodeRecord], quorum: QuorumState | None) -> list[NodeRecord]:
    """Return brokers, those first whose metadata are the latest.

    Of several that know of the same election the first one counts: the ISR changes without one, and
    who is cut off answers as well, and tells what once was.
    """
    return sorted(
        brokers, key=lambda node: (not has_latest(quorum, node.id), lag_of(quorum, node.id))
    )


def lag_of(quorum: QuorumState | None, node: int) -> float:
    """Return how many records of metadata a broker lacks, as the active controller sees it."""
    lag = None if quorum is None else quorum.lag(node)
    return math.inf if lag is None else lag


def has_latest(quorum: QuorumState | None, node: int) -> bool:
    """Say whether a broker is known to have the latest metadata, or had them a moment ago.

    To lack less than others is not enough: a controller remembers for minutes whom it no longer
    hears. To lack nothing at this moment is too much: the log of a busy cluster is always ahead.
    """
    if quorum is None or quorum.leader_log_end < 0:  # it is no voter any more: no end is known
        return False
    caught_up_ms = {each.id: each.last_caught_up_ms for each in (*quorum.observers, *quorum.voters)}
    at_ms = caught_up_ms.get(node, -1)
    is_fresh = at_ms > 0 and caught_up_ms[quorum.leader] - at_ms <= FRESH_MS
    return quorum.lag(node) == 0 or is_fresh


def told_by(
    answers: Mapping[int, Snapshot],
    quorum: QuorumState | None,
    topics: Sequence[str],
    ids: Mapping[str, str] = NO_IDS,
) -> tuple[dict[TopicPartition, Partition], bool]:
    """Return each partition as brokers tell of it, those first that lack least (`latest_first`).

    And whether the first of them is known to know which topics there are. While nobody is, a topic
    of which the id is known (`ids`) is that one: who tells of another may be cut off.
    """
    knows = any(has_latest(quorum, node) for node in list(answers)[:1])
    known = NO_IDS if knows else ids
    return latest_of([*answers.values()], topics, first_knows=knows, ids=known), knows


def latest_of(
    answers: Sequence[Snapshot],
    topics: Sequence[str],
    *,
    first_knows: bool,
    ids: Mapping[str, str] = NO_IDS,
) -> dict[TopicPartition, Partition]:
    """Return each partition as it is in the latest leader epoch; of several the first one's.

    `first_knows`: which topics there are is what the first answer says, whatever brokers tell that
    are cut off. Epochs are those of one topic: another one of that name begins anew. `ids`: those
    by which topics are known already; of the others the first one that is told counts.
    """
    told_ids = [
        {name: uuid_text(topic_id) for name, topic_id in answer.topic_ids.items()}
        for answer in answers
    ]
    known_ids = dict(ids)
    for told in told_ids:
        known_ids = {**told, **known_ids}
    there = {name for name, found in answers[0].topics.items() if found} if answers else set()
    latest: dict[TopicPartition, Partition] = {}
    for answer, told in zip(answers, told_ids, strict=True):
        for topic, found in answer.topics.items():
            if topic.startswith(INTERNAL) and topic not in topics:
                continue
            topic_id = known_ids.get(topic)
            is_other = told.get(topic, topic_id) != topic_id
            if is_other or (first_knows and topic not in there):
                continue
            for number, state in found.items():
                known = latest.get((topic, number))
                if known is None or state.leader_epoch > known.epoch:
                    latest[topic, number] = Partition(
                        leader=state.leader,
                        epoch=state.leader_epoch,
                        isr=tuple(state.isr),
                        replicas=tuple(state.replicas),
                        topic_id=topic_id,
                    )
    return dict(sorted(latest.items()))
