"""Payments between accounts become a ledger and balances. A driver process: `python -m` this.

Owns three tables: `ledger` (one row for each payment), `balances`, and `rejected` for events that
are no payment. A payment takes from one account what it gives to another, in the transaction that
writes its row, so the sum of all balances never changes. The tables have no unique key on purpose:
what keeps a row from standing there twice is the sink, and a second one would be seen.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import sqlalchemy as sql
from sqlalchemy.engine import Connection

from holdfast.pipelines.driver import add_options, run
from holdfast.pipelines.sink import SinkRow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

metadata = sql.MetaData()
ledger = sql.Table(
    "ledger",
    metadata,
    sql.Column("topic", sql.String(249), nullable=False),
    sql.Column("partition", sql.Integer, nullable=False),
    sql.Column("offset", sql.BigInteger, nullable=False),
    sql.Column("id", sql.String(255), nullable=False),
    sql.Column("source", sql.String(255), nullable=False),
    sql.Column("target", sql.String(255), nullable=False),
    sql.Column("amount", sql.BigInteger, nullable=False),
)
balances = sql.Table(
    "balances",
    metadata,
    sql.Column("account", sql.String(255), primary_key=True),
    sql.Column("opening", sql.BigInteger, nullable=False),
    sql.Column("balance", sql.BigInteger, nullable=False),
)
rejected = sql.Table(
    "rejected",
    metadata,
    sql.Column("topic", sql.String(249), nullable=False),
    sql.Column("partition", sql.Integer, nullable=False),
    sql.Column("offset", sql.BigInteger, nullable=False),
    sql.Column("value", sql.LargeBinary),
)
PAYMENT = "id STRING, source STRING, target STRING, amount BIGINT"


def account_name(number: int) -> str:
    return f"account-{number:03d}"


def frame(records: DataFrame) -> DataFrame:
    """Take payments out of records. What is none has nulls, and keeps its bytes."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - the tables are for others too

    body = f.from_json(f.col("value").cast("string"), PAYMENT)
    parsed = records.withColumn("body", body)
    return parsed.select("topic", "partition", "offset", "value", "body.*")


class Ledger:
    """The recipe: rows of `frame` into ledger and balances."""

    def __init__(self, accounts: int, opening: int) -> None:
        self._opening = opening
        self._accounts = frozenset(account_name(number) for number in range(accounts))

    def prepare(self, connection: Connection) -> None:
        """Create the tables and open the accounts that are not open yet."""
        metadata.create_all(connection)
        there = set(connection.scalars(sql.select(balances.c.account)))
        fresh = [
            {"account": name, "opening": self._opening, "balance": self._opening}
            for name in sorted(self._accounts - there)
        ]
        if fresh:
            connection.execute(balances.insert(), fresh)

    def write(self, connection: Connection, rows: Sequence[SinkRow]) -> None:
        payments = [row for row in rows if self._is_payment(row)]
        others = [row for row in rows if not self._is_payment(row)]
        if payments:
            connection.execute(ledger.insert(), [_only(ledger, row) for row in payments])
            self._book(connection, payments)
        if others:
            connection.execute(rejected.insert(), [_only(rejected, row) for row in others])

    def _is_payment(self, row: SinkRow) -> bool:
        return (
            row["id"] is not None
            and row["amount"] is not None
            and row["amount"] > 0
            and row["source"] in self._accounts
            and row["target"] in self._accounts
        )

    def _book(self, connection: Connection, payments: Sequence[SinkRow]) -> None:
        change: Counter[str] = Counter()
        for row in payments:
            change[row["source"]] -= row["amount"]
            change[row["target"]] += row["amount"]
        assert sum(change.values()) == 0, "money appeared or disappeared"
        connection.execute(
            balances.update()
            .where(balances.c.account == sql.bindparam("name"))
            .values(balance=balances.c.balance + sql.bindparam("change")),
            [{"name": name, "change": change[name]} for name in sorted(change)],
        )


def _only(table: sql.Table, row: SinkRow) -> dict[str, Any]:
    """Return what the table has columns for; bytes as bytes, since Spark gives bytearrays."""
    values = {column.name: row[column.name] for column in table.columns}
    return {
        name: bytes(value) if isinstance(value, bytearray) else value
        for name, value in values.items()
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m holdfast.pipelines.ledger", description="Payments into a ledger, by Spark."
    )
    add_options(parser)
    parser.add_argument("--accounts", type=int, default=20, help="how many accounts are opened")
    parser.add_argument("--opening", type=int, default=10_000_000, help="opening balance of each")
    options = parser.parse_args(arguments)
    return run(options, Ledger(options.accounts, options.opening), frame)


if __name__ == "__main__":
    sys.exit(main())
