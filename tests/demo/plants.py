"""Losses that are planted in a demo's log or table, just before the last read.

Each takes the scene of a run whose table has caught up. Segments are edited on all replicas alike,
so that no replica can tell on another; the brokers are dead meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import sqlalchemy as sql

from holdfast.lab.demo.steps import Scene
from holdfast.lab.steps.closing import replica_directory
from holdfast.wire.batch import BatchHeader, batches, build_batch, read_header, read_records

RECORD, PREFIX, KEY = 0, 1, 2  # the partitions in which each of these is planted

Batch = tuple[BatchHeader, bytes]
Edit = Callable[[list[Batch]], list[bytes]]


def record(scene: Scene) -> None:
    """The last batch of a partition is gone."""
    edit_segments(scene, RECORD, lambda all_of_it: [data for _, data in all_of_it[:-1]])


def prefix(scene: Scene) -> None:
    """The first half of a partition is gone, as if retention had taken it."""
    edit_segments(scene, PREFIX, lambda all_of_it: [d for _, d in all_of_it[len(all_of_it) // 2 :]])


def key(scene: Scene) -> None:
    """One record has another key."""
    edit_segments(scene, KEY, _other_key)


def _other_key(all_of_it: list[Batch]) -> list[bytes]:
    (header, data), *others = all_of_it
    first, *rest = read_records(data)
    changed = build_batch(
        [first._replace(key=b"another"), *rest],
        base_offset=header.base_offset,
        leader_epoch=header.leader_epoch,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
    )
    return [bytes(changed), *(data for _, data in others)]


def row(scene: Scene) -> None:
    """One row is gone from the table, of an event that is still in the log."""
    change_table(scene, f"DELETE FROM ledger WHERE {_row_at(7)}")


def amount(scene: Scene) -> None:
    """One row of the table says another amount."""
    change_table(scene, f"UPDATE ledger SET amount = amount + 1 WHERE {_row_at(8)}")


def _row_at(offset: int) -> str:
    """Name a row by its event's place: which event is the seventh row is the consumer's luck."""
    return f'partition = {KEY} AND "offset" = {offset}'


PLANTS: dict[str, Callable[[Scene], None]] = {
    "record": record,
    "row": row,
    "prefix": prefix,
    "key": key,
    "amount": amount,
}


def change_table(scene: Scene, statement: str) -> None:
    engine = sql.create_engine(scene.places.database(scene.plan))
    with engine.begin() as connection:
        assert connection.execute(sql.text(statement)).rowcount == 1
    engine.dispose()


def edit_segments(scene: Scene, partition: int, edit: Edit) -> None:
    """Kill all brokers, let each replica of a partition hold what `edit` leaves, start them."""
    run = scene.run
    run.fault("KILL", *run.cluster.broker_ids)
    for node in run.cluster.broker_ids:
        _rewrite(replica_directory(run, node, partition), edit)
    run.start_node(*run.cluster.broker_ids)


def _rewrite(directory: Path, edit: Edit) -> None:
    """Rewrite a partition of one segment; its indexes are made anew by the broker."""
    (segment,) = directory.glob("*.log")
    data = segment.read_bytes()
    before = [(header, data[at : at + header.size]) for at, header in batches(data)]
    after = edit(before)
    begin = read_header(after[0]).base_offset
    for old in (segment, *directory.glob("*.index"), *directory.glob("*.timeindex")):
        old.unlink()
    (directory / f"{begin:020}.log").write_bytes(b"".join(after))
