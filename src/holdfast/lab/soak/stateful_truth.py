"""Events for queries with state, and what plain Python makes of them.

Pure: events from a seed, and three small functions that say which rows windows, sessions and a
join must give. They share nothing with Spark or the sink. An event may be late, by less than the
queries wait for; and a closing one comes an hour after all others, so that nothing stays open.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

WINDOW_MS = 5_000
GAP_MS = 2_050  # no two events are so far apart: what holds at that very moment is not asked
PAIR_MS = 5_000
LATE_MS_MAX = 3_000  # the queries wait for ten seconds
STEP_MS = 200
PAUSE_EVERY, PAUSE_MS = 100, 3_000  # sessions end there
KEYS = 5
CLOSING_MS = 3_600_000

Row = tuple[int | str | None, ...]


@dataclass(frozen=True, slots=True)
class Event:
    partition: int
    at_ms: int
    key: str
    kind: str  # left or right
    id: int
    amount: int


def events(seed: int, count: int, partitions: int, begin_ms: int) -> list[Event]:
    """Return `count` left events and their right ones, in the order in which they are written."""
    chance = random.Random(seed)  # noqa: S311 - a run is made again from its seed
    made: list[tuple[int, Event]] = []
    for number in range(count):
        at_ms = begin_ms + number * STEP_MS + number // PAUSE_EVERY * PAUSE_MS
        key = f"key-{chance.randrange(KEYS)}"
        places = [(at_ms, "left"), *((at_ms + later, "right") for later in _answers(number))]
        for place_ms, kind in places:
            event = Event(
                chance.randrange(partitions), place_ms, key, kind, number, chance.randrange(1_000)
            )
            made.append((place_ms + chance.randrange(LATE_MS_MAX), event))
    return [event for _, event in sorted(made, key=lambda one: one[0])]


def _answers(number: int) -> tuple[int, ...]:
    """Say when right events come after their left one: never, twice, too late, or in time."""
    if number % 3 == 0:
        return ()
    if number % 7 == 1:
        return (1_000, PAIR_MS)
    return (PAIR_MS + 1,) if number % 5 == 2 else (1_500,)


def closing(last_ms: int, partitions: int) -> list[Event]:
    """Return what makes everything before it close: one of each kind, an hour later."""
    kinds = ("left", "right")
    return [
        Event(number % partitions, last_ms + CLOSING_MS, "closing", kind, -1 - number, 0)
        for number, kind in enumerate(kinds)
    ]


def windows(written: Iterable[Event]) -> Counter[Row]:
    found: defaultdict[tuple[int, str], list[int]] = defaultdict(list)
    for event in written:
        found[event.at_ms // WINDOW_MS * WINDOW_MS, event.key].append(event.amount)
    return Counter(
        (begin, key, len(amounts), sum(amounts)) for (begin, key), amounts in found.items()
    )


def sessions(written: Iterable[Event]) -> Counter[Row]:
    """A session ends GAP_MS after its last event."""
    times: defaultdict[str, list[int]] = defaultdict(list)
    for event in written:
        times[event.key].append(event.at_ms)
    found: Counter[Row] = Counter()
    for key, moments in times.items():
        for session in _split(sorted(moments)):
            found[session[0], session[-1] + GAP_MS, key, len(session)] += 1
    return found


def _split(moments: Sequence[int]) -> Iterator[list[int]]:
    session = [moments[0]]
    for moment in moments[1:]:
        if moment >= session[-1] + GAP_MS:
            yield session
            session = []
        session.append(moment)
    yield session


def pairs(written: Sequence[Event]) -> Counter[Row]:
    """Return each left event with its right ones in time, or with None."""
    rights: defaultdict[int, list[Event]] = defaultdict(list)
    for event in written:
        if event.kind == "right":
            rights[event.id].append(event)
    found: Counter[Row] = Counter()
    for left in written:
        if left.kind == "left":
            near = [r for r in rights[left.id] if 0 <= r.at_ms - left.at_ms <= PAIR_MS]
            found.update((left.id, left.amount, right.amount) for right in near)
            if not near:
                found[left.id, left.amount, None] += 1
    return found


TRUTH = {"windows": windows, "sessions": sessions, "pairs": pairs}
COLUMNS = {
    "windows": "begin_ms, key, events, amount",
    "sessions": "begin_ms, end_ms, key, events",
    "pairs": "id, left_amount, right_amount",
}
