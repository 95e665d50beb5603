"""The group coordinator of a broker: the shards that it leads, and how each comes and goes.

A shard is a partition of `__consumer_offsets`. It is loaded when this broker begins to lead the
partition, and over with that leader epoch (`led_shard`). Owns which are led, and what all of them
are told: topics that come and go, settings of groups, pieces of work that are done aside.

Rules: group-records.md#where-a-group-lives.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import pairwise
from typing import Any, Final, NamedTuple, TypeAlias

from holdfast.core.group.any_group import Caller
from holdfast.core.group.consumer.consumer_core import ConsumerSurroundings
from holdfast.core.group.consumer.consumer_patterns import PatternRefresh, TooManyNamesError
from holdfast.core.group.consumer_shard import ConsumerShard
from holdfast.core.group.group_memory import GroupMemory
from holdfast.core.group.offsets.deleted_topics import DeletedTopic
from holdfast.core.metadata.image import ImageDelta
from holdfast.node.coordinator.calls import Call, Calls
from holdfast.node.coordinator.coordinator_settings import (
    consumer_group_settings,
    group_settings,
    offsets_commit_timeout_ms,
    offsets_topic_codec,
    serves_consumer_protocol,
    stored_overrides,
    take_over_overrides,
)
from holdfast.node.coordinator.gathering import Gathering, Part
from holdfast.node.coordinator.known_topics import ImageTopics
from holdfast.node.coordinator.led_shard import Decide, LedShard, ShardSurroundings
from holdfast.node.coordinator.offsets_topic import OffsetsTopic
from holdfast.node.coordinator.pattern_work import Scanned, scan
from holdfast.node.coordinator.record_batches import RECORD_BYTES_MIN
from holdfast.node.coordinator.shard_loading import Load, LoadError
from holdfast.node.coordinator.stalls import Stalls
from holdfast.node.coordinator.surroundings import Replica, Surroundings
from holdfast.node.door.api_table import DESCRIBE_TOPIC
from holdfast.node.door.request_context import Deferred, RequestContext, refusal
from holdfast.runtime.sliced_work import REST, SlicedWork, Steps
from holdfast.wire.errors import ErrorCode
from holdfast.wire.structs import ResourceType
from holdfast.wire.uuids import uuid_text

logger = logging.getLogger("holdfast.groups")

LOAD_AGAIN_S: Final = 1.0  # after one that failed
FREED_A_SLICE: Final = 5_000  # offsets, or groups, of a shard that is over: a millisecond
_CLIENT_ID_KEPT: Final = 255  # characters of a client's name that a member is remembered by


class Asked(NamedTuple):
    """A part of a request, for the shard of a group."""

    group_id: str
    decide: Decide
    refused: Callable[[ErrorCode], Any]
    complete: Callable[[Any], Any]  # makes the part of what the shard has decided


class Told(NamedTuple):
    """A part of a request that no shard has to be asked for."""

    told: Any

    def ask(self, answer: Callable[[Any], None]) -> None:
        answer(self.told)

    def refused(self, _code: ErrorCode) -> Any:
        return self.told


GroupPart: TypeAlias = Asked | Told


class _OfShard(NamedTuple):
    """A part of a request, for the shard of this index."""

    coordinator: GroupCoordinator
    context: RequestContext
    shard: int
    decide: Decide
    refused: Callable[[ErrorCode], Any]
    complete: Callable[[Any], Any]

    def ask(self, answer: Callable[[Any], None]) -> int | None:
        return self.coordinator.ask_shard(self, answer)


class GroupCoordinator:
    """All shards that a broker leads."""

    def __init__(self, around: Surroundings, topic: OffsetsTopic) -> None:
        loop = asyncio.get_running_loop()
        self._surroundings = around
        self._loop = loop
        self.calls = Calls(loop, around.runtime.provoke)
        # Its own: who loads a million offsets has every other turn, and holds up no client's work.
        self.work = SlicedWork(loop, around.runtime.worker, rests=False)
        self.topic = topic
        self._shards: dict[int, LedShard] = {}
        self._stop_loading: dict[int, Callable[[], None]] = {}
        # Topics that went while a shard was loaded, or waited to be loaded again.
        self._deleted_meanwhile: dict[int, list[DeletedTopic]] = {}
        self._retries: dict[int, asyncio.TimerHandle] = {}
        self._topics = ImageTopics(around.image)
        self._overrides = stored_overrides(around.image)  # of all groups, for all shards
        self._memory = GroupMemory(group_settings(around.settings()).bytes_max)
        self._around = ShardSurroundings(
            loop=loop,
            clock=around.runtime.clock,
            waiting=around.waiting,
            calls=self.calls,
            commit_timeout_ms=offsets_commit_timeout_ms(around.settings()),
            codec=offsets_topic_codec(around.settings()),
            stalls=Stalls(loop, around.runtime.clock),
            refresh=self._refresh,
            clock_was_set=self._clock_was_set,
            broken=self._broken,
            provoke=around.runtime.provoke,
        )

    # -- which shards are led --------------------------------------------------------------------

    def role_changed(self, partition: Replica) -> None:
        """Act on a replica that leads in a new epoch, or no longer."""
        known = self._shards.get(partition.index)
        if known is not None and known.leading is partition.leading:
            return
        if known is not None and known.partition is not partition and partition.leading is None:
            return  # a namesake that was deleted: another one is led here by now
        self._end(partition.index)
        if partition.leading is not None:
            self._begin(partition)

    def _begin(self, partition: Replica) -> None:
        """Load a shard, from its log's start to its end as it is now."""
        leading = partition.leading
        assert leading is not None, "it leads"
        shard = self._make_shard()
        led = LedShard(self._around, partition, leading, shard)
        self._shards[partition.index] = led
        self._deleted_meanwhile[partition.index] = []
        if self._surroundings.runtime.provoke("shard.load-late"):
            later = self._loop.call_later(LOAD_AGAIN_S, self._begin_load, led)
            self._stop_loading[partition.index] = later.cancel
        else:
            self._begin_load(led)

    def _begin_load(self, led: LedShard) -> None:
        log = led.leading.log
        load = Load(log, log.end, led.shard, lambda: led.is_current)
        began_ms = self._surroundings.runtime.clock.monotonic_ms()
        self._stop_loading[led.index] = self.work.begin(
            self._load(led, load),
            REST,
            queue=("loads", led.index),
            done=lambda is_whole: self._loaded(led, load, began_ms) if is_whole else None,
            failed=lambda: self._not_loaded(led, "see the error above"),
        )

    def _load(self, led: LedShard, load: Load) -> Steps[bool]:
        if self._surroundings.runtime.provoke("shard.load-fails"):
            self._not_loaded(led, "as if it could not be read")
            return False
        try:
            yield from load.steps(led.time)
        except LoadError as error:
            self._not_loaded(led, str(error))
            return False
        return led.is_current

    def _loaded(self, led: LedShard, load: Load, began_ms: int) -> None:
        if not led.is_current:
            return
        self._stop_loading.pop(led.index, None)
        took_ms = self._surroundings.runtime.clock.monotonic_ms() - began_ms
        if load.records or load.damaged:
            logger.info(
                "%s: %d records of groups loaded in %d ms, %d passed over",
                led, load.records, took_ms, load.damaged,
            )  # fmt: skip
        led.loaded()
        deleted = self._deleted_meanwhile.pop(led.index)
        if deleted:
            led.change(lambda shard, now_ms: shard.topics_deleted(deleted, now_ms))

    def _not_loaded(self, led: LedShard, why: str) -> None:
        """Try again a while later: until then this shard's groups have no coordinator."""
        if not led.is_current or led.index in self._retries:
            return
        logger.error("%s can't be loaded, and is tried again: %s", led, why)
        self._retries[led.index] = self._loop.call_later(
            LOAD_AGAIN_S, self._load_again, led.partition
        )

    def _load_again(self, partition: Replica) -> None:
        index = partition.index
        led = self._shards.get(index)
        deleted = self._deleted_meanwhile.get(index, [])
        if led is not None:
            deleted = [*deleted, *led.shard.deleted_topics]  # nobody tells of them once more
        self._end(index)
        if partition.leading is not None:
            self._begin(partition)
            self._deleted_meanwhile[index] += deleted

    def _broken(self, led: LedShard) -> None:
        """Begin a shard anew, a while later, that could not finish what it had decided."""
        self._not_loaded(led, "see the error below")
        led.resign()

    def _clock_was_set(self, led: LedShard) -> None:
        logger.warning("%s: the clock was set: its groups are loaded anew", led)
        self._load_again(led.partition)

    def _end(self, index: int) -> None:
        stop = self._stop_loading.pop(index, None)
        if stop is not None:
            stop()
        retry = self._retries.pop(index, None)
        if retry is not None:
            retry.cancel()
        self._deleted_meanwhile.pop(index, None)
        led = self._shards.pop(index, None)
        if led is not None:
            led.resign()
            self._put_away(led)

    def _put_away(self, led: LedShard) -> None:
        """Free what a shard holds by turns with other work: it may be a million offsets."""
        self.work.begin(
            _emptied(led.shard),
            REST,
            queue=("ends", led.index),
            done=_nothing_follows,
            failed=_nothing_follows,
        )

    def close(self) -> None:
        """The node stops: whoever waits looks for another coordinator."""
        for index in list(self._shards):
            self._end(index)
        self._around.stalls.close()
        self.work.close()

    def _make_shard(self) -> ConsumerShard:
        settings = self._surroundings.settings()
        around = ConsumerSurroundings(
            consumer_group_settings(settings),
            self._topics,
            self._new_member_id,
            memory=self._memory,
        )
        around.overrides = self._overrides
        return ConsumerShard(group_settings(settings), around, self._new_id)

    def _new_member_id(self) -> str:
        return uuid_text(self._surroundings.runtime.random.uuid())

    def _new_id(self) -> str:
        """Return a UUID as Java writes it."""
        digits = self._surroundings.runtime.random.uuid().hex()
        cuts = (0, 8, 12, 16, 20, 32)
        return "-".join(digits[a:b] for a, b in pairwise(cuts))

    @property
    def serves_consumer_protocol(self) -> bool:
        """Whether groups may be of the consumer protocol."""
        return serves_consumer_protocol(self._surroundings.settings(), self._surroundings.image)

    # -- what clients ask ------------------------------------------------------------------------

    def ask(
        self,
        context: RequestContext,
        group_id: str,
        decide: Decide,
        refused: Callable[[ErrorCode], Any],
        *,
        complete: Callable[[Any], Any] | None = None,
        records: int = 0,
        shares_batch: bool = False,
    ) -> Any:
        """Have a group's shard decide on a request; its decision, made complete, is the answer.

        `refused` makes the answer when there is no decision. It comes to so many `records`, if they
        may be many. Return what a handler returns.
        """
        led = self._find(group_id)
        if isinstance(led, ErrorCode):
            return refused(led)
        if records * RECORD_BYTES_MIN > led.partition.settings.max_message_bytes:
            return refused(ErrorCode.RECORD_LIST_TOO_LARGE)  # before anything is made of them
        number = self.calls.take_number()
        caller = self._caller(context, number)
        deferred: Deferred | None = None

        def wait() -> None:
            nonlocal deferred
            deferred = made = context.defer(partitions=records)
            answer = _completed(made.answer, complete)
            self._wait(context, number, answer, lambda code: made.answer(refused(code)))
            made.lost = partial(led.forget, number)

        if shares_batch:
            wait()
            led.ask(decide, caller, shares_batch=True)
            return deferred
        told = led.ask_at_once(decide, caller, wait)
        if deferred is not None:
            return deferred
        return told if complete is None else complete(told)

    def ask_groups(
        self,
        context: RequestContext,
        asked: Iterable[GroupPart],
        answer: Callable[[list[Any]], Any],
        *,
        is_flexible: bool,
    ) -> Deferred:
        """Have each group's shard decide on a part of a request; `answer` makes the whole."""
        parts = (self._part(context, each) for each in asked)
        return self._gather(context, parts, answer, is_flexible=is_flexible)

    def _part(self, context: RequestContext, asked: GroupPart) -> Part:
        if isinstance(asked, Told):
            return asked
        group_id, decide, refused, complete = asked
        index = self.topic.partition_of(group_id)
        return _OfShard(self, context, index, decide, refused, complete)

    def ask_shards(
        self,
        context: RequestContext,
        decisions: Callable[[ConsumerShard], Iterable[Decide]],
        refused: Callable[[ErrorCode], Any],
        complete: Callable[[Any], Any],
        answer: Callable[[list[Any]], Any],
        *,
        is_flexible: bool,
    ) -> Deferred:
        """Have all shards that are led here decide on a request; `answer` makes the whole.

        A shard that has much to say says what several decisions come to, each of a part.
        """
        parts = self._parts_of_shards(context, decisions, refused, complete)
        return self._gather(context, parts, answer, is_flexible=is_flexible)

    def _parts_of_shards(
        self,
        context: RequestContext,
        decisions: Callable[[ConsumerShard], Iterable[Decide]],
        refused: Callable[[ErrorCode], Any],
        complete: Callable[[Any], Any],
    ) -> Iterator[Part]:
        for index in sorted(self._shards):
            led = self._shards.get(index)
            code = ErrorCode.NOT_COORDINATOR if led is None else led.refusal()
            if led is None or code is not ErrorCode.NONE:
                yield Told(refused(code))
                continue
            for decide in decisions(led.shard):
                yield _OfShard(self, context, index, decide, refused, complete)

    def _gather(
        self,
        context: RequestContext,
        parts: Iterable[Part],
        answer: Callable[[list[Any]], Any],
        *,
        is_flexible: bool,
    ) -> Deferred:
        deferred = context.defer_alone(is_flexible)
        Gathering(deferred, parts, answer, self.calls.forget).begin()
        return deferred

    def ask_shard(self, part: _OfShard, answer: Callable[[Any], None]) -> int | None:
        """Have a shard decide on a part; return the number of the call, unless it is over."""
        led = self._shards.get(part.shard)
        code = ErrorCode.NOT_COORDINATOR if led is None else led.refusal()
        if led is None or code is not ErrorCode.NONE:
            answer(part.refused(code))
            return None
        number = self.calls.take_number()
        refuse = partial(_refused_part, part, answer)
        self._wait(part.context, number, _completed(answer, part.complete), refuse)
        led.ask(part.decide, self._caller(part.context, number))
        return number

    def _find(self, group_id: str) -> LedShard | ErrorCode:
        led = self._shards.get(self.topic.partition_of(group_id))
        if led is None:
            return ErrorCode.NOT_COORDINATOR
        code = led.refusal()
        return led if code is ErrorCode.NONE else code

    def _wait(
        self,
        context: RequestContext,
        number: int,
        answer: Callable[[Any], None],
        refuse: Callable[[ErrorCode], None],
    ) -> None:
        may_describe = partial(_may_describe, context)
        self.calls.wait(number, Call(answer, refuse, may_describe))

    def _caller(self, context: RequestContext, number: int) -> Caller:
        client_id = (context.header.client_id or "")[:_CLIENT_ID_KEPT]
        return Caller(number, context.version, client_id, f"/{context.client.host}")

    # -- what happens in the cluster -------------------------------------------------------------

    def metadata_changed(self, delta: ImageDelta) -> None:
        """Tell the shards of what has changed in the image, which holds it already."""
        created = [topic.name for topic in delta.topics_created]
        gone = [(topic.name, topic.topic_id) for topic in delta.topics_deleted]
        deleted = [name for name, _ in gone]
        changed = dict.fromkeys(self._changed_topics(delta))
        if created or deleted or changed:
            for led in list(self._shards.values()):  # one may be begun anew by this
                led.shard.topics_changed(
                    self._topics, created=created, changed=changed, deleted=deleted
                )
                if gone:
                    self._topics_deleted(led, gone)
        take_over_overrides(self._overrides, self._surroundings.image, delta)
        if any(kind == ResourceType.BROKER for kind, _ in delta.configs_changed):
            settings = consumer_group_settings(self._surroundings.settings())
            for led in self._shards.values():
                led.shard.around.settings = settings

    def _topics_deleted(self, led: LedShard, gone: list[DeletedTopic]) -> None:
        """Have a shard remove the offsets of topics; one that is not there yet does so then."""
        led.change(lambda shard, now_ms: shard.topics_deleted(gone, now_ms))
        now = self._shards.get(led.index)  # another one, where the clock was set
        if now is not None and now.refusal() is not ErrorCode.NONE:
            self._deleted_meanwhile.setdefault(led.index, []).extend(gone)

    def _changed_topics(self, delta: ImageDelta) -> Iterator[str]:
        """Topics of which a group may be told otherwise than before: partitions, and racks."""
        image = self._surroundings.image
        for (topic_id, index), before in delta.partitions_changed.items():
            now = image.partition_by_id(topic_id, index)
            if now is not None and (before is None or before.replicas != now.replicas):
                yield now.topic

    # -- patterns --------------------------------------------------------------------------------

    def _refresh(self, led: LedShard, refresh: PatternRefresh) -> None:
        """Hold a group's patterns to the names of topics, by turns with other work."""
        call = self.calls.find(refresh.call)
        if call is None:  # whose topics count is not known: the next heartbeat asks again
            led.shard.patterns_unresolved(refresh)
            return
        image = self._surroundings.image
        bytes_max = led.partition.settings.max_message_bytes
        steps = scan(refresh, led.shard.around.journal, image, call.may_describe, bytes_max)

        def whole() -> Steps[Scanned | None]:
            try:
                return (yield from steps)
            except TooManyNamesError as error:
                logger.error("%s: %s: they count for nothing", led, error)  # noqa: TRY400 - a client's mistake
                return None

        def done(outcome: Scanned | None) -> None:
            if outcome is None:
                led.change(lambda shard, now_ms: shard.patterns_refused(refresh, now_ms))
                return
            led.change(
                lambda shard, now_ms: shard.patterns_resolved(
                    refresh, outcome.result(now_ms), now_ms
                )
            )

        self.work.begin(
            whole(),
            REST,
            queue=("patterns", (led.index, refresh.group_id)),
            done=done,
            failed=lambda: led.shard.patterns_unresolved(refresh),
        )


def _emptied(shard: ConsumerShard) -> Steps[None]:
    for number, _ in enumerate(shard.put_away(), 1):
        if number % FREED_A_SLICE == 0:
            yield REST


def _nothing_follows(_outcome: None = None) -> None:
    """A shard that is put away is missed by nobody."""


def _may_describe(context: RequestContext, topic: str) -> bool:
    return refusal(context, topic, DESCRIBE_TOPIC) is None


def _refused_part(part: _OfShard, answer: Callable[[Any], None], code: ErrorCode) -> None:
    answer(part.refused(code))


def _completed(
    answer: Callable[[Any], None], complete: Callable[[Any], Any] | None
) -> Callable[[Any], None]:
    return answer if complete is None else lambda found: answer(complete(found))
