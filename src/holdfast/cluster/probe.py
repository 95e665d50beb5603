"""The one question that waiting for a cluster asks: Metadata, over a plain socket.

It goes without our client (`holdfast.clients.blocking_driver`), which would negotiate first:
`holdfast up` asks it many times while nodes come and go, before anything else is loaded.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from holdfast.cluster.layout import ClusterError

if TYPE_CHECKING:
    from holdfast.wire.messages.metadata import MetadataResponseTopic

_VERSION = 8  # of Apache Kafka 2.3 and later; it has leader epochs
_VERSION_WITH_IDS = 10  # of Apache Kafka 2.8 and later; it has topic ids besides
_CLIENT_ID = "holdfast-cluster"
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
    topic_ids: Mapping[str, bytes] = field(default_factory=dict)  # where they were asked for


def ask(
    address: tuple[str, int],
    topics: Sequence[str] | None = (),
    *,
    with_ids: bool = False,
    timeout_s: float = 2.0,
) -> Snapshot | None:
    """Ask one broker for metadata of `topics` (None: all). None: no answer could be had.

    `with_ids`: those of topics as well, where the broker's protocol has them. ClusterError when
    something answers there that doesn't speak the protocol.
    """
    if with_ids:
        try:
            return _ask(address, topics, _VERSION_WITH_IDS, timeout_s)
        except ConnectionResetError:  # so a broker refuses a version that it does not know
            pass
        except OSError:
            return None
    try:
        return _ask(address, topics, _VERSION, timeout_s)
    except OSError:
        return None


def _ask(
    address: tuple[str, int], topics: Sequence[str] | None, version: int, timeout_s: float
) -> Snapshot:
    """Ask in one version. OSError: no answer could be had; ClusterError, as in `ask`."""
    # Not before somebody asks: until then `holdfast up` starts nodes, and they take their time.
    from holdfast.wire.errors import WireError  # noqa: PLC0415
    from holdfast.wire.frame import decode_response, encode_request  # noqa: PLC0415
    from holdfast.wire.messages.metadata import (  # noqa: PLC0415
        MetadataRequest,
        MetadataRequestTopic,
        MetadataResponse,
    )

    named = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
    request = MetadataRequest(topics=named, allow_auto_topic_creation=False)
    try:
        with socket.create_connection(address, timeout=timeout_s) as connection:
            connection.sendall(encode_request(request, version, 1, _CLIENT_ID))
            (size,) = struct.unpack(">i", _receive(connection, 4))
            if not 4 <= size <= _FRAME_BYTES_MAX:
                raise ClusterError(f"What listens on {address[0]}:{address[1]} is not a broker.")
            _, answer = decode_response(request.KEY, version, _receive(connection, size))
    except WireError:
        raise ClusterError(
            f"What listens on {address[0]}:{address[1]} answers, but not as a broker does."
        ) from None
    assert isinstance(answer, MetadataResponse)
    return Snapshot(
        cluster_id=answer.cluster_id,
        brokers={broker.node_id: (broker.host, broker.port) for broker in answer.brokers},
        topics={str(topic.name): _partitions(topic) for topic in answer.topics},
        topic_ids={
            str(topic.name): topic.topic_id for topic in answer.topics if any(topic.topic_id)
        },
    )


def _partitions(topic: MetadataResponseTopic) -> dict[int, PartitionState]:
    return {
        each.partition_index: PartitionState(
            leader=each.leader_id,
            leader_epoch=each.leader_epoch,
            replicas=tuple(each.replica_nodes),
            isr=tuple(each.isr_nodes),
            offline=tuple(each.offline_replicas),
            error=each.error_code,
        )
        for each in sorted(topic.partitions, key=lambda each: each.partition_index)
    }


def _receive(connection: socket.socket, size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        part = connection.recv(min(size - len(parts), 1 << 20))
        if not part:
            raise ConnectionResetError("closed in the middle of an answer")
        parts += part
    return bytes(parts)
