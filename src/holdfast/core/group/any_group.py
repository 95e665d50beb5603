"""What a shard asks of any group, whichever protocol its members speak.

A shard holds classic groups and KIP-848's consumer groups side by side, under one set of ids. It
finds the group, and leaves to it what its members may do. Every method that decides gets the
decision to put its records and answers into; what its records say it does in `replay` only
(`core.log_machine`).

A group changes its deadline when it is asked or applied; the shard looks at it afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple, Protocol, TypeAlias

from holdfast.core.log_machine import Decision
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.heartbeat import HeartbeatRequest
from holdfast.wire.messages.join_group import JoinGroupRequest
from holdfast.wire.messages.leave_group import LeaveGroupRequest
from holdfast.wire.messages.sync_group import SyncGroupRequest
from holdfast.wire.schema import Struct

UNKNOWN_MEMBER: Final = ""
"""The member id of a client that has none yet."""


NumberedPartition: TypeAlias = tuple[bytes, int]
"""A topic's id, and the number of one of its partitions."""


class Caller(NamedTuple):
    """Who asks: the number of the call that waits, its version, and where it comes from.

    `host` as Kafka spells it: `/127.0.0.1`.
    """

    call: int
    version: int
    client_id: str = ""
    host: str = ""


class Committer(NamedTuple):
    """Who commits offsets, as its request says: generation is the member epoch in KIP-848."""

    member_id: str
    generation: int
    instance_id: str | None = None


class AnyGroup(Protocol):
    """A group of one kind."""

    group_id: str

    @property
    def kind(self) -> str:
        """The type that ListGroups tells: `classic` or `consumer`."""

    @property
    def state_name(self) -> str:
        """The state as ListGroups spells it, such as `PreparingRebalance`."""

    @property
    def protocol_type(self) -> str:
        """What ListGroups tells: `consumer` for consumers, "" where there were no members."""

    @property
    def is_empty(self) -> bool:
        """Whether it has no members: it may be deleted, or become of another kind."""

    @property
    def deadline_ms(self) -> int:
        """When `due` has something to do, or earlier; or `core.deadlines.NEVER_MS`."""

    @property
    def bytes(self) -> int:
        """What it takes in memory, about, its offsets not included."""

    @property
    def retention_version(self) -> int:
        """A number that grows when `subscribes_to` or `offsets_expire_from` may say otherwise."""

    # -- from the log ----------------------------------------------------------------------------

    def replay(self, key: Struct, value: Struct | None) -> None:
        """Make true what one record says. The shard takes the group out when its last one goes."""

    def loaded(self, now_ms: int) -> None:
        """Begin to lead: every member that the log knows gets one whole session from now on."""

    def tombstones(self, decision: Decision) -> None:
        """Append what removes the group from the log, its offsets not included."""

    # -- time and connections --------------------------------------------------------------------

    def due(self, decision: Decision, now_ms: int) -> None:
        """Do what is due. One call does as much as makes one batch; the rest is due at once."""

    def forget(self, call: int) -> None:
        """Note that the connection of a call that waits is gone: it is not answered any more."""

    def resign(self, decision: Decision, code: ErrorCode) -> None:
        """Answer all that wait with an error: this shard is led elsewhere from now on."""

    # -- offsets ---------------------------------------------------------------------------------

    def check_commit(
        self,
        committer: Committer,
        partitions: Iterable[NumberedPartition],
        version: int,
        now_ms: int,
    ) -> ErrorCode:
        """Say whether these may commit offsets of these partitions, all of them or none.

        Who needs no partitions to say so does not look at them.
        `version` is OffsetCommit's. A commit that is let through is a sign of life where the
        protocol says so.
        """

    def check_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        """Say whether these may read offsets; (None, -1) for those who claim no membership."""

    def check_offset_delete(self) -> ErrorCode:
        """Say whether offsets of topics that nobody subscribes to may be deleted now."""

    def check_delete(self) -> ErrorCode:
        """Say whether the group may be deleted: NON_EMPTY_GROUP while it has members."""

    def subscribes_to(self, topic: str) -> bool:
        """Whether a member reads this topic, so that its offsets neither expire nor are deleted."""

    def offsets_expire_from(self, committed_ms: int) -> int | None:
        """Return when the retention of an offset began that was committed at `committed_ms`.

        None while nothing of the group may expire.
        """

    # -- the classic protocol --------------------------------------------------------------------
    # A consumer group answers these as well: members of the classic protocol may be in it while a
    # group migrates. Without that, JoinGroup gets INCONSISTENT_GROUP_PROTOCOL, and the others
    # UNKNOWN_MEMBER_ID. A call that is not answered in the decision is parked: the group keeps it.

    def join(
        self, decision: Decision, caller: Caller, request: JoinGroupRequest, now_ms: int
    ) -> None: ...

    def sync(
        self, decision: Decision, caller: Caller, request: SyncGroupRequest, now_ms: int
    ) -> None: ...

    def heartbeat(
        self, decision: Decision, caller: Caller, request: HeartbeatRequest, now_ms: int
    ) -> None: ...

    def leave(
        self, decision: Decision, caller: Caller, request: LeaveGroupRequest, now_ms: int
    ) -> None: ...


class GroupKind(Protocol):
    """How the shard makes groups of one kind, and knows their records.

    A record whose key is of one of `key_types` makes the group if it is not there (a tombstone
    does not), or takes the place of an empty group of another kind.
    """

    name: str
    """What its groups say as their `kind`."""

    key_types: tuple[type[Struct], ...]

    existence_type: type[Struct]
    """The key whose tombstone removes the group."""

    def group_id_of(self, key: Struct) -> str: ...

    def make(self, group_id: str) -> AnyGroup: ...
