"""Of three addresses that clients are told one lives; and why one for all is not enough."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from signal import SIGTERM

from holdfast.clients.blocking_driver import parse_addresses
from holdfast.cluster import plan
from holdfast.lab.parameters import Parameters, refuse_if
from holdfast.lab.run import SETTLE_S, Run
from holdfast.lab.scenario import Part, Scenario
from holdfast.lab.steps.balancer import Balancer
from holdfast.lab.steps.mishaps import must_come
from holdfast.lab.steps.sides import ANSWER_MS, PATIENT, READING, Sides
from holdfast.lab.steps.usual import bring_back, elect, elect_preferred, expect_consumed
from holdfast.lab.steps.wants import preferred, without

LIVE, DEAD, SILENT = 0, 3, 4  # whose addresses clients are told; the topic is on 0, 1 and 2
REPLICAS: Mapping[int, tuple[int, ...]] = {0: (1, 0, 2), 1: (2, 1, 0), 2: (0, 2, 1)}
FIND_S = 40.0  # to try addresses until one answers: librdkafka gives a silent one up to 30 s
REACHES = "every partition's leader is reached"
BEHIND_S = 10.0  # for a client behind the balancer; who goes to leaders needs no second
# Behind the balancer: by luck some are led right, with three leaders one in six at most.
CLIENTS = 5
DELIVERY_MS = 5000
ADVERTISED = "advertised.listeners"


def steps(run: Run) -> None:
    """One live address is enough, and once a client knows the cluster it needs none of them."""
    run.make_topic(REPLICAS)
    sides = Sides(run)
    told = sides.of(DEAD, SILENT, LIVE)
    run.fault("KILL", DEAD)
    sides.cut(sides.client_of(told), str(SILENT), [SILENT], "from its clients")
    must_come(
        run,
        f"{DEAD} to be known as dead",
        lambda: DEAD not in run.view.brokers,
        run.parameters.noticed_s,
    )
    run.note(f"clients are told {told.servers}: the first refuses, the second is silent")
    producer = run.start_producer(**told.flags, **PATIENT)
    raw = run.start_raw(timeout_ms=ANSWER_MS, **told.flags)
    reader = run.start_readers(**told.flags, **READING)
    for sender in (producer, raw):
        run.expect_flow(sender, f"{sender.name}, told one live address: {REACHES}", FIND_S)
    expect_consumed(run, reader, "told one live address")
    if sides.has_places:
        refuse_unasked(sides)
    run.steady(producer)

    run.fault("KILL", LIVE)
    run.expect(
        f"{LIVE}, whose address was the live one, is dead",
        without(REPLICAS, {LIVE}),
        run.parameters.noticed_s,
    )
    for sender in (producer, raw):
        run.expect_flow(sender, f"{sender.name}, told no live address now: {REACHES}", SETTLE_S)
    expect_consumed(run, reader, "no address that it was told lives")
    bring_back(run, LIVE)
    run.start_node(DEAD)
    sides.heal()
    elect_preferred(run, producer)
    expect_consumed(run, reader, "all are back")


def refuse_unasked(sides: Sides) -> None:
    """LabError: nothing that was sent to the silent broker has vanished: it is not silent."""
    refuse_if(
        not sides.dropped(),
        f"no client has asked {SILENT}, or it isn't silent: its links have dropped no packet",
    )


def behind_balancer(run: Run) -> None:
    """Control: all brokers advertise one balancer, which leads each connection to the next one."""
    run.make_topic(REPLICAS)
    refuse_if(
        any(node.outside_port is None for node in run.cluster.record.brokers),
        "this part needs brokers whose clients have a listener of their own: proxies stand in for "
        "the network here, and there is none",
    )
    doors = [run.cluster.node(node).outside_address for node in run.cluster.broker_ids]
    targets = parse_addresses(",".join(doors))
    with closing(Balancer(targets)) as balancer:
        run.note(f"brokers advertise {balancer.address}, which leads to {', '.join(doors)} in turn")
        restored = advertise(run, balancer.address)
        elect(run)  # brokers were restarted: with fewer leaders more would be led right
        run.expect("each broker leads a partition", preferred(run.replicas))
        clients = [
            run.start_producer(
                f"balanced-{number}",
                bootstrap_server=balancer.address,
                delivery_timeout_ms=DELIVERY_MS,
            )
            for number in range(1, CLIENTS + 1)
        ]
        for client in clients:
            name = f"{client.name}, told one address for all: {REACHES}"
            if not run.expect_flow(client, name, BEHIND_S):
                break  # one is enough
        refuse_unled(balancer, targets)
        for client in clients:  # all at once: each waits in vain for what it has in flight
            client.may_end()
            client.signal(SIGTERM)
        for client in clients:
            client.wait()
    run.note("brokers advertise addresses of their own again")
    rewrite(run, restored)
    run.must_flow(run.start_producer("told-each"))


def refuse_unled(balancer: Balancer, targets: Sequence[tuple[str, int]]) -> None:
    """LabError: some broker was never led to, so it is the balancer that nobody gets through."""
    missed = [f"{host}:{port}" for host, port in targets if not balancer.led[host, port]]
    refuse_if(missed, f"the balancer has led no connection to {', '.join(missed)}")


def advertise(run: Run, address: str) -> dict[int, str]:
    """Let each broker name this address to clients outside; what its file said."""
    before = {}
    after = {}
    for node in run.cluster.broker_ids:
        text = Path(run.cluster.node(node).config_file).read_text(encoding="utf-8")
        before[node] = text
        after[node] = plan.with_config(text, {ADVERTISED: named_outside(text, address)})
    rewrite(run, after)
    return before


def named_outside(text: str, address: str) -> str:
    """Return what a broker with these properties advertises, its address outside replaced."""
    lines = (line.partition("=") for line in text.splitlines())
    listeners = next(value for key, _, value in lines if key.strip() == ADVERTISED)
    return ",".join(
        f"OUTSIDE://{address}" if each.startswith("OUTSIDE://") else each
        for each in listeners.split(",")
    )


def rewrite(run: Run, texts: Mapping[int, str]) -> None:
    """Restart brokers in turn, each with these properties."""
    for node, text in texts.items():
        run.fault("TERM", node)
        Path(run.cluster.node(node).config_file).write_text(text, encoding="utf-8")
        bring_back(run, node)


SCENARIO = Scenario(
    name="partial-bootstrap",
    summary="Of the three addresses that clients are told, one lives; then it dies, too.",
    text=(
        "Clients start with three addresses in bootstrap.servers: one refuses, because its broker "
        "is dead; one is silent, because the link to it is cut; one lives. That is enough: a "
        "client asks whoever answers who leads what, and goes to the leaders. When the broker at "
        "the live address dies, clients go on with those they have heard of. In the control all "
        "brokers advertise the address of a balancer, which leads each connection to the next "
        "broker: a client can't reach the leader that it means, and partitions stand still."
    ),
    defaults=Parameters(brokers=5, network=True),
    parts=(
        Part(name="main", title="One live address of three", steps=steps),
        Part(
            name="control",
            title="Control: one address for all, a balancer's",
            steps=behind_balancer,
            change={"brokers": 3, "retries": 0},
            breaks_check=REACHES,
        ),
    ),
    fixed=frozenset({"acks", "brokers", "min_isr", "partitions", "replication_factor", "signal"}),
)
