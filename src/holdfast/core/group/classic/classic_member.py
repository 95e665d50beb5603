"""A member of a classic group, and the answers to what it waits for.

Rules: classic-groups.md#joining, classic-groups.md#answers.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from holdfast.core.group.any_group import UNKNOWN_MEMBER, Caller
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from holdfast.wire.messages.sync_group import SyncGroupResponse
from holdfast.wire.records.group_tables import GroupMetadataMember

NULLABLE_PROTOCOL_SINCE: Final = 7  # JoinGroup: before, no protocol is an empty name
MEMBER_OVERHEAD_BYTES: Final = 2048  # what a member takes here that says nothing of itself
PENDING_OVERHEAD_BYTES: Final = 512  # and an id that was given out
_PROTOCOL_OVERHEAD_BYTES: Final = 64

FORGOTTEN: Final = Caller(-1, 0)
"""Whose connection is gone: it still counts as waiting, and nobody is answered."""


@dataclass(slots=True)
class Member:
    """What one member says of itself, what it was assigned, and the calls of it that wait."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: dict[str, bytes]  # name to metadata, those it likes best first
    assignment: bytes = b""
    join_caller: Caller | None = None
    sync_caller: Caller | None = None
    # A client may not know its id before its first JoinGroup is answered, so it can't keep its
    # session alive until then: its session may run out although it waits.
    is_new: bool = False
    protocols_bytes: int = field(init=False)

    def __post_init__(self) -> None:
        self.protocols_bytes = bytes_of(self.protocols)

    @property
    def is_static(self) -> bool:
        return self.instance_id is not None

    @property
    def is_excused(self) -> bool:
        """Whether it need not show signs of life, because we are the ones who owe an answer."""
        return not self.is_new and (self.join_caller is not None or self.sync_caller is not None)

    @property
    def own_bytes(self) -> int:
        """What it takes in memory beside its protocols, about."""
        return MEMBER_OVERHEAD_BYTES + len(self.member_id) + len(self.instance_id or "")

    def vote(self, candidates: Iterable[str]) -> str:
        """Return the candidate that it likes best."""
        return next(name for name in self.protocols if name in candidates)

    def update(
        self, protocols: dict[str, bytes], rebalance_timeout_ms: int, session_timeout_ms: int
    ) -> None:
        self.protocols = protocols
        self.protocols_bytes = bytes_of(protocols)
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms

    def take_over(self, loaded: Member) -> Member:
        """Become what the log says. Other protocols stay, unless they belong to the past."""
        self.assignment = loaded.assignment
        protocols = loaded.protocols
        if any(self.protocols.get(name) != metadata for name, metadata in protocols.items()):
            self.protocols, self.protocols_bytes = protocols, loaded.protocols_bytes
        self.rebalance_timeout_ms = loaded.rebalance_timeout_ms
        self.session_timeout_ms = loaded.session_timeout_ms
        return self

    def to_record(self, protocol: str, assignment: bytes) -> GroupMetadataMember:
        """Return what the log keeps: of its protocols the one that the group has chosen."""
        return GroupMetadataMember(
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            rebalance_timeout=self.rebalance_timeout_ms,
            session_timeout=self.session_timeout_ms,
            subscription=self.protocols[protocol],
            assignment=assignment,
        )

    @classmethod
    def of_record(cls, record: GroupMetadataMember, protocol: str) -> Member:
        rebalance_timeout_ms = record.rebalance_timeout
        return cls(
            record.member_id,
            record.group_instance_id,
            record.client_id,
            record.client_host,
            record.session_timeout if rebalance_timeout_ms == -1 else rebalance_timeout_ms,
            record.session_timeout,
            {protocol: bytes(record.subscription)},
            bytes(record.assignment),
        )


def protocols_of(protocols: list[JoinGroupRequestProtocol]) -> dict[str, bytes]:
    """Return a request's protocols, as copies: what lies in its frame dies with it."""
    result: dict[str, bytes] = {}
    for protocol in protocols:
        result.setdefault(protocol.name, bytes(protocol.metadata))
    return result


def same_protocols(one: dict[str, bytes], other: dict[str, bytes]) -> bool:
    """Whether a member says what it said before: the same, and in the same order."""
    return one == other and list(one) == list(other)


def bytes_of(protocols: dict[str, bytes]) -> int:
    """Return what protocols take in memory, about."""
    return sum(
        len(name) + len(metadata) + _PROTOCOL_OVERHEAD_BYTES for name, metadata in protocols.items()
    )


def rebalance_timeout_of(request: JoinGroupRequest, version: int) -> int:
    """Return how long a member takes to rejoin; version 0 had only the session's time."""
    return request.session_timeout_ms if version == 0 else request.rebalance_timeout_ms


def join_refused(
    caller: Caller, code: ErrorCode, member_id: str = UNKNOWN_MEMBER, leader: str = ""
) -> JoinGroupResponse:
    """Make a JoinGroup answer with an error."""
    has_null = caller.version >= NULLABLE_PROTOCOL_SINCE
    return JoinGroupResponse(
        error_code=code,
        member_id=member_id,
        leader=leader,
        protocol_name=None if has_null else "",
    )


def sync_refused(code: ErrorCode) -> SyncGroupResponse:
    return SyncGroupResponse(error_code=code)
