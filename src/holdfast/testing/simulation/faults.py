"""What is done to machines, links, disks and clocks: a function for each kind of event.

Each brings its own end. True: it was done; False: there was nothing to do it to.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from itertools import permutations
from typing import Final, cast

from holdfast.core.quorum.voter_events import Role
from holdfast.testing.ground.disk import DiskFault, Operation
from holdfast.testing.ground.links import Weather
from holdfast.testing.ground.runtime import Machine
from holdfast.testing.simulation.admin import ADMIN
from holdfast.testing.simulation.conductor import Conductor, Perform, held
from holdfast.testing.simulation.groups.group_faults import GROUP_KINDS
from holdfast.testing.simulation.hostile import HOSTILE
from holdfast.testing.simulation.plan import Event

ROOM: Final = 300  # bytes that are left where a second of being full is drawn
_ASKING: Final = (Role.PROSPECTIVE, Role.CANDIDATE)


def _at_machine(act: Callable[[Conductor, Event, Machine], Awaitable[None]]) -> Perform:
    """Do something to the machine that the event means, whatever else happens to it."""

    async def perform(hand: Conductor, event: Event) -> bool:
        node = hand.resolve(event.target)
        if node is not None:
            await act(hand, event, hand.cluster.machine(node))
        return node is not None

    return perform


def _between(act: Callable[[Conductor, Event, str, str], Awaitable[None]]) -> Perform:
    """Do something to what connects the two machines that the event means, by their names."""

    async def perform(hand: Conductor, event: Event) -> bool:
        one, other = hand.resolve(event.target), hand.resolve(event.other)
        if one is None or other is None or one == other:
            return False
        await act(hand, event, hand.cluster.machine(one).name, hand.cluster.machine(other).name)
        return True

    return perform


async def _kill(hand: Conductor, _event: Event, node: int) -> bool:
    hand.kill(node)
    return True


async def _power_cut(hand: Conductor, event: Event, node: int) -> bool:
    hand.power_cut(node, torn=event.detail == "torn")
    return True


async def _power_cut_all(hand: Conductor, event: Event) -> bool:
    everybody = {
        "brokers": hand.cluster.brokers,
        "controllers": hand.cluster.controllers,
        "all": hand.nodes,
    }[event.target]
    struck = [node for node in everybody if node not in hand.held and hand.cluster.is_up(node)]
    for node in struck:
        hand.held[node] = event.kind
        hand.power_cut(node, torn=event.detail == "torn")
    await asyncio.sleep(event.seconds)
    for node in struck:
        hand.release(node)
    return bool(struck)


async def _power_cut_in_job(hand: Conductor, event: Event, node: int) -> bool:
    """Power goes between two operations of a job: a file is written and not synced yet."""
    return await hand.power_cut_in_job(
        node, event.other, int(event.amount), torn=event.detail == "torn"
    )


async def _kill_after_write(hand: Conductor, event: Event, node: int) -> bool:
    """A leader dies when it has just written a batch: some know of it, and perhaps not who sent it.

    It is often back before anybody has noticed.
    """
    part = "/" + event.target.partition(":")[2].replace("/", "-") + "/"
    return await hand.kill_at(node, part, event.amount)


async def _lost_vote(hand: Conductor, event: Event) -> bool:
    """The active controller restarts, hears only half of the others, and loses power while it
    writes down that they have its vote. Then it hears only the other half.
    """
    taken = _take_active(hand, event)
    if taken is None:
        return False
    node, first, second = taken
    own = [hand.cluster.machine(node).name]
    draw = random.Random(event.amount)
    hand.kill(node)
    between, to_first, to_second = (
        _both_ways(first, second), _both_ways(own, first), _both_ways(own, second)
    )  # fmt: skip
    hand.cut(*between, *to_second)
    await asyncio.sleep(draw.uniform(0.2, 1.5))
    hand.start_held(node)
    torn = event.detail == "torn"
    struck = await hand.power_cut_in_job(node, "/quorum-state", draw.randrange(6), torn=torn)
    await asyncio.sleep(0.03)  # for what it has answered
    hand.cut(*to_first)
    hand.mend(*to_second)
    hand.release(node)
    await asyncio.sleep(event.seconds)
    hand.mend(*between, *to_first)
    return struck


async def _split_vote(hand: Conductor, event: Event) -> bool:
    """The active controller restarts, and halves of the others that don't hear each other want its
    vote at once. It may be killed when it has given it away, and is asked again.
    """
    taken = _take_active(hand, event)
    if taken is None:
        return False
    node, first, second = taken
    between = _both_ways(first, second)
    hand.cut(*between)
    draw = random.Random(event.amount)
    hand.kill(node)
    await asyncio.sleep(draw.uniform(0.2, 1.5))
    wanted = False
    for _ in range(2 if event.detail == "killed" else 0):
        hand.start_held(node)
        wanted |= await _gather_requests(hand, node, draw.uniform(0.1, 0.4))
        await hand.kill_at(node, "/quorum-state", draw.uniform(0.0, 0.01))
        await asyncio.sleep(draw.uniform(0.0, 0.3))
    hand.start_held(node)
    wanted |= await _gather_requests(hand, node, draw.uniform(0.1, 0.4))
    hand.release(node)
    await asyncio.sleep(event.seconds)
    hand.mend(*between)
    return wanted


def _take_active(hand: Conductor, event: Event) -> tuple[int, list[str], list[str]] | None:
    """Take the active controller; it and the halves of the others. None: there are no two."""
    node = hand.resolve("active")
    names = [hand.cluster.machine(each).name for each in hand.cluster.controllers if each != node]
    if node is None or len(names) < 2 or hand.take("active", event) is None:
        return None
    return node, names[: len(names) // 2], names[len(names) // 2 :]


def _both_ways(some: Sequence[str], others: Sequence[str]) -> list[tuple[str, str]]:
    links = [(one, other) for one in some for other in others]
    return links + [(other, one) for one, other in links]


async def _gather_requests(hand: Conductor, node: int, seconds: float) -> bool:
    """Let requests for votes wait in the kernel, so that they are answered at one moment.

    True: two of the others or more were asking then.
    """
    for _ in range(100):
        quorum = hand.cluster.quorum_of(node)
        if quorum is not None and quorum.serving:
            break
        await asyncio.sleep(0.005)
    if not hand.cluster.is_up(node):
        return False
    hand.cluster.machine(node).pause()
    await asyncio.sleep(seconds)
    others = [hand.cluster.quorum_of(each) for each in hand.cluster.controllers if each != node]
    hand.cluster.machine(node).resume()
    return sum(other is not None and other.state.role in _ASKING for other in others) > 1


async def _stop(hand: Conductor, _event: Event, node: int) -> bool:
    clean = await hand.stop(node)
    hand.counts["clean stops" if clean else "stops that took too long"] += 1
    return True


async def _pause(hand: Conductor, event: Event) -> bool:
    node = hand.take(event.target, event)
    if node is None:
        return False
    hand.cluster.machine(node).pause()
    await asyncio.sleep(event.seconds)
    hand.cluster.machine(node).resume()
    hand.release(node)
    return True


async def _wipe(hand: Conductor, _event: Event, node: int) -> bool:
    hand.wipe(node)
    return True


async def _cut(hand: Conductor, event: Event, here: str, there: str) -> None:
    both = event.detail == "both ways"
    links = [(here, there), (there, here)] if both else [(here, there)]
    await _hold_cut(hand, links, event.seconds)
    hand.counts["links cut both ways" if both else "links cut one way"] += 1


async def _isolate(hand: Conductor, event: Event, machine: Machine) -> None:
    here = machine.name
    links = [link for other in hand.names if other != here for link in _both_ways([here], [other])]
    await _hold_cut(hand, links, event.seconds)


async def _hold_cut(hand: Conductor, links: list[tuple[str, str]], seconds: float) -> None:
    hand.cut(*links)
    await asyncio.sleep(seconds)
    hand.mend(*links)


async def _swizzle(hand: Conductor, event: Event) -> bool:
    """Links are cut one by one in a random order, and mended in another."""
    draw = random.Random(event.amount)
    links = list(permutations(hand.names[:-1], 2))  # between servers
    links = draw.sample(links, min(len(links), 6))
    step = event.seconds / (2 * len(links))
    for link in links:
        hand.cut(link)
        await asyncio.sleep(step)
    draw.shuffle(links)
    for link in links:
        await asyncio.sleep(step)
        hand.mend(link)
    return True


async def _weather(hand: Conductor, event: Event) -> bool:
    strength = event.amount
    low, high = hand.plan.delay_us
    weather = {
        "delay": Weather(delay_us=(low, high + int(strength * 400_000))),
        "loss": Weather(delay_us=(low, high), loss=strength * 0.4),
        "reorder": Weather(delay_us=(low, high), reorder=0.3, reorder_us=int(strength * 100_000)),
        "throttle": Weather(delay_us=(low, high), bytes_per_s=1_000 + int(strength * 50_000)),
        "duplicate": Weather(delay_us=(low, high), duplicate=strength),
    }[event.detail]
    node = hand.resolve(event.target) if event.target else None
    if node is None and event.target:
        return False
    here = hand.names if node is None else [hand.cluster.machine(node).name]
    fabric = hand.cluster.world.fabric
    pairs = [(one, other) for one in here for other in hand.names if one != other]
    links = [link for one, other in pairs for link in ((one, other), (other, one))]
    for link in links:
        fabric.change_weather(*link, weather)
    await asyncio.sleep(event.seconds)
    for link in links:
        fabric.change_weather(*link, None)
    hand.counts[f"weather: {event.detail}"] += 1
    return True


async def _reset(hand: Conductor, _event: Event, here: str, there: str) -> None:
    hand.cluster.world.fabric.reset(here, there)


async def _half_open(hand: Conductor, _event: Event, here: str, there: str) -> None:
    hand.cluster.world.fabric.forget(here, there)


async def _disk_error(hand: Conductor, event: Event) -> bool:
    """A disk fails for a while, or one of several: EIO by operation, or no room left."""
    if event.detail == "sync":
        return await _sync_error(hand, event)
    if event.detail == "full":
        return await _full_disk(hand, event)
    node = hand.resolve(event.target)
    if node is None or not hand.cluster.is_up(node):
        return False
    failing = DiskFault(
        operations=[cast("Operation", event.detail)], prefix=event.other or "/", rate=event.amount
    )
    fault = hand.cluster.machine(node).disk.inject(failing)
    hand.oracle.faults.laid_in(node, fault)
    await asyncio.sleep(event.seconds)
    _heal(hand, node)
    if event.other and fault.struck and hand.cluster.is_up(node):
        hand.counts["log directories lost by a broker that serves on"] += 1
        await asyncio.sleep(event.seconds)
    hand.counts["disk operations that failed"] += fault.struck
    if fault.struck:
        await _start_anew(hand, event, node)
    return True


def _heal(hand: Conductor, node: int) -> None:
    hand.cluster.machine(node).disk.heal()
    hand.oracle.faults.healed(node, up=hand.cluster.is_up(node))


async def _start_anew(hand: Conductor, event: Event, node: int) -> None:
    """Whoever lost one of several disks serves on without it; a technician starts it anew."""
    if hand.cluster.is_up(node) and node not in hand.held:
        hand.held[node] = event.kind
        hand.kill(node)
        await asyncio.sleep(1.0)
        hand.release(node)


async def _full_disk(hand: Conductor, event: Event) -> bool:
    """A disk has room for a little more, or for nothing; later for all, and its node starts anew.

    Where a little was left, the node has been started without room before that. It keeps all that
    a killed one keeps, so no loss is excused.
    """
    node = hand.resolve(event.target)
    if node is None or not hand.cluster.is_up(node):
        return False
    disk = hand.cluster.machine(node).disk
    room = disk.limit(event.other or "/", 0 if event.amount == 1 else int(event.seconds * ROOM))
    hand.oracle.faults.filled(node, room)
    await asyncio.sleep(event.seconds)
    if event.other and room.struck and hand.cluster.is_up(node):
        hand.counts["log directories lost by a broker that serves on"] += 1
    if room.struck and event.amount < 1:
        await _start_anew(hand, event, node)
        await asyncio.sleep(event.seconds)
    _heal(hand, node)
    hand.counts["writes that a full disk refused"] += room.struck
    if room.struck:
        await _start_anew(hand, event, node)
    return True


async def _sync_error(hand: Conductor, event: Event) -> bool:
    """A disk fails to sync, and is replaced.

    What it was to sync then is in the kernel's memory and will never be on the disk, and nobody is
    told again: neither this system nor Kafka can be started anew on such a disk. A voter's disk
    can't be replaced, for it holds its vote.
    """
    node = hand.take(event.target, event, unless=Conductor.is_voter)
    if node is None:
        return False
    fault = hand.cluster.machine(node).disk.inject(
        DiskFault(operations=["sync"], rate=event.amount)
    )
    hand.oracle.faults.laid_in(node, fault)
    await asyncio.sleep(event.seconds)
    _heal(hand, node)
    hand.counts["disk operations that failed"] += fault.struck
    if fault.struck:
        hand.wipe(node)
    hand.release(node)
    return True


async def _slow_disk(_hand: Conductor, event: Event, machine: Machine) -> None:
    machine.slow_disk((20_000, 900_000))
    await asyncio.sleep(event.seconds)
    machine.slow_disk()


async def _clock_step(_hand: Conductor, event: Event, machine: Machine) -> None:
    machine.step_clock(int(event.amount))


async def _clock_drift(_hand: Conductor, event: Event, machine: Machine) -> None:
    machine.drift_clock(int(event.amount * 10))
    await asyncio.sleep(event.seconds)
    machine.drift_clock(0)


KINDS: Final[dict[str, Perform]] = {
    "kill": held(_kill),
    "power_cut": held(_power_cut),
    "power_cut_all": _power_cut_all,
    "power_cut_in_job": held(_power_cut_in_job),
    "kill_after_write": held(_kill_after_write),
    "lost_vote": _lost_vote,
    "split_vote": _split_vote,
    "stop": held(_stop, unless=Conductor.has_not_begun),
    "pause": _pause,
    # A voter that forgets its vote may elect twice: Kafka has the same rule for its disks.
    "wipe": held(_wipe, unless=Conductor.is_voter),
    "cut": _between(_cut),
    "isolate": _at_machine(_isolate),
    "swizzle": _swizzle,
    "weather": _weather,
    "reset": _between(_reset),
    "half_open": _between(_half_open),
    "disk_error": _disk_error,
    "slow_disk": _at_machine(_slow_disk),
    "clock_step": _at_machine(_clock_step),
    "clock_drift": _at_machine(_clock_drift),
    "controller_disk_error": _disk_error,
    "controller_power_cut": held(_power_cut),
    "controller_slow_disk": _at_machine(_slow_disk),
    **HOSTILE,
    **ADMIN,
    **GROUP_KINDS,
}
