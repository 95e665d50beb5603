"""Goal: a document names no test and no module that is gone.

Method: every `test_...` and every path into `src/holdfast` that a document names, looked for. Seen
to fail: with a test of the known traps renamed, and with a module of a file map moved.
"""

from __future__ import annotations

import re

from tests.tidy.pages import ROOT

DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
SOURCE = ROOT / "src" / "holdfast"
FOLDERS = "|".join(path.name for path in SOURCE.iterdir() if path.is_dir())
MODULE = re.compile(rf"`((?:{FOLDERS})/[\w/]+\.py)`")
TEST = re.compile(r"\btest_\w+")


def test_named_modules_exist() -> None:
    gone = [
        f"{page.relative_to(ROOT)}: {name}"
        for page in DOCUMENTS
        for name in MODULE.findall(page.read_text(encoding="utf-8"))
        if not (SOURCE / name).exists()
    ]
    assert not gone


def test_named_tests_exist() -> None:
    files = list((ROOT / "tests").rglob("test_*.py"))
    names = {path.stem for path in files}
    for path in files:
        names.update(re.findall(r"\bdef (test_\w+)", path.read_text(encoding="utf-8")))
    gone = [
        f"{page.relative_to(ROOT)}: {name}"
        for page in DOCUMENTS
        for name in TEST.findall(page.read_text(encoding="utf-8"))
        if name not in names
    ]
    assert not gone
