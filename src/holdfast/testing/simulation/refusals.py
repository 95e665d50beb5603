"""Who was told no, and whether anything allows it: what is in doubt or refused is no loss for the
judge, so that a broker that refuses all would be the safest one.

Owns which refusals a batch, its topic's settings, and what its partition has lost, can bring about;
and that a producer is served again once all is well. Must never excuse one by what a broker says,
nor a batch by what is wrong with another one.

Rules: produce.md#acks, batches.md#produced-batch, producers.md#sequences.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final

from holdfast.judge.history import Acknowledged, Refused, Send, Unknown
from holdfast.testing.simulation.clients import History
from holdfast.testing.simulation.invariants import Invariant
from holdfast.testing.simulation.oracle import Oracle
from holdfast.testing.simulation.plan import AHEAD_MS, Plan, ProducerPlan
from holdfast.wire.batch_header import HEADER_SIZE, NO_TIMESTAMP
from holdfast.wire.errors import ErrorCode

# What a batch may meet that is in order, while nodes and links fail.
PASSING: Final = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,  # no controller gives out producers' ids
        ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)  # fmt: skip
_CODES: Final = frozenset(code.name for code in ErrorCode)
_PASSING_NAMES: Final = frozenset(code.name for code in PASSING)

# What may stand around a value, and around what a codec makes no smaller.
_RECORD_BYTES_MAX: Final = 40
_CODEC_BYTES_MAX: Final = 100

Key = tuple[str, int]


def wrong_refusals(plan: Plan, history: History, oracle: Oracle) -> Iterator[tuple[Invariant, str]]:
    """Tell each refusal that nothing allows, and each producer that is served no more."""
    producers = {(one.topic, one.partition): one for one in plan.producers}
    served: dict[Key, float] = {}  # when each was last told what it should be
    batches = _batches(history)
    for event in history.events:
        if not isinstance(event, (Acknowledged, Refused, Unknown)):
            continue
        key = event.topic, event.partition
        producer = producers.get(key)
        if producer is None:
            continue
        if isinstance(event, Acknowledged) or not producer.acks:
            served[key] = event.at_ms
            continue
        if isinstance(event, Refused) and event.error not in _PASSING_NAMES:
            served[key] = event.at_ms
        batch = batches[history.batches[event.id]]
        deposed = any(each.id in history.told_by_deposed for each in batch)
        allowed = _allowed(plan, producer, oracle, batch, deposed=deposed)
        if event.error in _CODES - _PASSING_NAMES - allowed:
            yield (
                Invariant.REFUSED_RIGHTLY,
                f"{event.topic}-{event.partition}: {event} from {producer}",
            )
    yield from _left_alone(plan, producers, served, history, oracle)


def _batches(history: History) -> dict[int, list[Send]]:
    """Return what was sent in each batch.

    By its number: a pipeline is told of several batches of a partition at one moment.
    """
    found: dict[int, list[Send]] = defaultdict(list)
    for event in history.events:
        if isinstance(event, Send):
            found[history.batches[event.id]].append(event)
    return found


def _allowed(
    plan: Plan, producer: ProducerPlan, oracle: Oracle, batch: Sequence[Send], *, deposed: bool
) -> set[str]:
    """What this batch may meet besides. `deposed`: who answered last no longer led."""
    limits = {each.name: each.configs.get("max.message.bytes") for each in plan.topics}
    limit = limits.get(producer.topic)
    truth = oracle.named(producer.topic, producer.partition)
    found = set()
    size = sum(each.size + _RECORD_BYTES_MAX for each in batch)
    if limit is not None and HEADER_SIZE + size + _CODEC_BYTES_MAX > int(limit):
        found.add(ErrorCode.MESSAGE_TOO_LARGE.name)
    if any(map(_is_wild, batch)):
        found.add(ErrorCode.INVALID_TIMESTAMP.name)
    # Its last batches may be gone, or be where who was asked has not seen them.
    if deposed or truth is None or truth.allowances.given:
        found.add(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER.name)
    return found


def _is_wild(sent: Send) -> bool:
    """Whether its timestamp is one that nobody has to take."""
    stamp = sent.timestamp
    return stamp is not None and not NO_TIMESTAMP <= stamp <= sent.wall_ms + AHEAD_MS


def _left_alone(
    plan: Plan,
    producers: dict[Key, ProducerPlan],
    served: dict[Key, float],
    history: History,
    oracle: Oracle,
) -> Iterator[tuple[Invariant, str]]:
    """Who has had no answer since the faults ended, though all are back and enough are in sync."""
    begun_ms = next((event.at_ms for event in history.events if isinstance(event, Send)), None)
    if not plan.events or begun_ms is None:
        return
    healed_ms = begun_ms + plan.seconds * 1000
    metadata = oracle.metadata
    for key, producer in producers.items():
        found = metadata.find(*key)
        if found is None or key in metadata.operator_unclean:
            continue
        state = metadata.partitions[found]
        whole = state.leader >= 0 and len(state.isr) >= metadata.min_isr(found)
        if whole and served.get(key, 0.0) < healed_ms:
            last = f"answered last at {served.get(key)} ms, faults ended at {healed_ms:.0f}"
            yield Invariant.SERVED_AGAIN, f"{key[0]}-{key[1]}: {producer} was {last}; {state}"
