"""What the active controller says of its work: to operators in the log, and to DescribeQuorum.

Owns the words and the figures. It only looks; nothing is decided or changed here.
"""

from __future__ import annotations

import logging

from holdfast.core.metadata.image import ImageDelta, MetadataImage
from holdfast.core.quorum.leader_view import Observers, QuorumView, ReplicaView
from holdfast.core.quorum.voter_set import Voter
from holdfast.node.quorum.quorum_member import QuorumMember

TOLD_MAX = 20  # partitions of one decision that are named; each with an unclean leader is

logger = logging.getLogger("holdfast.controller")


def view_of(quorum: QuorumMember, observers: Observers) -> QuorumView:
    """The quorum as its leader sees it."""
    assert quorum.leading, "others know less"
    clock = quorum.replica.runtime.clock
    wall_ms, now_ms = clock.wall_ms(), clock.monotonic_ms()
    return QuorumView(
        leader_id=quorum.key.node_id,
        epoch=quorum.epoch,
        high_watermark=quorum.log.committed,
        voters=tuple(_voter_view(quorum, each, wall_ms, now_ms) for each in quorum.voters.voters),
        observers=tuple(
            each for each in observers.shown(wall_ms) if not quorum.voters.is_part_of(each.key)
        ),
        members=quorum.voters,
    )


def _voter_view(quorum: QuorumMember, voter: Voter, wall_ms: int, now_ms: int) -> ReplicaView:
    if voter.node_id == quorum.key.node_id:
        return ReplicaView(quorum.key, quorum.log.end, wall_ms, wall_ms)
    progress = quorum.state.replicas.get(voter.key)
    if progress is None or progress.end_then < 0:
        return ReplicaView(voter.key, -1)
    since_ms = wall_ms - now_ms  # from one clock to the other
    caught_up_ms = since_ms + progress.caught_up_ms if progress.caught_up_ms >= 0 else -1
    return ReplicaView(
        voter.key, progress.acknowledged, since_ms + progress.fetched_ms, caught_up_ms
    )


def tell(image: MetadataImage, delta: ImageDelta) -> None:
    """Log what an operator wants to know: brokers coming and going, partitions without a leader."""
    for broker_id, before in delta.brokers_changed.items():
        after = image.brokers.get(broker_id)
        if after is None:
            logger.info("broker %d is unregistered", broker_id)
        elif before is None or before.epoch != after.epoch:
            logger.info("broker %d registered with epoch %d", broker_id, after.epoch)
        elif before.fenced != after.fenced:
            logger.info("broker %d is %s", broker_id, "fenced" if after.fenced else "unfenced")
        elif after.in_controlled_shutdown and not before.in_controlled_shutdown:
            logger.info("broker %d is shutting down", broker_id)
    told = 0
    for (topic_id, index), was in delta.partitions_changed.items():
        now = image.partition_by_id(topic_id, index)
        if was is None or now is None or (was.leader == now.leader and was.isr == now.isr):
            continue
        told += 1
        unclean = now.recovery_state is not was.recovery_state and bool(now.recovery_state)
        if told > TOLD_MAX and not unclean:
            continue
        logger.info(
            "%s-%d: %sisr %s -> %s%s",
            now.topic,
            index,
            ""
            if was.leader_epoch == now.leader_epoch
            else f"leader {was.leader} -> {now.leader}, epoch {now.leader_epoch}, ",
            list(was.isr),
            list(now.isr),
            ", UNCLEAN" if unclean else "",
        )
    if told > TOLD_MAX:
        logger.info("%d partitions have changed, the first of them as told", told)
