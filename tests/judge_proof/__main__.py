"""The proof of the judge from the command line.

`python -m tests.judge_proof --seed 7` shows where judge and model differ in one history, and the
shortest one of that seed in which they still do; then where judge and naive checker differ in the
senseless history of that seed. `python -m tests.judge_proof --seeds 10000 --results FILE` is the
background lane: its rows hold for one judge and one generator, and it goes on where the file ends.
Ends with 1 when they differ anywhere.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path

from tests.judge_proof.proof import STEPS, differences, made
from tests.judge_proof.soup import Soup, disagree, shortest, verdicts

from holdfast.lab.background import Results, ResultsError

ROOT = Path(__file__).parents[2]
EXERCISED = ("src/holdfast/judge", "tests/judge_proof")
CHUNK = 250  # seeds a row


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="tests.judge_proof", description=__doc__)
    parser.add_argument("--seed", type=int, help="show this one again")
    parser.add_argument("--events", action="store_true", help="with its history")
    parser.add_argument("--seeds", type=int, default=300)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--results", type=Path, help="append here, and go on from here")
    found = parser.parse_args(arguments)
    try:
        if found.seed is not None:
            return show(found.seed, found.events)
        return run(found.first, found.seeds, found.results)
    except ResultsError as error:
        sys.stderr.write(f"{error}\n")
        return 2


def run(first: int, seeds: int, path: Path | None) -> int:
    """Judge so many histories, in rows of `CHUNK` seeds."""
    with Results(path, EXERCISED, ROOT) as results:
        known = {row["first"] for row in results.rows}
        for begin in range(first, first + seeds, CHUNK):
            if begin not in known:
                results.add(judged(begin, min(CHUNK, first + seeds - begin)))
        rows = [row for row in results.rows if first <= row["first"] < first + seeds]
    wrong = [seed for row in rows for seed in row["wrong"]]
    apart = [seed for row in rows for seed in row["apart"]]
    total = sum(row["seeds"] for row in rows)
    findings = sum((Counter(row["findings"]) for row in rows), Counter[str]())
    say(f"{total} histories, {len(wrong)} judged otherwise than the model knows")
    say(f"{total} senseless ones, {len(apart)} judged otherwise by the naive checker")
    say("foretold: " + ", ".join(f"{n} {a}" for a, n in sorted(findings.items())))
    for seed in sorted({*wrong, *apart})[:20]:
        say(f"again: {command(seed)}")
    return 1 if wrong or apart else 0


def judged(first: int, seeds: int) -> dict[str, object]:
    """Return the row of these seeds."""
    wrong, apart = [], []
    findings: Counter[str] = Counter()
    planted: Counter[str] = Counter()
    events = 0
    for seed in range(first, first + seeds):
        case = made(seed)
        events += len(case.events)
        planted.update(case.planted)
        for (anomaly, _, _), count in case.truth.findings.items():
            findings[anomaly.value] += count
        if differences(case):
            wrong.append(seed)
        if disagree(Soup(seed).made()):
            apart.append(seed)
    return {
        "first": first,
        "seeds": seeds,
        "wrong": wrong,
        "apart": apart,
        "events": events,
        "planted": dict(sorted(planted.items())),
        "findings": dict(sorted(findings.items())),
    }


def show(seed: int, events: bool) -> int:
    """Print what differs, in the whole history and in the shortest that still differs."""
    case = made(seed)
    lines = differences(case)
    say(f"seed {seed}: {len(case.events)} events, planted: {', '.join(case.planted) or 'nothing'}")
    say("\n".join(lines) or "judge and model agree")
    if lines:
        for steps in range(STEPS):
            fewer = made(seed, steps)
            if found := differences(fewer):
                say(f"{steps} steps are enough, {len(fewer.events)} events:")
                say("\n".join(found))
                case = fewer
                break
    if events:
        say("\n".join(str(event) for event in case.events))
    senseless = Soup(seed).made()
    if disagree(senseless):
        short = shortest(senseless)
        left, right = verdicts(short)
        say(f"Soup({seed}): the judge {left}, the naive one {right}")
        say("\n".join(str(event) for event in short))
        return 1
    return 1 if lines else 0


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")


def command(seed: int) -> str:
    """Return what shows a seed again."""
    return f"python -m tests.judge_proof --seed {seed}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
