"""Goal: a member takes the right step towards its target from wherever it is.

Method: a table of steps: what it has, what it shall have, what it says to own, what others have.
Topics are letters; a is subscribed to unless a case says otherwise. All that it has it got in
epoch 3: what it keeps is so afterwards, and what it gets is of the epoch that it comes to.
Rules: consumer-groups.md#reconciliation, consumer-groups.md#one-owner,
consumer-groups.md#assignment-epochs.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from holdfast.core.group.assignors import Partitions
from holdfast.core.group.consumer.consumer_epochs import all_since
from holdfast.core.group.consumer.consumer_member import ConsumerMember, MemberState
from holdfast.core.group.consumer.consumer_reconcile import Aim, reconcile
from holdfast.core.refusal import Refusal
from holdfast.wire.errors import ErrorCode

STABLE = MemberState.STABLE
UNREVOKED = MemberState.UNREVOKED_PARTITIONS
UNRELEASED = MemberState.UNRELEASED_PARTITIONS
LONG_AGO = 3


def partitions(text: str) -> Partitions:
    """Return `a0 a1 b0` as partitions."""
    found: dict[bytes, tuple[int, ...]] = {}
    for each in text.split():
        topic_id = each[0].encode()
        found[topic_id] = (*found.get(topic_id, ()), int(each[1:]))
    return found


def shown(found: Partitions) -> str:
    return " ".join(f"{chr(topic[0])}{index}" for topic in sorted(found) for index in found[topic])


@dataclass(frozen=True, kw_only=True)
class Step:
    """From 5 towards 6 unless it says otherwise: `has` becomes `then`."""

    name: str
    state: MemberState = STABLE
    epoch: int = 5
    has: str = ""
    revoking: str = ""
    target: str = ""
    target_epoch: int = 6
    owned: str | None = None
    taken: str = ""
    subscribed: str = "a"
    changed: bool = False
    then: tuple[int, MemberState, str, str] = field(kw_only=True)


STEPS = [
    Step(name="nothing to do", epoch=6, has="a0", target="a0", then=(6, STABLE, "a0", "")),
    Step(name="another epoch alone", has="a0", target="a0", then=(6, STABLE, "a0", "")),
    Step(name="more, and it is free", has="a0", target="a0 a1", then=(6, STABLE, "a0 a1", "")),
    Step(
        name="more, of which some is taken",
        has="a0",
        target="a0 a1 a2",
        taken="a0 a1",
        then=(6, UNRELEASED, "a0 a2", ""),
    ),
    Step(
        name="more, all of it taken",
        has="a0",
        target="a0 a1",
        taken="a0 a1",
        then=(6, UNRELEASED, "a0", ""),
    ),
    Step(
        name="less: it has to give up first",
        has="a0 a1",
        target="a1",
        taken="a0 a1",
        then=(5, UNREVOKED, "a1", "a0"),
    ),
    Step(
        name="less and more: it gets nothing before it has given up",
        has="a0 a1",
        target="a1 a2",
        taken="a0 a1",
        owned="a0 a1",
        then=(5, UNREVOKED, "a1", "a0"),
    ),
    Step(
        name="less and more, and it says that it has given up",
        has="a0 a1",
        target="a1 a2",
        taken="a0 a1",
        owned="a1",
        then=(6, STABLE, "a1 a2", ""),
    ),
    Step(
        name="it has not given up, as it says nothing",
        state=UNREVOKED,
        has="a1",
        revoking="a0",
        target="a1 a2",
        taken="a0 a1",
        then=(5, UNREVOKED, "a1", "a0"),
    ),
    Step(
        name="it has not given up, as it says",
        state=UNREVOKED,
        has="a1",
        revoking="a0",
        target="a2",
        taken="a0 a1",
        owned="a0 a1",
        then=(5, UNREVOKED, "a1", "a0"),
    ),
    Step(
        name="it has given up, and is to give up more",
        state=UNREVOKED,
        has="a1 a2",
        revoking="a0",
        target="a2 a3",
        taken="a0 a1 a2",
        owned="a1 a2",
        then=(5, UNREVOKED, "a2", "a1"),
    ),
    Step(
        name="it has given up what it is to have again: nobody else can have got it",
        state=UNREVOKED,
        has="a1",
        revoking="a0",
        target="a0 a1",
        taken="a0 a1",
        owned="a1",
        then=(6, STABLE, "a0 a1", ""),
    ),
    Step(
        name="what it waited for is free",
        state=UNRELEASED,
        epoch=6,
        has="a0",
        target="a0 a1",
        taken="a0",
        then=(6, STABLE, "a0 a1", ""),
    ),
    Step(
        name="it waits, and there is another target",
        state=UNRELEASED,
        epoch=5,
        has="a0",
        target="a1",
        taken="a0",
        then=(5, UNREVOKED, "", "a0"),
    ),
    Step(
        name="a target that is older than its subscription",
        has="a0",
        target="a0 b0",
        then=(6, STABLE, "a0", ""),
    ),
    Step(
        name="what it does not subscribe to any more, before there is another target",
        epoch=6,
        has="a0 b0",
        target="a0 b0",
        changed=True,
        then=(6, UNREVOKED, "a0", "b0"),
    ),
    Step(
        name="the same, and it has given it up already",
        epoch=6,
        has="a0 b0",
        target="a0 b0",
        owned="a0",
        changed=True,
        then=(6, STABLE, "a0", ""),
    ),
    Step(
        name="the same, while it has to give up something else",
        state=UNREVOKED,
        has="a0 b0",
        revoking="a1 b1",
        target="a0",
        changed=True,
        then=(5, UNREVOKED, "a0", "a1 b0 b1"),
    ),
    Step(
        name="another subscription, by which it has what it may have",
        epoch=6,
        has="a0",
        target="a0",
        changed=True,
        then=(6, STABLE, "a0", ""),
    ),
    Step(
        name="nothing is subscribed to",
        has="a0",
        target="a0",
        subscribed="",
        then=(5, UNREVOKED, "", "a0"),
    ),
    Step(
        name="a state that is not known, and it owns nothing",
        state=MemberState.UNKNOWN,
        has="a0",
        target="a0",
        owned="",
        then=(6, STABLE, "a0", ""),
    ),
]


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.name)
def test_step(step: Step) -> None:
    member = ConsumerMember(
        member_id="m",
        epoch=step.epoch,
        previous_epoch=step.epoch - 1,
        state=step.state,
        assigned=partitions(step.has),
        revoking=partitions(step.revoking),
        since=all_since(partitions(f"{step.has} {step.revoking}"), LONG_AGO),
    )
    taken = partitions(step.taken)
    aim = Aim(
        epoch=step.target_epoch,
        target=partitions(step.target),
        subscribed={letter.encode() for letter in step.subscribed},
        subscription_changed=step.changed,
        owned=None if step.owned is None else partitions(step.owned),
        taken=lambda topic_id, index: index in taken.get(topic_id, ()),
    )
    moved = reconcile(member, aim)
    assert isinstance(moved, ConsumerMember)
    found = (moved.epoch, moved.state, shown(moved.assigned), shown(moved.revoking))
    assert found == step.then
    assert moved == member or moved.previous_epoch == member.epoch
    had = set(step.has.split())
    since = {each: LONG_AGO if each in had else step.target_epoch for each in found[2].split()}
    since |= dict.fromkeys(found[3].split(), LONG_AGO)
    assert since == {
        f"{chr(topic_id[0])}{index}": epoch
        for topic_id, epochs in moved.since.items()
        for index, epoch in epochs.items()
    }
    if found == (member.epoch, member.state, step.has, step.revoking):
        again = reconcile(moved, aim)
        assert again == moved, "standing still, it writes no more"


@pytest.mark.parametrize("owned", [None, "a0"])
def test_a_state_that_is_not_known_is_fenced_while_it_may_own_something(owned: str | None) -> None:
    member = ConsumerMember(member_id="m", epoch=5, state=MemberState.UNKNOWN)
    aim = Aim(
        epoch=6,
        target={},
        subscribed=(),
        subscription_changed=False,
        owned=None if owned is None else partitions(owned),
        taken=lambda *_: False,
    )
    refusal = reconcile(member, aim)
    assert isinstance(refusal, Refusal)
    assert refusal.code is ErrorCode.FENCED_MEMBER_EPOCH
