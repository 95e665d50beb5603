"""All controllers are gone: data go on, metadata stand still, and all recovers afterwards."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from holdfast.clients.administration import perform_patiently
from holdfast.clients.blocking_driver import AnswerTimeoutError, Driver, DriverError
from holdfast.clients.group_coordinators import Coordinators
from holdfast.clients.group_descriptions import committed
from holdfast.clients.topic_descriptions import described
from holdfast.cluster.layout import APACHE, EMBEDDED, OLDER
from holdfast.cluster.processes import log_tail
from holdfast.judge.history import Acknowledged
from holdfast.lab.parameters import Parameters
from holdfast.lab.run import SETTLE_S, Run
from holdfast.lab.scenario import Control, Part, Scenario
from holdfast.lab.scenarios.write_anomaly import SESSION_MS, expect_replaced, strike
from holdfast.lab.steps.controllers import counts_of, expect_undisturbed
from holdfast.lab.steps.usual import (
    Clients,
    acknowledge,
    begin,
    bring_back,
    elect_preferred,
    expect_consumed,
    expect_only_flows,
)
from holdfast.lab.steps.wants import preferred, without
from holdfast.lab.workload_processes import Worker
from holdfast.wire.administration import AdminError, AdminRequest, alter_configs, create_topic
from holdfast.wire.errors import ErrorCode
from holdfast.wire.structs import ResourceType

VICTIM = 2  # leads P1, follows in P2
LED, FOLLOWED, UNTOUCHED = 1, 2, 0  # partitions, as the victim sees them
SAID_MAX = 1000  # lines at the end of a log
GROUP_OFFSETS, OFFSETS_PARTITIONS = "__consumer_offsets", 50  # Kafka's own
REQUEST_TIMEOUT_MS = 8000  # of brokers: how long ours try to reach a controller


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long an engine's brokers look for a controller, and what one says that goes without.

    With ZooKeeper there is no end to it: a change has no answer, and who is asked to leave stays.
    Then it is how long the lab looks on.
    """

    answer_s: float  # until a change that nobody can make has an answer
    exit_s: float  # from SIGTERM to the process's end
    last_words: str | None  # None: it stays, without a word


# Both may take a little longer than what they are bounded by. Of Apache Kafka neither is a config:
# a broker forwards a request for a minute, and a leaving one waits five minutes for its word.
PATIENCE: Mapping[str, Patience] = {
    EMBEDDED: Patience(
        answer_s=REQUEST_TIMEOUT_MS / 1000 + SETTLE_S,
        exit_s=31.0,  # 30 s
        last_words="without the controller's word",
    ),
    APACHE: Patience(
        answer_s=60 + SETTLE_S,
        exit_s=330.0,
        last_words="Timed out waiting for the controller to approve controlled shutdown",
    ),
    OLDER: Patience(answer_s=REQUEST_TIMEOUT_MS / 1000 + SETTLE_S, exit_s=30.0, last_words=None),
}


def steps(run: Run) -> None:
    if run.parameters.engine == OLDER:
        settle_with_zookeeper(run)
    clients = begin(run)
    run.steady(clients.producer, 1.0)
    outage(run, clients, "TERM")
    outage(run, clients, "KILL")


def settle_with_zookeeper(run: Run) -> None:
    """Have done what the end of ZooKeeper would meet in the middle. Call this before begin.

    The broker that is hurt must not be the controller: what nobody has answered would die with it.
    And a broker reads a new topic's settings from ZooKeeper, and handles nothing else while it has
    to wait: so the topic of committed offsets, which a reader's client makes, is made before all
    others. A controller sends a broker one request at a time: who has taken up a later topic has
    taken up this one.
    """
    bound_s = run.parameters.start_s
    if run.driver.metadata([]).controller_id == VICTIM:
        run.ended.add(VICTIM)
        run.cluster.kill(VICTIM, "TERM", timeout_s=run.parameters.leave_s)
        run.cluster.start_node(VICTIM, timeout_s=bound_s)
        run.ended.discard(VICTIM)

    def elsewhere() -> bool:
        return run.driver.metadata([]).controller_id not in {-1, VICTIM}

    def made() -> bool:
        committed(Coordinators(run.driver, patience_s=0.0), [run.topic])  # whoever asks has it made
        states = run.cluster.partitions(GROUP_OFFSETS) or {}
        led = [each for each in states.values() if each.leader >= 0]
        return len(led) == OFFSETS_PARTITIONS

    run.wait(f"a controller that is not {VICTIM}", elsewhere, bound_s)
    run.wait(f"{GROUP_OFFSETS} to be made", made, bound_s)


def outage(run: Run, clients: Clients, signal: str) -> None:
    """Kill all controllers, look, hurt a broker, look, bring everything back, look."""
    producer = clients.producer
    name = {"TERM": "first outage", "KILL": "second outage"}[signal]
    gone = f"{name}: all controllers are gone"
    counts = counts_of(clients.senders)
    controllers = run.cluster.controller_ids
    gone_ms = run.fault("KILL", *controllers)
    later = {"retention.ms": "1000000"}
    other = f"{run.topic}-{signal.lower()}"
    changes = [
        Change(run, "create", create_topic(other, assignment={0: [0]})),
        Change(run, "alter", alter_configs(ResourceType.TOPIC, run.topic, later)),
    ]
    run.steady(producer)
    expect_undisturbed(run, gone, counts, clients.senders)
    expect_consumed(run, clients.reader, gone, gone_ms)
    expect_described(run, gone)
    for change in changes:
        change.expect_in_vain(run, gone)

    how = f"SIG{signal}"
    if signal == "TERM" and PATIENCE[run.parameters.engine].last_words is None:
        stay(run)
        how = "SIGTERM, then SIGKILL"
    elif signal == "TERM":
        leave(run)
    else:
        run.fault("KILL", VICTIM)
    dead = f"{name}: {VICTIM} is gone too ({how})"
    run.steady_view(2 * run.parameters.session_s)
    run.expect(f"{dead}: metadata stay as they were, stale", preferred(run.replicas))
    expect_halted(run, clients.raw, dead)
    expect_acks_one(run, dead)

    run.start_node(*controllers)
    run.expect(
        f"{name}: controllers are back",
        without(run.replicas, {VICTIM}),
        run.parameters.noticed_s,
    )
    run.expect_flow(producer, f"{name}: controllers are back", 30.0)
    if run.parameters.engine == OLDER:
        expect_done_late(run, other, name)
    bring_back(run, VICTIM, f"{name}: {VICTIM} is back")
    elect_preferred(run, producer, f"{name}: after a preferred election")
    run.steady(producer, 1.0)


class Change:
    """One administrative request that no controller will answer, in a thread of its own."""

    def __init__(self, run: Run, name: str, asked: AdminRequest[None]) -> None:
        self.name = name
        self.outcome = "no answer"
        self.code: int | None = None
        self.is_answered = self.is_waited_for = False  # the latter: to the end, on a connection
        self._begin_s = time.monotonic()
        self._thread = threading.Thread(target=self._ask, args=(run, asked), daemon=True)
        self._thread.start()

    def _ask(self, run: Run, asked: AdminRequest[None]) -> None:
        bound_s = PATIENCE[run.parameters.engine].answer_s
        try:
            with Driver(run.cluster.bootstrap_servers, "lab", timeout_s=bound_s) as driver:
                if run.parameters.engine == OLDER:
                    perform_patiently(driver, asked)
                else:
                    driver.perform(asked)
            self.outcome, self.is_answered = "done", True
        except AdminError as error:
            self.code, self.outcome, self.is_answered = error.code, str(error), True
        except DriverError as error:
            self.outcome = str(error)
            self.is_waited_for = isinstance(error, AnswerTimeoutError)

    def expect_in_vain(self, run: Run, when: str) -> None:
        """Check that the cluster itself said that it could not be done in time.

        With ZooKeeper it says nothing: a broker's thread is busy with it until ZooKeeper is back.
        A broker that closes the connection is another matter.
        """
        patience = PATIENCE[run.parameters.engine]
        bound_s = patience.answer_s
        run.wait(f"the answer to {self.name}", lambda: not self._thread.is_alive(), bound_s)
        took_s = time.monotonic() - self._begin_s
        if patience.last_words is None:
            run.check(
                f"{when}: {self.name}",
                f"not answered within {bound_s:.0f} s",
                f"{self.outcome}, looked at after {took_s:.0f} s",
                kept=self.is_waited_for,
            )
            return
        run.check(
            f"{when}: {self.name}",
            f"REQUEST_TIMED_OUT, within {bound_s:.0f} s",
            f"{self.outcome}, looked at after {took_s:.0f} s",
            kept=self.code == ErrorCode.REQUEST_TIMED_OUT,
            late=not self.is_answered,
        )


def expect_done_late(run: Run, topic: str, name: str) -> None:
    """Check that what nobody answered is done once ZooKeeper is back, asked for or not."""
    done = run.soon(lambda: bool(run.cluster.partitions(topic)), SETTLE_S)
    run.check(
        f"{name}: ZooKeeper is back: {topic}, whose creation nobody had answered",
        "is there",
        "is there" if done else "is not there",
        kept=done,
        late=True,
    )


def expect_described(run: Run, when: str) -> None:
    """Check that a broker describes the topic from what it knows."""
    try:
        found = described(run.driver, [run.topic])
    except (AdminError, DriverError) as error:
        seen, kept = str(error), False
    else:
        leaders = {each.index: each.leader for topic in found for each in topic.partitions}
        kept = sorted(leaders) == list(run.partitions)
        seen = ", ".join(f"P{p}: leader {leader}" for p, leader in sorted(leaders.items()))
    run.check(f"{when}: describe", "every partition", seen, kept=kept)


def leave(run: Run) -> None:
    """SIGTERM: the broker asks in vain, says so, and goes within its bound."""
    patience = PATIENCE[run.parameters.engine]
    run.say(
        f"{VICTIM} is asked to leave, and waits for a controller: {patience.exit_s:.0f} s at most"
    )
    at_ms = run.fault("TERM", VICTIM)
    took_s = time.monotonic() - at_ms / 1000
    run.check(
        f"SIGTERM of {VICTIM} while all controllers are gone",
        f"exits within {patience.exit_s:.0f} s",
        f"exited after {took_s:.1f} s",
        kept=took_s <= patience.exit_s,
        late=True,
    )
    log = Path(run.cluster.node(VICTIM).log_file)
    words = patience.last_words
    assert words is not None, "who stays does so in `stay`"
    said = [line for line in log_tail(log, SAID_MAX).splitlines() if words in line]
    run.check(
        f"{VICTIM} says why", f"...{words}...", said[-1] if said else "nothing of it",
        kept=bool(said),
    )  # fmt: skip


def stay(run: Run) -> None:
    """SIGTERM with ZooKeeper gone: the broker waits for it before all else, and must be killed."""
    seconds = PATIENCE[run.parameters.engine].exit_s
    run.say(
        f"{VICTIM} is asked to leave, and is looked at for {seconds:.0f} s: it waits for ZooKeeper"
    )
    run.fault("TERM", VICTIM, wait=False)
    run.steady_view(seconds)
    state = run.cluster.state(VICTIM)
    run.check(
        f"SIGTERM of {VICTIM} while ZooKeeper is gone",
        f"runs still after {seconds:.0f} s: it waits for ZooKeeper",
        state,
        kept=state == "running",
    )
    run.fault("KILL", VICTIM)


def expect_halted(run: Run, raw: Worker, when: str) -> None:
    """Check acks=all: nothing where the broker led or followed, the rest goes on."""
    whys = {LED: "it led", FOLLOWED: "it is in the ISR, which can't shrink"}
    silent = {p: f"{when}: acks=all in P{p}: {why}" for p, why in whys.items()}
    expect_only_flows(run, raw, f"{when}: acks=all where it has no replica", [UNTOUCHED], silent)


def expect_acks_one(run: Run, when: str) -> None:
    """Check acks=1: the leader alone is enough where there still is one."""
    count = run.parameters.count
    client = run.raw_client(f"alone-{len(run.checks)}", acks="1", timeout_ms=1000)
    accepted = acknowledge(run, client, FOLLOWED, count)
    run.check(f"{when}: acks=1 in P{FOLLOWED}", f"{count} acknowledged", str(accepted),
              kept=accepted == count, late=True)  # fmt: skip
    refused = not isinstance(client.send(LED), Acknowledged)
    run.check(
        f"{when}: acks=1 in P{LED}, whose leader it was",
        "not acknowledged",
        "not acknowledged" if refused else "acknowledged",
        kept=refused,
    )


def acks_one_without_controllers(run: Run) -> None:
    """Control: no controller sees that the followers stand still, and the leader goes on alone."""
    count, controllers = run.parameters.count, run.cluster.controller_ids
    replicas = run.parameters.assignment()[0]
    run.make_topic({0: replicas})
    client = run.raw_client("producer", acks="1", timeout_ms=2000)
    acknowledge(run, client, 0, count)
    run.fault("KILL", *controllers)
    acknowledged = strike(run, client, replicas)
    run.check("acknowledged by the leader alone", str(count), str(acknowledged),
              kept=acknowledged == count)  # fmt: skip
    run.start_node(*controllers)
    replaced = "controllers are back, and elect a follower who lacks the events"
    expect_replaced(run, client, replaced, replicas)
    run.lost_expected = count


SCENARIO = Scenario(
    name="controller-down",
    summary="All controllers are killed; then a broker leaves, and once it is killed.",
    text=(
        "Without any controller, producing and consuming go on without an error; describe answers, "
        "create and alter time out clearly. A broker that leaves says that no controller answers, "
        "and goes within its bound: soon, one of Apache Kafka in five minutes. (With ZooKeeper "
        "neither is answered, and both are done when it is back; who is asked to leave waits for "
        "it, and has to be killed.) Where it led nobody leads; where it followed acks=all waits, "
        "because the ISR can't shrink, and acks=1 goes on. Controllers back: elections, and all "
        "recovers. The control takes acks=1 events on a leader whose followers stand still."
    ),
    defaults=Parameters(
        replication_factor=2,
        min_isr=1,
        duration_s=10.0,
        config={"request.timeout.ms": str(REQUEST_TIMEOUT_MS)},
    ),
    parts=(
        Part(name="main", title="All controllers down", steps=steps),
        Control(
            title="Control: acks=1, and no controller to see that the followers stand still",
            steps=acks_one_without_controllers,
            change={
                "acks": "1",
                "replication_factor": 3,
                "min_isr": 2,
                "partitions": 1,
                "retries": 0,
                "config": {"broker.session.timeout.ms": SESSION_MS},
            },
        ),
    ),
    fixed=frozenset({"acks", "brokers", "partitions", "replication_factor", "min_isr", "signal"}),
)
