"""Makes the namespaces of one network and holds them, with the files beside them, until it ends.

A script, run by itself in a new network namespace that becomes the router. It is told what to do in
JSON lines on standard input, which is its maker's lifeline: when that ends, so does this, unless it
was settled. It owns every file that it was told the names of, and removes them as it ends. Must
never import anything of ours, nor decide anything: what it makes was planned in `addresses.py`.

    {"directory", "ip", "files": {name: text}, "others": [name], "settings": {path: text},
     "router": commands, "places": [{"name", "commands"}]}      answer: {"descriptors": {name: fd}}
    {"write": {name: text}}                                     answer: {}
    {"settle": true}                                            answer: {}
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import json
import os
import select
import signal
import sys
from typing import Any

CLONE_NEWNET = 0x40000000
ROUTER = "router"
NEW = ".new"  # a file that is being written
_libc = ctypes.CDLL(None, use_errno=True)


def main() -> int:
    # SIGTERM is read like an order, between two of them: an exception in the middle of removing
    # files would leave the rest of them.
    ending, noticed = os.pipe()
    os.set_blocking(noticed, False)
    signal.set_wakeup_fd(noticed)
    signal.signal(signal.SIGTERM, lambda _signal, _frame: None)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    lines = _lines(ending)
    task = next(lines, None)
    if task is None:
        return 1
    made: set[str] = set()
    try:
        try:
            os.chdir(task["directory"])
            claim(".")
            made |= {*task["files"], *task["others"]}
            for name in made:  # of an earlier holder, which was killed
                _remove(name)
            _answer({"descriptors": _make(task)})
            for order in lines:
                for name, text in order.get("write", {}).items():
                    assert name in made, "a file that nobody would remove"
                    _write(name, text)
                _answer({})
                if order.get("settle"):
                    _let_go_of_maker()
                    select.select([ending], [], [])
                    break
        except OSError as error:
            _answer({"error": f"{error.filename or 'the network'}: {error.strerror}"})
            return 1
    finally:
        for name in made:
            _remove(name)
            _remove(name + NEW)
    return 0


def _make(task: dict[str, Any]) -> dict[str, int]:
    """Make all namespaces and what is in them. OSError says what could not be done."""
    descriptors = {ROUTER: os.open("/proc/self/ns/net", os.O_RDONLY)}
    _write_settings(task["settings"])
    for place in task["places"]:
        _checked(_libc.unshare(CLONE_NEWNET), f"a namespace for {place['name']}")
        descriptors[place["name"]] = os.open("/proc/self/ns/net", os.O_RDONLY)
        _write_settings(task["settings"])
    _enter(descriptors[ROUTER])
    commands = task["router"]
    for name, number in descriptors.items():
        commands = commands.replace(f"@{name}@", f"/proc/{os.getpid()}/fd/{number}")
    _run_ip(task["ip"], commands)
    for place in task["places"]:
        _enter(descriptors[place["name"]])
        _run_ip(task["ip"], place["commands"])
    _enter(descriptors[ROUTER])
    for name, text in task["files"].items():
        _write(name, text)
    return descriptors


def claim(directory: str) -> int:
    """Have a directory for ourselves until what is returned is closed, or we end.

    OSError: another holder has it, or proxies (`pair_proxies`).
    """
    file = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        raise OSError(errno.EBUSY, "another network is made or stands there", directory) from None
    return file


def _enter(descriptor: int) -> None:
    _checked(_libc.setns(descriptor, CLONE_NEWNET), "setns")


def _checked(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), what)


def _write_settings(settings: dict[str, str]) -> None:
    """Write settings of the namespace that we are in; what the kernel doesn't have needs none."""
    for path, text in settings.items():
        try:
            file = os.open(path, os.O_WRONLY)
        except FileNotFoundError:
            continue
        try:
            os.write(file, text.encode())
        finally:
            os.close(file)


def _run_ip(program: str, commands: str) -> None:
    """Run `ip -batch` here. OSError has what it said when it fails."""
    asked, said = os.memfd_create("commands"), os.memfd_create("said")
    try:
        os.write(asked, commands.encode())
        os.lseek(asked, 0, os.SEEK_SET)
        actions = [(os.POSIX_SPAWN_DUP2, asked, 0), (os.POSIX_SPAWN_DUP2, said, 1)]
        actions.append((os.POSIX_SPAWN_DUP2, said, 2))
        words = [program, "-batch", "-"]
        pid = os.posix_spawn(program, words, dict(os.environ), file_actions=actions)
        _, status = os.waitpid(pid, 0)
        if status != 0:
            text = os.pread(said, 2000, 0).decode(errors="replace").strip()
            raise OSError(1, text or f"status {status}", program)
    finally:
        os.close(asked)
        os.close(said)


def _write(name: str, text: str) -> None:
    """Replace a file at once: whoever reads sees the old one or the new one."""
    file = os.open(name + NEW, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    try:
        os.write(file, text.encode())
    finally:
        os.close(file)
    os.rename(name + NEW, name)  # noqa: PTH104 - pathlib costs 10 ms


def _remove(name: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(name)  # noqa: PTH108 - pathlib costs 10 ms


def _lines(ending: int) -> Any:
    """Yield what the maker says, line by line, until it has gone or `ending` is readable."""
    rest = b""
    while ending not in select.select([0, ending], [], [])[0]:
        part = os.read(0, 1 << 16)
        if not part:
            return
        *lines, rest = (rest + part).split(b"\n")
        for line in lines:
            yield json.loads(line)


def _answer(values: dict[str, Any]) -> None:
    with contextlib.suppress(OSError):  # who asked has gone, which standard input is about to say
        os.write(1, json.dumps(values).encode() + b"\n")


def _let_go_of_maker() -> None:
    """Need neither its lifeline nor its ears any more."""
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    os.close(null)


if __name__ == "__main__":
    sys.exit(main())
