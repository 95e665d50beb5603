"""The fetchers of one broker, one for each broker that leads something of ours.

Owns which fetcher a replica is fetched by; when that changes is not decided here.
"""

from __future__ import annotations

from holdfast.core.metadata.image import PartitionKey
from holdfast.node.broker.following_replica import FollowingReplica
from holdfast.node.broker.leader_fetcher import FetcherSurroundings, LeaderFetcher


class Fetchers:
    """Begins and stops fetching from any leader."""

    def __init__(self, surroundings: FetcherSurroundings) -> None:
        self._surroundings = surroundings
        self.by_source: dict[int, LeaderFetcher] = {}

    def assign(self, source: int, replica: FollowingReplica, *, in_sync: bool) -> None:
        """Fetch for a replica from a broker, in its leader epoch; `in_sync`: it is in the ISR."""
        fetcher = self.by_source.get(source)
        if fetcher is None:
            fetcher = self.by_source[source] = LeaderFetcher(self._surroundings, source)
        fetcher.assign(replica, in_sync=in_sync)

    def remove(self, key: PartitionKey) -> None:
        """Fetch for this partition no longer, from whomever it was."""
        for fetcher in self.by_source.values():
            fetcher.remove(key)

    async def close(self) -> None:
        """Stop fetching."""
        for fetcher in self.by_source.values():
            await fetcher.close()
