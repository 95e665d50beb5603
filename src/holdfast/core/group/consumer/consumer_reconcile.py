"""How a member gets from what it has to what it shall have: KIP-848's reconciliation.

A member first gives up what isn't in its target. Only then it moves to the target's epoch, and gets
what is free. What others still have it gets when they have given it up: so a partition is never
with two members.

Rules: consumer-groups.md#reconciliation, consumer-groups.md#one-owner.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass, replace

from holdfast.core.group.assignors import Partitions
from holdfast.core.group.consumer.consumer_member import ConsumerMember, MemberState
from holdfast.core.refusal import Refusal
from holdfast.wire.errors import ErrorCode


@dataclass(frozen=True, slots=True, kw_only=True)
class Aim:
    """What a member is moved towards, and what it says that it still has.

    `owned` is None when the member says nothing of it. `subscribed` are the topics that it wants:
    of others it gets nothing, whatever the target says. `taken` tells whether anybody has a
    partition.
    """

    epoch: int
    target: Partitions
    subscribed: Container[bytes]
    subscription_changed: bool
    owned: Partitions | None
    taken: Callable[[bytes, int], bool]


def reconcile(member: ConsumerMember, aim: Aim) -> ConsumerMember | Refusal:
    """Return the member one step further; the same one when it can't take any now."""
    if member.state is MemberState.STABLE and member.epoch == aim.epoch:
        return _drop_unsubscribed(member, aim) if aim.subscription_changed else member
    if member.state is MemberState.UNREVOKED_PARTITIONS and _still_owns(aim, member.revoking):
        return _drop_unsubscribed(member, aim) if aim.subscription_changed else member
    if member.state is MemberState.UNKNOWN and (aim.owned is None or aim.owned):
        return Refusal(
            ErrorCode.FENCED_MEMBER_EPOCH,
            "The consumer group member is in a unknown state. The member must abandon all its "
            "partitions and rejoin.",
        )
    return _next_step(member, aim)


def _next_step(member: ConsumerMember, aim: Aim) -> ConsumerMember:
    keep: dict[bytes, tuple[int, ...]] = {}
    revoke: dict[bytes, tuple[int, ...]] = {}
    grown: dict[bytes, tuple[int, ...]] = {}  # what it keeps, and what it gets
    gets = waits = False
    for topic_id in sorted(aim.target.keys() | member.assigned.keys()):
        wanted = aim.target.get(topic_id, ()) if topic_id in aim.subscribed else ()
        has = member.assigned.get(topic_id, ())
        kept = _common(has, wanted)
        missing = _without(wanted, kept)
        # What it has to give up itself is not in the way: nobody else can have it.
        own = set(member.revoking.get(topic_id, ()))
        free = tuple(p for p in missing if p in own or not aim.taken(topic_id, p))
        _put(keep, topic_id, kept)
        _put(revoke, topic_id, _without(has, kept))
        _put(grown, topic_id, tuple(sorted((*kept, *free))))
        gets = gets or bool(free)
        waits = waits or len(free) < len(missing)
    if revoke and _still_owns(aim, revoke):
        return _with_revocation(member, keep, revoke)
    state = MemberState.UNRELEASED_PARTITIONS if waits else MemberState.STABLE
    return member.moved_to(aim.epoch, state, grown if gets else keep)


def _drop_unsubscribed(member: ConsumerMember, aim: Aim) -> ConsumerMember:
    """Take from a member what it does not subscribe to any more, and leave the rest as it is."""
    keep: dict[bytes, tuple[int, ...]] = {}
    revoke = dict(member.revoking)
    for topic_id, has in member.assigned.items():
        if topic_id in aim.subscribed:
            keep[topic_id] = has
        else:
            revoke[topic_id] = tuple(sorted({*revoke.get(topic_id, ()), *has}))
    if len(keep) == len(member.assigned):
        return member
    if _still_owns(aim, revoke):
        return _with_revocation(member, keep, revoke)
    # It has given those up already.
    return member.reduced_to(keep, member.revoking)


def _with_revocation(
    member: ConsumerMember, keep: Partitions, revoke: Partitions
) -> ConsumerMember:
    """Return the member in its old epoch, until it has given up what it must."""
    return replace(member.reduced_to(keep, revoke), state=MemberState.UNREVOKED_PARTITIONS)


def _still_owns(aim: Aim, partitions: Partitions) -> bool:
    """Return whether the member has any of these, as far as it says. Saying nothing is yes."""
    owned = aim.owned
    if owned is None:
        return True
    return any(
        not set(numbers).isdisjoint(owned.get(topic_id, ()))
        for topic_id, numbers in partitions.items()
    )


def _common(these: tuple[int, ...], those: tuple[int, ...]) -> tuple[int, ...]:
    if these == those:
        return these
    wanted = set(those)
    return tuple(each for each in these if each in wanted)


def _without(these: tuple[int, ...], those: tuple[int, ...]) -> tuple[int, ...]:
    if these == those:
        return ()
    unwanted = set(those)
    return tuple(each for each in these if each not in unwanted)


def _put(where: dict[bytes, tuple[int, ...]], topic_id: bytes, numbers: tuple[int, ...]) -> None:
    if numbers:
        where[topic_id] = numbers
