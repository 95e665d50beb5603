"""Groups move between an unmodified Apache Kafka broker and ours, and lose nothing on the way.

Goal: what we write of groups and offsets Apache Kafka's coordinator loads and serves, and the other
way round; members stay members when their coordinator is another kind of broker; kafka-dump-log
reads our records. Method: real processes in one cluster, each broker with a replica of all groups;
light members that go on, and librdkafka that asks. (Apache Kafka serves members of KIP-848 only
where the feature group.version is finalized: of their group it loads the records and the offsets.)
"""

from __future__ import annotations

import asyncio
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from tests.cluster.waiting import live_brokers, wait_for_isr, wait_for_leader
from tests.group_clients.members import Committed, Librdkafka

from holdfast.clients.blocking_driver import Driver
from holdfast.clients.group_coordinators import Coordinators
from holdfast.clients.group_member.light_classic import ClassicMember
from holdfast.clients.group_member.light_client import LightClient
from holdfast.clients.group_member.light_consumer import ConsumerMember
from holdfast.clients.group_member.light_crowd import Crowd, is_whole, topics_of
from holdfast.clients.group_member.light_member import Partition, Plan, Topic
from holdfast.cluster import LocalCluster
from holdfast.cluster.ports import free_ports
from holdfast.cluster.processes import wait_until
from holdfast.node.coordinator.offsets_topic import GROUP_OFFSETS
from holdfast.wire.administration import create_topic

pytestmark = [pytest.mark.apache, pytest.mark.slow, pytest.mark.timeout(400)]

KAFKA = Path(__file__).resolve().parents[2] / "scripts" / "apache" / "kafka.sh"
THEIRS = 5
PATIENCE_S = 90
SHARDS = 3
PARTITIONS = 6
GROUPS = [f"alone-{number}" for number in range(9)]
CONFIG = {
    "offsets.topic.num.partitions": str(SHARDS),
    "offsets.topic.replication.factor": "2",
    "group.initial.rebalance.delay.ms": "0",
}


@contextmanager
def kafka(directory: Path, cluster: LocalCluster, port: int) -> Iterator[subprocess.Popen[bytes]]:
    """A broker of Apache Kafka in our cluster; on what it has in its directory."""
    directory.mkdir(exist_ok=True)
    controller = cluster.node(cluster.controller_ids[0])
    properties = directory / "server.properties"
    properties.write_text(
        f"process.roles=broker\nnode.id={THEIRS}\n"
        f"listeners=PLAINTEXT://127.0.0.1:{port}\n"
        "controller.listener.names=CONTROLLER\n"
        "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT\n"
        f"controller.quorum.voters={controller.id}@{controller.host}:{controller.port}\n"
        f"log.dirs={directory / 'data'}\n"
        + "".join(f"{name}={value}\n" for name, value in CONFIG.items())
    )
    subprocess.run(
        [KAFKA, "format", "--ignore-formatted", "-t", cluster.cluster_id, "-c", properties],
        capture_output=True,
        timeout=60,
        check=True,
    )
    with (directory / "kafka.log").open("wb") as log:
        process = subprocess.Popen([KAFKA, "run", properties], stdout=log, stderr=log)
    try:
        wait_until(
            lambda: THEIRS in live_brokers(cluster),
            timeout_s=PATIENCE_S,
            what="Kafka to be unfenced",
        )
        yield process
    finally:
        process.kill()
        process.wait()


def wait_for_shards(cluster: LocalCluster, *isr: int) -> None:
    """Wait until exactly these have all that is known of groups, and one of them leads it."""
    for shard in range(SHARDS):
        wait_for_isr(cluster, GROUP_OFFSETS, shard, isr)
        wait_for_leader(cluster, GROUP_OFFSETS, shard)


def coordinators(bootstrap: str, groups: list[str]) -> set[int]:
    with Driver(bootstrap) as driver:
        found = Coordinators(driver, patience_s=PATIENCE_S)
        found.ask(groups, lambda _, some: dict.fromkeys(some))
        return {found.of(group).node for group in groups}


def commit_alone(bootstrap: str, offset: int) -> None:
    """Commit for groups without members, each its own offsets."""
    for number, group in enumerate(GROUPS):
        member = Librdkafka(bootstrap, group, "classic", {})
        try:
            member.commit({("t", number % PARTITIONS): Committed(offset + number, f"m{number}")})
        finally:
            member.close()


def check_alone(bootstrap: str, offset: int) -> None:
    for number, group in enumerate(GROUPS):
        member = Librdkafka(bootstrap, group, "classic", {})
        try:
            found = member.committed(("t", number % PARTITIONS))
            assert found == Committed(offset + number, f"m{number}")
        finally:
            member.close()


def check_modern(bootstrap: str) -> None:
    """The group of the other protocol, whose members were killed, has what they committed."""
    member = Librdkafka(bootstrap, "modern", "classic", {})
    try:
        for index in range(PARTITIONS):
            assert member.committed(("t", index)) == Committed(77, "")
    finally:
        member.close()


async def go_on(crowd: Crowd, topics: tuple[Topic, ...], offset: int) -> None:
    """Have each group of the crowd be whole, commit, and have what it has committed."""
    for group in {each.plan.group_id for each in crowd.members}:
        clients = [each for each in crowd.clients if each.member.plan.group_id == group]
        members = [each.member for each in clients]
        await crowd.until(partial(is_whole, members, topics), f"{group} to be whole")
        offsets: dict[Partition, int] = {}

        async def committed(
            clients: list[LightClient] = clients, offsets: dict[Partition, int] = offsets
        ) -> bool:
            for client in clients:
                mine = dict.fromkeys(client.member.assignment, offset)
                try:
                    if await client.commit(mine):
                        return False
                except OSError:
                    return False
                offsets.update(mine)
            return True

        for _ in range(600):
            if await committed():
                break
            await asyncio.sleep(0.1)
        assert await clients[0].committed(offsets) == (offsets, 0)


def test_groups_move_to_apache_kafka_and_back(tmp_path: Path, kafka_tools: Path) -> None:
    assert kafka_tools
    with LocalCluster.create(tmp_path / "ours", brokers=1, port=0, config=CONFIG) as cluster:
        cluster.start()
        (port,) = free_ports(1)
        (ours,) = cluster.broker_ids
        entry = cluster.node(ours)
        with kafka(tmp_path / "theirs", cluster, port) as theirs:
            both = f"{cluster.bootstrap_servers},127.0.0.1:{port}"
            with Driver(cluster.bootstrap_servers) as driver:
                asked = create_topic("t", partitions=PARTITIONS, replication_factor=2)
                driver.perform(asked, node="controller")
                topics = topics_of(driver, ["t"])
            assert coordinators(both, GROUPS) == {ours, THEIRS}, "each keeps some of them"
            wait_for_shards(cluster, ours, THEIRS)
            commit_alone(both, 100)
            asyncio.run(
                _story(cluster, theirs, tmp_path, port, topics, (entry.host, entry.port), both)
            )
        check_alone(cluster.bootstrap_servers, 300)
        _dump(cluster)


async def _story(
    cluster: LocalCluster,
    theirs: subprocess.Popen[bytes],
    tmp_path: Path,
    port: int,
    topics: tuple[Topic, ...],
    place: tuple[str, int],
    both: str,
) -> None:
    (ours,) = cluster.broker_ids

    def plan(group: str) -> Plan:
        return Plan(
            group_id=group,
            topics=topics,
            session_timeout_ms=45_000,
            rebalance_timeout_ms=60_000,
            heartbeat_ms=500,
        )

    async with Crowd() as crowd:
        members = [
            ClassicMember(plan(f"classic-{number}")) for number in range(4) for _ in range(2)
        ]
        await crowd.start([LightClient(each, place, "light") for each in members])
        await go_on(crowd, topics, 1)
        before = {each: each.member_id for each in members}

        theirs.terminate()  # all groups are ours now
        await asyncio.to_thread(theirs.wait, PATIENCE_S)
        await asyncio.to_thread(wait_for_shards, cluster, ours)
        await go_on(crowd, topics, 2)
        async with Crowd() as modern:
            some = [ConsumerMember(plan("modern"), str(uuid.uuid4())) for _ in range(2)]
            await modern.start([LightClient(each, place, "light") for each in some])
            await go_on(modern, topics, 77)
        await asyncio.to_thread(check_alone, cluster.bootstrap_servers, 100)
        await asyncio.to_thread(commit_alone, cluster.bootstrap_servers, 200)

        with kafka(tmp_path / "theirs", cluster, port):
            await asyncio.to_thread(wait_for_shards, cluster, ours, THEIRS)
            await asyncio.to_thread(cluster.kill, ours, "TERM")  # all groups are theirs now
            await asyncio.to_thread(check_alone, f"127.0.0.1:{port}", 200)
            await asyncio.to_thread(check_modern, f"127.0.0.1:{port}")
            await asyncio.to_thread(commit_alone, f"127.0.0.1:{port}", 300)
            await asyncio.to_thread(cluster.start_node, ours)
            await go_on(crowd, topics, 3)
            await asyncio.to_thread(wait_for_shards, cluster, ours, THEIRS)
            assert await asyncio.to_thread(coordinators, both, GROUPS) <= {ours, THEIRS}
            await asyncio.to_thread(check_alone, both, 300)
        await asyncio.to_thread(wait_for_shards, cluster, ours)
        await go_on(crowd, topics, 4)
        assert {each: each.member_id for each in members} == before, "none was let in anew"


def _dump(cluster: LocalCluster) -> None:
    """Have Kafka's own tool read what lies on our disk."""
    files = sorted(
        path
        for path in cluster.directory.rglob("*.log")
        if path.parent.name.startswith(f"{GROUP_OFFSETS}-")
    )
    assert len(files) >= SHARDS
    done = subprocess.run(
        [KAFKA, "dump-log", "--offsets-decoder", "--files", ",".join(map(str, files))],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "isvalid: false" not in done.stdout
    assert "Failed to decode" not in done.stdout
    for group in GROUPS:
        assert f'"group":"{group}"' in done.stdout
    assert '"protocolType":"consumer"' in done.stdout, "groups of the classic protocol"
    assert '"subscribedTopicNames":["t"]' in done.stdout, "and members of the other"
