"""Who is in a classic group: members, ids given out, the leader, and what all of them can speak.

Owns the counts that decisions ask for at each request, so that none of them looks at all members.
Knows no state, no time and no record.

Rules: classic-groups.md#protocol-selection, classic-groups.md#leader.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from holdfast.core.group.any_group import Caller
from holdfast.core.group.classic.classic_member import (
    MEMBER_OVERHEAD_BYTES,
    PENDING_OVERHEAD_BYTES,
    Member,
)
from holdfast.wire.errors import ErrorCode


class Roster:
    """The members, in the order in which they came."""

    __slots__ = (
        "_by_instance",
        "_joined",
        "_supporters",
        "bytes",
        "leader_id",
        "members",
        "pending",
        "unsynced",
    )

    def __init__(self) -> None:
        self.members: dict[str, Member] = {}
        self.leader_id: str | None = None
        # Ids that were given out, whose clients did not come back with them yet; in order.
        self.pending: dict[str, None] = {}
        # Members of this generation whose SyncGroup did not come yet; in order.
        self.unsynced: dict[str, None] = {}
        self.bytes = 0  # what all of this takes, about
        self._by_instance: dict[str, str] = {}
        self._supporters: dict[str, int] = {}  # protocol to how many members can speak it
        self._joined = 0

    # -- members ---------------------------------------------------------------------------------

    def add(self, member: Member) -> None:
        """Add a member. The first one leads."""
        assert member.member_id not in self.members, "a member comes once"
        if member.instance_id is not None:
            assert member.instance_id not in self._by_instance, "an instance has one member"
            self._by_instance[member.instance_id] = member.member_id
        self.drop_pending(member.member_id)
        self.members[member.member_id] = member
        if self.leader_id is None:
            self.leader_id = member.member_id
        self._count(member, 1)

    def has_namesake(self, member: Member) -> bool:
        """Whether somebody is there with its id, or as its instance."""
        return member.member_id in self.members or member.instance_id in self._by_instance

    def remove(self, member_id: str) -> Member | None:
        """Take out a member. If it led, the one that came first after it leads."""
        member = self.members.pop(member_id, None)
        if member is None:
            return None
        assert member.join_caller is None, "it still waits for its JoinGroup"
        assert member.sync_caller is None, "it still waits for its SyncGroup"
        if member.instance_id is not None:
            del self._by_instance[member.instance_id]
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        self.unsynced.pop(member_id, None)
        self._count(member, -1)
        return member

    def clear(self) -> dict[str, Member]:
        """Take out all members, and return them. Ids that were given out stay."""
        members, self.members = self.members, {}
        self.leader_id = None
        self._by_instance.clear()
        for member in members.values():
            self._count(member, -1)
        assert self._joined == 0, "somebody still waits for a JoinGroup"
        return members

    def update(
        self,
        member: Member,
        protocols: dict[str, bytes],
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
    ) -> None:
        """Take over what a member says of itself when it joins again."""
        self._count(member, -1)
        member.update(protocols, rebalance_timeout_ms, session_timeout_ms)
        self._count(member, 1)

    def rename(self, old_id: str, new_id: str) -> Member:
        """Let a static member have another id; it keeps its assignment, and leads if it did.

        It has its place behind all others then.
        """
        member = self.members.pop(old_id)
        assert member.instance_id is not None, "only a static member is replaced"
        assert member.join_caller is None, "its other life still waits"
        assert member.sync_caller is None, "its other life still waits"
        self._count(member, -1)
        member.member_id = new_id
        member.is_new = False
        self.members[new_id] = member
        self._by_instance[member.instance_id] = new_id
        if self.leader_id == old_id:
            self.leader_id = new_id
        self.unsynced.pop(old_id, None)
        self._count(member, 1)
        return member

    def add_pending(self, member_id: str) -> None:
        assert member_id not in self.members, "an id is given out once"
        self.pending[member_id] = None
        self.bytes += len(member_id) + PENDING_OVERHEAD_BYTES

    def drop_pending(self, member_id: str) -> bool:
        """Forget an id that was given out. False: it was not, or its client has come."""
        if member_id not in self.pending:
            return False
        del self.pending[member_id]
        self.bytes -= len(member_id) + PENDING_OVERHEAD_BYTES
        return True

    def member_of_instance(self, instance_id: str) -> str | None:
        return self._by_instance.get(instance_id)

    def check(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """Say whether this is a member: FENCED_INSTANCE_ID when its instance has another id now."""
        if instance_id is not None:
            known = self._by_instance.get(instance_id)
            if known is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if known != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        if member_id not in self.members:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE

    # -- who waits for a rebalance -----------------------------------------------------------------

    @property
    def joined(self) -> int:
        """How many members have joined the rebalance that is prepared, and wait for it."""
        return self._joined

    @property
    def all_joined(self) -> bool:
        """Whether every member has, and every client that was given an id has come back."""
        return self._joined == len(self.members) and not self.pending

    def park_join(self, member: Member, caller: Caller) -> Caller | None:
        """Let a JoinGroup wait; return the one that the member has let wait before, if any."""
        before, member.join_caller = member.join_caller, caller
        if before is None:
            self._joined += 1
        return before

    def unpark_join(self, member: Member) -> Caller | None:
        """Return whose JoinGroup is to be answered now."""
        caller, member.join_caller = member.join_caller, None
        if caller is not None:
            self._joined -= 1
        return caller

    def elect_joined(self) -> bool:
        """Have somebody lead who has joined. False when nobody has, or nobody is there."""
        if self.leader_id is None:
            return False
        if self.members[self.leader_id].join_caller is None:
            joined = (each.member_id for each in self.members.values() if each.join_caller)
            leader_id = next(joined, None)
            if leader_id is None:
                return False
            self.leader_id = leader_id
        return True

    # -- protocols -------------------------------------------------------------------------------

    def can_speak(self, names: Iterable[str]) -> bool:
        """Whether all members can speak one of these protocols."""
        count = len(self.members)
        return any(self._supporters.get(name, 0) == count for name in names)

    def select_protocol(
        self, instead: Member | None = None, protocols: Collection[str] = ()
    ) -> str | None:
        """Return the protocol that most members like best, of those that all can speak.

        `instead` and `protocols` answer what it would be if that member could speak these. Of
        equals the one wins that got its first vote first. None: no protocol is common.
        """
        count = len(self.members)
        assert count, "an empty group speaks nothing"
        supporters = self._supporters
        if instead is not None:
            supporters = dict(supporters)
            for name in instead.protocols:
                supporters[name] -= 1
            for name in protocols:
                supporters[name] = supporters.get(name, 0) + 1
        candidates = {name for name, number in supporters.items() if number == count}
        if not candidates:
            return None
        votes: dict[str, int] = {}
        for member in self.members.values():
            if member is instead:
                choice = next(name for name in protocols if name in candidates)
            else:
                choice = member.vote(candidates)
            votes[choice] = votes.get(choice, 0) + 1
        return max(votes, key=votes.__getitem__)

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest time that a member asks for to rejoin."""
        return max((each.rebalance_timeout_ms for each in self.members.values()), default=0)

    def size_with(self, member_id: str, protocols_bytes: int) -> int:
        """Return what all of this would take if this member said so much of itself."""
        member = self.members.get(member_id)
        if member is not None:
            return self.bytes + protocols_bytes - member.protocols_bytes
        if member_id in self.pending:
            return self.bytes + protocols_bytes + MEMBER_OVERHEAD_BYTES - PENDING_OVERHEAD_BYTES
        return self.bytes + protocols_bytes + MEMBER_OVERHEAD_BYTES

    def _count(self, member: Member, sign: int) -> None:
        self.bytes += sign * (member.own_bytes + member.protocols_bytes)
        for name in member.protocols:
            number = self._supporters.get(name, 0) + sign
            if number:
                self._supporters[name] = number
            else:
                del self._supporters[name]
