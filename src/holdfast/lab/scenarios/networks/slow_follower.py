"""A follower's link is too slow for what the leader takes: it is dropped, and comes back."""

from __future__ import annotations

import time
from typing import Any

from holdfast.judge.history import Acknowledged, Refused, Send, Unknown
from holdfast.lab.evidence import events_of
from holdfast.lab.parameters import SHORT_LAG, Parameters
from holdfast.lab.run import SETTLE_S, Run
from holdfast.lab.scenario import Part, Scenario
from holdfast.lab.steps.controllers import counts_of, expect_undisturbed, latency_table
from holdfast.lab.steps.sides import AGAIN_S, Sides
from holdfast.lab.steps.usual import REFUSAL, begin
from holdfast.lab.steps.wants import want, whole
from holdfast.lab.workload_processes import Worker

PARTITION = 0
SIZE = 1000  # bytes of an event: three times as many a second as the slow link carries
SLOW_KB = 60
RATE = f"{SLOW_KB}KB/s"
SLOW_S = 60.0  # beyond the lag, for a follower to be dropped on a slow machine
GOES_ON = "without the slow follower"
LATER = "later"  # a client that begins when the follower is dropped
# What it can't be less than, however slow the machine; the lag begins with the last fetch that
# had all, and the link is slow for a while before events wait.
STAYS, WAITS = 0.5, 0.125  # of the lag


def steps(run: Run) -> None:
    """acks=all waits for the follower until it is dropped, and no longer."""
    clients = begin(run)
    # With acks=1 it does not wait for the follower, so its events go on, also below min ISR. Else
    # the follower would soon have all that there is, and come back.
    unwaiting: dict[str, Any] = {"acks": "1", "no_idempotence": True, "retries": 0}
    bulk = run.start_producer("bulk", size=SIZE, rate=run.parameters.rate, **unwaiting)
    run.must_flow(bulk)
    leader, slow, *others = run.replicas[PARTITION]
    sides = Sides(run)
    begin_ms = time.monotonic() * 1000
    run.steady(clients.producer)
    slowed_ms = sides.slow(str(leader), str(slow), rate=RATE)
    dropped = run.expect(
        f"{slow} is too slow, and is dropped",
        {PARTITION: want(leader, (leader, *others))},
        run.parameters.lag_s + SLOW_S,
    )
    dropped_ms = time.monotonic() * 1000
    if not dropped:
        return
    later = run.start_raw(LATER)  # what others have sent before may still be waiting
    counts = counts_of([later])
    run.steady(later, max(run.parameters.duration_s, 3.0))
    expect_waited_for(run, clients.raw, slow, slowed_ms, dropped_ms)
    expect_undisturbed(run, GOES_ON, counts, [later])
    healed_ms = sides.heal()
    run.expect(f"{slow} is back", whole(run.replicas), AGAIN_S)
    run.expect_flow(clients.producer, f"{slow} is back", SETTLE_S)
    end_ms = time.monotonic() * 1000
    run.stop_workers()
    windows = {
        "before": [(begin_ms, slowed_ms)],
        "while the slow one is in sync": [(slowed_ms, dropped_ms)],
        "without it": [(dropped_ms, healed_ms)],
        "after healing": [(healed_ms, end_ms)],
    }
    histories = [worker.history for worker in (*clients.senders, later, bulk)]
    run.tables.append(latency_table("Latency", events_of(histories), windows))


def expect_waited_for(
    run: Run, raw: Worker, slow: int, slowed_ms: float, dropped_ms: float
) -> None:
    """Check that the follower was given its time, and acks=all waited for it meanwhile."""
    lag_s = run.parameters.lag_s
    stayed_s = (dropped_ms - slowed_ms) / 1000
    run.check(
        f"{slow} stays in sync at first",
        f"{STAYS * lag_s:g} s at least, of a lag of {lag_s:g} s",
        f"{stayed_s:.1f} s",
        kept=stayed_s >= STAYS * lag_s,
    )
    waiting: dict[str, float] = {}
    longest_ms = 0.0
    for event in events_of([raw.history]):
        if isinstance(event, Send) and slowed_ms <= event.at_ms < dropped_ms:
            waiting[event.id] = event.at_ms
        elif isinstance(event, Acknowledged | Refused | Unknown) and event.id in waiting:
            longest_ms = max(longest_ms, event.at_ms - waiting.pop(event.id))
    # Below min ISR what was sent before waits on.
    longest_ms = max([longest_ms, *(dropped_ms - sent_ms for sent_ms in waiting.values())])
    run.check(
        f"acks=all waits for {slow} while it is in sync",
        f"{WAITS * lag_s:g} s at least, where it waits longest",
        f"{longest_ms / 1000:.1f} s",
        kept=longest_ms / 1000 >= WAITS * lag_s,
    )


SCENARIO = Scenario(
    name="slow-follower",
    summary="A follower's link is too slow for what the leader takes.",
    text=(
        "The link between the leader and one follower carries a third of what is sent. acks=all "
        "waits for that follower, so latency rises, until replica.lag.time.max.ms is over: then it "
        "is out of the ISR, and latency is what it was. Healed, it catches up and is back in. In "
        "the control min.insync.replicas is 3: without the follower nothing is acknowledged."
    ),
    defaults=Parameters(partitions=1, network=True, lab_config=SHORT_LAG),
    parts=(
        Part(name="main", title="min ISR 2: it is dropped", steps=steps),
        Part(
            name="control",
            title="Control: min ISR 3, so it can't be spared",
            steps=steps,
            change={"min_isr": 3},
            breaks_check=GOES_ON,
            met=(LATER, REFUSAL),
        ),
    ),
    fixed=frozenset({"acks", "brokers", "min_isr", "partitions", "replication_factor", "signal"}),
    least={"rate": 2 * SLOW_KB},  # or the link carries what is sent
)
