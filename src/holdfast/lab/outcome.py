"""What a proof has come to: the result of each part, and the verdict over all of them.

Owns when a part is as it must be, and what of it the report says. How the parts are run and judged
is for `lab.prove`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.cluster.layout import APACHE, OLDER
from holdfast.judge.checker import Evidence
from holdfast.judge.groups.verdict import GroupAnomaly
from holdfast.judge.history import Acknowledged, Event, Refused, Send, Unknown
from holdfast.judge.promise import ALWAYS_FORBIDDEN
from holdfast.judge.verdict import Anomaly, Finding, Judgement, PartitionJudgement
from holdfast.lab.aftermath import LOST_WHERE_IT_BROKE_OFF
from holdfast.lab.journal import Exit
from holdfast.lab.parameters import ELSEWHERE, Parameters
from holdfast.lab.report import Check, PartReport, ReportData, Table
from holdfast.lab.report.figures import has_percentile
from holdfast.lab.report.groups import group_sentence, observed_text
from holdfast.lab.report.held import Hold, held_ms
from holdfast.lab.report.standstill import Standstill
from holdfast.lab.report.tables import longest_gap
from holdfast.lab.scenario import Part, Scenario

REASONS_MAX = 3  # why a run is undecided, in its sentence
# What a client that is not idempotent does by itself where a node did not get to run: it gives a
# request up, and the node takes that behind what was sent next.
_OF_GIVING_UP = frozenset({Anomaly.DUPLICATED, Anomaly.REORDERED})
# Behind a report's first sentence: whose cluster it is about, if it is none of ours.
_WHERE = {
    APACHE: " Nodes are Apache Kafka's.",
    OLDER: " Brokers are those of an Apache Kafka before 4.0, with ZooKeeper.",
    ELSEWHERE: " The cluster is one that was there.",
}


Span = tuple[float, float]  # from one moment to another, on the clock of `at_ms`


class GivenUps:
    """When each process was first and last told of an error. Fed with a whole history."""

    def __init__(self, error: str) -> None:
        self._error = error
        self.spans: dict[str, Span] = {}

    def feed(self, event: Event) -> None:
        if isinstance(event, Refused | Unknown) and event.error == self._error:
            first_ms, _ = self.spans.get(event.process, (event.at_ms, event.at_ms))
            self.spans[event.process] = first_ms, event.at_ms


def excused_by(
    part: Part, judgement: Judgement, spans: Mapping[str, Span] | None, findings_max: int
) -> frozenset[Anomaly]:
    """Return which of the anomalies that a part only counts are clients' own, each one of them.

    `spans`: see `GivenUps`; None: the part names no error. `findings_max`: of how many of each
    anomaly in a partition the judgement has evidence: where there are as many, there may be more,
    and nobody can say whose those are.
    """
    told = Counter((each.anomaly, each.topic, each.partition) for each in judgement.findings)
    others = {key[0] for key, count in told.items() if count >= findings_max}
    others |= {each.anomaly for each in judgement.findings if not _is_of_clients(part, each, spans)}
    return part.counted - others


def _is_of_clients(part: Part, finding: Finding, spans: Mapping[str, Span] | None) -> bool:
    """Whether a client that may be excused has sent what was found, and had it in hand then."""
    send = next((event for event in finding.events if isinstance(event, Send)), None)
    if send is None or send.process not in part.counted_of:
        return False
    if spans is None:
        return True
    if send.process not in spans:
        return False
    first_ms, last_ms = spans[send.process]
    answered_ms = [
        event.at_ms
        for event in finding.events
        if isinstance(event, Acknowledged | Refused | Unknown) and event.id == send.id
    ]
    return send.at_ms <= last_ms and all(first_ms <= at_ms for at_ms in answered_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartResult:
    part: Part
    parameters: Parameters
    evidence: Evidence
    checks: tuple[Check, ...]
    tables: tuple[Table, ...]
    broken: tuple[Anomaly, ...]  # of what the scenario's promise forbids
    broken_groups: tuple[GroupAnomaly, ...] = ()  # of what it forbids groups
    excused: frozenset[Anomaly] = frozenset()  # of that, what is clients' own doing, all of it
    stuck: tuple[GroupAnomaly, ...] = ()  # besides; it may be for the lab not reaching the cluster
    history: Path
    still: tuple[Standstill, ...] = ()  # where partitions with a leader stood still
    broke_off: str | None = None  # why its steps did not come to their end
    starved: str | None = None  # which nodes got too little of a processor
    unreached: str | None = None  # when a cluster elsewhere did not answer the lab
    told: tuple[str, ...] = ()  # what the steps have to say beside their checks
    recovered_ms: float | None = None  # the longest from a fault to an acknowledgement
    recovered_in: Hold | None = None  # when that was; None: it has no end, or nobody can say
    not_met: str | None = None  # what it is about, and did not come to pass

    @property
    def as_it_must(self) -> bool:
        """A part to prove keeps the promise; a control breaks it in the way that it must.

        A control has a promise of its own, the weaker one of its settings, and keeps that. A check
        that may only have come too late, because nodes were starved, shows of neither anything.
        """
        if self.broke_off is not None or not self.decided or self.not_met is not None:
            return False
        if self.doubtful:
            return False
        failed = [check.name for check in self.checks if not check.kept]
        if self.part.breaks_check is not None:
            foretold = all(self.part.breaks_check in name for name in failed)
            certain = any(not check.kept and not self._excused(check) for check in self.checks)
            return certain and foretold and not self.anything_broken
        if failed:
            return False
        if self.part.breaks_group is not None:
            return not self.broken and self._breaks_group(self.part.breaks_group)
        if self.part.breaks_with is None:
            return not self.anything_broken
        return self.part.breaks_with in self.broken and not self._besides()

    def _besides(self, excused: frozenset[Anomaly] = frozenset()) -> tuple[str, ...]:
        """What a control has broken besides what it must break, by name; `excused`: but these."""
        own = self.parameters.promise.forbids
        weaker = own - self.excused - excused
        if self.part.breaks_with is not None:
            weaker -= {self.part.breaks_with}
        if self.part.breaks_with is Anomaly.LOST and Anomaly.LOST in own:
            # It is lost by what the steps do, to a disk say, and may have been read before. What
            # is lost by weaker settings may not: with acks=1 as well all replicas in sync have
            # what a reader is given.
            weaker -= {Anomaly.VANISHED}
        of_log = (each.value for each in self.evidence.judgement.broken(weaker))
        return (*of_log, *(f"{each.value}, by a group" for each in self.broken_groups))

    @property
    def own_broken(self) -> tuple[str, ...]:
        """What a control has broken that it has to keep, by name.

        It is not what the control is to show, so it is the cluster's fault as in any other part.
        That is what its settings forbid, and of a loss that they allow what exceeds it. What only
        a machine explains that starved nodes is left out: such a control ends as not made. So do
        checks of its schedule that failed: then there was no control. Where it broke off, what its
        settings forbid may be its schedule's fault; what no settings allow is not.
        """
        if not self.part.is_control:
            return ()
        if self.broke_off is not None:
            never = ALWAYS_FORBIDDEN - self.excused - {self.part.breaks_with}
            return tuple(each.value for each in self.evidence.judgement.broken(never))
        if self.part.breaks_group is None:
            starved = self.busy is not None and not self.parameters.idempotent
            besides = self._besides(_OF_GIVING_UP if starved else frozenset())
            return (*besides, *self._lost_beyond)
        of_groups = self.evidence.groups.broken(self._weaker_of_groups)
        return (
            *(each.value for each in self.broken),
            *(f"{each.value}, by a group" for each in of_groups),
        )

    @property
    def _lost_beyond(self) -> tuple[str, ...]:
        """What a control has lost beyond what its settings allow, in words.

        Its steps foretell a loss, in number or event by event, from who held what. What others
        held as well is lost by nobody's leave. But a forecast holds only where all else went as
        foretold. And it is no forecast where nodes were starved: who is thought dead is replaced
        once more than was meant, and with acks=1 or unclean elections that may lose events, too.
        """
        as_planned = all(check.kept or check.beyond for check in self.checks)
        if not as_planned or not self.decided or self.busy is not None:
            return ()
        return tuple(check.beyond for check in self.checks if check.beyond)

    @property
    def busy(self) -> str | None:
        """Say that nodes got too little of a processor; None: they did not.

        Which, and for how long, stands at the end of a run's journal. A run that was killed has
        none, and yet its checks, each of which was late only where nodes were starved by then.
        """
        if self.starved is not None or self.unreached is not None:
            return self.starved
        late = [check.name for check in self.checks if self._excused(check)]
        return f"nodes were starved when this failed: {', '.join(late)}" if late else None

    @staticmethod
    def _excused(check: Check) -> bool:
        """Whether a failed check may only have come too late.

        On a machine that starved nodes, or where the lab did not reach the cluster.
        """
        return check.late and not check.kept

    @property
    def doubtful(self) -> tuple[str, ...]:
        """What is not as it must be, by name, and may be for the lab not reaching the cluster."""
        if self.unreached is None:
            return ()
        late = [check.name for check in self.checks if not check.kept and check.late]
        return (*(f"{each.value}, by a group" for each in self.stuck), *late)

    @property
    def why_not(self) -> str:
        """Say why a control has not failed as it must: it has not failed, or otherwise."""
        if self.broke_off is not None:
            return f"it broke off: {self.broke_off}"
        if not self.decided:
            return f"not decided: {'; '.join(self.undecided[:REASONS_MAX])}"
        if self.doubtful:
            return f"{self.unreached}: {', '.join(self.doubtful)}"
        if self.not_met is not None:
            return self.not_met
        foretold = self.part.breaks_check
        odd = [c.name for c in self.checks if not c.kept and not (foretold and foretold in c.name)]
        if odd:
            return f"not so: {', '.join(odd)}"
        if foretold is not None:
            late = [check.name for check in self.checks if not check.kept]
            none = f"perhaps only too late: {', '.join(late)}" if late else ""
            broken = ", ".join(self.anything_broken)
            return broken or none or f"no check of {foretold} has failed"
        wanted = self.part.breaks_with or self.part.breaks_group
        if wanted is not None and wanted not in (*self.broken, *self.broken_groups):
            return f"nothing was {wanted.value}"
        seen = self._besides() if self.part.breaks_group is None else self.anything_broken
        return f"besides, there was: {', '.join(seen)}"

    def _breaks_group(self, foretold: GroupAnomaly) -> bool:
        """Whether groups break the promise as was foretold, and keep their own, weaker one."""
        weaker = self._weaker_of_groups
        return foretold in self.broken_groups and not self.evidence.groups.broken(weaker)

    @property
    def _weaker_of_groups(self) -> frozenset[GroupAnomaly]:
        """What groups are not to show, in a control that is to break their promise in one way."""
        promise = self.parameters.group_promise
        forbids = frozenset[GroupAnomaly]() if promise is None else promise.forbids
        return forbids - {self.part.breaks_group} - {*self.stuck}

    @property
    def decided(self) -> bool:
        """Whether all is known, of the log and of groups."""
        return not self.undecided

    @property
    def undecided(self) -> tuple[str, ...]:
        return self.evidence.judgement.undecided + self.evidence.groups.undecided

    @property
    def anything_broken(self) -> tuple[str, ...]:
        """What was seen of all that the scenario's promise forbids, by name."""
        groups = (f"{each.value}, by a group" for each in self.broken_groups)
        return (*(each.value for each in self.broken), *groups)

    @property
    def failed_by(self) -> str:
        """Return by what a part fails, in a few words: its anomalies, and its first check.

        Before that stands what was counted as lost in replicas' files, where it broke off.
        """
        judgement, groups = self.evidence.judgement, self.evidence.groups
        of_log = [f"{judgement.count(each):,} {each.value}" for each in self.broken]
        of_groups = [
            f"{groups.count(each):,} {each.value} by groups" for each in self.broken_groups
        ]
        failed = [check for check in self.checks if not check.kept]
        failed.sort(key=lambda check: check.name != LOST_WHERE_IT_BROKE_OFF)
        told = [
            f"not so: {check.name}"
            + (f" ({check.seen})" if check.name == LOST_WHERE_IT_BROKE_OFF else "")
            for check in failed
        ]
        return ", ".join(of_log + of_groups + told[:1])

    @property
    def seen_broken(self) -> bool:
        """Whether a part to prove has broken its promise for certain, to its end or not.

        Where the machine starved the nodes, what only came too late is no such thing.
        """
        return bool(self.anything_broken) or not all(
            check.kept or self._excused(check) for check in self.checks
        )

    def sentence(self) -> str:
        """Say what was seen; that nodes were starved, too, whatever became of the run."""
        judgement = self.evidence.judgement
        counts = judgement.counts
        failed = sum(not check.kept for check in self.checks)
        words = f"{counts.acknowledged:,} of {counts.sent:,} events acknowledged"
        seen = [f"{judgement.count(a):,} {a.value}" for a in Anomaly if judgement.count(a)]
        none = "none" if judgement.decided else "nobody can say whether any was"
        words += f", {', '.join(seen)}" if seen else f", {none} lost, doubled or moved"
        if counts.refused or counts.unknown or counts.unanswered:
            doubtful = counts.unknown + counts.unanswered
            words += f"; {counts.refused:,} refused, {doubtful:,} unknown"
            words += f" ({counts.unknown_in_log:,} of them in the log)"
        if judgement.expired_text:
            words += f"; {judgement.expired_text}"
        if self.evidence.groups.partitions:
            words += f"; {group_sentence(self.evidence.groups)}"
        words += "".join(f"; {each}" for each in self.told)
        if failed:
            words += f"; {failed} of {len(self.checks)} checks not as they must be"
        if self.broke_off is not None:
            words += ". It broke off, and this is what was seen until then"
        if self.parameters.servers is not None:
            words += ". Replicas were not compared: the lab does not see the files of this cluster"
        why = f" ({'; '.join(self.undecided[:REASONS_MAX])})" if self.undecided else ""
        starved = "" if self.busy is None else f" The machine was busy: {self.busy}."
        apart = "" if self.unreached is None else f" Besides, {self.unreached}."
        return f"{words}. Observed: {observed_text(self.evidence)}{why}.{starved}{apart}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a proof came to. `error`: why the run could not be made."""

    scenario: Scenario
    parameters: Parameters
    exit: Exit
    verdict: str
    results: tuple[PartResult, ...]
    directory: Path
    report: Path | None
    error: str | None = None

    def as_json(self) -> dict[str, Any]:
        """For machines: everything but the evidence, which is in the history."""
        return {
            "scenario": self.scenario.name,
            "engine": self.parameters.engine,
            "exit": int(self.exit),
            "verdict": self.verdict,
            "error": self.error,
            "promise": self.parameters.promise_text,
            "settings": self.parameters.shown(),
            "report": str(self.report) if self.report else None,
            "directory": str(self.directory),
            "parts": [_part_as_json(result) for result in self.results],
        }


def _part_as_json(result: PartResult) -> dict[str, Any]:
    judgement = result.evidence.judgement
    counts = judgement.counts
    available = judgement.availability
    gap = longest_gap(judgement.partitions)
    gap_ms = None if gap is None else gap.availability.gap_ms_longest
    groups = result.evidence.groups
    return {
        "part": result.part.name,
        "control": result.part.is_control,
        "as_it_must": result.as_it_must,
        "broke_off": result.broke_off,
        "starved": result.busy,
        "unreached": result.unreached,
        "observed": judgement.observed.value,
        "counts": {name: getattr(counts, name) for name in counts.__slots__},
        "anomalies": {each.value: judgement.count(each) for each in Anomaly},
        "broken": [each.value for each in result.broken],
        "groups": {
            "counts": {name: getattr(groups.counts, name) for name in groups.counts.__slots__},
            "anomalies": {each.value: groups.count(each) for each in GroupAnomaly},
            "broken": [each.value for each in result.broken_groups],
            "observed": groups.observed.value,
        }
        if groups.partitions
        else None,
        # Not rounded: of a million of which one is missing, not all are acknowledged.
        "share_acknowledged": available.share if available.sent else None,
        "gap_ms_longest": None if gap_ms is None else round(gap_ms, 1),
        "gap_held_ms": None if gap is None else _held_ms(result, _span_of(gap)),
        "recovered_ms_longest": None
        if result.recovered_ms is None
        else round(result.recovered_ms, 1),
        "recovered_held_ms": _held_ms(result, result.recovered_in),
        "latency_ms_p99": round(available.latency_ms_p99, 2)
        if has_percentile(available.acknowledged, 990)
        else None,
        "checks": [
            {"name": c.name, "expected": c.expected, "seen": c.seen, "kept": c.kept}
            for c in result.checks
        ],
        "figures": [
            {"title": t.title, "header": list(t.header), "rows": [list(row) for row in t.rows]}
            for t in result.tables
        ],
        "history": str(result.history),
    }


def _span_of(gap: PartitionJudgement) -> Hold:
    begin_ms, longest_ms = gap.availability.gap_at_ms, gap.availability.gap_ms_longest
    return begin_ms, begin_ms + longest_ms


def _held_ms(result: PartResult, span: Hold | None) -> float | None:
    return None if span is None else round(held_ms(result.evidence.timeline, *span), 1)


def report_of(outcome: Outcome, command: str) -> ReportData:
    """Return what the report of a proof says: of all its parts, controls included."""
    promise, groups = outcome.parameters.promise, outcome.parameters.group_promise
    return ReportData(
        title=outcome.scenario.name,
        summary=outcome.scenario.summary + _WHERE.get(outcome.parameters.engine, ""),
        text=outcome.scenario.text,
        kept=outcome.exit.kept,
        verdict=outcome.verdict,
        promise=outcome.parameters.promise_text,
        command=command,
        parts=[_part_report(result) for result in outcome.results],
        forbidden=frozenset(each.value for each in promise.forbids),
        forbidden_groups=frozenset() if groups is None else groups.forbids,
    )


def _part_report(result: PartResult) -> PartReport:
    return PartReport(
        title=result.part.title,
        headline=result.sentence(),
        kept=_kept(result),
        control=control_text(result.part),
        as_it_must=result.as_it_must,
        own_broken=bool(result.own_broken),
        text=result.part.because,
        counted=frozenset(each.value for each in result.excused),
        evidence=result.evidence,
        still=result.still,
        checks=result.checks,
        tables=result.tables,
        settings=result.parameters.shown(),
    )


def _kept(result: PartResult) -> bool | None:
    """Whether the promise of the proof was kept in this part; a failed check breaks it, too.

    In a control checks fail as they must, and only the promise itself counts.
    """
    if result.anything_broken or (not result.part.is_control and result.seen_broken):
        return False
    return True if result.broke_off is None and result.decided and not result.doubtful else None


def control_text(part: Part) -> str:
    """Return what a control must show; nothing of a part to prove."""
    if part.breaks_with is not None:
        return (
            "The same promise, held against settings that can't keep it. It must be broken, with "
            f"{part.breaks_with.value} events, or the run proves nothing."
        )
    if part.breaks_group is not None:
        return (
            "The same promise, held against members that can't keep it. It must be broken, with "
            f"records {part.breaks_group.value} by a group, or the run proves nothing."
        )
    if part.breaks_check is not None:
        return (
            "The same steps where they can't go well. The promise must be kept, and these checks "
            f"must fail, or the run proves nothing: “{part.breaks_check}”."
        )
    return ""


def nobody_can_say(unreached: str, what: str) -> str:
    """Say that the cluster may have nothing to do with what is not as it must be."""
    return (
        f"{unreached}: its own way there was cut, or all brokers were down, which looks the same "
        f"from here. So nobody can say whether the cluster is to blame for this: {what}"
    )
