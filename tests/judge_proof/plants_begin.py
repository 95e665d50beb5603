"""Plants at the log's beginning: it is gone further than any event allows."""

from __future__ import annotations

from tests.judge_proof.planting import Planting
from tests.judge_proof.reading import Standing
from tests.judge_proof.replicated import NO_TIMESTAMP, Partition
from tests.judge_proof.truth import log_of, reordered
from tests.judge_proof.world import World

from holdfast.judge.history import Acknowledged
from holdfast.judge.verdict import Anomaly

SOON_MS = 10_000  # how long a run may still take
OVERHEAD = 128  # bytes, at most, that a batch takes beside a record's value


def beginning_gone(planting: Planting) -> bool:
    """Let the log begin later than retention and deletions by name allow."""
    for partition in _with_whole_files(planting):
        log = log_of(partition)
        count = len(must_stand(planting, partition, log))
        if count > 0:
            return _cut(planting, partition, log, planting.chance.randint(1, count))
    return False


def gone_though_refused(planting: Planting) -> bool:
    """Let the log begin where somebody wanted it to, who was refused."""
    for partition in _with_whole_files(planting):
        log = log_of(partition)
        count = len(must_stand(planting, partition, log))
        begin = log[count].offset if count < len(log) else partition.high_watermark
        if count > 0 and _cut(planting, partition, log, count):
            planting.world.refuse_deletion(partition, begin)
            return True
    return False


def everything_gone(planting: Planting) -> bool:
    """Let the log begin where it ends, though nothing may be gone."""
    for partition in _with_whole_files(planting):
        log = log_of(partition)
        assert partition.head is not None
        count = partition.high_watermark - partition.head.log_start
        if log and len(must_stand(planting, partition, log)) == count:
            return _cut(planting, partition, log, len(log))
    return False


def _with_whole_files(planting: Planting) -> list[Partition]:
    """Return partitions with whole files: what replicas lack hangs on where the log begins."""
    return [p for p in planting.partitions() if p.number not in planting.on_files]


def must_stand(planting: Planting, partition: Partition, log: list[Standing]) -> list[Standing]:
    """Return the records at the beginning of which no event allows that they are gone."""
    world = planting.world
    policy = world.ever[partition.number]
    assert partition.head is not None
    if policy.retention_bytes is not None and policy.retention_bytes <= most_bytes(
        world, partition
    ):
        return []
    if world.asked_below[partition.number] > partition.head.log_start:
        return []
    free = {each.offset for each in planting.free(partition)}
    found: list[Standing] = []
    for each in log:
        outcome = planting.outcome(each)
        if each.offset not in free or each.offset != partition.head.log_start + len(found):
            break
        if isinstance(outcome, Acknowledged) and outcome.offset is None:
            break  # where it stood nobody was told
        sent_ms = world.sending.sends[str(each.record.name)].wall_ms
        stamp = each.record.timestamp
        own_ms = sent_ms if stamp == NO_TIMESTAMP else stamp
        limit = policy.retention_ms
        if limit is not None and own_ms + limit <= world.journal.wall_ms + SOON_MS:
            break
        found.append(each)
    return found


def most_bytes(world: World, partition: Partition) -> int:
    """Return more bytes than any log of this partition has ever held."""
    assert partition.head is not None
    stored = sum(batch.size for batch in [*partition.deleted, *partition.head.batches])
    sends = [send for send in world.sending.sends.values() if send.partition == partition.number]
    return stored + sum(send.size + OVERHEAD for send in sends)


def _cut(planting: Planting, partition: Partition, log: list[Standing], count: int) -> bool:
    if reordered(planting.world, partition, log[count:]) != reordered(
        planting.world, partition, log
    ):
        return False
    for name, told in planting.world.sending.outcomes.items():
        lost = (Anomaly.LOST, partition.number, name)
        is_blind = isinstance(told, Acknowledged) and told.offset is None
        if is_blind and planting.truth.findings.pop(lost, 0):
            planting.truth.may.add(lost)  # it might have stood where the log is gone now
    for each in log[:count]:
        partition.stolen.add(each.offset)
        planting.gone(partition, each.offset)
        outcome = planting.outcome(each)
        if isinstance(outcome, Acknowledged):
            planting.truth.must(Anomaly.LOST, partition, outcome.id)
    begin = log[count].offset if count < len(log) else partition.high_watermark
    partition.delete_below(begin)
    partition.settle()
    return True
