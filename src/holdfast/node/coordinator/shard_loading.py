"""What a log says of a shard, read from its start to its end, a slice at a time.

A record that can't be read is named with its offset and passed over, as Apache Kafka does: what it
said is lost, and the rest is served. One of a type that is not known here is a newer broker's, and
is passed over in silence.

Rules: group-records.md#unknown-types, group-records.md#frame.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from holdfast.core.group.shard_machine import ShardMachine
from holdfast.log.errors import StorageError
from holdfast.log.log import Log
from holdfast.node.coordinator.shard_time import ShardTime
from holdfast.runtime.sliced_work import REST, Effort, Steps, inflated
from holdfast.wire.batch import HEADER_SIZE, INFLATED_SIZE_MAX
from holdfast.wire.batch_header import BatchHeader, batches, crc_matches
from holdfast.wire.batch_records import walk_pairs
from holdfast.wire.errors import ErrorCode, WireError
from holdfast.wire.records.group_records import UnknownRecordTypeError, decode_key, decode_value
from holdfast.wire.records.offset_records import OffsetReader

logger = logging.getLogger("holdfast.groups")

READ_BYTES: Final = 256 * 1024  # read from the log in one go
RECORDS_A_SLICE: Final = 500  # replayed in one go, two milliseconds
GROUPS_A_SLICE: Final = 500  # whose sessions are begun in one go
NAMED_MAX: Final = 20  # damaged records of one load that are named one by one


class LoadError(Exception):
    """The log can't be read to its end; the text says why."""


class Load:
    """One load: what was read, and what could not be."""

    def __init__(
        self, log: Log, end: int, shard: ShardMachine, is_wanted: Callable[[], bool]
    ) -> None:
        """Read up to `end`, as long as it `is_wanted`."""
        self.records = 0
        self.damaged = 0
        self._log = log
        self._end = end
        self._shard = shard
        self._is_wanted = is_wanted
        self._offsets = OffsetReader()

    def steps(self, time: ShardTime) -> Steps[None]:
        """Replay everything, and begin with what came of it. LoadError: it can't be read."""
        yield from self._replay_all(Effort())
        for number, _ in enumerate(self._shard.begin(time.now_ms()), 1):
            if number % GROUPS_A_SLICE == 0:
                yield REST
                if not self._is_wanted():
                    return

    def _replay_all(self, effort: Effort) -> Steps[None]:
        offset = self._log.start
        while offset < self._end and self._is_wanted():
            records, next_offset = self._read(offset)
            view = memoryview(records)
            for position, header in batches(view):
                if header.next_offset > offset:
                    yield from self._replay_batch(view[position:], header, effort)
                if not self._is_wanted():
                    return
            if next_offset <= offset:
                raise LoadError(f"nothing can be read at offset {offset} of {self._log}")
            offset = next_offset

    def _read(self, offset: int) -> tuple[bytes, int]:
        try:
            found = self._log.read(offset, READ_BYTES, self._end)
        except StorageError as error:
            raise LoadError(str(error)) from error
        if found.error is not ErrorCode.NONE:
            raise LoadError(f"{self._log} can't be read at offset {offset}: {found.error.name}")
        return found.records, found.next_offset

    def _replay_batch(self, view: memoryview, header: BatchHeader, effort: Effort) -> Steps[None]:
        if header.is_control:
            return
        what = f"what is at offset {header.base_offset} and behind it"
        if not crc_matches(view):
            self._passed_over(what, "its checksum is of other bytes")
            return
        try:
            packed = view[HEADER_SIZE : header.size]
            body = yield from inflated(header.codec, packed, INFLATED_SIZE_MAX, effort)
            pairs = walk_pairs(header, bytes(body))
            while (pair := next(pairs, None)) is not None:
                self._replay_record(*pair)
                effort.spent += 1 / RECORDS_A_SLICE
                if effort.is_over:
                    yield REST
                    effort.spent = 0
                    if not self._is_wanted():
                        return
        except WireError as error:
            self._passed_over(what, error)

    def _replay_record(self, offset: int, key: bytes | None, value: bytes | None) -> None:
        if key is None:
            self._passed_over(f"the record at offset {offset}", "it has no key")
        elif not self._replay_offset(key, value):
            self._replay_other(offset, key, value)
        else:
            self.records += 1

    def _replay_offset(self, key: bytes, value: bytes | None) -> bool:
        """Replay a committed offset as they are written now. False: it is something else."""
        whose = self._offsets.key(key)
        if whose is None:
            return False
        if value is None:
            self._shard.replay_offset(whose, None)
            return True
        found = self._offsets.value(value)
        if found is None:
            return False
        self._shard.replay_offset(whose, found)
        return True

    def _replay_other(self, offset: int, key_bytes: bytes, value_bytes: bytes | None) -> None:
        try:
            key = decode_key(key_bytes)
            value = None if value_bytes is None else decode_value(key, value_bytes)
        except UnknownRecordTypeError:
            return
        except WireError as error:
            self._passed_over(f"the record at offset {offset}", error)
            return
        self._shard.replay(key, value)
        self.records += 1

    def _passed_over(self, what: str, why: object) -> None:
        self.damaged += 1
        if self.damaged <= NAMED_MAX:
            logger.error("%s: %s is damaged and passed over: %s", self._log, what, why)
