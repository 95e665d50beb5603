"""What one voter asks of the others: Vote, BeginQuorumEpoch, EndQuorumEpoch, UpdateRaftVoter.

Owns a connection and at most one task to each. Asking is repeated until it is answered or of no
more use; when it is of use, `core.quorum.voter` says. Fetches have connections of their own, for
one that waits for news would hold these up.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final

from holdfast.core.quorum.voter import Quorum
from holdfast.core.quorum.voter_changes import KRAFT_VERSIONS
from holdfast.core.quorum.voter_events import AskVotes, EndEpoch, Role
from holdfast.core.quorum.voter_set import Voter
from holdfast.node.quorum.controller_addresses import ControllerAddresses
from holdfast.node.quorum.quorum_replica import Member, QuorumReplica
from holdfast.runtime.dial import Connection, dial
from holdfast.wire.errors import ErrorCode, error_code
from holdfast.wire.messages import begin_quorum_epoch as begin
from holdfast.wire.messages import end_quorum_epoch as end
from holdfast.wire.messages import update_raft_voter as update
from holdfast.wire.messages import vote
from holdfast.wire.structs import KRaftVersionFeature, QuorumEndpoint
from holdfast.wire.well_known import METADATA_TOPIC

logger = logging.getLogger("holdfast.quorum")

PAUSE_MS_MAX: Final = 500


class Peers:
    """The other voters, as this one reaches them."""

    def __init__(
        self, replica: QuorumReplica, state: Quorum, addresses: ControllerAddresses, member: Member
    ) -> None:
        self._replica = replica
        self._state = state
        self._addresses = addresses
        self._member = member
        self._connections: dict[tuple[str, int], Connection] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._client_id = f"quorum-{replica.key.node_id}"
        # While a leader hears nothing from a voter for so long, it tells it again that it leads.
        self._silence_ms = max(1, replica.settings.controller_quorum_fetch_timeout_ms // 2)

    def ask_votes(self, asked: AskVotes) -> None:
        self._start_all(lambda voter: self._ask_vote(voter, asked))

    def begin_epoch(self, epoch: int) -> None:
        self._start_all(lambda voter: self._tell_beginning(voter, epoch))

    def end_epoch(self, ended: EndEpoch) -> None:
        self._start_all(lambda voter: self._tell_end(voter, ended))

    def tell_address(self, leader: Voter, epoch: int) -> None:
        self._start(leader, self._tell_address(leader, epoch))

    def stop(self) -> None:
        """Ask nothing more; connections stay."""
        for task in self._tasks.values():
            task.cancel()
        self._tasks.clear()

    async def finish(self, seconds: float) -> None:
        """Wait until what is asked now has been answered, so long at most."""
        if self._tasks:
            await asyncio.wait(list(self._tasks.values()), timeout=seconds)

    def close(self) -> None:
        self.stop()
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def _start_all(self, work: Callable[[Voter], Coroutine[Any, Any, None]]) -> None:
        for voter in self._state.voters.others(self._replica.key.node_id):
            self._start(voter, work(voter))

    def _start(self, voter: Voter, work: Coroutine[Any, Any, None]) -> None:
        before = self._tasks.pop(voter.node_id, None)
        if before is not None:
            before.cancel()
        task = asyncio.get_running_loop().create_task(work)
        task.add_done_callback(self._member.loop_ended)
        self._tasks[voter.node_id] = task

    # -- each request --------------------------------------------------------------------------

    async def _ask_vote(self, voter: Voter, asked: AskVotes) -> None:
        key = self._replica.key
        wanted = vote.RequestPartitionData(
            partition_index=0,
            replica_epoch=asked.epoch,
            replica_id=key.node_id,
            replica_directory_id=key.directory_id,
            voter_directory_id=voter.directory_id,
            last_offset_epoch=max(asked.log_end.epoch, 0),
            last_offset=asked.log_end.offset,
            pre_vote=asked.pre_vote,
        )
        request = vote.VoteRequest(
            cluster_id=self._replica.cluster_id,
            voter_id=voter.node_id,
            topics=[vote.RequestTopicData(topic_name=METADATA_TOPIC, partitions=[wanted])],
        )
        answer = await self._ask_while(lambda: self._state.round == asked.round, voter, request)
        if answer is not None:
            found = answer.topics[0].partitions[0]
            self._addresses.learn(answer.node_endpoints)
            self._member.vote_answered(
                asked,
                voter.node_id,
                found.leader_epoch,
                found.leader_id,
                granted=found.vote_granted,
            )

    async def _tell_beginning(self, voter: Voter, epoch: int) -> None:
        """Tell it until it fetches, and again whenever it has not fetched for a while."""
        wanted = begin.RequestPartitionData(
            partition_index=0,
            voter_directory_id=voter.directory_id,
            leader_id=self._replica.key.node_id,
            leader_epoch=epoch,
        )
        request = begin.BeginQuorumEpochRequest(
            cluster_id=self._replica.cluster_id,
            voter_id=voter.node_id,
            topics=[begin.RequestTopicData(topic_name=METADATA_TOPIC, partitions=[wanted])],
            leader_endpoints=self._endpoints(),
        )

        def leads() -> bool:
            return self._state.leading and self._state.epoch == epoch

        while leads():
            self._heard(
                await self._ask_while(lambda: leads() and not self._fetches(voter), voter, request)
            )
            await asyncio.sleep(self._silence_ms / 1000)

    def _fetches(self, voter: Voter) -> bool:
        """Return whether it has fetched from us lately."""
        progress = self._state.replicas.get(voter.key)
        if progress is None or progress.end_then < 0:
            return False
        return self._replica.runtime.clock.monotonic_ms() - progress.fetched_ms < self._silence_ms

    async def _tell_end(self, voter: Voter, ended: EndEpoch) -> None:
        wanted = end.RequestPartitionData(
            partition_index=0,
            leader_id=self._replica.key.node_id,
            leader_epoch=ended.epoch,
            preferred_successors=list(ended.successors),
            preferred_candidates=[
                end.ReplicaInfo(candidate_id=each.node_id, candidate_directory_id=each.directory_id)
                for each in map(self._state.voters.find, ended.successors)
                if each is not None
            ],
        )
        request = end.EndQuorumEpochRequest(
            cluster_id=self._replica.cluster_id,
            topics=[end.RequestTopicData(topic_name=METADATA_TOPIC, partitions=[wanted])],
            leader_endpoints=self._endpoints(),
        )
        state = self._state
        self._heard(
            await self._ask_while(
                lambda: state.role is Role.RESIGNED and state.epoch == ended.epoch, voter, request
            )
        )

    async def _tell_address(self, leader: Voter, epoch: int) -> None:
        """Say where this node listens, until the voters' record says so or somebody else leads."""
        key = self._replica.key
        request = update.UpdateRaftVoterRequest(
            cluster_id=self._replica.cluster_id,
            current_leader_epoch=epoch,
            voter_id=key.node_id,
            voter_directory_id=key.directory_id,
            listeners=self._endpoints(),
            k_raft_version_feature=KRaftVersionFeature(
                min_supported_version=KRAFT_VERSIONS[0], max_supported_version=KRAFT_VERSIONS[1]
            ),
        )
        pause_s = max(1, self._replica.settings.controller_quorum_fetch_timeout_ms) / 1000
        logger.info("the voters' record has another address of ours: telling the leader")
        while self._addresses.moved and self._state.epoch == epoch:
            answer = await self._send(leader, request)
            if answer is not None and answer.error_code != ErrorCode.NONE:
                code = error_code(answer.error_code)
                logger.warning("the leader does not write our address down: %s", code.name)
            await asyncio.sleep(pause_s)

    def _endpoints(self) -> list[QuorumEndpoint]:
        """Return where this node listens, as a request says it."""
        own = self._addresses.find(self._replica.key.node_id)
        if own is None:
            return []
        name = self._replica.settings.controller_listener_names[0]
        return [QuorumEndpoint(name=name, host=own.host, port=own.port)]

    def _heard(self, answer: Any) -> None:
        """Tell whom a voter follows; None: it has not answered as long as that was wanted."""
        if answer is not None:
            found = answer.topics[0].partitions[0]
            self._member.heard(found.leader_epoch, found.leader_id, answer.node_endpoints)

    # -- connections ---------------------------------------------------------------------------

    async def _ask_while(self, wanted: Callable[[], bool], voter: Voter, request: Any) -> Any:
        """Ask until there is an answer, and return it; None when it is not wanted any more."""
        attempt = 0
        while wanted():
            answer = await self._ask(voter, request)
            if answer is not None:
                return answer
            attempt += 1
            await self._pause(attempt)
        return None

    async def _ask(self, voter: Voter, request: Any) -> Any:
        """Send one request; None when there is no answer, or none that says anything."""
        answer = await self._send(voter, request)
        if answer is None:
            return None
        code = answer.error_code
        partitions = [each for topic in answer.topics for each in topic.partitions]
        if code == ErrorCode.NONE and len(partitions) == 1:
            code = partitions[0].error_code
            if code not in _STRANGE:
                return answer
        logger.warning("voter %d refuses: %s", voter.node_id, error_code(code).name)
        return None

    async def _send(self, voter: Voter, request: Any) -> Any:
        """Send one request; None when there is no answer."""
        replica = self._replica
        timeout_ms = max(1, replica.settings.controller_quorum_request_timeout_ms)
        address = voter.host, voter.port
        connection = self._connections.get(address)
        try:
            if connection is None or not connection.is_open:
                connection = await dial(
                    replica.runtime, *address, self._client_id, timeout_ms=timeout_ms
                )
                self._connections[address] = connection
            return await connection.send(request, timeout_ms=timeout_ms)
        except OSError as error:
            logger.debug("voter %d does not answer: %s", voter.node_id, error)
            return None

    async def _pause(self, attempt: int) -> None:
        backoff_ms = max(1, self._replica.settings.controller_quorum_retry_backoff_ms)
        pause_ms = min(PAUSE_MS_MAX, backoff_ms << min(attempt - 1, 10))
        jitter_ms = self._replica.runtime.random.below(pause_ms // 2 + 1)
        await asyncio.sleep((pause_ms // 2 + jitter_ms) / 1000)


_STRANGE: Final = (
    # Answers that say nothing of epochs or leaders: the voter is not who we think it is, or starts.
    ErrorCode.BROKER_NOT_AVAILABLE,
    ErrorCode.INCONSISTENT_CLUSTER_ID,
    ErrorCode.INVALID_VOTER_KEY,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.INVALID_REQUEST,
)
