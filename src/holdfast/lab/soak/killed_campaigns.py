"""The lab itself is ended at random moments: nothing that it has started may stay.

Owns the ending of a proof in a network of its own, and the looking for what is left: processes,
by a word in their environment that all of them hand down, and what lies in the folder for temporary
files. A network namespace lives as long as a process in it, so it is gone with the last of them.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.cluster import ClusterError, LocalCluster, layout, own_code
from holdfast.cluster.network import possible
from holdfast.cluster.plan import PROXIES
from holdfast.cluster.processes import wait_until
from holdfast.lab.soak.campaign import NETWORK, Campaign, network_said
from holdfast.lab.soak.exercised import by_commands, by_scenario

WORD = "HOLDFAST_LAB_TO_END"  # of the environment
SCENARIO = "split-brain"
FURTHER_S = 2.0  # at most, from what was reached to the end
REACHED_S = 120.0  # for that to be reached, on a slow machine
SIGNALS = (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
GONE_S = 120.0  # for all to be gone, on a slow machine
INTERRUPTED = 130


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """What was there when the lab was ended, and what of it stayed."""

    before: int  # processes
    processes: tuple[str, ...]
    files: tuple[str, ...]
    status: int | None  # of its end; None: it has not ended


def end_lab(directory: Path, number: signal.Signals, moment: Callable[[], None]) -> Left:
    """Prove a scenario in this folder, end that, and look what is left. ClusterError.

    `moment` waits until it shall be ended.
    """
    word, temporary = uuid.uuid4().hex, directory / "tmp"
    temporary.mkdir(parents=True)
    command = ["-m", "holdfast.cli", "prove", SCENARIO, "--output", str(directory / "run")]
    environment = {
        **os.environ,
        **own_code.environment(),
        "TMPDIR": str(temporary),
        WORD: word,
    }
    with (directory / "said").open("wb") as said, hearing(number):
        process = subprocess.Popen(  # noqa: S603 - our own module, no shell
            [sys.executable, "-P", *command],
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            env=environment,
            start_new_session=True,
        )
    with process:
        try:
            moment()
            before = len(list(bearing(word)))
            process.send_signal(number)
            status = None
            with suppress(subprocess.TimeoutExpired):  # it is one of those that are left
                status = process.wait(GONE_S)
            with suppress(ClusterError):
                wait_until(lambda: not list(bearing(word)), timeout_s=GONE_S, what="all to end")
            left = tuple(command_of(pid) for pid in bearing(word))
        finally:
            for pid in bearing(word):
                with suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
    return Left(before=before, processes=left, files=files_in(temporary), status=status)


@contextmanager
def hearing(number: signal.Signals) -> Iterator[None]:
    """Have what is started hear a signal also where this process passes over it.

    A shell has its background jobs ignore SIGINT, which all that they start inherit.
    """
    if signal.getsignal(number) is not signal.SIG_IGN:
        yield
        return
    signal.signal(number, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(number, signal.SIG_IGN)


def files_in(folder: Path) -> tuple[str, ...]:
    """Return all that lies in a folder and is no folder: sockets and broken links, too.

    SIGKILL amid the look for namespaces leaves its folder, which is empty.
    """
    found = (path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir())
    return tuple(sorted(str(path.relative_to(folder)) for path in found))


def bearing(word: str) -> Iterator[int]:
    """Yield the pid of every process that has this word in its environment."""
    wanted = f"{WORD}={word}".encode()
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended
            if wanted in (path / "environ").read_bytes().split(b"\0"):
                yield int(path.name)


def command_of(pid: int) -> str:
    """Return the command line of a process; nothing when it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
    except OSError:
        return ""


def is_started(_run: Path) -> bool:
    return True


def has_network(run: Path) -> bool:
    """Whether a network was made for the first part: its nodes have not been started."""
    return any((run / "main" / "cluster").rglob("network.json"))


def has_nodes(run: Path) -> bool:
    """Whether all nodes were started, of which none need serve."""
    cluster = run / "main" / "cluster"
    return layout.exists(cluster) and all(node.pid for node in LocalCluster.open(cluster).nodes)


def has_clients(run: Path) -> bool:
    return (run / "main" / "history" / "beside-leader.jsonl").exists()


def is_cut(run: Path) -> bool:
    try:
        return '"CUT"' in (run / "main" / "history" / "lab.jsonl").read_text(encoding="utf-8")
    except FileNotFoundError:
        return False


# How far a run has come. Half of them are set-up.
STAGES = (is_started, has_network, has_nodes, has_clients, is_cut)


def ended_at_random(directory: Path) -> dict[str, Any]:
    """End the lab at some moment by some signal."""
    seed = random.SystemRandom().randrange(1 << 32)
    chance = random.Random(seed)  # noqa: S311 - moments, not secrets
    reached, number = chance.choice(STAGES), chance.choice(SIGNALS)
    further_s = chance.uniform(0.0, FURTHER_S)

    def moment() -> None:
        what = f"a run of which it is said: {reached.__name__}"
        wait_until(lambda: reached(directory / "run"), timeout_s=REACHED_S, what=what)
        time.sleep(further_s)

    try:
        # Ended before it has a network, it would have had this one. What it leaves may keep the
        # machine too busy for such a look.
        looked = possible.look()
        left = end_lab(directory, number, moment)
    except ClusterError as error:
        return {"kept": None, "verdict": f"The run could not be made: {error}", "seed": seed}
    statuses = {-signal.SIGKILL} if number is signal.SIGKILL else {INTERRUPTED}
    if reached is is_started:
        statuses.add(-number)  # while modules are loaded it ends as any process does
    kept = not left.processes and not left.files and left.status in statuses
    network = network_said(directory)
    if kept and network is None and looked.how == PROXIES:
        verdict = f"It was ended before it had a network, so by none of namespaces: {looked.reason}"
        return {"kept": None, "verdict": verdict, "seed": seed}
    return {
        "kept": kept,
        "verdict": f"{number.name} {further_s:.1f} s after {reached.__name__}, with {left.before} "
        f"processes: {len(left.processes)} left, {len(left.files)} files, exit status "
        f"{left.status}.",
        NETWORK: network or looked.how,
        "stage": reached.__name__,
        "left": left.processes,
        "files": left.files,
        "seed": seed,
    }


CAMPAIGNS = (
    Campaign(
        name="lab-ended",
        text="A proof in a network of its own is ended at a random moment by SIGKILL, SIGTERM or "
        "Ctrl-C: no process, no namespace and no temporary file stays.",
        runs=20,
        run=ended_at_random,
        exercises=(
            *by_scenario(SCENARIO),
            *by_commands("prove"),
            "holdfast/lab/soak/killed_campaigns.py",
        ),
        in_namespaces=True,
    ),
)
