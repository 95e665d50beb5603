"""What an operator asks of a cluster in the middle of it all: a function for each kind of event.

A refusal is an answer like any other. True: the cluster said yes.
"""

from __future__ import annotations

import asyncio
import random
from typing import Final

from holdfast.judge.history import DeleteRecords
from holdfast.testing.client import AnswerError, ClusterClient, check
from holdfast.testing.simulation.conductor import Conductor, Perform
from holdfast.testing.simulation.metadata import State
from holdfast.testing.simulation.plan import Event, TopicPlan
from holdfast.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from holdfast.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from holdfast.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from holdfast.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from holdfast.wire.messages.unregister_broker import UnregisterBrokerRequest

_TIMEOUT_S = 12.0
_TOPIC, _BROKER = 2, 4  # resource types
_SET, _DELETE = 0, 1  # what is done to a configuration
PREFERRED, UNCLEAN = 0, 1


async def _try(hand: Conductor, event: Event, attempt: object) -> bool:
    """Wait for an administrative request, but not for ever; True when it was granted."""
    try:
        await asyncio.wait_for(attempt, _TIMEOUT_S)  # type: ignore[arg-type]
    except AnswerError as error:
        hand.counts["administrative requests refused"] += 1
        hand.note(f"{event.kind}: {error}")
        return False
    except OSError as error:
        hand.counts["administrative requests without an answer"] += 1
        hand.note(f"{event.kind}: {error or type(error).__name__}")
        return False
    return True


def _topic(hand: Conductor, name: str) -> TopicPlan:
    return next(topic for topic in hand.plan.topics if topic.name == name)


def _pick(hand: Conductor, event: Event) -> tuple[int, State | None]:
    """A partition of the event's topic by the event's own chance, and its state."""
    topic = _topic(hand, event.target)
    partition = int(event.amount) % topic.partitions
    for key, state in hand.oracle.metadata.partitions.items():
        if key[1] == partition and hand.oracle.metadata.topics[key[0]] == topic.name:
            return partition, state
    return partition, None


async def _with_client(hand: Conductor) -> ClusterClient:
    client = hand.cluster.client("admin")
    for topic in hand.plan.topics:
        try:
            await asyncio.wait_for(client.refresh(topic.name), 3.0)
        except (OSError, AnswerError):
            client.forget()
    return client


async def _create_topic(hand: Conductor, event: Event) -> bool:
    name = f"x{int(event.amount)}"
    partitions = 1 + int(event.amount) % 3
    client = hand.cluster.client("admin")
    made = await _try(
        hand,
        event,
        client.create_topic(
            name, partitions=partitions, replication_factor=min(3, hand.plan.brokers)
        ),
    )
    if made:
        hand.topics[name] = partitions
    client.close()
    return made


async def _delete_topic(hand: Conductor, event: Event) -> bool:
    """One that an event made: the others are judged to the end."""
    if not hand.topics and not await _create_topic(hand, event):
        return False
    return bool(hand.topics) and await _delete(hand, event, min(hand.topics))


async def _delete(hand: Conductor, event: Event, name: str) -> bool:
    client = hand.cluster.client("admin")

    async def delete() -> None:
        response = await client.ask(
            DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=3000)
        )
        check("delete", response.responses[0].error_code)

    done = await _try(hand, event, delete())
    if done:
        hand.topics.pop(name, None)
    client.close()
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


async def _fill(hand: Conductor, event: Event, name: str) -> None:
    """Write a little to every partition of a topic that an event made."""
    client = hand.cluster.client("admin")

    async def fill() -> None:
        for partition in range(hand.topics.get(name, 0)):
            leader = await client.leader(name, partition)
            values = [f"{event.at} {number}".encode() for number in range(3)]
            await client.produce(name, partition, values, acks=1, node=leader)

    await _try(hand, event, fill())
    client.close()


async def _create_partitions(hand: Conductor, event: Event) -> bool:
    if not hand.topics and not await _create_topic(hand, event):
        return False
    if not hand.topics:
        return False
    name = max(hand.topics)
    client = hand.cluster.client("admin")
    count = hand.topics[name] + 1

    async def grow() -> None:
        response = await client.ask(
            CreatePartitionsRequest(
                topics=[CreatePartitionsTopic(name=name, count=count, assignments=None)],
                timeout_ms=3000,
            )
        )
        check("grow", response.results[0].error_code)

    done = await _try(hand, event, grow())
    if done and name in hand.topics:
        hand.topics[name] = count
    client.close()
    return done


async def _set(
    hand: Conductor, event: Event, topic: str, name: str, value: str | None, kind: int = _TOPIC
) -> bool:
    """Set one configuration; None: take it back."""
    client = hand.cluster.client("admin")

    async def alter() -> None:
        operation = _DELETE if value is None else _SET
        config = AlterableConfig(name=name, config_operation=operation, value=value)
        resource = AlterConfigsResource(resource_type=kind, resource_name=topic, configs=[config])
        response = await client.ask(IncrementalAlterConfigsRequest(resources=[resource]))
        check(f"set {name}", response.responses[0].error_code)

    done = await _try(hand, event, alter())
    client.close()
    return done


async def _set_min_isr(hand: Conductor, event: Event) -> bool:
    topic = _topic(hand, event.target)
    value = 1 + int(event.amount) % topic.replication_factor
    done = await _set(hand, event, topic.name, "min.insync.replicas", str(value))
    await asyncio.sleep(event.seconds)
    await _set(hand, event, topic.name, "min.insync.replicas", topic.configs["min.insync.replicas"])
    return done


async def _set_unclean(hand: Conductor, event: Event) -> bool:
    """Switch it on for a while, and back to what the topic was made with."""
    name = "unclean.leader.election.enable"
    topic = _topic(hand, event.target)
    done = await _set(hand, event, topic.name, name, "true")
    await asyncio.sleep(event.seconds)
    await _set(hand, event, topic.name, name, topic.configs[name])
    return done


async def _throttle(hand: Conductor, event: Event) -> bool:
    """What is not in sync catches up slowly for a while (KIP-73)."""
    rate = str(20_000 + int(event.amount) % 100_000)
    names = [f"{side}.replication.throttled" for side in ("leader", "follower")]
    done = True
    for name in names:
        done &= await _set(hand, event, event.target, f"{name}.replicas", "*")
        done &= await _set(hand, event, "", f"{name}.rate", rate, _BROKER)
    await asyncio.sleep(event.seconds)
    for name in names:
        await _set(hand, event, "", f"{name}.rate", None, _BROKER)
        await _set(hand, event, event.target, f"{name}.replicas", None)
    return done


async def elect(client: ClusterClient, topic: str, partition: int, kind: int) -> None:
    """Ask once for an election. RetryError and RefusedError: it was not held."""
    response = await client.ask(
        ElectLeadersRequest(
            election_type=kind,
            topic_partitions=[TopicPartitions(topic=topic, partitions=[partition])],
            timeout_ms=3000,
        )
    )
    results = response.replica_election_results
    check("elect", response.error_code)
    if results:
        check("elect", results[0].partition_result[0].error_code)


def _is_worth_an_election(state: State, kind: int) -> bool:
    if kind == UNCLEAN:
        return state.leader < 0
    return (
        state.leader >= 0 and state.leader != state.replicas[0] and state.replicas[0] in state.isr
    )


async def _elect(hand: Conductor, event: Event, kind: int) -> bool:
    partition, state = _pick(hand, event)
    give_up = asyncio.get_running_loop().time() + event.seconds
    while state is None or not _is_worth_an_election(state, kind):
        if asyncio.get_running_loop().time() > give_up:
            break
        await asyncio.sleep(0.25)
        partition, state = _pick(hand, event)
    client = hand.cluster.client("admin")
    if kind == UNCLEAN:
        # From now on, for the request may be carried out at any time.
        hand.oracle.metadata.operator_unclean.add((event.target, partition))

    unanswered = hand.counts["administrative requests without an answer"]
    await _try(hand, event, elect(client, event.target, partition, kind))
    client.close()
    # That no election is needed is an answer, and the usual one.
    return hand.counts["administrative requests without an answer"] == unanswered


async def _elect_preferred(hand: Conductor, event: Event) -> bool:
    return await _elect(hand, event, PREFERRED)


async def _elect_unclean(hand: Conductor, event: Event) -> bool:
    return await _elect(hand, event, UNCLEAN)


async def _reassign(hand: Conductor, event: Event) -> bool:
    partition, state = _pick(hand, event)
    if state is None:
        return False
    draw = random.Random(event.amount)
    size = min(len(hand.cluster.brokers), max(1, len(state.replicas) + draw.choice((-1, 0, 0, 1))))
    size = max(size, _topic(hand, event.target).min_isr)
    target = draw.sample(list(hand.cluster.brokers), size)
    client = await _with_client(hand)
    done = await _try(hand, event, client.reassign(event.target, partition, target))
    client.close()
    return done


async def _cancel_reassign(hand: Conductor, event: Event) -> bool:
    """Begin to move a partition and think better of it."""
    partition, state = _pick(hand, event)
    if state is None:
        return False
    # To somebody who is down, if there is one: else it is done before it can be cancelled.
    others = sorted(set(hand.cluster.brokers) - set(state.replicas), key=hand.is_up)
    target = [*state.replicas[:-1], *others[:1]] if others else list(state.replicas)[::-1]
    client = await _with_client(hand)
    begun = state.adding or state.removing
    if not begun:
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
    draw = random.Random(event.amount)
    offset = -1 if draw.random() < 0.2 else draw.randint(0, truth.committed.end)
    asked, named = hand.oracle.metadata, (event.target, partition)
    client = await _with_client(hand)

    def allow(until: int) -> None:
        asked.deletions[named] = max(until, asked.deletions.get(named, 0))
        now_ms, wall_ms = hand.history.now()
        hand.history.events.append(
            DeleteRecords(
                at_ms=now_ms, wall_ms=wall_ms, process="admin", topic=event.target,
                partition=partition, offset=until,
            )
        )  # fmt: skip

    async def delete() -> None:
        low = await client.delete_records(event.target, partition, offset)
        if offset < 0:
            allow(low)
            asked.deletions_open[named] -= 1  # how much was committed is known now

    # From now on, for the request may be carried out at any time.
    allow(truth.committed.end if offset < 0 else offset)
    asked.deletions_open[named] += offset < 0
    done = await _try(hand, event, delete())
    client.close()
    return done


async def _change_voters(hand: Conductor, event: Event) -> bool:
    """A voter is sent away and comes back later; who is none becomes one."""
    node = hand.resolve(event.target)
    if node is None or not hand.plan.dynamic:
        return False
    client = hand.cluster.client("admin")

    async def change(*, joins: bool) -> None:
        check("change of voters", await hand.roll.change(client, node, joins=joins))

    voters = hand.roll.voters()
    leaves = node in voters and len(voters) > 1
    done = await _try(hand, event, change(joins=not leaves))
    if leaves:
        await asyncio.sleep(event.seconds)
        done &= await _try(hand, event, change(joins=True))
    client.close()
    return done


async def _unregister_broker(hand: Conductor, event: Event) -> bool:
    """A broker is stopped and taken out of the cluster; later it comes back, as a new one."""
    node = hand.take(event.target, event)
    if node is None:
        return False
    if node in hand.cluster.controllers or hand.cluster.nodes.get(node) is None:
        hand.release(node)
        return False
    await hand.stop(node)
    client = hand.cluster.client("admin")

    async def unregister() -> None:
        response = await client.ask(UnregisterBrokerRequest(broker_id=node))
        check("unregister", response.error_code)

    done = await _try(hand, event, unregister())
    client.close()
    await asyncio.sleep(event.seconds)
    hand.release(node)
    return done


ADMIN: Final[dict[str, Perform]] = {
    "create_topic": _create_topic,
    "delete_topic": _delete_topic,
    "create_partitions": _create_partitions,
    "recreate_topic": _recreate_topic,
    "throttle": _throttle,
    "set_min_isr": _set_min_isr,
    "set_unclean": _set_unclean,
    "elect_preferred": _elect_preferred,
    "elect_unclean": _elect_unclean,
    "unregister_broker": _unregister_broker,
    "change_voters": _change_voters,
    "reassign": _reassign,
    "cancel_reassign": _cancel_reassign,
    "delete_records": _delete_records,
}
