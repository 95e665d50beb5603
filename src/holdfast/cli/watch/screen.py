"""What `holdfast watch` shows of samples, in lines of 80 columns. Pure."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Sequence

from holdfast.cli.watch.samples import Partition, Sample, TopicPartition

WIDTH = 80
RATE_S = 3.0  # over which rates are reckoned
ELECTIONS_MAX = 6
PARTITIONS_MAX, PARTITIONS_MIN = 20, 4
ABOVE = 5  # rows that are shown beside partitions, and what stands below them
LINKS_MAX = 6
GROUPS_MAX = 6


class Memory:
    """What came before the latest sample: rates, elections, time without a leader."""

    def __init__(self) -> None:
        self._samples: deque[Sample] = deque()
        self.leaderless_s: dict[TopicPartition, float] = {}
        self.elections: deque[str] = deque(maxlen=ELECTIONS_MAX)

    def take(self, sample: Sample) -> None:
        """Take in one more sample; they come in order of time."""
        before = self._samples[-1] if self._samples else None
        if before is not None:
            self._compare(before, sample)
        self._samples.append(sample)
        while len(self._samples) > 2 and sample.at_s - self._samples[0].at_s > RATE_S:
            self._samples.popleft()

    def _compare(self, before: Sample, now: Sample) -> None:
        if None not in {before.active, now.active} and before.active != now.active:
            assert before.active is not None
            assert now.active is not None
            said = f"controller {before.active[0]} → {now.active[0]}, epoch {now.active[1]}"
            self.elections.append(f"{clock(now.at_s)}  {said}")
        for place, found in now.partitions.items():
            old = before.partitions.get(place)
            if old is None:
                continue
            if old.leader < 0:
                passed = now.at_s - before.at_s
                self.leaderless_s[place] = self.leaderless_s.get(place, 0.0) + passed
            if (old.leader, old.epoch) != (found.leader, found.epoch):
                change = f"{leader(old)} → {leader(found)}, epoch {found.epoch}"
                self.elections.append(f"{clock(now.at_s)}  {name(place)}: {change}")

    def rate(self, place: TopicPartition) -> float | None:
        """How many offsets a partition has grown by a second of late; None: nobody says."""
        ends = [
            (sample.at_s, sample.partitions[place].end)
            for sample in self._samples
            if place in sample.partitions and sample.partitions[place].end is not None
        ]
        if len(ends) < 2 or ends[-1][0] <= ends[0][0]:
            return None
        (begin_s, begin), (end_s, end) = ends[0], ends[-1]
        assert begin is not None
        assert end is not None
        return max(0.0, (end - begin) / (end_s - begin_s))


def frame(sample: Sample, memory: Memory, rows: int | None = None) -> list[str]:
    """Return what is shown of a sample: no line is longer than WIDTH.

    Of partitions no more than leave room for the rest, where a terminal has so many `rows`.
    """
    below = [*_links(sample.links), *_groups(sample), *_elections(memory.elections)]
    room = PARTITIONS_MAX
    if rows is not None:
        room = min(room, max(PARTITIONS_MIN, rows - len(below) - ABOVE))
    lines = [_head(sample), _nodes(sample), "", *_partitions(sample, memory, room), *below]
    return [line[:WIDTH].rstrip() for line in lines]


def fitted(lines: Sequence[str], rows: int) -> list[str]:
    """Return what of these lines has room in so many rows, and how many are left out."""
    if len(lines) <= rows:
        return list(lines)
    shown = max(0, rows - 1)
    return [*lines[:shown], f"{len(lines) - shown} more lines: the terminal has {rows}"]


def _head(sample: Sample) -> str:
    active = "no controller is active"
    if sample.active is not None:
        active = f"controller {sample.active[0]} is active, epoch {sample.active[1]}"
    return f"{clock(sample.at_s)}  {active}"


def _nodes(sample: Sample) -> str:
    troubled = [f"{node} {state}" for node, state in sample.nodes.items() if state != "running"]
    running = len(sample.nodes) - len(troubled)
    return f"{running} of {len(sample.nodes)} nodes run" + (
        f"; {', '.join(troubled)}" if troubled else ""
    )


def _partitions(sample: Sample, memory: Memory, most: int) -> list[str]:
    title = f"{'PARTITION':<24}{'LEADER':>7}{'EPOCH':>7}  {'IN SYNC':<12}{'END':>10}"
    lines = [f"{title}{'PER S':>8}{'NO LEADER':>10}"]
    # Those with something wrong first: there may be more than there is room for.
    ordered = sorted(
        sample.partitions.items(),
        key=lambda item: (is_well(item[1]), memory.leaderless_s.get(item[0], 0.0) == 0.0, item[0]),
    )
    for place, found in ordered[:most]:
        rate, gone_s = memory.rate(place), memory.leaderless_s.get(place, 0.0)
        lines.append(
            f"{name(place)[:23]:<24}{leader(found):>7}{found.epoch:>7}  "
            f"{_in_sync(found):<12}{'-' if found.end is None else f'{found.end:,}':>10}"
            f"{'-' if rate is None else f'{rate:,.0f}':>8}"
            f"{'-' if not gone_s else f'{gone_s:.1f} s':>10}"
        )
    left = len(ordered) - most
    if left > 0:
        lines.append(f"and {left} more")
    if not ordered:
        lines.append("none: no topics, or no broker answers")
    return lines


def _in_sync(found: Partition) -> str:
    missing = [node for node in found.replicas if node not in found.isr]
    text = ",".join(map(str, found.isr))
    return text + (f" (-{','.join(map(str, missing))})" if missing else "")


def is_well(found: Partition) -> bool:
    """Say whether a partition has a leader, and every replica is in sync."""
    return found.leader >= 0 and set(found.isr) == set(found.replicas)


def _links(links: Sequence[str]) -> list[str]:
    if not links:
        return []
    return _section("BROKEN LINKS", links, LINKS_MAX)


def _groups(sample: Sample) -> list[str]:
    rows = [
        f"{group[:50]:<52}{'-' if lag is None else f'{lag:,}':>12}"
        for group, lag in sample.lags.items()
    ]
    return _section(f"{'GROUP':<52}{'LAG':>12}", rows, GROUPS_MAX) if rows else []


def _elections(elections: Iterable[str]) -> list[str]:
    told = list(elections)[::-1]
    return _section("ELECTIONS, the last first", told, ELECTIONS_MAX) if told else []


def _section(title: str, rows: Sequence[str], most: int) -> list[str]:
    more = [f"and {len(rows) - most} more"] if len(rows) > most else []
    return ["", title, *rows[:most], *more]


def name(place: TopicPartition) -> str:
    return f"{place[0]}-{place[1]}"


def leader(found: Partition) -> str:
    return "none" if found.leader < 0 else str(found.leader)


def clock(at_s: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(at_s))
