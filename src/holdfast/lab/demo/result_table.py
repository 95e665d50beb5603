"""Holds the demo's tables against the log.

It reads them with plain SQL and shares no code with the pipeline that wrote them. A table may hold
anything, SQLite's columns too: what is no number is wrong, and no mistake of ours.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import sqlalchemy as sql
from sqlalchemy.engine import Connection
from sqlalchemy.exc import SQLAlchemyError

from holdfast.clients.workload.payload import digest_of
from holdfast.lab.demo.columns import Digests, SeenPlaces, whole
from holdfast.lab.demo.database import advice, connected
from holdfast.lab.demo.demo_plan import DemoPlan
from holdfast.lab.demo.events import Payment, event_id, event_number, line_value
from holdfast.lab.demo.user_file import LinesDigest
from holdfast.lab.report import Check, Table

EXAMPLES = 3
FETCH_ROWS = 2000
SQLITE = "sqlite:///"

Coordinate = tuple[Any, Any]  # partition, offset


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """What the table is held to: the whole log, or only what was sent if nobody has read that.

    `whole` is about the run: only one that came to its end owes the table everything.
    """

    whole: bool
    # By partition the digest at each offset, which covers the id.
    records: Mapping[int, Digests] | None = None
    ends: Mapping[int, int] = field(default_factory=dict)
    sent: Digests = field(default_factory=Digests)  # by an event's number

    def __len__(self) -> int:
        """How many events it knows."""
        return len(self.sent) if self.records is None else sum(map(len, self.records.values()))

    def wrong(self, where: Coordinate, name: object, digest: str) -> str | None:
        """Return what is wrong with a row that says this; None: nothing."""
        digests: Digests | None
        if self.records is None:
            digests, number = self.sent, event_number(str(name))
        else:
            digests, number = self.records.get(where[0]), whole(where[1])
        known = None if digests is None or number is None else digests.get(number)
        if known is None:
            return NOWHERE
        return None if known == digest else CHANGED

    def missing(self, seen: SeenPlaces) -> Iterator[Coordinate]:
        """Yield what the table owes and does not have."""
        if self.records is None or not self.whole:
            return
        for partition in sorted(self.records):
            for offset in self.records[partition]:
                if (partition, offset) not in seen:
                    yield partition, offset


MISSING, DOUBLED, NOWHERE, CHANGED = "missing", "doubled", "from nowhere", "changed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What the tables say. `unreadable`: why nobody can tell what they hold."""

    checks: tuple[Check, ...] = ()
    tables: tuple[Table, ...] = ()
    unreadable: str | None = None


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
        return ", ".join(
            f"{self.counts[kind]:,} {kind}"
            + (f" ({', '.join(self.examples[kind])})" if self.counts[kind] else "")
            for kind in kinds
        )


def check_tables(database: str, plan: DemoPlan, model: Model) -> Found:
    """Hold the tables against the log. A run that did not come to its end may have none yet."""
    path = sql.make_url(database).database
    try:
        if database.startswith(SQLITE) and not (path and Path(path).exists()):
            why = f"there is no {path}"  # to open it would make an empty one
        else:
            with connected(database) as connection:
                return _check(connection, plan, model)
    except SQLAlchemyError as error:
        why = str(error).splitlines()[0] + advice(database)
    return Found(unreadable=f"the table can't be read: {why}")


def _check(connection: Connection, plan: DemoPlan, model: Model) -> Found:
    checks = _table_checks(connection, plan, model)
    if plan.kind == "payments":
        money, balances = _money_checks(connection, plan)
        return Found(checks=(*checks, *money), tables=(balances,))
    if model.whole:
        checks.append(_text_check(connection, plan))
    return Found(checks=tuple(checks))


def _table_checks(connection: Connection, plan: DemoPlan, model: Model) -> list[Check]:
    found = _compare(connection, plan, model)
    count = len(model)
    once = Check(
        name="Every event of the log is in the table once",
        expected=f"{count:,} rows, none missing, doubled or from nowhere"
        if model.whole
        else "no row doubled or from nowhere",
        seen=f"{found.rows:,} rows; {found.said(MISSING, DOUBLED, NOWHERE)}",
        kept=not any(found.counts[kind] for kind in (MISSING, DOUBLED, NOWHERE)),
    )
    content = Check(
        name="Every row says what its event says",
        expected="0 changed, 0 set aside",
        seen=f"{found.said(CHANGED)}, {found.aside:,} set aside",
        kept=not found.counts[CHANGED] and not found.aside,
    )
    return [once, content, *([_end_check(connection, plan, model)] if model.whole else [])]


def _compare(connection: Connection, plan: DemoPlan, model: Model) -> TableFindings:
    """Go through the table once, and then through what it lacks."""
    found = TableFindings()
    seen = SeenPlaces(plan.partitions)
    for topic, where, name, digest in _rows(connection, plan):
        found.rows += 1
        if topic != plan.topic:  # the tables are this run's alone
            found.add(NOWHERE, where)
            continue
        if not seen.add(where):
            found.add(DOUBLED, where)
            continue
        wrong = model.wrong(where, name, digest)
        if wrong is not None:
            found.add(wrong, where)
    for where in model.missing(seen):
        found.add(MISSING, where)
    aside = connection.scalar(
        sql.text("SELECT COUNT(*) FROM rejected WHERE topic = :topic"), {"topic": plan.topic}
    )
    found.aside = int(aside or 0)
    return found


def _rows(
    connection: Connection, plan: DemoPlan
) -> Iterator[tuple[object, Coordinate, object, str]]:
    """Yield each row's topic, where its event stood, its id, and the digest that it must have."""
    if plan.kind == "payments":
        statement = 'SELECT topic, partition, "offset", id, source, target, amount FROM ledger'
    else:
        statement = 'SELECT topic, partition, "offset", line_number, text FROM lines'
    options = {"stream_results": True, "yield_per": FETCH_ROWS}
    rows = connection.execution_options(**options).execute(sql.text(statement))
    for topic, partition, offset, *values in rows:
        try:
            if plan.kind == "payments":
                name, value = values[0], Payment(*values).value()
            else:
                number, text = values
                name, value = event_id(number), line_value(number, text)
            digest = digest_of(value)
        except TypeError:  # bytes where the event had text or a number
            digest = ""
        yield topic, (partition, offset), name, digest


def _end_check(connection: Connection, plan: DemoPlan, model: Model) -> Check:
    ends = next_offsets(connection, plan)
    return Check(
        name="The table is where the log ends",
        expected=_ends_text(model.ends),
        seen=_ends_text(ends),
        kept=ends == model.ends,
    )


def table_at(database: str, plan: DemoPlan) -> dict[int, int]:
    """Return how far the table is; nothing when it is not there, or locked just now."""
    with suppress(SQLAlchemyError), connected(database) as connection:
        return next_offsets(connection, plan)
    return {}


def next_offsets(connection: Connection, plan: DemoPlan) -> dict[int, int]:
    """Return the next offset of each partition, as the sink committed it with the rows."""
    rows = connection.execute(
        sql.text(
            "SELECT partition, next_offset FROM holdfast_offset "
            "WHERE query = :query AND topic = :topic"
        ),
        {"query": plan.query, "topic": plan.topic},
    )
    return {row.partition: row.next_offset for row in rows}


def _ends_text(ends: Mapping[int, int]) -> str:
    return (
        ", ".join(f"{number}: {ends[number]}" for number in sorted(ends, key=str)) or "no offsets"
    )


def _money_checks(connection: Connection, plan: DemoPlan) -> tuple[list[Check], Table]:
    """Balances against the ledger, account by account, and the sum against what there was."""
    moved: Counter[str] = Counter()
    for column, sign in (("source", -1), ("target", 1)):
        rows = connection.execute(
            sql.text(f"SELECT {column}, SUM(amount) FROM ledger GROUP BY {column}")  # noqa: S608
        )
        for account, amount in rows:
            moved[account] += sign * _whole(amount)
    accounts = connection.execute(
        sql.text("SELECT account, opening, balance FROM balances ORDER BY account")
    ).all()
    rows_text: list[list[str]] = []
    wrong = []
    for account, opening, balance in accounts:
        expected = _whole(opening) + moved.pop(account, 0)
        if balance != expected or opening != plan.opening:
            wrong.append(account)
        rows_text.append([str(account), money(opening), money(balance), money(expected)])
    wrong += sorted(moved, key=str)  # the ledger knows accounts that nobody has opened
    opened = plan.accounts * plan.opening
    balance_sum = sum(_whole(row.balance) for row in accounts)
    checks = [
        Check(
            name="Each balance is its opening plus what the ledger moved",
            expected=f"{plan.accounts} of {plan.accounts} accounts, "
            f"each opened with {money(plan.opening)}",
            seen=f"{max(0, len(accounts) - len(wrong))} of {len(accounts)} accounts"
            + (f"; not {', '.join(map(str, wrong[:EXAMPLES]))}" if wrong else ""),
            kept=not wrong,
        ),
        Check(
            name="Money neither appeared nor disappeared",
            expected=f"{money(opened)} in {plan.accounts} accounts",
            seen=f"{money(balance_sum)} in {len(accounts)} accounts",
            kept=(len(accounts), balance_sum) == (plan.accounts, opened),
        ),
    ]
    table = Table(
        title="Balances",
        header=("account", "opening", "balance", "opening + ledger"),
        rows=rows_text,
    )
    return checks, table


def _whole(value: Any) -> int:
    """Return a number of hundredths; 0 for what is none, which agrees with nothing."""
    return int(value) if isinstance(value, int | float | Decimal) else 0


def money(hundredths: Any) -> str:
    if not isinstance(hundredths, int):
        return repr(hundredths)
    sign = "-" if hundredths < 0 else ""
    return f"{sign}{abs(hundredths) // 100:,}.{abs(hundredths) % 100:02d}"


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
