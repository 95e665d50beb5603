"""Enters a place of a network and becomes a command there.

A script with one thread, since setns(user) refuses more, which imports nothing of ours:

    enter.py PID IDENTITY DESCRIPTOR USER FILES COMMAND...

PID and IDENTITY are the holder's, DESCRIPTOR its open descriptor of the place's namespace, USER "1"
where the network has a user namespace of its own. FILES is the directory with the place's `hosts`
and `resolv.conf`, which the command sees as those in /etc; "-" for none.
"""

from __future__ import annotations

import ctypes
import os
import sys

CLONE_NEWNS, CLONE_NEWUSER, CLONE_NEWNET = 0x00020000, 0x10000000, 0x40000000
MS_BIND, MS_REC, MS_PRIVATE = 0x1000, 0x4000, 0x40000
CANNOT_RUN, NOT_FOUND = 126, 127  # exit statuses, as a shell has them
_libc = ctypes.CDLL(None, use_errno=True)


class EnterError(Exception):
    """The place can't be entered; the text says why."""


def main() -> int:
    pid, identity, descriptor, user, files, *command = sys.argv[1:]
    try:
        enter(pid, identity, descriptor, user == "1")
        if files != "-":
            show_files(files)
    except EnterError as error:
        sys.stderr.write(f"enter: {error}\n")
        return CANNOT_RUN
    try:
        os.execvp(command[0], command)  # noqa: S606 - that is what this is for
    except OSError as error:
        sys.stderr.write(f"enter: {command[0]}: {error.strerror}\n")
        return NOT_FOUND if isinstance(error, FileNotFoundError) else CANNOT_RUN


def enter(pid: str, identity: str, descriptor: str, user: bool) -> None:
    """Put this process into the namespace that the holder has open under `descriptor`.

    All is opened below one directory of /proc, which stands for that very process: a pid that was
    given to another one meanwhile is refused, not entered.
    """
    try:
        process = os.open(f"/proc/{pid}", os.O_RDONLY | os.O_DIRECTORY)
        if _identity(process) != identity:
            raise ProcessLookupError  # noqa: TRY301 - the same as if it were not there
        opened = []
        if user:
            opened.append((os.open("ns/user", os.O_RDONLY, dir_fd=process), CLONE_NEWUSER))
        place = os.open(f"fd/{descriptor}", os.O_RDONLY, dir_fd=process)
        opened.append((place, CLONE_NEWNET))
    except (FileNotFoundError, ProcessLookupError):
        raise EnterError(f"the network has gone: its holder, process {pid}, has ended") from None
    except PermissionError:
        raise EnterError(f"process {pid}, which holds the network, is another user's") from None
    for file, kind in opened:
        _checked(_libc.setns(file, kind), "setns")
        os.close(file)
    os.close(process)


def _identity(process: int) -> str:
    """Return boot and start tick of a process, by its directory in /proc."""
    file = os.open("stat", os.O_RDONLY, dir_fd=process)
    try:
        stat = os.read(file, 4096).decode(errors="replace")
    finally:
        os.close(file)
    fields = stat[stat.rindex(")") + 1 :].split()
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as boot:  # noqa: PTH123 - pathlib costs 10 ms
        return f"{boot.read().strip()}/{fields[19]}"


def show_files(directory: str) -> None:
    """Lay the place's hosts and resolv.conf over those in /etc, for this process and its children.

    Without a name server that could answer, a look-up has to fail at once, not after its timeout.
    """
    _checked(_libc.unshare(CLONE_NEWNS), "a mount namespace")
    _checked(_libc.mount(None, b"/", None, MS_REC | MS_PRIVATE, None), "mounts of its own")
    for name in ("hosts", "resolv.conf"):
        target = f"/etc/{name}"
        if os.path.exists(target):  # noqa: PTH110 - pathlib costs 10 ms
            source = os.path.join(directory, name)  # noqa: PTH118 - as above
            mounted = _libc.mount(os.fsencode(source), target.encode(), None, MS_BIND, None)
            _checked(mounted, target)


def _checked(result: int, what: str) -> None:
    if result != 0:
        raise EnterError(f"{what}: {os.strerror(ctypes.get_errno())}")


if __name__ == "__main__":
    sys.exit(main())
