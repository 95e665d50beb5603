"""Processes that outlive the command that started them: spawn, look at, signal, wait.

Owns the check that a pid still is the process that was started: a signal never reaches a stranger
that was given the same number later. Knows nothing of clusters.
"""

from __future__ import annotations

import os
import signal as signals
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

from holdfast.cluster.layout import ClusterError, WaitError

T = TypeVar("T")

SIGNALS: Mapping[str, signals.Signals] = {
    "KILL": signals.SIGKILL,
    "TERM": signals.SIGTERM,
    "STOP": signals.SIGSTOP,
    "CONT": signals.SIGCONT,
}
POLL_S = 0.005
LOG_TAIL_BYTES = 16_384
START_MARK = "--- a new process writes from here on ---"
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


class State(StrEnum):
    """What the system says of a process."""

    RUNNING = "running"
    STOPPED = "stopped"  # by SIGSTOP: alive, and doing nothing
    DEAD = "dead"


# As the kernel and `ps` write it; of others all run. A zombie has died, though its parent hasn't
# asked yet.
_BY_LETTER: Mapping[str, State] = {
    **dict.fromkeys("ZXx", State.DEAD),
    **dict.fromkeys("Tt", State.STOPPED),
}
_dead: set[int] = set()  # children that have ended, and whose status is still to be taken


def spawn(
    arguments: Sequence[str], *, log_file: Path, environment: Mapping[str, str] | None = None
) -> int:
    """Start a process in a session of its own and return its pid; `log_file` gets its output.

    `environment` is laid over our own.

    A Ctrl-C in our terminal doesn't reach it and it lives on when we end. `posix_spawn` because it
    takes a millisecond, however large this process has grown.
    """
    with log_file.open("a") as file:
        file.write(f"{START_MARK}\n")  # an error's tail shows nothing of earlier processes
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    actions: list[tuple[int, int, str, int, int] | tuple[int, int, int]] = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, str(log_file), flags, 0o644),
        (os.POSIX_SPAWN_DUP2, 1, 2),
    ]
    return os.posix_spawn(
        arguments[0],
        list(arguments),
        {**os.environ, **(environment or {})},
        file_actions=actions,
        setsid=True,
        setsigmask=(),
        setsigdef=(signals.SIGINT, signals.SIGTERM, signals.SIGPIPE),
    )


def identify(pid: int) -> str | None:
    """Return what tells this process from any other that ever has its pid; None once it is dead.

    On Linux that is the boot's id and the clock tick at which the process started.
    """
    facts = _facts(pid)
    if facts is None:
        return None
    if facts[0] is State.DEAD:
        _reap(pid)  # nobody will ask for it again
        return None
    return facts[1]


def state(pid: int | None, process: str | None) -> State:
    """Say what has become of the process that was once identified as `process`."""
    if pid is None or process is None:
        return State.DEAD
    facts = _facts(pid)
    if facts is None or facts[1] != process:
        return State.DEAD
    if facts[0] is State.DEAD:
        _reap(pid)
    return facts[0]


def send(pid: int | None, process: str | None, signal: signals.Signals) -> bool:
    """Signal a process if it still is the one that was identified. False: it is gone."""
    if pid is None or state(pid, process) is State.DEAD:
        return False
    try:
        os.kill(pid, signal)
    except ProcessLookupError:
        return False
    except PermissionError:
        raise ClusterError(
            f"Process {pid} belongs to another user; it can't be signalled."
        ) from None
    return True


def has_gone(pid: int | None, process: str | None) -> bool:
    """Say whether nothing of a process is left: one that counts as dead may still have threads."""
    if state(pid, process) is not State.DEAD:
        return False
    found = None if pid is None else _facts(pid)
    if found is None or found[1] != process:
        return True
    try:
        return len(os.listdir(f"/proc/{pid}/task")) <= 1  # noqa: PTH208 - names alone
    except OSError:
        return True


def running(endings: Mapping[T, Sequence[str]]) -> list[tuple[T, int]]:
    """Return the processes whose command lines end with the words of one of these; whose, and pid.

    None where /proc is not. All are looked for at once: it takes as long as there are processes.
    """
    wanted = {
        whose: b"".join(os.fsencode(word) + b"\0" for word in words)
        for whose, words in endings.items()
    }
    found = []
    for path in Path("/proc").glob("[0-9]*") if wanted else ():
        with suppress(OSError):
            line = (path / "cmdline").read_bytes()
            found += [
                (whose, int(path.name)) for whose, end in wanted.items() if line.endswith(end)
            ]
    return found


def start_time(pid: int) -> float | None:
    """Seconds since 1970 at which a process started, as far as the system tells."""
    ticks = _start_ticks(pid)
    if ticks is None:
        return time.time() if identify(pid) else None
    for line in _read("/proc/stat").splitlines():
        if line.startswith("btime "):
            return int(line.split()[1]) + ticks / _TICKS_PER_SECOND
    return None


def resident_bytes(pid: int) -> int | None:
    """Memory of a process (resident set), None when it can't be told."""
    fields = _read(f"/proc/{pid}/statm").split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE") if len(fields) > 1 else None


def wait_until(
    condition: Callable[[], T | None], *, timeout_s: float, what: str, poll_s: float = POLL_S
) -> T:
    """Call `condition` until it returns something true, and return that.

    WaitError, naming `what` was waited for, when `timeout_s` is over.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        _reap_dead()
        value = condition()
        if value:
            return value
        if time.monotonic() >= deadline:
            raise WaitError(f"Waited {timeout_s:g} s in vain for {what}.")
        time.sleep(poll_s)


def log_tail(log_file: Path, lines: int = 12) -> str:
    """Return the last lines that the last process wrote, for an error message. Never fails."""
    try:
        with log_file.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - LOG_TAIL_BYTES))
            text = file.read().decode(errors="replace")
    except OSError as error:
        return f"({log_file}: {error.strerror})"
    text = text.rpartition(f"{START_MARK}\n")[2]
    return "\n".join(text.splitlines()[-lines:])


def _facts(pid: int) -> tuple[State, str] | None:
    """State and identity of whatever has this pid now; None when nothing has."""
    if sys.platform != "linux":
        return _facts_from_ps(pid)
    fields = _stat_fields(pid)
    if fields is None:
        return None
    letter, ticks = fields[0], fields[19]
    return _BY_LETTER.get(
        letter, State.RUNNING
    ), f"{_read('/proc/sys/kernel/random/boot_id').strip()}/{ticks}"


def _facts_from_ps(pid: int) -> tuple[State, str] | None:
    """Without /proc, `ps` tells the same; start times have whole seconds there."""
    import subprocess  # noqa: PLC0415 - costs 10 ms, and Linux never comes here

    found = subprocess.run(  # noqa: S603 - a fixed program and a number
        ["/bin/ps", "-o", "stat=,lstart=", "-p", str(pid)],
        capture_output=True,
        text=True,
        check=False,
    )
    letters, _, started = found.stdout.strip().partition(" ")
    if not letters:
        return None
    return _BY_LETTER.get(letters[0], State.RUNNING), started.strip()


def _stat_fields(pid: int) -> list[str] | None:
    """Fields of /proc/PID/stat from the third on; the second, a name, may hold anything."""
    text = _read(f"/proc/{pid}/stat")
    fields = text[text.rfind(")") + 1 :].split()
    return fields if len(fields) > 19 else None


def _start_ticks(pid: int) -> int | None:
    fields = _stat_fields(pid)
    return None if fields is None else int(fields[19])


def _read(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""


def _reap(pid: int) -> None:
    """Take a dead child's status, so that it doesn't stay in the process table while we run.

    While some of its threads are still ending there is none to be had, and perhaps nobody asks for
    this process any more: then it is taken while something else is waited for.
    """
    _dead.add(pid)
    _reap_dead()


def _reap_dead() -> None:
    for pid in list(_dead):
        try:
            found, _ = os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:  # another's child, or taken already
            found = pid
        if found == pid:
            _dead.discard(pid)
