"""What groups ask of a broker: many that join one, many that say that they live, commits.

Owns the members, which are light ones in this process, and what is timed. The brokers' CPU is read
from /proc over the same window; where their processes aren't known, it is left out.
"""

from __future__ import annotations

import asyncio
import itertools
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial

from holdfast.clients.blocking_driver import Driver
from holdfast.clients.group_member.light_classic import ClassicMember
from holdfast.clients.group_member.light_client import LightClient
from holdfast.clients.group_member.light_consumer import ConsumerMember
from holdfast.clients.group_member.light_crowd import Crowd, is_whole, settled_ms, topics_of
from holdfast.clients.group_member.light_member import LightMember, Partition, Place, Plan, Topic
from load import at_share, cpu_seconds

JOINS_PER_S = 200.0  # of groups that are only there to be there
PROTOCOLS = ("classic", "consumer")

_BOUND_S = 300.0
_QUIET_S = 5.0
_LATEST_HEARTBEAT_S = 5.0  # of both protocols, by default
_marks = itertools.count()


@dataclass(frozen=True, slots=True)
class Target:
    """Brokers that are running. `pids`: theirs, or none that can be read."""

    name: str
    bootstrap: str
    pids: tuple[int, ...]

    @property
    def place(self) -> Place:
        """The first of their addresses."""
        host, _, port = self.bootstrap.split(",")[0].rpartition(":")
        return host, int(port)

    def topics(self, names: Sequence[str]) -> tuple[Topic, ...]:
        """Return what members have to know of topics."""
        with Driver(self.bootstrap) as driver:
            return topics_of(driver, names)


@dataclass(slots=True)
class Group:
    """One group's clients."""

    topics: tuple[Topic, ...]
    clients: list[LightClient] = field(default_factory=list)

    def members(self) -> list[LightMember]:
        """Theirs."""
        return [client.member for client in self.clients]

    def is_whole(self) -> bool:
        """Whether each partition has one owner, and all know it."""
        return is_whole(self.members(), self.topics)


def group_of(target: Target, protocol: str, topics: tuple[Topic, ...], members: int) -> Group:
    """Return a group that nobody has joined yet, with a name of its own."""
    plan = Plan(group_id=f"bench-{next(_marks)}-{uuid.uuid4()}", topics=topics)
    return Group(topics, [_client(target, protocol, plan) for _ in range(members)])


def _client(target: Target, protocol: str, plan: Plan) -> LightClient:
    member: LightMember = ClassicMember(plan)
    if protocol == "consumer":
        member = ConsumerMember(plan, str(uuid.uuid4()))
    return LightClient(member, target.place, "bench")


async def measure_joining(
    target: Target, topic: str, protocol: str, members: int
) -> dict[str, float]:
    """How long one group of so many takes from the last join to stable, and after one leaves."""
    group = group_of(target, protocol, target.topics([topic]), members)
    began, cpu_s = time.monotonic(), sum(cpu_seconds(target.pids))
    async with Crowd() as crowd:
        await crowd.start(group.clients)
        await crowd.until(group.is_whole, f"{members} {protocol} members", _BOUND_S)
        joined = [member.joined_ms or 0 for member in group.members()]
        stable_ms = settled_ms(group.members())
        measured = {
            "members": members,
            "joins_s": (max(joined) - min(joined)) / 1000,
            "stable_after_last_join_s": (stable_ms - max(joined)) / 1000,
        }
        if target.pids:
            measured["cpu_s"] = sum(cpu_seconds(target.pids)) - cpu_s
        measured["took_s"] = time.monotonic() - began
        left_ms = asyncio.get_running_loop().time() * 1000
        await crowd.leave([group.clients.pop()])
        await crowd.until(group.is_whole, f"{members - 1} {protocol} members", _BOUND_S)
        measured["stable_after_leave_s"] = (settled_ms(group.members()) - left_ms) / 1000
        await _part(crowd)
    return measured


@dataclass(slots=True)
class _Beating:
    """Groups of one target that only live."""

    target: Target
    crowd: Crowd
    groups: list[Group]
    idle_cores: float

    def whole(self) -> Callable[[], bool]:
        return _all_whole(self.groups)


async def measure_heartbeats(
    asked: Sequence[tuple[Target, str]],
    protocol: str,
    groups: int,
    size: int,
    seconds: float,
    rounds: int,
    add: Callable[[Target, dict[str, float]], None],
) -> None:
    """What so many groups cost that only live: the brokers' CPU, with and without them.

    Those of all targets live at once, and a round is one window for all: what else the machine
    does falls on each alike. One window goes by before the first that counts.
    """
    targets = [target for target, _ in asked]
    idle = await _cores_over(targets, seconds)
    async with AsyncExitStack() as stack:
        all_beating = []
        for (target, topic), idle_cores in zip(asked, idle, strict=True):
            topics = target.topics([topic])
            made = [group_of(target, protocol, topics, size) for _ in range(groups)]
            crowd = await stack.enter_async_context(Crowd())
            all_beating.append(_Beating(target, crowd, made, idle_cores))
        await asyncio.gather(*map(_begin, all_beating))
        for each in all_beating:
            await each.crowd.until(each.whole(), f"{groups} {protocol} groups", _BOUND_S)
        await asyncio.sleep(_QUIET_S + _LATEST_HEARTBEAT_S)
        for number in range(rounds + 1):
            before = [_rebalances(each.groups) for each in all_beating]
            own_s, began = time.process_time(), time.monotonic()
            busy = await _cores_over(targets, seconds)
            client_cores = (time.process_time() - own_s) / (time.monotonic() - began)
            for each, cores, epochs in zip(all_beating, busy, before, strict=True):
                measured = {
                    "groups": groups,
                    "members": groups * size,
                    "client_cores": client_cores,
                    "rebalanced": sum((_rebalances(each.groups) - epochs).values()),
                }
                if each.target.pids:
                    measured |= {"cores": cores, "idle_cores": each.idle_cores}
                if number:
                    add(each.target, measured)
        for each in all_beating:
            await _part(each.crowd)


async def _begin(beating: _Beating) -> None:
    clients = (each for group in beating.groups for each in group.clients)
    await beating.crowd.start(clients, JOINS_PER_S)


async def _part(crowd: Crowd) -> None:
    """Leave in good order: sessions that run out would be a part of what is measured next."""
    async with asyncio.timeout(_BOUND_S):
        await crowd.leave(crowd.clients)


def _all_whole(groups: Iterable[Group]) -> Callable[[], bool]:
    """Return what says whether all are whole; who was seen so is not looked at again."""
    left = list(groups)

    def holds() -> bool:
        while left and left[-1].is_whole():
            left.pop()
        return not left

    return holds


def _rebalances(groups: Sequence[Group]) -> Counter[int]:
    """Return the epochs that groups have come to, by the group's place."""
    return Counter({place: group.clients[0].member.epoch for place, group in enumerate(groups)})


async def _cores_over(targets: Sequence[Target], seconds: float) -> list[float]:
    """Return how many cores the brokers of each target use over so many seconds."""
    before, began = [sum(cpu_seconds(each.pids)) for each in targets], time.monotonic()
    await asyncio.sleep(seconds)
    after, took = [sum(cpu_seconds(each.pids)) for each in targets], time.monotonic() - began
    return [(now - then) / took for now, then in zip(after, before, strict=True)]


@dataclass(slots=True)
class Commits:
    """What became of them."""

    latencies_s: list[float] = field(default_factory=list)
    refused: int = 0
    late: int = 0  # not sent, because so many were on their way


async def measure_commits(
    target: Target, topic: str, groups: int, per_second: int, size: int, seconds: float
) -> dict[str, float]:
    """What commits cost: so many a second of `size` partitions each, from groups of one member.

    Each is due at its time, whatever became of those before it; latency counts from there. The
    first second is not measured.
    """
    topics = target.topics([topic])
    in_flight_max = 2 * per_second
    async with Crowd() as crowd:
        made = [group_of(target, "classic", topics, 1) for _ in range(groups)]
        await crowd.start((group.clients[0] for group in made), JOINS_PER_S)
        await crowd.until(_all_whole(made), f"{groups} groups that commit", _BOUND_S)
        clients = [group.clients[0] for group in made]
        owned = sorted(clients[0].member.assignment)[:size]
        send = partial(_commits, clients, owned, per_second, in_flight_max)
        await send(1.0)
        cpu_s, own_s = sum(cpu_seconds(target.pids)), time.process_time()
        began = time.monotonic()
        found = await send(seconds)
        took = time.monotonic() - began
        cpu_s, own_s = sum(cpu_seconds(target.pids)) - cpu_s, time.process_time() - own_s
        await _part(crowd)
    if not found.latencies_s:
        raise RuntimeError(f"none of {found.refused} commits was taken")
    done, ordered = len(found.latencies_s), sorted(found.latencies_s)
    measured = {
        "asked_commits_per_s": per_second,
        "offsets_a_commit": len(owned),
        "commits_per_s": done / took,
        "offsets_per_s": done * len(owned) / took,
        "p50_ms": at_share(ordered, 0.5) * 1e3,
        "p99_ms": at_share(ordered, 0.99) * 1e3,
        "refused": found.refused,
        "not_sent": found.late,
        "client_cores": own_s / took,
    }
    if target.pids:
        measured |= {"cpu_us_a_commit": cpu_s / done * 1e6, "cores": cpu_s / took}
    return measured


async def _commits(
    clients: Sequence[LightClient],
    partitions: Sequence[Partition],
    per_second: int,
    in_flight_max: int,
    seconds: float,
) -> Commits:
    """Commit for so long, one client after the other; return when all are answered."""
    found = Commits()
    on_their_way: set[asyncio.Task[None]] = set()
    began = time.monotonic()
    for number in range(int(per_second * seconds)):
        due = began + number / per_second
        if (wait := due - time.monotonic()) > 0:
            await asyncio.sleep(wait)
        elif not number % 100:
            await asyncio.sleep(0)  # late: answers have their turn all the same
        if len(on_their_way) >= in_flight_max:
            found.late += 1
            continue
        client = clients[number % len(clients)]
        offsets = dict.fromkeys(partitions, number)
        task = asyncio.create_task(_commit(client, offsets, due, found))
        on_their_way.add(task)
        task.add_done_callback(on_their_way.discard)
    await asyncio.gather(*on_their_way)
    return found


async def _commit(
    client: LightClient, offsets: dict[Partition, int], due: float, found: Commits
) -> None:
    try:
        refusals = await client.commit(offsets)
    except ConnectionError:
        found.refused += 1
        return
    if refusals:
        found.refused += 1
    else:
        found.latencies_s.append(time.monotonic() - due)
