"""Goal: what the documents point at exists. Method: every link and every `make` target in them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
TARGETS = set(
    re.findall(r"^([a-z-]+):.*##", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for link in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text):
        assert (page.parent / link).exists(), f"{page.name} links to {link}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_make_targets_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r"(?:^|`)make ([a-z-]+)", text, re.MULTILINE):
        assert target in TARGETS, f"{page.name} names make {target}"


def test_requirements_are_pinned_by_hash_and_name_no_address() -> None:
    for name in ("build", "run", "dev"):
        lines = (ROOT / "requirements" / f"{name}.txt").read_text(encoding="utf-8").splitlines()
        entries = [line for line in lines if line and not line.startswith(("#", " "))]
        assert entries
        for entry in entries:
            assert re.match(r"[a-z0-9-]+(\[[a-z]+\])?==[^ ]+ ", entry), entry
            assert entry.endswith("\\"), f"{entry} has no hash"
        assert not any("://" in line for line in lines)


def test_the_lists_hold_what_they_say() -> None:
    for name in ("build", "run", "dev"):
        wanted = (ROOT / "requirements" / f"{name}.in").read_text(encoding="utf-8").splitlines()
        locked = (ROOT / "requirements" / f"{name}.txt").read_text(encoding="utf-8")
        for line in wanted:
            if line and not line.startswith("#"):
                package, _, version = line.partition("==")
                pin = f"{package.partition('[')[0]}=={version} "
                assert f"\n{pin}" in re.sub(r"\[[a-z]+\]", "", f"\n{locked}"), (
                    f"run `make lock`: {line}"
                )
