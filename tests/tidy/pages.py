"""Markdown as its readers see it: headings and their anchors, links, lines."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_FENCE = re.compile(r"^\s*```")
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_CODE = re.compile(r"`[^`\n]+`")


def prose(page: Path) -> Iterator[tuple[int, str]]:
    """Yield number and text of each line that is not in a block of code."""
    in_code = False
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        if _FENCE.match(line):
            in_code = not in_code
        elif not in_code:
            yield number, line


@cache
def anchors(page: Path) -> frozenset[str]:
    """Return what a link to a heading of this page may end with, as GitHub makes it."""
    seen: Counter[str] = Counter()
    found = []
    for _, line in prose(page):
        if heading := re.match(r"#+ +(.*)", line):
            words = re.sub(r"[^\w\- ]", "", heading[1].strip().lower())
            anchor = words.replace(" ", "-")
            found.append(f"{anchor}-{seen[anchor]}" if seen[anchor] else anchor)
            seen[anchor] += 1
    return frozenset(found)


def links(page: Path) -> list[tuple[Path, str]]:
    """Return where a page's links within the repository lead: file and anchor ("": its top)."""
    text = "\n".join(_CODE.sub("", line) for _, line in prose(page))
    found = []
    for link in _LINK.findall(text):
        if "://" not in link:
            name, _, anchor = link.partition("#")
            found.append(((page.parent / name).resolve() if name else page, anchor))
    return found
