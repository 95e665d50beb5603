"""What readers were given, in columns, and the log as one of them found it.

A record is a code: the row of its send where id, digest, key and timestamp are those that were
sent, else -1 and below, one for each different stranger. Two records are the same if their codes
are. A timestamp that was not told is left out.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import gt, lt
from typing import NamedTuple

from holdfast.judge.history import Delivered, Position, ReadEnd, ReplicaRecord
from holdfast.judge.sends import ABSENT, HistoryTooLargeError, Sends

Record = tuple[str | None, str, str | None, int | None]  # id, digest, key, timestamp


class Records:
    """Gives each delivered record its code."""

    def __init__(self, sends: Sends) -> None:
        self._sends = sends
        self._rows, self._digests = sends.rows, sends.digests
        self._keys, self._key_codes = sends.keys, sends.key_codes
        self._timestamps, self._walls = sends.timestamps, sends.walls
        self._codes: dict[Record, int] = {}
        self._strangers: list[Record] = []

    def code(self, delivered: Delivered | ReplicaRecord, known: int) -> int:
        """Return its code when so many sends are known; those that follow were not sent yet."""
        # The busiest line of all: without a call where nothing is wrong.
        row = self._rows.get(delivered.id, -1)
        if (
            0 <= row < known
            and self._digests[row] == delivered.digest
            and self._key_codes.get(delivered.key, -1) == self._keys[row]
        ):
            told, stamped = delivered.timestamp, self._timestamps[row]
            if told is None or told == (self._walls[row] if stamped == ABSENT else stamped):
                return row
        record = (delivered.id, delivered.digest, delivered.key, delivered.timestamp)
        code = self._codes.get(record)
        if code is None:
            self._strangers.append(record)
            code = self._codes[record] = -len(self._strangers)
        return code

    def rows(self, delivered: Sequence[Delivered], at_ms: Sequence[float]) -> list[int] | None:
        """Return the codes where all of it is what had been sent; None: some of it is not.

        Whose send is later by the clock may have been delivered before it, or not: that hangs on
        the order of the events.
        """
        known, code = len(self._digests), self.code
        codes = [code(each, known) for each in delivered]
        if min(codes) < 0 or any(map(gt, map(self._sends.sent_ms.__getitem__, codes), at_ms)):
            return None
        return codes

    def of(self, code: int) -> Record:
        """Return what was delivered under this code."""
        if code < 0:
            return self._strangers[-code - 1]
        send = self._sends.send(code)
        return (send.id, send.digest, send.key, self._sends.timestamp(code))

    def name(self, code: int) -> str | None:
        return self._sends.name(code) if code >= 0 else self._strangers[-code - 1][0]

    def row(self, code: int) -> int:
        """Return the row of whoever has this record's id, were it another record; -1: nobody."""
        if code >= 0:
            return code
        return self._sends.find(self._strangers[-code - 1][0])

    def late(self) -> dict[int, int]:
        """Codes of strangers whose send stood behind their delivery -> its row."""
        found = {}
        for index, (name, digest, key, timestamp) in enumerate(self._strangers):
            row = self._sends.find(name)
            if row >= 0 and self._sends.is_as_sent(row, digest, key, timestamp):
                found[-index - 1] = row
        return found


class Columns(NamedTuple):
    """What is kept of deliveries. One that was not told is ABSENT."""

    offsets: array[int]
    codes: array[int]
    at_ms: array[float]
    walls: array[int]
    epochs: array[int]
    committed_ends: array[int]


@dataclass(frozen=True, slots=True)
class Stretch:
    """What a reader was given from one `position` event to the next: indexes [begin, end)."""

    begin: int
    end: int
    position: Position | None
    stood_at: int  # where the reader would have gone on, had its position not been set


class Reader:
    """What one process received, in its order."""

    def __init__(self, process: str, topic: str, partition: int, records_max: int) -> None:
        self.process = process
        self._topic = topic
        self._partition = partition
        self._records_max = records_max
        self.offsets = array("q")
        self.codes = array("i")
        self.at_ms = array("d")
        self._walls = array("q")
        self.epochs = array("q")
        self._committed_ends = array("q")
        self._positions: list[tuple[int, Position, int]] = []  # index, event, where it stood
        # Each `read_end`, and how many deliveries and positions stood before it.
        self.ends: list[tuple[int, int, ReadEnd]] = []
        self.next_offset = -1  # the lowest that may come next; -1: any
        self._highest = -1
        self.is_rising = True  # no offset was given twice, or below one before
        self.strangers = array("q")  # indexes of deliveries that are nobody's record
        self._tells_timestamp = False

    def __len__(self) -> int:
        return len(self.offsets)

    def add(self, delivered: Delivered, code: int) -> None:
        if len(self.offsets) >= self._records_max:
            raise HistoryTooLargeError(
                f"{self.process} read more than {self._records_max} records of "
                f"{self._topic}-{self._partition}"
            )
        if code < 0:
            self.strangers.append(len(self.offsets))
        offset, epoch, end = delivered.offset, delivered.epoch, delivered.committed_end
        if offset <= self._highest:
            self.is_rising = False
        else:
            self._highest = offset
        self.offsets.append(offset)
        self.codes.append(code)
        self.at_ms.append(delivered.at_ms)
        self._walls.append(delivered.wall_ms)
        self.epochs.append(ABSENT if epoch is None else epoch)
        self._committed_ends.append(ABSENT if end is None else end)
        self.next_offset = offset + 1
        if delivered.timestamp is not None:
            self._tells_timestamp = True

    def laid_out(self, delivered: Sequence[Delivered], records: Records) -> Columns | None:
        """Lay out what this reader was given, for `extend`. None: some of it is odd.

        That is faster than `add` for each of them. Nothing is odd if offsets rise
        from where the reader stands, committed all of them, and each is what had been sent.
        """
        offsets = [each.offset for each in delivered]
        ends = [ABSENT if (end := each.committed_end) is None else end for each in delivered]
        told = ends.count(ABSENT) < len(ends)
        if (
            len(self.offsets) + len(offsets) > self._records_max
            or offsets[0] < self.next_offset
            or not all(map(lt, offsets, offsets[1:]))
            or (told and not all(map(lt, offsets, ends)))
        ):
            return None
        at_ms = [each.at_ms for each in delivered]
        codes = records.rows(delivered, at_ms)
        if codes is None:
            return None
        epochs = [ABSENT if (epoch := each.epoch) is None else epoch for each in delivered]
        try:
            return Columns(
                array("q", offsets),
                array("i", codes),
                array("d", at_ms),
                array("q", [each.wall_ms for each in delivered]),
                array("q", epochs),
                array("q", ends),
            )
        except OverflowError:
            return None  # `add` finds the number that is too large

    def extend(self, columns: Columns, *, tells_timestamp: bool) -> None:
        """Take in what was laid out, with nothing between."""
        offsets = columns.offsets
        if offsets[0] <= self._highest:
            self.is_rising = False
        self._highest = offsets[-1]
        self.next_offset = offsets[-1] + 1
        self._tells_timestamp |= tells_timestamp
        self.offsets.extend(offsets)
        self.codes.extend(columns.codes)
        self.at_ms.extend(columns.at_ms)
        self._walls.extend(columns.walls)
        self.epochs.extend(columns.epochs)
        self._committed_ends.extend(columns.committed_ends)

    def move(self, position: Position) -> None:
        self._positions.append((len(self.offsets), position, self.next_offset))
        self.next_offset = position.offset

    def end(self, event: ReadEnd) -> None:
        self.ends.append((len(self.offsets), len(self._positions), event))

    def resolve(self, late: dict[int, int]) -> list[int]:
        """Put rows for strangers that turned out to be sent; the indexes that were concerned."""
        found = [index for index in self.strangers if self.codes[index] in late]
        for index in found:
            self.codes[index] = late[self.codes[index]]
        self.strangers = array("q", [i for i in self.strangers if self.codes[i] < 0])
        return found

    def event(self, index: int, records: Records) -> Delivered:
        """Make the event again."""
        name, digest, key, timestamp = records.of(self.codes[index])
        epoch, end = self.epochs[index], self._committed_ends[index]
        return Delivered(
            at_ms=self.at_ms[index],
            wall_ms=self._walls[index],
            process=self.process,
            topic=self._topic,
            partition=self._partition,
            offset=self.offsets[index],
            id=name,
            digest=digest,
            key=key,
            timestamp=timestamp if self._tells_timestamp else None,
            epoch=None if epoch == ABSENT else epoch,
            committed_end=None if end == ABSENT else end,
        )

    # -- stretches and whole reads -------------------------------------------------------------

    def stretches(self) -> Iterator[Stretch]:
        begin, position, stood_at = 0, None, 0
        for index, moved_to, stood in self._positions:
            yield Stretch(begin, index, position, stood_at)
            begin, position, stood_at = index, moved_to, max(stood, 0)
        yield Stretch(begin, len(self.offsets), position, stood_at)

    def whole_read(self, number: int) -> tuple[int, int, float]:
        """Where the read of a `read_end` begins and ends, by index, and when it was begun.

        It begins where the position was last set to its begin or before, or behind the one before.
        """
        end, positions, event = self.ends[number]
        begin, earlier, _ = self.ends[number - 1] if number else (0, 0, event)
        began_ms = self.at_ms[begin] if begin < end else event.at_ms
        for index, position, _ in self._positions[earlier:positions]:
            if position.offset <= event.begin:
                begin, began_ms = index, position.at_ms
        return begin, end, began_ms if event.asked_ms is None else event.asked_ms


def is_dense(offsets: array[int]) -> bool:
    """Whether each is one more than the one before."""
    if not offsets:
        return True
    first = offsets[0]
    return offsets[-1] - first == len(offsets) - 1 and offsets == array(
        "q", range(first, first + len(offsets))
    )


class Log:
    """The log as a reader's deliveries [begin, end) show it, from offset `low` up to `high`."""

    def __init__(self, reader: Reader, begin: int, end: int, low: int, high: int) -> None:
        self.indexes = array("q", range(begin, end))
        self.offsets = reader.offsets[begin:end]
        self.codes = reader.codes[begin:end]
        if not is_dense(self.offsets) or (
            self.offsets and (self.offsets[0] < low or self.offsets[-1] >= high)
        ):
            # The later one of an offset counts.
            placed = {
                reader.offsets[index]: index
                for index in self.indexes
                if low <= reader.offsets[index] < high
            }
            self.offsets = array("q", sorted(placed))
            self.indexes = array("q", (placed[offset] for offset in self.offsets))
            self.codes = array("i", (reader.codes[index] for index in self.indexes))
        # Where no offset is missing, its place follows from the first; None: some are.
        self.dense_from: int | None = None
        if self.offsets and self.offsets[-1] - self.offsets[0] == len(self.offsets) - 1:
            self.dense_from = self.offsets[0]

    def __len__(self) -> int:
        return len(self.offsets)

    def place(self, offset: int) -> int:
        """Return where in the log's columns the first record at or behind an offset is."""
        if self.dense_from is not None:
            return min(max(offset - self.dense_from, 0), len(self.offsets))
        return bisect_left(self.offsets, offset)

    def find(self, offset: int) -> int:
        """Return where in the log's columns an offset is; -1: nothing stands there."""
        place = self.place(offset)
        return place if place < len(self) and self.offsets[place] == offset else -1


@dataclass(frozen=True, slots=True)
class WholeRead:
    """The read that verdicts rest on: what it found, and when it asked where the log ends."""

    reader: Reader
    first: int  # index of its first delivery
    last: int  # behind its last
    log: Log
    event: ReadEnd
    asked_ms: float
