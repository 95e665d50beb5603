"""reassign-partitions and delete-records on three brokers that run.

Goal: each flag does what Kafka's does, each purpose is reached, and mistakes are told in a line.
Method: the commands in this process against a cluster of processes; topics are looked at after.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from holdfast.clients import reassigning
from holdfast.clients.administration import configs_of
from holdfast.clients.blocking_driver import Driver, DriverError
from holdfast.cluster import LocalCluster
from holdfast.cluster.processes import wait_until
from holdfast.wire.administration import create_topic, reassignments
from holdfast.wire.batch import Record, build_batch
from holdfast.wire.messages import produce as producing
from holdfast.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from holdfast.wire.structs import ResourceType

if TYPE_CHECKING:
    from tests.cli.conftest import Run

pytestmark = pytest.mark.process
EXTERNAL = os.environ.get("HOLDFAST_TEST_BOOTSTRAP_3")  # brokers 0, 1 and 2 of any Kafka
BOUND_S = 30.0
NO_RATE = 2**63 - 1
ONCE = '{"topic":"t","partition":0,"replicas":[0]}'
TWICE = f'{{"partitions":[{ONCE},{ONCE}]}}'
PREFIX = f"move-{os.getpid()}"


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Brokers 0, 1 and 2."""
    if EXTERNAL:
        yield EXTERNAL
        return
    directory = tmp_path_factory.mktemp("reassign")
    with LocalCluster.create(directory, brokers=3, controllers=1, port=0) as cluster:
        cluster.start()
        yield cluster.bootstrap_servers


@pytest.fixture
def driver(brokers: str) -> Iterator[Driver]:
    with Driver(brokers) as made:
        yield made


def made(driver: Driver, name: str, *replicas: list[int]) -> str:
    """Create a topic with these replicas and wait until every broker's metadata has it."""
    topic = f"{PREFIX}-{name}"
    driver.perform(create_topic(topic, assignment=dict(enumerate(replicas))))
    wait_until(
        lambda: all(has(driver, node, topic) for node in driver.nodes()) or None,
        timeout_s=BOUND_S,
        what=f"{topic} to be known",
    )
    return topic


def has(driver: Driver, node: int, topic: str) -> bool:
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False
    )
    found = driver.send(request, node=node).topics[0]
    return not found.error_code and all(each.leader_id >= 0 for each in found.partitions)


def held(driver: Driver, topic: str) -> list[list[int]]:
    return list(reassigning.assignment(driver, [topic]).values())


def until_held(driver: Driver, topic: str, *replicas: list[int]) -> None:
    wait_until(
        lambda: held(driver, topic) == list(replicas) or None,
        timeout_s=BOUND_S,
        what=f"{topic} on {replicas}",
    )


def written(path: Path, assignment: dict[tuple[str, int], list[int]]) -> str:
    partitions = [
        {"topic": topic, "partition": partition, "replicas": replicas}
        for (topic, partition), replicas in assignment.items()
    ]
    path.write_text(json.dumps({"version": 1, "partitions": partitions}))
    return str(path)


def produce(driver: Driver, topic: str, count: int, size: int = 1) -> None:
    records = [Record(value=bytes(size), timestamp=1) for _ in range(count)]
    batch = bytes(build_batch(records))
    data = producing.PartitionProduceData(index=0, records=batch)
    request = producing.ProduceRequest(
        acks=-1,
        timeout_ms=10_000,
        topic_data=[producing.TopicProduceData(name=topic, partition_data=[data])],
    )
    leader = driver.leader(topic, 0, refresh=True)
    response = driver.send(request, node=leader, version=12)
    assert response.responses[0].partition_responses[0].error_code == 0


@pytest.mark.slow
def test_a_reassignment_from_its_file_to_its_verification(
    run: Run, brokers: str, driver: Driver, tmp_path: Path
) -> None:
    at = ["reassign-partitions", "--bootstrap-server", brokers]
    topic = made(driver, "kafka", [0, 1], [1, 2])
    (tmp_path / "topics").write_text(json.dumps({"version": 1, "topics": [{"topic": topic}]}))
    proposed = run(*at, "--generate", "--topics-to-move-json-file", str(tmp_path / "topics"),
                   "--broker-list", "0,2")  # fmt: skip
    assert proposed.status == 0, proposed.errors
    lines = proposed.output.splitlines()
    assert lines[0] == "Current partition replica assignment"
    assert lines[3] == "Proposed partition reassignment configuration"
    assert {n for each in json.loads(lines[4])["partitions"] for n in each["replicas"]} == {0, 2}
    file = tmp_path / "move"
    file.write_text(lines[4])
    target = [each["replicas"] for each in json.loads(lines[4])["partitions"]]
    given = ["--reassignment-json-file", str(file)]
    begun = run(*at, *given, "--execute", "--throttle", "1000000")
    assert begun.status == 0, begun.errors
    assert f"Successfully started partition reassignments for {topic}-0,{topic}-1" in begun.output
    assert "throttle limit was set to 1000000 B/s" in begun.output
    until_held(driver, topic, *target)
    done = run(*at, *given, "--verify")
    assert done.status == 0, done.output
    assert f"Reassignment of partition {topic}-1 is completed." in done.output
    assert "Clearing broker-level throttles on brokers 0,1,2" in done.output
    assert run(*at, "--list").output == "No partition reassignments found.\n"
    described = run("configs", "--bootstrap-server", brokers, "--describe",
                    "--entity-type", "topics", "--entity-name", topic)  # fmt: skip
    assert "throttled" not in described.output


@pytest.mark.slow
def test_more_replicas_and_fewer(run: Run, brokers: str, driver: Driver) -> None:
    at = ["reassign-partitions", "--bootstrap-server", brokers]
    topic = made(driver, "factor", [0], [1])
    produce(driver, topic, 10)
    shown = run(*at, "--topic", topic, "--replication-factor", "3", "--dry-run")
    assert [len(each["replicas"]) for each in json.loads(shown.output)["partitions"]] == [3, 3]
    more = run(*at, "--topic", topic, "--replication-factor", "3")
    assert (more.status, more.errors) == (0, "")
    assert more.output.splitlines()[-1] == f"Done: {topic}-0,{topic}-1."
    assert [sorted(each) for each in held(driver, topic)] == [[0, 1, 2], [0, 1, 2]]
    assert [each[0] for each in held(driver, topic)] == [0, 1]
    again = run(*at, "--topic", topic, "--replication-factor", "3")
    assert again.output == "Nothing has to move.\n"
    fewer = run(*at, "--topic", topic, "--replication-factor", "1", "--json")
    assert fewer.status == 0, fewer.errors
    assert {len(each["replicas"]) for each in json.loads(fewer.output)["partitions"]} == {1}
    too_many = run(*at, "--topic", topic, "--replication-factor", "4")
    assert too_many.status == 1
    assert "needs 4 brokers" in too_many.errors


@pytest.mark.slow
def test_a_broker_is_emptied(run: Run, brokers: str, driver: Driver) -> None:
    at = ["reassign-partitions", "--bootstrap-server", brokers]
    topic = made(driver, "drain", [2, 0], [0, 2])
    outcome = run(*at, "--topic", topic, "--remove-broker", "2", "--throttle", "5000000")
    assert outcome.status == 0, outcome.errors
    assert held(driver, topic) == [[1, 0], [0, 1]]
    again = run(*at, "--topic", topic, "--remove-broker", "2")
    assert again.output == "Nothing has to move.\n"
    unknown = run(*at, "--topic", topic, "--remove-broker", "2", "--remove-broker", "9")
    assert unknown.status == 1
    assert "no broker 9 is alive" in unknown.errors


@pytest.mark.slow
def test_who_arrives_first_leaves_the_others_their_throttle(
    run: Run, brokers: str, driver: Driver, tmp_path: Path
) -> None:
    """Goal: what still moves stays throttled. Method: one move is slow, others arrive beside it.

    Seen to fail: the first who had arrived, and --verify, took the rate off all brokers, and a
    second move of a topic took the first one's partitions off its list.
    """
    at = ["reassign-partitions", "--bootstrap-server", brokers]
    slow, quick = made(driver, "slow", [0], [0]), made(driver, "quick", [0])
    for _ in range(4):  # a megabyte goes in one answer, whatever the throttle says
        produce(driver, slow, 1, size=900_000)
    first = ["--reassignment-json-file", written(tmp_path / "first", {(slow, 0): [1]})]
    assert run(*at, *first, "--execute", "--throttle", "1").status == 0
    second = ["--reassignment-json-file", written(tmp_path / "second", {(slow, 1): [2]})]
    begun = run(*at, *second, "--execute", "--additional", "--throttle", "1")
    assert begun.status == 0, begun.errors
    until_throttled(driver, slow, "0:0,1:0", "0:1,1:2", 1)
    until_held(driver, slow, [1, 0], [2])
    verified = run(*at, *second, "--verify")
    assert verified.status == 0, verified.output
    assert "Throttles stay on" in verified.output
    purpose = ["--topic", quick, "--replication-factor", "2", "--additional", "--throttle", "1"]
    arrived = run(*at, *purpose)
    assert arrived.status == 0, arrived.errors
    assert "Throttles stay on" in arrived.output
    until_throttled(driver, slow, "0:0,1:0", "0:1,1:2", 1)
    assert run(*at, *first, "--verify").status == 1
    assert run(*at, "--cancel").status == 0
    until_throttled(driver, slow, "", "", NO_RATE)


@pytest.mark.slow
def test_who_waits_for_a_move_outlives_restarts(tmp_path: Path) -> None:
    """Goal: who waits for hours does not give up, and leave a throttle on, for one lost look.

    Method: both brokers die while the command waits for a slow move, and come back: it looks
    several times meanwhile. Seen to fail: the first look without an answer ended the command.
    """
    with LocalCluster.create(tmp_path, brokers=2, controllers=1, port=0) as cluster:
        cluster.start()
        with Driver(cluster.bootstrap_servers) as driver:
            topic = made(driver, "outlives", [0])
            for _ in range(4):
                produce(driver, topic, 1, size=900_000)
            at = ["reassign-partitions", "--bootstrap-server", cluster.bootstrap_servers]
            what = ["--topic", topic, "--replication-factor", "2", "--throttle", "1"]
            with subprocess.Popen(
                [sys.executable, "-m", "holdfast.cli", *at, *what],
                stdout=subprocess.PIPE,
                text=True,
            ) as command:
                assert command.stdout is not None
                for line in command.stdout:
                    if "have arrived" in line:
                        break
                for broker in (0, 1):
                    cluster.kill(broker)
                with pytest.raises(DriverError):
                    driver.perform(reassignments())
                for broker in (0, 1):
                    cluster.start_node(broker)
                reassigning.set_rates(driver, [0, 1], 1 << 30)
                said = command.stdout.read()
            assert command.returncode == 0, said
            assert "Done" in said
            until_throttled(driver, topic, "", "", NO_RATE)


def until_throttled(driver: Driver, topic: str, leader: str, follower: str, rate: int) -> None:
    """Wait until the broker that is asked has heard of it: the controller knows first."""
    wanted = {"leader": leader, "follower": follower, "rate": str(rate)}
    wait_until(
        lambda: throttled(driver, topic) == wanted or None,
        timeout_s=BOUND_S,
        what=f"{wanted} of {topic}",
    )


def throttled(driver: Driver, topic: str) -> dict[str, str | None]:
    """What of a topic is throttled, and the rate at broker 0."""
    of_topic, of_broker = (ResourceType.TOPIC, topic), (ResourceType.BROKER, "0")
    lists, rates = (
        {each.name: each.value for each in configs_of(driver, kind, [name])[name]}
        for kind, name in (of_topic, of_broker)
    )
    leader, follower = (lists[key] for key in reassigning.REPLICAS)
    return {"leader": leader, "follower": follower, "rate": rates.get(reassigning.RATES[0])}


@pytest.mark.slow
def test_a_purpose_begun_before_is_gone_on_with_and_called_back_without_a_file(
    run: Run, brokers: str, driver: Driver
) -> None:
    """Seen to fail: a second call said that nothing had to move; a file alone ended the first."""
    at = ["reassign-partitions", "--bootstrap-server", brokers]
    topic = made(driver, "twice", [0])
    for _ in range(4):  # as below
        produce(driver, topic, 1, size=900_000)
    more = [*at, "--topic", topic, "--replication-factor", "2"]
    begun = run(*more, "--throttle", "1", "--no-wait")
    assert (begun.status, begun.errors) == (0, "")
    assert "The throttle stays on until --verify clears it." in begun.output
    again = run(*more, "--throttle", "2", "--no-wait")
    assert f"set to 2 B/s\nUnder way already: {topic}-0.\n" in again.output
    unfinished = run(*at, "--verify")
    assert unfinished.status == 1
    assert f"Reassignment of partition {topic}-0 is still in progress." in unfinished.output
    arrived = run(*more, "--throttle", "100000000")
    assert (arrived.status, arrived.errors) == (0, "")
    assert arrived.output.endswith(f"Done: {topic}-0.\n")
    assert [len(each) for each in held(driver, topic)] == [2]
    assert "throttled" not in described(run, brokers, topic)

    begun = run(*at, "--topic", topic, "--replication-factor", "3", "--throttle", "1", "--no-wait")
    assert begun.status == 0, begun.errors
    called = run(*at, "--cancel", "--topic", topic)
    assert called.output.startswith(f"Successfully cancelled partition reassignment for: {topic}-0")
    assert [len(each) for each in held(driver, topic)] == [2]
    assert "throttled" not in described(run, brokers, topic)
    idle = run(*at, "--verify")
    assert idle.output.startswith("Status of partition reassignment:\n\nClearing")


def described(run: Run, brokers: str, topic: str) -> str:
    at = ["configs", "--bootstrap-server", brokers, "--describe"]
    return run(*at, "--entity-type", "topics", "--entity-name", topic).output


def test_a_move_is_called_back(run: Run, brokers: str, driver: Driver, tmp_path: Path) -> None:
    at = ["reassign-partitions", "--bootstrap-server", brokers]
    topic = made(driver, "back", [0])
    for _ in range(4):  # a megabyte goes in one answer, whatever the throttle says
        produce(driver, topic, 1, size=900_000)
    given = ["--reassignment-json-file", written(tmp_path / "move", {(topic, 0): [1]})]
    begun = run(*at, *given, "--execute", "--throttle", "1")
    assert begun.status == 0, begun.errors
    moving = json.loads(run(*at, "--list", "--json").output)
    assert [(each["topic"], each["adding"], each["removing"]) for each in moving] == [
        (topic, [1], [0])
    ]
    described = run("topics", "--bootstrap-server", brokers, "--describe", "--topic", topic)
    assert "ReplicationFactor: 1\t" in described.output
    assert "\tAdding Replicas: 1\tRemoving Replicas: 0\t" in described.output
    under = ["--describe", "--under-replicated-partitions", "--topic", topic]
    assert run("topics", "--bootstrap-server", brokers, *under).output == ""
    unfinished = run(*at, *given, "--verify")
    assert unfinished.status == 1
    assert f"Reassignment of partition {topic}-0 is still in progress." in unfinished.output
    second = run(*at, *given, "--execute")
    assert second.status == 1
    assert "--additional" in second.errors
    called = run(*at, *given, "--cancel")
    said = f"Successfully cancelled partition reassignment for: {topic}"
    assert called.output.startswith(said)
    until_held(driver, topic, [0])
    idle = run(*at, *given, "--cancel")
    assert idle.output.startswith("None of the specified partition moves are active.")


def test_records_are_deleted(run: Run, brokers: str, driver: Driver, tmp_path: Path) -> None:
    at = ["delete-records", "--bootstrap-server", brokers]
    topic = made(driver, "delete", [0, 1, 2])
    produce(driver, topic, 10)
    file = tmp_path / "offsets"
    file.write_text(
        json.dumps({"version": 1, "partitions": [{"topic": topic, "partition": 0, "offset": 4}]})
    )
    outcome = run(*at, "--offset-json-file", str(file))
    assert (outcome.status, outcome.output) == (
        0,
        f"Records delete operation completed:\npartition: {topic}-0\tlow_watermark: 4\n",
    )
    beyond = run(*at, "--topic", topic, "--partition", "0", "--before-offset", "11")
    assert beyond.status == 1
    assert "OFFSET_OUT_OF_RANGE: less is committed than 11" in beyond.output
    everything = run(*at, "--topic", topic, "--all", "--json")
    assert json.loads(everything.output) == [
        {"topic": topic, "partition": 0, "low_watermark": 10, "error": None}
    ]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["reassign-partitions"], "Say what to do"),
        (["reassign-partitions", "--list", "--spread"], "Say what to do"),
        (["reassign-partitions", "--execute"], "--execute takes --reassignment-json-file FILE"),
        (["reassign-partitions", "--replication-factor", "2"], "of which topics?"),
        (["reassign-partitions", "--generate"], "--topics-to-move-json-file"),
        (["reassign-partitions", "--verify", "--reassignment-json-file", "/nowhere"], "No such"),
        (["delete-records"], "Say which"),
        (["delete-records", "--topic", "t"], "--all, or"),
        (["delete-records", "--topic", "t", "--before-offset", "3"], "--partition N"),
        (["delete-records", "--offset-json-file", "/nowhere"], "No such file"),
        (["topics", "--create", "--topic", "t", "--partitions", str(1 << 31)], "larger than"),
        (["cluster", "unregister", "--id", str(1 << 31)], "larger than the protocol can carry"),
    ],
)
def test_mistakes_are_told(run: Run, brokers: str, arguments: list[str], said: str) -> None:
    outcome = run(*arguments, "--bootstrap-server", brokers)
    assert outcome.status == 2
    assert said in outcome.errors


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "is wanted"),
        ("[]", "is wanted"),
        ('{"partitions":[]}', "names no partition"),
        ('{"partitions":[{"topic":"t","partition":0}]}', "is wanted"),
        (TWICE, "t-0 twice"),
        ('{"partitions":[{"topic":"t","partition":0,"replicas":[1.5]}]}', "is wanted"),
        ('{"partitions":[{"topic":"t","partition":0,"replicas":[0],"log_dirs":["/d"]}]}',
         "a broker chooses the directory itself"),
    ],
)  # fmt: skip
def test_files_that_are_wrong(run: Run, brokers: str, tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "file").write_text(text)
    outcome = run("reassign-partitions", "--bootstrap-server", brokers, "--execute",
                  "--reassignment-json-file", str(tmp_path / "file"))  # fmt: skip
    assert outcome.status == 2
    assert said in outcome.errors
