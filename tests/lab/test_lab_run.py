"""A run ends all that it has started, whatever happens at its end, and misses who ends by himself.

Goal: no broker or client is left behind, where nobody looks for it; and a node that ends by itself
breaks the promise, also where the others do without it. Method: real nodes; the end is interrupted
in its midst, as Ctrl-C does it; a node is killed behind the run's back.
"""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.clients.workload.verifiable_producer import make_parser
from holdfast.cluster import nodes
from holdfast.cluster.processes import State
from holdfast.judge.verdict import Anomaly
from holdfast.lab.evidence import evidence_of, history_files
from holdfast.lab.journal import Exit, write_manifest
from holdfast.lab.parameters import LAG, LabError, Parameters
from holdfast.lab.prove import _run_part, _verdict
from holdfast.lab.run import Run
from holdfast.lab.scenario import Part
from holdfast.lab.steps.closing import conclude, replica_directory
from holdfast.lab.steps.mishaps import expect_running, failed
from holdfast.lab.steps.usual import begin, start_exact

pytestmark = [pytest.mark.slow, pytest.mark.process]


@pytest.mark.parametrize("place", ["observer", "cluster"])
def test_an_end_that_is_interrupted_leaves_no_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    stop, calls = nodes.stop, 0

    def interrupted(*arguments: object) -> object:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise KeyboardInterrupt
        return stop(*arguments)  # type: ignore[arg-type]

    parameters = Parameters(brokers=1, replication_factor=1, min_isr=1)
    run = Run(parameters, tmp_path / "run", lambda _line: None).__enter__()
    run.make_topic()
    observer = run.observer
    assert observer is not None
    started = run.cluster.nodes
    at = {"observer": (observer, "stop"), "cluster": (nodes, "stop")}[place]
    stop = getattr(*at)
    monkeypatch.setattr(*at, interrupted)
    with pytest.raises(KeyboardInterrupt):
        run.__exit__(None, None, None)
    monkeypatch.undo()
    observer.stop()
    run.journal.close()
    assert [node.pid is not None for node in started] == [True, True]
    assert [nodes.state_of(node) for node in started] == [State.DEAD] * 2


def test_a_node_that_ends_by_itself_breaks_the_promise(tmp_path: Path) -> None:
    with Run(
        Parameters(brokers=1, replication_factor=1, min_isr=1), tmp_path / "run", print
    ) as run:
        run.make_topic()
        expect_running(run, "at first")
        assert not failed(run)
        (controller,) = run.cluster.controller_ids
        pid = run.cluster.node(controller).pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        run.cluster.wait_signalled(controller, "KILL")
        expect_running(run, "in the end")
        with pytest.raises(LabError, match="has ended by itself"):
            run.fault("KILL", controller)
        assert failed(run) == ["nodes that run in the end", f"{controller} runs"]
    run.journal.close()


@pytest.mark.parametrize("loses", [True, False], ids=["a loss", "none"])
@pytest.mark.parametrize("is_control", [False, True], ids=["proof", "control"])
def test_what_is_in_no_file_is_lost_also_where_the_run_breaks_off(
    tmp_path: Path, loses: bool, is_control: bool
) -> None:
    """Goal: who loses events and then stands still has not just had a run that can't be made.

    Method: a broker's segment is cut short behind its back.
    """

    def steps(run: Run) -> None:
        start_exact(run)
        if loses:
            (segment,) = replica_directory(run, run.replicas[0][0], 0).glob("*.log")
            os.truncate(segment, segment.stat().st_size // 2)
        raise LabError("nobody answers")

    base = Parameters(brokers=1, replication_factor=1, min_isr=1, partitions=1, count=10)
    part = Part(name="main", title="Main", steps=steps)
    if is_control:
        part = replace(part, breaks_with=Anomaly.LOST)
    write_manifest(tmp_path, "proof", scenario="x", parameters={}, parts=["main"], command="x")
    result = _run_part(part, base, tmp_path / "main", print)
    assert result.broke_off == "nobody answers"
    failed_checks = [check for check in result.checks if not check.kept]
    assert bool(failed_checks) is (loses and not is_control)
    for check in failed_checks:
        assert check.name == "acknowledged events, where the run broke off"
        assert check.seen.endswith(f" of {base.count} in none")
    if not is_control:
        code, words = _verdict([result], result.broke_off)
        assert code is (Exit.BROKEN if loses else Exit.NOT_MADE)
        assert (f" of {base.count} in none)" in words) is loses  # the first that is said


def test_an_outage_doubles_nothing_however_long_it_is(tmp_path: Path) -> None:
    """Goal: no run blames the cluster for what its own client sends twice.

    Method: a follower stands still in its session, so that nothing is acknowledged, for longer than
    the client would wait by default. What is in flight then is of many ages, and in the log.
    """
    waits_s = make_parser().get_default("delivery_timeout_ms") / 1000
    long = {key: str(int(waits_s) * 4000) for key in ("broker.session.timeout.ms", LAG)}
    parameters = Parameters(brokers=2, replication_factor=2, min_isr=1, partitions=1, config=long)
    with Run(parameters, tmp_path / "run", print) as run:
        producer = begin(run, config="linger.ms=4000").producer
        run.steady(producer, 5.0)
        _, follower = run.replicas[0]
        run.fault("STOP", follower)
        run.steady_view(waits_s)
        run.fault("CONT", follower)
        run.expect_flow(producer, "it goes on", 30.0)
        conclude(run)
        assert failed(run) == []
    run.journal.close()
    judgement = evidence_of(history_files(run.history)).judgement
    assert judgement.decided
    assert not judgement.broken(parameters.promise.forbids)
