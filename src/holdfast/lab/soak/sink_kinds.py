"""The sinks that are proven under kills: one entry each.

An entry says where a table lies, at which of its store's functions a driver is held, how a reader
that is not ours finds its rows, and which server it needs. Nothing else knows one from another.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import unquote

import sqlalchemy as sql

from holdfast.lab.pipelines import postgresql_server

Rows = list[dict[str, object]]
Environment = Mapping[str, str]  # what a run marks its processes with


class Server(Protocol):
    """What is killed and started again."""

    url: str

    def kill(self) -> None: ...

    def start(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Sink:
    """`target` and `places` are words for the driver. `{folder}` becomes the run's, `{url}` the
    server's. `read` gets the target, the table and the columns of its key.

    Of the places the first is where tasks compute a batch's rows, the last one is a batch's commit,
    from outside of any transaction. `inner` are those that a driver comes to also when it takes the
    query over: it is brought to them through the commit.
    """

    name: str
    target: str
    places: tuple[str, ...]
    read: Callable[[str, str, Sequence[str]], Rows]
    mode: str = "append"
    inner: tuple[str, ...] = ()
    server: Callable[[Path, Environment], AbstractContextManager[Server]] | None = None
    options: tuple[str, ...] = ()  # further words for the driver

    @property
    def scheme(self) -> str:
        """What its target begins with; of one that its server names, the sink's own name does."""
        return re.split(r"[:+-]", self.name if self.target == "{url}" else self.target)[0]


# -- readers -------------------------------------------------------------------------------------


def from_sql(target: str, table: str, _keys: Sequence[str]) -> Rows:
    engine = sql.create_engine(target, poolclass=sql.NullPool)
    with engine.connect() as connection:
        found = connection.exec_driver_sql(f"SELECT * FROM {table}").mappings().all()  # noqa: S608
    return [dict(row) for row in found]


def _from_parquet(target: str, table: str, _keys: Sequence[str]) -> Rows:
    """Read what any reader does: names that begin with _ or . are passed over."""
    from pyarrow import parquet  # noqa: PLC0415 - only who has such a sink needs it

    root = Path(target.removeprefix("parquet://"), table)
    files = (
        path
        for path in root.rglob("*.parquet")
        if not any(part.startswith(("_", ".")) for part in path.relative_to(root).parts)
    )
    return [row for path in files for row in parquet.ParquetFile(path).read().to_pylist()]


def _from_delta(target: str, table: str, _keys: Sequence[str]) -> Rows:
    from deltalake import DeltaTable  # noqa: PLC0415 - as above

    read = DeltaTable(Path(target.removeprefix("delta://"), table)).to_pyarrow_table()
    return [dict(row) for row in read.to_pylist()]


def _from_iceberg(target: str, table: str, _keys: Sequence[str]) -> Rows:
    from pyiceberg.catalog import load_catalog  # noqa: PLC0415 - as above

    url = target.removeprefix("iceberg+").partition("?")[0]
    catalog = load_catalog("default", type="sql", uri=url)
    read = catalog.load_table(f"{NAMESPACE}.{table}").scan().to_arrow()
    return [dict(row) for row in read.to_pylist()]


def _from_redis(target: str, table: str, keys: Sequence[str]) -> Rows:
    from redis import Redis  # noqa: PLC0415 - as above

    found: Rows = []
    with closing(Redis.from_url(target)) as client:
        for name in client.scan_iter(f"{table}:*"):
            values = [unquote(part) for part in name.decode().split(":")[1:]]
            fields: Any = client.hgetall(name)
            row: Mapping[str, object] = {k.decode(): v.decode() for k, v in fields.items()}
            found.append({**row, **dict(zip(keys, values, strict=True))})
    return found


@contextmanager
def _redis(folder: Path, environment: Environment) -> Iterator[Server]:
    from holdfast.lab.soak.redis_server import RedisServer  # noqa: PLC0415 - as above

    folder.mkdir()
    server = RedisServer(folder, environment=environment)
    try:
        yield server
    finally:
        server.kill()


def _postgresql(_folder: Path, environment: Environment) -> AbstractContextManager[Server]:
    return postgresql_server.running(environment)


# -- entries -------------------------------------------------------------------------------------

_SINKS = "holdfast.pipelines.sinks"
NAMESPACE = "proof"
_FENCE = "holdfast.pipelines.fence:Ownership"
_DATABASE_COMMIT = "sqlalchemy.engine.default:DefaultDialect.do_commit"
_POSTGRESQL = (
    f"{_SINKS}.postgresql_store:PostgresqlStore.stage",
    f"{_SINKS}.postgresql_store:PostgresqlStore.take_in",
    f"{_FENCE}.commit_batch",
    _DATABASE_COMMIT,
    f"{_SINKS}.sql_store:SqlStore.commit",
)

SINKS = (
    Sink(
        name="sqlite",
        target="sqlite:///{folder}/table.db",
        places=(
            f"{_SINKS}.sql_store:SqliteStore.stage",
            f"{_SINKS}.sql_store:SqliteStore.take_in",
            f"{_FENCE}.commit_batch",
            _DATABASE_COMMIT,
            f"{_SINKS}.sql_store:SqlStore.commit",
        ),
        inner=(_DATABASE_COMMIT,),
        read=from_sql,
    ),
    Sink(
        name="postgresql-append",
        target="{url}",
        places=_POSTGRESQL,
        read=from_sql,
        inner=(_DATABASE_COMMIT,),
        server=_postgresql,
    ),
    Sink(
        name="postgresql-upsert",
        target="{url}",
        places=_POSTGRESQL,
        read=from_sql,
        mode="upsert",
        inner=(_DATABASE_COMMIT,),
        server=_postgresql,
    ),
    Sink(
        name="parquet",
        target="parquet://{folder}/tables",
        places=tuple(
            f"{_SINKS}.parquet.store:ParquetStore.{name}"
            for name in ("stage", "_gather", "_publish", "commit")
        ),
        read=_from_parquet,
    ),
    Sink(
        name="delta",
        target="delta://{folder}/tables",
        places=tuple(
            f"{_SINKS}.delta_store:DeltaStore.{name}"
            for name in ("stage", "_move_in", "_commit_owned", "_commit", "commit")
        ),
        inner=(f"{_SINKS}.delta_store:DeltaStore._commit",),
        read=_from_delta,
    ),
    Sink(
        name="iceberg",
        target="iceberg+sqlite:///{folder}/catalog.db?warehouse={folder}/tables",
        places=(
            *(
                f"{_SINKS}.iceberg.store:IcebergStore.{name}"
                for name in ("stage", "_move_in", "_commit")
            ),
            f"{_SINKS}.iceberg.catalog:OwnersCatalog.commit_table",
            f"{_SINKS}.iceberg.store:IcebergStore.commit",
        ),
        inner=(
            f"{_SINKS}.iceberg.store:IcebergStore._commit",
            f"{_SINKS}.iceberg.catalog:OwnersCatalog.commit_table",
        ),
        read=_from_iceberg,
        options=("--namespace", NAMESPACE),
    ),
    Sink(
        name="redis",
        target="{url}",
        places=(
            f"{_SINKS}.key_value.store:RedisStore.stage",
            f"{_SINKS}.key_value.store:RedisStore.check_written",
            f"{_SINKS}.key_value.store:run_one",
            f"{_SINKS}.key_value.store:RedisStore.commit",
        ),
        inner=(f"{_SINKS}.key_value.store:run_one",),
        read=_from_redis,
        mode="upsert",
        server=_redis,
    ),
)
CONTROL = Sink(
    name="plain-append",
    target="{folder}/tables",
    places=("pyspark.sql.readwriter:DataFrameWriter.parquet",),
    read=_from_parquet,
    options=("--sink", "append"),
)
