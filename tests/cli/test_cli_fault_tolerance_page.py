"""Goal: each proof of docs/tutorial/fault-tolerance.md shows its verdict and a picture.

Method: the page is read. Its steps are typed in `test_cli_fault_tolerance.py`.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "tutorial" / "fault-tolerance.md"
PROOF: Final = re.compile(r"^holdfast prove ([a-z-]+)$", re.MULTILINE)
PROOFS: Final = (
    "one-broker-down",
    "two-brokers-down",
    "controller-down",
    "min-insync-replicas",
    "write-anomaly",
    "read-anomaly",
    "split-brain",
    "three-zones",
)
QUOTED: Final = re.compile(r"`([^`]*)`")


def text_of(name: str) -> str:
    """Return what stands between a proof's command and the next experiment."""
    page = PAGE.read_text(encoding="utf-8")
    return page.split(f"holdfast prove {name}\n```\n")[1].split("\n## ")[0]


def verdict_of(name: str) -> str:
    """Return the verdict that the page shows, in one line; ` ... ` stands for what it leaves out.

    It may be quoted in two parts, with other words between them.
    """
    quoted = [" ".join(each.split()) for each in QUOTED.findall(text_of(name))]
    parts = [each for each in quoted if each.startswith(("Kept. ", "The control failed"))]
    return " ... ".join(parts)


def without_numbers(text: str) -> str:
    """Return a verdict without what is another one each time: how many events there were."""
    return re.sub(r"\d[\d,]*", "N", text)


def test_each_experiment_is_proven() -> None:
    """Seen to fail: what is read and then gone had no experiment."""
    assert tuple(dict.fromkeys(PROOF.findall(PAGE.read_text(encoding="utf-8")))) == PROOFS


@pytest.mark.parametrize("name", PROOFS)
def test_each_proof_shows_its_verdict_and_a_picture(name: str) -> None:
    """Seen to fail: of seven one had its verdict."""
    verdict = verdict_of(name)
    assert verdict.startswith("Kept. ")
    assert "Observed: " in verdict
    assert "The control failed, as it must (" in verdict
    assert (PAGE.parent / "pictures" / f"{name}.svg").is_file()
    assert f"(pictures/{name}.svg)" in text_of(name)
