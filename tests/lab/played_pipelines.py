"""Spark queries of a run that is played: a table follows its log, and says what it could not read.

Each step of a query is written down; none of them takes any time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

from tests.lab.played import Played

from holdfast.lab.pipelines.plain_log import Row
from holdfast.lab.pipelines.tables import SqlTable


def row_of(partition: int, offset: int) -> Row:
    return Row(partition, offset, None, None)


def read_log(played: Played, ends: Mapping[int, int]) -> list[Row]:
    """Return what stands in the log: what has expired is not there any more."""
    begins = played.begins
    return [row_of(p, n) for p, end in ends.items() for n in range(begins.get(p, 0), end)]


class NoTable(SqlTable):
    """A table of whose database nobody asks anything."""

    def __init__(self, _target: str) -> None: ...


class PlayedTable(NoTable):
    """What stands in for a query's table."""

    def __init__(self, played: Played, *, names_gaps: bool) -> None:
        self.at: dict[int, int] = {}
        self.found: list[Row] = []
        self.gone: dict[int, set[int]] = {}
        self._played, self._names_gaps = played, names_gaps

    def take(self, ends: Mapping[int, int]) -> None:
        """Take in what is there up to these ends, and write down what is not."""
        for partition, end in ends.items():
            at, begin = self.at.get(partition, 0), self._played.begins.get(partition, 0)
            if begin > at:
                self.gone.setdefault(partition, set()).update(range(at, begin))
            self.found += [row_of(partition, n) for n in range(max(at, begin), end)]
            self.at[partition] = end

    def positions(self) -> dict[int, int]:
        if self._played.lie.is_restless:
            return {partition: end + 1 for partition, end in self.at.items()}
        return dict(self.at)

    def rows(self) -> list[Row]:
        return self.found[1:] if self._played.lie.is_hoarding else list(self.found)

    def gaps(self) -> dict[int, set[int]]:
        return dict(self.gone) if self._names_gaps and not self._played.lie.is_leaky else {}


class PlayedDriver:
    """What stands in for a driver's process."""

    def __init__(self, played: Played, name: str) -> None:
        self.name = name
        self.running = False
        self._played = played
        self._lost = 0

    def _do(self, what: str) -> None:
        self._played.do(f"{self.name} {what}")

    def may_end(self) -> None:
        self._do("may end")

    def go(self) -> None:
        self._do("may go on")

    def arm(self, place: str, when: str) -> None:
        self._do(f"is to wait {when} {place.rpartition('.')[2]}")

    def is_there(self) -> bool:
        return not self._played.lie.is_hasty

    def pause(self) -> None:
        self._do("stands still")

    def go_on(self) -> None:
        self._do("goes on")
        self.running = self._played.lie.is_hoarding

    def kill(self) -> None:
        self._do("is killed")
        self.running = False

    def last_words(self) -> str:
        if self._played.lie.is_forgetful:
            return ""
        if self._played.lie.is_stale:  # it was found out by another check, by luck
            return "FencedError: query 'copy': somebody changed it. Nothing was written"
        return "FencedError: query 'copy' was taken over: this driver has epoch 1, it is at 2"

    def executor(self) -> int:
        return 4711

    def lasts_s(self) -> float:
        return 0.0

    def lost_tasks(self) -> int:
        self._lost += not self._played.lie.is_hoarding
        return self._lost


class PlayedPipeline:
    """What stands in for `Pipeline`."""

    def __init__(self, played: Any, *, sink: str = "write", **told: Any) -> None:
        self._played: Played = played
        self.folder = played.history.parent
        self.checkpoint = self.folder / "checkpoint"
        self.drivers: list[PlayedDriver] = []
        given = told.get("table")
        is_played = isinstance(given, SimpleNamespace)
        self.table: Any = given if is_played else PlayedTable(played, names_gaps=sink == "write")
        known = ", ".join(f"{k}={v}" for k, v in told.items() if k != "table")
        self._played.do(f"query that does {sink}: {known}".rstrip(": "))

    @property
    def driver(self) -> PlayedDriver:
        return self.drivers[-1]

    def start(self, *words: str, **options: str) -> None:
        self.drivers.append(PlayedDriver(self._played, f"driver-{len(self.drivers) + 1}"))
        given = ", ".join([*words, *(f"{key}={value}" for key, value in options.items())])
        at = self.checkpoint.name
        self._played.do(f"{self.driver.name} starts at {at}{given and ': '}{given}")

    def hold(self, place: str, when: str, *, goes_on: bool = False) -> None:
        word = " from where it waits" if goes_on else ""
        self._played.do(f"{self.driver.name} is {when} {place.rpartition(':')[2]}{word}")

    def kill(self, what: str = "") -> None:
        self._played.do(f"{self.driver.name} is killed, {what}".rstrip(", "))

    def stop(self) -> None:
        self._played.do(f"{self.driver.name} ends")

    def expect_end(self, name: str, words: Sequence[str]) -> str:
        self._played.check(name, f"it ends, and names {', '.join(words)}", "", kept=True)
        return "" if self._played.lie.is_forgetful else "made anew: --begin-anew 17"

    def positions(self) -> dict[int, int]:
        return dict(self.table.positions())

    def wait_rows(self, ends: Mapping[int, int]) -> None:
        self._played.do(f"rows come up to {dict(ends)}")
        self.table.take(ends)

    def expect_progress(
        self,
        when: str,
        bound_s: float | None = None,
        partitions: Sequence[int] | None = None,
        *,
        behind: Mapping[int, int] | None = None,
        since_s: float | None = None,
    ) -> None:
        words = [f"behind {dict(behind)}"] if behind is not None else []
        words += [] if partitions is None else [f"in {list(partitions)}"]
        words += [] if since_s is None else ["since it was hurt"]
        words += [] if bound_s is None else [f"in {bound_s:g} s"]
        leaders = set(map(self._played.leader_of, self._played.partitions))
        kept = not leaders & {-1, *self._played.silent}
        self._played.check(f"{when}: the table goes on", " ".join(words) or "-", "", kept=kept)

    def catch_up(self, ends: Mapping[int, int]) -> None:
        self.table.take(ends)
        self._played.check("the table comes to the log's end", str(dict(ends)), "", kept=True)

    def revive_until(self, ends: Mapping[int, int], when: str) -> None:
        self._played.check(f"{when}: the table goes on", f"up to {dict(ends)}", "", kept=True)

    def expect_exact(self, log: Sequence[Row]) -> None:
        self._played.check("the table is the log", f"{len(log)} rows", "", kept=True)

    def finish(self) -> None:
        self._played.check("the table is the log", "in the end", "", kept=True)


class PlayedTopic:
    """What stands in for a topic besides the run's own."""

    def __init__(self, played: Any, name: str, partitions: int) -> None:
        self._played: Played = played
        self.name = name
        self.make(partitions)

    def make(self, partitions: int) -> None:
        self._played.do(f"topic {self.name} with {partitions} partitions")
        self.ends = dict.fromkeys(range(partitions), 0)

    def add_partitions(self, count: int) -> None:
        self._played.do(f"{self.name} gets {count} partitions")
        self.ends |= {p: 0 for p in range(count) if p not in self.ends}

    def delete(self) -> None:
        self._played.do(f"{self.name} is deleted")

    def write(self, count: int) -> None:
        self._played.do(f"{count} events for each partition of {self.name}")
        self.ends = {p: end + count for p, end in self.ends.items()}

    def read(self) -> list[Row]:
        return read_log(self._played, self.ends)


@contextmanager
def server(played: Played) -> Iterator[Any]:
    """Stand in for PostgreSQL."""
    yield SimpleNamespace(
        url="sqlite://",
        kill=lambda: played.do("PostgreSQL is killed"),
        start=lambda: played.do("PostgreSQL is back"),
    )
