"""Acknowledgements are swallowed on their way: the client must not know what the cluster has."""

from __future__ import annotations

from typing import Any

from holdfast.clients.blocking_driver import AnswerTimeoutError
from holdfast.judge.verdict import Anomaly
from holdfast.lab.parameters import PIPELINED, Parameters
from holdfast.lab.report import Table
from holdfast.lab.run import SETTLE_S, Run
from holdfast.lab.scenario import Part, Scenario
from holdfast.lab.steps.sides import PATIENT, Side, Sides
from holdfast.lab.steps.usual import must_acknowledge
from holdfast.lab.workload_processes import Worker

PARTITION = 0
API = "Produce"
IMPATIENT_MS = 2000
NO_ANSWER = AnswerTimeoutError.__name__
OUTAGE_S = 2.0  # in which requests vanish; TCP sends them again by itself
WAYS = {"the connection stays, silent": False, "the connection is closed": True}


def steps(run: Run) -> None:
    """Idempotence: sent again, and in the log once, where it first was."""
    sides, side, producer = begin(run)
    rows = swallow(run, sides, producer)
    leader = run.replicas[PARTITION][0]
    before = sides.dropped()
    sides.cut(sides.client_of(side), str(leader), [leader], "from its client", one_way=True)
    run.steady_view(OUTAGE_S)
    sides.must_drop("the cut of requests", before)
    sides.heal()
    run.expect_flow(producer, "its requests had vanished", SETTLE_S)
    producer.stop()  # or the one answer that is swallowed may be its own
    without_retries(run, sides, side)
    run.tables.append(
        Table(
            title="Answers that were swallowed",
            header=["then", "answers"],
            rows=rows,
            note="Each was to a Produce request that the leader had done.",
        )
    )


def without_retries(run: Run, sides: Sides, side: Side) -> None:
    """A client that never sends twice is told that it can't know."""
    raw = run.start_raw("never-twice", rate=5, timeout_ms=IMPATIENT_MS, **side.flags)
    run.must_flow(raw)
    swallowed(run, sides, 1, close=False)
    # Connections are reset as it begins: what was in flight then has had no answer to swallow.
    told = run.soon(lambda: raw.tail.poll().errors[NO_ANSWER, PARTITION] > 0, SETTLE_S)
    run.check(
        "an answer swallowed, and nothing is sent again",
        "in doubt, as the client says",
        "so" if told else "not so",
        kept=told,
        late=True,
    )
    run.must_flow(raw)


def not_idempotent(run: Run) -> None:
    """Control: the same retries without idempotence put events into the log twice."""
    sides, _, producer = begin(run, no_idempotence=True, retries=5)
    swallow(run, sides, producer)
    run.must_flow(producer)


def begin(run: Run, **flags: Any) -> tuple[Sides, Side, Worker]:
    """Make the topic and start a producer that sends again what is not answered.

    Several requests are on their way, as clients have it by default: no leader changes here.
    """
    run.make_topic()
    sides = Sides(run)
    leader = run.replicas[PARTITION][0]
    side = sides.of(leader)
    config = [*PATIENT["config"], PIPELINED]
    producer = run.start_producer(**side.flags, config=config, **flags)
    run.start_readers()
    run.must_flow(producer)
    must_acknowledge(run, run.raw_client("before", acks="all"), PARTITION, run.parameters.count)
    return sides, side, producer


def swallow(run: Run, sides: Sides, producer: Worker) -> list[list[str]]:
    """Swallow answers in each way, and see the producer go on."""
    rows = []
    for then, close in WAYS.items():
        count = swallowed(run, sides, 3, close=close)
        run.expect_flow(producer, f"answers are swallowed, and {then}", SETTLE_S)
        rows.append([then, str(count)])
    return rows


def swallowed(run: Run, sides: Sides, count: int, *, close: bool) -> int:
    """Swallow so many answers of the leader to its clients; return how many were. LabError."""
    leader = run.replicas[PARTITION][0]
    sides.swallow(leader, API, count, close=close)
    return run.wait(f"{count} answers to be swallowed", lambda: sides.swallowed(count), SETTLE_S)


SCENARIO = Scenario(
    name="lost-acknowledgement",
    summary="Answers to a producer vanish after the leader has done what was asked.",
    text=(
        "Answers to Produce requests are swallowed between the leader and its client: first the "
        "connection stays open and silent, then it is closed. The idempotent producer sends again, "
        "and each event is in the log once, where it first was. Requests that vanish are in the "
        "log once, too. A client that never sends again is told that it can't know. In the control "
        "a producer without idempotence sends again: its events are in the log twice."
    ),
    defaults=Parameters(partitions=1, network=True, rate=20.0),
    parts=(
        Part(name="main", title="An idempotent producer", steps=steps),
        Part(
            name="control",
            title="Control: retries without idempotence",
            steps=not_idempotent,
            change={"rate": 5.0},
            breaks_with=Anomaly.DUPLICATED,
            counted=frozenset({Anomaly.REORDERED}),
            because="what is sent again without idempotence may stand behind what was sent later.",
        ),
    ),
    fixed=frozenset({"acks", "partitions", "signal"}),
)
