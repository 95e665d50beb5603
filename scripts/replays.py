"""`make replay`: what the simulator says of a schedule, the lab has to say of real processes.

Ten seeds as they are, which must be kept; and ten bugs, each with a schedule under which the
simulator calls something lost or diverged, where the lab must say so too. The nodes of a bug's
cluster run a copy of the code with the bug in it; the lab and its clients run the code as it is.
Whether a race is lost again is luck on real processes: each bug has so many attempts. The code as
it is must keep the schedule by which a bug was named; and in the simulator what it must keep here.
Of a run that was as it must be nothing stays; any other is named.

    python scripts/replays.py [--find] [--only WORD] [--clean N] [--attempts N] [--first SEED]

`--find` looks for the bugs' schedules first (`replay_search.py`). Both write a row as it comes, for
one code, and go on where they ended.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from holdfast.cli.proving.prove_replay import attempt, drawn
from holdfast.cluster import own_code
from holdfast.judge.verdict import Anomaly
from holdfast.lab import background
from holdfast.lab.aftermath import LOST_WHERE_IT_BROKE_OFF
from holdfast.lab.background import SIMULATOR, SOURCE, Results, Row
from holdfast.lab.journal import Exit
from holdfast.lab.outcome import Outcome
from holdfast.lab.parameters import Parameters
from holdfast.lab.prove import Begin
from holdfast.lab.run import Run
from holdfast.lab.scenarios.networks.replay import faults_told
from holdfast.lab.soak.campaign import NETWORK, in_namespaces, network_said, why_not
from holdfast.lab.soak.exercised import by_scenario
from holdfast.lab.steps.replay_plan import replayable, schedule_of
from mutants import mutate
from mutation import Mutation
from mutations import MUTATIONS
from replay_search import fits

ROOT = Path(__file__).resolve().parent.parent
SEARCH = ROOT / "scripts" / "replay_search.py"
RESULTS = ROOT / "docs" / "design" / "soak"
SCHEDULES = RESULTS / "replay-schedules.jsonl"
REPLAYS = RESULTS / "replays.jsonl"
SEARCHED = (*SIMULATOR, "holdfast/lab/steps/replay_plan.py")
BUG, CLEAN, NOT_MADE = "bug", "clean", "not made"
TRIES = 2  # of what could not be made
BUGS_MIN = 10  # of those below, some have no schedule yet
SEARCH_S = 420.0  # for one bug
# What is read and then gone is lost, whether or not the log could be read to its end.
LOSSES = frozenset({Anomaly.LOST, Anomaly.DIVERGED, Anomaly.VANISHED})

# Bugs whose loss takes no rare moment, and the pattern of events in which they show.
CUT, BRIEF, LAG, EARLY, ANY = "cut", "brief", "lag", "early", "any"
BUGS = {
    "acks=all is answered by the leader alone": CUT,
    "whoever is about to be removed counts no more": LAG,
    "a leader acts on the ISR that it has only proposed, in a split": LAG,
    "a leader that was voted out still acknowledges": BRIEF,
    "a fetch does not say its last epoch": CUT,
    "unclean elections, though they are disabled": EARLY,
    "consumers see what is not committed": CUT,
    "a duplicate is acknowledged before it is committed": CUT,
    "a new leader does not enter its epoch": CUT,
    "followers take the leader's end for their own epoch's": CUT,
    "a new leader cuts its log at its high watermark": CUT,
    "followers truncate to their high watermark": ANY,
    "an answer counts as an acknowledgement": BRIEF,
    "epochs stay when a log is cut": ANY,
    "the rest of a diverging answer is taken in": CUT,
    "a follower's high watermark is its log end": CUT,
    "who was eligible stays so for ever": EARLY,
    "a fenced replica may be in the ISR": EARLY,
    "an old ISR replaces a newer one": EARLY,
    "followers truncate one record too far": EARLY,
    "a follower joins wherever it is": EARLY,
}


@contextmanager
def changed(mutation: Mutation) -> Iterator[Path]:
    """Yield a copy of src with a bug in it."""
    with tempfile.TemporaryDirectory(prefix="replay-") as folder:
        copy = Path(folder) / "src"
        shutil.copytree(SOURCE, copy, ignore=shutil.ignore_patterns(*background.LEFT_OUT))
        mutate(mutation, copy)
        yield copy


def nodes_run(code: Path) -> Begin:
    """Return what begins a run whose nodes run that code; its lab and clients are as they are."""

    def begin(parameters: Parameters, directory: Path, say: Callable[[str], None]) -> Run:
        run = Run(parameters, directory, say)
        run.cluster.environment = {**run.cluster.environment, own_code.VARIABLE: str(code)}
        return run

    return begin


def search(code: Path, *arguments: str, given: str = "") -> list[Any]:
    """Run the search on a copy; return what it wrote, also when it was too slow."""
    environment = {**os.environ, "PYTHONPATH": str(code), "PYTHONHASHSEED": "0"}
    with tempfile.TemporaryFile("w+") as told:
        words = [sys.executable, str(SEARCH), *arguments]
        try:
            subprocess.run(
                words, input=given, stdout=told, text=True, timeout=SEARCH_S, env=environment,
                check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            say(f"the search took longer than {SEARCH_S:g} s")
        told.seek(0)
        return [json.loads(line) for line in told if line.endswith("\n")]


def find(mutation: Mutation, first: int, seeds: int) -> Row:
    """Return a bug's best schedule; one without a plan when there is none."""
    with changed(mutation) as code:
        found = search(code, str(first), str(seeds), BUGS[mutation.name])
    row: Row = {"name": mutation.name, "key": mutation.key, "first": first, "seeds": seeds}
    for best in sorted(found, key=lambda each: -each["odds"]):
        if is_clean(best["plan"]):
            row.update(best)
            break
    return row


def is_clean(plan: Mapping[str, Any]) -> bool:
    """Whether the code as it is keeps this schedule in the simulator, by all invariants."""
    return search(SOURCE, "--clean", given=json.dumps(plan)) == [""]


def rows_of(path: Path, paths: Sequence[str]) -> list[Row]:
    """Return the rows for this code that are there by now, also while somebody adds some."""
    code = background.fingerprint(paths)
    text = path.read_text() if path.exists() else ""
    whole = text[: text.rfind("\n") + 1]  # a last line may be cut off, or not be whole yet
    return [row for row in map(json.loads, whole.splitlines()) if row["code"] == code]


def find_all(mutations: Sequence[Mutation], first: int, seeds: int) -> None:
    known = {row["key"] for row in rows_of(SCHEDULES, SEARCHED)}
    for mutation in mutations:
        if mutation.key in known:
            continue
        begin_s = time.monotonic()
        row = find(mutation, first, seeds)
        if "plan" in row:
            with Results(SCHEDULES, SEARCHED) as results:
                results.add(row)
        say(f"{mutation.name}: {found_in(row)}, {time.monotonic() - begin_s:.0f} s")


def found_in(row: Row) -> str:
    """What was found for a bug, in words."""
    if "plan" not in row:
        return "NO SCHEDULE"
    return (
        f"seed {row['seed']}, lost in {row['odds']} of {row['orders']} other orders,"
        f" {len(row['plan']['events'])} events"
    )


def replay(
    plan: Mapping[str, Any],
    drawn_plan: Mapping[str, Any] | None = None,
    begin: Begin = Run,
) -> tuple[Outcome, Path, str | None]:
    """Replay a plan once; its outcome, where it lies, and how links were broken."""
    folder = Path(tempfile.mkdtemp(prefix="holdfast-replay-")) / "run"
    parameters = schedule_of(plan).parameters
    lines: list[str] = []
    outcome = attempt(
        plan, parameters, folder, drawn=drawn_plan, control=False, command="make replay",
        say=lines.append, begin=begin,
    )  # fmt: skip
    (folder / "said.txt").write_text("\n".join(lines) + "\n")
    return outcome, folder, network_said(folder)


def tell(name: str, outcome: Outcome, folder: Path, *, is_as_it_must: bool) -> None:
    """Say what came of a run. One that was as it must be is removed: nobody looks at it again."""
    if is_as_it_must:
        shutil.rmtree(folder.parent)
    say(f"{name}: {outcome.verdict}{'' if is_as_it_must else f' ({folder})'}")


def losses_of(outcome: Outcome) -> list[str]:
    """What the lab has named of what was promised not to be.

    Events that are in no replica's files are lost, too, where a run broke off before all was read:
    a client that is told of a sequence that it can't explain goes on no more.
    """
    found = [each.value for result in outcome.results for each in result.broken]
    failed = {check.name for each in outcome.results for check in each.checks if not check.kept}
    return [*found, Anomaly.LOST.value] if LOST_WHERE_IT_BROKE_OFF in failed else found


def plan_hash(plan: Mapping[str, Any]) -> str:
    """Name a plan by all that is in it."""
    return hashlib.sha256(json.dumps(plan, sort_keys=True).encode()).hexdigest()[:16]


def told_of(outcome: Outcome, network: str | None) -> Row:
    """What a row says of a run: how much of its schedule was done, and what came of it."""
    tables = [table for result in outcome.results for table in result.tables]
    done, passed_over = faults_told(tables) or (None, None)
    return {
        "done": done, "passed_over": passed_over, "seen": losses_of(outcome),
        "verdict": outcome.verdict, NETWORK: network,
    }  # fmt: skip


def replay_made(
    name: str, plan: Mapping[str, Any], drawn_plan: Mapping[str, Any] | None = None
) -> tuple[Outcome, str | None]:
    """Replay a plan on unmodified nodes, once more if that could not be made; and how."""
    for _ in range(TRIES):
        outcome, folder, network = replay(plan, drawn_plan)
        tell(name, outcome, folder, is_as_it_must=outcome.exit is Exit.KEPT)
        if outcome.exit is not Exit.NOT_MADE:
            break
    return outcome, network


def replay_bug(mutation: Mutation, found: Row, attempts: int) -> Row:
    """Replay a bug's schedule until it is lost or diverged in the judge's words.

    Then on unmodified nodes: a lab that calls the same broken there has not named this bug.
    """
    misses = not_made = 0
    is_seen = False
    plan = found["plan"]
    with changed(mutation) as code:
        while not is_seen and misses < attempts and not_made < attempts:
            outcome, folder, network = replay(plan, begin=nodes_run(code))
            is_seen = bool(LOSSES & set(losses_of(outcome)))
            tell(f"  {mutation.name}", outcome, folder, is_as_it_must=is_seen)
            if outcome.exit is Exit.NOT_MADE:
                not_made += 1
            elif not is_seen:
                misses += 1
    unmodified: Row | None = None
    is_made = is_seen or misses == attempts
    if is_seen:
        other, how = replay_made(f"  {mutation.name}, on unmodified nodes", plan)
        unmodified = {"kept": other.exit is Exit.KEPT, **told_of(other, how)}
        is_made = other.exit is not Exit.NOT_MADE
    return {
        "kind": BUG if is_made else NOT_MADE, "name": mutation.name, "key": mutation.key,
        "seed": found["seed"], "plan_hash": plan_hash(plan), "odds": found["odds"],
        "orders": found["orders"], "faults": len(plan["events"]),
        "kept": unmodified is not None and unmodified["kept"], "attempts": misses + is_seen,
        "misses": misses, "not_made": not_made, **told_of(outcome, network),
        "unmodified": unmodified,
    }  # fmt: skip


def came_of(row: Row) -> str:
    """What a bug's row says, in words."""
    if row["kind"] == NOT_MADE:
        return "it could not be made"
    seen = ", ".join(row["seen"]) or "NOT SEEN"
    if row["unmodified"] is not None and not row["kept"]:
        seen += "; NOT NAMED: unmodified nodes are broken by this schedule, too"
    return f"{row['attempts']} attempts, {row['misses']} misses: {seen}"


@cache
def kept_of(seed: int) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Return the plan of a seed, and what of it is replayed."""
    whole = drawn(seed)
    return whole, replayable(whole).plan


def replay_clean(seed: int) -> Row | None:
    """Replay a seed as it is; None: there is too little in it.

    One that the simulator does not keep is not taken, and nor is one that could not be made.
    """
    whole, kept = kept_of(seed)
    if not fits(kept):
        return None
    row: Row = {
        "kind": NOT_MADE, "seed": seed, "plan_hash": plan_hash(kept), "faults": len(kept["events"]),
        "kept": False,
    }  # fmt: skip
    if not is_clean(kept):
        say(f"seed {seed}: NOT CLEAN in the simulator, or it gives no answer; it is not replayed")
        return row
    outcome, network = replay_made(f"seed {seed}, {row['faults']} faults", kept, whole)
    return {
        **row, "kind": NOT_MADE if outcome.exit is Exit.NOT_MADE else CLEAN,
        "kept": outcome.exit is Exit.KEPT, "simulated": "clean",
        "simulator": background.fingerprint(SEARCHED), **told_of(outcome, network),
    }  # fmt: skip


def counts(row: Row) -> bool:
    """Whether a row counts by how its links were broken: proxies show less than namespaces.

    Nor does it say anything of a lab that a bug was not seen by them.
    """
    is_missed = row["kind"] == BUG and row.get("unmodified") is None
    return in_namespaces({**row, "kept": True} if is_missed else row)


def that_hold(rows: Sequence[Row], schedules: Mapping[str, Row]) -> list[Row]:
    """Return the rows whose plan is the one that would be replayed now.

    No file that a replay runs draws it: the same seed may have meant another plan.
    """

    def holds(row: Row) -> bool:
        if "plan_hash" not in row or not counts(row):
            return False
        if row["kind"] == CLEAN:
            return bool(row["plan_hash"] == plan_hash(kept_of(row["seed"])[1]))
        found = schedules.get(row["key"])
        return found is not None and row["plan_hash"] == plan_hash(found["plan"])

    return [row for row in rows if holds(row)]


def replay_all(options: argparse.Namespace, mutations: Sequence[Mutation]) -> int:
    schedules = {row["key"]: row for row in rows_of(SCHEDULES, SEARCHED) if "plan" in row}
    with Results(REPLAYS, by_scenario("replay")) as results:
        rows = that_hold(results.rows, schedules)

        def keep(row: Row) -> bool:
            """Keep a result; what could not be made is none of this code's. True: it counts."""
            if row["kind"] == NOT_MADE:
                return False
            results.add(row)
            if counts(row):
                rows.append(row)
            return counts(row)

        for mutation in mutations:
            known = {row["key"] for row in rows if row["kind"] == BUG}
            if mutation.key in schedules and mutation.key not in known:
                row = replay_bug(mutation, schedules[mutation.key], options.attempts)
                is_lesser = not keep(row) and row["kind"] == BUG
                say(f"{mutation.name}: {came_of(row)}{f'; {why_not(row)}' if is_lesser else ''}")
        seed, not_made = options.first, 0
        while may_go_on(rows, options.clean, not_made):
            known_seeds = {row["seed"] for row in rows if row["kind"] == CLEAN}
            found = None if seed in known_seeds else replay_clean(seed)
            if found is not None and not keep(found):
                if found["kind"] != NOT_MADE:
                    say(f"seed {seed}: {why_not(found)}")
                    break
                not_made += 1
            seed += 1
        say(f"{not_made} seeds could not be made, or are not clean in the simulator")
        return conclude(rows, min(BUGS_MIN, len(mutations)), options.clean)


def may_go_on(rows: Sequence[Row], clean: int, not_made: int) -> bool:
    """Whether seeds are still wanted, and no more than are wanted could not be made."""
    return sum(row["kind"] == CLEAN for row in rows) < clean and not_made <= clean


def conclude(rows: Sequence[Row], bugs: int, clean: int) -> int:
    """Say what all rows come to; the exit status: also whether there are as many as are wanted."""
    is_whole = True
    for kind, wanted, words in (
        (CLEAN, clean, "seeds were kept"),
        (BUG, bugs, "bugs were named by the lab"),
    ):
        its = [row for row in rows if row["kind"] == kind]
        say(f"{sum(row['kept'] for row in its)} of {len(its)} {words}; wanted: {wanted}")
        is_whole &= len(its) >= wanted and all(row["kept"] for row in its)
    tries = [row for row in rows if row["kind"] == BUG]
    say(f"{sum(r['attempts'] for r in tries)} attempts, {sum(r['misses'] for r in tries)} misses")
    if len(tries) < bugs:
        say("Too few bugs have a schedule for this code: --find looks for them.")
    return 0 if is_whole else 1


def say(text: str) -> None:
    print(text, flush=True)


def on_a_copy() -> None:
    """Start anew on a copy of the code, so that edits can go on beside it."""
    copy = background.copied(ROOT / background.COPIES)
    if copy == SOURCE:
        return
    environment = {**os.environ, "PYTHONPATH": str(copy), "PYTHONHASHSEED": "0"}
    stamp = {background.COMMIT: background.commit() or ""}
    os.execve(sys.executable, [sys.executable, *sys.argv], environment | stamp)  # noqa: S606 - itself


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--find", action="store_true", help="look for schedules of the bugs")
    parser.add_argument("--only", default="", metavar="WORD", help="bugs with it in their names")
    parser.add_argument("--seeds", type=int, default=4_000, help="for each bug, at most")
    parser.add_argument("--first", type=int, default=1_000, help="the first seed")
    parser.add_argument("--clean", type=int, default=10, help="seeds as they are")
    parser.add_argument("--attempts", type=int, default=5, help="for each bug, at most")
    options = parser.parse_args()
    on_a_copy()
    by_name = {mutation.name: mutation for mutation in MUTATIONS}
    mutations = [by_name[name] for name in BUGS if options.only in name]
    try:
        if options.find:
            find_all(mutations, options.first, options.seeds)
            return 0
        return replay_all(options, mutations)
    except background.ResultsError as error:
        print(error, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
