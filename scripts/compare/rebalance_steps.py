"""Classic groups of several members: the halves of a rebalance, who is late, static members."""

from __future__ import annotations

from typing import Any, Final

from compare import group_requests as ask
from compare.asking import Side, Waiting
from compare.classic_steps import await_state, described, member_of
from compare.coordinator_steps import listed, serve
from holdfast.wire.messages.delete_groups import DeleteGroupsRequest
from holdfast.wire.messages.describe_groups import DescribeGroupsRequest
from holdfast.wire.messages.list_groups import ListGroupsRequest

TOPIC: Final = "shared-by-classic"
SOON_MS: Final = 1000  # of a rebalance that somebody is late for
SLOW_MS: Final = 8000  # of one that ends by that alone
PREPARING: Final = "PreparingRebalance"
COMPLETING: Final = "CompletingRebalance"


def steps(side: Side) -> None:
    """Put them."""
    serve(side)
    side.create(TOPIC, 4)
    _two(side)
    _votes(side)
    _late(side)
    _full(side)
    _leaver(side)
    for version in range(5, 10):
        _static(side, version)
    _static_rebalance(side)
    _static_refused(side)


def _words(words: str) -> bytes:
    """Return what a member says of itself, by which it is known from others."""
    return ask.subscription(TOPIC, user_data=words.encode())


def _come(side: Side, group: str, name: str, **more: Any) -> tuple[str, Waiting]:
    """Have another member come to a group that others are in; its id, and its JoinGroup."""
    more.setdefault("protocols", {"range": _words(name)})
    given = side.ask(f"{group}: {name} gets an id", ask.join(group, **more))
    side.names[given.member_id] = name
    request = ask.join(group, given.member_id, **more)
    waiting = side.begin(f"{group}: {name} comes", request)
    await_state(side, group, PREPARING)
    return given.member_id, waiting


def _two(side: Side) -> None:
    group = "two"
    first = member_of(side, group, "first")
    second, joining = _come(side, group, "second")
    _asked_while(side, group, "it is prepared", first, second, 1)
    side.ask("two: first joins again", ask.join(group, first))
    joining.take()
    await_state(side, group, COMPLETING)
    _asked_while(side, group, "it is completed", first, second, 2)
    side.ask_in_each("two: first joins while it is completed", ask.join(group, first))
    same = ask.join(group, second, {"range": _words("second")})
    side.ask_in_each("two: second joins while it is completed", same)
    _completed(side, group, first, second, 2)


def _completed(side: Side, group: str, first: str, second: str, number: int) -> None:
    """The end of a rebalance of two, and the next one, which only one is left in."""
    syncing = side.begin("two: second syncs", ask.sync(group, number, second))
    parts = {first: ask.assignment({TOPIC: [0, 1]}), second: ask.assignment({TOPIC: [2, 3]})}
    side.ask("two: first assigns", ask.sync(group, number, first, parts))
    syncing.take()
    await_state(side, group, "Stable")
    _asked_while(side, group, "it is stable", first, second, number)
    follower = ask.join(group, second, {"range": _words("second")})
    side.ask("two: the follower joins with nothing new", follower)
    leader = side.begin("two: the leader joins with nothing new", ask.join(group, first))
    await_state(side, group, PREPARING)
    side.ask("two: the follower leaves meanwhile", ask.leave(group, (second, None)))
    joined = leader.take()
    described(side, "who is left of two", group)
    side.ask("two: the one left leaves", ask.leave(group, (first, None)))
    side.ask("two: it syncs all the same", ask.sync(group, joined.generation_id, first))
    described(side, "nobody of two", group)


def _asked_while(
    side: Side, group: str, when: str, first: str, second: str, generation: int
) -> None:
    """What members and tools ask in one of the states."""
    described(side, f"two while {when}", group)
    listed(side, f"while {when}")
    for name, who in (("first", first), ("second", second)):
        for number in (generation - 1, generation):
            request = ask.beat(group, number, who)
            side.ask_in_each(f"{name} beats in {number} while {when}", request)
            commits = ask.commit(group, {TOPIC: {0: 5}}, member=who, epoch=number)
            side.ask(f"{name} commits in {number} while {when}", commits, version=9)
    for number in (generation - 1, generation + 1):
        request_of = ask.sync(group, number, first)
        side.ask_in_each(f"first syncs in {number} while {when}", request_of)
    wrong = ask.sync(group, generation, second, protocol_name="other")
    side.ask(f"second syncs as another while {when}", wrong)
    nobody = ask.commit(group, {TOPIC: {0: 5}})
    side.ask(f"nobody commits while {when}", nobody, version=9)
    side.ask(f"delete while {when}", DeleteGroupsRequest(groups_names=[group]))
    side.ask(f"delete offsets while {when}", ask.delete_offsets(group, {TOPIC: [0]}))
    side.ask(f"fetch while {when}", ask.fetch(group), version=9)
    other = ask.join(group, protocols={"other": b""})
    side.ask(f"join with other protocols while {when}", other)


def _votes(side: Side) -> None:
    """The protocol that most name first, of those that all can speak."""
    group = "votes"
    both = {"a": _words("a1"), "b": _words("b1")}
    turned = {"c": _words("c2"), "b": _words("b2"), "a": _words("a2")}
    first = member_of(side, group, "votes' first", protocols=both)
    second, joining = _come(side, group, "votes' second", protocols=turned)
    third_given = side.ask("votes: third gets an id", ask.join(group, protocols=turned))
    side.names[third_given.member_id] = "votes' third"
    third = side.begin("votes: third", ask.join(group, third_given.member_id, turned))
    side.until(
        lambda: len(_members(side, group)) == 3,
        "the third to be waited for",
    )
    side.ask("votes: first", ask.join(group, first, both))
    joining.take()
    third.take()
    described(side, "votes", group)
    side.ask("votes: a part for one", ask.sync(group, 2, first, {second: b"p"}, protocol_name="b"))
    side.ask("votes: second", ask.sync(group, 2, second, protocol_name="b"))
    side.ask("votes: third syncs", ask.sync(group, 2, third_given.member_id, protocol_name="b"))
    described(side, "votes with parts", group)


def _members(side: Side, group: str) -> list[str]:
    answer = side.driver.send(DescribeGroupsRequest(groups=[group]), node=side.node)
    return [one.member_id for one in answer.groups[0].members]


def _late(side: Side) -> None:
    """Who does not join in time is removed, and so is who does not ask for its part."""
    group = "late"
    first = member_of(side, group, "late's first", rebalance_timeout_ms=SOON_MS)
    second, joining = _come(side, group, "late's second", rebalance_timeout_ms=SOON_MS)
    joining.take()
    side.ask("late: first beats", ask.beat(group, 1, first))
    side.ask("late: first syncs", ask.sync(group, 2, first))
    side.ask("late: first joins", ask.join(group, first))
    await_state(side, group, "Empty")  # the second has not synced
    described(side, "late", group)
    side.ask("late: second syncs", ask.sync(group, 2, second))
    side.ask("late: second beats", ask.beat(group, 2, second))


def _full(side: Side) -> None:
    """More than may be in a group (group.max.size is 3).

    Who waits for one that was refused is answered when its time is over: theirs wait for that.
    """
    group = "full"
    first = member_of(side, group, "full's first", rebalance_timeout_ms=SLOW_MS)
    _, second = _come(
        side, group, "full's second", protocols={"range": b""}, rebalance_timeout_ms=SLOW_MS
    )
    third = side.begin("full: third", ask.join(group, rebalance_timeout_ms=SLOW_MS), version=3)
    side.until(lambda: len(_members(side, group)) == 3, "the third to wait")
    fourth = side.begin("full: fourth", ask.join(group, rebalance_timeout_ms=SLOW_MS), version=3)
    side.until(lambda: len(_members(side, group)) == 4, "the fourth to wait")
    side.ask("full: fifth", ask.join(group, rebalance_timeout_ms=SLOW_MS), version=3)
    side.ask("full: fifth for an id", ask.join(group))
    side.ask("full: first", ask.join(group, first))
    joined = [one.take() for one in (second, third, fourth)]
    described(side, "a full one", group)
    side.ask("full: first once more", ask.join(group, first))
    side.ask("full: sixth", ask.join(group, rebalance_timeout_ms=SLOW_MS), version=3)
    # Their time would be over in the midst of later steps, on a slow machine.
    side.ask("full: all leave", ask.leave(group, *((one.member_id, None) for one in joined)))
    await_state(side, group, "Empty")


def _leaver(side: Side) -> None:
    """Who leaves while it waits, for the one or for the other half."""
    group = "left"
    first = member_of(side, group, "left's first")
    second, joining = _come(side, group, "left's second")
    side.ask("left: second leaves as it joins", ask.leave(group, (second, None)))
    joining.take()
    await_state(side, group, PREPARING)
    side.ask("left: first joins", ask.join(group, first))
    side.ask("left: first syncs", ask.sync(group, 2, first, {first: b""}))
    described(side, "one left", group)
    third, joining = _come(side, group, "left's third")
    side.ask("left: first joins for a third", ask.join(group, first))
    joining.take()
    side.ask("left: the leader leaves", ask.leave(group, (first, None)))
    side.ask("left: third beats", ask.beat(group, 3, third))
    side.ask("left: third syncs", ask.sync(group, 3, third))
    side.ask("left: third joins", ask.join(group, third, {"range": _words("left's third")}))
    described(side, "another that leads", group)
    side.ask("left: third leaves", ask.leave(group, (third, None), ("nobody", None)))


def _static(side: Side, version: int) -> None:
    """A member with an instance id comes back under another member id."""
    group = f"static-{version}"
    syncs = min(version, 5)
    old = side.ask(f"{group} joins", ask.join(group, group_instance_id="i"), version=version)
    side.names[old.member_id] = "the old one"
    parts = {old.member_id: b"part"}
    request = ask.sync(group, 1, old.member_id, parts, group_instance_id="i")
    side.ask(f"{group} syncs", request, version=syncs)
    described(side, f"{group} at first", group)
    new = side.ask(f"{group} comes back", ask.join(group, group_instance_id="i"), version=version)
    side.names[new.member_id] = "the new one"
    described(side, f"{group} later", group)
    for name, who in (("old", old.member_id), ("new", new.member_id)):
        beat = ask.beat(group, 1, who, "i")
        side.ask_in_each(f"{group}: {name} beats", beat, since=3)
        side.ask(f"{group}: {name} beats without it", ask.beat(group, 1, who))
        part = ask.sync(group, 1, who, group_instance_id="i")
        side.ask(f"{group}: {name} syncs", part, version=syncs)
        commits = ask.commit(group, {TOPIC: {0: 1}}, member=who, epoch=1, group_instance_id="i")
        side.ask(f"{group}: {name} commits", commits, version=8)
    fenced = ask.join(group, old.member_id, group_instance_id="i")
    side.ask(f"{group}: old joins", fenced, version=version)
    changed = ask.join(group, protocols={"other": b""}, group_instance_id="i")
    side.ask(f"{group}: comes back with other protocols", changed, version=version)
    described(side, f"{group} changed", group)
    side.ask(f"{group}: old leaves", ask.leave(group, (old.member_id, "i")), version=3)
    side.ask(f"{group}: leaves by its instance", ask.leave(group, ("", "i")), version=5)
    described(side, f"{group} left", group)


def _static_rebalance(side: Side) -> None:
    """Static members beside others, in each half of a rebalance."""
    group = "static-two"
    first = side.ask("static: first", ask.join(group, group_instance_id="1"))
    side.names[first.member_id] = "static first"
    parts = {first.member_id: b"1"}
    request = ask.sync(group, 1, first.member_id, parts, group_instance_id="1")
    side.ask("static: first syncs", request)
    second = side.begin("static: second", ask.join(group, group_instance_id="2"))
    await_state(side, group, PREPARING)
    again = side.begin("static: second comes back", ask.join(group, group_instance_id="2"))
    second.take()
    joined = side.ask("static: first comes back", ask.join(group, group_instance_id="1"))
    side.names[joined.member_id] = "static first again"
    other = again.take()
    side.names[other.member_id] = "static second"
    described(side, "static members", group)
    third = side.begin(
        "static: second comes back while it is completed", ask.join(group, group_instance_id="2")
    )
    await_state(side, group, PREPARING)
    side.ask("static: first beats", ask.beat(group, 2, joined.member_id, "1"))
    leads = ask.join(group, joined.member_id, group_instance_id="1")
    side.ask("static: first joins again", leads)
    third.take()
    described(side, "static members again", group)
    names = ListGroupsRequest(states_filter=[COMPLETING])
    side.ask("list static members", names)
    leavers = ask.leave(group, ("", "1"), ("", "2"), ("", "3"))
    side.ask_in_each("static: all leave", leavers, since=3)
    described(side, "static members gone", group)


def _static_refused(side: Side) -> None:
    member = side.ask("lonely joins", ask.join("lonely", group_instance_id="i"))
    side.names[member.member_id] = "the lonely one"
    for step, who, instance in (
        ("another member of it", "somebody", "i"),
        ("another instance", member.member_id, "j"),
        ("its member without it", member.member_id, None),
        ("another of another", "somebody", "j"),
    ):
        beat = ask.beat("lonely", 1, who, instance)
        side.ask(f"lonely: {step} beats", beat)
        part = ask.sync("lonely", 1, who, group_instance_id=instance)
        side.ask(f"lonely: {step} syncs", part)
        request = ask.commit(
            "lonely", {TOPIC: {0: 1}}, member=who, epoch=1, group_instance_id=instance
        )
        side.ask(f"lonely: {step} commits", request, version=9)
        joins = ask.join("lonely", who, group_instance_id=instance, session_timeout_ms=SOON_MS)
        if who == "somebody":
            side.ask(f"lonely: {step} joins", joins)
            side.ask(f"lonely: {step} leaves", ask.leave("lonely", (who, instance)))
