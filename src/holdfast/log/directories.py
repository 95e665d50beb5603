"""The log directories of one node and the replicas in them.

Owns which replica lies where, the lock on each directory, loading and recovery, the periodic work
(checkpoints, retention, expiry of producers), and what happens when a disk fails.
Never knows which replicas ought to exist: its caller compares and decides.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from typing import Final

from holdfast.config.node import NodeSettings
from holdfast.config.topic import TopicSettings
from holdfast.log.checkpoints import (
    CLEAN_SHUTDOWN,
    CLEANED,
    HIGH_WATERMARK,
    LOG_START,
    PARTITION_METADATA,
    RECOVERY_POINT,
    encode_partition_metadata,
    read_clean_shutdown,
    read_meta_properties,
    read_offsets,
    read_partition_metadata,
    verify_meta_properties,
)
from holdfast.log.compaction.cleaner import Cleaner
from holdfast.log.copies import Copies
from holdfast.log.directory import (
    DELETED_DIRECTORY_SUFFIX,
    STRAY_DIRECTORY_SUFFIX,
    LogDirectory,
    partition_of,
)
from holdfast.log.errors import CorruptFileError, DirectoryError, StorageError
from holdfast.log.log import Log, Place
from holdfast.log.recovery import Loaded, Recovery, Remembered
from holdfast.log.topic_ids import TopicIds
from holdfast.runtime.periodic import Periodic
from holdfast.runtime.ports import Runtime
from holdfast.wire.uuids import NULL_UUID, uuid_text
from holdfast.wire.well_known import METADATA_TOPIC

__all__ = ["LogDirectories", "LogDirectory"]

LOCK_FILE: Final = ".lock"
PRODUCER_CHECK_INTERVAL_MS: Final = 600_000  # producer.id.expiration.check.interval.ms's default
_SYNC_PAUSE_S: Final = 0.5  # between two syncs of new names of one directory
_IGNORED_SUFFIXES: Final = ("-future", STRAY_DIRECTORY_SUFFIX)

logger = logging.getLogger(__name__)


class LogDirectories:
    """All replicas of a node. `load`, then `start`, at the end `await close`."""

    def __init__(
        self,
        runtime: Runtime,
        settings: NodeSettings,
        settings_for: Callable[[str], TopicSettings],
        *,
        file_limit: int = 8192,
        make_log: Callable[..., Log] = Log,
    ) -> None:
        """Nothing is touched until `load`.

        `settings_for(topic)` gives the settings with which a replica is loaded; replace
        `log.settings` when the topic's configuration is known. metadata.log.dir need not be one of
        log.dirs, but a controller does not start without it. Where it is empty, the metadata log is
        in the first of them. `make_log` is for who wants to watch what replicas do: it makes a kind
        of `Log`.
        """
        paths, metadata_path = settings.log_dirs, settings.metadata_log_dir
        assert paths or metadata_path, "a node without a directory"
        self._watchers: list[Callable[[LogDirectory], None]] = []
        self._runtime = runtime
        self.cluster_id = ""  # known once loaded, from meta.properties
        self._settings = settings
        self._settings_for = settings_for
        everything = list(dict.fromkeys([*paths, *([metadata_path] if metadata_path else [])]))
        limit = max(16, file_limit // len(everything))
        self.directories: Sequence[LogDirectory] = [
            LogDirectory(runtime, path, file_limit=limit) for path in everything
        ]
        self._for_topics = self.directories[: len(set(paths))]
        self._metadata_path = metadata_path
        self._make_log = make_log
        self._logs: dict[tuple[str, int], Log] = {}
        self._broker_epochs: list[int] = []  # of each directory's last clean shutdown
        self._is_loaded = False  # all is found, and what the last end proves is looked at
        self._periodic = Periodic()
        self._timers = self._periodic.timers
        self._creations: set[str] = set()  # directories whose new names are not durable yet
        self._topic_ids = TopicIds(runtime.disk)
        self._copies = Copies(runtime, self.directories)
        self.cleaner = Cleaner(runtime, settings, self._retain)
        self._closed = False

    def configure(self, settings: NodeSettings) -> None:
        """Take over settings that may change while the node runs; the others are as they were."""
        self._settings = settings
        self.cleaner.configure(settings)

    def watch_offline(self, watcher: Callable[[LogDirectory], None]) -> None:
        """Call `watcher` with each directory whose disk fails from now on, between handlers."""
        self._watchers.append(watcher)

    # --- loading ---

    def load(self) -> None:
        """Lock, verify meta.properties, open every replica, recovering where it must be.

        To be called on the running loop, before anything is served. DirectoryError: a directory
        is in use by another process, never formatted, of another cluster or node, or none is
        left that works. One that merely fails goes offline. CorruptFileError: a replica is damaged
        where nothing else says what it had. `close` is for a load that fails, too.
        """
        for directory in self.directories:
            directory.on_offline = self._went_offline
            directory.log_changed = self.cleaner.changed
            with _offline_if_it_fails(directory):
                self._verify(directory)
        self._copies.set_older_aside()
        self._do_without_offline()
        closed_at: dict[tuple[str, int], int] = {}
        # First the one without which a controller can't start: so far no other one has lost the
        # mark of its clean end.
        metadata_path = self._metadata_path
        for directory in sorted(self.directories, key=lambda each: each.path != metadata_path):
            if directory.online:
                with _offline_if_it_fails(directory):
                    closed_at.update(self._load_directory(directory))
                    directory.is_loaded = True
                self._do_without_offline()
        self._copies.settle()
        self._do_without_offline()
        if self._for_topics and self.none_left:
            raise DirectoryError(f"no log directory works: {'; '.join(self.failures)}")
        self._check_proof(closed_at)
        self._is_loaded = True

    def _do_without_offline(self) -> None:
        for directory in self.directories:
            if directory.online:
                continue
            if directory.path == self._metadata_path and self._settings.is_controller:
                raise DirectoryError(
                    f"metadata.log.dir must work: {directory.path} is offline: {directory.failure}"
                )
            for key in directory.replicas:
                del self._logs[key]
            directory.replicas.clear()

    def _verify(self, directory: LogDirectory) -> None:
        """Take the lock, then see whose directory it is."""
        disk = self._runtime.disk
        found = read_meta_properties(disk, directory.path)
        properties = verify_meta_properties(
            directory.path,
            found,
            cluster_id=self.cluster_id or None,
            node_id=self._settings.node_id,
        )
        try:
            directory.lock = disk.lock(f"{directory.path}/{LOCK_FILE}")
        except BlockingIOError as error:
            raise DirectoryError(
                f"{directory.path} is in use by another process: stop it, or correct log.dirs"
            ) from error
        self.cluster_id = properties.cluster_id
        directory.directory_id = properties.directory_id
        for other in self.directories:
            if other is not directory and other.directory_id == directory.directory_id:
                if directory.directory_id == NULL_UUID:
                    continue
                raise DirectoryError(
                    f"{other.path} and {directory.path} have one directory.id,"
                    f" {uuid_text(directory.directory_id)}: one is a copy, remove it from log.dirs"
                )

    def _load_directory(self, directory: LogDirectory) -> Mapping[tuple[str, int], int]:
        """Open what lies there; return where each replica ended, if the last end was a clean one.

        OSError, StorageError: the disk fails.
        """
        disk, path = self._runtime.disk, directory.path
        broker_epoch = read_clean_shutdown(disk, path)
        self._broker_epochs.append(-1 if broker_epoch is None else broker_epoch)
        if broker_epoch is not None:
            # Gone before anything is opened: a crash while loading is a crash.
            disk.remove(f"{path}/{CLEAN_SHUTDOWN}")
            disk.sync_directory(path)
        recovery_points = self._read_offsets(path, RECOVERY_POINT)
        starts = self._read_offsets(path, LOG_START)
        high_watermarks = self._read_offsets(path, HIGH_WATERMARK)
        cleaned = self._read_offsets(path, CLEANED)
        renamed = directory.remove_deleted()
        for name in disk.list(path):
            if name.endswith(DELETED_DIRECTORY_SUFFIX):
                continue
            key = partition_of(name)
            if key is None:
                if name.endswith(_IGNORED_SUFFIXES):
                    logger.warning("%s/%s is left alone", path, name)
                continue
            remembered = Remembered(
                clean=broker_epoch is not None,
                recovery_point=recovery_points.get(key, 0),
                start=starts.get(key, 0),
                high_watermark=high_watermarks.get(key, 0),
                cleaned_to=cleaned.get(key),
            )
            self._load_replica(directory, name, key, remembered)
        if directory.contradicts(recovery_points, starts, high_watermarks, cleaned):
            directory.with_room(lambda _: directory.write_first())  # before anything is written
        if renamed:
            directory.sync_names()  # or a replica made anew may meet the old one
        return recovery_points if broker_epoch is not None else {}

    def _check_proof(self, closed_at: Mapping[tuple[str, int], int]) -> None:
        """A clean end leaves every replica flushed to its end: is all of it still there?

        If not, the last broker epoch proves nothing: who believed it could elect this broker.
        """
        for (topic, partition), end in closed_at.items():
            log = self._logs.get((topic, partition))
            if (log.end if log is not None else 0) < end:
                self._broker_epochs.append(-1)
                logger.error(
                    "%s-%d was closed at offset %d and %s: this start counts as one after a crash",
                    topic,
                    partition,
                    end,
                    "is gone" if log is None else f"ends at {log.end} now",
                )

    def _load_replica(
        self, directory: LogDirectory, name: str, key: tuple[str, int], remembered: Remembered
    ) -> None:
        path = f"{directory.path}/{name}"
        settings = self._settings_for(key[0])
        assert key not in self._logs, f"{path} has a copy"
        topic_id = self._read_topic_id(path)
        self._copies.loaded(directory, key, path)

        def recover(is_again: bool) -> Loaded:
            # A first try may have left an index that is half made, as a crash does.
            known = replace(remembered, clean=False) if is_again else remembered
            return Recovery(self._runtime, directory.files, path, settings, known).run()

        loaded = directory.with_room(recover)
        self._enter(
            self._make_log(
                directory,
                Place(path, *key, topic_id),
                settings,
                loaded,
                # Nobody knows whether its id and its name were synced, whatever was of its batches.
                is_new=not loaded.clean,
            )
        )

    def _read_topic_id(self, path: str) -> bytes:
        try:
            return read_partition_metadata(self._runtime.disk, path)
        except CorruptFileError as error:
            logger.warning("%s: the topic's id is not known", error)
            return NULL_UUID

    def _read_offsets(self, path: str, name: str) -> dict[tuple[str, int], int]:
        try:
            return read_offsets(self._runtime.disk, path, name)
        except CorruptFileError as error:
            logger.warning("%s: done without", error)
            return {}

    def _enter(self, log: Log) -> None:
        key = log.topic, log.partition
        self._logs[key] = log
        log.home.replicas[key] = log

    # --- what there is ---

    @property
    def previous_broker_epoch(self) -> int:
        """Broker epoch of the last clean shutdown, -1 unless all directories agree on it."""
        epochs = set(self._broker_epochs)
        everywhere = self._is_loaded and len(self._broker_epochs) >= len(self.directories)
        return epochs.pop() if everywhere and len(epochs) == 1 else -1

    @property
    def logs(self) -> Sequence[Log]:
        """Every replica in a directory that is online, the metadata log included."""
        return [log for log in self._logs.values() if not log.offline]

    def get(self, topic: str, partition: int) -> Log | None:
        """Return the replica, if there is one; it may be offline."""
        return self._logs.get((topic, partition))

    @property
    def complete(self) -> bool:
        """Whether every directory for topics is online: what is not found then is nowhere."""
        return all(directory.online for directory in self._for_topics)

    @property
    def online_ids(self) -> list[bytes]:
        """Ids of the directories for topics that work."""
        return [directory.directory_id for directory in self._for_topics if directory.online]

    @property
    def none_left(self) -> bool:
        """Whether no directory for topics is online: such a broker is of no use."""
        return not any(directory.online for directory in self._for_topics)

    @property
    def offline_ids(self) -> list[bytes]:
        """Ids of the directories for topics that don't, as far as they could be read."""
        return [
            directory.directory_id
            for directory in self._for_topics
            if not directory.online and directory.directory_id != NULL_UUID
        ]

    @property
    def failures(self) -> list[str]:
        """Each directory that is offline, and why."""
        return [f"{each.path}: {each.failure}" for each in self.directories if not each.online]

    # --- creating and deleting ---

    def create(self, topic: str, partition: int, topic_id: bytes, settings: TopicSettings) -> Log:
        """Make a replica in the directory with the fewest (the metadata log in its own).

        Where that one is full, or fails, it goes offline, and the next one is taken. The directory
        entry becomes durable in the background. StorageError when no directory is online.
        """
        assert (topic, partition) not in self._logs, f"{topic}-{partition} is there already"
        for each in self.directories:
            if each.online:
                with suppress(StorageError):  # that one is offline now
                    each.forget((topic, partition))
        while True:
            directory = self._directory_for(topic)
            try:
                return self._make(directory, topic, partition, topic_id, settings)
            except StorageError:
                if directory.online:  # a file in it is damaged: nothing of it is left alone
                    raise

    def _make(
        self,
        directory: LogDirectory,
        topic: str,
        partition: int,
        topic_id: bytes,
        settings: TopicSettings,
    ) -> Log:
        path = f"{directory.path}/{topic}-{partition}"
        disk = self._runtime.disk
        with directory.guarded():
            is_empty = disk.make_directories(path)
            self._topic_ids.write(directory.path, path, topic_id, is_new=is_empty)
            if not self.complete and topic != METADATA_TOPIC:
                self._copies.claim(directory, (topic, partition), path)
            recovery = Recovery(
                self._runtime, directory.files, path, settings, Remembered(clean=True)
            )
            loaded = recovery.begin() if is_empty else recovery.run()
        place = Place(path, topic, partition, topic_id)
        log = self._make_log(directory, place, settings, loaded, is_new=True)
        self._enter(log)
        log.configure(settings)
        self._topic_ids.made(directory.path, path, topic_id)
        self._sync_soon(directory)
        return log

    def _directory_for(self, topic: str) -> LogDirectory:
        if topic == METADATA_TOPIC:
            path = self._metadata_path or self.directories[0].path
            found = [each for each in self.directories if each.path == path]
            found[0].check()
            return found[0]
        online = [directory for directory in self._for_topics if directory.online]
        if not online:
            raise StorageError(", ".join(each.path for each in self._for_topics), "all are")
        return min(online, key=lambda directory: len(directory.replicas))

    def _sync_soon(self, directory: LogDirectory) -> None:
        """Make new names durable, all that one handler creates with one sync.

        Between two there is a pause: each makes those who make files wait for the journal, and
        whoever needs a name to be durable sooner syncs it in a flush.
        """
        if directory.path not in self._creations:
            self._creations.add(directory.path)
            asyncio.get_running_loop().call_soon(self._sync_creations, directory)

    def _sync_creations(self, directory: LogDirectory, done: int = 0) -> None:
        """Sync the names that have come since there were `done` of them; look again later."""
        names = directory.names
        if names == done or not directory.online or self._closed:
            self._creations.discard(directory.path)
            return

        def synced(_: asyncio.Future[None]) -> None:
            if not self._closed:
                self._timers[f"names of {directory.path}"] = asyncio.get_running_loop().call_later(
                    _SYNC_PAUSE_S, self._sync_creations, directory, names
                )

        directory.sync_path().add_done_callback(synced)

    def delete(self, topic: str, partition: int) -> None:
        """Rename the replica's directory to -delete at once, remove it after file.delete.delay.ms.

        StorageError: the disk failed. The replica is gone for this process all the same.
        """
        log = self._take_out(topic, partition)
        if not log.offline:
            target = log.home.rename_away(log.directory, topic, partition, DELETED_DIRECTORY_SUFFIX)
            log.home.remove_later([target], log.settings.file_delete_delay_ms)

    def set_aside(self, topic: str, partition: int) -> str | None:
        """Rename the replica's directory to -stray, durably; return its new path.

        Nothing here ever removes it: that the metadata does not know a replica may be the fault of
        the metadata. None: its log directory is offline. StorageError as for `delete`.
        """
        log = self._take_out(topic, partition)
        if log.offline:
            return None
        return log.home.set_aside(log.directory, topic, partition)

    def _take_out(self, topic: str, partition: int) -> Log:
        log = self._logs.pop((topic, partition))
        self._copies.removed((topic, partition))
        self._topic_ids.gone(log.home.path, log.directory, log.topic_id)
        log.abandon()
        self.cleaner.gone(log)
        log.home.take_out((topic, partition))
        return log

    def claim(self, log: Log) -> None:
        """A replica is the one in use, though there may be a copy in a directory out of reach.

        StorageError: the disk failed.
        """
        with log.home.guarded():
            self._copies.claim(log.home, (log.topic, log.partition), log.directory)

    def adopt(self, log: Log, topic_id: bytes) -> None:
        """Give a replica whose partition.metadata was lost the id of its topic."""
        assert log.topic_id == NULL_UUID, f"{log} has an id"
        with log.home.guarded():
            self._runtime.disk.write_atomic(
                f"{log.directory}/{PARTITION_METADATA}", encode_partition_metadata(topic_id)
            )
        log.topic_id = topic_id

    # --- periodic work ---

    def start(self) -> None:
        """Begin the periodic work."""
        intervals = self._settings
        self._periodic.every(
            "high watermarks",
            intervals.replica_high_watermark_checkpoint_interval_ms,
            lambda: self._checkpoint(HIGH_WATERMARK),
        )
        self._periodic.every(
            "recovery points",
            intervals.log_flush_offset_checkpoint_interval_ms,
            lambda: self._checkpoint(RECOVERY_POINT),
        )
        self._periodic.every(
            "log starts",
            intervals.log_flush_start_offset_checkpoint_interval_ms,
            lambda: self._checkpoint(LOG_START),
        )
        self._periodic.every(
            "retention",
            intervals.log_retention_check_interval_ms,
            lambda: self._in_slices("retention slice", self._retain),
            first_ms=intervals.log_initial_task_delay_ms,
        )
        self._periodic.every(
            "producers",
            PRODUCER_CHECK_INTERVAL_MS,
            lambda: self._in_slices("producers slice", self._expire),
        )
        for log in self.logs:
            log.flush_sealed()
        self.cleaner.start()

    def _checkpoint(self, name: str) -> None:
        for directory in self.directories:
            directory.checkpoint(name)

    def _in_slices(self, name: str, work: Callable[[Log], None]) -> None:
        """Do `work` for every log that is there by then."""

        def tried(log: Log) -> None:
            if self._logs.get((log.topic, log.partition)) is log and not log.offline:
                try:
                    work(log)
                except StorageError as error:
                    logger.warning("%s: %s", name, error)

        self._periodic.in_slices(name, list(self._logs.values()), tried)

    def _retain(self, log: Log) -> None:
        # Without a snapshot nothing of the metadata log may go. Nothing of one whose topic is not
        # known yet: it may keep for ever what the file's settings let go. And a round of compaction
        # would have to begin anew: as in Apache Kafka, nothing goes meanwhile.
        is_kept = log.topic == METADATA_TOPIC or not log.is_configured
        if not is_kept and not log.compaction.is_under_way:
            log.retention(self._runtime.clock.wall_ms(), log.high_watermark)

    def _expire(self, log: Log) -> None:
        log.expire_producers(
            self._runtime.clock.wall_ms(), self._settings.producer_id_expiration_ms
        )

    # --- the end ---

    def _went_offline(self, directory: LogDirectory) -> None:
        self.cleaner.directory_failed(directory)
        if not self._closed:
            for watcher in self._watchers:
                watcher(directory)

    async def close(self, *, broker_epoch: int = -1) -> None:
        """Close every replica, write the checkpoints and the clean-shutdown marker, unlock.

        What was not loaded whole is left as it is, with the marker that it has or lacks.
        """
        self._closed = True
        self._periodic.stop()
        with ExitStack() as ends:  # whatever fails, each is closed and unlocked
            for directory in self.directories:
                ends.callback(directory.close)
            await self.cleaner.close()
            for directory in self.directories:
                directory.begin_end()
            unwritten = await self._close_logs()
            for directory in self.directories:
                if directory.path in unwritten:
                    logger.warning("%s is not marked as closed properly", directory.path)
                elif directory.online and directory.is_loaded:
                    await directory.mark_clean(broker_epoch)

    async def _close_logs(self) -> set[str]:
        """Close every replica; return the directories where one could not be written whole.

        Their marker would be a lie, and who believed it could elect a replica that lacks what
        was committed (rules: elections.md#proof-of-a-clean-stop).
        """
        unwritten: set[str] = set()
        closing: list[tuple[Log, asyncio.Future[None]]] = []
        for log in self.logs:
            if not log.home.is_loaded:
                continue
            try:
                closing.append((log, log.close()))
            except StorageError:
                unwritten.add(log.home.path)
        outcomes = await asyncio.gather(*(done for _, done in closing), return_exceptions=True)
        for (log, _), outcome in zip(closing, outcomes, strict=True):
            if isinstance(outcome, StorageError):
                unwritten.add(log.home.path)
            elif isinstance(outcome, BaseException):
                raise outcome
        return unwritten


@contextmanager
def _offline_if_it_fails(directory: LogDirectory) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        directory.fail(error)
    except StorageError:
        assert not directory.online, "who raises it takes the directory offline"
