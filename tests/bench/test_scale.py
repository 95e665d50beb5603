"""The drawing of `make scale` and the table of `make attacks`, from made figures."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree as ET

import pytest

BENCH = Path(__file__).resolve().parents[2] / "bench"


@pytest.fixture
def curves(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCH))
    return import_module("scale_curves")


def test_each_curve_that_was_measured_is_drawn_with_its_goal(curves: ModuleType) -> None:
    rows = [{"partitions": size, "create_s": size / 1000, "rss_mb": 30} for size in (10, 100, 1000)]
    drawn = curves.render({"rows": rows})
    root = ET.fromstring(drawn)
    space = "{http://www.w3.org/2000/svg}"
    groups = root.findall(f"{space}g")
    names = [group.findtext(f"{space}text") for group in groups]
    assert names == ["creation, to a record in each (s)", "memory of a broker (MB)"]
    for group in groups:
        assert len(group.findall(f"{space}circle")) == len(rows)
        goals = [each for each in group.findall(f"{space}path") if each.get("class") == "goal"]
        assert len(goals) == 1


def test_what_was_not_measured_is_not_drawn(curves: ModuleType) -> None:
    assert "<g " not in curves.render({"rows": [{"partitions": 10}]})
