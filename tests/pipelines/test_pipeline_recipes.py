"""Goal: what the demo's recipes write. Method: rows as Spark gives them, into real databases."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import sqlalchemy as sql
from sqlalchemy.engine import Connection
from sqlalchemy.schema import CreateTable

from holdfast.pipelines.fence import open_engine
from holdfast.pipelines.ledger import Ledger, account_name, balances, ledger, rejected
from holdfast.pipelines.lines import Lines, lines
from holdfast.pipelines.lines import rejected as rejected_lines


@pytest.fixture
def connection(database: str) -> Iterator[Connection]:
    engine = open_engine(database)
    with engine.begin() as connection:
        yield connection
    engine.dispose()


PLACE = 'topic VARCHAR(249) NOT NULL, partition INTEGER NOT NULL, "offset" BIGINT NOT NULL'


@pytest.mark.parametrize(
    ("table", "columns"),
    [
        (
            ledger,
            (
                f"ledger ( {PLACE}, id VARCHAR(255) NOT NULL, source VARCHAR(255) NOT NULL, "
                "target VARCHAR(255) NOT NULL, amount BIGINT NOT NULL )"
            ),
        ),
        (
            balances,
            (
                "balances ( account VARCHAR(255) NOT NULL, opening BIGINT NOT NULL, "
                "balance BIGINT NOT NULL, PRIMARY KEY (account) )"
            ),
        ),
        (rejected, f"rejected ( {PLACE}, value BYTEA )"),
        (
            lines,
            f"lines ( {PLACE}, key TEXT, line_number BIGINT NOT NULL, text TEXT NOT NULL )",
        ),
        (rejected_lines, f"rejected ( {PLACE}, value BYTEA )"),
    ],
)
def test_the_tables_are_what_readers_of_them_know(table: sql.Table, columns: str) -> None:
    made = CreateTable(table).compile(dialect=sql.create_engine("postgresql+psycopg://").dialect)
    assert " ".join(str(made).split()) == f"CREATE TABLE {columns}"


def payment(
    offset: int, source: int, target: int, amount: int | None, **odd: Any
) -> dict[str, Any]:
    return {
        "topic": "t",
        "partition": 0,
        "offset": offset,
        "value": bytearray(b"v"),
        "id": f"p:{offset}",
        "source": account_name(source),
        "target": account_name(target),
        "amount": amount,
        **odd,
    }


def standing(connection: Connection) -> dict[str, int]:
    rows = connection.execute(sql.select(balances.c.account, balances.c.balance))
    return {row.account: row.balance for row in rows}


def test_payments_move_money_and_none_is_made(connection: Connection) -> None:
    recipe = Ledger(accounts=3, opening=100)
    recipe.prepare(connection)
    recipe.write(connection, [payment(0, 0, 1, 30), payment(1, 1, 2, 50), payment(2, 0, 1, 1)])
    assert standing(connection) == {"account-000": 69, "account-001": 81, "account-002": 150}
    assert connection.scalar(sql.select(sql.func.count()).select_from(ledger)) == 3
    recipe.prepare(connection)  # a driver that starts again opens no account twice
    assert sum(standing(connection).values()) == 300


def test_what_is_no_payment_is_set_aside(connection: Connection) -> None:
    recipe = Ledger(accounts=2, opening=100)
    recipe.prepare(connection)
    odd = [
        payment(0, 0, 1, None),
        payment(1, 0, 1, 0),
        payment(2, 0, 1, -5),
        payment(3, 0, 7, 5),
        payment(4, 0, 1, 5, id=None),
        payment(5, 0, 1, None, value=None),
    ]
    recipe.write(connection, odd)
    assert standing(connection) == {"account-000": 100, "account-001": 100}
    kept = connection.execute(sql.select(rejected.c.offset, rejected.c.value)).all()
    assert [(row.offset, row.value) for row in kept] == [(n, b"v") for n in range(5)] + [(5, None)]


def test_payments_and_what_is_none_go_apart(connection: Connection) -> None:
    recipe = Ledger(accounts=2, opening=100)
    recipe.prepare(connection)
    recipe.write(connection, [payment(0, 0, 1, 30), payment(1, 0, 1, 0), payment(2, 1, 0, 10)])
    assert standing(connection) == {"account-000": 80, "account-001": 120}
    assert connection.scalars(sql.select(ledger.c.offset)).all() == [0, 2]
    assert connection.scalars(sql.select(rejected.c.offset)).all() == [1]


def test_lines_keep_their_text_and_their_place(connection: Connection) -> None:
    recipe = Lines()
    recipe.prepare(connection)
    text = '{"name": "Zoë", "note": "a\\tb; \'quoted\' -- \U0001f600"}'
    good = {"topic": "t", "partition": 2, "offset": 9, "value": bytearray(b"v"), "key": None}
    recipe.write(
        connection,
        [
            {**good, "line_number": 17, "text": text},
            {**good, "offset": 10, "line_number": None, "text": None},
        ],
    )
    row = connection.execute(sql.select(lines)).one()
    assert tuple(row) == ("t", 2, 9, None, 17, text)
    recipe.write(connection, [{**good, "offset": 11, "line_number": 18, "text": None}])
    recipe.write(connection, [{**good, "value": None, "line_number": None, "text": "a"}])
    aside = connection.execute(sql.select(rejected_lines).order_by(rejected_lines.c.offset)).all()
    assert [tuple(row) for row in aside] == [
        ("t", 2, 9, None),
        ("t", 2, 10, b"v"),
        ("t", 2, 11, b"v"),
    ]
