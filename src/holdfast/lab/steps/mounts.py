"""A small file system for a directory of a run, in memory, which no other process sees.

Owns the mounts. They lie in a namespace that this process enters, and with it all that it starts
from then on: the system takes them away when the last of them has ended, SIGKILL included. Who is
not root gets there where users may have namespaces of their own, before there is a second thread;
a run of the lab has some, and is to be started as the root of such a namespace. Linux only.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from pathlib import Path

from holdfast.lab.parameters import LabError, refuse_if

NEW_MOUNTS = 0x00020000  # CLONE_NEWNS
NEW_USER = 0x10000000  # CLONE_NEWUSER: in it this user may mount
KEPT = ".kept"

_entered = False


def mount_small(directory: Path, size_bytes: int) -> None:
    """Put an empty file system of this size in the place of a directory.

    LabError: this machine does not allow it, so what needs it can't be shown here.
    """
    _enter_namespace()
    directory.mkdir(parents=True, exist_ok=True)
    _command("mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "holdfast", str(directory))


def resize(directory: Path, size_bytes: int) -> None:
    """Let it grow, or shrink to what it holds. LabError: it holds more."""
    refuse_if(size_bytes < 1, f"{directory}: to the system a size of 0 is no bound")
    _command("mount", "-o", f"remount,size={size_bytes}", str(directory))


def unmount(directory: Path) -> None:
    """Take it away, and leave what it held in its place."""
    kept = directory.with_name(directory.name + KEPT)
    shutil.copytree(directory, kept, dirs_exist_ok=True)
    _command("umount", str(directory))
    directory.rmdir()
    kept.rename(directory)


def _enter_namespace() -> None:
    global _entered  # noqa: PLW0603 - a process enters once, and for good
    if _entered:
        return
    if sys.platform != "linux":
        raise LabError("A small file system of its own takes Linux.")
    user, group = os.geteuid(), os.getegid()
    if user == 0:
        _unshare(NEW_MOUNTS)
    else:
        _unshare(NEW_MOUNTS | NEW_USER)
        Path("/proc/self/setgroups").write_text("deny", encoding="ascii")
        Path("/proc/self/uid_map").write_text(f"0 {user} 1", encoding="ascii")
        Path("/proc/self/gid_map").write_text(f"0 {group} 1", encoding="ascii")
    _command("mount", "--make-rprivate", "/")
    _entered = True


def _unshare(flags: int) -> None:
    system = ctypes.CDLL(None, use_errno=True)
    if system.unshare(flags):
        reason = os.strerror(ctypes.get_errno())
        raise LabError(
            f"This machine does not let the run have a small file system of its own ({reason}): "
            "it takes root, or the root of a namespace of your own: put `unshare --map-root-user` "
            "before the command."
        )


def _command(*words: str) -> None:
    try:
        done = subprocess.run(  # noqa: S603 - ours
            words, capture_output=True, text=True, check=False
        )
    except OSError as error:  # a small image may have no such program
        raise LabError(f"{' '.join(words)}: {error}") from error
    if done.returncode:
        raise LabError(f"{' '.join(words)}: {done.stderr.strip()}")
