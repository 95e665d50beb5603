"""What is done to members of groups, and to what they read: a function for each kind of event.

Each brings its own end. True: it was done; False: there was nothing to do it to.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import closing
from typing import TYPE_CHECKING, Final

from holdfast.testing.simulated_client import AnswerError
from holdfast.testing.simulation.groups.group_work import find_coordinator
from holdfast.testing.simulation.groups.member_seat import Seat
from holdfast.testing.simulation.plan import Event
from holdfast.wire.administration import delete_topic
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.delete_groups import DeleteGroupsRequest

if TYPE_CHECKING:
    from holdfast.testing.simulation.conductor import Conductor, Perform

_REQUEST_MS: Final = 3_000
_LEAVE_S: Final = 8.0
_TIMEOUT_S: Final = 12.0


def _at_member(act: Callable[[Conductor, Event, Seat], Awaitable[None]]) -> Perform:
    """Do something to a member that is up, and that no other event is at."""

    async def perform(hand: Conductor, event: Event) -> bool:
        work = hand.groups
        number = int(event.target.partition(":")[2])
        if work is None or number >= len(work.seats):
            return False
        seat = work.seats[number]
        if seat.is_taken or not seat.is_up:
            return False
        seat.is_taken = True
        await act(hand, event, seat)
        seat.is_taken = False
        seat.start()
        return True

    return perform


async def _kill(_hand: Conductor, event: Event, seat: Seat) -> None:
    """It dies without a word, and is back later as another member."""
    seat.kill(silently=event.detail == "power")
    await asyncio.sleep(event.seconds)


async def _pause(_hand: Conductor, event: Event, seat: Seat) -> None:
    """It stands still: for less than its session, or for more."""
    seat.machine.pause()
    await asyncio.sleep(event.seconds)
    seat.machine.resume()


async def _leave(hand: Conductor, event: Event, seat: Seat) -> None:
    """It leaves in good order; who is told nothing about it in time is killed."""
    assert seat.life is not None, "it is up"
    seat.life.leave()
    try:
        async with asyncio.timeout(_LEAVE_S):
            await seat.ended.wait()
    except TimeoutError:
        hand.counts["members that left without an answer"] += 1
    else:
        hand.counts["members that left"] += 1
    seat.kill(silently=False)
    await asyncio.sleep(event.seconds)


async def _cut(hand: Conductor, event: Event, seat: Seat) -> None:
    """It does not get through to its coordinator, or to nobody; or is not answered."""
    assert seat.life is not None, "it is up"
    place = seat.life.light.place
    brokers = [hand.cluster.machine(node).name for node in hand.cluster.brokers]
    there = [place[0]] if event.other == "coordinator" and place is not None else brokers
    here = seat.machine.name
    links = {
        "asks": [(here, each) for each in there],
        "is answered": [(each, here) for each in there],
        "both": [link for each in there for link in ((here, each), (each, here))],
    }[event.detail]
    hand.cut(*links)
    await asyncio.sleep(event.seconds)
    hand.mend(*links)


async def _remake_topic(hand: Conductor, event: Event) -> bool:
    """A topic that groups read is deleted, and made again later."""
    work = hand.groups
    if work is None or event.target in work.missing:
        return False
    with closing(hand.cluster.client("groups")) as client:
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                await client.perform(delete_topic(event.target, _REQUEST_MS), "delete")
                work.missing[event.target] = None
                await asyncio.sleep(event.seconds)
                await work.make_topic(client, hand.plan.topic(event.target))
                work.missing.pop(event.target, None)
        except (OSError, AnswerError) as error:
            hand.note(f"{event.kind}: {error or type(error).__name__}")
            work.missing[event.target] = None
            return False
    return True


async def _delete_group(hand: Conductor, event: Event) -> bool:
    """Somebody wants a group to be deleted, which is refused while it has members."""
    work = hand.groups
    if work is None:
        return False
    group = event.target
    work.oracle.deleted[group] = None  # from now on, for it may be carried out at any time
    with closing(hand.cluster.client("groups")) as client:
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                host = await find_coordinator(client, group)
                node = next(
                    each for each in hand.cluster.brokers if hand.cluster.machine(each).name == host
                )
                await client.refresh(hand.plan.topics[0].name)  # where everybody is
                answer = await client.ask(DeleteGroupsRequest(groups_names=[group]), node=node)
        except (OSError, AnswerError) as error:
            hand.note(f"{event.kind}: {error or type(error).__name__}")
            return False
    (result,) = answer.results
    hand.counts[f"groups deleted: {ErrorCode(result.error_code).name}"] += 1
    return True


GROUP_KINDS: Final[dict[str, Perform]] = {
    "member_kill": _at_member(_kill),
    "member_pause": _at_member(_pause),
    "member_leave": _at_member(_leave),
    "member_cut": _at_member(_cut),
    "remake_group_topic": _remake_topic,
    "delete_group": _delete_group,
}
