"""Redis: tasks write a batch's winners, a script a row, and then what is remembered moves on.

    TABLE:KEY                    a hash of the other columns, and the version that wrote it
    holdfast_deleted:TABLE:KEY   the version that deleted it
    holdfast_query:QUERY         a hash: owner, epoch, commits, the batch that the table had last
    holdfast_table:TABLE         what the table is: its query, its keys, its columns

Many keys can't change at once here: a reader may see a part of a batch. What makes each batch count
once all the same is that its commit's number decides (`scripts`): rows are written for the batch
under way alone, by the query's owner alone, and its number goes on when all of them are there. What
a driver that died has left of a batch is written over by the replay, whatever that has changed.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterable, Mapping
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final

from redis import Redis

from holdfast.pipelines.due import Last, Memory, Work
from holdfast.pipelines.fence import TAKE_ATTEMPTS, FencedError, epoch_after
from holdfast.pipelines.planned import Batch
from holdfast.pipelines.sinks.key_value.address import checked, connect, refuse_unsafe
from holdfast.pipelines.sinks.key_value.scripts import REMEMBER, TAKE, Told, run_one
from holdfast.pipelines.sinks.key_value.task import SCHEMA, WriteTask
from holdfast.pipelines.sinks.key_value.values import query_name, table_name
from holdfast.pipelines.sinks.key_value.winners import Winners, chosen, plain
from holdfast.pipelines.sinks.merging import check_order
from holdfast.pipelines.sinks.remembered import as_json, from_json, moved, told_gaps
from holdfast.pipelines.sinks.store import Staged, StagingError
from holdfast.pipelines.sinks.target import (
    Mode,
    Target,
    TargetError,
    columns_of,
    ordering,
    table_of,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

_WHOLE: Final = frozenset({"tinyint", "smallint", "int", "bigint"})


class RedisStore:
    """The keys of one table, on a server that every executor has to reach."""

    def __init__(self, url: str, query: str, target: Target) -> None:
        if target.mode is not Mode.UPSERT:
            raise TargetError('mode: Redis has one value a key; use mode="upsert" with keys')
        self._url = checked(url)
        self._query = query
        self._target = target
        self._ordering: tuple[str, ...] = ()
        self._epoch = 0
        self._client: Redis | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_epoch": 0, "_client": None}

    @property
    def query(self) -> str:
        return self._query

    @property
    def folder(self) -> None:
        """A server has the files."""

    @property
    def client(self) -> Redis:
        assert self._client is not None, "open() comes first"
        return self._client

    @property
    def _memory_name(self) -> bytes:
        return query_name(self._query)

    # -- who owns the query ----------------------------------------------------------------------

    def open(self, schema: StructType, master: str) -> None:
        del master  # every process of a cluster can reach a server
        described = _described(schema, self._target, self._query)
        self._ordering = ordering(schema)
        # A wrong address or certificate is told at once, and not asked again for half a minute.
        with closing(connect(self._url, retries=0)) as client:
            refuse_unsafe(client)
        self._client = connect(self._url)
        self._epoch = self._take(described)

    def _take(self, described: Mapping[str, Any]) -> int:
        """Raise the epoch, whoever had it; what is refused leaves everybody as they were."""
        owner = f"{socket.gethostname()}:{os.getpid()}"
        table = table_name(self._target.table)
        self._refuse_without_rows()
        for _ in range(TAKE_ATTEMPTS):
            seen = self.client.get(table) or b""
            assert isinstance(seen, bytes)
            after = json.dumps(_fitted(self._target, json.loads(seen or b"null"), described))
            keys = (self._memory_name, table)
            epoch = run_one(self.client, TAKE, keys, owner, seen, after, epoch_after(0))
            if epoch:
                return int(epoch)
        raise FencedError(f"query {self._query!r}: {TAKE_ATTEMPTS} others took it at the same time")

    def _refuse_without_rows(self) -> None:
        """TargetError: the query would go on where it was, in a table without its rows before."""
        told, table = self._told(), self._target.table
        if not int(told.get("commit", 0)):
            return
        anew = "give the query another name and a fresh checkpoint, and all of its rows come again"
        if told.get("table", table) != table:
            raise TargetError(
                f"table: query {self._query!r} has written to {told['table']!r}, and would go on "
                f"in {table!r} without those rows. Name the former table; or {anew}"
            )
        if self.client.get(table_name(table)) is None:
            raise TargetError(
                f"table {table} is not there, and query {self._query!r} has written to it, or to "
                f"another one: it would go on without those rows. Name that one; or {anew}"
            )

    def _fenced(self) -> FencedError:
        told = self._told()
        now = "its entry is gone"
        if "epoch" in told:
            now = f"epoch {told['epoch']} belongs to {told['owner']}"
        return FencedError(
            f"query {self._query!r} was taken over: this driver has epoch {self._epoch}, {now}. "
            "It writes nothing any more"
        )

    # -- what is remembered ----------------------------------------------------------------------

    def memory(self) -> Memory:
        refuse_unsafe(self.client)
        return self._remembered()[0]

    def _told(self) -> dict[str, str]:
        found: Any = self.client.hgetall(self._memory_name)
        return {name.decode(): value.decode() for name, value in found.items()}

    def _remembered(self) -> tuple[Memory, int]:
        """Return how far the table is, and how many commits it has had."""
        told = self._told()
        if told.get("epoch") != str(self._epoch):
            raise self._fenced()
        commits = int(told["commit"])
        if not commits:
            return Memory(), 0
        last = Last(
            told["checkpoint"],
            int(told["batch"]),
            told["plan"],
            told["stateful"] == "1",
            told.get("by_place") == "1",
        )
        return Memory(from_json(json.loads(told["offsets"])), last), commits

    # -- a batch ---------------------------------------------------------------------------------

    def stage(self, frame: DataFrame, batch: Batch) -> Staged:
        """Find each key's winner. Nothing is written yet: a batch may still be refused."""
        check_order(self._target, self._ordering, stateful=batch.stateful)
        return chosen(frame, self._target, stateful=batch.stateful)

    def task(self, commit: int, **more: Any) -> WriteTask:
        """Return what each task does with the winners of the batch that follows on a commit."""
        return WriteTask(
            self._url,
            query=self._query,
            epoch=self._epoch,
            commit=commit,
            target=self._target,
            **more,
        )

    def commit(self, batch: Batch, work: Work, staged: Staged | None) -> None:
        memory, commit = self._remembered()
        offsets = moved(self._query, memory.offsets, work)
        if staged is not None and staged.count:
            assert isinstance(staged, Winners)
            done = plain(staged).mapInArrow(self.task(commit), SCHEMA).collect()
            self.check_written(staged.keys, (row.asDict() for row in done))
        fields = {
            "plan": batch.plan,
            "gaps": json.dumps(told_gaps(batch, work)),
            "checkpoint": batch.checkpoint,
            "batch": batch.number,
            "stateful": int(batch.stateful),
            "by_place": 1,
            "table": self._target.table,
            "offsets": json.dumps(as_json(offsets)),
        }
        pairs = [each for pair in fields.items() for each in pair]
        told = run_one(
            self.client,
            REMEMBER,
            [self._memory_name, self._memory_name + b":gaps"],
            str(self._epoch),
            str(commit),
            *pairs,
        )
        self._refuse(told.decode(), None)

    def check_written(self, keys: int, done: Iterable[Mapping[str, Any]]) -> None:
        """FencedError, StagingError: the tasks that Spark chose have not dealt with all keys."""
        rows = 0
        for each in done:
            if each["refused"] is not None:
                self._refuse(each["refused"], bytes(each["key"]))
            rows += each["rows"]
        if rows != keys:
            raise StagingError(
                f"{keys} keys were to be written, and {rows} were: what Spark had kept of the "
                "batch is not what it computes now. The batch comes again at the next start"
            )

    def _refuse(self, told: str, key: bytes | None) -> None:
        if told == Told.FENCED:
            raise self._fenced()
        if told == Told.OVER:
            raise FencedError(
                f"query {self._query!r}: the number of its commit was changed while a batch was "
                "written; somebody else writes under its name"
            )
        if told == Told.AHEAD:
            raise StagingError(
                f"{key!r}, or its marker, was written by a commit that query {self._query!r} has "
                "not come to: what it remembers was lost, or somebody else writes the table. "
                "Restore the server's data as a whole, or empty the table, its markers and "
                f"{self._memory_name!r}, and begin with a fresh checkpoint"
            )

    def close(self) -> None:
        if self._client is not None:
            self._client.close()


# -- what a table is ---------------------------------------------------------------------------


def _described(schema: StructType, target: Target, query: str) -> dict[str, Any]:
    """Return what a table is for a query. TargetError: the query's columns are no table's."""
    table_of(target, columns_of(schema))
    kinds = {field.name: field.dataType.simpleString() for field in schema.fields}
    if target.deleted is not None and kinds.pop(target.deleted, None) != "boolean":
        raise TargetError(f"deleted: {target.deleted!r} is no column of booleans of the query")
    for name in filter(None, (*target.keys, target.version)):
        if "collate" in kinds[name]:
            raise TargetError(
                f"column {name!r} is {kinds[name]}, and Redis compares bytes: two texts that are "
                f'equal for Spark would be two here; cast it (collate({name}, "UTF8_BINARY"))'
            )
    return {
        "query": query,
        "keys": list(target.keys),
        "version": target.version,
        "columns": {name: "integer" if k in _WHOLE else k for name, k in kinds.items()},
    }


def _fitted(
    target: Target, before: Mapping[str, Any] | None, now: Mapping[str, Any]
) -> dict[str, Any]:
    """Return what a table becomes when a query goes on with it. TargetError: it must not."""
    if before is None:
        return dict(now)
    table = target.table
    if before["query"] != now["query"]:
        raise TargetError(
            f"table {table} is written by query {before['query']!r}: two of them would not know "
            "of each other's order. Give this one another table, or empty that one"
        )
    if before["keys"] != now["keys"]:
        raise TargetError(
            f"table {table} has the keys {before['keys']}, and the query has {now['keys']}: its "
            "rows would lie beside those that are there. Write to another table"
        )
    if now["version"] not in {None, before["version"]} and before["version"] is not None:
        raise TargetError(
            f"table {table}: its rows have the version {before['version']!r}, which can't be "
            f"compared with {now['version']!r}; write to another table"
        )
    for name, kind in now["columns"].items():
        there = before["columns"].get(name)
        if there is None and not target.adds_columns:
            raise TargetError(
                f"table {table} has no column {name!r}, and the query has; leave it out of the "
                'query, or let it be added (schema_changes="add")'
            )
        if there not in {None, kind}:
            raise TargetError(
                f"table {table}: its column {name!r} is {there}, and the query's is {kind}: who "
                "reads the table would not know which"
            )
    return {
        **now,
        "version": now["version"] or before["version"],
        "columns": {**before["columns"], **now["columns"]},
    }
