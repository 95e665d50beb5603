"""What the page shows, part by part: every figure reckoned and put into words, no markup."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from holdfast.judge.checker import Evidence
from holdfast.judge.groups.history import ConsumerFault
from holdfast.judge.groups.members import BEGINS
from holdfast.judge.groups.verdict import GroupAnomaly
from holdfast.judge.history import Fault
from holdfast.judge.timeline import DISK, HURTS
from holdfast.judge.verdict import Anomaly, Observed, PartitionJudgement
from holdfast.lab.report.charts import lag_chart, latency, throughput
from holdfast.lab.report.cluster_charts import cluster_state, node_state, strip
from holdfast.lab.report.drawing import Frame
from holdfast.lab.report.figures import has_percentile
from holdfast.lab.report.groups import (
    ALWAYS,
    Forbidden,
    but_for,
    group_anomalies,
    group_counts,
    group_findings,
    group_observed,
    observed_text,
)
from holdfast.lab.report.link_chart import links, links_hurt
from holdfast.lab.report.marks import marks_of, not_marked
from holdfast.lab.report.scales import duration
from holdfast.lab.report.scene import Figure, Scene
from holdfast.lab.report.standstill import Standstill, explained, where, why
from holdfast.lab.report.tables import (
    Found,
    Moment,
    TableView,
    anomalies,
    availability,
    findings,
    longest_gap,
    moments,
    outcomes,
    table_view,
)
from holdfast.lab.report.values import Check, Lag, PartReport, ReportData
from holdfast.lab.report.words import ACTION_WORDS, consumer_action, nodes_text

REASONS_MAX = 8
COUNTED = HURTS | {DISK}


@dataclass(frozen=True, slots=True, kw_only=True)
class Badge:
    """A verdict in a word, a sign and a tone: it is never told by its colour alone."""

    tone: str  # kept, broken, undecided
    sign: str
    word: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """One figure of a part. `tone`: good, bad, warn or nothing."""

    name: str
    value: str
    tone: str = ""
    note: str = ""
    said: str = ""  # on the first screen; empty: it is not there

    @property
    def sign(self) -> str:
        return "✗ " if self.tone == "bad" else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartView:
    """One part as the page shows it. `report` is what the caller filled in."""

    report: PartReport
    anchor: str
    badge: Badge
    tables: Sequence[TableView]
    differs: Mapping[str, str]  # settings that are not those of the first part
    is_first: bool
    # What follows comes of the part's evidence, and is empty without.
    broken_on_purpose: str = ""
    cards: Sequence[Card] = ()
    findings: Sequence[Found] = ()
    notes: Sequence[str] = ()  # what the judge says of the whole history
    figures: Sequence[Figure] = ()
    total_ms: float = 0.0
    unmarked: str = ""  # anomalies that no chart can mark
    why_still: str = ""  # why partitions with a leader stood still; empty: none did
    stills: Sequence[str] = ()
    moments: Sequence[Moment] = ()
    observed: str = ""
    outcomes: TableView | None = None
    anomalies: TableView | None = None
    availability: TableView | None = None
    group_counts: TableView | None = None
    group_anomalies: TableView | None = None


def badge_of(kept: bool | None) -> Badge:
    """The promise of a whole run, or of a part to prove."""
    if kept is None:
        return Badge(tone="undecided", sign="?", word="Not decided")
    if kept:
        return Badge(tone="kept", sign="✓", word="Promise kept")
    return Badge(tone="broken", sign="✗", word="Promise broken")


def run_badge(data: ReportData) -> Badge:
    """The promise of the whole run; where only a control broke one, that is its own."""
    proofs = [part for part in data.parts if not part.control]
    own = any(part.own_broken for part in data.parts)
    if data.kept is False and own and all(part.kept is not False for part in proofs):
        return Badge(tone="broken", sign="✗", word="The control's own promise broken")
    return badge_of(data.kept)


def part_badge(part: PartReport) -> Badge:
    """A control that fails as it must is what the proof needs."""
    if not part.control:
        return badge_of(part.kept)
    if part.own_broken:
        return Badge(tone="broken", sign="✗", word="control broke its own promise")
    if part.as_it_must:
        return Badge(tone="kept", sign="✓", word="control failed, as it must")
    return Badge(tone="undecided", sign="?", word="control did not fail as it must")


def part_views(data: ReportData) -> list[PartView]:
    """Every part, in order."""
    first = data.parts[0].settings if data.parts else {}
    views = []
    for index, part in enumerate(data.parts):
        differs = {
            name: value
            for name, value in part.settings.items()
            if index == 0 or first.get(name) != value
        }
        view = PartView(
            report=part,
            anchor=f"part-{index + 1}",
            badge=part_badge(part),
            tables=[table_view(table) for table in part.tables],
            differs=differs,
            is_first=index == 0,
        )
        if part.evidence is not None:
            forbidden = data.forbidden - part.counted
            view = _with_evidence(view, part.evidence, forbidden, data.forbidden_groups)
        views.append(view)
    return views


def _with_evidence(
    view: PartView, evidence: Evidence, forbidden: frozenset[str], groups: Forbidden
) -> PartView:
    part, judgement = view.report, evidence.judgement
    undecided = judgement.undecided + evidence.groups.undecided
    beside = (links_hurt(evidence.timeline), part.also_broken, consumers_hurt(evidence))
    hurt = [also for also in beside if also]
    cards = cards_of(evidence, forbidden, part.checks, control=bool(part.control))
    scene = scene_of(evidence, part.lag, forbidden, explained(part.still, part.settings))
    begin_ms = scene.frame.begin_ms
    return replace(
        view,
        broken_on_purpose=broken_on_purpose(evidence.timeline.faults, ", ".join(hurt)),
        cards=[*cards, *group_cards(evidence, groups)],
        findings=[*group_findings(evidence, groups), *findings(evidence, forbidden)],
        notes=[*judgement.notes, *_not_decided(undecided)],
        figures=figures_of(evidence, scene, part.lag),
        total_ms=scene.frame.end_ms - begin_ms,
        unmarked=_unmarked(evidence),
        why_still=why(part.settings) if scene.standstills else "",
        stills=[where(each, scene.place(each.partition), begin_ms) for each in scene.standstills],
        moments=moments(evidence.timeline),
        observed=observed_text(evidence),
        outcomes=outcomes(evidence),
        anomalies=anomalies(evidence, forbidden),
        availability=availability(evidence),
        group_counts=group_counts(evidence),
        group_anomalies=group_anomalies(evidence, groups),
    )


def scene_of(
    evidence: Evidence,
    lag: Lag | None,
    forbidden: Iterable[str],
    still: Sequence[Standstill] = (),
) -> Scene:
    """The time that all charts of a part share, and what is marked in all of them."""
    timeline = evidence.timeline
    times = [at_ms for at_ms, _value in lag.points] if lag is not None else []
    frame = Frame(
        min([timeline.begin_ms, *times]) if timeline.started else min(times, default=0.0),
        max([timeline.end_ms, *times]),
    )
    return Scene(
        frame=frame,
        timeline=timeline,
        marks=marks_of(evidence.judgement, frame.end_ms - frame.begin_ms, forbidden),
        standstills=still,
    )


def figures_of(evidence: Evidence, scene: Scene, lag: Lag | None) -> list[Figure]:
    """All charts of one part, one below the other."""
    if scene.frame.end_ms <= scene.frame.begin_ms:
        return []
    figures = [strip(scene)]
    if evidence.points:
        figures += [throughput(evidence, scene), latency(evidence, scene)]
    if lag is not None:
        figures.append(lag_chart(lag, scene))
    figures += [cluster_state(scene), links(scene), node_state(scene)]
    return [figure for figure in figures if figure is not None]


def _not_decided(reasons: Sequence[str]) -> list[str]:
    told = [f"Not decided: {each}." for each in reasons[:REASONS_MAX]]
    more = len(reasons) - REASONS_MAX
    return [*told, f"And {more} more like these."] if more > 0 else told


def _unmarked(evidence: Evidence) -> str:
    """Say which anomalies stand in no chart: the judge keeps evidence of a bounded number."""
    left_out = not_marked(evidence.judgement)
    if not left_out:
        return ""
    said = ", ".join(f"{count:,} more {anomaly.value}" for anomaly, count in left_out.items())
    return f"Marked are those with evidence in this page; counted beside them: {said}."


# -- what was done, and what was seen --------------------------------------------------------------


def broken_on_purpose(faults: Iterable[Fault], also: str = "") -> str:
    """What was done to nodes, and `also` to others, in one line."""
    hurts = Counter((fault.action, fault.node) for fault in faults if fault.action in COUNTED)
    if not hurts:
        return also or "no node was hurt"
    alike: dict[tuple[str, int], list[int]] = {}
    for (action, node), count in hurts.items():
        alike.setdefault((action, count), []).append(node)
    told = [
        f"{ACTION_WORDS.get(action, action)} of {nodes_text(nodes)}"
        + (f" ({count} times{' each' if len(nodes) > 1 else ''})" if count > 1 else "")
        for (action, count), nodes in alike.items()
    ]
    return ", ".join([*told, also] if also else told)


def consumers_hurt(evidence: Evidence) -> str:
    """What was done to processes of consumers, in one line; empty: nothing."""
    faults: Iterable[ConsumerFault] = evidence.timeline.consumer_faults
    alike: dict[str, list[str]] = {}
    for fault in faults:
        if fault.action in BEGINS:
            alike.setdefault(fault.action, []).append(fault.consumer)
    told = []
    for action, hurt in alike.items():
        names = list(dict.fromkeys(hurt))
        several = f"{len(names)} consumers" if len(names) > 1 else f"consumer {names[0]}"
        times = f" ({len(hurt)} times)" if len(hurt) > len(names) else ""
        told.append(f"{consumer_action(action)} of {several}{times}")
    return ", ".join(told)


def group_cards(evidence: Evidence, forbidden: Forbidden) -> list[Card]:
    """The figures of groups; none where there are no groups."""
    groups = evidence.groups
    if not groups.partitions:
        return []
    counts = groups.counts
    again = f"{counts.repeated:,} again, as allowed" if counts.repeated else ""
    if not again and not groups.count(GroupAnomaly.PROCESSED_TWICE):
        again = "none twice"
    processed = f"{counts.processed:,}"
    observed = group_observed(groups)
    value, _, note = observed.partition(" (")
    cards = [
        Card(name="processed", value=processed, note=again, said=f"{processed} processed"),
        Card(
            name="observed by groups",
            value=value,
            note=note.rstrip(")"),
            said=f"by groups: {observed}",
        ),
    ]
    for anomaly in GroupAnomaly:
        count, name = groups.count(anomaly), f"{anomaly.value}, by groups"
        if count:
            tone, note = ("bad", "forbidden") if anomaly in forbidden else ("warn", "not forbidden")
            said = f"{count:,} {name}"
            cards.append(Card(name=name, value=f"{count:,}", tone=tone, note=note, said=said))
        elif anomaly in ALWAYS and groups.decided:
            cards.append(Card(name=name, value="0", tone="good", said=f"0 {name}"))
        elif anomaly in ALWAYS:
            cards.append(Card(name=name, value="?", tone="warn", note="not decided"))
    return cards


def cards_of(
    evidence: Evidence, forbidden: frozenset[str], checks: Sequence[Check] = (), *, control: bool
) -> list[Card]:
    """The figures that a part is judged by. Failed checks come first: they outweigh the log."""
    judgement = evidence.judgement
    counts = judgement.counts
    failed = [] if control else [check for check in checks if not check.kept]
    cards = []
    if failed:
        value = f"{len(failed)} of {len(checks)}"
        cards.append(
            Card(name="checks failed", value=value, tone="bad", said=f"{value} checks failed")
        )
    cards += [
        _observed_card(
            evidence, control=control, log_only=bool(failed or evidence.groups.partitions)
        ),
        Card(
            name="acknowledged",
            value=f"{counts.acknowledged:,}",
            note=f"of {counts.sent:,} sent",
            said=f"{counts.acknowledged:,} of {counts.sent:,} acknowledged",
        ),
    ]
    always = {Anomaly.LOST, Anomaly.DUPLICATED}
    cards += [
        _anomaly_card(evidence, anomaly, forbidden)
        for anomaly in Anomaly
        if anomaly in always or judgement.count(anomaly)
    ]
    cards.append(Card(name="expired", value=f"{counts.expired:,}" if judgement.decided else "?"))
    gap = longest_gap(judgement.partitions)
    if gap is not None:
        longest = duration(gap.availability.gap_ms_longest)
        at_ms = gap.availability.gap_at_ms - evidence.timeline.begin_ms
        note = f"{_name(evidence, gap)}, at {at_ms / 1000:,.1f} s"
        cards.append(
            Card(name="longest gap", value=longest, note=note, said=f"longest gap {longest}")
        )
    available = judgement.availability
    worst = duration(available.latency_ms_max)
    if has_percentile(available.acknowledged, 990):
        p99 = duration(available.latency_ms_p99)
        cards.append(Card(name="latency p99", value=p99, note=f"max {worst}"))
    elif available.acknowledged:
        cards.append(Card(name="latency max", value=worst))
    return cards


def _observed_card(evidence: Evidence, *, control: bool, log_only: bool) -> Card:
    """What the judge saw in the log. `log_only`: it is not all that was seen, and no good news."""
    observed, strange = evidence.judgement.observed, but_for(evidence)
    good = "bad" if strange else "" if log_only else "good"
    tone = {Observed.EXACTLY_ONCE: good, Observed.UNDECIDED: "warn"}.get(observed, "bad")
    value, _, note = observed.value.partition(":")
    return Card(
        name="observed in the log" if log_only else "observed",
        value=value,
        tone="" if control else tone,
        note=", ".join(filter(None, (note.strip(), strange))),
        said=f"in the log: {value}" if log_only else value,
    )


def _anomaly_card(evidence: Evidence, anomaly: Anomaly, forbidden: frozenset[str]) -> Card:
    judgement = evidence.judgement
    name, count = anomaly.value, judgement.count(anomaly)
    said = f"{count:,} {name}"
    if count and name in forbidden:
        return Card(name=name, value=f"{count:,}", tone="bad", note="forbidden", said=said)
    if count:
        return Card(name=name, value=f"{count:,}", tone="warn", note="not forbidden", said=said)
    if not judgement.decided:
        return Card(name=name, value="?", tone="warn", note="not decided", said=f"{name}: ?")
    return Card(name=name, value="0", tone="good", said=said)


def _name(evidence: Evidence, each: PartitionJudgement) -> str:
    one_topic = len({other.topic for other in evidence.judgement.partitions}) == 1
    return f"P{each.partition}" if one_topic else f"{each.topic}-{each.partition}"


# -- the first screen ------------------------------------------------------------------------------


def when(parts: Sequence[PartReport]) -> str:
    """When the run began, how long all its parts took, and how much was written down."""
    evidences = [part.evidence for part in parts if part.evidence is not None]
    started = [each.timeline for each in evidences if each.timeline.started]
    if not started:
        return ""
    moment = datetime.fromtimestamp(started[0].begin_wall_ms / 1000, tz=UTC)
    total_ms = sum(timeline.end_ms - timeline.begin_ms for timeline in started)
    events = sum(each.judgement.events for each in evidences)
    parts_text = f", {len(parts)} parts" if len(parts) > 1 else ""
    return f"{moment:%Y-%m-%d %H:%M} UTC{parts_text}, {duration(total_ms)}, {events:,} events"


def expired(parts: Sequence[PartReport]) -> str:
    """How many acknowledged events expired, in all parts, and why that was allowed."""
    told = [(part.title, part.evidence.judgement) for part in parts if part.evidence is not None]
    if not told:
        return ""
    lines = []
    for title, judgement in told:
        text = judgement.expired_text
        if not judgement.decided:
            text += ("; " if text else "") + "not decided: nobody knows what the log holds"
        if text:
            lines.append(f"{title}: {text}." if len(told) > 1 else f"{text}.")
    if not lines:
        return "None: no acknowledged event was taken by retention or by a deletion."
    return " ".join(lines)
