"""Rules about replicas: wherever both should have bytes, they have the same."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from holdfast.judge.compacted_replicas import CompactedReplicas
from holdfast.judge.deliveries import Records, WholeRead
from holdfast.judge.expiry import Cover, Expiries
from holdfast.judge.history import Event
from holdfast.judge.replicas import Difference, ReplicaFiles
from holdfast.judge.sends import Fate, Sends
from holdfast.judge.sizes import Sizes
from holdfast.judge.verdict import Anomaly, LogFindings


class ReplicaRules:
    """Replicas of one partition, held against each other and against the last whole read."""

    def __init__(
        self,
        sends: Sends,
        records: Records,
        findings: LogFindings,
        expiries: Expiries,
        whole: WholeRead | None,
        sizes: Sizes,
    ) -> None:
        self._sends = sends
        self._records = records
        self._findings = findings
        self._expiries = expiries
        self._whole = whole
        self._sizes = sizes
        self.open = 0  # replicas of which nobody can say whether they may begin so late
        self.compacted: CompactedReplicas | None = None  # where each compacts on its own
        self.unread = ""  # what stands behind all that was read, in words

    def judge(self, replicas: Sequence[ReplicaFiles]) -> None:
        if not replicas:
            return
        for replica in replicas:
            self._judge_alone(replica)
        # All that any other may have, this one has.
        model = min(replicas, key=lambda replica: (replica.begin, replica.node))
        for replica in replicas:
            is_same = replica is model or self.compacted or self._judge_bytes(model, replica)
            if is_same:
                self._judge_end(model, replica)
            self._judge_begin(model, replica)
        if not self.compacted:  # each hole was held against what others have
            self._judge_holes(model, replicas)
        self._find_unread(model)

    def _judge_alone(self, replica: ReplicaFiles) -> None:
        for left, right in replica.epoch_falls():
            if self._findings.count(Anomaly.DIVERGED):
                text = (
                    f"replica {replica.node}: the leader epoch falls from {left.epoch} at offset "
                    f"{left.offset} to {right.epoch} at {right.offset}"
                )
                self._findings.tell(Anomaly.DIVERGED, text, left, right)
        for left, right in replica.overlaps():
            if self._findings.count(Anomaly.DIVERGED):
                text = (
                    f"replica {replica.node}: the batch at offset {right.offset} begins before "
                    f"the one at {left.offset} ends"
                )
                self._findings.tell(Anomaly.DIVERGED, text, left, right)

        held = replica.unheld(is_compacted=self.compacted is not None)
        if held is not None and self._findings.count(Anomaly.DIVERGED):
            text = (
                f"replica {replica.node} says that it holds [{replica.begin}, {replica.end}), "
                f"and its batches hold {held}"
            )
            self._findings.tell(Anomaly.DIVERGED, text, replica.extent)

    def _judge_holes(self, model: ReplicaFiles, replicas: Sequence[ReplicaFiles]) -> None:
        """What was read stands in somebody's files. That one has it and another not is said."""
        if self._whole is None:
            return
        log = self._whole.log
        for left, right in model.gaps():
            places = range(log.place(left.last_offset + 1), log.place(right.offset))
            lacking = [
                log.offsets[place]
                for place in places
                if not any(replica.holds(log.offsets[place]) for replica in replicas)
            ]
            if lacking and self._findings.count(Anomaly.DIVERGED):
                text = (
                    f"no replica has a batch for offset {lacking[0]}, which the last whole read "
                    f"was given ({len(lacking)} in this hole)"
                )
                self._findings.tell(Anomaly.DIVERGED, text, left, right)

    def _find_unread(self, model: ReplicaFiles) -> None:
        if self._whole is not None and model.end > self._whole.event.end:
            self.unread = (
                f"replica {model.node} ends at {model.end}, the last whole read at "
                f"{self._whole.event.end}: nobody has read what stands between"
            )

    def _judge_bytes(self, model: ReplicaFiles, other: ReplicaFiles) -> bool:
        is_same = True
        for difference in model.differences(other):
            is_same = False
            if self._findings.count(Anomaly.DIVERGED):
                text = _difference_text(difference, model.node, other.node)
                self._findings.tell(Anomaly.DIVERGED, text, difference.left, difference.right)
        return is_same

    def _judge_end(self, model: ReplicaFiles, replica: ReplicaFiles) -> None:
        text = None
        if replica.end != model.end:
            text = f"replica {replica.node} ends at {replica.end}, {model.node} at {model.end}"
        elif self._whole is not None and replica.end < self._whole.event.end:
            text = (
                f"replica {replica.node} ends at {replica.end}, "
                f"the last whole read at {self._whole.event.end}"
            )
        if text is not None and self._findings.count(Anomaly.DIVERGED):
            read = None if self._whole is None else self._whole.event
            self._findings.tell(Anomaly.DIVERGED, text, model.extent, replica.extent, read)

    def _judge_begin(self, model: ReplicaFiles, replica: ReplicaFiles) -> None:
        begin = model.begin
        if self._whole is not None:
            begin = min(begin, self._whole.event.begin)
        if replica.begin <= begin:
            return
        gone: Event = replica.extent if replica.extent is not None else replica.event(0)
        cover = self._expiries.cover(gone, replica.begin, [replica], self._sizes)
        may_lack = self._is_all_replaced(replica, begin) or self._may_lack(
            cover, begin, replica.begin
        )
        if may_lack is None:
            self.open += 1
        elif not may_lack and self._findings.count(Anomaly.DIVERGED):
            text = (
                f"replica {replica.node} begins at offset {replica.begin}, the log at {begin}, "
                "and nothing allows that"
            )
            self._findings.tell(Anomaly.DIVERGED, text, model.extent, replica.extent)

    def _is_all_replaced(self, replica: ReplicaFiles, begin: int) -> bool:
        """Whether a replica has a later record of its key for all that is known before it begins.

        So begins a copy that was made of a leader whose first records were gone.
        """
        if self.compacted is None:
            return False
        survivors = self.compacted.survivors(replica)
        known = self._known(begin, replica.begin)
        return all(survivors.replace(row, offset) for row, offset in known)

    def _may_lack(self, cover: Cover, low: int, high: int) -> bool | None:
        """Whether all of [low, high) may have expired; None: nobody can say."""
        # Of what else stood there nobody knows: something that was sent must be old enough, too.
        last = high - 1
        is_certain = any(cover.allows(row, last) is not None for row in range(-1, len(self._sends)))
        if not is_certain and not cover.leaves_open(last):
            return False
        for row, offset in self._known(low, high):
            if cover.allows(row, offset) is None:
                is_certain = False
                if not cover.leaves_open(offset):
                    return False
        return True if is_certain else None

    def _known(self, low: int, high: int) -> Iterator[tuple[int, int]]:
        """Yield row and offset of what stands in the log, or was acknowledged, in [low, high)."""
        if self._whole is not None:
            log = self._whole.log
            for place in range(log.place(low), log.place(high)):
                yield self._records.row(log.codes[place]), log.offsets[place]
        for row, offset in enumerate(self._sends.offsets):
            if low <= offset < high and self._sends.fates[row] == Fate.ACKNOWLEDGED:
                yield row, offset


def _difference_text(difference: Difference, left: int, right: int) -> str:
    if difference.left is not None and difference.right is not None:
        return f"offset {difference.offset}: replicas {left} and {right} hold different bytes"
    lacking = left if difference.left is None else right
    return f"offset {difference.offset}: replica {lacking} has no batch that begins here"
