"""One topic, one table of a sink, and the drivers that bring the one into the other, under kills.

Owns what a run does: it writes events in chunks, kills, waits until all is read where that tells
something, and at last holds the table against the log. Events go on where a chunk ended; they jump
only when all before was read, so that windows close and none of their events comes too late.

A table that is only appended to is looked at whenever a driver has died, too: what it shows then
that it must not have would be gone when the next one has swept.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from holdfast.cluster import LocalCluster
from holdfast.cluster.processes import wait_until
from holdfast.lab.soak import sink_truth
from holdfast.lab.soak.held_life import WAIT_S_MAX, HeldLife
from holdfast.lab.soak.sink_endings import BrokenError, Endings, refuse_unless_fenced
from holdfast.lab.soak.sink_kinds import Server, Sink
from holdfast.lab.soak.sink_truth import Event
from holdfast.lab.soak.stateful_campaigns import ProofError

PARTITIONS = 3
ROWS_A_BATCH = 60  # of a chunk of 240
AGO_MS = 1_800_000  # so that no event but the closing one is from the future
PAUSE_S_MAX = 2.0  # before who was killed is started again
BATCHES_MAX, AFTER_S_MAX = 2, 2.0  # before a kill at a random moment
WHENS = ("before", "amid", "after")
UNREAD_MAX = 3  # chunks: less than windows wait for
TRIES_MAX = 10  # to come to a place, or to find somebody to kill
AT_WORK_MAX = 30  # to kill somebody with a task: of three one has
WARM = 3  # from this time on a driver's batches take as long as the ones before
REPLACED = "replaced"


class Trial:
    """A run of one query into one sink. `master` is where Spark runs."""

    def __init__(
        self,
        directory: Path,
        cluster: LocalCluster,
        sink: Sink,
        server: Server | None,
        query: str,
        *,
        seed: int,
        options: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._environment = dict(environment or {})  # what the run's guard knows drivers by
        self._directory = directory
        self._cluster = cluster
        self._sink = sink
        self._server = server
        self._query = query
        self._options = [*sink.options, *options]
        url = "" if server is None else server.url
        self._target = sink.target.format(folder=directory, url=url)
        self._chance = random.SystemRandom()
        self._events = random.Random(seed)  # noqa: S311 - a run's events are made again from it
        self._unread = 0  # chunks that may not be read yet
        self._next_ms = time.time_ns() // 1_000_000 - AGO_MS
        self._written: Counter[int] = Counter()
        self._lives: list[HeldLife] = []
        self.checkpoint = directory / "checkpoint"
        self.endings = Endings()
        self.seen: list[Counter[sink_truth.Row]] = []  # in the table, when a driver had died
        self._begins: dict[int, int] | None = None  # where a query at latest does
        self.topic = f"sinks-{os.getpid()}-{time.time_ns()}"
        settings = {"bootstrap.servers": cluster.bootstrap_servers}
        topic = NewTopic(self.topic, PARTITIONS, 3, config={"min.insync.replicas": "2"})
        admin = AdminClient(settings)
        try:
            admin.create_topics([topic])[self.topic].result(WAIT_S_MAX)
        except KafkaException as error:
            raise ProofError(f"The topic could not be made: {error}") from error
        self._producer = Producer(
            {**settings, "linger.ms": 5, "enable.idempotence": True, "log_level": 0}
        )

    # -- the log ---------------------------------------------------------------------------------

    def write(self, events: Sequence[Event]) -> None:
        """Write events, and see each acknowledged by two brokers at least."""
        refused: list[str] = []

        def answered(error: Any, _message: object) -> None:
            if error is not None:
                refused.append(str(error))

        for event in events:
            value = json.dumps({"id": event.id, "amount": event.amount})
            self._producer.produce(
                self.topic,
                value,
                event.key,
                event.partition,
                on_delivery=answered,
                timestamp=event.at_ms,
            )
            self._written[event.partition] += 1
        if self._producer.flush(WAIT_S_MAX) or refused:
            raise ProofError(f"The events could not be written: {refused[:1]}")

    def chunk(self, *, jumps: bool) -> None:
        """Write the next events; with `jumps` windows of all before close by them.

        None, when much is unread: an event of a partition that stands still would come too late.
        """
        self._unread = 0 if jumps else self._unread
        if self._unread == UNREAD_MAX:
            return
        self._unread += 1
        self._next_ms += sink_truth.JUMP_MS if jumps else 0
        made = sink_truth.chunk(self._events, self._written.total(), self._next_ms, PARTITIONS)
        self._next_ms += sink_truth.CHUNK * sink_truth.STEP_MS
        self.write(made)

    def log(self) -> list[Event]:
        """Read the log with a client that shares nothing with the pipeline."""
        consumer = Consumer(
            {
                "bootstrap.servers": self._cluster.bootstrap_servers,
                "group.id": self.topic,
                "enable.auto.commit": False,
                "log_level": 0,
            }
        )
        consumer.assign([TopicPartition(self.topic, each, 0) for each in range(PARTITIONS)])
        found: list[Event] = []
        deadline = time.monotonic() + WAIT_S_MAX
        while len(found) < self._written.total():
            if time.monotonic() > deadline:
                raise ProofError(f"{self._written.total()} events were written, {len(found)} read")
            read = consumer.consume(1_000, 1.0)
            found += [_event(message) for message in read if message.error() is None]
        consumer.close()
        if len({event.id for event in found}) != len(found):
            raise ProofError("the log itself has an event twice")
        return found

    # -- drivers ---------------------------------------------------------------------------------

    def _start(self, *options: str) -> HeldLife:
        watched = [word for place in self._sink.places for word in ("--watch", place)]
        life = HeldLife(
            self._directory / f"life-{len(self._lives)}",
            [
                *("--bootstrap-server", self._cluster.bootstrap_servers, "--topic", self.topic),
                *("--target", self._target, "--checkpoint", str(self.checkpoint)),
                *("--query", self._query, "--mode", self._sink.mode),
                *("--max-offsets-per-trigger", str(ROWS_A_BATCH)),
                *watched,
                *self._options,
                *options,  # the last word counts
            ],
            self._environment,
        )
        self._lives.append(life)
        return life

    def alive(self) -> HeldLife:
        """Return the driver that runs: the last one, or another where that has ended."""
        last = self._lives[-1] if self._lives else None
        if last is not None and not last.ended():
            return last
        self._learn_from(last)
        return self._start()

    def _learn_from(self, life: HeldLife | None) -> None:
        """See why a driver has ended. BrokenError, ProofError: there is no going on."""
        if life is not None and self.endings.learn(life, self.batches()):
            shutil.rmtree(self.checkpoint)  # as the words of a driver say

    def batches(self) -> int:
        """Return how many batches Spark has committed."""
        folder = self.checkpoint / "commits"
        names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
        return max((int(name) + 1 for name in names if name.isdecimal()), default=0)

    def is_all_read(self) -> bool:
        """Whether Spark has committed a batch that ends where the log does, by its own files."""
        done = self.batches()
        if not done:
            return False
        try:
            last_line = (self.checkpoint / "offsets" / str(done - 1)).read_text().splitlines()[-1]
        except FileNotFoundError:
            return False  # Spark has removed it meanwhile: it is further on
        ends = json.loads(last_line).get(self.topic, {})
        return all(ends.get(str(each)) == self._written[each] for each in range(PARTITIONS))

    def catch_up(self) -> None:
        """Wait until all is read, by as many drivers as it takes."""
        for _ in range(TRIES_MAX):
            life = self.alive()
            over = lambda: self.is_all_read() or life.ended()  # noqa: B023, E731 - of this round
            wait_until(over, timeout_s=WAIT_S_MAX, what="a driver to read all")
            if self.is_all_read():
                return
        raise ProofError(
            f"{TRIES_MAX} drivers have ended before all was read: {self.endings.failures}"
        )

    # -- kills -----------------------------------------------------------------------------------

    def kill(self, kind: str, *, aimed: bool, at: tuple[str, str, int] | None = None) -> Any:
        """Kill one of a kind, at a place of the sink or at a moment that chance alone chooses.

        Return what was done. `at` is a place, when, and for which time, in place of chance's.
        """
        choose = self._chance.choice
        if kind == "broker":
            self.catch_up()  # a partition that stands still meanwhile must not come too late
        for _ in range(AT_WORK_MAX if kind == "executor" else TRIES_MAX):
            life = self.alive()
            if aimed or at or kind == "executor":
                place = at or (choose(self._sink.places[1:]), choose(WHENS), choose((1, 2)))
                if kind == "executor":  # elsewhere its tasks are done, or not begun
                    place = (self._sink.places[0], "amid", WARM)
                is_there = self._bring(life, *place)
                told = {"at": f"{place[1]} {place[0].partition(':')[2]}"}
            else:
                until = self.batches() + choose(range(BATCHES_MAX + 1))
                is_there = self._wait_for(partial(self._has_batches, life, until), life)
                told = {}
            if not is_there:
                continue
            if told:
                life.wait_for_its_moment()
            else:
                threading.Event().wait(self._chance.uniform(0, AFTER_S_MAX))
            if life.ended():
                continue
            struck = self._strike(kind, life)
            if struck is not None:
                return {"kind": kind, **told, **struck, "batches": self.batches()}
            life.go()
        raise ProofError(f"Nobody could be killed, however often it was tried: {kind}")

    def _bring(self, life: HeldLife, place: str, when: str, times: int) -> bool:
        """Have a driver come to a place of its sink; False: it has ended.

        To an inner one in a batch's commit, for the same function takes the query over.
        """
        if place in self._sink.inner:
            life.arm(self._sink.places[-1], "before", times)
            if not self._wait_for(life.is_there, life):
                return False
            times = 1
        life.arm(place, when, times)
        if place in self._sink.inner:
            life.go()
        return self._wait_for(life.is_there, life)

    def replace(self) -> dict[str, Any]:
        """Have another driver take over from one that is about to commit; let that go on then.

        BrokenError: it commits, or says something else than that it was replaced.
        """
        commit = self._sink.places[-1]
        for _ in range(TRIES_MAX):
            life = self.alive()
            if not self._bring(life, commit, "before", self._chance.choice((1, 2))):
                continue
            life.disturbed = True
            before, other = self.batches(), self._start()
            over = lambda: other.ended() or self.batches() > before  # noqa: B023, E731 - as above
            wait_until(over, timeout_s=WAIT_S_MAX, what=f"another driver: {other.tail()}")
            if other.ended():
                life.kill()
                continue
            life.arm(commit, "after", 1)
            life.go()
            over = lambda: life.ended() or life.is_there()  # noqa: B023, E731 - as above
            wait_until(over, timeout_s=WAIT_S_MAX, what="a driver that was replaced to end")
            if life.is_there():
                raise BrokenError("A driver that was replaced has committed a batch")
            life.kill()  # and what it has left
            refuse_unless_fenced(life)
            return {"kind": REPLACED, "batches": self.batches()}
        raise ProofError(f"No driver could be replaced in {TRIES_MAX} tries")

    def _has_batches(self, life: HeldLife, until: int) -> bool:
        return bool(life.said("started")) and self.batches() >= until

    def kill_in_first_batch(self, place: str, when: str) -> dict[str, Any]:
        """Kill a driver that waits in the batch that pins where the query begins.

        What the log has when the first one comes there is of before; nobody writes meanwhile.
        """
        for _ in range(TRIES_MAX):
            life = self.alive()
            life.arm(place, when, 1)
            over = lambda: life.is_there() or life.ended()  # noqa: B023, E731 - of this round
            wait_until(over, timeout_s=WAIT_S_MAX, what=f"batch 0: {life.tail()}")
            if not life.is_there():
                continue
            if self.batches():
                raise ProofError("Spark has committed batch 0 before its sink was done")
            if self._begins is None:
                self._begins = dict(self._written)
            life.kill()
            return {"kind": "driver", "at": f"{when} {place.partition(':')[2]}"}
        raise ProofError(f"No driver came to batch 0 in {TRIES_MAX} tries")

    def _wait_for(self, here: Callable[[], bool], life: HeldLife) -> bool:
        """Wait until a driver is where it shall be; False: it has ended. Events come as it needs.

        A chunk more whenever all is read: some places are reached only by batches with rows.
        """
        for _ in range(TRIES_MAX):
            self.chunk(jumps=self.is_all_read())
            over = lambda: here() or life.ended() or self.is_all_read()  # noqa: E731
            wait_until(over, timeout_s=WAIT_S_MAX, what=f"a driver to be there: {life.tail()}")
            if here():
                return True
            if life.ended():
                return False
        raise ProofError("A driver has read ten chunks, and did not come to its place")

    def _strike(self, kind: str, life: HeldLife) -> dict[str, Any] | None:
        """Kill, have the driver go on, and start again what is no driver. None: nobody is there."""
        pause_s = self._chance.uniform(0, PAUSE_S_MAX)
        life.disturbed = True
        if kind == "driver":
            life.kill()
            self._look()
            return {}
        if kind == "executor":
            return self._strike_at_work(life)
        if kind == "broker":
            broker = self._chance.choice(self._cluster.broker_ids)
            self._cluster.kill(broker)
            life.go()
            threading.Event().wait(pause_s)
            self._cluster.start_node(broker, timeout_s=WAIT_S_MAX)
            return {"killed": f"broker {broker}"}
        assert kind == "database", kind
        assert self._server is not None, "a sink without a server has no such kill"
        self._server.kill()
        life.go()
        threading.Event().wait(pause_s)
        self._server.start()
        return {"killed": self._sink.name.partition("-")[0]}

    def _strike_at_work(self, life: HeldLife) -> dict[str, Any] | None:
        """Kill what works for a driver. None: there is nobody, or no task of a batch died of it."""
        before, lost = self.batches(), life.lost_tasks()
        worker = life.kill_worker()
        if worker is None:
            return None
        over = lambda: (  # noqa: E731 - a condition
            life.ended()
            or life.lost_tasks() > lost
            or self.batches() > before
            or self.is_all_read()  # the batch was over already
        )
        wait_until(over, timeout_s=WAIT_S_MAX, what=f"a batch to end: {life.tail()}")
        died = life.lost_tasks() - lost
        return {"killed": worker, "tasks": died} if died else None

    def _look(self) -> None:
        """Read a table that is only appended to, with no driver at work."""
        if self._sink.mode == "append" and self.batches():
            self.seen.append(self.found())

    # -- the end ---------------------------------------------------------------------------------

    def finish(self) -> None:
        """Read the rest, and what closes everything, with a driver that nobody disturbs.

        One batch takes all of it: the watermark moves after the batch, so nothing is late.
        """
        self.write(sink_truth.closing(self._written.total(), self._next_ms))
        for life in self._lives:
            life.kill()
        whole = ("--once", "--max-offsets-per-trigger", str(10 * self._written.total()))
        while (life := self._start(*whole)).wait():
            self._learn_from(life)

    def found(self) -> Counter[sink_truth.Row]:
        """Read the table. BrokenError: who reads such tables can't, with every server at work."""
        keys = sink_truth.KEYS_OF[self._query]
        try:
            read = self._sink.read(self._target, self._query, keys)
        except Exception as error:  # whatever the format's own reader says
            raise BrokenError(f"The table can't be read: {error!r}"[:1_000]) from error
        return sink_truth.found(self._query, read)

    def expected(self) -> Counter[sink_truth.Row]:
        """Return what the log makes of the table."""
        begins = self._begins or {}
        log = [event for event in self.log() if event.offset >= begins.get(event.partition, 0)]
        return sink_truth.TRUTH[self._query, self._sink.mode](log)

    def end(self) -> None:
        for life in self._lives:
            life.kill()


def _event(message: Any) -> Event:
    value = json.loads(message.value())
    return Event(
        partition=message.partition(),
        offset=message.offset(),
        at_ms=message.timestamp()[1],
        key=message.key().decode(),
        id=value["id"],
        amount=value["amount"],
    )
