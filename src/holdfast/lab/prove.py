"""Proves a scenario: states the promise, runs every part, judges, writes verdict and report.

The exit codes are those of `holdfast prove`: kept, broken, or the run could not be made, which
includes a control that did not fail and a history that decides nothing. A part is judged by what
it left in its folder, so that the folder says the same when it is judged again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from holdfast.clients.admin import AdminError
from holdfast.clients.driver import DriverError
from holdfast.cluster import ClusterError
from holdfast.judge.checker import Evidence
from holdfast.judge.history import Event, HistoryError
from holdfast.judge.verdict import Anomaly
from holdfast.lab.aftermath import Recoveries, expired_check, lost_check
from holdfast.lab.evidence import evidence_of, history_files
from holdfast.lab.journal import (
    HISTORY,
    JOURNAL,
    KILLED,
    MANIFEST,
    Exit,
    FolderError,
    read_journal,
    read_manifest,
    write_manifest,
)
from holdfast.lab.parameters import LabError, Parameters
from holdfast.lab.prove_report import report_of
from holdfast.lab.report import Check, Table
from holdfast.lab.report.page import write_report
from holdfast.lab.report.standstill import Standstill, Standstills
from holdfast.lab.run import Run
from holdfast.lab.scenario import Part, Scenario, load_scenario

# What a run can end with, through no fault of the cluster's promise.
PROBLEMS = (LabError, ClusterError, DriverError, AdminError, HistoryError, FolderError, OSError)
REASONS_MAX = 3  # why a run is undecided, in its sentence
KIND = "proof"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartResult:
    part: Part
    parameters: Parameters
    evidence: Evidence
    checks: tuple[Check, ...]
    tables: tuple[Table, ...]
    broken: tuple[Anomaly, ...]  # of what the scenario's promise forbids
    history: Path
    still: tuple[Standstill, ...] = ()  # where partitions with a leader stood still
    broke_off: str | None = None  # why its steps did not come to their end

    @property
    def as_it_must(self) -> bool:
        """A part to prove keeps the promise; a control breaks it in the way that it must.

        A control has a promise of its own, the weaker one of its settings, and keeps that.
        """
        judgement = self.evidence.judgement
        if self.broke_off is not None or not judgement.decided:
            return False
        failed = [check.name for check in self.checks if not check.kept]
        if self.part.breaks_check is not None:
            foretold = all(self.part.breaks_check in name for name in failed)
            return bool(failed) and foretold and not self.broken
        if failed:
            return False
        if self.part.breaks_with is None:
            return not self.broken
        weaker = self.parameters.promise.forbids - {self.part.breaks_with}
        if self.part.breaks_with is Anomaly.LOST:
            weaker -= {Anomaly.VANISHED}  # what is lost may have been read before
        return self.part.breaks_with in self.broken and not judgement.broken(weaker)

    @property
    def seen_broken(self) -> bool:
        """Whether a part to prove has broken its promise for certain, to its end or not."""
        return bool(self.broken) or not all(check.kept for check in self.checks)

    def sentence(self) -> str:
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
        if failed:
            words += f"; {failed} of {len(self.checks)} checks not as they must be"
        if self.broke_off is not None:
            words += ". It broke off, and this is what was seen until then"
        why = f" ({'; '.join(judgement.undecided[:REASONS_MAX])})" if judgement.undecided else ""
        return f"{words}. Observed: {judgement.observed.value}{why}."


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
            "exit": int(self.exit),
            "verdict": self.verdict,
            "error": self.error,
            "promise": self.parameters.promise.text,
            "settings": self.parameters.shown(),
            "report": str(self.report) if self.report else None,
            "directory": str(self.directory),
            "parts": [_part_as_json(result) for result in self.results],
        }


def _part_as_json(result: PartResult) -> dict[str, Any]:
    judgement = result.evidence.judgement
    counts = judgement.counts
    gaps = [each.availability.gap_ms_longest for each in judgement.partitions]
    return {
        "part": result.part.name,
        "control": result.part.is_control,
        "as_it_must": result.as_it_must,
        "broke_off": result.broke_off,
        "observed": judgement.observed.value,
        "counts": {name: getattr(counts, name) for name in counts.__slots__},
        "anomalies": {each.value: judgement.count(each) for each in Anomaly},
        "broken": [each.value for each in result.broken],
        "share_acknowledged": round(judgement.availability.share, 6),
        "gap_ms_longest": round(max(gaps, default=0.0), 1),
        "latency_ms_p99": round(judgement.availability.latency_ms_p99, 2),
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


def prove(
    scenario: Scenario,
    parameters: Parameters,
    directory: Path,
    *,
    command: str,
    control: bool = True,
    say: Callable[[str], None] = lambda _line: None,
) -> Outcome:
    """Run a scenario into an empty directory. Never raises what a run can end with."""
    promise = parameters.promise
    say(f"{scenario.name}: {scenario.summary}")
    say(f"Promise: {promise.text}")
    results: list[PartResult] = []
    error = None
    try:
        directory.mkdir(parents=True, exist_ok=True)
        parts = [part for part in scenario.parts if control or not part.is_control]
        write_manifest(
            directory,
            KIND,
            scenario=scenario.name,
            parameters=parameters.as_json(),
            parts=[part.name for part in parts],
            command=command,
        )
        for part in parts:
            result = _run_part(part, parameters, directory / part.name, say)
            results.append(result)
            if result.broke_off is not None:
                error = result.broke_off
                break
    except PROBLEMS as problem:
        error = str(problem)
    code, verdict = _verdict(results, error)
    say("")
    say(verdict)
    outcome = Outcome(
        scenario=scenario,
        parameters=parameters,
        exit=code,
        verdict=verdict,
        results=tuple(results),
        directory=directory,
        report=directory / "report.html" if results else None,
        error=error,
    )
    try:
        _write(outcome, command)
    except OSError as problem:  # a full disk: nobody can look at this again
        return _unwritten(outcome, problem, say)
    return outcome


def _unwritten(outcome: Outcome, problem: OSError, say: Callable[[str], None]) -> Outcome:
    """Return the outcome of a proof that can't be written down: what was broken stays broken."""
    text = f"The verdict can't be written: {problem}."
    say(text)
    return replace(
        outcome,
        exit=Exit.BROKEN if outcome.exit is Exit.BROKEN else Exit.NOT_MADE,
        verdict=f"{text} {outcome.verdict}",
        report=None,
        error=outcome.error or text,
    )


def _run_part(
    part: Part, base: Parameters, directory: Path, say: Callable[[str], None]
) -> PartResult:
    parameters = part.parameters(base)
    say("")
    say(f"{part.title}  [acks={parameters.acks}, RF {parameters.replication_factor}, "
        f"min ISR {parameters.min_isr}]")  # fmt: skip
    broke_off = None
    with Run(parameters, directory, say) as run:
        run.foretold = part.breaks_check
        try:
            part.steps(run)
        except PROBLEMS as problem:
            broke_off = str(problem)
            run.note(f"the run breaks off: {broke_off}")
    run.journal.end(
        directory.parent / MANIFEST,
        broke_off,
        run.tables,
        run.lost_expected,
        run.expired_expected,
    )
    result = judge_part(part, base, directory)
    say(f"   {result.sentence()}")
    for finding in result.evidence.judgement.findings[:3]:
        say(f"   {finding.anomaly.value}: {finding.text}")
    return result


def judge_part(part: Part, base: Parameters, directory: Path) -> PartResult:
    """Judge what a part's run has left in its folder. PROBLEMS: it can't be read."""
    recorded = read_journal(directory, directory.parent / MANIFEST)
    paths = history_files(directory / HISTORY)
    recoveries, standstills = Recoveries(), Standstills()

    def also(event: Event) -> None:
        recoveries.feed(event)
        standstills.feed(event)

    evidence = evidence_of(paths, also)
    checks = list(recorded.checks)
    if recorded.lost_expected is not None and recorded.broke_off is None:
        checks.append(lost_check(recorded.lost_expected, evidence.judgement))
    if recorded.expired_expected is not None and recorded.broke_off is None:
        checks.append(expired_check(recorded.expired_expected, evidence.judgement))
    table = recoveries.table()
    return PartResult(
        part=part,
        parameters=part.parameters(base),
        evidence=evidence,
        checks=tuple(checks),
        tables=tuple(each for each in (*recorded.tables, table) if each is not None),
        broken=evidence.judgement.broken(base.promise.forbids),
        history=directory / HISTORY,
        still=standstills.finish(evidence.timeline.end_ms),
        broke_off=recorded.broke_off,
    )


def judge_again(directory: Path) -> Outcome:
    """Judge the folder of a proof, whatever became of its run. FolderError: it can't be read."""
    manifest = read_manifest(directory)
    try:
        scenario = load_scenario(manifest["scenario"])
        base = Parameters.from_json(manifest["parameters"])
        known = {part.name: part for part in scenario.parts}
        parts = [known[name] for name in manifest["parts"]]
    except (LabError, KeyError, TypeError, ValueError, AttributeError) as problem:
        raise FolderError(f"{directory / MANIFEST} is damaged: {problem!r}.") from problem
    results: list[PartResult] = []
    error = None
    for part in parts:
        folder = directory / part.name
        if not (folder / JOURNAL).exists():
            error = f"{KILLED}: {part.title}"
            break
        try:
            results.append(judge_part(part, base, folder))
        except (HistoryError, OSError, ValueError, RecursionError) as problem:
            raise FolderError(f"{folder / HISTORY} can't be read: {problem}") from problem
        error = results[-1].broke_off
        if error is not None:
            break
    code, verdict = _verdict(results, error)
    report = directory / "report.html"
    return Outcome(
        scenario=scenario,
        parameters=base,
        exit=code,
        verdict=verdict,
        results=tuple(results),
        directory=directory,
        report=report if report.exists() else None,
        error=error,
    )


def _verdict(results: Sequence[PartResult], error: str | None) -> tuple[Exit, str]:
    proofs = [result for result in results if not result.part.is_control]
    controls = [result for result in results if result.part.is_control]
    for result in proofs:
        # What was seen broken stays broken, whatever became of the run behind it.
        if result.seen_broken:
            names = ", ".join(each.value for each in result.broken) or "not all was as it must be"
            return Exit.BROKEN, f"Broken ({result.part.title}: {names}). {result.sentence()}"
    if error is not None or not proofs:
        return Exit.NOT_MADE, f"The run could not be made: {error or 'it has no part to prove'}"
    for result in proofs:
        if not result.evidence.judgement.decided:
            return Exit.NOT_MADE, (
                f"Not decided, so nobody can say what is lost ({result.part.title}). "
                f"{result.sentence()}"
            )
        if not result.evidence.judgement.counts.acknowledged:
            return Exit.NOT_MADE, (
                f"No event was acknowledged, so none could be lost: this run proves nothing "
                f"({result.part.title}). {result.sentence()}"
            )
    for result in controls:
        if not result.as_it_must:
            return Exit.NOT_MADE, (
                f"The control did not fail as it must, so this run proves nothing "
                f"({result.part.title}). {result.sentence()}"
            )
    words = " ".join(result.sentence() for result in proofs)
    if controls:
        words += " The control failed, as it must."
    return Exit.KEPT, f"Kept. {words}"


def _write(outcome: Outcome, command: str) -> None:
    """Write verdict.json always, and the report when there is something to report."""
    text = json.dumps(outcome.as_json(), indent=2) + "\n"
    (outcome.directory / "verdict.json").write_text(text, encoding="utf-8")
    if outcome.report is None:
        return
    kept = {Exit.KEPT: True, Exit.BROKEN: False, Exit.NOT_MADE: None}[outcome.exit]
    write_report(outcome.report, report_of(outcome, kept, command))
