"""Where controllers listen, and finding the leader when the log does not say it (KIP-853).

A controller that has just joined knows no voters, one that was away long may know only such as are
gone, and a set that is rolled back may lack the leader. Then controller.quorum.bootstrap.servers
are asked, one after the other, who leads. Owns that asking, the addresses that answers have named,
and this node's own, which may be another one than the log has. It decides nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from holdfast.config.key import ConfigError
from holdfast.core.names import METADATA_TOPIC
from holdfast.core.quorum_events import NOBODY
from holdfast.core.voters import Voter
from holdfast.node.initial_voters import own_voter
from holdfast.runtime.dial import dial
from holdfast.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ReplicaState,
)
from holdfast.wire.uuids import METADATA_TOPIC_ID

if TYPE_CHECKING:
    from holdfast.node.quorum import QuorumMember

logger = logging.getLogger("holdfast.quorum")

ADDRESSES_MAX: Final = 100


class Discovery:
    """Asks while no leader is known, or not where it is."""

    def __init__(self, member: QuorumMember) -> None:
        self._member = member
        self._addresses: dict[int, Voter] = {}
        self._leader: tuple[int, Voter] | None = None  # epoch, and what its leader says
        self._own = self._configured()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin, if there is anybody to ask."""
        if self._member.settings.controller_quorum_bootstrap_servers:
            self._task = asyncio.get_running_loop().create_task(self._look())
            self._task.add_done_callback(self._member.loop_ended)

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def learn(self, endpoints: Sequence[Any]) -> None:
        """An answer has named where controllers are."""
        for each in endpoints:
            if each.node_id in self._addresses or len(self._addresses) < ADDRESSES_MAX:
                self._addresses[each.node_id] = Voter(each.node_id, each.host, each.port)

    def leader_says(self, epoch: int, leader: Voter) -> None:
        """The leader of an epoch has told where it listens: nobody knows that better.

        Where the configuration fixes the voters, it fixes their addresses as well.
        """
        if not self._member.voter_log.fixed:
            self._leader = epoch, leader

    def address(self, node_id: int) -> Voter | None:
        """Where a controller listens; None: nobody has said that yet.

        The voters' record counts for less than the controller itself, and for more than others.
        """
        member = self._member
        if node_id == member.key.node_id and self._own is not None:
            return self._own
        if self._leader is not None:
            epoch, leader = self._leader
            if (epoch, leader.node_id) == (member.epoch, node_id):
                return leader
        return member.voters.find(node_id) or self._addresses.get(node_id)

    @property
    def moved(self) -> bool:
        """Whether the voters' record has this node, but not where it listens now."""
        member = self._member
        recorded = member.voters.find(member.key.node_id)
        if self._own is None or recorded is None or recorded.key != member.key:
            return False
        return recorded != self._own and member.voter_log.history.kraft_version > 0

    def _configured(self) -> Voter | None:
        """Where this controller listens; None: that is fixed, or its listener doesn't say it."""
        member = self._member
        if member.voter_log.fixed:
            return None
        try:
            return own_voter(member.settings, member.key.directory_id)
        except ConfigError:
            return None

    async def _look(self) -> None:
        member = self._member
        servers = member.settings.controller_quorum_bootstrap_servers
        pause_s = max(1, member.settings.controller_quorum_election_timeout_ms) / 2000
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
        """Whether nobody is known to lead, or it isn't known where he is.

        A voter asks, too, though it stands for election: the others of its set may be gone for
        good, and those that took their places unknown to it.
        """
        member = self._member
        return member.leader_id == NOBODY or member.address(member.leader_id) is None

    async def _ask(self, host: str, port: int) -> None:
        """One Fetch that names no epoch: whoever it reaches says who leads. OSError."""
        member = self._member
        timeout_ms = max(1, member.settings.controller_quorum_fetch_timeout_ms)
        connection = await dial(
            member.runtime,
            host,
            port,
            f"quorum-{member.key.node_id}-discovery",
            timeout_ms=timeout_ms,
        )
        try:
            response = await connection.send(self._question(), timeout_ms=timeout_ms)
        finally:
            connection.close()
        for topic in response.responses:
            for found in topic.partitions:
                leader = found.current_leader
                member.heard(leader.leader_epoch, leader.leader_id, response.node_endpoints)
        member.follow_again()

    def _question(self) -> FetchRequest:
        wanted = FetchPartition(
            partition=0, fetch_offset=self._member.log.end, partition_max_bytes=1
        )
        return FetchRequest(
            cluster_id=self._member.cluster_id,
            replica_state=ReplicaState(replica_id=NOBODY),
            max_wait_ms=0,
            min_bytes=1,
            max_bytes=1,
            topics=[
                FetchTopic(topic=METADATA_TOPIC, topic_id=METADATA_TOPIC_ID, partitions=[wanted])
            ],
        )
