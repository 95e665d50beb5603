"""One pass over a history for its groups: the front door, beside that of the log's judge."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf

from holdfast.judge.findings import FINDINGS_MAX
from holdfast.judge.groups.history import (
    Assigned,
    CalmBegan,
    CalmEnded,
    ConsumerFault,
    GroupEvent,
    GroupExpected,
    GroupPartitionEvent,
    Joined,
    Left,
    Processed,
)
from holdfast.judge.groups.log import GroupLog
from holdfast.judge.groups.members import Group, Process
from holdfast.judge.groups.partition import GroupPartitionFold
from holdfast.judge.groups.verdict import GroupJudgement
from holdfast.judge.history import (
    Acknowledged,
    Delivered,
    Event,
    Fault,
    PartitionEvent,
    Refused,
    ReplicaBatch,
    ReplicaRecord,
    Send,
    Unknown,
    in_runs,
)
from holdfast.judge.sends import HistoryTooLargeError
from holdfast.judge.series import PARTITIONS_MAX

FOLDS_MAX = 4 * PARTITIONS_MAX
# What comes by the million and says nothing of groups.
_PASSED_OVER: frozenset[type[Event]] = frozenset(
    {Send, Refused, Unknown, ReplicaBatch, ReplicaRecord}
)
Where = tuple[str, int]


class GroupChecker:
    """Feed it all events in the order of the clock, in runs of any length, then `finish` once."""

    def __init__(self, findings_max: int = FINDINGS_MAX) -> None:
        self._findings_max = findings_max
        self._logs: dict[Where, GroupLog] = {}
        self._groups: dict[str, Group] = {}
        self._processes: dict[str, Process] = {}
        self._folds: dict[tuple[str, str, int], GroupPartitionFold] = {}
        self._of_group: dict[str, list[GroupPartitionFold]] = {}
        self._end_ms = -inf

    def feed(self, run: Sequence[Event]) -> None:
        """Take events in that follow each other. HistoryError: they contradict what was said."""
        if not run:
            return
        self._end_ms = max(self._end_ms, *[event.at_ms for event in run])
        folds, logs = self._folds, self._logs
        for event in run:
            kind = type(event)
            if kind is Processed:
                fold = folds.get((event.group, event.topic, event.partition))  # type: ignore[attr-defined]
                (fold or self._fold(event)).process(event)  # type: ignore[arg-type]
            elif kind is Acknowledged or kind is Delivered:
                log = logs.get((event.topic, event.partition))  # type: ignore[attr-defined]
                log = log or self._log((event.topic, event.partition))  # type: ignore[attr-defined]
                (log.acknowledge if kind is Acknowledged else log.deliver)(event)  # type: ignore[arg-type]
            elif kind not in _PASSED_OVER:
                self._feed_rare(event)

    def _feed_rare(self, event: Event) -> None:
        if isinstance(event, GroupPartitionEvent):
            fold = self._fold(event)
            if isinstance(event, Assigned):
                self._add_topics(self._group(event.group), [event.topic])
            fold.note(event)
        elif isinstance(event, GroupEvent):
            self._feed_group(event)
        elif isinstance(event, PartitionEvent):
            self._log((event.topic, event.partition)).note(event)
        elif isinstance(event, ConsumerFault):
            for group in self._groups.values():
                self._end_calm(group, event)
            self._processes.setdefault(event.consumer, Process()).feed(event)
            for group in self._groups.values():
                if event.action == "KILL":
                    group.killed(event.consumer)
                group.look(event)
        elif isinstance(event, Fault):
            for group in self._groups.values():
                self._end_calm(group, event)

    def _feed_group(self, event: GroupEvent) -> None:
        """Take in what concerns all partitions of a group."""
        group = self._group(event.group)
        if isinstance(event, GroupExpected):
            group.expect(event)
            self._add_topics(group, event.topics)
        elif isinstance(event, Joined):
            group.join(event)
            for each in self._groups.values():
                each.look(event)
        elif isinstance(event, Left):
            self._check(group, event)
            for fold in self._of_group[group.name]:
                fold.leave(event)
            group.members.pop(event.member, None)
            group.look(event)
        elif isinstance(event, CalmBegan):
            self._end_calm(group, event)
            group.calm = event
        elif isinstance(event, CalmEnded):
            self._end_calm(group, event)

    def _end_calm(self, group: Group, event: Event) -> None:
        self._check(group, event)
        group.calm = None

    def _check(self, group: Group, event: Event) -> None:
        if group.calm is not None:
            for fold in self._of_group[group.name]:
                fold.check(event.at_ms)

    # -- what is known of ----------------------------------------------------------------------

    def _group(self, name: str) -> Group:
        group = self._groups.get(name)
        if group is None:
            group = self._groups[name] = Group(name, self._processes)
            self._of_group[name] = []
        return group

    def _add_topics(self, group: Group, topics: Iterable[str]) -> None:
        """Let a group be held to all partitions of these topics, whether anybody owns them."""
        wanted = set(topics)
        group.topics |= wanted
        for topic, partition in list(self._logs):
            if topic in wanted:
                self._fold_of(group.name, topic, partition)

    def _log(self, where: Where) -> GroupLog:
        log = self._logs.get(where)
        if log is None:
            if len(self._logs) >= PARTITIONS_MAX:
                raise HistoryTooLargeError(f"the judge holds {PARTITIONS_MAX} partitions, not more")
            log = self._logs[where] = GroupLog()
            for group in list(self._groups.values()):
                if where[0] in group.topics:
                    self._fold_of(group.name, *where)
        return log

    def _fold(self, event: GroupPartitionEvent) -> GroupPartitionFold:
        return self._fold_of(event.group, event.topic, event.partition)

    def _fold_of(self, group: str, topic: str, partition: int) -> GroupPartitionFold:
        log = self._log((topic, partition))
        key = (group, topic, partition)
        fold = self._folds.get(key)
        if fold is None:
            if len(self._folds) >= FOLDS_MAX:
                raise HistoryTooLargeError(f"the judge holds {FOLDS_MAX} partitions of groups")
            fold = self._folds[key] = GroupPartitionFold(
                self._group(group), (topic, partition), log, self._processes, self._findings_max
            )
            self._of_group[group].append(fold)
        return fold

    def finish(self) -> GroupJudgement:
        for group in self._groups.values():
            if group.calm is not None:
                for fold in self._of_group[group.name]:
                    fold.check(self._end_ms)
        silent = [
            f"{name}: nothing is known of what it reads"
            for name in sorted(self._groups)
            if not self._of_group[name]
        ]
        return GroupJudgement(
            partitions=tuple(self._folds[key].finish() for key in sorted(self._folds)),
            unknown_groups=tuple(silent),
        )


def judge_groups(events: Iterable[Event], findings_max: int = FINDINGS_MAX) -> GroupJudgement:
    """Judge the groups of a whole history. HistoryError when it contradicts itself."""
    checker = GroupChecker(findings_max)
    for run in in_runs(events):
        checker.feed(run)
    return checker.finish()
