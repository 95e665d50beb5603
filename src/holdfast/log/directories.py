"""The log directories of one node and the replicas in them.

Owns which replica lies where, the lock on each directory, loading and recovery, the periodic work
(checkpoints, retention, expiry of producers), and what happens when a disk fails.
Never knows which replicas ought to exist: its caller compares and decides.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from holdfast.config.topic import TopicSettings
from holdfast.log.log import Log
from holdfast.runtime.ports import Runtime


class Intervals(Protocol):
    """The keys used here; `config.node.NodeSettings` has them."""

    log_retention_check_interval_ms: int
    log_initial_task_delay_ms: int
    log_flush_offset_checkpoint_interval_ms: int
    log_flush_start_offset_checkpoint_interval_ms: int
    replica_high_watermark_checkpoint_interval_ms: int
    producer_id_expiration_ms: int


class LogDirectory:
    """One directory of `log.dirs`."""

    path: str
    directory_id: bytes  # from meta.properties; NULL_UUID if that could not be read
    online: bool
    failure: str  # why it went offline; "" while online


class LogDirectories:
    """All replicas of a node. `load`, then `start`, at the end `await close`."""

    directories: Sequence[LogDirectory]
    on_offline: Callable[[LogDirectory], None] | None  # called once, between handlers

    def __init__(
        self,
        runtime: Runtime,
        paths: Sequence[str],
        *,
        node_id: int,
        cluster_id: str | None,
        intervals: Intervals,
        settings_for: Callable[[str], TopicSettings],
        metadata_path: str | None = None,
        file_limit: int = 8192,
    ) -> None:
        """Nothing is touched until `load`.

        `settings_for(topic)` gives the settings with which a replica is loaded; replace
        `log.settings` when the topic's configuration is known. `metadata_path` is
        metadata.log.dir; it need not be one of `paths`.
        """
        ...

    def load(self) -> None:
        """Lock, verify meta.properties, open every replica, recovering where it must be.

        DirectoryError: a directory is in use by another process, never formatted, of another
        cluster or node, or none is left that works. One that merely fails goes offline.
        """
        ...

    @property
    def cluster_id(self) -> str: ...

    @property
    def previous_broker_epoch(self) -> int:
        """Broker epoch of the last clean shutdown, -1 if any directory was not shut down cleanly."""
        ...

    @property
    def logs(self) -> Sequence[Log]:
        """Every replica in a directory that is online, the metadata log included."""
        ...

    def get(self, topic: str, partition: int) -> Log | None: ...

    def create(
        self, topic: str, partition: int, topic_id: bytes, settings: TopicSettings
    ) -> Log:
        """Make a replica in the directory with the fewest (the metadata log in its own).

        Its directory entry becomes durable in the background. StorageError when no directory
        is online.
        """
        ...

    def delete(self, topic: str, partition: int) -> None:
        """Rename the replica's directory to -delete at once, remove it after file.delete.delay.ms."""
        ...

    def start(self) -> None:
        """Begin the periodic work."""
        ...

    async def close(self, *, broker_epoch: int = -1) -> None:
        """Close every replica, write the checkpoints and the clean-shutdown marker, unlock."""
        ...
