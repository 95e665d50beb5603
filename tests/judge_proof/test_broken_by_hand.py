"""Goal: whoever breaks the files of a real cluster before the last read finds it in the verdict.

Method: one proof of the lab on real brokers, a partition for each break. Between the workload and
the last read all brokers are stopped, segments are changed with right checksums, and the brokers
start again; one partition is left alone. About 15 s.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.judge_proof import segments

from holdfast.judge.verdict import Anomaly
from holdfast.lab.journal import Exit
from holdfast.lab.outcome import Outcome
from holdfast.lab.parameters import Parameters
from holdfast.lab.prove import prove
from holdfast.lab.run import Run
from holdfast.lab.scenario import Part, Scenario
from holdfast.lab.steps import closing

Break = Callable[[Path], None]

# What is done to which replicas (all, or the first only), and what must be found at least.
ALL, ONE = "all", "one"
BREAKS: list[tuple[str, str, Break, set[Anomaly]]] = [
    ("prefix", ALL, segments.without_prefix, {Anomaly.LOST, Anomaly.VANISHED}),
    ("prefix", ONE, segments.without_prefix, {Anomaly.DIVERGED}),
    ("record", ALL, segments.without_middle, {Anomaly.LOST, Anomaly.VANISHED}),
    ("key", ALL, segments.changed(b"foo_", b"bar_"), {Anomaly.PHANTOM, Anomaly.VANISHED}),
    ("value", ALL, segments.changed(b"dfast.hold", b"DFAST.HOLD"), {Anomaly.PHANTOM}),
    ("header", ALL, segments.changed(b"number", b"NUMBER"), {Anomaly.PHANTOM}),
    ("timestamp", ALL, segments.later, {Anomaly.PHANTOM, Anomaly.VANISHED}),
    ("everything", ALL, segments.without_anything, {Anomaly.LOST, Anomaly.VANISHED}),
]
# The same once everything has been read back, before the replicas are looked at.
LATE: list[tuple[str, str, Break]] = [
    ("prefix", ONE, segments.without_prefix),
    ("record", ONE, segments.without_middle),
    ("record", ALL, segments.without_middle),
    ("everything", ONE, segments.without_anything),
]
UNTOUCHED = len(BREAKS) + len(LATE)


def steps(run: Run) -> None:
    run.make_topic()
    run.start_reader()
    producer = run.start_producer()
    run.must_flow(producer)
    run.steady(producer, 1.0)
    run.stop_workers()
    # Who alone is broken leaves first: out of the ISR, it can't lead and give that to the others.
    assignment = run.parameters.assignment()
    first = {assignment[p][-1] for p, (_, where, _, _) in enumerate(BREAKS) if where == ONE}
    run.fault("TERM", *first)
    run.fault("TERM", *(set(run.cluster.broker_ids) - first))
    for partition, (_, where, change, _) in enumerate(BREAKS):
        nodes = assignment[partition]
        for node in nodes if where == ALL else nodes[-1:]:
            change(closing.replica_directory(run, node, partition))
    run.start_node(*run.cluster.broker_ids)


def broken_late(run: Run) -> None:
    for partition, (_, where, change) in enumerate(LATE, start=len(BREAKS)):
        nodes = run.parameters.assignment()[partition]
        for node in nodes if where == ALL else nodes[:1]:
            change(closing.replica_directory(run, node, partition))


SCENARIO = Scenario(
    name="by-hand",
    summary="Files are broken by hand.",
    text="",
    defaults=Parameters(partitions=UNTOUCHED + 1, rate=800),
    parts=(
        Part(name="main", title="By hand", steps=steps),
        Part(name="control", title="None", steps=steps, breaks_with=Anomaly.LOST),
    ),
)


@pytest.mark.serial
@pytest.mark.slow
def test_whatever_is_broken_by_hand_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    note_replicas = closing.note_replicas

    def late(run: Run, *more: Any) -> None:
        broken_late(run)
        note_replicas(run, *more)

    monkeypatch.setattr(closing, "note_replicas", late)
    outcome = prove(SCENARIO, SCENARIO.defaults, tmp_path / "run", command="none", control=False)
    assert outcome.error is None
    assert outcome.exit is Exit.BROKEN, outcome.verdict
    for word in ("lost", "diverged", "phantom", "vanished"):
        assert word in outcome.verdict
    assert "exactly once" not in outcome.verdict
    written = json.loads((outcome.directory / "verdict.json").read_text(encoding="utf-8"))
    assert written["exit"] == 1
    each_alone_is_found(outcome)


def each_alone_is_found(outcome: Outcome) -> None:
    (result,) = outcome.results
    found = {p.partition: set(p.anomalies) for p in result.evidence.judgement.partitions}
    forbidden = SCENARIO.defaults.promise.forbids
    for partition, (what, where, _, wanted) in enumerate(BREAKS):
        assert wanted <= found[partition] & forbidden, f"{what}, {where}"
        assert where == ALL or found[partition] == wanted
    for partition, (what, where, _) in enumerate(LATE, start=len(BREAKS)):
        assert found[partition] == {Anomaly.DIVERGED}, f"{what}, {where}, late"
    untouched = result.evidence.judgement.partitions[UNTOUCHED]
    assert not untouched.findings
