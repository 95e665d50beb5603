"""Goal: a lab that is ended while it sets itself up leaves nothing, its network included.

Method: the campaign's own ending, at two moments that are known; `make soak` has twenty at random.
"""

from __future__ import annotations

import signal
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.cluster.network import possible
from holdfast.cluster.processes import wait_until
from holdfast.lab.soak.killed_campaigns import (
    INTERRUPTED,
    end_lab,
    files_in,
    has_network,
    has_nodes,
    hearing,
)

BOUND_S = 60.0


def test_whatever_is_no_folder_is_left(tmp_path: Path) -> None:
    """Goal: a socket or a broken link that stays is seen as a file is."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    (tmp_path / "gone").symlink_to(tmp_path / "nowhere")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
    assert files_in(tmp_path) == ("file", "gone", "socket")


@pytest.mark.process
def test_a_signal_is_heard_whatever_a_shell_has_its_background_jobs_pass_over() -> None:
    """Seen to fail: with `make soak &` each lab that was to be ended by SIGINT ran to its end."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with hearing(signal.SIGINT):
            started = subprocess.Popen(["sleep", "60"])
        started.send_signal(signal.SIGINT)
        assert started.wait(BOUND_S) == -signal.SIGINT
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.turns
@pytest.mark.serial
@pytest.mark.slow
@pytest.mark.process
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("reached", "number", "status"),
    [(has_network, signal.SIGTERM, INTERRUPTED), (has_nodes, signal.SIGKILL, -signal.SIGKILL)],
    ids=["SIGTERM as its network stands", "SIGKILL as its nodes start"],
)
def test_nothing_is_left(
    tmp_path: Path, reached: Callable[[Path], bool], number: signal.Signals, status: int
) -> None:
    if possible.look({}).how != possible.NAMESPACES:
        pytest.skip("no network namespaces here")
    run = tmp_path / "lab" / "run"

    def moment() -> None:
        wait_until(lambda: reached(run), timeout_s=BOUND_S, what="the moment")

    left = end_lab(tmp_path / "lab", number, moment)
    assert left.before >= 3, "there was nothing to leave"
    assert left.processes == ()
    assert left.files == ()
    assert left.status == status
