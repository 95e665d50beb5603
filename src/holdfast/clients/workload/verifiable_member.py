"""A consumer in a group that writes down what it does; a process of its own.

`python -m holdfast.clients.workload.verifiable_member --help`. Made of confluent-kafka, so of a
real client, in either protocol. It asks for the committed offset of what it was given, as its
client does, so that the history says where it began and why; it processes record by record, and
commits as it is told. SIGTERM and SIGINT: finish the batch, commit, leave.

While the file `--hold` is there the member stands still in the middle of a batch, as if it were
busy with a record, and its heartbeats go on. So whoever drives a run can kill it exactly there.
"""

from __future__ import annotations

import struct
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from holdfast.clients.blocking_driver import Driver, DriverError
from holdfast.clients.workload.command import on_stop
from holdfast.clients.workload.group_diary import GroupDiary, Membership, now_ms
from holdfast.clients.workload.member_commits import Commits
from holdfast.clients.workload.member_options import Options, parse
from holdfast.clients.workload.member_sink import GoneOnError, OtherWriterError, Result, Sink
from holdfast.clients.workload.payload import id_of
from holdfast.clients.workload.recorder import Recorder

POLL_S = 0.05
HOLD_S = 0.01
MORE = "+"  # behind the number in a hold file: only in a batch of more records
ASK_S = 5.0  # for what is committed, and asked again
BEGIN_S = 20.0  # for a place to begin with to be known; then the member joins anew
STALE_S = 10.0  # for a member that is behind to hear of its new generation
ALONE_S = 10.0  # without a record, until it asks whether its client reaches a broker at all
PROBE_S = 2.0  # for one that there is to tell another client of itself
FATAL_MAX = 3  # clients that may end by a fatal error, one behind the other; more won't do better
MAGIC = b"CGMDv2:"  # of what librdkafka says of a membership; a generation follows, then names
OUT = frozenset({"UNKNOWN_MEMBER_ID", "FENCED_MEMBER_EPOCH", "FENCED_INSTANCE_ID"})
BEHIND = frozenset({"ILLEGAL_GENERATION", "STALE_MEMBER_EPOCH"})


def membership_of(metadata: bytes) -> Membership:
    """Return what librdkafka says of its membership, as it writes that for a producer."""
    assert metadata.startswith(MAGIC), metadata
    (epoch,) = struct.unpack_from("=i", metadata, len(MAGIC))
    _group, member, _rest = metadata[len(MAGIC) + 4 :].split(b"\0", 2)
    return Membership(member.decode(), epoch)


@dataclass(frozen=True, slots=True)
class Begin:
    """Where to begin with a partition. `committed` None: nothing is, and the reset says so."""

    committed: int | None
    offset: int


class VerifiableMember:
    """Joins, works and leaves. Its callbacks come from within its own calls of the client."""

    def __init__(self, options: Options, recorder: Recorder) -> None:
        import confluent_kafka  # noqa: PLC0415 - `Options` is for the lab, cheaply

        self._kafka = confluent_kafka
        self._options = options
        self._diary = GroupDiary(recorder, options.group, options.topic, options.instance)
        self._commits = Commits(self._diary, options.topic)
        self._sink = None if options.sink is None else Sink(options.sink, options.sink_mode)
        self._results: list[Result] = []  # of this batch
        self._waiting: set[int] = set()  # its own, and another group may write their results
        self._untold: set[int] = set()  # its own, and nobody has said where to begin
        self._untold_s = 0.0  # since when
        self._consumer: Any = None
        self._me = Membership("", -1)  # the last that it was
        self._next: dict[int, int] = {}  # of partitions that are its own: what to process next
        self._done: dict[int, int] = {}  # processed and not committed: the offset to be committed
        self._batch: list[Any] = []
        self._batches = 0  # since the last commit
        self._behind: Membership | None = None  # a commit was refused as of a passed generation
        self._is_paused = False
        self._broken = ""  # why it has to join anew
        self._heard_s = 0.0  # when its client was last known to reach a broker
        self._doubts = 0  # of its client: how many questions have found cause for them
        self._fatal = 0  # errors that its clients could not live with, since it last began
        self._fenced = False  # another one has its instance
        self._stopping = False

    def stop(self) -> None:
        self._stopping = True

    def run(self) -> None:
        while not self._stopping and not self._fenced:
            self._join()
            while not (self._stopping or self._broken or self._fenced):
                self._turn()
            self._leave()
        if self._sink is not None:
            self._sink.close()

    def _join(self) -> None:
        self._broken = ""
        self._doubts = 0
        self._heard_s = time.monotonic()
        config = {**self._options.client_config(), "on_commit": self._commits.committed}
        self._consumer = self._kafka.Consumer(config, logger=None)
        self._consumer.subscribe(
            [self._options.topic],
            on_assign=self._assigned,
            on_revoke=self._revoked,
            on_lost=self._lost,
        )

    def _leave(self) -> None:
        if self._broken:
            self._diary.note(f"{self._options.process} joins anew: {self._broken}")
        self._give_up([*self._next, *self._untold], lost=bool(self._broken))
        self._diary.left(self._me)
        self._consumer.close()
        self._diary.flush()

    def _look(self) -> None:
        """Learn who it is now; who is thrown out stays what it was until it is a member again."""
        me = membership_of(self._consumer.consumer_group_metadata())
        if me.is_known:
            self._me = me
            self._diary.joined(me)

    # -- one batch -------------------------------------------------------------------------------

    def _turn(self) -> None:
        self._look()
        self._take_over()
        self._find_out()
        self._gather()
        self._refuse_alone()
        self._catch_up()
        if self._broken or self._fenced:
            self._batch.clear()
        if not self._batch:
            self._diary.flush()
            return
        ends = {each.partition(): each.offset() + 1 for each in self._batch}
        if self._options.commits == "before":
            self._commit(ends)
            self._catch_up()
        elif self._options.commits == "automatic":
            self._commits.store(self._consumer, self._me, ends)
        self._work()
        self._batches += 1
        if self._options.commits == "after" and self._batches >= self._options.commit_every:
            self._commit(self._done)
        self._diary.flush()

    def _gather(self) -> None:
        """Take what is there, up to a batch; wait a little where there is less."""
        begin_s = time.monotonic()
        full_s = begin_s + self._options.linger_ms / 1000
        # What is thrown away must not keep it here for ever.
        last_s = max(full_s, begin_s + POLL_S)
        while len(self._batch) < self._options.batch and time.monotonic() < last_s:
            left_s = max(0.0, full_s - time.monotonic())
            message = self._consumer.poll(min(POLL_S, left_s) if self._batch else POLL_S)
            if message is not None:
                self._take(message)
            elif not self._batch or not left_s:
                return
            if self._broken or self._fenced:
                return

    def _refuse_alone(self) -> None:
        """Join anew with another client, if this one has lost all brokers, and they are there.

        librdkafka (2.13 to 2.16, its issue 5301) can ask nobody any more after an answer that names
        no broker. Apache Kafka's name none while all are fenced. In an outage it is kept: it comes
        back by itself, and what it is a member of is not left behind. One question a turn, for who
        polls too late is no member any more: to this client, to another one, and to this one again,
        as brokers may have come back between the two.
        """
        if time.monotonic() - self._heard_s < ALONE_S or self._untold:
            self._doubts = 0
        elif self._others_reach_brokers() if self._doubts == 1 else not self._reaches_brokers():
            self._doubts += 1
            if self._doubts > 2:
                self._broken = "its client knows no broker any more"
        else:
            self._doubts = 0
            self._heard_s = time.monotonic()

    def _reaches_brokers(self) -> bool:
        try:
            self._consumer.list_topics(self._options.topic, timeout=ASK_S)
        except self._kafka.KafkaException:
            return False
        return True

    def _others_reach_brokers(self) -> bool:
        bootstrap = self._options.bootstrap
        bound_s = PROBE_S / len(bootstrap.split(","))
        try:
            with Driver(bootstrap, self._options.process, timeout_s=bound_s) as driver:
                return bool(driver.nodes())
        except DriverError:
            return False

    def _take(self, message: Any) -> None:
        """Keep a record of what is its own. Others were fetched before it was given up."""
        error = message.error()
        if error is not None:
            self._told(error)
            return
        self._heard_s = time.monotonic()
        if message.offset() >= self._next.get(message.partition(), sys.maxsize):
            self._batch.append(message)

    def _told(self, error: Any) -> None:
        is_fatal = error.fatal() or error.name() in {"_FATAL", "FENCED_INSTANCE_ID"}
        self._fatal += is_fatal
        if is_fatal and (self._options.instance is not None or self._fatal > FATAL_MAX):
            self._fenced = True
        elif is_fatal or error.name() == "_AUTO_OFFSET_RESET":
            self._broken = error.str()
        self._diary.note(f"{self._options.process} was told: {error.name()}: {error.str()}")

    def _work(self) -> None:
        batch, total = self._batch, len(self._batch)
        self._is_paused = self._options.pause
        if self._is_paused:
            self._consumer.pause(self._consumer.assignment())
        done = 0
        while batch:
            self._hold(done, total)
            self._process(batch.pop(0))
            done += 1
            if self._sink is not None and not self._sink.keeps_positions:
                self._put_results()  # each for itself, as the record is done
            if self._is_paused:  # callbacks are served, and may take what is left of the batch
                message = self._consumer.poll(0)
                if message is not None:
                    self._take(message)
        self._hold(done, total)
        self._put_results()
        if self._is_paused:
            self._is_paused = False
            self._consumer.resume(self._consumer.assignment())

    def _process(self, message: Any) -> None:
        partition, offset = message.partition(), message.offset()
        if offset < self._next.get(partition, sys.maxsize):
            return
        begin_ms = now_ms()
        if self._options.work_ms:
            time.sleep(self._options.work_ms / 1000)
        self._diary.processed(self._me, partition, offset, id_of(message.value()), begin_ms)
        self._diary.flush()  # else what was done before a SIGKILL is never seen to be done again
        self._next[partition] = offset + 1
        if self._sink is not None:
            name = id_of(message.value()) or f"{partition}:{offset}"
            self._results.append(Result(name, partition, offset, self._options.process, now_ms()))
        if self._options.commits != "before":
            self._done[partition] = offset + 1

    def _hold(self, done: int, total: int) -> None:
        """Stand still here, if the file says so: behind so many records of a batch."""
        if self._options.hold is None or not self._options.hold.exists():
            return
        told = self._options.hold.read_text()
        wanted = int(told.rstrip(MORE) or "0")
        if done != min(wanted, total) or (told.endswith(MORE) and total <= wanted):
            return
        self._diary.note(f"{self._options.process} holds with {done} of {total} records processed")
        while self._options.hold.exists() and not self._stopping:
            time.sleep(HOLD_S)

    # -- results ---------------------------------------------------------------------------------

    def _put_results(self) -> None:
        """Put what came of the batch where results go, before anything of it is committed."""
        results, self._results = self._results, []
        if self._sink is None or not results:
            return
        self._diary.flush()
        begin: dict[int, int] = {}
        for each in results:
            begin.setdefault(each.partition, each.offset)
        try:
            self._sink.put(self._options.group, results, begin)
        except GoneOnError as error:
            self._diary.note(f"{self._options.process} puts nothing in: {error}")
            self._give_up(list(self._next), lost=True)
        except OtherWriterError as error:
            self._diary.note(f"{self._options.process} puts nothing in: {error}")
            self._waiting.update(self._next)
            self._next.clear()
            self._batch.clear()

    def _take_over(self) -> None:
        """Go on with what waits, where the results end, once this group may write them.

        Until then it has read along and thrown away, so that nothing has to warm up.
        """
        if self._sink is None or not self._waiting or not self._may_write(self._sink):
            return
        for partition in sorted(self._waiting):
            if not self._has_gone_to(partition, self._sink.position(partition)):
                return
            self._waiting.discard(partition)
            self._next[partition] = self._begin_behind(self._sink, partition)

    def _may_write(self, sink: Sink) -> bool:
        return sink.writer() in {None, self._options.group}

    def _begin_behind(self, sink: Sink, partition: int) -> int:
        """Return, and write down, where the results of a partition end."""
        begin_ms = now_ms()
        offset = sink.position(partition)
        self._diary.started(
            self._me, partition, committed=None, offset=offset, reset="stored", begin_ms=begin_ms
        )
        return offset

    # -- commits ---------------------------------------------------------------------------------

    def _commit(self, offsets: Mapping[int, int]) -> None:
        """Commit, wait for the answer, and act on what it tells of the membership."""
        offsets = dict(offsets)
        if not offsets or self._options.commits == "never":
            return
        self._batches = 0
        self._look()
        me = self._me
        refused = self._commits.commit(self._consumer, me, offsets)
        for partition, offset in offsets.items():
            if partition not in refused and self._done.get(partition) == offset:
                del self._done[partition]
        errors = set(refused.values())
        if errors & OUT:  # the client hears of it as well, and tells a moment later
            self._give_up([*self._next, *self._untold], lost=True)
            self._fenced = self._fenced or "FENCED_INSTANCE_ID" in errors
        elif errors & BEHIND:
            self._behind = me

    def _catch_up(self) -> None:
        """Process nothing until it is known what a new generation leaves to this member."""
        until_s = time.monotonic() + STALE_S
        while self._me == self._behind and not self._stopping and time.monotonic() < until_s:
            self._consumer.pause(self._consumer.assignment())
            message = self._consumer.poll(POLL_S)
            if message is not None:
                self._take(message)
            self._look()
        if self._behind is not None:
            self._behind = None
            self._consumer.resume(self._consumer.assignment())

    # -- what it owns ----------------------------------------------------------------------------

    def _assigned(self, consumer: Any, partitions: list[Any]) -> None:
        """Take what is given at once, and find out in the next turn where to begin.

        Until it has taken them librdkafka tells a new coordinator that it has nothing, and others
        are given the same partitions.
        """
        self._look()
        mine = [each.partition for each in partitions]
        self._diary.assigned(self._me, mine)
        places = self._begin(mine)
        given = [self._place(each, places.get(each, self._ahead(each))) for each in mine]
        if self._options.is_incremental:
            consumer.incremental_assign(given)
        else:
            consumer.assign(given)
        if self._is_paused and given:
            consumer.pause(given)
        self._next.update(places)
        self._diary.flush()

    def _place(self, partition: int, offset: int) -> Any:
        return self._kafka.TopicPartition(self._options.topic, partition, offset)

    def _ahead(self, partition: int) -> int:
        """Return where to read along while another group may write, or until it is told."""
        if partition in self._waiting and self._sink is not None:
            return self._sink.position(partition)
        # Not where its client finds it committed: refused once, librdkafka does not ask for that
        # again. Nor the end: what a seek follows too soon may be read from here all the same.
        return int(self._kafka.OFFSET_BEGINNING)

    def _begin(self, partitions: list[int]) -> dict[int, int]:
        """Return where results end; nothing, while another may write, or if it is to be asked."""
        if not partitions:
            return {}
        if self._sink is None or not self._sink.keeps_positions:
            if not self._untold:
                self._untold_s = time.monotonic()
            self._untold.update(partitions)
            return {}
        if self._may_write(self._sink):
            return {each: self._begin_behind(self._sink, each) for each in partitions}
        self._waiting.update(partitions)
        return {}

    def _find_out(self) -> None:
        """Ask where to begin with what is its own, and go there; or join anew, in the end.

        What came meanwhile was thrown away.
        """
        if not self._untold:
            return
        begin_ms = now_ms()
        for partition, place in self._ask_begin(sorted(self._untold)).items():
            if self._has_gone_to(partition, place.offset):
                self._untold.discard(partition)
                self._started(partition, place, begin_ms)
                self._next[partition] = place.offset
        if self._untold and time.monotonic() - self._untold_s >= BEGIN_S:
            self._broken = "nobody has told where to begin"

    def _has_gone_to(self, partition: int, offset: int) -> bool:
        """Whether the client reads from there. Not yet, where it was given only just now."""
        try:
            self._consumer.seek(self._place(partition, offset))
        except self._kafka.KafkaException:
            return False
        return True

    def _started(self, partition: int, place: Begin, begin_ms: float) -> None:
        self._fatal = 0
        self._diary.started(
            self._me,
            partition,
            committed=place.committed,
            offset=place.offset,
            reset=self._options.reset if place.committed is None else "",
            begin_ms=begin_ms,
        )

    def _ask_begin(self, partitions: list[int]) -> dict[int, Begin]:
        """Ask once where to begin with each; return those of which it was told in time."""
        found = {}
        share_s = ASK_S / len(partitions)
        try:
            committed = self._ask_committed(partitions)
        except self._kafka.KafkaException as error:
            self._ask_again(error)
            return {}
        for partition, offset in committed.items():
            # Its leader is asked in any case: a seek that overtakes the client's own question where
            # the log begins is made good half a second later, from there.
            try:
                reset = self._ask_reset(partition, share_s)
            except self._kafka.KafkaException as error:
                if offset is None:
                    self._ask_again(error)
                    continue
            found[partition] = Begin(offset, reset if offset is None else offset)
        return found

    def _ask_again(self, error: Any) -> None:
        why = error.args[0]
        self._diary.note(f"{self._options.process} asks again: {why.str()}")
        if why.name() in OUT:
            self._broken = "nobody has told where to begin"

    def _ask_committed(self, partitions: Iterable[int]) -> dict[int, int | None]:
        places = [self._kafka.TopicPartition(self._options.topic, each) for each in partitions]
        found: dict[int, int | None] = {}
        for each in self._consumer.committed(places, timeout=ASK_S):
            if each.error is not None:
                raise self._kafka.KafkaException(each.error)
            found[each.partition] = each.offset if each.offset >= 0 else None
        return found

    def _ask_reset(self, partition: int, bound_s: float) -> int:
        """Return where a partition begins for who has committed nothing."""
        place = self._kafka.TopicPartition(self._options.topic, partition)
        low, high = self._consumer.get_watermark_offsets(place, timeout=bound_s)
        return int(low if self._options.reset == "earliest" else high)

    def _revoked(self, _consumer: Any, partitions: list[Any]) -> None:
        self._give_up([each.partition for each in partitions], lost=False)

    def _lost(self, _consumer: Any, partitions: list[Any]) -> None:
        self._give_up([each.partition for each in partitions], lost=True)

    def _give_up(self, partitions: list[int], *, lost: bool) -> None:
        """Process nothing more of these; commit what was done, unless they are gone already."""
        mine = [partition for partition in partitions if partition in self._next]
        self._batch[:] = [each for each in self._batch if each.partition() not in mine]
        done = {each: self._done.pop(each) for each in mine if each in self._done}
        for partition in mine:
            del self._next[partition]
        waiting = (self._waiting | self._untold).intersection(partitions)
        self._waiting -= waiting
        self._untold -= waiting
        if done and not lost and self._options.commits == "after" and not self._options.careless:
            self._commit(done)
        if lost:
            self._commits.forget(mine)
        self._diary.revoked(self._me, [*mine, *sorted(waiting)], lost=lost)


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    with Recorder(options.history, options.process) as recorder:
        member = VerifiableMember(options, recorder)
        on_stop(member.stop)
        member.run()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
