"""Why a log directory is offline, in words: a full disk is not a dying one.

What is there to be done differs. A full one needs room and a new start, and nothing on it is lost;
one that fails may have lost what it had not written yet (docs/how-to/full-disk.md).
"""

from __future__ import annotations

import errno
from typing import Final

from holdfast.runtime.ports import Disk

FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


def why_offline(disk: Disk, path: str, error: OSError) -> str:
    """Return what the log and `holdfast status` say of a directory that goes offline by `error`."""
    if error.errno not in FULL:
        return f"the disk fails: {error}"
    return f"the disk is full: {error.strerror}{_room(disk, path)}"


def what_helps(error: OSError) -> str:
    """Return what its partitions wait for, from "until" on."""
    if error.errno in FULL:
        return "there is room and the node is started again"
    return "the disk is mended and the node is started again"


def _room(disk: Disk, path: str) -> str:
    try:
        space = disk.space(path)
    except OSError:
        return ""
    text = f", {space.free_bytes:,} of {space.total_bytes:,} bytes are free"
    return text + (", and no file can be added" if space.files_free == 0 else "")
