"""What a page says of groups: a sentence, cards, tables, and findings with their events."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.judge.checker import Evidence
from holdfast.judge.groups.verdict import (
    GROUP_MEANING,
    GroupAnomaly,
    GroupCounts,
    GroupFinding,
    GroupJudgement,
    GroupPartitionJudgement,
)
from holdfast.judge.verdict import Anomaly, Observed
from holdfast.lab.report.scales import duration
from holdfast.lab.report.tables import (
    FINDINGS_SHOWN_MAX,
    Cell,
    Found,
    FoundItem,
    Row,
    TableView,
    anomaly_cell,
    event_list,
)

Forbidden = frozenset[GroupAnomaly]
STRANGE = (Anomaly.DIVERGED, Anomaly.PHANTOM, Anomaly.RESURRECTED)  # whatever became of the rest
ALWAYS = (GroupAnomaly.SKIPPED, GroupAnomaly.PROCESSED_TWICE)  # said also where there are none


def group_sentence(groups: GroupJudgement) -> str:
    """Say in a clause what members did, and what they may not do and did."""
    counts = groups.counts
    words = f"members processed {counts.processed:,}"
    if counts.repeated:
        words += f", {counts.repeated:,} of them again, as is allowed"
    if counts.skipped_by_operator:
        words += f", an operator passed over {counts.skipped_by_operator:,}"
    if counts.expired:
        words += f", {counts.expired:,} expired before they were"
    seen = [f"{groups.count(each):,} {each.value}" for each in GroupAnomaly if groups.count(each)]
    if not groups.decided:
        return f"{words}{', ' if seen else ''}{', '.join(seen)}, and not all is known of them"
    return f"{words}, {', '.join(seen) or 'none skipped, none stuck'}"


def observed_text(evidence: Evidence) -> str:
    """Say what records went through: in the log, and, which is another thing, by groups.

    What became of those that were acknowledged is not all where others stand in the log as well.
    """
    in_log = ", ".join(filter(None, (evidence.judgement.observed.value, but_for(evidence))))
    if not evidence.groups.partitions:
        return in_log
    return f"{in_log} in the log, {group_observed(evidence.groups)} by groups"


def but_for(evidence: Evidence) -> str:
    """Say how much in the log is nothing that was sent there, or not the same to all."""
    judgement = evidence.judgement
    seen = [f"{judgement.count(each):,} {each.value}" for each in STRANGE if judgement.count(each)]
    return f"but for {', '.join(seen)}" if seen and judgement.decided else ""


def group_observed(groups: GroupJudgement) -> str:
    observed = groups.observed
    return "neither (skipped, and done again)" if observed is Observed.NEITHER else observed.value


def group_counts(evidence: Evidence) -> TableView | None:
    """What the members of each group did, partition by partition."""
    groups = evidence.groups
    if not groups.partitions:
        return None
    columns = ["", "processed", "again, as allowed", "expired", "passed over by an operator",
               "commits", "refused", "unknown", "owners", "longest wait"]  # fmt: skip
    rows = [
        Row([Cell(_name(groups, each), "name"), *_counts(each.counts)])
        for each in groups.partitions
    ]
    rows.append(Row([Cell("all"), *_counts(groups.counts)], "total"))
    return TableView(header=[Cell(name, "n" if name else "") for name in columns], rows=rows)


def _counts(counts: GroupCounts) -> list[Cell]:
    numbers = (
        counts.processed,
        counts.repeated,
        counts.expired,
        counts.skipped_by_operator,
        counts.commits,
        counts.commits_refused,
        counts.commits_unknown,
        counts.owners,
    )
    wait = Cell(duration(counts.longest_wait_ms), "n")
    return [*(Cell(f"{number:,}", "n") for number in numbers), wait]


def group_anomalies(evidence: Evidence, forbidden: Forbidden) -> TableView | None:
    """How many of each anomaly of groups, partition by partition."""
    groups = evidence.groups
    if not groups.partitions:
        return None
    rows = [
        Row([Cell(_name(groups, each), "name"),
             *(_anomaly(a, each.anomalies.get(a, 0), forbidden) for a in GroupAnomaly)])
        for each in groups.partitions
    ]  # fmt: skip
    totals = [_anomaly(each, groups.count(each), forbidden) for each in GroupAnomaly]
    rows.append(Row([Cell("all"), *totals], "total"))
    header = [Cell(""), *(Cell(each.value, "n", GROUP_MEANING[each]) for each in GroupAnomaly)]
    return TableView(header=header, rows=rows)


def _anomaly(anomaly: GroupAnomaly, count: int, forbidden: Forbidden) -> Cell:
    return anomaly_cell(count, is_forbidden=anomaly in forbidden)


def _name(groups: GroupJudgement, each: GroupPartitionJudgement) -> str:
    name = f"{each.topic}-{each.partition}"
    is_alone = len({other.group for other in groups.partitions}) == 1
    return name if is_alone else f"{each.group}: {name}"


def group_findings(evidence: Evidence, forbidden: Forbidden) -> list[Found]:
    """What groups did wrong, forbidden kinds first, with the events that prove it."""
    kinds: dict[GroupAnomaly, list[GroupFinding]] = {}
    for finding in evidence.groups.findings:
        kinds.setdefault(finding.anomaly, []).append(finding)
    found = [
        Found(
            word=f"{anomaly.value}, by a group",
            count=f"{evidence.groups.count(anomaly):,}",
            meaning=GROUP_MEANING[anomaly],
            forbidden=anomaly in forbidden,
            items=_items(findings[:FINDINGS_SHOWN_MAX], evidence),
            more=max(0, evidence.groups.count(anomaly) - FINDINGS_SHOWN_MAX),
        )
        for anomaly, findings in kinds.items()
    ]
    return sorted(found, key=lambda each: not each.forbidden)


def _items(findings: Sequence[GroupFinding], evidence: Evidence) -> list[FoundItem]:
    return [
        FoundItem(
            f"{each.group}: {each.topic}-{each.partition}: {each.text}",
            event_list(each.events, evidence.timeline),
        )
        for each in findings
    ]
