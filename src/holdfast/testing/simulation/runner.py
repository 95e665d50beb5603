"""Many runs, or one again: the command `python -m holdfast.testing.simulation`.

Owns the command line, the results file and the processes. Exit status: 0 all clean, 1 an invariant
broken (or, in a large batch, something never exercised), 2 wrong usage.
"""

from __future__ import annotations

import argparse
import json
import logging
import multiprocessing
import os
import random
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, Final

from holdfast.lab.background import SIMULATOR, Results, ResultsError
from holdfast.testing.simulation import report
from holdfast.testing.simulation.drawing import FULL, GROUPS, LIGHT, WIDE, Scale, draw_plan
from holdfast.testing.simulation.oracle import Violation
from holdfast.testing.simulation.plan import Plan, plan_from_row
from holdfast.testing.simulation.run import Outcome, minimise, run_plan

MODULE: Final = "holdfast.testing.simulation"
SCALES: Final[Mapping[str, Scale]] = {
    "full": FULL,
    "groups": GROUPS,
    "light": LIGHT,
    "wide": WIDE,
}
_LARGE: Final = 300  # a batch in which everything must have happened
# Of one run; more is a run that does not end. Of the processor's time: nothing in a run waits for
# anything else, and on a machine with other work the wall's says nothing.
_CPU_S: Final = 120.0
_TRACE_LINES: Final = 400
_SILENCE_MAX_S: Final = 60  # of a batch; at first it speaks sooner
_SEED_MAX: Final = 1 << 40
_SEEDS: Final = 20
_NO_PLAN: Final = (ValueError, TypeError, KeyError, AttributeError)

_HELP: Final = """Break a whole simulated cluster in many ways, each drawn from a seed, and check
every promise all along. `make simulate SEEDS=n`, `SEED=s` and `ARGS="..."` pass their values here.
Exit status: 0 all clean; 1 an invariant broken, or in a large batch something never exercised;
2 wrong usage."""

Row = dict[str, Any]


class TooLongError(KeyboardInterrupt):
    """A run goes on and on; of this kind, because nothing in it catches that."""


def _run_seed(task: tuple[int, str]) -> Row:
    """Run a seed's plan; what is kept of it is one line of JSON."""
    seed, scale = task
    logging.disable(logging.CRITICAL)
    plan = draw_plan(seed, SCALES[scale])
    outcome = _bounded(plan)
    violation = outcome.violation
    row: Row = {
        "seed": plan.seed,
        "scale": scale,
        "clean": outcome.is_clean,
        "digest": outcome.digest,
        "virtual_s": round(outcome.virtual_s, 1),
        "cpu_s": round(outcome.cpu_s, 2),
        "events": len(plan.events),
        "counts": dict(sorted(outcome.counts.items())),
    }
    if violation is not None:
        row["invariant"] = violation.invariant
        row["report"] = report.failure(outcome, violation, command(plan.seed, scale))
    return row


def _bounded(plan: Plan, *, trace_lines: int = 0) -> Outcome:
    def too_long(_signal: int, _frame: object) -> None:
        raise TooLongError

    signal.signal(signal.SIGPROF, too_long)
    signal.setitimer(signal.ITIMER_PROF, _CPU_S)
    try:
        return run_plan(plan, trace_lines=trace_lines)
    except TooLongError:
        text = f"not after {_CPU_S:g} seconds of the processor"
        return Outcome(plan, Violation("a run comes to its end", text, 0.0))
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)


def command(seed: int, scale: str) -> str:
    """What replays one seed."""
    return f"make simulate SEED={seed}" + ("" if scale == "full" else f" ARGS='--scale {scale}'")


def _plan_command(path: Path) -> str:
    return f"make simulate ARGS='--plan {path}'"


def run_seeds(seeds: Sequence[int], scale: str, jobs: int) -> Iterator[Row]:
    """Rows as they come; with several jobs in no particular order."""
    tasks = [(seed, scale) for seed in seeds]
    if jobs == 1:
        yield from map(_run_seed, tasks)
        return
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=spawn, initializer=_end_with_parent) as pool:
        yield from pool.map(_run_seed, tasks)


def _end_with_parent() -> None:
    """A batch that is killed leaves nobody behind: its processes would wait for work for ever."""
    parent = multiprocessing.parent_process()
    assert parent is not None, "this is one of a batch's processes"

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


# -- a batch -----------------------------------------------------------------------------------


def batch(options: argparse.Namespace) -> int:
    """Run many seeds; print each that fails, then totals."""
    try:
        results = Results(options.results, SIMULATOR)
    except ResultsError as error:
        return _refuse(f"--results {error}")
    with results:
        return _batch(options, results)


def _batch(options: argparse.Namespace, results: Results) -> int:
    # A file begins with where its seeds begin, so that the same command goes on.
    begun = [row["first"] for row in results.rows if "first" in row]
    first = options.first if options.first is not None else begun[0] if begun else None
    if first is None:
        first = random.SystemRandom().randrange(_SEED_MAX)
    if not begun:
        results.add({"first": first, "scale": options.scale})
    rows = [row for row in results.rows if "seed" in row]
    known = {row["seed"] for row in rows if row["scale"] == options.scale}
    seeds = [seed for seed in range(first, first + options.seeds) if seed not in known]
    _say(options, f"seeds {first} to {first + options.seeds - 1}, {len(known)} done before")
    began = told = time.monotonic()
    silence_s = 1.0
    for number, row in enumerate(run_seeds(seeds, options.scale, options.jobs), start=1):
        results.add(row)
        rows.append(row)
        if options.json:
            print(json.dumps(row), flush=True)
        elif not row["clean"]:
            print("\n".join(row["report"]), flush=True)
        if not row["clean"] and options.until_broken:
            break
        if number == len(seeds) or time.monotonic() - told > silence_s:
            told = time.monotonic()
            broken = sum(not row["clean"] for row in rows)
            _say(
                options,
                f"{number}/{len(seeds)} seeds, {broken} broken, {told - began:.0f} s, "
                f"{(told - began) / number:.2f} s each",
            )
            silence_s = min(2 * silence_s, _SILENCE_MAX_S)
    return _conclude(options, rows)


def _conclude(options: argparse.Namespace, rows: Sequence[Row]) -> int:
    broken = [row for row in rows if not row["clean"]]
    counts: Counter[str] = Counter()
    for row in rows:
        counts.update(row["counts"])
    cpu_s = sum(row["cpu_s"] for row in rows)
    virtual_s = sum(row["virtual_s"] for row in rows)
    _say(options, "\n".join(report.totals(counts)))
    _say(
        options,
        f"{len(rows)} seeds, {len(broken)} broken; {virtual_s / 60:.0f} virtual minutes in "
        f"{cpu_s:.0f} CPU seconds, {virtual_s / 60 / max(cpu_s, 0.01):.2f} minutes a second",
    )
    for row in broken:
        _say(options, f"broken: seed {row['seed']}: {row['invariant']}")
    never = report.missing(counts)
    if never:
        _say(options, f"NEVER HAPPENED: {', '.join(never)}")
    large = len(rows) >= _LARGE and options.scale == "full"
    return 1 if broken or (never and large) else 0


def _say(options: argparse.Namespace, text: str) -> None:
    print(text, file=sys.stderr if options.json else sys.stdout, flush=True)


# -- one ---------------------------------------------------------------------------------------


def single(options: argparse.Namespace, plan: Plan) -> int:
    """Run one plan with a readable trace; last comes the hash of all that happened."""
    print("\n".join(plan.describe()))
    outcome = _bounded(plan, trace_lines=_TRACE_LINES)
    print("\n".join(outcome.trace))
    print("\n".join(report.totals(outcome.counts)))
    if outcome.violation is not None:
        again = (
            command(plan.seed, options.scale)
            if options.plan is None
            else _plan_command(options.plan)
        )
        print("\n".join(report.failure(outcome, outcome.violation, again)))
        if options.minimise:
            _minimise(options, plan, outcome.violation.invariant)
    print(
        f"seed {plan.seed}: {'clean' if outcome.is_clean else 'BROKEN'}, "
        f"{outcome.virtual_s:.0f} virtual seconds in {outcome.cpu_s:.2f} CPU seconds"
    )
    print(f"event hash {outcome.digest}")
    return 0 if outcome.is_clean else 1


def _minimise(options: argparse.Namespace, plan: Plan, invariant: str) -> None:
    smallest = minimise(plan, invariant, tell=lambda text: print(f"  {text}", flush=True))
    path = options.save or Path("runs") / f"simulation-{plan.seed}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(smallest.to_json() + "\n")
    print(f"smallest schedule that breaks '{invariant}':")
    print("\n".join(f"  {event}" for event in smallest.events) or "  no event at all")
    print(f"  again: {_plan_command(path)}")


def regressions(options: argparse.Namespace, entries: Sequence[tuple[Row, Plan]]) -> int:
    """Run every plan of a regression list."""
    status = 0
    for entry, plan in entries:
        outcome = _bounded(plan)
        verdict = "clean" if outcome.violation is None else f"BROKEN: {outcome.violation.invariant}"
        print(f"seed {outcome.plan.seed}: {verdict} ({entry['why']})", flush=True)
        if outcome.violation is not None:
            again = f"make simulate ARGS='--regressions {options.regressions}'"
            print("\n".join(report.failure(outcome, outcome.violation, again)))
            status = 1
    return status


def _entries(path: Path) -> list[tuple[Row, Plan]]:
    """The entries of a regression list. ValueError says what is wrong with the file."""
    try:
        found = [(entry, read_entry(entry)) for entry in json.loads(path.read_text())]
    except _NO_PLAN as error:
        raise ValueError(f"--regressions {path}: no list of plans ({error!r})") from error
    if not found or not all("why" in entry for entry, _ in found):
        raise ValueError(f"--regressions {path}: each entry says why, and there is one at least")
    return found


def _plan_in(path: Path) -> Plan:
    try:
        return read_entry({"plan": json.loads(path.read_text())})
    except _NO_PLAN as error:
        raise ValueError(f"--plan {path}: no plan of a run ({error!r})") from error


def read_entry(entry: Mapping[str, Any]) -> Plan:
    """The plan of one entry of a regression list: drawn from its seed, or written out."""
    if "plan" in entry:
        row = dict(entry["plan"])
        row.pop("version", None)
        return plan_from_row(row)
    return draw_plan(entry["seed"], SCALES[entry.get("scale", "full")])


_FLAGS: Final[Mapping[str, Row]] = {
    "--seeds": {"type": int, "help": f"how many fresh seeds (default: {_SEEDS})"},
    "--first": {"type": int, "help": "the first of them (default: drawn)"},
    "--seed": {"type": int, "help": "one seed again, with its trace and hash"},
    "--plan": {"type": Path, "help": "a plan in a file instead of a seed"},
    "--scale": {"choices": sorted(SCALES), "default": "full"},
    "--jobs": {"type": int, "default": 1, "help": "processes"},
    "--results": {"type": Path, "help": "append each result here, and go on from it"},
    "--json": {"action": "store_true", "help": "one JSON line a seed"},
    "--until-broken": {"action": "store_true", "help": "stop at the first failure"},
    "--minimise": {"action": "store_true", "help": "drop events while it still fails"},
    "--save": {"type": Path, "help": "where the smallest plan goes"},
    "--regressions": {"type": Path, "help": "run a regression list"},
}


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog=f"python -m {MODULE}", description=_HELP)
    for flag, meaning in _FLAGS.items():
        parser.add_argument(flag, **meaning)
    options = parser.parse_args(arguments)
    if options.seed is not None and (options.seeds, options.first) != (None, None):
        parser.error("--seed is one seed again; --seeds and --first are many")
    options.seeds = _SEEDS if options.seeds is None else options.seeds
    if options.seeds < 1 or options.jobs < 1:
        parser.error("--seeds and --jobs are at least 1")
    if options.minimise and options.seed is None and options.plan is None:
        parser.error("--minimise takes --seed or --plan: what failed")
    return options


def main(arguments: Sequence[str]) -> int:
    """Run what the arguments say."""
    logging.disable(logging.CRITICAL)
    options = _options(arguments)
    try:
        entries = _entries(options.regressions) if options.regressions is not None else None
        plan = _plan_in(options.plan) if options.plan is not None else None
    except (OSError, ValueError) as error:
        return _refuse(str(error))
    if plan is None and options.seed is not None:
        plan = draw_plan(options.seed, SCALES[options.scale])
    try:  # a run's own mistakes keep their traces
        if entries is not None:
            return regressions(options, entries)
        return single(options, plan) if plan is not None else batch(options)
    except KeyboardInterrupt:
        return _refuse("interrupted; with --results the same command goes on", status=130)


def _refuse(text: str, *, status: int = 2) -> int:
    print(f"error: {text}", file=sys.stderr)
    return status


def with_fixed_hashes(arguments: Iterable[str]) -> None:
    """Start this program anew unless hashes of strings are fixed: then a run can be replayed."""
    if os.environ.get("PYTHONHASHSEED") != "0":
        environment = {**os.environ, "PYTHONHASHSEED": "0"}
        os.execve(  # noqa: S606 - itself
            sys.executable, [sys.executable, "-m", MODULE, *arguments], environment
        )
