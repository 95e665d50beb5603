"""Groups' campaigns for `make soak`: ten consumers over thirty partitions, and random kills."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from holdfast.clients.replica_files import DamagedFileError, stored_records
from holdfast.judge.checker import Evidence
from holdfast.judge.groups.verdict import Commits, GroupAnomaly
from holdfast.judge.verdict import Anomaly
from holdfast.lab.evidence import evidence_of, history_files
from holdfast.lab.group import Group
from holdfast.lab.parameters import Parameters
from holdfast.lab.prove import PROBLEMS, named
from holdfast.lab.run import Run
from holdfast.lab.soak.campaign import Campaign, not_judged
from holdfast.lab.steps.closing import conclude, end_of, expect_kept_somewhere, replica_directory
from holdfast.lab.steps.group_chaos import Chaos, Counts
from holdfast.lab.steps.groups import BATCH, PROTOCOLS, finish
from holdfast.lab.steps.mishaps import break_off, failed, too_busy
from holdfast.wire.groups.group_partition import group_partition

MEMBERS = 10
GROUP_OFFSETS = "__consumer_offsets"
OFFSETS_PARTITIONS = 50  # offsets.topic.num.partitions, which no run here changes
# Segments of some hundred batches, and looks at short intervals: so coordinators load what was
# compacted, as they do where a group has lived for long.
COMPACTED = {
    "log.index.interval.bytes": "0",
    "log.index.size.max.bytes": "4000",
    "log.cleaner.backoff.ms": "500",
}
SETTINGS = Parameters(commits=Commits.AFTER, partitions=30, rate=300.0, config=COMPACTED)
MINUTES = {5: 6, 20: 1}  # how many runs of each length
WORK_MS = 10.0  # so that kills meet members in the middle of a batch


def group_kills(protocol: str, seconds: float) -> Callable[[Path], dict[str, Any]]:
    """Return what runs a group under random faults for so long, and judges it."""

    def run(directory: Path) -> dict[str, Any]:
        return kill_for(directory, protocol, seconds)

    return run


def kill_for(
    directory: Path,
    protocol: str,
    seconds: float,
    settings: Parameters = SETTINGS,
    members: int = MEMBERS,
) -> dict[str, Any]:
    """Run a group for so long while members, brokers and coordinators are killed; then judge."""
    seed = random.SystemRandom().randrange(1 << 32)
    counts = Counts()
    told: dict[str, Any] = {"seed": seed, "done": counts.done, "at_work": counts.at_work}
    broke_off = run = None
    try:
        with Run(settings, directory, lambda _line: None) as run:
            try:
                _hurt(run, protocol, seconds, members, random.Random(seed), counts)  # noqa: S311 - moments, not secrets
            except Exception as error:  # noqa: BLE001 - what was seen before stays seen
                problem = named(error, directory)
                broke_off = break_off(run, problem)
                with suppress(*PROBLEMS):  # of a run that can't be looked at any more
                    expect_kept_somewhere(run)
    except Exception as error:  # noqa: BLE001 - as above, and at its end
        problem = named(error, directory)
        if run is None:
            return {**not_judged(problem, run), **told}
        broke_off = str(problem) if broke_off is None else f"{broke_off}; {problem}"
    try:
        run.journal.close()
        evidence = evidence_of(history_files(run.history), with_groups=True)
    except Exception as error:  # noqa: BLE001 - checks that have failed stay so
        return {**not_judged(named(error, directory), run), **told}
    try:
        told["offsets"] = offsets_left(run, protocol)
    except Exception as error:  # noqa: BLE001 - no more than a figure
        told["offsets"] = str(named(error, directory))
    found = result_of(evidence, settings, failed(run), broke_off, too_busy(run))
    return {**found, **told}


def _hurt(
    run: Run,
    protocol: str,
    seconds: float,
    members: int,
    chance: random.Random,
    counts: Counts,
) -> None:
    run.make_topic()
    producer = run.start_producer()
    run.must_flow(producer)
    group = Group(run, protocol, protocol, batch=BATCH, work_ms=WORK_MS)
    chaos = Chaos(group, producer, chance, counts)
    chaos.start(members)
    chaos.last(seconds)
    group.wait_shared()
    finish([group], producer)
    conclude(run)


def offsets_left(run: Run, group: str) -> dict[str, int]:
    """Return how many records a group's part of the offsets has had, and how many are left of them.

    So a row says whether compaction was at work. In the replica that has the most.
    """
    partition = group_partition(group, OFFSETS_PARTITIONS)
    found = {"written": 0, "left": 0}
    for node in run.cluster.broker_ids:
        with suppress(OSError, DamagedFileError):
            directory = replica_directory(run, node, partition, GROUP_OFFSETS)
            end, left = end_of(run, node, partition, GROUP_OFFSETS), stored_records(directory)
            found = max(found, {"written": end, "left": sum(1 for _ in left)}, key=_written)
    return found


def _written(found: dict[str, int]) -> int:
    return found["written"]


def result_of(
    evidence: Evidence,
    settings: Parameters,
    failed: list[str],
    broke_off: str | None,
    busy: str | None = None,
) -> dict[str, Any]:
    """Return what a run has shown, of the log and of its group.

    `busy`: what came too late there, perhaps only because nodes were starved; None: nothing.
    """
    judgement, groups = evidence.judgement, evidence.groups
    promised = settings.group_promise
    assert promised is not None, "there is a group"
    broken = judgement.broken(settings.promise.forbids)
    broken_groups = groups.broken(promised.forbids)
    undecided = judgement.undecided + groups.undecided
    # What was seen broken stays broken, whatever became of the run behind it.
    is_broken = bool(broken or broken_groups or failed)
    why = broke_off or busy or "; ".join(undecided[:3])
    if not is_broken and why:
        return {"kept": None, "verdict": f"The run could not be made: {why}"}
    counts = groups.counts
    verdict = (
        f"{judgement.counts.acknowledged:,} of {judgement.counts.sent:,} events acknowledged, "
        f"{judgement.count(Anomaly.LOST)} lost; {counts.processed:,} processed, "
        f"{counts.repeated:,} again, {groups.count(GroupAnomaly.SKIPPED)} skipped, "
        f"{groups.count(GroupAnomaly.PROCESSED_TWICE)} twice."
    )
    if broke_off is not None:
        verdict += f" It broke off: {broke_off}"
    return {
        "kept": not is_broken,
        "verdict": verdict,
        "sent": judgement.counts.sent,
        "acknowledged": judgement.counts.acknowledged,
        "processed": counts.processed,
        "repeated": counts.repeated,
        "commits": counts.commits,
        "commits_refused": counts.commits_refused,
        "commits_unknown": counts.commits_unknown,
        "longest_wait_ms": round(counts.longest_wait_ms),
        "anomalies": {a.value: judgement.count(a) for a in Anomaly if judgement.count(a)},
        "of_groups": {a.value: groups.count(a) for a in GroupAnomaly if groups.count(a)},
        "findings": [f"{each.topic}-{each.partition}: {each.text}" for each in groups.findings[:5]],
        "failed": failed,
    }


CAMPAIGNS = tuple(
    Campaign(
        name=f"groups-{protocol}-{minutes}",
        text=f"Ten consumers ({protocol} protocol), thirty partitions, manual commits; brokers, "
        f"coordinators and members are killed at random for {minutes} minutes.",
        runs=runs,
        run=group_kills(protocol, 60.0 * minutes),
    )
    for minutes, runs in MINUTES.items()
    for protocol in PROTOCOLS
)
