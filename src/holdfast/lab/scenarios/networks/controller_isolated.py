"""The active controller is cut off, wholly and one way: it decides nothing more."""

from __future__ import annotations

import time

from holdfast.clients.blocking_driver import DriverError
from holdfast.cluster.quorum import ASK_TIMEOUT_S, QuorumState, RefusedError, describe
from holdfast.lab.parameters import Parameters
from holdfast.lab.report import Table
from holdfast.lab.run import Run
from holdfast.lab.scenario import Part, Scenario
from holdfast.lab.steps.controllers import (
    CHANGE_S,
    MetadataChanger,
    active_controller,
    counts_of,
    expect_next_controller,
    expect_quorum_whole,
    expect_undisturbed,
    wait_quorum_whole,
)
from holdfast.lab.steps.mishaps import expect_running, must_come
from holdfast.lab.steps.sides import AGAIN_S, Sides
from holdfast.lab.steps.starvation import Mark
from holdfast.lab.steps.usual import begin, expect_consumed

RESIGN_S = 30.0  # far beyond every timeout
VAIN_S = 15.0  # for one that can't come; where it can, it takes a few seconds at most
CALM_TIMEOUTS = 5  # of the quorum, in which nobody asks for another election
ISOLATED = "isolated"
NEXT = "the next active controller"  # as `expect_next_controller` calls it


class Cuts:
    """The cuts of one run, each of the active controller from all others, and what came of it."""

    def __init__(self, run: Run, changer: MetadataChanger) -> None:
        self._run = run
        self._changer = changer
        self._sides = Sides(run)
        self._rows: list[list[str]] = []

    def cut(self, how: str) -> None:
        """Cut the active controller: `isolated`, or one way: `deaf`, `mute`. Heal it again."""
        run = self._run
        before = wait_quorum_whole(run)
        name = f"the active controller {before.leader} is {how}"
        at_ms = self._break(how, before.leader)
        after = expect_next_controller(run, name, before)
        next_ms, since = time.monotonic() * 1000, run.starvation.mark()
        if after is None:
            self._sides.heal()
            return
        change = must_come(
            run,
            f"{name}: the first metadata change",
            lambda: self._changer.first_after(at_ms),
            CHANGE_S,
        )
        self._expect_resigned(name, before)
        self._expect_calm(name, after, since)
        self._sides.heal()
        healed = expect_quorum_whole(run, f"{name}: healed", AGAIN_S)
        if healed is not None:
            self._expect_no_higher(f"{name}: healed", after, healed, since)
        self._rows.append(
            [
                f"{before.leader} is {how}",
                f"{before.leader} to {after.leader}",
                f"{before.epoch} to {after.epoch}",
                f"{next_ms - at_ms:.0f}",
                f"{change.end_ms - at_ms:.0f}",
            ]
        )

    def _break(self, how: str, node: int) -> float:
        if how == ISOLATED:
            return self._sides.isolate(node, clients=False)
        others = ",".join(str(n.id) for n in self._run.cluster.nodes if n.id != node)
        a, b = (str(node), others) if how == "mute" else (others, str(node))
        says = "what it says is not heard" if how == "mute" else "it hears nothing"
        return self._sides.cut(a, b, [node], f"one way: {says}", one_way=True)

    def _expect_resigned(self, name: str, before: QuorumState) -> None:
        """Check that the one who is cut off does not lead any more, as it says itself."""
        run = self._run
        node = run.cluster.node(before.leader)

        def humble() -> bool:
            try:
                state = describe(*node.voter_watch_address, timeout_s=ASK_TIMEOUT_S)
            except RefusedError:  # as who is not active does
                return True
            except DriverError:  # who does not answer does not say so, either
                return False
            return state.leader != before.leader

        expect_running(run, f"while {name}")  # one that has ended says nothing, either
        resigned = run.soon(humble, RESIGN_S)
        run.check(
            f"{name}: what it says of itself",
            "it is not active any more",
            "so" if resigned else f"it is active, in epoch {before.epoch}, or says nothing",
            kept=resigned,
            late=True,
        )

    def _expect_calm(self, name: str, after: QuorumState, since: Mark) -> None:
        """Check that one election was enough, for as long as the cut lasts."""
        self._run.steady_view(CALM_TIMEOUTS * self._run.parameters.quorum_s)
        now = active_controller(self._run)
        self._expect_no_higher(f"{name}: some time later", after, now, since)

    def _expect_no_higher(
        self, name: str, after: QuorumState, now: QuorumState, since: Mark
    ) -> None:
        self._run.check(
            name,
            f"{after.leader} is active, in epoch {after.epoch}",
            f"{now.leader} is active, in epoch {now.epoch}",
            kept=(now.leader, now.epoch) == (after.leader, after.epoch),
            late=since,  # who is starved is taken for gone
        )

    def table(self) -> Table:
        return Table(
            title="From the cut to the next active controller, and to the first metadata change",
            header=["the active controller", "active", "epoch", "next, ms", "first change, ms"],
            rows=self._rows,
            note="Measured, not asserted: they depend on the machine and on chance.",
        )


def steps(run: Run) -> None:
    clients = begin(run)
    with MetadataChanger(run.cluster.bootstrap_servers) as changer:
        run.steady(clients.producer)
        counts = counts_of(clients.senders)
        cuts = Cuts(run, changer)
        for how in (ISOLATED, "mute", "deaf"):
            cuts.cut(how)
            run.steady(clients.producer)
    expect_undisturbed(run, "during all cuts", counts, clients.senders)
    expect_consumed(run, clients.reader, "at the end")
    run.tables.append(cuts.table())


def two_isolated(run: Run) -> None:
    """Control: of three voters two are cut off from each other and the third: nobody decides."""
    clients = begin(run)
    before = wait_quorum_whole(run)
    other = next(each.id for each in before.voters if each.id != before.leader)
    sides = Sides(run)
    for node in (before.leader, other):
        sides.isolate(node, clients=False)
    expect_next_controller(run, "two of three are isolated", before, VAIN_S)
    sides.heal()
    expect_quorum_whole(run, "healed", AGAIN_S)
    run.expect_flow(clients.producer, "healed", RESIGN_S)


SCENARIO = Scenario(
    name="controller-isolated",
    summary="The active controller is cut off: wholly, and one way, so that it is mute or deaf.",
    text=(
        "Three times, under load: what the active controller sends and gets vanishes, then only "
        "what it sends, then only what it gets. Each time another voter becomes active in a higher "
        "epoch and metadata go on changing; the one that is cut off decides nothing more, and says "
        "so itself. One election is enough: there is none while the cut lasts, and none when it is "
        "healed. Data notice nothing. In the control two of three are cut off: nobody is active."
    ),
    defaults=Parameters(controllers=3, network=True),
    parts=(
        Part(name="main", title="The active controller cut off in three ways", steps=steps),
        Part(
            name="control",
            title="Control: two of three controllers isolated",
            steps=two_isolated,
            breaks_check=NEXT,
        ),
    ),
    fixed=frozenset({"brokers", "controllers", "signal"}),
)
