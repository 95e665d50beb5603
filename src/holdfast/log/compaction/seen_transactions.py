"""Transactions that a pass through a log has met: which of their records and markers may go. Pure.

Owns which aborted and which committed transactions are open at the place of the pass. Batches must
be told in the order of their offsets.

Rules: compaction.md#transactions.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from operator import attrgetter

from holdfast.log.compaction.transaction_index import AbortedTransaction
from holdfast.wire.batch_header import BatchHeader
from holdfast.wire.batch_records import ControlType


class _Open:
    """An aborted transaction whose marker is not met yet."""

    __slots__ = ("is_seen", "transaction")

    def __init__(self, transaction: AbortedTransaction) -> None:
        self.transaction = transaction
        self.is_seen = False  # a batch of it is there


class SeenTransactions:
    """Of one pass."""

    __slots__ = ("_aborted", "_coming", "_committed", "_kept")

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._coming = deque(sorted(aborted, key=attrgetter("first_offset")))
        self._aborted: dict[int, _Open] = {}  # by producer id
        self._committed: set[int] = set()  # producers with batches of no aborted transaction
        self._kept: list[AbortedTransaction] = []

    def is_aborted(self, header: BatchHeader) -> bool:
        """Take note of a batch of records. True: all of them may go."""
        self._open_up_to(header.last_offset)
        if not header.is_transactional:
            return False
        found = self._aborted.get(header.producer_id)
        if found is None or header.base_offset > found.transaction.last_offset:
            # Its marker may be one that nobody can read: what comes behind it is another's.
            self._committed.add(header.producer_id)
            return False
        found.is_seen = True
        return True

    def may_go(self, header: BatchHeader, kind: int) -> bool:
        """Take note of a marker, or another control record. True: it says nothing any more."""
        self._open_up_to(header.last_offset)
        if kind == ControlType.ABORT:
            found = self._aborted.pop(header.producer_id, None)
            if found is None or not found.is_seen:
                return True
            self._kept.append(found.transaction)
            return False
        if kind == ControlType.COMMIT:
            is_seen = header.producer_id in self._committed
            self._committed.discard(header.producer_id)
            return not is_seen
        return False

    def take_kept(self) -> list[AbortedTransaction]:
        """Return those whose markers were met since the last call, and whose batches are there."""
        kept, self._kept = self._kept, []
        return kept

    def _open_up_to(self, offset: int) -> None:
        while self._coming and self._coming[0].first_offset <= offset:
            transaction = self._coming.popleft()
            before = self._aborted.get(transaction.producer_id)
            if before is not None and before.is_seen:
                self._kept.append(before.transaction)
            self._aborted[transaction.producer_id] = _Open(transaction)
