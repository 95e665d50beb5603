"""What an operator asks of a cluster in the middle of it all: a function for each kind of event.

A refusal is an answer like any other. True: the cluster said yes.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Final

from holdfast.core.controller.decisions import UNCLEAN_ELECTION
from holdfast.core.metadata.feature_levels import MIN_INSYNC
from holdfast.judge.history import DeleteRecords
from holdfast.testing.simulated_client import AnswerError, ClusterClient, check
from holdfast.testing.simulation.conductor import Conductor, Perform, held
from holdfast.testing.simulation.metadata import State
from holdfast.testing.simulation.plan import Event, TopicPlan
from holdfast.wire.administration import (
    AdminRequest,
    Election,
    add_partitions,
    alter_configs,
    delete_topic,
    elect_leaders,
    unregister_broker,
)
from holdfast.wire.structs import ResourceType

_TIMEOUT_S = 12.0
_REQUEST_MS = 3000
_ROLLS_S = 0.12
_ROLLS_SOON: Final = {"segment.ms": "100"}
_THROTTLES: Final = ("leader.replication.throttled", "follower.replication.throttled")
_SLOW_US: Final = (100_000, 900_000)  # of a job


async def _try(hand: Conductor, event: Event, attempt: Awaitable[object]) -> bool:
    """Wait for an administrative request, but not for ever; True when it was granted."""
    try:
        await asyncio.wait_for(attempt, _TIMEOUT_S)
    except AnswerError as error:
        hand.counts["administrative requests refused"] += 1
        hand.note(f"{event.kind}: {error}")
        return False
    except OSError as error:
        hand.counts["administrative requests without an answer"] += 1
        hand.note(f"{event.kind}: {error or type(error).__name__}")
        return False
    return True


async def _with_client(
    hand: Conductor,
    event: Event,
    attempt: Callable[[ClusterClient], Awaitable[object]],
    *,
    informed: bool = False,
) -> bool:
    """Ask through a client of its own, `informed` of all topics first; True when it was granted."""
    client = hand.cluster.client("admin")
    if informed:
        await _inform(hand, client)
    done = await _try(hand, event, attempt(client))
    client.close()
    return done


async def _ask(hand: Conductor, event: Event, asked: AdminRequest[None], what: str) -> bool:
    """Ask once; True when it was granted."""
    return await _with_client(hand, event, lambda client: client.perform(asked, what))


def _topic(hand: Conductor, name: str) -> TopicPlan:
    return hand.plan.topic(name)


def _pick(hand: Conductor, event: Event) -> tuple[int, State | None]:
    """A partition of the event's topic by the event's own chance, and its state."""
    partition = int(event.amount) % _topic(hand, event.target).partitions
    key = hand.oracle.metadata.find(event.target, partition)
    return partition, None if key is None else hand.oracle.metadata.partitions[key]


async def _inform(hand: Conductor, client: ClusterClient) -> None:
    """Let a client hear, if it can, where everything is."""
    for topic in hand.plan.topics:
        try:
            await asyncio.wait_for(client.refresh(topic.name), 3.0)
        except (OSError, AnswerError):
            client.forget()


async def _create_topic(
    hand: Conductor, event: Event, *, configs: Mapping[str, str] | None = None
) -> bool:
    name = f"x{int(event.amount)}"
    partitions = 1 + int(event.amount) % 3
    made = await _with_client(
        hand,
        event,
        lambda client: client.create_topic(
            name,
            partitions=partitions,
            replication_factor=min(3, hand.plan.brokers),
            configs=configs,
        ),
    )
    if made:
        hand.topics[name] = partitions
    return made


async def _delete_topic(hand: Conductor, event: Event) -> bool:
    """One that an event made: the others are judged to the end."""
    return await _has_topic(hand, event) and await _delete(hand, event, min(hand.topics))


async def _has_topic(hand: Conductor, event: Event) -> bool:
    """Whether there is a topic that an event made; where there was none, this one makes it."""
    is_there = bool(hand.topics) or await _create_topic(hand, event)
    return is_there and bool(hand.topics)  # another event may have deleted it meanwhile


async def _delete(hand: Conductor, event: Event, name: str) -> bool:
    done = await _ask(hand, event, delete_topic(name, _REQUEST_MS), "delete")
    if done:
        hand.topics.pop(name, None)
    return done


async def _recreate_topic(hand: Conductor, event: Event) -> bool:
    """A topic with records is deleted and made again; whoever is down meanwhile has the old one."""
    if not await _create_topic(hand, event):
        return False
    name = f"x{int(event.amount)}"
    await _fill(hand, event, name)
    await asyncio.sleep(event.seconds / 4)
    if not await _delete(hand, event, name):
        return False
    await asyncio.sleep(event.seconds / 4)
    made = await _create_topic(hand, event)
    await _fill(hand, event, name)
    return made


async def _recreate_behind_job(hand: Conductor, event: Event) -> bool:
    """A topic is deleted and made again while its flushes wait behind a slow disk's other jobs."""
    name = f"x{int(event.amount)}"
    if not await _create_topic(hand, event, configs=_ROLLS_SOON):
        return False
    await _fill(hand, event, name)
    machines = [hand.cluster.machine(node) for node in hand.cluster.brokers]
    for machine in machines:
        machine.slow_disk(_SLOW_US)
    try:
        for _ in range(3):
            await asyncio.sleep(_ROLLS_S)
            await _fill(hand, event, name)
        done = await _delete(hand, event, name)
        done &= await _create_topic(hand, event, configs=_ROLLS_SOON)
        await _fill(hand, event, name)
        await asyncio.sleep(event.seconds / 4)
    finally:
        for machine in machines:
            machine.slow_disk()
    return done


async def _fill(hand: Conductor, event: Event, name: str) -> None:
    """Write a little to every partition of a topic that an event made."""

    async def fill(client: ClusterClient) -> None:
        for partition in range(hand.topics.get(name, 0)):
            leader = await client.leader(name, partition)
            values = [f"{event.at} {number}".encode() for number in range(3)]
            await client.produce(name, partition, values, acks=1, node=leader)

    await _with_client(hand, event, fill)


async def _create_partitions(hand: Conductor, event: Event) -> bool:
    if not await _has_topic(hand, event):
        return False
    name = max(hand.topics)
    count = hand.topics[name] + 1
    done = await _ask(hand, event, add_partitions(name, count, timeout_ms=_REQUEST_MS), "grow")
    if done and name in hand.topics:
        hand.topics[name] = count
    return done


async def _set(
    hand: Conductor,
    event: Event,
    topic: str,
    name: str,
    value: str | None,
    kind: ResourceType = ResourceType.TOPIC,
) -> bool:
    """Set one configuration; None: take it back."""
    return await _ask(hand, event, alter_configs(kind, topic, {name: value}), f"set {name}")


async def _set_for_a_while(hand: Conductor, event: Event, name: str, value: str) -> bool:
    """Set a topic's configuration, and later back to what it was made with."""
    done = await _set(hand, event, event.target, name, value)
    await asyncio.sleep(event.seconds)
    await _set(hand, event, event.target, name, _topic(hand, event.target).configs[name])
    return done


async def _set_min_isr(hand: Conductor, event: Event) -> bool:
    value = 1 + int(event.amount) % _topic(hand, event.target).replication_factor
    return await _set_for_a_while(hand, event, MIN_INSYNC, str(value))


async def _throttle(hand: Conductor, event: Event) -> bool:
    """What is not in sync catches up slowly for a while (KIP-73)."""
    rate = str(20_000 + int(event.amount) % 100_000)
    done = True
    hand.throttled[event.target] += 1
    for name in _THROTTLES:
        done &= await _set(hand, event, event.target, f"{name}.replicas", "*")
        done &= await _set(hand, event, "", f"{name}.rate", rate, ResourceType.BROKER)
    await asyncio.sleep(event.seconds)
    lifted = True
    for asked in _lifting(event.target):
        lifted &= await _ask(hand, event, asked, "lift a throttle")
    if lifted:
        hand.throttled[event.target] -= 1
    return done


def _lifting(topic: str) -> list[AdminRequest[None]]:
    """What takes a throttle back."""
    return [
        asked
        for name in _THROTTLES
        for asked in (
            alter_configs(ResourceType.BROKER, "", {f"{name}.rate": None}),
            alter_configs(ResourceType.TOPIC, topic, {f"{name}.replicas": None}),
        )
    ]


async def lift_throttles(hand: Conductor) -> None:
    """Take back what no event could: with a throttle on, who is behind may stay there for ever.

    Those in sync are never held back, and what they fetch counts (KIP-73).
    """
    left = [topic for topic, events in hand.throttled.items() if events]
    if not left:
        return
    client = hand.cluster.client("operator")
    for topic in left:
        for asked in _lifting(topic):
            await client.until(partial(client.perform, asked, "lift a throttle"))
        hand.counts["throttles lifted by an operator"] += 1
    hand.throttled.clear()
    client.close()


async def elect(client: ClusterClient, topic: str, partition: int, kind: Election) -> None:
    """Ask once for an election. RetryError and RefusedError: it was not held."""
    asked = elect_leaders(kind, {topic: [partition]}, _REQUEST_MS)
    for code, _ in (await client.perform(asked, "elect")).values():
        check("elect", code)


def _is_worth_an_election(state: State, kind: Election) -> bool:
    if kind is Election.UNCLEAN:
        return state.leader < 0
    return (
        state.leader >= 0 and state.leader != state.replicas[0] and state.replicas[0] in state.isr
    )


async def _elect(hand: Conductor, event: Event, kind: Election) -> bool:
    partition, state = _pick(hand, event)
    loop = asyncio.get_running_loop()
    give_up = loop.time() + event.seconds
    while loop.time() <= give_up and (state is None or not _is_worth_an_election(state, kind)):
        await asyncio.sleep(0.25)
        partition, state = _pick(hand, event)
    if kind is Election.UNCLEAN:
        # From now on, for the request may be carried out at any time.
        hand.oracle.metadata.operator_unclean.add((event.target, partition))

    unanswered = hand.counts["administrative requests without an answer"]
    await _with_client(hand, event, lambda client: elect(client, event.target, partition, kind))
    # That no election is needed is an answer, and the usual one.
    return hand.counts["administrative requests without an answer"] == unanswered


async def _reassign(hand: Conductor, event: Event) -> bool:
    partition, state = _pick(hand, event)
    if state is None:
        return False
    draw = random.Random(event.amount)
    size = min(len(hand.cluster.brokers), max(1, len(state.replicas) + draw.choice((-1, 0, 0, 1))))
    size = max(size, _topic(hand, event.target).min_isr)
    target = draw.sample(list(hand.cluster.brokers), size)
    return await _with_client(
        hand,
        event,
        lambda client: client.reassign(event.target, partition, target),
        informed=True,
    )


async def _cancel_reassign(hand: Conductor, event: Event) -> bool:
    """Begin to move a partition and think better of it."""
    partition, state = _pick(hand, event)
    if state is None:
        return False
    # To somebody who is down, if there is one: else it is done before it can be cancelled.
    others = sorted(set(hand.cluster.brokers) - set(state.replicas), key=hand.cluster.is_up)
    target = [*state.replicas[:-1], *others[:1]] if others else list(state.replicas)[::-1]
    client = hand.cluster.client("admin")
    await _inform(hand, client)
    if not (state.adding or state.removing):
        await _try(hand, event, client.reassign(event.target, partition, target))
        await asyncio.sleep(event.seconds / 20)
    done = await _try(hand, event, client.reassign(event.target, partition, None))
    client.close()
    return done


async def _delete_records(hand: Conductor, event: Event) -> bool:
    partition, _ = _pick(hand, event)
    truth = hand.oracle.named(event.target, partition)
    if truth is None:
        return False
    expires = _topic(hand, event.target).expires  # else whoever asks is refused
    draw = random.Random(event.amount)
    offset = -1 if draw.random() < 0.2 else draw.randint(0, truth.committed.end)
    asked, named = hand.oracle.metadata, (event.target, partition)

    def allow(until: int) -> None:
        asked.deletions[named] = max(until, asked.deletions.get(named, 0))
        hand.history.note(DeleteRecords, "admin", *named, offset=until)

    async def delete(client: ClusterClient) -> None:
        if not expires:
            await client.delete_records(event.target, partition, offset)
            return
        # From now on, for the request may be carried out at any time.
        allow(truth.committed.end if offset < 0 else offset)
        asked.deletions_open[named] += offset < 0
        low = await client.delete_records(event.target, partition, offset)
        if offset < 0:
            allow(low)
            asked.deletions_open[named] -= 1  # how much was committed is known now

    return await _with_client(hand, event, delete, informed=True)


async def _change_voters(hand: Conductor, event: Event) -> bool:
    """A voter is sent away and comes back later; who is none becomes one."""
    node = hand.resolve(event.target)
    if node is None or not hand.plan.dynamic:
        return False
    client = hand.cluster.client("admin")
    voters = hand.roll.voters()
    leaves = node in voters and len(voters) > 1
    done = await _try(hand, event, hand.roll.change(client, node, joins=not leaves))
    if leaves:
        await asyncio.sleep(event.seconds)
        done &= await _try(hand, event, hand.roll.change(client, node, joins=True))
    client.close()
    return done


async def _unregister(hand: Conductor, event: Event, node: int) -> bool:
    """A broker is stopped and taken out of the cluster; later it comes back, as a new one."""
    await hand.stop(node)
    return await _ask(hand, event, unregister_broker(node), "unregister")


ADMIN: Final[dict[str, Perform]] = {
    "create_topic": _create_topic,
    "delete_topic": _delete_topic,
    "create_partitions": _create_partitions,
    "recreate_topic": _recreate_topic,
    "recreate_behind_job": _recreate_behind_job,
    "throttle": _throttle,
    "set_min_isr": _set_min_isr,
    "set_unclean": partial(_set_for_a_while, name=UNCLEAN_ELECTION, value="true"),
    "elect_preferred": partial(_elect, kind=Election.PREFERRED),
    "elect_unclean": partial(_elect, kind=Election.UNCLEAN),
    "unregister_broker": held(
        _unregister, unless=lambda hand, node: hand.is_voter(node) or hand.has_not_begun(node)
    ),
    "change_voters": _change_voters,
    "reassign": _reassign,
    "cancel_reassign": _cancel_reassign,
    "delete_records": _delete_records,
}
