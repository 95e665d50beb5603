"""Goal: of two owners of one query only the younger commits, and offsets move with the rows or not
at all. Method: two real connections to real databases, in every order that matters.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
import sqlalchemy as sql
from sqlalchemy.engine import Engine

from holdfast.pipelines.fence import FencedError, Ownership, open_engine
from holdfast.pipelines.offsets import Partition
from holdfast.pipelines.planned import Due

P = Partition("t", 0)
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


def count(engine: Engine) -> int:
    with engine.begin() as connection:
        return int(connection.scalar(sql.select(sql.func.count()).select_from(data)) or 0)


def test_rows_and_offsets_commit_together(engine: Engine) -> None:
    owner = Ownership.take(engine, "q")
    assert owner.epoch == 1
    with owner.transaction() as connection:
        owner.advance(connection, [move(0, 3, None)])
        connection.execute(data.insert(), [{"value": n} for n in range(3)])
    assert owner.next_offsets() == {P: 3}
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
    assert owner.next_offsets() == {}
    assert count(engine) == 0


def test_who_was_replaced_commits_nothing(engine: Engine) -> None:
    old = Ownership.take(engine, "q")
    young = Ownership.take(engine, "q")
    assert young.epoch == old.epoch + 1
    with pytest.raises(FencedError, match=r"epoch 1.*epoch 2 belongs to"), old.transaction():
        pytest.fail("a zombie's transaction was opened")
    with pytest.raises(FencedError):
        old.next_offsets()
    with young.transaction() as connection:
        young.advance(connection, [move(0, 1, None)])
    assert young.next_offsets() == {P: 1}


def test_queries_do_not_fence_each_other(engine: Engine) -> None:
    one, other = Ownership.take(engine, "one"), Ownership.take(engine, "other")
    with one.transaction() as connection:
        one.advance(connection, [move(0, 1, None)])
    assert other.next_offsets() == {}


def test_an_offset_that_somebody_changed_is_not_overwritten(engine: Engine) -> None:
    owner = Ownership.take(engine, "q")
    with owner.transaction() as connection:
        owner.advance(connection, [move(0, 5, None)])
    with (
        pytest.raises(FencedError, match="no longer 4"),
        owner.transaction() as connection,
    ):
        owner.advance(connection, [move(4, 9, 4)])
    assert owner.next_offsets() == {P: 5}


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
    assert taken[0].next_offsets() == {P: 5}
    with pytest.raises(FencedError):
        old.next_offsets()


def test_every_owner_of_a_crowd_has_an_epoch_of_its_own(engine: Engine) -> None:
    taken: list[int] = []

    def take() -> None:
        taken.append(Ownership.take(engine, "q").epoch)

    crowd = [threading.Thread(target=take) for _ in range(4)]
    for thread in crowd:
        thread.start()
    for thread in crowd:
        thread.join(60)
    assert sorted(taken) == [1, 2, 3, 4]
