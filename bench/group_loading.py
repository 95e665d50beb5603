"""How long a broker takes over a shard of many offsets, and how long anybody waits meanwhile.

The shard is the only partition of `__consumer_offsets`. Its leader is moved by a preferred election
to a broker that has not led it, which serves other requests all the while. A neighbour of each
broker asks small things one after the other, a millisecond between them: so long as the longest
answer took, a loop was held. Owns the offsets, the moves and the neighbours.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import Any, Final

from group_loads import Target
from holdfast.clients.blocking_driver import Driver, DriverError, Peer
from holdfast.clients.group_member.light_connection import LightConnection, connect
from holdfast.clients.group_member.light_offsets import COMMIT_VERSION_MAX, FETCH_VERSION_MAX
from holdfast.wire.administration import AdminError, Election, elect_leaders, reassign
from holdfast.wire.errors import ErrorCode, error_name
from holdfast.wire.messages.find_coordinator import FindCoordinatorRequest
from holdfast.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from holdfast.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from load import at_share, cpu_seconds

GROUP_OFFSETS: Final = "__consumer_offsets"
OFFSETS_A_GROUP: Final = 100
ONE_SHARD: Final = {"offsets.topic.num.partitions": "1"}
"""What brokers have to be started with."""

_IN_FLIGHT: Final = 20
_BOUND_S: Final = 120.0
_LOOK_S: Final = 0.02
_PAUSE_S: Final = 0.001  # of a neighbour
_KEY_IS_GROUP: Final = 0
_NOT_YET: Final = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    }
)


def group_id(number: int) -> str:
    return f"bench-loaded-{number}"


def commit_all(target: Target, topic: str, offsets: int) -> None:
    """Commit so many offsets, a hundred of each group, as somebody who is no member."""
    asked: deque[int] = deque(range(offsets // OFFSETS_A_GROUP))
    with Driver(target.bootstrap, timeout_s=_BOUND_S) as driver:
        peer = _coordinator(driver)
        on_their_way: deque[int] = deque()
        while asked or on_their_way:
            while asked and len(on_their_way) < _IN_FLIGHT:
                peer.post(_commit(topic, asked[0]), version=COMMIT_VERSION_MAX)
                on_their_way.append(asked.popleft())
            answer, number = peer.take(), on_their_way.popleft()
            codes = {one.error_code for each in answer.topics for one in each.partitions}
            if codes <= {ErrorCode.NONE}:
                continue
            if not codes <= _NOT_YET:
                raise RuntimeError(f"a commit was refused: {', '.join(map(error_name, codes))}")
            asked.append(number)
            time.sleep(_LOOK_S)


def _coordinator(driver: Driver) -> Peer:
    """Return the connection to the only shard's coordinator, once there is one."""
    asked = FindCoordinatorRequest(key_type=_KEY_IS_GROUP, coordinator_keys=[group_id(0)])
    deadline = time.monotonic() + _BOUND_S
    while time.monotonic() < deadline:
        (found,) = driver.send(asked).coordinators
        if not found.error_code:
            return driver.peer(found.node_id)
        time.sleep(_LOOK_S)
    raise RuntimeError(f"no coordinator within {_BOUND_S:g} s")


def _commit(topic: str, number: int) -> OffsetCommitRequest:
    partitions = [
        OffsetCommitRequestPartition(
            partition_index=index, committed_offset=number, committed_metadata=""
        )
        for index in range(OFFSETS_A_GROUP)
    ]
    return OffsetCommitRequest(
        group_id=group_id(number),
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=[OffsetCommitRequestTopic(name=topic, partitions=partitions)],
    )


class Neighbour:
    """Asks one broker small things, and knows how long each answer took."""

    def __init__(self, connection: LightConnection) -> None:
        self.waits_s: list[float] = []
        self._connection = connection
        self._task = asyncio.create_task(self._ask())

    async def _ask(self) -> None:
        asked = FindCoordinatorRequest(key_type=_KEY_IS_GROUP, coordinator_keys=[group_id(0)])
        while True:
            began = time.monotonic()
            await self._connection.ask(asked)
            self.waits_s.append(time.monotonic() - began)
            await asyncio.sleep(_PAUSE_S)

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._connection.close()


def move_shard(target: Target) -> tuple[tuple[str, int], int]:
    """Have the next broker preferred as the shard's leader; return where it is, and its place."""
    with Driver(target.bootstrap, timeout_s=_BOUND_S) as driver:
        leader, nodes = driver.leader(GROUP_OFFSETS, 0, refresh=True), driver.nodes()
        ids = sorted(nodes)
        place = (ids.index(leader) + 1) % len(ids)
        replicas = [ids[(place + distance) % len(ids)] for distance in range(len(ids))]
        driver.perform(reassign({(GROUP_OFFSETS, 0): replicas}))
        return nodes[replicas[0]], place


def elect(target: Target) -> None:
    """Make who is preferred the leader. RuntimeError: it does not become it."""
    deadline, said = time.monotonic() + _BOUND_S, "nothing"
    with Driver(target.bootstrap, timeout_s=_BOUND_S) as driver:
        while time.monotonic() < deadline:
            try:
                found = driver.perform(elect_leaders(Election.PREFERRED, {GROUP_OFFSETS: [0]}))
                code, _ = found[GROUP_OFFSETS, 0]
                if code in {ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED}:
                    return
                said = error_name(code)
            except (AdminError, DriverError) as error:
                said = str(error)
            time.sleep(_LOOK_S)
    raise RuntimeError(f"the shard does not move: {said}")


async def measure_loading(target: Target, offsets: int) -> dict[str, float]:
    """Move a shard of so many offsets, and wait until its new leader tells of them."""
    place, index = move_shard(target)
    asker = await connect(*place, "bench")
    with Driver(target.bootstrap) as driver:
        addresses = [address for _, address in sorted(driver.nodes().items())]
    neighbours = [Neighbour(await connect(*each, "neighbour")) for each in addresses]
    await asyncio.sleep(_LOOK_S)
    began, cpu_s = time.monotonic(), cpu_seconds(target.pids)
    await asyncio.to_thread(elect, target)
    await _until_told(asker, offsets // OFFSETS_A_GROUP - 1)
    took = time.monotonic() - began
    cpu_after_s = cpu_seconds(target.pids)
    await asyncio.sleep(1.0)  # who led before has to put it all away
    for each in neighbours:
        await each.stop()
    asker.close()
    waits = [sorted(each.waits_s) for each in neighbours]
    measured = {
        "offsets": offsets,
        "loaded_s": took,
        "held_ms_max": max(map(max, waits)) * 1e3,
        "loader_held_ms_max": waits[index][-1] * 1e3,
        "loader_held_p99_ms": at_share(waits[index], 0.99) * 1e3,
    }
    if target.pids:
        measured["cpu_s"] = sum(cpu_after_s) - sum(cpu_s)
    return measured


async def _until_told(asker: LightConnection, number: int) -> None:
    """Wait until a group's offsets are told. RuntimeError: some are missing, or it takes long."""
    group = OffsetFetchRequestGroup(group_id=group_id(number), topics=None)
    request = OffsetFetchRequest(groups=[group], require_stable=True)
    async with asyncio.timeout(_BOUND_S):
        while True:
            answer: Any = await asker.ask(request, FETCH_VERSION_MAX)
            (found,) = answer.groups
            if found.error_code == ErrorCode.NONE:
                break
            if found.error_code not in _NOT_YET:
                raise RuntimeError(f"offsets are not told: {error_name(found.error_code)}")
            await asyncio.sleep(_LOOK_S)
    told = [one for topic in found.topics for one in topic.partitions]
    if len(told) != OFFSETS_A_GROUP or any(one.committed_offset != number for one in told):
        raise RuntimeError(f"{len(told)} offsets of {OFFSETS_A_GROUP} are told, or other ones")
