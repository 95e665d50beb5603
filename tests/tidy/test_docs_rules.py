"""Goal: what code cites can be read in this repository, and each rule that is written is followed.

Method: every page that sources, tests, scripts and documents name, looked up, and every heading of
`docs/protocol-rules`, looked for in the sources. Seen to fail: with a citation of a rule that is
not there, of a page without its rule, and of a page that is in no folder here; and with a rule that
nobody cites.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest
from tests.tidy.pages import ROOT, anchors

RULES = ROOT / "docs" / "protocol-rules"
SUBJECTS = sorted(page for page in RULES.glob("*.md") if page.name != "README.md")
CODE = sorted(
    path
    for folder in ("src", "tests", "scripts", "bench", ".ci")
    for path in (ROOT / folder).rglob("*")
    if path.suffix in {"", ".py", ".sh", ".toml", ".txt"}
    and path.is_file()
    and path != Path(__file__)
)
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
PAGE_END = re.compile(r"\.md(?:#[\w-]+)?(?![\w#])")
PATH = re.compile(r"[\w./-]*\w\Z")
PATH_LENGTH_MAX = 100
FILE_NAME = re.compile(r"\"[\w./-]*\.md\"")  # in quotes: a file that a program opens
EXPERIMENT = re.compile(r"\bC\d{1,2}\b")  # a number in some list; scenarios have names


def wrong_citations(text: str) -> list[str]:
    """Return the pages that a source names and that nobody can open.

    Pages by their path, those at the root by their name, rules as `page.md#rule`.
    """
    cited = pages_in(FILE_NAME.sub("", text))
    return [page for page in cited if not is_there(page)] + EXPERIMENT.findall(text)


def pages_in(text: str) -> list[str]:
    """Return every page that is named, as it is written there."""
    found = []
    for end in PAGE_END.finditer(text):
        before = PATH.search(text[max(0, end.start() - PATH_LENGTH_MAX) : end.start()])
        if before is not None:
            found.append(before[0] + end[0])
    return found


@cache
def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@cache
def is_there(cited: str) -> bool:
    name, _, anchor = cited.partition("#")
    if not anchor and (ROOT / name).exists():
        return True
    page = ROOT / name if "/" in name else RULES / name
    return bool(anchor) and page.exists() and anchor in anchors(page)


@pytest.mark.slow
def test_code_cites_what_is_there() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}: {cited}"
        for path in CODE
        for cited in wrong_citations(text_of(path))
    ]
    assert not wrong, f"cite a rule as page.md#rule, a page by its path: {wrong}"


def test_documents_name_pages_that_are_there() -> None:
    names = {page.name for page in DOCUMENTS}
    for page in DOCUMENTS:
        text = page.read_text(encoding="utf-8")
        for cited in pages_in(text):
            name, _, anchor = cited.partition("#")
            assert name.rpartition("/")[2] in names, f"{page.relative_to(ROOT)} names {cited}"
            if anchor and f"rules: {cited}" in text:
                assert anchor in anchors(RULES / name), f"{page.relative_to(ROOT)}: {cited}"


@pytest.mark.parametrize("page", SUBJECTS, ids=lambda page: str(page.name))
def test_each_rule_is_followed(page: Path) -> None:
    cited = {each for path in CODE for each in pages_in(text_of(path))}
    for rule in re.findall(r"^## (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE):
        name = f"{page.name}#{rule.lower().replace(' ', '-')}"
        assert name in cited, f"neither code nor a test says that it follows {name}"


@pytest.mark.parametrize("page", SUBJECTS, ids=lambda page: str(page.name))
def test_rules_have_plain_names_and_sources(page: Path) -> None:
    for part in page.read_text(encoding="utf-8").split("\n## ")[1:]:
        rule = part.partition("\n")[0]
        assert re.fullmatch(r"[A-Za-z0-9 -]+", rule), f"a name that can't be cited: {rule}"
        assert re.search(r"\*Source:\s", part), f"{page.name} does not say where {rule} comes from"


@pytest.mark.parametrize(
    "text",
    [
        "(rules: log.md#retention)",
        "rules: log.md#retention, replication.md#high-watermark",
        "Page: docs/design/judge.md.",
        "as CONTRIBUTING.md says",
        'ROOT / "docs" / "made-later.md"',
    ],
)
def test_what_is_here_may_be_cited(text: str) -> None:
    assert wrong_citations(text) == []


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("(rules: log.md#no-such-rule)", "log.md#no-such-rule"),
        ("(rules: no-such-page.md#retention)", "no-such-page.md#retention"),
        ("(rules: log.md)", "log.md"),
        ("(SOMEBODYS-BOOK.md 3.4)", "SOMEBODYS-BOOK.md"),
        ("(docs/design/no-such-page.md)", "docs/design/no-such-page.md"),
        ("as experiment C7 wants", "C7"),
    ],
)
def test_what_is_elsewhere_may_not(text: str, wrong: str) -> None:
    assert wrong_citations(text) == [wrong]
