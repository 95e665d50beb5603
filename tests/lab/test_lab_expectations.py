"""Goal: what scenarios expect is told from what they see, in both directions.

Method: made-up sightings, files and changes in place of clusters: each expectation is met once, and
missed once in each way that it can be.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar, cast

import pytest

from holdfast.clients.replica_files import RECOVERY_POINTS, position_of, stored_batches
from holdfast.cluster.layout import APACHE
from holdfast.cluster.processes import START_MARK
from holdfast.config.figures import LOG_DIRS_OFFLINE
from holdfast.judge.history import IsrChange, LeaderChange
from holdfast.lab.parameters import LabError, Parameters
from holdfast.lab.report import Check, Table
from holdfast.lab.run import Run
from holdfast.lab.scenarios.disk_full import FULL, NO_SPACE, expect_end, expect_told
from holdfast.lab.scenarios.disk_lost import Return, elect_known, expect_honest_return
from holdfast.lab.scenarios.min_isr_law import (
    FACTORS,
    LEAVERS,
    STAYERS,
    Law,
    Ledger,
    cells,
    check_of,
    holds,
    law_table,
)
from holdfast.lab.scenarios.nearest_replica import received_between, samples, share_of
from holdfast.lab.steps import dead_disks as disks
from holdfast.lab.steps.expiry import begins, expect_begins
from holdfast.lab.steps.moving import expect_even
from holdfast.wire.batch import Record, build_batch
from holdfast.wire.errors import ErrorCode

T = TypeVar("T")
VICTIM = 2


class Sightings:
    """As much of a run as an expectation looks at."""

    def __init__(self, directory: Path | None = None, **replicas: Sequence[int]) -> None:
        self.checks: list[Check] = []
        self.tables: list[Table] = []
        self.notes: list[str] = []
        self.observer: Any = None
        self.ended = set[int]()
        self.topic = "foo"
        self.parameters = Parameters()
        self.partitions = range(2)
        nodes = (0, 1, 2)
        self.cluster = SimpleNamespace(
            broker_ids=nodes,
            state=lambda _node: "dead",
            node=lambda _node: SimpleNamespace(
                config_file=str(directory / "server.properties"), pid=None, process=None
            ),
        ) if directory else SimpleNamespace(broker_ids=nodes)  # fmt: skip
        self.replicas = {int(name[1:]): tuple(each) for name, each in replicas.items()}
        self.view = SimpleNamespace(
            partitions={
                int(name[1:]): SimpleNamespace(replicas=list(each), leader=each[0])
                for name, each in replicas.items()
            }
        )

    def check(self, name: str, expected: str, seen: str, *, kept: bool, **excused: bool) -> bool:
        late = excused.get("late", False) or not excused.get("given", True)
        self.checks.append(Check(name=name, expected=expected, seen=seen, kept=kept, late=late))
        return kept

    def soon(self, condition: Callable[[], bool], _bound_s: float) -> bool:
        return condition()

    def wait(self, _what: str, condition: Callable[[], T], _bound_s: float) -> T:
        found = condition()
        assert found
        return found

    def note(self, text: str) -> None:
        self.notes.append(text)

    def damage(self, node: int, detail: str) -> None:
        self.notes.append(f"{node}: {detail}")

    @property
    def as_run(self) -> Run:
        return cast("Run", self)

    @property
    def failed(self) -> list[str]:
        return [check.name for check in self.checks if not check.kept]


def isr(partition: int, *nodes: int) -> IsrChange:
    return IsrChange(at_ms=0, wall_ms=0, process="observer", topic="foo", partition=partition,
                     isr=nodes, replicas=(2, 1, 0))  # fmt: skip


def leader(partition: int, node: int) -> LeaderChange:
    return LeaderChange(at_ms=0, wall_ms=0, process="observer", topic="foo", partition=partition,
                        leader=node, epoch=1)  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "held", "failed"),
    [
        ([isr(0, 1, 0), leader(1, 1), isr(1, 1, 0), isr(0, 1, 0, 2), isr(1, 1, 0, 2)], 30, []),
        ([isr(0, 1, 0), isr(0, 1, 0, 2)], 30, ["with an empty disk", "when it is in the ISR"]),
        (
            [isr(0, 1, 0), isr(1, 1, 0), leader(1, 2), isr(0, 1, 0, 2), isr(1, 1, 0, 2)],
            30,
            ["before it is in sync"],
        ),
        (
            [isr(0, 1, 0), isr(1, 1, 0), isr(0, 1, 0, 2), isr(1, 1, 0, 2)],
            19,
            ["when it is in the ISR"],
        ),
    ],
    ids=["honest", "never left one ISR", "led too soon", "came in too soon"],
)
def test_how_a_broker_with_an_empty_disk_comes_back(
    monkeypatch: pytest.MonkeyPatch,
    changes: list[IsrChange | LeaderChange],
    held: int,
    failed: list[str],
) -> None:
    monkeypatch.setattr("holdfast.lab.scenarios.disk_lost.end_of", lambda *_: held)
    seen = Sightings(p0=(1, 0, 2), p1=(2, 1, 0))
    back = Return(seen.as_run, VICTIM)
    for change in changes:
        back.changed(change)
    expect_honest_return(seen.as_run, back, {0: 20, 1: 20}, given=True)
    assert len(seen.failed) == len(failed)
    assert all(words in name for words, name in zip(failed, seen.failed, strict=True))


@pytest.mark.parametrize(("held", "late"), [(30, [True, True]), (19, [True, False])])
def test_a_broker_that_is_not_back_in_time_is_late_with_what_it_has_to_show(
    monkeypatch: pytest.MonkeyPatch, held: int, late: list[bool]
) -> None:
    """Goal: what has not come yet is late; who came in without all that was committed is broken."""
    monkeypatch.setattr("holdfast.lab.scenarios.disk_lost.end_of", lambda *_: held)
    seen = Sightings(p0=(1, 0, 2), p1=(2, 1, 0))
    back = Return(seen.as_run, VICTIM)
    for change in (isr(0, 1, 0), isr(0, 1, 0, 2)):
        back.changed(change)
    expect_honest_return(seen.as_run, back, {0: 20, 1: 20}, given=False)
    assert [check.late for check in seen.checks if not check.kept] == late


NOT_YET = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE


@pytest.mark.parametrize(
    ("codes", "asked"),
    [
        ([], 1),
        ([NOT_YET], 2),
        ([NOT_YET] * 3, 4),
        ([ErrorCode.NONE], 1),
        ([ErrorCode.UNKNOWN_SERVER_ERROR], 1),
        ([NOT_YET, ErrorCode.NONE], 2),
        ([NOT_YET] * 99, 15),
    ],
)
def test_an_election_is_asked_for_again_only_while_the_new_disk_is_not_known(
    monkeypatch: pytest.MonkeyPatch, codes: list[ErrorCode], asked: int
) -> None:
    """Seen of Apache Kafka: in sync again, and no leader before its new directory was told.

    Seen to pass: a controller that agreed, and moved no leader, was asked 14 times until it did.
    """
    seen = Sightings(p0=(1, 0, 2), p1=(2, 1, 0))
    seen.view.partitions[1].leader = 1
    elections: list[int] = []
    left = list(codes)

    def elect(_run: Run) -> dict[int, int]:
        elections.append(len(elections))
        if not left:
            seen.view.partitions[1].leader = 2
            return {}
        code = left.pop(0)
        return {1: code} if code else {}

    monkeypatch.setattr("holdfast.lab.scenarios.disk_lost.elect", elect)
    elect_known(seen.as_run, 2)
    assert len(elections) == asked


@pytest.mark.parametrize(
    ("files", "kept"),
    [
        ({0: 7, 1: 7, 2: 7}, True),
        ({0: 7, 1: 0, 2: 7}, False),  # one keeps what is due
        ({0: 7, 1: 7, 2: 8}, False),  # one lets go what is not
        ({0: 7, 1: 7}, False),  # one holds no files
    ],
)
def test_every_replica_begins_where_it_must(
    tmp_path: Path, files: dict[int, int], *, kept: bool
) -> None:
    seen = Sightings(tmp_path)
    seen.cluster.node = lambda node: SimpleNamespace(config_file=str(tmp_path / f"{node}.conf"))
    for node in seen.cluster.broker_ids:
        (tmp_path / f"{node}.conf").write_text(f"log.dirs={tmp_path / str(node)}\n")
    for node, begin in files.items():
        directory = tmp_path / str(node) / "foo-0"
        directory.mkdir(parents=True)
        (directory / f"{begin:020d}.log").write_bytes(b"")
    assert begins(seen.as_run, 0) == {node: files.get(node, -1) for node in (0, 1, 2)}
    expect_begins(seen.as_run, "an hour's retention", {0: 7})
    assert bool(seen.failed) != kept


def test_the_law_has_a_partition_for_every_rf_and_min_isr_with_disks_kept_and_lost() -> None:
    found = cells()
    assert len(found) == len(set(found)) == 2 * sum(FACTORS)
    for cell in found:
        assert len(set(cell.replicas)) == cell.factor
        assert len(cell.in_sync) == cell.min_isr
        assert cell.replicas[0] == STAYERS[0]
        assert set(cell.replicas) - cell.in_sync <= set(LEAVERS)


@pytest.mark.parametrize(
    ("min_isr", "disks_lost", "failures", "kept"),
    [
        (1, False, 1, True),
        (1, True, 1, False),
        (2, True, 1, True),
        (2, True, 2, False),
        (5, True, 4, True),
        (5, True, 5, False),
        (5, False, 5, True),
    ],
)
def test_the_law(min_isr: int, disks_lost: bool, failures: int, kept: bool) -> None:
    cell = next(
        each
        for each in cells()
        if (each.factor, each.min_isr, each.disks_lost) == (5, min_isr, disks_lost)
    )
    assert holds(cell, failures) is kept
    nothing, everything, some = (Ledger(cell, failures, 20, found) for found in (20, 0, 10))
    assert nothing.as_foretold is kept
    assert everything.as_foretold is not kept
    assert not some.as_foretold
    table = law_table([everything])
    assert table.rows[0][3] == ("nothing lost" if kept else "all lost")
    assert table.rows[0][-1] == "20 of 20 lost"
    assert check_of([nothing, nothing]).kept is kept
    assert "10 of 20 lost" in check_of([nothing, some]).seen


LINE = f"ERROR holdfast: log directory /data goes offline: {FULL}: 0 bytes are free"


@pytest.mark.parametrize(
    ("told", "log", "failed"),
    [
        (f"/data: {FULL}", [LINE], []),
        ("", [LINE], ["`holdfast status` of 2"]),
        ("/data: the disk fails", [LINE], ["`holdfast status` of 2"]),
        (f"/data: {FULL}", [], ["the log of 2"]),
        (f"/data: {FULL}", [LINE, LINE], ["the log of 2"]),
        (f"/data: {FULL}", [LINE, START_MARK], ["the log of 2"]),
        (f"/data: {FULL}", [LINE, START_MARK, LINE], []),
    ],
)
def test_a_full_disk_is_told_in_words_and_once(
    tmp_path: Path, told: str, log: list[str], failed: list[str]
) -> None:
    seen = Sightings()
    node = SimpleNamespace(id=VICTIM, log_file=str(tmp_path / "node.log"))
    status = SimpleNamespace(node=node, figures={LOG_DIRS_OFFLINE: told}, ended_with=told)
    other = SimpleNamespace(node=SimpleNamespace(id=1), figures={}, ended_with=None)
    seen.cluster = SimpleNamespace(
        broker_ids=(0, 1, VICTIM),
        node=lambda _node: node,
        state=lambda _node: "dead" if told else "running",
        status=lambda: SimpleNamespace(nodes=(other, status)),
    )
    seen.observer = SimpleNamespace(avoid=lambda _node: None)
    (tmp_path / "node.log").write_text("".join(f"{line}\n" for line in log))
    expect_told(seen.as_run, VICTIM, "has it", lambda each: each.figures.get(LOG_DIRS_OFFLINE))
    assert [name.partition(",")[0] for name in seen.failed] == failed
    seen.checks.clear()
    expect_end(seen.as_run, VICTIM)
    ends = [] if told else ["2"]
    assert [name.partition(",")[0] for name in seen.failed] == [*ends, *failed]
    assert seen.ended == {VICTIM}  # nobody asks at the end why it has


@pytest.mark.parametrize(
    ("log", "failed"),
    [
        ([f"java.io.IOException: {NO_SPACE}", f"java.io.IOException: {NO_SPACE}"], []),
        (["ERROR Shutdown broker"], ["the log of 2"]),
        ([f"java.io.IOException: {NO_SPACE}", START_MARK], ["the log of 2"]),
    ],
)
def test_of_apache_kafka_a_full_disk_is_told_by_its_log_alone(
    tmp_path: Path, log: list[str], failed: list[str]
) -> None:
    seen = Sightings()
    seen.parameters = Parameters(engine=APACHE)
    node = SimpleNamespace(id=VICTIM, log_file=str(tmp_path / "node.log"))
    seen.cluster = SimpleNamespace(node=lambda _node: node)
    (tmp_path / "node.log").write_text("".join(f"{line}\n" for line in log))
    expect_told(seen.as_run, VICTIM, "has it", lambda _each: "")
    assert [name.partition(",")[0] for name in seen.failed] == failed


def test_replicas_that_do_not_come_back_in_sync_are_broken_and_not_only_no_run() -> None:
    law: Any = object.__new__(Law)
    kept: list[bool] = []
    law._run = SimpleNamespace(
        soon=lambda _over, _bound_s: False, check=lambda *_, kept, late: told(kept, late)
    )

    def told(is_kept: bool, late: bool) -> None:
        assert late
        kept.append(is_kept)

    with pytest.raises(LabError, match="in sync again"):
        law._wait_in_sync("all to be in sync again", whole=True)
    assert kept == [False]


def test_shares_of_what_a_consumer_received(tmp_path: Path) -> None:
    assert samples(tmp_path / "none") == []
    path = tmp_path / "statistics"
    rows = [{"at_ms": 1.5, "received": {"0": 10, "1": 100}},
            {"at_ms": 2.5, "received": {"0": 15, "1": 195, "2": 0}}]  # fmt: skip
    path.write_text("".join(json.dumps(row) + "\n" for row in rows) + '{"at_ms": 3')
    (_, before), (at_ms, after) = samples(path)
    assert at_ms == 2.5
    received = received_between(before, after)
    assert received == {0: 5, 1: 95, 2: 0}
    assert share_of(received) == 0.95
    assert share_of({}) == 0.0


@pytest.mark.parametrize(
    ("replicas", "even"),
    [
        ({"p0": (0, 1), "p1": (1, 2), "p2": (2, 0)}, True),
        ({"p0": (0, 1), "p1": (1, 0), "p2": (1, 0)}, False),
        ({"p0": (0, 1), "p1": (0, 2), "p2": (0, 2)}, False),
    ],
    ids=["even", "one holds nothing", "one leads everything"],
)
def test_even_is_within_one_replica_and_one_leader(replicas: dict[str, Any], even: bool) -> None:
    seen = Sightings(**replicas)
    expect_even(seen.as_run, "load is even")
    assert bool(seen.failed) is not even


@pytest.fixture
def replica(tmp_path: Path) -> Path:
    """One replica with ten batches in two segments, synced up to offset 4."""
    data = tmp_path / "data"
    directory = data / "foo-0"
    directory.mkdir(parents=True)
    (tmp_path / "server.properties").write_text(f"node.id=0\nlog.dirs={data}\n")
    for first in (0, 6):
        batches = [
            bytes(build_batch([Record(key=None, value=b"x", timestamp=1)], base_offset=offset))
            for offset in range(first, 6 if first == 0 else 10)
        ]
        (directory / f"{first:020}.log").write_bytes(b"".join(batches))
    (data / RECOVERY_POINTS).write_text("0\n1\nfoo 0 4\n")
    (data / disks.CLEAN_SHUTDOWN).write_text("{}")
    return directory


def test_what_a_power_cut_takes_is_cut_off_at_a_batch(tmp_path: Path, replica: Path) -> None:
    seen = Sightings(tmp_path)
    disks.cut_back(seen.as_run, 0, 0, 5)
    assert [batch.offset for batch in stored_batches(replica)] == [0, 1, 2, 3, 4]
    assert not (replica.parent / disks.CLEAN_SHUTDOWN).exists()
    assert "ended at 10, now at 5 (synced up to 4)" in seen.notes[0]


@pytest.mark.parametrize("end", [3, 10, 12])
def test_a_power_cut_takes_nothing_that_was_synced_and_nothing_that_is_not_there(
    tmp_path: Path, replica: Path, end: int
) -> None:
    with pytest.raises(LabError, match="synced it up to 4"):
        disks.cut_back(Sightings(tmp_path).as_run, 0, 0, end)
    assert sum(1 for _ in stored_batches(replica)) == 10


def test_where_a_log_would_be_cut(replica: Path) -> None:
    first, second = sorted(replica.glob("*.log"))
    size = second.stat().st_size // 4
    assert position_of(replica, 0) == (first, 0)
    assert position_of(replica, 6) == (second, 0)
    assert position_of(replica, 8) == (second, 2 * size)
    assert position_of(replica, 10) is None
