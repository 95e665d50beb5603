"""A writer of Redis batches without Spark, and deaths of it at any script that it sends.

    python -m tests.pipelines.redis_writer URL send|answer VERSION

runs it again and again, each time in a process of its own, which ends before its n-th script is
sent, or when that is sent and unanswered. Each time another writer goes on, and the table has to be
what the log makes of it. Says how often, until a writer came to its end.
"""

from __future__ import annotations

import os
import pickle
import random
import sys
from collections.abc import Iterable, Sequence
from contextlib import closing
from itertools import count, pairwise
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql import types as spark
from redis import Redis
from redis.connection import AbstractConnection

from holdfast.pipelines.due import Rows, decide
from holdfast.pipelines.offsets import Partition
from holdfast.pipelines.planned import Batch, Planned, Reader
from holdfast.pipelines.sinks.key_value.address import connect
from holdfast.pipelines.sinks.key_value.store import RedisStore
from holdfast.pipelines.sinks.key_value.task import WriteTask
from holdfast.pipelines.sinks.key_value.winners import Winners
from holdfast.pipelines.sinks.target import Mode, Target

SCHEMA = spark.StructType(
    [
        spark.StructField("id", spark.LongType()),
        spark.StructField("text", spark.StringType()),
        spark.StructField("revision", spark.LongType()),
        spark.StructField("gone", spark.BooleanType()),
        *(spark.StructField(name, spark.LongType()) for name in ("partition", "offset")),
        spark.StructField("topic", spark.StringType()),
        spark.StructField("timestamp", spark.LongType()),
    ]
)
ARROW = pa.schema(
    [
        ("id", pa.int64()),
        ("text", pa.string()),
        ("revision", pa.int64()),
        ("gone", pa.bool_()),
        ("partition", pa.int64()),
        ("offset", pa.int64()),
        ("topic", pa.string()),
        ("timestamp", pa.int64()),
    ]
)
STOPPED = 9


class Row(NamedTuple):
    """A row of the made-up log."""

    id: int
    text: str | None
    revision: int = 0
    gone: bool | None = None
    partition: int = 0
    offset: int = 0
    topic: str = "t"
    timestamp: int = 0


def target(**more: Any) -> Target:
    return Target(**{"table": "kept", "mode": Mode.UPSERT, "keys": ("id",), **more})


def opened(url: str, query: str = "q", schema: spark.StructType = SCHEMA, **of: Any) -> RedisStore:
    store = RedisStore(url, query, target(**of))
    store.open(schema, "spark://elsewhere:7077")
    return store


def records(rows: Iterable[Row]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([row._asdict() for row in rows], schema=ARROW)


def batch(number: int, ends: dict[int, tuple[int, int]], checkpoint: str = "c") -> Batch:
    """Return a batch of what lies between two offsets of each partition."""
    return Batch(
        number=number,
        checkpoint=checkpoint,
        plan=f"{checkpoint} {number} {ends}",
        stateful=False,
        ranges=tuple(
            Planned(Reader(Partition("t", partition)), begin, end, "id")
            for partition, (begin, end) in sorted(ends.items())
        ),
    )


def ran(task: WriteTask, rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Run a task as a worker does, from what was pickled; return what Spark collects of it."""
    sent: WriteTask = pickle.loads(pickle.dumps(task))
    return [row for result in sent(iter([records(rows)])) for row in result.to_pylist()]


def winner(rows: Sequence[Row], *, versioned: bool) -> Row:
    """Of one key's rows in a batch the one that the rules name, by sorting."""
    latest: dict[int, Row] = {}
    for row in sorted(rows, key=lambda row: (row.revision if versioned else 0, row.offset)):
        latest[row.partition] = row
    return max(
        latest.values(),
        key=lambda row: (row.revision if versioned else 0, row.timestamp, row.partition),
    )


def winners(rows: Iterable[Row], *, versioned: bool) -> list[Row]:
    by_key: dict[int, list[Row]] = {}
    for row in rows:
        by_key.setdefault(row.id, []).append(row)
    return [winner(of_key, versioned=versioned) for of_key in by_key.values()]


class Kept:
    """Rows as Spark keeps them, each in a partition of its own, and so in a task of its own."""

    def __init__(self, rows: Sequence[Row], task: WriteTask | None = None) -> None:
        self._rows, self._task = rows, task

    def drop(self, *_names: str) -> Kept:
        return self

    def mapInArrow(self, task: WriteTask, _schema: str) -> Kept:  # noqa: N802 - Spark's name
        return Kept(self._rows, task)

    def collect(self) -> list[spark.Row]:
        assert self._task is not None
        return [spark.Row(**told) for row in self._rows for told in ran(self._task, [row])]


def write(store: RedisStore, what: Batch, log: Sequence[Row], *, versioned: bool = False) -> None:
    """Do with a batch what the sink does with the rows of its log that are due."""
    work = decide(what, store.memory(), (), store.query)
    if work.replay:
        return
    if work.rows is Rows.NONE:
        store.commit(what, work, None)
        return
    due = [
        row
        for row in log
        for move in work.moves
        if row.partition == move.reader.partition.number and move.begin <= row.offset < move.end
    ]
    found = winners(due, versioned=versioned)
    store.commit(what, work, Winners(Kept(found), len(found), len(due)))


def table(client: Redis, name: str = "kept") -> dict[str, dict[str, str]]:
    """Read what anybody reads: each row's fields by its key, and nothing of ours."""
    found = {}
    for key in client.scan_iter(f"{name}:*"):
        fields: Any = client.hgetall(key)
        told = {field.decode(): value.decode() for field, value in fields.items()}
        del told["holdfast_version"]
        found[key.decode()] = told
    return found


def as_stored(row: Row) -> dict[str, str]:
    fields = {"text": row.text, "revision": row.revision, "partition": row.partition}
    fields |= {"offset": row.offset, "topic": row.topic, "timestamp": row.timestamp}
    return {name: str(value) for name, value in fields.items() if value is not None}


def made_up_log(rows: int, seed: int = 0) -> list[Row]:
    """Return the log of one partition, with a few keys, some of them deleted now and then."""
    draw = random.Random(seed)
    return [
        Row(
            id=draw.randrange(3),
            text=draw.choice(["x", "", None]),
            revision=draw.randrange(4),
            gone=draw.choice([True, False, None]),
            offset=offset,
        )
        for offset in range(rows)
    ]


LOG_ROWS = 9
CUTS = {"c": (0, 3, 6, 9), "anew": (0, 2, 7, 9)}


def write_all(url: str, checkpoint: str, **of: Any) -> None:
    """Open a store, and write the log in the batches of a checkpoint; the first one is empty."""
    store = opened(url, deleted="gone", **of)
    cuts = (0, *CUTS[checkpoint])
    for number, (begin, end) in enumerate(pairwise(cuts)):
        what = batch(number, {0: (begin, end)}, checkpoint)
        write(store, what, made_up_log(LOG_ROWS), versioned="version" in of)
    store.close()


def die_at(place: str, number: int) -> None:
    """End this process before its n-th script is sent, or when that is sent and unanswered.

    All that changes anything is a script. Who dies before another command leaves what somebody
    leaves who dies before the next script.
    """
    as_it_is: Any = AbstractConnection.send_packed_command
    steps = [0]

    def counted(connection: Any, command: Any, *more: Any, **named: Any) -> None:
        steps[0] += b"EVALSHA" in b"".join(command)
        if steps[0] == number and place == "send":
            os._exit(STOPPED)
        as_it_is(connection, command, *more, **named)
        if steps[0] == number:
            os._exit(STOPPED)

    patched: Any = AbstractConnection
    patched.send_packed_command = counted


def left_by(log: Sequence[Row], *, versioned: bool) -> tuple[dict[str, dict[str, str]], set[str]]:
    """Return the table that one partition makes, however it is cut, and what is deleted."""
    last: dict[int, Row] = {}
    for row in sorted(log, key=lambda row: (row.revision if versioned else 0, row.offset)):
        last[row.id] = row
    rows = {f"kept:{key}": as_stored(row) for key, row in last.items() if not row.gone}
    return rows, {f"holdfast_deleted:kept:{key}" for key, row in last.items() if row.gone}


def markers(client: Redis) -> set[str]:
    return {key.decode() for key in client.scan_iter("holdfast_deleted:*")}


def main(url: str, place: str, version: str) -> None:
    """Let a writer die at each place in turn, and another one go on after each."""
    of = {} if version == "none" else {"version": version}
    expected = left_by(made_up_log(LOG_ROWS), versioned=bool(of))
    with closing(connect(url)) as client:
        for number in count(1):
            client.flushall()
            child = os.fork()
            if not child:
                die_at(place, number)
                write_all(url, "c", **of)
                os._exit(0)
            _, status = os.waitpid(child, 0)
            code = os.waitstatus_to_exitcode(status)
            assert code in {0, STOPPED}, f"{place} {number}: exit status {code}"
            # With its checkpoint or without: then batches are cut elsewhere.
            write_all(url, "anew" if number % 2 else "c", **of)
            found = (table(client), markers(client))
            assert found == expected, f"{place} {number}: {found} is not {expected}"
            if code == 0:
                sys.stdout.write(f"{number}\n")
                return


if __name__ == "__main__":
    main(*sys.argv[1:])
