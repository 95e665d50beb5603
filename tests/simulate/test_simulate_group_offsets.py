"""The oracle of groups sees what is wrong with commits, and with what is told of them.

Goal: an acknowledged commit that is lost is found, and so is one that had to be refused; who did
right is not blamed. Method: a log made by hand; each case beside the nearest one that is right.
Seen to fail: each check taken out turns one of these red.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from tests.simulate.group_kit import (
    GROUP,
    NODE,
    OTHER_ID,
    SESSION_S,
    TOPIC_ID,
    Kit,
    classic_group,
    consumer_group,
    consumer_member,
    gone,
    offset,
    told,
)

from holdfast.testing.simulation.groups.attempts import CERTAIN
from holdfast.testing.simulation.invariants import Invariant
from holdfast.wire.batch import Record, build_batch
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from holdfast.wire.uuids import NULL_UUID

I = Invariant  # noqa: E741 - the tables below are read by rows
E = ErrorCode
Story = Callable[[Kit], Coroutine[Any, Any, None]]


M_AT_2 = [consumer_group(2), *consumer_member("m", 2, 0)]


# -- who may commit ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("records", "member", "epoch", "is_right"),
    [
        ([], "", -1, True),
        ([], "m", 1, False),
        ([classic_group(0)], "", -1, True),
        ([classic_group(0)], "m", 0, True),
        ([classic_group(0)], "m", 1, False),
        ([classic_group(1, m=(0,))], "m", 1, True),
        ([classic_group(1, m=(0,))], "m", 0, False),
        ([classic_group(2, m=(0,))], "m", 3, False),
        ([classic_group(1, m=(0,))], "n", 1, False),
        ([consumer_group(3), *consumer_member("m", 3, 0)], "m", 3, True),
        ([consumer_group(3), *consumer_member("m", 3, 0)], "m", 2, False),
        ([*M_AT_2, *consumer_member("m", 3, 0, since={0: 2})], "m", 2, True),
        ([*M_AT_2, *consumer_member("m", 3, pending=(0,), since={0: 2})], "m", 2, True),
        ([*M_AT_2, *consumer_member("m", 3, 0, since={0: 2})], "m", 1, False),
        ([*M_AT_2, *consumer_member("m", 3, 0, since={0: 2})], "m", 4, False),
        ([*M_AT_2, *consumer_member("m", 3)], "m", 2, False),
        ([*M_AT_2, *consumer_member("m", 3), *consumer_member("m", 4, 0)], "m", 2, False),
        ([*M_AT_2, *consumer_member("m", 3), *consumer_member("m", 4, 0)], "m", 3, False),
        ([*M_AT_2, *consumer_member("m", 3, 1)], "m", 2, False),
        ([consumer_group(3), *consumer_member("m", 3, 0)], "", -1, False),
        ([consumer_group(3), *consumer_member("m", 3, 0), *gone("m")], "m", 3, False),
        ([consumer_group(3), *consumer_member("m", 3, 0), *gone("m")], "", -1, True),
        ([consumer_group(3)], "m", 0, False),
    ],
)
def test_nobody_commits_but_a_member_in_its_generation(
    records: list[Any], member: str, epoch: int, is_right: bool
) -> None:
    async def story(kit: Kit) -> None:
        if records:
            kit.commit(*records)
        attempt = kit.attempt("a", member, epoch)
        kit.commit(offset(7))
        kit.outcome(attempt)

    assert told(story) == ([] if is_right else [I.COMMIT_OF_MEMBER])


@pytest.mark.parametrize(("topic_id", "is_right"), [(TOPIC_ID, True), (OTHER_ID, False)])
def test_a_namesake_is_not_what_a_member_has_had(topic_id: bytes, is_right: bool) -> None:
    async def story(kit: Kit) -> None:
        kit.commit(*M_AT_2, *consumer_member("m", 3, 0, since={0: 2}))
        kit.attempt("a", "m", 2)
        kit.commit(offset(7, topic_id=topic_id))

    assert told(story) == ([] if is_right else [I.COMMIT_OF_MEMBER])


@pytest.mark.parametrize("silent_s", [0.0, SESSION_S])
def test_nobody_s_commit_is_right_once_all_members_may_be_gone(silent_s: float) -> None:
    """A classic group is empty in memory before the log says so, and even if it never does."""

    async def story(kit: Kit) -> None:
        kit.classic("m", 0)
        kit.commit(classic_group(1, m=(0,)))
        await asyncio.sleep(silent_s)
        kit.attempt("a", "", -1)
        kit.commit(offset(7))

    assert told(story) == ([] if silent_s else [I.COMMIT_OF_MEMBER])


@pytest.mark.parametrize("joined", [True, False])
def test_a_generation_that_is_not_in_the_log_yet_is_known_by_who_was_told(joined: bool) -> None:
    """A rebalance that begins anew before its leader has assigned lets its members commit."""

    async def story(kit: Kit) -> None:
        view = kit.classic("m", 0)
        kit.commit(classic_group(1, m=(0,)))
        if joined:
            asked = JoinGroupRequest(group_id=GROUP, member_id="m", session_timeout_ms=1)
            answer = JoinGroupResponse(generation_id=2, leader="m", member_id="m")
            kit.oracle.answered(view, kit.question(asked), answer)
        kit.attempt("a", "m", 2)
        kit.commit(offset(7))

    assert told(story) == ([] if joined else [I.COMMIT_OF_MEMBER])


def test_who_has_joined_a_generation_that_was_made_without_it_is_no_member_of_it() -> None:
    async def story(kit: Kit) -> None:
        view = kit.classic("m", 0)
        asked = JoinGroupRequest(group_id=GROUP, member_id="m", session_timeout_ms=1)
        answer = JoinGroupResponse(generation_id=2, leader="m", member_id="m")
        kit.oracle.answered(view, kit.question(asked), answer)
        kit.commit(classic_group(2, n=(0,)))
        kit.attempt("a", "m", 2)
        kit.commit(offset(7))

    assert told(story) == [I.COMMIT_OF_MEMBER]


@pytest.mark.parametrize("record", [offset(7, "b"), offset(8)])
def test_a_commit_that_nobody_has_asked_for_is_found(record: tuple[Any, Any]) -> None:
    async def story(kit: Kit) -> None:
        kit.attempt("a", "", -1)
        kit.commit(record)

    assert told(story) == [I.COMMIT_OF_MEMBER]


# -- what becomes of it ------------------------------------------------------------------------


async def acknowledged_before_it_is_committed(kit: Kit) -> None:
    kit.outcome(kit.attempt("a", "", -1))


async def lost_with_who_wrote_it(kit: Kit) -> None:
    kit.elect(2, 5)
    kit.lose(0, 5)
    kit.outcome(kit.attempt("a", "", -1))


async def not_lost_by_who_was_not_there(kit: Kit) -> None:
    """What earlier epochs wrote may be gone, and nothing of this one."""
    kit.elect(2, 5)
    kit.lose(0, 5)
    kit.outcome(kit.attempt("a", "", -1), node=2)


async def refused_and_taken(kit: Kit) -> None:
    attempt = kit.attempt("a", "", -1)
    kit.outcome(attempt, E.UNKNOWN_MEMBER_ID)
    kit.commit(offset(7))


async def taken_and_refused(kit: Kit) -> None:
    attempt = kit.attempt("a", "", -1)
    kit.commit(offset(7))
    kit.outcome(attempt, E.STALE_MEMBER_EPOCH)


async def in_doubt_and_taken(kit: Kit) -> None:
    attempt = kit.attempt("a", "", -1)
    kit.outcome(attempt, E.COORDINATOR_NOT_AVAILABLE)
    kit.commit(offset(7))


@pytest.mark.parametrize(
    ("story", "broken"),
    [
        (acknowledged_before_it_is_committed, [I.COMMIT_KEPT]),
        (lost_with_who_wrote_it, []),
        (not_lost_by_who_was_not_there, [I.COMMIT_KEPT]),
        (refused_and_taken, [I.COMMIT_REFUSED]),
        (taken_and_refused, [I.COMMIT_REFUSED]),
        (in_doubt_and_taken, []),
    ],
)
def test_what_an_answer_says_of_a_commit_is_so(story: Story, broken: list[str]) -> None:
    assert told(story) == broken


@pytest.mark.parametrize("code", sorted(CERTAIN))
def test_with_these_nothing_was_appended(code: ErrorCode) -> None:
    async def story(kit: Kit) -> None:
        kit.outcome(kit.attempt("a", "", -1), code)
        kit.commit(offset(7))

    assert told(story) == [I.COMMIT_REFUSED]
    assert len(CERTAIN) == 10


def test_what_moves_back_and_what_comes_late_is_counted() -> None:
    """Method: three commits, taken in another order; then one that is lower, and is wanted so."""
    counts: list[Any] = []

    async def story(kit: Kit) -> None:
        for number in range(3):
            kit.attempt(f"{number}", "", -1, number)
        for number in (1, 0, 2):
            kit.commit(offset(number, f"{number}"))
        for name, at in (("back", 1), ("same", 1)):
            kit.attempt(name, "", -1, at)
            kit.commit(offset(at, name))
        counts.append(dict(kit.counts))

    assert told(story) == []
    assert counts[0]["commits taken behind a later one"] == 1
    assert counts[0]["commits that moved back"] == 2


@pytest.mark.parametrize(
    ("topic_id", "is_there", "deleted", "is_right"),
    [
        (TOPIC_ID, True, False, False),
        (TOPIC_ID, False, False, True),
        (TOPIC_ID, True, True, True),
        (NULL_UUID, True, False, False),
        (NULL_UUID, False, False, True),
        (OTHER_ID, True, False, True),
    ],
)
def test_an_offset_goes_with_its_topic_or_its_group(
    topic_id: bytes, is_there: bool, deleted: bool, is_right: bool
) -> None:
    """`topic_id`: as it was committed; of an older topic with this name in the last case."""

    async def story(kit: Kit) -> None:
        kit.attempt("a", "", -1)
        kit.commit(offset(7, topic_id=topic_id))
        if not is_there:
            kit.delete_topic(TOPIC_ID)
        if deleted:
            kit.oracle.deleted[GROUP] = None
        kit.commit(offset(None))

    assert told(story) == ([] if is_right else [I.COMMIT_STAYS])


# -- what is told of it ------------------------------------------------------------------------


async def committed_at(kit: Kit, *offsets: int) -> None:
    """Commit these, one a second."""
    for number, each in enumerate(offsets):
        kit.attempt(f"{each}", "", -1, each)
        kit.commit(offset(each, f"{each}"))
        if number + 1 < len(offsets):
            await asyncio.sleep(1)


@pytest.mark.parametrize(("said", "is_right"), [(1, False), (2, True), (3, True), (4, False)])
def test_what_is_told_was_so_between_question_and_answer(said: int, is_right: bool) -> None:
    async def story(kit: Kit) -> None:
        await committed_at(kit, 1, 2)
        await asyncio.sleep(1)
        question = kit.question()
        await committed_at(kit, 3)
        kit.oracle.told_offset(GROUP, ("t", 0), said, question)

    assert told(story) == ([] if is_right else [I.COMMIT_TOLD])


@pytest.mark.parametrize(("node", "is_right"), [(NODE, True), (2, False)])
def test_who_has_not_heard_of_its_end_tells_what_was_so_when_it_led(
    node: int, is_right: bool
) -> None:
    async def story(kit: Kit) -> None:
        await committed_at(kit, 1)
        await asyncio.sleep(1)
        kit.elect(2, 1)
        await asyncio.sleep(1)
        await committed_at(kit, 2)
        await asyncio.sleep(1)
        kit.oracle.told_offset(GROUP, ("t", 0), 1, kit.question(node=node))

    assert told(story) == ([] if is_right else [I.COMMIT_TOLD])


def test_who_has_never_led_tells_nothing() -> None:
    async def story(kit: Kit) -> None:
        await committed_at(kit, 1)
        kit.oracle.told_offset(GROUP, ("t", 0), 1, kit.question(node=2))

    assert told(story) == [I.COMMIT_TOLD]


@pytest.mark.parametrize(
    ("topic_id", "said", "is_right"),
    [
        (TOPIC_ID, 1, True),
        (NULL_UUID, 1, True),
        (OTHER_ID, 1, False),
        (OTHER_ID, -1, True),
        (TOPIC_ID, -1, False),
    ],
)
def test_of_a_topic_that_is_named_by_its_id_nothing_older_is_told(
    topic_id: bytes, said: int, is_right: bool
) -> None:
    async def story(kit: Kit) -> None:
        await committed_at(kit, 1)
        await asyncio.sleep(1)
        kit.oracle.told_offset(GROUP, ("t", 0), said, kit.question(), topic_id)

    assert told(story) == ([] if is_right else [I.COMMIT_TOLD])


@pytest.mark.parametrize(
    ("kept", "others", "said", "is_right"),
    [
        (TOPIC_ID, [(OTHER_ID, "t")], -1, True),
        (TOPIC_ID, [(OTHER_ID, "t")], 1, True),
        (TOPIC_ID, [(OTHER_ID, "t")], 2, False),
        (TOPIC_ID, [(OTHER_ID, "u")], -1, False),
        (OTHER_ID, [(OTHER_ID, "t")], -1, False),
        (NULL_UUID, [(OTHER_ID, "t")], -1, False),
        (TOPIC_ID, [], -1, False),
    ],
)
def test_of_a_topic_that_is_named_nothing_may_be_told_where_the_name_is_another_s(
    kept: bytes, others: list[tuple[bytes, str]], said: int, is_right: bool
) -> None:
    """Goal: who asks by a name means the topic that has it now. Method: it is made anew, or not.

    A coordinator may have heard of the new one, or not yet. `kept`: the topic of the offset.
    """

    async def story(kit: Kit) -> None:
        for topic_id, name in others:
            kit.make_topic(name, topic_id)
        kit.attempt("1", "", -1, 1)
        kit.commit(offset(1, "1", kept))
        await asyncio.sleep(1)
        kit.oracle.told_offset(GROUP, ("t", 0), said, kit.question())

    assert told(story) == ([] if is_right else [I.COMMIT_TOLD])


def test_what_was_lost_as_allowed_is_so_no_longer() -> None:
    """Goal: after a loss the log that is left is what is told. Method: two commits, one is lost."""

    async def story(kit: Kit) -> None:
        await committed_at(kit, 1)
        await asyncio.sleep(1)
        await committed_at(kit, 2)
        kit.elect(2, 1)
        kit.lose(1, 1)
        await asyncio.sleep(1)
        shard = kit.oracle.shard_of(GROUP)
        assert shard is not None
        kit.oracle.told_offset(GROUP, ("t", 0), 1, kit.question(node=2))
        assert list(shard.state.offsets().values()) == [1]
        await asyncio.sleep(1)
        kit.oracle.told_offset(GROUP, ("t", 0), 2, kit.question(node=2))

    assert told(story) == [I.COMMIT_TOLD]


def test_a_batch_that_nobody_has_appended_is_found() -> None:
    async def story(kit: Kit) -> None:
        kit.keeps = False
        kit.commit(classic_group(0))

    assert told(story) == [I.ALL_SEEN]


def test_a_batch_that_is_no_record_of_groups_is_found() -> None:
    async def story(kit: Kit) -> None:
        kit.commit_batch(build_batch([Record(b"\0\1", b"?", 1)]))

    assert told(story) == [I.GROUPS_READABLE]


@pytest.mark.parametrize(
    ("topic_id", "is_deleted", "is_made_anew", "is_elected", "may_be_forgotten"),
    [
        (TOPIC_ID, False, False, True, False),
        (TOPIC_ID, True, False, True, False),
        (TOPIC_ID, True, True, True, True),
        (TOPIC_ID, True, True, False, False),
        (NULL_UUID, True, True, True, False),
    ],
)
def test_an_offset_whose_deletion_was_forgotten_is_another_topic_s(
    topic_id: bytes,
    is_deleted: bool,
    is_made_anew: bool,
    is_elected: bool,
    may_be_forgotten: bool,
) -> None:
    """Nobody has to be told it then. Found by a seed whose coordinator died before it wrote that.

    Without its id nobody can say which one it is of; where none has the name, it may be told; and a
    coordinator that has lived on has to remove it.
    """

    async def story(kit: Kit) -> None:
        kit.attempt("a", "", -1, 3)
        kit.commit(offset(3, topic_id=topic_id))
        if is_deleted:
            kit.delete_topic(TOPIC_ID)
        if is_made_anew:
            kit.make_topic("t", OTHER_ID)
        if is_elected:
            kit.elect(NODE, 1)
        shard = kit.oracle.shards[0]
        (fact,) = shard.state.offsets()
        assert kit.oracle.may_be_forgotten(shard, fact) is may_be_forgotten

    assert told(story) == []
