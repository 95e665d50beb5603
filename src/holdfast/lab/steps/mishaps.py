"""What tells a run in which something was broken from one that could not be made.

What could not be made is repeated, and then nobody speaks of it any more. So whatever the cluster
has done becomes a failed check first: those stay, whatever becomes of the run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Protocol, TypeVar

from holdfast.clients.blocking_driver import DriverError
from holdfast.cluster import ClusterError
from holdfast.cluster.any_cluster import Cluster
from holdfast.judge.verdict import Anomaly
from holdfast.lab.isr_observer import Watcher
from holdfast.lab.parameters import LabError, NotInTimeError, Parameters
from holdfast.lab.report import Check
from holdfast.lab.workload_processes import GaveUpError, NoRecordsError
from holdfast.wire.administration import AdminError

T = TypeVar("T")


class Run(Protocol):
    """As much of a run as is asked here."""

    parameters: Parameters
    checks: list[Check]
    cluster: Cluster
    ended: set[int]
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

    `only_failed`: if that is so it is no check worth keeping.
    """
    nodes = [node.id for node in run.cluster.nodes if node.id not in run.ended]
    dead = [str(node) for node in nodes if run.cluster.state(node) == "dead"]
    seen = f"{', '.join(dead)} ended by themselves" if dead else "all of them"
    if dead or not only_failed:
        run.check(f"nodes that run {when}", "all of them", seen, kept=not dead)


def must_come(run: Run, what: str, condition: Callable[[], T | None], bound_s: float) -> T:
    """Wait, as `run.wait` does, for what must come in the end, whatever was hurt before.

    NotInTimeError, behind a failed check: it has not come. Other LabErrors: a workload has ended.
    """
    try:
        return run.wait(what, condition, bound_s)
    except NotInTimeError:
        run.check(what, f"within {bound_s:g} s", "not so", kept=False, late=True)
        raise
