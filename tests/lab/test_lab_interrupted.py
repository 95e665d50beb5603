"""Ctrl-C while something is proven: nothing is begun behind it, whatever becomes of it on its way.

Goal: a clean-up that fails, or somebody who catches what he should not, is not what a run has ended
with. Method: real signals to this process, in the steps of runs without a cluster.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self, cast

import pytest

from holdfast.cli.interrupts import interrupted_once
from holdfast.cli.proving import prove_all, prove_replay
from holdfast.cluster import LocalCluster, nodes
from holdfast.cluster.ending import Interrupt
from holdfast.cluster.layout import ClusterError, WaitError
from holdfast.cluster.network import possible
from holdfast.cluster.network.possible import NAMESPACES, Possibility
from holdfast.lab import matrix, prove
from holdfast.lab.journal import Exit
from holdfast.lab.outcome import Outcome
from holdfast.lab.run import Run
from holdfast.lab.scenario import load_scenario
from holdfast.testing.simulation.drawing import draw_plan


class Stubborn(Run):
    """A run without processes, whose clean-up fails: killed nodes that have not ended in time."""

    def __enter__(self) -> Self:
        cluster = SimpleNamespace(
            nodes=[], down=self._down, refuse_broken_network=lambda: None, broker_ids=()
        )
        self.cluster = cast("Any", cluster)
        return self

    def _down(self, *, timeout_s: float = 5.0) -> None:
        raise WaitError(f"Waited {timeout_s:g} s in vain for killed nodes to end.")


def interrupt(_run: Run) -> None:
    signal.raise_signal(signal.SIGINT)


def interrupt_in_vain(_run: Run) -> None:
    with suppress(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def interrupt_untold(_run: Run) -> None:
    raise KeyboardInterrupt  # no handler has noted it


def nothing(_run: Run) -> None: ...


def proven(directory: Path, steps: Callable[[Run], None], begun: list[Run]) -> Outcome:
    scenario = load_scenario("one-broker-down")

    def begin(parameters: Any, folder: Path, say: Any) -> Run:
        begun.append(Stubborn(parameters, folder, say))
        return begun[-1]

    parts = tuple(replace(part, steps=steps) for part in scenario.parts)
    return prove.prove(
        replace(scenario, parts=parts), scenario.defaults, directory, command="x", begin=begin
    )


@pytest.mark.process
@pytest.mark.parametrize("steps", [interrupt, interrupt_in_vain, interrupt_untold])
def test_a_clean_up_that_fails_does_not_take_the_place_of_ctrl_c(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: Callable[[Run], None]
) -> None:
    """Seen to fail: "could not be made", and `--all` and `--attempts` went on for hours."""
    monkeypatch.setattr(prove, "conclude", nothing)
    begun: list[Run] = []
    with pytest.raises(KeyboardInterrupt), interrupted_once():
        proven(tmp_path / "1", steps, begun)
    (run,) = begun
    assert run.history.parent.name == "main"
    run.journal.close()
    assert not Interrupt.came
    outcome = proven(tmp_path / "2", nothing, [])
    assert outcome.exit is Exit.NOT_MADE
    assert "in vain for killed nodes" in outcome.verdict


@pytest.mark.process
def test_what_was_broken_stays_broken_where_only_the_clean_up_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(run: Run) -> None:
        run.check("a leader", "0", "none", kept=False)

    monkeypatch.setattr(prove, "conclude", nothing)
    outcome = proven(tmp_path / "run", broken, [])
    assert outcome.exit is Exit.BROKEN
    assert prove.judge_again(tmp_path / "run").exit is Exit.BROKEN


def lose(problem: OSError | None) -> None:
    with suppress(KeyboardInterrupt):
        signal.raise_signal(signal.SIGTERM)
    signal.raise_signal(signal.SIGINT)  # a person who can't wait
    if problem is not None:
        raise problem


@pytest.mark.parametrize("problem", [None, OSError("nowhere")])
def test_an_interrupt_that_was_lost_is_raised_at_the_end(problem: OSError | None) -> None:
    with pytest.raises(KeyboardInterrupt), interrupted_once():
        lose(problem)
    with suppress(OSError), interrupted_once():
        raise OSError("nothing was interrupted")


def test_no_other_run_is_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Method: the proof that is interrupted comes to an end all the same."""
    begun: list[Path] = []

    def made(scenario: Any, parameters: Any, folder: Path, **_: Any) -> Outcome:
        begun.append(folder)
        interrupt_in_vain(cast("Run", None))
        return Outcome(
            scenario=scenario,
            parameters=parameters,
            exit=Exit.NOT_MADE,
            verdict="",
            results=(),
            directory=folder,
            report=None,
        )

    monkeypatch.setattr(prove_replay, "prove", made)
    plan = tmp_path / "plan.json"
    plan.write_text(draw_plan(1).to_json())
    found = prove_replay.plan_for(None, plan)
    with pytest.raises(KeyboardInterrupt), interrupted_once():
        prove_replay.replay(found, tmp_path, attempts=3, command="x", say=lambda _line: None)
    assert begun == [tmp_path / "attempt-1"]
    begun.clear()
    monkeypatch.setattr(prove_all, "prove", made)
    monkeypatch.setattr(prove_all, "code_of", lambda _engine, name: f"code of {name}")
    monkeypatch.setattr(prove_all, "files_of", lambda *_: ())
    monkeypatch.setattr(possible, "look", lambda: Possibility(NAMESPACES))
    monkeypatch.setattr(prove_all, "SCENARIOS", ["rack-loss", "retention"])
    with pytest.raises(KeyboardInterrupt), interrupted_once():
        prove_all.prove_all(tmp_path / "all", ["embedded"], control=True, say=lambda _line: None)
    assert begun == [matrix.folder_of(tmp_path / "all", "embedded", "rack-loss")]


@pytest.mark.parametrize("reason", [KeyboardInterrupt(), ClusterError("Node 0 ended")])
def test_a_cluster_that_does_not_start_says_why_though_it_can_not_be_taken_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reason: BaseException
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise reason

    def stays(*_: object) -> None:
        raise WaitError("Waited 5 s in vain for killed nodes to end.")

    cluster = LocalCluster.create(tmp_path, brokers=1, combined=True, port=0)
    monkeypatch.setattr(nodes, "spawn", fail)
    monkeypatch.setattr(nodes, "stop", stays)
    with pytest.raises(type(reason)) as seen:
        cluster.start()
    assert seen.value is reason
    assert "killed nodes" in seen.value.__notes__[0]
