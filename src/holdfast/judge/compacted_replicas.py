"""Rules about replicas that compact each on its own: what one lacks, it has a later record for.

Their files differ, so records are compared instead of bytes. What the last whole read was given is
held against them as if it were one more replica: a record that one of them has kept, and it was not
given, must be replaced there, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from holdfast.judge.compaction import Survivors
from holdfast.judge.deliveries import Records, WholeRead
from holdfast.judge.history import Delivered, Event, ReplicaRecord
from holdfast.judge.replicas import ReplicaFiles
from holdfast.judge.sends import ABSENT, Sends
from holdfast.judge.verdict import Anomaly, LogFindings


@dataclass(frozen=True, slots=True)
class Holder:
    """One log: a replica's, or that which the last whole read was given."""

    name: str
    begin: int
    end: int
    found: dict[int, tuple[int, int, int]]  # by offset: code, epoch, which one of its source
    survivors: Survivors
    source: ReplicaFiles | WholeRead

    def event(self, offset: int, records: Records) -> Event:
        """Make the event again that says what stands at an offset."""
        index = self.found[offset][2]
        if isinstance(self.source, ReplicaFiles):
            return self.source.record(index, records)
        return self.source.reader.event(index, records)


class CompactedReplicas:
    """All logs of one partition."""

    def __init__(
        self, sends: Sends, records: Records, findings: LogFindings, until_ms: float
    ) -> None:
        self._sends = sends
        self._records = records
        self._findings = findings
        self._until_ms = until_ms

    def survivors(self, replica: ReplicaFiles) -> Survivors:
        """Return where each key stands last in one replica."""
        stands = zip(replica.record_offsets, replica.record_codes, strict=True)
        return Survivors(self._sends, stands, self._until_ms)

    def judge(
        self, replicas: Sequence[ReplicaFiles], whole: WholeRead | None, read: Survivors
    ) -> None:
        """Hold all against each other. `read`: where each key stands last in the whole read."""
        holders = [self._replica(each) for each in replicas]
        if whole is not None:
            holders.append(_read(whole, read))
        for replica in replicas:
            self._judge_batches(replica)
        known: dict[int, Holder] = {}
        for holder in holders:
            for offset in holder.found:
                first = known.setdefault(offset, holder)
                if first is not holder and not _is_same(first, holder, offset):
                    self._tell_other(first, holder, offset)
        for holder in holders:
            for offset in sorted(known.keys() - holder.found.keys()):
                if holder.begin <= offset < holder.end:
                    self._judge_lacking(holder, known[offset], offset)

    def _replica(self, replica: ReplicaFiles) -> Holder:
        columns = zip(
            replica.record_offsets, replica.record_codes, replica.record_epochs, strict=True
        )
        found = {
            offset: (code, epoch, index) for index, (offset, code, epoch) in enumerate(columns)
        }
        name = f"replica {replica.node}"
        return Holder(name, replica.begin, replica.end, found, self.survivors(replica), replica)

    def _judge_batches(self, replica: ReplicaFiles) -> None:
        """Records rise along a file, and each stands in one of its batches."""
        for before, offset in pairwise(replica.record_offsets):
            if offset <= before and self._findings.count(Anomaly.DIVERGED):
                text = f"replica {replica.node} holds offset {offset} behind {before}"
                self._findings.tell(Anomaly.DIVERGED, text, replica.extent)
        for offset in replica.record_offsets:
            if not replica.holds(offset) and self._findings.count(Anomaly.DIVERGED):
                text = f"replica {replica.node} holds offset {offset}, and no batch that has it"
                self._findings.tell(Anomaly.DIVERGED, text, replica.extent)

    def _tell_other(self, first: Holder, other: Holder, offset: int) -> None:
        if self._findings.count(Anomaly.DIVERGED):
            text = f"offset {offset}: {first.name} and {other.name} hold different records"
            events = (each.event(offset, self._records) for each in (first, other))
            self._findings.tell(Anomaly.DIVERGED, text, *events)

    def _judge_lacking(self, holder: Holder, other: Holder, offset: int) -> None:
        """What another one has is replaced here by a later record of its key."""
        code = other.found[offset][0]
        if holder.survivors.replace(code, offset) or not self._findings.count(Anomaly.DIVERGED):
            return
        event = other.event(offset, self._records)
        assert isinstance(event, Delivered | ReplicaRecord)
        text = (
            f"offset {offset}: {holder.name} lacks {event.id}, which {other.name} has, and no "
            f"later record of {event.key}"
        )
        self._findings.tell(Anomaly.DIVERGED, text, event)


def _read(whole: WholeRead, survivors: Survivors) -> Holder:
    log, epochs = whole.log, whole.reader.epochs
    columns: Iterator[tuple[int, int, int]] = zip(log.offsets, log.codes, log.indexes, strict=True)
    found = {offset: (code, epochs[index], index) for offset, code, index in columns}
    event = whole.event
    return Holder("the last whole read", event.begin, event.end, found, survivors, whole)


def _is_same(one: Holder, other: Holder, offset: int) -> bool:
    (code, epoch, _), (other_code, other_epoch, _) = one.found[offset], other.found[offset]
    return code == other_code and (epoch == other_epoch or ABSENT in {epoch, other_epoch})
