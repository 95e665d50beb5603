"""Our own client, for one process and one cluster: connections, and a fetch session a broker.

Owns what is in flight, and who leads what in which epoch: that never goes back, whatever a broker
says that was cut off. It tries nothing twice and waits for nothing but an answer: who reads decides
that, and sees each error as it is.

Rules: fetch.md#epoch-check, replication.md#diverging-logs.
"""

from __future__ import annotations

import os
from typing import Final, NamedTuple

from holdfast.clients.blocking_driver import (
    Driver,
    DriverError,
    NoLeaderError,
    Peer,
    UnreachableError,
)
from holdfast.clients.log_offsets import READ_COMMITTED, READ_UNCOMMITTED, told_by
from holdfast.pipelines.offsets import Partition
from holdfast.pipelines.reading.fetch_session import Asked, FetchSession, From, Limits
from holdfast.pipelines.reading.leaders import EpochEnd, Question, all_told, ends_told_by
from holdfast.pipelines.reading.way import Client, wire_settings
from holdfast.wire.administration import AdminError
from holdfast.wire.errors import ErrorCode, error_name
from holdfast.wire.frame import FRAME_SIZE_MAX
from holdfast.wire.messages.fetch import FetchRequest, FetchResponse, PartitionData
from holdfast.wire.messages.metadata import MetadataResponse
from holdfast.wire.uuids import NULL_UUID, uuid_text
from holdfast.wire.well_known import EARLIEST, LATEST

CONNECT_S: Final = 5.0
ANSWER_S: Final = 30.0
_METADATA_S: Final = 10.0
_LAST_BY_NAME: Final = 12  # from the next version of Fetch on a topic is its id
_FIRST_WITH_DIVERGENCE: Final = 12
_FETCH_BYTES_MAX: Final = FRAME_SIZE_MAX - 1024 * 1024  # what stands around it has to fit as well


class _InFlight(NamedTuple):
    peer: Peer
    session: FetchSession
    asked: Asked


class Lead(NamedTuple):
    """Who leads a partition, in which epoch (-1: the cluster tells none), and the topic's id."""

    node: int
    epoch: int
    topic_id: bytes


class Least(NamedTuple):
    """The newest epoch that is known of, and the topic whose it is (None: whichever it is)."""

    epoch: int
    topic_id: str | None


class Bounds(NamedTuple):
    """Where a log begins, where what may be read of it ends, and in which epoch that was told."""

    start: int
    end: int
    epoch: int


class Answer(NamedTuple):
    """What a broker said about one partition."""

    error: int  # of the whole request: the session's, mostly
    data: PartitionData | None  # None: nothing new


class WireClient:
    """Connections to the brokers of one cluster. One fetch is in flight at most."""

    def __init__(self, client: Client) -> None:
        """Nothing is sent yet."""
        settings = wire_settings(client)
        self.settings = settings
        self.isolation = READ_COMMITTED if settings.is_committed else READ_UNCOMMITTED
        self._driver = Driver(
            settings.bootstrap, settings.client_id, timeout_s=_METADATA_S, connect_s=CONNECT_S
        )
        self._sessions: dict[int, FetchSession] = {}
        self._in_flight: _InFlight | None = None
        self._leads: dict[tuple[str, int], Lead] = {}
        self._process = os.getpid()

    @property
    def is_asking(self) -> bool:
        """Whether an answer is outstanding."""
        return self._in_flight is not None

    # -- who leads ---------------------------------------------------------------------------------

    def leader(
        self,
        topic: str,
        number: int,
        *,
        refresh: bool,
        least_epoch: int = -1,
        topic_id: str | None = None,
    ) -> Lead:
        """Return who leads a partition. DriverError and its kinds.

        Who tells of an epoch before `least_epoch`, or before one that was told already, was cut off
        from the cluster, and so was the leader that it names: then all brokers are asked. The least
        is that of the topic with `topic_id`: another one of its name begins at 0. Who tells of that
        other one may not have heard of the one that is meant: its lead is returned only where each
        broker answers, and none knows that.
        """
        self._check_process()
        least = Least(least_epoch, topic_id)
        known = self._leads.get((topic, number))
        if (
            known is not None
            and not refresh
            and is_meant(known.topic_id, topic_id)
            and not _is_older(known, least)
        ):
            return known
        told = self._driver.metadata([topic])
        found = _lead(told, topic, number)
        if (
            isinstance(found, NoLeaderError)
            or not is_meant(found.topic_id, topic_id)
            or _is_older(found, least, known)
        ):
            found = self._newest(told, topic, number, found, topic_id)
        if isinstance(found, NoLeaderError):
            raise found
        if _is_older(found, least, known):
            raise NoLeaderError(
                f"{topic}-{number}: its leader of epoch {found.epoch} was followed by another one, "
                "and no broker that answers names that",
                ErrorCode.LEADER_NOT_AVAILABLE,
            )
        self._leads[topic, number] = found
        return found

    def _newest(
        self,
        told: MetadataResponse,
        topic: str,
        number: int,
        first: Lead | NoLeaderError,
        topic_id: str | None,
    ) -> Lead | NoLeaderError:
        """Ask the brokers that are named; return what is known of the newest epoch.

        What is told of the topic that is meant counts before what is told of another one.
        """

        def rank(found: Lead | NoLeaderError) -> tuple[bool, int]:
            if isinstance(found, NoLeaderError):
                return False, -2
            return is_meant(found.topic_id, topic_id), found.epoch

        newest, may_be_known = first, False
        for one in all_told(self._driver, told.brokers, [topic]):
            found = None if one is None else _lead(one, topic, number)
            if isinstance(found, Lead) and rank(found) > rank(newest):
                newest = found
            may_be_known = may_be_known or one is None or _knows(one, topic, topic_id)
        if may_be_known and isinstance(newest, Lead) and not rank(newest)[0]:
            return NoLeaderError(
                f"{topic}-{number}: who leads it is told of another topic of its name, and not of "
                f"the one with id {topic_id}",
                ErrorCode.UNKNOWN_TOPIC_ID,
            )
        return newest

    def is_gone(self, topic: str) -> bool:
        """Return whether each broker of the cluster answers, and none of them knows the topic."""
        try:
            told = self._driver.metadata([topic])
        except DriverError:
            return False
        return bool(told.brokers) and all(
            one is not None
            and [found.error_code for found in one.topics] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
            for one in all_told(self._driver, told.brokers, [topic])
        )

    # -- fetching ----------------------------------------------------------------------------------

    def ask(self, lead: Lead, node: int, topic: Asked, place: From, fetch_bytes: int) -> bool:
        """Send a fetch to the leader, or to a replica that it prefers.

        Return whether it is of the topic with that id: brokers of before Kafka 3.1 take names only.
        UnsupportedError: its Fetch is too old for us. DriverError: it can't be sent.
        """
        assert self._in_flight is None, "an answer is outstanding"
        settings = self.settings
        peer = self._driver.peer(node)
        limits = Limits(
            settings.wait_ms,
            settings.min_bytes,
            min(fetch_bytes, settings.response_bytes_max, _FETCH_BYTES_MAX),
            min(fetch_bytes, settings.partition_bytes_max, _FETCH_BYTES_MAX),
            self.isolation,
            settings.rack,
        )
        version = peer.version_of(FetchRequest)
        if topic.topic_id == NULL_UUID:
            version = min(version, _LAST_BY_NAME)
        if version < _FIRST_WITH_DIVERGENCE:
            place = place._replace(last_epoch=-1)
        session = self._sessions.setdefault(node, FetchSession())
        request = session.request({topic: place._replace(leader_epoch=lead.epoch)}, limits)
        try:
            peer.post(request, version=version)
        except BaseException:
            session.reset()
            raise
        self._in_flight = _InFlight(peer, session, topic)
        return version > _LAST_BY_NAME

    def take(self, timeout_s: float) -> Answer:
        """Wait for the answer. DriverError: none came, and the connection is closed."""
        self._check_process()
        assert self._in_flight is not None, "nothing was asked"
        peer, session, asked = self._in_flight
        self._in_flight = None
        try:
            response = peer.take(timeout_s=timeout_s + self.settings.wait_ms / 1000)
        except BaseException:
            session.reset()
            peer.close()
            raise
        assert isinstance(response, FetchResponse)
        return Answer(response.error_code, session.answered(response).get(asked))

    def _check_process(self) -> None:
        """UnreachableError: this process has forked, and the connections are its parent's."""
        if os.getpid() != self._process:
            raise UnreachableError("the connections are those of the process that forked")

    # -- what the leader says of its log -----------------------------------------------------------

    def log_bounds(self, topic: str, number: int, lead: Lead) -> Bounds | None:
        """Return where the log begins and ends. None: the leader of that epoch does not say.

        A leader tells the end when it is sure of it (KIP-207).
        """
        key, told = (topic, number), []
        for moment in (EARLIEST, LATEST):
            try:
                peer = self._driver.peer(lead.node)
                one = told_by(peer, {key: moment}, isolation=self.isolation, epoch=lead.epoch)[key]
            except DriverError:
                return None
            if isinstance(one, AdminError) or one.offset < 0:
                return None
            told.append(one)
        return Bounds(told[0].offset, told[1].offset, told[1].leader_epoch)

    def epoch_end(self, topic: str, number: int, lead: Lead, epoch: int) -> EpochEnd | None:
        """Return up to where the leader's log is that of `epoch` and of epochs before.

        None: it can't tell. DriverError and its kinds: it is not asked rightly, or does not answer.
        """
        partition = Partition(topic, number)
        asked = {partition: Question(epoch, lead.epoch)}
        ends, refused = ends_told_by(self._driver.peer(lead.node), asked)
        if partition in refused:
            code = refused[partition]
            raise NoLeaderError(f"{partition}: where epoch {epoch} ends: {error_name(code)}", code)
        return ends.get(partition)

    def close(self) -> None:
        self._driver.close()
        self._in_flight = None


def _lead(told: MetadataResponse, topic: str, number: int) -> Lead | NoLeaderError:
    """Read who leads a partition, or why nobody does."""
    found = next((one for one in told.topics if one.name == topic), None)
    name, code = f"topic {topic!r}", found.error_code if found is not None else 0
    for one in found.partitions if found is not None and not code else ():
        if one.partition_index == number:
            if one.leader_id >= 0:
                assert found is not None
                return Lead(one.leader_id, one.leader_epoch, found.topic_id)
            name, code = f"{topic}-{number}", one.error_code or ErrorCode.LEADER_NOT_AVAILABLE
    code = code or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return NoLeaderError(f"{name}: {error_name(code)}", code)


def is_meant(found: bytes, topic_id: str | None) -> bool:
    """Return whether it may be the id of the topic that is meant: not each broker tells ids."""
    return topic_id is None or found == NULL_UUID or uuid_text(found) == topic_id


def _knows(told: MetadataResponse, topic: str, topic_id: str | None) -> bool:
    """Return whether a broker knows the topic that is meant, whoever leads it."""
    return any(
        one.name == topic and not one.error_code and is_meant(one.topic_id, topic_id)
        for one in told.topics
    )


def _is_older(found: Lead, least: Least, known: Lead | None = None) -> bool:
    """Return whether a leader is one of before. Epochs of another topic say nothing of this one."""
    is_known = least.topic_id in {None, uuid_text(found.topic_id)}
    least_epoch = least.epoch if is_known else -1
    if known is not None and known.topic_id == found.topic_id:
        least_epoch = max(least_epoch, known.epoch)
    return 0 <= found.epoch < least_epoch
