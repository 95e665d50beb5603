"""Goal: what the documents point at exists, and every page is found from an index.

Method: every link, with its anchor, and every `make` target in them; the indexes are README.md of
the root and of each folder. Seen to fail: with a link to a heading that was renamed, with a page
that no index names, and with a long line.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.tidy.pages import ROOT, anchors, links, prose

INDEX = "README.md"
DOCS = sorted((ROOT / "docs").rglob("*.md"))
PAGES = sorted([*ROOT.glob("*.md"), *DOCS])
COLUMNS_MAX = 120
# Plans, which stay as they were written, and pages whose lines are still to be broken.
LONG_LINES = {
    "main-job.md",
    "quorum-and-simulator.md",
    "true-verdicts.md",
    "status.md",
    "judge.md",
    "lab.md",
    "pipelines.md",
}
TARGETS = set(
    re.findall(r"^([a-z-]+):.*##", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target, anchor in links(page):
        assert target.exists(), f"{page.name} links to {target}"
        if anchor and target.suffix == ".md":
            assert anchor in anchors(target), f"{page.name} links to {target.name}#{anchor}"


@pytest.mark.parametrize("page", DOCS, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_page_is_in_an_index(page: Path) -> None:
    """Each is linked from an index of its own folder or of one above."""
    folders = list(page.parents)[: list(page.parents).index(ROOT) + 1]
    indexes = [folder / INDEX for folder in folders if (folder / INDEX) != page]
    linked = {target for index in indexes if index.exists() for target, _ in links(index)}
    assert page in linked, f"no index leads to it: {[str(each) for each in indexes]}"


@pytest.mark.parametrize("page", DOCS, ids=lambda page: str(page.relative_to(ROOT)))
def test_lines_are_not_too_long(page: Path) -> None:
    """A table's row can't be broken, nor can code."""
    long = [
        number
        for number, line in prose(page)
        if len(line) > COLUMNS_MAX and not line.startswith("|")
    ]
    assert page.name in LONG_LINES or not long, f"lines {long}"


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
