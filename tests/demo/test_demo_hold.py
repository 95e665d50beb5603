"""Goal: a driver stays between the table's commit and Spark's for as long as it is told to.

Method: the commit's hook alone, in a thread; what it says goes to standard output.
"""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from holdfast.cluster.processes import wait_until
from holdfast.pipelines.driver import _holding, say_committed

BOUND_S = 20.0


def test_a_commit_is_told_first_and_held_while_the_file_is_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hold = tmp_path / "hold"
    said: list[dict[str, Any]] = []
    committed = _holding(hold, say_committed)
    committed(1, 10)  # nobody holds it
    hold.touch()
    thread = threading.Thread(target=committed, args=(2, 20), daemon=True)
    thread.start()

    def is_held() -> bool:
        said.extend(json.loads(line) for line in capsys.readouterr().out.splitlines())
        return bool(said[-1]["event"] == "held")

    wait_until(is_held, timeout_s=BOUND_S, what="the driver to be held")
    assert thread.is_alive()
    hold.unlink()
    thread.join(BOUND_S)
    assert not thread.is_alive()
    told = [(each["event"], each["batch"], each["rows"]) for each in said]
    assert told == [("committed", 1, 10), ("committed", 2, 20), ("held", 2, 20)]
    assert all(each["at_ms"] > 0 for each in said)


def test_without_a_file_to_look_for_nothing_is_held() -> None:
    told: list[tuple[int, int]] = []
    _holding(None, lambda batch, rows: told.append((batch, rows)))(3, 4)
    assert told == [(3, 4)]
