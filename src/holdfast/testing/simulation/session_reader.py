"""A consumer in fetch sessions (KIP-227): it names what has changed, and is told what has.

Owns what each broker is believed to remember, and what a request may be answered with: nothing that
there is to read is left out, and a request that is not the next one of its session is refused.

Rules: fetch.md#fetch-sessions.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from holdfast.core.replica.session_cache import EPOCH_MAX, FINAL, FULL, NO_SESSION
from holdfast.runtime.dial import Connection
from holdfast.testing.simulated_client import FETCH_VERSION, AnswerError, check
from holdfast.testing.simulation.ends import Ends, ends_at, is_same
from holdfast.testing.simulation.invariants import Invariant
from holdfast.testing.simulation.readers import FETCH_BYTES, SimulatedReader
from holdfast.testing.simulation.truth import PartitionTruth
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages import fetch as wire

_STRANGE: Final = 0.04  # how often a request names another session or epoch than its own
_ENDS: Final = 0.02  # how often it ends its session
_GOES_ON: Final = 0.5  # how often it keeps one in which a broker says that it does not lead
_WAIT_MS: Final = 100
_ANSWER_BYTES: Final = 1 << 20
_GONE: Final = (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH)


class _Place(NamedTuple):
    """What a request says of a partition."""

    topic_id: bytes
    offset: int


@dataclass(slots=True)
class _Session:
    """What one broker remembers, as far as we know."""

    session_id: int = NO_SESSION
    epoch: int = FULL  # of the next request
    told: dict[int, _Place] = field(default_factory=dict)
    left_out: dict[int, int] = field(default_factory=dict)  # answers in a row without its records
    connection: Connection | None = None  # that of its last request


class _Promised(NamedTuple):
    """What a node had to read when it was asked."""

    truth: PartitionTruth
    ends: Ends


class SessionReader(SimulatedReader):
    """Asks each leader for all that it leads, in one request."""

    _sessions: dict[int, _Session] | None = None

    async def _turn(self) -> None:
        sessions = self._sessions = self._sessions or {}
        led: dict[int, list[int]] = {}
        for partition in self._next:
            try:
                leader = await self._client.leader(self._plan.topic, partition)
            except (OSError, AnswerError):
                self._client.forget()
                continue
            led.setdefault(leader, []).append(partition)
        for node, partitions in led.items():
            session = sessions.setdefault(node, _Session())
            try:
                await self._ask(node, session, partitions)
            except (OSError, AnswerError):
                # Whether it came is not known: the next request ends that session.
                sessions[node] = _Session(session.session_id)
                self._client.forget()

    async def _ask(self, node: int, session: _Session, partitions: list[int]) -> None:
        """Ask one broker once for all that it leads."""
        client, topic = self._client, self._plan.topic
        connection = await client.reach(node)
        is_new = session.epoch == FULL
        if not is_new and self._draw.random() < _STRANGE:
            await self._ask_strangely(node, session)
        if not is_new and self._draw.random() < _ENDS:
            session.epoch = FINAL
            self._oracle.counts["fetch sessions that a reader ended"] += 1
        wanted = {n: _Place(client.topic_ids[topic], self._next[n]) for n in partitions}
        promised = {n: self._promised(n, node) for n in partitions}
        leading = {n: self.true_leader(n, node) for n in partitions}
        response = await client.ask(
            self._request(session, wanted), node=node, version=FETCH_VERSION
        )
        if response.error_code in _GONE:
            self._oracle.counts["fetch sessions that were gone"] += 1
            # A broker that has started anew has other connections.
            self._oracle.counts["fetch sessions evicted"] += session.connection is connection
        check(f"fetch in session {session.session_id}", response.error_code)
        self._go_on(session, response.session_id, wanted, connection)
        answered = {
            data.partition_index: data for each in response.responses for data in each.partitions
        }
        records = {n for n, data in answered.items() if data.records}
        for n in partitions:
            if n not in records:
                self._left_out(session, n, promised[n], answered.get(n), alone=not records)
        for n in records:
            session.left_out.pop(n, None)
            self._oracle.counts["records read in sessions"] += self.take(n, answered[n])
        for n in partitions:
            if n not in answered or not answered[n].error_code:
                self.came(n)
        for n, data in answered.items():
            if data.error_code:
                self.refused(n, node, leading.get(n), data.error_code)
            if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                await self._out_of_range(n, nearest=False)
            elif (
                data.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
                and self._draw.random() < _GOES_ON
            ):
                # Most clients go on, too: the broker has to remember what it has not told.
                self._oracle.counts["fetch sessions that went on after an error"] += 1
                client.forget()
            else:
                check(f"fetch of {topic}-{n} in a session", data.error_code)

    def _request(self, session: _Session, wanted: dict[int, _Place]) -> wire.FetchRequest:
        """Name all in a first request and in a last one, else what has changed."""
        is_whole = session.epoch in (FULL, FINAL)
        told = {} if is_whole else session.told
        named: dict[bytes, list[wire.FetchPartition]] = {}
        # Those first that were left out: none but the first one is given a batch that is larger
        # than asked for, and without a session nobody else gives each its turn.
        for n in sorted(wanted, key=lambda n: -session.left_out.get(n, 0)):
            place = wanted[n]
            if told.get(n) != place:
                asked = wire.FetchPartition(
                    partition=n, fetch_offset=place.offset, partition_max_bytes=FETCH_BYTES
                )
                named.setdefault(place.topic_id, []).append(asked)
        forgotten: dict[bytes, list[int]] = {}
        for n, place in told.items():
            if n not in wanted or wanted[n].topic_id != place.topic_id:
                forgotten.setdefault(place.topic_id, []).append(n)
        return wire.FetchRequest(
            max_wait_ms=_WAIT_MS,
            min_bytes=1,
            max_bytes=_ANSWER_BYTES,
            session_id=session.session_id,
            session_epoch=session.epoch,
            topics=[wire.FetchTopic(topic_id=key, partitions=each) for key, each in named.items()],
            forgotten_topics_data=[
                wire.ForgottenTopic(topic_id=key, partitions=each)
                for key, each in forgotten.items()
            ],
        )

    def _go_on(
        self,
        session: _Session,
        session_id: int,
        wanted: dict[int, _Place],
        connection: Connection,
    ) -> None:
        """Take in what the broker says of the session."""
        counts = self._oracle.counts
        if session_id == NO_SESSION:
            counts["fetch sessions that found no room"] += session.epoch == FULL
            session.session_id, session.epoch = NO_SESSION, FULL
        else:
            counts["fetch sessions of readers"] += session.epoch == FULL
            counts["requests in a fetch session"] += session.epoch != FULL
            session.session_id, session.epoch = session_id, session.epoch + 1
        session.told, session.connection = dict(wanted), connection

    async def _ask_strangely(self, node: int, session: _Session) -> None:
        """Name an epoch or a session that isn't ours. The session itself is none the worse."""
        draw = self._draw
        epoch = draw.choice((session.epoch - 1, session.epoch + 1, 1 + draw.randrange(EPOCH_MAX)))
        other_id, other_epoch = session.session_id, epoch
        if draw.random() < 0.5:
            other_id, other_epoch = 1 + draw.randrange(EPOCH_MAX), session.epoch
        if (other_id, other_epoch) == (session.session_id, session.epoch) or other_epoch == FULL:
            return
        request = wire.FetchRequest(
            max_wait_ms=_WAIT_MS, min_bytes=1, session_id=other_id, session_epoch=other_epoch
        )
        response = await self._client.ask(request, node=node, version=FETCH_VERSION)
        self._oracle.counts["requests of a strange fetch session"] += 1
        if response.error_code == ErrorCode.NONE:
            self._oracle.fail(
                Invariant.SESSION_IS_HELD,
                f"{self._process}: node {node} answered session {other_id} at {other_epoch};"
                f" ours is {session.session_id} at {session.epoch}",
            )

    # -- what may be left out ------------------------------------------------------------------

    def _promised(self, partition: int, node: int) -> _Promised | None:
        """What this node has that we have not read; None: nothing."""
        truth = self._oracle.named(self._plan.topic, partition)
        ends = None if truth is None else ends_at(truth, node)
        if truth is None or ends is None:
            return None
        low, high = self._next[partition], ends.replica.high_watermark
        # Who began anew may know a high watermark below all that compaction has left.
        left = any(
            not truth.is_gone(entry.epoch, range(entry.base, entry.last + 1))
            for entry in ends.replica.chain.between(low, high)
        )
        return _Promised(truth, ends) if low < high and left else None

    def _left_out(
        self,
        session: _Session,
        partition: int,
        promised: _Promised | None,
        data: wire.PartitionData | None,
        *,
        alone: bool,
    ) -> None:
        """No records came of it. Others may have filled the answer, but not for ever.

        `alone`: no records came at all.
        """
        node = -1 if promised is None else promised.ends.replica.node
        if (
            promised is None
            or not is_same(promised.truth, node, promised.ends)
            or (data is not None and data.error_code)
        ):
            session.left_out.pop(partition, None)
            return
        times = session.left_out[partition] = session.left_out.get(partition, 0) + 1
        if alone or times > len(session.told) + 1:
            self._oracle.fail(
                Invariant.SESSION_TELLS_ALL,
                f"{self._process} at {self._next[partition]} of {self._plan.topic}-{partition},"
                f" {times} answers of node {node} in session {session.session_id} without a"
                f" record of it\n{promised.truth}",
            )
