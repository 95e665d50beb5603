"""Where the leader is, for the answers that tell a client so. Not an API of its own.

Rules: connections.md#leader-hints.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from holdfast.core.metadata.image import NO_LEADER

if TYPE_CHECKING:
    from holdfast.node.broker.broker import Broker


def current_leader(broker: Broker, topic: str, index: int) -> tuple[int, int] | None:
    """Leader and leader epoch of a partition as the image has them; None when there is none."""
    decided = broker.image.partition(topic, index)
    if decided is None or decided.leader == NO_LEADER:
        return None
    return decided.leader, decided.leader_epoch


def endpoints(
    broker: Broker, nodes: Iterable[int], listener: str
) -> Iterator[tuple[int, str, int, str | None]]:
    """Yield id, host, port and rack of each broker that has the listener the client came by."""
    for node in nodes:
        registered = broker.image.brokers.get(node)
        endpoint = registered.endpoint(listener) if registered else None
        if registered is not None and endpoint is not None:
            yield node, endpoint.host, endpoint.port, registered.rack
