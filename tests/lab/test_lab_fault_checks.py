"""Goal: checks of single faults fail where they must, also where no played lie comes to them.

Method: what each check looks at, made up: once as it must be, and once wrong in each way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.lab.checked import Scene, wrote

from holdfast.judge.history import Acknowledged, Event, Refused
from holdfast.lab.parameters import LabError, Parameters
from holdfast.lab.report import Check
from holdfast.lab.scenarios import compacted_topic, min_isr_law
from holdfast.lab.scenarios.add_broker import expect_in_sync
from holdfast.lab.scenarios.compacted_topic import expect_compacted
from holdfast.lab.scenarios.controller_down import expect_done_late
from holdfast.lab.scenarios.min_insync_replicas import expect_refusals
from holdfast.lab.steps import small_disks
from holdfast.lab.steps.usual import REFUSAL

TOUCHED = 0  # the partition that is under min ISR; another one is not


class Faulted(Scene):
    """A scene with partitions that look like this, and in which a workload goes on."""

    def __init__(self, isr: Mapping[int, Sequence[int]] | None = None) -> None:
        super().__init__()
        self.view = SimpleNamespace(
            partitions={p: SimpleNamespace(isr=nodes) for p, nodes in (isr or {}).items()}
        )
        self.replicas = {0: (1, 0), 1: (0, 1)}
        self.tables: list[object] = []
        self.cluster: Any = SimpleNamespace()
        self.goes_on: Callable[[], None] = lambda: None

    def steady(self, _worker: object) -> None:
        self.goes_on()


@pytest.mark.parametrize(
    ("isr", "kept"),
    [
        ({0: (1, 0), 1: (0, 1)}, True),
        ({0: (3, 1, 0), 1: (0, 1)}, True),
        ({0: (1, 0), 1: (0, 3)}, False),
        ({0: (), 1: (0, 1)}, False),
    ],
    ids=["as before", "with the new one", "one has left", "nobody"],
)
def test_who_held_a_partition_before_its_move_stays_in_sync(
    isr: dict[int, Sequence[int]], kept: bool
) -> None:
    """Goal: a move that drops a replica before the new one has all is no move that went well."""
    scene = Faulted(isr)
    expect_in_sync(cast("Any", scene), {0: (1, 0), 1: (0, 1)}, "when")
    assert scene.kept == [kept]


@pytest.mark.parametrize(
    ("held", "kept"),
    [(4, True), (5, False), (10, False), (-1, False)],
    ids=["fewer than half", "half", "all", "not to be read"],
)
def test_each_replica_holds_less_than_half_once_it_is_compacted(
    monkeypatch: pytest.MonkeyPatch, held: int, kept: bool
) -> None:
    """Goal: one replica that is not compacted, or can't be read, is noticed among all others."""
    scene = Faulted()
    producer = wrote("producer", {})
    producer.tail.counts = Counter({(Acknowledged.KIND, p): 10 for p in scene.partitions})
    cast("Any", producer.tail).poll = lambda: producer.tail
    last = (1, 1)  # broker and partition
    monkeypatch.setattr(
        compacted_topic, "held", lambda _run, node, p: held if (node, p) == last else 1
    )
    clients = SimpleNamespace(senders=[producer])
    expect_compacted(cast("Any", scene), cast("Any", clients), "when")
    assert scene.kept == [kept]


@pytest.mark.parametrize(("partitions", "kept"), [({0: "there"}, True), ({}, False), (None, False)])
def test_what_nobody_answered_is_done_once_zookeeper_is_back(
    partitions: object, kept: bool
) -> None:
    """Goal: a creation that was asked for, and is forgotten, fails."""
    scene = Faulted()
    scene.cluster.partitions = lambda _topic: partitions
    expect_done_late(cast("Any", scene), "foo-term", "first outage")
    assert scene.kept == [kept]


@pytest.mark.parametrize(
    ("touched", "other", "kept"),
    [
        ({Refused: 3}, {Acknowledged: 3}, [True, True]),
        ({Refused: 3, Acknowledged: 1}, {Acknowledged: 3}, [False, True]),
        ({}, {Acknowledged: 3}, [False, True]),
        ({Refused: 3}, {Refused: 3}, [True, False]),
    ],
    ids=["as it must be", "one is taken", "nothing is refused", "elsewhere refused"],
)
def test_under_min_isr_each_event_is_refused_and_elsewhere_none(
    touched: dict[type[Event], int], other: dict[type[Event], int], kept: list[bool]
) -> None:
    """Goal: what was acknowledged and refused before the ISR shrank is of no account."""
    scene = Faulted()
    producer: Any = wrote("producer", {})
    tail = producer.tail
    tail.poll = lambda: tail
    tail.errors = Counter({(REFUSAL, TOUCHED): 1})
    tail.counts = Counter({(Acknowledged.KIND, TOUCHED): 9, (Refused.KIND, TOUCHED): 1})

    def goes_on() -> None:
        for partition, counts in ((TOUCHED, touched), (1, other)):
            tail.counts.update({(kind.KIND, partition): n for kind, n in counts.items()})

    scene.goes_on = goes_on
    expect_refusals(cast("Any", scene), producer, [TOUCHED])
    assert scene.kept == kept


@pytest.mark.parametrize(
    ("steps", "is_control"),
    [(min_isr_law.steps, False), (min_isr_law.beyond, True)],
    ids=["main", "control"],
)
def test_the_law_is_tried_with_each_number_of_failures(
    monkeypatch: pytest.MonkeyPatch, steps: Callable[[Any], None], is_control: bool
) -> None:
    """Goal: each number of failures is tried and checked, and all that was lost is foretold.

    Method: a law whose cells lose what they must, as it says itself.
    """

    class Law:
        def __init__(self, _run: object) -> None:
            self.cells = min_isr_law.cells()
            self.topics = ["law"]
            self.ledgers: list[min_isr_law.Ledger] = []
            self.is_made = False

        def make(self) -> None:
            self.is_made = True

        def fail(self, failures: int, watched: list[min_isr_law.Cell]) -> None:
            assert self.is_made
            assert watched
            for cell in watched:
                assert min_isr_law.holds(cell, failures) is not is_control
                end = 0 if is_control else 20
                self.ledgers.append(min_isr_law.Ledger(cell, failures, 20, end))

    monkeypatch.setattr(min_isr_law, "Law", Law)
    checks: list[Check] = []
    run = SimpleNamespace(record_check=checks.append, tables=[], lost_expected=None, topic="")
    steps(run)
    assert [check.kept for check in checks] == [True] * len(min_isr_law.FAILURES)
    (table,) = run.tables
    assert len(table.rows) >= len(min_isr_law.FAILURES)
    lost = run.lost_expected
    assert lost is not None
    assert (lost > 0) is is_control
    assert lost % 20 == 0


@pytest.mark.parametrize("denied", [True, False], ids=["mounts are denied", "none is"])
def test_a_node_that_gives_way_to_a_small_disk_has_not_ended_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, denied: bool
) -> None:
    """Goal: where file systems can't be had the run was not made, and nothing is broken."""
    (tmp_path / "server.properties").write_text(f"log.dirs={tmp_path / 'data'}\n")
    ended = set[int]()

    def mount(_directory: Path, _size: int) -> None:
        assert ended == {1}
        if denied:
            raise LabError("it takes root")

    monkeypatch.setattr(small_disks, "mount_small", mount)
    run: Any = SimpleNamespace(
        ended=ended,
        parameters=Parameters(),
        afterwards=SimpleNamespace(callback=lambda *_: None),
        note=lambda _text: None,
        cluster=SimpleNamespace(
            node=lambda _node: SimpleNamespace(config_file=str(tmp_path / "server.properties")),
            kill=lambda *_, **__: None,
            start_node=lambda *_, **__: None,
        ),
    )
    with pytest.raises(LabError, match="root") if denied else nullcontext():
        small_disks.SmallDisk(run, 1, only=False)
    assert ended == ({1} if denied else set())
