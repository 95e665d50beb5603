"""What no usual client says to a coordinator: bounds of numbers, empty names, the same twice."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from compare import group_requests as ask
from compare.asking import Side
from compare.classic_steps import await_state, described
from compare.coordinator_steps import serve
from compare.offset_steps import BY_ID_SINCE
from holdfast.wire.messages.delete_groups import DeleteGroupsRequest
from holdfast.wire.messages.describe_groups import DescribeGroupsRequest
from holdfast.wire.messages.offset_commit import OffsetCommitRequest

ODD: Final = "asked-oddly"
LEAST: Final = -(1 << 31)
MOST: Final = (1 << 31) - 1
RETENTION_UNTIL: Final = 4
LEADER_EPOCH_SINCE: Final = 6


def steps(side: Side) -> None:
    """Put them."""
    serve(side)
    topic_id = side.create(ODD, 3)
    _joins(side)
    _member(side)
    _commits(side, topic_id)
    _fetches(side, topic_id)
    _tools(side)
    _consumers(side, topic_id)


def _joins(side: Side) -> None:
    side.ask_in_each(
        "odd: join with a protocol of no name",
        lambda version: ask.join(f"odd-name-{version}", protocols={"": b""}),
    )
    side.ask_in_each("odd: join a long group", lambda version: ask.join("g" * 300 + str(version)))
    longest = ask.join("odd-longest", session_timeout_ms=MOST)
    side.ask_in_each("odd: join for the longest session", longest)
    least = ask.join("odd-least", rebalance_timeout_ms=LEAST)
    given = side.ask("odd: join for less than no time", least)
    side.ask("odd: leave before joining", ask.leave("odd-least", (given.member_id, None)))


def _member(side: Side) -> None:
    """One member of a classic group, which says things that mean nothing."""
    group = "odd-classic"
    member = side.ask("odd: join", ask.join(group), version=3).member_id
    side.names[member] = "who is odd"
    side.ask("odd: sync with nothing", ask.sync(group, 1, member))
    side.ask("odd: sync with something later", ask.sync(group, 1, member, {member: b"z"}))
    described(side, "an odd one", group)
    for number in (-2, LEAST, MOST):
        side.ask_in_each(f"odd: beat in {number}", ask.beat(group, number, member))
        commits = ask.commit(group, {ODD: {0: 1}}, member=member, epoch=number)
        side.ask(f"odd: commit in {number}", commits, version=9)
    side.ask("odd: beat as an instance without a name", ask.beat(group, 1, member, ""))
    part = ask.sync(group, 1, member, group_instance_id="")
    side.ask("odd: sync as an instance without a name", part)
    commits = ask.commit(group, {ODD: {0: 1}}, member=member, epoch=1, group_instance_id="")
    side.ask("odd: commit as an instance without a name", commits, version=9)
    for step, leaver in {
        "somebody twice": ("nobody", None),
        "two without names": ("", ""),
        "itself twice": (member, None),
    }.items():
        side.ask(f"odd: leave: {step}", ask.leave(group, leaver, leaver))
    side.ask_in_each("odd: leave: nobody, of no group", ask.leave("odd-unknown"), since=3)
    await_state(side, group, "Empty")
    work = ask.join(group, protocol_type="connect", protocols={"b": b""})
    side.ask("odd: join with another type when all are gone", work, version=3)


def _commits(side: Side, topic_id: bytes) -> None:
    def put(group: str, offset: int, more: dict[str, Any], version: int) -> OffsetCommitRequest:
        topic: ask.Topic = topic_id if version >= BY_ID_SINCE else ODD
        return ask.commit(f"{group}-{version}", {topic: {0: offset}}, **more)

    for retention in (-2, -(1 << 63), (1 << 63) - 1):
        request = partial(put, f"odd-kept{retention}", 1, {"retention_time_ms": retention})
        side.ask_in_each(f"odd: commit for {retention} ms", request, until=RETENTION_UNTIL)
        for version in range(2, RETENTION_UNTIL + 1):
            kept = ask.fetch(f"odd-kept{retention}-{version}")
            side.ask(f"odd: fetch what was kept {retention} ms v{version}", kept, version=9)
    least = partial(put, "odd-offset", -(1 << 63), {})
    side.ask_in_each("odd: commit the least offset", least)
    side.ask("odd: fetch the least offset", ask.fetch("odd-offset-9"), version=9)
    epoch = partial(put, "odd-epoch", 1, {"committed_leader_epoch": -7})
    side.ask_in_each("odd: commit in a leader epoch below -1", epoch, since=LEADER_EPOCH_SINCE)
    side.ask("odd: fetch in a leader epoch below -1", ask.fetch("odd-epoch-9"), version=9)
    callers: dict[str, dict[str, Any]] = {
        "a member without a generation": {"member": "m"},
        "a generation without a member": {"epoch": MOST},
        "the least generation": {"epoch": LEAST},
    }
    for step, more in callers.items():
        side.ask_in_each(f"odd: commit of {step}", partial(put, f"odd {step}", 1, more))
    internal = ask.commit("odd-internal", {"__consumer_offsets": {0: 1}})
    side.ask("odd: commit for the offsets' own topic", internal, version=9)


def _fetches(side: Side, topic_id: bytes) -> None:
    def named(version: int) -> ask.Topic:
        return topic_id if version >= BY_ID_SINCE else ODD

    side.ask_in_each(
        "odd: fetch of partitions at the bounds",
        lambda version: ask.fetch("odd-none", {named(version): [MOST, LEAST]}, version=version),
    )
    side.ask_in_each(
        "odd: fetch of the group of no name",
        lambda version: ask.fetch("", {named(version): [0]}, version=version),
    )
    side.ask_in_each(
        "odd: fetch all of the group of no name",
        lambda version: ask.fetch("", version=version),
        since=2,
    )
    side.ask_in_each(
        "odd: fetch of the topic of no name",
        lambda version: ask.fetch("odd-none", {"": [0]}, version=version),
        until=BY_ID_SINCE - 1,
    )


def _tools(side: Side) -> None:
    side.ask(
        "odd: delete offsets of no topic's name", ask.delete_offsets("odd-internal", {"": [0]})
    )
    own = ask.delete_offsets("odd-internal", {"__consumer_offsets": [0]})
    side.ask("odd: delete offsets of their own topic", own)
    names = DescribeGroupsRequest(
        groups=["odd-internal", "odd-classic", "odd-unknown", ""],
        include_authorized_operations=True,
    )
    side.ask_in_each("odd: describe with operations", names, since=3)
    some = DeleteGroupsRequest(groups_names=["odd-classic", "odd-unknown", "", "odd-internal"])
    side.ask_in_each("odd: delete groups", some)


def _consumers(side: Side, topic_id: bytes) -> None:
    """Heartbeats of KIP-848 whose fields don't go together."""
    group = "odd-consumers"
    side.ask("odd: consume", ask.consume(group, "m", 0, [ODD]))
    for step, request in {
        "the most epoch": ask.consume(group, "m", MOST),
        "the least epoch": ask.consume(group, "m", LEAST),
        "a time-out of -5": ask.consume(group, "m", 2, rebalance_timeout_ms=-5),
        "another assignor later": ask.consume(group, "m", 2, server_assignor="range"),
        "an assignor in capitals": ask.consume(group, "m", 2, server_assignor="RANGE"),
        "an assignor without a name later": ask.consume(group, "m", 2, server_assignor=""),
        "an empty rack later": ask.consume(group, "m", 2, rack_id=""),
        "an empty instance later": ask.consume(group, "m", 2, instance_id=""),
        "a partition twice": ask.consume(group, "m", 2, None, {topic_id: [0, 0]}),
        "a partition below 0": ask.consume(group, "m", 2, None, {topic_id: [-1]}),
        "a partition above all": ask.consume(group, "m", 2, None, {topic_id: [99]}),
        "no id": ask.consume(group, "m", 2, None, {bytes(16): [0]}),
        "a classic group's name": ask.consume("odd-kept-2-2", "m", 3),
        "a classic group's name, leaving": ask.consume("odd-kept-2-2", "m", -1),
        "the name of one away": ask.consume("odd-kept-2-2", "m", -2, instance_id="i"),
        "nobody that leaves with partitions": ask.consume(group, "n", -1, [ODD], {topic_id: [0]}),
    }.items():
        side.ask_in_each(f"odd: consume with {step}", request)
    for number, pattern in enumerate(("*", "+a", "a**", "\\", "[a-", "(?P<n>x)", "x{1001}")):
        joins = ask.consume(f"odd-{number}", "m", 0, None, subscribed_topic_regex=pattern)
        side.ask(f"odd: consume what matches {pattern!r}", joins)
    described(side, "odd consumers", group)
    side.ask("odd: consume no more", ask.consume(group, "m", -1))
