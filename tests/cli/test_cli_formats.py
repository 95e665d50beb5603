"""What commands print and read, without a cluster: describe's bytes, assignments, cat's tokens."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException

from holdfast.cli import configs, delete_records, leader_election
from holdfast.cli.cat import cat_format, cat_modes
from holdfast.cli.exit_status import CommandError
from holdfast.cli.topics import topics_command as topics
from holdfast.cli.topics.topics_format import Filters, describe, to_json
from holdfast.clients.topic_descriptions import Partition, Topic
from holdfast.wire.administration import ConfigEntry
from holdfast.wire.structs import ResourceType

ID = "Sf_cm9TuQFKzZ7nOlFz8ZA"


def entry(name: str, value: str, source: str = "DYNAMIC_TOPIC_CONFIG") -> ConfigEntry:
    return ConfigEntry(
        name=name,
        value=value,
        source=source,
        read_only=False,
        sensitive=False,
        synonyms=[(source, name, value), ("DEFAULT_CONFIG", f"log.{name}", "1")],
    )


def partition(index: int, leader: int, isr: list[int]) -> Partition:
    return Partition(
        index=index, leader=leader, replicas=[1, 2, 0], isr=isr, elr=[], last_known_elr=[]
    )


TOPIC = Topic(
    name="t",
    topic_id=ID,
    internal=False,
    partitions=[
        partition(0, 1, [1, 2, 0]),
        partition(1, 2, [2, 0]),
        partition(2, -1, [1]),
        partition(3, 9, [1, 2, 0]),
    ],
)
CONFIGS = {
    "t": [
        entry("min.insync.replicas", "2", "STATIC_BROKER_CONFIG"),
        entry("retention.ms", "5"),
        entry("segment.bytes", "7", "DEFAULT_CONFIG"),
    ]
}
HEADER = (
    f"Topic: t\tTopicId: {ID}\tPartitionCount: 4\tReplicationFactor: 3"
    "\tConfigs: min.insync.replicas=2,retention.ms=5"
)
LINES = [
    "\tTopic: t\tPartition: 0\tLeader: 1\tReplicas: 1,2,0\tIsr: 1,2,0\tElr: \tLastKnownElr: ",
    "\tTopic: t\tPartition: 1\tLeader: 2\tReplicas: 1,2,0\tIsr: 2,0\tElr: \tLastKnownElr: ",
    "\tTopic: t\tPartition: 2\tLeader: none\tReplicas: 1,2,0\tIsr: 1\tElr: \tLastKnownElr: ",
    "\tTopic: t\tPartition: 3\tLeader: 9\tReplicas: 1,2,0\tIsr: 1,2,0\tElr: \tLastKnownElr: ",
]


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        (Filters(), [HEADER, *LINES]),
        (Filters(under_replicated=True), [LINES[1], LINES[2]]),
        (Filters(unavailable=True), [LINES[2], LINES[3]]),
        (Filters(under_min_isr=True), [LINES[2]]),
        (Filters(at_min_isr=True), [LINES[1]]),
        (Filters(with_overrides=True), [HEADER]),
    ],
)
def test_describe_is_kafkas_byte_for_byte(filters: Filters, expected: list[str]) -> None:
    """Goal: scripts that read kafka-topics read us, by each filter.

    Rules: tools.md#describing-topics.
    """
    assert list(describe([TOPIC], CONFIGS, {0, 1, 2}, filters)) == expected


def test_describe_without_ids_or_elr() -> None:
    """Goal: older brokers tell neither; N/A then. Method: what Metadata alone gives."""
    old = Topic(
        name="t",
        topic_id="",
        internal=False,
        partitions=[Partition(index=0, leader=1, replicas=[1], isr=[1])],
    )
    assert list(describe([old], {}, {1}, Filters())) == [
        "Topic: t\tPartitionCount: 1\tReplicationFactor: 1\tConfigs: ",
        "\tTopic: t\tPartition: 0\tLeader: 1\tReplicas: 1\tIsr: 1\tElr: N/A\tLastKnownElr: N/A",
    ]


def test_describe_for_machines() -> None:
    """Goal: JSON says the same, with none as null. Method: one filter and all."""
    (whole,) = to_json([TOPIC], CONFIGS, {0, 1, 2}, Filters())
    assert whole["configs"] == {"min.insync.replicas": "2", "retention.ms": "5"}
    assert [found["leader"] for found in whole["partitions"]] == [1, 2, None, 9]
    (some,) = to_json([TOPIC], CONFIGS, {0, 1, 2}, Filters(under_min_isr=True))
    assert [found["partition"] for found in some["partitions"]] == [2]
    healthy = {"t": [entry("min.insync.replicas", "1")]}
    assert to_json([TOPIC], healthy, {0, 1, 2}, Filters(under_min_isr=True)) == []


def test_assignments() -> None:
    """Goal: kafka-topics' form, mistakes named. Method: a good one and each kind of bad one."""
    assert topics.parse_assignment("1:0,2:1,0:2") == [[1, 0], [2, 1], [0, 2]]
    for wrong in ("", "a", "1:1", "1:0,2", "1,,2", "1:0:"):
        with pytest.raises(CommandError, match="--replica-assignment"):
            topics.parse_assignment(wrong)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=1", {"a": "1"}),
        ("a=1,b=2", {"a": "1", "b": "2"}),
        (" a = 1 , b = ", {"a": "1", "b": ""}),
        ("c=[x,y],a=1", {"c": "x,y", "a": "1"}),
        ("c=[]", {"c": ""}),
        ("a=x=y", {"a": "x=y"}),
        ("", {}),
    ],
)
def test_settings_to_add(text: str, expected: dict[str, str]) -> None:
    """Goal: --add-config as kafka-configs reads it. Method: a table."""
    assert configs.parse_added(text) == expected


@pytest.mark.parametrize("text", ["a", "a=1,b", ",a=1", "=1", "a=1,,b=2"])
def test_settings_that_are_none(text: str) -> None:
    """Goal: the error names --add-config. Method: a table."""
    with pytest.raises(CommandError, match="--add-config"):
        configs.parse_added(text)


def test_a_setting_is_shown_as_kafka_configs_does() -> None:
    """Goal: name, value, sensitivity and synonyms in its form. Method: one entry, titles."""
    assert configs.line(entry("retention.ms", "5")) == (
        "  retention.ms=5 sensitive=false "
        "synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=5, DEFAULT_CONFIG:log.retention.ms=1}"
    )
    kind = ResourceType.BROKER
    assert configs.title(kind, "", everything=False) == (
        "Default configs for brokers in the cluster are:"
    )
    assert configs.title(kind, "1", everything=True) == "All configs for broker 1 are:"


def test_who_answers_and_serves_no_clients() -> None:
    """Goal: a controller's address is not told as one where nobody is. Method: librdkafka's codes.

    Seen to fail: "nobody answers there" of a controller that had answered.
    """
    settings = {"bootstrap.servers": "c:1"}
    refused = KafkaException(KafkaError(KafkaError._UNSUPPORTED_FEATURE))
    assert "Is it a controller?" in str(cat_modes.unreachable(settings, refused))
    silent = KafkaException(KafkaError(KafkaError._TRANSPORT))
    assert "-b c:1: nobody answers there" in str(cat_modes.unreachable(settings, silent))


def test_offsets_of_a_file(tmp_path: Path) -> None:
    """Goal: records go where the file says, or stay. Method: an offset, then no whole numbers.

    Seen to fail: 99.9 deleted what lies before 99, and true what lies before 1.
    """
    path = tmp_path / "offsets.json"
    for text, wanted in (("3", 3), ("-1", -1), ("99.9", None), ("true", None), ("null", None)):
        entry = f'{{"topic": "t", "partition": 0, "offset": {text}}}'
        path.write_text(f'{{"partitions": [{entry}]}}')
        if wanted is not None:
            assert delete_records.read_offsets(path) == {("t", 0): wanted}
            continue
        with pytest.raises(CommandError, match="--offset-json-file"):
            delete_records.read_offsets(path)


def test_partitions_of_a_file(tmp_path: Path) -> None:
    """Goal: kafka-leader-election's file. Method: a good one, then damaged ones."""
    path = tmp_path / "partitions.json"
    entries = [{"topic": "t", "partition": 0}, {"topic": "t", "partition": 2}]
    path.write_text(json.dumps({"partitions": entries}))
    assert leader_election.read_partitions(path) == {"t": [0, 2]}
    shape = {"topic": "t", "partition": 0}
    cut = [json.dumps({"partitions": [shape | {"partition": each}]}) for each in (0.5, True)]
    none = ("", "[]", "{}", '{"partitions": [{"topic": "t"}]}', '{"partitions": []}')
    for text in (*none, *cut):
        path.write_text(text)
        with pytest.raises(CommandError, match="--path-to-json-file"):
            leader_election.read_partitions(path)
    with pytest.raises(CommandError, match="No such file"):
        leader_election.read_partitions(tmp_path / "none")


MESSAGE = cat_format.Message(
    topic="t",
    partition=3,
    offset=7,
    timestamp_ms=99,
    timestamp_type="create",
    broker=1,
    key=None,
    value=b"v\xff",
    headers=[("a", b"1"), ("b", None)],
)


@pytest.mark.parametrize(
    ("text", "nulls", "expected"),
    [
        ("%t[%p]@%o %T\\n", False, b"t[3]@7 99\n"),
        ("%k|%s", False, b"|v\xff"),
        ("%k|%s", True, b"NULL|v\xff"),
        ("%K %S %R", False, b"-1 2 \0\0\0\2"),
        ("%h", False, b"a=1,b=NULL"),
        ("100%%\\x41\\t", False, b"100%A\t"),
        ("\\x25s", False, b"%s"),
    ],
)
def test_formats_of_cat(text: str, nulls: bool, expected: bytes) -> None:
    """Goal: kcat's tokens and escapes. Method: a table."""
    assert cat_format.formatter(text, nulls=nulls)(MESSAGE) == expected


def test_an_unknown_token_is_named() -> None:
    """Goal: a typing mistake isn't printed a million times. Method: %z."""
    with pytest.raises(CommandError, match="-f: %z"):
        cat_format.formatter("%z", nulls=False)


def test_the_envelope() -> None:
    """Goal: kcat's JSON, valid whatever the bytes. Method: read it back."""
    values = json.loads(cat_format.envelope(MESSAGE))
    assert values["headers"] == ["a", "1", "b", None]
    assert (values["key"], values["payload"]) == (None, "v\ufffd")
    assert list(values)[:4] == ["topic", "partition", "offset", "tstype"]


@pytest.mark.parametrize(
    ("texts", "start", "stop"),
    [
        ([], cat_format.Start(offset=0), None),
        (["beginning"], cat_format.Start(offset=0), None),
        (["end"], cat_format.Start(offset=cat_format.END), None),
        (["stored"], cat_format.Start(stored=True), None),
        (["5"], cat_format.Start(offset=5), None),
        (["-5"], cat_format.Start(offset=-5), None),
        (["s@100", "e@200"], cat_format.Start(timestamp_ms=100), 200),
    ],
)
def test_offsets_of_cat(texts: list[str], start: cat_format.Start, stop: int | None) -> None:
    """Goal: kcat's -o. Method: a table."""
    assert cat_format.parse_offsets(texts) == (start, stop)


@pytest.mark.parametrize("text", ["", "x", "s@", "s@-1", "1.5", "--1"])
def test_offsets_that_are_none(text: str) -> None:
    """Goal: the error names -o. Method: a table."""
    with pytest.raises(CommandError, match="-o"):
        cat_format.parse_offsets([text])


@pytest.mark.parametrize("text", [str(1 << 63), str(-1 << 63), "s@" + "9" * 30, "s@-" + "9" * 30])
def test_offsets_that_are_too_large(text: str) -> None:
    """Goal: the error says what is wrong with a number. Method: a table around 64 bits."""
    with pytest.raises(CommandError) as caught:
        cat_format.parse_offsets([text])
    assert str(caught.value) == f"-o {text}: no offset or time is that large."


@pytest.mark.parametrize(
    ("data", "delimiter", "expected"),
    [
        (b"a\nb\n", b"\n", [b"a", b"b"]),
        (b"a\nb", b"\n", [b"a", b"b"]),
        (b"", b"\n", []),
        (b"\n\n", b"\n", [b"", b""]),
        (b"a<>b<>", b"<>", [b"a", b"b"]),
        (b"a<>b<", b"<>", [b"a", b"b<"]),
    ],
)
@pytest.mark.parametrize("piece", [1, 2, 1000])
def test_input_is_cut_at_delimiters(
    data: bytes, delimiter: bytes, expected: list[bytes], piece: int
) -> None:
    """Goal: however a pipe cuts its bytes, messages are the same. Method: tiny reads."""

    class Pipe(io.BytesIO):
        def read1(self, size: int | None = -1, /) -> bytes:  # noqa: ARG002 - a pipe's mood
            return self.read(piece)

    assert list(cat_modes.split(Pipe(data), delimiter)) == expected


def test_keys_are_cut_off_once() -> None:
    """Goal: kcat's -K. Method: with and without the delimiter."""
    assert cat_format.split_key(b"a:b:c", b":") == (b"a", b"b:c")
    assert cat_format.split_key(b"abc", b":") == (None, b"abc")
    assert cat_format.split_key(b"a:b", None) == (None, b"a:b")
    assert cat_format.parse_header("a=b=c") == ("a", b"b=c")
    assert cat_format.parse_header("a") == ("a", None)
