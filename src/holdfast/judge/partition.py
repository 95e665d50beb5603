"""The fold of one partition: every send's fate, every reader's view, every replica's bytes.

Owns what is kept of each event, and in which order the rules are asked. The rules themselves are in
`log_rules` (what became of what was sent), `reader_rules` and `replica_rules`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from holdfast.judge.compacted_replicas import CompactedReplicas
from holdfast.judge.compaction import NEVER_MS, Compactions, Survivors
from holdfast.judge.deliveries import Columns, Log, Reader, Records, WholeRead
from holdfast.judge.expiry import Cover, Expiries
from holdfast.judge.findings import FINDINGS_MAX
from holdfast.judge.history import (
    Compaction,
    DeleteRecords,
    DeletionRefused,
    Delivered,
    Event,
    LeaderChange,
    PartitionEvent,
    Position,
    ReadEnd,
    Replica,
    ReplicaBatch,
    ReplicaRecord,
    Retention,
    Send,
)
from holdfast.judge.log_rules import LogRules
from holdfast.judge.reader_rules import ReaderRules
from holdfast.judge.replica_rules import ReplicaRules
from holdfast.judge.replicas import ReplicaFiles
from holdfast.judge.sends import Fate, Outcome, Sends
from holdfast.judge.series import AvailabilityFold, Step
from holdfast.judge.sizes import Sizes
from holdfast.judge.verdict import Anomaly, Counts, PartitionJudgement, log_findings

RECORDS_MAX = 20_000_000
STEPS_MAX = 2048  # that wait to be counted together


class PartitionFold:
    """Feed it the events of one partition in order, then `finish`."""

    def __init__(
        self,
        topic: str,
        partition: int,
        records_max: int = RECORDS_MAX,
        findings_max: int = FINDINGS_MAX,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self._key = (topic, partition)
        self._records_max = records_max
        self._sends = Sends(topic, partition, records_max)
        self._records = Records(self._sends)
        self._readers: dict[str, Reader] = {}
        self._replicas: dict[int, ReplicaFiles] = {}
        self._expiries = Expiries(self._sends)
        self._compactions = Compactions()
        self._leaders: dict[str, LeaderChange] = {}  # of the highest epoch, by who saw it
        self._first_named: dict[int, LeaderChange] = {}  # of each epoch that has a leader
        self._availability = AvailabilityFold()
        self._steps: list[Step] = []
        self._findings = log_findings(topic, partition, findings_max)
        self._undecided: list[str] = []

    # -- events, as they come ------------------------------------------------------------------

    def send(self, send: Send) -> Step:
        self._sends.add(send)
        return self._step((Send, send.at_ms, send.at_ms, self._key))

    def answer(self, outcome: Outcome) -> Step:
        sent_ms = self._sends.sent_ms[self._sends.answer(outcome)]
        return self._step((type(outcome), outcome.at_ms, sent_ms, self._key))

    def _step(self, step: Step) -> Step:
        self._steps.append(step)
        if len(self._steps) >= STEPS_MAX:
            self._availability.take(self._steps)
            self._steps.clear()
        return step

    def laid_out(self, process: str, delivered: Sequence[Delivered]) -> Columns | None:
        """Lay out what one reader was given, for `extend`. None: some of it is odd."""
        return self._reader(process).laid_out(delivered, self._records)

    def extend(self, process: str, columns: Columns, *, tells_timestamp: bool) -> None:
        self._reader(process).extend(columns, tells_timestamp=tells_timestamp)

    def deliver(self, delivered: Delivered, later: int) -> None:
        """Take in a delivery behind which so many of the sends stood that are known by now."""
        reader = self._reader(delivered.process)
        end = delivered.committed_end
        if (
            end is not None
            and delivered.offset >= end
            and self._findings.count(Anomaly.UNCOMMITTED)
        ):
            text = f"{reader.process} was given offset {delivered.offset}, committed end {end}"
            self._findings.tell(Anomaly.UNCOMMITTED, text, delivered)
        if delivered.offset < reader.next_offset and self._findings.count(Anomaly.REORDERED):
            text = (
                f"{reader.process} was at offset {reader.next_offset} "
                f"and was given {delivered.offset}"
            )
            self._findings.tell(Anomaly.REORDERED, text, delivered)
        reader.add(delivered, self._records.code(delivered, len(self._sends) - later))

    def hold(self, batch: ReplicaBatch) -> None:
        self._replica(batch.node).add(batch)

    def hold_record(self, record: ReplicaRecord) -> None:
        self._replica(record.node).add_record(record, self._records.code(record, len(self._sends)))

    def note(self, event: PartitionEvent) -> None:
        """Take in what is rare. That there is any event says that the partition must be judged."""
        if isinstance(event, Position):
            self._reader(event.process).move(event)
        elif isinstance(event, ReadEnd):
            self._reader(event.process).end(event)
        elif isinstance(event, Replica):
            self._replica(event.node).note(event)
        elif isinstance(event, Retention | DeleteRecords | DeletionRefused):
            self._expiries.add(event)
        elif isinstance(event, Compaction):
            self._compactions.add(event)
        elif isinstance(event, LeaderChange):
            self._lead(event)

    def _lead(self, event: LeaderChange) -> None:
        """Hold a leader epoch against what was seen before, by this witness or by any."""
        if event.leader >= 0:
            first = self._first_named.setdefault(event.epoch, event)
            if first.leader != event.leader and self._findings.count(Anomaly.DIVERGED):
                text = (
                    f"the metadata name {event.leader} the leader of epoch {event.epoch}, "
                    f"and had named {first.leader}"
                )
                self._findings.tell(Anomaly.DIVERGED, text, first, event)
        before = self._leaders.setdefault(event.process, event)
        if event.epoch >= before.epoch:
            self._leaders[event.process] = event
        elif self._findings.count(Anomaly.DIVERGED):
            text = (
                f"the metadata name leader epoch {event.epoch}, and had named {before.epoch} before"
            )
            self._findings.tell(Anomaly.DIVERGED, text, before, event)

    def _reader(self, process: str) -> Reader:
        reader = self._readers.get(process)
        if reader is None:
            reader = self._readers[process] = Reader(
                process, self.topic, self.partition, self._records_max
            )
        return reader

    def _replica(self, node: int) -> ReplicaFiles:
        replica = self._replicas.get(node)
        if replica is None:
            replica = self._replicas[node] = ReplicaFiles(node, self.topic, self.partition)
        return replica

    # -- the verdict ---------------------------------------------------------------------------

    def finish(self) -> PartitionJudgement:
        self._availability.take(self._steps)
        # By name, so that what is found does not hang on who wrote first.
        readers = [self._readers[process] for process in sorted(self._readers)]
        self._resolve_late_sends(readers)
        whole = last_whole_read(readers)
        replicas = [each for each in self._replicas.values() if each.extent or len(each.offsets)]
        sizes = Sizes(self._sends, whole)

        def cover_at(gone: Event, begin: int) -> Cover:
            return self._expiries.cover(gone, begin, replicas, sizes)

        cover = None if whole is None else cover_at(whole.event, whole.event.begin)
        survivors = self._survivors(whole)
        reading = ReaderRules(self._sends, self._records, self._findings, readers, whole, survivors)
        reading.judge(cover, lambda told: cover_at(told, told.offset))
        files = ReplicaRules(
            self._sends, self._records, self._findings, self._expiries, whole, sizes
        )
        if self._compactions.until_ms != NEVER_MS:
            files.compacted = CompactedReplicas(
                self._sends, self._records, self._findings, self._compactions.until_ms
            )
            files.compacted.judge(replicas, whole, survivors)
        files.judge(replicas)
        log = None
        if whole is None or cover is None:
            self._undecided.append("it was not read to its end")
        else:
            log = LogRules(self._sends, self._records, self._findings, whole, cover)
            log.compaction = self._compactions.allowed_by(whole.event)
            log.survivors = survivors
            log.judge()
            self._say_late(log.late, "acknowledged")
            self._say_open(log.open, "records that were acknowledged are gone")
        self._say_late(reading.late, "read")
        self._say_open(
            reading.open, "records are gone that readers were given or told to pass over"
        )
        self._say_open(files.open, "replicas begin later than another")
        if files.unread:
            self._undecided.append(files.unread)
        return PartitionJudgement(
            topic=self.topic,
            partition=self.partition,
            counts=self._counts(log, whole),
            anomalies=dict(self._findings.counted),
            findings=tuple(self._findings.told),
            availability=self._availability.finish(),
            whole_read=whole is not None,
            expiries=() if log is None else log.expiries,
            undecided=tuple(self._undecided),
        )

    def _survivors(self, whole: WholeRead | None) -> Survivors:
        """Return where each key stands last in what the last whole read was given."""
        stands: Iterable[tuple[int, int]] = ()
        if whole is not None:
            stands = zip(whole.log.offsets, whole.log.codes, strict=True)
        return Survivors(self._sends, stands, self._compactions.until_ms)

    def _resolve_late_sends(self, readers: list[Reader]) -> None:
        """Find records whose send is behind a delivery: at that, two clocks may disagree."""
        late = self._records.late()
        if not late:
            return
        for reader in readers:
            for index in reader.resolve(late):
                row = reader.codes[index]
                if reader.at_ms[index] < self._sends.sent_ms[row]:
                    self._undecided.append(
                        f"clocks disagree: {reader.process} read {self._sends.name(row)} before "
                        "it was sent"
                    )
                    break

    def _say_late(self, count: int, what: str) -> None:
        if count:
            self._undecided.append(
                f"{count} records were {what} when the last whole read had begun, behind its end"
            )

    def _say_open(self, count: int, what: str) -> None:
        if count:
            self._undecided.append(
                f"{count} {what}, and whether retention.bytes allowed it hangs on bytes of "
                "which nobody knows whether they were ever in the log"
            )

    def _counts(self, log: LogRules | None, whole: WholeRead | None) -> Counts:
        fates = self._sends.fates
        doubtful = (Fate.UNANSWERED, Fate.UNKNOWN)
        return Counts(
            sent=len(fates),
            acknowledged=fates.count(Fate.ACKNOWLEDGED),
            refused=fates.count(Fate.REFUSED),
            unknown=fates.count(Fate.UNKNOWN),
            unanswered=fates.count(Fate.UNANSWERED),
            unknown_in_log=0
            if log is None
            else sum(place >= 0 and fates[row] in doubtful for row, place in enumerate(log.places)),
            in_log=0 if whole is None else len(whole.log),
            delivered=sum(
                len(each)
                for each in self._readers.values()
                if whole is None or each is not whole.reader
            ),
            expired=0 if log is None else sum(each.count for each in log.expiries),
        )


def last_whole_read(readers: Iterable[Reader]) -> WholeRead | None:
    """Return the read that ended last."""
    latest: tuple[Reader, int] | None = None
    for reader in readers:
        for number, (_, _, event) in enumerate(reader.ends):
            if latest is None or event.at_ms >= latest[0].ends[latest[1]][2].at_ms:
                latest = reader, number
    if latest is None:
        return None
    reader, number = latest
    first, last, asked_ms = reader.whole_read(number)
    event = reader.ends[number][2]
    log = Log(reader, first, last, event.begin, event.end)
    return WholeRead(reader, first, last, log, event, asked_ms)
