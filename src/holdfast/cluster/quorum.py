"""Who is the active controller, and how far the others are: DescribeQuorum, as any tool asks it.

Owns the asking and plain values of the answer. Never looks into a node's files, and never tries
twice: who waits for something asks again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass

from holdfast.clients.blocking_driver import DriverError, Peer
from holdfast.wire.errors import error_name
from holdfast.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    ReplicaState,
    RequestPartitionData,
    RequestTopicData,
)
from holdfast.wire.well_known import METADATA_TOPIC

CLIENT_ID = "holdfast-cluster"
ASK_TIMEOUT_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumReplica:
    """One voter or observer as the active controller sees it. Times in ms since 1970; -1: never."""

    id: int
    directory_id: bytes
    log_end: int
    last_fetch_ms: int
    last_caught_up_ms: int
    endpoints: tuple[str, ...] = ()  # LISTENER://HOST:PORT, where the cluster tells (version 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumState:
    """The metadata quorum at one moment."""

    leader: int
    epoch: int
    high_watermark: int
    voters: tuple[QuorumReplica, ...]
    observers: tuple[QuorumReplica, ...]

    @property
    def leader_log_end(self) -> int:
        """Where the active controller's log ends; -1 when it isn't among the voters."""
        return next((each.log_end for each in self.voters if each.id == self.leader), -1)

    def lag(self, node_id: int) -> int | None:
        """Records that a node lacks; None: the active controller doesn't know it."""
        for each in (*self.voters, *self.observers):
            if each.id == node_id:
                return max(0, self.leader_log_end - each.log_end) if each.log_end >= 0 else None
        return None


class RefusedError(Exception):
    """The node answered, but not with the quorum's state; the text is the code's name."""


def request() -> DescribeQuorumRequest:
    """Return the only request that there is to make."""
    partition = RequestPartitionData(partition_index=0)
    return DescribeQuorumRequest(
        topics=[RequestTopicData(topic_name=METADATA_TOPIC, partitions=[partition])]
    )


def read(response: DescribeQuorumResponse) -> QuorumState:
    """Return the state that an answer holds. RefusedError: it holds an error code instead."""
    if response.error_code:
        raise _refused(response.error_code, response.error_message)
    if not response.topics or not response.topics[0].partitions:
        raise RefusedError("an answer without the metadata partition")
    found = response.topics[0].partitions[0]
    if found.error_code:
        raise _refused(found.error_code, found.error_message)
    endpoints = {
        node.node_id: tuple(f"{each.name}://{each.host}:{each.port}" for each in node.listeners)
        for node in response.nodes
    }
    return QuorumState(
        leader=found.leader_id,
        epoch=found.leader_epoch,
        high_watermark=found.high_watermark,
        voters=tuple(_replica(each, endpoints) for each in found.current_voters),
        observers=tuple(_replica(each, endpoints) for each in found.observers),
    )


def ask(
    addresses: Iterable[tuple[str, int]], *, timeout_s: float = ASK_TIMEOUT_S
) -> QuorumState | None:
    """Ask controllers or brokers one by one; of what they answer the highest epoch counts.

    A controller that is cut off may believe for a moment that it still is the active one, so all
    are asked. None: nobody knows of an active controller.
    """
    found = [ask_one(host, port, timeout_s=timeout_s) for host, port in addresses]
    return max(
        (state for state in found if state is not None), key=lambda state: state.epoch, default=None
    )


def ask_one(host: str, port: int, *, timeout_s: float = ASK_TIMEOUT_S) -> QuorumState | None:
    """Ask one node. None: it doesn't answer, isn't the active controller, or knows none."""
    try:
        return describe(host, port, timeout_s=timeout_s)
    except (DriverError, RefusedError):
        return None


def describe(
    host: str, port: int, *, timeout_s: float, connect_s: float | None = None
) -> QuorumState:
    """Ask one node. DriverError: it doesn't answer; RefusedError: it can't say."""
    with closing(Peer(host, port, CLIENT_ID, timeout_s=timeout_s, connect_s=connect_s)) as peer:
        return read(peer.send(request()))


def _replica(state: ReplicaState, endpoints: Mapping[int, tuple[str, ...]]) -> QuorumReplica:
    return QuorumReplica(
        id=state.replica_id,
        directory_id=state.replica_directory_id,
        log_end=state.log_end_offset,
        last_fetch_ms=state.last_fetch_timestamp,
        last_caught_up_ms=state.last_caught_up_timestamp,
        endpoints=endpoints.get(state.replica_id, ()),
    )


def _refused(code: int, message: str | None) -> RefusedError:
    name = error_name(code)
    return RefusedError(f"{name} ({message})" if message else name)
