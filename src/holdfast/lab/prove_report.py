"""The report of a proof: its outcome put into the report's values. Owns no figures."""

from __future__ import annotations

from holdfast.lab.outcome import Outcome, PartResult
from holdfast.lab.report import PartReport, ReportData


def report_of(outcome: Outcome, command: str) -> ReportData:
    """Return what the report of a proof says: of all its parts, controls included."""
    promise = outcome.parameters.promise
    return ReportData(
        title=outcome.scenario.name,
        summary=outcome.scenario.summary,
        text=outcome.scenario.text,
        kept=outcome.exit.kept,
        verdict=outcome.verdict,
        promise=promise.text,
        command=command,
        parts=[_part(result) for result in outcome.results],
        forbidden=frozenset(each.value for each in promise.forbids),
    )


def _part(result: PartResult) -> PartReport:
    return PartReport(
        title=result.part.title,
        headline=result.sentence(),
        kept=_kept(result),
        control=_control(result),
        as_it_must=result.as_it_must,
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
    if result.broken or (not result.part.is_control and result.seen_broken):
        return False
    decided = result.broke_off is None and result.evidence.judgement.decided
    return True if decided else None


def _control(result: PartResult) -> str:
    """Return what a control must show; nothing of a part to prove."""
    part = result.part
    if part.breaks_with is not None:
        return (
            "The same promise, held against settings that can't keep it. It must be broken, with "
            f"{part.breaks_with.value} events, or the run proves nothing."
        )
    if part.breaks_check is not None:
        return (
            "The same steps where they can't go well. The promise must be kept, and these checks "
            f"must fail, or the run proves nothing: “{part.breaks_check}”."
        )
    return ""
