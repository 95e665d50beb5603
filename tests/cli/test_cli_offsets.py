"""`holdfast get-offsets` and `holdfast inspect`: what they pick and print, and both on a cluster.

Rules: tools.md#offsets-of-partitions.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer

from holdfast.cli.exit_status import CommandError
from holdfast.cli.offsets import get_offsets, inspect_format, inspect_partition
from holdfast.clients.blocking_driver import Driver
from holdfast.clients.log_offsets import Found, LogOffset
from holdfast.clients.partition_inspection import Epoch, Inspection, verdict
from holdfast.clients.replica_statements import Led, Statement
from holdfast.clients.topic_descriptions import Partition, Topic
from holdfast.cluster.processes import wait_until
from holdfast.wire.administration import AdminError, create_topic
from holdfast.wire.batch_header import read_header
from holdfast.wire.batch_records import Record, build_batch
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)

if TYPE_CHECKING:
    from tests.cli.conftest import Run

PARTITIONS = [("a", 0), ("a", 1), ("a", 10), ("ab", 0), ("ab", 3), ("b", 5)]


@pytest.mark.parametrize(
    ("topic", "partitions", "picked"),
    [
        (None, None, PARTITIONS),
        ("a", None, [("a", 0), ("a", 1), ("a", 10)]),
        ("a.*", "0,3", [("a", 0), ("ab", 0), ("ab", 3)]),
        ("a, b", None, [("a", 0), ("a", 1), ("a", 10), ("b", 5)]),
        (None, "5", [("b", 5)]),
        ("'b'", None, [("b", 5)]),
        ("c", None, []),
    ],
)
def test_names(topic: str | None, partitions: str | None, picked: list[tuple[str, int]]) -> None:
    pick = get_offsets.picked_by_name(topic, partitions)
    assert [key for key in PARTITIONS if pick(*key)] == picked


@pytest.mark.parametrize(
    ("rules", "picked"),
    [
        ("a", [("a", 0), ("a", 1), ("a", 10)]),
        ("a:1", [("a", 1)]),
        ("a:0-10", [("a", 0), ("a", 1)]),  # the last one is not meant
        ("a.*:3-", [("a", 10), ("ab", 3)]),
        (".*:-1", [("a", 0), ("ab", 0)]),
        (":0", [("a", 0), ("ab", 0)]),
        ("a:1,b", [("a", 1), ("b", 5)]),
        ("a:", [("a", 0), ("a", 1), ("a", 10)]),
        ("a:-", [("a", 0), ("a", 1), ("a", 10)]),
    ],
)
def test_rules(rules: str, picked: list[tuple[str, int]]) -> None:
    pick = get_offsets.picked_by_rules(rules)
    assert [key for key in PARTITIONS if pick(*key)] == picked


@pytest.mark.parametrize("text", ["a:b", "a:1:2", "a:1-2-3", "a:--1", "(:1"])
def test_rules_that_are_none(text: str) -> None:
    with pytest.raises(CommandError, match="--topic-partitions"):
        get_offsets.picked_by_rules(text)


@pytest.mark.parametrize(
    ("text", "timestamp"),
    [
        ("latest", -1),
        ("-1", -1),
        ("earliest", -2),
        ("max-timestamp", -3),
        ("earliest-local", -4),
        ("latest-tiered", -5),
        ("earliest-pending-upload", -6),
        ("-6", -6),
        ("0", 0),
        ("1700000000000", 1_700_000_000_000),
    ],
)
def test_times(text: str, timestamp: int) -> None:
    assert get_offsets.parse_time(text) == timestamp


FOUND: Found = {
    ("t", 2): LogOffset(7, 99, 3),
    ("t", 10): LogOffset(5),
    ("t", 1): LogOffset(-1),
    ("t", 0): AdminError("offsets of t-0", ErrorCode.LEADER_NOT_AVAILABLE),
}


def test_offsets_are_printed_as_kafkas_tool_does() -> None:
    """Goal: its order, which is that of the text, and nothing where there is nothing."""
    assert get_offsets.lines(FOUND) == ["t:10:5", "t:2:7"]
    assert get_offsets.to_json(FOUND) == [
        {"topic": "t", "partition": 0, "error": "offsets of t-0: LEADER_NOT_AVAILABLE"},
        {"topic": "t", "partition": 1, "offset": None, "timestamp_ms": None, "leader_epoch": None},
        {"topic": "t", "partition": 10, "offset": 5, "timestamp_ms": None, "leader_epoch": None},
        {"topic": "t", "partition": 2, "offset": 7, "timestamp_ms": 99, "leader_epoch": 3},
    ]


# Inspecting.

BATCH = read_header(
    build_batch([Record(value=b"a"), Record(value=b"b")], base_offset=8, leader_epoch=4)
)


def inspection(**values: Any) -> Inspection:
    known: dict[str, Any] = {
        "topic": Topic(name="pay", topic_id="Sf_cm9TuQFKzZ7nOlFz8ZA", internal=False),
        "partition": Partition(index=0, leader=1, replicas=[1, 2, 0], isr=[1, 2], elr=[0]),
        "leader_epoch": 5,
        "high_watermark": 10,
        "last_stable": 9,
        "replicas": [
            Statement(
                node=1,
                log_start=0,
                log_end=12,
                high_watermark=10,
                size_bytes=700,
                directory="/d/1",
                batch=BATCH,
            ),
            Statement(
                node=2, log_start=0, log_end=10, log_end_is_least=True, high_watermark=10,
                batch=BATCH,
            ),
            Statement(node=0, silences=["can't connect"]),
        ],
        "epochs": [Epoch(5, 10, 12), Epoch(4, 0, 10)],
        "silences": [],
    }  # fmt: skip
    return Inspection(**(known | values))


def test_an_inspection_is_shown() -> None:
    seen = inspection()
    assert list(inspect_format.lines(seen, verdict(seen, 9))) == [
        "pay-0: leader 1 in epoch 5, replicas 1,2,0, in sync 1,2, eligible as well 0",
        (
            "Committed up to 10 (the high watermark), open transactions from 9 "
            "(the last stable offset)."
        ),
        "",
        "REPLICA  ROLE      IN-SYNC  LOG-START  HIGH-WATERMARK  LOG-END  BYTES  DIRECTORY",
        "1        leader    yes      0          10              12       700    /d/1",
        "2        follower  yes      0          10              10+      -      -",
        "0        follower  no       -          -               -        -      -",
        "+: at least so far; this broker doesn't tell where a follower's log ends",
        "",
        "EPOCH  FIRST-OFFSET  LAST-OFFSET",
        "5      10            11",
        "4      0             9",
        "",
        "Not told:",
        "  replica 0: can't connect",
        "",
        "Message 9: committed: consumers can read it, and no clean election loses it.",
        "  in the batch of offsets 8 to 9, written in leader epoch 4",
        "  replica 1 has it: the same batch was read there",
        "  replica 2 has it: the same batch was read there",
        "  replica 0 doesn't tell whether it has it",
    ]


@pytest.mark.parametrize(
    ("offset", "words"),
    [
        (10, "not committed: it is in the leader's log, but the high watermark is 10."),
        (12, "not written yet: the leader's log ends before it."),
    ],
)
def test_verdicts_are_told(offset: int, words: str) -> None:
    seen = inspection()
    shown = list(inspect_format.lines(seen, verdict(seen, offset)))
    assert f"Message {offset}: {words}" in shown


def test_a_partition_without_a_leader_is_shown() -> None:
    partition = Partition(index=0, leader=-1, replicas=[1], isr=[])
    seen = inspection(partition=partition, high_watermark=None, last_stable=None, epochs=[])
    shown = list(inspect_format.lines(seen, None))
    assert shown[0] == "pay-0: no leader in epoch 5, replicas 1, in sync nobody"
    assert shown[1] == "What is committed nobody tells: the leader doesn't answer."
    values = inspect_format.to_json(seen, verdict(seen, 50))
    assert (values["leader"], values["message"]["committed"]) == (None, None)


def test_brokers_that_differ_about_the_leader_are_shown() -> None:
    told = [Statement(node=1), Statement(node=2, led_by=Led(2, 4)), Statement(node=0)]
    told[0].led_by, told[2].led_by = Led(1, 5), Led(-1, 3)
    seen = inspection(replicas=told)
    shown = list(inspect_format.lines(seen, None))
    begin = shown.index("Brokers differ about who leads, and the highest epoch is right:")
    assert shown[begin + 1 :] == [
        "  0 says that nobody leads in epoch 3",
        "  2 says that 2 leads in epoch 4",
    ]
    assert inspect_format.to_json(seen, None)["brokers_differ"] == [
        {"node": 0, "leader": None, "leader_epoch": 3},
        {"node": 2, "leader": 2, "leader_epoch": 4},
    ]
    assert not any("differ" in line for line in inspect_format.lines(inspection(), None))


def test_an_inspection_for_machines() -> None:
    seen = inspection()
    values = json.loads(json.dumps(inspect_format.to_json(seen, verdict(seen, 9))))
    assert values["message"]["batch"]["leader_epoch"] == 4
    assert values["message"]["replicas"] == [
        {"node": 1, "holds": True, "read_there": True},
        {"node": 2, "holds": True, "read_there": True},
        {"node": 0, "holds": None, "read_there": False},
    ]
    assert values["epochs"][0] == {"epoch": 5, "start_offset": 10, "end_offset": 12}
    assert values["replica_states"][2]["not_told"] == ["can't connect"]
    assert "message" not in inspect_format.to_json(seen, None)


def test_partitions() -> None:
    assert inspect_partition.parse_partition("a-b-12") == ("a-b", 12)
    for wrong in ("a", "-1", "a-", "a-x", "a-99999999999"):
        with pytest.raises(CommandError, match="TOPIC-PARTITION"):
            inspect_partition.parse_partition(wrong)


# On a cluster.


@pytest.fixture(scope="module")
def filled(bootstrap: str) -> str:
    """Return the address of a cluster whose topic `offsets` has 2 records in partition 1 of 2."""
    with Driver(bootstrap) as driver:
        driver.perform(
            create_topic("offsets", partitions=2, replication_factor=1), node="controller"
        )
        wait_until(
            lambda: len(driver.metadata(["offsets"]).topics[0].partitions) == 2,
            timeout_s=30,
            what="the topic",
        )
        batch = build_batch(
            [Record(value=b"a", timestamp=1000), Record(value=b"b", timestamp=2000)]
        )
        data = PartitionProduceData(index=1, records=bytes(batch))
        topic = TopicProduceData(
            name="offsets", topic_id=driver.topic_id("offsets"), partition_data=[data]
        )
        request = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic])
        leader = driver.leader("offsets", 1, refresh=True)
        answer = driver.send(request, node=leader)
        assert answer.responses[0].partition_responses[0].error_code == 0
    return bootstrap


@pytest.mark.parametrize(
    ("options", "printed"),
    [
        ("", "offsets:0:0\noffsets:1:2\n"),
        ("--time earliest", "offsets:0:0\noffsets:1:0\n"),
        ("--time 1500", "offsets:1:1\n"),
        ("--time 2500", ""),
        ("--time max-timestamp", "offsets:1:1\n"),
        ("--partitions 1", "offsets:1:2\n"),
    ],
)
def test_offsets_of_a_cluster(run: Run, filled: str, options: str, printed: str) -> None:
    at = ["--bootstrap-server", filled]
    outcome = run("get-offsets", "--topic", "offsets", *options.split(), *at)
    assert (outcome.status, outcome.output, outcome.errors) == (0, printed, "")


def test_offsets_of_nothing(run: Run, filled: str) -> None:
    outcome = run("get-offsets", "--topic", "offset", "--bootstrap-server", filled)
    assert (outcome.status, outcome.output) == (1, "")
    assert "No partition matches. Did you mean offsets?" in outcome.errors


@pytest.mark.parametrize(
    ("offset", "standing"), [(0, "committed"), (1, "committed"), (2, "not written")]
)
def test_a_message_of_a_cluster(run: Run, filled: str, offset: int, standing: str) -> None:
    at = ["--bootstrap-server", filled]
    outcome = run("inspect", "offsets-1", "--offset", str(offset), "--json", *at)
    values = json.loads(outcome.output)
    assert (outcome.status, values["message"]["standing"]) == (0, standing)
    (replica,) = values["replica_states"]
    assert (replica["log_end"], replica["high_watermark"], replica["not_told"]) == (2, 2, [])
    if standing == "committed":
        assert values["message"]["replicas"] == [
            {"node": replica["node"], "holds": True, "read_there": True}
        ]


@pytest.mark.slow
def test_a_message_that_was_compacted_away(run: Run, bootstrap: str) -> None:
    """Goal: nobody is told that consumers can read it. Method: a key is written three times."""
    at = ["--bootstrap-server", bootstrap]
    brokers = ["configs", "--alter", "--entity-type", "brokers", "--entity-default", *at]
    with Driver(bootstrap) as driver:
        asked = create_topic(
            "compacted",
            partitions=1,
            replication_factor=1,
            configs={
                "cleanup.policy": "compact",
                "segment.ms": "1",
                "min.cleanable.dirty.ratio": "0",
            },
        )
        driver.perform(asked, node="controller")
    run(*brokers, "--add-config", "log.cleaner.backoff.ms=50")
    producer = Producer({"bootstrap.servers": bootstrap})
    for second in (1, 2, 3):  # so that each is in a segment of its own, however fast this goes
        producer.produce("compacted", key=b"k", value=b"v", timestamp=1000 * second)
        assert producer.flush(30) == 0

    def standing() -> str:
        found = run("inspect", "compacted-0", "--offset", "0", "--json", *at).output
        name: str = json.loads(found)["message"]["standing"]
        return name

    wait_until(lambda: standing() == "removed", timeout_s=60, what="a round of compaction")
    run(*brokers, "--delete-config", "log.cleaner.backoff.ms")
    shown = run("inspect", "compacted-0", "--offset", "0", *at)
    assert shown.status == 0
    assert "Message 0: removed: it was committed, and the leader's log has no" in shown.output
    assert shown.output.rstrip().endswith("doesn't have it")
    values = json.loads(run("inspect", "compacted-0", "--offset", "2", "--json", *at).output)
    assert values["message"]["standing"] == "committed"


def test_what_can_not_be_inspected(run: Run, filled: str) -> None:
    at = ["--bootstrap-server", filled]
    assert "offsets has no partition 7; it has 0 and 1." in run("inspect", "offsets-7", *at).errors
    gone = run("inspect", "offset-0", *at)
    assert (gone.status, gone.output) == (1, "")
    assert "There is no topic offset. Did you mean offsets?" in gone.errors
