"""Following: one loop for each broker that leads something of ours.

Owns what is asked of which leader, and the applying of answers. A fetch at offset N tells the
leader that everything before N is in our log, so an answer is applied only while it still fits.
It never decides who leads: `assign` and `remove` say so.

Rules: replication.md#following, replication.md#a-fetch-acknowledges.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto

from holdfast.config.node import NodeSettings
from holdfast.core.metadata.image import PartitionKey
from holdfast.core.replica.throttle import Quota
from holdfast.log.errors import StorageError
from holdfast.node.broker.nudge import Nudge
from holdfast.node.broker.registration import Registration
from holdfast.node.broker.replica import FollowingReplica
from holdfast.runtime.dial import Connection, dial
from holdfast.runtime.ports import Runtime
from holdfast.runtime.tasks import Ended, cancelled
from holdfast.wire.errors import ErrorCode, error_code
from holdfast.wire.messages import fetch as wire
from holdfast.wire.messages import list_offsets
from holdfast.wire.well_known import EARLIEST, LATEST

logger = logging.getLogger("holdfast.fetcher")

VERSION = 17
LIST_OFFSETS_VERSION = 7
# A follower may hear of an election or of a new topic before the leader does. That is over in an
# instant, so the first retry is soon; only the later ones wait for replica.fetch.backoff.ms
# (rules: replication.md#refused-fetches).
NOT_YET_LEADING = (
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)
TOO_EARLY_MS = 20
TOO_EARLY_MAX = 10
THROTTLED_MS_MAX = 1000  # the quota may be raised or lifted meanwhile
LATE_S = 0.5  # of an answer that is late on purpose, in a simulation


@dataclass(frozen=True, slots=True, kw_only=True)
class FetcherSurroundings:
    """What a broker's fetchers share."""

    runtime: Runtime
    settings: NodeSettings
    registration: Registration
    endpoint: Callable[[int], tuple[str, int] | None]  # where brokers reach another one
    quota: Quota  # of what is throttled
    ended: Ended  # called when a loop ends, which without `close` is a mistake of ours


class State(Enum):
    FETCHING = auto()
    LOOKING = auto()  # our offset is not in the leader's log: asking where it begins and ends
    FENCED = auto()  # the leader epoch is over: only new metadata helps
    FAILED = auto()  # our disk failed


ASKING = (State.FETCHING, State.LOOKING)  # a tuple: a member of an enum is slow to hash


@dataclass(slots=True)
class Following:
    """One partition that is fetched, in one leader epoch."""

    replica: FollowingReplica
    state: State = State.FETCHING
    retry_at: float = 0.0  # loop time, seconds; not asked for before
    in_sync: bool = False  # as the last answer showed: its high watermark is not beyond our end
    too_early: int = 0  # how often the leader had not yet heard that it leads

    @property
    def position(self) -> tuple[int, int]:
        """What a fetch says of our log: its end, and its last epoch."""
        return self.replica.log.end, self.replica.log.latest_epoch


class LeaderFetcher:
    """Fetches from one broker, one request at a time."""

    def __init__(self, surroundings: FetcherSurroundings, source: int) -> None:
        self._shared = surroundings
        self._source = source
        self._following: dict[PartitionKey, Following] = {}
        self._changed = Nudge()
        self._parked = False  # a fetch is at the leader
        self._connection: Connection | None = None
        self._task: asyncio.Task[None] | None = None

    def assign(self, replica: FollowingReplica, *, in_sync: bool = False) -> None:
        """Fetch for a replica from now on, in its leader epoch; `in_sync`: it is in the ISR.

        The high watermark waits for members of the ISR. No throttle may hold back even their first
        fetch.
        """
        self._following[replica.key] = Following(replica, in_sync=in_sync)
        self._changed.set()
        if self._parked:
            # The leader may hold our fetch back for lack of data, and does not know of this
            # partition. Nothing is lost by asking again on a new connection.
            self._drop_connection()
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())
            self._task.add_done_callback(self._shared.ended)

    def remove(self, key: PartitionKey) -> None:
        self._following.pop(key, None)

    async def close(self) -> None:
        """Stop fetching."""
        await cancelled(self._task)
        if self._connection is not None:
            self._connection.close()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            self._changed.clear()
            now = loop.time()
            due = [f for f in self._following.values() if self._is_due(f, now)]
            if not due:
                await self._changed.wait(self._until_retry(now))
                continue
            try:
                await self._fetch(await self._connected(), due)
            except OSError as error:
                self._drop_connection()
                if not self._changed.is_set:
                    logger.info("fetching from broker %d: %s", self._source, error)
                    await self._changed.wait(self._shared.settings.replica_fetch_backoff_ms / 1000)

    def _is_due(self, following: Following, now: float) -> bool:
        if following.retry_at > now or following.state not in ASKING:
            return False
        if not following.replica.is_current:
            return False
        if following.replica.held.throttled.as_follower and not following.in_sync:
            wait_ms = self._shared.quota.wait_ms(self._shared.runtime.clock.monotonic_ms())
            if wait_ms:
                following.retry_at = now + min(wait_ms, THROTTLED_MS_MAX) / 1000
                return False
        return True

    def _until_retry(self, now: float) -> float | None:
        return min(
            (
                f.retry_at - now
                for f in self._following.values()
                if f.retry_at > now and f.state in ASKING
            ),
            default=None,
        )

    async def _connected(self) -> Connection:
        if self._connection is None or not self._connection.is_open:
            endpoint = self._shared.endpoint(self._source)
            if endpoint is None:
                raise ConnectionError("it is not registered")
            self._connection = await dial(
                self._shared.runtime,
                *endpoint,
                f"broker-{self._shared.registration.node}-fetcher",
                timeout_ms=self._shared.settings.replica_socket_timeout_ms,
            )
        return self._connection

    def _drop_connection(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    async def _fetch(self, connection: Connection, due: list[Following]) -> None:
        looking = [f for f in due if f.state is State.LOOKING]
        if looking:
            await self._look_up(connection, looking)
        fetching = [f for f in due if f.state is State.FETCHING and f.replica.is_current]
        if not fetching:
            return
        asked = {f.replica.key: (f, f.replica.log.end) for f in fetching}
        self._parked = True
        try:
            response: wire.FetchResponse = await connection.send(
                self._request(fetching),
                version=VERSION,
                timeout_ms=self._shared.settings.replica_socket_timeout_ms
                + self._shared.settings.replica_fetch_wait_max_ms,
            )
        finally:
            self._parked = False
        provoke = self._shared.runtime.provoke
        if provoke("fetcher.answer-lost"):
            raise ConnectionResetError("the answer is lost")
        if provoke("fetcher.answer-late"):
            await asyncio.sleep(LATE_S)
        if response.error_code:
            self._put_off(fetching, error_code(response.error_code).name)
            return
        for topic in response.responses:
            for data in topic.partitions:
                entry = asked.get((bytes(topic.topic_id), data.partition_index))
                if entry is not None and not provoke("fetcher.part-unread"):
                    self._apply(*entry, data)

    def _wait_ms(self) -> int:
        """How long the leader may hold the fetch back: not beyond the next retry of another."""
        retry_s = self._until_retry(asyncio.get_running_loop().time())
        longest = self._shared.settings.replica_fetch_wait_max_ms
        return longest if retry_s is None else min(longest, int(retry_s * 1000) + 1)

    def _request(self, fetching: list[Following]) -> wire.FetchRequest:
        topics: dict[bytes, list[wire.FetchPartition]] = {}
        for following in fetching:
            (topic_id, index), log = following.replica.key, following.replica.log
            topics.setdefault(topic_id, []).append(
                wire.FetchPartition(
                    partition=index,
                    current_leader_epoch=following.replica.leader_epoch,
                    fetch_offset=log.end,
                    last_fetched_epoch=log.latest_epoch,
                    log_start_offset=log.start,
                    partition_max_bytes=self._shared.settings.replica_fetch_max_bytes,
                )
            )
        return wire.FetchRequest(
            replica_state=wire.ReplicaState(
                replica_id=self._shared.registration.node,
                replica_epoch=self._shared.registration.epoch,
            ),
            max_wait_ms=self._wait_ms(),
            min_bytes=self._shared.settings.replica_fetch_min_bytes,
            max_bytes=self._shared.settings.replica_fetch_response_max_bytes,
            topics=[
                wire.FetchTopic(topic_id=topic_id, partitions=partitions)
                for topic_id, partitions in topics.items()
            ],
        )

    def _apply(self, following: Following, asked_at: int, data: wire.PartitionData) -> None:
        """Apply one partition's part of an answer, if it is still true of our log.

        Rules: replication.md#stale-answers.
        """
        if not self._is_assigned(following) or following.replica.log.end != asked_at:
            return  # a stale answer: what it says was true of another log or another epoch
        try:
            self._apply_current(following, data)
        except StorageError as error:
            if not error.is_offline:  # else the directory has told it, once for all its replicas
                logger.error("%s: %s", following.replica, error)  # noqa: TRY400 - the reason is the disk's
            following.state = State.FAILED

    def _is_assigned(self, following: Following) -> bool:
        """Whether it is still to be fetched from here, in that epoch."""
        return (
            self._following.get(following.replica.key) is following and following.replica.is_current
        )

    def _apply_current(self, following: Following, data: wire.PartitionData) -> None:
        replica = following.replica
        error = error_code(data.error_code)
        if not error and data.diverging_epoch.end_offset != -1:
            # Nothing else of such an answer counts: not its high watermark, not its log start.
            diverging, before = data.diverging_epoch, following.position
            replica.truncate_for(diverging.epoch, diverging.end_offset)
            if following.position == before:
                # It must not be, and if it is, asking the same at once would never end.
                self._put_off([following], f"told to cut at {diverging}, which changes nothing")
        elif not error:
            records = memoryview(data.records or b"")
            error = replica.append_fetched(records, data.high_watermark, data.log_start_offset)
            if error:
                self._put_off([following], f"what the leader sent can't be appended: {error.name}")
                return
            following.in_sync = data.high_watermark <= replica.log.end
            if records and replica.held.throttled.as_follower:
                self._shared.quota.record(len(records), self._shared.runtime.clock.monotonic_ms())
            if records:
                # Move it to the end of the next request. An answer is filled from its beginning,
                # so if all have much to fetch, the last ones would never get anything.
                self._following[following.replica.key] = self._following.pop(following.replica.key)
        elif error is ErrorCode.FENCED_LEADER_EPOCH:
            following.state = State.FENCED
        elif error is ErrorCode.OFFSET_OUT_OF_RANGE:
            following.state = State.LOOKING
        elif error in NOT_YET_LEADING:
            # Until we ask again the high watermark stands still, and with it every acks=all.
            wait_ms = min(
                TOO_EARLY_MS << following.too_early, self._shared.settings.replica_fetch_backoff_ms
            )
            following.too_early = min(following.too_early + 1, TOO_EARLY_MAX)
            self._put_off([following], error.name, wait_ms)
        else:
            self._put_off([following], error.name)

    def _put_off(self, following: list[Following], why: str, wait_ms: int | None = None) -> None:
        """Ask for these again after `wait_ms`, replica.fetch.backoff.ms when it is not given."""
        wait_ms = self._shared.settings.replica_fetch_backoff_ms if wait_ms is None else wait_ms
        retry_at = asyncio.get_running_loop().time() + wait_ms / 1000
        for each in following:
            each.retry_at = retry_at
        names = ", ".join(str(f.replica) for f in following[:5])
        logger.info("fetching %s from broker %d: %s", names, self._source, why)

    # -- our offset is not in the leader's log --------------------------------------------------

    async def _look_up(self, connection: Connection, looking: list[Following]) -> None:
        """Ask where the leader's log begins and ends, and cut ours to fit.

        Rules: replication.md#refused-fetches.
        """
        starts, latest = [
            _offsets(
                await connection.send(
                    self._offsets_request(looking, timestamp), version=LIST_OFFSETS_VERSION
                )
            )
            for timestamp in (EARLIEST, LATEST)
        ]
        for following in looking:
            name = (following.replica.held.topic, following.replica.held.index)
            if not self._is_assigned(following):
                continue  # meanwhile it follows another, or its topic is deleted and its log closed
            if name not in starts or name not in latest:
                self._put_off([following], "the leader did not say where its log begins and ends")
            else:
                self._cut(following, starts[name], latest[name])

    def _cut(self, following: Following, start: int, end: int) -> None:
        replica = following.replica
        try:
            if end < replica.log.end:
                replica.truncate_to(end)
            elif start > replica.log.end:
                replica.reset_to(start)
            else:
                self._put_off([following], "our offset is within the leader's log after all")
            following.state = State.FETCHING
        except StorageError as error:
            if not error.is_offline:  # else the directory has told it, once for all its replicas
                logger.error("%s: %s", replica, error)  # noqa: TRY400 - the reason is the disk's
            following.state = State.FAILED

    def _offsets_request(
        self, looking: list[Following], timestamp: int
    ) -> list_offsets.ListOffsetsRequest:
        topics: dict[str, list[list_offsets.ListOffsetsPartition]] = {}
        for following in looking:
            topics.setdefault(following.replica.held.topic, []).append(
                list_offsets.ListOffsetsPartition(
                    partition_index=following.replica.held.index,
                    current_leader_epoch=following.replica.leader_epoch,
                    timestamp=timestamp,
                )
            )
        return list_offsets.ListOffsetsRequest(
            replica_id=self._shared.registration.node,
            topics=[
                list_offsets.ListOffsetsTopic(name=name, partitions=partitions)
                for name, partitions in topics.items()
            ],
        )


def _offsets(response: list_offsets.ListOffsetsResponse) -> dict[tuple[str, int], int]:
    return {
        (topic.name, answer.partition_index): answer.offset
        for topic in response.topics
        for answer in topic.partitions
        if answer.error_code == ErrorCode.NONE
    }
