"""What tells a run in which something was broken from one that could not be made.

What could not be made is repeated, and then nobody speaks of it any more. So whatever the cluster
has done becomes a failed check first: those stay, whatever becomes of the run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import combinations
from pathlib import Path
from typing import Protocol, TypeVar

from holdfast.clients.blocking_driver import DriverError
from holdfast.cluster import ClusterError
from holdfast.cluster.any_cluster import Cluster
from holdfast.cluster.processes import log_tail
from holdfast.judge.history import Event, Fault, LinkChange
from holdfast.judge.timeline import CUT, HEAL, UP_ACTIONS
from holdfast.judge.verdict import Anomaly
from holdfast.lab.evidence import events_of
from holdfast.lab.isr_observer import Watcher
from holdfast.lab.parameters import LabError, NotInTimeError, Parameters
from holdfast.lab.report import Check
from holdfast.lab.workload_processes import GaveUpError, NoRecordsError
from holdfast.wire.administration import AdminError

T = TypeVar("T")

HISTORY_OF_THE_LAB = "lab.jsonl"
# How a broker says that it ends since no controller has taken it in: one of ours, one of Kafka's.
NOT_REGISTERED = (
    "(initial.broker.registration.timeout.ms)",
    "unable to register with the controller quorum",
)
LAST_LINES = 200  # of a log: Apache Kafka tells where each thing was called


class Run(Protocol):
    """As much of a run as is asked here."""

    parameters: Parameters
    checks: list[Check]
    cluster: Cluster
    ended: set[int]
    history: Path
    relied_on: list[Watcher]

    def wait(self, what: str, condition: Callable[[], T | None], bound_s: float) -> T:
        """Wait until a condition returns something true."""

    def check(self, name: str, expected: str, seen: str, *, kept: bool, late: bool = False) -> bool:
        """Keep what was expected and seen."""

    def note(self, text: str) -> None:
        """Write a line into the history."""


def failed(run: Run) -> list[str]:
    """Return the names of checks that were not as they must be, for certain.

    But for what may only have come too late, on a machine that starved nodes: see `too_busy`.
    """
    return [check.name for check in run.checks if not check.kept and not check.late]


def too_busy(run: Run) -> str | None:
    """Say that what came too late may be the machine's fault; None: nothing did."""
    late = [check.name for check in run.checks if not check.kept and check.late]
    return f"the machine is too busy for this run (not so: {', '.join(late)})" if late else None


def break_off(run: Run, problem: Exception) -> str:
    """Note why the steps did not come to their end; return it in words.

    An idempotent producer that gave up has met a gap: where nothing may be lost that is broken. So
    are, whatever the settings, bytes that are no records, and a node that ended by itself: it may
    be what has broken the steps off.
    """
    words = str(problem)
    with suppress(LabError):  # the network has ended, and nodes with it
        expect_running(run, "when the run broke off", only_failed=True)
        if isinstance(problem, GaveUpError) and Anomaly.LOST in run.parameters.promise.forbids:
            run.check("an idempotent producer", "can go on", words, kept=False)
        given = next((e for e in _causes(problem) if isinstance(e, NoRecordsError)), None)
        if given is not None:
            run.check("what brokers hand out", "records", str(given), kept=False)
    run.note(f"the run breaks off: {words}")
    return words


def _causes(problem: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and what it comes from: who waited may have said so in words of its own."""
    while problem is not None:
        yield problem
        problem = problem.__cause__


@contextmanager
def asking(otherwise: str) -> Iterator[None]:
    """Ask the cluster. LabError, beginning with `otherwise`: it refuses, or does not answer."""
    try:
        yield
    except (AdminError, DriverError) as error:
        raise LabError(f"{otherwise}: {error}") from error


def refuse_blind(run: Run) -> None:
    """LabError: what the run stands in, or sees with, has ended.

    What the cluster does without its network is no fault of its, and what nobody sees is none.
    """
    try:
        run.cluster.refuse_broken_network()
    except ClusterError as error:
        raise LabError(str(error)) from error
    for watcher in run.relied_on:
        watcher.refuse_ended()


def refuse_dead(run: Run, node: int) -> None:
    """LabError, behind a failed check: a node that is about to be hurt has ended by itself."""
    if run.cluster.state(node) == "dead":
        run.check(f"{node} runs", "until it is hurt", "it has ended by itself", kept=False)
        raise LabError(f"node {node} has ended by itself, see {run.cluster.node(node).log_file}")


def wait_signalled(run: Run, node: int, action: str, bound_s: float) -> None:
    """Wait until a signal has taken effect. ClusterError, behind a failed check: it does not."""
    try:
        run.cluster.wait_signalled(node, action, timeout_s=bound_s)
    except ClusterError as error:
        name = f"SIG{action} of {node}"
        run.check(name, f"it has ended in {bound_s:.0f} s", str(error), kept=False, late=True)
        raise


def expect_running(run: Run, when: str, *, only_failed: bool = False) -> None:
    """Check that every node runs that the run has not ended, those too that nobody would miss.

    `only_failed`: if that is so it is no check worth keeping. LabError otherwise, too: a node could
    not register, since the run held its controllers away.
    """
    nodes = [node.id for node in run.cluster.nodes if node.id not in run.ended]
    dead = [node for node in nodes if run.cluster.state(node) == "dead"]
    kept_out = [node for node in dead if _is_kept_out(run, node)]
    own = ", ".join(str(node) for node in dead if node not in kept_out)
    seen = f"{own} ended by themselves" if own else "all of them"
    if own or not (only_failed or kept_out):
        run.check(f"nodes that run {when}", "all of them", seen, kept=not own)
    if kept_out and not only_failed:
        names = ", ".join(map(str, kept_out))
        raise LabError(
            f"{names} found no controller to register with while the run held those away, and gave "
            "up (initial.broker.registration.timeout.ms)"
        )


def _is_kept_out(run: Run, node: int) -> bool:
    """Whether a node has ended since no controller took it in, and that was the run's doing.

    Its own log has to say so: who can't begin for another reason is broken, whatever is held.
    """
    log = Path(run.cluster.node(node).log_file)
    said = log_tail(log, LAST_LINES)
    if not any(words in said for words in NOT_REGISTERED):
        return False
    return held_away(
        events_of([run.history / HISTORY_OF_THE_LAB]),
        node,
        run.cluster.controller_ids,
        until_ms=log.stat().st_mtime * 1000,
        bound_ms=run.parameters.noticed_s * 1000,
    )


def held_away(
    events: Iterable[Event],
    node: int,
    controllers: Sequence[int],
    *,
    until_ms: float,
    bound_ms: float,
) -> bool:
    """Say whether a node that a run has started never had a quorum for so long at a stretch.

    It has one as long as a majority of controllers runs, and those hear each other and it. Times
    are of the clock on the wall; `until_ms` is when it ended.
    """
    down: set[int] = set()
    cut: set[frozenset[str]] = set()
    is_started = False
    since_ms: float | None = None  # for how long it has one, up to now
    longest_ms = 0.0

    def has_quorum() -> bool:
        live = [str(each) for each in controllers if each not in down]
        met = cut.isdisjoint(map(frozenset, combinations({*live, str(node)}, 2)))
        return met and 2 * len(live) > len(controllers)

    for event in events:
        if event.wall_ms > until_ms:
            break
        if isinstance(event, Fault):
            turn = down.discard if event.action in UP_ACTIONS else down.add
            if event.action not in {CUT, HEAL}:  # what that means is told of each link
                turn(event.node)
            if event.action == "start" and event.node == node:
                is_started, longest_ms, since_ms = True, 0.0, None
        elif isinstance(event, LinkChange):
            pairs = set(map(frozenset, event.pairs))
            cut = cut | pairs if event.state == CUT else cut - pairs
        if not has_quorum():
            if since_ms is not None:
                longest_ms = max(longest_ms, event.wall_ms - since_ms)
            since_ms = None
        elif since_ms is None:
            since_ms = event.wall_ms
    if since_ms is not None:
        longest_ms = max(longest_ms, until_ms - since_ms)
    return is_started and longest_ms < bound_ms


def must_come(run: Run, what: str, condition: Callable[[], T | None], bound_s: float) -> T:
    """Wait, as `run.wait` does, for what must come in the end, whatever was hurt before.

    NotInTimeError, behind a failed check: it has not come. Other LabErrors: a workload has ended.
    """
    try:
        return run.wait(what, condition, bound_s)
    except NotInTimeError:
        run.check(what, f"within {bound_s:g} s", "not so", kept=False, late=True)
        raise
