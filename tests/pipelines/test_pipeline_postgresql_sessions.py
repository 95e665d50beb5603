"""Goal: what a database or a role has set for its sessions changes no row of a sink, and takes back
none. Method: databases of other encodings, and settings of theirs, on a real server.
"""

from __future__ import annotations

import itertools
import os
import pickle
from collections.abc import Callable, Iterator

import psycopg
import pyarrow as pa
import pytest
import sqlalchemy as sql
from pyspark.sql import types as spark

from holdfast.pipelines.due import Rows, Work
from holdfast.pipelines.planned import Batch
from holdfast.pipelines.sinks.database_url import connection_arguments
from holdfast.pipelines.sinks.postgresql_store import Copied, PostgresqlStore
from holdfast.pipelines.sinks.target import Target, TargetError

pytestmark = [pytest.mark.slow, pytest.mark.postgresql]

SCHEMA = spark.StructType(
    [
        spark.StructField("text", spark.StringType()),
        spark.StructField("größe", spark.StringType()),
        spark.StructField("bytes", spark.BinaryType()),
    ]
)
_names = itertools.count()

Made = Callable[..., str]


@pytest.fixture
def made(postgresql: str) -> Made:
    """Return what makes a database and gives back its URL. `settings`: SQL, of sessions there."""

    def make(encoding: str = "UTF8", *settings: str) -> str:
        name = f"session_{os.getpid()}_{next(_names)}"
        engine = sql.create_engine(postgresql, isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            connection.exec_driver_sql(
                f"CREATE DATABASE {name} ENCODING '{encoding}' LC_COLLATE 'C' LC_CTYPE 'C' "
                "TEMPLATE template0"
            )
            for setting in settings:
                connection.exec_driver_sql(f"ALTER DATABASE {name} SET {setting}")
        engine.dispose()
        return postgresql.replace("/postgres?", f"/{name}?")

    return make


@pytest.fixture
def opened() -> Iterator[Callable[[str], PostgresqlStore]]:
    stores: list[PostgresqlStore] = []

    def another(url: str) -> PostgresqlStore:
        stores.append(PostgresqlStore(url, "q", Target(table="kept")))
        stores[-1].open(SCHEMA, "spark://elsewhere:7077")
        return stores[-1]

    yield another
    for store in stores:
        store.close()


def write(store: PostgresqlStore, *texts: str) -> None:
    """Write rows with a text each, as a batch does, its task from what was pickled."""
    batch = Batch(number=0, checkpoint="c", plan="plan", stateful=False, ranges=())
    rows = pa.RecordBatch.from_arrays(
        [
            pa.array(texts),
            pa.array(texts),
            pa.array([text.encode("utf-16") for text in texts], pa.binary()),
        ],
        SCHEMA.names,
    )
    done = list(pickle.loads(pickle.dumps(store.task(batch)))(iter([rows])))
    chosen = tuple(number for each in done for number in each["attempt"].to_pylist())
    store.commit(batch, Work(rows=Rows.ALL), Copied(chosen, len(texts)))


def read(url: str) -> list[tuple[str, str, bytes]]:
    arguments = {**connection_arguments(url), "client_encoding": "UTF8"}
    with psycopg.connect(**arguments) as connection:
        return connection.execute("SELECT * FROM kept").fetchall()


ENCODINGS = [
    ("LATIN1", "UTF8"),
    ("SQL_ASCII", "SQL_ASCII"),
    ("UTF8", "LATIN1"),
    ("UTF8", "SQL_ASCII"),
    ("UTF8", "WIN1252"),
]


@pytest.mark.parametrize(("server", "client"), ENCODINGS)
def test_a_text_is_the_same_whatever_a_session_is_said_to_speak(
    made: Made, opened: Callable[[str], PostgresqlStore], server: str, client: str
) -> None:
    """Seen to fail: "Ã¼" for "ü" where the database's sessions speak LATIN1, without an error."""
    url = made(server, f"client_encoding = '{client}'")
    texts = ["Zürich", "naïve", "plain", "\u0080"]
    write(opened(url), *texts)
    assert read(url) == [(text, text, text.encode("utf-16")) for text in texts]


def test_a_variable_and_the_url_say_nothing_else(
    made: Made, opened: Callable[[str], PostgresqlStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
    url = made()
    write(opened(url + "&client_encoding=LATIN1"), "ü€")
    assert [row[0] for row in read(url)] == ["ü€"]


def test_a_text_that_the_database_can_not_hold_is_told(
    made: Made, opened: Callable[[str], PostgresqlStore]
) -> None:
    store = opened(made("LATIN1"))
    said = r"a text of 'text' or 'größe' has '€', and the database's encoding, LATIN1, has no such"
    with pytest.raises(TargetError, match=said):
        write(store, "fine", "5 €")
    assert store.memory().last is None


def test_what_is_acknowledged_is_on_disk_whatever_a_role_has_set(
    made: Made, opened: Callable[[str], PostgresqlStore]
) -> None:
    """Seen to fail: a crash of the server takes back a batch that Spark counts as written."""
    for given, kept in [("off", "on"), ("local", "local"), ("remote_apply", "remote_apply")]:
        store = opened(made("UTF8", f"synchronous_commit = {given}"))
        with store.ownership.transaction() as connection:
            found = connection.exec_driver_sql("SHOW synchronous_commit").scalar()
        assert found == kept
