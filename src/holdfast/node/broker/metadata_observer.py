"""The broker's view of the metadata log: fetch what is committed, apply it, tell the broker.

Owns the image's progress. It keeps no copy on disk: a broker serves nobody before it has registered
with the controller, and whom it registers with has the log; so a copy would be one more thing that
can be damaged, and would save one read of a log that is small. Who is behind the log's start, as
every broker that starts once the log's prefix is gone, loads the newest snapshot instead. The image
changes only here, one batch per turn of the loop or a snapshot as a whole, so that every handler
sees whole batches; a long one is decoded in several turns before that.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from holdfast.core.metadata.image import ImageDelta, MetadataImage
from holdfast.core.metadata.image_records import SnapshotId, replace_image
from holdfast.node.broker.controller_channel import ControllerChannel, ControllerUnavailableError
from holdfast.node.metadata.metadata_fetch import (
    SnapshotFetch,
    SnapshotRefusedError,
    metadata_fetch,
    only_partition,
)
from holdfast.node.metadata.metadata_log import CommittedBatch, MetadataLogError, decode_in_turns
from holdfast.node.metadata.snapshot_format import SnapshotError
from holdfast.runtime.tasks import Ended, cancelled, report_bug
from holdfast.wire.errors import ErrorCode, WireError, error_code
from holdfast.wire.messages.fetch import FetchPartition, FetchRequest, PartitionData
from holdfast.wire.uuids import NULL_UUID

logger = logging.getLogger("holdfast.observer")

WAIT_MS: Final = 500
BYTES_MAX: Final = 1024 * 1024
RETRY_MS: Final = 50
RETRY_MS_MAX: Final = 1000
UNREAD_MAX: Final = 10  # attempts to parse what stands at one offset, some six seconds


class Observer:
    """Keeps one image up to date.

    Its channel is its own, because a parked Fetch holds up every answer behind it.
    """

    def __init__(
        self,
        channel: ControllerChannel,
        image: MetadataImage,
        changed: Callable[[ImageDelta], None],
        *,
        node_id: int,
        cluster_id: str,
        directory_id: bytes = NULL_UUID,
    ) -> None:
        self.image = image
        self.high_watermark = -1  # the controller's; -1 before it was heard
        self.kraft_version = 0  # its level; the log has it in control records, the image hasn't
        self.snapshots_loaded = 0
        self.someone_leaves: Callable[[], None] | None = None  # a broker began to shut down
        self._last_refusal = ErrorCode.NONE
        self._unread = 0  # attempts in a row that did not parse
        self._channel = channel
        self._changed = changed
        self._node_id = node_id
        self._cluster_id = cluster_id
        self._directory_id = directory_id  # DescribeQuorum tells it of who observes
        self._task: asyncio.Task[None] | None = None
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []

    def start(self, ended: Ended = report_bug) -> None:
        """Begin to read; starts its channel too. `ended` as for the channel."""
        assert self._task is None, "started twice"
        self._channel.start(ended)
        self._task = asyncio.get_running_loop().create_task(self._follow())
        self._task.add_done_callback(ended)

    async def close(self) -> None:
        """Stop reading; the image stays as it is."""
        await cancelled(self._task)
        await self._channel.close()
        for _, waiter in self._waiting:
            waiter.cancel()

    def applied(self, offset: int) -> asyncio.Future[None]:
        """Done once the record at `offset` is in the image."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self.image.offset >= offset:
            waiter.set_result(None)
        else:
            self._waiting = [each for each in self._waiting if not each[1].done()]
            self._waiting.append((offset, waiter))
        return waiter

    @property
    def caught_up(self) -> bool:
        """Whether the image holds all that the controller had committed when it last answered."""
        return 0 <= self.high_watermark <= self.image.offset + 1

    async def _follow(self) -> None:
        while True:
            try:
                response = await self._channel.send(self._request())
            except ControllerUnavailableError as error:
                logger.debug("the metadata log can't be read: %s", error)
                await asyncio.sleep(RETRY_MS / 1000)
                continue
            found = only_partition(response)
            if found is not None:
                leader = found.current_leader
                self._channel.known.learn(
                    leader.leader_epoch, leader.leader_id, response.node_endpoints
                )
            if found is None or found.error_code != ErrorCode.NONE:
                self._refused(error_code(found.error_code if found else response.error_code))
                self._channel.drop()
                await asyncio.sleep(RETRY_MS / 1000)
                continue
            self._last_refusal = ErrorCode.NONE
            if found.snapshot_id.end_offset >= 0:
                await self._load(
                    SnapshotId(found.snapshot_id.end_offset, found.snapshot_id.epoch),
                    found.current_leader.leader_epoch,
                )
            else:
                await self._apply(found)

    def _refused(self, code: ErrorCode) -> None:
        """Say so once: the next attempts go the same way until somebody does something."""
        if code is self._last_refusal:
            return
        self._last_refusal = code
        lost = ": it has lost what it had committed, or it is another cluster's"
        logger.log(
            logging.INFO if code is ErrorCode.NOT_LEADER_OR_FOLLOWER else logging.WARNING,
            "the controller does not serve the metadata log from offset %d (%s)%s",
            self.image.offset + 1,
            code.name,
            lost if code is ErrorCode.OFFSET_OUT_OF_RANGE else "",
        )

    def _request(self) -> FetchRequest:
        return metadata_fetch(
            FetchPartition(
                partition=0,
                fetch_offset=self.image.offset + 1,
                partition_max_bytes=BYTES_MAX,
                replica_directory_id=self._directory_id,
            ),
            cluster_id=self._cluster_id,
            replica_id=self._node_id,
            wait_ms=WAIT_MS,
            bytes_max=BYTES_MAX,
        )

    async def _load(self, identity: SnapshotId, leader_epoch: int) -> None:
        """Fetch a snapshot, and put what it says in the place of the image.

        All of it from one leader: another one's of the same name may be made of other bytes.
        """
        fetch = SnapshotFetch(
            identity,
            node_id=self._node_id,
            cluster_id=self._cluster_id,
            leader_epoch=leader_epoch,
        )
        try:
            while not fetch.complete:
                fetch.take(await self._channel.send(fetch.request()))
            loaded = fetch.finish()
        except (ControllerUnavailableError, SnapshotRefusedError) as error:
            # As when this one was removed meanwhile: the next Fetch names a newer one.
            logger.info("snapshot %s can't be read: %s", identity.file_name, error)
        except SnapshotError as error:
            await self._unreadable(error)
            return
        else:
            self._unread = 0
            self._replace(loaded, fetch.reader.kraft_version)
            return
        await asyncio.sleep(RETRY_MS / 1000)

    def _replace(self, loaded: MetadataImage, kraft_version: int) -> None:
        if loaded.offset <= self.image.offset:
            return  # it says nothing that is new here
        logger.info("the metadata log is read from a snapshot, up to offset %d", loaded.offset)
        self.snapshots_loaded += 1
        self.kraft_version = kraft_version
        self._tell(replace_image(self.image, loaded))
        self._wake()

    async def _apply(self, found: PartitionData) -> None:
        first = True
        try:
            for batch in decode_in_turns(found.records or b""):
                if batch is None:
                    await asyncio.sleep(0)
                    continue
                if batch.last_offset <= self.image.offset:
                    continue  # a batch that began before the offset asked for
                if not first:
                    await asyncio.sleep(0)
                first = False
                self._apply_batch(batch)
        except WireError as error:
            await self._unreadable(error)
            return
        self._unread = 0
        self.high_watermark = max(self.high_watermark, found.high_watermark)
        self._wake()

    async def _unreadable(self, error: WireError | SnapshotError) -> None:
        """Try again, for another controller may have it whole; MetadataLogError: too often.

        A broker whose image stands still must not go on as if it were alive: it would lead what it
        does not know of, and be counted on. So it ends, which hands over what it leads, and says
        why. Waiting to be fenced instead would hide that only another version, or a mended log,
        can help.
        """
        offset = self.image.offset + 1
        self._unread += 1
        logger.error("the metadata log does not parse at offset %d: %s", offset, error)
        if self._unread >= UNREAD_MAX:
            raise MetadataLogError(
                f"the metadata log does not parse at offset {offset}, in {UNREAD_MAX} attempts: "
                f"{error}. Either a newer version wrote it, which this broker needs to be as well, "
                "or the active controller's copy is damaged: stop that one, and another takes over"
            ) from error
        self._channel.drop()
        await asyncio.sleep(min(RETRY_MS << self._unread, RETRY_MS_MAX) / 1000)

    def _apply_batch(self, batch: CommittedBatch) -> None:
        if batch.records:
            self._tell(self.image.apply(batch.records, offset=batch.last_offset, epoch=batch.epoch))
        else:
            if batch.kraft_version is not None:
                self.kraft_version = batch.kraft_version
            self.image.advance(batch.last_offset, batch.epoch)
        self._wake()

    def _tell(self, delta: ImageDelta) -> None:
        """Tell who cares what has changed; and that somebody leaves, whose end waits for our word.

        Its partitions go in shares, and the word that counts is the one after the last of them.
        """
        if delta:
            self._changed(delta)
        if (delta.brokers_changed or delta.partitions_changed) and self.someone_leaves:
            brokers = self.image.brokers.values()
            if any(each.in_controlled_shutdown and not each.fenced for each in brokers):
                self.someone_leaves()

    def _wake(self) -> None:
        offset = self.image.offset
        ready = [waiter for wanted, waiter in self._waiting if wanted <= offset]
        self._waiting = [each for each in self._waiting if each[0] > offset]
        for waiter in ready:
            if not waiter.done():
                waiter.set_result(None)
