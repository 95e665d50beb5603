"""Who may not read, and whether anything allows it: what a consumer is not given is no loss for the
judge, so that a broker that refuses all would be the safest one.

Owns which errors a fetch may be answered with: by anybody, by who leads and knows it, and by whose
disk has failed. Must never excuse one by what a broker says.

Rules: fetch.md#fetch-sessions, fetch.md#readable-end.
"""

from __future__ import annotations

from typing import Final

from holdfast.testing.simulation.ends import Ends, ends_at, is_same
from holdfast.testing.simulation.oracle import Oracle
from holdfast.wire.errors import ErrorCode

# By a broker that does not lead, or has not heard yet that it does.
_BY_OTHERS: Final = frozenset(
    {
        ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)  # fmt: skip


def true_leader(oracle: Oracle, topic: str, partition: int, node: int) -> Ends | None:
    """What a node has that leads by the last record and has begun to; None: it does not."""
    key = oracle.metadata.find(topic, partition)
    if key is None:
        return None
    state = oracle.metadata.partitions[key]
    ends = ends_at(oracle.truth(key), node)
    leads = ends is not None and (node, ends.epoch) == (state.leader, state.leader_epoch)
    return ends if leads else None


def is_refused_rightly(
    oracle: Oracle,
    topic: str,
    partition: int,
    node: int,
    *,
    before: Ends | None,
    at: int,
    code: int,
) -> bool:
    """Whether a node may answer a fetch `at` an offset so.

    `before`: what it had when it was asked, if it led. Who has led all the while knows it.
    """
    if code == ErrorCode.KAFKA_STORAGE_ERROR:
        return oracle.faults.offline(node)
    truth = oracle.named(topic, partition)
    led = (
        before is not None
        and truth is not None
        and is_same(truth, node, before)
        and true_leader(oracle, topic, partition, node) is not None
    )
    if code == ErrorCode.OFFSET_OUT_OF_RANGE:
        return not (led and before is not None and before.replica.start <= at <= before.committed)
    goes = node in oracle.stopping or oracle.faults.offline(node)  # it lets go before it is heard
    return code in _BY_OTHERS and (goes or not led)
