"""Goal: `holdfast watch` says how far groups are, what of that it can't know, and how old it is.

Method: a scripted cluster whose leaders and coordinators go; a driver whose brokers advertise what
nobody can reach; and a cluster that `host` is cut off from, where there are namespaces.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Run
from tests.clients.scripted import Scripted
from tests.cluster.network.conftest import MARK, nothing_is_left
from tests.cluster.waiting import wait_for_leader

from holdfast.cli.watch.group_watch import DriverByWays, GroupLag, GroupLags, summed
from holdfast.cli.watch.samples import Sampler
from holdfast.clients import blocking_driver
from holdfast.clients.blocking_driver import Driver, DriverError, UnreachableError
from holdfast.clients.group_changes import commit_offsets
from holdfast.clients.group_coordinators import Coordinators
from holdfast.clients.group_descriptions import Committed
from holdfast.clients.group_lags import lags
from holdfast.clients.log_offsets import Found, LogOffset
from holdfast.cluster import LocalCluster
from holdfast.cluster.network import possible
from holdfast.cluster.processes import wait_until
from holdfast.wire.administration import AdminError, create_topic
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribedGroup,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from holdfast.wire.messages.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from holdfast.wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from holdfast.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from holdfast.wire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
)
from holdfast.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)

PATIENCE_S = 60.0
ENDS = {("t", 0): 5000, ("t", 1): 7000}
REFUSED = AdminError("offsets of t-1", ErrorCode.LEADER_NOT_AVAILABLE)


class Groups(Scripted):
    """Two partitions; broker 2 coordinates the groups `there`, which have committed at 0."""

    def __init__(self) -> None:
        super().__init__()
        self.there = {"readers"}
        self.leaders = {("t", 0): 0, ("t", 1): 1}
        self.coordinator = 2
        self.answers |= {
            ListGroupsRequest: self._list,
            ConsumerGroupDescribeRequest: lambda _, asked: ConsumerGroupDescribeResponse(
                groups=[self._described(group) for group in asked.group_ids]
            ),
            DescribeGroupsRequest: lambda _, asked: DescribeGroupsResponse(
                groups=[
                    DescribedGroup(group_id=group, error_code=ErrorCode.GROUP_ID_NOT_FOUND)
                    for group in asked.groups
                ]
            ),
            OffsetFetchRequest: lambda _, asked: OffsetFetchResponse(
                groups=[
                    OffsetFetchResponseGroup(group_id=each.group_id, topics=[committed_at_nought()])
                    for each in asked.groups
                ]
            ),
            ListOffsetsRequest: self._ends,
        }
        self.versions[OffsetFetchRequest] = 9

    def _list(self, node: int, _request: Any) -> ListGroupsResponse:
        names = self.there if node == self.coordinator else set()
        return ListGroupsResponse(groups=[ListedGroup(group_id=name) for name in names])

    def _described(self, group: str) -> ConsumerGroupDescribedGroup:
        code = 0 if group in self.there else ErrorCode.GROUP_ID_NOT_FOUND
        return ConsumerGroupDescribedGroup(group_id=group, error_code=code, group_state="Empty")

    def _ends(self, node: int, request: Any) -> ListOffsetsResponse:
        (topic,) = request.topics
        parts = [
            ListOffsetsPartitionResponse(
                partition_index=each.partition_index, offset=ENDS["t", each.partition_index]
            )
            for each in topic.partitions
            if self.leaders["t", each.partition_index] == node
        ]
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=parts)])


def committed_at_nought() -> OffsetFetchResponseTopic:
    parts = [OffsetFetchResponsePartition(partition_index=n, committed_offset=0) for n in (0, 1)]
    return OffsetFetchResponseTopic(name="t", partitions=parts)


class Watched:
    """Lags of a scripted cluster, and a clock that is set by hand."""

    def __init__(self) -> None:
        self.cluster: Any = Groups()
        self.now_s = 100.0
        self._lags = GroupLags(lambda: self.now_s)

    def look(self) -> dict[str, GroupLag]:
        self._lags.look(self.cluster)
        return self._lags.latest()

    def later(self, passed_s: float) -> dict[str, GroupLag]:
        self.now_s += passed_s
        return self._lags.latest()


def told(lag: int | None, unknown: int | None, at_s: float = 100.0) -> GroupLag:
    return GroupLag(lag=lag, unknown_partitions=unknown, told_monotonic_s=at_s)


@pytest.fixture
def watched() -> Watched:
    return Watched()


@pytest.mark.parametrize(
    ("ends", "committed", "lag", "unknown"),
    [
        ({("t", 0): LogOffset(5000), ("t", 1): LogOffset(7000)}, (0, 1), 12_000, 0),
        ({("t", 0): LogOffset(5000), ("t", 1): REFUSED}, (0, 1), 5000, 1),
        ({("t", 0): LogOffset(5000)}, (0, 1), 5000, 1),
        ({}, (0, 1), None, 2),
        ({("t", 0): LogOffset(0), ("t", 1): LogOffset(0)}, (0, 1), 0, 0),
        ({("t", 0): LogOffset(5000)}, (), None, 0),
    ],
)
def test_a_sum_says_of_how_many_partitions_it_is_not(
    ends: Found, committed: tuple[int, ...], lag: int | None, unknown: int
) -> None:
    rows = lags([], {("t", number): Committed(0) for number in committed}, ends)
    assert summed(rows) == GroupLag(lag=lag, unknown_partitions=unknown)


def test_a_partition_without_a_leader_is_not_known(watched: Watched) -> None:
    assert watched.look() == {"readers": told(12_000, 0)}
    watched.cluster.leaders["t", 1] = -1
    assert watched.look() == {"readers": told(5000, 1)}
    watched.cluster.leaders["t", 1] = 1
    watched.cluster.alive.discard(1)  # metadata name it still
    assert watched.look() == {"readers": told(5000, 1)}


def test_what_was_told_before_gets_old(watched: Watched) -> None:
    """Method: all brokers go; then the coordinator alone; then it says that the group is gone."""
    watched.look()
    watched.cluster.alive = set()
    watched.cluster.coordinator = -1

    def nobody() -> dict[int, tuple[str, int]]:
        raise UnreachableError("nobody")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(watched.cluster, "nodes", nobody)
        with pytest.raises(DriverError):
            watched.look()
    assert watched.later(7) == {"readers": told(12_000, 0)}
    watched.cluster.alive, watched.cluster.coordinator = {0, 1}, 2
    watched.look()
    assert watched.later(3)["readers"] == told(12_000, 0), "no list has it, and it is not gone"
    watched.cluster.alive.add(2)
    assert watched.look()["readers"] == told(12_000, 0, at_s=110.0)
    watched.cluster.there.clear()
    assert watched.look() == {}


def test_a_group_whose_coordinator_never_answered_is_there(watched: Watched) -> None:
    refusal = ConsumerGroupDescribedGroup(
        group_id="readers", error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    )
    watched.cluster.answers[ConsumerGroupDescribeRequest] = lambda *_: (
        ConsumerGroupDescribeResponse(groups=[refusal])
    )
    watched.look()
    assert watched.later(4) == {"readers": told(None, None)}


def test_a_broker_that_lists_nothing_hides_no_group_of_others(watched: Watched) -> None:
    listed = watched.cluster.answers[ListGroupsRequest]
    refused = ListGroupsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    watched.cluster.answers[ListGroupsRequest] = lambda node, asked: (
        refused if node == 0 else listed(node, asked)
    )
    assert watched.look() == {"readers": told(12_000, 0)}


def test_brokers_are_reached_by_the_ways_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: what brokers advertise leads through doors that a cut closes, so it is not used.

    Method: two ways, and three brokers in the metadata: the third one is down, and is not asked.
    """
    ways = {1: ("way", 1), 0: ("way", 2)}
    reached: list[tuple[str, int]] = []
    brokers = [
        MetadataResponseBroker(node_id=node, host="cut-off", port=9092) for node in (0, 1, 2)
    ]

    class Reached:
        is_open, in_flight = True, 0

        def __init__(self, host: str, port: int, *_: object, **__: object) -> None:
            reached.append((host, port))

        def is_stale(self) -> bool:
            return False

        def send(self, message: Any, **_: object) -> Any:
            assert isinstance(message, MetadataRequest)
            return MetadataResponse(brokers=brokers)

        def close(self) -> None: ...

    monkeypatch.setattr(blocking_driver, "Peer", Reached)
    with DriverByWays(ways) as driver:
        assert driver.nodes() == ways
        assert reached == [("way", 1)], "who knows most is asked"
        driver.peer(0)
        assert reached[-1] == ("way", 2)
        with pytest.raises(UnreachableError):
            driver.peer(2)
    assert {host for host, _ in reached} == {"way"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cluster's directory; in the end none of its processes is left, and no network."""
    found = possible.look({})
    if found.how != possible.NAMESPACES:
        pytest.skip(f"no network namespaces here: {found.reason}")
    monkeypatch.setenv(MARK, str(tmp_path))
    yield tmp_path / "cluster"
    network = tmp_path / "cluster" / "network"
    network.mkdir(parents=True, exist_ok=True)  # where it has not come to that
    nothing_is_left(str(tmp_path), network)


@pytest.mark.process
@pytest.mark.serial
@pytest.mark.slow
def test_a_cut_of_the_host_hides_no_group(folder: Path, run: Run) -> None:
    """Goal: `isolate host` ends no way of who watches. Method: a real cut; a group's lag after it.

    The group commits while no cut is there, and watching begins behind it.
    """
    network = possible.look({})
    with LocalCluster.create(folder, brokers=2, controllers=1, port=0, network=network) as cluster:
        cluster.start()
        asked = create_topic("t", assignment={0: [0, 1], 1: [1, 0]}, timeout_ms=20_000)
        with Driver(cluster.bootstrap_servers) as driver:
            driver.perform(asked, node="controller")
            for number in (0, 1):
                wait_for_leader(cluster, "t", number)
            commit_offsets(Coordinators(driver), "readers", {("t", 0): 0, ("t", 1): 0})
        assert run("isolate", "--data-dir", str(folder), "host").status == 0
        with Sampler(cluster, []) as sampler:
            wait_until(
                lambda: bool(sampler.look().lags), timeout_s=PATIENCE_S, what="the group's lag"
            )
            found = sampler.look().lags["readers"]
        assert (found.lag, found.unknown_partitions) == (0, 0)
