"""Clients' links are cut: wholly, only what they say, only what they hear; from all, from one."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from holdfast.judge.groups.verdict import Commits
from holdfast.judge.verdict import Anomaly
from holdfast.lab.group import Group
from holdfast.lab.group_members import Member
from holdfast.lab.parameters import PIPELINED, Parameters, refuse_if
from holdfast.lab.report import Table
from holdfast.lab.run import SETTLE_S, WORK_S, Run
from holdfast.lab.scenario import Control, Part, Scenario
from holdfast.lab.scenarios.clients_cut_off import (
    DELIVERY_MS,
    DONE,
    DOUBLED,
    DOUBLED_BECAUSE,
    LONG_S,
    QUEUE,
    QUEUE_WAIT_S,
    SHORT_S,
    expect_session,
    expect_told,
    tally,
    told,
)
from holdfast.lab.steps.controllers import Counts, counts_of
from holdfast.lab.steps.groups import begin_load, both, finish
from holdfast.lab.steps.sides import AGAIN_S, PATIENT, Side, Sides
from holdfast.lab.workload_processes import Worker

ZONES = ("a", "b", "c")
# What becomes of the clients of each zone. Unheard: what they send is lost; deaf: the answers are.
WAYS = {"a": "cut off", "b": "unheard", "c": "deaf"}
RATE = 40.0  # of each producer in a zone
STAYING = 2  # members of each group whom nothing is done to
PATIENCE = "socket.timeout.ms=5000"  # librdkafka waits a minute for an answer
GIVING_UP: dict[str, Any] = {
    "delivery_timeout_ms": DELIVERY_MS,
    "queue_wait": QUEUE_WAIT_S,
    "config": [
        f"queue.buffering.max.messages={QUEUE}",
        "request.timeout.ms=2000",
        PATIENCE,
    ],
}


@dataclass(slots=True)
class Scene:
    """A run's clients: in each zone a producer and a member of each group; others outside."""

    run: Run
    sides: Sides
    load: Worker  # nothing is done to it
    producers: dict[str, Worker] = field(default_factory=dict)  # by zone
    groups: list[Group] = field(default_factory=list)
    victims: dict[Group, dict[str, Member]] = field(default_factory=dict)  # by zone
    # when links were cut:
    owned: dict[Member, set[int]] = field(default_factory=dict)
    in_vain: dict[Member, Counter[str]] = field(default_factory=dict)

    @contextmanager
    def cut(self, brokers: Collection[int]) -> Iterator[float]:
        """Cut each zone's clients from these brokers in its way; when that began, in ms."""
        names = ",".join(map(str, sorted(brokers)))
        for group, victims in self.victims.items():
            for victim in victims.values():
                self.owned[victim] = set(victim.told.begun)
                self.in_vain[victim] = victim.told.in_vain
                group.note_fault("CUT", victim)
        begin_ms = time.monotonic() * 1000
        for zone, way in WAYS.items():
            clients = self.sides.client_of(place_of(self.run, self.sides, zone))
            self.run.note(f"{clients} is {way}: of brokers {names}")
            a, b = (names, clients) if way == "deaf" else (clients, names)
            self.sides.cut(a, b, (), way, one_way=way != "cut off")
        yield begin_ms
        self.sides.heal()
        self.run.note("all links are whole")
        for group, victims in self.victims.items():
            for victim in victims.values():
                group.note_fault("HEAL", victim)


def place_of(run: Run, sides: Sides, zone: str) -> Side:
    """Return where clients of a zone stand, and whom they ask first: everybody.

    LabError: clients can't stand in zones here.
    """
    refuse_if(
        not sides.has_places,
        "clients are to be cut off one by one, and behind proxies they can't be told apart",
    )
    near = sides.nodes_of(zone)[0]
    return sides.of(near, *(node for node in run.cluster.broker_ids if node != near))


def begin(run: Run, name: str, **producers: Any) -> Scene:
    """Start clients in every zone and outside, and wait until all of them have begun. LabError."""
    scene = Scene(run, Sides(run), begin_load(run))
    places = {zone: place_of(run, scene.sides, zone).flags for zone in ZONES}
    for zone, place in places.items():
        scene.producers[zone] = run.start_producer(
            f"producer-{zone}", **place, **{"rate": RATE, **producers}
        )
    scene.groups = both(run, name, config=PATIENCE)
    for group in scene.groups:
        scene.victims[group] = {
            zone: group.start(f"{group.name}-{zone}", **place) for zone, place in places.items()
        }
        group.start_several(STAYING)
    for producer in scene.producers.values():
        run.must_flow(producer)
    return scene


def shorter(run: Run) -> None:
    """Cut for less than they wait, from all brokers: nobody outside notices anything."""
    scene = begin(run, "short", config=[*PATIENT["config"], PIPELINED])  # no leader changes
    before = [told(group) for group in scene.groups]
    with scene.cut(run.cluster.broker_ids):
        run.steady_view(SHORT_S / 2)  # that nothing happens can only be watched
        counts = counts_of(scene.producers.values())
        run.steady_view(SHORT_S / 2)
        refuse_heard(scene, counts)
    for group, then in zip(scene.groups, before, strict=True):
        group.expect_progress(f"links were cut for {SHORT_S:g} s")
        group.expect_commits(f"links were cut for {SHORT_S:g} s")
        kept = told(group) == then
        run.check(f"{group.name}: rebalances", "none", "none" if kept else "some", kept=kept)
    for producer in scene.producers.values():
        run.expect_flow(producer, f"{producer.name} goes on", AGAIN_S)
    end(scene, is_short=True)


def longer(run: Run) -> None:
    """Cut for more than they wait, from all brokers: what was not acknowledged is told."""
    scene = begin(run, "long", **GIVING_UP)
    hold(scene)
    with scene.cut(run.cluster.broker_ids) as begin_ms:
        expect_replaced(scene, begin_ms)
        left_s = LONG_S - (time.monotonic() - begin_ms / 1000)
        run.steady_view(max(left_s, 0.0))
    let_go(scene)
    expect_in_vain(scene)
    expect_back(scene)
    end(scene, is_short=False)


def coordinator(run: Run) -> None:
    """Cut from the groups' coordinators alone: members read from the others, and are out."""
    scene = begin(run, "apart", **PATIENT)
    nodes = {group.coordinator() for group in scene.groups}
    hold(scene)  # else one that reads nothing meanwhile may have nothing to commit
    with scene.cut(nodes) as begin_ms:
        let_go(scene)
        expect_replaced(scene, begin_ms)
    expect_in_vain(scene)
    expect_back(scene)
    end(scene, is_short=True)


def hold(scene: Scene) -> None:
    """Let victims stand still in a batch, so that each has something to commit when it goes on."""
    for group in scene.groups:
        group.hold(dict.fromkeys(scene.victims[group].values(), DONE))


def let_go(scene: Scene) -> None:
    for group in scene.groups:
        group.let_go(*scene.victims[group].values())


def refuse_heard(scene: Scene, before: Mapping[str, Counts]) -> None:
    """LabError: a producer was acknowledged although its links are cut. So they aren't."""
    for zone, producer in scene.producers.items():
        count = Counts.of(producer).acknowledged - before[producer.name].acknowledged
        refuse_if(count, f"{producer.name} is {WAYS[zone]}, and {count} events are acknowledged")


def expect_replaced(scene: Scene, begin_ms: float) -> None:
    """Wait until those who stay have all partitions, and check that it was not before its time."""
    for group in scene.groups:
        victims = scene.victims[group]
        group.wait_shared([each for each in group.members if each not in victims.values()])
        for zone, victim in victims.items():
            expect_session(group, victim, begin_ms, f"is {WAYS[zone]}", scene.owned[victim])
        group.expect_progress("members whom nobody hears are out")


def expect_in_vain(scene: Scene) -> None:
    """Check that no member commits for partitions that others have by then.

    What was answered no before links were cut, as members came, is of no account.
    """
    for victim, before in scene.in_vain.items():
        expect_commit_in_vain(scene.run, victim, before)


def expect_commit_in_vain(run: Run, victim: Member, before: Counter[str]) -> None:
    run.soon(lambda: bool(victim.told.in_vain - before), WORK_S)
    found = dict(victim.told.in_vain - before)
    run.check(
        f"{victim.name}, once it commits",
        "refused, or in doubt",
        str(found or "neither"),
        kept=bool(found),
    )


def expect_back(scene: Scene) -> None:
    """Check that all members share the partitions again, and all producers go on."""
    for group in scene.groups:
        group.wait_shared()
        group.expect_progress("all links are whole")
    for producer in scene.producers.values():
        scene.run.expect_flow(producer, f"{producer.name} goes on", AGAIN_S)


def end(scene: Scene, *, is_short: bool) -> None:
    """End all clients, those first to whom something was done; check what producers were told."""
    for producer in scene.producers.values():
        producer.stop()
    finish(scene.groups, scene.load)
    for producer in scene.producers.values():
        expect_told(scene.run, producer, all_acknowledged=is_short)
    scene.run.tables.append(tally_table(list(scene.producers.values())))


def tally_table(producers: Sequence[Worker]) -> Table:
    return Table(
        title="What producers were told",
        header=["producer", "is", "sent", "acknowledged", "refused", "unknown"],
        rows=[
            [each.name, WAYS[each.name[-1]], *(f"{count:,}" for count in tally(each))]
            for each in producers
        ],
        note="Unheard: what it sends is lost. Deaf: what it is sent is lost.",
    )


# -- the control -----------------------------------------------------------------------------------


def deaf(run: Run) -> None:
    """Control: a producer that isn't idempotent sends again what it hears no answer to."""
    run.make_topic()
    sides = Sides(run)
    side = place_of(run, sides, ZONES[-1])
    producer = run.start_producer(
        retries=5,
        config=["socket.timeout.ms=1000", "max.in.flight.requests.per.connection=1"],
        **side.flags,
    )
    run.must_flow(producer)
    run.note(f"{side.place} is deaf: it is acknowledged, and does not hear so")
    sides.cut("brokers", sides.client_of(side), (), "deaf", one_way=True)
    run.steady_view(SHORT_S)
    sides.heal()
    run.expect_flow(producer, "all links are whole", SETTLE_S)


SCENARIO = Scenario(
    name="client-links-cut",
    summary="Links of producers and consumers are cut, both ways and one way.",
    text=(
        "In one zone clients are cut off, in another brokers don't hear them, in the third they "
        "hear nothing; others go on. For less than they wait each record is there once, and no "
        "group rebalances. For more, each record that is not acknowledged is told; members are "
        "out once their session is over, not before, and what they try to commit then is refused: "
        "nothing is skipped. Members that are cut from their group's coordinator alone, and reach "
        "other brokers, are out as well. The control sends again without idempotence "
        "what it has heard no answer to: it is there twice. Groups are of both protocols."
    ),
    defaults=Parameters(commits=Commits.AFTER, network=True, racks=ZONES, partitions=5),
    parts=(
        Part(name="main", title="For less than they wait", steps=shorter),
        Part(
            name="longer",
            title="For more than they wait",
            steps=longer,
            met=("producer-a", "_MSG_TIMED_OUT"),
            counted=DOUBLED,
            counted_of=frozenset(f"producer-{zone}" for zone in ZONES),  # the load gives nothing up
            because=DOUBLED_BECAUSE,
        ),
        Part(name="coordinator", title="From their group's coordinator alone", steps=coordinator),
        Control(
            title="Control: deaf, and retries without idempotence",
            steps=deaf,
            change={"retries": 0, "partitions": 1, "commits": None},
            breaks_with=Anomaly.DUPLICATED,
        ),
    ),
    fixed=frozenset({"acks", "brokers", "replication_factor", "min_isr", "signal"}),
    least={"partitions": 5},
)
