"""All replicas of this broker, kept as the metadata says.

Owns which partitions are held, in which role, and who fetches what from whom. It acts on changes of
the image and on failures of disks; it decides nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from itertools import islice

from holdfast.config.topic import TopicSettings
from holdfast.core.metadata import image
from holdfast.core.metadata.image import ImageDelta, MetadataImage, PartitionKey
from holdfast.log.directories import LogDirectories, LogDirectory
from holdfast.log.errors import StorageError
from holdfast.log.log import Log
from holdfast.node.broker.fetch_lane import FetcherSurroundings
from holdfast.node.broker.leader_fetcher import LeaderFetcher
from holdfast.node.broker.leading_replica import LeadingReplica, Surroundings
from holdfast.node.broker.replica import Partition
from holdfast.wire.errors import ErrorCode
from holdfast.wire.structs import ResourceType
from holdfast.wire.uuids import NULL_UUID, uuid_text
from holdfast.wire.well_known import METADATA_TOPIC

logger = logging.getLogger("holdfast.partitions")

SLICE = 50  # replicas taken up in one turn of the loop, at most,
SLICE_MS = 5  # and for so long: where files are slow to make, one replica takes a millisecond
TOLD_MAX = 20  # of those set aside: a figure is a line
SLICE_TOLD = 200  # replicas that are looked at, or told of brokers, in one turn


class Partitions:
    """The replicas that the image assigns to this broker."""

    def __init__(
        self,
        surroundings: Surroundings,
        metadata: MetadataImage,
        directories: LogDirectories,
        fetching: FetcherSurroundings,
        *,
        settings_of: Callable[[str], TopicSettings],
        taken_up: Callable[[Iterable[PartitionKey]], None],
        role_changed: Callable[[Partition], None],
    ) -> None:
        """`taken_up` is told of replicas that are now as the image wants them.

        `role_changed` is told of each that leads or follows in another epoch, or not any more, in
        the same step.
        """
        self.held: dict[PartitionKey, Partition] = {}
        self.by_name: dict[tuple[str, int], Partition] = {}
        self._surroundings = surroundings
        self._node = surroundings.node
        self._metadata = metadata
        self._directories = directories
        self._fetching = fetching
        self._fetchers: dict[int, LeaderFetcher] = {}  # by the broker that leads something of ours
        self._settings = cache(
            settings_of
        )  # once for all partitions of a topic; of the image as it is
        self._taken_up = taken_up
        self._role_changed = role_changed
        # Not yet as the image wants them, in the order of the first change; True: not ours before.
        # What this broker is to lead goes first, for who follows it asks in vain until then.
        self._due_to_lead: dict[PartitionKey, bool] = {}
        self._due: dict[PartitionKey, bool] = {}
        # By name: partitions of deleted topics whose logs are there still; True: they were held.
        self._gone: dict[tuple[str, int], tuple[image.Partition, bool]] = {}
        self._told_of_brokers: Iterator[Partition] = iter(())  # who has yet to be told of a change
        self._slice: asyncio.Handle | None = None
        self._started: asyncio.Future[None] | None = None  # done once all is as it was at `start`
        self._sweep: asyncio.TimerHandle | None = None

    def __iter__(self) -> Iterator[Partition]:
        return iter(self.held.values())

    def find(self, topic: str, index: int) -> Partition | ErrorCode:
        """The replica of that name, or why there is none here."""
        held = self.by_name.get((topic, index))
        return _absent(self._metadata.partition(topic, index)) if held is None else held

    def find_by_id(self, topic_id: bytes, index: int) -> Partition | ErrorCode:
        """The replica of that topic id, or why there is none here."""
        held = self.held.get((topic_id, index))
        if held is not None:
            return held
        topic = self._metadata.topics_by_id.get(topic_id)
        return ErrorCode.UNKNOWN_TOPIC_ID if topic is None else _absent(topic.partition(index))

    def leading(self, topic: str, index: int, leader_epoch: int = -1) -> LeadingReplica | ErrorCode:
        """What leads the partition of that name here, or why nothing does."""
        found = self.find(topic, index)
        return found if isinstance(found, ErrorCode) else found.as_leader(leader_epoch)

    def set_aside(self) -> str:
        """Which replicas can't be followed along with the others, and why; for people to read."""
        found = [
            f"{each} from broker {source}: {each.trouble}"
            for source, fetcher in self._fetchers.items()
            for each in fetcher.set_aside
        ]
        more = [f"and {len(found) - TOLD_MAX} more"] if len(found) > TOLD_MAX else []
        return "; ".join(found[:TOLD_MAX] + more)

    # -- the metadata has changed --------------------------------------------------------------

    async def start(self) -> None:
        """Take up everything that the image assigns to this broker: it has caught up.

        `apply` may be called meanwhile.
        """
        assert self._started is None, "started twice"
        self._settings.cache_clear()
        self._set_strays_aside()
        self._due_to_lead.clear()
        self._due.clear()
        for decided in self._metadata.partitions():
            if self._node in decided.replicas:
                self._is_due(decided.key, decided.leader, is_new=False)
        self._started = asyncio.get_running_loop().create_future()
        self._take_up_some()
        await self._started
        self._schedule_sweep()

    def apply(self, delta: ImageDelta) -> None:
        """Act on what has changed in the image, which holds it already.

        Making a replica takes a millisecond, and a request may make thousands: so all but the first
        of them are taken up a few in each turn of the loop, each as the image is by then. Those of
        deleted topics serve no more at once; their logs go in turns, too. Settings go before: a
        leader must never commit by an older min.insync.replicas than its ISR.
        """
        self._settings.cache_clear()
        for topic in delta.topics_deleted:
            for gone in topic.partitions:
                self._take_due(gone.key)
                was_held = self._let_go(gone)
                self._gone.setdefault((gone.topic, gone.index), (gone, was_held))
        if delta.brokers_changed:
            self._told_of_brokers = iter(list(self.held.values()))
        if delta.configs_changed:
            self._configure(delta)
        for key, before in delta.partitions_changed.items():
            is_new = before is None or self._node not in before.replicas
            decided = self._metadata.partition_by_id(*key)
            self._is_due(key, image.NO_LEADER if decided is None else decided.leader, is_new=is_new)
        if self._slice is None:
            self._take_up_some()

    def _is_due(self, key: PartitionKey, leader: int, *, is_new: bool) -> None:
        """Take a replica up in its turn."""
        is_new = self._take_due(key) or is_new
        due = self._due_to_lead if leader == self._node else self._due
        due[key] = is_new

    def _take_due(self, key: PartitionKey) -> bool:
        """It is due no longer. Return whether it was, and not ours before."""
        return self._due_to_lead.pop(key, False) or self._due.pop(key, False)

    def _take_up_some(self) -> None:
        self._slice = None
        brokers = self._metadata.brokers
        more = self._tell_of_brokers()
        done: list[PartitionKey] = []
        roles: list[Partition] = []
        clock = self._surroundings.clock
        ends_ms = clock.monotonic_ms() + SLICE_MS
        for name in list(islice(self._gone, SLICE)):
            if clock.monotonic_ms() > ends_ms:
                break
            self._delete_gone(name)
        while len(done) < SLICE and clock.monotonic_ms() <= ends_ms:
            due = self._due_to_lead or self._due
            if not due:
                break
            key = next(iter(due))
            if self._gone and key not in self.held:
                # It may be a namesake's. Each that is made over what was deleted since the last one
                # has all checkpoints written and synced, here on the loop: once is enough.
                break
            is_new = due.pop(key)
            decided = self._metadata.partition_by_id(*key)
            if decided is not None and self._node in decided.replicas:
                if self._take_up(decided, brokers, is_new=is_new):
                    roles.append(self.held[key])
            elif decided is not None:
                self._give_up(decided)
            done.append(key)
        self._taken_up(done)
        if roles:  # one line for all of them: a line of their own costs as much as the change
            logger.info("%s", "; ".join(map(Partition.describe, roles)))
        if self._gone or self._due_to_lead or self._due or more:
            self._slice = asyncio.get_running_loop().call_later(0, self._take_up_some)
        elif self._started is not None and not self._started.done():
            self._started.set_result(None)

    def _tell_of_brokers(self) -> bool:
        """Tell some leaders which brokers are alive, as the image has it by now; True: not yet all.

        Who is told late takes a broker for what it was, as if the metadata had come later: a leader
        that proposes one that is fenced is refused.
        """
        brokers = self._metadata.brokers
        looked_at = 0
        for partition in islice(self._told_of_brokers, SLICE_TOLD):
            looked_at += 1
            if partition.leading is not None:
                partition.leading.brokers_changed(brokers)
        return looked_at == SLICE_TOLD

    def _configure(self, delta: ImageDelta) -> None:
        """Hand changed settings to whom they concern; a change of one topic costs no other."""
        resources = delta.configs_changed
        if any(kind == ResourceType.BROKER for kind, _ in resources):
            topics: Iterable[str] = self._metadata.topics
        else:
            topics = (name for kind, name in resources if kind == ResourceType.TOPIC)
        for name in topics:
            self._configure_topic(name)

    def _configure_topic(self, name: str) -> None:
        topic = self._metadata.topics.get(name)
        held = [] if topic is None else [self.held.get(each.key) for each in topic.partitions]
        ours = [each for each in held if each is not None]
        if not ours:
            return
        settings = self._settings(name)
        for partition in ours:
            partition.configure(settings)
        for fetcher in self._fetchers.values():
            fetcher.allow(settings.max_message_bytes)

    def _take_up(
        self,
        decided: image.Partition,
        brokers: Mapping[int, image.Broker],
        *,
        is_new: bool,
    ) -> bool:
        """Return whether its leader epoch is another one now.

        `is_new`: it was not ours before, so that nothing it needs lies on a lost disk.
        """
        partition = self.held.get(decided.key) or self._hold(decided, is_new=is_new)
        epoch = partition.leader_epoch
        try:
            if decided.leader == self._node:
                self._stop_fetching(partition.key)
                partition.lead(decided, brokers)
            else:
                self._follow(partition, decided)
        except StorageError as error:
            logger.error("%s: %s", partition, error)  # noqa: TRY400 - the reason is the disk's
            partition.fail()
        self._role_changed(partition)
        return partition.leader_epoch != epoch

    def _follow(self, partition: Partition, decided: image.Partition) -> None:
        if partition.leading is None and partition.leader_epoch == decided.leader_epoch:
            return  # only the ISR has changed: the fetcher goes on
        self._stop_fetching(partition.key)
        following = partition.follow(decided.leader, decided.leader_epoch)
        if decided.leader != image.NO_LEADER and following is not None:
            fetcher = self._fetchers.get(decided.leader)
            if fetcher is None:
                fetcher = LeaderFetcher(self._fetching, decided.leader)
                self._fetchers[decided.leader] = fetcher
            fetcher.assign(following, in_sync=self._node in decided.isr)

    def _stop_fetching(self, key: PartitionKey) -> None:
        """Fetch for this partition no longer, from whomever it was."""
        for fetcher in self._fetchers.values():
            fetcher.remove(key)

    def _hold(self, decided: image.Partition, *, is_new: bool) -> Partition:
        log = self._open_log(decided, is_new=is_new)
        partition = Partition(self._surroundings, decided, log, self._settings(decided.topic))
        self.held[partition.key] = partition
        self.by_name[partition.topic, partition.index] = partition
        return partition

    def _open_log(self, decided: image.Partition, *, is_new: bool) -> Log | None:
        settings = self._settings(decided.topic)
        assert (decided.topic, decided.index) not in self._gone, "a namesake's log is there still"
        log = self._directories.get(decided.topic, decided.index)
        try:
            if log is None:
                if not is_new and not self._directories.complete:
                    # It may lie where nothing can be read now. Made anew, it would lead or join
                    # without what it had acknowledged.
                    logger.error(
                        "%s-%d is not in the log directories that work: it answers "
                        "KAFKA_STORAGE_ERROR until all are mended and the node restarted",
                        decided.topic,
                        decided.index,
                    )
                    return None
                return self._directories.create(
                    decided.topic, decided.index, decided.topic_id, settings
                )
            if log.topic_id == NULL_UUID:
                logger.warning("%s-%d had lost its topic's id", decided.topic, decided.index)
                self._directories.adopt(log, decided.topic_id)
        except StorageError as error:
            logger.error("%s-%d: %s", decided.topic, decided.index, error)  # noqa: TRY400
            return None
        log.configure(settings)
        return log

    def _give_up(self, decided: image.Partition) -> None:
        """This broker holds the partition no longer: it moved away."""
        self._delete(decided, was_held=self._let_go(decided))

    def _let_go(self, decided: image.Partition) -> bool:
        """Serve a partition no more; return whether it was taken up."""
        partition = self.held.pop(decided.key, None)
        if partition is None:
            return False
        self._stop_fetching(partition.key)
        partition.stop()
        self._role_changed(partition)
        if self.by_name.get((partition.topic, partition.index)) is partition:
            del self.by_name[partition.topic, partition.index]
        return True

    def _delete_gone(self, name: tuple[str, int]) -> None:
        decided, was_held = self._gone.pop(name)
        self._delete(decided, was_held=was_held)

    def _delete(self, decided: image.Partition, *, was_held: bool) -> None:
        """Delete the log, which may be there although the partition was not taken up yet."""
        # Also when its disk is lost: a topic of the same name must not find this log.
        log = self._directories.get(decided.topic, decided.index)
        if log is None or (not was_held and log.topic_id not in (decided.topic_id, NULL_UUID)):
            return
        logger.info("%s-%d: not held any more, deleting it", decided.topic, decided.index)
        try:
            self._directories.delete(decided.topic, decided.index)
        except StorageError as error:
            logger.error("%s-%d: %s", decided.topic, decided.index, error)  # noqa: TRY400 - as above

    def _set_strays_aside(self) -> None:
        """Move what the image does not give to this broker out of the way; never delete it.

        Its topic may have been deleted while this broker was down. But it may also be that the
        metadata log was lost, and then this is the data.
        """
        for log in list(self._directories.logs):
            if log.topic == METADATA_TOPIC:
                continue
            decided = self._metadata.partition(log.topic, log.partition)
            if decided is not None and self._is_ours(log, decided):
                continue
            try:
                path = self._directories.set_aside(log.topic, log.partition)
            except StorageError as error:
                logger.error("%s-%d: %s", log.topic, log.partition, error)  # noqa: TRY400
                continue
            logger.warning(
                "%s-%d (topic id %s) is not in the cluster's metadata: kept as %s. Remove it if "
                "its topic was deleted while this broker was down, or if a power cut took the id; "
                "if the metadata is what is "
                "wrong, mend that and give the directory its name back before the next start.",
                log.topic,
                log.partition,
                uuid_text(log.topic_id),
                path,
            )

    def _is_ours(self, log: Log, decided: image.Partition) -> bool:
        """Whether a log that was found is this broker's replica of a partition.

        One that lost its topic's id with the power may be a deleted namesake's. It is taken for
        ours only where it may have to lead: a topic that was made while this broker was down never
        had it in its ISR. Everybody else fetches from the leader what he needs.
        """
        if log.topic_id == NULL_UUID:
            return self._node in (*decided.isr, *decided.elr, *decided.last_known_elr)
        return log.topic_id == decided.topic_id and self._node in decided.replicas

    # -- all along -----------------------------------------------------------------------------

    def _schedule_sweep(self) -> None:
        delay = self._surroundings.lag_ms_max / 2000
        self._sweep = asyncio.get_running_loop().call_later(delay, self._swept)

    def _swept(self) -> None:
        self._sweep_some(iter(list(self.held.values())))

    def _sweep_some(self, left: Iterator[Partition]) -> None:
        """Look at some partitions; the next sweep is due a while after the last of them."""
        looked_at = 0
        for partition in islice(left, SLICE_TOLD):
            looked_at += 1
            if partition.leading is not None:
                partition.leading.shrink_if_lagging()
            if partition.acknowledgements:
                partition.acknowledgements.drop_finished()
        if looked_at == SLICE_TOLD:
            self._sweep = asyncio.get_running_loop().call_later(0, self._sweep_some, left)
        else:
            self._schedule_sweep()

    def directory_failed(self, directory: LogDirectory) -> None:
        """A log directory went offline: its replicas answer with an error, the others serve on."""
        for partition in self.held.values():
            if partition.log is not None and partition.log.home is directory:
                self._stop_fetching(partition.key)
                partition.fail()
                self._role_changed(partition)

    async def close(self) -> None:
        """Stop fetching and leading. The logs stay open: their directories close them.

        `apply` must not be called any more.
        """
        for timer in (self._sweep, self._slice):
            if timer is not None:
                timer.cancel()
        while self._gone:  # the next start would not know why they are there, and keep them
            self._delete_gone(next(iter(self._gone)))
        self._due_to_lead.clear()
        self._due.clear()
        for fetcher in self._fetchers.values():
            await fetcher.close()
        for partition in self.held.values():
            partition.stop()


def _absent(decided: image.Partition | None) -> ErrorCode:
    """Why a partition is not here: it is held elsewhere, or there is none."""
    if decided is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.NOT_LEADER_OR_FOLLOWER
