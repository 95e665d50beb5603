"""Judges the folder of a demo: the log by its history, the table by the log.

Owns the demo's verdict and its words. Nothing here changes anything. A run that broke off or was
killed is held only to what must be true at any time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from holdfast.judge.checker import Evidence
from holdfast.judge.history import Delivered, Event, HistoryError, ReadEnd, Send
from holdfast.judge.promise import Promise
from holdfast.lab.demo import result_table as table
from holdfast.lab.demo.columns import Digests
from holdfast.lab.demo.demo_plan import KIND, DemoPlan, Places
from holdfast.lab.demo.events import event_number
from holdfast.lab.evidence import events_of, evidence_of, history_files
from holdfast.lab.journal import (
    JOURNAL,
    KILLED,
    Exit,
    FolderError,
    Recorded,
    read_journal,
    read_manifest,
)
from holdfast.lab.report import Check, Table
from holdfast.lab.report.groups import group_sentence
from holdfast.lab.report.standstill import Standstill, Standstills

READER = "final"  # the process that reads everything back at the end of a run
UNREAD = "the log was not read to its end"

WORDS = {Exit.KEPT: "PASS", Exit.BROKEN: "FAIL", Exit.NOT_MADE: "UNDECIDED"}


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoVerdict:
    """What the check says, and on what it rests."""

    directory: Path
    plan: DemoPlan
    evidence: Evidence
    checks: tuple[Check, ...]
    tables: tuple[Table, ...]
    undecided: str | None  # why nothing is proven even if nothing was seen broken
    broke_off: str | None  # None: the run came to its end
    still: tuple[Standstill, ...] = ()  # where partitions with a leader stood still

    @property
    def promise(self) -> Promise:
        return self.plan.parameters.promise

    @property
    def exit(self) -> Exit:
        """What was seen broken is broken; what is not decided is never kept."""
        if not all(check.kept for check in self.checks):
            return Exit.BROKEN
        return Exit.KEPT if self.undecided is None else Exit.NOT_MADE

    @property
    def sentence(self) -> str:
        """PASS, FAIL or UNDECIDED, and why, in a sentence or two."""
        word, counts = WORDS[self.exit], self.evidence.judgement.counts
        if self.exit is Exit.KEPT:
            money = "; no money appeared or disappeared" if self.plan.kind == "payments" else ""
            return (
                f"{word}: {counts.acknowledged:,} events acknowledged; each is in the log once and "
                f"in the table once{money}."
            )
        if self.exit is Exit.BROKEN:
            wrong = [check for check in self.checks if not check.kept]
            text = f"{word}: " + "; ".join(f"{check.name}: {check.seen}" for check in wrong) + "."
            return text if self.broke_off is None else f"{text} The run broke off: {self.broke_off}"
        return (
            f"{word}: {self.undecided}. {counts.acknowledged:,} events were acknowledged, and "
            "nothing was seen broken."
        )

    def as_json(self) -> dict[str, Any]:
        counts = self.evidence.judgement.counts
        return {
            "exit": int(self.exit),
            "verdict": WORDS[self.exit],
            "sentence": self.sentence,
            "broke_off": self.broke_off,
            "acknowledged": counts.acknowledged,
            "unknown": counts.unknown + counts.unanswered,
            "in_log": counts.in_log,
            "checks": [
                {"name": c.name, "expected": c.expected, "seen": c.seen, "kept": c.kept}
                for c in self.checks
            ],
            "directory": str(self.directory),
        }


@dataclass(slots=True)
class Log:
    """The log as the last reader found it: the digest at each offset, and the ends."""

    records: dict[int, Digests] = field(default_factory=dict)
    ends: dict[int, int] = field(default_factory=dict)

    def feed(self, event: Event) -> None:
        if event.process != READER:
            return
        if isinstance(event, Delivered):
            self.records.setdefault(event.partition, Digests()).set(event.offset, event.digest)
        elif isinstance(event, ReadEnd):
            self.ends[event.partition] = event.end


def check_demo(directory: Path, password: str | None = None) -> DemoVerdict:
    """Judge a demo's folder, its table included. FolderError: it can't be read.

    `password` is that of the database, which the folder does not keep.
    """
    manifest = read_manifest(directory)
    if manifest["kind"] != KIND:
        raise FolderError(f"{directory}: it holds no demo, but a {manifest['kind']}.")
    plan = DemoPlan.read(directory, manifest)
    places = Places(directory.absolute(), password)
    recorded = Recorded(checks=(), broke_off=KILLED)
    if (directory / JOURNAL).exists():
        recorded = read_journal(directory, places.manifest)
    try:
        evidence, log, still = _judge(places)
        decided = evidence.judgement.decided and log.ends.keys() == set(range(plan.partitions))
        whole = decided and recorded.broke_off is None
        checks = [_log_check(evidence, plan, whole=whole, decided=decided)]
        if evidence.groups.partitions:
            checks.append(_group_check(evidence, plan))
        if decided:
            model = table.Model(records=log.records, ends=log.ends, whole=whole)
        else:
            sent = _sent(places)
            model = table.Model(sent=sent, whole=False)
    except (HistoryError, OSError) as error:
        raise FolderError(f"The run's history can't be read: {error}.") from error
    found = table.check_tables(places.database(plan), plan, model)
    return DemoVerdict(
        directory=directory,
        plan=plan,
        evidence=evidence,
        checks=(*checks, *found.checks, *recorded.checks),
        tables=(*found.tables, *recorded.tables),
        undecided=recorded.broke_off
        or (None if decided else _why_undecided(evidence))
        or found.unreadable
        or next(iter(evidence.groups.undecided), None),
        broke_off=recorded.broke_off,
        still=still,
    )


def _why_undecided(evidence: Evidence) -> str:
    """Say why nobody can say what is lost: a log that was read has the judge's own reason."""
    judgement = evidence.judgement
    is_read = all(each.whole_read for each in judgement.partitions)
    return judgement.undecided[0] if is_read and judgement.undecided else UNREAD


def _judge(places: Places) -> tuple[Evidence, Log, tuple[Standstill, ...]]:
    """One pass over the history, for the judge, for the log's content and for the report."""
    files = history_files(places.history)
    if not files:
        raise FolderError(f"There is no history in {places.history}.")
    log, standstills = Log(), Standstills()
    evidence = evidence_of(files, log.feed, standstills.feed)
    return evidence, log, standstills.finish(evidence.timeline.end_ms)


def _sent(places: Places) -> Digests:
    """Return the digest of everything that was sent, for a table without a log to be held to."""
    sent = Digests()
    for event in events_of(history_files(places.history)):
        if isinstance(event, Send) and (number := event_number(event.id)) is not None:
            sent.set(number, event.digest)
    return sent


def _group_check(evidence: Evidence, plan: DemoPlan) -> Check:
    """Hold what the consumers of groups did against what groups are promised."""
    promise = plan.parameters.group_promise
    assert promise is not None, "a demo has a group"
    groups = evidence.groups
    broken = groups.broken(promise.forbids)
    seen = group_sentence(groups)
    if broken:
        seen += f" ({groups.findings[0].text})"
    return Check(
        name="Consumers in a group skip no event, and repeat only what was not committed",
        expected="none skipped, none stuck",
        seen=seen,
        kept=not broken,
    )


def _log_check(evidence: Evidence, plan: DemoPlan, *, whole: bool, decided: bool) -> Check:
    judgement = evidence.judgement
    counts = judgement.counts
    broken = judgement.broken(plan.parameters.promise.forbids)
    seen = f"{counts.acknowledged:,} acknowledged, {counts.in_log:,} in the log"
    seen += "".join(f", {judgement.count(each):,} {each}" for each in broken)
    if broken:
        seen += f" ({judgement.findings[0].text})"
    without = counts.unknown + counts.unanswered + counts.refused
    if without:
        seen += f", {without:,} not acknowledged"
    if not decided:
        seen += f"; {_why_undecided(evidence)}"
    return Check(
        name="Every event was acknowledged, and is in the log once",
        expected=f"{plan.events:,} events, none lost, doubled or changed",
        seen=seen,
        kept=not broken and (counts.acknowledged == plan.events or not whole),
    )
