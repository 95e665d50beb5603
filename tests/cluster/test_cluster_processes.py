"""Processes: only the one that was started is ever signalled. Real ones, short-lived."""

from __future__ import annotations

import os
import signal
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.cluster import processes
from holdfast.cluster.layout import ClusterError
from holdfast.cluster.processes import State

BOUND_S = 10.0
WAITING = "import sys, time; print('up', flush=True); time.sleep(60)"


@pytest.fixture
def child(tmp_path: Path) -> Iterator[tuple[int, str]]:
    pid = processes.spawn([sys.executable, "-c", WAITING], log_file=tmp_path / "log")
    identity = processes.identify(pid)
    assert identity is not None
    yield pid, identity
    processes.send(pid, identity, signal.SIGKILL)
    wait_for(pid, identity, State.DEAD)


def wait_for(pid: int, identity: str, state: State) -> None:
    processes.wait_until(
        lambda: processes.state(pid, identity) is state, timeout_s=BOUND_S, what=f"{state}"
    )


@pytest.mark.process
def test_states_follow_signals(child: tuple[int, str]) -> None:
    """Goal: running, stopped, dead are told apart. Method: STOP, CONT, KILL."""
    pid, identity = child
    assert processes.state(pid, identity) is State.RUNNING
    processes.send(pid, identity, signal.SIGSTOP)
    wait_for(pid, identity, State.STOPPED)
    processes.send(pid, identity, signal.SIGCONT)
    wait_for(pid, identity, State.RUNNING)
    assert processes.send(pid, identity, signal.SIGKILL)
    wait_for(pid, identity, State.DEAD)
    assert not processes.send(pid, identity, signal.SIGKILL)


@pytest.mark.process
def test_a_stranger_with_the_same_pid_is_left_alone(child: tuple[int, str]) -> None:
    """Goal: a pid that was given away again is never signalled. Method: another identity."""
    pid, identity = child
    other = identity[:-1] + ("1" if identity[-1] != "1" else "2")
    assert processes.state(pid, other) is State.DEAD
    assert not processes.send(pid, other, signal.SIGKILL)
    assert processes.state(pid, identity) is State.RUNNING


@pytest.mark.process
def test_a_stranger_of_another_boot_is_left_alone(child: tuple[int, str]) -> None:
    """Goal: after a reboot the same pid and the same start tick are nobody we know.

    Method: the identity that `cluster.json` would hold, had the machine been booted since.
    """
    pid, identity = child
    boot, slash, ticks = identity.partition("/")
    assert (boot, slash) == (Path("/proc/sys/kernel/random/boot_id").read_text().strip(), "/")
    earlier = f"{uuid.uuid4()}/{ticks}"
    assert processes.state(pid, earlier) is State.DEAD
    assert not processes.send(pid, earlier, signal.SIGKILL)
    assert processes.state(pid, identity) is State.RUNNING


@pytest.mark.process
def test_a_child_that_has_ended_is_dead_and_leaves_no_zombie(tmp_path: Path) -> None:
    """Goal: a parent that lives long keeps no corpses. Method: a child that ends at once, perhaps
    before it was identified: seen to stay for ever then.
    """
    pid = processes.spawn([sys.executable, "-c", "pass"], log_file=tmp_path / "log")
    processes.wait_until(
        lambda: processes.identify(pid) is None, timeout_s=BOUND_S, what="the child to end"
    )
    assert not Path(f"/proc/{pid}").exists()


@pytest.mark.process
def test_a_child_whose_threads_end_later_leaves_no_zombie(tmp_path: Path) -> None:
    """Goal: as above, for a killed JVM: it is dead when its first thread is, and its status can be
    taken when the last one is. By then another process bears its node's name, and it is forgotten.

    Method: the first thread ends; another one, which somebody lets go, does when that was seen.
    """
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    text = (
        f"import ctypes, threading\nthreading.Thread(target=open, args=({str(gate)!r},)).start()\n"
        "ctypes.CDLL(None).pthread_exit(None)"
    )
    pid = processes.spawn([sys.executable, "-c", text], log_file=tmp_path / "log")
    processes.wait_until(
        lambda: processes.identify(pid) is None, timeout_s=BOUND_S, what="its first thread to end"
    )
    assert Path(f"/proc/{pid}").exists()
    gate.open("w").close()
    processes.wait_until(
        lambda: not Path(f"/proc/{pid}").exists(),
        timeout_s=BOUND_S,
        what="nothing to be left of it",
    )


@pytest.mark.process
def test_it_has_a_session_of_its_own_and_its_output_is_kept(
    child: tuple[int, str], tmp_path: Path
) -> None:
    """Goal: a Ctrl-C here doesn't reach it, its words are not lost. Method: session id, log."""
    pid, _ = child
    assert os.getsid(pid) == pid
    log = tmp_path / "log"
    processes.wait_until(
        lambda: log.read_text().endswith("\nup\n"), timeout_s=BOUND_S, what="output"
    )


@pytest.mark.process
def test_the_start_time_is_the_systems(child: tuple[int, str]) -> None:
    """Goal: `start_time` is what other tools show. Method: it lies just behind us."""
    pid, _ = child
    started = processes.start_time(pid)
    assert started is not None
    assert abs(started - time.time()) < 60
    processes.wait_until(  # right after its start it has a page or two
        lambda: (processes.resident_bytes(pid) or 0) > 1_000_000, timeout_s=BOUND_S, what="memory"
    )


def test_waiting_is_bounded_and_says_for_what() -> None:
    """Goal: no wait without an end. Method: a condition that never comes."""
    with pytest.raises(ClusterError, match=r"0\.01 s in vain for rain"):
        processes.wait_until(lambda: None, timeout_s=0.01, what="rain")
    assert processes.wait_until(lambda: 7, timeout_s=0.0, what="seven") == 7


def test_the_tail_of_a_log(tmp_path: Path) -> None:
    """Goal: errors show the end, and never fail themselves. Method: a long log, and none."""
    log = tmp_path / "log"
    log.write_text("".join(f"line {number}\n" for number in range(10_000)))
    assert processes.log_tail(log, 2) == "line 9998\nline 9999"
    log.write_text(f"of one before\n{processes.START_MARK}\nmine\n")
    assert processes.log_tail(log) == "mine"
    assert "No such file" in processes.log_tail(tmp_path / "missing")
