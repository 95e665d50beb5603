"""Goal: an Iceberg table has each batch once, wherever its writer dies and whoever goes on.

Method: a writer that is killed at each step in turn, each going on with what the one before has
left; several that take the query from each other; a disk that takes no more. Who comes between two
steps of a commit: test_pipeline_iceberg_store.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.pipelines.iceberg_tables import committed, numbers, orphans, there
from tests.pipelines.iceberg_writer import opened
from tests.pipelines.parquet_writer import batch, write

pytestmark = [pytest.mark.slow, pytest.mark.process]

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return what writers have left that were killed, or replaced; none ended otherwise."""
    folder = tmp_path_factory.mktemp("left")
    done = subprocess.run(
        [sys.executable, "-m", "tests.pipelines.iceberg_writer", str(folder)],
        check=False, capture_output=True, text=True, cwd=ROOT,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return folder


def goes_on(root: Path, rows: int) -> None:
    """A successor writes what is missing, and leaves nothing that nobody needs."""
    successor = opened(root)
    assert there(root) == committed(root), root.name
    for number in range(rows // 2 + 1):
        write(successor, batch(number))
    assert numbers(root) == list(range(rows)), root.name
    # Who was killed while it made the table may have been about to: see `_sweep`.
    assert not {name for name in orphans(root) if "00000" not in name}, root.name


@pytest.mark.timeout(600)
def test_a_writer_that_is_killed_in_a_batch_leaves_it_whole_or_not_at_all(left: Path) -> None:
    """Its successor is killed one step later, and sees first that the rows are right."""
    assert len(list((left / "dies" / "warehouse/db/kept/metadata").glob("*.json"))) > 20
    goes_on(left / "dies", len(numbers(left / "dies")) + 2)


@pytest.mark.timeout(600)
def test_a_writer_that_is_killed_while_it_makes_the_table_is_followed(left: Path) -> None:
    lives = sorted((left / "made").iterdir())
    assert len(lives) > 8, "it came to its end too soon to have died anywhere"
    for root in lives:
        goes_on(root, 2)


def test_drivers_that_take_the_query_from_each_other_write_each_batch_once(left: Path) -> None:
    assert numbers(left / "race") == list(range(8))
    goes_on(left / "race", 10)


def test_a_disk_that_takes_no_more_ends_the_batch_and_leaves_nothing(left: Path) -> None:
    """It ends in a data file, and in the table's metadata, when all other files are there."""
    assert numbers(left / "full") == [0, 1]
    goes_on(left / "full", 4)
