"""One run on one cluster: start it, load it, hurt it, watch it, and read what is left.

The steps of a scenario call these methods. Each wait has a bound and is on a condition, never on
time alone; what was expected and what was seen becomes a `Check`. A fault is written into the
history at the moment it is done.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any, Self, TypeVar

from holdfast.clients.administration import all_have, perform_patiently
from holdfast.clients.blocking_driver import Driver
from holdfast.clients.workload.raw_producer import RawProducer
from holdfast.clients.workload.recorder import EventT, Recorder
from holdfast.cluster import ClusterError, LocalCluster
from holdfast.cluster.any_cluster import Cluster
from holdfast.cluster.ending import end_all
from holdfast.cluster.layout import APACHE, OLDER, PLACE_VARIABLE
from holdfast.cluster.processes import wait_until
from holdfast.judge.history import Fault, IsrChange, LeaderChange, LeaderClaim, Note
from holdfast.judge.timeline import DISK, HURTS, UP_ACTIONS
from holdfast.lab.allowed import Allowed
from holdfast.lab.guard import Guard
from holdfast.lab.isr_observer import NOTHING_SEEN, Observer, View, Watcher
from holdfast.lab.journal import HISTORY, Journal
from holdfast.lab.parameters import TOPIC, LabError, NotInTimeError, Parameters, refuse_if, words_of
from holdfast.lab.report import Check, Table
from holdfast.lab.report.words import describe
from holdfast.lab.steps.mishaps import asking, refuse_blind, refuse_dead, wait_signalled
from holdfast.lab.steps.starvation import Mark, Starvation
from holdfast.lab.steps.wants import Want, lists_text, matches, names, preferred, want
from holdfast.lab.workload_processes import Process, Worker
from holdfast.wire import administration as admin
from holdfast.wire.structs import ResourceType

T = TypeVar("T")
WorkerT = TypeVar("WorkerT", bound=Worker)

WORKLOAD = "holdfast.clients.workload"
RAW_READER = f"{WORKLOAD}.raw_consumer"
POLL_S = 0.02
ENDS = frozenset({"KILL", "TERM"})  # what is done to a node that ends it
SETTLE_S = 30.0  # for what takes no longer than a session or a lag
WORK_S = 20.0  # for a workload to begin to flow


class Run:
    """A running cluster with one topic, and everything that is done to it. A context manager."""

    def __init__(self, parameters: Parameters, directory: Path, say: Callable[[str], None]) -> None:
        """`directory` must be empty or absent; it keeps the cluster's files and the history."""
        self.parameters = parameters
        self.topic = TOPIC
        self.group_prefix = ""  # where others' groups may have the same names
        self.ends_told: Callable[[str], dict[int, int]] | None = None  # where no files can be seen
        self.left: list[str] = []  # of what was done, what could not be undone
        self.history = directory / HISTORY
        self.checks: list[Check] = []
        self.relied_on: list[Watcher] = []  # whose end by itself is a mishap
        self.tables: list[Table] = []  # of what the steps have measured, for the report
        self.told: list[str] = []  # for the verdict, beside checks
        self.foretold: str | None = None  # checks with these words in their names must fail
        # What the verdict is held against: exactly so many events; None: the promise decides.
        self.lost_expected: int | None = None
        # Those by partition, offset and id, where the steps know each one.
        self.lost_named: Sequence[tuple[int, int, str]] | None = None
        self.expired_expected: Mapping[str, int] | None = None  # by what allows it
        # Of groups: counts and anomalies by name, from least to most.
        self.groups_expected: Mapping[str, tuple[int, int]] | None = None
        self.after_exit: dict[int, View | None] = {}  # the first look after a node's clean exit
        self.ended: set[int] = set()  # nodes that the run has ended, or has seen end as it must
        self.is_hurt = False  # whether anything was done to a node yet
        # Who must hold what at the end, by topic: whoever makes or moves replicas says so.
        self.placement: dict[str, dict[int, tuple[int, ...]]] = {}
        self._say = say
        self.begin_s, self._start_s = time.monotonic(), parameters.start_s
        self._workers: list[Process] = []
        self._clients = ExitStack()  # what ends those that send from this process
        self.afterwards = ExitStack()  # what is done once no node runs any more
        # Called in the observer's thread with every change of a leader or an ISR.
        self.watchers: list[Callable[[LeaderChange | IsrChange], None]] = []
        self._previous: dict[tuple[str, int], LeaderChange | IsrChange] = {}
        try:
            self.history.mkdir(parents=True)
            self.journal = Journal(directory)
            self.cluster: Cluster = self.make_cluster(directory / "cluster")
            self._recorder = Recorder(self.history / "lab.jsonl", "lab")
            self.allowed = Allowed(self._recorder, parameters.node_config)
            self.guard = Guard()
        except (OSError, ClusterError) as error:
            raise LabError(f"the run can't begin: {error}") from error
        self.cluster.environment = self.guard.environment
        self.starvation = Starvation(self.cluster)
        self.cluster.settles = False  # its network ends with this process, however that ends
        self.driver = Driver(self.cluster.bootstrap_servers, "lab", timeout_s=5.0)
        self._observer: Observer | None = None  # until there is a topic to watch

    def make_cluster(self, directory: Path) -> Cluster:
        """Make the cluster's files. OSError, ClusterError."""
        parameters = self.parameters
        if parameters.engine == APACHE:  # JVMs take seconds, where ours take none
            self.say("Apache Kafka's storage tool formats the nodes' directories")
        return LocalCluster.create(
            directory,
            brokers=parameters.brokers,
            controllers=parameters.controllers,
            combined=parameters.combined,
            racks=parameters.racks,
            network=parameters.network,
            features=parameters.features,
            engine=parameters.engine,
            port=0,
            config=parameters.node_config,
        )

    def __enter__(self) -> Self:
        try:
            if self.parameters.engine in {APACHE, OLDER}:
                self.say(f"{len(self.cluster.nodes)} JVMs start")
            self.cluster.start(timeout_s=self._start_s)
        except ClusterError as error:
            self._recorder.close()
            self.guard.close()
            raise LabError(f"the cluster did not start: {error}") from error
        ms = (time.monotonic() - self.begin_s) * 1000
        self.note(f"{self.parameters.brokers} brokers{self.cluster.engine} serve after {ms:.0f} ms")
        self.starvation.start()
        return self

    def __exit__(self, _kind: object, reason: BaseException | None, _trace: object) -> None:
        ends = [*(worker.kill for worker in self._workers), self._clients.close]
        ends += [] if self._observer is None else [self._observer.stop]
        ends += [self.starvation.stop, self._end_cluster, self.driver.close, self._recorder.close]
        end_all([*ends, self.afterwards.close, self.guard.close], reason)

    def _end_cluster(self) -> None:
        try:
            for node in self.cluster.nodes:
                if self.cluster.state(node.id) == "stopped":
                    self.cluster.kill(node.id, "KILL")
            self.cluster.down()
        except BaseException as reason:  # Ctrl-C above all
            end_all([partial(self.cluster.down, timeout_s=0)], reason)
            raise

    # -- what is said --------------------------------------------------------------------------

    def note(self, text: str) -> None:
        self.record(Note, text=text)
        self.say(text)

    def record(self, kind: type[EventT], **values: Any) -> EventT:
        """Write an event of the lab's own into the history, on disk when this returns."""
        event = self._recorder.record(kind, **values)
        self._recorder.flush()
        return event

    def damage(self, node: int, detail: str) -> None:
        """Record what was done to a dead node's disks; `lab.steps.dead_disks` does it."""
        self.record_fault(DISK, node, detail)

    def record_fault(self, action: str, node: int, detail: str = "") -> None:
        """Write a fault into the history; whoever does it calls this first."""
        self.is_hurt |= action in HURTS
        if action in ENDS:
            self.ended.add(node)
        self.say(describe(self.record(Fault, action=action, node=node, detail=detail)))

    def say(self, text: str) -> None:
        """Tell who watches the run."""
        self._say(f"{time.monotonic() - self.begin_s:8.2f} s  {text}")

    def _changed(self, change: LeaderChange | IsrChange | LeaderClaim) -> None:
        if isinstance(change, LeaderClaim):
            self.say(describe(change))
            return
        key = (change.KIND, change.partition)
        previous, self._previous[key] = self._previous.get(key), change
        if previous is not None:
            self.say(describe(change, previous))
        for watcher in self.watchers:
            watcher(change)

    def record_check(self, check: Check) -> None:
        """Keep a check, in the journal too: a run that breaks off is judged by what it has seen."""
        self.checks.append(check)
        self.journal.check(check)

    def check(
        self,
        name: str,
        expected: str,
        seen: str,
        *,
        kept: bool,
        late: bool | Mark = False,
        given: bool = True,
    ) -> bool:
        """Keep what was expected and seen. `late`: it is about a bound, or all since a mark.

        `given`: whether what it rests on has come. If that was only late, so is this.
        """
        if not kept:
            refuse_blind(self)
        elif late is True:
            self.starvation.overcome()
        is_late = not kept and self.starvation.excuses(late)  # what comes later excuses nothing
        is_late |= not (kept or given) and any(check.late for check in self.checks)
        self.record_check(Check(name=name, expected=expected, seen=seen, kept=kept, late=is_late))
        if not kept:
            foretold = self.foretold is not None and self.foretold in name
            word = "fails, as it must" if foretold else "NOT AS IT MUST BE"
            self.say(f"{word}: {name}: expected {expected}; seen {seen}")
        return kept

    # -- topic and workloads -------------------------------------------------------------------

    def make_topic(
        self,
        assignment: Mapping[int, Sequence[int]] | None = None,
        configs: Mapping[str, str] | None = None,
    ) -> None:
        """Create the topic with these replicas, watch it, and wait until all of it is in sync."""
        assignment = self.parameters.assignment() if assignment is None else assignment
        made = self.create_topic(self.topic, len(assignment), configs, assignment=assignment)
        self._watch(assignment, made)

    def place_topic(self) -> dict[int, tuple[int, ...]]:
        """Create the topic where the cluster wants it, as `make_topic` does; its replicas."""
        partitions, copies = self.parameters.partitions, self.parameters.replication_factor
        made = self.create_topic(
            self.topic, partitions, None, partitions=partitions, replication_factor=copies
        )
        states = self.wait(
            "the topic to be known", lambda: self.cluster.partitions(self.topic), WORK_S
        )
        assignment = {p: tuple(state.replicas) for p, state in sorted(states.items())}
        if {len(set(nodes)) for nodes in assignment.values()} != {copies}:
            seen = lists_text(assignment)
            self.check("replicas of each partition", f"{copies} brokers", seen, kept=False)
        self._watch(assignment, made)
        return assignment

    def create_topic(
        self, topic: str, count: int, configs: Mapping[str, str] | None, **placed: Any
    ) -> dict[str, str]:
        """Create a topic of `count` partitions, `placed` as in `wire.administration`; its configs.

        What may go of it is in the history first. LabError: it can't be made.
        """
        wanted = {
            "min.insync.replicas": str(self.parameters.min_isr),
            "unclean.leader.election.enable": str(self.parameters.unclean).lower(),
            **(configs or {}),
        }
        self.allowed.expect(topic, count, wanted)
        self.ask(admin.create_topic(topic, configs=wanted, **placed), "the topic can't be made")
        return wanted

    def _watch(self, assignment: Mapping[int, Sequence[int]], wanted: Mapping[str, str]) -> None:
        """Watch the topic from now on, and wait until all of it is in sync."""
        self.placement[self.topic] = {p: tuple(nodes) for p, nodes in assignment.items()}
        self._observer = Observer(
            self.cluster, self.topic, self.history / "observer.jsonl", self._changed
        )
        self._observer.start()
        self.relied_on.append(self._observer)
        settings = ", ".join(f"{key}={value}" for key, value in wanted.items())
        self.note(f"topic {self.topic}: replicas {lists_text(assignment)}; {settings}")
        if not self._reached(preferred(assignment), SETTLE_S):
            states = self._states()
            seen = "; ".join(f"P{p}: {states.get(p, 'not there')}" for p in sorted(assignment))
            raise LabError(f"the topic is not whole after {SETTLE_S:g} s: {seen}")

    @property
    def partitions(self) -> range:
        return range(self.parameters.partitions)

    @property
    def replicas(self) -> dict[int, tuple[int, ...]]:
        """Who must hold each partition of the topic."""
        return self.placement[self.topic]

    @property
    def observer(self) -> Observer:
        assert self._observer is not None, "no topic yet"
        return self._observer

    @property
    def view(self) -> View:
        """Return the last look at the topic; nothing is in it while there is none."""
        return NOTHING_SEEN if self._observer is None else self._observer.view

    def start_producer(
        self,
        name: str = "producer",
        *,
        module: str = f"{WORKLOAD}.verifiable_producer",
        place: str | None = None,
        **flags: object,
    ) -> Worker:
        """Start a verifiable producer with the run's settings; `flags` change or add to them.

        Another `module` is one that sends records of its own. `place`: see `start_client`.
        """
        told = self.parameters.producer_flags(flags)
        return self.start_client(name, module, told, Worker, place)

    def start_raw(self, name: str = "raw", *, place: str | None = None, **flags: object) -> Worker:
        """Start a producer without back-offs: it shows when the cluster serves again."""
        values = {"acks": self.parameters.acks, "rate": 50, **flags}
        return self.start_client(name, f"{WORKLOAD}.raw_producer", values, Worker, place)

    def start_readers(self, **flags: Any) -> Worker:
        """Start a reader, and one that notes the high watermark of every answer; the first."""
        reader = self.start_reader(**flags)
        self.start_reader("raw-reader", module=RAW_READER, place=flags.get("place"))
        return reader

    def start_reader(
        self,
        name: str = "consumer",
        *,
        module: str = f"{WORKLOAD}.verifiable_consumer",
        place: str | None = None,
        **flags: object,
    ) -> Worker:
        """Start a reader. That a broker stamps records by itself is believed only if it must."""
        if self.allowed.has_create_time(str(flags.get("topic", self.topic))):
            flags["create_time"] = True
        flags["early_watermark"] = module == RAW_READER and self.parameters.early_watermark
        return self.start_client(name, module, flags, Worker, place)

    def raw_client(
        self,
        name: str,
        *,
        acks: str,
        timeout_ms: int = 10_000,
        topic: str | None = None,
        **sending: Any,
    ) -> RawProducer:
        """Make a raw producer in this process, for a schedule that must be exact.

        The run ends it, when workloads end. `sending`: `size` and `timestamp` of its records.
        """
        recorder = self._clients.enter_context(Recorder(self.history / f"{name}.jsonl", name))
        client = RawProducer(
            self.cluster.bootstrap_servers,
            topic or self.topic,
            recorder,
            acks=acks,
            timeout_ms=timeout_ms,
            **sending,
        )
        return self._clients.enter_context(closing(client))

    def start_client(
        self,
        name: str,
        module: str,
        flags: Mapping[str, object],
        make: type[WorkerT],
        place: str | None = None,
    ) -> WorkerT:
        """Start a client of the run's topic; `flags` (False: not this one) change what it is told.

        `place`: where in the run's network it stands; None: outside, where doors lead in.
        """
        words, environment, servers = self._way_in(place)
        told = {
            "bootstrap_server": servers,
            "topic": self.topic,
            "partitions": self.parameters.partitions,
            **{key: value for key, value in flags.items() if value is not False},
        }
        environment = {**self.guard.environment, **environment}
        self.watch(worker := make(name, module, words_of(told), self.history, environment, words))
        return worker

    def _way_in(self, place: str | None) -> tuple[list[str], dict[str, str], str]:
        """Return what is put before a command, its environment, and the servers it is told."""
        if place is None:
            return [], {}, self.cluster.bootstrap_servers
        words, _ = self.cluster.network().enter(place)
        return words, {PLACE_VARIABLE: place}, self.cluster.record.inside_servers

    def end_with_clients(self, end: Callable[[], object]) -> None:
        """Call this when the run's clients end."""
        self._clients.callback(end)

    def watch(self, process: Process) -> None:
        """Make a process part of the run: its early end is a mishap, and it ends with the run."""
        self._workers.append(process)

    # -- faults --------------------------------------------------------------------------------

    def fault(self, action: str, *nodes: int, wait: bool = True) -> float:
        """Send KILL, TERM, STOP or CONT to nodes; several are signalled before any is waited for.

        Elsewhere CUT and HEAL, too. Wait until it has taken effect: after TERM, until the process
        has ended; without `wait`, no longer than it is sent. Return the moment of the first signal,
        in monotonic ms.
        """
        turn = self.observer.allow if action in UP_ACTIONS else self.observer.avoid
        for node in nodes:
            turn(node)
        self.sync_view()
        at_ms = time.monotonic() * 1000
        for node in nodes:
            refuse_dead(self, node)
            self.record_fault(action, node)
            self.cluster.kill(node, action, wait=False)
        if action not in HURTS or not wait:
            return at_ms
        for node in nodes:
            wait_signalled(self, node, action, self.parameters.leave_s)
            if action == "TERM":
                self.record_fault("exit", node)
                self.after_exit[node] = self.observer.look()
        return at_ms

    def sync_view(self) -> None:
        """Wait until the observer looks through a broker that isn't about to go, if one is left."""
        left = [n for n in self.cluster.broker_ids if n not in self.observer.avoided]
        if any(self.cluster.state(n) == "running" for n in left):
            self.wait("another broker's view", lambda: self.view.seen_by in left, self._start_s)

    def start_node(self, *nodes: int, wait: bool = True) -> None:
        """Start nodes again and wait until they serve; without `wait`, only that they run."""
        for node in nodes:
            self.record_fault("start", node)
            self.cluster.start_node(node, wait=False)
            self.ended.discard(node)
        for node in nodes:
            try:
                if wait:
                    self.cluster.wait_serving(node, timeout_s=self._start_s)
            except ClusterError as error:
                self.not_serving(node, str(error))
                raise
            self.observer.allow(node)

    def not_serving(self, node: int, seen: str) -> None:
        """A failed check: that is no mishap of the run; the cluster is broken, or starved."""
        late = self.cluster.state(node) != "dead"
        self.check(f"{node} starts again", "it serves", seen, kept=False, late=late)

    def alter_topic(self, **configs: str) -> bool:
        """Set topic configs at run time; underscores stand for dots.

        Return whether only the new configs decide what is allowed. False: not every broker may
        have heard of them, so what the former configs allowed stays allowed.
        """
        values = {key.replace("_", "."): value for key, value in configs.items()}
        self.note("topic set to " + ", ".join(f"{key}={value}" for key, value in values.items()))
        allows_less = self.allowed.change(self.topic, values)
        self.ask(
            admin.alter_configs(ResourceType.TOPIC, self.topic, values),
            "the topic can't be altered",
        )
        if not allows_less:
            return True
        brokers = self.cluster.broker_ids
        if not self.soon(lambda: all_have(self.driver, brokers, self.topic, values), WORK_S):
            self.note("not every broker has heard of that: what was allowed before still is")
            return False
        self.allowed.settled(self.topic)
        return True

    def ask(self, asked: admin.AdminRequest[T], otherwise: str) -> T:
        """Ask the cluster once for something administrative. LabError: it does not do it."""
        with asking(otherwise):
            if self.parameters.engine != OLDER:
                return self.driver.perform(asked)
            self.driver.metadata([])  # it names the controller, which may have moved
            return perform_patiently(self.driver, asked)

    # -- waiting and expecting -----------------------------------------------------------------

    def wait(self, what: str, condition: Callable[[], T | None], bound_s: float) -> T:
        """Wait until `condition` returns something true. NotInTimeError when the bound is over."""

        def alive() -> T | None:
            self._refuse_mishaps()
            return condition()

        try:
            return wait_until(alive, timeout_s=bound_s, what=what, poll_s=POLL_S)
        except ClusterError as error:
            raise NotInTimeError(str(error)) from error

    def soon(self, condition: Callable[[], bool], bound_s: float) -> bool:
        """Whether a condition comes true within the bound. LabError: a workload has ended."""
        try:
            return self.wait("what was expected", condition, bound_s)
        except NotInTimeError:
            self._refuse_mishaps()
            return False

    def _refuse_mishaps(self) -> None:
        """LabError: something that the run needs, and that is not under test, has ended."""
        refuse_blind(self)
        for worker in self._workers:
            worker.raise_if_dead()

    def steady(self, worker: Worker, seconds: float | None = None) -> None:
        """Let a workload run: until its history reaches so many seconds beyond now."""
        seconds = self.parameters.duration_s if seconds is None else seconds
        until_ms = (time.monotonic() + seconds) * 1000
        self.wait(
            f"{worker.name} to run on",
            lambda: worker.tail.poll().latest_ms >= until_ms,
            seconds + WORK_S,
        )

    def steady_view(self, seconds: float) -> None:
        """Watch the cluster for so many seconds, to see that something does not happen."""
        until_s = time.monotonic() + seconds
        self.wait("the time to watch", lambda: time.monotonic() >= until_s, seconds + WORK_S)

    def _silent(self, worker: Worker, partitions: Sequence[int], bound_s: float) -> list[int]:
        """Return where no record is acknowledged after this call and within the bound."""
        since_ms = time.monotonic() * 1000

        def missing() -> list[int]:
            acknowledged = worker.tail.poll().acknowledged_ms
            return [p for p in partitions if acknowledged.get(p, 0.0) <= since_ms]

        self.soon(lambda: not missing(), bound_s)
        return missing()

    def must_flow(self, worker: Worker, partitions: Sequence[int] | None = None) -> None:
        """Wait until every partition acknowledges; that the workload runs at all. LabError.

        Behind a failed check, where something was hurt before: it may be what has come of that.
        """
        wanted = self.partitions if partitions is None else partitions
        missing = self._silent(worker, wanted, WORK_S)
        if missing and self.is_hurt:
            seen = f"nothing acknowledged in {WORK_S:.0f} s by {names(missing)}"
            flows = f"{names(wanted)} acknowledge"
            self.check(f"{worker.name} flows", flows, seen, kept=False, late=True)
        refuse_if(missing, f"{worker.name}: no acknowledgement from partitions {missing}")

    def expect_flow(
        self, worker: Worker, when: str, bound_s: float, partitions: Sequence[int] | None = None
    ) -> bool:
        """Check that partitions (None: all) acknowledge within the bound."""
        wanted = self.partitions if partitions is None else partitions
        silent = self._silent(worker, wanted, bound_s)
        nothing = f"nothing acknowledged in {bound_s:.0f} s by {names(silent)}"
        seen = nothing if silent else "acknowledged"
        return self.check(when, f"{names(wanted)} acknowledge", seen, kept=not silent, late=True)

    def expect(self, when: str, wanted: Mapping[int, Want], bound_s: float = SETTLE_S) -> bool:
        """Check that the partitions come to look like this within the bound."""
        self._reached(wanted, bound_s)
        states = self._states()
        found = {p: states.get(p, want()) for p in sorted(wanted)}
        return self.check(
            when,
            "; ".join(f"P{p}: {wanted[p]}" for p in found),
            "; ".join(f"P{p}: {state.only(wanted[p])}" for p, state in found.items()),
            kept=all(matches(wanted[p], state) for p, state in found.items()),
            late=True,
        )

    def _reached(self, wanted: Mapping[int, Want], bound_s: float) -> bool:
        def reached() -> bool:
            states = self._states()
            return all(p in states and matches(each, states[p]) for p, each in wanted.items())

        return self.soon(reached, bound_s)

    def _states(self) -> dict[int, Want]:
        """What every partition looks like now."""
        return {p: want(state.leader, state.isr) for p, state in self.view.partitions.items()}

    def kill_workers(self) -> None:
        """End every client at once, whatever is in flight."""
        self._clients.close()
        for worker in self._workers:
            worker.kill()

    def stop_workers(self) -> None:
        """Let workloads finish what is in flight; every one of them must end well."""
        self._clients.close()
        for worker in self._workers:
            if worker.running:
                worker.stop()
            worker.raise_if_dead()  # before it was asked to
