"""A voter reads the metadata log from the quorum's leader, and acknowledges what it has synced.

Owns the connection to the leader and the order fetch, append, sync, fetch. The next fetch goes out
from an end that is durable here, for the leader counts what a fetch leaves behind as durable. While
a sync takes long, it asks for nothing new, only to be heard.

Rules: quorum.md#synced-before-counted.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from holdfast.core.metadata.image_records import SnapshotId
from holdfast.core.quorum.voter_set import Voter
from holdfast.log.errors import StorageError
from holdfast.log.log import EpochEnd
from holdfast.node.metadata.metadata_fetch import (
    SnapshotFetch,
    SnapshotRefusedError,
    metadata_fetch,
    only_partition,
)
from holdfast.node.metadata.metadata_log import MetadataLogError
from holdfast.node.metadata.metadata_snapshots import LoadedSnapshot
from holdfast.node.metadata.snapshot_format import SnapshotError
from holdfast.node.quorum.quorum_replica import Member, QuorumReplica
from holdfast.runtime.dial import ANY_FRAME_BYTES, Connection, dial
from holdfast.runtime.ports import WorkerFullError
from holdfast.wire.errors import ErrorCode, error_code
from holdfast.wire.messages.fetch import FetchPartition, FetchResponse, PartitionData

logger = logging.getLogger("holdfast.quorum")

BYTES_MAX: Final = 1024 * 1024
WAIT_MS_MAX: Final = 500


class VoterFetcher:
    """Fetches while this node follows; one task at a time."""

    def __init__(self, replica: QuorumReplica, member: Member) -> None:
        self._replica = replica
        self._member = member
        self._timeout_ms = max(1, replica.settings.controller_quorum_fetch_timeout_ms)
        self._pause_s = max(1, replica.settings.controller_quorum_retry_backoff_ms) / 1000
        self._task: asyncio.Task[None] | None = None
        self.address: tuple[str, int] | None = None  # of whom it fetches from
        self._client_id = f"quorum-{replica.key.node_id}-fetcher"
        self._complained = ErrorCode.NONE

    def start(self, leader: Voter, epoch: int) -> None:
        self.stop()
        self.address = leader.host, leader.port
        self._task = asyncio.get_running_loop().create_task(self._follow(leader, epoch))
        self._task.add_done_callback(self._member.loop_ended)

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = self.address = None

    # -- the loop ------------------------------------------------------------------------------

    async def _follow(self, leader: Voter, epoch: int) -> None:
        while True:
            try:
                connection = await dial(
                    self._replica.runtime,
                    leader.host,
                    leader.port,
                    self._client_id,
                    timeout_ms=self._timeout_ms,
                )
            except OSError as error:
                if isinstance(error, ConnectionRefusedError):
                    self._member.leader_gone(epoch)
                logger.debug("the leader can't be reached: %s", error)
                await asyncio.sleep(self._pause_s)
                continue
            connection.frame_bytes_max = ANY_FRAME_BYTES  # no batch of this log can be left out
            try:
                while True:
                    if not await self._fetch(connection, epoch):
                        await asyncio.sleep(self._pause_s)
            except OSError as error:
                logger.debug("the connection to the leader is lost: %s", error)
            except (StorageError, MetadataLogError) as error:
                self._member.fail(error)
                return
            finally:
                connection.close()

    async def _fetch(self, connection: Connection, epoch: int) -> bool:
        """Fetch once from the end of the log, made durable. False: pause before the next."""
        log, member = self._replica.log, self._member
        await self._sync(connection, epoch)
        response = await self._ask(connection, epoch, log.end)
        found = only_partition(response)
        if found is None or found.error_code != ErrorCode.NONE:
            code = error_code(found.error_code if found else response.error_code)
            self._refused(code, found, response)
            return False
        self._complained = ErrorCode.NONE
        if found.diverging_epoch.epoch >= 0:
            diverging = EpochEnd(found.diverging_epoch.epoch, found.diverging_epoch.end_offset)
            logger.info("the metadata log parts from the leader's: %s", diverging)
            log.truncate_at(diverging)
            member.log_changed()
        elif found.snapshot_id.end_offset >= 0:
            identity = SnapshotId(found.snapshot_id.end_offset, found.snapshot_id.epoch)
            return await self._load_snapshot(connection, epoch, identity)
        elif found.records:
            code = log.append_fetched(found.records)
            if code is not ErrorCode.NONE:
                logger.error("what the leader sends can't be appended: %s", code.name)
                return False
            member.log_changed()
        # Nothing of a response that diverges may be believed but that it does (KAFKA-14704).
        member.fetched(epoch, found.high_watermark if found.diverging_epoch.epoch < 0 else 0)
        return True

    async def _load_snapshot(
        self, connection: Connection, epoch: int, identity: SnapshotId
    ) -> bool:
        """Take a snapshot in place of what the leader's log no longer has. False: not now."""
        replica, member = self._replica, self._member
        logger.info("behind the leader's log: loading snapshot %s", identity.file_name)
        coming = SnapshotFetch(
            identity,
            node_id=replica.key.node_id,
            cluster_id=replica.cluster_id,
            leader_epoch=epoch,
            directory_id=replica.key.directory_id,
        )
        writer = replica.snapshots.create(identity)
        try:
            while not coming.complete:
                response = await connection.send(coming.request(), timeout_ms=self._timeout_ms)
                written = asyncio.ensure_future(writer.append(coming.take(response)))
                await self._meanwhile(connection, epoch, written)
                member.fetched(epoch, 0)  # the leader is alive
            loaded = LoadedSnapshot(
                identity, coming.finish(), coming.reader.kraft_version, coming.reader.voters
            )
            finished = writer.finish(max(0, coming.reader.wall_ms))
            await self._meanwhile(connection, epoch, asyncio.ensure_future(finished))
        except (SnapshotRefusedError, SnapshotError, WorkerFullError) as error:
            logger.warning("the snapshot can't be had: %s", error)
            return False
        finally:
            writer.abandon()
        member.snapshot_loaded(loaded)
        return True

    async def _sync(self, connection: Connection, epoch: int) -> None:
        """Make durable what was appended, letting the leader hear from us meanwhile."""
        log = self._replica.log
        if log.durable_end != log.end:
            await self._meanwhile(connection, epoch, log.sync())
            self._member.log_changed()

    async def _meanwhile(
        self, connection: Connection, epoch: int, disk: asyncio.Future[None]
    ) -> None:
        """Wait for the disk; while that takes long, ask for nothing but to be heard."""
        try:
            while not disk.done():
                done, _ = await asyncio.wait([disk], timeout=self._timeout_ms / 3000)
                if not done:
                    await self._sign_of_life(connection, epoch)
        finally:
            if not disk.cancel() and not disk.cancelled():
                disk.exception()  # who stops us meanwhile has heard of it
        disk.result()

    async def _sign_of_life(self, connection: Connection, epoch: int) -> None:
        response = await self._ask(connection, epoch, self._replica.log.durable_end, wait_ms=0)
        found = only_partition(response)
        if found is not None and found.error_code == ErrorCode.NONE:
            self._member.fetched(epoch, 0)

    def _refused(
        self, code: ErrorCode, found: PartitionData | None, response: FetchResponse
    ) -> None:
        if found is not None:
            leader = found.current_leader
            self._member.heard(leader.leader_epoch, leader.leader_id, response.node_endpoints)
        if code is not self._complained:
            self._complained = code
            logger.info("the leader refuses a fetch: %s", code.name)

    # -- requests ------------------------------------------------------------------------------

    def _ask(
        self, connection: Connection, epoch: int, offset: int, *, wait_ms: int = WAIT_MS_MAX
    ) -> asyncio.Future[FetchResponse]:
        replica = self._replica
        wanted = FetchPartition(
            partition=0,
            current_leader_epoch=epoch,
            fetch_offset=offset,
            last_fetched_epoch=max(replica.log.epoch_before(offset), 0),
            log_start_offset=replica.log.start,
            partition_max_bytes=BYTES_MAX if wait_ms else 1,
            replica_directory_id=replica.key.directory_id,
        )
        return connection.send(
            metadata_fetch(
                wanted,
                cluster_id=replica.cluster_id,
                replica_id=replica.key.node_id,
                wait_ms=min(wait_ms, self._timeout_ms // 2),
                bytes_max=BYTES_MAX,
            ),
            timeout_ms=self._timeout_ms,
        )
