"""Only what is due goes: by age, by name and by size, whatever timestamps records carry.

Each part ends with exact numbers of what expired and what allowed it, held against the verdict. The
first keeps one policy of age all along, so that it can excuse nothing which went too early.
"""

from __future__ import annotations

import time

from holdfast.clients.workload.raw_producer import RawProducer
from holdfast.judge.history import NO_TIMESTAMP, Acknowledged
from holdfast.judge.verdict import Excuse
from holdfast.lab.parameters import Parameters
from holdfast.lab.run import Run
from holdfast.lab.scenario import Control, Part, Scenario
from holdfast.lab.steps.dead_disks import lose_replicas
from holdfast.lab.steps.expiry import (
    GONE_S,
    HOUR_MS,
    begins,
    expect_begins,
    hour_of_small_segments,
)
from holdfast.lab.steps.usual import acknowledge, bring_back, delete_records
from holdfast.lab.steps.wants import names
from holdfast.wire.administration import alter_configs
from holdfast.wire.structs import ResourceType

NOW, ABSENT, AHEAD, PAST = range(4)  # partitions, by the timestamp of their records
SIZE = 1000  # bytes
MORE = 60  # records ahead of now, so that they are far more than SIZE


def fill(run: Run) -> tuple[dict[int, RawProducer], dict[int, int]]:
    """Make the topic, read it, and send to every partition.

    Return each one's raw producer, and how many it has acknowledged.

    Records without timestamps come from two clients, because their headers differ: librdkafka
    leaves 0 there as the largest timestamp, the raw producer none. What is of the past comes last:
    when that is gone, retention has looked after all else was there.
    """
    run.make_topic(configs=hour_of_small_segments(run))
    run.start_readers()
    now_ms = time.time_ns() // 1_000_000
    stamps = {
        NOW: None,
        ABSENT: NO_TIMESTAMP,
        AHEAD: now_ms + HOUR_MS // 2,  # more than an hour would be refused
        PAST: now_ms - 24 * HOUR_MS,
    }
    count = run.parameters.count
    worker = run.start_producer(
        "librdkafka", partition=ABSENT, timestamp=NO_TIMESTAMP, max_messages=count
    )
    worker.wait()
    clients, sent = {}, {}
    for partition in run.partitions:
        clients[partition] = run.raw_client(
            f"producer-{partition}", acks="all", timestamp=stamps[partition]
        )
        sent[partition] = acknowledge(run, clients[partition], partition, count)
    sent[ABSENT] += worker.tail.poll().count(Acknowledged)
    return clients, sent


def steps(run: Run) -> None:
    """Keep what is young by its timestamp, or by its file where it has none, also in new copies."""
    clients, sent = fill(run)

    def expect_the_past_gone(when: str) -> None:
        # What is sent now goes at the next look, which comes to all that was there before, too.
        expect_begins(run, when, {PAST: sent[PAST]})
        sent[PAST] += acknowledge(run, clients[PAST], PAST, 1)
        expect_begins(run, f"{when}, at the next look", {ABSENT: 0, AHEAD: 0, PAST: sent[PAST]})

    expect_the_past_gone("an hour's retention")
    deleted = run.parameters.count // 2
    delete_records(run, {NOW: deleted})
    victim = run.replicas[NOW][-1]
    run.fault("KILL", victim)
    lose_replicas(run, victim, run.partitions, f"its copies of {names(run.partitions)} are gone")
    bring_back(run, victim, f"{victim} has copied what there is")
    expect_the_past_gone(f"{victim} has copies made anew")
    run.expired_expected = {
        f"{Excuse.TIME}={HOUR_MS}": sent[PAST],
        f"{Excuse.DELETED} before offset {deleted:,}": deleted,
    }


def soon(run: Run) -> None:
    """Let all go that has an age, by its timestamp or its file's; of the rest, what is too much."""
    clients, sent = fill(run)
    sent[AHEAD] += acknowledge(run, clients[AHEAD], AHEAD, MORE)
    run.alter_topic(retention_ms="1")
    expect_begins(
        run, "a millisecond's retention", {NOW: sent[NOW], ABSENT: sent[ABSENT], AHEAD: 0}
    )
    run.alter_topic(retention_bytes=str(SIZE))
    run.soon(lambda: min(begins(run, AHEAD).values()) > 0, GONE_S)
    left = begins(run, AHEAD)
    run.check(
        f"where replicas begin, {SIZE} bytes' retention",
        f"P{AHEAD} behind 0, and before its end at {sent[AHEAD]}",
        f"P{AHEAD} at {', '.join(map(str, sorted(set(left.values()))))}",
        kept=all(0 < begin < sent[AHEAD] for begin in left.values()),
    )
    heard = run.alter_topic(retention_ms=str(HOUR_MS), retention_bytes="-1")
    run.check("an hour's retention again", "every broker hears of it", str(heard), kept=heard)
    acknowledge(run, clients[NOW], NOW, MORE)  # from here on nothing excuses a record that is gone
    run.soon(lambda: len(set(begins(run, AHEAD).values())) == 1, GONE_S)
    run.expired_expected = {
        f"{Excuse.TIME}=1": sent[NOW] + sent[ABSENT],
        f"{Excuse.SIZE}={SIZE}": begins(run, AHEAD)[run.view.partitions[AHEAD].leader],
    }


def unsaid(run: Run) -> None:
    """Let somebody's retention take everything, and no event of the history allows it."""
    run.make_topic(configs=hour_of_small_segments(run))
    sent = acknowledge(run, run.raw_client("producer", acks="all"), NOW, run.parameters.count)
    run.driver.perform(alter_configs(ResourceType.TOPIC, run.topic, {"retention.ms": "1"}))
    run.note("somebody has set retention.ms=1, and the history does not say so")
    expect_begins(run, "a millisecond's retention", {NOW: sent})
    run.lost_expected, run.expired_expected = sent, {}


SCENARIO = Scenario(
    name="retention",
    summary="Records expire by age, by size and by name, whatever timestamps they carry.",
    text=(
        "Partitions hold records of now, without timestamps, of the near future and of yesterday. "
        "An hour's retention takes yesterday's and nothing else: what carries no timestamp counts "
        "by its file's time. Some are deleted by name, a broker loses its copies and copies what "
        "is left, and that is kept as long. In a second cluster a millisecond's retention takes "
        "all but what is ahead, and of that a limit by size takes what is too much. The verdict "
        "must count exactly what went as expired, and name what allowed it. In the control the "
        "same retention is set behind the history's back: then it is loss, all of it."
    ),
    defaults=Parameters(
        partitions=4,
        retries=0,
        config={"log.retention.check.interval.ms": "300", "log.initial.task.delay.ms": "0"},
    ),
    parts=(
        Part(name="main", title="Only what is due goes", steps=steps),
        Part(
            name="soon",
            title="All that has an age is due, and then a size",
            steps=soon,
            change={"partitions": 3},
        ),
        Control(
            title="Control: retention of which the history does not speak",
            steps=unsaid,
            change={"partitions": 1},
        ),
    ),
    fixed=frozenset(
        {"acks", "brokers", "partitions", "replication_factor", "min_isr", "signal", "elr"}
    ),
    least={"count": 2},
)
