"""The active controller of three is killed, frozen, and left without a majority."""

from __future__ import annotations

import time

from holdfast.cluster.quorum import QuorumState, ask_one
from holdfast.lab.evidence import events_of
from holdfast.lab.parameters import Parameters
from holdfast.lab.report import Table
from holdfast.lab.run import Run
from holdfast.lab.scenario import Control, Part, Scenario
from holdfast.lab.scenarios.write_anomaly import expect_replaced, strike
from holdfast.lab.steps.controllers import (
    CHANGE_S,
    MetadataChanger,
    Window,
    active_controller,
    between,
    counts_of,
    expect_next_controller,
    expect_no_controller,
    expect_undisturbed,
    latency_table,
    wait_quorum_whole,
)
from holdfast.lab.steps.mishaps import must_come
from holdfast.lab.steps.usual import acknowledge, begin, expect_consumed

LEARN_S = 30.0  # far beyond every timeout
AFTERWARDS_MS = 1000.0  # after an election, still counted to it


class Elections:
    """The elections of one run: what was done, and how long it took."""

    def __init__(self, run: Run, changer: MetadataChanger) -> None:
        self.run = run
        self.changer = changer
        self.windows: list[Window] = []
        self.rows: list[list[str]] = []

    def lose_active(self, action: str) -> QuorumState | None:
        """KILL or STOP the active controller, and wait for the next; return the old state."""
        run = self.run
        before = wait_quorum_whole(run)
        name = f"SIG{action} of the active controller {before.leader}"
        at_ms = run.fault(action, before.leader)
        after = expect_next_controller(run, name, before)
        next_ms = time.monotonic() * 1000
        if after is None:
            return None
        change = must_come(
            run,
            f"{name}: the first metadata change",
            lambda: self.changer.first_after(at_ms),
            CHANGE_S,
        )
        self.windows.append((at_ms, max(next_ms, change.end_ms) + AFTERWARDS_MS))
        self.rows.append(
            [
                f"SIG{action} {before.leader}",
                f"{before.leader} to {after.leader}",
                f"{before.epoch} to {after.epoch}",
                f"{next_ms - at_ms:.0f}",
                f"{change.end_ms - at_ms:.0f}",
            ]
        )
        return before

    def table(self) -> Table:
        return Table(
            title="From the fault to the next active controller, and to the first metadata change",
            header=["fault", "active", "epoch", "next, ms", "first change, ms"],
            rows=self.rows,
            note="Measured, not asserted: they depend on the machine and on chance.",
        )


def steps(run: Run) -> None:
    workers = begin(run).senders
    with MetadataChanger(run.cluster.bootstrap_servers) as changer:
        begin_ms = time.monotonic() * 1000
        elections = Elections(run, changer)
        run.steady(workers[0])
        before = counts_of(workers)
        for _ in range(run.parameters.kills):
            killed = elections.lose_active("KILL")
            run.steady(workers[0])
            if killed is not None:
                run.start_node(killed.leader)
        frozen = elections.lose_active("STOP")
        run.steady(workers[0])
        if frozen is not None:
            thaw(run, frozen)
        wait_quorum_whole(run)
        run.steady(workers[0])
        end_ms = time.monotonic() * 1000
    expect_undisturbed(run, "during all elections", before, workers)
    run.stop_workers()
    calm = between(elections.windows, begin_ms, end_ms)
    windows = {"during elections": elections.windows, "otherwise": calm}
    histories = [worker.history for worker in workers]
    run.tables += [
        elections.table(),
        latency_table("Latency while controllers change", events_of(histories), windows),
    ]


def thaw(run: Run, frozen: QuorumState) -> None:
    """Let the frozen controller go on: it still believes that it is active, and must learn."""
    run.fault("CONT", frozen.leader)
    node = run.cluster.node(frozen.leader)

    def humble() -> bool:
        state = ask_one(*node.voter_watch_address)
        return state is None or state.epoch > frozen.epoch

    must_come(run, f"{frozen.leader} to learn that it isn't active any more", humble, LEARN_S)
    now = active_controller(run)
    run.check(
        f"{frozen.leader} goes on",
        f"it does not lead in epoch {frozen.epoch} any more",
        f"controller {now.leader} is active, epoch {now.epoch}",
        kept=now.epoch > frozen.epoch,
    )


def without_majority(run: Run) -> None:
    """So many controllers are killed that one is too few: metadata stand still, data go on."""
    clients = begin(run)
    workers = clients.senders
    before = wait_quorum_whole(run)
    followers = [each.id for each in before.voters if each.id != before.leader]
    dead = followers[: (len(before.voters) - 1) // 2]  # and the active one: the rest is no majority
    counts = counts_of(workers)
    with MetadataChanger(run.cluster.bootstrap_servers) as changer:
        run.wait("a metadata change", lambda: changer.changes, CHANGE_S)
        run.fault("KILL", before.leader, *dead)
        expect_no_controller(run, "a majority is dead")
        gone_ms = time.monotonic() * 1000
        run.steady(workers[0], max(run.parameters.duration_s, 2 * run.parameters.session_s))
        made = changer.made_since(gone_ms)
        run.check("metadata changes made meanwhile", "none", str(made), kept=made == 0)
        expect_consumed(run, clients.reader, "a majority is dead", gone_ms)
        at_ms = time.monotonic() * 1000
        run.start_node(dead[0])
        now = active_controller(run)
        run.check("one is back: active controller", f"a voter, in an epoch above {before.epoch}",
                  f"{now.leader}, in epoch {now.epoch}", kept=now.epoch > before.epoch)  # fmt: skip
        first = must_come(
            run,
            "one is back: a metadata change",
            lambda: changer.first_after(at_ms),
            CHANGE_S,
        )
        run.note(f"metadata change again {first.end_ms - at_ms:.0f} ms after its start")
        run.start_node(before.leader, *dead[1:])
        wait_quorum_whole(run)
    expect_undisturbed(run, "without a majority of controllers", counts, workers)


def combined_with_acks_one(run: Run) -> None:
    """Control: brokers are the controllers; the active one dies with events that only it has."""
    count, leader = run.parameters.count, active_controller(run).leader
    replicas = (leader, *(node for node in run.cluster.broker_ids if node != leader))
    run.make_topic({0: replicas})
    client = run.raw_client("producer", acks="1", timeout_ms=2000)
    acknowledge(run, client, 0, count)
    acknowledged = strike(run, client, replicas)
    replaced = "the other two elect a controller, and it elects a leader who lacks the events"
    expect_replaced(run, client, replaced, replicas)
    run.check("acknowledged by the one that died", str(count), str(acknowledged),
              kept=acknowledged == count)  # fmt: skip
    run.lost_expected = count


SCENARIO = Scenario(
    name="controller-election",
    summary="The active controller is killed and frozen; then a majority of controllers is gone.",
    text=(
        "Under load the active controller is killed again and again, then frozen and thawed. Each "
        "time another voter becomes active in a higher epoch; producers and consumers notice "
        "nothing. A majority dead: no metadata change is made, and data go on. The control runs "
        "the controllers inside the brokers, with acks=1: the active one dies with events that "
        "only it has."
    ),
    defaults=Parameters(controllers=3, kills=3),
    parts=(
        Part(name="main", title="The active controller killed and frozen", steps=steps),
        Part(
            name="no-majority", title="A majority of the controllers killed", steps=without_majority
        ),
        Control(
            title="Control: controllers inside brokers, acks=1, events that only one has",
            steps=combined_with_acks_one,
            change={
                "acks": "1",
                "partitions": 1,
                "retries": 0,
                "controllers": 3,
                "combined": True,
                "config": {"broker.session.timeout.ms": "6000"},
            },
        ),
    ),
    fixed=frozenset({"acks", "brokers", "signal"}),
    least={"controllers": 3},
)
