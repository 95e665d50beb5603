"""Events for the sinks of `write`, and what plain Python makes of the log that has them.

Pure: chunks of events from a seed, and three small functions that say which rows a table must have.
They share nothing with Spark or a sink. A key's events are all in one partition. Some keys come
again and again; the others are a few events' own, so that a table that is upserted tells of each
batch, whatever came later. Within a chunk an event may be late, by less than windows wait for; and
so may a whole chunk beside the next one, as long as that does not jump: who writes a chunk that
jumps knows that all before it was read.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

CHUNK = 240
STEP_MS = 10
LATE_MS_MAX = 400
JUMP_MS = 15_000  # more than windows wait for
WINDOW_MS = 1_000
DELAY_MS = 10_000
KEYS = 12  # that come again in every chunk
OWN_OF = 2  # one event of so many has another key
EVENTS_OF_OWN = 4  # as many events in a row have one such key, if they have one
GONE_OF = 8  # one event of so many has no amount: its key is gone
CLOSING_MS = 3_600_000

Row = tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class Event:
    """A record of the log; its offset is known when it is read back."""

    partition: int
    offset: int
    at_ms: int
    key: str
    id: int
    amount: int | None


def chunk(chance: random.Random, first_id: int, begin_ms: int, partitions: int) -> list[Event]:
    """Return CHUNK events in the order in which they are written."""
    made: list[tuple[int, Event]] = []
    for number in range(CHUNK):
        at_ms = begin_ms + number * STEP_MS
        key = chance.randrange(KEYS)
        if chance.randrange(OWN_OF) == 0:
            key = KEYS + (first_id + number) // EVENTS_OF_OWN
        amount = None if chance.randrange(GONE_OF) == 0 else chance.randrange(1_000)
        event = Event(key % partitions, -1, at_ms, f"key-{key}", first_id + number, amount)
        made.append((at_ms + chance.randrange(LATE_MS_MAX), event))
    return [event for _, event in sorted(made, key=lambda one: one[0])]


def closing(first_id: int, last_ms: int) -> list[Event]:
    """Return what closes every window before it."""
    return [Event(0, -1, last_ms + CLOSING_MS, "closing", first_id, 1)]


def _spelt(*values: int | str | None) -> Row:
    return tuple(None if value is None else str(value) for value in values)


def rows(log: Iterable[Event]) -> Counter[Row]:
    """Return every event as a row."""
    return Counter(_spelt(e.partition, e.offset, e.at_ms, e.key, e.id, e.amount) for e in log)


def last_rows(log: Iterable[Event]) -> Counter[Row]:
    """Return of each key its last event, unless that says that the key is gone."""
    last: dict[str, Event] = {}
    for event in sorted(log, key=lambda event: (event.partition, event.offset)):
        last[event.key] = event
    return rows(event for event in last.values() if event.amount is not None)


def all_windows(log: Iterable[Event]) -> Counter[Row]:
    """Return each window of each key, those that are still open too."""
    found: defaultdict[tuple[int, str], list[int | None]] = defaultdict(list)
    for event in log:
        found[event.at_ms // WINDOW_MS * WINDOW_MS, event.key].append(event.amount)
    made: Counter[Row] = Counter()
    for (begin_ms, key), amounts in found.items():
        known = [amount for amount in amounts if amount is not None]
        made[_spelt(begin_ms, key, len(amounts), sum(known) if known else None)] += 1
    return made


def closed_windows(log: Iterable[Event]) -> Counter[Row]:
    """Return the windows that ended before the last event, by what a query waits for."""
    seen = list(log)
    over_ms = max(event.at_ms for event in seen) - DELAY_MS
    return all_windows(e for e in seen if (e.at_ms // WINDOW_MS + 1) * WINDOW_MS <= over_ms)


def shown(seen: Iterable[Counter[Row]], expected: Counter[Row]) -> Counter[Row]:
    """Return what a table that is only appended to has shown at times, and must never have."""
    found: Counter[Row] = Counter()
    for there in seen:
        found |= there - expected
    return found


TRUTH = {
    ("rows", "append"): rows,
    ("rows", "upsert"): last_rows,
    ("windows", "append"): closed_windows,
    ("windows", "upsert"): all_windows,
}
COLUMNS = {
    "rows": ("partition", "offset", "at_ms", "key", "id", "amount"),
    "windows": ("begin_ms", "key", "events", "amount"),
}
KEYS_OF = {"rows": ("key",), "windows": ("begin_ms", "key")}


def found(query: str, table: Iterable[dict[str, object]]) -> Counter[Row]:
    """Spell the rows of a table as the truth is spelt."""
    return Counter(
        tuple(None if row.get(c) is None else str(row[c]) for c in COLUMNS[query]) for row in table
    )
