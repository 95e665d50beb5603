"""Looks for schedules that the judge calls lost or diverged in the simulator. Runs on a copy.

    python scripts/replay_search.py FIRST SEEDS
    python scripts/replay_search.py --clean < PLAN

With the path set to a copy of the code in which a bug was put. A seed's plan is reduced to what can
be replayed on real processes first; the oracle's own invariants are not asked, since they end a run
before any client could see a loss. What loses is made smaller, and tried again in other orders of
the same events: in how many of them it loses too says how much is luck. `--clean` runs a plan as
`make simulate` does, with all invariants.
"""

from __future__ import annotations

import json
import logging
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from holdfast.lab.steps.replay_plan import replayable
from holdfast.testing.simulation.drawing import FULL, draw_plan
from holdfast.testing.simulation.invariants import JUDGE
from holdfast.testing.simulation.oracle import Oracle
from holdfast.testing.simulation.plan import Event, Plan, plan_from_row
from holdfast.testing.simulation.run import run_plan, shrink

LOSSES = ("lost", "diverged")
CPU_S = 60.0  # of one run
ORDERS = 5
ODDS_MIN = 3
SHRINKS_MAX = 24
# What two cores and a minute can hold, and still shows something.
NODES_MAX = 6
LENGTH_MAX_S = 60.0
FAULTS_MIN = 3


class TooLongError(KeyboardInterrupt):
    """A run goes on and on; of this kind, because nothing in it catches that."""


def _too_long(_signal: int, _frame: object) -> None:
    raise TooLongError


def violation_of(plan: Plan) -> str:
    """Return which invariant a plan breaks, in words; none: an empty text."""
    signal.signal(signal.SIGPROF, _too_long)
    signal.setitimer(signal.ITIMER_PROF, CPU_S)
    try:
        found = run_plan(plan).violation
    except TooLongError:
        return f"it comes to its end in {CPU_S:g} CPU seconds"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
    return "" if found is None else str(found.invariant)


def loses(plan: Plan) -> bool:
    """Whether the judge calls something lost or diverged that nothing excuses."""
    invariant = violation_of(plan)
    return invariant.startswith(JUDGE) and any(word in invariant for word in LOSSES)


def ask_the_judge_alone() -> None:
    """Let the oracle watch, allow what may be lost, and end no run by itself."""
    whole = Oracle.fail

    def fail(oracle: Oracle, invariant: str, text: str) -> None:
        if invariant.startswith(JUDGE):
            whole(oracle, invariant, text)

    Oracle.fail = fail  # type: ignore[method-assign]


def plan_of(row: Any) -> Plan:
    return plan_from_row({key: value for key, value in row.items() if key != "version"})


def row_of(plan: Plan) -> dict[str, Any]:
    row = json.loads(plan.to_json())
    assert isinstance(row, dict)
    return row


def smallest(plan: Plan) -> Plan:
    """Drop events while it loses, and the calm that they leave."""
    tries = 0

    def still_loses(events: Sequence[Event]) -> bool:
        nonlocal tries
        tries += 1
        return tries <= SHRINKS_MAX and loses(replace(plan, events=tuple(events)))

    small = replace(plan, events=tuple(shrink(plan.events, still_loses)))
    shorter = plan_of(replayable(row_of(small)).plan)
    return shorter if loses(shorter) else small


def fits(row: Any) -> bool:
    """Whether a replayable plan is worth a run of real processes."""
    nodes = row["brokers"] + (0 if row["combined"] else row["controllers"])
    is_short = row["seconds"] <= LENGTH_MAX_S
    return bool(nodes <= NODES_MAX and is_short and len(row["events"]) >= FAULTS_MIN)


def search(first: int, seeds: int) -> None:
    """Write a line for each schedule that loses, until one does in most orders."""
    for seed in range(first, first + seeds):
        row = replayable(row_of(draw_plan(seed, FULL))).plan
        plan = plan_of(row)
        (topic,) = plan.topics
        promised = all(one.acks == -1 for one in plan.producers)
        unclean = topic.configs["unclean.leader.election.enable"] == "true"
        if not (fits(row) and promised and not unclean and topic.replication_factor > 1):
            continue
        if not loses(plan):
            continue
        small = smallest(plan)
        odds = sum(loses(replace(small, seed=seed + number)) for number in range(1, ORDERS + 1))
        found = {"seed": seed, "odds": odds, "orders": ORDERS, "plan": row_of(small)}
        print(json.dumps(found), flush=True)
        if odds >= ODDS_MIN:
            return


def main(arguments: Sequence[str]) -> int:
    logging.disable(logging.CRITICAL)
    if arguments[0] == "--clean":
        invariant = violation_of(plan_of(json.load(sys.stdin)))
        print(json.dumps(invariant))
        return 0
    ask_the_judge_alone()
    first, seeds = map(int, arguments)
    search(first, seeds)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
