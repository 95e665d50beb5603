"""One partition as all its replicas tell it: how far each is, and who holds one message.

Owns what is asked of whom and what follows from the answers. Every answer is of its own moment, so
numbers of a partition that is written to differ by what arrived in between.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from holdfast.clients.blocking_driver import Driver, DriverError, Peer, UnreachableError
from holdfast.clients.log_offsets import (
    READ_COMMITTED,
    READ_UNCOMMITTED,
    LogOffset,
    offsets_at,
)
from holdfast.clients.replica_statements import Led, Statement, statement
from holdfast.clients.topic_descriptions import Partition, Topic, described
from holdfast.wire.administration import AdminError, TopicPartition, refuse
from holdfast.wire.batch_header import BatchHeader
from holdfast.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from holdfast.wire.uuids import NULL_UUID
from holdfast.wire.well_known import EARLIEST, LATEST

EPOCHS_MAX: Final = 20


class Standing(Enum):
    """What became of a message."""

    COMMITTED = "committed"
    NOT_COMMITTED = "not committed"
    NOT_WRITTEN = "not written"
    DELETED = "deleted"
    REMOVED = "removed"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Epoch:
    """One leader's time: the offsets that were appended in it and are left. Start None: unknown."""

    epoch: int
    start: int | None
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """All that is told of one partition. None: it isn't."""

    topic: Topic
    partition: Partition
    leader_epoch: int | None
    high_watermark: int | None  # as the leader tells consumers
    last_stable: int | None
    replicas: list[Statement]
    epochs: list[Epoch]  # the newest first, and no more than `EPOCHS_MAX`
    silences: list[str]

    @property
    def led_by(self) -> Led:
        """Who leads it, as the broker says that was asked first; epoch -1: it doesn't tell."""
        epoch = -1 if self.leader_epoch is None else self.leader_epoch
        return Led(self.partition.leader, epoch)

    @property
    def differing(self) -> dict[int, Led]:
        """What other brokers say of who leads, by node: one that was cut off says what was so."""
        return {
            each.node: each.led_by
            for each in self.replicas
            if each.led_by is not None and self.led_by.epoch >= 0 and each.led_by != self.led_by
        }

    @property
    def leader(self) -> Statement | None:
        return next((each for each in self.replicas if each.node == self.partition.leader), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """Whether one replica has a message. `seen`: its batch was read there, and is the leader's."""

    node: int
    holds: bool | None
    seen: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What became of one message, the batch it is in, and who holds it."""

    offset: int
    standing: Standing
    batch: BatchHeader | None
    copies: list[Copy]


def inspect(driver: Driver, key: TopicPartition, offset: int | None = None) -> Inspection | None:
    """Ask all replicas of a partition; None: there is no such partition.

    Who was asked first may have been cut off, and not have heard of a later leader. Where a replica
    names one of a later epoch, all is asked once more as that one's broker knows it.

    AdminError, DriverError: the cluster doesn't describe it. What a replica doesn't say is among
    its silences.
    """
    seen = _inspected(driver, key, offset)
    if seen is None or not seen.differing:
        return seen
    node, later = max(seen.differing.items(), key=lambda told: told[1].epoch)
    if later.epoch <= seen.led_by.epoch:
        return seen
    with suppress(AdminError, DriverError), Driver(_address(driver, node)) as informed:
        return _inspected(informed, key, offset) or seen
    return seen


def _address(driver: Driver, node: int) -> str:
    """Return a broker's address as a driver takes it. UnreachableError: it has gone."""
    host, port = driver.nodes().get(node, ("", 0))
    if not port:
        raise UnreachableError(f"node {node} is not among the brokers alive")
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _inspected(driver: Driver, key: TopicPartition, offset: int | None) -> Inspection | None:
    """Ask all replicas of a partition, as the broker knows it that this driver asks first."""
    topics = described(driver, [key[0]])
    found = [one for topic in topics for one in topic.partitions if one.index == key[1]]
    if not found:
        return None
    silences: list[str] = []
    high = _told_by_leader(driver, key, LATEST, READ_UNCOMMITTED, silences)
    stable = _told_by_leader(driver, key, LATEST, READ_COMMITTED, silences)
    start = _told_by_leader(driver, key, EARLIEST, READ_UNCOMMITTED, silences)
    topic_id = driver.topic_id(key[0]) if topics[0].topic_id else NULL_UUID
    probes = [each for each in (offset, high, start) if each is not None]
    replicas = [statement(driver, node, key, topic_id, probes) for node in found[0].replicas]
    leader = next((each for each in replicas if each.node == found[0].leader), None)
    leader_epoch = _leader_epoch(driver, key)
    epochs: list[Epoch] = []
    if leader is not None and leader_epoch is not None:
        epochs = _epochs(driver, key, leader, leader_epoch)
    return Inspection(
        topic=topics[0],
        partition=found[0],
        leader_epoch=leader_epoch,
        high_watermark=high,
        last_stable=stable,
        replicas=replicas,
        epochs=epochs,
        silences=silences,
    )


def verdict(seen: Inspection, offset: int) -> Verdict:
    """Return what became of a message, and who has it. Pure."""
    standing = _standing(seen, offset)
    batch = None if seen.leader is None else seen.leader.batch
    if batch is not None and not batch.base_offset <= offset <= batch.last_offset:
        batch = None
    if standing is Standing.REMOVED:
        batch = None
    copies = [
        Copy(
            node=each.node,
            holds=_holds(each, offset, standing),
            seen=batch is not None and each.batch == batch,
        )
        for each in seen.replicas
    ]
    return Verdict(offset=offset, standing=standing, batch=batch, copies=copies)


def _holds(replica: Statement, offset: int, standing: Standing) -> bool | None:
    """Say whether a replica has a message: each of them compacts for itself."""
    shown = replica.shows(offset)
    if shown is None and standing is not Standing.REMOVED:
        return replica.reaches(offset)
    return shown


def _standing(seen: Inspection, offset: int) -> Standing:
    leader, high = seen.leader, seen.high_watermark
    if leader is None or high is None:
        # What any replica knows to be committed is, whoever leads.
        known = [each.high_watermark for each in seen.replicas if each.high_watermark is not None]
        return Standing.COMMITTED if offset < max(known, default=0) else Standing.UNKNOWN
    if leader.log_start is not None and offset < leader.log_start:
        return Standing.DELETED
    if offset < high:
        return Standing.REMOVED if leader.shows(offset) is False else Standing.COMMITTED
    if leader.log_end is None or (leader.log_end_is_least and offset >= leader.log_end):
        return Standing.UNKNOWN
    return Standing.NOT_COMMITTED if offset < leader.log_end else Standing.NOT_WRITTEN


def _told_by_leader(
    driver: Driver, key: TopicPartition, end: int, isolation: int, silences: list[str]
) -> int | None:
    answer = offsets_at(driver, {key: end}, isolation=isolation, patience_s=0)[key]
    if isinstance(answer, LogOffset):
        return answer.offset
    if str(answer) not in silences:
        silences.append(str(answer))
    return None


def _leader_epoch(driver: Driver, key: TopicPartition) -> int | None:
    """Return the epoch that the metadata tells; older brokers don't."""
    for topic in driver.metadata([key[0]]).topics:
        for one in topic.partitions:
            if one.partition_index == key[1] and one.leader_epoch >= 0:
                return one.leader_epoch
    return None


def _epochs(driver: Driver, key: TopicPartition, leader: Statement, newest: int) -> list[Epoch]:
    """Walk back from the newest epoch: where one ends, the next one known to the leader begins.

    The newest one's end is that of the leader's log, which not every broker tells otherwise.
    """
    found: list[Epoch] = []
    wanted = newest
    try:
        peer = driver.peer(leader.node)
        while wanted >= 0 and len(found) < EPOCHS_MAX:
            epoch, end = _end_of(peer, key, wanted)
            if end < 0:
                break
            if found:
                found[-1] = replace(found[-1], start=end)
            else:
                leader.log_end, leader.log_end_is_least = max(end, leader.log_end or 0), False
            if end <= (leader.log_start or 0):
                break
            found.append(Epoch(epoch, None, end))
            wanted = epoch - 1
    except (DriverError, AdminError) as error:
        leader.silences.append(str(error))
    if found and found[-1].start is None and len(found) < EPOCHS_MAX:
        found[-1] = replace(found[-1], start=leader.log_start)  # before it there is nothing
    return [each for each in found if each.start != each.end]


def _end_of(peer: Peer, key: TopicPartition, epoch: int) -> tuple[int, int]:
    """Return the last epoch up to this one, and where it ends; -1: the leader knows of none."""
    asked = OffsetForLeaderPartition(partition=key[1], leader_epoch=epoch)
    request = OffsetForLeaderEpochRequest(
        topics=[OffsetForLeaderTopic(topic=key[0], partitions=[asked])]
    )
    for topic in peer.send(request).topics:
        for one in topic.partitions:
            refuse(one, "epochs of", f"{key[0]}-{key[1]}")
            return one.leader_epoch, one.end_offset
    return -1, -1
