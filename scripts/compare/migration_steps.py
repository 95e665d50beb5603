"""Groups that change from the one protocol to the other and back, with members in them."""

from __future__ import annotations

from typing import Any, Final

from compare import group_requests as ask
from compare.asking import Side
from compare.classic_steps import described
from compare.consumer_steps import beaten, group_of, settled
from compare.coordinator_steps import listed, serve
from holdfast.wire.messages.delete_groups import DeleteGroupsRequest

TOPIC: Final = "migrated"


def steps(side: Side) -> None:
    """Put them."""
    serve(side)
    side.create(TOPIC, 4)
    _empty(side)
    _refused(side)
    _up_and_down(side)
    _static_down(side)


def _classic(side: Side, group: str, name: str, **more: Any) -> str:
    """Have a classic consumer join an empty group and take all partitions; its id."""
    metadata = more.pop("metadata", ask.subscription(TOPIC))
    part = more.pop("part", ask.assignment({TOPIC: [0, 1, 2, 3]}))
    instance = more.get("group_instance_id")
    kind = more.get("protocol_type", "consumer")
    protocols = {"range": metadata}
    request = ask.join(group, protocols=protocols, **more)
    joined = side.ask(f"{group}: {name} joins", request, version=9 if instance else 3)
    side.names[joined.member_id] = name
    request_of = ask.sync(
        group,
        joined.generation_id,
        joined.member_id,
        {joined.member_id: part},
        group_instance_id=instance,
        protocol_type=kind,
    )
    side.ask(f"{group}: {name} syncs", request_of)
    return str(joined.member_id)


def _empty(side: Side) -> None:
    """Groups without members change over at once, and keep their offsets."""
    group = "hollow"
    side.ask("hollow: commit", ask.commit(group, {TOPIC: {0: 3}}), version=9)
    side.ask("hollow: a consumer joins", ask.consume(group, "m", 0, [TOPIC]))
    described(side, "hollow of consumers", group)
    side.ask("hollow: fetch", ask.fetch(group), version=9)
    side.ask("hollow: a consumer leaves", ask.consume(group, "m", -1))
    listed(side, "with a hollow one")
    side.ask("hollow: join with an id", ask.join(group, "somebody"))
    member = _classic(side, group, "hollow's")
    described(side, "hollow of classic members", group)
    side.ask("hollow: fetch again", ask.fetch(group), version=9)
    side.ask("hollow: leave", ask.leave(group, (member, None)))
    side.ask("hollow: a consumer comes back", ask.consume(group, "m", 0, [TOPIC]))
    described(side, "hollow of consumers again", group)
    side.ask("hollow: the consumer leaves again", ask.consume(group, "m", -1))
    side.ask("hollow: delete", DeleteGroupsRequest(groups_names=[group]))


def _refused(side: Side) -> None:
    """Classic groups that no consumer of the new protocol can come into."""
    groups: dict[str, dict[str, Any]] = {
        "no-consumers": {"protocol_type": "connect"},
        "unreadable": {"metadata": b"?"},
        "no-subscription": {"metadata": b""},
        "unreadable-part": {"part": b"?"},
        "no-part": {"part": b""},
        "own-data": {"part": ask.assignment({TOPIC: [0]}, b"own")},
        "own-words": {"metadata": ask.subscription(TOPIC, user_data=b"own")},
        "of-a-topic-gone": {"part": ask.assignment({"not-there": [0]})},
    }
    for group, more in groups.items():
        _classic(side, group, f"{group}'s", **more)
        side.ask(f"{group}: a consumer joins", ask.consume(group, "m", 0, [TOPIC]))
        described(side, f"{group} after that", group)


def _up_and_down(side: Side) -> None:
    group = "both-ways"
    old = _classic(side, group, "the classic one")
    commits = ask.commit(group, {TOPIC: {0: 3}}, member=old, epoch=1)
    side.ask("both: commit", commits, version=9)
    new = ask.consume(group, "new", 0, [TOPIC])
    side.ask("both: a consumer joins", new)
    described(side, "both protocols", group)
    listed(side, "with both protocols")
    side.ask_in_each("both: the classic one beats", ask.beat(group, 1, old))
    side.ask_in_each("both: the classic one syncs", ask.sync(group, 1, old))
    side.ask("both: commit in the old generation", commits, version=9)
    for step, protocols in {
        "another protocol": {"other": ask.subscription(TOPIC)},
        "what is unreadable": {"range": b"?"},
        "nothing": {},
    }.items():
        side.ask(f"both: the classic one joins with {step}", ask.join(group, old, protocols))
    joins = ask.join(group, old, {"range": ask.subscription(TOPIC)})
    joined = side.ask("both: the classic one joins", joins)
    side.ask("both: the consumer beats", ask.consume(group, "new", 2))
    number = joined.generation_id
    side.ask("both: the classic one syncs then", ask.sync(group, number, old))
    described(side, "both protocols while it moves", group)
    _settle(side, group, old, number)
    described(side, "both protocols, settled", group)
    found = {it.member_id: it.member_epoch for it in group_of(side, group).members}
    for member in (old, "new"):
        for epoch in range(found[member] + 2):
            for part in range(4):
                offsets: dict[ask.Topic, dict[int, int]] = {TOPIC: {part: epoch}}
                commits = ask.commit(group, offsets, member=member, epoch=epoch)
                step = f"both: {side.names.get(member, member)} commits {part} in {epoch}"
                side.ask(step, commits, version=9)
    stranger = ask.join(group, protocols={"range": ask.subscription(TOPIC)})
    given = side.ask("both: another classic one gets an id", stranger)
    side.ask("both: it leaves before it joined", ask.leave(group, (given.member_id, None)))
    wrong = ask.join(group, protocols={"other": ask.subscription(TOPIC)})
    side.ask("both: another classic one with another protocol", wrong)
    side.ask("both: the consumer leaves", ask.consume(group, "new", -1))
    described(side, "classic again", group)
    listed(side, "with one classic again")
    side.ask("both: the classic one beats at last", ask.beat(group, number, old))
    side.ask("both: fetch", ask.fetch(group), version=9)


def _settle(side: Side, group: str, old: str, generation: int) -> None:
    """Have both members do as they are told until each has its part."""
    state = {"generation": generation}

    def moves() -> bool:
        found = group_of(side, group)
        if found.group_state == "Stable":
            return True
        epoch = next(it.member_epoch for it in found.members if it.member_id == "new")
        beaten(side, ask.consume(group, "new", epoch))
        if side.driver.send(ask.beat(group, state["generation"], old), node=side.node).error_code:
            joins = ask.join(group, old, {"range": ask.subscription(TOPIC)})
            state["generation"] = side.driver.send(joins, node=side.node).generation_id
            side.driver.send(ask.sync(group, state["generation"], old), node=side.node)
        return False

    side.until(moves, f"{group} to be stable")


def _static_down(side: Side) -> None:
    """A consumer's place is taken by a classic member with its instance id."""
    group = "static-down"
    side.ask("down: a consumer joins", ask.consume(group, "m", 0, [TOPIC], instance_id="i"))
    settled(side, group, "m", 1)
    taking = ask.join(group, protocols={"range": ask.subscription(TOPIC)}, group_instance_id="i")
    side.ask("down: a classic one with its instance", taking)
    away = ask.consume(group, "m", -2, instance_id="i")
    side.ask("down: the consumer goes away", away)
    joined = side.ask("down: a classic one takes its place", taking)
    side.names[joined.member_id] = "who took the place"
    described(side, "classic by taking a place", group)
    syncs = ask.sync(group, joined.generation_id, joined.member_id, group_instance_id="i")
    side.ask("down: it syncs", syncs)
    back = ask.consume(group, "n", 0, [TOPIC], instance_id="i")
    side.ask("down: a consumer takes it back", back)
    described(side, "consumers by taking a place", group)
    side.ask("down: it leaves", ask.consume(group, "n", -1, instance_id="i"))
    described(side, "nobody in that place", group)
