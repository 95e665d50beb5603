"""The simulator sees: a broker that refuses what may be written, or that serves somebody no more.

Goal: what is refused or in doubt is no loss for the judge, so that a broker which refuses
everything would pass for the safest one. Method: one producer's outcomes are made up; each refusal
beside the settings, or the loss, that allows it, and beside those that don't. Seen to fail: each
condition taken out of `_allowed` or of `_left_alone`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest

from holdfast.judge.history import Acknowledged, PartitionEvent, Refused, Send, Unknown
from holdfast.testing.simulated_client import AnswerError, ClusterClient
from holdfast.testing.simulation.allowances import Forgiveness, Reason
from holdfast.testing.simulation.clients import Batch, History, SimulatedProducer
from holdfast.testing.simulation.invariants import Invariant
from holdfast.testing.simulation.metadata import State
from holdfast.testing.simulation.oracle import Oracle
from holdfast.testing.simulation.plan import Event, Plan, ProducerPlan, TopicPlan
from holdfast.testing.simulation.refusals import PASSING, wrong_refusals
from holdfast.wire.errors import ErrorCode

TOPIC_ID = bytes(range(16))
HEALED_S = 20.0
PRODUCER = ProducerPlan(
    topic="t", partition=0, acks=-1, idempotent=True, retries=True, pause_ms=100
)
CONFIGS = {"min.insync.replicas": "2"}
NO_CLIENT = cast("ClusterClient", None)  # nothing is sent


class Story:
    """One producer of one partition, what was told it, and what is true of the partition."""

    def __init__(
        self,
        *,
        configs: Mapping[str, str] = CONFIGS,
        producer: ProducerPlan = PRODUCER,
        size: int = 1,
        stamp: int | None = None,
    ) -> None:
        self.plan = Plan(
            seed=0, brokers=3, controllers=1, combined=False, elr=False, seconds=HEALED_S,
            topics=(TopicPlan(name="t", partitions=1, replication_factor=3, configs=configs),),
            producers=(producer,),
            events=(Event(at=5.0, kind="kill", target="broker:1"),),
        )  # fmt: skip
        self.oracle = Oracle()
        metadata = self.oracle.metadata
        metadata.topics[TOPIC_ID] = "t"
        metadata.configs[2, "t"] = dict(configs)
        metadata.partitions[TOPIC_ID, 0] = State(
            replicas=(0, 1, 2), isr=(0, 1, 2), leader=0, leader_epoch=1, partition_epoch=1
        )
        self.history = History()
        self.add(Send, 0.0, digest="d", size=size, timestamp=stamp)

    def add(self, kind: type[PartitionEvent], at_s: float, **values: object) -> None:
        values.setdefault("id", "p:1")
        self.history.batches.setdefault(str(values["id"]), 0)
        self.history.events.append(
            kind(at_ms=at_s * 1000, wall_ms=0, process="p", topic="t", partition=0, **values)
        )

    def serve(self, at_s: float = HEALED_S + 1) -> None:
        self.add(Acknowledged, at_s, offset=0)

    def told(self) -> list[Invariant]:
        return [invariant for invariant, _ in wrong_refusals(self.plan, self.history, self.oracle)]


@pytest.mark.parametrize("kind", [Refused, Unknown])
@pytest.mark.parametrize(
    "error", ["INVALID_RECORD", "CORRUPT_MESSAGE", "UNKNOWN_SERVER_ERROR", "RECORD_LIST_TOO_LARGE"]
)
def test_what_is_in_order_is_never_refused_so(kind: type[PartitionEvent], error: str) -> None:
    story = Story()
    story.add(kind, 3.0, error=error)
    story.serve()
    assert story.told() == [Invariant.REFUSED_RIGHTLY]


@pytest.mark.parametrize("error", [*sorted(code.name for code in PASSING), "ConnectionLostError"])
def test_what_passes_is_no_mistake(error: str) -> None:
    story = Story()
    story.add(Unknown, 3.0, error=error)
    story.serve()
    assert story.told() == []


SMALL = CONFIGS | {"max.message.bytes": "700"}
WILD = replace(PRODUCER, stamps="wild")


@pytest.mark.parametrize(
    ("error", "good", "bad"),
    [
        ("MESSAGE_TOO_LARGE", Story(configs=SMALL, size=700), Story(size=700)),
        ("MESSAGE_TOO_LARGE", Story(configs=SMALL, size=650), Story(configs=SMALL, size=300)),
        ("INVALID_TIMESTAMP", Story(producer=WILD, stamp=-2), Story(producer=WILD, stamp=1)),
        ("INVALID_TIMESTAMP", Story(producer=WILD, stamp=1 << 62), Story(producer=WILD)),
    ],
)
def test_a_refusal_that_the_batch_and_settings_allow(error: str, good: Story, bad: Story) -> None:
    """Seen to fail: whatever a topic of small batches was sent could be refused as too large."""
    for story in (good, bad):
        story.add(Refused, HEALED_S + 1, error=error)  # which is an answer, too
    assert good.told() == []
    assert bad.told() == [Invariant.REFUSED_RIGHTLY]


def test_a_batch_is_as_large_as_its_records_together() -> None:
    story = Story(configs=SMALL, size=300)
    story.add(Send, 0.0, id="p:2", digest="d", size=300, timestamp=None)
    for name in ("p:1", "p:2"):
        story.add(Refused, HEALED_S + 1, id=name, error="MESSAGE_TOO_LARGE")
    assert story.told() == []


@pytest.mark.parametrize(
    ("error", "configs", "first", "blamed"),
    [
        ("MESSAGE_TOO_LARGE", SMALL, {"size": 700}, 1),
        ("MESSAGE_TOO_LARGE", SMALL, {"size": 300}, 2),
        ("INVALID_TIMESTAMP", CONFIGS, {"timestamp": -2}, 1),
    ],
)
def test_what_is_wrong_with_one_batch_excuses_no_other(
    error: str, configs: Mapping[str, str], first: Mapping[str, int], blamed: int
) -> None:
    """A pipeline is told of both at one moment. Seen to fail: they counted as one batch."""
    story = Story(configs=configs)
    story.history.events.clear()
    for number, extra in enumerate((first, {"size": 300})):
        story.history.batches[f"p:{number}"] = number
        sent = {"id": f"p:{number}", "digest": "d", "size": 1, "timestamp": None, **extra}
        story.add(Send, 0.0, **sent)
    for number in range(2):
        story.add(Refused, HEALED_S + 1, id=f"p:{number}", error=error)
    assert story.told() == [Invariant.REFUSED_RIGHTLY] * blamed


def test_a_sequence_is_out_of_order_where_something_was_lost_as_allowed() -> None:
    story = Story()
    story.add(Unknown, 3.0, error="OUT_OF_ORDER_SEQUENCE_NUMBER")
    story.serve()
    assert story.told() == [Invariant.REFUSED_RIGHTLY]
    truth = story.oracle.truth((TOPIC_ID, 0))
    truth.allowances.given.append(Forgiveness(epoch=1, offset=0, reason=Reason.UNCLEAN))
    assert story.told() == []


def test_a_deposed_leader_does_not_know_what_its_successor_took() -> None:
    """Seen by two seeds of 650: cut off for 20 s, it was asked again by a producer between both."""
    story = Story()
    story.add(Unknown, 3.0, error="OUT_OF_ORDER_SEQUENCE_NUMBER")
    story.serve()
    story.history.told_by_deposed.add("p:2")
    assert story.told() == [Invariant.REFUSED_RIGHTLY]
    story.history.told_by_deposed.add("p:1")
    assert story.told() == []
    other = Story()
    other.add(Unknown, 3.0, error="INVALID_RECORD")  # which it knows as well as any
    other.serve()
    other.history.told_by_deposed.add("p:1")
    assert other.told() == [Invariant.REFUSED_RIGHTLY]


def test_the_last_answer_counts_and_who_leads_is_what_is_committed() -> None:
    """Seen to fail: a note that stays, and one that asks whether anybody leads."""
    story = Story()
    batch = Batch("p", {"p:1": (b"p:1", None)}, give_up_s=1e9, attempts=1)
    refused = AnswerError("produce", ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)

    async def answered(leader: int) -> set[str]:
        producer = SimulatedProducer(PRODUCER, NO_CLIENT, story.history, story.oracle, seed=1)
        assert not producer.settle(batch, leader, refused)
        return set(story.history.told_by_deposed)

    assert asyncio.run(answered(2)) == {"p:1"}
    assert asyncio.run(answered(0)) == set()


def served_by(plan: ProducerPlan, *outcomes: int | AnswerError) -> bool:
    """Whether these outcomes, one batch each, serve a producer."""
    story = Story()
    client = cast("ClusterClient", SimpleNamespace(forget=lambda: None))

    async def settle() -> bool:
        producer = SimulatedProducer(plan, client, story.history, story.oracle, seed=1)
        for number, outcome in enumerate(outcomes):
            name = f"p:{number}"
            batch = Batch("p", {name: (b"", None)}, give_up_s=-1.0, attempts=1)
            assert producer.settle(batch, 0, outcome)
        return producer.served_s >= 0

    return asyncio.run(settle())


def test_who_gives_up_is_not_served_by_that() -> None:
    """Seen to fail: whoever began another batch was one that had just begun to wait."""
    late = AnswerError("produce", ErrorCode.REQUEST_TIMED_OUT)
    assert not served_by(PRODUCER, late, late)
    assert served_by(PRODUCER, 5, late)
    assert served_by(replace(PRODUCER, acks=0), -1)


def test_a_refusal_serves_whom_little_else_is_due() -> None:
    wild = AnswerError("produce", ErrorCode.INVALID_TIMESTAMP)
    assert not served_by(PRODUCER, wild)
    assert served_by(WILD, wild)
    assert not served_by(WILD, AnswerError("produce", ErrorCode.NOT_ENOUGH_REPLICAS))
    large = AnswerError("produce", ErrorCode.MESSAGE_TOO_LARGE)
    assert not served_by(replace(PRODUCER, oversized=0.05), large)
    assert served_by(replace(PRODUCER, oversized=0.05, size_max=3_000), large)


@pytest.mark.parametrize("kind", [Refused, Unknown])
def test_who_is_refused_to_the_end_is_seen(kind: type[PartitionEvent]) -> None:
    story = Story()
    story.serve(HEALED_S - 1)
    story.add(kind, HEALED_S + 5, error="NOT_ENOUGH_REPLICAS")
    assert story.told() == [Invariant.SERVED_AGAIN]
    story.serve(HEALED_S + 6)
    assert story.told() == []


@pytest.mark.parametrize("pipelined", [False, True])
def test_who_was_never_served_is_seen(*, pipelined: bool) -> None:
    story = Story(producer=replace(PRODUCER, pipelined=pipelined))
    assert story.told() == [Invariant.SERVED_AGAIN]


@pytest.mark.parametrize("state", [{"leader": -1}, {"isr": (0,)}])
def test_nobody_need_be_served_by_too_few(state: dict[str, object]) -> None:
    story = Story()
    partitions = story.oracle.metadata.partitions
    partitions[TOPIC_ID, 0] = replace(partitions[TOPIC_ID, 0], **state)  # type: ignore[arg-type]
    assert story.told() == []


def test_nobody_need_be_served_who_can_not_be() -> None:
    """Before a rescue, unhurt."""
    rescued, unhurt = Story(), Story()
    rescued.oracle.metadata.operator_unclean.add(("t", 0))
    unhurt.plan = replace(unhurt.plan, events=())
    for story in (rescued, unhurt):
        assert story.told() == []


def test_a_minority_that_was_dead_excuses_nobody() -> None:
    """Seen to fail: nobody looked where some nodes stayed down. All are back in the end."""
    story = Story()
    story.plan = replace(story.plan, broken=("broker:1",))
    assert story.told() == [Invariant.SERVED_AGAIN]
    story.serve()
    assert story.told() == []


def test_acks_0_hears_nothing_and_is_served() -> None:
    story = Story(producer=replace(PRODUCER, acks=0, idempotent=False))
    story.add(Unknown, HEALED_S + 1, error="acks=0")
    assert story.told() == []
