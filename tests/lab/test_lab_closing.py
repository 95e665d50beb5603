"""The end of a run: what can't be looked at is a failed check, never nothing.

Goal: no replica escapes the comparison, and no run that could not be read to its end is kept.
Method: a made-up run over real log files; each way in which its end can fail is met once.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from holdfast.clients.recorder import Recorder
from holdfast.judge.history import Replica, ReplicaBatch, read_events
from holdfast.lab import closing
from holdfast.lab.parameters import LabError
from holdfast.lab.run import Run
from holdfast.wire.batch import Record, assign, build_batch


class End:
    """As much of a run as its end looks at: two nodes that hold t-0, each on two disks."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.topic = "t"
        self.failed: list[str] = []
        self.reader_fails = False
        self.placement: dict[str, dict[int, tuple[int, ...]]] = {"t": {0: (1, 0)}}
        self.cluster = SimpleNamespace(
            partitions=lambda _topic: {0: SimpleNamespace(replicas=[0, 1])},
            node=lambda node: SimpleNamespace(config_file=str(folder / f"{node}.properties")),
        )
        for node in (0, 1):
            disks = ",".join(str(folder / f"{node}-{disk}") for disk in "ab")
            (folder / f"{node}.properties").write_text(f"node.id={node}\nlog.dirs={disks}\n")

    def write(self, node: int, records: int, *, disk: str = "a") -> Path:
        """One batch in a replica's files."""
        directory = self.folder / f"{node}-{disk}" / "t-0"
        directory.mkdir(parents=True)
        batch = build_batch([Record(value=b"v", timestamp=5)] * records)
        assign(batch, 0, 0)
        file = directory / f"{0:020d}.log"
        file.write_bytes(batch)
        return file

    def wait(self, what: str, condition: Callable[[], Any], _seconds: float) -> Any:
        found = condition()
        if not found:
            raise LabError(what)
        return found

    def check(self, name: str, _expected: str, _seen: str, *, kept: bool) -> bool:
        if not kept:
            self.failed.append(name)
        return kept

    def note(self, _text: str) -> None:
        pass

    def start_reader(self, _name: str, **_settings: object) -> Any:
        def wait(_seconds: float) -> None:
            if self.reader_fails:
                raise LabError("it ended with 1")

        return SimpleNamespace(wait=wait)

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


def test_whoever_was_to_hold_it_and_is_not_named_is_a_failed_check(end: End) -> None:
    """The metadata say whose files are looked at."""
    closing.check_placement(end.as_run, "t")
    assert end.failed == []
    others: list[dict[int, tuple[int, ...]]] = [{0: (0, 1, 2)}, {0: (0, 2)}, {0: (0, 1), 1: (0,)}]
    for wanted in others:
        end.placement["t"] = wanted
        closing.check_placement(end.as_run, "t")
    assert end.failed == ["who holds t"] * 3


def test_a_final_read_that_breaks_off_is_a_failed_check(end: End) -> None:
    assert closing.final_read(end.as_run, "t", {0: 3})
    assert end.failed == []
    end.reader_fails = True
    assert not closing.final_read(end.as_run, "t", {0: 3})
    assert end.failed == ["final read"]


def test_every_replica_is_written_down_on_whatever_disk_it_is(end: End) -> None:
    end.write(0, 3)
    end.write(1, 3, disk="b")
    path = end.folder / "replicas.jsonl"
    with Recorder(path, "replicas") as recorder:
        closing.note_replicas(end.as_run, recorder, "t")
    with path.open("rb") as file:
        events = list(read_events(file))
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
    with Recorder(end.folder / "replicas.jsonl", "replicas") as recorder:
        closing.note_replicas(end.as_run, recorder, "t")
    assert end.failed == ["t-0, files of 0", "t-0, files of 1"]
