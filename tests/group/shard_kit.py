"""A shard with what stands around it: a log that takes records or refuses, a clock, callers.

Everything that is appended goes through its bytes, so that a loaded shard sees what a log keeps.
Answers are given at once: the log commits what it takes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.group.shard_checks import check_shard

from holdfast.core.deadlines import NEVER_MS
from holdfast.core.group.any_group import Caller
from holdfast.core.group.classic.classic_group import ClassicGroup
from holdfast.core.group.classic.classic_state import ClassicState
from holdfast.core.group.group_settings import GroupSettings
from holdfast.core.group.shard import GroupShard
from holdfast.core.log_machine import Answer, Decision
from holdfast.wire.codec import encode
from holdfast.wire.errors import ErrorCode
from holdfast.wire.groups.consumer_protocol import (
    ConsumerProtocolSubscription,
    encode_subscription,
)
from holdfast.wire.messages.heartbeat import HeartbeatRequest
from holdfast.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from holdfast.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from holdfast.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from holdfast.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from holdfast.wire.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchRequestTopic
from holdfast.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from holdfast.wire.records.group_records import (
    decode_key,
    decode_value,
    encode_key,
    encode_value,
)
from holdfast.wire.schema import Response

Offsets = dict[tuple[str, int], int]
TURNS_MAX = 10_000
START_MS = 1_000_000


def subscription(*topics: str) -> bytes:
    return encode_subscription(ConsumerProtocolSubscription(topics=list(topics)))


class Coordinator:
    """One shard, and who performs what it decides."""

    def __init__(self, **settings: Any) -> None:
        self.settings = GroupSettings(**{"initial_rebalance_delay_ms": 0, **settings})
        self.log: list[tuple[bytes, bytes | None]] = []
        self.now_ms = START_MS
        self.answers: dict[int, Any] = {}
        self.calls = 0
        self.versions: dict[int, int] = {}  # that each call speaks
        self.refusal: ErrorCode | None = None  # what the log says to every append
        self.uuids = 0
        self.shard = self.load()

    def _new_id(self) -> str:
        self.uuids += 1
        return str(self.uuids)

    def load(self) -> GroupShard:
        """Load a new shard from the log."""
        shard = GroupShard(self.settings, self._new_id)
        for key_bytes, value_bytes in self.log:
            key = decode_key(key_bytes)
            shard.replay(key, None if value_bytes is None else decode_value(key, value_bytes))
        shard.loaded(self.now_ms)
        return shard

    def move(self) -> None:
        """Have another coordinator lead: it knows what is in the log, and nothing else."""
        self._give(self.shard.resign(ErrorCode.NOT_COORDINATOR))
        self.shard = self.load()
        self.run_due()

    # -- performing ------------------------------------------------------------------------------

    def perform(self, decision: Decision) -> None:
        """Append, then apply; or refuse."""
        if not decision.records or self.refusal is None:
            self.log += [
                (encode_key(key), None if value is None else encode_value(value))
                for key, value in decision.records
            ]
            self._give(self.shard.apply(decision))
        else:
            self._give(self.shard.refuse(decision, self.refusal))
        check_shard(self.shard)

    def _give(self, answers: list[Answer]) -> None:
        for answer in answers:
            assert answer.call not in self.answers, "a call is answered twice"
            self.answers[answer.call] = answer.response
            if isinstance(answer.response, Response):
                encode(answer.response, self.versions[answer.call])

    def run_due(self) -> None:
        """Do all that is due by now."""
        for _ in range(TURNS_MAX):
            if self.shard.deadline_ms > self.now_ms:
                return
            self.perform(self.shard.due(self.now_ms))
        raise AssertionError("there is always something due")

    def pass_time(self, milliseconds: int) -> None:
        """Let time pass from one deadline to the next."""
        until_ms = self.now_ms + milliseconds
        while True:
            self.run_due()
            deadline_ms = self.shard.deadline_ms
            if deadline_ms == NEVER_MS or deadline_ms > until_ms:
                self.now_ms = until_ms
                return
            self.now_ms = deadline_ms

    def ask(self, decide: Callable[..., Decision], *arguments: Any, **named: Any) -> Any:
        """Ask the shard something that is answered at once, and return the answer."""
        call = self.send(decide, *arguments, **named)
        return self.answers[call]

    def send(
        self,
        decide: Callable[..., Decision],
        *arguments: Any,
        version: int = 9,
        client: str = "c",
        **named: Any,
    ) -> int:
        """Ask the shard something, and return the number of the call."""
        self.calls += 1
        self.versions[self.calls] = version
        caller = Caller(self.calls, version, client, "/127.0.0.1")
        self.perform(decide(caller, *arguments, self.now_ms, **named))
        self.run_due()
        return self.calls

    # -- requests --------------------------------------------------------------------------------

    def join(
        self,
        group: str,
        member_id: str = "",
        *,
        client: str = "c",
        version: int = 9,
        instance: str | None = None,
        protocols: dict[str, bytes] | None = None,
        protocol_type: str = "consumer",
        session_ms: int = 10_000,
        rebalance_ms: int = 60_000,
    ) -> int:
        asked = {"range": subscription("t")} if protocols is None else protocols
        request = JoinGroupRequest(
            group_id=group,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type=protocol_type,
            protocols=[
                JoinGroupRequestProtocol(name=name, metadata=metadata)
                for name, metadata in asked.items()
            ],
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
        )
        return self.send(self.shard.join, request, version=version, client=client)

    def sync(
        self,
        group: str,
        member_id: str,
        generation: int,
        assignments: dict[str, bytes] | None = None,
        *,
        instance: str | None = None,
        protocol_type: str | None = None,
        protocol_name: str | None = None,
    ) -> int:
        request = SyncGroupRequest(
            group_id=group,
            member_id=member_id,
            generation_id=generation,
            group_instance_id=instance,
            protocol_type=protocol_type,
            protocol_name=protocol_name,
            assignments=[
                SyncGroupRequestAssignment(member_id=name, assignment=assignment)
                for name, assignment in (assignments or {}).items()
            ],
        )
        return self.send(self.shard.sync, request, version=5)

    def beat(
        self, group: str, member_id: str, generation: int, instance: str | None = None
    ) -> ErrorCode:
        request = HeartbeatRequest(
            group_id=group,
            member_id=member_id,
            generation_id=generation,
            group_instance_id=instance,
        )
        return ErrorCode(self.ask(self.shard.heartbeat, request, version=4).error_code)

    def leave(self, group: str, *members: tuple[str, str | None], version: int = 5) -> Any:
        request = LeaveGroupRequest(
            group_id=group,
            members=[
                MemberIdentity(member_id=member_id, group_instance_id=instance)
                for member_id, instance in members
            ],
        )
        if version < 3:
            request = LeaveGroupRequest(group_id=group, member_id=members[0][0])
        return self.ask(self.shard.leave, request, version=version)

    def commit(
        self,
        group: str,
        offsets: Offsets,
        *,
        member_id: str = "",
        generation: int = -1,
        instance: str | None = None,
        metadata: str | None = "",
        retention_ms: int = -1,
        version: int = 9,
    ) -> dict[tuple[str, int], ErrorCode]:
        """Commit offsets, and return what became of each."""
        response = self.ask(
            self.shard.commit_offsets,
            commit_request(
                group,
                offsets,
                member_id=member_id,
                generation=generation,
                instance=instance,
                metadata=metadata,
                retention_ms=retention_ms,
            ),
            version=version,
        )
        return {
            (topic.name, each.partition_index): ErrorCode(each.error_code)
            for topic in response.topics
            for each in topic.partitions
        }

    def fetch(self, group: str, topics: dict[str, list[int]] | None = None, **more: Any) -> Any:
        """Return a group's offsets as OffsetFetch answers them; all when no topics are named."""
        asked = None
        if topics is not None:
            asked = [
                OffsetFetchRequestTopic(name=name, partition_indexes=indexes)
                for name, indexes in topics.items()
            ]
        request = OffsetFetchRequestGroup(group_id=group, topics=asked)
        return self.ask(self.shard.fetch_offsets, request, **more)

    def offsets(self, group: str) -> Offsets:
        response = self.fetch(group)
        return {
            (topic.name, each.partition_index): each.committed_offset
            for topic in response.topics
            for each in topic.partitions
        }

    def delete_offsets(self, group: str, *partitions: tuple[str, int]) -> Any:
        request = OffsetDeleteRequest(
            group_id=group,
            topics=[
                OffsetDeleteRequestTopic(
                    name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=index)]
                )
                for topic, index in partitions
            ],
        )
        return self.ask(self.shard.delete_offsets, request, version=0)

    def describe(self, group: str, version: int = 6) -> Any:
        return self.ask(self.shard.describe_group, group, version=version)

    def list_groups(self, states: list[str] | None = None, types: list[str] | None = None) -> Any:
        return self.ask(self.shard.list_groups, states or [], types or [])

    def delete_group(self, group: str) -> ErrorCode:
        return ErrorCode(self.ask(self.shard.delete_group, group).error_code)

    def state(self, group: str) -> str:
        state: str = self.describe(group).group_state
        return state

    # -- stories that many tests begin with --------------------------------------------------------

    def new_member(self, group: str, client: str = "c", **more: Any) -> tuple[str, int]:
        """Join in two steps; return the member's id and the call of the second."""
        asked = self.answers[self.join(group, client=client, **more)]
        assert asked.error_code == ErrorCode.MEMBER_ID_REQUIRED
        member_id: str = asked.member_id
        return member_id, self.join(group, member_id, client=client, **more)

    def stable(self, group: str, *clients: str, **more: Any) -> list[str]:
        """Make a group of these members that is stable; return their ids, the leader's first.

        Each is assigned its own client's name.
        """
        members = {client: self.new_member(group, client, **more)[0] for client in clients}
        roster = self.inner(group).roster
        if self.state(group) == "PreparingRebalance":
            missing = [each for each in roster.members.values() if each.join_caller is None]
            for member in missing:
                self.join(group, member.member_id, client=member.client_id, **more)
        assert self.state(group) == "CompletingRebalance"
        generation = self.generation(group)
        assignments = {member_id: client.encode() for client, member_id in members.items()}
        for member_id in members.values():
            self.sync(group, member_id, generation, assignments)
        assert self.state(group) == "Stable"
        assert roster.leader_id == next(iter(members.values()))
        return list(members.values())

    def generation(self, group: str) -> int:
        return self.inner(group).generation

    def inner(self, group: str) -> ClassicState:
        """Return what a classic group knows of itself."""
        found = self.shard._groups.get(group)
        assert isinstance(found, ClassicGroup)
        return found.state


def commit_request(
    group: str,
    offsets: Offsets,
    *,
    member_id: str = "",
    generation: int = -1,
    instance: str | None = None,
    metadata: str | None = "",
    retention_ms: int = -1,
) -> OffsetCommitRequest:
    topics: dict[str, list[OffsetCommitRequestPartition]] = {}
    for (topic, index), offset in offsets.items():
        topics.setdefault(topic, []).append(
            OffsetCommitRequestPartition(
                partition_index=index, committed_offset=offset, committed_metadata=metadata
            )
        )
    return OffsetCommitRequest(
        group_id=group,
        member_id=member_id,
        generation_id_or_member_epoch=generation,
        group_instance_id=instance,
        retention_time_ms=retention_ms,
        topics=[
            OffsetCommitRequestTopic(name=name, partitions=partitions)
            for name, partitions in topics.items()
        ],
    )
