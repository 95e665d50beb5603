"""Goal: a range gives exactly its records, or says what is gone, in both ways of reading it.

Method: a real broker; what goes through librdkafka has a setting that only librdkafka has.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, Producer, Uuid
from tests.cluster.waiting import wait_for_leader
from tests.pipelines.conftest import Topics

from holdfast.cluster import LocalCluster
from holdfast.cluster.processes import wait_until
from holdfast.pipelines import listing as listing_module
from holdfast.pipelines import read_range as module
from holdfast.pipelines import topic_ids as topic_ids_module
from holdfast.pipelines.listing import Listing, ListingError
from holdfast.pipelines.offsets import DataLossError, Known, Partition, TopicMadeAnewError
from holdfast.pipelines.options import parse
from holdfast.pipelines.planner import RangePartition
from holdfast.pipelines.read_range import (
    ARROW_SCHEMA,
    BATCH_ROWS,
    Access,
    Plan,
    ReadError,
    read_range,
)
from holdfast.pipelines.reading import wire_range as wire_module
from holdfast.pipelines.reading.access import UNPLANNED
from holdfast.pipelines.reading.range_rows import ROWS_MAX
from holdfast.pipelines.reading.way import way_of
from holdfast.pipelines.source import StreamReader
from holdfast.wire.batch import build_batch, read_header, transaction_marker
from holdfast.wire.well_known import LATEST

EXTERNAL = "HOLDFAST_TEST_BOOTSTRAP" in os.environ
Settings = tuple[tuple[str, str], ...]
WAYS: dict[str, Settings] = {"ours": (), "librdkafka": (("socket.keepalive.enable", "true"),)}


pytestmark = [pytest.mark.turns, pytest.mark.usefixtures("no_consumer_outlives_the_cluster")]


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> Settings:
    settings = WAYS[request.param]
    assert way_of((("bootstrap.servers", "h:1"), *settings)).is_ours is (request.param == "ours")
    return settings


def access(topics: Topics, way: Settings, **values: object) -> Access:
    client = (("bootstrap.servers", topics.bootstrap), *way)
    return Access(client=client, **values)  # type: ignore[arg-type]


def read(
    partition: Partition, start: int, end: int, how: Access, plan: Plan = UNPLANNED
) -> pa.Table:
    return pa.Table.from_batches(list(read_range(partition, start, end, how, plan)), ARROW_SCHEMA)


@pytest.mark.slow
def test_a_range_has_its_records_and_no_others(topics: Topics, way: Settings) -> None:
    topic = topics.create()
    topics.write(topic, 1, [f"v{n}".encode() for n in range(100)])
    table = read(Partition(topic, 1), 10, 13, access(topics, way))
    assert table.column("offset").to_pylist() == [10, 11, 12]
    assert table.column("value").to_pylist() == [b"v10", b"v11", b"v12"]
    assert set(table.column("key").to_pylist()) == {b"k"}
    assert set(table.column("topic").to_pylist()) == {topic}
    assert set(table.column("partition").to_pylist()) == {1}
    assert set(table.column("timestampType").to_pylist()) == {0}, "create time"
    assert table.schema == ARROW_SCHEMA
    assert read(Partition(topic, 1), 10, 10, access(topics, way)).num_rows == 0


@pytest.mark.slow
def test_a_long_range_comes_in_bounded_batches(topics: Topics, way: Settings) -> None:
    topic = topics.create()
    most = BATCH_ROWS if way else ROWS_MAX
    count = 2 * most + 5
    topics.write(topic, 0, [b"x"] * count)
    batches = list(read_range(Partition(topic, 0), 0, count, access(topics, way)))
    assert sum(batch.num_rows for batch in batches) == count
    assert max(batch.num_rows for batch in batches) <= most


@pytest.mark.slow
def test_ranges_share_a_consumer_and_do_not_mix(topics: Topics, way: Settings) -> None:
    topic = topics.create()
    for partition in range(2):
        topics.write(topic, partition, [f"{partition}-{n}".encode() for n in range(50)])
    how = access(topics, way)
    for partition, start in ((0, 5), (1, 40), (0, 30), (1, 0)):
        table = read(Partition(topic, partition), start, start + 5, how)
        assert table.column("value").to_pylist() == [
            f"{partition}-{n}".encode() for n in range(start, start + 5)
        ]
    assert (how in module._idle) is bool(way)
    assert (how.client in wire_module._idle) is not bool(way)


@pytest.mark.slow
def test_what_topics_have_now_is_asked_of_all_at_once(
    topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each trigger asks: a hundred topics were a hundred requests."""
    first, second = topics.create(2), topics.create(1)
    listing = Listing((("bootstrap.servers", topics.bootstrap),))
    wanted = [Partition(first, 0), Partition(first, 1), Partition(second, 0)]
    alone: list[str | None] = []
    ask_alone = listing._metadata

    def noted(topic: str | None = None) -> object:
        alone.append(topic)
        return ask_alone(topic)

    monkeypatch.setattr(listing, "_metadata", noted)
    wait_until(
        lambda: listing.existing_of([first, second]) == wanted, timeout_s=30, what="all three"
    )
    alone.clear()
    assert listing.existing_of([second, first, "nobody-made-this"]) == [*wanted[2:], *wanted[:2]]
    assert listing.existing(wanted[1:]) == wanted[1:], "in the order of their names"
    assert alone == []
    listing.close()
    away = Listing((("bootstrap.servers", "127.0.0.1:1"),))
    monkeypatch.setattr(listing_module, "FIRST_WAIT_S", 0.1)
    monkeypatch.setattr(listing_module, "REQUEST_S", 0.1)
    with pytest.raises(ListingError, match="no broker answers"):
        away.existing_of([first, second])
    away.close()


@pytest.mark.slow
@pytest.mark.skipif(EXTERNAL, reason="kills a broker, so it has to be one of ours")
def test_a_log_that_is_shorter_than_the_range_is_loss_once_a_new_leader_says_so(
    topics: Topics, request: pytest.FixtureRequest
) -> None:
    """The leader that told of offset 9 is to be believed more than one of the same epoch."""
    cluster: LocalCluster = request.getfixturevalue("cluster")
    topic = topics.create(1)
    partition = Partition(topic, 0)
    topics.write(topic, 0, [b"x"] * 7)
    listing = Listing((("bootstrap.servers", topics.bootstrap),))
    ends, epochs = listing.ends([partition], all_of_them=True)
    assert ends == {partition: 7}
    plan = Plan(topics.id_of(topic), epochs[partition], epochs[partition])
    for way in WAYS.values():
        for fails in (True, False):
            silence_ms = 3_000 if way else 700
            how = access(topics, way, fail_on_data_loss=fails, silence_ms_max=silence_ms)
            with pytest.raises(ReadError, match="at offset 7 of a range that ends at 9"):
                read(partition, 5, 9, how, plan)
    leader = wait_for_leader(cluster, topic, 0).leader
    cluster.kill(leader, "KILL")
    cluster.start_node(leader)
    wait_until(
        lambda: listing.ends([partition]).epochs.get(partition, -1) > epochs[partition],
        timeout_s=60, what="an epoch of its own",
    )  # fmt: skip
    told = listing.ends([partition], all_of_them=True)
    assert listing.newest([partition]) == told.epochs
    read_before = Known({partition: 7}, epochs)
    assert listing.held(read_before, told, all_of_them=True) == (told, {}), "nothing was cut"
    listing.close()
    for way in WAYS.values():
        with pytest.raises(DataLossError, match=r"goneData.*failOnDataLoss"):
            read(partition, 5, 9, access(topics, way), plan)
        lenient = access(topics, way, fail_on_data_loss=False)
        assert read(partition, 5, 9, lenient, plan).num_rows == 2
        assert read(partition, 8, 9, lenient, plan).num_rows == 0
        assert read(partition, 5, 7, access(topics, way), plan).num_rows == 2


@pytest.mark.slow
def test_records_that_aged_out_are_loss(topics: Topics, way: Settings) -> None:
    topic = topics.create(segment_ms="1", retention_ms="1")
    begin = topics.age_out(topic, 0, [b"old"] * 5)
    # The record that stays may be gone by now, and the range must not end behind the log.
    listing = Listing((("bootstrap.servers", topics.bootstrap),))
    end = listing.ends([Partition(topic, 0)], all_of_them=True).offsets[Partition(topic, 0)]
    listing.close()
    with pytest.raises(DataLossError, match="failOnDataLoss"):
        read(Partition(topic, 0), 0, end, access(topics, way))
    lenient = access(topics, way, fail_on_data_loss=False)
    assert read(Partition(topic, 0), 0, end, lenient).column("offset").to_pylist() in (
        [*range(begin, end)],
        [],
    )


def test_a_group_that_may_not_be_asked_about_does_no_harm() -> None:
    """Each client asks for its group's coordinator, joins none, and is told that it may not."""
    reading = module._Reading(None, Partition("t", 0), 3, 9, access=Access(client=()))
    reading._refused(KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED))
    assert reading.position == 3
    with pytest.raises(ReadError, match="t-0: "):
        reading._refused(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))


@pytest.mark.slow
def test_silence_ends_after_its_time(way: Settings) -> None:
    """Nobody listens there: the wait is bounded, and the message says by what."""
    nowhere = Access(client=(("bootstrap.servers", "127.0.0.1:1"), *way), silence_ms_max=300)
    with pytest.raises(ReadError, match=r"kafkaConsumer\.pollTimeoutMs"):
        list(read_range(Partition("t", 0), 0, 1, nowhere))


@pytest.mark.slow
def test_a_wrong_address_is_named_with_what_became_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody has answered yet, so the address is in doubt, and a minute's patience out of place."""
    monkeypatch.setattr(listing_module, "FIRST_WAIT_S", 0.5)
    monkeypatch.setattr(listing_module, "REQUEST_S", 1.0)
    listing = Listing((("bootstrap.servers", "127.0.0.1:1"),))
    said = r"within 0 s \(127\.0\.0\.1:1/bootstrap: .*refused.*kafka\.bootstrap\.servers"
    with pytest.raises(ListingError, match=said):
        listing.partitions(["t"])
    listing.close()


@pytest.mark.slow
def test_who_has_answered_once_is_waited_for(
    topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cluster that is away for a moment is no wrong address."""
    listing = Listing((("bootstrap.servers", topics.bootstrap),))
    assert len(listing.partitions([topics.create()])) == 2
    assert listing._answered
    listing.close()
    monkeypatch.setattr(listing_module, "FIRST_WAIT_S", 0.0)
    monkeypatch.setattr(listing_module, "WAIT_S", 1.5)
    monkeypatch.setattr(listing_module, "REQUEST_S", 0.5)
    away = Listing((("bootstrap.servers", "127.0.0.1:1"),))
    away._answered = True
    with pytest.raises(ListingError, match="within 2 s"):
        away.partitions(["t"])
    away.close()


def test_listing_tells_topics_of_one_name_apart(
    topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    listing = Listing((("bootstrap.servers", topics.bootstrap),))
    named = ((topic := topics.create(), topics.id_of(topic)) for _ in range(40))
    topic, first = next(one for one in named if set("-_") & set(one[1]))  # about every other
    assert listing.topic_ids([topic], all_of_them=True) == {topic: first}
    assert listing.topic_ids(["nobody-made-this"]) == {}
    assert listing.topic_ids([]) == {}
    monkeypatch.setattr(listing_module, "WAIT_S", 0.5)
    with pytest.raises(ListingError, match=r"no id of topic nobody-made-this \(.+\) within 0 s"):
        listing.topic_ids([topic, "nobody-made-this"], all_of_them=True)
    old, second = topics.make_anew(topic)
    assert old == first != second
    wait_until(
        lambda: listing.topic_ids([topic]) == {topic: second}, timeout_s=30, what="the new id"
    )
    assert listing.existing_of(["nobody-made-this"]) == [], "asking made no topic"
    listing.close()


@pytest.mark.slow
def test_what_was_read_of_another_topic_than_was_planned_is_told(topics: Topics) -> None:
    """It was made anew after the plan had been checked: both have enough records to be read."""
    topic = topics.create()
    topics.write(topic, 0, [b"old"] * 3)
    options = {"kafka.bootstrap.servers": topics.bootstrap, "subscribe": topic}
    reader = StreamReader(parse(options, "stream"))

    def task(topic_id: str) -> RangePartition:
        return RangePartition(topic, 0, 0, 3, topic_id)

    assert sum(batch.num_rows for batch in reader.read(task(topics.id_of(topic)))) == 3
    old, new = topics.make_anew(topic)
    topics.write(topic, 0, [b"new"] * 3)
    with pytest.raises(TopicMadeAnewError, match=f"id {old}, .* the one with id {new}"):
        list(reader.read(task(old)))
    list(reader.read(task(new)))


def test_a_cluster_without_ids_is_said_once(
    topics: Topics, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Sixteen zero bytes are what the client has when a broker tells nothing."""
    topic = topics.create()
    zeros = topic_ids_module.NO_ID
    monkeypatch.setattr(topic_ids_module, "NO_ID", topics.id_of(topic))
    listing = Listing((("bootstrap.servers", topics.bootstrap),))
    for _ in range(2):
        assert listing.topic_ids([topic], all_of_them=True) == {}
    assert caplog.text.count("tells no topic ids") == 1
    assert str(Uuid(0, 0)) == zeros
    listing.close()


@pytest.mark.slow
def test_listing_names_a_topic_that_is_not_there_and_does_not_create_it(topics: Topics) -> None:
    listing = Listing((("bootstrap.servers", topics.bootstrap),))
    with pytest.raises(ListingError, match="'nobody-made-this' does not exist"):
        listing.partitions(["nobody-made-this"])
    assert listing.existing_of(["nobody-made-this"]) == []
    listing.close()


@pytest.mark.slow
@pytest.mark.skipif(EXTERNAL, reason="kills a broker, so it has to be one of ours")
def test_listing_finds_the_next_leader(topics: Topics, request: pytest.FixtureRequest) -> None:
    """While the leader is dead its partition is left out; its successor is found."""
    cluster: LocalCluster = request.getfixturevalue("cluster")
    topic = topics.create(1, copies=3)
    partition = Partition(topic, 0)
    topics.write(topic, 0, [b"x"] * 3)
    listing = Listing((("bootstrap.servers", topics.bootstrap),))
    assert listing.ends([partition]).offsets == {partition: 3}
    leader = wait_for_leader(cluster, topic, 0).leader
    cluster.kill(leader, "KILL")
    try:
        assert listing.ends([partition]).offsets in ({}, {partition: 3})
        assert listing.ends([partition], all_of_them=True).offsets == {partition: 3}
        assert wait_for_leader(cluster, topic, 0).leader != leader
    finally:
        cluster.start_node(leader)
    listing.close()


@pytest.mark.slow
def test_a_pattern_lists_what_matches_and_not_the_brokers_own(topics: Topics) -> None:
    first, second = topics.create(2), topics.create(1)
    listing = Listing((("bootstrap.servers", topics.bootstrap),))
    wanted = [Partition(first, 0), Partition(first, 1), Partition(second, 0)]
    wait_until(
        lambda: listing.matching(f"{first}|{second}|__.*") == wanted, timeout_s=30, what="both"
    )
    assert listing.matching(f"^{first[1:]}") == [], "it is no beginning of a name"
    assert listing.matching("nobody-made-this") == []
    assert listing.existing_of(["nobody-made-this"]) == [], "asking made no topic"
    listing.close()


@pytest.mark.slow
def test_times_are_asked_of_the_log(topics: Topics) -> None:
    topic = topics.create(2)
    here, empty = Partition(topic, 0), Partition(topic, 1)
    begin = time.time_ns() // 1_000_000 - 60_000
    topics.write(topic, 0, [b"a", b"b", b"c"], timestamps_ms=[begin, begin + 10, begin + 20])
    listing = Listing((("bootstrap.servers", topics.bootstrap),))
    for wait, offset in ((0, 0), (1, 1), (10, 1), (11, 2), (20, 2), (21, LATEST)):
        found = listing.at_times({here: begin + wait, empty: 0})
        assert found == {here: offset, empty: LATEST}
    assert listing.at_times({here: 0, empty: (1 << 63) - 1}) == {here: 0, empty: LATEST}
    listing.close()


@pytest.mark.slow
def test_offsets_are_asked_for_as_often_as_options_say(topics: Topics) -> None:
    """Nobody leads a partition that is not there, so each time is in vain."""
    nowhere = [Partition(topics.create(1), 7)]
    for retries in (0, 2):
        listing = Listing((("bootstrap.servers", topics.bootstrap),), retries=retries, pause_ms=1)
        said = rf"no offsets from .*-7 \(.+\) after {retries} retries \(fetchOffset\.numRetries\)"
        with pytest.raises(ListingError, match=said):
            listing.earliest(nowhere, all_of_them=True)
        assert listing.earliest(nowhere) == {}, "who can do without asks once"
        listing.close()


@pytest.mark.slow
def test_what_is_missing_is_waited_for_once(
    topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker may not have heard of it yet; but what is gone holds up no second trigger."""
    topic = topics.create(1)
    there, gone = Partition(topic, 0), Partition(topic, 1)
    listing = Listing((("bootstrap.servers", topics.bootstrap),))
    monkeypatch.setattr(listing_module, "REQUEST_S", 1.0)
    begin = time.monotonic()
    assert listing.awaited([there, gone]) == [there]
    assert time.monotonic() - begin >= 1.0
    monkeypatch.setattr(listing_module, "REQUEST_S", 600.0)
    assert listing.awaited([there, gone]) == [there], "or this would not end"
    topics.grow(topic, 3)
    assert listing.awaited([gone, Partition(topic, 2)]) == [Partition(topic, 2)]
    assert listing.existing([gone]) == [gone], "who lists finds it"
    listing.close()


@pytest.mark.apache
@pytest.mark.skipif(not EXTERNAL, reason="needs transactions")
@pytest.mark.parametrize("level", ["read_committed", "read_uncommitted"])
def test_markers_and_aborted_records_are_holes(topics: Topics, way: Settings, level: str) -> None:
    """A marker ends the log, so no record ever reaches the range's end: the position does."""
    topic = topics.create()
    settings = {"bootstrap.servers": topics.bootstrap, "transactional.id": topic}
    producer = Producer(settings, logger=None)
    producer.init_transactions(30)
    for value, commit in ((b"kept", True), (b"aborted", False)):
        producer.begin_transaction()
        producer.produce(topic, value, partition=0)
        producer.flush(30)
        if commit:
            producer.commit_transaction(30)
        else:
            producer.abort_transaction(30)
    client = (("bootstrap.servers", topics.bootstrap), ("isolation.level", level), *way)
    listing = Listing(client)
    assert listing.ends([Partition(topic, 0)]).offsets == {Partition(topic, 0): 4}
    listing.close()
    table = read(Partition(topic, 0), 0, 4, Access(client=client, silence_ms_max=20_000))
    expected = [b"kept"] if level == "read_committed" else [b"kept", b"aborted"]
    assert table.column("value").to_pylist() == expected


@pytest.mark.slow
@pytest.mark.process
def test_a_range_may_end_in_a_hole(tmp_path: Path, way: Settings) -> None:
    """No record ever reaches the range's end: the end of the partition does.

    Transactions leave such holes, and compaction. This one is put into the segment by hand: the
    marker of a transaction that was aborted.
    """
    with LocalCluster.create(tmp_path, brokers=1, port=0) as cluster:
        cluster.start()
        topics = Topics(cluster.bootstrap_servers)
        topic = topics.create(1)
        topics.write(topic, 0, [b"x"] * 3)
        cluster.down()
        (segment,) = tmp_path.rglob(f"{topic}-0/00000000000000000000.log")
        marker = transaction_marker(
            commit=False, coordinator_epoch=0, timestamp=time.time_ns() // 1_000_000
        )
        batch = build_batch(
            [marker],
            base_offset=3,
            leader_epoch=read_header(segment.read_bytes()).leader_epoch,
            producer_id=7,
            producer_epoch=0,
            transactional=True,
            control=True,
        )
        with segment.open("ab") as log:
            log.write(batch)
        cluster.start()
        how = Access(
            client=(("bootstrap.servers", cluster.bootstrap_servers), *way),
            silence_ms_max=20_000,
        )
        assert read(Partition(topic, 0), 0, 4, how).column("offset").to_pylist() == [0, 1, 2]
        assert read(Partition(topic, 0), 3, 4, how).num_rows == 0
        # With records behind the hole, one of those is what shows that the range is over.
        topics.write(topic, 0, [b"y"] * 3)
        assert read(Partition(topic, 0), 0, 4, how).column("offset").to_pylist() == [0, 1, 2]
