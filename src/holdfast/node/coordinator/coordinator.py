"""The group coordinator of a broker: the shards that it leads, and how each comes and goes.

A shard is a partition of `__consumer_offsets`. It is loaded when this broker begins to lead the
partition, and over with that leader epoch (`led_shard`). Owns which are led, and what all of them
are told: topics that come and go, settings of groups, pieces of work that are done aside.

Rules: group-records.md#where-a-group-lives.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from holdfast.core.group.any_group import Caller
from holdfast.core.group.consumer.consumer_core import ConsumerSurroundings
from holdfast.core.group.consumer.consumer_patterns import PatternRefresh
from holdfast.core.group.consumer_shard import ConsumerShard
from holdfast.core.group.group_memory import GroupMemory
from holdfast.core.metadata.image import ImageDelta
from holdfast.node.broker.replica import Partition
from holdfast.node.coordinator.calls import Call, Calls
from holdfast.node.coordinator.coordinator_settings import (
    consumer_group_settings,
    group_overrides,
    group_settings,
    offsets_commit_timeout_ms,
)
from holdfast.node.coordinator.gathering import Gathering, Part
from holdfast.node.coordinator.known_topics import ImageTopics
from holdfast.node.coordinator.led_shard import Decide, LedShard, ShardSurroundings
from holdfast.node.coordinator.offsets_topic import OffsetsTopic
from holdfast.node.coordinator.pattern_work import Scanned, scan
from holdfast.node.coordinator.record_batches import RECORD_BYTES_MIN
from holdfast.node.coordinator.shard_loading import Load, LoadError
from holdfast.node.coordinator.stalls import Stalls
from holdfast.node.door.api_table import DESCRIBE_TOPIC
from holdfast.node.door.request_context import Deferred, RequestContext, refusal
from holdfast.runtime.sliced_work import REST, SlicedWork, Steps
from holdfast.wire.batch_header import Codec
from holdfast.wire.errors import ErrorCode
from holdfast.wire.structs import ResourceType
from holdfast.wire.uuids import uuid_text

if TYPE_CHECKING:
    from holdfast.node.broker.broker import Broker

logger = logging.getLogger("holdfast.groups")

LOAD_AGAIN_S: Final = 1.0  # after one that failed
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

    def __init__(self, broker: Broker, topic: OffsetsTopic) -> None:
        loop = asyncio.get_running_loop()
        self._broker = broker
        self._loop = loop
        self.calls = Calls(loop)
        # Its own: who loads a million offsets has every other turn, and holds up no client's work.
        self.work = SlicedWork(loop, broker.runtime.worker, rests=False)
        self.topic = topic
        self._shards: dict[int, LedShard] = {}
        self._stop_loading: dict[int, Callable[[], None]] = {}
        self._deleted_meanwhile: dict[int, list[str]] = {}  # topics, while a shard is loaded
        self._retries: dict[int, asyncio.TimerHandle] = {}
        self._topics = ImageTopics(broker.image)
        self._overrides = {
            name: group_overrides(configs)
            for (kind, name), configs in broker.image.configs.items()
            if kind == ResourceType.GROUP
        }
        self._memory = GroupMemory(group_settings(broker.settings).bytes_max)
        self._around = ShardSurroundings(
            loop=loop,
            clock=broker.runtime.clock,
            waiting=broker.waiting,
            calls=self.calls,
            commit_timeout_ms=offsets_commit_timeout_ms(broker.settings),
            codec=Codec.NONE,
            stalls=Stalls(loop, broker.runtime.clock),
            refresh=self._refresh,
            clock_was_set=self._clock_was_set,
            broken=self._broken,
        )

    # -- which shards are led --------------------------------------------------------------------

    def role_changed(self, partition: Partition) -> None:
        """Act on a replica that leads in a new epoch, or no longer."""
        known = self._shards.get(partition.index)
        if known is not None and known.leading is partition.leading:
            return
        if known is not None and known.partition is not partition and partition.leading is None:
            return  # a namesake that was deleted: another one is led here by now
        self._end(partition.index)
        if partition.leading is not None:
            self._begin(partition)

    def _begin(self, partition: Partition) -> None:
        """Load a shard, from its log's start to its end as it is now."""
        leading = partition.leading
        assert leading is not None, "it leads"
        shard = self._make_shard()
        led = LedShard(self._around, partition, leading, shard)
        self._shards[partition.index] = led
        self._deleted_meanwhile[partition.index] = []
        load = Load(leading.log, leading.log.end, shard, lambda: led.is_current)
        began_ms = self._broker.runtime.clock.monotonic_ms()
        self._stop_loading[partition.index] = self.work.begin(
            self._load(led, load),
            REST,
            queue=("loads", partition.index),
            done=lambda is_whole: self._loaded(led, load, began_ms) if is_whole else None,
            failed=lambda: self._not_loaded(led, "see the error above"),
        )

    def _load(self, led: LedShard, load: Load) -> Steps[bool]:
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
        took_ms = self._broker.runtime.clock.monotonic_ms() - began_ms
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

    def _load_again(self, partition: Partition) -> None:
        self._end(partition.index)
        if partition.leading is not None:
            self._begin(partition)

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

    def close(self) -> None:
        """The node stops: whoever waits looks for another coordinator."""
        for index in list(self._shards):
            self._end(index)
        self._around.stalls.close()
        self.work.close()

    def _make_shard(self) -> ConsumerShard:
        settings = self._broker.settings
        around = ConsumerSurroundings(
            consumer_group_settings(settings),
            self._topics,
            self._new_member_id,
            memory=self._memory,
        )
        around.overrides = self._overrides
        return ConsumerShard(group_settings(settings), around, self._new_id)

    def _new_member_id(self) -> str:
        return uuid_text(self._broker.runtime.random.uuid())

    def _new_id(self) -> str:
        """Return a UUID as Java writes it."""
        digits = self._broker.runtime.random.uuid().hex()
        cuts = (0, 8, 12, 16, 20, 32)
        return "-".join(digits[a:b] for a, b in pairwise(cuts))

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
        deferred = context.defer(partitions=records)
        number = self._begin_call(
            context,
            _completed(deferred.answer, complete),
            lambda code: deferred.answer(refused(code)),
        )
        deferred.lost = partial(led.forget, number)
        led.ask(decide, self._caller(context, number), shares_batch=shares_batch)
        return deferred

    def ask_groups(
        self,
        context: RequestContext,
        asked: Iterable[GroupPart],
        answer: Callable[[list[Any]], Any],
        *,
        is_flexible: bool,
    ) -> Deferred:
        """Have each group's shard decide on a part of a request; `answer` makes the whole."""
        parts = [self._part(context, each) for each in asked]
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
        parts: list[Part] = []
        for index in sorted(self._shards):
            led = self._shards[index]
            code = led.refusal()
            if code is not ErrorCode.NONE:
                parts.append(Told(refused(code)))
                continue
            parts += [
                _OfShard(self, context, index, decide, refused, complete)
                for decide in decisions(led.shard)
            ]
        return self._gather(context, parts, answer, is_flexible=is_flexible)

    def _gather(
        self,
        context: RequestContext,
        parts: Sequence[Part],
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
        number = self._begin_call(
            part.context,
            _completed(answer, part.complete),
            lambda code: answer(part.refused(code)),
        )
        led.ask(part.decide, self._caller(part.context, number))
        return number

    def _find(self, group_id: str) -> LedShard | ErrorCode:
        led = self._shards.get(self.topic.partition_of(group_id))
        if led is None:
            return ErrorCode.NOT_COORDINATOR
        code = led.refusal()
        return led if code is ErrorCode.NONE else code

    def _begin_call(
        self,
        context: RequestContext,
        answer: Callable[[Any], None],
        refuse: Callable[[ErrorCode], None],
    ) -> int:
        return self.calls.begin(
            Call(answer, refuse, lambda name: refusal(context, name, DESCRIBE_TOPIC) is None)
        )

    def _caller(self, context: RequestContext, number: int) -> Caller:
        client_id = (context.header.client_id or "")[:_CLIENT_ID_KEPT]
        return Caller(number, context.version, client_id, f"/{context.client.host}")

    # -- what happens in the cluster -------------------------------------------------------------

    def metadata_changed(self, delta: ImageDelta) -> None:
        """Tell the shards of what has changed in the image, which holds it already."""
        created = [topic.name for topic in delta.topics_created]
        deleted = [topic.name for topic in delta.topics_deleted]
        changed = dict.fromkeys(self._changed_topics(delta))
        if created or deleted or changed:
            for index, led in self._shards.items():
                led.shard.topics_changed(
                    self._topics, created=created, changed=changed, deleted=deleted
                )
                if not deleted:
                    continue
                if index in self._deleted_meanwhile:
                    self._deleted_meanwhile[index] += deleted
                else:
                    led.change(lambda shard, now_ms: shard.topics_deleted(deleted, now_ms))
        for kind, name in delta.configs_changed:
            if kind == ResourceType.GROUP:
                self._configure(name)

    def _changed_topics(self, delta: ImageDelta) -> Iterator[str]:
        """Topics of which a group may be told otherwise than before: partitions, and racks."""
        image = self._broker.image
        for (topic_id, index), before in delta.partitions_changed.items():
            now = image.partition_by_id(topic_id, index)
            if now is not None and (before is None or before.replicas != now.replicas):
                yield now.topic

    def _configure(self, group_id: str) -> None:
        configs = self._broker.image.configs.get((ResourceType.GROUP, group_id))
        if configs is None:
            self._overrides.pop(group_id, None)
        else:
            self._overrides[group_id] = group_overrides(configs)

    # -- patterns --------------------------------------------------------------------------------

    def _refresh(self, led: LedShard, refresh: PatternRefresh) -> None:
        """Hold a group's patterns to the names of topics, by turns with other work."""
        call = self.calls.find(refresh.call)
        if call is None:  # whose topics count is not known: the next heartbeat asks again
            led.shard.patterns_unresolved(refresh)
            return
        image = self._broker.image
        steps = scan(refresh, led.shard.around.journal, image, call.may_describe)

        def done(outcome: Scanned) -> None:
            led.change(
                lambda shard, now_ms: shard.patterns_resolved(
                    refresh, outcome.result(now_ms), now_ms
                )
            )

        self.work.begin(
            steps,
            REST,
            queue=("patterns", (led.index, refresh.group_id)),
            done=done,
            failed=lambda: led.shard.patterns_unresolved(refresh),
        )


def _completed(
    answer: Callable[[Any], None], complete: Callable[[Any], Any] | None
) -> Callable[[Any], None]:
    return answer if complete is None else lambda found: answer(complete(found))
