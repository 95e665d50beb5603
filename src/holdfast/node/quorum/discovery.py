"""Finding the quorum's leader when the log does not say who it is (KIP-853).

A controller that has just joined knows no voters, one that was away long may know only such as are
gone, and a set that is rolled back may lack the leader. Then controller.quorum.bootstrap.servers
are asked, one after the other, who leads. Owns that asking; it decides nothing.
"""

from __future__ import annotations

import asyncio
import logging

from holdfast.core.quorum.voter import Quorum
from holdfast.core.quorum.voter_events import NOBODY
from holdfast.node.metadata.metadata_fetch import metadata_fetch
from holdfast.node.quorum.controller_addresses import ControllerAddresses
from holdfast.node.quorum.quorum_replica import Member, QuorumReplica
from holdfast.runtime.dial import dial
from holdfast.wire.messages.fetch import FetchPartition

logger = logging.getLogger("holdfast.quorum")


class Discovery:
    """Asks while no leader is known, or not where it is."""

    def __init__(
        self,
        replica: QuorumReplica,
        state: Quorum,
        addresses: ControllerAddresses,
        member: Member,
    ) -> None:
        self._replica = replica
        self._state = state
        self._addresses = addresses
        self._member = member
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin, if there is anybody to ask."""
        if self._replica.settings.controller_quorum_bootstrap_servers:
            self._task = asyncio.get_running_loop().create_task(self._look())
            self._task.add_done_callback(self._member.loop_ended)

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _look(self) -> None:
        settings = self._replica.settings
        servers = settings.controller_quorum_bootstrap_servers
        pause_s = max(1, settings.controller_quorum_election_timeout_ms) / 2000
        turn = 0
        while True:
            await asyncio.sleep(pause_s)
            if not self._is_lost:
                continue
            server = servers[turn % len(servers)]
            turn += 1
            try:
                await self._ask(server.host, server.port)
            except OSError as error:
                logger.debug("%s:%d does not say who leads: %s", server.host, server.port, error)

    @property
    def _is_lost(self) -> bool:
        """Return whether the leader is not known, or not where it is.

        A voter asks, too, though it stands for election: the others of its set may be gone for
        good, and those that took their places unknown to it.
        """
        leader = self._state.known_leader
        return leader == NOBODY or self._addresses.find(leader) is None

    async def _ask(self, host: str, port: int) -> None:
        """Send one Fetch that names no epoch: whoever gets it says who leads. OSError."""
        replica = self._replica
        timeout_ms = max(1, replica.settings.controller_quorum_fetch_timeout_ms)
        connection = await dial(
            replica.runtime,
            host,
            port,
            f"quorum-{replica.key.node_id}-discovery",
            timeout_ms=timeout_ms,
        )
        # Not before: while it connected, its log may have grown, or been cut.
        wanted = FetchPartition(partition=0, fetch_offset=replica.log.end, partition_max_bytes=1)
        try:
            response = await connection.send(
                metadata_fetch(wanted, cluster_id=replica.cluster_id), timeout_ms=timeout_ms
            )
        finally:
            connection.close()
        for topic in response.responses:
            for found in topic.partitions:
                leader = found.current_leader
                self._member.heard(leader.leader_epoch, leader.leader_id, response.node_endpoints)
        self._member.follow_again()
