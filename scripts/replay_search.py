"""Looks for schedules that the judge calls lost or diverged in the simulator. Runs on a copy.

    python scripts/replay_search.py FIRST SEEDS PATTERN
    python scripts/replay_search.py --clean < PLAN

With the path set to a copy of the code in which a bug was put. A seed's plan is reduced to what can
be replayed on real processes first, and to the events of a pattern in which such a bug can show: a
random schedule that meets it takes hundreds of runs. The oracle's own invariants are not asked,
since they end a run before any client could see a loss. What loses is made smaller, and tried again
in other orders of the same events: in how many of them it loses too says how much is luck.
`--clean` runs a plan as `make simulate` does, with all invariants.
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

LOSSES = ("lost", "diverged", "vanished")
CPU_S = 60.0  # of one run
ORDERS = 5
ODDS_MIN = 3
SHRINKS_MAX = 24
# What two cores and a minute can hold, and still shows something.
NODES_MAX = 6
LENGTH_MAX_S = 60.0
FAULTS_MIN = 3
AWAY = ("kill", "stop", "pause", "isolate")
BEYOND_S = 3.0  # longer than a session, for what comes of its end


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

    Oracle.fail = fail  # type: ignore[assignment, method-assign]


def plan_of(row: Any) -> Plan:
    return plan_from_row({key: value for key, value in row.items() if key != "version"})


def row_of(plan: Plan) -> dict[str, Any]:
    row = json.loads(plan.to_json())
    assert isinstance(row, dict)
    return row


def smallest(plan: Plan) -> Plan:
    """Drop events while it loses."""
    tries = 0

    def still_loses(events: Sequence[Event]) -> bool:
        nonlocal tries
        tries += 1
        return tries <= SHRINKS_MAX and loses(replace(plan, events=tuple(events)))

    return replace(plan, events=tuple(shrink(plan.events, still_loses)))


def fits(row: Any) -> bool:
    """Whether a replayable plan is worth a run of real processes."""
    nodes = row["brokers"] + (0 if row["combined"] else row["controllers"])
    is_short = row["seconds"] <= LENGTH_MAX_S
    return bool(nodes <= NODES_MAX and is_short and len(row["events"]) >= FAULTS_MIN)


def is_controller(target: str) -> bool:
    return target.startswith(("active", "controller"))


def cut_from_controllers(row: Any) -> list[Any]:
    """A broker is cut from a controller for longer than its session: it goes on, and leads no more.

    The simulator's producers stay with it while it answers.
    """
    return cuts_of(row, session_s(row) + BEYOND_S, LENGTH_MAX_S)


def cut_briefly(row: Any) -> list[Any]:
    """The same, and it hears of its successor while requests still wait for its followers."""
    return cuts_of(row, session_s(row), session_s(row) + BEYOND_S)


def cut_beyond_lag(row: Any) -> list[Any]:
    """The same, and it finds its followers late while its producers still wait."""
    lag_s = int(row["config"]["replica.lag.time.max.ms"]) / 1000
    return cut_from_controllers(row) if lag_s < session_s(row) else []


def cuts_of(row: Any, at_least_s: float, at_most_s: float) -> list[Any]:
    return [
        [event]
        for event in row["events"]
        if event["kind"] == "cut"
        and is_controller(event["target"]) != is_controller(event["other"])
        and at_least_s <= event["seconds"] < at_most_s
    ]


def back_too_early(row: Any) -> list[Any]:
    """A broker is away for longer than its session, and is back before another one that was not."""
    away = [
        event
        for event in row["events"]
        if event["kind"] in AWAY and not is_controller(event["target"])
    ]
    return [
        [first, second]
        for first in away
        for second in away
        if first["at"] + session_s(row) + BEYOND_S / 2 < second["at"] < end_of(first)
        and end_of(second) > end_of(first) + BEYOND_S
    ]


def session_s(row: Any) -> float:
    return int(row["config"]["broker.session.timeout.ms"]) / 1000


def end_of(event: Any) -> float:
    return float(event["at"] + event["seconds"])


PATTERNS = {
    "any": lambda row: [row["events"]],
    "brief": cut_briefly,
    "cut": cut_from_controllers,
    "lag": cut_beyond_lag,
    "early": back_too_early,
}


def search(first: int, seeds: int, pattern: str) -> None:
    """Write a line for each schedule that loses, until one does in most orders."""
    for seed in range(first, first + seeds):
        row = replayable(row_of(draw_plan(seed, FULL))).plan
        (topic,) = row["topics"]
        promised = row["producers"][0]["acks"] == -1
        unclean = topic["configs"]["unclean.leader.election.enable"] == "true"
        if not (fits(row) and promised and not unclean and topic["replication_factor"] > 1):
            continue
        for events in PATTERNS[pattern](row):
            plan = plan_of(replayable({**row, "events": events}).plan)
            is_lost = loses(plan)
            print(f"seed {seed}, {len(events)} events: {is_lost}", file=sys.stderr, flush=True)
            if not is_lost:
                continue
            small = smallest(plan) if len(events) > 1 else plan
            found = {"seed": seed, "odds": 0, "orders": 0, "plan": row_of(small)}
            print(json.dumps(found), flush=True)  # for who waits no longer
            orders = [replace(small, seed=seed + number) for number in range(1, ORDERS + 1)]
            odds = sum(map(loses, orders))
            print(json.dumps({**found, "odds": odds, "orders": ORDERS}), flush=True)
            if odds >= ODDS_MIN:
                return


def main(arguments: Sequence[str]) -> int:
    logging.disable(logging.CRITICAL)
    if arguments[0] == "--clean":
        invariant = violation_of(plan_of(json.load(sys.stdin)))
        print(json.dumps(invariant))
        return 0
    ask_the_judge_alone()
    first, seeds, pattern = arguments
    search(int(first), int(seeds), pattern)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
