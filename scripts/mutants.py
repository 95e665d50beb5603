"""`make mutants`: bugs are put in on purpose, and the simulator has to find each of them.

Each mutation gets a copy of src, and the simulator runs fresh seeds on it until one breaks an
invariant, or the bound is reached. A seed counts only if the code as it is stays clean on it. What
was found goes to a file as it comes; a second call goes on where the first one ended.

    python scripts/mutants.py [--only WORD] [--seeds 60] [--scale full] [--results FILE] [--check]
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from mutations import MUTATIONS, Mutation

ROOT = Path(__file__).resolve().parent.parent
SEED_SECONDS_MAX = 300.0  # a run that takes longer than that on the real clock hangs
HANGS = "it comes to an end"
_RUN = """
import json, logging, sys
logging.disable(logging.CRITICAL)
from holdfast.testing.simulation import drawing
from holdfast.testing.simulation.run import run_plan
scale = drawing.FULL if sys.argv[2] == "full" else drawing.LIGHT
found = run_plan(drawing.draw_plan(int(sys.argv[1]), scale)).violation
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
def copied(source: Path, mutation: Mutation | None = None) -> Iterator[Path]:
    """Yield a copy of a source folder, with the mutation in it."""
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        copy = Path(folder) / "src"
        shutil.copytree(source, copy)
        if mutation is not None:
            mutate(mutation, copy)
        yield copy


def simulate(source: Path, seed: int, scale: str) -> tuple[str, str] | None:
    """Run one seed on a copy; the invariant that broke and how, or None."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(source),
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
        return "the process survives", done.stderr[-2000:]
    row = json.loads(done.stdout.splitlines()[-1])
    return None if row is None else (row[0], row[1])


def hunt(mutation: Mutation, sane: Path, first: int, seeds: int, scale: str) -> dict[str, Any]:
    """Run seeds until one catches the mutation; the row for the results."""
    began = time.monotonic()
    row: dict[str, Any] = {
        "key": mutation.key, "name": mutation.name, "first": first, "scale": scale,
        "code": fingerprint(sane), "caught": False, "not_ours": 0
    }  # fmt: skip
    with copied(sane, mutation) as source:
        for number in range(1, seeds + 1):
            seed = first + number - 1
            row["seeds"] = number
            found = simulate(source, seed, scale)
            if found is None:
                continue
            if simulate(sane, seed, scale) is not None:
                row["not_ours"] += 1  # broken without the mutation too: it shows nothing
                continue
            row |= {"caught": True, "seed": seed, "invariant": found[0], "text": found[1]}
            break
    row["seconds"] = round(time.monotonic() - began, 1)
    return row


def chosen(word: str, *, rare: bool) -> list[Mutation]:
    """Return the mutations with a word in their names."""
    return [
        one
        for one in MUTATIONS
        if word.lower() in f"{one.name} {one.known_as}".lower() and (rare or not one.rare)
    ]


def read_results(path: Path, scale: str) -> dict[str, dict[str, Any]]:
    """Return what earlier calls have found on this code, by the mutations' keys."""
    if not path.exists():
        return {}
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line]
    code = fingerprint(ROOT / "src")
    ours = [row for row in rows if (row.get("code"), row["scale"]) == (code, scale)]
    return {row["key"]: row for row in ours}


def fingerprint(source: Path) -> str:
    """A name for the code as it is: what was found on other code says nothing of it."""
    files = sorted(source.rglob("*.py"))
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:16]


def check(mutations: Sequence[Mutation]) -> None:
    """MutationError unless each of them applies to the code as it is."""
    for mutation in mutations:
        mutate(mutation, ROOT / "src", write=False)


def describe(row: dict[str, Any]) -> str:
    """One line for a person."""
    where = f"seed {row['seed']}: {row['invariant']}" if row["caught"] else "NOT CAUGHT"
    seeds = "1 seed" if row["seeds"] == 1 else f"{row['seeds']} seeds"
    extra = f" ({row['not_ours']} broke without it)" if row["not_ours"] else ""
    return f"{row['name']:<56} {seeds:>9}{extra}  {where}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--only", default="", metavar="WORD", help="mutations with it in their name"
    )
    parser.add_argument("--seeds", type=int, default=60, help="at most so many for each")
    parser.add_argument(
        "--scale", choices=("light", "full"), default="light", help="how long a seed's run is"
    )
    parser.add_argument("--first", type=int, help="first seed; by default a fresh one")
    parser.add_argument("--results", type=Path, default=ROOT / "runs" / "mutants.jsonl")
    parser.add_argument("--rare", action="store_true", help="those as well that random faults miss")
    parser.add_argument("--check", action="store_true", help="only see whether all of them apply")
    options = parser.parse_args()
    if options.seeds < 1:
        parser.error("--seeds is at least 1")
    mutations = chosen(options.only, rare=options.rare or options.check)
    if not mutations:
        parser.error(f"--only {options.only}: no mutation has that in its name")
    try:
        check(mutations)
    except MutationError as error:
        print(error, file=sys.stderr)
        return 2
    if options.check:
        print(f"{len(mutations)} mutations apply")
        return 0
    options.results.parent.mkdir(parents=True, exist_ok=True)
    known = read_results(options.results, options.scale)
    rows = []
    with copied(ROOT / "src") as sane:  # the code may change while this runs
        for mutation in mutations:
            row = known.get(mutation.key)
            if row is None or not (row["caught"] or row["seeds"] >= options.seeds):
                first = secrets.randbelow(10**9) if options.first is None else options.first
                row = hunt(mutation, sane, first, options.seeds, options.scale)
                with options.results.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(row) + "\n")
            rows.append(row)
            print(describe(row), flush=True)
    caught = [row["seeds"] for row in rows if row["caught"]]
    print(f"{len(caught)} of {len(rows)} mutations caught", end="")
    print(f", in {median(caught):g} seeds in the median" if caught else "")
    return 0 if len(caught) == len(rows) else 1


if __name__ == "__main__":
    sys.exit(main())
