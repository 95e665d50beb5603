"""Our own client, for one process and one cluster: connections, and a fetch session a broker.

Owns what is in flight. It tries nothing twice and waits for nothing but an answer: who reads
decides that, and sees each error as it is.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from holdfast.clients.blocking_driver import Driver, DriverError, Peer
from holdfast.clients.log_offsets import READ_COMMITTED, READ_UNCOMMITTED, offsets_at
from holdfast.pipelines.reading.fetch_session import Asked, FetchSession, Limits
from holdfast.pipelines.reading.way import Client, wire_settings
from holdfast.wire.administration import AdminError
from holdfast.wire.frame import FRAME_SIZE_MAX
from holdfast.wire.messages.fetch import FetchRequest, FetchResponse, PartitionData
from holdfast.wire.uuids import NULL_UUID
from holdfast.wire.well_known import EARLIEST, LATEST

CONNECT_S: Final = 5.0
ANSWER_S: Final = 30.0
_METADATA_S: Final = 10.0
_OFFSETS_S: Final = 2.0
_LAST_BY_NAME: Final = 12  # from the next version of Fetch on a topic is its id
_FETCH_BYTES_MAX: Final = FRAME_SIZE_MAX - 1024 * 1024  # what stands around it has to fit as well


class _InFlight(NamedTuple):
    peer: Peer
    session: FetchSession
    asked: Asked


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

    @property
    def is_asking(self) -> bool:
        """Whether an answer is outstanding."""
        return self._in_flight is not None

    def leader(self, topic: str, number: int, *, refresh: bool) -> tuple[int, bytes]:
        """Return who leads a partition, and the topic's id. DriverError and its kinds."""
        leader = self._driver.leader(topic, number, refresh=refresh)
        return leader, self._driver.topic_id(topic)

    def ask(self, node: int, asked: Asked, offset: int, fetch_bytes: int) -> None:
        """Send a fetch. DriverError: it can't be sent."""
        assert self._in_flight is None, "an answer is outstanding"
        settings = self.settings
        peer = self._driver.peer(node)
        session = self._sessions.setdefault(node, FetchSession())
        limits = Limits(
            settings.wait_ms,
            settings.min_bytes,
            min(fetch_bytes, settings.response_bytes_max, _FETCH_BYTES_MAX),
            min(fetch_bytes, settings.partition_bytes_max, _FETCH_BYTES_MAX),
            self.isolation,
            settings.rack,
        )
        version = peer.version_of(FetchRequest)
        if asked.topic_id == NULL_UUID:
            version = min(version, _LAST_BY_NAME)
        request = session.request({asked: offset}, limits)
        try:
            peer.post(request, version=version)
        except BaseException:
            session.reset()
            raise
        self._in_flight = _InFlight(peer, session, asked)

    def take(self, timeout_s: float) -> Answer:
        """Wait for the answer. DriverError: none came, and the connection is closed."""
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

    def log_bounds(self, topic: str, number: int) -> tuple[int, int] | None:
        """Return where the log begins, and where what may be read ends. None: nobody says.

        A leader tells the end when it is sure of it (KIP-207).
        """
        bounds = []
        for moment in (EARLIEST, LATEST):
            key = topic, number
            try:
                told = offsets_at(
                    self._driver, {key: moment}, isolation=self.isolation, patience_s=_OFFSETS_S
                )[key]
            except DriverError:
                return None
            if isinstance(told, AdminError) or told.offset < 0:
                return None
            bounds.append(told.offset)
        return bounds[0], bounds[1]

    def close(self) -> None:
        self._driver.close()
        self._in_flight = None
