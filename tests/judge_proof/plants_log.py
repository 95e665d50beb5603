"""Plants in the log itself: what all replicas hold is not what was acknowledged or sent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

from tests.judge_proof.planting import Planting, causes_nothing, replace_event
from tests.judge_proof.replicated import Record
from tests.judge_proof.truth import log_of, offsets_of, sent_after, sent_here

from holdfast.judge.history import Acknowledged, Refused
from holdfast.judge.verdict import Anomaly


def lost(planting: Planting) -> bool:
    """Let an acknowledged record be nowhere."""
    for partition in planting.partitions():
        for each in planting.free(partition):
            outcome = planting.outcome(each)
            if (
                isinstance(outcome, Acknowledged)
                and outcome.offset is not None
                and causes_nothing(planting, partition, each)
            ):
                planting.gone(partition, each.offset)
                planting.truth.must(Anomaly.LOST, partition, outcome.id)
                planting.rewrite(partition, {each.offset: None})
                return True
    return False


def vanished(planting: Planting) -> bool:
    """Let a record in doubt be read, and then be gone."""
    for partition in planting.partitions():
        for each in planting.free(partition):
            if (
                not isinstance(planting.outcome(each), Acknowledged)
                and planting.read(partition, each.offset)
                and causes_nothing(planting, partition, each)
            ):
                planting.gone(partition, each.offset)
                planting.rewrite(partition, {each.offset: None})
                return True
    return False


def duplicated(planting: Planting) -> bool:
    """Let a record stand twice."""
    for partition in planting.partitions():
        for each in planting.free(partition):
            planting.truth.must(Anomaly.DUPLICATED, partition, str(each.record.name))
            planting.touched.add((partition.number, each.offset))
            planting.append(partition, each.record)
            return True
    return False


def phantom(planting: Planting) -> bool:
    """Let a record stand that nobody sent there: unknown, without an id, or another partition's."""
    if not planting.partitions():
        return False
    partition = planting.partitions()[0]
    elsewhere = [
        record
        for name, record in planting.world.sending.records.items()
        if planting.world.sending.sends[name].partition != partition.number
    ]
    strange = Record(name="p0:123456", digest="strange", key=None, size=10)
    nameless = Record(name=None, digest="nameless", key="a", size=10)
    record = planting.chance.choice([strange, nameless, *elsewhere[:1]])
    offset = planting.append(partition, record)
    planting.truth.must(Anomaly.PHANTOM, partition, f"@{offset}")
    return True


def _changed(planting: Planting, change: Callable[[Record], Record]) -> bool:
    for partition in planting.partitions():
        for each in planting.free(partition):
            planting.differs(partition, each)
            planting.truth.must(Anomaly.PHANTOM, partition, f"@{each.offset}")
            planting.rewrite(partition, {each.offset: change(each.record)})
            return True
    return False


def changed_value(planting: Planting) -> bool:
    """Let a record have other bytes than were sent."""
    return _changed(planting, lambda record: replace(record, digest="changed"))


def changed_key(planting: Planting) -> bool:
    """Let a record have another key than was sent."""
    return _changed(planting, lambda record: replace(record, key="changed"))


def changed_timestamp(planting: Planting) -> bool:
    """Let a record have another timestamp than it was sent with, or one where it had none."""
    if not planting.world.reading.tells_time:
        return False
    later = planting.chance.choice([1, 1000])
    return _changed(planting, lambda record: replace(record, timestamp=record.timestamp + later))


def resurrected(planting: Planting) -> bool:
    """Let a record stand that was refused for certain."""
    world = planting.world
    refused = [o for o in world.sending.outcomes.values() if isinstance(o, Refused)]
    for outcome in planting.chance.sample(refused, len(refused)):
        partition = world.partitions[outcome.partition]
        log = log_of(partition)
        if partition.number in planting.unread or outcome.id in offsets_of(log):
            continue
        planting.append(partition, world.sending.records[outcome.id])
        planting.truth.must(Anomaly.RESURRECTED, partition, outcome.id)
        if any(sent_after(world, name, outcome.id) for name in sent_here(world, partition, log)):
            planting.truth.must(Anomaly.REORDERED, partition, outcome.id)
        return True
    return False


def reordered_within(planting: Planting) -> bool:
    """Let two neighbours of one producer change places."""
    return _swapped(planting, same=True)


def reordered_across(planting: Planting) -> bool:
    """Let two neighbours change places, of which one was acknowledged before the other was sent."""
    return _swapped(planting, same=False)


def _swapped(planting: Planting, *, same: bool) -> bool:
    world = planting.world
    for partition in planting.partitions():
        log = log_of(partition)
        free = {each.offset for each in planting.free(partition)}
        pairs = list(pairwise(log))
        for first, second in planting.chance.sample(pairs, len(pairs)):
            if not {first.offset, second.offset} <= free:
                continue
            left, right = str(first.record.name), str(second.record.name)
            if (left.split(":", maxsplit=1)[0] == right.split(":", maxsplit=1)[0]) != same:
                continue
            if not sent_after(world, right, left):
                continue
            planting.truth.must(Anomaly.REORDERED, partition, left)
            for each in (first, second):
                outcome = planting.outcome(each)
                if isinstance(outcome, Acknowledged) and outcome.offset is not None:
                    planting.truth.must(Anomaly.DIVERGED, partition, outcome.id)
                planting.differs(partition, each)
            planting.rewrite(partition, {first.offset: second.record, second.offset: first.record})
            return True
    return False


def told_elsewhere(planting: Planting) -> bool:
    """Let an acknowledgement name another offset than the record stands at."""
    for partition in planting.partitions():
        assert partition.head is not None
        begin, end = partition.head.log_start, partition.high_watermark
        for each in planting.free(partition):
            outcome = planting.outcome(each)
            if not isinstance(outcome, Acknowledged) or outcome.offset is None:
                continue
            others = [offset for offset in range(begin, end + 1) if offset != each.offset]
            offset = planting.chance.choice(others)
            replace_event(planting.world, outcome, offset=offset)
            planting.touched.add((partition.number, each.offset))
            planting.truth.must(Anomaly.DIVERGED, partition, outcome.id)
            return True
    return False


def epoch_falls(planting: Planting) -> bool:
    """Let one batch be of a later leader epoch than the one behind it."""
    for partition in planting.partitions():
        log = log_of(partition)
        free = {each.offset for each in planting.free(partition)}
        bases = [(left.offset, right.offset) for left, right in pairwise(log)]
        for left, right in planting.chance.sample(bases, len(bases)):
            batch, following = planting.batch(partition, left), planting.batch(partition, right)
            if batch is following or not set(batch.offsets) | set(following.offsets) <= free:
                continue
            planting.replace_batch(partition, batch, replace(batch, epoch=following.epoch + 1))
            planting.touched |= {(partition.number, offset) for offset in batch.offsets}
            planting.touched |= {(partition.number, offset) for offset in following.offsets}
            planting.truth.must(Anomaly.DIVERGED, partition, f"@{left}")
            return True
    return False
