"""An Iceberg table that has each batch once: rows and what is remembered of them, in one commit.

    LOCATION/data/part-....parquet              rows; LOCATION/metadata: Iceberg's
    LOCATION/_holdfast/QUERY/staged/EPOCH/...   what the tasks of this epoch's owner write
    LOCATION/_holdfast/QUERY/turns/TURN         the files that a turn adds, until it is committed

What is remembered is a property of the table, `holdfast.query.QUERY`: it changes in the commit that
adds a batch's files, and in no other. To take a query over is a commit too, of the property alone.

A commit is one row of the catalog that is compared and set, behind the metadata that was read; and
that had the turn which this owner committed last (`catalog`). Whether a commit was made of which
there was no answer, the property says. It may come still, as long as nobody else has committed: so
its files stay, until the query is taken over. `docs/design/spark.md` has what was measured.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyiceberg.exceptions import (
    NamespaceAlreadyExistsError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.io.pyarrow import parquet_file_to_data_file
from pyiceberg.table import Table, TableProperties
from pyiceberg.utils.properties import property_as_bool
from sqlalchemy.exc import IntegrityError, SQLAlchemyError

from holdfast.pipelines.sinks.iceberg.catalog import (
    ConflictError,
    OwnersCatalog,
    Place,
    journaled,
    location,
    opened,
)
from holdfast.pipelines.sinks.iceberg.synced_files import note, path_of
from holdfast.pipelines.sinks.iceberg.table import MADE_WITH, Columns, refuse_misfit
from holdfast.pipelines.sinks.store import is_one_machine
from holdfast.pipelines.sinks.target import Target, TargetError
from holdfast.pipelines.sinks.turns import (
    AREA,
    ATTEMPTS,
    DIGITS,
    NOTHING,
    VERSION,
    TurnStore,
    for_people,
)
from holdfast.pipelines.sinks.written_files import Files

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

PROPERTY: Final = "holdfast.query."
_KEPT: Final = ("query", "version", "epoch", "known", *NOTHING)
_MAKING: Final = "making"  # in the area, what belongs to no table yet


class IcebergStore(TurnStore[Table, str]):
    """An Iceberg table in a folder that every executor sees under the same name."""

    kind = "an Iceberg table"
    errors = (SQLAlchemyError, ConflictError, OSError)

    def __init__(self, url: str, query: str, target: Target) -> None:
        super().__init__(query, target)
        self._place = Place.parse(url)
        self._identifier = _identifier(target.table)
        self._root = path_of(location("/".join((self._place.warehouse, *self._identifier))))
        self._columns: Columns | None = None
        self._schema: pa.Schema | None = None
        self._catalog: OwnersCatalog | None = None
        self._table_id = _MAKING
        self._in_doubt = False  # whether what was tried last may be committed, now or later

    def __getstate__(self) -> dict[str, Any]:
        opened_here = {"_columns": None, "_schema": None, "_catalog": None, "_in_doubt": False}
        return {**super().__getstate__(), **opened_here, "_table_id": _MAKING}

    @property
    def catalog(self) -> OwnersCatalog:
        assert self._catalog is not None, "open() comes first"
        return self._catalog

    @property
    def folder(self) -> Path:
        return self._root

    @property
    def _arrow(self) -> pa.Schema:
        assert self._schema is not None, "open() comes first"
        return self._schema

    @property
    def _property(self) -> str:
        """Of a query, not of its checkpoint: one that is removed must not let rows come again."""
        return f"{PROPERTY}{self._query}"

    @property
    def _area(self) -> Path:
        """Of a table, not of its folder: two catalogs may have one there, and share no fence."""
        return self.folder / AREA / self._table_id / super()._area.name

    @property
    def _journals(self) -> Path:
        return self._area / "turns"

    # -- who owns the query ------------------------------------------------------------------------

    def open(self, schema: StructType, master: str) -> None:
        self._columns = Columns(schema)
        if self._place.url.startswith("sqlite") and not is_one_machine(master):
            raise TargetError(
                "target: a catalog in SQLite is for one machine, and Spark runs on "
                f"{master or 'a cluster, for all that is known'}; use one in PostgreSQL"
            )
        self._catalog = opened(self._place)
        table = self._made(self._columns)
        self._root = path_of(table.location())
        self._table_id = str(table.metadata.table_uuid)
        self._missing(table)  # before anybody is fenced
        self._make_area(self._journals, self._root / "data", self._root / "metadata")
        self._take()
        self._sweep()
        self._schema = self._columns.arrow(self._load())

    def _missing(self, table: Table) -> list[str]:
        """Return the columns that are to be added. TargetError: the table does not fit."""
        assert self._columns is not None, "open() comes first"
        return refuse_misfit(table, self._columns, adds=self._target.adds_columns)

    def _made(self, columns: Columns) -> Table:
        """Make the table if it is not there. TargetError: its folder has something else."""
        if self.catalog.table_exists(self._identifier):
            return self._load()
        if self._root.is_dir():
            # What died while it made a table has left an area, and no data.
            others = [path.name for path in self._root.iterdir()]
            data = [path.name for path in self._root.glob("data/*")]
            if data or (others and AREA not in others):
                has = f"data, {min(data)}" if data else min(others)
                raise TargetError(
                    f"{self._root}: the catalog has no table there, and it is not empty: it has "
                    f"{has}. Another catalog's table may be there, or one that was dropped or "
                    "renamed: give the table another name, or register what is there"
                )
        self._make_area(self._journals, self._root / "metadata")
        with suppress(NamespaceAlreadyExistsError, IntegrityError):
            self.catalog.create_namespace(self._identifier[:-1])
        journal = self._journal(self._new_turn(None))
        try:
            self.catalog.create_table(
                self._identifier,
                columns.schema,
                location=location(str(self._root)),
                properties=MADE_WITH,
            )
        except TableAlreadyExistsError:
            self._remove(journal)
        journal.unlink(missing_ok=True)
        return self._load()

    def _load(self) -> Table:
        try:
            return self.catalog.load_table(self._identifier)
        except NoSuchTableError:
            raise TargetError(
                f"table {self._target.table}: the catalog has it no more; somebody dropped or "
                "renamed it. Nothing was written"
            ) from None

    def _turn_of(self, table: Table) -> Any:
        told = self._read(table)
        return told["turn"]

    def _read(self, table: Table) -> dict[str, Any]:
        text = table.properties.get(self._property)
        if text is None:
            return dict(NOTHING)
        told: dict[str, Any] = json.loads(text)
        return told

    # -- files that a turn adds --------------------------------------------------------------------

    def _new_turn(self, before: Any) -> str:
        """Return a name that nobody else has: of those for one number one is committed."""
        number = 0 if before is None else _number(before) + 1
        return f"{number:0{DIGITS}}-{uuid.uuid4().hex}"

    def _journal(self, turn: str) -> Path:
        """Have all that is written from now on written down under a turn."""
        path = self._journals / turn
        journaled(self.catalog, path)
        return path

    def _sweep(self) -> None:
        """Remove what owners before have left that was not committed, and now never will be.

        A number is committed once. So what has that of a committed turn, or a later one up to ours,
        and is none of those, was not committed; and whoever would do so now must have read a turn
        that is over. Turn 0 makes the table, and may be about to: what is left of it stays, as
        does what is older. Of that nobody knows; Iceberg's own removal of orphans takes it.
        """
        committed = {*self._told["known"], self._told["turn"]}
        oldest = min(map(_number, committed))
        for journal in self._journals.iterdir():
            number = _number(journal.name)
            if not 0 < number <= _number(self._told["turn"]):
                continue
            if number >= oldest and journal.name not in committed:
                self._remove(journal)
            journal.unlink(missing_ok=True)

    def _remove(self, journal: Path) -> None:
        """Remove the files that a journal names, and then it."""
        for path in _named_in(journal):
            path.unlink(missing_ok=True)
        journal.unlink(missing_ok=True)

    # -- a batch -----------------------------------------------------------------------------------

    def _next(self, told: Mapping[str, Any], *, takes: bool = False) -> dict[str, Any]:
        turn = self._new_turn(told["before"])
        # Turns that may have left their journal: who takes over and dies has not swept.
        known = [*(told.get("known", []) if takes else []), told["before"]][-ATTEMPTS:]
        whole = {**told, "version": VERSION, "query": self._query, "turn": turn, "known": known}
        if takes:
            whole["epoch"] = turn
        self._journal(turn)
        self._in_doubt = False
        return whole

    def _adds(self, files: Files) -> list[str]:
        return list(files.rows())

    def _move_in(self, files: Files) -> None:
        if files.names:
            names = [location(str(self._root / "data" / name)) for name in files.names]
            note(Path(self.catalog.properties["holdfast.journal"]), names)
            files.move_to(self._root / "data")

    def _refuse_misfit(self, table: Table) -> None:
        """Of a column that was dropped and made anew, the files would have an id that is over."""
        assert self._columns is not None, "open() comes first"
        if not self._columns.arrow(table).equals(self._arrow, check_metadata=True):
            raise TargetError(
                f"table {self._target.table}: its columns were changed while the query ran. "
                "Nothing was written; start the query again"
            )

    def _commit(
        self, table: Table, told: Mapping[str, Any], adds: Sequence[str]
    ) -> Exception | None:
        assert self._columns is not None, "open() comes first"
        try:
            transaction = table.transaction()
            if missing := self._missing(table):
                with transaction.update_schema() as change:
                    for name in missing:
                        change.add_column((name,), self._columns.types[name])
            if adds or told["gaps"]:  # which a snapshot without files shows as well
                merges = property_as_bool(
                    table.properties,
                    TableProperties.MANIFEST_MERGE_ENABLED,
                    TableProperties.MANIFEST_MERGE_ENABLED_DEFAULT,
                )
                update = transaction.update_snapshot({"holdfast": for_people(told)})
                with update.merge_append() if merges else update.fast_append() as append:
                    for name in adds:
                        path = location(str(self._root / "data" / name))
                        append.append_data_file(
                            parquet_file_to_data_file(table.io, table.metadata, path)
                        )
            kept = {key: told[key] for key in _KEPT if key in told}
            transaction.set_properties({self._property: json.dumps(kept)})
            self._in_doubt = True
            transaction.commit_transaction()
        except self.errors as error:
            self._judge(error, told)
            return error
        return None

    def _judge(self, error: Exception, told: Mapping[str, Any]) -> None:
        """Find out whether a commit that failed may have been made, or may be made yet.

        The catalog is asked when all files are written, and its own errors are SQLAlchemy's.
        """
        self._in_doubt = isinstance(error, SQLAlchemyError)
        if isinstance(error, ConflictError):  # the data files are committed with the next attempt
            for path in _named_in(self._journals / told["turn"]):
                if path.parent.name != "data":
                    path.unlink(missing_ok=True)

    def _is_conflict(self, failure: Exception | None) -> bool:
        return isinstance(failure, ConflictError)

    def _drop(self, told: Mapping[str, Any]) -> None:
        if not self._in_doubt:
            self._remove(self._journals / told["turn"])

    def _is_committed(self, told: Mapping[str, Any], over: Mapping[str, Any]) -> None:
        del over
        (self._journals / told["turn"]).unlink(missing_ok=True)


def _identifier(table: str) -> tuple[str, ...]:
    """Return the names that lead to a table. TargetError: they would not lead to a folder."""
    names = tuple(table.split("."))
    if len(names) < 2:
        raise TargetError(f'table: {table!r} stands in no namespace; use "default.{table}", say')
    if any(not name or name.startswith("_") or "/" in name for name in names):
        raise TargetError(f"table: {table!r}: each of its names is a folder's, without / and _...")
    return names


def _number(turn: Any) -> int:
    return int(str(turn).partition("-")[0])


def _named_in(journal: Path) -> list[Path]:
    """Return the files that a journal names. Who is replaced finds it swept: none."""
    try:
        return [path_of(name) for name in journal.read_text().splitlines()]
    except FileNotFoundError:
        return []
