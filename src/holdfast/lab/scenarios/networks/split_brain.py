"""The leader and a client are cut from everybody else: two brokers think that they lead."""

from __future__ import annotations

import shutil
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from holdfast.clients.replica_files import stored_records
from holdfast.clients.workload.payload import id_of
from holdfast.judge.history import Acknowledged
from holdfast.lab.evidence import events_of, history_files
from holdfast.lab.parameters import SHORT_LAG, Parameters
from holdfast.lab.report import Table
from holdfast.lab.run import RAW_READER, SETTLE_S, Run
from holdfast.lab.scenario import Control, Part, Scenario
from holdfast.lab.steps.closing import end_of, replica_directory
from holdfast.lab.steps.sides import (
    AGAIN_S,
    ANSWER_MS,
    LATE,
    LATE_BECAUSE,
    PATIENT,
    READING,
    Event,
    Side,
    Sides,
    acknowledged_of,
    expect_one_leader_an_epoch,
    expect_silent,
    sent_ms_of,
)
from holdfast.lab.steps.usual import expect_consumed
from holdfast.lab.steps.wants import want
from holdfast.lab.workload_processes import Worker

PARTITION = 0
BESIDE = "beside-leader"
CUT_SESSIONS = 4
STILL_LOOKS = 5
COPY = "cut-leader"  # in the run's folder: the leader's files before healing


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """What was seen of one cut. Times in monotonic ms."""

    leader: int
    epoch: int  # in which it led
    begin_ms: float
    replaced_ms: float  # another one led by then
    heal_ms: float
    beside: Worker
    copied: set[Event]  # what the leader's log held before healing

    def acknowledged(self) -> set[Event]:
        """Return what the client beside the leader sent while it was cut, and was told is kept."""
        return acknowledged_of(self.beside.history, self.begin_ms, self.heal_ms)


def steps(run: Run) -> None:
    """acks=all: the cut leader acknowledges nothing, and nothing acknowledged is lost."""
    cut = split(run)
    expect_silent(run, cut.beside, f"cut off beside {cut.leader}", cut.begin_ms, cut.heal_ms)


def with_acks_one(run: Run) -> None:
    """acks=1: what the cut leader acknowledges is lost, all of it, and nothing else."""
    cut = split(run)
    # Nobody tells it that it does not lead any more: what is lost grows as long as the cut lasts.
    later = acknowledged_of(cut.beside.history, cut.replaced_ms, cut.heal_ms)
    run.check(
        f"sent to {cut.leader} when another one led, with acks=1",
        "acknowledged still",
        f"{len(later)} acknowledged",
        kept=bool(later),
    )
    expect_only_its_own_lost(run, cut)


def tell_sides(run: Run, cut: Cut, producer: Worker) -> None:
    """Show what each side acknowledged of what was sent meanwhile, and what became of it."""
    run.stop_workers()  # their histories are whole then
    winner = run.view.partitions[PARTITION].leader
    kept = {event.id for event in named(replica_directory(run, winner, PARTITION))}
    theirs = run.view.partitions[PARTITION].leader_epoch
    rows = []
    for side, epoch, client in (
        (str(cut.leader), cut.epoch, cut.beside),
        ("the others", theirs, producer),
    ):
        acknowledged = acknowledged_of(client.history, cut.begin_ms, cut.heal_ms)
        lost = {event.id for event in acknowledged if event.id not in kept}
        counts = (epoch, len(acknowledged), len(acknowledged) - len(lost), len(lost))
        sent_ms = sent_ms_of(client.history, lost)
        seconds = f"{(sent_ms[-1] - sent_ms[0]) / 1000:.1f}" if sent_ms else "-"
        rows.append([side, *(f"{count:,}" for count in counts), seconds])
    run.tables.append(
        Table(
            title="What was sent during the cut, side by side",
            header=["leader", "epoch", "acknowledged", "kept", "lost", "lost for, s"],
            rows=rows,
            note=f"The cut lasted {(cut.heal_ms - cut.begin_ms) / 1000:.1f} s; for "
            f"{(cut.heal_ms - cut.replaced_ms) / 1000:.1f} s of it another one led as well. Kept: "
            f"in the log of {winner}, which leads at the end. Lost for: from the first event that "
            "is lost to the last one.",
        )
    )


def split(run: Run) -> Cut:
    """Cut the leader with a client from all others, for four sessions; heal, and see all whole."""
    run.make_topic()
    leader, *others = run.replicas[PARTITION]
    sides = Sides(run)
    near, far = sides.of(leader), sides.of(*others)
    beside = run.start_raw(BESIDE, timeout_ms=ANSWER_MS, **near.flags)
    run.start_reader("reader-beside", module=RAW_READER, **near.flags)
    run.must_flow(beside)
    # Behind proxies everybody reaches the old leader, and stays with it while it answers: then
    # those on the others' side come when another one leads.
    clients = start_far(run, far) if sides.has_places else None
    run.steady(beside)

    sides.look_past(leader)
    epoch = run.view.partitions[PARTITION].leader_epoch
    begin_ms = sides.isolate(leader)
    replaced = run.expect(
        f"{leader} is cut off: another one leads",
        {PARTITION: want(others[0], others)},
        run.parameters.noticed_s,
    )
    replaced_ms = time.monotonic() * 1000
    expect_two_leaders(run, sides, leader, epoch, given=replaced)
    producer, reader = clients or start_far(run, far)
    run.expect_flow(producer, "the others go on", SETTLE_S)
    expect_consumed(run, reader, "on the others' side")
    remaining_s = CUT_SESSIONS * run.parameters.session_s - seconds_since(begin_ms)
    run.steady(producer, max(remaining_s, run.parameters.duration_s))

    # Healed, the old leader goes on until it hears of the new one: that would not be in the copy.
    beside.signal(signal.SIGSTOP)
    copied = copy_log(run, leader)
    expect_two_leaders(run, sides, leader, epoch, given=replaced)
    heal_ms = sides.heal()
    sides.look_again(leader)
    run.expect(
        f"healed: {leader} follows, and is in sync",
        {PARTITION: want(others[0], (leader, *others))},
        AGAIN_S,
    )
    whole_s = seconds_since(heal_ms)
    beside.signal(signal.SIGCONT)
    run.expect_flow(beside, f"the client beside {leader} goes on", AGAIN_S)
    run.expect_flow(producer, "the others go on, healed", SETTLE_S)
    cut = Cut(
        leader=leader,
        epoch=epoch,
        begin_ms=begin_ms,
        replaced_ms=replaced_ms,
        heal_ms=heal_ms,
        beside=beside,
        copied=copied,
    )
    tell_sides(run, cut, producer)
    expect_one_leader_an_epoch(run)
    run.tables.append(
        Table(
            title="How long it took",
            header=["", "s"],
            rows=[
                ["from the cut until another one leads", f"{(replaced_ms - begin_ms) / 1000:.1f}"],
                [f"from healing until {leader} is in sync", f"{whole_s:.1f}"],
            ],
            note="TCP backs off while a link is cut, and goes on when its timer says so.",
        )
    )
    return cut


def start_far(run: Run, far: Side) -> tuple[Worker, Worker]:
    """Start a producer and a reader on the others' side. LabError: nothing is acknowledged."""
    producer = run.start_producer(**far.flags, **PATIENT)
    reader = run.start_readers(**far.flags, **READING)
    run.must_flow(producer)
    return producer, reader


def expect_two_leaders(run: Run, sides: Sides, leader: int, epoch: int, *, given: bool) -> None:
    """Check that the cut leader still says that it leads, and the others follow a later one.

    `given`: whether another one was seen to lead. If not, it may only do so later.
    """
    own, theirs = sides.believes(leader, PARTITION), run.view.partitions[PARTITION]
    run.check(
        "who leads, as each side says",
        f"{leader} for itself, in epoch {epoch}; for the others another one, in a later epoch",
        f"{own.leader} for {leader}, in epoch {own.leader_epoch}; for the others {theirs.leader}, "
        f"in epoch {theirs.leader_epoch}",
        kept=(own.leader, own.leader_epoch) == (leader, epoch)
        and theirs.leader != leader
        and theirs.leader_epoch > epoch,
        given=given or (own.leader, own.leader_epoch) != (leader, epoch),
    )


def copy_log(run: Run, node: int) -> set[Event]:
    """Keep a copy of a node's log once nothing is added to it; return what it holds. LabError."""
    ends: list[int] = []

    def still() -> bool:
        ends.append(end_of(run, node, PARTITION))
        return len(ends) >= STILL_LOOKS and len(set(ends[-STILL_LOOKS:])) == 1

    run.wait(f"nothing to be added to the log of {node}", still, SETTLE_S)
    copy = run.history.parent / COPY
    shutil.copytree(replica_directory(run, node, PARTITION), copy)
    run.note(f"the log of {node} ends at {ends[-1]}; it is kept as {copy.name}")
    return named(copy)


def named(directory: Path) -> set[Event]:
    """Return each event of one replica's files. DamagedFileError, OSError."""
    found = ((record.offset, id_of(record.value)) for record in stored_records(directory))
    return {Event(PARTITION, offset, name) for offset, name in found if name is not None}


def expect_only_its_own_lost(run: Run, cut: Cut) -> None:
    """Foretell the loss, offset by offset: what was acknowledged, and only the cut leader held."""
    winner = run.view.partitions[PARTITION].leader
    kept = {event.id for event in named(replica_directory(run, winner, PARTITION))}
    alone = {event for event in cut.copied if event.id not in kept}
    acknowledged = {
        Event(event.partition, event.offset, event.id)
        for event in events_of(history_files(run.history))
        if isinstance(event, Acknowledged) and event.offset is not None
    }
    while_cut = cut.acknowledged()
    run.check(
        f"what {cut.leader} acknowledged while it was cut",
        "in no log but its own",
        f"{len(while_cut & alone)} of {len(while_cut)} in its own alone",
        kept=while_cut <= alone,
    )
    run.lost_named = sorted(alone & acknowledged)
    run.lost_expected = len(run.lost_named)


def seconds_since(at_ms: float) -> float:
    return time.monotonic() - at_ms / 1000


SCENARIO = Scenario(
    name="split-brain",
    summary="The leader and a client are cut from all others: two brokers think that they lead.",
    text=(
        "Packets between one side, which has the leader and a client, and the other, which has the "
        "other brokers, all controllers and other clients, vanish. After the session another "
        "replica leads in a higher epoch; the old leader hears nothing of it, and goes on for its "
        "client. With acks=all it can acknowledge nothing, for its followers have left it, "
        "whatever min.insync.replicas is. Healed, it follows, and truncates what only it has. The "
        "control does the same with acks=1: what the cut leader acknowledges is lost, offset by "
        "offset what its log alone held."
    ),
    defaults=Parameters(
        partitions=1,
        network=True,
        racks=("a", "b", "c"),
        # It would like to drop its followers, and finds no controller.
        lab_config=SHORT_LAG,
    ),
    parts=(
        Part(name="main", title="acks=all, min ISR 2", steps=steps),
        Part(
            name="min-isr-1",
            title="acks=all, min ISR 1: the leader alone would be enough",
            steps=steps,
            change={"min_isr": 1},
        ),
        Control(
            title="Control: the same with acks=1",
            steps=with_acks_one,
            change={"acks": "1", "retries": 0},
            counted=LATE,
            because=LATE_BECAUSE,
        ),
    ),
    fixed=frozenset({"acks", "brokers", "min_isr", "partitions", "replication_factor", "signal"}),
)
