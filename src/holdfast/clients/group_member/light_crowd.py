"""Many light clients in one loop: started, waited for, made to leave.

Owns their tasks. What a group has come to is read from its members alone: no coordinator is asked.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Self

from holdfast.clients.blocking_driver import Driver
from holdfast.clients.group_member.light_client import LightClient
from holdfast.clients.group_member.light_member import LightMember, Partition, Phase, Topic

_LOOK_S = 0.05
_BOUND_S = 120.0


class NotSettledError(Exception):
    """What was waited for did not come, or a member failed; the message says which."""


class Crowd:
    """Clients of any number of groups. An asynchronous context; at its end all are killed."""

    def __init__(self) -> None:
        self._tasks: dict[LightClient, asyncio.Task[None]] = {}

    @property
    def clients(self) -> list[LightClient]:
        """Those that were started and not taken away."""
        return list(self._tasks)

    @property
    def members(self) -> list[LightMember]:
        """Theirs."""
        return [client.member for client in self._tasks]

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.kill(self.clients)

    async def start(self, clients: Iterable[LightClient], per_second: float = 0.0) -> None:
        """Start them, at most so many a second; 0: all at once."""
        began = time.monotonic()
        for started, client in enumerate(clients):
            if per_second and (wait := began + started / per_second - time.monotonic()) > 0:
                await asyncio.sleep(wait)
            self._tasks[client] = asyncio.create_task(client.run())

    async def until(self, holds: Callable[[], bool], what: str, bound_s: float = _BOUND_S) -> None:
        """Wait until something holds. NotSettledError: too long, or a member has failed."""
        deadline = time.monotonic() + bound_s
        while not holds():
            for client, task in self._tasks.items():
                if client.member.failure is not None:
                    raise NotSettledError(f"{what}: {client.member.failure}")
                if task.done():
                    task.result()
            if time.monotonic() > deadline:
                raise NotSettledError(f"{what}: not within {bound_s:g} s; {_standing(self)}")
            await asyncio.sleep(_LOOK_S)

    async def leave(self, clients: Sequence[LightClient]) -> None:
        """Take some away in good order; returns when they have left."""
        for client in clients:
            client.leave()
        await asyncio.gather(*(self._tasks.pop(client) for client in clients))

    async def kill(self, clients: Sequence[LightClient]) -> None:
        """Take some away without a word to anybody."""
        tasks = [self._tasks.pop(client) for client in clients]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def is_whole(members: Sequence[LightMember], topics: Sequence[Topic]) -> bool:
    """Say whether a group's members are stable in one epoch, and share all partitions fairly.

    All of a group's members have to be given, and each must want all of its topics. Who has joined
    is in the epoch of the target that there is, in which others may still own everything: so each
    has to have its share, which no assignor of Kafka's leaves a member without. Where there are
    fewer partitions than members there is no such share, and this may be said too early.
    """
    if not members:
        return False
    total = sum(topic.partitions for topic in topics)
    share = sum(topic.partitions // len(members) for topic in topics)
    epoch = members[0].epoch
    owned: set[Partition] = set()
    count = 0
    for member in members:
        if member.phase is not Phase.STABLE or member.epoch != epoch:
            return False
        if len(member.assignment) < share:
            return False
        count += len(member.assignment)
        owned |= member.assignment
    return count == len(owned) == total


def settled_ms(members: Iterable[LightMember]) -> int:
    """Return when the last of a group's members came to what it has now."""
    return max(member.changed_ms or 0 for member in members)


def topics_of(driver: Driver, names: Sequence[str], bound_s: float = _BOUND_S) -> tuple[Topic, ...]:
    """Return what members have to know of topics, once whoever is asked knows them all.

    Blocks, so it is for before the loop runs, or for a thread. NotSettledError: they are not known.
    """
    deadline = time.monotonic() + bound_s
    while True:
        answer = driver.metadata(list(names))
        found = {topic.name: topic for topic in answer.topics if not topic.error_code}
        missing = [name for name in names if name not in found]
        if not missing:
            return tuple(
                Topic(name, found[name].topic_id, len(found[name].partitions)) for name in names
            )
        if time.monotonic() > deadline:
            raise NotSettledError(f"no topic {', '.join(missing)} within {bound_s:g} s")
        time.sleep(_LOOK_S)


def _standing(crowd: Crowd) -> str:
    counts = dict.fromkeys(Phase, 0)
    for member in crowd.members:
        counts[member.phase] += 1
    return ", ".join(f"{count} {phase.name}" for phase, count in counts.items() if count)
