"""What `holdfast watch` shows of samples, in lines of 80 columns. Pure."""

from __future__ import annotations

import textwrap
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from rich.cells import cell_len, set_cell_size

from holdfast.cli.watch.group_watch import GroupLag
from holdfast.cli.watch.samples import RUNNING, Partition, Sample, TopicPartition

WIDTH = 80
NAME_MAX = 22  # of a partition
GROUP_MAX = 50  # of a group's name
RATE_S = 3.0  # over which rates are reckoned
ELECTIONS_MAX = 6
PARTITIONS_MAX, PARTITIONS_MIN = 20, 4
ABOVE = 5  # rows that are shown beside partitions, and what stands below them
LINKS_MAX = 6
GROUPS_MAX = 6
UNSEEN = "PARTITIONS are not known, nor who leads them"
NOT_KNOWN_WHETHER = "it is not known whether there is such a topic"
OLD_S = 5.0  # what was told of a group longer ago is no longer what is


class Memory:
    """What came before the latest sample: rates, elections, time without a leader."""

    def __init__(self) -> None:
        self._samples: deque[Sample] = deque()
        self._active: tuple[int, int] | None = None  # the last controller that was known
        self._told: dict[TopicPartition, Partition] = {}  # as a broker told of it last
        self.partitions: dict[TopicPartition, Partition] = {}  # those that there are, as they are
        self.put_aside: frozenset[TopicPartition] = frozenset()  # those that are as they were told
        self.leaderless_s: dict[TopicPartition, float] = {}
        self.elections: deque[str] = deque(maxlen=ELECTIONS_MAX)

    def take(self, sample: Sample) -> None:
        """Take in one more sample; they come in order of time."""
        before = self._samples[-1] if self._samples else None
        if before is not None:
            assert before.monotonic_s <= sample.monotonic_s, "samples come in order of time"
            if not before.is_blind:
                self._count_leaderless(before, sample.monotonic_s - before.monotonic_s)
        if not sample.is_blind:  # what can't be seen is not over
            sample = self._believed(sample)
            self._take_told(sample)
        self._samples.append(sample)
        while len(self._samples) > 2 and sample.monotonic_s - self._samples[0].monotonic_s > RATE_S:
            self._samples.popleft()

    def _believed(self, sample: Sample) -> Sample:
        """Return a sample without what may once have been: who is cut off tells of nothing else."""
        if sample.tells_all:
            return sample
        told = {
            place: found
            for place, found in sample.partitions.items()
            if (known := self._told.get(place)) is None
            or not (found.is_other_than(known) or found.is_older_than(known))
        }
        aside = sample.put_aside | (sample.partitions.keys() - told.keys())
        return replace(sample, partitions=told, put_aside=aside)

    def _take_told(self, sample: Sample) -> None:
        self._forget_others(sample)
        self._note_elections(sample)
        self._told = dict(sorted((self._not_deleted(sample) | dict(sample.partitions)).items()))
        self.put_aside = sample.put_aside & self._told.keys()
        self.partitions = {
            place: sample.partitions.get(place)
            or (as_last_told(told) if place in self.put_aside else unserved(told))
            for place, told in self._told.items()
        }

    def _forget_others(self, now: Sample) -> None:
        """Forget partitions that were deleted, whether or not others of their names are there."""
        left = self._not_deleted(now)
        for place, known in [*self._told.items()]:
            found = now.partitions.get(place, left.get(place))
            if found is None or found.is_other_than(known):
                del self._told[place]
                self.leaderless_s.pop(place, None)

    def _count_leaderless(self, before: Sample, passed_s: float) -> None:
        for place, found in self.partitions.items():
            if not has_leader(found, before.nodes):
                self.leaderless_s[place] = self.leaderless_s.get(place, 0.0) + passed_s

    def _note_elections(self, now: Sample) -> None:
        if now.active is not None:
            if self._active is not None and self._active != now.active:
                said = f"controller {self._active[0]} → {now.active[0]}, epoch {now.active[1]}"
                self.elections.append(f"{clock(now.at_s)}  {said}")
            self._active = now.active
        for place, found in now.partitions.items():
            old = self._told.get(place, found)
            if (old.leader, old.epoch) != (found.leader, found.epoch):
                change = f"{named(old)} → {named(found)}, epoch {found.epoch}"
                self.elections.append(f"{clock(now.at_s)}  {name(place)}: {change}")

    def _not_deleted(self, now: Sample) -> dict[TopicPartition, Partition]:
        """Return what must be there still though nobody tells of it."""
        return {} if now.tells_all else self._told

    def rate(self, place: TopicPartition) -> float | None:
        """How many offsets a partition has grown by a second of late; None: nobody says.

        Nobody says where the latest sample has no end: what grew before that grows no longer. What
        another topic of that name had is no measure.
        """
        told = [(sample.monotonic_s, sample.partitions.get(place)) for sample in self._samples]
        latest = told[-1][1] if told else None
        if latest is None:
            return None
        known = [
            (at_s, it.end)
            for at_s, it in told
            if it is not None and it.end is not None and not it.is_other_than(latest)
        ]
        if len(known) < 2 or known[-1][0] != told[-1][0] or known[-1][0] <= known[0][0]:
            return None
        (begin_s, begin), (end_s, end) = known[0], known[-1]
        return max(0.0, (end - begin) / (end_s - begin_s))


def unserved(told: Partition) -> Partition:
    """Return what is known of a partition that no broker tells of: nobody leads it."""
    return Partition(leader=-1, epoch=told.epoch, isr=(), replicas=(), topic_id=told.topic_id)


def as_last_told(told: Partition) -> Partition:
    """Return what is known of a partition of which only those tell that may be cut off.

    It may be led by anybody, so what was led counts as that; nothing else of it is known. An outage
    that somebody told of, or whose leader is dead, is not over by that.
    """
    return replace(told, isr=(), replicas=(), end=None)


def has_leader(found: Partition, nodes: Mapping[int, str]) -> bool:
    """Say whether a partition has a leader that can lead.

    Metadata name a leader that is dead, or stands still, until its session ends. The judge counts
    from the moment of the fault as well (`holdfast.judge.timeline`).
    """
    return found.leader >= 0 and nodes.get(found.leader, RUNNING) == RUNNING


def frame(
    sample: Sample, memory: Memory, rows: int | None = None, topics: Sequence[str] = ()
) -> list[str]:
    """Return what is shown of a sample that `memory` took last: no line is longer than WIDTH.

    Of partitions no more than leave room for the rest, where a terminal has so many `rows`.
    `topics`: those that were asked for; none for all.
    """
    troubles = [line for text in sample.troubles for line in textwrap.wrap(text, WIDTH)]
    above = [_head(sample), *troubles, _nodes(sample), ""]
    below = [*_links(sample.links), *_groups(sample), *_elections(memory.elections)]
    room = PARTITIONS_MAX
    if rows is not None:
        room = min(room, max(PARTITIONS_MIN, rows - len(below) - len(troubles) - ABOVE))
    partitions = [UNSEEN] if sample.is_blind else _partitions(sample, memory, room, topics)
    lines = [*above, *partitions, *below]
    return [cut(printable(line), WIDTH).rstrip() for line in lines]


def printable(text: str) -> str:
    """Return a text with escapes in the place of what a terminal would obey, and not show.

    A cluster's names are whatever somebody has called things.
    """
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in text
    )


def cut(text: str, width: int) -> str:
    """Return as much of a text as takes at most so many columns; some characters take two."""
    return text if cell_len(text) <= width else set_cell_size(text, width)


def fitted(lines: Sequence[str], rows: int) -> list[str]:
    """Return what of these lines has room in so many rows, and how many are left out."""
    if len(lines) <= rows:
        return list(lines)
    shown = max(0, rows - 1)
    return [*lines[:shown], f"{len(lines) - shown} more lines: the terminal has {rows}"]


def _head(sample: Sample) -> str:
    if sample.is_blind:
        return f"{clock(sample.at_s)}  nodes can't be seen from here"
    active = "no controller is active"
    if sample.with_zookeeper:
        active = "ZooKeeper: no controller is asked"
    if sample.active is not None:
        active = f"controller {sample.active[0]} is active, epoch {sample.active[1]}"
    doubt = ""
    if not sample.answered:
        doubt = "; no broker answers"
    elif not sample.knows_topics:
        doubt = "; who answers may lack changes"
    return f"{clock(sample.at_s)}  {active}{doubt}"


def _nodes(sample: Sample) -> str:
    troubled = [f"{node} {state}" for node, state in sample.nodes.items() if state != "running"]
    running = len(sample.nodes) - len(troubled)
    return f"{running} of {len(sample.nodes)} nodes run" + (
        f"; {', '.join(troubled)}" if troubled else ""
    )


def _partitions(sample: Sample, memory: Memory, most: int, topics: Sequence[str]) -> list[str]:
    title = f"{'PARTITION':<23}{'LEADER':>8}{'EPOCH':>7}  {'IN SYNC':<12}{'END':>10}"
    lines = [f"{title}{'PER S':>8}{'NO LEADER':>10}"]
    # Those with something wrong first: there may be more than there is room for.
    ordered = sorted(
        memory.partitions.items(),
        key=lambda item: (
            item[0] not in memory.put_aside and is_well(item[1], sample.nodes),
            memory.leaderless_s.get(item[0], 0.0) == 0.0,
            item[0],
        ),
    )
    for place, found in ordered[:most]:
        rate, gone_s = memory.rate(place), memory.leaderless_s.get(place, 0.0)
        is_unknown = place in memory.put_aside and has_leader(found, sample.nodes)
        lines.append(
            f"{set_cell_size(shortened(place), NAME_MAX + 1)}"
            f"{'unknown' if is_unknown else leader(found, sample.nodes):>8}{found.epoch:>7}  "
            f"{_in_sync(found):<12}{'-' if found.end is None else f'{found.end:,}':>10}"
            f"{'-' if rate is None else f'{rate:,.0f}':>8}"
            f"{'-' if not gone_s else f'{gone_s:.1f} s':>10}"
        )
    left = len(ordered) - most
    if left > 0:
        lines.append(f"and {left} more")
    if sample.answered:
        there = {topic for topic, _ in memory.partitions}
        said = "there is no such topic" if sample.knows_topics else NOT_KNOWN_WHETHER
        lines += [f"{printable(each)}: {said}" for each in topics if each not in there]
    if len(lines) == 1:
        lines.append(f"none: {_why_none(sample)}")
    return lines


def _why_none(sample: Sample) -> str:
    if not sample.answered:
        return "no broker answers"
    unknown = "it is not known which topics there are"
    return "there are no topics" if sample.knows_topics else unknown


def _in_sync(found: Partition) -> str:
    if not found.replicas:
        return "-"
    missing = [node for node in found.replicas if node not in found.isr]
    text = ",".join(map(str, found.isr))
    return text + (f" (-{','.join(map(str, missing))})" if missing else "")


def is_well(found: Partition, nodes: Mapping[int, str]) -> bool:
    """Say whether a partition has a leader that can lead, and every replica is in sync."""
    return has_leader(found, nodes) and set(found.isr) == set(found.replicas)


def _links(links: Sequence[str]) -> list[str]:
    if not links:
        return []
    return _section("BROKEN LINKS", links, LINKS_MAX)


def _groups(sample: Sample) -> list[str]:
    rows = [
        f"{set_cell_size(printable(group), GROUP_MAX)}  {_lag(lag):>12}{_age(lag, sample):>16}"
        for group, lag in sample.lags.items()
    ]
    return _section(f"{'GROUP':<52}{'LAG':>12}", rows, GROUPS_MAX) if rows else []


def _lag(lag: GroupLag) -> str:
    """Return the lag; "≥" where there are partitions of which it is not known."""
    if lag.lag is None:
        return "-"
    return f"{'≥' if lag.unknown_partitions else ''}{lag.lag:,}"


def _age(lag: GroupLag, sample: Sample) -> str:
    age_s = sample.monotonic_s - lag.told_monotonic_s
    return f"  {age_s:,.0f} s old" if age_s > OLD_S else ""


def _elections(elections: Iterable[str]) -> list[str]:
    told = list(elections)[::-1]
    return _section("ELECTIONS, the last first", told, ELECTIONS_MAX) if told else []


def _section(title: str, rows: Sequence[str], most: int) -> list[str]:
    more = [f"and {len(rows) - most} more"] if len(rows) > most else []
    return ["", title, *rows[:most], *more]


def name(place: TopicPartition) -> str:
    return f"{place[0]}-{place[1]}"


def shortened(place: TopicPartition) -> str:
    """Return a partition's name where there is little room: its number stays."""
    topic, number = printable(place[0]), f"-{place[1]}"
    room = NAME_MAX - len(number)
    shown = topic if cell_len(topic) <= room else f"{cut(topic, room - 1).rstrip()}…"
    return shown + number


def named(found: Partition) -> str:
    """Return whom metadata name as the leader."""
    return "none" if found.leader < 0 else str(found.leader)


def leader(found: Partition, nodes: Mapping[int, str]) -> str:
    """Return whom metadata name as the leader, and whether that one is down."""
    is_down = found.leader >= 0 and not has_leader(found, nodes)
    return named(found) + (" down" if is_down else "")


def clock(at_s: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(at_s))
