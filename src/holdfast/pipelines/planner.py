"""What a stream's reader and a batch's share: the cluster's answers made into offsets and tasks.

Lives in the process beside the driver. Owns the listing, connected on first use and never pickled;
what is lost or made anew is noted or refused here, as the options say.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql.datasource import InputPartition

from holdfast.pipelines import offsets as moves
from holdfast.pipelines.intake.bounds import STRATEGY, Bound, ByTime
from holdfast.pipelines.intake.option_values import OptionError
from holdfast.pipelines.intake.same_version import stamped, unstamped
from holdfast.pipelines.intake.split import split
from holdfast.pipelines.intake.topic_pattern import matcher
from holdfast.pipelines.listing import Listing, unknown
from holdfast.pipelines.offsets import (
    DataLossError,
    Epochs,
    Known,
    Offsets,
    Partition,
    Range,
    TopicIds,
    TopicMadeAnewError,
)
from holdfast.pipelines.options import SourceOptions
from holdfast.pipelines.progress.commits import refuse_members
from holdfast.pipelines.read_range import data_loss_text
from holdfast.wire.well_known import EARLIEST, LATEST

log = logging.getLogger(__name__)


@dataclass
class RangePartition(InputPartition):  # type: ignore[misc]
    """One task: a range of one partition. It is pickled to the worker."""

    topic: str
    number: int
    start: int
    end: int
    topic_id: str | None = None
    start_epoch: int = -1  # in which the whole range's ends were told
    end_epoch: int = -1


class Planner:
    """What both readers share: the options, and the listing, connected on first use."""

    def __init__(self, options: SourceOptions) -> None:
        self.options = options
        self._listing: Listing | None = None
        self._group_seen = False
        # What was said last of a partition: what stays gone is gone at each trigger, for good.
        self._said: dict[Partition | str, str] = {}  # of partitions and topics

    @property
    def listing(self) -> Listing:
        if self._listing is None:
            options = self.options
            self._listing = Listing(
                options.client, retries=options.offset_retries, pause_ms=options.offset_pause_ms
            )
        return self._listing

    def refuse_members(self) -> None:
        """Refuse, once, a progressGroup that somebody is in. OptionError."""
        if self.options.progress is not None and not self._group_seen:
            refuse_members(self.options.progress)
            self._group_seen = True

    def close(self) -> None:
        if self._listing is not None:
            self._listing.close()

    def __getstate__(self) -> dict[str, Any]:
        """Workers get the options; connections stay here."""
        fresh: dict[str, Any] = {"_listing": None, "_group_seen": False, "_said": {}}
        return stamped({"options": self.options, **fresh})

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(unstamped(state))

    def partitions(self) -> list[Partition]:
        """Return what is to be read, waiting for a topic that was made a moment ago."""
        options = self.options
        if options.pattern is not None:
            return self.listing.matching(options.pattern)
        return list(options.partitions) or self.listing.partitions(options.topics)

    def still_there(self) -> list[Partition]:
        """Return what is to be read, without what was deleted where that is not to end the query.

        What is there is waited for as in `partitions`: a run that ends would leave it out.
        """
        options, found = self.options, self.partitions
        if options.pattern is not None:
            return found()
        if options.partitions:
            there = {*self.present(options.partitions)}
            return [p for p in found() if p in there or options.gone.fails(p.topic)]
        kept = self.listing.known(options.topics)
        known = {partition.topic for partition in kept}
        for topic in options.topics:
            if topic not in known and options.gone.fails(topic):
                raise unknown(topic)
        return kept

    def present(self, known: Collection[Partition]) -> list[Partition]:
        """Return what is there now to be read. Of what is `known`, nothing is missed by haste.

        Brokers hear of a new topic or partition one after the other, and the one that is asked may
        not know yet what another has told.
        """
        listing, options = self.listing, self.options
        if options.partitions:
            found = listing.existing(options.partitions)
        elif options.pattern is not None:
            found = listing.matching(options.pattern)
        else:
            found = listing.existing_of(options.topics)
        there = set(found)
        missing = [p for p in sorted(known) if p not in there and self._is_wanted(p)]
        return sorted({*found, *listing.awaited(missing)}) if missing else found

    def gone(self, ids: TopicIds, present: Collection[Partition]) -> set[str]:
        """Return topics that an offset need not name any more: they are gone for good.

        Where a pattern chooses them there is no end to topics that come and go. One of a name that
        an option has keeps its place.
        """
        there = {partition.topic for partition in present}
        away = {t: i for t, i in ids.items() if t not in there and not self.options.gone.fails(t)}
        if self.options.pattern is None or not away:
            return set()
        found = self.listing.gone(away)
        self._said = {
            subject: text
            for subject, text in self._said.items()
            if (subject.topic if isinstance(subject, Partition) else subject) not in found
        }
        return found

    def _is_wanted(self, partition: Partition) -> bool:
        """Return whether the options still name it: a query may be started again with others."""
        options = self.options
        if options.partitions:
            return partition in options.partitions
        if options.pattern is not None:
            return matcher(options.pattern)(partition.topic)
        return partition.topic in options.topics

    def resolved(self, wanted: Bound, name: str, partitions: Sequence[Partition]) -> Known:
        """Turn where a query begins or ends into numbers, all of them known."""
        if isinstance(wanted, ByTime):
            return self._by_time(wanted, partitions)
        if isinstance(wanted, int):
            spec = dict.fromkeys(partitions, wanted)
        else:
            spec = _each_named(wanted, partitions, name)
        return self._numbers(spec)

    def _by_time(self, wanted: ByTime, partitions: Sequence[Partition]) -> Known:
        times = wanted.times
        if isinstance(times, int):
            times = dict.fromkeys(partitions, times)
        else:
            times = _each_named(times, partitions, wanted.option)
        # Asked for before the times: what is written in between is late enough, and is to be read.
        ends = Known({}, {})
        if wanted.or_latest:
            ends = self._numbers(dict.fromkeys(times, LATEST))
        found = self.listing.at_times(times)
        late = [f"{p} (from {times[p]} ms on)" for p in sorted(found) if found[p] == LATEST]
        if late and not wanted.or_latest:
            raise OptionError(
                f"{wanted.option}: no record is that late in {', '.join(late)}; to begin at the "
                f"end of such partitions, set {STRATEGY} to latest"
            )
        at_end = {p: end for p, end in ends.offsets.items() if found[p] == LATEST}
        return Known(found | at_end, {p: e for p, e in ends.epochs.items() if p in at_end})

    def _numbers(self, spec: Offsets) -> Known:
        named = [p for p in spec if spec[p] == EARLIEST]
        last = [p for p in spec if spec[p] == LATEST]
        newest = self.listing.newest(last)  # nothing was read that would tell of an old leader
        latest = self.listing.ends(last, newest, all_of_them=True) if last else Known({}, {})
        earliest = self.listing.earliest(named, all_of_them=True) if named else {}
        return Known(moves.resolve(spec, earliest, latest.offsets), latest.epochs)

    def within_logs(self, wanted: Known, option: str) -> Known:
        """Return ends that a user has named, each where its log ends if that is before it."""
        named = {p: end for p, end in wanted.offsets.items() if p not in wanted.epochs}
        if not named:
            return wanted
        told = self.listing.reaching(named)
        self.lost(moves.out_of_log(named, told.offsets, option))
        shorter = {p: min(end, told.offsets[p]) for p, end in named.items()}
        return Known(wanted.offsets | shorter, wanted.epochs | told.epochs)

    def lost(self, said: Mapping[Partition, str]) -> None:
        """Fail with what is gone, or note it once, as goneData says of each topic."""
        texts = {p: f"{p}: {text}" for p, text in said.items()}
        failing = [text for p, text in texts.items() if self.options.gone.fails(p.topic)]
        if failing:
            raise DataLossError(data_loss_text(failing))
        self._say("going on without data that was lost: %s", texts)

    def _say(self, words: str, texts: Mapping[Any, str]) -> None:
        """Say what is new of these, by partition or topic: Spark asks many times a second."""
        news = [text for subject, text in texts.items() if self._said.get(subject) != text]
        if news:
            log.warning(words, "; ".join(news))
        self._said |= texts

    def cut(self, said: Mapping[Partition, str]) -> None:
        """Fail with logs that end before what was read, or note it.

        `reset` fails, too: what it would go back to has the same offsets as rows that were written.
        """
        failing = [
            f"{p}: {text}; goneData reset does not go back behind what was read"
            for p, text in said.items()
            if self.options.gone.of(p.topic) == "reset"
        ]
        if failing:
            raise DataLossError(data_loss_text(failing))
        self.lost(said)

    def made_anew(self, before: TopicIds, now: TopicIds) -> set[str]:
        """Return the topics that are others now, after failing or noting it."""
        changed = moves.made_anew(before, now)
        failing = {t: ids for t, ids in changed.items() if self.options.gone.fails(t)}
        if failing:
            raise TopicMadeAnewError("; ".join(moves.made_anew_text(failing)))
        texts = dict(zip(changed, moves.made_anew_text(changed), strict=True))
        self._say("going on with what is there now: %s", texts)
        return set(changed)

    def begins(self, partitions: Collection[Partition], there: Collection[str]) -> Offsets:
        """Return where logs begin that a batch is about to be read of.

        Where what is gone is passed over, a leader that is away is waited for, as long as its task
        would: what is gone when it comes back, that task's log alone would tell. Of topics that are
        not `there` just now nothing is waited for.
        """
        gone, within_s = self.options.gone, self.options.poll_timeout_ms / 1000
        must = [p for p in partitions if p.topic in there and not gone.fails(p.topic)]
        others = [p for p in partitions if p not in {*must}]
        found = self.listing.earliest(others) if others else {}
        if must:
            found |= self.listing.earliest(must, all_of_them=True, within_s=within_s)
        return found

    def entering(self, earliest: Offsets, latest: Offsets, others: Collection[str]) -> Offsets:
        """Return where new partitions enter: where the log begins.

        Under `reset` a topic that was made anew does where the query did.
        """
        if self.options.starting != LATEST:
            return earliest
        at_end = [
            p for p in earliest if p.topic in others and self.options.gone.of(p.topic) == "reset"
        ]
        away = [p for p in at_end if p not in latest]
        if away:
            latest = latest | self.listing.ends(away, all_of_them=True).offsets
        return earliest | {p: latest[p] for p in at_end}

    def tasks(
        self,
        planned: Sequence[Range],
        earliest: Mapping[Partition, int],
        ids: Mapping[str, str],
        epochs: tuple[Epochs, Epochs],
    ) -> list[Any]:
        """Cut ranges into tasks; what aged out of them is loss, said here, before a task starts.

        `epochs` are those in which the ends of the ranges were told.
        """
        starts = {r.partition: r.start for r in planned}
        self.lost(moves.aged_out(starts, earliest))
        there = [
            Range(each.partition, max(each.start, earliest.get(each.partition, 0)), each.end)
            for each in planned
        ]
        parts = split(there, parts_min=self.options.tasks_min, rows_max=self.options.task_rows_max)
        before, after = epochs
        return [
            RangePartition(
                *part.partition,
                part.start,
                part.end,
                ids.get(part.partition.topic),
                # Where a range is cut no epoch was told, and where the log begins none is needed.
                before.get(part.partition, -1) if part.start == starts[part.partition] else -1,
                after.get(part.partition, -1),
            )
            for part in parts
        ]


def _each_named(
    named: Mapping[Partition, int], partitions: Sequence[Partition], option: str
) -> Offsets:
    """Return what an option says of each partition. OptionError: it leaves one out, or adds one."""
    if named.keys() != set(partitions):
        odd = ", ".join(str(p) for p in sorted(named.keys() ^ set(partitions)))
        raise OptionError(f"{option}: name every partition to be read and no other: {odd}")
    return dict(named)
