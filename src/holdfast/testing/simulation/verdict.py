"""What the judge found in the history, less what is allowed to be lost.

Owns which anomalies each producer's settings forbid. What may be lost by an election is in
`allowances`; here it is only looked up.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from holdfast.judge.checker import judge
from holdfast.judge.history import Acknowledged, Delivered, Replica
from holdfast.judge.promise import ALWAYS_FORBIDDEN
from holdfast.judge.verdict import Anomaly, Finding, Judgement
from holdfast.testing.simulation.allowances import Allowances
from holdfast.testing.simulation.clients import History
from holdfast.testing.simulation.compacted_truth import CompactedTruth
from holdfast.testing.simulation.oracle import Oracle
from holdfast.testing.simulation.plan import Plan, ProducerPlan
from holdfast.testing.simulation.refusals import wrong_refusals


def forbidden(producer: ProducerPlan) -> frozenset[Anomaly]:
    """What these settings rule out. Losses are exact: those that are allowed are looked up."""
    found = set(ALWAYS_FORBIDDEN) | {Anomaly.VANISHED}
    if producer.acks == -1:
        found.add(Anomaly.LOST)
    if producer.idempotent or not producer.retries:
        found |= {Anomaly.DUPLICATED, Anomaly.REORDERED}
    return frozenset(found)


def unforgiven(plan: Plan, history: History, oracle: Oracle) -> tuple[Judgement, list[Finding]]:
    """Judge the history; return what nothing excuses. The oracle is told of wrong refusals."""
    # All with their evidence: what is allowed must not hide what comes behind it.
    judgement = judge(history.events, findings_max=len(history.events)).judgement
    rules = {(one.topic, one.partition): one for one in plan.producers}
    found: list[Finding] = []
    for finding in judgement.findings:
        producer = rules.get((finding.topic, finding.partition))
        if producer is None or finding.anomaly not in forbidden(producer):
            continue
        truth = oracle.named(finding.topic, finding.partition)
        allowances = Allowances() if truth is None else truth.allowances
        gone_until = 0 if truth is None else truth.deletions.gone
        if (
            not is_deleted(finding, gone_until, history)
            and not (isinstance(truth, CompactedTruth) and is_replaced(finding, truth))
            and not _is_allowed(finding, allowances, history, producer)
            and not (
                is_empty_everywhere(finding, gone_until)
                and not oracle.is_led(finding.topic, finding.partition)
            )
        ):
            found.append(finding)
    if not found:  # what is lost is told first
        for invariant, text in wrong_refusals(plan, history, oracle):
            oracle.fail(invariant, text)
    return judgement, found


def is_deleted(finding: Finding, gone_until: int, history: History) -> bool:
    """Whether all that is missing stood before what has gone from some log's beginning.

    The oracle has seen by each node's own clock that it was due, or that it was asked for; the
    judge has only the clients'. What was asked for and is not gone anywhere excuses nothing.
    """
    if finding.anomaly is Anomaly.LOST:
        one = _acknowledged(finding)
        return one is not None and history.places.get(one.id, inf) < gone_until
    if finding.anomaly in {Anomaly.VANISHED, Anomaly.SKIPPED}:
        # What was skipped is gone where the reader was, and not yet from the end's leader.
        read = finding.events[0]
        return isinstance(read, Delivered) and read.offset < gone_until
    if finding.anomaly is Anomaly.DIVERGED:
        # Two extents of one end tell of a beginning. Both begin alike, or are one, where the log
        # went on expiring between the last read and the look at the files.
        extents = [event for event in finding.events if isinstance(event, Replica)]
        if len(extents) == len(finding.events) == 2 and extents[0].end == extents[1].end:
            return max(each.begin for each in extents) <= gone_until
    return False


def is_replaced(finding: Finding, truth: CompactedTruth) -> bool:
    """Whether what is missing went because a later record has its key, as the oracle has seen."""
    if finding.anomaly is Anomaly.LOST:
        one = _acknowledged(finding)
        return one is not None and truth.compacted.is_taken(one.id)
    if finding.anomaly in {Anomaly.VANISHED, Anomaly.SKIPPED}:
        read = finding.events[0]
        return (
            isinstance(read, Delivered)
            and read.epoch is not None
            and (read.epoch, read.offset) in truth.compacted.taken
        )
    return False


def is_empty_everywhere(finding: Finding, gone_until: int) -> bool:
    """Whether two replicas end apart, and neither holds anything: all that was there has expired.

    Where nobody leads, as when every disk was replaced, none learns where the other one ends.
    """
    extents = [event for event in finding.events if isinstance(event, Replica)]
    return (
        finding.anomaly is Anomaly.DIVERGED
        and len(extents) == len(finding.events) == 2
        and all(each.begin == each.end for each in extents)
        and max(each.end for each in extents) <= gone_until
    )


def _is_allowed(
    finding: Finding, allowances: Allowances, history: History, producer: ProducerPlan
) -> bool:
    if finding.anomaly is Anomaly.LOST:
        return _loss_is_allowed(_acknowledged(finding), allowances, history)
    if finding.anomaly is Anomaly.DIVERGED:
        # Acknowledged at an offset that was lost; an earlier attempt stands at another one.
        one = _acknowledged(finding)
        if one is None:
            return False
        return producer.acks != -1 or _loss_is_allowed(one, allowances, history)
    if finding.anomaly is Anomaly.VANISHED:
        read = finding.events[0]
        assert isinstance(read, Delivered)
        return read.epoch is not None and allowances.covers(read.epoch, read.offset)
    if finding.anomaly is Anomaly.SKIPPED:
        return bool(allowances.given)  # a reader that stood behind what was lost
    return False


def _acknowledged(finding: Finding) -> Acknowledged | None:
    return next((event for event in finding.events if isinstance(event, Acknowledged)), None)


def _loss_is_allowed(one: Acknowledged | None, allowances: Allowances, history: History) -> bool:
    """Whether some epoch in which it may have been written has lost what stood there.

    Where nobody knows the place, as of a duplicate that was in no log that is committed, it may be
    any loss.
    """
    place = None if one is None else history.places.get(one.id, one.offset)
    if one is None or place is None:
        return bool(allowances.given)
    return any(allowances.covers(epoch, place) for epoch in history.epochs.get(one.id, ()))


def describe(findings: Sequence[Finding]) -> str:
    """Lines for a person: each finding with its evidence."""
    lines = []
    for finding in findings[:10]:
        lines.append(f"{finding.anomaly}: {finding.topic}-{finding.partition}: {finding.text}")
        lines += [f"    {event}" for event in finding.events[:4]]
    if len(findings) > 10:
        lines.append(f"... and {len(findings) - 10} more")
    return "\n".join(lines)
