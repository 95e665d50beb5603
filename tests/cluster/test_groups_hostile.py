"""Nobody can hold up a broker by what he asks of its groups, nor have as much memory as he likes.

Goal: no callback of a broker is long (`LoopWatch`), whatever is named a thousand times, however
many groups there are and however many members one has; what is refused is refused, and others are
served. Method: one broker as a process, requests as no client sends them, and a crowd that joins at
once. (What names 100,000 things in one place takes a tenth of a second: docs/design/rim.md.)
"""

from __future__ import annotations

import asyncio
import socket
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from struct import Struct
from typing import Any, Self

import pytest
from tests.group.shard_kit import commit_request
from tests.loop_watch import LoopWatch

from holdfast.clients.blocking_driver import Driver
from holdfast.clients.group_coordinators import Coordinators
from holdfast.clients.group_descriptions import committed
from holdfast.clients.group_member.light_classic import ClassicMember
from holdfast.clients.group_member.light_client import LightClient
from holdfast.clients.group_member.light_consumer import ConsumerMember
from holdfast.clients.group_member.light_crowd import Crowd, topics_of
from holdfast.clients.group_member.light_member import Phase, Plan, Topic
from holdfast.cluster import LocalCluster
from holdfast.wire.administration import create_topic
from holdfast.wire.errors import ErrorCode
from holdfast.wire.frame import decode_response, encode_request
from holdfast.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from holdfast.wire.messages.delete_groups import DeleteGroupsRequest
from holdfast.wire.messages.describe_groups import DescribeGroupsRequest
from holdfast.wire.messages.find_coordinator import FindCoordinatorRequest
from holdfast.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from holdfast.wire.messages.list_groups import ListGroupsRequest
from holdfast.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
)

pytestmark = [
    pytest.mark.turns,
    pytest.mark.process,
    pytest.mark.serial,
    pytest.mark.slow,
    pytest.mark.timeout(300),
]

GROUPS = 20_000
PARTITIONS = 50
MEMBERS = 300
AT_ONCE = 200  # commits on their way
CONFIG = {
    "offsets.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "500",
    "broker.session.timeout.ms": "60000",  # nobody dies here, however busy the machine is
}
E = ErrorCode
_LENGTH = Struct(">i")


@pytest.fixture
def watch(tmp_path: Path) -> LoopWatch:
    return LoopWatch(tmp_path / "long-callbacks")


@pytest.fixture
def cluster(tmp_path: Path, watch: LoopWatch) -> Iterator[LocalCluster]:
    made = LocalCluster.create(tmp_path / "cluster", brokers=1, port=0, config=CONFIG)
    made.environment = watch.environment
    made.start()
    with Driver(made.bootstrap_servers) as driver:
        asked = create_topic("t", partitions=PARTITIONS, replication_factor=1)
        driver.perform(asked, node="controller")
        # Who is named as the coordinator is it once it has taken up the shard. Clients ask again,
        # as this does; the requests of these tests are asked once.
        assert committed(Coordinators(driver, patience_s=60), ["g"]) == {"g": {}}
    yield made
    watch.pause()
    made.down()


class Raw:
    """A connection that sends whatever it is told."""

    def __init__(self, cluster: LocalCluster) -> None:
        (broker,) = cluster.record.brokers
        self._socket = socket.create_connection((broker.host, broker.port))
        self._file = self._socket.makefile("rb")

    def send(self, request: Any, version: int) -> None:
        self._socket.sendall(bytes(encode_request(request, version, 1, "raw")))

    def receive(self, key: int, version: int) -> Any:
        (size,) = _LENGTH.unpack(self._file.read(4))
        return decode_response(key, version, self._file.read(size))[1]

    def ask(self, request: Any, version: int) -> Any:
        self.send(request, version)
        return self.receive(request.KEY, version)

    def is_closed_on(self) -> bool:
        return not self._file.read(1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self._socket.close()


@pytest.fixture
def raw(cluster: LocalCluster) -> Iterator[Raw]:
    with Raw(cluster) as made:
        yield made


def test_many_groups_and_long_requests_hold_up_nobody(raw: Raw, watch: LoopWatch) -> None:
    watch.arm()
    names = [f"g{number}" for number in range(GROUPS)]
    for number, name in enumerate(names):
        if number >= AT_ONCE:
            raw.receive(8, 9)
        raw.send(commit_request(name, {("t", number % PARTITIONS): number}), 9)
    for _ in range(AT_ONCE):
        raw.receive(8, 9)
    assert {each.group_id for each in raw.ask(ListGroupsRequest(), 5).groups} == set(names)
    described = raw.ask(DescribeGroupsRequest(groups=[*names, *names]), 5).groups
    assert [each.group_id for each in described] == names, "each once"
    everything = [OffsetFetchRequestGroup(group_id=name, topics=None) for name in names]
    fetched = raw.ask(OffsetFetchRequest(groups=everything), 8).groups
    assert [each.topics[0].partitions[0].committed_offset for each in fetched] == list(
        range(GROUPS)
    )
    keys = [*names, *["k" * 32_767] * 50]
    found = raw.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=keys), 4).coordinators
    assert {each.error_code for each in found} == {E.NONE}
    deleted = raw.ask(DeleteGroupsRequest(groups_names=names[:5000]), 2).results
    assert {each.error_code for each in deleted} == {E.NONE}
    watch.check()


def test_what_is_named_again_and_again_is_answered_once(raw: Raw, watch: LoopWatch) -> None:
    """Four bytes each would be answered with all that was committed with it."""
    watch.arm()
    text = "m" * 4000
    raw.ask(commit_request("g", {("t", 0): 7}, metadata=text), 9)
    again = [OffsetFetchRequestTopic(name="t", partition_indexes=[0] * 15_000)] * 2
    group = OffsetFetchRequestGroup(group_id="g", topics=again)
    (answered,) = raw.ask(OffsetFetchRequest(groups=[group] * 3), 8).groups
    ((one,),) = [topic.partitions for topic in answered.topics]
    assert (one.committed_offset, one.metadata) == (7, text)
    watch.check()


def test_commits_of_very_many_offsets_are_taken_or_refused_at_once(
    cluster: LocalCluster, raw: Raw, watch: LoopWatch
) -> None:
    watch.arm()
    few = raw.ask(_commit(5000), 9)
    many = raw.ask(_commit(30_000), 9)
    assert _codes(few) == {E.NONE}
    assert _codes(many) == {E.INVALID_COMMIT_OFFSET_SIZE}
    with Raw(cluster) as other:
        other.send(_commit(100_000), 9)
        assert other.is_closed_on(), "so many are not even decoded"
    assert _codes(raw.ask(_commit(10), 9)) == {E.NONE}
    watch.check()


def _commit(count: int) -> Any:
    """Commit so many offsets; there are fewer partitions, so some stand there again."""
    request = commit_request("g", {("t", index): 1 for index in range(PARTITIONS)})
    (topic,) = request.topics
    topic.partitions = (topic.partitions * (count // PARTITIONS + 1))[:count]
    return request


def _codes(response: Any) -> set[int]:
    return {each.error_code for topic in response.topics for each in topic.partitions}


def test_members_with_long_names_and_much_to_say_are_bounded(
    cluster: LocalCluster, raw: Raw, watch: LoopWatch
) -> None:
    """What they say lies in memory until their sessions end, whether or not they are there."""
    watch.arm()
    with ExitStack() as stack:
        others = [stack.enter_context(Raw(cluster)) for _ in range(40)]
        for number, each in enumerate(others):
            each.send(_long_join(number), 5)
        codes = [each.receive(11, 5).error_code for each in others]
    assert E.GROUP_MAX_SIZE_REACHED in codes, "16 MiB are not enough for 40 of them"
    assert set(codes) <= {E.NONE, E.GROUP_MAX_SIZE_REACHED, E.UNKNOWN_SERVER_ERROR}
    assert _codes(raw.ask(commit_request("other", {("t", 0): 7}), 9)) == {E.NONE}
    watch.check()


def _long_join(number: int) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id="many",
        group_instance_id=f"{number}" + "i" * 30_000,
        protocol_type="consumer",
        protocols=[
            JoinGroupRequestProtocol(name="p" * 30_000, metadata=bytes(500_000)),
            JoinGroupRequestProtocol(name="q", metadata=b"\xff" * 500_000),
        ],
        session_timeout_ms=6000,
        rebalance_timeout_ms=6000,
    )


def test_many_dear_patterns_in_one_group_hold_up_nobody(raw: Raw, watch: LoopWatch) -> None:
    """Each takes ten milliseconds to compile. Seen to fail: all of them were compiled in one go."""
    pytest.importorskip("re2")
    watch.arm()

    def beat(member: str, epoch: int, **told: Any) -> Any:
        told = {"rebalance_timeout_ms": 60_000, "topic_partitions": [], **told} if not epoch else {}
        request = ConsumerGroupHeartbeatRequest(
            group_id="patterns", member_id=member, member_epoch=epoch, **told
        )
        return raw.ask(request, 1)

    def dear(number: int) -> Any:
        return beat(f"m{number}", 0, subscribed_topic_regex=f".{{600}}x{number}").error_code

    few = [dear(number) for number in range(99)]
    last = beat("last", 0, subscribed_topic_regex="t.*")
    many = [dear(number) for number in range(100, 300)]  # more than the library itself remembers
    give_up = time.monotonic() + 90
    while last.assignment is None or not last.assignment.topic_partitions:
        assert time.monotonic() < give_up, "what it matches is not found out"
        time.sleep(0.2)
        last = beat("last", last.member_epoch)
        assert last.error_code == E.NONE
    watch.check()
    assert set(few) == {E.NONE}
    assert set(many) == {E.INVALID_REGULAR_EXPRESSION}


def test_subscriptions_to_very_many_names_hold_up_nobody(
    cluster: LocalCluster, raw: Raw, watch: LoopWatch
) -> None:
    """Two bytes a name, seven millions of them. Seen to fail: two seconds for each rebalance."""
    metadata = bytes(2) + (99_000).to_bytes(4) + bytes(2 * 99_000) + b"\xff" * 4
    join = JoinGroupRequest(
        group_id="names",
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="p", metadata=metadata)],
        session_timeout_ms=6000,
        rebalance_timeout_ms=6000,
    )
    beat = ConsumerGroupHeartbeatRequest(
        group_id="names",
        member_id="m",
        member_epoch=0,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=["t"],
        topic_partitions=[],
    )
    watch.arm()
    with ExitStack() as stack:
        others = [stack.enter_context(Raw(cluster)) for _ in range(70)]
        for each in others:
            each.send(join, 3)
        codes = {each.receive(11, 3).error_code for each in others}
        assert E.NONE in codes
        told = raw.ask(beat, 1)
    watch.check()
    assert told.error_code == E.GROUP_ID_NOT_FOUND, "they can't change over"


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_crowd_that_joins_and_leaves_at_once_holds_up_nobody(
    cluster: LocalCluster, watch: LoopWatch, protocol: str
) -> None:
    with Driver(cluster.bootstrap_servers) as driver:
        topics = topics_of(driver, ["t"])
    (broker,) = cluster.record.brokers
    watch.arm()
    asyncio.run(_crowd((broker.host, broker.port), topics, protocol))
    watch.check()


async def _crowd(place: tuple[str, int], topics: tuple[Topic, ...], protocol: str) -> None:
    plan = Plan(group_id=protocol, topics=topics, session_timeout_ms=6000, heartbeat_ms=1000)
    async with Crowd() as crowd:
        members = [
            ClassicMember(plan) if protocol == "classic" else ConsumerMember(plan, _id())
            for _ in range(MEMBERS)
        ]
        clients = [LightClient(each, place, "light") for each in members]
        await crowd.start(clients)
        await crowd.until(lambda: _is_whole(crowd), "all to be in")
        await crowd.kill(clients[: MEMBERS // 2])
        await crowd.until(lambda: _is_whole(crowd), "the others to share", bound_s=180)
        await crowd.leave(crowd.clients)


def _id() -> str:
    return str(uuid.uuid4())


def _is_whole(crowd: Crowd) -> bool:
    """Whether all are stable in one epoch, and have all partitions, each one owner."""
    members = crowd.members
    owned = [partition for each in members for partition in each.assignment]
    return (
        {each.phase for each in members} == {Phase.STABLE}
        and len({each.epoch for each in members}) == 1
        and len(owned) == len(set(owned)) == PARTITIONS
    )
