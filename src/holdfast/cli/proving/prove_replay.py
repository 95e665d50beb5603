"""`holdfast prove replay`: a schedule of the simulator's, drawn or from a file, on real processes.

Owns the drawing, in a process of its own since a command imports no node, and the attempts: whether
a race is lost again is a matter of luck on real processes.
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from holdfast.cluster import own_code
from holdfast.cluster.ending import Interrupt
from holdfast.cluster.layout import EMBEDDED
from holdfast.judge.verdict import Anomaly
from holdfast.lab.journal import Exit
from holdfast.lab.keeping import VERDICT
from holdfast.lab.outcome import Outcome
from holdfast.lab.parameters import LabError, Parameters, refuse_if
from holdfast.lab.prove import Begin, prove
from holdfast.lab.run import Run
from holdfast.lab.scenario import SEED_MAX, load_scenario
from holdfast.lab.scenarios.networks.replay import DRAWN, SCHEDULE
from holdfast.lab.scenarios.networks.replay_changes import changes, rate_of
from holdfast.lab.scenarios.networks.timetable import REGISTERING
from holdfast.lab.steps.replay_plan import PlanRow, replayable, schedule_of

PLAN_BYTES_MAX = 4 << 20
ATTEMPTS_MAX = 100
_DRAW_S = 60.0
_DRAW = """
import sys
from holdfast.testing.simulation.drawing import draw_plan
print(draw_plan(int(sys.argv[1])).to_json())
"""
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """What came of all attempts; `outcome` is that of the last one that could be made, if any."""

    outcome: Outcome
    attempts: int
    misses: int  # attempts in which nothing was broken

    @property
    def exit(self) -> Exit:
        return self.outcome.exit

    def as_json(self) -> dict[str, Any]:
        return {**self.outcome.as_json(), "attempts": self.attempts, "misses": self.misses}


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A plan as it was drawn, what is left of it, and what to type for the same again."""

    drawn: PlanRow
    kept: PlanRow
    again: str


def drawn(seed: int) -> dict[str, Any]:
    """Return the plan that the simulator draws from a seed. LabError: it can't be asked."""
    words = [sys.executable, "-P", "-c", _DRAW, str(seed)]
    try:
        told = subprocess.run(  # noqa: S603 - our own module, no shell
            words,
            capture_output=True,
            text=True,
            timeout=_DRAW_S,
            check=False,
            env={**os.environ, **own_code.environment()},
        )
    except subprocess.TimeoutExpired as error:
        raise LabError(f"the simulator draws no plan within {_DRAW_S:g} s") from error
    refuse_if(told.returncode, f"the simulator draws no plan: {told.stderr[-500:]}")
    plan = json.loads(told.stdout)
    assert isinstance(plan, dict)
    return plan


def plan_for(seed: int | None, file: Path | None) -> Found:
    """Return what is to be replayed. LabError."""
    if file is not None:
        refuse_if(seed is not None, "--seed draws a plan and --plan is one: give one of them.")
        try:
            with file.open("rb") as data:
                text = data.read(PLAN_BYTES_MAX + 1)
            refuse_if(
                len(text) > PLAN_BYTES_MAX,
                f"--plan {file}: it is larger than {PLAN_BYTES_MAX >> 20} MiB.",
            )
            found = json.loads(text)
        except (OSError, ValueError, RecursionError) as error:
            raise LabError(f"--plan {file}: it can't be read: {error}") from error
        refuse_if(not isinstance(found, dict), f"--plan {file}: it is no plan of the simulator.")
        return Found(drawn=found, kept=replayable(found).plan, again=f"--plan {file}")
    seed = secrets.randbelow(SEED_MAX) if seed is None else seed
    refuse_if(seed < 0, f"--seed {seed}: it is 0 or more.")
    plan = drawn(seed)
    return Found(drawn=plan, kept=replayable(plan).plan, again=f"--seed {seed}")


def replay(
    found: Found,
    directory: Path,
    *,
    engine: str = EMBEDDED,
    attempts: int = 1,
    control: bool = True,
    command: str,
    say: Say,
) -> Replayed:
    """Replay a plan until something is broken, so many times at most. LabError: it can't be."""
    refuse_if(
        not 1 <= attempts <= ATTEMPTS_MAX,
        f"--attempts {attempts}: it lies between 1 and {ATTEMPTS_MAX}.",
    )
    again = found.again
    schedule = schedule_of(found.kept)
    for line in schedule.describe():
        say(line)
    for change in changes(found.drawn, found.kept):
        say(f"not as drawn: {change}")
    refuse_if(not schedule.faults, f"{again}: nothing of it can be done to processes; try another.")
    parameters = replace(schedule.parameters, engine=engine)
    if control and Anomaly.LOST not in parameters.promise.forbids:
        control = False
        say("These settings promise to lose nothing in no case, so there is no control.")
    counts: Counter[Exit] = Counter()
    made: Outcome | None = None
    for number in range(1, attempts + 1):
        folder = directory if attempts == 1 else directory / f"attempt-{number}"
        if attempts > 1:
            say(f"attempt {number} of {attempts}")
        outcome = attempt(
            found.kept, parameters, folder, drawn=found.drawn, control=control, command=command,
            say=say,
        )  # fmt: skip
        Interrupt.refuse()
        counts[outcome.exit] += 1
        if made is None or outcome.exit is not Exit.NOT_MADE:
            made = outcome
        if outcome.exit is Exit.BROKEN:
            break
    misses = counts[Exit.KEPT]
    say(f"{again}: {counts.total()} attempts, {misses} in which nothing was broken, "
        f"{counts[Exit.NOT_MADE]} that could not be made")  # fmt: skip
    assert made is not None, "there was an attempt"
    replayed = Replayed(outcome=made, attempts=counts.total(), misses=misses)
    if attempts > 1:
        with suppress(OSError):  # then the folder stays until its user removes it
            (directory / VERDICT).write_text(json.dumps(replayed.as_json()) + "\n")
    return replayed


def attempt(
    kept: PlanRow,
    parameters: Parameters,
    folder: Path,
    *,
    drawn: PlanRow | None = None,
    control: bool,
    command: str,
    say: Say,
    begin: Begin = Run,
) -> Outcome:
    """Replay a plan once, into a folder with its schedule. LabError: that can't be written.

    `drawn`: the plan that it is what is left of, to be told what is not; else it is told nothing.
    `begin`: as of `prove`.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / SCHEDULE).write_text(json.dumps(kept) + "\n", encoding="utf-8")
        if drawn is not None:
            (folder / DRAWN).write_text(json.dumps(drawn) + "\n", encoding="utf-8")
    except OSError as error:
        raise LabError(f"the schedule can't be written: {error}") from error
    scenario = load_scenario("replay")
    config = {**REGISTERING, **parameters.config}
    parameters = replace(parameters, rate=rate_of(kept), config=config)
    return prove(
        scenario, parameters, folder, command=command, control=control, say=say, begin=begin
    )
