"""How much more a machine may write below a directory: a small file system, or a user's quota.

Owns the counting of one. Who writes, and what becomes of a write that does not fit, is the disk's.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass, field
from typing import Final

NAME_BYTES: Final = 64  # what a file or a directory takes before anything is in it


@dataclass(slots=True, kw_only=True)
class Quota:
    """Below this prefix so much more may be written; what is removed there makes room again."""

    prefix: str
    left_bytes: int
    code: int = errno.ENOSPC  # what a write that does not fit fails with
    struck: int = field(default=0, init=False)  # how often there was too little left

    def take(self, path: str, count: int) -> bool:
        """Count bytes, or names, that were made or, below 0, removed. False: there is no room."""
        if not path.startswith(self.prefix):
            return True
        if count > 0 and count > self.left_bytes:
            self.struck += 1
            return False
        self.left_bytes -= count
        return True
