"""Rules about the log as the last whole read found it: lost, diverged, duplicated, reordered."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable
from itertools import chain

from holdfast.judge.compaction import Survivors
from holdfast.judge.deliveries import Records, WholeRead
from holdfast.judge.expiry import Allowed, Cover
from holdfast.judge.given_again import GivenAgain
from holdfast.judge.history import Compaction, Delivered
from holdfast.judge.sends import ABSENT, Fate, Sends
from holdfast.judge.verdict import Anomaly, Excuse, Expiry, LogFindings

SHOWN_MAX = 5  # copies of one record, in evidence


class LogRules:
    """What became of everything that was sent. For one whole read."""

    def __init__(
        self, sends: Sends, records: Records, findings: LogFindings, whole: WholeRead, cover: Cover
    ) -> None:
        self._sends = sends
        self._records = records
        self._findings = findings
        self._whole = whole
        self._log = whole.log
        self._cover = cover
        self._expired: Counter[Allowed] = Counter()
        self._excused = array("i")  # rows of what is gone and may have expired
        self._replaced = array("i")  # rows of what is gone, and has a later one of its key
        # What allows that, and where each key stands last in this log; None: nothing does.
        self.compaction: Compaction | None = None
        self.survivors: Survivors | None = None
        self._first_standing: dict[int, int] | None = None
        self.late = 0  # acknowledged when the read had begun, and so perhaps behind it
        self.open = 0  # gone, and nobody can say whether that was allowed
        # By row: where in the log's columns its first copy is; -1: nowhere.
        self.places = array("i", [-1]) * len(sends)
        self._copies: dict[int, list[int]] = {}  # of rows that stand more than once
        self._strangers: dict[str, list[int]] = {}
        self._place_all()

    def _place_all(self) -> None:
        places = self.places
        for place, code in enumerate(self._log.codes):
            row = code if code >= 0 else self._records.row(code)
            if row < 0:
                name = self._records.name(code)
                if name is not None:
                    self._strangers.setdefault(name, []).append(place)
            elif places[row] < 0:
                places[row] = place
            else:
                self._copies.setdefault(row, [places[row]]).append(place)

    def judge(self) -> None:
        self._judge_acknowledged()
        self._judge_duplicates()
        self._judge_order()
        self._judge_epochs()

    @property
    def expiries(self) -> tuple[Expiry, ...]:
        return tuple(
            Expiry(excuse=excuse, count=count, event=event)
            for (excuse, event), count in self._expired.items()
        )

    # -- acknowledged --------------------------------------------------------------------------

    def _judge_acknowledged(self) -> None:
        """Lost, expired, or standing at another offset than the acknowledgement said."""
        offsets, places, stands_at = self._sends.offsets, self.places, self._log.offsets
        for row, fate in enumerate(self._sends.fates):
            if fate != Fate.ACKNOWLEDGED:
                continue
            place, offset = places[row], offsets[row]
            if place < 0:
                self._judge_missing(row, offset)
            elif offset >= 0 and stands_at[place] != offset:
                self._judge_elsewhere(row, offset)
        told: Iterable[int] = (row for row in self._excused if offsets[row] >= 0)
        if self._replaced:  # what stands may have been given the place of what is gone
            standing = (
                row
                for row, fate in enumerate(self._sends.fates)
                if fate == Fate.ACKNOWLEDGED and offsets[row] >= 0 and places[row] >= 0
            )
            told = chain(told, self._replaced, standing)
        given_again = GivenAgain(self._sends, told)
        for row in chain(self._excused, self._replaced):
            self._judge_excused(row, given_again)

    def _judge_missing(self, row: int, offset: int) -> None:
        sends, event = self._sends, self._whole.event
        is_behind = offset < 0 or offset >= event.end
        if is_behind and sends.answered_ms[row] > self._whole.asked_ms:
            self.late += 1
            return
        if self._stood_before_the_log(row, offset):
            stood_at = self._stood_at(row)
            allowed = self._cover.allows(row, stood_at) is not None
            if allowed or self._cover.leaves_open(stood_at):
                self._excused.append(row)
                return
        elif self._is_replaced(row, offset):
            self._replaced.append(row)
            return
        if not self._findings.count(Anomaly.LOST):
            return
        at = "" if offset < 0 else f" at offset {offset}"
        place = self._log.find(offset)
        instead = None if place < 0 else self._event(place)
        holder = f", which now holds {instead.id}" if instead else ""
        text = f"{sends.name(row)} was acknowledged{at}{holder}; it is not in the log"
        if 0 <= offset < event.begin:
            text += f", which begins at {event.begin}, and nothing allows that"
        elif self.compaction is not None:
            text += f", nor is a later record of {sends.send(row).key}"
        self._findings.tell(Anomaly.LOST, text, *sends.events(row), instead)

    def _is_replaced(self, row: int, offset: int) -> bool:
        """Whether compaction has taken it: nothing stands there, and later one of its key does."""
        return (
            self.compaction is not None
            and self.survivors is not None
            and offset >= 0
            and self._log.find(offset) < 0
            and self.survivors.replace(row, offset)
        )

    def _stood_at(self, row: int) -> int:
        """Return where a record stood before the log's beginning, or right before that."""
        offset = self._sends.offsets[row]
        return offset if offset >= 0 else self._whole.event.begin - 1

    def _judge_excused(self, row: int, given_again: GivenAgain) -> None:
        """Expired, left open, or lost all the same: the log was behind it once more."""
        sends = self._sends
        offset = sends.offsets[row]
        other = given_again.instead_of(row) if offset >= 0 else -1
        if other >= 0:
            if self._findings.count(Anomaly.LOST):
                name, others = sends.name(row), sends.name(other)
                if given_again.is_after(other, row):
                    text = (
                        f"{name} was acknowledged at offset {offset} and {others}, which was sent "
                        f"after that, at {sends.offsets[other]}"
                    )
                else:
                    text = f"{name} and {others} were both acknowledged at offset {offset}"
                text += ": the log can't have kept both"
                self._findings.tell(Anomaly.LOST, text, *sends.events(row), *sends.events(other))
            return
        stood_at = self._stood_at(row)
        allowed = self._cover.allows(row, stood_at)
        if self.compaction is not None and stood_at >= self._whole.event.begin:
            allowed = Excuse.REPLACED, self.compaction
        if allowed is None:
            self.open += 1
        else:
            self._expired[allowed] += 1

    def _stood_before_the_log(self, row: int, offset: int) -> bool:
        """Whether this record may have stood before the offset at which the log begins now."""
        begin = self._whole.event.begin
        if offset >= 0:
            return offset < begin
        if self._first_standing is None:
            self._first_standing = {}
            for each, place in enumerate(self.places):
                if place >= 0:
                    self._first_standing.setdefault(self._sends.processes[each], each)
        # What its own process had sent before it would be gone first.
        first = self._first_standing.get(self._sends.processes[row])
        return begin > 0 and (first is None or row < first)

    def _judge_elsewhere(self, row: int, offset: int) -> None:
        found = self._copies.get(row, [self.places[row]])
        if any(self._log.offsets[place] == offset for place in found):
            return
        anomaly = Anomaly.DIVERGED
        if offset < self._whole.event.begin:
            if self._cover.allows(row, offset) is not None:
                anomaly = Anomaly.DUPLICATED  # one copy has expired, and here is another
            elif self._cover.leaves_open(offset):
                self.open += 1
                return
        if self._findings.count(anomaly):
            text = (
                f"{self._sends.name(row)} was acknowledged at offset {offset} "
                f"and stands at {self._log.offsets[found[0]]}"
            )
            self._findings.tell(anomaly, text, *self._sends.events(row), self._event(found[0]))

    # -- copies, order, epochs -----------------------------------------------------------------

    def _judge_duplicates(self) -> None:
        for row, found in self._copies.items():
            if self._findings.count(Anomaly.DUPLICATED, len(found) - 1):
                self._tell_copies(self._sends.name(row), found, row)
        for name, found in self._strangers.items():
            if len(found) > 1 and self._findings.count(Anomaly.DUPLICATED, len(found) - 1):
                self._tell_copies(name, found, -1)

    def _tell_copies(self, name: str, found: list[int], row: int) -> None:
        shown = found[:SHOWN_MAX]
        offsets = ", ".join(str(self._log.offsets[place]) for place in shown)
        self._findings.tell(
            Anomaly.DUPLICATED,
            f"{name} stands at offsets {offsets}",
            *(self._sends.events(row) if row >= 0 else ()),
            *(self._event(place) for place in shown),
        )

    def _judge_order(self) -> None:
        """First copies stand in the order of their producer, and in that of what came to pass.

        What was acknowledged before another producer began to send must stand before it.
        """
        sends, places = self._sends, self.places
        latest: dict[int, int] = {}  # process -> its latest row so far
        newest = -1  # whose send is the latest of all so far
        for place, code in enumerate(self._log.codes):
            row = code if code >= 0 else self._records.row(code)
            if row < 0 or places[row] != place:
                continue
            before = latest.get(sends.processes[row], -1)
            if before > row:
                self._reordered(row, before, "was sent later")
                continue
            latest[sends.processes[row]] = row
            # Of its own process nothing is newer: that has just been looked at.
            if newest < 0 or sends.sent_ms[row] >= sends.sent_ms[newest]:
                newest = row
            elif (
                sends.offsets[row] >= 0  # without one (acks=0) it was only handed to the kernel
                and sends.sent_ms[newest] > sends.answered_ms[row]
            ):
                self._reordered(row, newest, "was sent when this one was acknowledged")

    def _reordered(self, row: int, before: int, why: str) -> None:
        if not self._findings.count(Anomaly.REORDERED):
            return
        sends = self._sends
        here, there = self._event(self.places[row]), self._event(self.places[before])
        text = (
            f"{sends.name(row)} (offset {here.offset}) stands behind "
            f"{sends.name(before)} (offset {there.offset}), which {why}"
        )
        self._findings.tell(
            Anomaly.REORDERED, text, *sends.events(row), sends.send(before), there, here
        )

    def _judge_epochs(self) -> None:
        """A later record is never of an earlier leader epoch."""
        epochs, previous = self._whole.reader.epochs, -1
        for place, index in enumerate(self._log.indexes):
            if epochs[index] == ABSENT:
                continue
            falls = previous >= 0 and epochs[index] < epochs[self._log.indexes[previous]]
            if falls and self._findings.count(Anomaly.DIVERGED):
                left, right = self._event(previous), self._event(place)
                text = (
                    f"the leader epoch falls from {left.epoch} at offset {left.offset} "
                    f"to {right.epoch} at {right.offset}"
                )
                self._findings.tell(Anomaly.DIVERGED, text, left, right)
            previous = place

    def _event(self, place: int) -> Delivered:
        return self._whole.reader.event(self._log.indexes[place], self._records)
