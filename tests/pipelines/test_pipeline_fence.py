"""Goal: of two owners of one query only the younger commits, and offsets move with the rows or not
at all. Method: two real connections to real databases, in every order that matters.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
import sqlalchemy as sql
from sqlalchemy.engine import Connection, Engine

from holdfast.pipelines import fence
from holdfast.pipelines.due import Due, Last, Memory, Rows, Stored, Work
from holdfast.pipelines.fence import (
    FencedError,
    Ownership,
    TransactionError,
    gaps,
    offsets,
    open_engine,
    queries,
)
from holdfast.pipelines.offsets import Partition
from holdfast.pipelines.planned import Batch, Planned, Reader

P, Q = Reader(Partition("t", 0)), Reader(Partition("t", 1))
TWIN = Reader(Partition("t", 0), 1)
data = sql.Table("data", sql.MetaData(), sql.Column("value", sql.Integer))


@pytest.fixture
def engine(database: str) -> Iterator[Engine]:
    engine = open_engine(database)
    with engine.begin() as connection:
        data.create(connection)
    yield engine
    engine.dispose()


def move(begin: int, end: int, expected: int | None) -> Due:
    return Due(P, begin, begin, end, expected)


def known(owner: Ownership) -> dict[Reader, int]:
    return {reader: stored.next_offset for reader, stored in owner.memory().offsets.items()}


def batch(number: int, **changed: Any) -> Batch:
    given = {"checkpoint": "here", "plan": "plan", "stateful": False, "ranges": (), **changed}
    return Batch(number=number, **given)


def count(engine: Engine) -> int:
    with engine.begin() as connection:
        return int(connection.scalar(sql.select(sql.func.count()).select_from(data)) or 0)


def test_rows_and_offsets_commit_together(engine: Engine) -> None:
    owner = Ownership.take(engine, "q")
    with owner.transaction() as connection:
        owner.advance(connection, [move(0, 3, None)])
        connection.execute(data.insert(), [{"value": n} for n in range(3)])
    assert known(owner) == {P: 3}
    assert count(engine) == 3


def test_neither_is_there_when_the_transaction_fails(engine: Engine) -> None:
    owner = Ownership.take(engine, "q")

    def fail_late() -> None:
        with owner.transaction() as connection:
            owner.advance(connection, [move(0, 3, None)])
            connection.execute(data.insert(), [{"value": 1}])
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_late()
    assert known(owner) == {}
    assert count(engine) == 0


@pytest.mark.parametrize("end", [Connection.commit, Connection.rollback])
@pytest.mark.parametrize("swallowed", [False, True])
def test_who_writes_rows_can_not_end_the_transaction(
    engine: Engine, end: Callable[[Connection], None], swallowed: bool
) -> None:
    """Committed early, the offsets would stand there without the rows that come later."""
    owner = Ownership.take(engine, "q")

    def end_it() -> None:
        with owner.transaction() as connection:
            owner.advance(connection, [move(0, 3, None)])
            connection.execute(data.insert(), [{"value": 1}])
            with suppress(*[TransactionError] * swallowed):
                end(connection)

    with pytest.raises(TransactionError, match="ended"):
        end_it()
    assert known(owner) == {}
    assert count(engine) == 0


def run_script(connection: Connection) -> None:
    opened: Any = connection.connection.dbapi_connection
    if connection.dialect.name == "sqlite":
        opened.executescript("CREATE TABLE IF NOT EXISTS data (value INTEGER);")
    else:
        opened.commit()


@pytest.mark.parametrize(
    "end",
    [
        lambda connection: connection.exec_driver_sql("COMMIT"),
        lambda connection: connection.connection.commit(),
        run_script,
    ],
)
@pytest.mark.parametrize("swallowed", [False, True])
def test_who_writes_rows_can_not_end_the_transaction_in_sql(
    engine: Engine, end: Callable[[Connection], None], swallowed: bool
) -> None:
    """Seen to fail: the batch counted as written, its later rows never came, and nothing was said.

    SQLite refuses it. PostgreSQL does it, so what came before is there; but it is told.
    """
    owner = Ownership.take(engine, "q")

    def end_it() -> None:
        with owner.transaction() as connection:
            owner.advance(connection, [move(0, 3, None)])
            connection.execute(data.insert(), [{"value": 1}])
            with suppress(*[sql.exc.DBAPIError, sqlite3.Error] * swallowed):
                end(connection)
            connection.execute(data.insert(), [{"value": 2}])

    with pytest.raises(TransactionError, match=r"ended.*begin_nested"):
        end_it()
    if engine.dialect.name == "sqlite":
        assert (known(owner), count(engine)) == ({}, 0)
    else:
        assert (known(owner), count(engine)) == ({P: 3}, 1)
    with owner.transaction() as connection:
        connection.execute(data.insert(), [{"value": 3}])


@pytest.mark.postgresql
def test_a_server_that_goes_before_the_commit_is_named_as_what_it_is(postgresql: str) -> None:
    """Goal: nobody looks for a fault in what writes the rows. Method: the session is ended."""
    engine = open_engine(postgresql)
    owner = Ownership.take(engine, "of a server that goes")

    def write() -> None:
        with owner.transaction() as connection:
            session = connection.scalar(sql.text("SELECT pg_backend_pid()"))
            with engine.connect() as other:
                other.execute(sql.text(f"SELECT pg_terminate_backend({session})"))

    with pytest.raises(sql.exc.OperationalError, match=r"terminating|closed"):
        write()
    engine.dispose()


def test_an_error_that_was_passed_over_is_taken_back_or_told(engine: Engine) -> None:
    """PostgreSQL answers the commit of a broken transaction with a rollback, and no error."""
    owner = Ownership.take(engine, "q")

    def write() -> None:
        with owner.transaction() as connection:
            owner.advance(connection, [move(0, 3, None)])
            connection.execute(data.insert(), [{"value": 1}])
            with suppress(sql.exc.SQLAlchemyError):
                connection.exec_driver_sql("INSERT INTO nowhere VALUES (1)")

    if engine.dialect.name == "postgresql":
        with pytest.raises(TransactionError, match="begin_nested"):
            write()
        assert (known(owner), count(engine)) == ({}, 0)
    else:
        write()  # only the statement is taken back
        assert (known(owner), count(engine)) == ({P: 3}, 1)

    def write_nested() -> None:
        with owner.transaction() as connection:
            connection.execute(data.insert(), [{"value": 2}])
            with suppress(sql.exc.SQLAlchemyError), connection.begin_nested():
                connection.exec_driver_sql("INSERT INTO nowhere VALUES (1)")

    before = count(engine)
    write_nested()
    assert count(engine) == before + 1


@pytest.mark.postgresql
def test_who_may_not_create_tables_is_told_that(postgresql: str) -> None:
    """It is no race with others, and trying again does not help."""
    admin = sql.create_engine(postgresql, isolation_level="AUTOCOMMIT")
    with admin.connect() as connection:
        connection.exec_driver_sql("CREATE ROLE reader LOGIN")
    admin.dispose()
    engine = open_engine(postgresql.replace("holdfast@", "reader@"))
    with pytest.raises(sql.exc.ProgrammingError, match="permission denied"):
        Ownership.take(engine, "q")
    engine.dispose()


def test_who_was_replaced_commits_nothing(engine: Engine) -> None:
    old = Ownership.take(engine, "q")
    young = Ownership.take(engine, "q")
    assert young.epoch > old.epoch
    said = f"epoch {old.epoch}, epoch {young.epoch} belongs to"
    with pytest.raises(FencedError, match=said), old.transaction():
        pytest.fail("a zombie's transaction was opened")
    with pytest.raises(FencedError):
        old.memory()
    with young.transaction() as connection:
        young.advance(connection, [move(0, 1, None)])
    assert known(young) == {P: 1}


def test_queries_do_not_fence_each_other(engine: Engine) -> None:
    one, other = Ownership.take(engine, "one"), Ownership.take(engine, "other")
    with one.transaction() as connection:
        one.advance(connection, [move(0, 1, None)])
    assert known(other) == {}


def test_an_offset_that_somebody_changed_is_not_overwritten(engine: Engine) -> None:
    owner = Ownership.take(engine, "q")
    with owner.transaction() as connection:
        owner.advance(connection, [move(0, 5, None)])
    for expected in (4, 6):  # it stands higher than was thought, or lower
        with (
            pytest.raises(FencedError, match=f"no longer {expected}"),
            owner.transaction() as connection,
        ):
            owner.advance(connection, [move(expected, 9, expected)])
    assert known(owner) == {P: 5}


def test_of_many_offsets_the_one_that_was_changed_is_named(engine: Engine) -> None:
    owner = Ownership.take(engine, "q")
    readers = [Reader(Partition("t", number)) for number in range(5)]
    with owner.transaction() as connection:
        owner.advance(connection, [Due(r, 0, 0, 5, None) for r in readers])
    moves = [Due(r, 5, 5, 9, 7 if r == readers[3] else 5) for r in readers]
    with (
        pytest.raises(FencedError, match="t-3: the next offset is no longer 7"),
        owner.transaction() as connection,
    ):
        owner.advance(connection, moves)
    assert known(owner) == dict.fromkeys(readers, 5)


def test_a_batch_costs_as_many_statements_however_many_partitions_it_has(engine: Engine) -> None:
    """Goal: the lock is short. Seen to fail: 10,000 partitions took three seconds of CPU a batch,
    and five where another checkpoint has other sources.
    """
    owner = Ownership.take(engine, "q")
    statements: list[str] = []
    sql.event.listen(
        engine, "before_cursor_execute", lambda *event: statements.append(str(event[2]))
    )

    def cost(**work: Any) -> int:
        statements.clear()
        with owner.transaction() as connection:
            owner.commit_batch(connection, batch(1), Work(rows=Rows.ALL, **work))
        return len(statements)

    costs = []
    for partitions in (2, 200):
        readers = [Reader(Partition("t", number)) for number in range(partitions)]
        others = {r: Reader(r.partition, 1) for r in readers}
        costs.append(
            [
                cost(moves=tuple(Due(r, 0, 0, 1, None) for r in readers)),
                cost(moves=tuple(Due(r, 1, 1, 2, 1) for r in readers)),
                cost(renamed=others),
                cost(forget=tuple(others.values())),
            ]
        )
        assert known(owner) == {}
    assert costs[0] == costs[1]


@pytest.mark.parametrize("comes_back", [True, False])
def test_an_owner_of_before_the_tables_were_restored_commits_nothing(
    engine: Engine, comes_back: bool
) -> None:
    """Goal: a driver that a backup does not know of is no owner; nor one of tables that were
    emptied. Method: the row as it was before that driver took the query over, or none.
    """
    backup = []
    old = Ownership.take(engine, "q")
    if comes_back:
        with engine.begin() as connection:
            backup = [dict(row._mapping) for row in connection.execute(sql.select(queries))]
        old = Ownership.take(engine, "q")
    with engine.begin() as connection:
        connection.execute(queries.delete())
        for row in backup:
            connection.execute(queries.insert().values(**row))
    young = Ownership.take(engine, "q")
    with pytest.raises(FencedError, match="was taken over"):
        old.memory()
    assert young.memory() == Memory()


def test_the_epoch_can_not_change_inside_a_transaction(engine: Engine) -> None:
    """A successor that comes in the middle waits for the commit, and then finds its offsets."""
    old = Ownership.take(engine, "q")
    taken: list[Ownership] = []
    with old.transaction() as connection:
        successor = threading.Thread(target=lambda: taken.append(Ownership.take(engine, "q")))
        successor.start()
        old.advance(connection, [move(0, 5, None)])
        assert not taken
    successor.join(30)
    assert known(taken[0]) == {P: 5}
    with pytest.raises(FencedError):
        old.memory()


def test_every_owner_of_a_crowd_has_an_epoch_of_its_own(engine: Engine) -> None:
    taken: list[int] = []

    def take() -> None:
        taken.append(Ownership.take(engine, "q").epoch)

    crowd = [threading.Thread(target=take) for _ in range(4)]
    for thread in crowd:
        thread.start()
    for thread in crowd:
        thread.join(60)
    assert len({*taken}) == 4


def test_two_that_saw_the_same_epoch_get_epochs_of_their_own(engine: Engine) -> None:
    """Goal: no luck is needed for the race. Method: no one writes before both have read.

    SQLite lets no second one begin: there they go one after the other.
    """
    before = Ownership.take(engine, "q").epoch
    both = threading.Barrier(2, timeout=60)
    met: set[int] = set()

    def meet(*event: object) -> None:
        is_first = threading.get_ident() not in met
        if is_first and str(event[2]).startswith("UPDATE"):
            met.add(threading.get_ident())
            both.wait()

    if engine.dialect.name != "sqlite":
        sql.event.listen(engine, "before_cursor_execute", meet)
    taken: list[int] = []
    pair = [
        threading.Thread(target=lambda: taken.append(Ownership.take(engine, "q").epoch))
        for _ in range(2)
    ]
    for thread in pair:
        thread.start()
    for thread in pair:
        thread.join(60)
    assert before < min(taken) < max(taken)


def test_a_batch_is_remembered_with_its_checkpoint_and_its_plan(engine: Engine) -> None:
    owner = Ownership.take(engine, "q")
    other = Ownership.take(engine, "another")
    assert owner.memory() == Memory()
    moves = (Due(P, 0, 0, 3, None, "x"), Due(TWIN, 0, 0, 3, None, "x"), Due(Q, 1, 1, 1, None))
    with owner.transaction() as connection:
        owner.commit_batch(connection, batch(0, stateful=True), Work(rows=Rows.ALL, moves=moves))
    assert owner.memory() == Memory(
        {P: Stored(3, "x"), TWIN: Stored(3, "x"), Q: Stored(1)},
        Last("here", 0, "plan", stateful=True),
    )
    assert other.memory() == Memory(), "each query has a memory of its own"
    with owner.transaction() as connection:
        work = Work(rows=Rows.ALL, moves=(Due(TWIN, 3, 3, 9, 3, "x"),), named={"t": "y"})
        owner.commit_batch(connection, batch(1, plan="next"), work)
    assert owner.memory() == Memory(
        {P: Stored(3, "x"), TWIN: Stored(9, "x"), Q: Stored(1, "y")},
        Last("here", 1, "next"),
    )
    with owner.transaction() as connection:
        work = Work(rows=Rows.ALL, moves=(Due(P, 0, 0, 0, None, "z"),), forget=(P,))
        owner.commit_batch(connection, batch(0, checkpoint="there"), work)
    assert owner.memory() == Memory(
        {P: Stored(0, "z"), TWIN: Stored(9, "x"), Q: Stored(1, "y")}, Last("there", 0, "plan")
    )


def test_what_the_log_lacked_is_told_in_the_transaction_of_the_batch(engine: Engine) -> None:
    """Method: a batch that is rolled back, the same one twice, and others that lack less.

    Seen to tell what the table had before it was gone, and to end where it was told twice.
    """
    owner = Ownership.take(engine, "q")
    ranges = (
        Planned(P, 3, 9, "x", gaps=((3, 5), (6, 7))),
        Planned(TWIN, 3, 9, "x", gaps=((3, 5),)),
        Planned(Q, 0, 4),
    )
    work = Work(rows=Rows.NEW, moves=(Due(P, 3, 4, 9, None, "x"), Due(TWIN, 3, 3, 9, None, "x")))

    def told() -> list[tuple[object, ...]]:
        with engine.begin() as connection:
            return [tuple(row) for row in connection.execute(sql.select(gaps))]

    def commit(number: int, ranges: tuple[Planned, ...], work: Work) -> None:
        with owner.transaction() as connection:
            owner.commit_batch(connection, batch(number, ranges=ranges), work)

    def die_before_the_commit() -> None:
        with owner.transaction() as connection:
            owner.commit_batch(connection, batch(4, ranges=ranges), work)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        die_before_the_commit()
    assert told() == []
    commit(4, ranges, work)
    # An older copy of a checkpoint plans it anew: with a row more, and with none.
    commit(4, ranges[:1], Work(rows=Rows.NEW, moves=(Due(P, 3, 4, 10, 9, "x"),)))
    commit(4, ranges[1:2], Work(rows=Rows.NONE))
    commit(5, (), Work(rows=Rows.ALL))
    commit(6, (Planned(P, 10, 10, "x", gaps=((8, 9),)),), Work(rows=Rows.ALL))
    assert sorted(told()) == [
        ("q", "here", 4, "t", 0, 0, 4, 5, "x"),
        ("q", "here", 4, "t", 0, 0, 6, 7, "x"),
        ("q", "here", 4, "t", 0, 1, 3, 5, "x"),
        ("q", "here", 6, "t", 0, 0, 8, 9, "x"),
    ]


def test_gaps_of_the_last_batches_are_kept_and_older_ones_go(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A query that is always behind retention would fill the disk with them."""
    monkeypatch.setattr(fence, "GAP_BATCHES_MAX", 2)
    owners = [Ownership.take(engine, name) for name in ("q", "other")]

    def commit(owner: Ownership, number: int, **changed: Any) -> None:
        lacking = (Planned(P, 9, 9, "x", gaps=((3, 5), (6, 7))),)
        with owner.transaction() as connection:
            told = batch(number, ranges=lacking, **changed)
            owner.commit_batch(connection, told, Work(rows=Rows.NONE))

    commit(owners[1], 1)
    commit(owners[0], 1, checkpoint="before")
    for number in (1, 4, 9):
        commit(owners[0], number)
    with engine.begin() as connection:
        columns = gaps.c.query, gaps.c.checkpoint, gaps.c.batch
        told = sorted(tuple(row) for row in connection.execute(sql.select(*columns)))
    kept = [("other", "here", 1), ("q", "before", 1), ("q", "here", 4), ("q", "here", 9)]
    assert told == [each for each in kept for _ in range(2)]


def test_an_id_that_was_spelt_as_librdkafka_does_is_the_same(engine: Engine) -> None:
    owner = Ownership.take(engine, "q")
    moves = (Due(P, 0, 0, 3, None, "q+/w"), Due(Q, 0, 0, 3, None))
    with owner.transaction() as connection:
        owner.advance(connection, moves)
    assert owner.memory().offsets == {P: Stored(3, "q-_w"), Q: Stored(3)}


def test_tables_of_an_older_version_are_gone_on_with(engine: Engine) -> None:
    """What they count stays, what they lack is unknown; and that happens once."""
    old = sql.MetaData()
    sql.Table(
        "holdfast_query",
        old,
        sql.Column("query", sql.String(255), primary_key=True),
        sql.Column("epoch", sql.BigInteger, nullable=False),
        sql.Column("owner", sql.String(255), nullable=False),
    )
    before = sql.Table(
        "holdfast_offset",
        old,
        sql.Column("query", sql.String(255), primary_key=True),
        sql.Column("topic", sql.String(249), primary_key=True),
        sql.Column("partition", sql.Integer, primary_key=True),
        sql.Column("next_offset", sql.BigInteger, nullable=False),
    )
    with engine.begin() as connection:
        old.create_all(connection)
        connection.execute(
            old.tables["holdfast_query"].insert().values(query="q", epoch=7, owner="x")
        )
        for number in (0, 1):
            row = {"query": "q", "topic": "t", "partition": number, "next_offset": 5 + number}
            connection.execute(before.insert().values(**row))
    crowd = [threading.Thread(target=Ownership.take, args=(engine, "q")) for _ in range(3)]
    for thread in crowd:
        thread.start()
    for thread in crowd:
        thread.join(60)
    owner = Ownership.take(engine, "q")
    assert owner.epoch >= 11
    last = Last(None, None, None, by_place=False)
    assert owner.memory() == Memory({P: Stored(5), Q: Stored(6)}, last)
    with owner.transaction() as connection:
        owner.advance(connection, [Due(TWIN, 0, 0, 0, None, "x")])
    assert known(owner) == {P: 5, Q: 6, TWIN: 0}
    names = set(sql.inspect(engine).get_table_names())
    assert names == {"data", queries.name, offsets.name, gaps.name}


def test_sources_may_change_their_places(engine: Engine) -> None:
    """All at once: on the way one has the other's number."""
    owner = Ownership.take(engine, "q")
    three = (TWIN, Reader(Partition("t", 0), 2))
    moves = tuple(Due(reader, 0, 0, 3 + n, None, "x") for n, reader in enumerate((P, *three)))
    with owner.transaction() as connection:
        owner.commit_batch(connection, batch(0), Work(rows=Rows.ALL, moves=moves))
    names = {P: TWIN, TWIN: three[1], three[1]: P}
    work = Work(rows=Rows.ALL, renamed=names, moves=(Due(P, 5, 5, 9, 5, "x"),))
    with owner.transaction() as connection:
        owner.commit_batch(connection, batch(1), work)
    assert known(owner) == {TWIN: 3, three[1]: 4, P: 9}
    assert {stored.topic_id for stored in owner.memory().offsets.values()} == {"x"}
    assert owner.memory().last == Last("here", 1, "plan")
    gone = Work(rows=Rows.ALL, renamed={Q: P})
    with pytest.raises(FencedError, match="is not there any more"), owner.transaction() as again:
        owner.commit_batch(again, batch(2), gone)
