"""Goal: a document names no test and no module that is gone.

Method: every `test_...` and every path into `src/holdfast` that a document names, looked for; and
every file of Python that a design page quotes. In a cell of a table a file without a folder lies
where the one before it does. Seen to fail: with a test of the known traps renamed, with a module of
a file map moved, and with one that was put down beside a file of another folder.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from tests.tidy.pages import ROOT

DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
SOURCE = ROOT / "src" / "holdfast"
FOLDERS = "|".join(path.name for path in SOURCE.iterdir() if path.is_dir())
MODULE = re.compile(rf"`((?:{FOLDERS})/[\w/]+\.py)`")
FILE = re.compile(r"`([\w/]+\.py)`")
FILES = [
    f"/{path.relative_to(ROOT)}"
    for folder in ("src", "tests", "scripts", "bench")
    for path in (ROOT / folder).rglob("*.py")
]
TEST = re.compile(r"\btest_\w+")


def test_named_modules_exist() -> None:
    gone = [
        f"{page.relative_to(ROOT)}: {name}"
        for page in DOCUMENTS
        for name in MODULE.findall(page.read_text(encoding="utf-8"))
        if not (SOURCE / name).exists()
    ]
    assert not gone


def test_files_of_the_design_pages_exist() -> None:
    gone = [
        f"{page.relative_to(ROOT)}:{number}: {name}"
        for page in sorted((ROOT / "docs" / "design").rglob("*.md"))
        for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1)
        for name in _quoted(line)
        if not any(path.endswith(f"/{name}") for path in FILES)
    ]
    assert not gone


def _quoted(line: str) -> Iterator[str]:
    """Yield the files that a line names, in a table with the folder that they are said to be in."""
    for cell in line.split("|") if line.startswith("|") else [line]:
        folder = ""
        for name in FILE.findall(cell):
            parent, slash, _ = name.rpartition("/")
            folder = f"{parent}/" if slash and line.startswith("|") else folder
            yield name if slash else folder + name


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
