"""The end of a run: what differs is a failed check, and what can't be read to its end is undecided.

Goal: no replica escapes the comparison, and no run that could not be read to its end is kept; nor
is it called broken. Method: a made-up run over real log files; each way in which its end can fail
is met once.
"""

from __future__ import annotations

from collections.abc import Callable
from errno import ENOSPC
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from holdfast.clients.blocking_driver import NoLeaderError
from holdfast.clients.replica_files import StoredReplica, stored_replica
from holdfast.clients.workload.payload import digest_of, value_for
from holdfast.clients.workload.recorder import Recorder
from holdfast.judge.checker import judge
from holdfast.judge.history import (
    Acknowledged,
    Delivered,
    Event,
    Fault,
    Position,
    Replica,
    ReplicaBatch,
    ReplicaRecord,
    Unknown,
    read_events,
)
from holdfast.judge.verdict import Anomaly
from holdfast.lab.evidence import events_of, history_files
from holdfast.lab.parameters import LabError
from holdfast.lab.run import Run
from holdfast.lab.steps import closing
from holdfast.lab.workload_processes import HistoryTail
from holdfast.wire.batch import Record, assign, build_batch
from holdfast.wire.messages.fetch import FetchRequest
from holdfast.wire.messages.list_offsets import ListOffsetsRequest


def batch_of(records: int, base: int = 0) -> bytes:
    batch = build_batch([Record(value=b"v", timestamp=5)] * records)
    assign(batch, base, 0)
    return bytes(batch)


class End:
    """As much of a run as its end looks at: two nodes that hold t-0, each on two disks."""

    def __init__(self, folder: Path) -> None:
        self.folder = self.history = folder
        self.topic = "t"
        self.ends_told: Callable[[str], dict[int, int]] | None = None
        self.while_reading: Callable[[], object] = lambda: None
        self.killed = 0
        self.told = {0: 3}  # by leaders
        self.driver = SimpleNamespace(leader=self._leader, send=self._ends, peer=self._peer)
        self.handed_out: dict[int, bytes] = {}  # by offset
        self.read_path = folder / "read"
        self.seen: list[str] = []  # in failed checks
        self.ended = set[int]()
        self.failed: list[str] = []
        self.reader_fails = False
        self.reader_fails_for = ""
        self.read = HistoryTail(folder / "nowhere")
        self.waits = 0  # in vain
        self.while_waiting: Callable[[], object] = lambda: None
        self.placement: dict[str, dict[int, tuple[int, ...]]] = {"t": {0: (1, 0)}}
        self.compacted = False
        self.keeps_all = True
        self.allowed = SimpleNamespace(
            compacts=lambda _topic: self.compacted, keeps_all=lambda _topic: self.keeps_all
        )
        self.cluster = SimpleNamespace(
            nodes=(),
            broker_ids=(0, 1),
            partitions=lambda _topic: {0: SimpleNamespace(replicas=[0, 1])},
            node=lambda node: SimpleNamespace(
                config_file=str(folder / f"{node}.properties"), log_file=str(folder / f"{node}.log")
            ),
        )
        for node in (0, 1):
            disks = ",".join(str(folder / f"{node}-{disk}") for disk in "ab")
            (folder / f"{node}.properties").write_text(f"node.id={node}\nlog.dirs={disks}\n")

    def write(self, node: int, records: int, *, disk: str = "a") -> Path:
        """One batch in a replica's files."""
        directory = self.folder / f"{node}-{disk}" / "t-0"
        directory.mkdir(parents=True)
        file = directory / f"{0:020d}.log"
        file.write_bytes(batch_of(records))
        return file

    def _leader(self, _topic: str, partition: int, *, refresh: bool) -> int:
        assert refresh  # the one of before may be dead
        if partition not in self.told:
            raise NoLeaderError("nobody leads it", 5)
        return 1

    def _ends(self, request: ListOffsetsRequest, *, node: int) -> Any:
        assert node == 1
        ((asked,),) = (topic.partitions for topic in request.topics)
        end = self.told[asked.partition_index]
        found = SimpleNamespace(error_code=6 if end < 0 else 0, offset=abs(end))
        return SimpleNamespace(topics=[SimpleNamespace(partitions=[found])])

    def _peer(self, node: int) -> Any:
        assert node == 1

        def send(request: FetchRequest, *, version: int) -> Any:
            assert version == 12  # the topic is named
            ((asked,),) = (topic.partitions for topic in request.topics)
            found = SimpleNamespace(error_code=0, records=self.handed_out.get(asked.fetch_offset))
            return SimpleNamespace(responses=[SimpleNamespace(partitions=[found])])

        return SimpleNamespace(send=send, version_of=lambda _kind: 17)

    def wait(self, what: str, condition: Callable[[], Any], _seconds: float) -> Any:
        found = condition()
        if not found:
            raise LabError(what)
        return found

    def soon(self, condition: Callable[[], bool], _seconds: float) -> bool:
        if condition():
            return True
        self.waits += 1
        self.while_waiting()
        return condition()

    def check(self, name: str, _expected: str, seen: str, *, kept: bool, **_: bool) -> bool:
        if not kept:
            self.seen.append(seen)
            self.failed.append(name)
        return kept

    def stop_workers(self) -> None:
        pass

    def kill_workers(self) -> None:
        self.killed += 1

    def note(self, _text: str) -> None:
        pass

    def start_reader(self, _name: str, **settings: object) -> Any:
        def wait(_seconds: float) -> None:
            self.while_reading()
            if self.reader_fails or settings["topic"] == self.reader_fails_for:
                raise LabError("it ended with 1")

        return SimpleNamespace(wait=wait, tail=self.read, history=self.read_path)

    @property
    def as_run(self) -> Run:
        return cast("Run", self)


@pytest.fixture
def end(tmp_path: Path) -> End:
    return End(tmp_path)


def test_replicas_that_end_at_one_offset_have_settled(end: End) -> None:
    end.write(0, 3)
    end.write(1, 3, disk="b")
    assert closing.settled_ends(end.as_run, "t") == {0: 3}
    assert end.failed == []


def test_replicas_that_end_apart_are_a_failed_check(end: End) -> None:
    end.write(0, 3)
    end.write(1, 2)
    assert closing.settled_ends(end.as_run, "t") == {}
    assert end.failed == ["replicas of t"]
    assert end.waits == 1


def test_replicas_that_still_come_nearer_are_waited_for(end: End) -> None:
    """A machine that is only too slow has broken nothing."""
    end.write(0, 9)
    behind = end.write(1, 1)
    end.while_waiting = lambda: behind.write_bytes(
        behind.read_bytes() + batch_of(2, base=2 * end.waits - 1)
    )
    assert closing.settled_ends(end.as_run, "t") == {0: 9}
    assert end.failed == []
    assert end.waits == 4  # each of them in vain


def test_a_replica_that_comes_and_goes_is_not_waited_for_without_end(end: End) -> None:
    end.write(0, 9)
    restless = end.write(1, 1)
    states = [restless.read_bytes(), restless.read_bytes() + batch_of(2, base=1)]
    end.while_waiting = lambda: restless.write_bytes(states[end.waits % 2])
    assert closing.settled_ends(end.as_run, "t") == {}
    assert end.failed == ["replicas of t"]


def test_whoever_was_to_hold_it_and_is_not_named_is_a_failed_check(end: End) -> None:
    """The metadata say whose files are looked at."""
    closing.check_placement(end.as_run, "t")
    assert end.failed == []
    others: list[dict[int, tuple[int, ...]]] = [{0: (0, 1, 2)}, {0: (0, 2)}, {0: (0, 1), 1: (0,)}]
    for wanted in others:
        end.placement["t"] = wanted
        closing.check_placement(end.as_run, "t")
    assert end.failed == ["who holds t"] * 3


def test_a_final_read_without_an_end_decides_nothing(end: End) -> None:
    """Nor does it break anything: a machine that is too slow is no broken cluster."""
    closing.final_read(end.as_run, "t", {0: 3})
    end.reader_fails = True
    with pytest.raises(LabError, match=r"P0 of t to its end.*it ended with 1"):
        closing.final_read(end.as_run, "t", {0: 3})
    assert end.failed == []


def test_a_final_read_that_is_given_nothing_for_long_is_a_failed_check(
    end: End, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: a high watermark that never comes to where the replicas end is no slow machine.

    Method: the clock goes on while the read waits, and its history does or does not.
    """
    now_s = 1000.0
    monkeypatch.setattr("holdfast.lab.steps.closing.time.monotonic", lambda: now_s)
    end.reader_fails = True

    def read(latest_s: float) -> None:
        def wait() -> None:
            nonlocal now_s
            end.read.latest_ms = latest_s * 1000
            now_s = 1060.0

        nonlocal now_s
        now_s, end.while_reading = 1000.0, wait
        with pytest.raises(LabError, match="to its end"):
            closing.final_read(end.as_run, "t", {0: 3})

    read(1050.0)
    assert end.failed == []
    read(1020.0)
    assert end.failed == ["the last read of t"]
    read(0.0)  # given nothing at all
    assert end.failed == ["the last read of t"] * 2


@pytest.mark.parametrize(
    ("told", "seen"),
    [
        ({0: 3, 1: 7}, None),
        ({0: 2, 1: 7}, "P0: 2"),
        ({0: 3}, "P1: not told"),
        ({0: 3, 1: -7}, "P1: not told"),  # NOT_LEADER_OR_FOLLOWER
    ],
    ids=["all", "one lags", "one has no leader", "one is refused"],
)
def test_an_end_that_no_leader_tells_is_a_failed_check(
    end: End, told: dict[int, int], seen: str | None
) -> None:
    """Goal: who can't be read for good has broken something; the last read alone says nothing."""
    end.told = told
    end.reader_fails = True
    with pytest.raises(LabError, match="to its end"):
        closing.final_read(end.as_run, "t", {0: 3, 1: 6})
    failed = ["high watermarks of t, as leaders tell them"]
    assert (end.failed, end.seen) == (([], []) if seen is None else (failed, [seen]))


@pytest.mark.parametrize(
    ("damage", "reads_at", "seen"),
    [
        (None, 0, None),
        (-1, 0, "t-0 at offset 0: wrong CRC"),
        (-1, 3, None),  # who has read so far is given what follows
        (16, 0, "t-0 at offset 0: no record batch at byte 0"),
    ],
    ids=["whole", "a record", "behind it", "a header"],
)
def test_a_last_read_that_is_given_no_records_is_a_failed_check(
    end: End, damage: int | None, reads_at: int, seen: str | None
) -> None:
    """Goal: librdkafka only goes on asking, so what it was given is looked at by hand."""
    end.reader_fails = True
    batch = bytearray(batch_of(3))
    if damage is not None:
        batch[damage] ^= 5
    end.handed_out = {0: bytes(batch)}
    with Recorder(end.read_path, "final") as recorder:
        recorder.record(Position, topic="t", partition=0, offset=0, reason="beginning", told=True)
        if reads_at:
            recorder.record(Delivered, topic="t", partition=0, offset=reads_at - 1, digest="")
    with pytest.raises(LabError, match="to its end"):
        closing.final_read(end.as_run, "t", {0: 3})
    assert end.failed == ([] if seen is None else ["what brokers hand out"])
    assert seen is None or end.seen[0].startswith(seen)


def test_a_node_that_ends_while_all_is_read_back_is_missed(end: End) -> None:
    """Goal: who dies behind the last fault, and is missed by no reader, has broken the promise."""
    end.write(0, 3)
    end.write(1, 3)
    states = {0: "running", 1: "running", 2: "dead"}
    end.ended = {2}
    end.cluster.nodes = tuple(SimpleNamespace(id=node) for node in states)
    end.cluster.state = states.__getitem__
    closing.conclude(end.as_run)
    assert end.failed == []
    (end.history / "replicas.jsonl").unlink()
    end.while_reading = lambda: states.update({1: "dead"})
    closing.conclude(end.as_run)
    assert end.failed == ["nodes that run at the end"]


def acknowledge(end: End, *numbers: int) -> None:
    """A producer was told of events, one of which nobody has answered."""
    with Recorder(end.history / "p.jsonl", "p") as recorder:
        for number in numbers:
            recorder.record(Acknowledged, topic="t", partition=0, id=f"p:{number}", offset=number)
        recorder.record(Unknown, topic="t", partition=0, id="p:99", error="REQUEST_TIMED_OUT")


def write_events(end: End, node: int, *numbers: int, name: str = "t-0", disk: str = "a") -> Path:
    directory = end.folder / f"{node}-{disk}" / name
    directory.mkdir(parents=True)
    file = directory / f"{0:020d}.log"
    batch = build_batch([Record(value=value_for("p", each, 40), timestamp=5) for each in numbers])
    assign(batch, 0, 0)
    file.write_bytes(bytes(batch))
    return file


BROKE_OFF = "acknowledged events, where the run broke off"


def test_what_no_replica_holds_is_broken_where_nothing_was_read_back(end: End) -> None:
    """Seen to fail: a run that loses and then breaks off was "could not be made", and repeated."""
    acknowledge(end, 1, 2, 3, 4)
    write_events(end, 0, 1)
    write_events(end, 1, 2, disk="b")
    write_events(end, 1, 3, name="t-0.5e1b-stray")  # put aside, and there
    closing.expect_kept_somewhere(end.as_run)
    assert (end.failed, end.seen[-1]) == ([BROKE_OFF], "1 of 4 in none")
    assert end.killed == 1  # who sends on is never at an end


def test_a_file_that_is_written_meanwhile_is_looked_at_again(end: End) -> None:
    acknowledge(end, 1, 2)
    write_events(end, 0, 1)
    end.while_waiting = lambda: write_events(end, 1, 2)
    closing.expect_kept_somewhere(end.as_run)
    assert (end.failed, end.waits) == ([], 1)


DAMAGED = "files of replicas, where the run broke off"


@pytest.mark.parametrize("place", [16, -1], ids=["a header", "a record"])
def test_a_damaged_file_is_broken_where_nothing_was_read_back(end: End, place: int) -> None:
    """Goal: a batch with others behind it was written whole; SIGKILL and a full disk change none.

    Method: one byte is another in the middle, at the end, in a cut, and on a disk that was hurt.
    Seen to fail: such files were passed over, and of CRCs nobody asked.
    """
    acknowledge(end, 1, 2)
    file = write_events(end, 0, 1)
    write_events(end, 1, 2)
    whole = file.read_bytes()
    damaged = bytearray(whole)
    damaged[place] ^= 5
    for behind in (b"", whole[:20], damaged if place < 0 else b""):
        file.write_bytes(whole + behind)
        closing.expect_kept_somewhere(end.as_run)
    assert end.failed == []
    end.waits = 0
    file.write_bytes(damaged + whole)
    closing.expect_kept_somewhere(end.as_run)
    assert (end.failed, end.waits) == ([DAMAGED], 1)  # it may have been read as it was written
    assert str(file) in end.seen[0]
    end.while_waiting = lambda: file.write_bytes(whole)
    closing.expect_kept_somewhere(end.as_run)
    end.while_waiting = lambda: None
    file.write_bytes(damaged)
    file.with_name(f"{1:020d}.log").write_bytes(whole)  # the last segment is another
    closing.expect_kept_somewhere(end.as_run)
    assert end.failed == [DAMAGED] * 2
    with Recorder(end.history / "lab.jsonl", "lab") as recorder:
        recorder.record(Fault, action="DISK", node=0, detail="cut back")
    closing.expect_kept_somewhere(end.as_run)
    assert end.failed == [DAMAGED] * 2


def test_nobody_is_blamed_for_what_can_not_be_read_or_was_let_go(end: End) -> None:
    acknowledge(end, 1, 2)
    file = write_events(end, 0, 1)
    whole = file.read_bytes()
    file.unlink()
    file.mkdir()
    closing.expect_kept_somewhere(end.as_run)
    file.rmdir()
    file.write_bytes(whole)
    end.keeps_all = False
    closing.expect_kept_somewhere(end.as_run)
    end.keeps_all, end.ends_told = True, lambda _topic: {}  # a cluster whose files are elsewhere
    closing.expect_kept_somewhere(end.as_run)
    assert end.failed == []
    end.ends_told = None
    closing.expect_kept_somewhere(end.as_run)
    assert end.failed == [BROKE_OFF]


def test_what_the_replicas_hold_is_written_down_also_where_the_read_has_no_end(end: End) -> None:
    """What differs between them is broken, whatever became of the read."""
    end.write(0, 3)
    end.write(1, 3)
    end.reader_fails = True
    with pytest.raises(LabError, match="to its end"):
        closing.conclude(end.as_run)
    with (end.history / "replicas.jsonl").open("rb") as file:
        assert [each.node for each in read_events(file) if isinstance(each, Replica)] == [0, 1]


def test_every_replica_is_written_down_on_whatever_disk_it_is(end: End) -> None:
    end.write(0, 3)
    end.write(1, 3, disk="b")
    events = noted(end)
    assert [(one.node, one.begin, one.end) for one in events if isinstance(one, Replica)] == [
        (0, 0, 3),
        (1, 0, 3),
    ]
    assert sum(isinstance(one, ReplicaBatch) for one in events) == 2
    assert end.failed == []


def test_a_replica_whose_files_are_damaged_or_gone_is_a_failed_check(end: End) -> None:
    file = end.write(0, 3)
    data = bytearray(file.read_bytes())
    data[16] = 7  # no batch has this magic
    file.write_bytes(data + file.read_bytes())
    closing.note_replicas(end.as_run, "t")
    assert end.failed == ["t-0, files of 0", "t-0, files of 1"]


def noted(end: End) -> list[Event]:
    """Write down what the replicas hold; return all of it."""
    closing.note_replicas(end.as_run, "t")
    (path,) = history_files(end.history)
    with path.open("rb") as file:
        return list(read_events(file))


@pytest.mark.parametrize(
    "problem", [KeyboardInterrupt(), OSError(ENOSPC, "No space left on device")], ids=["^C", "full"]
)
def test_half_of_what_replicas_hold_is_no_statement(
    end: End, monkeypatch: pytest.MonkeyPatch, problem: BaseException
) -> None:
    """Goal: a run that dies while they are written down has not seen them differ.

    Method: whatever was handed to the kernel is judged, at each line, and once it has ended there.
    Seen to fail: up to 3,516 offsets "diverged" behind Ctrl-C, and in a run that still went on.
    """
    end.write(0, 3)
    end.write(1, 3)
    record = Recorder.record
    written = 0

    def diverged() -> int:
        events = [*events_of(history_files(end.history))]
        return judge(events).judgement.count(Anomaly.DIVERGED)

    def recorded(recorder: Recorder, kind: type[Event], **values: Any) -> Event:
        nonlocal written
        event = record(recorder, kind, **values)
        recorder.flush()
        assert not diverged()
        written += 1
        if written == 3:  # the other replica's extent, and not its batch
            raise problem
        return event

    monkeypatch.setattr(Recorder, "record", recorded)
    with pytest.raises(type(problem)):
        closing.note_replicas(end.as_run, "t")
    assert not diverged()
    monkeypatch.undo()
    assert sum(isinstance(each, Replica) for each in noted(end)) == 2


def test_what_replicas_of_one_topic_hold_stands_whatever_becomes_of_the_next(end: End) -> None:
    end.write(0, 3)
    end.write(1, 3)
    end.placement["u"] = {0: (1, 0)}
    end.reader_fails_for = "u"
    with pytest.raises(LabError, match="of u to its end"):
        closing.conclude(end.as_run)
    found = [each for each in events_of(history_files(end.history)) if isinstance(each, Replica)]
    assert [(each.topic, each.node) for each in found] == [("t", 0), ("t", 1)]


def test_who_interrupts_the_last_read_waits_for_no_replica(
    end: End, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: Ctrl-C ends a run, and nothing that fails behind it takes its place."""

    def interrupt() -> None:
        raise KeyboardInterrupt

    def fail(*_: object) -> None:
        raise LabError("nobody says who holds it")

    end.write(0, 3)
    end.write(1, 3)
    end.while_reading = interrupt
    monkeypatch.setattr(closing, "note_replicas", fail)
    with pytest.raises(KeyboardInterrupt):
        closing.conclude(end.as_run)


def test_replicas_that_compact_are_written_down_record_by_record(end: End) -> None:
    end.compacted = True
    value = value_for("p", 7, 20)
    batch = build_batch([Record(key=b"k", value=value, timestamp=5), Record(key=b"l", timestamp=6)])
    assign(batch, 3, 2)
    end.write(0, 1).write_bytes(bytes(batch))
    end.write(1, 1)
    found = [each for each in noted(end) if isinstance(each, ReplicaRecord) and each.node == 0]
    assert [(each.offset, each.epoch, each.id, each.key, each.timestamp) for each in found] == [
        (3, 2, "p:7", "k", 5),
        (4, 2, None, "l", 6),
    ]
    assert [each.digest for each in found] == [digest_of(value), digest_of(None)]


@pytest.mark.parametrize("ends", [True, False])
def test_a_look_in_the_middle_of_a_swap_counts_for_nothing(end: End, ends: bool) -> None:
    """Seen to fail: the old segments were gone, and the new one had no name yet."""
    end.compacted = True
    segment = end.write(0, 2)
    end.write(1, 2)
    swap = segment.with_name(segment.name + ".swap")
    segment.rename(swap)

    def finish() -> None:
        if ends and swap.exists():
            swap.rename(segment)

    end.while_waiting = finish
    noted(end)
    assert end.failed == ([] if ends else ["t-0, files of 0"])


def test_a_look_during_which_segments_changed_counts_for_nothing(
    end: End, monkeypatch: pytest.MonkeyPatch
) -> None:
    end.compacted = True
    end.write(0, 2)
    other = end.write(1, 2)

    def rolls(directory: Path) -> StoredReplica:
        found = stored_replica(directory)
        if directory == other.parent:
            (directory / f"{2:020d}.log").write_bytes(batch_of(1, 2))
        return found

    monkeypatch.setattr("holdfast.lab.steps.closing.stored_replica", rolls)
    ends = [each.end for each in noted(end) if isinstance(each, Replica)]
    assert (ends, end.failed) == ([2, 3], [])
