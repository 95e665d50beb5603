"""Following: one loop for each broker that leads something of ours.

Owns what is asked of which leader, and the applying of answers. A fetch at offset N tells the
leader that everything before N is in our log, so an answer is applied only while it still fits.
A round touches what has moved, and nothing else. It never decides who leads: `assign` and `remove`
say so.

Rules: replication.md#following, replication.md#a-fetch-acknowledges.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from holdfast.core.metadata.image import PartitionKey
from holdfast.core.replica.follower_session import (
    SESSION_ERRORS,
    FollowerSession,
    Position,
    Question,
)
from holdfast.log.errors import StorageError
from holdfast.node.broker.apart_fetcher import ApartFetcher
from holdfast.node.broker.fetch_lane import (
    FetcherSurroundings,
    FetchLane,
    fetch_request,
    forgotten_topics,
    frame_bytes_max,
    records_bytes_max,
)
from holdfast.node.broker.following import Following, Pauses, State
from holdfast.node.broker.nudge import Nudge
from holdfast.node.broker.replica import FollowingReplica
from holdfast.runtime.dial import UnreadableAnswerError
from holdfast.runtime.tasks import cancelled
from holdfast.wire.errors import ErrorCode, error_code
from holdfast.wire.messages import fetch as wire

logger = logging.getLogger("holdfast.fetcher")

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
FAILURES_MAX = 3  # fetches in a row without an answer, until somebody is suspected
LATE_S = 0.5  # of an answer that is late on purpose, in a simulation


class LeaderFetcher:
    """Fetches from one broker, one request at a time."""

    def __init__(self, surroundings: FetcherSurroundings, source: int) -> None:
        self.answers = 0  # that have come and could be read
        self.batch_bytes = 0  # the largest batch that may lie in one of the logs
        self._shared = surroundings
        self._source = source
        self._following: dict[PartitionKey, Following] = {}
        self._session = FollowerSession()
        self._pauses = Pauses(self._due)
        self._throttled: dict[PartitionKey, Following] = {}  # named, and behind
        self._lane = FetchLane(surroundings, source, "fetcher")
        self._changed = Nudge()
        self._failures = 0
        self._task: asyncio.Task[None] | None = None
        self._apart = ApartFetcher(surroundings, source, self)
        self._newcomers = _Newcomers(surroundings, source, self)

    @property
    def set_aside(self) -> list[Following]:
        """What others do not wait for, each with its trouble."""
        return self._apart.aside

    def assign(self, replica: FollowingReplica, *, in_sync: bool = False) -> None:
        """Fetch for a replica from now on, in its leader epoch; `in_sync`: it is in the ISR.

        The high watermark waits for members of the ISR. No throttle may hold back even their first
        fetch.
        """
        following = self._following[replica.key] = Following(replica, in_sync=in_sync)
        self._session.forget(replica.key)  # an answer that is on its way is of another epoch
        self.arrive(following)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())
            self._task.add_done_callback(self._shared.ended)

    def remove(self, key: PartitionKey) -> None:
        if self._following.pop(key, None) is not None:
            self._leave(key)

    def allow(self, batch_bytes: int) -> None:
        """A topic may have batches of this size now."""
        if batch_bytes > self.batch_bytes:
            self.batch_bytes = batch_bytes
            self._lane.bytes_max = self.answer_bytes_max(len(self._session.members))

    async def close(self) -> None:
        """Stop fetching."""
        self._pauses.close()
        await cancelled(self._task)
        await self._apart.close()
        await self._newcomers.close()
        self._lane.drop()

    # -- who is asked for ----------------------------------------------------------------------

    def arrive(self, following: Following) -> None:
        """Ask for it in the next request.

        While a fetch is at the leader, who may hold it back for lack of data and does not know of
        this partition, it is asked for beside.
        """
        self.allow(following.replica.held.settings.max_message_bytes)
        self._session.name(following.replica.key)
        self._changed.set()
        self._newcomers.come()

    def is_assigned(self, following: Following) -> bool:
        """Whether it is still to be fetched from here, in that epoch."""
        return (
            self._following.get(following.replica.key) is following and following.replica.is_current
        )

    def answer_bytes_max(self, partitions: int) -> int:
        """Return how large an answer about so many partitions may be."""
        records_max = records_bytes_max(self._shared.settings, self.batch_bytes)
        return frame_bytes_max(records_max, partitions)

    def newcomers(self) -> dict[PartitionKey, Position]:
        """Return what no request has named yet."""
        found = ((key, self._position(key)) for key in list(self._session.news))
        return {key: position for key, position in found if position is not None}

    def _leave(self, key: PartitionKey) -> None:
        self._session.forget(key)
        self._throttled.pop(key, None)

    def _due(self, following: Following) -> None:
        if self.is_assigned(following):
            self._apart.bring_back(following)

    def _position(self, key: PartitionKey) -> Position | None:
        """What a request has to say of a partition; None: it is not to be asked for now."""
        following = self._following.get(key)
        if following is None or not following.replica.is_current:
            return None
        if following.replica.held.throttled.as_follower and not following.in_sync:
            wait_ms = self._throttled_ms()
            if wait_ms:
                self._pauses.add(following, wait_ms)
                return None
            self._throttled[key] = following
        return following.position

    def _throttled_ms(self) -> int:
        wait_ms = self._shared.quota.wait_ms(self._shared.runtime.clock.monotonic_ms())
        return min(wait_ms, THROTTLED_MS_MAX)

    # -- the loop ------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            self._changed.clear()
            if not self._session.is_needed:
                await self._changed.wait()
                continue
            try:
                if await self._lane.connect():
                    self._session.lost()
            except OSError as error:
                await self._pause(error)
                continue
            question = self._session.next(self._position)
            if question is not None:
                try:
                    await self._fetch(question)
                except OSError as error:
                    await self._failed(error)

    async def _pause(self, error: OSError) -> None:
        if not self._changed.is_set:
            logger.info("fetching from broker %d: %s", self._source, error)
            await self._changed.wait(self._shared.settings.replica_fetch_backoff_ms / 1000)

    async def _failed(self, error: OSError) -> None:
        """No answer has come. Perhaps one partition is to blame, and the others must go on."""
        self._lane.drop()
        asked = [self._following[key] for key in self._session.members if key in self._following]
        self._session.lost()
        self._failures += 1
        is_unreadable = isinstance(error, UnreadableAnswerError)
        if is_unreadable or self._failures >= FAILURES_MAX:
            logger.warning(
                "an answer of broker %d about %d partitions can't be had: %s. They are asked for"
                " apart, half by half, until the one that is to blame is known",
                self._source, len(asked), error,
            )  # fmt: skip
            for following in asked:
                self._leave(following.replica.key)
            self._apart.suspect(asked)
        if not is_unreadable:
            await self._pause(error)

    async def _fetch(self, question: Question) -> None:
        provoke = self._shared.runtime.provoke
        self._newcomers.begin()
        try:
            response = await self._ask(question)
            if provoke("fetcher.answer-lost"):
                raise ConnectionResetError("the answer is lost")
            if provoke("fetcher.answer-late"):
                await asyncio.sleep(LATE_S)
        finally:
            self._newcomers.end()
        code = error_code(response.error_code)
        if code in SESSION_ERRORS:
            self._session.refused(code)
            self._failures += 1
            if self._failures > 1:
                await self._pause(ConnectionResetError(code.name))
            return
        if code:
            raise ConnectionResetError(code.name)
        self.answers += 1
        self._failures = 0
        self._session.answered(response.session_id)
        self._take(question, response)

    async def _ask(self, question: Question) -> wire.FetchResponse:
        wait_ms = 0 if question.has_more else self._shared.settings.replica_fetch_wait_max_ms
        request = fetch_request(self._shared, question.named, wait_ms)
        request.session_id, request.session_epoch = question.session_id, question.session_epoch
        request.forgotten_topics_data = forgotten_topics(question.forgotten)
        self._lane.bytes_max = self.answer_bytes_max(len(self._session.members))
        response: wire.FetchResponse = await self._lane.ask(request, wait_ms=wait_ms)
        return response

    def _take(self, question: Question, response: wire.FetchResponse) -> None:
        """Apply an answer, as far as it is about what is wanted still."""
        session, provoke = self._session, self._shared.runtime.provoke
        unanswered = question.named.copy() if question.is_full else {}
        for topic in response.responses:
            topic_id = bytes(topic.topic_id)
            for data in topic.partitions:
                key = topic_id, data.partition_index
                unanswered.pop(key, None)
                following, told = self._following.get(key), session.told(key)
                if following is None or told is None:
                    continue
                if provoke("fetcher.part-unread"):
                    session.doubt(key)
                elif self.apply(following, told.end, data):
                    session.settle(key, following.position)
        for key in unanswered:
            following = self._following.get(key)
            if following is not None and session.told(key) is not None:
                self._put_off(following, "the leader does not answer for it")
        if self._throttled:
            self._hold_back()

    def take_beside(
        self, asked: Mapping[PartitionKey, Position], response: wire.FetchResponse
    ) -> None:
        """Apply an answer about newcomers: the next request goes on where that leaves them."""
        for topic in response.responses:
            for data in topic.partitions:
                key = bytes(topic.topic_id), data.partition_index
                following, position = self._following.get(key), asked.get(key)
                if following is None or position is None or key not in self._session.news:
                    continue
                if position.leader_epoch == following.replica.leader_epoch:
                    self.apply(following, position.end, data)
        if self._throttled:
            self._hold_back()

    def _hold_back(self) -> None:
        """Put off what is throttled and behind, if the quota is used up."""
        wait_ms = self._throttled_ms()
        if wait_ms:
            throttled, self._throttled = self._throttled, {}
            for key, following in throttled.items():
                if not following.in_sync:
                    self._session.forget(key)
                    self._pauses.add(following, wait_ms)

    # -- answers -------------------------------------------------------------------------------

    def apply(self, following: Following, asked_at: int, data: wire.PartitionData) -> bool:
        """Apply one partition's part of an answer, if it is still true of our log.

        True: go on and ask for what follows. Rules: replication.md#stale-answers.
        """
        if not self.is_assigned(following):
            return False
        if following.replica.log.end != asked_at:
            # What it says was true of another log or another epoch.
            self._session.doubt(following.replica.key)
            return False
        try:
            return self._apply_current(following, data)
        except StorageError as error:
            self.fail(following, error)
            return False

    def fail(self, following: Following, error: StorageError) -> None:
        """Our disk did not do it: without its directory this is over, else it tries again."""
        self._leave(following.replica.key)
        if error.is_offline:  # the directory has told it, once for all its replicas
            following.state = State.FAILED
        else:
            following.state = State.FETCHING
            self._apart.set_aside(following, str(error))

    def _apply_current(self, following: Following, data: wire.PartitionData) -> bool:
        replica = following.replica
        error = error_code(data.error_code)
        if not error and data.diverging_epoch.end_offset != -1:
            # Nothing else of such an answer counts: not its high watermark, not its log start.
            diverging, before = data.diverging_epoch, following.position
            replica.truncate_for(diverging.epoch, diverging.end_offset)
            if following.position == before:
                # It must not be, and if it is, asking the same at once would never end.
                return self._put_off(
                    following, f"told to cut at {diverging}, which changes nothing"
                )
        elif not error:
            records = memoryview(data.records or b"")
            error = replica.append_fetched(records, data.high_watermark, data.log_start_offset)
            if error:
                self._leave(replica.key)
                self._apart.set_aside(
                    following, f"what the leader sent can't be appended ({error.name})"
                )
                return False
            following.in_sync = data.high_watermark <= replica.log.end
            if records and replica.held.throttled.as_follower:
                self._shared.quota.record(len(records), self._shared.runtime.clock.monotonic_ms())
        else:
            return self._refused(following, error)
        return True

    def _refused(self, following: Following, error: ErrorCode) -> bool:
        """The leader does not serve this partition."""
        if error is ErrorCode.FENCED_LEADER_EPOCH:
            following.state = State.FENCED
            self._leave(following.replica.key)
        elif error is ErrorCode.OFFSET_OUT_OF_RANGE:
            self._leave(following.replica.key)
            self._apart.look_up(following)
        elif error in NOT_YET_LEADING:
            # Until we ask again the high watermark stands still, and with it every acks=all.
            wait_ms = min(
                TOO_EARLY_MS << following.too_early, self._shared.settings.replica_fetch_backoff_ms
            )
            following.too_early = min(following.too_early + 1, TOO_EARLY_MAX)
            self._put_off(following, error.name, wait_ms)
        else:
            self._put_off(following, error.name)
        return False

    def _put_off(self, following: Following, why: str, wait_ms: int | None = None) -> bool:
        """Ask for this again after `wait_ms`, replica.fetch.backoff.ms when it is not given."""
        wait_ms = self._shared.settings.replica_fetch_backoff_ms if wait_ms is None else wait_ms
        self._leave(following.replica.key)
        self._pauses.add(following, wait_ms)
        logger.info("fetching %s from broker %d: %s", following, self._source, why)
        return False


class _Newcomers:
    """Asks, while a fetch is at the leader, for what has come since; on a connection of its own.

    When that fetch has come back, the next one names them, and what was asked here is dropped:
    nothing is lost by asking again.
    """

    def __init__(self, shared: FetcherSurroundings, source: int, fetcher: LeaderFetcher) -> None:
        self._shared = shared
        self._fetcher = fetcher
        self._lane = FetchLane(shared, source, "fetcher-newcomers")
        self._is_away = False  # a fetch is at the leader
        self._asks = False
        self._come = Nudge()
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """A fetch goes to the leader."""
        self._is_away = True

    def end(self) -> None:
        """It has come back."""
        self._is_away = False
        self._interrupt()

    def come(self) -> None:
        """A partition has come."""
        if self._is_away:
            self._come.set()
            self._interrupt()  # what is asked here doesn't know of it either
            if self._task is None:
                self._task = asyncio.get_running_loop().create_task(self._run())
                self._task.add_done_callback(self._shared.ended)

    async def close(self) -> None:
        await cancelled(self._task)
        self._lane.drop()

    def _interrupt(self) -> None:
        if self._asks:
            self._lane.drop()

    async def _run(self) -> None:
        while True:
            self._come.clear()
            named = self._fetcher.newcomers() if self._is_away else {}
            if not named:
                await self._come.wait()
                continue
            self._asks = True
            try:
                await self._ask()
            except OSError:
                self._lane.drop()
                if self._is_away and not self._come.is_set:
                    await self._come.wait(self._shared.settings.replica_fetch_backoff_ms / 1000)
            finally:
                self._asks = False

    async def _ask(self) -> None:
        fetcher = self._fetcher
        await self._lane.connect()
        named = fetcher.newcomers() if self._is_away else {}
        if not named:
            return
        wait_ms = self._shared.settings.replica_fetch_wait_max_ms
        self._lane.bytes_max = fetcher.answer_bytes_max(len(named))
        response: wire.FetchResponse = await self._lane.ask(
            fetch_request(self._shared, named, wait_ms), wait_ms=wait_ms
        )
        if response.error_code:
            raise ConnectionResetError(error_code(response.error_code).name)
        fetcher.take_beside(named, response)
