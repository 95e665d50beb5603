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


@pytest.fixture
def attacks(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCH))
    return import_module("attacks")


def measured(name: str, *ratios: float) -> dict[str, object]:
    seen = {"p50_ms": 1.0, "p99_ms": 2.0, "worst_ms": 40.0, "failed": 0}
    kinds = {"alone": seen, "with": seen, "control": seen}
    rounds = [{**kinds, "burnt_cores": 0.5, "p50_ratio": 1.0, "p99_ratio": each} for each in ratios]
    return {"attack": name, "rounds": rounds}


def test_the_page_names_the_attacks_that_cost_too_much(attacks: ModuleType) -> None:
    """The median of the rounds counts; what the page says besides stays, and so do its marks."""
    rows = [measured("bomb", 1.5, 9.0, 1.0), measured("flood", 2.5, 1.0, 3.0)]
    report = {
        "began": "2026-01-02T03:04", "cpus": 2, "rounds": 3, "seconds": 5.0,
        "load_average": (1.0, 2.0, 3.0), "attacks": rows,
    }  # fmt: skip
    page = attacks.PAGE.read_text(encoding="utf-8")
    for _ in range(2):
        page = attacks.with_table(page, attacks.render(report, "attacks-x.json"))
    assert page.count("| 1.00 / 1.50 |") == 1
    assert page.count("| **1.00 / 2.50** |") == 1
    assert page.count("1 of them cost more than 2 times") == 1
    assert page.count("| 40 / 40 / 40 |") == 2
    assert page.count("bench/results/attacks-x.json") == 1
    for each in attacks.ATTACKS:
        kept = "named-in-..." if each.startswith("named-in-") else each
        assert kept in page.split(attacks.END)[1], "the page says what each of them does"
