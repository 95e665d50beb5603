"""Goal: what a broker of ours leaves on disk of groups and of compacted topics is Kafka's own.

Method: one node of ours with groups of every kind, all written by us alone; some are deleted, and
their topic is compacted. kafka-dump-log reads it, its offsets, members and compacted segments. Then
an unmodified Apache Kafka starts on a copy of the directory: what was committed it serves, to the
word; members join the groups again, and read on from there.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from tests.apache.conftest import wait_until_served
from tests.group_clients.members import CLIENTS, Committed, Member, close_all, read, share, until
from tests.group_clients.records import produce

from holdfast.clients.blocking_driver import Driver
from holdfast.cluster import LocalCluster
from holdfast.cluster.processes import wait_until
from holdfast.config.figures import COMPACTION_ROUNDS
from holdfast.wire.administration import create_topic

pytestmark = [pytest.mark.apache, pytest.mark.slow, pytest.mark.timeout(400)]

KAFKA: Final = Path(__file__).resolve().parents[2] / "scripts" / "apache" / "kafka.sh"
BOUND_S: Final = 90.0
SHARDS: Final = 3
PARTITIONS: Final = 4
ALONE: Final = [f"alone-{number}" for number in range(12)]
GONE: Final = ALONE[::4]
CONFIG: Final = {
    "offsets.topic.num.partitions": str(SHARDS),
    "offsets.topic.replication.factor": "1",
    "log.cleaner.backoff.ms": "50",
    "log.cleaner.min.cleanable.ratio": "0.01",
}
COMPACTED: Final = {
    "cleanup.policy": "compact",
    "segment.ms": "50",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "100",
}
KEYS: Final = 20
LIBRDKAFKA: Final = {each.protocol: each for each in CLIENTS if each.name.startswith("librdkafka")}


class Story:
    """One node, and what is known of it: whoever asks later must be told the same."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.cluster = cluster
        self.committed: dict[str, dict[tuple[str, int], Committed]] = {}
        self.latest: dict[bytes, bytes | None] = {}
        self.members: dict[str, list[Member]] = {}

    @property
    def bootstrap(self) -> str:
        return self.cluster.bootstrap_servers

    def commit_alone(self) -> None:
        """Commit twice for groups without members, and delete some of them."""
        for number, group in enumerate(ALONE):
            member = LIBRDKAFKA["classic"].member(self.bootstrap, group)
            for offset in (1, 7 + number):
                self.committed[group] = {
                    ("t", part): Committed(offset + part, f"words of {group}, déjà vu")
                    for part in range(PARTITIONS)
                }
                member.commit(self.committed[group])
            member.close()
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        for group, done in admin.delete_consumer_groups(GONE).items():
            done.result(BOUND_S)
            del self.committed[group]

    def join(self, protocol: str) -> None:
        """Have two members share a topic, read ten of each partition, and commit four."""
        group = topic = f"members-{protocol}"
        members = [LIBRDKAFKA[protocol].member(self.bootstrap, group) for _ in range(2)]
        self.members[protocol] = members
        for member in members:
            member.subscribe(topic)
        share(members, [(topic, part) for part in range(PARTITIONS)])
        produce(self.bootstrap, topic, dict.fromkeys(range(PARTITIONS), 10))
        read(members, 10 * PARTITIONS)
        self.committed[group] = {}
        for member in members:
            mine = {partition: Committed(4, group) for partition in member.assignment()}
            member.commit(mine)
            self.committed[group] |= mine

    def write_keys(self, rounds: int) -> None:
        """Write all keys again and again, some without a value, by each codec."""
        for number in range(rounds):
            codec = ("none", "gzip", "snappy", "lz4", "zstd")[number % 5]
            producer = Producer({"bootstrap.servers": self.bootstrap, "compression.type": codec})
            for key in range(KEYS):
                name = b"k%d" % key
                value = None if key % 7 == number % 7 else b"%d of %d " % (number, key) * 9
                producer.produce("c", value, name, partition=0)
                self.latest[name] = value
            assert producer.flush(BOUND_S) == 0

    def compact(self) -> None:
        """Write keys until each log that compacts had its turn, those of groups too."""
        self.write_keys(20)

        def rounds() -> int:
            (node,) = self.cluster.status().nodes
            return int(node.figures.get(COMPACTION_ROUNDS) or 0)

        before = rounds()

        def is_done() -> bool:
            self.write_keys(1)
            return rounds() > before + 2 * (SHARDS + 1)

        wait_until(is_done, timeout_s=BOUND_S, what="rounds of compaction")

    def files(self, topic: str, suffix: str = ".log") -> list[Path]:
        """Return the files of a topic's segments, oldest first."""
        found = self.cluster.directory.rglob(f"*{suffix}")
        return sorted(path for path in found if re.fullmatch(rf"{topic}-\d+", path.parent.name))

    def check_committed(self) -> None:
        """Hold what is served against what was committed: to the word, and no group more."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        for group, offsets in self.committed.items():
            asked = [ConsumerGroupTopicPartitions(group)]
            found = admin.list_consumer_group_offsets(asked)[group].result(BOUND_S)
            told = {
                (each.topic, each.partition): Committed(each.offset, each.metadata or "")
                for each in found.topic_partitions
            }
            assert told == offsets, group
        listed = {each.group_id for each in admin.list_consumer_groups().result(BOUND_S).valid}
        assert listed == set(self.committed)


@pytest.fixture(scope="module")
def story(kafka_tools: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    """What a node left that was killed, with members in its groups; they look for it."""
    assert kafka_tools == KAFKA
    directory = tmp_path_factory.mktemp("group-files") / "ours"
    with LocalCluster.create(directory, brokers=1, combined=True, port=0, config=CONFIG) as cluster:
        cluster.start()
        with Driver(cluster.bootstrap_servers) as driver:
            for name in ("t", *(f"members-{protocol}" for protocol in LIBRDKAFKA)):
                asked = create_topic(name, partitions=PARTITIONS, replication_factor=1)
                driver.perform(asked, node="controller")
            asked = create_topic("c", partitions=1, replication_factor=1, configs=COMPACTED)
            driver.perform(asked, node="controller")
        told = Story(cluster)
        told.commit_alone()
        alter_topic(told.bootstrap, "__consumer_offsets", COMPACTED)
        try:
            for protocol in LIBRDKAFKA:
                told.join(protocol)
            told.compact()
            told.check_committed()
            cluster.kill(cluster.broker_ids[0])
            yield told
        finally:
            close_all([member for pair in told.members.values() for member in pair])


def alter_topic(bootstrap: str, topic: str, configs: dict[str, str]) -> None:
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        for name, value in configs.items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for done in admin.incremental_alter_configs([resource]).values():
        done.result(BOUND_S)


def dumped(files: Sequence[Path], *flags: str) -> str:
    """Let kafka-dump-log read files; it must have nothing to say against them."""
    done = subprocess.run(
        [KAFKA, "dump-log", *flags, "--files", ",".join(map(str, files))],
        capture_output=True,
        text=True,
        timeout=BOUND_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for bad in ("isvalid: false", "Failed to decode", "Exception", "Found invalid", "Mismatches"):
        assert bad not in done.stdout + done.stderr
    return done.stdout


def decoded(text: str) -> list[tuple[str, dict[str, Any], dict[str, Any] | None]]:
    """Return what --offsets-decoder shows: kind, key, and value unless it is a tombstone."""
    found = []
    for line in text.splitlines():
        match = re.search(r"key: (\{.*?\}) payload: (.*)$", line)
        if match is None:
            continue
        key = json.loads(match[1])
        value = None if match[2] in ("<DELETE>", "null") else json.loads(match[2])
        found.append((str(key["type"]), key["data"], value and value["data"]))
    return found


def test_dump_log_decodes_offsets_and_members_of_both_kinds(story: Story) -> None:
    files = story.files("__consumer_offsets")
    assert len(files) > SHARDS, "more than one segment"
    records = decoded(dumped(files, "--offsets-decoder"))
    latest = {(kind, json.dumps(key)): value for kind, key, value in records}
    offsets: dict[str, dict[tuple[str, int], Committed]] = {}
    for (kind, words), value in latest.items():
        key = json.loads(words)
        if kind in ("0", "1") and value is not None:
            offsets.setdefault(key["group"], {})[key["topic"], key["partition"]] = Committed(
                value["offset"], value["metadata"].rstrip("\0")
            )
    assert offsets == story.committed

    classic = [value for (kind, key), value in latest.items() if kind == "2" and value is not None]
    (group,) = [value for value in classic if value["members"]]
    assert (group["protocolType"], group["protocol"], len(group["members"])) == (
        "consumer", "range", 2,
    )  # fmt: skip
    assert {member["clientId"] for member in group["members"]} == {"rdkafka"}

    kinds = {kind for (kind, key), value in latest.items() if "members-consumer" in key and value}
    assert {"3", "5", "6", "7", "8"} <= kinds, "epoch, member, target of both, and current"
    told = [value for (kind, key), value in latest.items() if kind == "5" and value is not None]
    assert [value["classicMemberMetadata"] for value in told] == [None, None]
    epochs = [
        epoch
        for (kind, _), value in latest.items()
        if kind == "8" and value is not None
        for topic in value["assignedPartitions"]
        for _, epoch in zip(topic["partitions"], topic["assignmentEpochs"], strict=True)
    ]
    assert len(epochs) == PARTITIONS
    assert min(epochs) > 0


def test_dump_log_reads_compacted_segments(story: Story) -> None:
    files = story.files("c")
    text = dumped(files, "--deep-iteration", "--print-data-log")
    offsets = [int(each) for each in re.findall(r"^\| offset: (\d+)", text, re.MULTILINE)]
    assert offsets == sorted(set(offsets))
    assert len(offsets) < offsets[-1] // 2, "most are gone"
    latest: dict[bytes, bytes | None] = dict.fromkeys(story.latest)
    for key, value in re.findall(r" key: (k\d+)(?: payload: (.*))?$", text, re.MULTILINE):
        latest[key.encode()] = value.encode() if value else None
    assert latest == story.latest
    assert "deleteHorizonMs" in text
    dumped(story.files("__consumer_offsets"))
    dumped(story.files("c", ".index"), "--index-sanity-check")
    dumped(story.files("c", ".timeindex"))


@contextmanager
def their_broker(story: Story, directory: Path) -> Iterator[None]:
    """An Apache Kafka on a copy of the node's directory, at its addresses."""
    (node,) = story.cluster.nodes
    shutil.copytree(story.cluster.directory, directory)
    properties = next(directory.rglob("server.properties"))
    text = properties.read_text()
    assert str(story.cluster.directory) in text
    properties.write_text(text.replace(str(story.cluster.directory), str(directory)))
    with (directory / "kafka.log").open("wb") as log:
        process = subprocess.Popen([KAFKA, "run", properties], stdout=log, stderr=log)
    try:
        wait_until_served(f"{node.host}:{node.port}")
        yield
    finally:
        process.kill()
        process.wait()


NO_EPOCHS: Final = "Size of assignment epochs"
"""What it logs of a member's partitions that have no epochs (KIP-1251), and then goes on."""


def test_apache_kafka_serves_a_copy_of_the_directory(story: Story, tmp_path: Path) -> None:
    """Its members find the other broker in its place, and read on from what they have committed.

    It has nothing to say against the records that it has loaded.
    """
    with their_broker(story, tmp_path / "theirs"):
        wait_for_groups(story)
        assert NO_EPOCHS not in (tmp_path / "theirs" / "kafka.log").read_text()
        story.check_committed()
        new = {(part, offset) for part in range(PARTITIONS) for offset in range(10, 15)}
        for protocol, members in story.members.items():
            topic, seen = f"members-{protocol}", set[tuple[int, int]]()
            produce(story.bootstrap, topic, dict.fromkeys(range(PARTITIONS), 5), first=10)

            def is_read(members: list[Member] = members, seen: set[tuple[int, int]] = seen) -> bool:
                for member in members:
                    seen.update((each.partition, each.offset) for each in member.poll())
                return new <= seen

            until(is_read, [], f"the members of {protocol} to read on")
            again_read = sorted(one for one in seen if one[1] < 4)
            assert not again_read, f"{protocol}: what was committed is not read again"
            close_all(members)
            again = LIBRDKAFKA[protocol].member(story.bootstrap, topic)
            again.subscribe(topic)
            wanted = [(part, offset) for part in range(PARTITIONS) for offset in range(4, 15)]
            (given,) = read([again], len(wanted)).values()
            assert sorted((each.partition, each.offset) for each in given) == wanted
            again.close()


def wait_for_groups(story: Story) -> None:
    """Wait until the coordinator has loaded what lies there."""
    admin = AdminClient({"bootstrap.servers": story.bootstrap})

    def is_loaded() -> bool:
        found = admin.list_consumer_groups().result(BOUND_S)
        return not found.errors and len(found.valid) == len(story.committed)

    wait_until(is_loaded, timeout_s=BOUND_S, what="the groups")
