"""Which refusals are certain: the ambiguity rule, for every producer here, and for deletions.

A refusal is certain only when the record was sent once: a retry may hide that an earlier attempt
was appended. Code 6 is never certain, since it also comes from a leader that appended and fell.

Rules: errors.md#ambiguous-outcomes.
"""

from __future__ import annotations

CERTAIN_CODES: dict[int, str] = {
    2: "CORRUPT_MESSAGE",
    3: "UNKNOWN_TOPIC_OR_PARTITION",
    10: "MESSAGE_TOO_LARGE",
    17: "INVALID_TOPIC_EXCEPTION",
    18: "RECORD_LIST_TOO_LARGE",
    19: "NOT_ENOUGH_REPLICAS",
    21: "INVALID_REQUIRED_ACKS",
    29: "TOPIC_AUTHORIZATION_FAILED",
    32: "INVALID_TIMESTAMP",
    45: "OUT_OF_ORDER_SEQUENCE_NUMBER",
    47: "INVALID_PRODUCER_EPOCH",
    87: "INVALID_RECORD",
}
# Answers to DeleteRecords after which nothing is gone. A leader that falls, or whose followers are
# late, may have deleted before it answers.
DELETES_NOTHING: dict[int, str] = {
    1: "OFFSET_OUT_OF_RANGE",
    29: "TOPIC_AUTHORIZATION_FAILED",
    44: "POLICY_VIOLATION",
}
# Answers to OffsetCommit that come from a decision before anything is appended (rules:
# committed-offsets.md#who-may-commit). After any other it may have been, and be replicated later.
COMMITS_NOTHING: dict[int, str] = {
    3: "UNKNOWN_TOPIC_OR_PARTITION",
    12: "OFFSET_METADATA_TOO_LARGE",
    22: "ILLEGAL_GENERATION",
    24: "INVALID_GROUP_ID",
    25: "UNKNOWN_MEMBER_ID",
    27: "REBALANCE_IN_PROGRESS",
    29: "TOPIC_AUTHORIZATION_FAILED",
    30: "GROUP_AUTHORIZATION_FAILED",
    69: "GROUP_ID_NOT_FOUND",
    82: "FENCED_INSTANCE_ID",
    110: "FENCED_MEMBER_EPOCH",
    113: "STALE_MEMBER_EPOCH",
}
# librdkafka's own: the record never left its queue.
CERTAIN_LOCAL = frozenset({"_QUEUE_FULL", "_PURGE_QUEUE", "_UNKNOWN_PARTITION", "_UNKNOWN_TOPIC"})


def is_certain(code: int, name: str, *, retries: int) -> bool:
    """Say whether a record that ended so is certainly not in the log, and never will be."""
    if name in CERTAIN_LOCAL:
        return retries == 0 or name == "_QUEUE_FULL"
    return retries == 0 and code in CERTAIN_CODES
