"""Makes a history from a seed, has it judged, and says where judge and model differ.

`python -m tests.judge_proof.proof --seed 7` shows one again, and the shortest run of that seed in
which they still differ. `--seeds 10000 --results FILE` is the background lane.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from tests.judge_proof.closing import Files, go_on, read_back
from tests.judge_proof.planting import Planting
from tests.judge_proof.plants import PLANTS
from tests.judge_proof.replicated import Partition
from tests.judge_proof.truth import LAST, Named, Truth, counts_of, log_of, own_truth
from tests.judge_proof.world import World

from holdfast.judge.checker import judge
from holdfast.judge.history import (
    Acknowledged,
    Delivered,
    Event,
    LeaderChange,
    Refused,
    Replica,
    ReplicaBatch,
    Send,
    Unknown,
)
from holdfast.judge.promise import Promise
from holdfast.judge.verdict import Anomaly, Counts, Finding, Judgement

STEPS = 120
BY_SIZE = "whether retention.bytes allowed it"  # says the judge, when it can't know
EVIDENCE_MAX = 20  # findings of one kind in one partition that the judge tells


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One history, and all that must be said of it."""

    seed: int
    steps: int
    planted: tuple[str, ...]
    events: tuple[Event, ...]
    truth: Truth
    counts: dict[int, Counts]  # by partition
    promise: Promise | None  # None: some producers are promised less
    unclean: bool


def made(seed: int, steps: int = STEPS, plants: int | None = None) -> Case:
    """Make a history; `plants`: how many at most, None: as the seed says."""
    world = World(seed)
    world.live(steps)
    world.settle()
    chance = world.chance
    wanted = chance.choice([0, 0, 1, 2, 3, 4])
    wanted = wanted if plants is None else min(plants, wanted)
    if not wanted and chance.random() < 0.25:
        world.overtake(LAST)
    truth = own_truth(world)
    planting = Planting(world, truth)
    if wanted and chance.random() < 0.3:  # the last reader has read everything before
        read_back(world, LAST, world.partitions)
    planted = _planted(planting, wanted)
    read_back(world, LAST, [p for p in world.partitions if p.number not in planting.unread])
    logs = [log_of(partition) for partition in world.partitions]
    for partition in world.partitions:
        _write_files(world, planting, partition)
    for plant in planting.afterwards:
        plant()
    if chance.random() < 0.3:
        truth.undecided |= go_on(world)
    counts = {
        partition.number: counts_of(world, partition, log)
        for partition, log in zip(world.partitions, logs, strict=True)
    }
    for number in planting.unread:
        counts[number] = replace(counts[number], in_log=0, unknown_in_log=0, expired=0)
    return Case(
        seed=seed,
        steps=steps,
        planted=planted,
        events=tuple(world.journal.history()),
        truth=truth,
        counts=counts,
        promise=world.settings.promise if world.settings.careful else None,
        unclean=world.settings.unclean,
    )


def _planted(planting: Planting, wanted: int) -> tuple[str, ...]:
    """Plant so many of all, as far as the run has victims for them."""
    planted: list[str] = []
    for name in planting.chance.sample(sorted(PLANTS), len(PLANTS)):
        if len(planted) == wanted:
            break
        if PLANTS[name](planting):
            planted.append(name)
    return tuple(planted)


def _write_files(world: World, planting: Planting, partition: Partition) -> None:
    """Look at the replicas' files, as they are or as a plant leaves them."""
    files = Files.found(world, partition)
    if partition.number in planting.on_files:
        planting.on_files[partition.number](files)
    for base in files.falls():
        planting.truth.must(Anomaly.DIVERGED, partition, f"files@{base}")
    lacking = files.lacking(files.must)
    for node in lacking:
        planting.truth.must(Anomaly.DIVERGED, partition, f"files of {node}")
    for node in set(files.lacking(files.unknown)) - set(lacking):
        planting.truth.may.add((Anomaly.DIVERGED, partition.number, f"files of {node}"))
    files.write(world)


# -- what the judge says, in the model's words --------------------------------------------------


def differences(case: Case) -> list[str]:
    """Return a line for each thing of which the judge says more, less or other than the model."""
    judgement = judge(case.events).judgement
    return [
        *_other_counts(case, judgement),
        *_otherwise_decided(case, judgement),
        *_otherwise_kept(case, judgement),
        *_other_findings(case, judgement),
        *_too_many_blamed(case, judgement),
    ]


def _other_counts(case: Case, judgement: Judgement) -> Iterator[str]:
    for partition in judgement.partitions:
        wanted = case.counts.get(partition.partition, Counts())
        may = any(number == partition.partition for _, number, _ in case.truth.may)
        seen = partition.counts
        if partition.partition in case.truth.unsure and seen.expired < wanted.expired:
            may |= any(BY_SIZE in reason for reason in partition.undecided)
        if may:
            seen = replace(seen, expired=wanted.expired)
        if seen != wanted:
            yield f"P{partition.partition}: {partition.counts}, wanted {wanted}"
        told = sum(expiry.count for expiry in partition.expiries)
        known = all(expiry.event in case.events for expiry in partition.expiries)
        if told != partition.counts.expired or not known:
            yield f"P{partition.partition}: expired by {partition.expiries}"


def _otherwise_decided(case: Case, judgement: Judgement) -> Iterator[str]:
    for partition in judgement.partitions:
        reasons = partition.undecided
        if partition.partition in case.truth.unsure:
            reasons = tuple(reason for reason in reasons if BY_SIZE not in reason)
        if bool(reasons) != (partition.partition in case.truth.undecided):
            yield f"P{partition.partition}: undecided: {partition.undecided or 'no'}"


def _otherwise_kept(case: Case, judgement: Judgement) -> Iterator[str]:
    """A promise to careful producers is broken by each anomaly that it does not allow itself."""
    if case.promise is None:
        return
    allowed = {Anomaly.LOST, Anomaly.VANISHED} if case.unclean else set[Anomaly]()
    wanted = {anomaly for anomaly, _, _ in case.truth.findings} - allowed
    unsure = {anomaly for anomaly, _, _ in case.truth.may} - wanted
    broken = set(judgement.broken(case.promise.forbids)) - unsure
    if broken != wanted:
        yield f"broken: {sorted(broken)}, wanted {sorted(wanted)}"


def _other_findings(case: Case, judgement: Judgement) -> Iterator[str]:
    for partition in judgement.partitions:
        number = partition.partition
        for anomaly in Anomaly:
            found = partition.anomalies.get(anomaly, 0)
            names = Counter(
                subject_of(finding) for finding in partition.findings if finding.anomaly is anomaly
            )
            must = Counter(_subjects(case.truth.findings, anomaly, number))
            may = set(_subjects(dict.fromkeys(case.truth.may, 1), anomaly, number))
            if not must.total() <= found <= must.total() + len(may):
                yield f"P{number}: {found} {anomaly}, wanted {dict(must)}, found {dict(names)}"
            elif found <= EVIDENCE_MAX and not (
                names.keys() >= must.keys() and names.keys() <= must.keys() | may
            ):
                yield f"P{number}: {anomaly} of {dict(names)}, wanted {dict(must)}"


def _too_many_blamed(case: Case, judgement: Judgement) -> Iterator[str]:
    """Of those acknowledged at one offset as many may be called lost as have been lost."""
    lost = {
        (partition.partition, subject_of(finding))
        for partition in judgement.partitions
        for finding in partition.findings
        if finding.anomaly is Anomaly.LOST
    }
    for number, names, most in case.truth.rivals:
        blamed = sorted(name for name in names if (number, name) in lost)
        if len(blamed) > most:
            yield f"P{number}: lost of {blamed}, of which {most} can be"


def _subjects(named: Mapping[Named, int], anomaly: Anomaly, number: int) -> dict[str, int]:
    return {
        name: n for (kind, where, name), n in named.items() if (kind, where) == (anomaly, number)
    }


def subject_of(finding: Finding) -> str:
    """Return the record that a finding is about, or the reader and the offset."""
    if finding.anomaly is Anomaly.SKIPPED:  # its evidence is the record that stands
        (stands,) = finding.events
        assert isinstance(stands, Delivered)
        return f"{finding.text.split()[0]}@{stands.offset}"
    last = finding.events[-1]
    if isinstance(last, ReplicaBatch):
        return f"files@{last.offset}"
    if isinstance(last, LeaderChange):
        return f"leader@{last.epoch}"
    extents = [event for event in finding.events if isinstance(event, Replica)]
    if extents:
        return f"files of {extents[-1].node}"
    outcomes = Send | Acknowledged | Refused | Unknown
    for event in finding.events:
        if isinstance(event, outcomes) and finding.anomaly is not Anomaly.PHANTOM:
            return event.id
        if isinstance(event, Delivered):
            shared = finding.anomaly in {Anomaly.PHANTOM, Anomaly.DIVERGED}
            return f"{'' if shared else event.process}@{event.offset}"
    raise AssertionError(f"a finding without evidence: {finding}")
