"""This node's replica of the metadata log, opened: all that a member of the quorum works with.

Owns the order in which it is opened. Log, snapshots and voters are there as long as this object is,
so nobody has to ask whether they are. Who leads and what is committed, `QuorumMember` finds out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from holdfast.config.node import NodeSettings
from holdfast.core.quorum.voter_events import AskVotes
from holdfast.core.quorum.voter_set import ReplicaKey, Voter, VoterSet
from holdfast.log.directories import LogDirectories
from holdfast.node.metadata.metadata_log import MetadataLog, MetadataLogError
from holdfast.node.metadata.metadata_snapshots import LoadedSnapshot, SnapshotStore
from holdfast.node.quorum.voter_log import VoterLog
from holdfast.runtime.ports import Runtime


class Member(Protocol):
    """The member of the quorum that acts on what its loops find. Each call comes at once."""

    def log_changed(self) -> None:
        """The log was appended to, cut, or synced."""

    def fetched(self, epoch: int, high_watermark: int) -> None:
        """The leader has answered; what it sent is in the log."""

    def snapshot_loaded(self, loaded: LoadedSnapshot) -> None:
        """A snapshot was fetched and is durable; the log is still as it was."""

    def vote_answered(
        self, asked: AskVotes, voter: int, epoch: int, leader_id: int, *, granted: bool
    ) -> None:
        """A voter has given its vote, or refused it."""

    def heard(self, epoch: int, leader_id: int, endpoints: Sequence[Any]) -> None:
        """An answer named the leader of an epoch, and where controllers are."""

    def follow_again(self) -> None:
        """Look again whom to follow: its address may be known now."""

    def leader_gone(self, epoch: int) -> None:
        """The leader's process refuses connections."""

    def fail(self, error: BaseException) -> None:
        """The disk fails, or the log can't be read."""

    def loop_ended(self, task: asyncio.Task[None]) -> None:
        """A loop is over: done, cancelled, or dead by a mistake of ours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumReplica:
    """The replica on disk, whose it is, and what its owner needs to act on it."""

    runtime: Runtime
    settings: NodeSettings
    cluster_id: str
    key: ReplicaKey
    log: MetadataLog
    snapshots: SnapshotStore
    voter_log: VoterLog

    @classmethod
    def open(
        cls, runtime: Runtime, settings: NodeSettings, directories: LogDirectories
    ) -> QuorumReplica:
        """Find the replica in directories that have been loaded, or make it.

        `load` comes next, then `voter_log.restart` with what it has found. StorageError: the disk
        fails.
        """
        log = MetadataLog.open(runtime, settings, directories)
        snapshots = SnapshotStore(log.replica)
        log.snapshot_epoch = snapshots.epoch_at
        configured = VoterSet.of(Voter(*voter) for voter in settings.controller_quorum_voters)
        return cls(
            runtime=runtime,
            settings=settings,
            cluster_id=directories.cluster_id,
            key=ReplicaKey(settings.node_id, log.replica.home.directory_id),
            log=log,
            snapshots=snapshots,
            voter_log=VoterLog(configured, settings.controller_listener_names, log.replica),
        )

    def load(self) -> LoadedSnapshot | None:
        """Read the newest snapshot, and let the log go on from its end; None: there is none.

        MetadataLogError: the log begins later than where the snapshot ends. SnapshotError: it is
        damaged. StorageError: the disk fails.
        """
        log, covered = self.log, 0
        loaded = self.snapshots.load()
        if loaded is not None:
            covered = loaded.identity.end_offset
            if not log.goes_on_from(covered, loaded.identity.epoch):
                # A crash came between a fetched snapshot and the log.
                log.restart_at(covered, loaded.identity.epoch)
            if covered > log.committed:
                log.commit(covered)
        if covered < log.start:
            raise MetadataLogError(
                f"{log.replica.directory}: the log begins at offset {log.start}, and no "
                "snapshot reaches that far. Restore the directory from a copy."
            )
        return loaded
