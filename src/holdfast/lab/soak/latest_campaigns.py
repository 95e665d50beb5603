"""A query that begins at `latest`, killed during its batch 0 again and again.

Owns one campaign of `make soak`. Batch 0 is planned empty and pins where the query begins. So all
that was written since a driver was first seen in it belongs to the table, and nothing of before,
however often it is killed there.
"""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path
from typing import Any

from holdfast.lab.background import SINK_KILLS
from holdfast.lab.soak.campaign import Campaign
from holdfast.lab.soak.sink_campaigns import try_sink
from holdfast.lab.soak.sink_kinds import Sink, from_sql
from holdfast.lab.soak.sink_trial import Trial

RUNS, KILLS = 10, 5
_SINKS = "holdfast.pipelines.sinks"
PROCESS = f"{_SINKS}.table_sink:TableSink._process"
COMMIT = f"{_SINKS}.sql_store:SqlStore.commit"
PLACES = (
    PROCESS,
    f"{_SINKS}.sql_store:SqlStore.open",
    f"{_SINKS}.sql_store:SqlStore.memory",
    COMMIT,
)
SINK = Sink(name="latest", target="sqlite:///{folder}/table.db", places=PLACES, read=from_sql)


def kill_in_batch_0(directory: Path) -> dict[str, Any]:
    """Kill a driver in batch 0, write, start another one, and so on; then let one go on."""

    def kills(trial: Trial) -> list[Any]:
        trial.chunk(jumps=False)  # of before
        return [partial(_kill, trial, *each) for each in draw(random.SystemRandom(), KILLS)]

    latest = ("--starting-offsets", "latest")
    return try_sink(directory, SINK, "rows", kills, *latest)


def draw(chance: random.Random, kills: int) -> list[tuple[str, str]]:
    """Return places, and when there, at which drivers come by in batch 0.

    Once the table has batch 0, however often Spark begins it again, no commit comes before batch 1.
    """
    drawn: list[tuple[str, str]] = []
    places: tuple[str, ...] = PLACES
    for _ in range(kills):
        place, when = chance.choice(places), chance.choice(("before", "after"))
        drawn.append((place, when))
        if when == "after" and place in {PROCESS, COMMIT}:
            places = tuple(each for each in PLACES if each != COMMIT)
    return drawn


def _kill(trial: Trial, place: str, when: str) -> dict[str, Any]:
    """Kill a driver that waits in batch 0: Spark can't have committed that."""
    done = trial.kill_in_first_batch(place, when)
    trial.chunk(jumps=False)
    return done


CAMPAIGNS = (
    Campaign(
        name="latest-batch-0",
        text=f"a query at latest is killed {KILLS} times during its batch 0, and events are "
        "written after each; the table has all of these, once, and none of before.",
        runs=RUNS,
        run=kill_in_batch_0,
        exercises=SINK_KILLS,
    ),
)
