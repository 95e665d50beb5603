"""Offsets of partitions, at the ends of their logs and at moments, as their leaders tell them.

Asks all leaders at once, and those again whose partition moves meanwhile. Reads only, so a question
whose answer was lost is put again as well.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from holdfast.clients.blocking_driver import Driver, DriverError, Peer, UnsupportedError
from holdfast.wire.administration import AdminError, TopicPartition
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from holdfast.wire.well_known import (
    EARLIEST,
    EARLIEST_LOCAL,
    EARLIEST_PENDING_UPLOAD,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
)

PATIENCE_S: Final = 10.0
READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1
A_CONSUMER: Final = -1
# Who inspects: any replica answers for its own log, up to its very end.
AN_INSPECTOR: Final = -2
SINCE: Final = {
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
"""The version that brought each of the special timestamps that were not always there."""

_PAUSE_S: Final = 0.1
_PASSING: Final = frozenset(
    {
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
    }
)


@dataclass(frozen=True, slots=True)
class LogOffset:
    """An offset (-1: there is none), its record's timestamp (-1: not told) and leader epoch."""

    offset: int
    timestamp_ms: int = -1
    leader_epoch: int = -1


Found = dict[TopicPartition, LogOffset | AdminError]


def offsets_at(
    driver: Driver,
    wanted: Mapping[TopicPartition, int],
    *,
    isolation: int = READ_UNCOMMITTED,
    patience_s: float = PATIENCE_S,
) -> Found:
    """Return the offset of each partition at its timestamp, or at the end that it stands for.

    A partition that can't be had holds the refusal; NETWORK_EXCEPTION: its leader doesn't answer.
    """
    deadline = time.monotonic() + patience_s
    found: Found = {}
    left = dict(wanted)
    while left:
        found |= _ask_leaders(driver, left, isolation)
        left = {key: left[key] for key in left if _passes(found[key])}
        if time.monotonic() >= deadline:
            break
        if left:
            time.sleep(_PAUSE_S)
    return found


def log_ends(
    driver: Driver, keys: Iterable[TopicPartition], *, patience_s: float = PATIENCE_S
) -> Found:
    """Return up to where each partition can be read."""
    return offsets_at(driver, dict.fromkeys(keys, LATEST), patience_s=patience_s)


def log_starts(
    driver: Driver, keys: Iterable[TopicPartition], *, patience_s: float = PATIENCE_S
) -> Found:
    """Return the first offset that each partition still has."""
    return offsets_at(driver, dict.fromkeys(keys, EARLIEST), patience_s=patience_s)


def _ask_leaders(driver: Driver, wanted: Mapping[TopicPartition, int], isolation: int) -> Found:
    leaders, found = _leaders(driver, wanted)
    by_node: dict[int, dict[TopicPartition, int]] = {}
    for key, node in leaders.items():
        by_node.setdefault(node, {})[key] = wanted[key]
    for node, theirs in by_node.items():
        try:
            found |= told_by(driver.peer(node), theirs, isolation=isolation)
        except UnsupportedError:
            raise
        except DriverError as error:
            found |= {key: _refusal(key, ErrorCode.NETWORK_EXCEPTION, str(error)) for key in theirs}
    return found


def told_by(
    peer: Peer,
    wanted: Mapping[TopicPartition, int],
    *,
    isolation: int = READ_UNCOMMITTED,
    replica: int = A_CONSUMER,
    epoch: int = -1,
) -> Found:
    """Ask one broker, once. DriverError: it doesn't answer.

    With `epoch` it answers only as the leader of that epoch (Kafka 2.1 on).
    """
    version = peer.version_of(ListOffsetsRequest)
    found: Found = {}
    topics: dict[str, ListOffsetsTopic] = {}
    for (name, index), timestamp in wanted.items():
        if version < SINCE.get(timestamp, 0):
            found[name, index] = _refusal((name, index), ErrorCode.UNSUPPORTED_VERSION)
            continue
        topic = topics.setdefault(name, ListOffsetsTopic(name=name))
        topic.partitions.append(
            ListOffsetsPartition(
                partition_index=index, current_leader_epoch=epoch, timestamp=timestamp
            )
        )
    if not topics:
        return found
    request = ListOffsetsRequest(
        replica_id=replica, isolation_level=isolation, topics=list(topics.values())
    )
    for answered in peer.send(request).topics:
        for one in answered.partitions:
            found[answered.name, one.partition_index] = _read(answered.name, one)
    for key in wanted:
        if key not in found:
            found[key] = _refusal(key, ErrorCode.UNKNOWN_SERVER_ERROR, "no answer")
    return found


def _leaders(
    driver: Driver, wanted: Iterable[TopicPartition]
) -> tuple[dict[TopicPartition, int], Found]:
    """Return who leads each partition, and why some have nobody."""
    names = dict.fromkeys(name for name, _ in wanted)
    leaders: dict[TopicPartition, int] = {}
    refused: Found = {}
    codes: dict[str, int] = {}
    for topic in driver.metadata(list(names)).topics:
        name = topic.name or ""
        codes[name] = topic.error_code
        for one in topic.partitions:
            key = (name, one.partition_index)
            if one.leader_id >= 0:
                leaders[key] = one.leader_id
            else:
                refused[key] = _refusal(key, one.error_code or ErrorCode.LEADER_NOT_AVAILABLE)
    for key in wanted:
        if key not in leaders and key not in refused:
            unknown = codes.get(key[0]) or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            refused[key] = _refusal(key, unknown)
    asked = set(wanted)
    return (
        {key: node for key, node in leaders.items() if key in asked},
        {key: why for key, why in refused.items() if key in asked},
    )


def _read(topic: str, one: ListOffsetsPartitionResponse) -> LogOffset | AdminError:
    if one.error_code:
        return _refusal((topic, one.partition_index), one.error_code)
    return LogOffset(one.offset, one.timestamp, one.leader_epoch)


def _refusal(key: TopicPartition, code: int, message: str | None = None) -> AdminError:
    subject = f"{key[0]}-{key[1]}"
    return AdminError(f"offsets of {subject}", code, message, subject=subject)


def _passes(answer: LogOffset | AdminError) -> bool:
    return isinstance(answer, AdminError) and answer.code in _PASSING
