"""Rules about replicas: wherever both should have bytes, they have the same."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from holdfast.judge.expiry import Cover, Expiries
from holdfast.judge.findings import Findings
from holdfast.judge.history import Event
from holdfast.judge.log_rules import WholeRead
from holdfast.judge.replicas import Difference, ReplicaFiles
from holdfast.judge.sends import Fate, Sends
from holdfast.judge.verdict import Anomaly

BATCH_OVERHEAD = 128  # bytes, at most, that a record of its own batch takes beside its value


class ReplicaRules:
    """Replicas of one partition, held against each other and against the last whole read."""

    def __init__(
        self,
        sends: Sends,
        findings: Findings,
        expiries: Expiries,
        whole: WholeRead | None,
    ) -> None:
        self._sends = sends
        self._findings = findings
        self._expiries = expiries
        self._whole = whole

    def judge(self, replicas: Sequence[ReplicaFiles]) -> None:
        if not replicas:
            return
        for replica in replicas:
            self._judge_alone(replica)
        # All that any other may have, this one has.
        model = min(replicas, key=lambda replica: (replica.begin, replica.node))
        for replica in replicas:
            is_same = replica is model or self._judge_bytes(model, replica)
            if is_same:
                self._judge_end(model, replica)
            self._judge_begin(model, replica)

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
        behind = replica.bytes_behind(replica.begin, self._sent_ms)
        cut_off = partial(bytes_cut_off, self._sends, self._whole, replica.begin)
        cover = self._expiries.cover(gone, lambda until_ms: behind(until_ms) + cut_off(until_ms))
        if self._may_lack(cover, begin, replica.begin):
            return
        if self._findings.count(Anomaly.DIVERGED):
            text = (
                f"replica {replica.node} begins at offset {replica.begin}, the log at {begin}, "
                "and nothing allows that"
            )
            self._findings.tell(Anomaly.DIVERGED, text, model.extent, replica.extent)

    def _may_lack(self, cover: Cover, low: int, high: int) -> bool:
        """Whether all of [low, high) may have expired."""
        if any(cover.allows(row, offset) is None for row, offset in self._known(low, high)):
            return False
        # Of what else stood there nobody knows: something that was sent must be old enough, too.
        last = high - 1
        return any(cover.allows(row, last) is not None for row in range(-1, len(self._sends)))

    def _known(self, low: int, high: int) -> Iterator[tuple[int, int]]:
        """Yield row and offset of what stands in the log, or was acknowledged, in [low, high)."""
        if self._whole is not None:
            log = self._whole.log
            for place in range(log.place(low), log.place(high)):
                yield log.codes[place], log.offsets[place]
        for row, offset in enumerate(self._sends.offsets):
            if low <= offset < high and self._sends.fates[row] == Fate.ACKNOWLEDGED:
                yield row, offset

    def _sent_ms(self, first: int, last: int) -> float:
        """When the first record in [first, last] of which anything is known was sent."""
        return sent_ms(self._sends, self._whole, first, last)


def sent_ms(sends: Sends, whole: WholeRead | None, first: int, last: int) -> float:
    """When the first record in [first, last] that the whole read found was sent; inf: unknown."""
    if whole is not None:
        log = whole.log
        for place in range(log.place(first), log.place(last + 1)):
            if log.codes[place] >= 0:
                return sends.sent_ms[log.codes[place]]
    return float("inf")


def bytes_cut_off(sends: Sends, whole: WholeRead | None, begin: int, until_ms: float) -> int:
    """How much, at most, stood behind the log's end before a moment, and was truncated later.

    Retention by size counts what is not committed, too. What may have stood before `begin` is left
    out: that it is gone must be excused itself, and so excuses nothing.
    """
    if whole is None:
        return 0
    stands = bytearray(len(sends))
    first: dict[int, int] = {}  # process -> its first record that stands
    for row in sorted(code for code in whole.log.codes if code >= 0):
        stands[row] = 1
        first.setdefault(sends.processes[row], row)
    total = 0
    for row, fate in enumerate(sends.fates):
        if stands[row] or fate == Fate.REFUSED or sends.sent_ms[row] >= until_ms:
            continue
        offset, earliest = sends.offsets[row], first.get(sends.processes[row])
        if fate == Fate.ACKNOWLEDGED and offset < 0:
            is_behind = earliest is not None and row > earliest
        else:
            is_behind = offset < 0 or offset >= begin
        total += sends.sizes[row] + BATCH_OVERHEAD if is_behind else 0
    return total


def _difference_text(difference: Difference, left: int, right: int) -> str:
    if difference.left is not None and difference.right is not None:
        return f"offset {difference.offset}: replicas {left} and {right} hold different bytes"
    lacking = left if difference.left is None else right
    return f"offset {difference.offset}: replica {lacking} has no batch that begins here"
