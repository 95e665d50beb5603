"""The snapshots of one controller's metadata log: which there are, reading, writing, removing them.

Owns the `.checkpoint` files in the metadata log's directory. A snapshot has its name only once it
is whole and synced; until then it is a `.part` file, which the next start removes. That the log's
prefix may go because a snapshot covers it is decided here (`clean`), and by Kafka's rule: the log
begins where a snapshot that is kept ends, and the newest snapshot is always kept.

When one is due is `SnapshotMaker`'s business; what stands in one, `snapshot_format`'s.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from holdfast.config.node import NodeSettings
from holdfast.core.metadata.image import MetadataImage
from holdfast.core.metadata.image_records import SNAPSHOT_SUFFIX, SnapshotId, freeze, snapshot_id
from holdfast.log.directories import LogDirectory
from holdfast.log.errors import StorageError
from holdfast.log.log import Log
from holdfast.node.metadata.snapshot_format import SnapshotError, SnapshotReader, snapshot_batches
from holdfast.runtime.ports import Disk, File, WorkerFullError
from holdfast.runtime.tasks import report_bug
from holdfast.wire.records.control import VotersRecord

logger = logging.getLogger("holdfast.snapshots")

PART_SUFFIX: Final = ".part"
READ_BYTES: Final = 1024 * 1024

QuorumAt: TypeAlias = tuple[int, VotersRecord | None]


@dataclass(frozen=True, slots=True)
class SnapshotFile:
    """One snapshot on disk. `wall_ms` is when the last record that it contains was written."""

    identity: SnapshotId
    size: int
    wall_ms: int


@dataclass(frozen=True, slots=True)
class LoadedSnapshot:
    """The content of a snapshot."""

    identity: SnapshotId
    image: MetadataImage
    kraft_version: int
    voters: VotersRecord | None


class SnapshotStore:
    """The snapshots beside one metadata log. Made once its log is loaded."""

    def __init__(self, log: Log) -> None:
        """List what is there and remove what was never finished. StorageError: the disk fails."""
        self._log = log
        self._home: LogDirectory = log.home
        self._disk: Disk = log.home.runtime.disk
        self._directory = log.directory
        self.files: dict[SnapshotId, SnapshotFile] = {}  # the oldest first
        self._begun = 0  # so many were begun by this process
        with self._home.guarded():
            self._list()

    def _list(self) -> None:
        names = self._disk.list(self._directory)
        for name in names:
            if name.endswith(SNAPSHOT_SUFFIX + PART_SUFFIX):
                self._disk.remove(f"{self._directory}/{name}")
        found = [identity for name in names if (identity := SnapshotId.of_file(name))]
        for identity in sorted(found):
            self.files[identity] = SnapshotFile(
                identity, self._disk.size(self._path(identity)), self._wall_ms(identity)
            )

    def _wall_ms(self, identity: SnapshotId) -> int:
        """Return the time in the header, or else of the file; damage is found when it is read."""
        reader = SnapshotReader(identity, self._path(identity))
        with closing(self._disk.open(self._path(identity))) as file:
            try:
                reader.feed(file.pread(READ_BYTES, 0))
            except SnapshotError:
                logger.warning("snapshot %s is damaged", self._path(identity))
        if reader.wall_ms > 0:
            return reader.wall_ms
        return self._disk.modified_ms(self._path(identity))

    # -- what there is -------------------------------------------------------------------------

    @property
    def latest(self) -> SnapshotId | None:
        """The newest, which is what a start and a follower that is far behind begin with."""
        return next(reversed(self.files), None)

    @property
    def oldest(self) -> SnapshotId | None:
        return next(iter(self.files), None)

    @property
    def size(self) -> int:
        """Bytes of all."""
        return sum(file.size for file in self.files.values())

    def epoch_at(self, end_offset: int) -> int:
        """Epoch of the last record in the snapshot that ends there; -1: there is none."""
        return max((each.epoch for each in self.files if each.end_offset == end_offset), default=-1)

    def _path(self, identity: SnapshotId) -> str:
        return f"{self._directory}/{identity.file_name}"

    # -- reading -------------------------------------------------------------------------------

    def read(self, identity: SnapshotId, position: int, bytes_max: int) -> bytes:
        """Bytes of a snapshot that is there. StorageError: the disk fails."""
        assert identity in self.files, "a snapshot that is not there"
        with self._home.guarded(), closing(self._disk.open(self._path(identity))) as file:
            return file.pread(bytes_max, position)

    def load(self) -> LoadedSnapshot | None:
        """Read the newest; None when there is none.

        SnapshotError: it is damaged. An older one is not tried: the log between the two may be gone
        for good, and what is missing would be noticed by nobody.
        """
        identity = self.latest
        if identity is None:
            return None
        reader = SnapshotReader(identity, self._path(identity))
        try:
            while data := self.read(identity, reader.fed, READ_BYTES):
                reader.feed(data)
            image = reader.finish()
        except SnapshotError as error:
            raise SnapshotError(f"{error}. Restore the file from a copy.") from error
        return LoadedSnapshot(identity, image, reader.kraft_version, reader.voters)

    # -- writing -------------------------------------------------------------------------------

    def create(self, identity: SnapshotId) -> SnapshotWriter:
        """Begin to write a snapshot, made here or fetched from the leader."""
        self._begun += 1
        path = self._path(identity)
        # Each has a file of its own, as in Apache Kafka: the same snapshot may be made here while
        # it is fetched, and half of one must not get the other's name.
        part = f"{path.removesuffix(SNAPSHOT_SUFFIX)}-{self._begun}{SNAPSHOT_SUFFIX}{PART_SUFFIX}"
        return SnapshotWriter(identity, path, part, self._home, self._written)

    def _written(self, file: SnapshotFile) -> None:
        self.files[file.identity] = file
        self.files = dict(sorted(self.files.items()))

    # -- removing ------------------------------------------------------------------------------

    def clean(self, settings: NodeSettings, wall_ms: int) -> None:
        """Drop the oldest snapshots, and the log below the oldest that stays, while it is too much.

        StorageError: the disk fails.
        """
        while len(self.files) >= 2:
            oldest, following = list(self.files.values())[:2]
            too_large = 0 <= settings.metadata_max_retention_bytes < self._log.size + self.size
            too_old = 0 <= settings.metadata_max_retention_ms < wall_ms - oldest.wall_ms
            if not (too_large or too_old):
                return
            if following.identity.end_offset > self._log.high_watermark:
                return
            self._drop(oldest.identity, following.identity, wall_ms)

    def _drop(self, oldest: SnapshotId, following: SnapshotId, wall_ms: int) -> None:
        """The log now begins at the end of `following`: `oldest` is of no use any more."""
        self._log.advance_start(following.end_offset)
        self._log.retention(wall_ms, self._log.high_watermark)
        path = self._path(oldest)
        del self.files[oldest]
        with self._home.guarded():
            self._disk.remove(path)
        logger.info("snapshot %s is gone, the metadata log begins at %d", path, self._log.start)


class SnapshotWriter:
    """One snapshot on its way to the disk; every step is a job in the directory's lane.

    Each raises StorageError when the disk fails, WorkerFullError when too many jobs wait.
    """

    def __init__(
        self,
        identity: SnapshotId,
        path: str,
        part: str,
        home: LogDirectory,
        written: Callable[[SnapshotFile], None],
    ) -> None:
        self.identity = identity
        self.position = 0  # so many bytes were written
        self._path = path
        self._part = part  # until it is whole
        self._home = home
        self._disk = home.runtime.disk
        self._written = written
        self._file: File | None = None
        self._is_part = False  # there may be a part of it

    async def append(self, data: bytes | bytearray | memoryview) -> None:
        """Write the next bytes; they must not change meanwhile."""
        self._is_part = True
        await self._perform(lambda: self._opened().append(data))
        self.position += len(data)

    async def finish(self, wall_ms: int) -> None:
        """Make it durable, and only then give it its name."""
        assert self.position > 0, "a snapshot has at least a header and a footer"
        await self._perform(self._seal)
        self._is_part = False
        self._written(SnapshotFile(self.identity, self.position, wall_ms))

    def abandon(self) -> None:
        """Write no more of it, and remove what there is. Nothing happens once it is finished."""
        if self._is_part and self._home.online:
            # A job like the others: the step before it may still be under way, the first one too.
            job = self._home.submit(self._discard)
            job.add_done_callback(lambda done: done.cancelled() or done.exception())

    async def _perform(self, job: Callable[[], None]) -> None:
        with self._home.guarded():
            await self._home.submit(job)

    def _opened(self) -> File:
        if self._file is None:
            self._file = self._disk.open(self._part, create=True)
        return self._file

    def _discard(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
            self._disk.remove(self._part)

    def _seal(self) -> None:
        file = self._opened()
        file.sync()
        file.close()
        self._file = None
        self._disk.rename(self._part, self._path)
        self._disk.sync_directory(self._path.rpartition("/")[0])


class _Taken(NamedTuple):
    """The content of the next snapshot, as it was at one moment."""

    image: MetadataImage
    wall_ms: int
    kraft_version: int
    voters: VotersRecord | None


class SnapshotMaker:
    """Makes a snapshot when so many bytes were committed since the last, or so much time passed.

    The image is copied at the log's end, between two records, and written once all that it contains
    is committed, in slices of a millisecond or two: nobody waits for it.
    """

    def __init__(
        self,
        log: Log,
        store: SnapshotStore,
        settings: NodeSettings,
        failed: Callable[[StorageError], None],
        quorum_at: Callable[[int], QuorumAt] = lambda _: (0, None),
    ) -> None:
        """`failed` hears of a disk that can't be written any more.

        `quorum_at(end)` gives kraft.version and, from 1 on, the voters' record as they were when
        the log ended there.
        """
        self._runtime = log.home.runtime
        self._log = log
        self._store = store
        self._settings = settings
        self._failed = failed
        self._quorum_at = quorum_at
        self._since_ms = self._runtime.clock.monotonic_ms()  # of the last snapshot or the start
        self._size_due = 0  # at this size of the log it is worth counting
        self._taken: _Taken | None = None  # waits until it is committed
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    def consider(self, image: MetadataImage, committed: int) -> None:
        """Make a snapshot if one is due. To be called when more was committed, and now and then.

        `image` is at a batch's end, at most at the log's; `committed` is the first offset that is
        not committed yet.
        """
        if self._closed or self._task is not None:
            return
        try:
            is_due = self._taken is None and self._is_due(image)
        except StorageError as error:
            self._failed(error)
            return
        if is_due:
            self._taken = _Taken(
                freeze(image),
                self._runtime.clock.wall_ms(),
                *self._quorum_at(image.offset + 1),
            )
        if self._taken is not None and self._taken.image.offset < committed:
            taken, self._taken = self._taken, None
            self._task = asyncio.get_running_loop().create_task(self._make(taken))
            self._task.add_done_callback(self._made)

    def forget(self) -> None:
        """Drop a copy that waits to be committed: this node leads no more."""
        self._taken = None

    def close(self) -> None:
        """Give up what is being written; the next start removes it."""
        self._closed = True
        self._taken = None
        if self._task is not None:
            self._task.cancel()

    def _is_due(self, image: MetadataImage) -> bool:
        latest = self._store.latest
        covered = max(latest.end_offset if latest is not None else 0, self._log.start)
        if image.offset < covered:
            return False  # nothing is new
        elapsed_ms = self._runtime.clock.monotonic_ms() - self._since_ms
        if 0 < self._settings.metadata_log_max_snapshot_interval_ms <= elapsed_ms:
            return True
        if self._log.size < self._size_due:
            return False
        bytes_max = self._settings.metadata_log_max_record_bytes_between_snapshots
        found = self._log.bytes_between(covered, image.offset + 1)
        self._size_due = self._log.size + bytes_max - found
        return found >= bytes_max

    async def _make(self, taken: _Taken) -> None:
        identity = snapshot_id(taken.image)
        writer = self._store.create(identity)
        try:
            for batch in snapshot_batches(
                taken.image, taken.wall_ms, kraft_version=taken.kraft_version, voters=taken.voters
            ):
                await writer.append(batch)
            await writer.finish(taken.wall_ms)
            logger.info("snapshot %s: %d bytes", identity.file_name, writer.position)
            self._store.clean(self._settings, self._runtime.clock.wall_ms())
        except WorkerFullError as error:
            logger.warning("no snapshot for now: %s", error)
        except StorageError as error:
            self._failed(error)
        finally:
            writer.abandon()

    def _made(self, task: asyncio.Task[None]) -> None:
        self._task = None
        self._since_ms = self._runtime.clock.monotonic_ms()
        self._size_due = 0
        report_bug(task)
