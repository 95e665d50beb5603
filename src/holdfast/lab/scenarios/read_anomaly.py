"""What can vanish is read by nobody: consumers end at the high watermark, whatever the leader has.

The events that a leader alone has acknowledged are lost with it, as in `write_anomaly`. Consumers
that ask it for them meanwhile are given none, so no one has read what is gone.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path

from holdfast.clients.blocking_driver import Driver, Peer
from holdfast.clients.workload.raw_consumer import BY_NAME_VERSION_MAX
from holdfast.judge.history import Delivered, Send
from holdfast.judge.verdict import Anomaly
from holdfast.lab.evidence import events_of
from holdfast.lab.parameters import Parameters
from holdfast.lab.run import Run
from holdfast.lab.scenario import Part, Scenario
from holdfast.lab.scenarios.unclean_election import elects_c
from holdfast.lab.scenarios.write_anomaly import SESSION_MS, WARM_UP, expect_replaced, strike
from holdfast.lab.steps.closing import end_of
from holdfast.lab.steps.usual import expect_consumed, start_exact
from holdfast.wire.batch import batches
from holdfast.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)

PARTITION = 0
SENDER, READERS = "producer", ("consumer", "raw-reader")  # that `start_exact` starts
# Longer than any reader waits for an answer (fetch.wait.max.ms is 500), so each has asked since.
ASKED_AGAIN_S = 0.8
FETCH_BYTES = 1 << 20


def steps(run: Run) -> None:
    """acks=1: all that the dead leader alone had is lost, and none of it was ever read."""
    replicas = run.parameters.assignment()[PARTITION]
    client, reader = start_exact(
        run,
        {PARTITION: replicas},
        acks=run.parameters.acks,
        timeout_ms=2000,
        events=WARM_UP,
    )
    leader = replicas[0]
    # The others stand still when it is asked: whoever wanted metadata of them would wait in vain.
    with Driver(run.cluster.node(leader).outside_address, "lab-consumer") as driver:
        peer = driver.peer(leader)
        begin_ms = time.monotonic() * 1000
        acknowledged = strike(
            run, client, replicas, meanwhile=lambda: ask_beyond(run, leader, peer)
        )
        struck_ms = time.monotonic() * 1000
    run.check(
        "acknowledged by the leader alone",
        str(run.parameters.count),
        str(acknowledged),
        kept=acknowledged == run.parameters.count,
    )
    expect_replaced(run, client, "the dead leader is replaced by one who lacks them", replicas)
    expect_consumed(run, reader, "the old leader follows", struck_ms)
    expect_unread(run, begin_ms, struck_ms)
    run.lost_expected = run.parameters.count


def ask_beyond(run: Run, leader: int, peer: Peer) -> None:
    """Ask the leader for what it alone has, as consumers do, and give these the time for it."""
    run.steady_view(ASKED_AGAIN_S)
    end = end_of(run, leader, PARTITION)
    committed = end - run.parameters.count
    answer = fetch(run, peer, committed)
    given = sum(1 for _ in batches(memoryview(answer.records or b"")))
    run.check(
        f"{leader} is asked for offset {committed} by a consumer; its log ends at {end}",
        f"nothing, and high watermark {committed}",
        f"{f'{given} batches' if given else 'nothing'}, and high watermark {answer.high_watermark}",
        kept=not given and answer.high_watermark == committed,
    )


def fetch(run: Run, peer: Peer, offset: int) -> PartitionData:
    """Ask a leader once, as a consumer that does not wait. DriverError: it does not answer."""
    wanted = FetchPartition(
        partition=PARTITION, fetch_offset=offset, partition_max_bytes=FETCH_BYTES
    )
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        topics=[FetchTopic(topic=run.topic, partitions=[wanted])],
    )
    version = min(BY_NAME_VERSION_MAX, peer.version_of(FetchRequest))
    response = peer.send(request, version=version)
    assert isinstance(response, FetchResponse)
    return response.responses[0].partitions[0]


def expect_unread(run: Run, begin_ms: float, end_ms: float) -> None:
    """Check that no reader was given any event that was sent between these moments."""
    run.stop_workers()  # their histories are whole then
    sent = sent_between(run.history / f"{SENDER}.jsonl", begin_ms, end_ms)
    read = read_of([run.history / f"{reader}.jsonl" for reader in READERS], sent)
    run.check(
        f"read of the {len(sent)} events that the dead leader alone had",
        f"none of {run.parameters.count}",
        f"{len(read)} of {len(sent)}",
        kept=not read and len(sent) == run.parameters.count,
    )


def sent_between(history: Path, begin_ms: float, end_ms: float) -> set[str]:
    """Return the events that a client sent in [begin_ms, end_ms)."""
    return {
        event.id
        for event in events_of([history])
        if isinstance(event, Send) and begin_ms <= event.at_ms < end_ms
    }


def read_of(histories: Iterable[Path], events: set[str]) -> set[str]:
    """Return those of these events that any of the readers was given."""
    return {
        event.id
        for event in events_of(histories)
        if isinstance(event, Delivered) and event.id is not None and event.id in events
    }


SCENARIO = Scenario(
    name="read-anomaly",
    summary="The leader dies with events that it alone has, while consumers ask it for them.",
    text=(
        "The followers stand still, the leader acknowledges events with acks=1, and dies: every "
        "one of them is lost. Consumers have asked for them meanwhile and were given none, because "
        "no consumer reads beyond the high watermark: what can vanish is read by nobody. In the "
        "control unclean election is on: a replica that lacks what was committed leads, and "
        "consumers have read what is gone."
    ),
    defaults=Parameters(
        acks="1",
        partitions=1,
        min_isr=1,
        retries=0,
        config={"broker.session.timeout.ms": SESSION_MS},
    ),
    parts=(
        Part(name="main", title="acks=1: lost, and never read", steps=steps),
        Part(
            name="control",
            title="Control: unclean election, read and then gone",
            steps=elects_c,
            change={"acks": "all", "unclean": True, "config": {}},
            breaks_with=Anomaly.VANISHED,
        ),
    ),
    fixed=frozenset(
        {
            "acks",
            "brokers",
            "elr",
            "min_isr",
            "partitions",
            "replication_factor",
            "signal",
            "unclean",
        }
    ),
)
