"""Each sink of `write` under SIGKILL: its table against what plain Python makes of the log.

Owns two campaigns of `make soak` for each sink, one of rows and one of windows, and the control. A
run is a cluster of three brokers, one topic, one table, and five kills: of the driver, of what
works for it, of a broker, and of the database where there is one. Once in it a driver is replaced
by another one, and goes on only then.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from functools import partial
from pathlib import Path
from typing import Any

from holdfast.cluster import ClusterError, LocalCluster
from holdfast.lab.background import SINK_KILLS
from holdfast.lab.guard import Guard
from holdfast.lab.postgresql import ServerError
from holdfast.lab.soak import sink_truth
from holdfast.lab.soak.campaign import Campaign
from holdfast.lab.soak.exercised import by_sink
from holdfast.lab.soak.sink_endings import BrokenError
from holdfast.lab.soak.sink_kinds import CONTROL, SINKS, Sink
from holdfast.lab.soak.sink_trial import REPLACED, Trial
from holdfast.lab.soak.stateful_campaigns import ProofError

RUNS = 5  # of five kills, with rows and with windows: 50 a sink
# A busy machine's brokers may be late with their heartbeats.
CONFIG = {"broker.session.timeout.ms": "8000"}
EXECUTORS = "local-cluster[1,2,512]"  # a process beside the driver's, which can be killed
EXECUTORS_OF = 3  # one run of so many


def _plan(sink: Sink) -> list[tuple[str, bool]]:
    """Say who is killed in a run, and whether at a place of the sink's commit: two or three.

    The driver is the last one: then its successor can be the one that reads the rest. What works
    for a driver dies where tasks are, before any commit: it is none of those that are aimed.
    """
    chance = random.SystemRandom()
    kinds = ["driver", "broker", "driver" if sink.server is None else "database"]
    aimed = chance.sample([True, True, False], 3)
    first = [("executor", False), *zip(kinds, aimed, strict=True)]
    return [*chance.sample(first, 4), ("driver", chance.random() < 0.5)]


Kills = Callable[[Trial], list[Callable[[], dict[str, Any]]]]


def try_sink(
    directory: Path, sink: Sink, query: str, kills: Kills, *options: str
) -> dict[str, Any]:
    """Make one run; "kept" says whether the table is exactly what the log makes of it."""
    seed = random.SystemRandom().randrange(1 << 30)
    done: list[dict[str, Any]] = []
    result: dict[str, Any] = {"kept": None, "seed": seed, "kills": done}
    trial = None
    try:
        with ExitStack() as stack:
            guard = stack.enter_context(closing(Guard()))  # for a run that is killed itself
            cluster = LocalCluster.create(directory / "cluster", brokers=3, port=0, config=CONFIG)
            cluster.environment = guard.environment
            stack.callback(_take_down, cluster)
            cluster.start()
            server = None
            if sink.server is not None:
                folder = directory / "server"
                server = stack.enter_context(sink.server(folder, guard.environment))
            trial = Trial(
                directory,
                cluster,
                sink,
                server,
                query,
                seed=seed,
                options=options,
                environment=guard.environment,
            )
            stack.callback(trial.end)
            for kill in kills(trial):
                one = kill()
                done.append(one)  # what was done stays known if the next one fails
            trial.finish()
            found, expected = trial.found(), trial.expected()
            shown = sink_truth.shown(trial.seen, expected)
    except (ProofError, ClusterError, ServerError) as error:
        return result | _told(trial, done) | {"verdict": str(error)}
    except BrokenError as error:
        return result | _told(trial, done) | {"kept": False, "verdict": str(error)}
    said = [
        f"{word} {rows.total()}: {sorted(map(str, rows))[:3]}"
        for word, rows in (
            ("misses", expected - found),
            ("has too much", found - expected),
            ("has shown too much", shown),
        )
        if rows
    ]
    text = "; ".join(said) or "Exactly the rows that plain Python computes from the log."
    counts = {"rows": found.total(), "expected": expected.total(), "distinct": len(found)}
    return result | _told(trial, done) | {"kept": not said, **counts, "verdict": text}


def _told(trial: Trial | None, done: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what a row says of the way, kills counted by their kinds."""
    told: dict[str, Any] = {
        "by_kind": dict(Counter(one["kind"] for one in done if one["kind"] != REPLACED)),
        "replaced": sum(one["kind"] == REPLACED for one in done),
        "aimed": sum("at" in one and one["kind"] != "executor" for one in done),
    }
    if trial is not None:
        told |= {
            "unfinished": trial.endings.unfinished,
            "failures": trial.endings.failures,
            "refusals": trial.endings.refusals,
        }
    return told


def _take_down(cluster: LocalCluster) -> None:
    with suppress(ClusterError):
        cluster.down()


def kill_around(directory: Path, *, sink: Sink, query: str) -> dict[str, Any]:
    """Kill one after the other, replace a driver between them; check the table at the end."""

    def kills(trial: Trial) -> list[Callable[[], dict[str, Any]]]:
        planned: list[Callable[[], dict[str, Any]]] = [
            partial(trial.kill, kind, aimed=aimed) for kind, aimed in _plan(sink)
        ]
        planned.insert(random.SystemRandom().randrange(len(planned)), trial.replace)
        return planned

    options: list[str] = []
    if random.SystemRandom().randrange(EXECUTORS_OF) == 0:
        options = ["--master", EXECUTORS, "--heap-mb", "512"]
    return {**try_sink(directory, sink, query, kills, *options), "master": options[1:2]}


def append_control(directory: Path) -> dict[str, Any]:
    """Kill a plain append between its commit and Spark's: rows of both queries come twice."""
    results = {}
    for query in ("rows", "windows"):

        def kills(trial: Trial) -> list[Callable[[], dict[str, Any]]]:
            # Of windows the second batch after a jump has those that the first one has closed.
            place = (CONTROL.places[0], "after", 2)
            trial.chunk(jumps=False)
            trial.catch_up()
            return [partial(trial.kill, "driver", aimed=True, at=place)]

        directory.mkdir(exist_ok=True)
        results[query] = try_sink(directory / query, CONTROL, query, kills)
    told = {query: result["verdict"] for query, result in results.items()}
    if any(result["kept"] is None for result in results.values()):
        return {"kept": None, "verdict": str(told)}
    doubled = [text.startswith("has too much") for text in told.values()]
    return {"kept": all(doubled), "verdict": str(told), "kills": len(doubled)}


_EXACTLY = "the table has exactly the rows that plain Python computes from the log."
_TEXTS = {
    "rows": f"events go into {{}} as they are, under five kills; {_EXACTLY}",
    "windows": f"counts and sums of windows go into {{}}, under five kills; {_EXACTLY}",
}
CAMPAIGNS = (
    *(
        Campaign(
            name=f"sink-{sink.name}-{query}",
            text=text.format(sink.name),
            runs=RUNS,
            run=partial(kill_around, sink=sink, query=query),
            exercises=by_sink(sink.scheme),
        )
        for sink in SINKS
        for query, text in _TEXTS.items()
    ),
    Campaign(
        name="sink-append-control",
        text="the control: Spark's own append dies between its commit and Spark's, with rows and "
        "with windows; rows of both must be there twice.",
        runs=2,
        run=append_control,
        exercises=SINK_KILLS,
    ),
)
