"""Following apart: what others must not wait for is asked for on a connection of its own.

Owns whoever is looked for among several, because some answer can't be had; whoever is set aside,
and how long until it is asked for again, alone; and the look-ups of where a leader's log begins and
ends. Whoever is well again goes back to the others. It never decides what an answer does to a log.

Rules: replication.md#set-aside, replication.md#refused-fetches.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import Final, NamedTuple, Protocol

from holdfast.log.errors import StorageError
from holdfast.node.broker.fetch_lane import (
    FetcherSurroundings,
    FetchLane,
    fetch_request,
    frame_bytes_max,
    offsets_request,
    records_bytes_max,
)
from holdfast.node.broker.following import Following, Pauses, State
from holdfast.node.broker.nudge import Nudge
from holdfast.runtime.dial import ANY_FRAME_BYTES, UnreadableAnswerError
from holdfast.runtime.tasks import cancelled
from holdfast.wire.errors import ErrorCode, error_code
from holdfast.wire.messages import fetch as wire
from holdfast.wire.messages import list_offsets
from holdfast.wire.well_known import EARLIEST, LATEST

logger = logging.getLogger("holdfast.fetcher")

PAUSE_MS_MIN: Final = 100
PAUSE_MS_MAX: Final = 30_000


class Others(Protocol):
    """Whom the partitions come from, and go back to: the fetcher of the same broker."""

    answers: int  # how many have come from that broker and could be read
    batch_bytes: int  # the largest batch that may come

    def apply(self, following: Following, asked_at: int, data: wire.PartitionData) -> bool:
        """Apply a part of an answer; True: go on and ask for what follows."""

    def allow(self, batch_bytes: int) -> None:
        """A log has batches of this size."""

    def is_assigned(self, following: Following) -> bool:
        """Whether it is still to be fetched from there, in that epoch."""

    def arrive(self, following: Following) -> None:
        """Fetch it along with the others from now on."""

    def fail(self, following: Following, error: StorageError) -> None:
        """The disk did not do what an answer asked for."""


class Group(NamedTuple):
    """Partitions that are asked for together, because one of them may be bad."""

    members: list[Following]
    answers: int  # what `Others.answers` was when it was made


class ApartFetcher:
    """Fetches from one broker what can't be fetched along with the rest."""

    def __init__(self, shared: FetcherSurroundings, source: int, others: Others) -> None:
        self._shared = shared
        self._source = source
        self._others = others
        self._lane = FetchLane(shared, source, "fetcher-apart")
        self._groups: deque[Group] = deque()
        self._looking: list[Following] = []
        self._aside: dict[Following, None] = {}
        self._pauses = Pauses(self._due)
        self._nudge = Nudge()
        self._task: asyncio.Task[None] | None = None

    @property
    def aside(self) -> list[Following]:
        """Whoever is set aside, each with its trouble."""
        return [each for each in self._aside if self._others.is_assigned(each)]

    def suspect(self, members: list[Following]) -> None:
        """One of these may be why an answer can't be had: ask for one half, and for the other."""
        half = len(members) // 2
        for group in (members[:half], members[half:]):
            if group:
                self._groups.append(Group(group, self._others.answers))
        self._wake()

    def look_up(self, following: Following) -> None:
        """Our offset is not in the leader's log: cut ours to fit."""
        following.state = State.LOOKING
        self._looking.append(following)
        self._wake()

    def set_aside(self, following: Following, why: str) -> None:
        """Ask for one alone, after a pause that grows each time it fails."""
        backoff_ms = max(PAUSE_MS_MIN, self._shared.settings.replica_fetch_backoff_ms)
        pause_ms = min(PAUSE_MS_MAX, backoff_ms << min(following.attempts, 20))
        following.attempts += 1
        if not following.trouble:
            logger.error(
                "%s is set aside at offset %d: %s. All else of broker %d goes on. It is asked for"
                " alone from now on, every %d s at last, and follows again by itself when that is"
                " answered. If it lasts: see what broker %d has at that offset and says in its own"
                " log; if its disk is bad, let another replica lead.",
                following, following.replica.log.end, why, self._source,
                PAUSE_MS_MAX // 1000, self._source,
            )  # fmt: skip
        following.trouble = why
        self._aside[following] = None
        self._pauses.add(following, pause_ms)
        self._wake()

    def bring_back(self, following: Following) -> None:
        """Ask for one that was put off or looked up: alone if it was set aside before that.

        Whether it is well shows when an answer about it has been applied, and not before.
        """
        if following.trouble:
            self.suspect([following])
        else:
            self._others.arrive(following)

    async def close(self) -> None:
        """Stop fetching."""
        self._pauses.close()
        await cancelled(self._task)
        self._lane.drop()

    # -- the loop ------------------------------------------------------------------------------

    def _wake(self) -> None:
        self._nudge.set()
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())
            self._task.add_done_callback(self._shared.ended)

    def _assigned(self, members: list[Following]) -> list[Following]:
        """Return those that are still to be fetched from there; the others are forgotten."""
        assigned = []
        for each in members:
            if self._others.is_assigned(each):
                assigned.append(each)
            else:
                self._aside.pop(each, None)
        return assigned

    def _due(self, following: Following) -> None:
        if not self._assigned([following]):
            return
        if following.state is State.LOOKING:
            self.look_up(following)
        else:
            self.suspect([following])

    async def _run(self) -> None:
        while True:
            self._nudge.clear()
            if self._looking:
                looking, self._looking = self._looking, []
                await self._look_up(looking)
            elif self._groups:
                group = self._groups.popleft()
                members = self._assigned(group.members)
                if members:
                    await self._ask(Group(members, group.answers))
            else:
                if not self._pauses:
                    self._lane.drop()
                await self._nudge.wait()

    async def _ask(self, group: Group) -> None:
        """Ask for a group. Alone, a partition may have a batch of any size."""
        asked = {each.replica.key: (each, each.replica.log.end) for each in group.members}
        records_max = records_bytes_max(self._shared.settings, self._others.batch_bytes)
        alone = len(asked) == 1
        self._lane.bytes_max = (
            ANY_FRAME_BYTES if alone else frame_bytes_max(records_max, len(asked))
        )
        try:
            await self._lane.connect()
            request = fetch_request(
                self._shared, {key: each.position for key, (each, _) in asked.items()}
            )
            response: wire.FetchResponse = await self._lane.ask(request)
            if response.error_code:
                raise ConnectionResetError(error_code(response.error_code).name)
        except OSError as error:
            self._lane.drop()
            await self._failed(group, error)
            return
        self._others.answers += 1
        for topic in response.responses:
            for data in topic.partitions:
                entry = asked.pop((bytes(topic.topic_id), data.partition_index), None)
                if entry is not None:
                    self._answered(*entry, data, records_max)
        for following, _ in asked.values():
            self.set_aside(following, "the leader does not answer for it")

    async def _failed(self, group: Group, error: OSError) -> None:
        """Blame this group if its answer is to blame, or if others are answered meanwhile."""
        members = group.members
        if not isinstance(error, UnreadableAnswerError) and self._others.answers == group.answers:
            logger.info("fetching %s apart from broker %d: %s", members[:5], self._source, error)
            self._groups.append(group)
            await self._nudge.wait(self._shared.settings.replica_fetch_backoff_ms / 1000)
        elif len(members) == 1:
            self.set_aside(members[0], str(error))
        else:
            self.suspect(members)

    def _answered(
        self, following: Following, asked_at: int, data: wire.PartitionData, records_max: int
    ) -> None:
        size = len(data.records or b"")
        if not self._others.apply(following, asked_at, data):
            self._assigned([following])
            return  # it has been put off, set aside again, or is over
        if size > records_max:
            # Others of its size may follow: let them come along with the rest.
            self._others.allow(1 << size.bit_length())
            logger.warning(
                "%s: the leader has a batch of %d bytes at offset %d, more than"
                " max.message.bytes allows now: it was fetched alone",
                following, size, asked_at,
            )  # fmt: skip
        if following.trouble:
            logger.warning("%s follows broker %d again", following, self._source)
            following.trouble, following.attempts = "", 0
            del self._aside[following]
        self._others.arrive(following)

    # -- our offset is not in the leader's log --------------------------------------------------

    async def _look_up(self, looking: list[Following]) -> None:
        """Ask where the leader's log begins and ends, and cut ours to fit.

        Rules: replication.md#refused-fetches.
        """
        looking = self._assigned(looking)
        node = self._shared.registration.node
        try:
            await self._lane.connect()
            starts, latest = [
                _offsets(await self._lane.ask(offsets_request(node, looking, timestamp)))
                for timestamp in (EARLIEST, LATEST)
            ]
        except OSError as error:
            self._lane.drop()
            for following in looking:
                self._put_off(following, str(error))
            return
        # Meanwhile one may follow another, or its topic be deleted and its log closed.
        for following in self._assigned(looking):
            name = (following.replica.held.topic, following.replica.held.index)
            if name not in starts or name not in latest:
                self._put_off(following, "the leader did not say where its log begins and ends")
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
                following.state = State.FETCHING
                self._put_off(following, "our offset is within the leader's log after all")
                return
        except StorageError as error:
            self._others.fail(following, error)
            return
        following.state = State.FETCHING
        self.bring_back(following)

    def _put_off(self, following: Following, why: str) -> None:
        logger.info("fetching %s from broker %d: %s", following, self._source, why)
        self._pauses.add(following, self._shared.settings.replica_fetch_backoff_ms)


def _offsets(response: list_offsets.ListOffsetsResponse) -> dict[tuple[str, int], int]:
    return {
        (topic.name, answer.partition_index): answer.offset
        for topic in response.topics
        for answer in topic.partitions
        if answer.error_code == ErrorCode.NONE
    }
