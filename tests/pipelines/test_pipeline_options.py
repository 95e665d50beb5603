"""Goal: an option that is wrong is refused, by name, before anything runs. Method: a table."""

from __future__ import annotations

import pytest

from holdfast.pipelines.offsets import EARLIEST, LATEST, Partition
from holdfast.pipelines.options import OptionError, parse
from holdfast.pipelines.read_range import consumer_settings

GOOD = {"kafka.bootstrap.servers": "host:9092", "subscribe": "a"}
OTHER = {"kafka.bootstrap.servers": "host:9092", "assign": '{"a":[1,0]}'}


def test_defaults_are_the_jvm_connectors() -> None:
    stream, batch = parse(GOOD, "stream"), parse(GOOD, "batch")
    assert (stream.starting, batch.starting, batch.ending) == (LATEST, EARLIEST, LATEST)
    assert stream.topics == ("a",)
    assert stream.rows_max is None
    assert stream.fail_on_data_loss
    assert dict(stream.client)["isolation.level"] == "read_uncommitted"


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


@pytest.mark.parametrize(
    ("options", "mode", "named"),
    [
        ({"subscribe": "a"}, "stream", "kafka.bootstrap.servers"),
        ({**GOOD, "assign": '{"a":[0]}'}, "stream", "one of subscribe"),
        ({"kafka.bootstrap.servers": "x"}, "stream", "one of subscribe"),
        ({**GOOD, "subscribe": " , "}, "stream", "subscribe"),
        ({**OTHER, "assign": "a"}, "stream", "assign"),
        ({**OTHER, "assign": '{"a":["0"]}'}, "stream", "assign"),
        ({**OTHER, "assign": '{"a":[true]}'}, "stream", "assign"),
        ({**OTHER, "assign": "{}"}, "stream", "assign"),
        ({**GOOD, "startingoffset": "latest"}, "stream", "startingoffset: unknown"),
        ({**GOOD, "includeHeaders": "true"}, "stream", "includeheaders"),
        ({**GOOD, "subscribePattern": "a.*"}, "stream", "subscribepattern"),
        ({**GOOD, "startingOffsets": "first"}, "stream", "startingOffsets"),
        ({**GOOD, "startingOffsets": "latest"}, "batch", "startingOffsets"),
        ({**GOOD, "endingOffsets": "latest"}, "stream", "endingOffsets"),
        ({**GOOD, "endingOffsets": "earliest"}, "batch", "endingOffsets"),
        ({**GOOD, "endingOffsets": '{"a":{"0":-2}}'}, "batch", "endingOffsets"),
        ({**GOOD, "maxOffsetsPerTrigger": "0"}, "stream", "maxOffsetsPerTrigger"),
        ({**GOOD, "maxOffsetsPerTrigger": "many"}, "stream", "maxOffsetsPerTrigger"),
        ({**GOOD, "failOnDataLoss": "no"}, "stream", "failOnDataLoss"),
        ({**GOOD, "kafka.group.id": "g"}, "stream", "kafka.group.id"),
        ({**GOOD, "kafka.enable.auto.commit": "true"}, "stream", "kafka.enable.auto.commit"),
        ({**GOOD, "kafka.auto.offset.reset": "latest"}, "stream", "startingOffsets"),
        ({**GOOD, "kafka.isolation.level": "serializable"}, "stream", "kafka.isolation.level"),
    ],
)
def test_what_is_wrong_is_named(options: dict[str, str], mode: str, named: str) -> None:
    with pytest.raises(OptionError, match=named.replace(".", r"\.")):
        parse(options, mode)  # type: ignore[arg-type]


def test_a_full_queue_is_looked_at_again_soon_unless_the_user_says_otherwise() -> None:
    """The client's own second costs a worker most of its time."""
    client = (("bootstrap.servers", "x"),)
    assert consumer_settings(client)["fetch.queue.backoff.ms"] == "2"
    chosen = consumer_settings((*client, ("fetch.queue.backoff.ms", "50")))
    assert chosen["fetch.queue.backoff.ms"] == "50"
