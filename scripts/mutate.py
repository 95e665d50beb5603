"""`make mutate`: every small change of what is pure, each of which a test has to notice.

A changed module is put into a copy of the tree, and its tests run there until one fails. What comes
of each goes to a file as it comes; a second call goes on where the first one ended, as long as what
the file of tests that said it imports is the same. A change that no test notices survives: it needs
a reason in survivors.toml, or the command fails. So does a reason whose change is gone or noticed.

    python scripts/mutate.py [--only WORD] [--jobs 2] [--results FILE] [--record]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.util import cache_from_source
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Final

from changes import Change, changes
from holdfast.lab.background import LEFT_OUT, Results, ResultsError, fingerprint

ROOT: Final = Path(__file__).resolve().parent.parent
TRIAL: Final = ROOT / "scripts" / "trial.py"
REASONS: Final = ROOT / "scripts" / "survivors.toml"
COUNTS: Final = ROOT / "docs" / "design" / "mutation-counts.md"
# Modules of the judge that take events in many at a time.
TAKE_IN: Final = frozenset(
    {"checker", "deliveries", "history", "partition", "reader_rules", "series"}
)
ANY: Final = "*"  # in place of a change: whatever survives in that function
TOO_LONG: Final = 2  # of one test: times what all tests of its file take without a change
SECONDS_MIN: Final = 3.0
SECONDS_BASELINE: Final = 600.0
NOT_COPIED: Final = (*LEFT_OUT, ".git", ".venv", ".cache", ".*_cache", "runs")


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A module, and the tests that have to notice what happens to it."""

    module: str  # below src
    tests: tuple[str, ...]


class MutateError(Exception):
    """Nothing can be said: the tests fail without any change, or can't be run."""


def _targets() -> Iterator[Target]:
    # Not those that look for the judge's text: any change of it would fail them.
    found = (ROOT / "tests" / "judge").glob("test_*.py")
    judge = {
        path.stem.removeprefix("test_judge_"): f"tests/judge/{path.name}" for path in sorted(found)
    }
    del judge["mutants"], judge["group_mutants"]
    of_groups = (judge.pop("group_told"), judge.pop("group_rules"))
    # How events are taken in is theirs, and not what is made of them.
    taking_in = {judge.pop(name) for name in ("quick", "runs")}
    for path in sorted((ROOT / "src" / "holdfast" / "judge").glob("[a-z]*.py")):
        more = taking_in if path.stem in TAKE_IN else set()
        yield Target(module=f"holdfast/judge/{path.name}", tests=(*judge.values(), *sorted(more)))
    # Of groups: by hand first, since these are quick and notice most of it.
    for path in sorted((ROOT / "src" / "holdfast" / "judge" / "groups").glob("[a-z]*.py")):
        yield Target(module=f"holdfast/judge/groups/{path.name}", tests=of_groups)
    for place in ("aftermath", "steps/closing", "steps/wants"):
        name = place.rpartition("/")[2]
        every = sorted((ROOT / "tests" / "lab").glob(f"test_lab_{name}*.py"))
        yield Target(
            module=f"holdfast/lab/{place}.py", tests=tuple(f"tests/lab/{one.name}" for one in every)
        )
    demo = ("tests/demo/test_demo_verdict.py", "tests/demo/test_demo_check.py")
    yield Target(module="holdfast/lab/demo/demo_check.py", tests=demo)
    start = "tests/pipelines/test_pipeline_"
    for name, tests in {
        "offsets": ("offsets", "limit"),
        "planned": ("planned", "due"),
        "options": ("options",),
        "ledger": ("recipes", "recipe_start"),
        "lines": ("recipes", "recipe_start"),
    }.items():
        files = tuple(f"{start}{test}.py" for test in tests)
        yield Target(module=f"holdfast/pipelines/{name}.py", tests=files)


TARGETS: Final = tuple(_targets())


# -- one change --------------------------------------------------------------------------------


class Job:
    """A copy of the tree, and the process that runs tests there."""

    def __init__(self, copy: Path) -> None:
        self.copy = copy
        self._process = subprocess.Popen(
            [sys.executable, str(TRIAL), str(copy)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": ""},
        )

    def attempt(
        self, module: str, tests: str, first: Sequence[str], seconds_max: float
    ) -> dict[str, Any]:
        """Return what a trial says of one file of tests."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        task = {"module": module, "tests": tests, "first": first, "seconds_max": seconds_max}
        self._process.stdin.write(json.dumps(task) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        answer: dict[str, Any] = (
            json.loads(line) if line else {"error": "the process that runs tests has ended"}
        )
        if "error" in answer:
            raise MutateError(answer["error"])
        return answer

    @contextlib.contextmanager
    def changed(self, change: Change) -> Iterator[None]:
        """Have one change in the copy."""
        path = self.copy / "src" / change.module
        before = path.read_text(encoding="utf-8")
        try:
            _write(path, change.code)
            yield
        finally:
            _write(path, before)

    def close(self) -> None:
        self._process.communicate()


def _write(path: Path, text: str) -> None:
    """Write a module, and take away what Python compiled of it: times are too coarse to tell."""
    path.write_text(text, encoding="utf-8")
    Path(cache_from_source(path)).unlink(missing_ok=True)


@contextlib.contextmanager
def copies(count: int) -> Iterator[list[Path]]:
    """Yield copies of the tree: one that stays as it is, and one for each job."""
    with tempfile.TemporaryDirectory(prefix="mutate-") as folder:
        made = [Path(folder) / str(number) for number in range(count)]
        for copy in made:
            copy.mkdir()
            for name in ("src", "tests", "scripts", "docs", "pyproject.toml"):
                source = ROOT / name
                if source.is_dir():
                    shutil.copytree(source, copy / name, ignore=shutil.ignore_patterns(*NOT_COPIED))
                else:
                    shutil.copy2(source, copy / name)
        yield made


# -- a module ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """A file of tests without any change."""

    files: frozenset[str]  # what it imports or reads: what it says of a change is true of just that
    seconds_max: float


class Campaign:
    """Tries what is not known yet of each target, on so many copies at once.

    A row `holds` for what each file of tests that said it imports: the one that noticed, or all
    those that did not. So a new test is asked of survivors alone, and nothing else is.
    """

    def __init__(
        self, sane: Path, jobs: Sequence[Job], results: Results, say: Callable[[str], None]
    ) -> None:
        self._sane = sane
        self._jobs = jobs
        self._results = results
        self._say = say
        self._baselines: dict[str, Baseline] = {}
        self._caught: Counter[str] = Counter()  # by test and by file

    def run(self, target: Target) -> list[dict[str, Any]]:
        """Return a row for each change of a module."""
        text = (self._sane / "src" / target.module).read_text(encoding="utf-8")
        every = list(changes(target.module, text))
        baselines = self._baselines_of(target)
        holds = {test: self._fingerprint(one.files) for test, one in baselines.items()}
        known: dict[str, dict[str, Any]] = {}
        passed: defaultdict[str, set[str]] = defaultdict(set)  # by key: who has not noticed it
        for row in self._results.rows:
            if not isinstance(row.get("holds"), dict):
                continue  # of an older version of this
            held = {test for test, code in row["holds"].items() if holds.get(test) == code}
            if row["noticed"] is None:
                passed[row["key"]] |= held
            elif held:
                known[row["key"]] = row
        for change in every:
            if passed[change.key] >= holds.keys():
                known[change.key] = {"key": change.key, "noticed": None}
        left = [change for change in every if change.key not in known]
        self._caught.update(_catchers(known.values()))
        self._say(f"{target.module}: {len(every)} changes, {len(every) - len(left)} known")
        for row in self._try(left, baselines, passed):
            self._results.add({**row, "holds": {test: holds[test] for test in row["by"]}})
            known[row["key"]] = row
            if row["noticed"] is None:
                self._say(f"  survived: {row['key']}")
        return [known[change.key] for change in every]

    def _fingerprint(self, files: frozenset[str]) -> str:
        return fingerprint(files, self._sane)

    def _baselines_of(self, target: Target) -> dict[str, Baseline]:
        """Return those of the target's tests that import the module: others can't notice."""
        for test in set(target.tests) - self._baselines.keys():
            self._baselines[test] = self._baseline(target.module, test)
        found = {test: self._baselines[test] for test in target.tests}
        found = {test: one for test, one in found.items() if f"src/{target.module}" in one.files}
        if not found:
            raise MutateError(f"{target.module}: none of its tests imports it")
        return found

    def _baseline(self, module: str, test: str) -> Baseline:
        """Run tests as they stand and from the last to the first: trials change their order."""
        first: list[str] = []
        for _ in range(2):
            found = self._jobs[0].attempt(module, test, first, SECONDS_BASELINE)
            if found["noticed"] is not None:
                raise MutateError(f"{test} fails without any change: {found['noticed']}")
            first = found["ran"][::-1]
        seconds_max = max(SECONDS_MIN, TOO_LONG * found["seconds"])
        return Baseline(files=frozenset(found["files"]), seconds_max=seconds_max)

    def _try(
        self,
        left: Sequence[Change],
        baselines: dict[str, Baseline],
        passed: Mapping[str, set[str]],
    ) -> Iterator[dict[str, Any]]:
        free: SimpleQueue[Job] = SimpleQueue()
        for job in self._jobs:
            free.put(job)

        def attempt(change: Change) -> dict[str, Any]:
            job = free.get()
            try:
                done = passed[change.key]
                asked = {test: one for test, one in baselines.items() if test not in done}
                row = self._attempt(job, change, asked)
            finally:
                free.put(job)
            self._caught.update(_catchers([row]))
            return row

        with ThreadPoolExecutor(len(self._jobs)) as pool:
            yield from pool.map(attempt, left)

    def _attempt(self, job: Job, change: Change, baselines: dict[str, Baseline]) -> dict[str, Any]:
        """Ask one file after the other, and in it one test: who noticed most goes first."""
        with job.changed(change):
            for test in sorted(baselines, key=lambda test: -self._caught[test]):
                caught = [
                    name for name, _ in self._caught.most_common() if name.startswith(f"{test}::")
                ]
                answer = job.attempt(change.module, test, caught, baselines[test].seconds_max)
                if answer["noticed"] is not None:
                    return {"key": change.key, "noticed": answer["noticed"], "by": [test]}
        return {"key": change.key, "noticed": None, "by": sorted(baselines)}


def _catchers(rows: Iterable[dict[str, Any]]) -> Iterator[str]:
    for row in rows:
        if row["noticed"] is not None:
            yield from row["by"]
            yield row["noticed"]


# -- all ---------------------------------------------------------------------------------------


def judge(
    rows: Sequence[dict[str, Any]], reasons: dict[str, str], say: Callable[[str], None]
) -> int:
    """Say which survivors have no reason, and which reasons no survivor; how many there are."""
    survivors = [row["key"] for row in rows if row["noticed"] is None]
    named = {key: {key, f"{key.partition(': ')[0]}: {ANY}"} for key in survivors}
    unexplained = [key for key, names in named.items() if not any(map(reasons.get, names))]
    tried = {key.partition(":")[0] for key in (row["key"] for row in rows)}
    used = set().union(*named.values())
    outdated = [key for key in reasons if key.partition(":")[0] in tried and key not in used]
    for key in unexplained:
        say(f"no reason for a survivor: {key}")
    for key in outdated:
        say(f"no survivor for a reason: {key}")
    return len(unexplained) + len(outdated)


def table(found: dict[str, list[dict[str, Any]]]) -> str:
    """Return the counts as Markdown."""
    lines = ["| module | changes | noticed | of these without an end | survive with a reason |"]
    lines.append("|--|--|--|--|--|")
    for module, rows in found.items():
        survivors = sum(row["noticed"] is None for row in rows)
        endless = sum(row["noticed"] == "it does not end" for row in rows)
        lines.append(
            f"| `{module}` | {len(rows)} | {len(rows) - survivors} | {endless} | {survivors} |"
        )
    return "\n".join(lines) + "\n"


def say(line: str) -> None:
    print(line, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", metavar="WORD", help="modules with it in their name")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="at once")
    parser.add_argument("--results", type=Path, default=ROOT / "runs" / "mutate.jsonl")
    parser.add_argument("--record", action="store_true", help=f"write {COUNTS.name}")
    options = parser.parse_args()
    targets = [target for target in TARGETS if options.only in target.module]
    if not targets or options.jobs < 1:
        parser.error("--only names no module, or --jobs is less than 1")
    options.results.parent.mkdir(parents=True, exist_ok=True)
    reasons = tomllib.loads(REASONS.read_text(encoding="utf-8"))
    found: dict[str, list[dict[str, Any]]] = {}
    try:
        # The code may change while this runs.
        with copies(1 + options.jobs) as (sane, *rest), contextlib.ExitStack() as stack:
            jobs = [stack.enter_context(contextlib.closing(Job(copy))) for copy in rest]
            # Which code a row is of, it says itself.
            results = stack.enter_context(Results(options.results, (), sane))
            campaign = Campaign(sane, jobs, results, say)
            for target in targets:
                found[target.module] = campaign.run(target)
    except (MutateError, ResultsError) as error:
        print(error, file=sys.stderr)
        return 2
    print(table(found))
    open_questions = judge([row for rows in found.values() for row in rows], reasons, say)
    if options.record and not open_questions:
        COUNTS.write_text("# What `make mutate` has shown\n\n" + table(found), encoding="utf-8")
    return 1 if open_questions else 0


if __name__ == "__main__":
    sys.exit(main())
