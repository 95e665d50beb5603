"""A run ends all that it has started, whatever happens at its end.

Goal: no broker or client is left behind, where nobody looks for it. Method: a real broker; the end
is interrupted in its midst, as Ctrl-C does it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.cluster import nodes
from holdfast.cluster.processes import State
from holdfast.lab.parameters import Parameters
from holdfast.lab.run import Run

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
