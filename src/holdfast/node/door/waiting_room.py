"""The waiting room: the one place where a broker's requests wait for what becomes of partitions.

Owns the queues by partition, the deadlines, and whose turn it is: clients are asked and ended by
turns. Whoever registers a wait checks again afterwards; whoever changes what is waited for wakes
the key. It never decides whether a wait is over: the wait itself does.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from math import ceil, inf
from typing import NamedTuple, Protocol

from holdfast.node.door.line import SLICE_S
from holdfast.runtime.ports import Clock, never
from holdfast.runtime.turns import Turns

DEADLINE_STEP_MS = 50  # acks=all deadlines are rounded up to this, and share one timer a step
# Steps are longer for who waits longer: what was answered in time leaves its step there until then,
# and some clients allow weeks.
DEADLINE_STEPS_MAX = 1024
SORTED_MIN = 256  # waits that are over, in a turn: a tenth of a millisecond
CROWD = 64  # watchers of one key that are told of a change at once; the others are, by turns
_ROUNDING_MS = 1e-6


class Watcher(Protocol):
    """Who is told of what changes under keys, for as long as it watches them."""

    @property
    def sender(self) -> Hashable:
        """Whose request it is, if one waits: its connection."""

    def touched(self, key: Hashable) -> bool:
        """Take note that something changed under `key`. True: ask before the loop sleeps again."""

    def ask(self) -> None:
        """Look whether there is something to do now."""


class Wait(Protocol):
    """A request that is parked until one of its keys is woken and it says that it is done."""

    @property
    def sender(self) -> Hashable:
        """Whose it is: its connection."""

    def try_complete(self) -> bool:
        """Answer if it can be answered now. True when it is over, and then never asked again."""

    def expire(self) -> None:
        """Answer with what there is: the deadline has passed."""


class OffsetWait(Protocol):
    """A request that waits for the high watermark of several partitions (acks=all)."""

    def settle(self, part: int) -> None:
        """Settle one of its partitions: its offset was reached, or its leadership is over.

        The last one answers the request.
        """

    @property
    def finished(self) -> bool: ...

    @property
    def sender(self) -> Hashable:
        """Whose it is, until it is finished: its connection."""

    def expire(self) -> None: ...


class OffsetQueue:
    """Who waits for one partition's high watermark, the least offset first."""

    __slots__ = ("_heap", "_order")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, OffsetWait, int]] = []
        self._order = 0

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, required: int, wait: OffsetWait, part: int) -> None:
        """Call `wait.settle(part)` once the high watermark is at `required`, or all are let go."""
        self._order += 1
        heapq.heappush(self._heap, (required, self._order, wait, part))

    def release(self, high_watermark: int) -> None:
        """Settle everybody whose offset has been reached."""
        heap = self._heap
        while heap and heap[0][0] <= high_watermark:
            _, _, wait, part = heapq.heappop(heap)
            if not wait.finished:
                wait.settle(part)

    def release_all(self) -> None:
        """Settle everybody: the leader is lost, the replica is stopped, or its disk is offline."""
        waiting, self._heap = self._heap, []
        for _, _, wait, part in sorted(waiting, key=lambda entry: entry[:2]):
            if not wait.finished:
                wait.settle(part)

    def drop_finished(self) -> None:
        """Forget those that have expired, so that a stalled partition does not collect them."""
        self._heap = [entry for entry in self._heap if not entry[2].finished]
        heapq.heapify(self._heap)


@dataclass(slots=True, eq=False)
class _Parked:
    room: WaitingRoom
    wait: Wait
    keys: tuple[Hashable, ...]
    ends_ms: int = 0  # loop time
    finished: bool = False

    @property
    def sender(self) -> Hashable:
        return None if self.finished else self.wait.sender

    def touched(self, _key: Hashable) -> bool:
        return True

    def ask(self) -> None:
        # It may have been answered by what another one's answer has brought about.
        if not self.finished and self.wait.try_complete():
            self.forget()

    def expire(self) -> None:
        wait = self.wait
        self.forget()
        wait.expire()

    def forget(self) -> None:
        """End it; it lets go of the wait, which has what forgets it."""
        if self.finished:
            return
        self.finished = True
        del self.wait
        self.room.forget(self)


class Ends(Protocol):
    """A wait whose time is over at last."""

    @property
    def finished(self) -> bool: ...

    @property
    def sender(self) -> Hashable:
        """Whose it is, until it is finished: its connection."""

    def expire(self) -> None:
        """Answer with what there is."""


class _Ending(NamedTuple):
    """Waits that end in the same millisecond."""

    timer: asyncio.TimerHandle
    waits: dict[_Parked, None]


class _Crowd:
    """Watchers of one key, as far as they are still to be told of a change."""

    __slots__ = ("_again", "_left")

    def __init__(self, left: Iterable[Watcher]) -> None:
        self._left = iter(list(left))
        self._again = False  # something changed since those that are left were written down

    def touched(self) -> None:
        """Something changed again: all are to be told of it once these are."""
        self._again = True

    def next_of(self, watchers: Mapping[Watcher, None]) -> Watcher | None:
        """Return who is to be told next and still watches; None: all know it."""
        while True:
            for watcher in self._left:
                if watcher in watchers:
                    return watcher
            if not self._again:
                return None
            self._again = False
            self._left = iter(list(watchers))


class WaitingRoom:
    """Watchers by key, told of what was touched, and asked once per turn of the loop at most.

    So a request, or the loss of a broker, that touches thousands of keys costs a watcher of them
    all one question. What was touched it knows by then: it has no need to look at the rest.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        provoke: Callable[[str], bool] = never,
    ) -> None:
        self._loop = loop
        self._clock = clock
        self._provoke = provoke
        self._watchers: dict[Hashable, dict[Watcher, None]] = {}
        self._parked: dict[_Parked, None] = {}
        self._woken: OrderedDict[Hashable, None] = OrderedDict()
        self._due: dict[Watcher, None] = {}  # to be asked
        self._behind: Turns[Watcher] = Turns()  # to be asked when there is time
        self._crowds: OrderedDict[Hashable, _Crowd] = OrderedDict()  # to be told when there is
        self._ended: deque[Ends] = deque()  # their time is over: to be sorted by their clients
        self._over: Turns[Ends] = Turns()  # to be ended when there is time
        self._ending: dict[int, _Ending] = {}  # by their time, milliseconds of the loop
        self._is_scheduled = False
        self._deadlines: dict[int, dict[OffsetWait, None]] = {}  # by their time, milliseconds

    @property
    def parked(self) -> int:
        """How many waits are registered (a metric)."""
        return len(self._parked)

    def watch(self, key: Hashable, watcher: Watcher) -> None:
        """Tell `watcher` of every change under `key`, until `unwatch`."""
        self._watchers.setdefault(key, {})[watcher] = None

    def unwatch(self, key: Hashable, watcher: Watcher) -> None:
        watchers = self._watchers.get(key)
        if watchers is not None:
            watchers.pop(watcher, None)
            if not watchers:
                del self._watchers[key]

    def park(self, wait: Wait, keys: Iterable[Hashable], timeout_ms: int) -> Callable[[], None]:
        """Register a wait, then check again: what it waits for may have happened meanwhile.

        Returns what forgets it, for when nobody is there any more who could be answered.
        """
        parked = _Parked(self, wait, tuple(keys))
        for key in parked.keys:
            self.watch(key, parked)
        self._parked[parked] = None
        if parked.keys:  # without any it watches by itself
            parked.ask()
        if not parked.finished:
            if self._provoke("wait.expires-at-once"):
                timeout_ms = 0
            self._end_after(parked, timeout_ms)
        return parked.forget

    def forget(self, parked: _Parked) -> None:
        """Ask this wait no more; its own `forget` calls it."""
        self._parked.pop(parked, None)
        self._end_never(parked)
        for key in parked.keys:
            self.unwatch(key, parked)

    def wake(self, key: Hashable) -> None:
        """Something changed under `key`: who watches it is asked before the loop sleeps again."""
        if key in self._watchers:
            self._woken[key] = None
            if not self._is_scheduled:
                self._schedule()

    def untold(self, keys: Collection[Hashable]) -> list[Hashable]:
        """Return those of `keys` that were touched, and whose watchers may not all know it yet."""
        woken, crowds = self._woken, self._crowds
        if not woken and not crowds:
            return []
        if len(keys) < len(woken) + len(crowds):
            return [key for key in keys if key in woken or key in crowds]
        return [key for key in (*woken, *crowds) if key in keys]

    def _schedule(self) -> None:
        self._is_scheduled = True
        self._loop.call_soon(self._take_turn)

    def _take_turn(self) -> None:
        """Tell and ask those that were woken, then those that were left behind, for a slice in all.

        A client may have hundreds woken at once that each read a megabyte, or thousands that end in
        the same millisecond: whoever is woken meanwhile does not stand behind them.
        """
        self._is_scheduled = False
        began = self._loop.time()
        until = began + SLICE_S
        try:
            self._tell(began + SLICE_S / 2)
            self._tell_crowds(began + SLICE_S / 2)
            self._ask_due(until)
            self._ask_behind(until)
            self._end_some(until)
        finally:
            # A mistake in one of them must not cost the others their turn.
            is_over = not (self._woken or self._due or self._behind or self._crowds)
            if not (is_over and not self._ended and not self._over) and not self._is_scheduled:
                self._schedule()

    def _tell(self, until: float) -> None:
        """Tell the watchers of what was touched: all, or of a crowd those that came first.

        Followers, whose sessions last, stand before a crowd that came behind them. What is touched
        and not told of in this turn is told of in the next ones.
        """
        if not self._woken:
            return
        is_reversed = self._provoke("waits.in-reverse")
        few = 1 if self._provoke("waits.are-crowds") else CROWD
        while self._woken:
            key, _ = self._woken.popitem(last=is_reversed)
            self._tell_of(key, few)
            if self._loop.time() >= until:
                break

    def _tell_of(self, key: Hashable, few: int) -> None:
        watchers = self._watchers.get(key, {})
        is_crowd = len(watchers) > few
        if key in self._crowds:
            self._crowds[key].touched()
        elif is_crowd:
            # Written down now: as the first are answered, those behind move up.
            self._crowds[key] = _Crowd(islice(watchers, few, None))
        for watcher in list(islice(watchers, few) if is_crowd else watchers):
            if watcher.touched(key):  # one may leave by it
                self._due[watcher] = None

    def _tell_crowds(self, until: float) -> None:
        """Tell as many of the rest as are told of one key at least, a crowd after the other.

        To be told costs little, and whose turn it is to be asked is known once all are.
        """
        told = 0
        while self._crowds and not (told and told % CROWD == 0 and self._loop.time() >= until):
            key, crowd = next(iter(self._crowds.items()))
            watcher = crowd.next_of(self._watchers.get(key, {}))
            if watcher is None:
                del self._crowds[key]
                continue
            if watcher.touched(key):
                self._behind.add(watcher, watcher.sender)
            told += 1
            if told % CROWD == 0:
                self._crowds.move_to_end(key)

    def _ask_due(self, until: float) -> None:
        """Ask those that were told in this turn; whoever there is no time for is behind then.

        Who was behind before keeps its place there, or who is told all the time would never be
        asked.
        """
        due, self._due = self._due, {}
        left = iter(due)
        try:
            for watcher in left:
                self._behind.remove(watcher)
                watcher.ask()
                if self._loop.time() >= until:
                    break
        finally:
            for watcher in left:
                self._behind.add(watcher, watcher.sender)

    def _ask_behind(self, until: float) -> None:
        """Ask one at least, or there would be no end where others are woken all the time."""
        while self._behind:
            self._behind.take().ask()
            if self._loop.time() >= until:
                break

    # -- deadlines ------------------------------------------------------------------------------

    def _end_after(self, parked: _Parked, timeout_ms: float) -> None:
        """End a wait in so many milliseconds; those of one millisecond share a timer."""
        ends_ms = parked.ends_ms = ceil(1000 * self._loop.time() + timeout_ms - _ROUNDING_MS)
        ending = self._ending.get(ends_ms)
        if ending is None:
            timer = self._loop.call_at(ends_ms / 1000, self._end, ends_ms)
            self._ending[ends_ms] = _Ending(timer, {parked: None})
        else:
            ending.waits[parked] = None

    def _end_never(self, parked: _Parked) -> None:
        self._over.remove(parked)
        ending = self._ending.get(parked.ends_ms)
        if ending is None or parked not in ending.waits:
            return
        del ending.waits[parked]
        if not ending.waits:
            ending.timer.cancel()
            del self._ending[parked.ends_ms]

    def _end(self, ends_ms: int) -> None:
        self._all_over(self._ending.pop(ends_ms).waits)

    def _all_over(self, waits: Iterable[Ends]) -> None:
        """These have waited for long enough: each ends when there is time."""
        self._ended.extend(waits)
        if self._ended and not self._is_scheduled:
            self._schedule()

    def _end_some(self, until: float) -> None:
        """End one at least, once it is known whose all of them are.

        Whose a wait is is found out in slices too: tens of thousands may be over at once.
        """
        known = 0
        while self._ended and not (known >= SORTED_MIN and self._loop.time() >= until):
            wait = self._ended.popleft()
            known += 1
            if not wait.finished:
                self._over.add(wait, wait.sender)
        while self._over:
            wait = self._over.take()
            if not wait.finished:
                wait.expire()
            if self._loop.time() >= until:
                break

    # Those of acks=all: many, coarse, nearly all met.

    def expire_after(self, wait: OffsetWait, timeout_ms: int) -> int:
        """Call `wait.expire()` after `timeout_ms`, at most a step late. Returns the deadline."""
        if self._provoke("acks.expire-early"):
            timeout_ms = 0
        step_ms = DEADLINE_STEP_MS
        while step_ms * DEADLINE_STEPS_MAX < timeout_ms:
            step_ms *= 2
        deadline_ms = ((self._clock.monotonic_ms() + timeout_ms) // step_ms + 1) * step_ms
        waits = self._deadlines.get(deadline_ms)
        if waits is None:
            waits = self._deadlines[deadline_ms] = {}
            self._loop.call_later(
                (deadline_ms - self._clock.monotonic_ms()) / 1000, self._expire_step, deadline_ms
            )
        waits[wait] = None
        return deadline_ms

    def keep(self, wait: OffsetWait, deadline_ms: int) -> None:
        """The wait was answered in time: forget its deadline."""
        self._deadlines.get(deadline_ms, {}).pop(wait, None)

    def _expire_step(self, deadline_ms: int) -> None:
        self._all_over(self._deadlines.pop(deadline_ms, {}))

    def close(self) -> None:
        """Answer everything that waits with what there is: the node stops."""
        while self._parked:
            next(iter(self._parked)).expire()
        for deadline_ms in list(self._deadlines):
            self._expire_step(deadline_ms)
        self._end_some(inf)
