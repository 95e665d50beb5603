"""Goal: a group that nobody is in is told how far a table is; one with members is left alone; and
nothing that brokers say of it, or don't, ever fails or holds up a batch.

Method: brokers of ours or of Apache Kafka's (HOLDFAST_TEST_BOOTSTRAP), members of both protocols,
and kafka-python, which says what is committed.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient
from tests.pipelines import committed
from tests.pipelines.conftest import EXTERNAL, Topics

from holdfast.cluster import LocalCluster
from holdfast.cluster.processes import wait_until
from holdfast.pipelines import offsets as moves
from holdfast.pipelines.due import Last, Memory, Stored, decide
from holdfast.pipelines.intake.option_values import OptionError
from holdfast.pipelines.offsets import OffsetsError, Partition, Position
from holdfast.pipelines.options import parse
from holdfast.pipelines.planned import Batch, Planned, Reader, planned_ranges
from holdfast.pipelines.progress import commits
from holdfast.pipelines.progress.commits import commit, refuse_members
from holdfast.pipelines.progress.ends import metadata, of_plan, of_table
from holdfast.pipelines.progress.group import ProgressGroup
from holdfast.pipelines.source import StreamReader

P, Q = Partition("t", 0), Partition("t", 1)
NOWHERE = (("bootstrap.servers", "127.0.0.1:1"),)
GROUP = ProgressGroup("g", NOWHERE)
TEXT = '{"t":{"id":"x","0":4},"@progressGroup":{"name":"g","kafka":{"bootstrap.servers":"h:1"}}}'
_names = count()


@pytest.fixture(autouse=True)
def _nothing_is_remembered() -> Iterator[None]:
    yield
    commits._admins.clear()
    commits._said.clear()


# -- what stands in an offset ----------------------------------------------------------------------


def test_a_position_names_the_group_that_is_told() -> None:
    position = moves.position_from_text(TEXT)
    group = ProgressGroup("g", (("bootstrap.servers", "h:1"),))
    assert position == Position({P: 4}, {"t": "x"}, group)
    assert json.dumps(moves.position_to_json(position), separators=(",", ":")) == TEXT
    assert planned_ranges(None, [position]) == (Planned(Reader(P), 4, 4, "x", group),)
    with pytest.raises(OffsetsError, match="'name' is no partition"):
        moves.from_text(
            TEXT.replace('"id":"x",', "")
        )  # startingOffsets are a user's, and name no group


@pytest.mark.parametrize(
    "group",
    [
        "[]",
        '{"name":"g"}',
        '{"name":"","kafka":{}}',
        '{"name":7,"kafka":{}}',
        '{"name":"g","kafka":{"bootstrap.servers":1}}',
        '{"name":"g","kafka":{"plugin.library.paths":"/evil.so"}}',
        '{"name":"g","kafka":{"sasl.kerberos.kinit.cmd":"evil"}}',
        '{"name":"g","kafka":{"group.id":"g"}}',
    ],
)
def test_a_checkpoint_names_servers_and_no_programs(group: str) -> None:
    """Who may write a checkpoint may not thereby run a program in the driver."""
    with pytest.raises(OffsetsError, match="@progressGroup"):
        moves.position_from_text(f'{{"t":{{"0":4}},"@progressGroup":{group}}}')


def test_a_setting_that_loads_code_is_not_taken_from_a_checkpoint(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Nor a secret that is written out. Both begin as settings of a connection do."""
    for name, value in (
        ("ssl.engine.location", "/evil.so"),
        ("ssl.providers", "/evil.so"),  # which OpenSSL opens as a library, seen to run
        ("sasl.password", "swordfish"),
    ):
        group = ProgressGroup(name, (*NOWHERE, (name, value)))
        commit({group: {P: 1}}, "m")
        assert f"to group '{name}' just now: kafka.{name}: " in caplog.messages[-1]
    assert "swordfish" not in caplog.text
    assert not commits._admins


# -- how far a table is ----------------------------------------------------------------------------


def batch(*ranges: Planned, number: int = 1) -> Batch:
    return Batch(number=number, checkpoint="c", plan="p", stateful=False, ranges=ranges)


def test_a_table_may_have_more_than_a_batch() -> None:
    """After the checkpoint was removed, the query reads again what the table has. Its lag is none
    for all that.
    """
    planned = (Planned(Reader(P), 0, 4, "x", GROUP), Planned(Reader(Q), 0, 4, "x", GROUP))
    memory = _with_last(Memory({Reader(P): Stored(9, "x"), Reader(Q): Stored(0, "x")}))
    work = decide(batch(*planned), memory, (), "q")
    assert of_table(batch(*planned), memory, work) == {GROUP: {P: 9, Q: 4}}


def _with_last(memory: Memory) -> Memory:
    return Memory(memory.offsets, Last("other", 3, "p"))


def test_what_is_forgotten_of_a_topic_is_not_told_of_the_new_one() -> None:
    planned = batch(Planned(Reader(P), 0, 0, "new", GROUP), number=0)
    memory = _with_last(Memory({Reader(P): Stored(9, "old")}))
    work = decide(planned, memory, {"old"}, "q")
    assert of_table(planned, memory, work) == {GROUP: {P: 0}}


def test_each_source_has_its_own_group_and_twins_tell_the_slower_ones() -> None:
    other = ProgressGroup("other", NOWHERE)
    planned = (
        Planned(Reader(P, 0), 0, 5, "x", GROUP),
        Planned(Reader(P, 1), 0, 3, "x", GROUP),
        Planned(Reader(Q), 0, 7, "x", other),
        Planned(Reader(Partition("u", 0)), 0, 8, "u"),
    )
    memory = _with_last(Memory({each.reader: Stored(0, each.topic_id) for each in planned}))
    work = decide(batch(*planned), memory, (), "q")
    expected = {GROUP: {P: 3}, other: {Q: 7}}
    assert of_table(batch(*planned), memory, work) == expected
    positions = [Position({P: 5}, {}, GROUP), None, Position({P: 3}, {}, GROUP)]
    more = [Position({Q: 7}, {}, other), Position({Partition("u", 0): 8})]
    assert of_plan([*positions, *more]) == expected


def test_sources_that_reach_one_cluster_by_other_ways_tell_one_group_the_slower_ones() -> None:
    """Seen to fail: the one behind was told, and then the one before it, at each batch."""
    one, other, elsewhere = (
        ProgressGroup("g", (("bootstrap.servers", servers), ("client.id", servers)))
        for servers in ("a:1,b:1", "b:1 , c:1", "d:1")
    )
    positions = [
        Position({P: 4, Q: 7}, {}, one),
        Position({P: 3, Q: 9}, {}, other),
        Position({P: 1}, {}, elsewhere),
    ]
    assert of_plan(positions) == {one: {P: 3, Q: 7}, elsewhere: {P: 1}}
    assert of_plan(reversed(positions[:2])) == {other: {P: 3, Q: 7}}


def test_a_long_name_leaves_room_beside_an_offset() -> None:
    """Brokers refuse more than 4,096 bytes of metadata, each time anew."""
    assert metadata("q" * 5000, 10**18).endswith(f"qq batch={10**18}")
    assert len(metadata("\N{GRINNING FACE}" * 5000, 1).encode()) < 4096


# -- what brokers make of it -----------------------------------------------------------------------


def group_on(bootstrap: str) -> ProgressGroup:
    return ProgressGroup(f"progress-{next(_names)}", (("bootstrap.servers", bootstrap),))


@contextmanager
def member(bootstrap: str, group: str, topic: str, protocol: str) -> Iterator[None]:
    settings = {"bootstrap.servers": bootstrap, "group.id": group, "group.protocol": protocol}
    consumer = Consumer({**settings, "client.id": "another-app"})
    consumer.subscribe([topic])

    def joined() -> bool:
        consumer.poll(0.1)
        return bool(consumer.assignment())

    wait_until(joined, timeout_s=60, what="an assignment")
    try:
        yield
    finally:
        consumer.close()  # which leaves the group


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return what we warned of; a client says by itself that a busy machine held it up."""
    ours = (record for record in caplog.records if record.name.startswith("holdfast"))
    return [record.getMessage() for record in ours if record.levelno >= logging.WARNING]


@pytest.mark.slow
def test_an_offset_is_committed_with_query_and_batch_beside_it(topics: Topics) -> None:
    topic = topics.create(2)
    topics.settle(topic, 2)  # who coordinates the group is to know it
    group = group_on(topics.bootstrap)
    refuse_members(group)  # it is not there yet: nobody is in it
    ends = {group: {Partition(topic, 0): 3, Partition(topic, 1): 0}}
    commit(ends, metadata("orders", 7))
    found = committed.told(topics.bootstrap, group.name)
    assert {where: what.offset for where, what in found.items()} == ends[group]
    # The client counts the zero byte in that ends its string.
    said = {what.metadata.rstrip("\0") for what in found.values()}
    assert said == {"query=orders batch=7"}
    refuse_members(group)  # it has offsets and no members


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_with_members_is_refused_and_later_left_alone(
    topics: Topics, caplog: pytest.LogCaptureFixture, protocol: str
) -> None:
    """At the start that is an error. Later it is a warning, once, and when they are gone the next
    commit is taken again. Whoever joins once more is warned of once more.
    """
    topic = topics.create(1)
    topics.settle(topic, 1)  # who coordinates the group is to know it
    place = Partition(topic, 0)
    group = group_on(topics.bootstrap)
    commit({group: {place: 1}}, "m")
    for before, now in ((1, 3), (3, 5)):
        caplog.clear()
        with member(topics.bootstrap, group.name, topic, protocol):
            with pytest.raises(OptionError, match=r"^progressGroup: group .* has 1 members \(anot"):
                refuse_members(group)
            for offset in (7, 8):
                commit({group: {place: offset}}, "m")
            assert committed.offsets(topics.bootstrap, group.name) == {0: before}
            (said,) = warnings(caplog)
            assert f"group {group.name!r} just now: the group has members of its own" in said
        commit({group: {place: now}}, "m")
        assert committed.offsets(topics.bootstrap, group.name) == {0: now}
        assert len(warnings(caplog)) == 1


def test_a_topic_that_is_gone_holds_up_no_other_one(
    topics: Topics, caplog: pytest.LogCaptureFixture
) -> None:
    topic = topics.create(1)
    topics.settle(topic, 1)  # who coordinates the group is to know it
    group = group_on(topics.bootstrap)
    for _ in range(2):
        commit({group: {Partition("a-topic-that-is-gone", 0): 1, Partition(topic, 0): 2}}, "m")
    assert committed.offsets(topics.bootstrap, group.name) == {0: 2}
    (said,) = warnings(caplog)
    assert "just now: UNKNOWN_TOPIC_OR_PART. The query goes on" in said


@pytest.mark.slow
@pytest.mark.serial
@pytest.mark.skipif(bool(EXTERNAL), reason="it kills a broker")
def test_a_broker_that_is_away_fails_nothing_and_is_told_when_it_is_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """And it is waited for at length only once."""
    with LocalCluster.create(tmp_path / "cluster", brokers=1, port=0) as cluster:
        cluster.start()
        bootstrap = cluster.bootstrap_servers
        topic = Topics(bootstrap).create(1)
        group = group_on(bootstrap)
        commit({group: {Partition(topic, 0): 1}}, "m")
        cluster.kill(cluster.broker_ids[0])
        patience: list[float] = []
        asked = commits._altering

        def noting(*words: Any) -> Any:
            ask = asked(*words)

            def noted(admin: AdminClient, timeout_s: float) -> Any:
                patience.append(timeout_s)
                return ask(admin, timeout_s)

            return noted

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(commits, "_altering", noting)
            for offset in (2, 3):
                commit({group: {Partition(topic, 0): offset}}, "m")
        assert max(patience) > commits.AILING_S
        assert patience[-1] <= commits.AILING_S
        (said,) = warnings(caplog)
        assert "just now: no broker answers. The query goes on" in said
        refuse_members(group)  # who can't tell is no reason to end a query
        assert "has members was not told: no broker answers" in warnings(caplog)[-1]
        cluster.start_node(cluster.broker_ids[0])
        cluster.wait_serving(cluster.broker_ids[0])

        def told() -> bool:
            commit({group: {Partition(topic, 0): 4}}, "m")
            return group not in commits._said

        wait_until(told, timeout_s=60, what="a commit that is taken")
        assert committed.offsets(bootstrap, group.name) == {0: 4}
        assert len(warnings(caplog)) <= 2 + commits.SAID_MAX


def test_a_secret_that_is_not_there_is_said_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HOLDFAST_TEST_SECRET", raising=False)
    login = (("sasl.password", "env:HOLDFAST_TEST_SECRET"), ("sasl.mechanism", "PLAIN"))
    group = ProgressGroup("g", (*NOWHERE, *login))
    for _ in range(2):
        commit({group: {P: 1}}, "m")
    (said,) = warnings(caplog)
    assert "no environment variable 'HOLDFAST_TEST_SECRET'" in said


# -- the source ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_source_writes_the_group_down_and_refuses_one_with_members(topics: Topics) -> None:
    """Whichever call of Spark's comes first: it begins anew, goes on, or runs a batch again."""
    from pyspark.sql.streaming.datasource import ReadAllAvailable  # noqa: PLC0415 - half a second

    topic = topics.create(1)
    topics.settle(topic, 1)  # who coordinates the group is to know it
    topics.write(topic, 0, [b"a", b"b"])
    given = {
        "kafka.bootstrap.servers": topics.bootstrap,
        "subscribe": topic,
        "startingOffsets": "earliest",
        "progressGroup": f"progress-{next(_names)}",
    }
    options = parse(given, "stream")
    group = options.progress
    assert group is not None
    reader = StreamReader(options)
    begin = reader.initialOffset()
    assert begin["@progressGroup"] == {
        "name": group.name,
        "kafka": {"bootstrap.servers": topics.bootstrap},
    }
    assert reader.latestOffset(begin, ReadAllAvailable()) == begin, "batch 0 is empty"
    end = reader.latestOffset(begin, ReadAllAvailable())
    assert moves.position_from_json(end).group == group

    with member(topics.bootstrap, group.name, topic, "classic"):
        for first in ("initialOffset", "latestOffset", "partitions"):
            refused = StreamReader(options)
            words = {"latestOffset": (begin, ReadAllAvailable()), "partitions": (begin, end)}
            with pytest.raises(OptionError, match=r"progressGroup: group .* has 1 members"):
                getattr(refused, first)(*words.get(first, ()))
            refused.stop()
        assert reader.latestOffset(begin, ReadAllAvailable()) == end, "who runs goes on"
    reader.stop()
