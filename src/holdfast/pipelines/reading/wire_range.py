"""A range over our own client: whole batches are fetched, and become columns as they are.

Owns the clients of this process, and what each refusal does to a range. The next fetch is sent
before an answer is decoded; so one answer is held at most, one is on its way, and the columns.

Rules: fetch.md#when-to-answer, fetch.md#nearest-replica, errors.md#retriable-codes.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from holdfast.clients.blocking_driver import AnswerTimeoutError, DriverError, NoLeaderError
from holdfast.pipelines.offsets import Partition
from holdfast.pipelines.reading.access import Access, ReadError
from holdfast.pipelines.reading.fetch_session import Asked
from holdfast.pipelines.reading.fetched_batches import scan
from holdfast.pipelines.reading.range_rows import RangeRows
from holdfast.pipelines.reading.way import Client
from holdfast.pipelines.reading.wire_client import ANSWER_S, WireClient
from holdfast.wire.errors import RETRIABLE, ErrorCode, error_code, error_name
from holdfast.wire.messages.fetch import PartitionData
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
# What may pass although no client is told to try again.
_PASSING: Final = RETRIABLE | {ErrorCode.UNKNOWN_SERVER_ERROR}
# A session leaves out what is as it was: so the end is not known from it.
_NOTHING_NEW: Final = PartitionData(high_watermark=-1)

# Workers outlive tasks, and connections are dear: keep the idle ones.
_idle: dict[Client, WireClient] = {}


class OldFormatError(Exception):
    """From `position` on there are messages of a format that only librdkafka reads."""

    def __init__(self, position: int) -> None:
        super().__init__(position)
        self.position = position


def wire_range(
    partition: Partition, start: int, end: int, access: Access, *, decoder: Decoder = DECODER
) -> Iterator[pa.RecordBatch]:
    """Yield the records at offsets [start, end), as `read_range` does, and with its errors.

    OldFormatError: all before its position was yielded, and nothing from there on.
    """
    client = _idle.pop(access.client, None) or WireClient(access.client)
    is_whole = False
    try:
        yield from _Reading(client, partition, start, end, access, decoder).batches()
        is_whole = True
    finally:
        # With an answer outstanding it is of no use to the next range.
        is_kept = is_whole and not client.is_asking and access.client not in _idle
        if is_kept and len(_idle) < CLIENTS_MAX:
            _idle[access.client] = client
        else:
            client.close()


class _Reading:
    """One range being read: whom it is read from, and what each answer does to that."""

    def __init__(
        self,
        client: WireClient,
        partition: Partition,
        start: int,
        end: int,
        access: Access,
        decoder: Decoder,
    ) -> None:
        self._client = client
        self._partition = partition
        self._end = end
        self._access = access
        self._rows = RangeRows(partition, start, end, access, decoder)
        self._fetch_bytes = access.fetch_bytes
        self._is_stale = False  # who leads has to be asked for anew
        self._replica: int | None = None  # that the leader prefers us to read from
        self._topic_id: bytes | None = None  # of what was read until now
        self._asked_id = b""
        self._trouble = ""
        self._unknown_since_s: float | None = None
        self._deadline_s = 0.0

    def batches(self) -> Iterator[pa.RecordBatch]:
        rows = self._rows
        self._extend()
        try:
            while rows.position < self._end:
                self._check_patience()
                # Held by no name of ours, an answer is gone when it is taken: they are large.
                yield from self._take(self._next())
        except OldFormatError:
            yield from rows.rest()
            raise
        yield from rows.rest()

    def _check_patience(self) -> None:
        now_s = time.monotonic()
        if self._unknown_since_s is not None and now_s - self._unknown_since_s > UNKNOWN_S:
            raise ReadError(f"{self._partition}: {self._trouble}")
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
            left_s = max(self._deadline_s - time.monotonic(), PAUSE_S)
            error, data = self._client.take(min(ANSWER_S, left_s))
        except NoLeaderError as refusal:
            self._refused(refusal.code, str(refusal))
            return None
        except AnswerTimeoutError as failure:  # the way may be slow: ask for less
            self._fetch_bytes = max(self._fetch_bytes // 2, FETCH_BYTES_MIN)
            self._pause(str(failure))
            return None
        except DriverError as failure:
            self._pause(str(failure))
            return None
        if error:
            self._refused(error, f"the fetch is refused: {error_name(error)}")
        elif data is not None and data.error_code:
            self._refused(data.error_code, f"the fetch is refused: {error_name(data.error_code)}")
        elif data is not None and data.preferred_read_replica >= 0 and not data.records:
            self._replica = data.preferred_read_replica
        else:
            self._unknown_since_s = None
            return data if data is not None else _NOTHING_NEW
        return None

    def _ask(self, position: int) -> None:
        """Send a fetch from a position on. DriverError: it can't be sent."""
        partition = self._partition
        leader, topic_id = self._client.leader(
            partition.topic, partition.number, refresh=self._is_stale
        )
        self._is_stale = False
        if self._topic_id not in {None, topic_id}:
            self._rows.position = self._end
            self._access.lost(partition, "the topic was made anew while it was read")
            return
        self._asked_id = topic_id
        node = leader if self._replica is None else self._replica
        asked = Asked(partition.topic, topic_id, partition.number)
        self._client.ask(node, asked, position, self._fetch_bytes)

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
        self._topic_id = self._asked_id
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
            raise OldFormatError(self._rows.position)
        if data.records:
            raise self._broken("the broker sends less than a whole batch")
        committed = self._client.settings.is_committed
        readable = data.last_stable_offset if committed else data.high_watermark
        if readable <= self._rows.position:
            self._at_end()

    def _broken(self, why: str) -> ReadError:
        return ReadError(f"{self._partition}: at offset {self._rows.position}: {why}")

    def _at_end(self) -> None:
        """The end of the partition was met. Before `end` either the log is short, or we are early.

        Usually a new leader's high watermark lags for a moment, so the log's end is asked for. A
        log that really is shorter has lost the rest.
        """
        bounds = self._client.log_bounds(*self._partition)
        if bounds is None or bounds[1] >= self._end:
            return  # the range's deadline bounds this
        self._rows.position = self._end
        self._access.lost(self._partition, f"the log ends at {bounds[1]}, before {self._end}")

    def _out_of_range(self) -> None:
        if self._replica is not None:  # a follower may be behind, or have other ends
            self._pause("the preferred replica does not have that offset")
            return
        bounds = self._client.log_bounds(*self._partition)
        if bounds is None:
            self._pause("nobody says where the log begins and ends")
            return
        earliest, latest = bounds
        position = self._rows.position
        if not earliest <= position <= latest:
            self._rows.position = self._end if latest < position else min(earliest, self._end)
            self._access.lost(
                self._partition, f"offset {position} is outside of the log [{earliest}, {latest})"
            )

    def _refused(self, code: int, said: str) -> None:
        """Pass over what mends itself, raise what doesn't."""
        refusal = error_code(code)
        if refusal is ErrorCode.OFFSET_OUT_OF_RANGE:
            self._out_of_range()
        elif refusal in _PASSING:
            if refusal not in _UNKNOWN:
                self._unknown_since_s = None
            elif self._unknown_since_s is None:
                self._unknown_since_s = time.monotonic()
            self._pause(said)
        else:
            raise ReadError(f"{self._partition}: {said}")
