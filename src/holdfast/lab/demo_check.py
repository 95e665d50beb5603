"""Holds the demo's table against the log, and the log against what was acknowledged.

Owns the demo's verdict. It reads the tables with plain SQL and shares no code with the pipeline
that wrote them; events come from the history files. Nothing here changes anything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import sqlalchemy as sql
from sqlalchemy.engine import Connection
from sqlalchemy.exc import SQLAlchemyError

from holdfast.clients.payload import digest_of
from holdfast.judge.checker import Checker, Evidence
from holdfast.judge.history import Delivered, HistoryError, ReadEnd
from holdfast.judge.promise import Promise, promise_for
from holdfast.lab.demo_events import Payment, event_id, line_event
from holdfast.lab.demo_input import LinesDigest
from holdfast.lab.demo_plan import DemoError, DemoPlan, Places
from holdfast.lab.evidence import events_of, history_files
from holdfast.lab.report import Check, Table

READER = "reader"  # the process whose deliveries are the log
EXAMPLES = 3
FETCH_ROWS = 2000

Coordinate = tuple[int, int]  # partition, offset


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoVerdict:
    """What the check says. `kept`: every check was."""

    evidence: Evidence
    promise: Promise
    checks: tuple[Check, ...]
    tables: tuple[Table, ...]

    @property
    def kept(self) -> bool:
        return all(check.kept for check in self.checks)


@dataclass(slots=True)
class Log:
    """The log as the reader found it after healing: what stands at each offset, and the ends."""

    records: dict[Coordinate, tuple[str | None, str]] = field(default_factory=dict)
    ends: dict[int, int] = field(default_factory=dict)


@dataclass(slots=True)
class TableFindings:
    """What is wrong with the table, row by row: counts, and a few examples of each."""

    rows: int = 0
    aside: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    examples: dict[str, list[str]] = field(default_factory=dict)

    def add(self, what: str, where: Coordinate) -> None:
        self.counts[what] += 1
        shown = self.examples.setdefault(what, [])
        if len(shown) < EXAMPLES:
            shown.append(f"partition {where[0]} offset {where[1]}")

    def said(self, *kinds: str) -> str:
        parts = []
        for kind in kinds:
            text = f"{self.counts[kind]:,} {kind}"
            if self.counts[kind]:
                text += f" ({', '.join(self.examples[kind])})"
            parts.append(text)
        return ", ".join(parts)


def check_demo(directory: Path) -> DemoVerdict:
    """Judge a run's history and hold its table against it. DemoError: something is not there."""
    plan = DemoPlan.read(directory)
    places = Places(directory.absolute())
    database = places.database(plan)
    try:
        evidence, log = _judge(places)
    except (HistoryError, OSError) as error:
        raise DemoError(f"The run's history can't be read: {error}.") from error
    promise = promise_for(acks="all", replication_factor=3, min_isr=2, idempotent=True, retries=1)
    checks = [_log_check(evidence, promise, plan)]
    engine = sql.create_engine(database)
    try:
        with engine.connect() as connection:
            checks += _table_checks(connection, plan, log)
            tables: list[Table] = []
            if plan.kind == "payments":
                money, table = _money_checks(connection)
                checks += money
                tables.append(table)
            else:
                checks.append(_text_check(connection, plan))
    except SQLAlchemyError as error:
        raise DemoError(f"The table can't be read ({database}): {error}.") from error
    finally:
        engine.dispose()
    return DemoVerdict(
        evidence=evidence, promise=promise, checks=tuple(checks), tables=tuple(tables)
    )


def _judge(places: Places) -> tuple[Evidence, Log]:
    """One pass over the history, for the judge and for the log's content."""
    files = history_files(places.history)
    if not files:
        raise DemoError(f"There is no history in {places.history}.")
    checker = Checker()
    log = Log()
    for event in events_of(files):
        checker.feed(event)
        if event.process != READER:
            continue
        if isinstance(event, Delivered):
            log.records[event.partition, event.offset] = (event.id, event.digest)
        elif isinstance(event, ReadEnd):
            log.ends[event.partition] = event.end
    return checker.finish(), log


def _log_check(evidence: Evidence, promise: Promise, plan: DemoPlan) -> Check:
    judgement = evidence.judgement
    counts = judgement.counts
    broken = judgement.broken(promise.forbids)
    seen = f"{counts.acknowledged:,} acknowledged, {counts.in_log:,} in the log"
    seen += "".join(f", {judgement.count(each):,} {each}" for each in broken)
    without = counts.unknown + counts.unanswered + counts.refused
    if without:
        seen += f", {without:,} not acknowledged"
    if not judgement.decided:
        seen += "; the log was not read to its end"
    return Check(
        name="Every event was acknowledged, and is in the log once",
        expected=f"{plan.events:,} events, none lost, doubled or changed",
        seen=seen,
        kept=judgement.decided and not broken and counts.acknowledged == plan.events,
    )


def _table_checks(connection: Connection, plan: DemoPlan, log: Log) -> list[Check]:
    found = _compare(connection, plan, log)
    once = Check(
        name="Every event of the log is in the table once",
        expected=f"{len(log.records):,} rows, none missing, doubled or from nowhere",
        seen=f"{found.rows:,} rows; {found.said('missing', 'doubled', 'from nowhere')}",
        kept=not any(found.counts[kind] for kind in ("missing", "doubled", "from nowhere")),
    )
    content = Check(
        name="Every row says what its event says",
        expected="0 changed, 0 set aside",
        seen=f"{found.said('changed')}, {found.aside:,} set aside",
        kept=not found.counts["changed"] and not found.aside,
    )
    return [once, content, _end_check(connection, plan, log)]


def _compare(connection: Connection, plan: DemoPlan, log: Log) -> TableFindings:
    """Go through the table once, and then through what it lacks."""
    found = TableFindings()
    seen: set[Coordinate] = set()
    for where, name, digest in _rows(connection, plan):
        found.rows += 1
        if where in seen:
            found.add("doubled", where)
            continue
        seen.add(where)
        record = log.records.get(where)
        if record is None:
            found.add("from nowhere", where)
        elif record != (name, digest):
            found.add("changed", where)
    for where in sorted(log.records.keys() - seen):
        found.add("missing", where)
    aside = connection.scalar(
        sql.text("SELECT COUNT(*) FROM rejected WHERE topic = :topic"), {"topic": plan.topic}
    )
    found.aside = int(aside or 0)
    return found


def _rows(connection: Connection, plan: DemoPlan) -> Iterator[tuple[Coordinate, str, str]]:
    """Yield where each row's event stood, its id and the digest that its event must have had."""
    if plan.kind == "payments":
        statement = 'SELECT partition, "offset", id, source, target, amount FROM ledger'
    else:
        statement = 'SELECT partition, "offset", line_number, text FROM lines'
    options = {"stream_results": True, "yield_per": FETCH_ROWS}
    rows = connection.execution_options(**options).execute(
        sql.text(f"{statement} WHERE topic = :topic"),
        {"topic": plan.topic},
    )
    for partition, offset, *values in rows:
        if plan.kind == "payments":
            name, value = values[0], Payment(*values).value()
        else:
            number, text = values
            # SQLite's columns may hold anything, bytes for one. A value doesn't depend on its key.
            event = line_event(number, str(text), "", partitions=plan.partitions)
            name, value = event_id(number), event.value
        yield (partition, offset), name, digest_of(value)


def _end_check(connection: Connection, plan: DemoPlan, log: Log) -> Check:
    ends = next_offsets(connection, plan)
    return Check(
        name="The table is where the log ends",
        expected=_ends_text(log.ends),
        seen=_ends_text(ends),
        kept=ends == log.ends,
    )


def next_offsets(connection: Connection, plan: DemoPlan) -> dict[int, int]:
    """Return the next offset of each partition, as the sink committed it with the rows."""
    rows = connection.execute(
        sql.text(
            "SELECT partition, next_offset FROM holdfast_offset "
            "WHERE query = :query AND topic = :topic"
        ),
        {"query": plan.query, "topic": plan.topic},
    )
    return {int(partition): int(offset) for partition, offset in rows}


def _ends_text(ends: Mapping[int, int]) -> str:
    return ", ".join(f"{number}: {ends[number]:,}" for number in sorted(ends)) or "no offsets"


def _money_checks(connection: Connection) -> tuple[list[Check], Table]:
    """Balances against the ledger, account by account, and the sum of all money."""
    moved: Counter[str] = Counter()
    for column, sign in (("source", -1), ("target", 1)):
        rows = connection.execute(
            sql.text(f"SELECT {column}, SUM(amount) FROM ledger GROUP BY {column}")  # noqa: S608
        )
        for account, amount in rows:
            moved[account] += sign * int(amount)
    accounts = connection.execute(
        sql.text("SELECT account, opening, balance FROM balances ORDER BY account")
    ).all()
    rows_text: list[list[str]] = []
    wrong = []
    for account, opening, balance in accounts:
        expected = opening + moved.pop(account, 0)
        if balance != expected:
            wrong.append(account)
        rows_text.append([account, money(opening), money(balance), money(expected)])
    wrong += sorted(moved)
    opening_sum = sum(int(row.opening) for row in accounts)
    balance_sum = sum(int(row.balance) for row in accounts)
    checks = [
        Check(
            name="Each balance is its opening plus what the ledger moved",
            expected=f"{len(accounts)} of {len(accounts)} accounts",
            seen=f"{max(0, len(accounts) - len(wrong))} of {len(accounts)} accounts"
            + (f"; not {', '.join(wrong[:EXAMPLES])}" if wrong else ""),
            kept=not wrong,
        ),
        Check(
            name="Money neither appeared nor disappeared",
            expected=money(opening_sum),
            seen=money(balance_sum),
            kept=opening_sum == balance_sum and bool(accounts),
        ),
    ]
    table = Table(
        title="Balances",
        header=("account", "opening", "balance", "opening + ledger"),
        rows=rows_text,
    )
    return checks, table


def money(hundredths: Any) -> str:
    sign = "-" if hundredths < 0 else ""
    return f"{sign}{abs(int(hundredths)) // 100:,}.{abs(int(hundredths)) % 100:02d}"


def _text_check(connection: Connection, plan: DemoPlan) -> Check:
    """The table's lines in the order of their numbers have the digest that the file had.

    Only this check sees the keys: in the history an event's digest is that of its value.
    """
    digest = LinesDigest()
    count = 0
    rows = connection.execution_options(stream_results=True, yield_per=FETCH_ROWS).execute(
        sql.text(
            "SELECT line_number, key, text FROM lines WHERE topic = :topic ORDER BY line_number"
        ),
        {"topic": plan.topic},
    )
    for number, key, text in rows:
        count += 1
        digest.add(number, None if key is None else str(key), str(text))
    return Check(
        name="The table's keys and text are the file's, line by line",
        expected=f"{plan.events:,} lines, SHA-256 {plan.sha256[:16]}…",
        seen=f"{count:,} lines, SHA-256 {digest.hex()[:16]}…",
        kept=count == plan.events and digest.hex() == plan.sha256,
    )
