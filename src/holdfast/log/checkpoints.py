"""The small files of a log directory and of a partition, in Apache Kafka's formats.

Owns their text and nothing else: when they are written is the business of `directories`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from holdfast.runtime.ports import Disk


@dataclass(frozen=True, slots=True, kw_only=True)
class MetaProperties:
    """`meta.properties`: which cluster and node a log directory belongs to."""

    cluster_id: str
    node_id: int
    directory_id: bytes  # 16 bytes


def read_meta_properties(disk: Disk, directory: str) -> MetaProperties | None:
    """Return None if the directory was never formatted. DirectoryError if the file is nonsense."""
    ...


def write_meta_properties(disk: Disk, directory: str, properties: MetaProperties) -> None:
    """Write atomically and durably; the directory must exist."""
    ...


def verify_meta_properties(
    directory: str, found: MetaProperties | None, *, cluster_id: str | None, node_id: int
) -> MetaProperties:
    """Raise DirectoryError, which says what to do, unless the directory is this node's.

    `cluster_id` None: the caller doesn't know it yet and takes the directory's word.
    """
    ...


def read_clean_shutdown(disk: Disk, directory: str) -> int | None:
    """Return the broker epoch in `.kafka_cleanshutdown` (-1: none in it); None: no such file."""
    ...


def write_clean_shutdown(disk: Disk, directory: str, broker_epoch: int) -> None: ...


Offsets = Mapping[tuple[str, int], int]
