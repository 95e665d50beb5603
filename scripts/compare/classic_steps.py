"""One member of a classic group, through its life, and what is refused to others meanwhile."""

from __future__ import annotations

from typing import Any, Final

from compare import group_requests as ask
from compare.asking import Side
from compare.coordinator_steps import listed, serve
from holdfast.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from holdfast.wire.messages.delete_groups import DeleteGroupsRequest
from holdfast.wire.messages.describe_groups import DescribeGroupsRequest
from holdfast.wire.messages.join_group import JoinGroupRequest

MEMBER_ID_REQUIRED_SINCE: Final = 4
READ: Final = "read-by-classic"
UNREAD: Final = "not-read-by-classic"


def steps(side: Side) -> None:
    """Put them."""
    serve(side)
    side.create(READ, 2)
    side.create(UNREAD)
    _lives(side)
    _joins_refused(side)
    member = _settled(side)
    _asks_refused(side, member)
    _joins_of_others(side, member)
    _offsets(side, member)
    _of_no_consumers(side)
    _ends(side, member)


def member_of(side: Side, group: str, name: str, **more: Any) -> str:
    """Have a member join an empty group, and give it its part; its id."""
    joined = side.ask(f"{group}: {name} joins", ask.join(group, **more), version=3)
    side.names[joined.member_id] = name
    kind = more.get("protocol_type", "consumer")
    parts = {joined.member_id: ask.assignment({READ: [0, 1]})}
    synced = ask.sync(
        group,
        joined.generation_id,
        joined.member_id,
        parts,
        protocol_type=kind,
        protocol_name=joined.protocol_name,
    )
    side.ask(f"{group}: {name} syncs", synced)
    return str(joined.member_id)


def described(side: Side, when: str, *groups: str) -> None:
    """Describe groups as they are now, in each way."""
    side.ask_in_each(f"describe {when}", DescribeGroupsRequest(groups=list(groups)))
    request = ConsumerGroupDescribeRequest(group_ids=list(groups))
    side.ask_in_each(f"describe consumers {when}", request)


def state_of(side: Side, group: str) -> str:
    """Return the state of a classic group."""
    answer = side.driver.send(DescribeGroupsRequest(groups=[group]), node=side.node)
    return str(answer.groups[0].group_state)


def await_state(side: Side, group: str, state: str) -> None:
    """Wait until a classic group is in this state."""
    side.until(lambda: state_of(side, group) == state, f"{group} to be {state}")


def _lives(side: Side) -> None:
    """In each version from the first word to the last, with the others' versions beside it."""
    for version in range(JoinGroupRequest.MAX_VERSION + 1):
        group, member = f"life-{version}", ""
        if version >= MEMBER_ID_REQUIRED_SINCE:
            given = side.ask(f"{group}: first join", ask.join(group), version=version)
            member = given.member_id
            await_state(side, group, "Empty")  # theirs is told before the group is made
            described(side, f"{group} with an id given out", group)
        joined = side.ask(f"{group}: join", ask.join(group, member), version=version)
        member = joined.member_id
        side.names[member] = f"{group}'s"
        described(side, f"{group} before it assigns", group)
        request = ask.sync(group, 1, member, {member: b"part", "nobody": b"lost"})
        side.ask(f"{group}: sync", request, version=min(version, 5))
        described(side, f"{group} when stable", group)
        side.ask(f"{group}: sync again", ask.sync(group, 1, member), version=min(version, 5))
        side.ask(f"{group}: beat", ask.beat(group, 1, member), version=min(version, 4))
        leaves = min(version, 5)
        request_to_leave = ask.leave(group, (member, None), version=leaves)
        side.ask(f"{group}: leave", request_to_leave, version=leaves)
        side.ask(f"{group}: leave again", request_to_leave, version=leaves)
        described(side, f"{group} when empty", group)


def _joins_refused(side: Side) -> None:
    for step, request in {
        "no group": ask.join(""),
        "too short a session": ask.join("refused", session_timeout_ms=999),
        "too long a session": ask.join("refused", session_timeout_ms=600_001),
        "a negative session": ask.join("refused", session_timeout_ms=-1),
        "an unknown id": ask.join("refused", "somebody"),
        "no protocols": ask.join("refused", protocols={}),
        "no type": ask.join("refused", protocol_type=""),
        "neither": ask.join("refused", protocols={}, protocol_type=""),
        "an unknown id and no protocols": ask.join("refused", "somebody", {}),
    }.items():
        side.ask_in_each(f"join with {step}", request)
    described(side, "who was refused", "refused")
    for step, instance in (("empty", ""), ("dots", ".."), ("long", "x" * 250), ("odd", "a b/é")):
        request = ask.join(f"instance-{step}", group_instance_id=instance)
        side.ask(f"join as an instance: {step}", request)
    asked = ask.join("instance-and-id", "somebody", group_instance_id="i")
    side.ask("join as an instance with an unknown id", asked)
    given = side.ask("join for an id", ask.join("pending"))
    with_instance = ask.join("pending", given.member_id, group_instance_id="i")
    side.ask("join as an instance with an id given out", with_instance)
    side.ask("beat with an id given out", ask.beat("pending", 0, given.member_id))
    side.ask("beat with an id given out, -1", ask.beat("pending", -1, given.member_id))
    side.ask("sync with an id given out", ask.sync("pending", 0, given.member_id))
    side.ask("leave with an id given out", ask.leave("pending", (given.member_id, None)))
    side.ask("leave with it again", ask.leave("pending", (given.member_id, None)))
    side.ask("join with an id given back", ask.join("pending", given.member_id))


def _settled(side: Side) -> str:
    return member_of(side, "settled", "who settled")


def _asks_refused(side: Side, member: str) -> None:
    """Heartbeats, syncs and leavings that are wrong in one thing each."""
    for step, group, generation, who, instance in (
        ("an old generation", "settled", 0, member, None),
        ("a later generation", "settled", 2, member, None),
        ("no generation", "settled", -1, member, None),
        ("an unknown member", "settled", 1, "somebody", None),
        ("no member", "settled", 1, "", None),
        ("an unknown instance", "settled", 1, member, "i"),
        ("an unknown group", "unknown", 1, member, None),
        ("an empty group", "life-3", 1, member, None),
        ("offsets alone", "simple", 1, member, None),
        ("no group", "", 1, member, None),
    ):
        since = 3 if instance else 0
        request = ask.beat(group, generation, who, instance)
        side.ask_in_each(f"beat with {step}", request, since=since)
        of_sync = ask.sync(group, generation, who, group_instance_id=instance)
        side.ask_in_each(f"sync with {step}", of_sync, since=since)
    for kind, name in (
        ("connect", "range"),
        ("consumer", "other"),
        (None, "range"),
        ("consumer", None),
        ("", ""),
    ):
        request_of = ask.sync("settled", 1, member, protocol_type=kind, protocol_name=name)
        side.ask_in_each(f"sync as {kind!r}, {name!r}", request_of)
    assigning = ask.sync("settled", 1, member, {member: b"another"})
    side.ask("sync with another assignment", assigning)
    for step, group, leavers in (
        ("nobody", "settled", []),
        ("somebody", "settled", [("somebody", None)]),
        ("an unknown instance", "settled", [("", "i")]),
        ("a wrong instance", "settled", [(member, "i")]),
        ("no name", "settled", [("", None)]),
        ("several", "settled", [("somebody", None), ("", "i"), ("x", "i")]),
        ("an unknown group", "unknown", [("somebody", None), ("", "i")]),
        ("an empty group", "life-3", [("somebody", None)]),
        ("no group", "", [("somebody", None)]),
        ("offsets alone", "simple", [("somebody", None)]),
    ):
        side.ask_in_each(f"leave: {step}", ask.leave(group, *leavers), since=3)
        if leavers and not leavers[0][1]:
            old = ask.leave(group, *leavers, version=0)
            side.ask_in_each(f"leave: {step}", old, until=2)
    side.ask_in_each("beat after all that", ask.beat("settled", 1, member))


def _joins_of_others(side: Side, member: str) -> None:
    """Who can't join a stable group; and its member, that says nothing new, or leads it."""
    for step, who, more in (
        ("another type", "", {"protocol_type": "connect"}),
        ("no type", "", {"protocol_type": ""}),
        ("no protocols", "", {"protocols": {}}),
        ("other protocols", "", {"protocols": {"other": b""}}),
        ("an unknown id", "somebody", {}),
        ("an unknown id and other protocols", "somebody", {"protocols": {"other": b""}}),
        ("its id and other protocols", member, {"protocols": {"other": b""}}),
        ("its id and another type", member, {"protocol_type": "connect"}),
        ("too short a session", member, {"session_timeout_ms": 5}),
    ):
        side.ask_in_each(f"join a stable group with {step}", ask.join("settled", who, **more))
    unknown = ask.join("settled", member, group_instance_id="i")
    side.ask("join a stable group with an unknown instance", unknown)
    listed(side, "with one stable")
    described(side, "after all that", "settled")


def _offsets(side: Side, member: str) -> None:
    for step, who, generation, instance in (
        ("who is in it", member, 1, None),
        ("an old generation", member, 0, None),
        ("a later generation", member, 2, None),
        ("no generation", member, -1, None),
        ("somebody", "somebody", 1, None),
        ("no name in a generation", "", 1, None),
        ("nobody", "", -1, None),
        ("an unknown instance", member, 1, "i"),
        ("an instance without a name", "", 1, "i"),
    ):
        request = ask.commit("settled", {READ: {0: 5}}, member=who, epoch=generation)
        request.group_instance_id = instance
        side.ask_in_each(
            f"commit of {step}", request, since=7 if instance is not None else 2, until=9
        )
        asked = ask.fetch("settled", member_id=who or None, member_epoch=generation)
        if instance is None:
            side.ask(f"fetch of {step}", asked, version=9)
    for topics in ({READ: [0]}, {UNREAD: [0]}, {READ: [0], UNREAD: [0]}, {}):
        request_of = ask.delete_offsets("settled", topics)
        side.ask(f"delete offsets of who is there: {topics}", request_of)
    names = DeleteGroupsRequest(groups_names=["settled", "unknown"])
    side.ask_in_each("delete a group with a member", names)


def _of_no_consumers(side: Side) -> None:
    """A group whose members are no consumers, and consumers that say what nobody can read."""
    member = member_of(side, "workers", "who works", protocol_type="connect")
    request = ask.commit("workers", {READ: {0: 5}}, member=member, epoch=1)
    side.ask("commit of no consumer", request, version=9)
    side.ask("delete offsets of no consumers", ask.delete_offsets("workers", {READ: [0]}))
    listed(side, "with no consumers")
    described(side, "no consumers", "workers")
    side.ask("leave work", ask.leave("workers", (member, None)))
    side.ask("delete offsets of none", ask.delete_offsets("workers", {READ: [0]}))
    side.ask("join consumers to work", ask.join("workers"), version=3)
    reader = member_of(side, "readable", "who reads", protocols={"range": ask.subscription(UNREAD)})
    member_of(side, "garbled", "who can't be read", protocols={"range": b"?"})
    side.ask("delete offsets of who can't be read", ask.delete_offsets("garbled", {READ: [0]}))
    member_of(side, "speechless", "who says nothing", protocols={"range": b""})
    side.ask("delete offsets of who says nothing", ask.delete_offsets("speechless", {READ: [0]}))
    for topics in ({READ: [0]}, {UNREAD: [0]}, {READ: [0], UNREAD: [0]}):
        commits = ask.commit("readable", {READ: {0: 5}, UNREAD: {0: 1}}, member=reader, epoch=1)
        side.ask(f"commit to delete {topics}", commits, version=9)
        side.ask(f"delete offsets of a reader: {topics}", ask.delete_offsets("readable", topics))
        side.ask(f"fetch after {topics}", ask.fetch("readable"), version=9)


def _ends(side: Side, member: str) -> None:
    """A session's end, and what is said to who was removed by it."""
    short = member_of(side, "ending", "who ends", session_timeout_ms=1000)
    await_state(side, "ending", "Empty")
    described(side, "after a session", "ending")
    side.ask("beat after a session", ask.beat("ending", 1, short))
    side.ask("sync after a session", ask.sync("ending", 1, short))
    side.ask("join after a session", ask.join("ending", short))
    side.ask("leave after a session", ask.leave("ending", (short, None)))
    request = ask.commit("ending", {READ: {0: 5}}, member=short, epoch=1)
    side.ask("commit after a session", request, version=9)
    again = member_of(side, "ending", "who comes after")
    side.ask("beat of who comes after", ask.beat("ending", 3, again))
    side.ask("leave the settled", ask.leave("settled", (member, None)))
    described(side, "the settled that was left", "settled")
    side.ask("delete the settled", DeleteGroupsRequest(groups_names=["settled"]))
    side.ask("fetch of the settled", ask.fetch("settled"), version=9)
    described(side, "the settled that was deleted", "settled")
