"""Goal: an option that is wrong is refused, by name, before anything runs. Method: a table."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, TypeAlias

import pytest

from holdfast.pipelines.offsets import Partition
from holdfast.pipelines.options import OptionError, SourceOptions, parse
from holdfast.pipelines.read_range import consumer_settings
from holdfast.wire.well_known import EARLIEST, LATEST

GOOD = {"kafka.bootstrap.servers": "host:9092", "subscribe": "a"}
Mode: TypeAlias = Literal["stream", "batch"]

OTHER = {"kafka.bootstrap.servers": "host:9092", "assign": '{"a":[1,0]}'}


def test_defaults_are_the_jvm_connectors() -> None:
    client = (("bootstrap.servers", "host:9092"), ("isolation.level", "read_uncommitted"))
    stream = parse(GOOD, "stream")
    assert stream == SourceOptions(
        client=client,
        topics=("a",),
        partitions=(),
        starting=LATEST,
        ending=LATEST,
        rows_max=None,
        fail_on_data_loss=True,
        poll_timeout_ms=120_000,
    )
    assert stream == SourceOptions(client=client, topics=("a",), starting=LATEST)
    assert SourceOptions(client=client, starting=LATEST).topics == ()
    assert parse(GOOD, "batch") == replace(stream, starting=EARLIEST)


def test_what_is_given_is_taken() -> None:
    given = {
        **GOOD,
        "endingOffsets": '{"a":{"0":9}}',
        "maxOffsetsPerTrigger": "1",
        "kafkaConsumer.pollTimeoutMs": "7",
    }
    options = parse(given, "batch")
    assert options.ending == {Partition("a", 0): 9}
    assert (options.rows_max, options.poll_timeout_ms) == (1, 7)


@pytest.mark.parametrize(
    ("level", "committed"), [("read_committed", True), ("read_uncommitted", False), (None, False)]
)
def test_what_is_committed_is_asked_for_by_the_clients_own_property(
    level: str | None, committed: bool
) -> None:
    isolation = {} if level is None else {"kafka.isolation.level": level}
    assert parse({**GOOD, **isolation}, "stream").read_committed is committed


def test_case_of_names_does_not_matter() -> None:
    given = {**GOOD, "STARTINGOFFSETS": "Earliest", "failondataloss": "False"}
    options = parse(given, "stream")
    assert options.starting == EARLIEST
    assert not options.fail_on_data_loss


def test_assign_and_offsets_by_partition() -> None:
    given = {**OTHER, "startingOffsets": '{"a":{"0":7,"1":-2}}', "endingOffsets": "latest"}
    options = parse(given, "batch")
    assert options.partitions == (Partition("a", 0), Partition("a", 1))
    assert options.starting == {Partition("a", 0): 7, Partition("a", 1): EARLIEST}


def test_client_properties_go_through() -> None:
    options = parse({**GOOD, "kafka.fetch.min.bytes": "7"}, "stream")
    assert dict(options.client) == {
        "bootstrap.servers": "host:9092",
        "fetch.min.bytes": "7",
        "isolation.level": "read_uncommitted",
    }


ONE = 'one of subscribe ("topic,topic") and assign (\'{"topic":[0,1]}\')'
MISSING = 'kafka.bootstrap.servers: missing; give it as "host:port,host:port"'
OFFSETS = 'use earliest, latest or {"topic":{"0":17,"1":-2}}'
NO_END = "endingOffsets: a query can't end at earliest (-2)"
HAS = (
    "subscribe, assign, startingOffsets, endingOffsets, maxOffsetsPerTrigger, failOnDataLoss, "
    "kafkaConsumer.pollTimeoutMs and kafka.*"
)


@pytest.mark.parametrize(
    ("options", "mode", "said"),
    [
        ({"subscribe": "a"}, "stream", MISSING),
        ({"subscribe": "a", "kafka.bootstrap.servers": ""}, "stream", MISSING),
        ({**GOOD, "assign": '{"a":[0]}'}, "stream", ONE),
        ({"kafka.bootstrap.servers": "x"}, "stream", ONE),
        ({**GOOD, "subscribe": " , "}, "stream", "subscribe: no topic is named"),
        ({**OTHER, "assign": "a"}, "stream", "assign: not JSON: Expecting value*"),
        *(
            ({**OTHER, "assign": text}, "stream",
             f'assign: {text!r} is not of the form {{"topic":[0,1]}}')
            for text in ('{"a":["0"]}', '{"a":[true]}', '{"a":[-1]}', '{"a":0}', "[0]", "{}")
        ),
        ({**GOOD, "startingoffset": "latest"}, "stream",
         f"startingoffset: unknown option; known are {HAS}"),
        ({**GOOD, "startingOffsets": "first"}, "stream", f"startingOffsets: *; {OFFSETS}"),
        ({**GOOD, "startingOffsets": "latest"}, "batch",
         "startingOffsets: a batch query can't start at latest"),
        ({**GOOD, "endingOffsets": "latest"}, "stream",
         "endingOffsets: a stream has no end; leave it out, or use read"),
        ({**GOOD, "endingOffsets": "earliest"}, "batch", NO_END),
        ({**GOOD, "endingOffsets": '{"a":{"0":-2}}'}, "batch", NO_END),
        *(
            ({**GOOD, name: text}, "stream", f"{name}: {text!r} is no positive whole number")
            for name in ("maxOffsetsPerTrigger", "kafkaConsumer.pollTimeoutMs")
            for text in ("0", "many", "-1", "1.5", "\u00b2", "")
        ),
        ({**GOOD, "failOnDataLoss": "no"}, "stream", "failOnDataLoss: 'no'; use true or false"),
        ({**GOOD, "kafka.isolation.level": "serializable"}, "stream",
         "kafka.isolation.level: 'serializable'; use read_uncommitted or read_committed"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(options: dict[str, str], mode: Mode, said: str) -> None:
    """An asterisk stands for a library's own words."""
    with pytest.raises(OptionError) as refused:
        parse(options, mode)
    begin, _, end = said.partition("*")
    assert str(refused.value).startswith(begin)
    assert str(refused.value).endswith(end)
    assert "*" in said or str(refused.value) == said


@pytest.mark.parametrize(
    "name",
    [
        *("subscribePattern", "startingTimestamp", "endingTimestamp", "startingOffsetsByTimestamp"),
        *("endingOffsetsByTimestamp", "startingOffsetsByTimestampStrategy", "minOffsetsPerTrigger"),
        *("maxTriggerDelay", "minPartitions", "maxRecordsPerPartition", "groupIdPrefix"),
        *("includeHeaders", "fetchOffset.numRetries", "fetchOffset.retryIntervalMs"),
    ],
)
def test_the_jvm_connectors_other_options_are_not_taken_for_slips(name: str) -> None:
    with pytest.raises(OptionError) as refused:
        parse({**GOOD, name: "1"}, "stream")
    assert str(refused.value) == (
        f"{name.lower()}: an option of the JVM connector that this source does not have; it has "
        f"{HAS}"
    )


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("group.id", "offsets live in Spark's checkpoint, and no consumer group is used"),
        ("enable.auto.commit", "offsets live in Spark's checkpoint"),
        ("auto.offset.reset", "use startingOffsets; a reset would skip records silently"),
        ("enable.auto.offset.store", "offsets live in Spark's checkpoint"),
        ("enable.partition.eof", "the source needs it to see the end of a partition"),
        ("key.deserializer", "keys are bytes; use Spark's functions"),
        ("value.deserializer", "values are bytes; use Spark's functions"),
        ("interceptor.classes", "it is a class of the JVM client"),
    ],
)
def test_what_the_source_decides_itself_is_refused_with_why(name: str, why: str) -> None:
    with pytest.raises(OptionError) as refused:
        parse({**GOOD, f"kafka.{name}": "x"}, "stream")
    assert str(refused.value) == f"kafka.{name}: can't be set: {why}"


def test_a_full_queue_is_looked_at_again_soon_unless_the_user_says_otherwise() -> None:
    """The client's own second costs a worker most of its time."""
    client = (("bootstrap.servers", "x"),)
    assert consumer_settings(client)["fetch.queue.backoff.ms"] == "2"
    chosen = consumer_settings((*client, ("fetch.queue.backoff.ms", "50")))
    assert chosen["fetch.queue.backoff.ms"] == "50"
