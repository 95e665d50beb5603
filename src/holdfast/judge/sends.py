"""Every record that was sent to one partition, in columns: one row a record, in the order of sends.

No event is kept as an object, so that millions fit; those that are evidence are made again from
their row.
"""

from __future__ import annotations

from array import array
from enum import IntEnum

from holdfast.judge.history import (
    NO_TIMESTAMP,
    Acknowledged,
    Event,
    HistoryError,
    Refused,
    Send,
    Unknown,
)

ABSENT = -(1 << 63)  # of a number that was not told

Outcome = Acknowledged | Refused | Unknown


class HistoryTooLargeError(HistoryError):
    """More records in one partition than the judge holds."""


class Fate(IntEnum):
    """What became of a record. Unanswered: its producer died first, or is still waiting."""

    UNANSWERED = 0
    ACKNOWLEDGED = 1
    REFUSED = 2
    UNKNOWN = 3


FATES: dict[type[Event], int] = {
    Acknowledged: int(Fate.ACKNOWLEDGED),
    Refused: int(Fate.REFUSED),
    Unknown: int(Fate.UNKNOWN),
}
UNANSWERED = int(Fate.UNANSWERED)  # looking up an enumeration's member takes its time


class Sends:
    """Rows are numbered from 0; -1 is none."""

    def __init__(self, topic: str, partition: int, records_max: int) -> None:
        self._topic = topic
        self._partition = partition
        self._records_max = records_max
        self.rows: dict[str | None, int] = {}  # of each id
        self._names: list[str] = []  # the same, by row
        self._process_codes: dict[str, int] = {}
        self._process_names: list[str] = []
        self.key_codes: dict[str | None, int] = {}
        self._key_names: list[str | None] = []
        self._reason_codes: dict[tuple[str, str], int] = {}
        self._reasons: list[tuple[str, str]] = []
        self.digests: list[str] = []
        self.sizes = array("i")
        self.keys = array("i")
        self.timestamps = array("q")
        self.walls = array("q")
        self.processes = array("i")
        self.sent_ms = array("d")
        self.fates = bytearray()
        self.offsets = array("q")  # that were acknowledged; -1: none was told
        self.answered_ms = array("d")
        self._answered_walls = array("q")
        self._answered_reasons = array("i")

    def __len__(self) -> int:
        return len(self.fates)

    # -- events, as they come ------------------------------------------------------------------

    def add(self, send: Send) -> None:
        """Take a send in. HistoryError: its id is another's."""
        row = len(self.fates)
        if self.rows.setdefault(send.id, row) != row:
            raise HistoryError(f"two sends have the id {send.id!r}")
        if row >= self._records_max:
            raise HistoryTooLargeError(
                f"{self._topic}-{self._partition} has more than {self._records_max} records"
            )
        process = self._process_codes.get(send.process)
        if process is None:
            process = self._process_codes[send.process] = len(self._process_names)
            self._process_names.append(send.process)
        key = self.key_codes.get(send.key)
        if key is None:
            key = self.key_codes[send.key] = len(self._key_names)
            self._key_names.append(send.key)
        self._names.append(send.id)
        self.digests.append(send.digest)
        self.sizes.append(send.size)
        self.keys.append(key)
        self.timestamps.append(ABSENT if send.timestamp is None else send.timestamp)
        self.walls.append(send.wall_ms)
        self.processes.append(process)
        self.sent_ms.append(send.at_ms)
        self.fates.append(UNANSWERED)
        self.offsets.append(-1)
        self.answered_ms.append(0.0)
        self._answered_walls.append(0)
        self._answered_reasons.append(-1)

    def answer(self, outcome: Outcome) -> int:
        """Take an outcome in; the row of its record. HistoryError: it has none, or one already."""
        row = self.find(outcome.id)
        if row < 0:
            raise HistoryError(f"an outcome of {outcome.id!r}, which was never sent here")
        if self.fates[row] != UNANSWERED:
            raise HistoryError(f"{outcome.id!r} has two outcomes")
        if outcome.process != self._process_names[self.processes[row]]:
            raise HistoryError(f"{outcome.process} tells an outcome of {outcome.id!r}, not its own")
        self.fates[row] = FATES[type(outcome)]
        self.answered_ms[row] = outcome.at_ms
        self._answered_walls[row] = outcome.wall_ms
        if type(outcome) is Acknowledged:
            if outcome.offset is not None:
                self.offsets[row] = outcome.offset
            return row
        assert not isinstance(outcome, Acknowledged)
        reason = (outcome.error, outcome.message)
        code = self._reason_codes.get(reason)
        if code is None:
            code = self._reason_codes[reason] = len(self._reasons)
            self._reasons.append(reason)
        self._answered_reasons[row] = code
        return row

    # -- what is known of a record -------------------------------------------------------------

    def find(self, name: str | None) -> int:
        """Return the row of an id; -1: nobody has sent it here."""
        return self.rows.get(name, -1)

    def is_as_sent(self, row: int, digest: str, key: str | None, timestamp: int | None) -> bool:
        """Whether a record with these is what was sent; None: no timestamp was told."""
        return (
            self.digests[row] == digest
            and self.key_codes.get(key, -1) == self.keys[row]
            and (timestamp is None or timestamp == self.timestamp(row))
        )

    def timestamp(self, row: int) -> int:
        """Return what the record was stamped with; NO_TIMESTAMP: nothing."""
        timestamp = self.timestamps[row]
        return self.walls[row] if timestamp == ABSENT else timestamp

    def own_time_ms(self, row: int) -> int:
        """The earliest moment, on the wall's clock, that retention may count for this record."""
        timestamp = self.timestamp(row)
        return self.walls[row] if timestamp == NO_TIMESTAMP else timestamp

    def name(self, row: int) -> str:
        return self._names[row]

    def send(self, row: int) -> Send:
        """Make the event again."""
        timestamp = self.timestamps[row]
        return Send(
            at_ms=self.sent_ms[row],
            wall_ms=self.walls[row],
            process=self._process_names[self.processes[row]],
            topic=self._topic,
            partition=self._partition,
            id=self.name(row),
            digest=self.digests[row],
            size=self.sizes[row],
            key=self._key_names[self.keys[row]],
            timestamp=None if timestamp == ABSENT else timestamp,
        )

    def outcome(self, row: int) -> Outcome | None:
        """Make the event again; None: there was none."""
        fate = self.fates[row]
        if fate == Fate.UNANSWERED:
            return None
        at_ms, wall_ms = self.answered_ms[row], self._answered_walls[row]
        process = self._process_names[self.processes[row]]
        topic, partition, name = self._topic, self._partition, self.name(row)
        if fate == Fate.ACKNOWLEDGED:
            offset = self.offsets[row]
            return Acknowledged(
                at_ms=at_ms, wall_ms=wall_ms, process=process, topic=topic, partition=partition,
                id=name, offset=None if offset < 0 else offset,
            )  # fmt: skip
        error, message = self._reasons[self._answered_reasons[row]]
        kind = Refused if fate == Fate.REFUSED else Unknown
        return kind(
            at_ms=at_ms, wall_ms=wall_ms, process=process, topic=topic, partition=partition,
            id=name, error=error, message=message,
        )  # fmt: skip

    def events(self, row: int) -> tuple[Event | None, ...]:
        return (self.send(row), self.outcome(row))
