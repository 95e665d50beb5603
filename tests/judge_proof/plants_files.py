"""Plants in one replica's files: all readers are given what they should be, and yet."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from tests.judge_proof.closing import Files
from tests.judge_proof.planting import Planting
from tests.judge_proof.plants_begin import must_stand
from tests.judge_proof.replicated import Batch, Partition
from tests.judge_proof.truth import log_of

from holdfast.judge.verdict import Anomaly

Change = Callable[[list[Batch], int], list[Batch]]


def other_bytes(planting: Planting) -> bool:
    """Let one replica hold other bytes in one batch."""
    return _one_batch(planting, lambda batches, at: [
        *batches[:at], replace(batches[at], appended_ms=0), *batches[at + 1 :]
    ])  # fmt: skip


def batch_lacking(planting: Planting) -> bool:
    """Let one replica lack a batch, at its end perhaps."""
    return _one_batch(planting, lambda batches, at: [*batches[:at], *batches[at + 1 :]])


def _one_batch(planting: Planting, change: Change) -> bool:
    for partition in _unplanted(planting):
        if len(partition.replicas) > 1 and len(log_of(partition)) > 1:
            planting.on_files[partition.number] = partial(_break_batch, planting, change)
            return True
    return False


def _break_batch(planting: Planting, change: Change, files: Files) -> None:
    """Break one batch, but not the first: that is another plant."""
    common = max(files.extent(node)[0] for node in files.batches)
    node = planting.chance.choice(sorted(files.batches))
    batches = files.batches[node]
    places = [n for n, batch in enumerate(batches) if n and batch.base >= common]
    if not places:
        return
    at = planting.chance.choice(places)
    base, end = batches[at].base, batches[-1].end
    others = len(files.batches) - 1 if node == files.model else 1
    files.batches[node] = change(batches, at)
    planting.truth.must(Anomaly.DIVERGED, files.partition, f"files@{base}", others)
    if node == files.model and files.extent(node)[1] < end:
        _ends_early(planting, files, node)


def _ends_early(planting: Planting, files: Files, node: int) -> None:
    """Note that the replica which others are held against ends before what was read."""
    planting.truth.must(Anomaly.DIVERGED, files.partition, f"files of {node}")


def batch_too_many(planting: Planting) -> bool:
    """Let one replica end with a batch that the others don't have."""
    for partition in _unplanted(planting):
        if len(partition.replicas) > 1 and len(log_of(partition)) > 1:
            planting.on_files[partition.number] = partial(_one_more, planting)
            return True
    return False


def _one_more(planting: Planting, files: Files) -> None:
    node = planting.chance.choice(sorted(files.batches))
    if not files.batches[node]:
        return
    others = len(files.batches) - 1 if node == files.model else 1
    last = files.batches[node][-1]
    more = replace(last, base=last.end, end=last.end + 1, offsets=(), records=())
    files.batches[node] = [*files.batches[node], more]
    planting.truth.must(Anomaly.DIVERGED, files.partition, f"files@{more.base}", others)
    if node == files.model:
        planting.truth.undecided.add(files.partition.number)  # nobody has read that


def hole_everywhere(planting: Planting) -> bool:
    """Let every replica lack a batch in its middle, of which records were read."""
    return _on_every_replica(planting, _make_hole)


def _make_hole(planting: Planting, files: Files) -> None:
    common = max(files.extent(node)[0] for node in files.batches)
    read = {each.offset for each in log_of(files.partition)}
    model = files.batches[files.model]
    places = [
        at
        for at, batch in enumerate(model)
        if 0 < at < len(model) - 1
        and batch.base > common
        and any(offset in read for offset in batch.offsets)
    ]
    if not places:
        return
    at = planting.chance.choice(places)
    base, following = model[at].base, model[at + 1].base
    for node, batches in files.batches.items():
        files.batches[node] = [batch for batch in batches if batch.base != base]
    planting.truth.must(Anomaly.DIVERGED, files.partition, f"files@{following}")


def extents_alone(planting: Planting) -> bool:
    """Let every replica say that it holds what none has a batch of."""
    return _on_every_replica(planting, _take_all_batches)


def _take_all_batches(planting: Planting, files: Files) -> None:
    extents = {node: files.extent(node) for node in files.batches}
    for node, (begin, end) in extents.items():
        files.extents[node], files.batches[node] = (begin, end), []
        if begin < end:
            planting.truth.must(Anomaly.DIVERGED, files.partition, f"files of {node}")


def ends_behind_the_read(planting: Planting) -> bool:
    """Let every replica end with a batch that nobody has read."""
    return _on_every_replica(planting, _append_everywhere)


def _append_everywhere(planting: Planting, files: Files) -> None:
    end, epoch = files.partition.high_watermark, files.partition.epoch
    more = Batch(offsets=(), records=(), base=end, end=end + 1, epoch=epoch, appended_ms=0)
    for node, batches in files.batches.items():
        files.batches[node] = [*batches, more]
    planting.truth.undecided.add(files.partition.number)


def _on_every_replica(planting: Planting, change: Callable[[Planting, Files], None]) -> bool:
    """Break all replicas' files of one partition, where no size of theirs excuses anything."""
    for partition in _unplanted(planting):
        by_size = planting.world.ever[partition.number].retention_bytes is not None
        if log_of(partition) and not by_size:
            planting.on_files[partition.number] = partial(change, planting)
            return True
    return False


def prefix_lacking(planting: Planting) -> bool:
    """Let one replica begin later than the others, further than anything allows."""
    for partition in _unplanted(planting):
        must = {each.offset for each in must_stand(planting, partition, log_of(partition))}
        if must and len(partition.replicas) > 1:
            planting.on_files[partition.number] = partial(_begin_later, planting, must)
            return True
    return False


def _begin_later(planting: Planting, must: set[int], files: Files) -> None:
    node = planting.chance.choice(sorted(files.batches))
    batches = files.batches[node]
    cuts = [
        at
        for at in range(1, len(batches))
        if any(offset in must for batch in batches[:at] for offset in batch.offsets)
    ]
    if not cuts:
        return
    files.batches[node] = batches[planting.chance.choice(cuts) :]
    files.must |= must


def replica_anew(planting: Planting) -> bool:
    """Let one replica hold nothing and begin at the end, as a follower that lost its disk might."""
    for partition in _unplanted(planting):
        must = {each.offset for each in must_stand(planting, partition, log_of(partition))}
        if must and len(partition.replicas) > 1:
            planting.on_files[partition.number] = partial(_begin_at_end, planting, must)
            return True
    return False


def _begin_at_end(planting: Planting, must: set[int], files: Files) -> None:
    node = planting.chance.choice(sorted(files.batches))
    end = files.partition.high_watermark
    files.batches[node] = []
    files.extents[node] = end, end
    files.must |= must


def replica_empty(planting: Planting) -> bool:
    """Let one replica hold nothing at all, from offset 0 on."""
    for partition in _unplanted(planting):
        if log_of(partition) and len(partition.replicas) > 1:
            planting.on_files[partition.number] = partial(_hold_nothing, planting)
            return True
    return False


def _hold_nothing(planting: Planting, files: Files) -> None:
    node = planting.chance.choice(sorted(files.batches))
    files.batches[node] = []
    files.extents[node] = 0, 0
    is_model = node == files.model
    for other, batches in files.batches.items():
        if other == node or not (is_model or other == files.model):
            continue
        for batch in batches:
            planting.truth.must(Anomaly.DIVERGED, files.partition, f"files@{batch.base}")
        if not batches and files.extent(other)[1] > 0:  # it is empty, too, and ends elsewhere
            _ends_early(planting, files, other if is_model else node)
    if is_model:
        _ends_early(planting, files, node)


def _unplanted(planting: Planting) -> list[Partition]:
    """Return partitions whose files are as they should be so far."""
    return [p for p in planting.partitions() if p.number not in planting.on_files]
