"""A range over our own client: whole batches are fetched, and become columns as they are.

Owns the clients of this process, and what each refusal does to a range. The next fetch is sent
before an answer is decoded; so one answer is held at most, one is on its way, and the columns.

Rules: fetch.md#when-to-answer, fetch.md#nearest-replica, errors.md#retriable-codes.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator
from typing import Final

import pyarrow as pa

from holdfast.clients.blocking_driver import (
    AnswerTimeoutError,
    DriverError,
    NoBrokerError,
    NoLeaderError,
    UnsupportedError,
)
from holdfast.pipelines.intake.forked import forget_in_child
from holdfast.pipelines.offsets import Partition, TopicMadeAnewError, made_anew_text
from holdfast.pipelines.reading.access import PASSING, UNPLANNED, Access, Plan, ReadError
from holdfast.pipelines.reading.fetch_session import Asked, From
from holdfast.pipelines.reading.fetched_batches import scan
from holdfast.pipelines.reading.history import History
from holdfast.pipelines.reading.range_rows import RangeRows
from holdfast.pipelines.reading.way import Client
from holdfast.pipelines.reading.wire_client import (
    ANSWER_S,
    Answer,
    Bounds,
    Lead,
    WireClient,
    is_meant,
)
from holdfast.wire.errors import ErrorCode, error_code, error_name
from holdfast.wire.messages.fetch import PartitionData
from holdfast.wire.uuids import NULL_UUID, uuid_text
from holdfast.wire.walker.record_columns import DECODER, Decoder

CLIENTS_MAX: Final = 8
UNKNOWN_S: Final = 30.0  # a topic just made is not known everywhere at once
PAUSE_S: Final = 0.1
FETCH_BYTES_MIN: Final = 64 * 1024
_UNKNOWN: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)
# A session leaves out what is as it was: so the end is not known from it.
_NOTHING_NEW: Final = PartitionData(high_watermark=-1)
_NO_PROOF: Final = "that is no newer one than told of the range's end, so it may be cut off"
# Nothing proves it: a leader that is slow to read, or bounds us, sends nothing either.
_HOLE: Final = (
    "its leader answers without records, though its log ends at {}: what is left there may have "
    "been compacted, and then a record that is written to this partition lets the query go on"
)

# Workers outlive tasks, and connections are dear: keep the idle ones.
_idle: dict[Client, WireClient] = forget_in_child({}, WireClient.close)


class NotOursError(Exception):
    """From `position` on only librdkafka reads: messages of an old format, or an old broker."""

    def __init__(self, position: int, why: str, *, last_epoch: int, is_held: bool) -> None:
        """`last_epoch`: of what was yielded last (-1: nothing was, or of none).

        `is_held`: it is certain to be of the topic that was planned.
        """
        super().__init__(position, why)
        self.position = position
        self.why = why
        self.last_epoch = last_epoch
        self.is_held = is_held


def wire_range(
    partition: Partition,
    start: int,
    end: int,
    access: Access,
    plan: Plan = UNPLANNED,
    *,
    decoder: Decoder = DECODER,
) -> Generator[pa.RecordBatch, None, bool]:
    """Yield the records at offsets [start, end), as `read_range` does, and with its errors.

    Return the same, too: brokers of before Kafka 3.1 are asked by name.

    NotOursError: all before its position was yielded, and nothing from there on.
    """
    client = _idle.pop(access.client, None) or WireClient(access.client)
    is_whole = False
    try:
        rows = RangeRows(partition, start, end, access, decoder)
        reading = _Reading(client, partition, rows, access, plan)
        yield from reading.batches()
        is_whole = True
    finally:
        # With an answer outstanding it is of no use to the next range.
        is_kept = is_whole and not client.is_asking and access.client not in _idle
        if is_kept and len(_idle) < CLIENTS_MAX:
            _idle[access.client] = client
        else:
            client.close()
    return reading.is_held


class _Reading:
    """One range being read: whom it is read from, and what each answer does to that."""

    def __init__(
        self,
        client: WireClient,
        partition: Partition,
        rows: RangeRows,
        access: Access,
        plan: Plan,
    ) -> None:
        self._client = client
        self._partition = partition
        self._end = rows.end
        self._access = access
        self._rows = rows
        self._plan = plan
        bounds = rows.position, rows.end
        self._history = History(client, partition, bounds, access, plan)
        self._lead = Lead(-1, -1, NULL_UUID)  # that was asked last
        self._asking_by_id = False  # how it was
        self._asked_by_id = False  # whose answer is there
        self._fetch_bytes = access.fetch_bytes
        self._is_stale = False  # who leads has to be asked for anew
        self._replica: int | None = None  # that the leader prefers us to read from
        self._meant_id = plan.topic_id  # or of what was read until now; None: nobody told one
        self.is_held = True  # all that came was asked for by the topic's id
        self._trouble = ""
        self._unknown_since_s: float | None = None
        self._deadline_s = 0.0

    def batches(self) -> Iterator[pa.RecordBatch]:
        rows = self._rows
        self._extend()
        try:
            while rows.position < self._end:
                self._check_patience()
                if rows.position >= self._end:
                    break
                # Held by no name of ours, an answer is gone when it is taken: they are large.
                yield from self._take(self._next())
        except NotOursError:
            yield from rows.rest()
            raise
        yield from rows.rest()

    def _check_patience(self) -> None:
        now_s = time.monotonic()
        if self._unknown_since_s is not None and now_s - self._unknown_since_s > UNKNOWN_S:
            if not self._client.is_gone(self._partition.topic):
                raise ReadError(f"{self._partition}: {self._trouble}")
            self._access.lost(self._partition, "no broker knows the topic: it was deleted")
            self._rows.position = self._end
            return
        if now_s > self._deadline_s:
            raise self._access.silent(
                self._partition, self._rows.position, self._end, self._trouble
            )

    def _extend(self) -> None:
        """Give the range its whole silence again: it has come on."""
        self._deadline_s = time.monotonic() + self._access.silence_ms_max / 1000
        self._unknown_since_s, self._trouble = None, ""

    # -- asking ------------------------------------------------------------------------------------

    def _next(self) -> PartitionData | None:
        """Return what is told of the partition. None: nothing, and what is to be done about it is.

        DataLossError, ReadError: as `read_range`.
        """
        try:
            if not self._client.is_asking:
                self._ask(self._rows.position)
            if not self._client.is_asking:
                return None
            self._asked_by_id = self._asking_by_id
            error, data = self._taken()
        except NoLeaderError as refusal:
            self._refused(refusal.code, str(refusal))
            return None
        except DriverError as failure:
            if isinstance(failure, UnsupportedError) and not isinstance(failure, NoBrokerError):
                raise self._not_ours(str(failure)) from failure
            self._unknown_since_s = None  # nobody says that any more
            self._pause(str(failure))
            return None
        if error:
            self._refused(error, f"the fetch is refused: {error_name(error)}")
        elif data is not None and data.error_code:
            self._refused(data.error_code, f"the fetch is refused: {error_name(data.error_code)}")
        elif data is not None and data.diverging_epoch.end_offset >= 0:
            raise self._history.parted(self._rows.position, data.diverging_epoch.end_offset)
        elif data is not None and data.preferred_read_replica >= 0 and not data.records:
            self._replica = data.preferred_read_replica
        else:
            self._unknown_since_s = None
            return data if data is not None else _NOTHING_NEW
        return None

    def _taken(self) -> Answer:
        """Wait for the answer to a fetch. DriverError: none came, and less is asked for then."""
        left_s = max(self._deadline_s - time.monotonic(), PAUSE_S)
        try:
            return self._client.take(min(ANSWER_S, left_s))
        except AnswerTimeoutError:  # the way may be slow
            self._fetch_bytes = max(self._fetch_bytes // 2, FETCH_BYTES_MIN)
            raise

    def _ask(self, position: int) -> None:
        """Send a fetch from a position on. DriverError: it can't be sent."""
        partition = self._partition
        lead = self._client.leader(
            *partition,
            refresh=self._is_stale,
            least_epoch=self._history.least_epoch,
            topic_id=self._meant_id,
        )
        self._is_stale = False
        if not is_meant(lead.topic_id, self._meant_id):
            self._rows.position = self._end
            if self._access.fail_on_data_loss and self._plan.topic_id is not None:
                ids = self._plan.topic_id, uuid_text(lead.topic_id)
                raise TopicMadeAnewError("; ".join(made_anew_text({partition.topic: ids})))
            self._access.lost(partition, "the topic was made anew while it was read")
            return
        self._history.hold_against(lead, position)
        self._lead = lead
        node = lead.node if self._replica is None else self._replica
        asked = Asked(partition.topic, lead.topic_id, partition.number)
        # A replica may be behind, and then its log would seem to part from what was read.
        last_epoch = self._history.last_epoch if self._replica is None else -1
        place = From(position, last_epoch=last_epoch)
        self._asking_by_id = self._client.ask(lead, node, asked, place, self._fetch_bytes)

    def _pause(self, trouble: str) -> None:
        """Let a moment pass before the leader is looked for again; it may be another one then."""
        self._trouble = trouble
        self._is_stale = True
        self._replica = None
        time.sleep(PAUSE_S)

    # -- what is told ------------------------------------------------------------------------------

    def _take(self, data: PartitionData | None) -> Iterator[pa.RecordBatch]:
        """Take an answer without an error, and ask for the next one before it is decoded."""
        if data is None:
            return
        found = scan(data.records)
        if not found.batches:
            self._nothing(data, is_old=found.is_old, trouble=found.trouble)
            return
        position = self._rows.position
        following = found.next_offset
        if following <= position:
            raise self._broken(f"offset {position} is asked for, and batches before it come")
        self._history.read(found.batches)
        if self._meant_id is None and self._lead.topic_id != NULL_UUID:
            self._meant_id = uuid_text(self._lead.topic_id)
        self.is_held = self.is_held and self._asked_by_id
        is_last = following >= self._end or found.is_old or found.trouble
        if not is_last:
            self._ask_ahead(following)
        yield from self._rows.take(found, data.aborted_transactions)
        self._extend()

    def _ask_ahead(self, position: int) -> None:
        try:
            self._ask(position)
        except DriverError as failure:
            self._trouble = str(failure)
            self._is_stale = True
            self._replica = None

    def _nothing(self, data: PartitionData, *, is_old: bool, trouble: str) -> None:
        """No whole batch came: the end was met, or something that we don't read."""
        if trouble:
            raise self._broken(trouble)
        if is_old:
            raise self._not_ours(f"messages of an old format from offset {self._rows.position} on")
        if data.records:
            raise self._broken("the broker sends less than a whole batch")
        committed = self._client.settings.is_committed
        readable = data.last_stable_offset if committed else data.high_watermark
        if readable <= self._rows.position:
            self._at_end()
        elif data is not _NOTHING_NEW:
            self._trouble = _HOLE.format(readable)

    def _not_ours(self, why: str) -> NotOursError:
        last_epoch = self._history.last_epoch
        return NotOursError(self._rows.position, why, last_epoch=last_epoch, is_held=self.is_held)

    def _broken(self, why: str) -> ReadError:
        return ReadError(f"{self._partition}: at offset {self._rows.position}: {why}")

    def _at_end(self) -> None:
        """The end of the partition was met. Before `end` either the log is short, or we are early.

        Usually a new leader's high watermark lags for a moment, so the log's end is asked for. A
        log that really is shorter has lost the rest, once all that it has was read.
        """
        bounds = self._client.log_bounds(*self._partition, self._lead)
        if bounds is None or bounds.end > self._rows.position:
            return  # the range's deadline bounds this
        self._is_shorter(bounds)

    def _is_shorter(self, bounds: Bounds) -> None:
        """The log ends before the range does, its leader says: give up the rest, if that holds.

        A log that lost its end has a leader of a newer epoch than the one that told of that end.
        Any other leader was cut off from its cluster, and doesn't know it yet: wait for the next.
        """
        said = f"the log ends at {bounds.end}, before {self._end}"
        if not self._history.is_newer(bounds.epoch):
            self._pause(f"{said}, as its leader of epoch {bounds.epoch} says: {_NO_PROOF}")
            return
        self._rows.position = self._end
        self._access.lost(self._partition, said)

    def _out_of_range(self) -> None:
        if self._replica is not None:  # a follower may be behind, or have other ends
            self._pause("the preferred replica does not have that offset")
            return
        bounds = self._client.log_bounds(*self._partition, self._lead)
        position = self._rows.position
        if bounds is None:
            self._pause("nobody says where the log begins and ends")
        elif position < bounds.start:
            self._rows.position = min(bounds.start, self._end)
            self._access.lost(
                self._partition,
                f"offset {position} is outside of the log [{bounds.start}, {bounds.end})",
            )
        elif bounds.end < position:
            self._is_shorter(bounds)
        else:
            self._pause("the fetch is refused, and what is asked for is in the log")

    def _refused(self, code: int, said: str) -> None:
        """Pass over what mends itself, raise what doesn't."""
        refusal = error_code(code)
        if refusal is ErrorCode.OFFSET_OUT_OF_RANGE:
            self._out_of_range()
        elif refusal in PASSING:
            if refusal not in _UNKNOWN:
                self._unknown_since_s = None
            elif self._unknown_since_s is None:
                self._unknown_since_s = time.monotonic()
            self._pause(said)
        else:
            raise ReadError(f"{self._partition}: {said}")
