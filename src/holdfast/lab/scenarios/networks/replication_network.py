"""Brokers replicate over a network of their own: it is cut, and then that of clients is."""

from __future__ import annotations

import time

from holdfast.cluster.plan import BETWEEN_BROKERS, REPLICATION
from holdfast.cluster.probe import ask
from holdfast.lab.parameters import Parameters
from holdfast.lab.report import Table
from holdfast.lab.run import SETTLE_S, WORK_S, Run
from holdfast.lab.scenario import Part, Scenario
from holdfast.lab.steps.sides import (
    AGAIN_S,
    ANSWER_MS,
    ASK_S,
    PATIENT,
    READING,
    Sides,
    acknowledged_of,
)
from holdfast.lab.steps.usual import REFUSAL, expect_all_read, expect_consumed
from holdfast.lab.steps.wants import preferred, want, whole
from holdfast.lab.workload_processes import Worker

ZONES = ("a", "b", "c")  # a broker in each: it leads one partition, and follows in the others
LAG_MS = 4000
DROPPED_S = 30.0  # beyond the lag, for a follower to be dropped, on a slow machine
IN_SYNC_S = 10.0  # for a replica that lags on a slow machine, and is heard
STAYS = "replication goes on while clients' zones are cut from each other"


def replication_cut(run: Run) -> None:
    """No leader is heard by its followers: clients connect and read, and are refused."""
    run.make_topic()
    sides = Sides(run)
    expect_clients_addresses(run)
    everywhere = sides.of(*run.cluster.broker_ids)
    producer = run.start_producer(**everywhere.flags, **PATIENT)
    raw = run.start_raw(timeout_ms=ANSWER_MS, **everywhere.flags)
    reader = run.start_readers(**everywhere.flags, **READING)
    for sender in (producer, raw):
        run.must_flow(sender)
    run.steady(producer)

    brokers = run.cluster.broker_ids
    sides.cut("replication", "replication", brokers, "from each other, for replication")
    alone = {p: want(nodes[0], nodes[:1]) for p, nodes in run.replicas.items()}
    dropped_s = run.parameters.lag_s + DROPPED_S
    are_alone = run.expect("no follower is heard: each leader is alone", alone, dropped_s)
    alone_ms = time.monotonic() * 1000
    expect_refused(run, raw, "who was connected before")
    new = run.start_raw("raw-new", timeout_ms=ANSWER_MS, **everywhere.flags)
    expect_refused(run, new, "who connects now")
    latest = run.start_reader("reader-new", **everywhere.flags, **READING)
    expect_all_read(run, latest, (producer, raw), "who connects now reads all that is committed")
    heal_ms = sides.heal()
    run.expect("healed: all are in sync", whole(run.replicas), AGAIN_S)
    took_s = time.monotonic() - heal_ms / 1000
    for sender in (producer, raw, new):
        run.expect_flow(sender, f"{sender.name} goes on, healed", AGAIN_S)
    expect_consumed(run, reader, "healed")
    run.stop_workers()
    for sender in (raw, new):
        found = acknowledged_of(sender.history, alone_ms, heal_ms, told_by_ms=heal_ms)
        run.check(
            f"sent by {sender.name} while each leader was alone",
            "none acknowledged",
            f"{len(found)} acknowledged",
            kept=not found,
            given=are_alone,  # who is not alone yet may acknowledge
        )
    run.tables.append(
        Table(
            title="How long it took",
            header=["", "s"],
            rows=[["from healing until all are in sync", f"{took_s:.1f}"]],
            note="TCP backs off while a link is cut, and goes on when its timer says so.",
        )
    )


def expect_clients_addresses(run: Run) -> None:
    """Check that clients are told the addresses that are for them, and no broker's other one."""
    brokers = run.cluster.record.brokers
    asked = brokers[0].watch_address
    answer = run.wait("metadata", lambda: ask(asked, [run.topic], timeout_s=ASK_S), WORK_S)
    told = sorted(f"{host}:{port}" for host, port in answer.brokers.values())
    wanted = sorted(each.address for each in brokers)
    run.check(
        "addresses that clients are told", ", ".join(wanted), ", ".join(told), kept=told == wanted
    )


def expect_refused(run: Run, raw: Worker, who: str) -> None:
    """Check that a client is refused in each partition from now on, for want of replicas."""
    before = raw.tail.poll().errors.copy()

    def silent() -> list[int]:
        errors = raw.tail.poll().errors
        return [p for p in run.partitions if errors[REFUSAL, p] <= before[REFUSAL, p]]

    run.soon(lambda: not silent(), SETTLE_S)
    seen = f"not by {silent()}" if silent() else "in every partition"
    run.check(
        f"{who}: refused, {REFUSAL}", "in every partition", seen, kept=not silent(), late=True
    )


def zones_cut(run: Run) -> None:
    """Clients reach the broker in their zone alone; what it takes is replicated all the same."""
    run.make_topic()
    sides = Sides(run)
    clients = {
        broker: run.start_raw(f"raw-{zone}", timeout_ms=ANSWER_MS, **sides.of(broker).flags)
        for broker, zone in zip(run.cluster.broker_ids, ZONES, strict=True)
    }
    led = {p: nodes[0] for p, nodes in run.replicas.items()}
    for broker, client in clients.items():
        run.must_flow(client, [p for p in led if led[p] == broker])
    run.steady(clients[0])

    cut_zones(sides, run)
    begin_ms = time.monotonic() * 1000
    run.steady(clients[0], 2 * run.parameters.lag_s)  # that nothing happens can only be watched
    if run.expect(f"{STAYS}: in sync", preferred(run.replicas), IN_SYNC_S):
        for broker, client in clients.items():
            near = [p for p in led if led[p] == broker]
            run.expect_flow(client, f"{STAYS}: {client.name} beside {broker}", WORK_S, near)
    heal_ms = sides.heal()
    run.expect("healed: all are in sync", whole(run.replicas), AGAIN_S)
    for client in clients.values():
        run.expect_flow(client, f"{client.name} reaches all, healed", AGAIN_S)
    run.stop_workers()
    rows = []
    for broker, client in clients.items():
        found = acknowledged_of(client.history, begin_ms, heal_ms, told_by_ms=heal_ms)
        beyond = {p for p in led if led[p] != broker} & {event.partition for event in found}
        run.check(
            f"{client.name}, cut from all leaders but {broker}",
            "acknowledged by that one alone",
            f"by leaders of {sorted(beyond)} as well" if beyond else "by no other",
            kept=not beyond,
        )
        rows.append([client.name, str(broker), f"{len(found):,}"])
    run.tables.append(
        Table(
            title="What clients had acknowledged while their zones were cut from each other",
            header=["client", "reaches broker", "acknowledged"],
            rows=rows,
            note="Each with acks=all, on three replicas in three zones.",
        )
    )


def cut_zones(sides: Sides, run: Run) -> None:
    """Cut the zones' clients, and the brokers' addresses for clients, from those of other zones."""
    members = {
        zone: f"client-{zone},node-{broker}"
        for broker, zone in zip(run.cluster.broker_ids, ZONES, strict=True)
    }
    for number, zone in enumerate(ZONES):
        others = ",".join(members[other] for other in ZONES[number + 1 :])
        if others:
            hurt = () if number else run.cluster.broker_ids  # each is said once
            sides.cut(members[zone], others, hurt, "from other zones' clients and their network")


SCENARIO = Scenario(
    name="replication-network",
    summary="Brokers replicate over a network of their own: it is cut, and then the clients' is.",
    text=(
        "Each broker has a second address, inter.broker.listener.name names the listener there, "
        "and clients are told the first one alone. The network of the second ones is cut: clients "
        "connect and read what is committed, each leader drops its followers, and "
        "min.insync.replicas=2 refuses every event. Then the clients' network is cut between "
        "zones, so that clients reach the broker in their zone alone: all replicas stay in sync, "
        "and what is sent is acknowledged with acks=all. In the control brokers replicate over "
        "the clients' network: the same cut ends that."
    ),
    defaults=Parameters(
        network=True,
        racks=ZONES,
        config={BETWEEN_BROKERS: REPLICATION, "replica.lag.time.max.ms": str(LAG_MS)},
    ),
    parts=(
        Part(name="main", title="Replication's network is cut", steps=replication_cut),
        Part(name="clients", title="The clients' network is cut, zone by zone", steps=zones_cut),
        Part(
            name="control",
            title="Control: one network for both, cut zone by zone",
            steps=zones_cut,
            change={"config": {"replica.lag.time.max.ms": str(LAG_MS)}},
            breaks_check=STAYS,
        ),
    ),
    fixed=frozenset({"acks", "brokers", "min_isr", "replication_factor", "signal"}),
)
