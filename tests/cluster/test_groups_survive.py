"""Groups and what they commit outlive the brokers that keep them.

Goal: no commit that was acknowledged is lost nor goes back, whoever is killed or stopped; a group
goes on without its coordinator, and a coordinator that stood still for longer than all sessions
costs no member its place. Method: three brokers as processes, and one; members of both protocols,
and librdkafka's, that commit as fast as they are answered; SIGKILL, SIGTERM, SIGSTOP.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from tests.group_clients.members import Committed, Librdkafka, Member, close_all, share

from holdfast.clients.blocking_driver import Driver
from holdfast.clients.group_coordinators import Coordinators
from holdfast.clients.group_member.light_classic import ClassicMember
from holdfast.clients.group_member.light_client import LightClient
from holdfast.clients.group_member.light_consumer import ConsumerMember
from holdfast.clients.group_member.light_crowd import Crowd, is_whole, topics_of
from holdfast.clients.group_member.light_member import LightMember, Partition, Plan, Topic
from holdfast.cluster import LocalCluster
from holdfast.wire.administration import create_topic
from holdfast.wire.batch import batches, read_records
from holdfast.wire.records.group_records import decode_key, decode_value
from holdfast.wire.records.group_tables import OffsetCommitKey

pytestmark = [
    pytest.mark.turns,
    pytest.mark.process,
    pytest.mark.serial("groups"),
    pytest.mark.slow,
    pytest.mark.timeout(300),
]

PARTITIONS = 20
MEMBERS = 4
SESSION_MS = 6000
HEARTBEAT_MS = 500
ACKNOWLEDGED = 30  # commits that a test waits for, of each member
CONFIG = {
    "offsets.topic.num.partitions": "3",
    "group.initial.rebalance.delay.ms": "0",
    "min.insync.replicas": "2",
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    made = LocalCluster.create(tmp_path / "cluster", brokers=3, port=0, config=CONFIG)
    made.start()
    yield made
    made.down()


def topics(cluster: LocalCluster, name: str, factor: int = 3) -> tuple[Topic, ...]:
    with Driver(cluster.bootstrap_servers) as driver:
        asked = create_topic(name, partitions=PARTITIONS, replication_factor=factor)
        driver.perform(asked, node="controller")
        return topics_of(driver, [name])


def coordinator_of(cluster: LocalCluster, group: str) -> int:
    """Return the broker that keeps a group, once there is one."""
    with Driver(cluster.bootstrap_servers) as driver:
        coordinators = Coordinators(driver, patience_s=60)
        coordinators.ask([group], lambda _, groups: dict.fromkeys(groups))
        return coordinators.of(group).node


def classic(plan: Plan) -> LightMember:
    return ClassicMember(plan)


def consumer(plan: Plan) -> LightMember:
    return ConsumerMember(plan, str(uuid.uuid4()))


@dataclass
class Ledger:
    """What was committed, as far as clients know: offsets grow by one with each commit."""

    next: int = 0
    acknowledged: dict[Partition, int] = field(default_factory=dict)
    counts: dict[LightClient, int] = field(default_factory=dict)

    async def commit(self, client: LightClient) -> None:
        """Commit for a member's partitions for as long as it takes part."""
        self.counts[client] = 0
        while True:
            owned = client.member.assignment
            if not owned:
                await asyncio.sleep(0.02)
                continue
            self.next += 1
            offset = self.next
            try:
                async with asyncio.timeout(20):
                    refused = await client.commit(dict.fromkeys(owned, offset))
            except OSError:  # nobody knows whether it is there
                await asyncio.sleep(0.02)
                continue
            for partition in owned - refused.keys():
                before = self.acknowledged.get(partition, -1)
                self.acknowledged[partition] = max(before, offset)
            if not refused:
                self.counts[client] += 1

    async def check(self, client: LightClient) -> None:
        """Fail if the group has less than what was acknowledged before it was asked."""
        expected = dict(self.acknowledged)
        found, code = await client.committed(expected)
        assert code == 0
        for partition, offset in expected.items():
            assert offset <= found.get(partition, -1) <= self.next, partition


@dataclass
class Group:
    """A crowd of one group whose members commit."""

    crowd: Crowd
    clients: list[LightClient]
    topics: tuple[Topic, ...]
    ledger: Ledger = field(default_factory=Ledger)

    async def settle(self) -> None:
        await self.crowd.until(lambda: is_whole(self.crowd.members, self.topics), "all to share")

    async def commit_more(self) -> None:
        """Wait until each has been acknowledged so often again, and see that all is there."""
        wanted = {each: count + ACKNOWLEDGED for each, count in self.ledger.counts.items()}
        await self.crowd.until(
            lambda: all(self.ledger.counts[each] >= count for each, count in wanted.items()),
            "members to commit again",
        )
        await self.ledger.check(self.clients[0])


def played(
    cluster: LocalCluster,
    make: Callable[[Plan], LightMember],
    *interruptions: Callable[[int], None],
) -> Ledger:
    """Let a group commit through interruptions, each told who its coordinator is."""
    found = topics(cluster, "t")
    group_id = f"g-{make.__name__}"
    node = coordinator_of(cluster, group_id)
    # Members look for their coordinator at a broker that is not it: it lives the longest.
    entry = cluster.node(next(each for each in cluster.broker_ids if each != node))

    async def main() -> Ledger:
        plan = Plan(
            group_id=group_id,
            topics=found,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=SESSION_MS,
            heartbeat_ms=HEARTBEAT_MS,
        )
        async with Crowd() as crowd, asyncio.TaskGroup() as tasks:
            place = (entry.host, entry.port)
            clients = [LightClient(make(plan), place, "light") for _ in range(MEMBERS)]
            group = Group(crowd, clients, found)
            await crowd.start(clients)
            await group.settle()
            running = [tasks.create_task(group.ledger.commit(each)) for each in clients]
            await asyncio.sleep(0)
            await group.commit_more()
            for interrupt in interruptions:
                await asyncio.to_thread(interrupt, node)
                await group.settle()
                await group.commit_more()
            for task in running:
                task.cancel()
            return group.ledger

    return asyncio.run(main())


# -- light members -------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [classic, consumer])
def test_a_group_outlives_its_coordinator(
    cluster: LocalCluster, make: Callable[[Plan], LightMember]
) -> None:
    """It is killed, comes back, and is stopped in good order: its groups move each time."""

    def killed(node: int) -> None:
        cluster.kill(node)

    def back_and_stopped(node: int) -> None:
        cluster.start_node(node)
        now = coordinator_of(cluster, f"g-{make.__name__}")
        cluster.kill(now if now == node else node, "TERM")

    ledger = played(cluster, make, killed, back_and_stopped)
    assert len(ledger.acknowledged) == PARTITIONS


def test_what_was_committed_is_there_when_all_brokers_were_killed(cluster: LocalCluster) -> None:
    ledger = played(cluster, classic)
    for node in cluster.broker_ids:
        cluster.kill(node)
    for node in cluster.broker_ids:
        cluster.start_node(node, wait=False)
    cluster.wait_ready()
    coordinator_of(cluster, "g-classic")
    member = Librdkafka(cluster.bootstrap_servers, "g-classic", "classic", {})
    try:
        for partition, offset in ledger.acknowledged.items():
            found = member.committed(partition)
            assert found is not None
            assert offset <= found.offset <= ledger.next
    finally:
        member.close()


# -- librdkafka ----------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_commits_of_librdkafka_outlive_their_coordinator(
    cluster: LocalCluster, protocol: str
) -> None:
    topics(cluster, "t")
    node = coordinator_of(cluster, "rd")
    members: list[Member] = [
        Librdkafka(cluster.bootstrap_servers, "rd", protocol, {}) for _ in range(2)
    ]
    try:
        for member in members:
            member.subscribe("t")
        share(members, {("t", index) for index in range(PARTITIONS)})
        acknowledged: dict[Partition, int] = {}
        offset = _committed(members, acknowledged, 0)
        cluster.kill(node)
        offset = _committed(members, acknowledged, offset)
        for partition, least in acknowledged.items():
            found = members[0].committed(partition)
            assert found is not None
            assert least <= found.offset <= offset
        assert len(acknowledged) == PARTITIONS
    finally:
        close_all(members)


def _committed(members: list[Member], acknowledged: dict[Partition, int], offset: int) -> int:
    """Commit until each member was acknowledged some times; return the last offset."""
    counts = dict.fromkeys(members, 0)
    while min(counts.values()) < 10:
        for member in members:
            member.poll(0.01)
            owned = member.assignment()
            if not owned:
                continue
            offset += 1
            with suppress(KafkaException):  # nobody knows whether it is there
                member.commit(dict.fromkeys(owned, Committed(offset, "")))
                counts[member] += 1
                acknowledged.update(dict.fromkeys(owned, offset))
    return offset


def _written(directory: Path) -> str:
    """Return what a coordinator has written of groups, offsets aside: who had to go, and when."""
    found = []
    for path in sorted(directory.rglob("__consumer_offsets-*/*.log")):
        view = memoryview(path.read_bytes())
        for at, _ in batches(view):
            for record in read_records(view[at:]):
                key = decode_key(record.key or b"")
                if not isinstance(key, OffsetCommitKey):
                    value = record.value and decode_value(key, record.value)
                    found.append((record.timestamp, f"{key} -> {value}"))
    return "\n".join(f"{timestamp} {text}" for timestamp, text in sorted(found)[-80:])


# -- a broker that stands still ------------------------------------------------------------------


@pytest.mark.parametrize("make", [classic, consumer])
def test_a_coordinator_that_stood_still_costs_no_member_its_place(
    tmp_path: Path, make: Callable[[Plan], LightMember]
) -> None:
    config = CONFIG | {"min.insync.replicas": "1", "offsets.topic.replication.factor": "1"}
    alone = LocalCluster.create(tmp_path / "alone", brokers=1, port=0, combined=True, config=config)
    alone.start()
    try:
        found = topics(alone, "t", factor=1)
        coordinator_of(alone, "g")
        (node,) = alone.nodes

        async def main() -> None:
            plan = Plan(
                group_id="g",
                topics=found,
                session_timeout_ms=SESSION_MS,
                rebalance_timeout_ms=SESSION_MS,
                heartbeat_ms=HEARTBEAT_MS,
                answer_ms=60_000,
            )
            async with Crowd() as crowd:
                place = (node.host, node.port)
                clients = [LightClient(make(plan), place, "light") for _ in range(20)]
                await crowd.start(clients)
                await crowd.until(lambda: is_whole(crowd.members, found), "all to share")
                before = {each: (each.member_id, each.epoch) for each in crowd.members}
                await asyncio.to_thread(alone.kill, node.id, "STOP")
                await asyncio.sleep(2.5 * SESSION_MS / 1000)
                await asyncio.to_thread(alone.kill, node.id, "CONT")
                ledger = Ledger()
                async with asyncio.TaskGroup() as tasks:
                    running = [tasks.create_task(ledger.commit(each)) for each in clients[:4]]
                    await asyncio.sleep(0)
                    group = Group(crowd, clients[:4], found, ledger)
                    await group.commit_more()
                    await asyncio.sleep(1.5 * SESSION_MS / 1000)
                    for task in running:
                        task.cancel()
                after = {each: (each.member_id, each.epoch) for each in crowd.members}
                assert after == before, _written(tmp_path / "alone")

        asyncio.run(main())
    finally:
        alone.down()
