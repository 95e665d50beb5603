"""The one question that waiting for a cluster asks: Metadata, over a plain socket.

Written by hand for one version, because `holdfast up` asks it before anything else is loaded and
while nodes come and go; everything else uses `holdfast.clients.driver`.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.cluster.layout import ClusterError

_METADATA_KEY = 3
_VERSION = 8  # the last one before flexible encoding; it has leader epochs and offline replicas
_CLIENT_ID = b"holdfast-cluster"
_FRAME_BYTES_MAX = 64 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionState:
    """One partition as a broker's metadata shows it. No leader: -1."""

    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline: tuple[int, ...]
    error: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """What one broker answered."""

    cluster_id: str | None
    brokers: dict[int, tuple[str, int]]  # id -> host, port; unfenced brokers only
    topics: dict[str, dict[int, PartitionState]]


def ask(
    address: tuple[str, int], topics: Sequence[str] | None = (), *, timeout_s: float = 2.0
) -> Snapshot | None:
    """Ask one broker for metadata of `topics` (None: all). None: no answer could be had.

    ClusterError when something answers there that doesn't speak the protocol.
    """
    try:
        with socket.create_connection(address, timeout=timeout_s) as connection:
            connection.sendall(_request(topics))
            (size,) = struct.unpack(">i", _receive(connection, 4))
            if not 4 <= size <= _FRAME_BYTES_MAX:
                raise ClusterError(f"What listens on {address[0]}:{address[1]} is not a broker.")
            return _Reader(_receive(connection, size)).snapshot()
    except OSError:
        return None
    except (struct.error, UnicodeDecodeError, IndexError):
        raise ClusterError(
            f"What listens on {address[0]}:{address[1]} answers, but not as a broker does."
        ) from None


def _request(topics: Sequence[str] | None) -> bytes:
    header = struct.pack(">hhih", _METADATA_KEY, _VERSION, 1, len(_CLIENT_ID)) + _CLIENT_ID
    names = [] if topics is None else [name.encode() for name in topics]
    body = struct.pack(">i", -1 if topics is None else len(names))
    body += b"".join(struct.pack(">h", len(name)) + name for name in names)
    body += b"\0\0\0"  # no auto-creation, no authorized operations
    return struct.pack(">i", len(header) + len(body)) + header + body


def _receive(connection: socket.socket, size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        part = connection.recv(min(size - len(parts), 1 << 20))
        if not part:
            raise ConnectionResetError("closed in the middle of an answer")
        parts += part
    return bytes(parts)


class _Reader:
    """Reads one Metadata v8 response, behind its correlation id."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 4

    def snapshot(self) -> Snapshot:
        self._int("i")  # throttle time
        brokers: dict[int, tuple[str, int]] = {}
        for _ in range(self._int("i")):
            node = self._int("i")
            host = self._string()
            brokers[node] = (host or "", self._int("i"))
            self._string()  # rack
        cluster_id = self._string()
        self._int("i")  # controller id
        topics: dict[str, dict[int, PartitionState]] = {}
        for _ in range(self._int("i")):
            self._int("h")
            name = self._string() or ""
            self._int("b")
            partitions = [self._partition() for _ in range(self._int("i"))]
            topics[name] = dict(sorted(partitions))
            self._int("i")
        return Snapshot(cluster_id=cluster_id, brokers=brokers, topics=topics)

    def _partition(self) -> tuple[int, PartitionState]:
        error, index, leader, epoch = (self._int(kind) for kind in "hiii")
        replicas, isr, offline = (self._ints() for _ in range(3))
        return index, PartitionState(
            leader=leader,
            leader_epoch=epoch,
            replicas=replicas,
            isr=isr,
            offline=offline,
            error=error,
        )

    def _int(self, kind: str) -> int:
        (value,) = struct.unpack_from(f">{kind}", self._data, self._at)
        self._at += struct.calcsize(f">{kind}")
        return int(value)

    def _ints(self) -> tuple[int, ...]:
        return tuple(self._int("i") for _ in range(max(0, self._int("i"))))

    def _string(self) -> str | None:
        size = self._int("h")
        if size < 0:
            return None
        if self._at + size > len(self._data):
            raise IndexError("a string ends behind the answer")
        value = self._data[self._at : self._at + size].decode()
        self._at += size
        return value
