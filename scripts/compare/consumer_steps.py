"""Groups of the consumer protocol (KIP-848): heartbeats right and wrong, and what follows."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from compare import group_requests as ask
from compare.asking import Side
from compare.classic_steps import described
from compare.coordinator_steps import listed, serve
from compare.offset_steps import BY_ID_SINCE
from holdfast.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from holdfast.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from holdfast.wire.messages.delete_groups import DeleteGroupsRequest
from holdfast.wire.messages.offset_commit import OffsetCommitRequest

ONE: Final = "consumed"
OTHER: Final = "consumed-too"


def steps(side: Side) -> None:
    """Put them."""
    serve(side)
    one, other = side.create(ONE, 4), side.create(OTHER, 2)
    _refused(side, one)
    _two(side, one, other)
    _offsets(side, one)
    _behind(side, one, other)
    _subscriptions(side)


def beaten(side: Side, request: ConsumerGroupHeartbeatRequest) -> Any:
    """Send a heartbeat of which nothing is kept: how many it takes is a matter of time."""
    return side.driver.send(request, node=side.node)


def group_of(side: Side, group: str) -> Any:
    """Return what is told of a group."""
    request = ConsumerGroupDescribeRequest(group_ids=[group])
    return side.driver.send(request, node=side.node).groups[0]


def _refused(side: Side, one: bytes) -> None:
    for step, request in {
        "no member id": ask.consume("wrong", "", 0, [ONE]),
        "no member id, an epoch": ask.consume("wrong", "", 1),
        "no member id, leaving": ask.consume("wrong", "", -1),
        "a blank member id": ask.consume("wrong", "  ", 0, [ONE]),
        "a long member id": ask.consume("wrong-long", "m" * 40, 0, [ONE]),
        "no group": ask.consume("", "m", 0, [ONE]),
        "a blank group": ask.consume("  ", "m", 0, [ONE]),
        "an empty instance": ask.consume("wrong", "m", 0, [ONE], instance_id=""),
        "a blank instance": ask.consume("wrong", "m", 0, [ONE], instance_id=" "),
        "an empty rack": ask.consume("wrong", "m", 0, [ONE], rack_id=""),
        "no time-out": ask.consume("wrong", "m", 0, [ONE], rebalance_timeout_ms=-1),
        "a time-out of 0": ask.consume("wrong-time", "m", 0, [ONE], rebalance_timeout_ms=0),
        "a time-out below -1": ask.consume("wrong-less", "m", 0, [ONE], rebalance_timeout_ms=-2),
        "partitions": ask.consume("wrong", "m", 0, [ONE], {one: [0]}),
        "no topics": ask.consume("wrong", "m", 0),
        "an empty list of topics": ask.consume("wrong-none", "m", 0, []),
        "an unknown assignor": ask.consume("wrong", "m", 0, [ONE], server_assignor="x"),
        "an assignor without a name": ask.consume("wrong", "m", 0, [ONE], server_assignor=""),
        "an unknown group and an epoch": ask.consume("wrong", "m", 1),
        "an unknown group, leaving": ask.consume("wrong", "m", -1),
        "an unknown group, away": ask.consume("wrong", "m", -2, instance_id="i"),
        "away without an instance": ask.consume("wrong", "m", -2),
        "an epoch of -3": ask.consume("wrong", "m", -3),
        "a bad topic": ask.consume("wrong-topic", "m", 0, ["a b", ""]),
        "a topic twice": ask.consume("wrong-twice", "m", 0, [ONE, ONE]),
        "offsets alone": ask.consume("simple", "m", 1),
        "offsets alone, leaving": ask.consume("simple", "m", -1),
    }.items():
        side.ask_in_each(f"consume with {step}", request)
    for group in ("wrong-time", "wrong-less", "wrong-none", "wrong-topic", "wrong-twice"):
        described(side, f"{group} that was let in", group)
        side.ask(f"{group} leaves", ask.consume(group, "m", -1))
    no_partitions = ask.consume("wrong", "m", 0, [ONE])
    no_partitions.topic_partitions = None
    side.ask("consume without saying that it has nothing", no_partitions)


def _two(side: Side, one: bytes, other: bytes) -> None:
    """Two members: what is revoked of the one is given to the other."""
    group = "pair"
    side.ask("pair: first joins", ask.consume(group, "first", 0, [ONE]))
    described(side, "pair of one", group)
    side.ask("pair: first says it again", ask.consume(group, "first", 0, [ONE]))
    side.ask("pair: first beats", ask.consume(group, "first", 2))
    whole: dict[str, Any] = {"rebalance_timeout_ms": ask.SESSION_MS}
    has = {one: [0, 1, 2, 3]}
    side.ask("pair: first says all", ask.consume(group, "first", 2, [ONE], has, **whole))
    side.ask("pair: second joins", ask.consume(group, "second", 0, [ONE]))
    described(side, "pair while it moves", group)
    listed(side, "with a pair")
    side.ask("pair: second beats early", ask.consume(group, "second", 3))
    side.ask("pair: first is told", ask.consume(group, "first", 2))
    side.ask("pair: first has not let go", ask.consume(group, "first", 2, None, has))
    described(side, "pair that revokes", group)
    told = ask.consume(group, "first", 2, None, {one: [0, 1]})
    side.ask("pair: first has let go", told)
    side.ask("pair: first beats in its new epoch", ask.consume(group, "first", 3))
    side.ask("pair: second gets it", ask.consume(group, "second", 3))
    side.ask("pair: second has it", ask.consume(group, "second", 3, None, {one: [2, 3]}))
    described(side, "pair that is settled", group)
    for step, member, epoch, owned in (
        ("an old epoch", "first", 2, None),
        ("an old epoch with what it has", "first", 2, {one: [0, 1]}),
        ("an old epoch with a part", "first", 2, {one: [0]}),
        ("an old epoch with nothing", "first", 2, {}),
        ("an old epoch with more", "first", 2, {one: [0, 2]}),
        ("an old epoch with another topic", "first", 2, {other: [0]}),
        ("an older epoch", "second", 2, {one: [2]}),
        ("a later epoch", "first", 4, None),
        ("an unknown member", "third", 3, None),
        ("an unknown member that leaves", "third", -1, None),
        ("what it has not", "first", 3, {one: [3]}),
        ("an unknown topic", "first", 3, {b"x" * 16: [0]}),
    ):
        side.ask_in_each(f"pair: {step}", ask.consume(group, member, epoch, None, owned))
    instance = ask.consume(group, "first", 3, instance_id="i")
    side.ask("pair: an instance that it is not", instance)
    side.ask("pair: first comes back", ask.consume(group, "first", 0, [ONE]))
    described(side, "pair after all that", group)
    side.ask("pair: second leaves", ask.consume(group, "second", -1))
    described(side, "pair that one left", group)
    side.ask("pair: second leaves again", ask.consume(group, "second", -1))
    side.ask("pair: first gets all", ask.consume(group, "first", 3))
    described(side, "pair that is one again", group)


def _offsets(side: Side, one: bytes) -> None:
    """Who may commit and read, by its epoch."""
    group = "pair"
    epoch = next(it.member_epoch for it in group_of(side, group).members)

    def commit(member: str, number: int, version: int) -> OffsetCommitRequest:
        topic: ask.Topic = one if version >= BY_ID_SINCE else ONE
        return ask.commit(group, {topic: {0: 5}}, member=member, epoch=number)

    for step, member, behind in (
        ("its epoch", "first", 0),
        ("the epoch before", "first", -1),
        ("a long gone epoch", "first", -epoch),
        ("a later epoch", "first", 1),
        ("somebody's", "third", 0),
        ("no member's", "", 0),
        ("no epoch", "first", -1 - epoch),
        ("nobody's", "", -1 - epoch),
    ):
        number = epoch + behind
        side.ask_in_each(f"commit in {step}", partial(commit, member, number))
        asked = ask.fetch(group, {ONE: [0]}, member_id=member or None, member_epoch=number)
        side.ask(f"fetch in {step}", asked, version=9)
    for topics in ({ONE: [0]}, {OTHER: [0]}, {ONE: [0], OTHER: [0]}):
        side.ask(f"pair: delete offsets {topics}", ask.delete_offsets(group, topics))
    side.ask("pair: delete", DeleteGroupsRequest(groups_names=[group]))
    for step, request in {
        "joins": ask.join(group, "first", {"range": b"?"}),
        "syncs": ask.sync(group, epoch, "first"),
        "beats": ask.beat(group, epoch, "first"),
    }.items():
        side.ask(f"pair: a consumer {step} as a classic member", request)
    for step, request in {
        "syncs": ask.sync(group, epoch, "third"),
        "beats": ask.beat(group, epoch, "third"),
        "leaves": ask.leave(group, ("third", None)),
        "joins": ask.join(group, "third"),
        "joins to work": ask.join(group, protocol_type="connect"),
        "joins without protocols": ask.join(group, protocols={}),
    }.items():
        side.ask(f"pair: a stranger {step} as a classic member", request)
    side.ask("pair: the last leaves", ask.consume(group, "first", -1))
    described(side, "pair of nobody", group)
    side.ask("pair: nobody commits", ask.commit(group, {ONE: {0: 6}}), version=9)
    side.ask("pair: fetch of nobody's", ask.fetch(group), version=9)
    side.ask("pair: delete it", DeleteGroupsRequest(groups_names=[group]))
    described(side, "pair deleted", group)


def _behind(side: Side, one: bytes, other: bytes) -> None:
    """Commits in older epochs: for what a member kept, gave up, got back, and has to give up."""
    group = "behind"

    def commits(when: str, member: str, epoch: int, *parts: int, **more: Any) -> None:
        """Commit all of these in one request, first by the topic's id and then by its name."""
        for topic, version in ((one, BY_ID_SINCE), (ONE, BY_ID_SINCE - 1)):
            offsets: dict[ask.Topic, dict[int, int]] = {topic: dict.fromkeys(parts, epoch + 10)}
            request = ask.commit(group, offsets, member=member, epoch=epoch, **more)
            step = f"behind: {member} commits {parts} in {epoch} {when} v{version}"
            side.ask(step, request, version=version)

    def each(when: str, member: str, *epochs: int) -> None:
        for epoch in epochs:
            for part in range(4):
                commits(when, member, epoch, part)

    side.ask("behind: a joins", ask.consume(group, "a", 0, [ONE]))
    side.ask("behind: b joins", ask.consume(group, "b", 0, [ONE]))
    side.ask("behind: a is told", ask.consume(group, "a", 2))
    each("while it has to give up", "a", 1, 2, 3)
    side.ask("behind: a lets go", ask.consume(group, "a", 2, None, {one: [0, 1]}))
    each("when it has let go", "a", 2, 3)
    side.ask("behind: b gets it", ask.consume(group, "b", 3))
    each("when b has it", "a", -2, -1, 0, 1, 2, 3, 4)
    each("when it has just got it", "b", 2, 3)
    commits("when b has some", "a", 2, 0, 1)
    commits("when b has some", "a", 2, 0, 2)
    commits("when b has some", "a", 2, 2, 0)
    commits("when b has some", "a", 3, 0, 2)
    commits("when b has some", "a", 4, 0, 2)
    commits("with much to say", "a", 2, 0, 2, metadata="m" * 5000)
    for named in (one, other):
        both: dict[ask.Topic, dict[int, int]] = {one: {0: 1}, other: {0: 1}}
        if named is other:
            both = dict(reversed(both.items()))
        request = ask.commit(group, both, member="a", epoch=2)
        side.ask(f"behind: a commits what it never had, {len(both)}, {named == one}", request)
    mixed: dict[ask.Topic, dict[int, int]] = {one: {0: 1, 9: 1}, b"x" * 16: {0: 1}}
    side.ask("behind: a commits what is not there", ask.commit(group, mixed, member="a", epoch=2))
    side.ask("behind: fetch", ask.fetch(group), version=9)
    side.ask("behind: b leaves", ask.consume(group, "b", -1))
    side.ask("behind: a gets it back", ask.consume(group, "a", 3))
    described(side, "behind when a has all again", group)
    each("when it has all again", "a", 2, 3, 4)
    side.ask("behind: c joins", ask.consume(group, "c", 0, [ONE]))
    side.ask("behind: a is told again", ask.consume(group, "a", 4))
    described(side, "behind when a has to give up again", group)
    each("when it has to give up again", "a", 2, 3, 4)
    side.ask("behind: fetch at last", ask.fetch(group), version=9)
    asked = ask.fetch(group, {ONE: [0]}, member_id="a", member_epoch=3)
    side.ask("behind: a fetches in an older epoch", asked, version=9)
    for member in ("a", "c"):
        side.ask(f"behind: {member} leaves", ask.consume(group, member, -1))


def _subscriptions(side: Side) -> None:
    group = "fickle"
    side.ask("fickle: joins", ask.consume(group, "m", 0, [ONE, "not-there"]))
    described(side, "fickle at first", group)
    epoch = 2
    for topics in ([OTHER], [ONE, OTHER], [], ["not-there"], [ONE]):
        answer = side.ask(f"fickle: wants {topics}", ask.consume(group, "m", epoch, topics))
        epoch = answer.member_epoch
        settled(side, group, "m", epoch)
        epoch = group_of(side, group).members[0].member_epoch
        described(side, f"fickle with {topics}", group)
    changed = ask.consume(group, "m", epoch, rebalance_timeout_ms=7)
    side.ask("fickle: says another time-out", changed)
    side.ask("fickle: says another rack", ask.consume(group, "m", epoch, rack_id="r"))
    described(side, "fickle in a rack", group)
    side.ask("fickle: leaves", ask.consume(group, "m", -1))


def settled(side: Side, group: str, member: str, epoch: int) -> None:
    """Beat as one member that does what it is told, until the group is stable."""
    state = {"epoch": epoch}

    def beats() -> bool:
        mine = next(one for one in group_of(side, group).members if one.member_id == member)
        target = {it.topic_id: it.partitions for it in mine.target_assignment.topic_partitions}
        owned = {
            it.topic_id: [one for one in it.partitions if one in target[it.topic_id]]
            for it in mine.assignment.topic_partitions
            if it.topic_id in target
        }
        answer = beaten(side, ask.consume(group, member, state["epoch"], None, owned))
        state["epoch"] = answer.member_epoch or state["epoch"]
        return bool(group_of(side, group).group_state == "Stable")

    side.until(beats, f"{group} to be stable")
