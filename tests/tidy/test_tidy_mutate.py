"""`make mutate` asks who noticed most first, and a result holds as long as who said it is the same.

Goal: thousands of results outlive a new test, and none outlives the code that it is of. Method: a
made-up module with three files of tests. What they say is made up in all but the last test, where
pytest says it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from holdfast.lab import background
from holdfast.lab.background import Results

MODULE = "made/rules.py"
CODE = """\
def most(values):
    if len(values) > 3:
        raise ValueError("too many")
    return max(values)


def told(values):
    return "none"
"""
MOST = """\
import pytest
from made.rules import most

def test_the_most():
    assert most([3, 4]) == 4

def test_too_many():
    with pytest.raises(ValueError, match="^too many$"):
        most([1, 2, 3, 4])
"""
TOLD = """\
from made.rules import told

def test_told():
    assert told([]) == "none"
"""
NOTHING = """\
def test_nothing():
    assert True
"""
TESTS = ("tests/test_most.py", "tests/test_told.py", "tests/test_nothing.py")


class MadeUp:
    """Stands for a copy and its process: says who notices a change of a function."""

    def __init__(self, says: dict[str, dict[str, str]]) -> None:
        self.says = says
        self.asked: list[tuple[str, str, tuple[str, ...]]] = []
        self._function: str | None = None

    @contextlib.contextmanager
    def changed(self, change: Any) -> Iterator[None]:
        self._function = change.function
        yield
        self._function = None

    def attempt(
        self, _module: str, tests: str, first: Sequence[str], _seconds_max: float
    ) -> dict[str, Any]:
        if self._function is None:
            imports = [] if tests == TESTS[2] else [f"src/{MODULE}"]
            return {"noticed": None, "seconds": 0.1, "ran": [], "files": [tests, *imports]}
        self.asked.append((self._function, tests, tuple(first)))
        return {"noticed": self.says.get(tests, {}).get(self._function), "seconds": 0.1}


def plant(tree: Path) -> None:
    """Write the made-up module and its tests."""
    texts = dict(zip(TESTS, (MOST, TOLD, NOTHING), strict=True))
    for name, text in {f"src/{MODULE}": CODE, **texts}.items():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(text, encoding="utf-8")


@pytest.fixture(scope="module")
def mutate() -> ModuleType:
    """Import it for who runs these: the parser takes a second, which no other worker should pay."""
    import mutate  # noqa: PLC0415 - see above

    return mutate


@pytest.fixture(autouse=True)
def _no_git(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start no process for the name of the commit, which a row also has."""
    monkeypatch.setattr(background, "commit", lambda: None)


def run(mutate: ModuleType, tree: Path, job: Any) -> dict[str, str | None]:
    """Return who noticed each change, going on with what an earlier call has found."""
    target = mutate.Target(module=MODULE, tests=TESTS)
    with Results(tree / "results.jsonl", (), tree) as results:
        rows = mutate.Campaign(tree, [job], results, str).run(target)
    return {row["key"]: row["noticed"] for row in rows}


def test_who_noticed_most_is_asked_first_and_who_can_not_notice_never(
    mutate: ModuleType, tmp_path: Path
) -> None:
    plant(tmp_path)
    name = f"{TESTS[1]}::test_told"
    job = MadeUp({TESTS[1]: {"most": name, "told": name}})
    rows = run(mutate, tmp_path, job)
    assert set(rows.values()) == {name}
    assert job.asked[:3] == [
        ("most", TESTS[0], ()),
        ("most", TESTS[1], ()),
        ("most", TESTS[1], (name,)),
    ]
    assert {tests for _, tests, _ in job.asked[1:]} == {TESTS[1]}


def test_a_new_test_is_asked_of_survivors_alone(mutate: ModuleType, tmp_path: Path) -> None:
    plant(tmp_path)
    noticed = {"most": f"{TESTS[0]}::test_the_most"}
    first = run(mutate, tmp_path, job := MadeUp({TESTS[0]: noticed}))
    assert {tests for _, tests, _ in job.asked} == set(TESTS[:2])
    again = MadeUp({})
    assert run(mutate, tmp_path, again) == first
    assert not again.asked  # all is known

    (tmp_path / TESTS[1]).write_text(TOLD + NOTHING, encoding="utf-8")
    again = MadeUp({TESTS[1]: {"told": f"{TESTS[1]}::test_nothing"}})
    rows = run(mutate, tmp_path, again)
    assert {(function, tests) for function, tests, _ in again.asked} == {("told", TESTS[1])}
    assert None not in rows.values()

    (tmp_path / TESTS[2]).write_text(NOTHING + NOTHING, encoding="utf-8")
    again = MadeUp({})
    assert run(mutate, tmp_path, again) == rows
    assert not again.asked  # it never imported the module


def test_what_a_test_said_ends_with_the_test(mutate: ModuleType, tmp_path: Path) -> None:
    plant(tmp_path)
    both = {test: {"most": f"{test}::test", "told": f"{test}::test"} for test in TESTS[:1]}
    run(mutate, tmp_path, MadeUp(both))
    (tmp_path / TESTS[0]).write_text(MOST.replace("4]) == 4", "4])"), encoding="utf-8")
    rows = run(mutate, tmp_path, again := MadeUp({}))
    assert {function for function, _, _ in again.asked} == {"most", "told"}
    assert set(rows.values()) == {None}


def test_tests_that_fail_without_a_change_say_nothing(mutate: ModuleType, tmp_path: Path) -> None:
    plant(tmp_path)

    class Failing(MadeUp):
        def attempt(self, *task: Any) -> dict[str, Any]:
            return {**super().attempt(*task), "noticed": "tests/test_most.py::test_the_most"}

    with pytest.raises(mutate.MutateError, match="fails without any change: tests/test_most"):
        run(mutate, tmp_path, Failing({}))


@pytest.mark.process
@pytest.mark.slow
def test_pytest_says_what_it_notices(
    mutate: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A change of a rule, of words, of what nobody looks at, of the import, and one without end."""
    monkeypatch.setattr(mutate, "SECONDS_MIN", 1.0)
    plant(tmp_path)
    copy = tmp_path / "copy"
    copy.mkdir()
    plant(copy)
    told = {
        "if len(values) > 3:": ("if len(values) > 4:", "tests/test_most.py::test_too_many"),
        "return max(values)": ("return min(values)", "tests/test_most.py::test_the_most"),
        'return "none"': ("while True: pass", "it does not end"),
        "def told(values):": ("def told(values, _=values):", "it can't be imported"),
        '"too many")': ('"too many", 4)', "tests/test_most.py::test_too_many"),
        "def most(values):": ("def most(values, _=1):", None),
    }
    with contextlib.closing(mutate.Job(copy)) as job:
        target = mutate.Target(module=MODULE, tests=TESTS)
        with Results(None, (), tmp_path) as results:
            campaign = mutate.Campaign(tmp_path, [job], results, str)
            for old, (new, noticed) in told.items():
                change = mutate.Change(
                    module=MODULE,
                    function="",
                    old=old,
                    new=new,
                    number=1,
                    code=CODE.replace(old, new),
                )
                monkeypatch.setattr(mutate, "changes", lambda *_, change=change: [change])
                assert [row["noticed"] for row in campaign.run(target)] == [noticed], old
    assert (copy / "src" / MODULE).read_text(encoding="utf-8") == CODE
    assert not [*copy.glob("src/made/__pycache__/rules*")]  # its time may be the next change's
