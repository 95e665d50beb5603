"""Goal: what counts as written outlasts a power cut, with all that the table is read by.

Method: stores that write to a real disk, and after each batch: what POSIX says would be lost.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.pipelines import delta_writer, iceberg_writer, parquet_writer
from tests.pipelines.parquet_writer import FileStore, batch, write
from tests.pipelines.power import Disk

from holdfast.pipelines.sinks.written_files import sync

STORES: dict[str, Callable[[Path], FileStore]] = {
    "delta": delta_writer.opened,
    "iceberg": lambda root: iceberg_writer.opened(root.parent, url=_url(root)),
    "parquet": parquet_writer.opened,
}


def _url(root: Path) -> str:
    """A catalog beside the disk: SQLite syncs its own file."""
    return f"iceberg+sqlite:///{root.parent}/catalog.db?warehouse={root}"


@pytest.mark.parametrize("kind", sorted(STORES))
def test_a_batch_that_counts_as_written_outlasts_a_power_cut(tmp_path: Path, kind: str) -> None:
    """Seen to fail: nobody had synced the name of the table's folder, nor what says which columns
    a query writes to a folder of Parquet.
    """
    root = tmp_path / "disk"
    root.mkdir()
    disk = Disk(root)
    with disk.watched():
        for begin in (0, 3):
            store = STORES[kind](root)
            for number in range(begin, begin + 3):
                write(store, batch(number))
                assert disk.lost() == []


def test_what_is_not_synced_is_lost(tmp_path: Path) -> None:
    """What the test above stands on: content and name, of the file and of each folder above it."""
    disk = Disk(tmp_path)
    with disk.watched():
        (tmp_path / "a").mkdir()
        file = tmp_path / "a" / "b"
        file.write_text("text")
        assert disk.lost() == ["a/b"]
        sync(file)
        sync(tmp_path)
        assert disk.lost() == ["a/b"]
        sync(tmp_path / "a")
        assert disk.lost() == []
        file.rename(tmp_path / "a" / "c")
        assert disk.lost() == ["a/c"]
        sync(tmp_path / "a")
        assert disk.lost() == []
        (tmp_path / "a" / "c").write_text("other")
        assert disk.lost() == ["a/c"]
