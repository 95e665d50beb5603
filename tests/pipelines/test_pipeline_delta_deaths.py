"""Goal: a Delta table has each batch once, wherever its writer dies and whoever goes on beside it.

Method: a writer that dies, is replaced or replaces another at each step in turn; several that take
the query from each other; a disk that takes no more.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from deltalake import DeltaTable
from tests.pipelines.delta_tables import committed, numbers, schema_of, there
from tests.pipelines.delta_writer import opened
from tests.pipelines.parquet_writer import batch, write

pytestmark = [pytest.mark.slow, pytest.mark.process]

ROOT = Path(__file__).parent.parent.parent


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words], check=False, capture_output=True, text=True, cwd=ROOT
    )


def ran(what: str, folder: Path) -> list[Path]:
    """Run the writer once for each of its steps; return what each of them has left."""
    done = run("-m", "tests.pipelines.delta_writer", what, str(folder))
    assert done.returncode == 0, done.stderr
    return sorted(folder.iterdir())


@pytest.mark.timeout(600)
def test_a_writer_that_dies_at_any_step_leaves_each_batch_whole_or_not_at_all(
    tmp_path: Path,
) -> None:
    left = ran("die", tmp_path)
    assert len(left) > 25, "it came to its end too soon to have died anywhere"
    for root in left:
        if (root / "kept" / "_delta_log").exists():
            assert numbers(root) in ([], [0, 1], [0, 1, 2, 3]), f"step {root.name}"
        successor = opened(root)
        assert there(root) == committed(root), f"step {root.name}"
        for each in range(3):
            write(successor, batch(each))
        assert numbers(root) == list(range(4)), f"step {root.name}"
        assert there(root) == committed(root), f"step {root.name}"
        assert len(list(root.glob("kept/_holdfast/*/memory/*"))) == 1, f"step {root.name}"


@pytest.mark.timeout(600)
def test_a_driver_that_is_replaced_at_any_step_writes_nothing_any_more(tmp_path: Path) -> None:
    """The other one has another checkpoint: no name of a folder keeps the two apart."""
    left = ran("be_replaced", tmp_path)
    assert len(left) > 30, "it came to its end too soon to have been replaced anywhere"
    for root in left:
        assert numbers(root) in ([0, 1], [0, 1, 2, 3]), f"step {root.name}"


@pytest.mark.timeout(600)
def test_what_a_former_owner_commits_while_it_is_replaced_is_known(tmp_path: Path) -> None:
    left = ran("take_over", tmp_path)
    assert len(left) > 30, "it came to its end too soon to have met anybody"
    for root in left:
        assert numbers(root) == [0, 1, 2, 3], f"step {root.name}"


def test_drivers_that_take_the_query_from_each_other_write_each_batch_once(tmp_path: Path) -> None:
    """Each is a process, ends as it should, and leaves only what the last one may go on with."""
    program = (
        "import sys\n"
        "from pathlib import Path\n"
        "from tests.pipelines.delta_writer import opened\n"
        "from tests.pipelines.parquet_writer import batch, write\n"
        "from holdfast.pipelines.fence import FencedError\n"
        "for checkpoint in range(4):\n"
        "    try:\n"
        "        store = opened(Path(sys.argv[1]))\n"
        "        for number in range(8):\n"
        "            write(store, batch(number, checkpoint=f'{sys.argv[2]} {checkpoint}'))\n"
        "    except FencedError:\n"
        "        pass\n"
    )
    words = [sys.executable, "-c", program, str(tmp_path)]
    drivers = [
        subprocess.Popen([*words, str(name)], cwd=ROOT, stderr=subprocess.PIPE, text=True)
        for name in range(3)
    ]
    for driver in drivers:
        _, said = driver.communicate()
        assert driver.returncode == 0, said
    after = opened(tmp_path)
    for number in range(8):
        write(after, batch(number))
    assert numbers(tmp_path) == list(range(14))


LIMITED = """
import json, resource, signal, sys
from contextlib import suppress
from pathlib import Path
from deltalake import DeltaTable
from tests.pipelines.delta_writer import opened
from tests.pipelines.parquet_writer import batch, records, staged, write
from holdfast.pipelines.due import decide

root = Path(sys.argv[1])
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
limits = resource.getrlimit(resource.RLIMIT_FSIZE)
store = opened(root)
write(store, batch(0))
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
{what}
"""


def test_an_error_that_comes_after_a_commit_does_not_undo_it(tmp_path: Path) -> None:
    """There is no room for Delta's checkpoint, which deltalake writes after a commit."""
    every = {"delta.checkpointInterval": "1"}
    DeltaTable.create(tmp_path / "kept", schema_of([("number", "long", True)]), configuration=every)
    what = "write(store, batch(1))\nwrite(store, batch(2))\n"
    done = run("-c", LIMITED.format(what=what), str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "written, but then" in done.stderr
    assert numbers(tmp_path) == [0, 1, 2, 3]
    assert there(tmp_path) == committed(tmp_path)


def test_a_disk_that_takes_no_commit_ends_the_batch_and_leaves_nothing(tmp_path: Path) -> None:
    what = (
        "files = staged(store, batch(1), *([records(0)] for _ in range(40)))\n"
        "try:\n"
        "    store.commit(batch(1), decide(batch(1), store.memory(), (), 'q'), files)\n"
        "except OSError as error:\n"
        "    print(error)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, limits)\n"
        "assert not list((root / 'kept').glob('*.parquet'))\n"
        "write(store, batch(1))\n"
    )
    done = run("-c", LIMITED.format(what=what), str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "File too large" in done.stdout
    assert numbers(tmp_path) == [0, 1]
    assert there(tmp_path) == committed(tmp_path)
