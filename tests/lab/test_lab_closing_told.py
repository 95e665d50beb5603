"""The end of a run: what it asks, waits for, says and leaves, compared whole.

Goal: the last read is of the right topic, partitions and ends, with a bound that grows with them;
what fails is said with what was seen. Method: a made-up run over real log files writes down all
that its end asks of it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from holdfast.clients.blocking_driver import NoLeaderError
from holdfast.clients.replica_files import stored_replica
from holdfast.judge.history import Event, Replica, ReplicaBatch
from holdfast.lab.evidence import events_of, history_files
from holdfast.lab.parameters import LabError
from holdfast.lab.run import SETTLE_S, WORK_S, Run
from holdfast.lab.steps import closing
from holdfast.lab.workload_processes import HistoryTail
from holdfast.wire.batch import Record, assign, build_batch

Nodes = dict[int, list[int]]


class Told:
    """A run of two topics on two nodes, that writes down all it is asked."""

    def __init__(self, folder: Path) -> None:
        self.history = folder
        self.topic = "t"
        self.ends_told = None
        self.ended = set[int]()
        self.said: list[tuple[Any, ...]] = []
        self.held: dict[str, Nodes] = {"t": {1: [1], 0: [0, 1]}, "other": {0: [1]}}
        self.placement: dict[str, dict[int, tuple[int, ...]]] = {"t": {1: (1,), 0: (0, 1)}}
        self.reader_fails = False
        self.driver = SimpleNamespace(leader=self._leaderless)
        self.read = HistoryTail(folder / "nowhere")
        self.while_waiting: Callable[[], object] = lambda: None
        self.allowed = SimpleNamespace(compacts=lambda _topic: False)
        self.cluster = SimpleNamespace(nodes=(), partitions=self._partitions, node=self._node)
        self.properties("log.dirs={0}/a,{0}/b")

    def properties(self, text: str) -> None:
        for node in (0, 1):
            path = self.history / f"{node}.properties"
            path.write_text(f"node.id={node}\n{text.format(self.history / str(node))}\n")

    def write(self, name: str, node: int, records: int, *, disk: str = "a") -> Path:
        """Write batches of two records."""
        directory = self.history / str(node) / disk / name
        directory.mkdir(parents=True)
        data = b""
        for base in range(0, records, 2):
            batch = build_batch([Record(value=b"v", timestamp=5)] * min(2, records - base))
            assign(batch, base, 7)
            data += bytes(batch)
        file = directory / f"{0:020d}.log"
        file.write_bytes(data)
        return file

    def write_all(self) -> None:
        self.write("t-0", 0, 3)
        self.write("t-0", 1, 3, disk="b")
        self.write("t-1", 1, 5)
        self.write("other-0", 1, 2)

    def _partitions(self, topic: str) -> dict[int, Any]:
        return {p: SimpleNamespace(replicas=nodes) for p, nodes in self.held[topic].items()}

    def _leaderless(self, topic: str, _partition: int, *, refresh: bool) -> int:
        raise NoLeaderError(f"nobody leads {topic}{'' if refresh else ', as was said'}", 5)

    def _node(self, node: int) -> Any:
        return SimpleNamespace(config_file=str(self.history / f"{node}.properties"))

    def wait(self, what: str, condition: Callable[[], Any], seconds: float) -> Any:
        if ("wait", what, seconds) not in self.said:
            self.said.append(("wait", what, seconds))
        return condition()

    def soon(self, condition: Callable[[], bool], seconds: float) -> bool:
        self.said.append(("soon", seconds))
        self.while_waiting()
        return condition()

    def check(self, name: str, expected: str, seen: str, *, kept: bool, **_: bool) -> bool:
        self.said.append((name, expected, seen, kept))
        return kept

    def stop_workers(self) -> None:
        self.said.append(("stop",))

    def note(self, text: str) -> None:
        self.said.append(("note", text))

    def start_reader(self, name: str, **settings: object) -> Any:
        self.said.append(("read", name, settings))

        def wait(seconds: float) -> None:
            self.said.append(("read for", seconds))
            if self.reader_fails:
                raise LabError("it ended with 1")

        history = self.history / f"{name}.jsonl"
        return SimpleNamespace(wait=wait, tail=self.read, history=history)

    def events(self) -> list[Event]:
        return list(events_of(history_files(self.history)))

    @property
    def as_run(self) -> Run:
        return cast("Run", self)


@pytest.fixture
def run(tmp_path: Path) -> Told:
    return Told(tmp_path)


def test_all_that_the_end_of_a_run_asks_for(run: Told) -> None:
    run.write_all()
    closing.conclude(run.as_run)
    bound_s = 40.0 + 8 / 5_000
    assert run.said == [
        ("stop",),
        ("wait", "the partitions of t", SETTLE_S),
        ("soon", SETTLE_S),
        ("note", "reading everything back"),
        (
            "read",
            "final",
            {
                "topic": "t",
                "partitions": 2,
                "until_end": True,
                "timeout": bound_s,
                "end": ["0:3", "1:5"],
            },
        ),
        ("read for", bound_s + WORK_S),
    ]


def test_another_topic_is_read_under_its_own_name(run: Told) -> None:
    run.write_all()
    run.placement["other"] = {0: (1,)}
    closing.conclude(run.as_run)
    notes = [each for each in run.said if each[0] == "note"]
    assert notes == [("note", "reading everything back"), ("note", "reading other back")]
    (settings,) = (each[2] for each in run.said if each[:2] == ("read", "final-other"))
    assert settings == {
        "topic": "other",
        "partitions": 1,
        "until_end": True,
        "timeout": 40.0 + 2 / 5_000,
        "end": ["0:2"],
    }
    found = [each for each in run.events() if isinstance(each, Replica)]
    assert [(each.topic, each.node, each.end) for each in found] == [
        *(("t", 0, 3), ("t", 1, 3), ("t", 1, 5), ("other", 1, 2))
    ]


def test_a_replica_that_the_metadata_no_longer_name_is_no_end(run: Told) -> None:
    run.write_all()
    run.placement["t"] = {0: (0, 1, 2), 1: (1,)}
    closing.conclude(run.as_run)
    assert ("who holds t", "0:1:2, 1", "0:1, 1", False) in run.said


def test_every_batch_of_every_replica_is_written_down(run: Told) -> None:
    run.write_all()
    closing.conclude(run.as_run)
    told: list[tuple[object, ...]] = []
    for name, partition, node, disk in (("t-0", 0, 0, "a"), ("t-0", 0, 1, "b"), ("t-1", 1, 1, "a")):
        stored = stored_replica(run.history / str(node) / disk / name)
        told.append((partition, node, stored.begin, stored.end))
        told += [
            (partition, node, one.offset, one.last_offset, one.epoch, one.digest, one.size)
            for one in stored.batches
        ]
        assert [one.epoch for one in stored.batches] == [7] * len(stored.batches)
    seen: list[tuple[object, ...]] = []
    for event in run.events():
        assert event.process == "replicas"
        if isinstance(event, Replica):
            seen.append((event.partition, event.node, event.begin, event.end))
        elif isinstance(event, ReplicaBatch):
            assert event.topic == "t"
            seen.append(
                (event.partition, event.node, event.offset, event.last_offset, event.epoch,
                 event.digest, event.size)
            )  # fmt: skip
    assert seen == told


def test_replicas_that_end_apart_are_told_with_their_ends(run: Told) -> None:
    run.write("t-0", 0, 3)
    run.write("t-0", 1, 2)
    run.write("t-1", 1, 5)
    assert closing.settled_ends(run.as_run, "t") == {1: 5}
    ends = "{0: {0: 3, 1: 2}, 1: {1: 5}}"
    assert run.said[-1] == ("replicas of t", "end at one offset", ends, False)


def test_a_replica_that_is_nowhere_ends_nowhere(run: Told) -> None:
    run.write("t-0", 0, 3)
    run.write("t-1", 1, 5)
    assert closing.settled_ends(run.as_run, "t") == {1: 5}
    ends = "{0: {0: 3, 1: -1}, 1: {1: 5}}"
    assert run.said[-1] == ("replicas of t", "end at one offset", ends, False)


def test_a_replica_whose_files_are_damaged_ends_nowhere(run: Told) -> None:
    run.write("t-0", 0, 3)
    run.write("t-0", 1, 3).write_bytes(b"\0" * 16 + b"\7" + b"\0" * 100)
    run.write("t-1", 1, 5)
    assert closing.settled_ends(run.as_run, "t") == {1: 5}
    ends = "{0: {0: 3, 1: -1}, 1: {1: 5}}"
    assert run.said[-1] == ("replicas of t", "end at one offset", ends, False)


def test_replicas_are_waited_for_while_all_together_come_nearer(run: Told) -> None:
    """One partition's replicas part by less than the other's come nearer, and then nobody moves."""
    run.held["t"] = {0: [0, 1], 1: [0, 1]}
    for node, ends in ((0, (20, 9)), (1, (1, 9))):
        for partition, end in enumerate(ends):
            run.write(f"t-{partition}", node, end)
    behind = run.history / "1/a/t-0" / f"{0:020d}.log"
    ahead = run.history / "0/a/t-1" / f"{0:020d}.log"

    def move_once() -> None:
        if run.said.count(("soon", SETTLE_S)) == 1:
            behind.write_bytes(behind.read_bytes() + _batch(1, 5))
            ahead.write_bytes(ahead.read_bytes() + _batch(9, 4))

    run.while_waiting = move_once
    assert closing.settled_ends(run.as_run, "t") == {}
    assert run.said.count(("soon", SETTLE_S)) == 2
    ends_text = "{0: {0: 20, 1: 6}, 1: {0: 13, 1: 9}}"
    assert run.said[-1] == ("replicas of t", "end at one offset", ends_text, False)


def _batch(base: int, records: int) -> bytes:
    batch = build_batch([Record(value=b"v", timestamp=5)] * records)
    assign(batch, base, 7)
    return bytes(batch)


@pytest.mark.parametrize(
    ("placed", "expected", "seen"),
    [
        ({0: (2, 1, 0), 1: (1,)}, "0:1:2, 1", "0:1, 1"),
        ({0: (0, 1)}, "0:1", "0:1, 1"),
    ],
)
def test_who_should_hold_a_partition_is_told(
    run: Told, placed: dict[int, tuple[int, ...]], expected: str, seen: str
) -> None:
    run.placement["t"] = placed
    closing.check_placement(run.as_run, "t")
    assert run.said[-1] == ("who holds t", expected, seen, False)


def test_nobody_who_holds_a_partition_is_told_as_nobody(run: Told) -> None:
    run.held["t"] = {0: []}
    closing.check_placement(run.as_run, "t")
    assert run.said[-1] == ("who holds t", "0:1, 1", "nobody", False)


def test_a_read_without_an_end_says_what_it_did_not_read(run: Told) -> None:
    run.reader_fails = True
    with pytest.raises(LabError) as error:
        closing.final_read(run.as_run, "t", {0: 3, 1: 5})
    assert str(error.value) == (
        "the last read did not read P0, P1 of t to its end, so nobody can say what is lost: "
        "it ended with 1"
    )


def test_files_that_are_gone_or_damaged_are_told(run: Told) -> None:
    run.held["t"] = {0: [0, 1]}
    file = run.write("t-0", 0, 3)
    data = bytearray(file.read_bytes())
    data[16] = 7  # no batch has this magic
    file.write_bytes(data + file.read_bytes())
    closing.note_replicas(run.as_run, "t")
    damaged, gone = run.said[1:]
    assert damaged[:2] == ("t-0, files of 0", "whole")
    assert str(file) in damaged[2]
    assert damaged[3] is False
    assert gone == ("t-0, files of 1", "whole", "node 1 has no directory t-0", False)
    assert run.events() == []


def test_where_a_replica_ends(run: Told) -> None:
    run.write_all()
    run.write("other-1", 0, 4)
    assert closing.end_of(run.as_run, 0, 0) == 3
    assert closing.end_of(run.as_run, 1, 0, "other") == 2
    assert closing.end_of(run.as_run, 0, 1, "other") == 4
    assert closing.end_of(run.as_run, 0, 1) == -1
    run.write("t-1", 0, 3).write_bytes(b"\0" * 16 + b"\7" + b"\0" * 100)
    assert closing.end_of(run.as_run, 0, 1) == -1


def test_log_directories_are_those_of_the_properties(run: Told) -> None:
    folder = run.history / "1"
    assert closing.log_directories(run.as_run, 1) == [folder / "a", folder / "b"]
    run.properties("# log.dirs=/nowhere\nlog.dirs.more=/nowhere\n log.dir = {0}/a , {0}/c=d")
    assert closing.log_directories(run.as_run, 1) == [folder / "a", folder / "c=d"]
    run.properties("log.retention.ms=5")
    with pytest.raises(FileNotFoundError) as error:
        closing.log_directories(run.as_run, 1)
    assert str(error.value) == f"{run.history / '1.properties'} names no log.dirs"


def test_a_node_without_a_directory_is_told(run: Told) -> None:
    run.write("t-0", 1, 3, disk="b")
    assert closing.replica_directory(run.as_run, 1, 0) == run.history / "1" / "b" / "t-0"
    (run.history / "0/a").mkdir(parents=True)
    (run.history / "0/a/t-0").write_text("")  # a file is no directory
    with pytest.raises(FileNotFoundError) as error:
        closing.replica_directory(run.as_run, 0, 0)
    assert str(error.value) == "node 0 has no directory t-0"
