"""One bad partition, and all the others that are followed from the same broker.

Goal: what is wrong with one partition (an answer that is too large or does not parse, a leader that
ends the connection over it, a batch that can't be appended) costs no other one its replication; it
is named once, and follows again by itself when it is well. Method: a real fetcher over real logs in
virtual time, against a scripted leader.
Rules: replication.md#set-aside, replication.md#limits-between-brokers. Seen to fail: with whoever
is suspected left among the others, with nobody suspected, with the limit of old for what is asked
for alone, with the damaged one asked for along with the rest, with a partition blamed while its
leader answers nobody, with one that never comes back.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

import pytest
from tests.log.log_kit import TOPIC_ID, virtual
from tests.node.leader_kit import Leader, Side, Wrong, side

from holdfast.log.errors import StorageError
from holdfast.runtime.ports import Runtime
from holdfast.wire.errors import ErrorCode

MIB = 1024 * 1024
MANY = 32
BAD = 21
OTHERS = [index for index in range(MANY) if index != BAD]
Story = Callable[[Side], Awaitable[None]]


def play(story: Story, **settings: str) -> None:
    async def body(runtime: Runtime) -> None:
        made = await side(runtime, Leader(), **settings)
        made.follow(*range(MANY))
        await made.until_followed()
        await story(made)
        await made.fetcher.close()

    virtual(body)


def troubles(made: Side) -> list[int]:
    return [each.replica.key[1] for each in made.fetcher.set_aside]


async def spoil(made: Side) -> None:
    """Have one partition be unreadable at its leader, until it is set aside."""
    made.led(BAD).wrong = Wrong.UNREADABLE
    made.led(BAD).append()
    made.leader.changed()
    await made.until(lambda: troubles(made) == [BAD])


def words(caplog: pytest.LogCaptureFixture, text: str) -> list[str]:
    return [each.getMessage() for each in caplog.records if text in each.getMessage()]


@pytest.mark.parametrize("wrong", list(Wrong))
def test_one_bad_partition_costs_the_others_nothing_and_comes_back(
    wrong: Wrong, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(made: Side) -> None:
        made.led(BAD).wrong = wrong
        for index in range(MANY):
            made.led(index).append()
        made.leader.changed()
        await made.until_all(*OTHERS)
        await made.until(lambda: troubles(made) == [BAD])
        for _ in range(5):
            await asyncio.sleep(20)  # it is tried again and again
            for index in OTHERS:
                made.led(index).append()
            made.leader.changed()
            await made.until_all(*OTHERS, seconds=0.5)
        assert troubles(made) == [BAD]
        assert len(words(caplog, "is set aside")) == 1
        made.led(BAD).wrong = None
        await made.until_all(BAD)
        assert not made.fetcher.set_aside
        made.led(BAD).append()
        made.leader.changed()
        await made.until_all(BAD, seconds=0.5)

    with caplog.at_level(logging.INFO):
        play(story)
    assert len(words(caplog, "follows broker 0 again")) == 1


def test_it_is_found_by_halves() -> None:
    """Not by asking for each: thirty-two partitions are five halvings."""

    async def story(made: Side) -> None:
        await spoil(made)
        assert len(made.leader.named("fetcher-apart")) <= 2 * 5

    play(story)


def test_pauses_grow() -> None:
    async def story(made: Side) -> None:
        await spoil(made)
        before = len(made.leader.named("fetcher-apart"))
        await asyncio.sleep(200)
        assert 200 / 30 <= len(made.leader.named("fetcher-apart")) - before <= 200 / 30 + 6

    play(story)


def test_a_batch_over_the_limit_is_fetched_alone_and_those_like_it_along_with_the_rest(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story(made: Side) -> None:
        made.led(BAD).append(300_000)
        for index in OTHERS:
            made.led(index).append()
        made.leader.changed()
        await made.until_all(seconds=1)
        assert not made.fetcher.set_aside
        assert 1 in made.leader.named("fetcher-apart")
        before = len(made.leader.named("fetcher-apart"))
        for _ in range(3):
            made.led(BAD).append(300_000)
            made.leader.changed()
            await made.until_all(seconds=1)
        assert len(made.leader.named("fetcher-apart")) == before

    with caplog.at_level(logging.INFO):
        play(story)
    assert len(words(caplog, "max.message.bytes")) == 1


def test_a_topic_that_may_have_larger_batches_now_is_taken_as_it_is() -> None:
    async def story(made: Side) -> None:
        made.fetcher.allow(300_000)  # while a request waits at the leader
        made.led(BAD).append(290_000)
        made.leader.changed()
        await made.until_all(seconds=1)
        assert not made.leader.named("fetcher-apart")

    play(story)


def test_an_answer_may_be_as_large_as_the_settings_say() -> None:
    """Seen to fail: whatever was asked for, nothing over 100 MiB was taken."""

    async def story(made: Side) -> None:
        made.fetcher.allow(150 * MIB)
        room = made.fetcher.answer_bytes_max(MANY)
        assert 450 * MIB < room < 451 * MIB
        assert made.fetcher._lane.bytes_max == room
        made.led(BAD).append()
        made.leader.changed()
        await made.until_all(BAD)

    play(story, **{"replica.fetch.response.max.bytes": str(300 * MIB)})


def test_nobody_is_blamed_when_the_leader_answers_nobody() -> None:
    async def story(made: Side) -> None:
        made.leader.answers_nobody = True
        await asyncio.sleep(100)
        assert not made.fetcher.set_aside
        made.leader.answers_nobody = False
        for index in range(MANY):
            made.led(index).append()
        made.leader.changed()
        await made.until_all(seconds=5)
        assert not made.fetcher.set_aside

    play(story)


def test_two_bad_ones_are_both_found() -> None:
    async def story(made: Side) -> None:
        for index in (BAD, 30):
            made.led(index).wrong = Wrong.UNREADABLE
        for index in range(MANY):
            made.led(index).append()
        made.leader.changed()
        await made.until(lambda: sorted(troubles(made)) == [BAD, 30])
        await made.until_all(*(index for index in OTHERS if index != 30))

    play(story)


def test_what_the_disk_refuses_for_one_partition_is_asked_for_again_alone() -> None:
    async def story(made: Side) -> None:
        log = made.partitions[BAD].log
        assert log is not None
        append = log.append_as_follower

        def refuse(_records: memoryview) -> ErrorCode:
            raise StorageError("/logs", "too much waits for it", is_offline=False)

        log.append_as_follower = refuse  # type: ignore[assignment,method-assign]
        for index in range(MANY):
            made.led(index).append()
        made.leader.changed()
        await made.until_all(*OTHERS, seconds=1)
        await made.until(lambda: troubles(made) == [BAD])
        log.append_as_follower = append  # type: ignore[method-assign]
        await made.until_all(BAD)
        assert not made.fetcher.set_aside

    play(story)


def test_an_offset_that_the_leader_lacks_is_looked_up_beside_the_others() -> None:
    async def story(made: Side) -> None:
        for _ in range(3):
            made.led(BAD).append()
        made.leader.changed()
        await made.until_all()
        made.led(BAD).error = ErrorCode.OFFSET_OUT_OF_RANGE
        made.led(BAD).batches = made.led(BAD).batches[:1]
        made.led(BAD).end = 1
        made.leader.changed()
        await asyncio.sleep(0.1)
        made.led(BAD).error = 0
        await made.until_all(seconds=5)
        log = made.partitions[BAD].log
        assert log is not None
        assert log.end == 1
        await made.until(lambda: (TOPIC_ID, BAD) in made.fetcher._session.members)

    play(story)


def test_it_follows_again_once_its_bad_batch_is_deleted(caplog: pytest.LogCaptureFixture) -> None:
    """Seen to fail: it followed, and was told as set aside for as long as its leader led."""

    async def story(made: Side) -> None:
        led = made.led(BAD)
        await spoil(made)
        led.append()
        led.start, led.wrong = 1, None
        await made.until_all(BAD)
        await made.until(lambda: not made.fetcher.set_aside)

    with caplog.at_level(logging.INFO):
        play(story)
    assert len(words(caplog, "follows broker 0 again")) == 1


def test_what_its_leader_refuses_for_a_while_is_not_asked_for_along_with_the_others() -> None:
    """Seen to fail: it was, as bad as ever, and none of the others had an answer."""

    async def story(made: Side) -> None:
        led = made.led(BAD)
        await spoil(made)
        before = len(made.leader.requests)
        led.error = ErrorCode.NOT_LEADER_OR_FOLLOWER
        await asyncio.sleep(40)
        led.error = 0
        await asyncio.sleep(40)
        assert troubles(made) == [BAD]
        named = [
            name
            for name, request in made.leader.requests[before:]
            if any(each.partition == BAD for topic in request.topics for each in topic.partitions)
        ]
        assert set(named) == {"fetcher-apart"}
        led.wrong = None
        await made.until_all(BAD)
        assert not made.fetcher.set_aside

    play(story)


def test_who_is_followed_no_longer_is_forgotten_also_while_it_is_asked_for() -> None:
    """Seen to fail: an assignment that ended while it was in a group was kept for good."""

    async def story(made: Side) -> None:
        await spoil(made)
        apart = made.fetcher._apart
        (following,) = apart.aside
        apart._pauses.close()  # it is due
        apart.suspect([following])
        made.fetcher.remove((TOPIC_ID, BAD))
        await asyncio.sleep(1)
        assert not apart._aside

    play(story)
