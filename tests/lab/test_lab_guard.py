"""Goal: what a run has started ends with it, and nobody else. Method: real processes, no cluster.

One that has a session of its own, one that is stopped, what they have started; and strangers, one
of which belongs to another run. That a proof's own SIGKILL is enough: test_cli_interrupted.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from holdfast.cluster.processes import wait_until
from holdfast.lab import guard
from holdfast.lab.guard import MARK, Guard, marked

pytestmark = [pytest.mark.slow, pytest.mark.process]
FAMILY = "sleep 60 & setsid sleep 60 & wait"  # three processes, one of them in another session
BOUND_S = 30.0


@contextmanager
def started(environment: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        ["/bin/sh", "-c", FAMILY], env={**os.environ, **environment}, start_new_session=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def test_all_that_bears_the_mark_ends_and_nothing_else() -> None:
    ours, another = Guard(), Guard()
    mark = ours.environment[MARK]
    try:
        with (
            started(ours.environment) as child,
            started(ours.environment) as stopped,
            started(another.environment) as stranger,
        ):
            wait_until(lambda: len(list(marked(mark))) == 6, timeout_s=BOUND_S, what="two families")
            stopped.send_signal(signal.SIGSTOP)
            ours.close()
            assert list(marked(mark)) == []
            assert [child.wait(), stopped.wait()] == [-signal.SIGKILL] * 2
            assert stranger.poll() is None
    finally:
        another.close()
    assert list(marked(another.environment[MARK])) == []


def test_a_guard_that_stands_still_is_ended_and_so_is_what_it_guards(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(guard, "CLOSE_S", 0.5)
    ours = Guard()
    mark = ours.environment[MARK]
    with started(ours.environment) as child:
        wait_until(lambda: len(list(marked(mark))) == 3, timeout_s=BOUND_S, what="the family")
        ours._process.send_signal(signal.SIGSTOP)
        ours.close()
        assert list(marked(mark)) == []
        assert child.wait() == -signal.SIGKILL


def test_what_a_guard_that_was_killed_leaves_is_ended() -> None:
    """Seen to fail: a guard that somebody had ended counted as one that had done its work."""
    ours = Guard()
    mark = ours.environment[MARK]
    with started(ours.environment) as child:
        wait_until(lambda: len(list(marked(mark))) == 3, timeout_s=BOUND_S, what="the family")
        ours._process.kill()
        ours._process.wait()
        ours.close()
        assert list(marked(mark)) == []
        assert child.wait() == -signal.SIGKILL


def test_of_a_run_within_a_run_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does a file in the folder where it is started keep its guard from its work."""
    (tmp_path / "signal.py").write_text("raise SystemExit")
    monkeypatch.chdir(tmp_path)
    outer = Guard()
    with monkeypatch.context() as within:
        within.setenv(MARK, outer.environment[MARK])
        inner = Guard()
    with started(inner.environment) as child:
        outer.close()
        inner.close()
        assert list(marked(inner.environment[MARK])) == []
        assert child.wait() == -signal.SIGKILL
