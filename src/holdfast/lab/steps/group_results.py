"""What members put into a table, held against the log that they read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from holdfast.clients.workload.member_sink import Result, Sink
from holdfast.lab.group import Group
from holdfast.lab.run import Run

SHOWN_MAX = 5
ONCE = "each record's result is there once"


def sink_of(run: Run, name: str) -> Path:
    """Return where a group of this name puts its results."""
    return run.history.parent / f"{name}.sqlite"


def rows_of(run: Run, name: str, mode: str) -> list[Result]:
    with Sink(sink_of(run, name), mode) as table:
        return table.rows()


def expect_once(group: Group, rows: list[Result], name: str = "") -> None:
    """Check that what its members have processed is in the table, all of it, and once."""
    run = group.run
    found = Counter((row.partition, row.offset) for row in rows)
    wanted = {(p, offset) for p in run.partitions for offset in range(group.position(p))}
    doubled = sorted(place for place, count in found.items() if count > 1)
    missing = sorted(wanted - found.keys())
    strange = sorted(found.keys() - wanted)
    seen = [
        f"{len(places):,} {word} ({', '.join(f'P{p}:{at}' for p, at in places[:SHOWN_MAX])}...)"
        for word, places in (("twice", doubled), ("missing", missing), ("of no record", strange))
        if places
    ]
    run.check(
        f"{ONCE}, {name or group.name}",
        f"{len(wanted):,} results",
        "; ".join(seen) or f"{len(rows):,} results",
        kept=not seen,
    )


def gaps(rows: Iterable[Result], since_ms: float) -> dict[int, float]:
    """Return the longest time without a result in each partition that ends after this moment."""
    found: dict[int, float] = {}
    latest: dict[int, float] = {}
    for row in sorted(rows, key=lambda row: row.at_ms):
        before_ms = latest.get(row.partition)
        if before_ms is not None and row.at_ms >= since_ms:
            found[row.partition] = max(found.get(row.partition, 0.0), row.at_ms - before_ms)
        latest[row.partition] = row.at_ms
    return found
