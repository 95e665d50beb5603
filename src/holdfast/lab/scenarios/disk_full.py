"""A file system runs full under load: one of a broker's two, its only one, a controller's."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from pathlib import Path

from holdfast.clients.blocking_driver import Driver, DriverError
from holdfast.clients.replica_files import stored_replica
from holdfast.cluster.layout import EMBEDDED
from holdfast.cluster.nodes import NodeStatus
from holdfast.cluster.processes import START_MARK
from holdfast.config.figures import LOG_DIRS_OFFLINE
from holdfast.judge.history import Acknowledged
from holdfast.lab.parameters import Parameters, refuse_if
from holdfast.lab.run import SETTLE_S, Run
from holdfast.lab.scenario import Control, Part, Scenario
from holdfast.lab.scenarios.write_anomaly import (
    FETCH_WAIT_MS,
    PARKED_MARGIN_MS,
    SESSION_MS,
    expect_replaced,
)
from holdfast.lab.steps.controllers import (
    CHANGE_S,
    active_controller,
    expect_next_controller,
    wait_quorum_whole,
)
from holdfast.lab.steps.mishaps import must_come
from holdfast.lab.steps.small_disks import SPARE_BYTES, SmallDisk
from holdfast.lab.steps.usual import (
    Clients,
    begin,
    bring_back,
    elect_preferred,
    settle,
    start_exact,
)
from holdfast.lab.steps.wants import Want, preferred, without
from holdfast.wire.administration import AdminError, alter_configs, describe_configs
from holdfast.wire.structs import ResourceType

VICTIM = 1  # leads some of the topic's partitions, and follows in all others
FULL, NO_SPACE = "the disk is full", "No space left on device"  # in our words, and the system's
LARGE = "large"  # who writes what does not fit any more
REFUSAL = "KAFKA_STORAGE_ERROR"
SENT_MAX = 200  # events that fit into what the last page of a file has left

# Of changes of metadata: a setting of a group that nobody is in, which is not its default.
GROUP, SETTING, VALUE = "of-nobody", "consumer.session.timeout.ms", "50000"
ANSWER_S = 10.0  # for one of them; what hangs for longer is given up, and counts for nothing


def one_of_two(run: Run) -> None:
    """What lies in the full directory goes on elsewhere; the broker's other one serves on."""
    disk = SmallDisk(run, VICTIM, only=False)
    clients = begin(run)
    run.steady(clients.producer, 1.0)
    lost = [p for p in run.partitions if disk.holds(p)]
    led = [p for p in run.partitions if run.replicas[p][0] == VICTIM]
    refuse_if(
        not set(led) & set(lost) or not set(led) - set(lost),
        f"broker {VICTIM} leads P{led} and has P{lost} in its second directory: the run needs some "
        "that it leads in both",
    )
    wanted: Mapping[int, Want] = {
        **preferred(run.replicas),
        **without({p: run.replicas[p] for p in lost}, {VICTIM}),
    }
    # It does not fit, so nothing excuses an acknowledgement, even by the leader alone.
    large = run.raw_client(LARGE, acks="1", size=2 * SPARE_BYTES)
    disk.fill(SPARE_BYTES)
    outcome = large.send(min(set(led) & set(lost)))
    run.note(f"twice as much is sent to a partition that {VICTIM} leads there: {outcome.KIND}")
    full = f"one of the two directories of {VICTIM} is full"
    run.expect(full, wanted)
    run.expect_flow(clients.raw, full, SETTLE_S)
    expect_told(run, VICTIM, "has it offline", lambda status: status.figures.get(LOG_DIRS_OFFLINE))
    run.steady(clients.producer)
    disk.make_room()
    run.steady_view(1.0)
    run.expect("there is room, and the broker has not been started again", wanted)
    run.fault("TERM", VICTIM)
    bring_back(run, VICTIM, f"{VICTIM} is started again")
    elect_preferred(run, clients.producer)
    run.steady(clients.producer, 1.0)


def only_one(run: Run) -> None:
    """A broker whose only directory is full ends by itself, and so does a controller."""
    disk = SmallDisk(run, VICTIM, only=True)
    controllers = {node: SmallDisk(run, node, only=True) for node in run.cluster.controller_ids}
    clients = begin(run)
    run.steady(clients.producer, 1.0)
    disk.fill(SPARE_BYTES)
    expect_end(run, VICTIM)
    full = f"the only directory of {VICTIM} is full"
    run.expect(full, without(run.replicas, {VICTIM}))
    run.expect_flow(clients.raw, full, SETTLE_S)
    run.steady(clients.producer)
    disk.make_room()
    bring_back(run, VICTIM)
    elect_preferred(run, clients.producer)
    controller_full(run, clients, controllers)
    run.steady(clients.producer, 1.0)


def controller_full(run: Run, clients: Clients, disks: Mapping[int, SmallDisk]) -> None:
    """The active controller's disk is full: another one is active, and nobody loses a replica."""
    before = wait_quorum_whole(run)
    disk = disks[before.leader]
    acknowledged = clients.raw.tail.poll().count(Acknowledged)
    full = f"the disk of the active controller, {before.leader}, is full"
    settings = GroupSettings(run)
    must_come(run, "a change of metadata before that", settings.change, CHANGE_S)
    disk.fill()
    # Who has nothing to write meets no full disk, and a file's last page takes some changes yet.
    expect_end(run, before.leader, settings.change)
    ended_s = time.monotonic()
    expect_next_controller(run, full, before)
    must_come(run, f"{full}: the first metadata change", settings.change, CHANGE_S)
    took_s = time.monotonic() - ended_s
    run.note(f"metadata change again {took_s:.1f} s after {before.leader} has ended")
    run.expect(full, preferred(run.replicas))
    run.expect_flow(clients.raw, full, SETTLE_S)
    more = clients.raw.tail.poll().count(Acknowledged) - acknowledged
    run.note(f"{more} events acknowledged meanwhile")
    disk.make_room()
    run.start_node(before.leader)
    wait_quorum_whole(run)
    active_controller(run)
    settings.expect_kept()


class GroupSettings:
    """Changes metadata: each time a setting of another group, so that none hides another's loss."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._driver = Driver(run.cluster.bootstrap_servers, "changer", timeout_s=ANSWER_S)
        run.afterwards.callback(self._driver.close)
        self._numbers = count()
        self._made: list[str] = []

    def change(self) -> bool:
        """Make one change. False: it is refused, or not answered; nobody is promised that one."""
        group = f"{GROUP}-{next(self._numbers)}"
        try:
            self._driver.perform(alter_configs(ResourceType.GROUP, group, {SETTING: VALUE}))
        except (AdminError, DriverError):
            return False
        self._made.append(group)
        return True

    def expect_kept(self) -> None:
        """Check that every broker knows all that was made, once it knows the last of it."""
        lost = max(self._lost_at(broker) for broker in self._run.cluster.broker_ids)
        self._run.check(
            "changes of metadata that were acknowledged",
            f"all {len(self._made)} kept",
            f"{lost} lost",
            kept=not lost,
        )

    def _lost_at(self, broker: int) -> int:
        last, all_of_them = self._made[-1:], self._made
        learns = f"broker {broker} learns of the last change of metadata"
        must_come(self._run, learns, lambda: self._values(broker, last) == [VALUE], SETTLE_S)
        tells = f"broker {broker} tells of all of them"
        values = must_come(self._run, tells, lambda: self._values(broker, all_of_them), SETTLE_S)
        return len(all_of_them) - values.count(VALUE)

    def _values(self, broker: int, groups: Sequence[str]) -> list[str | None]:
        """Return what a broker has of these, their defaults included; empty: it does not answer."""
        asked = describe_configs(ResourceType.GROUP, groups, [SETTING])
        try:
            found = self._driver.perform(asked, node=broker)
        except (AdminError, DriverError):
            return []
        return [entry.value for group in groups for entry in found[group]]


def leader_alone(run: Run) -> None:
    """Followers stand still, the leader acknowledges by itself, and then its disk is full."""
    leader, *followers = run.parameters.assignment()[0]
    disk = SmallDisk(run, leader, only=True)
    client, _ = start_exact(run, acks="1", timeout_ms=2000)
    settle(run, 0)
    run.fault("STOP", *followers)
    stopped_s = time.monotonic()
    parked_s = (FETCH_WAIT_MS + PARKED_MARGIN_MS) / 1000
    run.wait(
        "the followers' last fetches to be answered",
        lambda: time.monotonic() - stopped_s > parked_s,
        parked_s + 5,
    )
    disk.fill()
    outcomes = [client.send(0)]
    while isinstance(outcomes[-1], Acknowledged) and len(outcomes) < SENT_MAX:
        outcomes.append(client.send(0))
    told = [each.offset for each in outcomes if isinstance(each, Acknowledged)]
    run.note(f"{len(told)} events acknowledged by {leader} alone, until its disk is full")
    run.fault("CONT", *followers)
    stretch_s = time.monotonic() - stopped_s
    refuse_if(
        stretch_s >= run.parameters.session_s * 0.8,
        f"the followers stood still for {stretch_s:.1f} s of a session of "
        f"{run.parameters.session_s:g} s: this machine is too busy for the schedule",
    )
    refuse_if(not told, "not one event fitted into the full disk: nothing can be lost")
    expect_end(run, leader)
    alone = expect_written(run, leader, told, stored_replica(disk.replica(0)).end)
    disk.make_room()
    when = "the one whose disk is full is replaced by one who lacks the events"
    expect_replaced(run, client, when, (leader, *followers))
    run.lost_expected = alone


def expect_written(run: Run, leader: int, told: Sequence[int | None], end: int) -> int:
    """Check that a log that ends at `end` has each event that its leader acknowledged there.

    Return how many: only they can be lost with the disk. The others never were anywhere.
    """
    written = sum(offset is not None and offset < end for offset in told)
    run.check(
        f"what {leader} acknowledged alone",
        f"{len(told)} events in its log",
        f"{written}, the log ends at {end}",
        kept=written == len(told),
    )
    return written


def expect_end(run: Run, node: int, meanwhile: Callable[[], object] = lambda: None) -> None:
    """Check that a node ends by itself, and says why in its last line.

    `meanwhile` is done again and again until then.
    """

    def has_ended() -> bool:
        meanwhile()
        return run.cluster.state(node) == "dead"

    if node in run.cluster.broker_ids:
        run.observer.avoid(node)
    run.ended.add(node)
    ended = run.soon(has_ended, SETTLE_S)
    run.check(
        f"{node}, on a full disk alone",
        "ends by itself",
        "has ended" if ended else f"runs after {SETTLE_S:.0f} s",
        kept=ended,
        late=True,
    )
    expect_told(run, node, "has ended", lambda status: status.ended_with, given=ended)


def expect_told(
    run: Run,
    node: int,
    what: str,
    told: Callable[[NodeStatus], object],
    *,
    given: bool = True,
) -> None:
    """Check that the cause stands in `holdfast status`, and in the node's log, once.

    `given`: whether the node has come to say it; if that was only late, so is this.
    Of nodes that are not ours status knows nothing, and their logs have the system's own words.
    """

    def words() -> str:
        return next(
            str(told(each) or "") for each in run.cluster.status().nodes if each.node.id == node
        )

    def lines(*said: str) -> int:
        log = Path(run.cluster.node(node).log_file).read_text(encoding="utf-8", errors="replace")
        since = log.rpartition(START_MARK)[2]
        return sum(all(each in line for each in said) for line in since.splitlines())

    if run.parameters.engine != EMBEDDED:
        run.soon(lambda: bool(lines(NO_SPACE)), SETTLE_S)
        seen = f"{lines(NO_SPACE)} times"
        name = f"the log of {node}, which {what}"
        run.check(name, NO_SPACE, seen, kept=bool(lines(NO_SPACE)), given=given)
        return
    run.soon(lambda: FULL in words(), SETTLE_S)
    seen = words()
    name = f"`holdfast status` of {node}, which {what}"
    run.check(name, FULL, seen or "nothing", kept=FULL in seen, given=given)
    times = lines("goes offline", FULL)
    name = f"the log of {node}, which {what}"
    run.check(name, "says so once", f"{times} times", kept=times == 1, given=given)


SCENARIO = Scenario(
    name="disk-full",
    summary="A file system fills up: one of a broker's two, its only one, a controller's.",
    text=(
        "One of a broker's two log directories is full: what lies there is led by others and "
        "leaves every ISR, what lies in the other one stays. The first that meets it is a leader's "
        "append, and it is refused. Room alone does not bring it back, a"
        " new start does, and it copies what it lacks. A broker whose only directory is full ends"
        " by itself, and so does a controller; the others go on. Nothing acknowledged is lost, "
        "metadata included, and `holdfast status` and the log name the cause. In the control the "
        "followers stand still and acks=1 is enough: what only the full disk holds is lost. The "
        "file systems are small ones in memory, of this run alone; where they can't be had, it "
        "says so."
    ),
    defaults=Parameters(partitions=6, controllers=3),
    parts=(
        Part(
            name="main",
            title="One of a broker's two directories",
            steps=one_of_two,
            met=(LARGE, REFUSAL),
        ),
        Part(name="only", title="A broker's only directory, and a controller's", steps=only_one),
        Control(
            title="Control: acks=1, and followers that stand still",
            steps=leader_alone,
            change={
                "acks": "1",
                "partitions": 1,
                "retries": 0,
                "config": {"broker.session.timeout.ms": SESSION_MS},
            },
        ),
    ),
    fixed=frozenset(
        {
            "acks",
            "brokers",
            "combined",
            "partitions",
            "replication_factor",
            "min_isr",
            "signal",
            "elr",
        }
    ),
    least={"controllers": 3},
)
