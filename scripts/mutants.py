"""`make mutants`: bugs are put in on purpose, and each of them has to be found.

Each mutation gets a copy of the tree. One that names tests is found when one of them fails there
and all pass without it. For any other the simulator runs fresh seeds until one breaks an invariant,
or the bound is reached; a seed counts only if the code as it is stays clean on it. What was found
goes to a file as it comes; a second call goes on where the first one ended.

    python scripts/mutants.py [--only WORD] [--by tests|simulator] [--seeds 60] [--scale full]
                              [--results FILE] [--check]
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from holdfast.lab.background import SIMULATOR, Results, ResultsError
from mutation import Mutation
from mutations import MUTATIONS

ROOT = Path(__file__).resolve().parent.parent
SEED_SECONDS_MAX = 300.0  # a run that takes longer than that on the real clock hangs
TESTS_SECONDS_MAX = 600.0  # so do tests of one mutation; several restarts of Spark fit
HANGS = "it comes to an end"
CRASHED = "the process survives"
_LEFT_OUT = (".*", "runs", "build", "dist", "*.egg-info", "__pycache__")
_TESTS_FAILED = 1  # as pytest says it; anything above is no verdict
_RUN = """
import json, logging, sys
logging.disable(logging.CRITICAL)
from holdfast.testing.simulation.drawing import draw_plan
from holdfast.testing.simulation.run import run_plan
from holdfast.testing.simulation.runner import SCALES
found = run_plan(draw_plan(int(sys.argv[1]), SCALES[sys.argv[2]])).violation
row = None if found is None else [found.invariant, found.text[:2000], found.at_s]
print(json.dumps(row))
"""


class MutationError(Exception):
    """A mutation does not fit the code any more."""


def mutate(mutation: Mutation, source: Path, *, write: bool = True) -> None:
    """Change a copy of src. MutationError: a text is not there exactly once."""
    for edit in mutation.edits:
        path = source / "holdfast" / edit.file
        text = path.read_text(encoding="utf-8")
        count = text.count(edit.old)
        if count != 1:
            raise MutationError(
                f"{mutation.name!r} no longer applies: {edit.file} has its text {count} times:\n"
                f"{edit.old}"
            )
        changed = text.replace(edit.old, edit.new)
        compile(changed, str(path), "exec")
        if write:
            path.write_text(changed, encoding="utf-8")


@contextmanager
def copied(root: Path, mutation: Mutation | None = None) -> Iterator[Path]:
    """Yield a copy of a tree, with the mutation in it."""
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        copy = Path(folder) / "tree"
        shutil.copytree(root, copy, ignore=shutil.ignore_patterns(*_LEFT_OUT))
        if mutation is not None:
            mutate(mutation, copy / "src")
        yield copy


def simulate(root: Path, seed: int, scale: str) -> tuple[str, str] | None:
    """Run one seed on a copy; the invariant that broke and how, or None."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(root / "src"),
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "",  # what a copy has compiled once serves all its seeds
    }
    try:
        done = subprocess.run(
            [sys.executable, "-c", _RUN, str(seed), scale],
            capture_output=True,
            text=True,
            timeout=SEED_SECONDS_MAX,
            env=environment,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return HANGS, f"more than {SEED_SECONDS_MAX:.0f} s"
    if done.returncode != 0:
        return CRASHED, done.stderr[-2000:]
    row = json.loads(done.stdout.splitlines()[-1])
    return None if row is None else (row[0], row[1])


def run_tests(root: Path, tests: Sequence[str]) -> tuple[str, str] | None:
    """Run tests on a copy; the first one that failed and how, or None.

    MutationError: they could not be run, so nothing is known.
    """
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests]
    environment = {**os.environ, "PYTHONPATH": str(root / "src")}
    with subprocess.Popen(
        command,
        cwd=root,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
        start_new_session=True,  # its group is ended as a whole
    ) as running:
        try:
            output, _ = running.communicate(timeout=TESTS_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            os.killpg(running.pid, signal.SIGKILL)
            return HANGS, f"more than {TESTS_SECONDS_MAX:.0f} s"
    if running.returncode == 0:
        return None
    if running.returncode != _TESTS_FAILED:
        raise MutationError(f"pytest ended with {running.returncode}:\n{output[-2000:]}")
    return first_failed(output), output[-2000:]


def first_failed(output: str) -> str:
    """Return the name of the first test that failed. Programs write "ERROR", too, but earlier."""
    _, found, summary = output.rpartition(" short test summary info ")
    for line in summary.splitlines() if found else ():
        if line.startswith(("FAILED ", "ERROR ")):
            return line.split(" - ")[0]
    return "a test"


class Hunt:
    """Looks for what finds a mutation. Owns what is known of the code as it is."""

    def __init__(self, sane: Path, options: argparse.Namespace) -> None:
        self.sane = sane
        self.scale: str = options.scale
        self.seeds: int = options.seeds
        self.first: int | None = options.first
        self._failing: dict[tuple[str, ...], bool] = {}  # which tests fail without any mutation

    def run(self, mutation: Mutation) -> dict[str, Any]:
        """Return the row for the results."""
        began = time.monotonic()
        row: dict[str, Any] = {
            "key": mutation.key, "name": mutation.name, "scale": self.scale,
            "caught": False, "not_ours": 0
        }  # fmt: skip
        with copied(self.sane, mutation) as root:
            hunt = self._by_tests if mutation.tests else self._by_seeds
            row |= hunt(mutation, root)
        return row | {"seconds": round(time.monotonic() - began, 1)}

    def _by_seeds(self, mutation: Mutation, root: Path) -> dict[str, Any]:
        scale = mutation.scale or self.scale
        first = secrets.randbelow(10**9) if self.first is None else self.first
        not_ours = 0
        for seed in range(first, first + self.seeds):
            found = simulate(root, seed, scale)
            if found is None:
                continue
            without = simulate(self.sane, seed, scale)
            if without is not None and without[0] == CRASHED:
                raise MutationError(f"the code does not run without a mutation: {without[1]}")
            if without is not None:
                not_ours += 1  # broken without the mutation too: it shows nothing
                continue
            return {
                "caught": True, "first": first, "seeds": seed - first + 1, "seed": seed,
                "invariant": found[0], "text": found[1], "not_ours": not_ours
            }  # fmt: skip
        return {"first": first, "seeds": self.seeds, "not_ours": not_ours}

    def _by_tests(self, mutation: Mutation, root: Path) -> dict[str, Any]:
        found = run_tests(root, mutation.tests)
        if found is None:
            return {}
        if mutation.tests not in self._failing:
            self._failing[mutation.tests] = run_tests(self.sane, mutation.tests) is not None
        if self._failing[mutation.tests]:
            return {"not_ours": 1}
        return {"caught": True, "invariant": found[0], "text": found[1]}


def chosen(word: str, by: str) -> list[Mutation]:
    """Return the mutations with a word in their names, that are found in one of the ways."""
    return [
        one
        for one in MUTATIONS
        if word.lower() in f"{one.name} {one.known_as}".lower()
        and by in {"any", "tests" if one.tests else "simulator"}
    ]


def exercised(mutation: Mutation) -> list[str]:
    """Return the folders whose code a result is true of: an edit in them makes it nothing."""
    if not mutation.tests:
        return [f"src/{folder}" for folder in SIMULATOR]
    paths = {ROOT / test.split("::")[0] for test in mutation.tests}
    folders = {path if path.is_dir() else path.parent for path in paths}
    return ["src", *sorted(str(folder.relative_to(ROOT)) for folder in folders)]


def check(mutations: Sequence[Mutation]) -> None:
    """MutationError unless each of them applies to the code as it is, and has its tests."""
    for mutation in mutations:
        mutate(mutation, ROOT / "src", write=False)
        for test in mutation.tests:
            file, *names = test.split("::")
            name = names[-1].split("[")[0] if names else ""
            path = ROOT / file
            if not path.exists() or (name and f"def {name}(" not in path.read_text("utf-8")):
                raise MutationError(f"{mutation.name!r} names a test that is not there: {test}")


def describe(row: dict[str, Any]) -> str:
    """One line for a person."""
    where = row["invariant"] if row["caught"] else "NOT CAUGHT"
    if "seeds" not in row:
        extra = " (its tests fail without it, too)" if row["not_ours"] else ""
        return f"{row['name']:<56} {'tests':>9}  {where}{extra}"
    seeds = "1 seed" if row["seeds"] == 1 else f"{row['seeds']} seeds"
    extra = f" ({row['not_ours']} broke without it)" if row["not_ours"] else ""
    where = f"seed {row['seed']}: {where}" if row["caught"] else where
    return f"{row['name']:<56} {seeds:>9}{extra}  {where}"


def is_settled(row: dict[str, Any] | None, seeds: int) -> bool:
    """Whether a row of an earlier call says enough."""
    return row is not None and (row["caught"] or row.get("seeds", seeds) >= seeds)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--only", default="", metavar="WORD", help="mutations with it in their name"
    )
    parser.add_argument(
        "--by", choices=("any", "tests", "simulator"), default="any", help="what has to find them"
    )
    parser.add_argument("--seeds", type=int, default=60, help="at most so many for each")
    parser.add_argument(
        "--scale", choices=("light", "full"), default="light", help="how long a seed's run is"
    )
    parser.add_argument("--first", type=int, help="first seed; by default a fresh one")
    parser.add_argument("--results", type=Path, default=ROOT / "runs" / "mutants.jsonl")
    parser.add_argument("--check", action="store_true", help="only see whether all of them apply")
    options = parser.parse_args()
    if options.seeds < 1:
        parser.error("--seeds is at least 1")
    if not chosen(options.only, options.by):
        parser.error(f"--only {options.only}: no mutation has that in its name")
    return options


def main() -> int:
    options = parse()
    mutations = chosen(options.only, options.by)
    try:
        check(mutations)
        if options.check:
            print(f"{len(mutations)} mutations apply")
            return 0
        return hunt_all(mutations, options)
    except (MutationError, ResultsError) as error:
        print(error, file=sys.stderr)
        return 2


def hunt_all(mutations: Sequence[Mutation], options: argparse.Namespace) -> int:
    """Hunt what no earlier call has settled; the status to end with."""
    options.results.parent.mkdir(parents=True, exist_ok=True)
    rows = []
    with copied(ROOT) as sane:  # the code may change while this runs
        hunt = Hunt(sane, options)
        for mutation in mutations:
            with Results(options.results, exercised(mutation), sane) as results:
                known = {row["key"]: row for row in results.rows if row["scale"] == options.scale}
                row = known.get(mutation.key)
                if row is None or not is_settled(row, options.seeds):
                    row = hunt.run(mutation)
                    results.add(row)
            rows.append(row)
            print(describe(row), flush=True)
    caught = [row for row in rows if row["caught"]]
    seeds = [row["seeds"] for row in caught if "seeds" in row]
    print(f"{len(caught)} of {len(rows)} mutations caught", end="")
    print(f", in {median(seeds):g} seeds in the median" if seeds else "")
    return 0 if len(caught) == len(rows) else 1


if __name__ == "__main__":
    sys.exit(main())
