"""Rules about what readers were given: phantom, resurrected, diverged, vanished, skipped."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from operator import lt

from holdfast.judge.compaction import Survivors
from holdfast.judge.deliveries import Log, Reader, Records, WholeRead, is_dense
from holdfast.judge.expiry import Cover
from holdfast.judge.history import Position
from holdfast.judge.sends import ABSENT, Fate, Sends
from holdfast.judge.verdict import Anomaly, LogFindings

PIECE = 4096  # deliveries that are compared at once


class ReaderRules:
    """What the readers of one partition say, held against the last whole read if there is one."""

    def __init__(
        self,
        sends: Sends,
        records: Records,
        findings: LogFindings,
        readers: Sequence[Reader],
        whole: WholeRead | None,
        survivors: Survivors,
    ) -> None:
        """`survivors`: where each key stands last in the whole read, if its log is compacted."""
        self._survivors = survivors
        self._sends = sends
        self._records = records
        self._findings = findings
        self._readers = readers
        self._whole = whole
        self.late = 0  # deliveries behind the whole read's end, made when it had begun
        self.open = 0  # of what is gone, and nobody can say whether that was allowed
        self._strays = self._find_strays()

    def judge(self, cover: Cover | None, cover_at: Callable[[Position], Cover]) -> None:
        """`cover` is that of the whole read; `cover_at` that of a position which was told."""
        self._judge_strangers()
        self._judge_resurrected()
        self._judge_agreement()
        for reader in self._readers:
            self._judge_vanished(reader, cover)
            if self._whole is not None:
                self._judge_skipped(reader, self._whole, cover_at)

    # -- records that should not be ------------------------------------------------------------

    def _judge_strangers(self) -> None:
        """Phantom: a record that nobody sent here, or that has not the bytes that were sent."""
        told: set[tuple[int, int]] = set()
        for reader in self._readers:
            for index in reader.strangers:
                offset, code = reader.offsets[index], reader.codes[index]
                if (offset, code) in told:
                    continue
                told.add((offset, code))
                if not self._findings.count(Anomaly.PHANTOM):
                    continue
                row = self._records.row(code)
                name, digest, key, timestamp = self._records.of(code)
                text = f"offset {offset} holds {name}, which nobody sent here"
                send = None
                if row >= 0:
                    send = self._sends.send(row)
                    stamp = self._sends.timestamp(row)
                    pairs = (
                        ("digest", digest, send.digest),
                        ("key", key, send.key),
                        ("timestamp", stamp if timestamp is None else timestamp, stamp),
                    )
                    other = [
                        f"{what} {here}, not {own}" for what, here, own in pairs if here != own
                    ]
                    text = f"offset {offset} holds {name} with {'; '.join(other)} as was sent"
                delivered = reader.event(index, self._records)
                self._findings.tell(Anomaly.PHANTOM, text, send, delivered)

    def _judge_resurrected(self) -> None:
        fates = self._sends.fates
        if Fate.REFUSED not in fates:
            return
        told: set[int] = set()
        for reader in self._readers:
            for index, code in enumerate(reader.codes):
                row = code if code >= 0 else self._records.row(code)
                if row < 0 or fates[row] != Fate.REFUSED or row in told:
                    continue
                told.add(row)
                if self._findings.count(Anomaly.RESURRECTED):
                    send, outcome = self._sends.events(row)
                    text = f"{self._sends.name(row)} was refused; offset {reader.offsets[index]}"
                    delivered = reader.event(index, self._records)
                    self._findings.tell(Anomaly.RESURRECTED, text, send, outcome, delivered)

    # -- readers against each other ------------------------------------------------------------

    def _find_strays(self) -> dict[str, array[int]]:
        """Of each reader: indexes of deliveries that are not what stands in the log there.

        Without a whole read the longest reader's deliveries stand for the log.
        """
        if self._whole is not None:
            log = self._whole.log
        elif self._readers:
            longest = max(self._readers, key=len)
            log = Log(longest, 0, len(longest), 0, 1 << 63)
        else:
            return {}
        self._log = log
        return {reader.process: strays(log, reader) for reader in self._readers}

    def _judge_agreement(self) -> None:
        """One (epoch, offset) is one record.

        Where no epoch is known, one offset is: of what each reader was given there last, since
        before that the log may have changed.
        """
        first: dict[int, int] = {}
        disputed: set[int] = set()
        for reader in self._readers:
            for index in self._strays[reader.process]:
                offset, code = reader.offsets[index], reader.codes[index]
                if self._log.find(offset) >= 0 or first.setdefault(offset, code) != code:
                    disputed.add(offset)
        if not disputed:
            return
        seen: dict[tuple[int, int], dict[int, tuple[Reader, int]]] = {}
        for reader in self._readers:
            chosen: dict[tuple[int, int, int], int] = {}
            for index, offset in enumerate(reader.offsets):
                if offset in disputed:
                    epoch, code = reader.epochs[index], reader.codes[index]
                    chosen[offset, epoch, 0 if epoch == ABSENT else code] = index
            for (offset, epoch, _), index in chosen.items():
                seen.setdefault((offset, epoch), {}).setdefault(
                    reader.codes[index], (reader, index)
                )
        for (offset, _), records in sorted(seen.items()):
            (one, at), *others = records.values()
            for other, index in others:
                if self._findings.count(Anomaly.DIVERGED):
                    text = (
                        f"offset {offset}: {one.process} read "
                        f"{self._records.name(one.codes[at])}, {other.process} read "
                        f"{self._records.name(other.codes[index])}, in one epoch"
                    )
                    events = one.event(at, self._records), other.event(index, self._records)
                    self._findings.tell(Anomaly.DIVERGED, text, *events)

    # -- vanished ------------------------------------------------------------------------------

    def _judge_vanished(self, reader: Reader, cover: Cover | None) -> None:
        """Read, and then gone: once for each record at each offset."""
        whole = self._whole
        if whole is None and reader.is_rising:
            return
        told: set[tuple[int, int]] = set()
        latest: dict[int, int] = {}  # offset outside of the whole read -> index
        for index in self._strays[reader.process] if whole else range(len(reader)):
            offset = reader.offsets[index]
            if whole is not None and whole.event.begin <= offset < whole.event.end:
                if not self._is_replaced(reader, index):
                    self._vanished(reader, index, told)
                continue
            if whole is not None and reader is whole.reader and whole.first <= index < whole.last:
                continue  # its own, on its way to the end that it had asked for
            if reader.is_rising:
                self._judge_outside(reader, index, cover, told)
                continue
            previous = latest.get(offset)
            if previous is not None and reader.codes[previous] != reader.codes[index]:
                self._vanished(reader, previous, told, index)
            latest[offset] = index
        for index in latest.values():
            self._judge_outside(reader, index, cover, told)

    def _is_replaced(self, reader: Reader, index: int) -> bool:
        """Whether compaction has taken it: nothing stands there, and later one of its key does."""
        offset = reader.offsets[index]
        return self._log.find(offset) < 0 and self._survivors.replace(reader.codes[index], offset)

    def _judge_outside(
        self, reader: Reader, index: int, cover: Cover | None, told: set[tuple[int, int]]
    ) -> None:
        """Judge a delivery at an offset of which the whole read says nothing."""
        whole, code = self._whole, reader.codes[index]
        if whole is None or cover is None:
            return
        offset = reader.offsets[index]
        if offset < whole.event.begin:
            if cover.allows(self._records.row(code), offset) is not None:
                pass
            elif cover.leaves_open(offset):
                self.open += 1
            else:
                self._vanished(reader, index, told)
        elif code >= 0 and self._sends.sent_ms[code] > whole.asked_ms:
            pass  # it was written when the end was known already
        elif reader.at_ms[index] > whole.asked_ms:
            self.late += 1
        else:
            self._vanished(reader, index, told)

    def _vanished(
        self, reader: Reader, index: int, told: set[tuple[int, int]], later: int | None = None
    ) -> None:
        what = (reader.offsets[index], reader.codes[index])
        if what in told:
            return
        told.add(what)
        if not self._findings.count(Anomaly.VANISHED):
            return
        delivered = reader.event(index, self._records)
        instead = None if later is None else reader.event(later, self._records)
        if instead is None and self._whole is not None:
            place = self._log.find(delivered.offset)
            if place >= 0:
                instead = self._whole.reader.event(self._log.indexes[place], self._records)
        now = f"{instead.id} stands there" if instead else "nothing stands there"
        text = f"{reader.process} read {delivered.id} at offset {delivered.offset}; now {now}"
        self._findings.tell(Anomaly.VANISHED, text, delivered, instead)

    # -- skipped -------------------------------------------------------------------------------

    def _judge_skipped(
        self, reader: Reader, whole: WholeRead, cover_at: Callable[[Position], Cover]
    ) -> None:
        skipped: set[int] = set()
        for stretch in reader.stretches():
            position = stretch.position
            if position is not None and position.told and position.offset > stretch.stood_at:
                skipped |= self._skipped_by_telling(reader, stretch.stood_at, position, cover_at)
            if stretch.begin == stretch.end:
                continue
            given = reader.offsets[stretch.begin : stretch.end]
            low = given[0] if position is None else position.offset
            skipped |= self._missing(given, low, max(given) + 1)
        for number, (_, _, event) in enumerate(reader.ends):
            if event is not whole.event:
                begin, end, _ = reader.whole_read(number)
                skipped |= self._missing(reader.offsets[begin:end], event.begin, event.end)
        for offset in sorted(skipped):
            if self._findings.count(Anomaly.SKIPPED):
                index = self._log.indexes[self._log.find(offset)]
                text = f"{reader.process} was not given offset {offset}, and went on behind it"
                stands = whole.reader.event(index, self._records)
                self._findings.tell(Anomaly.SKIPPED, text, stands)

    def _missing(self, given: array[int], low: int, high: int) -> set[int]:
        """Offsets of the log in [low, high) that are not among these."""
        log = self._log
        begin, end = log.place(low), log.place(high)
        is_whole = len(given) > 0 and given[0] <= low and given[-1] == high - 1
        if is_whole and given[-1] - given[0] == len(given) - 1 and all(map(lt, given, given[1:])):
            return set()
        return set(log.offsets[begin:end]).difference(given)

    def _skipped_by_telling(
        self,
        reader: Reader,
        stood_at: int,
        position: Position,
        cover_at: Callable[[Position], Cover],
    ) -> set[int]:
        """What the cluster made a reader pass over, although it was not gone."""
        found = self._missing(reader.offsets, stood_at, position.offset)
        if not found:
            return found
        cover = cover_at(position)
        skipped = set()
        for offset in found:
            code = self._log.codes[self._log.find(offset)]
            if code >= 0 and self._sends.sent_ms[code] > position.at_ms:
                continue  # it was not there to be passed over: the log has begun anew
            if cover.allows(self._records.row(code), offset) is not None:
                continue
            if cover.leaves_open(offset):
                self.open += 1
            else:
                skipped.add(offset)
        return skipped


def strays(log: Log, reader: Reader) -> array[int]:
    """Return the indexes of a reader's deliveries that are not what stands in a log there."""
    found = array("q")
    codes, first = log.codes, log.dense_from
    for begin in range(0, len(reader), PIECE):
        offsets, given = reader.offsets[begin : begin + PIECE], reader.codes[begin : begin + PIECE]
        if first is not None and first <= offsets[0] and is_dense(offsets):
            place = offsets[0] - first
            if codes[place : place + len(given)] == given:
                continue  # as nearly all of it is
        for index, (offset, code) in enumerate(zip(offsets, given, strict=True), start=begin):
            place = log.find(offset)
            if place < 0 or codes[place] != code:
                found.append(index)
    return found
