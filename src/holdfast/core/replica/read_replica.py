"""Which replica a consumer should read from (rules: fetch.md#nearest-replica).

Owns the choice that Kafka's RackAwareReplicaSelector makes, from what a leader knows. It never
sends anybody to a replica that may not have the offset.
"""

from __future__ import annotations

from collections.abc import Callable

from holdfast.core.replica.replication import Leader


def preferred_read_replica(
    leader: Leader, offset: int, rack: str, rack_of: Callable[[int], str | None]
) -> int | None:
    """The follower that a consumer in `rack` should fetch `offset` from; None: from the leader.

    `rack_of` gives None for a broker that the consumer can't reach. Of several the one that is
    furthest wins, then the one that was caught up last, then the lower id.
    """
    if not rack or rack_of(leader.node) == rack:
        return None
    best: tuple[int, int, int] | None = None
    for node, follower in leader.followers.items():
        # Only members of the ISR: another one may lag for ever, and its readers with it.
        if (
            node in leader.isr
            and follower.log_start <= offset <= follower.log_end
            and follower.log_start >= 0
            and rack_of(node) == rack
        ):
            candidate = (follower.log_end, follower.last_caught_up_ms, -node)
            best = candidate if best is None else max(best, candidate)
    return None if best is None else -best[2]
