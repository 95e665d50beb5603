"""The state of one classic group: what the log says of it, and what only its coordinator knows.

Owns the five states and their moves, the generation, and the record in which a generation is kept.
The record is written when a group is made, when its last member has gone, when a leader has
assigned, and when a static member got another id: so the log knows a group that is empty or stable.
While it rebalances, the group runs ahead of the log; a coordinator that loads it then finds the
generation before, whose members come back and begin again.

Rules: classic-groups.md#states, classic-groups.md#what-the-log-keeps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum, IntEnum, auto
from typing import Final

from holdfast.core.deadlines import Deadlines
from holdfast.core.group.any_group import Caller
from holdfast.core.group.classic.classic_member import Member
from holdfast.core.group.classic.classic_roster import Roster
from holdfast.core.group.group_memory import GroupMemory
from holdfast.core.group.group_settings import GroupSettings
from holdfast.core.log_machine import KeyedRecord
from holdfast.wire.errors import WireError
from holdfast.wire.groups.consumer_protocol import PROTOCOL_TYPE, decode_subscription
from holdfast.wire.records.group_tables import (
    GroupMetadataKey,
    GroupMetadataMember,
    GroupMetadataValue,
)


class GroupState(Enum):
    """The five states, as Kafka spells them."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


S = GroupState
# From each state, where it may go. A group is dead when it was removed from the log: nobody finds
# it any more.
MOVES: Final[dict[S, frozenset[S]]] = {
    S.EMPTY: frozenset({S.PREPARING_REBALANCE, S.EMPTY, S.DEAD}),
    S.PREPARING_REBALANCE: frozenset({S.COMPLETING_REBALANCE, S.EMPTY, S.DEAD}),
    S.COMPLETING_REBALANCE: frozenset({S.STABLE, S.PREPARING_REBALANCE, S.DEAD}),
    S.STABLE: frozenset({S.PREPARING_REBALANCE, S.STABLE, S.DEAD}),
    S.DEAD: frozenset(),
}
assert MOVES.keys() == set(S), "every state needs a row"


class TimerKind(IntEnum):  # whose hash is C's: each heartbeat looks for its member's
    SESSION = auto()  # one for each member, and each id that was given out
    JOIN = auto()
    SYNC = auto()


NAMES_MAX: Final = 50_000
"""Topics that the members of a group may name in all for us to know which it reads."""

_NAMES_COUNT: Final = slice(2, 6)  # of a subscription, behind its version

TimerKey = tuple[TimerKind, str]
JOIN_TIMER: Final[TimerKey] = (TimerKind.JOIN, "")
SYNC_TIMER: Final[TimerKey] = (TimerKind.SYNC, "")


class ClassicState:
    """What decisions about one group work on. Its moves are in `classic_rebalance`."""

    __slots__ = (
        "generation",
        "group_id",
        "initial_step_ms",
        "memory",
        "new_id",
        "new_member_added",
        "parked",
        "previous",
        "protocol",
        "protocol_type",
        "remaining_ms",
        "retention_version",
        "roster",
        "settings",
        "since_ms",
        "state",
        "subscribed",
        "timers",
    )

    def __init__(
        self,
        group_id: str,
        settings: GroupSettings,
        new_id: Callable[[], str],
        memory: GroupMemory,
    ) -> None:
        self.group_id = group_id
        self.settings = settings
        self.memory = memory  # of all groups of the broker
        self.new_id = new_id  # a new UUID at each call
        self.state = S.EMPTY
        self.previous = S.DEAD
        self.since_ms = -1  # when it came into its state; -1: the log doesn't say
        self.generation = 0
        self.protocol_type: str | None = None  # None: it never had members
        self.protocol: str | None = None
        # Topics that the members of this generation read; None: not known.
        self.subscribed: frozenset[str] | None = None
        self.roster = Roster()
        self.timers: Deadlines[TimerKey] = Deadlines()
        self.parked: dict[int, Member] = {}  # whose call waits, by its number
        self.retention_version = 0
        # The rebalance of a group that was empty waits for more members: step by step, while some
        # came during the last one.
        self.new_member_added = False
        self.initial_step_ms = 0
        self.remaining_ms = 0

    # -- moves -----------------------------------------------------------------------------------

    def enter(self, state: GroupState, now_ms: int) -> None:
        assert state in MOVES[self.state], f"{self.state} -> {state}"
        self.previous, self.state = self.state, state
        self.since_ms = now_ms
        self.retention_version += 1

    @property
    def is_initial(self) -> bool:
        """Whether it prepares the first rebalance since it was empty."""
        return self.state is S.PREPARING_REBALANCE and self.previous is S.EMPTY

    def begin_generation(self, now_ms: int) -> None:
        """Begin the next generation, with the members that there are."""
        self.generation += 1
        self.protocol = self.roster.select_protocol()
        assert self.protocol is not None, "members were let in that have no protocol in common"
        self.subscribed = self._subscribed_topics()
        self.roster.unsynced.clear()
        self.enter(S.COMPLETING_REBALANCE, now_ms)

    def speaks(self, protocol_type: str, names: Iterable[str]) -> bool:
        """Whether a member of this type that can speak these may be in the group."""
        names = list(names)
        if self.state is S.EMPTY:
            return bool(protocol_type) and bool(names)
        return self.protocol_type == protocol_type and self.roster.can_speak(names)

    # -- sessions --------------------------------------------------------------------------------

    def keep_alive(self, member: Member, now_ms: int) -> None:
        """Begin a member's session anew."""
        self.timers.set((TimerKind.SESSION, member.member_id), now_ms + member.session_timeout_ms)

    def end_session(self, member_id: str) -> None:
        self.timers.cancel((TimerKind.SESSION, member_id))

    # -- calls that wait ---------------------------------------------------------------------------

    def park_join(self, member: Member, caller: Caller) -> Caller | None:
        """Let a JoinGroup wait; return the one of the same member that waited before, if any."""
        before = self.roster.park_join(member, caller)
        self.parked[caller.call] = member
        return self._unpark(before)

    def unpark_join(self, member: Member) -> Caller | None:
        """Return whose JoinGroup is to be answered now; None when none is, or it is forgotten."""
        return self._unpark(self.roster.unpark_join(member))

    def park_sync(self, member: Member, caller: Caller) -> Caller | None:
        before, member.sync_caller = member.sync_caller, caller
        self.parked[caller.call] = member
        return self._unpark(before)

    def unpark_sync(self, member: Member) -> Caller | None:
        before, member.sync_caller = member.sync_caller, None
        return self._unpark(before)

    def _unpark(self, caller: Caller | None) -> Caller | None:
        if caller is None or self.parked.pop(caller.call, None) is None:
            return None
        return caller

    # -- the log ---------------------------------------------------------------------------------

    def record(self, members: list[GroupMetadataMember], leader_id: str | None) -> KeyedRecord:
        """Return the record of this generation with these members."""
        return GroupMetadataKey(group=self.group_id), GroupMetadataValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol=self.protocol,
            leader=leader_id,
            current_state_timestamp=self.since_ms,
            members=members,
        )

    def record_of_empty(self, now_ms: int) -> tuple[GroupMetadataKey, GroupMetadataValue]:
        """Return the record of the next generation, which has no members."""
        return GroupMetadataKey(group=self.group_id), GroupMetadataValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation + 1,
            protocol=None,
            leader=None,
            current_state_timestamp=now_ms,
        )

    def replay(self, value: GroupMetadataValue) -> None:
        """Become what the log says: empty, or stable in a generation.

        What the coordinator knows beyond that stays: other protocols that a member can speak, the
        calls that wait, ids that were given out, sessions.
        """
        protocol = value.protocol
        known = self.roster.clear()
        self.generation = value.generation
        self.protocol_type = value.protocol_type or None
        self.protocol = protocol
        for record in value.members:
            # A record with members and no protocol is not one of ours, and Kafka writes none.
            loaded = Member.of_record(record, protocol or "")
            member = known.get(record.member_id)
            member = loaded if member is None else member.take_over(loaded)
            if self.roster.has_namesake(member):
                continue  # no coordinator writes that: whoever stands first is it
            known.pop(record.member_id, None)
            self.roster.add(member)
        if value.leader in self.roster.members:
            self.roster.leader_id = value.leader
        for member in known.values():
            self.end_session(member.member_id)
            self.roster.unsynced.pop(member.member_id, None)
        if not self.roster.unsynced:
            self.timers.cancel(SYNC_TIMER)
        self.subscribed = self._subscribed_topics()
        self.previous = self.state
        self.state = S.STABLE if self.roster.members else S.EMPTY
        self.since_ms = value.current_state_timestamp
        self.retention_version += 1

    # -- topics ----------------------------------------------------------------------------------

    @property
    def is_of_consumers(self) -> bool:
        return self.protocol_type == PROTOCOL_TYPE

    def subscribes_to(self, topic: str) -> bool:
        """Whether a member reads this topic; consumers whose topics are not known may read any."""
        if self.subscribed is None:
            return self.is_of_consumers
        return topic in self.subscribed

    def _subscribed_topics(self) -> frozenset[str] | None:
        if not self.is_of_consumers:
            return None
        topics: set[str] = set()
        left = NAMES_MAX
        for member in self.roster.members.values():
            metadata = member.protocols.get(self.protocol or "", b"")
            left -= int.from_bytes(metadata[_NAMES_COUNT])  # a negative one is malformed
            if left < 0:
                return None  # a stranger's millions would hold up everybody for seconds
            try:
                # As version 0, which every later one begins with: what comes behind is not for us.
                topics.update(decode_subscription(b"\0\0" + metadata[2:]).topics)
            except WireError:
                return None
        return frozenset(topics)
