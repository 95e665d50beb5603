"""Goal: what stops `prove --all`, and what it can't judge, hides nothing that is broken.

Method: folders that today's code can't judge, and a folder that can't be read any more once
something in it is known to be broken.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.lab.test_lab_check import FINE, UNREAD, write_part

from holdfast.lab import prove
from holdfast.lab.journal import FolderError, write_manifest
from holdfast.lab.scenario import load_scenario

ISOLATED = "broker-isolated"


def of_older_code(folder: Path, checks: Any = (FINE,)) -> Path:
    """Write a run killed in its control, with defaults that the control of today can't have."""
    scenario = load_scenario(ISOLATED)
    folder.mkdir(parents=True)
    write_manifest(
        folder,
        "proof",
        scenario=ISOLATED,
        parameters=scenario.defaults.as_json() | {"replication_factor": 2, "min_isr": 1},
        parts=[part.name for part in scenario.parts],
        command="holdfast prove",
    )
    for part in scenario.parts:
        told = (FINE,) if part.is_control else checks
        write_part(folder / part.name, UNREAD, told, ended=not part.is_control)
    return folder


def test_a_folder_whose_settings_suit_no_part_of_today_is_a_folder_that_can_not_be_judged(
    tmp_path: Path,
) -> None:
    """Seen to fail: it was a LabError, which nobody expects of a folder, and named none."""
    folder = of_older_code(tmp_path / "run")
    with pytest.raises(FolderError, match=r"min-isr") as problem:
        prove.judge_again(folder)
    assert str(folder) in str(problem.value)
