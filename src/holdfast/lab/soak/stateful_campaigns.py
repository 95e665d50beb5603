"""Queries with state under SIGKILL: their tables against what plain Python makes of the log.

Owns campaigns of `make soak`. A run is one cluster, one topic whose events are there from the
beginning, drivers that die at random moments or at a named place, and one that reads the rest.
Every life of a driver goes on where the one before was killed, in the same checkpoint and tables.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any

import sqlalchemy as sql
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from holdfast.cluster import ClusterError, LocalCluster
from holdfast.cluster.processes import wait_until
from holdfast.lab import postgresql
from holdfast.lab.background import DRIVER
from holdfast.lab.soak.campaign import Campaign
from holdfast.lab.soak.stateful_truth import COLUMNS, TRUTH, Event, Row, closing, events

PARTITIONS = 3
ROWS_A_BATCH = 80  # windows close in most batches, and a run doesn't come to the end
LEFT_EVENTS = 1_200
START_TIMEOUT_S = 180.0
KILL_AFTER_S_MAX = 8.0
UNFINISHED_MAX = 12  # of one run, where each life may leave one of each query
AGO_MS = 1_800_000  # so that no event but the closing ones is from the future
PLACES = ("advance", "write", "commit", "spark-commit")


class ProofError(Exception):
    """A run could not be made; it says nothing of what was to be shown."""


class Life:
    """One driver process, from its start to its death."""

    def __init__(self, folder: Path, arguments: Sequence[str]) -> None:
        folder.mkdir(parents=True)
        self._said, self._log = folder / "said", folder / "log"
        with self._said.open("wb") as said, self._log.open("wb") as log:
            self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
                [sys.executable, "-m", "holdfast.pipelines.stateful", *arguments],
                stdout=said,
                stderr=log,
                start_new_session=True,
            )

    def said(self, event: str) -> list[dict[str, Any]]:
        lines = self._said.read_text().splitlines(keepends=True)
        told = [json.loads(line) for line in lines if line.endswith("\n")]
        return [one for one in told if one["event"] == event]

    def ended(self) -> bool:
        return self._process.poll() is not None

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def wait(self) -> int:
        try:
            return self._process.wait(START_TIMEOUT_S)
        except subprocess.TimeoutExpired as error:
            raise ProofError(f"The driver went on for too long: {self.tail()}") from error

    def tail(self) -> str:
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-20:])


class Proof:
    """One topic of events and the tables of queries over it."""

    def __init__(
        self, directory: Path, bootstrap: str, database: str, queries: Sequence[str], seed: int
    ) -> None:
        self.directory = directory
        self.bootstrap = bootstrap
        self.database = database
        self.queries = list(queries)
        self.topic = f"stateful-{os.getpid()}-{time.time_ns()}"
        self._lives: list[Life] = []
        self.unfinished = 0  # checkpoints that were killed while Spark made them
        begin_ms = time.time_ns() // 1_000_000 - AGO_MS
        self.events = events(seed, LEFT_EVENTS, PARTITIONS, begin_ms)
        admin = AdminClient({"bootstrap.servers": bootstrap})
        one_copy = {"min.insync.replicas": "1"}  # brokers are not what is killed here
        topic = NewTopic(self.topic, PARTITIONS, 1, config=one_copy)
        admin.create_topics([topic])[self.topic].result(30)
        self._write(self.events)

    def _write(self, written: Sequence[Event]) -> None:
        refused: list[str] = []

        def answered(error: Any, _message: object) -> None:
            if error is not None:
                refused.append(str(error))

        producer = Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 5}, logger=None)
        for event in written:
            value = json.dumps({"kind": event.kind, "id": event.id, "amount": event.amount})
            producer.produce(
                self.topic,
                value,
                event.key,
                event.partition,
                on_delivery=answered,
                timestamp=event.at_ms,
            )
        if producer.flush(60) or refused:
            raise ProofError(f"The events could not be written: {refused[:1]}")

    def life(self, *options: str, queries: Sequence[str] = ()) -> Life:
        """Start a driver: of all queries, or of those that are named."""
        named = [word for query in queries or self.queries for word in ("--query", query)]
        life = Life(
            self.directory / f"life-{len(self._lives)}",
            [
                *("--bootstrap-server", self.bootstrap, "--topic", self.topic),
                *("--database", self.database, "--checkpoint", str(self._checkpoints)),
                *named,
                *("--max-offsets-per-trigger", str(ROWS_A_BATCH)),
                *options,  # the last word counts
            ],
        )
        self._lives.append(life)
        return life

    def _refused_unfinished(self, life: Life) -> bool:
        """Do what a driver says about checkpoints that were killed while Spark made them."""
        named = [one["query"] for one in life.said("failed") if one.get("unfinished")]
        for query in named:
            shutil.rmtree(self._checkpoints / query)
        self.unfinished += len(named)
        if self.unfinished > UNFINISHED_MAX:
            raise ProofError(f"{self.unfinished} checkpoints were refused: {life.tail()}")
        return bool(named)

    def kill_at_random(self) -> dict[str, Any]:
        """Start a driver and kill it at a moment that nothing but chance chooses.

        It is counted from when the first query starts, or from when each has committed a batch:
        only starting a query takes as long as many batches.
        """
        chance = random.SystemRandom()
        after_s, at_work = chance.uniform(0, KILL_AFTER_S_MAX), chance.random() < 0.5
        while True:
            life = self.life()
            begun = partial(self._has_begun, life, at_work=at_work)
            wait_until(begun, timeout_s=START_TIMEOUT_S, what="Spark to start")
            threading.Event().wait(after_s)
            if not life.ended():
                break
            if not self._refused_unfinished(life):
                raise ProofError(f"The driver ended by itself: {life.tail()}")
        life.kill()
        return {
            "at_work": at_work,
            "after_s": round(after_s, 3),
            "batches": len(life.said("committed")),
        }

    def _has_begun(self, life: Life, *, at_work: bool) -> bool:
        """Whether a life has started, every query of it with `at_work`, or has ended."""
        committed = {one["query"] for one in life.said("committed")}
        ready = committed == set(self.queries) if at_work else life.said("started")
        return life.ended() or bool(ready)

    def kill_at(
        self, place: str, times: int, *options: str, queries: Sequence[str] = ()
    ) -> dict[str, Any]:
        """Start a driver that dies when its first query is at a place for the n-th time."""
        life = self.life(*options, "--die-at", f"{place}:{times}", queries=queries)
        status = life.wait()
        if status != -signal.SIGKILL or not life.said("dies"):
            raise ProofError(f"No death at {place}, but status {status}: {life.tail()}")
        return {"place": place, "times": times, "batches": len(life.said("committed"))}

    def finish(self, *options: str) -> None:
        """Read the rest, and what closes everything, with a driver that nobody disturbs.

        One batch takes all of it: the watermark moves after the batch, so nothing is late.
        """
        self._write(closing(max(event.at_ms for event in self.events), PARTITIONS))
        whole = ("--once", "--max-offsets-per-trigger", str(10 * len(self.events)))
        while status := (life := self.life(*options, *whole)).wait():
            if not self._refused_unfinished(life):
                raise ProofError(f"The driver ended with {status}: {life.tail()}")

    def differences(self) -> list[str]:
        """Hold each table against plain Python; say what is missing and what is too much."""
        said = []
        for query in self.queries:
            truth, found = TRUTH[query](self.events), self.rows(query)
            for word, rows in (("misses", truth - found), ("has too much", found - truth)):
                if rows:
                    said.append(f"{query} {word} {rows.total()}: {sorted(map(str, rows))[:3]}")
        return said

    def rows(self, query: str) -> Counter[Row]:
        engine = sql.create_engine(self.database.format(query=query))
        with engine.connect() as connection:
            rows = connection.exec_driver_sql(f"SELECT {COLUMNS[query]} FROM {query}").all()  # noqa: S608
        engine.dispose()
        return Counter(tuple(row) for row in rows)

    @property
    def _checkpoints(self) -> Path:
        return self.directory / "checkpoints"

    def end(self) -> None:
        for life in self._lives:
            life.kill()


Kills = Callable[[Proof], Sequence[Callable[[], dict[str, Any]]]]


def _prove(
    directory: Path,
    kills: Kills,
    queries: Sequence[str],
    *,
    database: str | None = None,
    options: Sequence[str] = (),
) -> dict[str, Any]:
    """Make one run. Without a database each query has a file of its own."""
    seed = random.SystemRandom().randrange(1 << 30)
    done: list[dict[str, Any]] = []
    result: dict[str, Any] = {"kept": None, "seed": seed, "kills": done}
    try:
        with ExitStack() as stack:
            cluster = LocalCluster.create(directory / "cluster", brokers=1, port=0)
            stack.callback(_take_down, cluster)
            cluster.start()
            url = database or f"sqlite:///{directory}/{{query}}.db"
            proof = Proof(directory, cluster.bootstrap_servers, url, queries, seed)
            stack.callback(proof.end)
            for kill in kills(proof):
                kept = kill()
                done.append(kept)  # what was done stays known if the next one fails
            proof.finish(*options)
            said = proof.differences()
            counted = {query: proof.rows(query).total() for query in queries}
            result["unfinished"] = proof.unfinished
    except (ProofError, ClusterError) as error:
        return result | {"verdict": str(error)}
    text = "; ".join(said) or "Exactly the rows that plain Python computes from the log."
    return result | {"kept": not said, "rows": counted, "verdict": text}


def _take_down(cluster: LocalCluster) -> None:
    with suppress(ClusterError):
        cluster.down()


def kill_at_random(directory: Path) -> dict[str, Any]:
    return _prove(directory, lambda proof: [proof.kill_at_random] * 5, list(TRUTH))


def append_control(directory: Path) -> dict[str, Any]:
    """Kill a sink that only appends between its commit and Spark's, once for each query."""
    options = ("--sink", "append")

    def kills(proof: Proof) -> list[Callable[[], dict[str, Any]]]:
        return [partial(proof.kill_at, "between", 1, *options, queries=[one]) for one in TRUTH]

    result = _prove(directory, kills, list(TRUTH), options=options)
    if result["kept"] is None:
        return result
    doubled = [one for one in TRUTH if f"{one} has too much" in result["verdict"]]
    lost = "misses" in result["verdict"]
    return result | {"kept": len(doubled) == len(TRUTH) and not lost}


def _aimed(proof: Proof) -> list[Callable[[], dict[str, Any]]]:
    chance = random.SystemRandom()
    places = [*PLACES, *PLACES]
    chance.shuffle(places)
    return [partial(proof.kill_at, place, chance.randint(1, 3)) for place in places]


def kill_at_places_sqlite(directory: Path) -> dict[str, Any]:
    return _prove(directory, _aimed, ["windows"])


def kill_at_places_postgresql(directory: Path) -> dict[str, Any]:
    found = postgresql.programs()
    if found is None:
        return {"kept": None, "verdict": "PostgreSQL's server is not on this machine."}
    with postgresql.server(found) as url:
        return _prove(directory, _aimed, ["windows"], database=url)


def _campaign(name: str, text: str, runs: int, run: Callable[[Path], dict[str, Any]]) -> Campaign:
    return Campaign(name=name, text=text, runs=runs, run=run, exercises=DRIVER)


_EXACTLY = "the tables have exactly the rows that plain Python computes from the log."
CAMPAIGNS = (
    _campaign(
        "stateful-random-kills",
        "a driver with windows, sessions and a stream-stream join is killed with SIGKILL at 5 "
        f"random moments; {_EXACTLY}",
        4,
        kill_at_random,
    ),
    _campaign(
        "stateful-aimed-kills-sqlite",
        "a driver with windows dies twice each in the move of the offsets, the write, the commit "
        f"and Spark's commit; {_EXACTLY}",
        5,
        kill_at_places_sqlite,
    ),
    _campaign(
        "stateful-aimed-kills-postgresql",
        f"the same on PostgreSQL; {_EXACTLY}",
        5,
        kill_at_places_postgresql,
    ),
    _campaign(
        "stateful-append-control",
        "the control: a sink that only appends dies between its commit and Spark's, once with each "
        "query; rows of each must be there twice.",
        2,
        append_control,
    ),
)
