"""Writers of batches without Spark whose disk is full for a while: see parquet_writer.

    python -m tests.pipelines.full_disk_writer FOLDER

has a small file system in FOLDER/KIND for each kind of store; they go with this process. A batch is
written;
then nothing has room: neither the next batch nor another driver that starts. Then there is room
again, and another driver writes that batch. Says what was told meanwhile, a line an error, and
checks that each row is there once.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from pyarrow import dataset, parquet
from sqlalchemy.exc import OperationalError
from tests.pipelines import (
    delta_tables,
    delta_writer,
    iceberg_tables,
    iceberg_writer,
    parquet_writer,
    sql_writer,
)
from tests.pipelines.parquet_writer import batch

from holdfast.lab.steps.mounts import mount_small, resize
from holdfast.pipelines.due import Rows, decide
from holdfast.pipelines.sinks.store import FullDiskError, told_if_full

ROOM = 4 << 20
BLOCK = b"\0" * 4096
Open = Callable[[Path], Any]
Write = Callable[[Any, Any], None]
Read = Callable[[Path], list[int]]


def sqlite(root: Path) -> Any:
    return sql_writer.opened(f"sqlite:///{root}/table.db", "append", 0)


def write_sql(store: Any, what: Any) -> None:
    work = decide(what, store.memory(), (), store.query)
    if work.replay:
        return
    due = [number for move in work.moves for number in range(move.begin, move.end)]
    rows = None if work.rows is Rows.NONE else sql_writer.staged(store, what, due)
    store.commit(what, work, rows)


def sql_numbers(root: Path) -> list[int]:
    return [number for _, number in sql_writer.found(f"sqlite:///{root}/table.db", 0)]


def parquet_numbers(root: Path) -> list[int]:
    """Read the folder as somebody who knows nothing of us does."""
    files = dataset.dataset(root / "kept", format="parquet").files
    return sorted(n for file in files for n in parquet.read_table(file)["number"].to_pylist())


KINDS: dict[str, tuple[Open, Write, Read]] = {
    "sqlite": (sqlite, write_sql, sql_numbers),
    "parquet": (parquet_writer.opened, parquet_writer.write, parquet_numbers),
    "delta": (delta_writer.opened, parquet_writer.write, delta_tables.numbers),
    "iceberg": (iceberg_writer.opened, parquet_writer.write, iceberg_tables.numbers),
}


def fill(root: Path) -> None:
    """Leave no room, not for a block."""
    with suppress(OSError), (root / "_filler").open("wb", buffering=0) as file:
        while file.write(BLOCK):
            pass


def fails(root: Path, what: Callable[[], object]) -> bool:
    """Do what can hardly be done, and say what that says."""
    try:
        with told_if_full(root):  # as what calls a store has it
            what()
    except FullDiskError as error:
        sys.stdout.write(f"{error}\n")
        return True
    return False


def main(kind: str, root: Path) -> None:
    opened, write, numbers = KINDS[kind]
    mount_small(root, ROOM)
    store = opened(root)
    for number in range(2):
        write(store, batch(number))
    fill(root)
    assert fails(store.folder, lambda: write(store, batch(2))), (
        "it was written on a disk without room"
    )
    fails(store.folder, lambda: opened(root))  # taking a query over may take no room
    with suppress(OperationalError):  # without room SQLite has none for a reader's locks
        assert numbers(root) == [0, 1], f"meanwhile: {numbers(root)}"
    resize(root, 4 * ROOM)
    after = opened(root)
    for number in range(4):
        write(after, batch(number))
    assert numbers(root) == list(range(6)), f"afterwards: {numbers(root)}"


if __name__ == "__main__":
    for each in KINDS:
        main(each, Path(sys.argv[1], each))
