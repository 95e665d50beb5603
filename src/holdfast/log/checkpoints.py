"""The small files of a log directory and of a partition, in Apache Kafka's formats.

Owns their text and nothing else: when they are written is the business of `directories`.

Rules: log.md#files.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from holdfast.log.errors import CorruptFileError, DirectoryError
from holdfast.runtime.ports import Disk
from holdfast.wire.uuids import NULL_UUID, parse_uuid, uuid_text

RECOVERY_POINT: Final = "recovery-point-offset-checkpoint"
HIGH_WATERMARK: Final = "replication-offset-checkpoint"
LOG_START: Final = "log-start-offset-checkpoint"
CLEANED: Final = "cleaner-offset-checkpoint"
META_PROPERTIES: Final = "meta.properties"
PARTITION_METADATA: Final = "partition.metadata"
CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"
_META_VERSION: Final = "1"

Offsets: TypeAlias = Mapping[tuple[str, int], int]
"""(topic, partition) -> offset."""


def checkpoint_lines(data: bytes, path: str) -> list[list[str]]:
    """Return the words of each line of a checkpoint in Kafka's text form: version, count, lines.

    CorruptFileError: version or count is wrong, so the file is not whole.
    """
    lines = data.decode("utf-8", "replace").splitlines()
    if lines[:1] != ["0"] or not data.endswith(b"\n"):  # a number may be cut in its digits
        raise CorruptFileError(f"{path}: not a checkpoint of version 0, or cut short")
    if lines[1:2] != [str(len(lines) - 2)]:
        raise CorruptFileError(f"{path}: {len(lines) - 2} entries, but its count says otherwise")
    return [line.split() for line in lines[2:]]


def encode_offsets(offsets: Iterable[tuple[str, int, int]]) -> bytes:
    """Return an offset checkpoint's content from (topic, partition, offset) triples."""
    lines = [f"{topic} {partition} {offset}\n" for topic, partition, offset in offsets]
    return f"0\n{len(lines)}\n{''.join(lines)}".encode()


def decode_offsets(data: bytes, path: str) -> dict[tuple[str, int], int]:
    """Read an offset checkpoint. CorruptFileError: it has to be done without."""
    try:
        return {
            (topic, int(partition)): int(offset)
            for topic, partition, offset in checkpoint_lines(data, path)
        }
    except ValueError as error:
        raise CorruptFileError(f"{path}: {error}") from error


def read_offsets(disk: Disk, directory: str, name: str) -> dict[tuple[str, int], int]:
    """Read an offset checkpoint of a log directory; empty if there is none."""
    path = f"{directory}/{name}"
    if not disk.exists(path):
        return {}
    return decode_offsets(disk.read(path), path)


def encode_partition_metadata(topic_id: bytes) -> bytes:
    return f"version: 0\ntopic_id: {uuid_text(topic_id)}".encode("ascii")


def read_partition_metadata(disk: Disk, directory: str) -> bytes:
    """Return the topic id of a partition's directory; NULL_UUID if there is no such file.

    CorruptFileError: there is, and it makes no sense.
    """
    path = f"{directory}/{PARTITION_METADATA}"
    if not disk.exists(path):
        return NULL_UUID
    fields = decode_properties(disk.read(path), ":")
    try:
        return parse_uuid(fields["topic_id"])
    except (KeyError, ValueError) as error:
        raise CorruptFileError(f"{path}: {error}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class MetaProperties:
    """`meta.properties`: which cluster and node a log directory belongs to."""

    cluster_id: str
    node_id: int
    directory_id: bytes  # 16 bytes


def read_meta_properties(disk: Disk, directory: str) -> MetaProperties | None:
    """Return None if the directory was never formatted. DirectoryError if the file is nonsense."""
    path = f"{directory}/{META_PROPERTIES}"
    if not disk.exists(path):
        return None
    fields = decode_properties(disk.read(path), "=")
    version = fields.get("version")
    if version != _META_VERSION:
        raise DirectoryError(f"{path}: version {version}, only {_META_VERSION} is known")
    try:
        directory_id = fields.get("directory.id")
        return MetaProperties(
            cluster_id=fields["cluster.id"],
            node_id=int(fields["node.id"]),
            directory_id=parse_uuid(directory_id) if directory_id else NULL_UUID,
        )
    except KeyError as error:
        raise DirectoryError(f"{path} lacks {error.args[0]}: restore it, or format anew") from error
    except ValueError as error:
        raise DirectoryError(f"{path}: {error}: restore it, or format anew") from error


def write_meta_properties(disk: Disk, directory: str, properties: MetaProperties) -> None:
    """Write atomically and durably; the directory must exist."""
    text = (
        f"cluster.id={properties.cluster_id}\n"
        f"directory.id={uuid_text(properties.directory_id)}\n"
        f"node.id={properties.node_id}\n"
        "version=1\n"
    )
    disk.write_atomic(f"{directory}/{META_PROPERTIES}", text.encode())


def verify_meta_properties(
    directory: str, found: MetaProperties | None, *, cluster_id: str | None, node_id: int
) -> MetaProperties:
    """Raise DirectoryError, which says what to do, unless the directory is this node's.

    `cluster_id` None: the caller doesn't know it yet and takes the directory's word.
    """
    if found is None:
        raise DirectoryError(
            f"{directory} is not formatted: run `holdfast storage format` with the cluster's id"
        )
    if found.node_id != node_id:
        raise DirectoryError(
            f"{directory} belongs to node {found.node_id}, this is node {node_id}:"
            " correct node.id or log.dirs"
        )
    if cluster_id is not None and found.cluster_id != cluster_id:
        raise DirectoryError(
            f"{directory} belongs to cluster {found.cluster_id}, not to {cluster_id}:"
            " correct log.dirs, or format an empty directory"
        )
    return found


def read_clean_shutdown(disk: Disk, directory: str) -> int | None:
    """Return the broker epoch in `.kafka_cleanshutdown` (-1: none in it); None: no such file."""
    from json import JSONDecodeError, loads  # noqa: PLC0415 - only after a clean shutdown

    path = f"{directory}/{CLEAN_SHUTDOWN}"
    if not disk.exists(path):
        return None
    try:
        return int(loads(disk.read(path))["brokerEpoch"])
    except (JSONDecodeError, UnicodeDecodeError, KeyError, TypeError, ValueError):
        return -1  # the shutdown was clean; which epoch it ended is not known


def write_clean_shutdown(disk: Disk, directory: str, broker_epoch: int) -> None:
    """Write the marker durably: the very last thing in a directory."""
    text = f'{{"version":0,"brokerEpoch":{broker_epoch}}}'
    disk.write_atomic(f"{directory}/{CLEAN_SHUTDOWN}", text.encode("ascii"))


def decode_properties(data: bytes, separator: str) -> dict[str, str]:
    """Return the fields of a small text file of keys and values; lines that are neither are not."""
    fields = {}
    for line in data.decode("utf-8", "replace").splitlines():
        if not line.lstrip().startswith("#"):
            key, found, value = line.partition(separator)
            if found:
                fields[key.strip()] = value.strip()
    return fields
