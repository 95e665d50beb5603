"""Whose a replica is: the file in its directory that says its topic's id.

Owns the sharing of these files. One never changes, so the replicas of a topic in one log directory
have a file together, each with a name of its own: to make a file costs as much as to make a
directory. Reading them is `checkpoints`'.
"""

from __future__ import annotations

from errno import EACCES, EINVAL, EMLINK, ENOENT, ENOSYS, ENOTSUP, EOPNOTSUPP, EPERM, EXDEV
from typing import Final

from holdfast.log.checkpoints import PARTITION_METADATA, encode_partition_metadata
from holdfast.runtime.ports import Disk

# Why a file can't have one more name: it has too many, it went, or there is no such thing here.
_NOT_SHARED: Final = (
    EMLINK, ENOENT, EPERM, EACCES, EINVAL, EOPNOTSUPP, ENOTSUP, ENOSYS, EXDEV,
)  # fmt: skip


class TopicIds:
    """Files are shared among replicas that this process has made."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        # By log directory and topic id: the file of a replica that is there.
        self._files: dict[tuple[str, bytes], str] = {}

    def write(self, home: str, replica: str, topic_id: bytes, *, is_new: bool) -> None:
        """Write down whose a replica is that is made in log directory `home`.

        `is_new`: its directory is empty. OSError: the disk fails.
        """
        file = f"{replica}/{PARTITION_METADATA}"
        shared = self._files.get((home, topic_id)) if is_new else None
        if shared is not None:
            try:
                self._disk.link(shared, file)
            except OSError as error:
                if error.errno not in _NOT_SHARED:
                    raise
                del self._files[home, topic_id]
            else:
                return
        self._disk.write_atomic(file, encode_partition_metadata(topic_id), sync=False)

    def made(self, home: str, replica: str, topic_id: bytes) -> None:
        """The replica is there: others may share its file."""
        self._files.setdefault((home, topic_id), f"{replica}/{PARTITION_METADATA}")

    def gone(self, home: str, replica: str, topic_id: bytes) -> None:
        """The replica is taken out: the next of that name may be another topic's."""
        if self._files.get((home, topic_id)) == f"{replica}/{PARTITION_METADATA}":
            del self._files[home, topic_id]
