"""Goal: a table in Redis has of each key what the rules name, whoever dies, comes late or has been
replaced; and a server that may forget what it acknowledged is refused.

Method: Redis itself, tasks called as Spark's workers call them; a writer that dies at each script
that it sends, a server that is killed, and lives from chance held against plain Python.
"""

from __future__ import annotations

import json
import pickle
import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import trustme
from pyspark.sql import types as spark
from redis.exceptions import OutOfMemoryError, ResponseError
from tests.pipelines.redis_writer import (
    SCHEMA,
    Row,
    as_stored,
    batch,
    markers,
    opened,
    ran,
    records,
    table,
    winners,
    write,
)

from holdfast.cluster.ports import free_ports
from holdfast.lab.soak.redis_server import SAFE, RedisServer
from holdfast.pipelines.due import Rows, Work, decide
from holdfast.pipelines.fence import FencedError
from holdfast.pipelines.sinks.key_value.store import RedisStore
from holdfast.pipelines.sinks.key_value.values import query_name
from holdfast.pipelines.sinks.store import StagingError
from holdfast.pipelines.sinks.target import Mode, Target, TargetError

if TYPE_CHECKING:
    from redis import Redis

pytestmark = pytest.mark.process

ROOT = Path(__file__).parent.parent.parent
EMPTY = Work(rows=Rows.ALL)


@pytest.fixture
def url(redis_server: RedisServer, redis: Redis) -> str:
    """Return the URL of an empty server."""
    redis.ping()
    return redis_server.url


def put(store: RedisStore, *rows: Row) -> list[dict[str, Any]]:
    """Write rows, each of another key, for the batch that is under way."""
    return ran(store.task(store._remembered()[1]), rows)


def texts(redis: Redis) -> dict[str, str]:
    return {key: fields["text"] for key, fields in table(redis).items()}


# -- a row ---------------------------------------------------------------------------------------


def test_a_row_is_a_hash_of_what_is_no_key(url: str, redis: Redis) -> None:
    store = opened(url, deleted="gone")
    (done,) = put(store, Row(1, "x", offset=7), Row(2, None))
    assert done == {"rows": 2, "refused": None, "key": None}
    assert table(redis) == {
        "kept:1": as_stored(Row(1, "x", offset=7)),
        "kept:2": as_stored(Row(2, None)),
    }
    assert ran(store.task(0), []) == [], "a task without rows has nothing to tell"


def test_what_the_log_lacked_is_listed_once(url: str, redis: Redis) -> None:
    """Beside the query's hash, in the step that remembers the batch."""
    store = opened(url)
    write(store, batch(0, {0: (0, 0)}), [])
    (planned,) = batch(1, {0: (0, 4)}).ranges
    lacking = replace(batch(1, {0: (0, 4)}), ranges=(replace(planned, gaps=((1, 3),)),))
    log = [Row(1, "x", offset=0), Row(2, "y", offset=3)]
    write(store, lacking, log)
    write(opened(url), lacking, log)  # comes again, and is there already
    write(opened(url), batch(2, {0: (4, 4)}), log)
    place = {"topic": "t", "partition": 0, "source": 0, "topic_id": "id"}
    told = [json.loads(text) for text in redis.lrange(query_name("q") + b":gaps", 0, -1)]
    assert told == [[{**place, "first": 1, "next": 3}]]


def test_a_row_replaces_all_that_the_query_has_and_no_more(url: str, redis: Redis) -> None:
    """A column that is null now is gone; one that the query does not have stays."""
    store = opened(url)
    put(store, Row(1, "x"))
    redis.hset("kept:1", "other", "stays")
    put(store, Row(1, None))
    assert table(redis)["kept:1"].get("text") is None
    assert table(redis)["kept:1"]["other"] == "stays"


def test_the_higher_version_wins_whatever_batch_it_came_in(url: str, redis: Redis) -> None:
    store = opened(url, version="revision")
    for number, revision in enumerate([5, 4, 5, -1, 6, 2**62]):
        put(store, Row(1, f"{number} {revision}", revision))
        store.commit(batch(number, {}), EMPTY, None)
    assert texts(redis) == {"kept:1": f"5 {2**62}"}
    put(store, Row(1, "one less", 2**62 - 1))
    assert texts(redis) == {"kept:1": f"5 {2**62}"}
    put(store, Row(1, "as high, and later", 2**62))
    assert texts(redis) == {"kept:1": "as high, and later"}


def test_a_row_that_has_no_version_is_older_than_one_with(url: str, redis: Redis) -> None:
    put(opened(url), Row(1, "without", 9))
    store = opened(url, version="revision")
    put(store, Row(1, "with", -5))
    assert texts(redis) == {"kept:1": "with"}


def test_what_is_deleted_does_not_come_back_with_an_older_row(url: str, redis: Redis) -> None:
    store = opened(url, version="revision", deleted="gone")
    put(store, Row(1, "x", 3), Row(2, "x", 3))
    put(store, Row(1, None, 5, gone=True), Row(3, None, 5, gone=True))
    put(store, Row(1, "older", 4), Row(3, "older", 4), Row(2, None, 2, gone=True))
    assert texts(redis) == {"kept:2": "x"}
    assert markers(redis) == {"holdfast_deleted:kept:1", "holdfast_deleted:kept:3"}
    put(store, Row(1, "newer", 6))
    assert texts(redis) == {"kept:1": "newer", "kept:2": "x"}
    assert markers(redis) == {"holdfast_deleted:kept:3"}


def test_a_full_server_changes_nothing_of_a_row(url: str, redis: Redis) -> None:
    store = opened(url, deleted="gone")
    put(store, Row(1, "x"), Row(2, "x"))
    redis.config_set("maxmemory", 1)
    try:
        for row in (Row(1, None), Row(2, None, gone=True)):
            with pytest.raises(OutOfMemoryError):
                put(store, row)
    finally:
        redis.config_set("maxmemory", 0)
    assert texts(redis) == {"kept:1": "x", "kept:2": "x"}
    assert markers(redis) == set()


def test_what_is_no_row_of_ours_is_left_alone(url: str, redis: Redis) -> None:
    redis.set("kept:1", "a text")
    with pytest.raises(ResponseError, match="WRONGTYPE"):
        put(opened(url), Row(1, "x"))
    assert redis.get("kept:1") == b"a text"


def test_scripts_that_the_server_has_forgotten_are_told_again(url: str, redis: Redis) -> None:
    store = opened(url)
    put(store, Row(1, "x"))
    redis.script_flush()
    put(store, Row(1, "y"), Row(2, "y"))
    redis.script_flush()
    store.commit(batch(0, {}), EMPTY, None)
    assert texts(redis) == {"kept:1": "y", "kept:2": "y"}


@pytest.mark.slow
def test_many_rows_are_all_sent(url: str, redis: Redis) -> None:
    """Larger than what is sent at once, by their number and by their size."""
    store = opened(url)
    rows = [Row(number, "x" * 8_000) for number in range(1_300)]
    (done,) = put(store, *rows)
    assert done["rows"] == len(rows) == len(table(redis))


# -- who may write ---------------------------------------------------------------------------------


def test_a_task_that_comes_after_its_batch_writes_nothing(url: str, redis: Redis) -> None:
    store = opened(url)
    late = store.task(0)
    ran(late, [Row(1, "x")])
    store.commit(batch(0, {}), EMPTY, None)
    (done,) = ran(late, [Row(1, "late"), Row(2, "late")])
    assert (done["rows"], done["refused"], done["key"]) == (0, "over", b"kept:1")
    assert texts(redis) == {"kept:1": "x"}


def test_a_driver_that_was_replaced_writes_nothing_nor_do_its_tasks(url: str, redis: Redis) -> None:
    before = opened(url)
    late = before.task(0)
    after = opened(url)
    (done,) = ran(late, [Row(1, "late")])
    assert done["refused"] == "fenced"
    with pytest.raises(FencedError, match=r"has epoch \d+, epoch \d+ belongs to"):
        before.check_written(1, [done])
    with pytest.raises(FencedError):
        before.memory()
    with pytest.raises(FencedError):
        before.commit(batch(0, {}), EMPTY, None)
    assert table(redis) == {}
    after.commit(batch(0, {}), EMPTY, None)
    assert after.memory().last is not None


def test_an_owner_that_the_server_has_forgotten_writes_nothing(url: str, redis: Redis) -> None:
    """Goal: who took a query over before the server came back from a copy is no owner of it."""
    opened(url)
    copy: Any = redis.hgetall(query_name("q"))
    before = opened(url)
    late = before.task(0)
    redis.hset(query_name("q"), mapping=copy)
    opened(url)
    (done,) = ran(late, [Row(1, "late")])
    assert done["refused"] == "fenced"
    with pytest.raises(FencedError):
        before.commit(batch(0, {}), EMPTY, None)
    assert table(redis) == {}


def test_a_driver_that_is_replaced_in_the_last_moment_remembers_nothing(url: str) -> None:
    """It has read that it is the owner, and another one takes over before its last script."""
    before = opened(url)
    before._remembered = lambda: (opened(url).memory(), 0)  # type: ignore[method-assign]
    with pytest.raises(FencedError):
        before.commit(batch(0, {}), EMPTY, None)
    assert opened(url).memory().last is None


def test_a_commit_that_was_heard_twice_is_one(url: str, redis: Redis) -> None:
    """An answer is lost, and the client asks again."""
    store = opened(url)
    memory = store._remembered()
    for _ in range(2):
        store._remembered = lambda: memory  # type: ignore[method-assign]
        store.commit(batch(0, {0: (0, 0)}), EMPTY, None)
    assert redis.hget("holdfast_query:q", "commit") == b"1"
    with pytest.raises(FencedError, match="somebody else writes under its name"):
        store.commit(batch(1, {0: (0, 2)}), EMPTY, None)


def test_keys_that_were_not_dealt_with_end_the_batch(url: str) -> None:
    store = opened(url)
    with pytest.raises(StagingError, match="3 keys were to be written, and 2 were"):
        store.check_written(3, put(store, Row(1, "x"), Row(2, "x")))


def test_a_query_goes_on_in_the_table_that_has_its_rows(url: str, redis: Redis) -> None:
    """Seen to fail: in another one it went on where it was, without the rows before."""
    opened(url, table="other")
    store = opened(url)
    store.commit(batch(0, {}), EMPTY, None)
    with pytest.raises(TargetError, match=r"has written to 'kept', .* in 'other' without"):
        opened(url, table="other")
    store.commit(batch(1, {}), EMPTY, None)
    redis.hdel("holdfast_query:q", "table")
    with pytest.raises(TargetError, match=r"table third is not there, .* or to another one"):
        opened(url, table="third")
    opened(url)


def test_a_memory_that_was_lost_is_noticed(url: str, redis: Redis) -> None:
    """Else all rows would be as if they came late, for as many batches as there had been."""
    store = opened(url, deleted="gone")
    store.commit(batch(0, {}), EMPTY, None)
    put(store, Row(1, "x"), Row(2, None, gone=True))
    redis.delete("holdfast_query:q")
    again = opened(url, deleted="gone")
    for row in (Row(1, "y"), Row(2, "y")):
        (done,) = put(again, row)
        with pytest.raises(StagingError, match=f"kept:{row.id}.*what it remembers was lost"):
            again.check_written(1, [done])
    assert texts(redis) == {"kept:1": "x"}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"query": "other"}, "is written by query 'q'"),
        ({"keys": ("id", "partition")}, r"has the keys \['id'\], and the query has"),
        ({"version": "offset"}, "its rows have the version 'revision'"),
        ({"schema": spark.StructType().add("id", "long").add("new", "long")}, "no column 'new'"),
        ({"schema": spark.StructType().add("id", "long").add("text", "date")}, "is string, and"),
        ({"deleted": "text"}, "is no column of booleans"),
        ({"keys": ("nowhere",)}, "'nowhere' is no column"),
        ({"schema": spark.StructType().add("id", spark.StringType("UTF8_LCASE"))}, "collate"),
        (
            {"schema": spark.StructType().add("id", spark.ArrayType(spark.LongType()))},
            "no counterpart",
        ),
    ],
)
def test_who_is_refused_replaces_nobody(url: str, change: dict[str, Any], said: str) -> None:
    store = opened(url, version="revision")
    given = change if "schema" in change else {"version": "revision", **change}
    with pytest.raises(TargetError, match=said):
        opened(url, **given)
    store.commit(batch(0, {}), EMPTY, None)


def test_a_table_may_get_more_columns_and_wider_numbers(url: str) -> None:
    opened(url, schema=spark.StructType().add("id", "integer").add("n", "short"))
    wider = spark.StructType().add("id", "long").add("n", "integer").add("new", "string")
    opened(url, schema=wider, adds_columns=True)
    opened(url, schema=spark.StructType().add("id", "long"))
    with pytest.raises(TargetError, match="'new' is string"):
        opened(url, schema=spark.StructType().add("id", "long").add("new", "long"))


def test_an_append_is_refused() -> None:
    with pytest.raises(TargetError, match="one value a key"):
        RedisStore("redis://host", "q", Target(table="kept", mode=Mode.APPEND))


# -- which server ----------------------------------------------------------------------------------


@contextmanager
def setting(redis: Redis, name: str, value: str) -> Iterator[None]:
    before: Any = redis.config_get(name)[name]
    redis.config_set(name, value)
    try:
        yield
    finally:
        redis.config_set(name, before)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("appendonly", "no"),
        ("appendfsync", "everysec"),
        ("no-appendfsync-on-rewrite", "yes"),
        ("maxmemory-policy", "allkeys-lru"),
    ],
)
def test_a_server_that_may_forget_is_refused(url: str, redis: Redis, name: str, value: str) -> None:
    store = opened(url)
    with setting(redis, name, value):
        said = f"says {name} {value}, and exactly once needs {name}"
        with pytest.raises(TargetError, match=said):
            opened(url)
        with pytest.raises(TargetError, match=said):
            store.memory()
    store.memory()


# What docs/how-to/write-a-table.md says that a user needs.
KEYS = ["kept:*", "holdfast_*"]
RIGHTS = (
    "+select +info +config|get +script|load +evalsha +get +set +del +hget +hmget +hgetall +hset "
    "+hsetnx +hdel +hincrby +rpush +ltrim"
)


def test_a_server_that_does_not_tell_is_refused_and_a_password_is_a_reference(
    url: str, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REDIS_PASSWORD", "swordfish")
    ours = url.replace("redis://", "redis://ann:env:REDIS_PASSWORD@")
    rights = RIGHTS.split()
    redis.acl_setuser("ann", enabled=True, passwords=["+swordfish"], keys=KEYS, commands=rights)
    try:
        store = opened(ours, deleted="gone")
        assert put(store, Row(1, "x"), Row(2, None, gone=True))[0]["rows"] == 2
        store.commit(batch(0, {}), EMPTY, None)
        (planned,) = batch(1, {0: (4, 4)}).ranges
        lacking = replace(batch(1, {}), ranges=(replace(planned, gaps=((1, 3),)),))
        store.commit(lacking, EMPTY, None)
        sent = pickle.dumps([store, store.task(0)])
        assert b"swordfish" not in sent
        redis.acl_setuser("ann", enabled=True, commands=["-config|get"])
        with pytest.raises(TargetError, match=r"does not answer CONFIG GET .*ACL SETUSER"):
            opened(ours, deleted="gone")
    finally:
        redis.acl_deluser("ann")


def test_a_copy_is_refused(url: str, redis: Redis) -> None:
    redis.replicaof("127.0.0.1", "1")
    try:
        with pytest.raises(TargetError, match="this Redis is a slave"):
            opened(url)
    finally:
        redis.replicaof("NO", "ONE")


@pytest.mark.slow
def test_a_server_is_reached_by_tls_and_by_a_socket(
    redis_server: RedisServer, tmp_path: Path
) -> None:
    del redis_server  # skips where there is none
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca"))
    certificate = authority.issue_cert("127.0.0.1")
    certificate.private_key_pem.write_to_path(str(tmp_path / "key"))
    certificate.cert_chain_pems[0].write_to_path(str(tmp_path / "cert"))
    (port,) = free_ports(1)
    settings = {
        "tls-port": port, "tls-cert-file": "cert", "tls-key-file": "key",
        "tls-ca-cert-file": "ca", "tls-auth-clients": "no", "unixsocket": "s",
    }  # fmt: skip
    words = [word for name, value in settings.items() for word in (f"--{name}", str(value))]
    server = RedisServer(tmp_path, *SAFE, *words)
    urls = (
        f"rediss://127.0.0.1:{port}/0?ssl_ca_certs={tmp_path}/ca",
        f"unix://{tmp_path}/s?db=0",
    )
    try:
        for url in urls:
            assert put(opened(url), Row(1, "x"))[0]["rows"] == 1
        with pytest.raises(Exception, match="certificate verify failed"):
            opened(urls[0].partition("?")[0])
    finally:
        server.kill()


def test_a_cluster_is_refused(redis_server: RedisServer, tmp_path: Path) -> None:
    del redis_server  # skips where there is none
    server = RedisServer(tmp_path, "--cluster-enabled", "yes")
    try:
        with pytest.raises(TargetError, match="runs as cluster"):
            opened(server.url)
    finally:
        server.kill()


# -- deaths ----------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("version", ["none", "revision"])
@pytest.mark.parametrize("place", ["send", "answer"])
def test_a_writer_that_dies_at_any_script_leaves_what_the_next_one_makes_right(
    url: str, place: str, version: str
) -> None:
    """Every second one has lost its checkpoint, and cuts batches elsewhere."""
    program = [sys.executable, "-m", "tests.pipelines.redis_writer", url, place, version]
    done = subprocess.run(program, check=False, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 8, "it came to its end too soon to have died anywhere"


@pytest.mark.slow
def test_nothing_that_a_killed_server_has_acknowledged_is_lost(
    redis_server: RedisServer, tmp_path: Path
) -> None:
    """Killed after each answer in turn; the writer goes on with the server that comes back."""
    del redis_server  # skips where there is none
    server = RedisServer(tmp_path)
    try:
        store = opened(server.url, version="revision", deleted="gone")
        expected: dict[str, str] = {}
        for number in range(12):
            row = Row(number % 5, f"{number}", number, gone=number % 4 == 3)
            assert put(store, row)[0]["rows"] == 1
            expected[f"kept:{row.id}"] = f"{number}"
            if row.gone:
                del expected[f"kept:{row.id}"]
            if number % 3 == 2:
                store.commit(batch(number // 3, {0: (0, number)}), EMPTY, None)
            server.kill()
            server.start()
            with closing(server.client()) as client:
                assert texts(client) == expected
        assert store._remembered()[1] == 4
        store.close()
    finally:
        server.kill()


@pytest.mark.slow
def test_a_server_that_is_killed_while_rows_are_written_is_waited_for(
    redis_server: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It dies before a group of rows is sent, or at some moment while one is; and once more when
    all are written.
    """
    del redis_server  # skips where there is none
    server = RedisServer(tmp_path)

    def die() -> None:
        server.kill()
        server.start()

    try:
        store = opened(server.url)
        task = store.task(0, calls_max=200)
        groups = task._grouped

        def killing(*given: Any) -> Iterator[Any]:
            for number, group in enumerate(groups(*given)):
                if number % 2:
                    die()
                    yield group
                    continue
                beside = threading.Thread(target=die)
                beside.start()
                yield group
                beside.join()

        monkeypatch.setattr(task, "_grouped", killing)
        rows = [Row(number, f"{number}") for number in range(4_000)]
        (result,) = task(iter([records(rows)]))
        assert result.to_pylist() == [{"rows": len(rows), "refused": None, "key": None}]
        store.commit(batch(0, {}), EMPTY, None)
        die()
        assert store._remembered()[1] == 1
        with closing(server.client()) as client:
            assert texts(client) == {f"kept:{row.id}": row.text for row in rows}
        store.close()
    finally:
        server.kill()


# -- lives from chance -----------------------------------------------------------------------------


class Life:
    """Drivers of one query, one after the other, on a log of two partitions that grows."""

    def __init__(self, url: str, draw: random.Random, **of: Any) -> None:
        self.url, self.draw, self.of = url, draw, of
        self.versioned = "version" in of
        self.log: list[Row] = []
        self.ends = {0: 0, 1: 0}
        self.at = {0: 0, 1: 0}  # where the table is
        self.last: dict[int, Row] = {}  # of each key, as the rules say
        self.late: list[tuple[Any, list[Row]]] = []  # tasks of the past, with their rows
        self.born = 0
        self.begin()

    def begin(self) -> None:
        self.store = opened(self.url, **self.of)
        self.born += 1
        self.number = 0
        self.run_late()

    def grow(self) -> None:
        for partition in self.ends:
            for _ in range(self.draw.randrange(5)):
                offset = self.ends[partition]
                self.ends[partition] += self.draw.randrange(1, 3)
                draw = self.draw.randrange
                gone = self.draw.choice([True, False, None])
                text = f"{partition} {offset}"
                found = Row(draw(4), text, draw(4), gone, partition, offset, "t", draw(4))
                self.log.append(found)

    def step(self) -> None:
        """One batch, cut by chance. With some luck its driver dies with a part of it written."""
        self.grow()
        first = self.number == 0
        ends = {
            partition: (at, at if first else self.draw.randint(at, self.ends[partition]))
            for partition, at in self.at.items()
        }
        what = batch(self.number, ends, f"checkpoint {self.born}")
        work = decide(what, self.store.memory(), (), self.store.query)
        rows = [
            row for row in self.log if ends[row.partition][0] <= row.offset < ends[row.partition][1]
        ]
        found = winners(rows, versioned=self.versioned)
        self.draw.shuffle(found)
        task = self.store.task(self.store._remembered()[1], calls_max=2)
        self.late.append((task, found))
        if self.draw.random() < 0.4:
            ran(task, found[: self.draw.randint(0, len(found))])
            self.begin()
            return
        done = ran(task, found)
        if self.draw.random() < 0.3:
            done = ran(task, found)  # Spark runs a task twice
        if found:
            self.store.check_written(len(found), done)
        self.store.commit(what, work, None)
        self.number += 1
        self.at = {partition: end for partition, (_, end) in ends.items()}
        for row in found:
            before = self.last.get(row.id)
            if before is None or not self.versioned or row.revision >= before.revision:
                self.last[row.id] = row
        self.run_late()

    def run_late(self) -> None:
        """Let something of the past run once more: of another owner, or of a batch that is over."""
        if self.late:
            task, rows = self.draw.choice(self.late)
            assert all(done["refused"] in {"fenced", "over"} for done in ran(task, rows))

    def check(self, redis: Redis) -> None:
        deletes = "deleted" in self.of
        rows = {
            f"kept:{key}": as_stored(row)
            for key, row in self.last.items()
            if not (deletes and row.gone)
        }
        found = table(redis)
        if not deletes:
            for fields in found.values():
                fields.pop("gone", None)
        assert found == rows
        if deletes:
            gone = {f"holdfast_deleted:kept:{key}" for key, row in self.last.items() if row.gone}
            assert markers(redis) == gone


@pytest.mark.slow
@pytest.mark.parametrize("deletes", [False, True])
@pytest.mark.parametrize("versioned", [False, True])
def test_lives_from_chance_end_with_what_the_rules_name(
    url: str, redis: Redis, *, versioned: bool, deletes: bool
) -> None:
    """What a dead driver left of a batch is there in between; caught up, nothing of it is."""
    of = ({"version": "revision"} if versioned else {}) | ({"deleted": "gone"} if deletes else {})
    for seed in range(8):
        redis.flushall()
        draw = random.Random(seed)
        life = Life(url, draw, **of)
        for _ in range(12):
            life.step()
        # To the end of the log, with nobody dying: all that was partly written has come again.
        while life.number == 0 or life.at != life.ends:
            ends = {p: (at, at if life.number == 0 else life.ends[p]) for p, at in life.at.items()}
            what = batch(life.number, ends, f"checkpoint {life.born}")
            rows = [r for r in life.log if ends[r.partition][0] <= r.offset < ends[r.partition][1]]
            write(life.store, what, life.log, versioned=versioned)
            for row in winners(rows, versioned=versioned):
                before = life.last.get(row.id)
                if before is None or not versioned or row.revision >= before.revision:
                    life.last[row.id] = row
            life.number += 1
            life.at = {partition: end for partition, (_, end) in ends.items()}
        life.check(redis)


def test_the_schema_of_the_writer_is_what_it_writes() -> None:
    assert tuple(SCHEMA.names) == Row._fields
