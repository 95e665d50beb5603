"""How an inspected partition is shown: a table of its replicas, its epochs, one message. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from holdfast.clients.partition_inspection import Copy, Epoch, Inspection, Standing, Verdict
from holdfast.clients.replica_statements import Led, Statement
from holdfast.wire.batch_header import BatchHeader

UNKNOWN = "-"
REPLICAS = (
    "REPLICA",
    "ROLE",
    "IN-SYNC",
    "LOG-START",
    "HIGH-WATERMARK",
    "LOG-END",
    "BYTES",
    "DIRECTORY",
)
EPOCHS = ("EPOCH", "FIRST-OFFSET", "LAST-OFFSET")


def lines(seen: Inspection, found: Verdict | None) -> Iterator[str]:
    """Yield what is printed."""
    yield _title(seen)
    yield _readable(seen)
    yield ""
    yield from _table([REPLICAS, *(_row(seen, each) for each in seen.replicas)])
    if any(each.log_end_is_least for each in seen.replicas):
        yield "+: at least so far; this broker doesn't tell where a follower's log ends"
    if seen.epochs:
        yield ""
        yield from _table([EPOCHS, *(_epoch_row(each) for each in seen.epochs)])
    if seen.differing:
        yield ""
        yield "Brokers differ about who leads, and the highest epoch is right:"
        yield from (f"  {node} says {_led(led)}" for node, led in sorted(seen.differing.items()))
    silences = [*seen.silences, *(why for each in seen.replicas for why in _silences(each))]
    if silences:
        yield ""
        yield "Not told:"
        yield from (f"  {why}" for why in silences)
    if found is not None:
        yield ""
        yield from _verdict(seen, found)


def to_json(seen: Inspection, found: Verdict | None) -> dict[str, Any]:
    """Return the same for machines; null where something isn't told."""
    partition = seen.partition
    values: dict[str, Any] = {
        "topic": seen.topic.name,
        "topic_id": seen.topic.topic_id or None,
        "partition": partition.index,
        "leader": _node(partition.leader),
        "leader_epoch": seen.leader_epoch,
        "replicas": partition.replicas,
        "isr": partition.isr,
        "elr": partition.elr,
        "high_watermark": seen.high_watermark,
        "last_stable_offset": seen.last_stable,
        "replica_states": [_replica_json(each) for each in seen.replicas],
        "epochs": [
            {"epoch": each.epoch, "start_offset": each.start, "end_offset": each.end}
            for each in seen.epochs
        ],
        "brokers_differ": [
            {"node": node, "leader": _node(led.leader), "leader_epoch": led.epoch}
            for node, led in sorted(seen.differing.items())
        ],
        "not_told": seen.silences,
    }
    if found is not None:
        values["message"] = {
            "offset": found.offset,
            "standing": found.standing.value,
            "committed": _committed(found.standing),
            "batch": None if found.batch is None else _batch_json(found.batch),
            "replicas": [
                {"node": each.node, "holds": each.holds, "read_there": each.seen}
                for each in found.copies
            ],
        }
    return values


def _led(led: Led) -> str:
    leader = "nobody" if led.leader < 0 else str(led.leader)
    return f"that {leader} leads in epoch {led.epoch}"


def _node(node: int) -> int | None:
    return None if node < 0 else node


def _title(seen: Inspection) -> str:
    partition = seen.partition
    leader = "no leader" if partition.leader < 0 else f"leader {partition.leader}"
    epoch = "" if seen.leader_epoch is None else f" in epoch {seen.leader_epoch}"
    more = f", eligible as well {_ids(partition.elr)}" if partition.elr else ""
    return (
        f"{seen.topic.name}-{partition.index}: {leader}{epoch}, replicas "
        f"{_ids(partition.replicas)}, in sync {_ids(partition.isr)}{more}"
    )


def _readable(seen: Inspection) -> str:
    if seen.high_watermark is None:
        return "What is committed nobody tells: the leader doesn't answer."
    text = f"Committed up to {seen.high_watermark} (the high watermark)"
    if seen.last_stable is not None and seen.last_stable != seen.high_watermark:
        text += f", open transactions from {seen.last_stable} (the last stable offset)"
    return f"{text}."


def _row(seen: Inspection, each: Statement) -> Sequence[str]:
    end = _number(each.log_end) + ("+" if each.log_end_is_least else "")
    return (
        str(each.node),
        "leader" if each.node == seen.partition.leader else "follower",
        "yes" if each.node in seen.partition.isr else "no",
        _number(each.log_start),
        _number(each.high_watermark),
        end,
        _number(each.size_bytes),
        each.directory or UNKNOWN,
    )


def _epoch_row(each: Epoch) -> Sequence[str]:
    return (str(each.epoch), _number(each.start), str(each.end - 1))


def _silences(each: Statement) -> Iterator[str]:
    for why in dict.fromkeys(each.silences):
        yield f"replica {each.node}: {why}"


def _verdict(seen: Inspection, found: Verdict) -> Iterator[str]:
    high = seen.high_watermark
    sentence = {
        Standing.COMMITTED: "committed: consumers can read it, and no clean election loses it",
        Standing.NOT_COMMITTED: (
            f"not committed: it is in the leader's log, but the high watermark is {high}"
        ),
        Standing.NOT_WRITTEN: "not written yet: the leader's log ends before it",
        Standing.DELETED: "deleted: every log that is read begins behind it",
        Standing.REMOVED: (
            "removed: it was committed, and the leader's log has no message at this offset any "
            "more, as compaction leaves it"
        ),
        Standing.UNKNOWN: "nobody tells whether it is committed",
    }[found.standing]
    yield f"Message {found.offset}: {sentence}."
    if found.batch is not None:
        yield f"  {_batch(found.batch)}"
    if found.standing not in {Standing.NOT_WRITTEN, Standing.DELETED}:
        yield from (f"  replica {each.node} {_copy(each, found.standing)}" for each in found.copies)


def _copy(copy: Copy, standing: Standing) -> str:
    if standing is Standing.REMOVED and copy.holds:
        return "still has it"
    if copy.seen:
        return "has it: the same batch was read there"
    if copy.holds is None:
        return "doesn't tell whether it has it"
    return "has it, by where its log ends" if copy.holds else "doesn't have it"


def _batch(batch: BatchHeader) -> str:
    span = f"{batch.base_offset} to {batch.last_offset}"
    kind = "control batch" if batch.is_control else "batch"
    return f"in the {kind} of offsets {span}, written in leader epoch {batch.leader_epoch}"


def _batch_json(batch: BatchHeader) -> dict[str, Any]:
    return {
        "base_offset": batch.base_offset,
        "last_offset": batch.last_offset,
        "leader_epoch": batch.leader_epoch,
        "max_timestamp_ms": batch.max_timestamp,
        "size_bytes": batch.size,
        "is_control": batch.is_control,
    }


def _replica_json(each: Statement) -> dict[str, Any]:
    return {
        "node": each.node,
        "log_start": each.log_start,
        "log_end": each.log_end,
        "log_end_is_least": each.log_end_is_least,
        "high_watermark": each.high_watermark,
        "lag": each.lag,
        "size_bytes": each.size_bytes,
        "directory": each.directory,
        "not_told": each.silences,
    }


def _committed(standing: Standing) -> bool | None:
    if standing is Standing.UNKNOWN:
        return None
    return standing in {Standing.COMMITTED, Standing.DELETED, Standing.REMOVED}


def _number(value: int | None) -> str:
    return UNKNOWN if value is None else str(value)


def _ids(nodes: Sequence[int]) -> str:
    return ",".join(map(str, nodes)) or "nobody"


def _table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)]
        yield "  ".join(cells).rstrip()
