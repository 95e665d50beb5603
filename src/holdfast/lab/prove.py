"""Proves a scenario: states the promise, runs every part, judges, writes verdict and report.

The exit codes are those of `holdfast prove`: kept, broken, or the run could not be made, which
includes a control that did not fail and a history that decides nothing. A part is judged by what
it left in its folder, so that the folder says the same when it is judged again.
"""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from holdfast.clients.blocking_driver import DriverError
from holdfast.cluster import ClusterError
from holdfast.cluster.ending import Interrupt
from holdfast.judge.findings import FINDINGS_MAX
from holdfast.judge.groups.verdict import GroupAnomaly
from holdfast.judge.history import HistoryError
from holdfast.judge.verdict import Anomaly
from holdfast.lab.aftermath import (
    Errors,
    Missing,
    Recoveries,
    expired_check,
    group_checks,
    lost_check,
)
from holdfast.lab.evidence import evidence_of, history_files
from holdfast.lab.journal import (
    HISTORY,
    JOURNAL,
    KILLED,
    MANIFEST,
    Exit,
    FolderError,
    Recorded,
    read_journal,
    read_manifest,
    write_manifest,
)
from holdfast.lab.keeping import VERDICT
from holdfast.lab.outcome import (
    GivenUps,
    Outcome,
    PartResult,
    control_text,
    excused_by,
    nobody_can_say,
    report_of,
)
from holdfast.lab.parameters import LabError, Parameters
from holdfast.lab.report.held import Longest
from holdfast.lab.report.page import write_report
from holdfast.lab.report.standstill import Standstills
from holdfast.lab.run import Run
from holdfast.lab.scenario import Part, Scenario, load_scenario
from holdfast.lab.steps.closing import conclude, expect_kept_somewhere
from holdfast.lab.steps.mishaps import break_off, failed
from holdfast.wire.administration import AdminError

# What a run can end with, through no fault of the cluster's promise.
PROBLEMS = (LabError, ClusterError, DriverError, AdminError, HistoryError, FolderError, OSError)
Begin = Callable[[Parameters, Path, Callable[[str], None]], Run]
KIND = "proof"
REPEATED = "repeated"  # in the name of a check of groups
UNFINISHED = f".{VERDICT}"  # until all is written
CRASH = "crash.txt"  # in the folder of a proof that an error of ours has ended
SAID_MAX = 3  # findings of a part
EXCUSES_MAX = 100_000  # of each anomaly, in each partition, that are looked at one by one
TOO_BUSY = "The run could not be made: the machine is too busy for this run"


def prove(
    scenario: Scenario,
    parameters: Parameters,
    directory: Path,
    *,
    command: str,
    control: bool = True,
    say: Callable[[str], None] = lambda _line: None,
    begin: Begin = Run,
) -> Outcome:
    """Run a scenario into an empty directory. Never raises what a run can end with.

    Nor does an error of ours end more than this proof: it is not made, and says what to report.

    `begin` makes the run of each part: on a cluster of its own, or on one that is there. A seed
    that is wanted and not named is drawn here, and named in what is kept of `command`.
    """
    parameters, command = scenario.seeded(parameters, command)
    say(f"{scenario.name}: {scenario.summary}")
    say(f"Promise: {parameters.promise_text}")
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
            results.append(_run_part(part, parameters, directory / part.name, say, begin))
            Interrupt.refuse()
            error = results[-1].broke_off
            if error is not None:
                break
    except PROBLEMS as problem:
        error = str(problem)
    except Exception as problem:  # noqa: BLE001 - whatever it is, the folder says what it was
        error = crashed(directory, problem)
    Interrupt.refuse()
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
    return _written(outcome, command, say)


def crashed(directory: Path, problem: Exception) -> str:
    """Write down where an error of ours was met; return what is said of it."""
    told = "".join(traceback.format_exception(problem))
    file, where = directory / CRASH, ""
    # Behind what is there: the first error may be what has brought about the next one.
    with suppress(OSError), file.open("a", encoding="utf-8") as crash:  # a full disk
        crash.write(told)
        where = f" with {file}"
    return f"this is an error of ours, please report it{where}: {type(problem).__name__}: {problem}"


def _written(outcome: Outcome, command: str, say: Callable[[str], None]) -> Outcome:
    """Write the report, if there is something to report, and the verdict; return what it is then.

    The verdict comes last, whole or not at all: it never says anything else than the exit status.
    Where the report can't be written it says that.
    """
    unfinished = outcome.directory / UNFINISHED
    try:
        _write_verdict(outcome, unfinished)  # first, so that no report tells of a verdict that
        if outcome.report is not None:  # there is no room for
            try:
                write_report(outcome.report, report_of(outcome, command))
            except OSError as problem:
                outcome = _unwritten(outcome, f"The report can't be written: {problem}.", say)
                _write_verdict(outcome, unfinished)
            except Exception as problem:  # noqa: BLE001 - as above
                told = crashed(outcome.directory, problem)
                outcome = _unwritten(outcome, f"The report can't be written: {told}.", say)
                _write_verdict(outcome, unfinished)
        unfinished.replace(outcome.directory / VERDICT)
    except OSError as problem:  # a full disk: nobody can look at this again
        for path in (unfinished, outcome.report):
            if path is not None:
                with suppress(OSError):
                    path.unlink()
        return _unwritten(outcome, f"The verdict can't be written: {problem}.", say)
    return outcome


def _write_verdict(outcome: Outcome, path: Path) -> None:
    path.write_text(json.dumps(outcome.as_json(), indent=2) + "\n", encoding="utf-8")


def _unwritten(outcome: Outcome, text: str, say: Callable[[str], None]) -> Outcome:
    """Return the outcome of a proof that can't be written down: what was broken stays broken."""
    say(text)
    return replace(
        outcome,
        exit=Exit.BROKEN if outcome.exit is Exit.BROKEN else Exit.NOT_MADE,
        verdict=f"{text} {outcome.verdict}",
        report=None,
        error=outcome.error or text,
    )


def _run_part(
    part: Part, base: Parameters, directory: Path, say: Callable[[str], None], begin: Begin = Run
) -> PartResult:
    parameters = part.parameters(base)
    say("")
    say(f"{part.title}  [acks={parameters.acks}, RF {parameters.replication_factor}, "
        f"min ISR {parameters.min_isr}]")  # fmt: skip
    if part.is_control:
        say(f"   {control_text(part)}")
    if part.because:
        say(f"   Here: {part.because}")
    own = parameters.group_promise
    if own is not None and own != base.group_promise:
        say(f"   Here: {own.text}")
    run, broke_off = None, None
    try:
        with begin(parameters, directory, say) as run:
            run.foretold = part.breaks_check
            try:
                part.steps(run)
                conclude(run)
            except Exception as problem:  # noqa: BLE001 - what was seen before stays seen
                broke_off = break_off(run, named(problem, directory.parent))
                if not part.is_control and Anomaly.LOST in base.promise.forbids - part.counted:
                    with suppress(*PROBLEMS):  # of a run that can't be looked at any more
                        expect_kept_somewhere(run)
    except Exception as problem:
        if run is None:
            raise
        # What has gone wrong at its end only: what was seen before stays seen.
        at_end = named(problem, directory.parent)
        broke_off = str(at_end) if broke_off is None else f"{broke_off}; {at_end}"
    if run.left:
        left = f"what was done to the cluster is not all undone: {'; '.join(run.left)}"
        broke_off = left if broke_off is None else f"{broke_off}; {left}"
    result = _judged(part, base, directory, run, broke_off)
    say(f"   {result.sentence()}")
    for finding in result.evidence.judgement.findings[:SAID_MAX]:
        say(f"   {finding.anomaly.value}: {finding.text}")
    for told in result.evidence.groups.findings[:SAID_MAX]:
        say(f"   {told.group}: {told.anomaly.value}: {told.text}")
    return result


def named(problem: Exception, directory: Path) -> Exception:
    """Return what a run can end with; an error of ours is written down, and says so."""
    if isinstance(problem, PROBLEMS):
        return problem
    named = LabError(crashed(directory, problem))
    named.__cause__ = problem
    return named


def _judged(
    part: Part, base: Parameters, directory: Path, run: Run, broke_off: str | None
) -> PartResult:
    """End a run's journal, and judge what it has left, also where the journal can't be ended.

    Where nothing can be judged, checks of a part to prove that have failed for certain stay broken.
    """
    unended = None
    try:
        run.journal.end(
            directory.parent / MANIFEST,
            broke_off,
            run.tables,
            run.lost_expected,
            run.expired_expected,
            run.groups_expected,
            run.lost_named,
            run.starvation.text,
            run.told,
        )
    except Exception as problem:  # noqa: BLE001 - the histories are there, whatever it is
        with suppress(OSError):
            run.journal.close()
        unended = f"its journal can't be ended: {named(problem, directory.parent)}"
        broke_off = unended if broke_off is None else f"{broke_off}; {unended}"
    try:
        if unended is not None:
            return judge_recorded(part, base, directory, _recorded(run, broke_off))
        return judge_part(part, base, directory)
    except Exception as problem:
        if part.is_control or not failed(run):
            raise
        unjudged = f"it can't be judged: {named(problem, directory.parent)}"
        return PartResult(
            part=part,
            parameters=part.parameters(base),
            evidence=evidence_of(()),
            checks=tuple(run.checks),
            tables=(),
            broken=(),
            history=directory / HISTORY,
            broke_off=unjudged if broke_off is None else f"{broke_off}; {unjudged}",
        )


def _recorded(run: Run, broke_off: str | None) -> Recorded:
    """Return what a run's journal would say if it had an end, but for what it is held against.

    It has seen its checks, and what excuses them, whether there was room for that or not.
    """
    return Recorded(
        checks=tuple(run.checks),
        broke_off=broke_off,
        starved=run.starvation.text,
        unreached=run.journal.unreached,
        told=tuple(run.told),
    )


def judge_part(part: Part, base: Parameters, directory: Path) -> PartResult:
    """Judge what a part's run has left in its folder. PROBLEMS: it can't be read."""
    recorded = read_journal(directory, directory.parent / MANIFEST)
    return judge_recorded(part, base, directory, recorded)


def judge_recorded(part: Part, base: Parameters, directory: Path, recorded: Recorded) -> PartResult:
    """Judge a part's histories, and what its run says of itself. PROBLEMS: they can't be read."""
    recoveries, standstills, errors = Recoveries(), Standstills(), Errors()
    longest = Longest(recoveries)
    given_up = None if part.met is None else GivenUps(part.met[1])
    missing = Missing() if recorded.lost_named is not None else None
    parameters = part.parameters(base)
    evidence = evidence_of(
        history_files(directory / HISTORY),
        longest.feed,
        standstills.feed,
        errors.feed,
        *(() if missing is None else (missing.feed,)),
        *(() if given_up is None else (given_up.feed,)),
        with_groups=parameters.group_promise is not None,
    )
    spans = None if given_up is None else given_up.spans
    excused = excused_by(part, evidence.judgement, spans, FINDINGS_MAX)
    if evidence.judgement.broken(part.counted - excused):
        # Perhaps only because there are too many for a report: then once more, to see each one.
        every = evidence_of(history_files(directory / HISTORY), findings_max=EXCUSES_MAX).judgement
        excused = excused_by(part, every, spans, EXCUSES_MAX)
    checks = list(recorded.checks)
    if recorded.lost_expected is not None and recorded.broke_off is None:
        checks.append(lost_check(recorded.lost_expected, evidence.judgement))
    if missing is not None and recorded.lost_named is not None and recorded.broke_off is None:
        checks.append(missing.check(recorded.lost_named))
    if recorded.expired_expected is not None and recorded.broke_off is None:
        checks.append(expired_check(recorded.expired_expected, evidence.judgement))
    if recorded.groups_expected is not None and recorded.broke_off is None:
        of_groups = group_checks(recorded.groups_expected, evidence.groups)
        if recorded.unreached is not None:  # who is thrown out then does once more what it has done
            of_groups = [replace(each, late=REPEATED in each.name) for each in of_groups]
        checks += of_groups
    recoveries.finish()
    group_promise = base.group_promise
    forbids = group_promise.forbids if group_promise else frozenset[GroupAnomaly]()
    # Records wait in calm, too, while their members do not reach the cluster.
    waits = frozenset(() if recorded.unreached is None else {GroupAnomaly.STUCK})
    return PartResult(
        part=part,
        parameters=parameters,
        evidence=evidence,
        checks=tuple(checks),
        tables=tuple(each for each in (*recorded.tables, recoveries.table()) if each is not None),
        broken=evidence.judgement.broken(base.promise.forbids - excused),
        excused=excused,
        broken_groups=evidence.groups.broken(forbids - waits),
        stuck=evidence.groups.broken(forbids & waits),
        history=directory / HISTORY,
        still=standstills.finish(evidence.timeline.end_ms),
        broke_off=recorded.broke_off,
        starved=recorded.starved,
        unreached=recorded.unreached,
        told=recorded.told,
        recovered_ms=recoveries.longest_ms,
        recovered_in=longest.span,
        not_met=None if part.met is None else errors.missing(*part.met),
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
        except LabError as problem:  # settings of older code, which this part can't have today
            raise FolderError(f"{directory / MANIFEST}: {part.title}: {problem}") from problem
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
            names = ", ".join(result.anything_broken) or result.failed_by
            return Exit.BROKEN, f"Broken ({result.part.title}: {names}). {result.sentence()}"
    for result in controls:
        if result.own_broken:
            names = ", ".join(result.own_broken)
            return Exit.BROKEN, (
                f"Broken: the control's own promise ({result.part.title}: {names}). "
                f"{result.sentence()}"
            )
    for result in proofs:
        if result.busy is not None and not all(check.kept for check in result.checks):
            return Exit.NOT_MADE, (
                f"{TOO_BUSY} ({result.part.title}: {result.failed_by}). {result.sentence()}"
            )
    if error is not None or not proofs:
        return Exit.NOT_MADE, f"The run could not be made: {error or 'it has no part to prove'}"
    for result in proofs:
        if result.unreached is not None and result.doubtful:
            told = nobody_can_say(result.unreached, ", ".join(result.doubtful))
            return Exit.NOT_MADE, (
                f"The run could not be made: {told} ({result.part.title}). {result.sentence()}"
            )
        if not result.decided:
            return Exit.NOT_MADE, (
                f"Not decided, so nobody can say what is lost ({result.part.title}). "
                f"{result.sentence()}"
            )
        if not result.evidence.judgement.counts.acknowledged:
            return Exit.NOT_MADE, (
                f"No event was acknowledged, so none could be lost: this run proves nothing "
                f"({result.part.title}). {result.sentence()}"
            )
        if result.not_met is not None:
            return Exit.NOT_MADE, (
                f"The run could not be made: {result.not_met} ({result.part.title}). "
                f"{result.sentence()}"
            )
    for result in controls:
        if not result.as_it_must and result.busy is not None:
            return Exit.NOT_MADE, (
                f"{TOO_BUSY} ({result.part.title}; {result.why_not}). {result.sentence()}"
            )
        if not result.as_it_must:
            return Exit.NOT_MADE, (
                f"The control did not fail as it must, so this run proves nothing "
                f"({result.part.title}; {result.why_not}). {result.sentence()}"
            )
    words = " ".join(
        f"{each.part.title}: {each.sentence()}" if len(proofs) > 1 else each.sentence()
        for each in proofs
    )
    if controls:
        told = "; ".join(f"{each.part.title}: {each.failed_by}" for each in controls)
        said = (
            "The control failed, as it must"
            if len(controls) == 1
            else "Each control failed, as it must"
        )
        words += f" {said} ({told})."
    return Exit.KEPT, f"Kept. {words}"
