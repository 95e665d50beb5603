"""What scenarios do to controllers, and how they tell what came of it.

Owns the waits for the quorum, the check that data went on undisturbed, the tables of times and
latencies, and the client that changes metadata again and again. Times are measured and shown; only
that something happens at all is a check.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from holdfast.clients.blocking_driver import Driver, DriverError
from holdfast.cluster import ClusterError
from holdfast.cluster.quorum import QuorumState
from holdfast.judge.history import Acknowledged, Event, Refused, Unknown
from holdfast.lab.parameters import LabError
from holdfast.lab.report import Table
from holdfast.lab.report.figures import AT_LEAST, FEW
from holdfast.lab.run import Run
from holdfast.lab.steps.measures import figures, waits
from holdfast.lab.steps.mishaps import must_come
from holdfast.lab.workload_processes import Worker
from holdfast.wire.administration import AdminError, alter_configs, create_topic
from holdfast.wire.structs import ResourceType

NEXT_S = 30.0  # for the next active controller; far beyond every timeout
Window = tuple[float, float]  # monotonic ms, the end excluded

# Of the client that changes metadata.
TOPIC = "changes"
KEY = "retention.ms"
PAUSE_S = 0.05  # metadata may be changeable again for so long before it is seen
# Longer than a broker tries to reach a controller: what ends a change is the cluster's own answer.
# One of Apache Kafka does so for a minute, half of it with the controller that it knew.
ANSWER_S = 75.0
CHANGE_S = 90.0  # for the first change behind a fault: one that hangs has to end before it
UNDERWAY_MS = 50.0
CHANGES_MAX = 100_000


@dataclass(frozen=True, slots=True)
class Counts:
    """How a workload's sends had fared at one moment."""

    acknowledged: int
    refused: int
    unknown: int

    @classmethod
    def of(cls, worker: Worker) -> Counts:
        tail = worker.tail.poll()
        return cls(tail.count(Acknowledged), tail.count(Refused), tail.count(Unknown))


def active_controller(run: Run) -> QuorumState:
    """Wait for an active controller. LabError, behind a failed check: there comes none."""
    try:
        return _active(run, None)
    except LabError as error:
        run.check("the active controller", "there is one", str(error), kept=False, late=True)
        raise


def _active(run: Run, other_than: int | None, bound_s: float = NEXT_S) -> QuorumState:
    try:
        return run.cluster.wait_for_active_controller(other_than=other_than, timeout_s=bound_s)
    except ClusterError as error:
        raise LabError(str(error)) from error


def expect_next_controller(
    run: Run, name: str, before: QuorumState, bound_s: float = NEXT_S
) -> QuorumState | None:
    """Check that another controller becomes active, in a higher epoch; None: none does."""
    try:
        after = _active(run, before.leader, bound_s)
    except LabError as error:
        name = f"{name}: the next active controller"
        run.check(name, "another voter", str(error), kept=False, late=True)
        return None
    others = {each.id for each in before.voters} - {before.leader}
    run.note(f"controller {after.leader} is active, epoch {after.epoch}")
    run.check(
        f"{name}: the next active controller",
        f"one of {', '.join(map(str, sorted(others)))}, in an epoch above {before.epoch}",
        f"{after.leader}, in epoch {after.epoch}",
        kept=after.leader in others and after.epoch > before.epoch,
    )
    return after


def expect_no_controller(run: Run, when: str) -> None:
    """Check that no controller is active, and none becomes it for two timeouts of the quorum."""
    run.wait("the quorum to be gone", lambda: run.cluster.quorum() is None, NEXT_S)
    until_s = time.monotonic() + 2 * run.parameters.quorum_s
    seen: list[int] = []

    def over() -> bool:
        state = run.cluster.quorum()
        if state is not None:
            seen.append(state.leader)
        return time.monotonic() >= until_s

    run.wait("the time to watch", over, 2 * run.parameters.quorum_s + NEXT_S)
    run.check(
        f"{when}: active controller", "none", ", ".join(map(str, seen)) or "none", kept=not seen
    )


def wait_quorum_whole(run: Run) -> QuorumState:
    """Wait until every voter has what was committed when the wait began.

    LabError, behind a failed check: that is not so in the end.
    """
    committed = _committed(run)
    found = _soon_whole(run, committed, NEXT_S)
    if found is None:
        seen = f"not so within {NEXT_S:.0f} s"
        wanted = f"each has metadata up to {committed}"
        run.check("the voters", wanted, seen, kept=False, late=True)
        raise LabError(f"the voters don't come to have metadata up to {committed}: {seen}")
    return found


def _soon_whole(run: Run, committed: int, bound_s: float) -> QuorumState | None:
    """Wait until every voter has so much; None: not in time. LabError: a workload has ended."""
    found: list[QuorumState] = []

    def whole() -> bool:
        found.extend(filter(None, [_whole_quorum(run, committed)]))
        return bool(found)

    return found[0] if run.soon(whole, bound_s) else None


def _whole_quorum(run: Run, committed: int) -> QuorumState | None:
    state = run.cluster.quorum()
    up_to_date = state is not None and all(v.log_end >= committed for v in state.voters)
    return state if up_to_date else None


def _committed(run: Run) -> int:
    """Return how far the metadata log is committed. LabError: no active controller says so.

    One that was elected a moment ago does not know it yet (Apache Kafka's say -1), and a quorum
    that need not have anything is always whole.
    """
    active = active_controller(run)

    def told() -> QuorumState | None:
        state = run.cluster.quorum()
        return None if state is None or state.high_watermark < 0 else state

    if active.high_watermark < 0:
        known = "the active controller to know what is committed"
        active = must_come(run, known, told, NEXT_S)
    return active.high_watermark


def expect_quorum_whole(run: Run, when: str, bound_s: float) -> QuorumState | None:
    """Check that one controller is active, and every voter has what was committed by then.

    For what a run has hurt itself: a quorum that does not come back is broken. None: it does not.
    """
    found = None
    try:
        committed = _committed(run)
    except LabError as error:
        seen = str(error)
    else:
        seen = f"not every voter has metadata up to {committed} in {bound_s:.0f} s"
        found = _soon_whole(run, committed, bound_s)
    run.check(
        f"{when}, the controllers",
        "one is active, and all have what was committed",
        "so" if found is not None else seen,
        kept=found is not None,
        late=True,
    )
    return found


def expect_undisturbed(
    run: Run,
    when: str,
    before: Mapping[str, Counts],
    workers: Iterable[Worker],
) -> None:
    """Check that each workload was acknowledged, and nothing of it refused or left in doubt."""
    for worker in workers:
        then, now = before[worker.name], Counts.of(worker)
        refused, unknown = now.refused - then.refused, now.unknown - then.unknown
        acknowledged = now.acknowledged - then.acknowledged
        run.check(
            f"{worker.name}, {when}",
            "acknowledged, no error",
            f"{acknowledged:,} acknowledged, {refused} refused, {unknown} unknown",
            kept=acknowledged > 0 and not refused and not unknown,
            late=True,
        )


def counts_of(workers: Iterable[Worker]) -> dict[str, Counts]:
    """How every workload has fared so far, by name."""
    return {worker.name: Counts.of(worker) for worker in workers}


def latency_table(
    title: str, events: Iterable[Event], windows: Mapping[str, Sequence[Window]]
) -> Table:
    """Latency of acknowledgements by process, each event in the window in which it was sent.

    Who has no answer has waited until its client gave up, or the window ended, at least.
    """
    took: dict[tuple[str, str], list[float]] = {}
    waited: dict[tuple[str, str], list[float]] = {}
    for each in waits(events):
        for name, spans in windows.items():
            ends = [end for begin, end in spans if begin <= each.begin_ms < end]
            if ends and each.took_ms is not None:
                took.setdefault((each.process, name), []).append(each.took_ms)
            elif ends:
                until_ms = ends[0] if each.gave_up_ms is None else each.gave_up_ms
                waited.setdefault((each.process, name), []).append(until_ms - each.begin_ms)
    rows = []
    for process in sorted({process for process, _ in (*took, *waited)}):
        for name in windows:
            answered, not_yet = (each.get((process, name), []) for each in (took, waited))
            if answered or not_yet:
                count, median, most, _, longest = figures(answered, not_yet)
                rows.append([process, name, count, f"{len(not_yet):,}", median, most, longest])
    return Table(
        title=title,
        header=["client", "sent", "events", "no answer", "p50 ms", "p99 ms", "longest ms"],
        rows=rows,
        note="From handing an event to the client to its acknowledgement; refused ones are not "
        "counted. Without an answer it had waited until its client gave up, or the stretch was "
        f"over: {AT_LEAST}, at least, where that decides. {FEW}",
    )


def between(windows: Sequence[Window], begin_ms: float, end_ms: float) -> list[Window]:
    """Return what lies between these windows."""
    found = []
    for begin, end in sorted(windows):
        if begin > begin_ms:
            found.append((begin_ms, begin))
        begin_ms = max(begin_ms, end)
    return [*found, (begin_ms, end_ms)]


@dataclass(frozen=True, slots=True)
class Change:
    """One change: when it was asked for, when it was answered (monotonic ms), and how."""

    begin_ms: float
    end_ms: float
    error: str | None


class MetadataChanger:
    """Changes the cluster's metadata again and again, and remembers how each change fared.

    It shows what a change of controllers costs those who create and alter. Works on a topic of its
    own, so that no producer or consumer is touched by it. A context manager: it has a thread of its
    own meanwhile, and `changes` may be read at any time.
    """

    def __init__(self, bootstrap: str) -> None:
        self._driver = Driver(bootstrap, "changer", timeout_s=ANSWER_S)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="changer", daemon=True)
        self.changes: list[Change] = []

    def __enter__(self) -> Self:
        """Create the topic and begin. LabError: it can't be created."""
        try:
            self._driver.perform(create_topic(TOPIC, assignment={0: [min(self._driver.nodes())]}))
        except (ValueError, AdminError, DriverError) as error:
            raise LabError(f"the topic {TOPIC} can't be made: {error}") from error
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End after the change that is being made."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(ANSWER_S + 1)
        self._driver.close()

    def first_after(self, at_ms: float) -> Change | None:
        """Return the first change that was made after this moment, if there is one.

        An answer that comes within moments tells of what was decided before.
        """
        later = (
            each
            for each in list(self.changes)
            if each.begin_ms >= at_ms or each.end_ms >= at_ms + UNDERWAY_MS
        )
        return next((each for each in later if each.error is None), None)

    def made_since(self, at_ms: float) -> int:
        """How many changes were asked for since this moment, and made."""
        return sum(c.error is None and c.begin_ms >= at_ms for c in list(self.changes))

    def _run(self) -> None:
        while not self._stopping.wait(PAUSE_S) and len(self.changes) < CHANGES_MAX:
            begin_ms = time.monotonic() * 1000
            error = None
            try:
                later = {KEY: str(1_000_001 + len(self.changes))}
                self._driver.perform(alter_configs(ResourceType.TOPIC, TOPIC, later))
            except (AdminError, DriverError) as problem:
                error = str(problem)
            self.changes.append(Change(begin_ms, time.monotonic() * 1000, error))
