"""Log directories on small file systems, which something else fills, and makes room on again.

Owns the file that takes the room: another program's, as far as a node can tell. What a node makes
of a full disk it does by itself; the history says when there was no room, and when there was again.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from shutil import copytree

from holdfast.lab.parameters import LabError
from holdfast.lab.run import Run
from holdfast.lab.steps.closing import log_directories
from holdfast.lab.steps.mounts import mount_small, unmount

SIZE_BYTES = 48 << 20
SPARE_BYTES = 256 << 10  # what the events themselves may still take
FILLER = "of-another-program"
FILLS_MAX = 20  # the node may take what has just been counted as free
PROPERTY = "log.dirs"


class SmallDisk:
    """One of a node's log directories, or its only one, on a file system of its own."""

    def __init__(self, run: Run, node: int, *, only: bool) -> None:
        """Stop the node, move it there and start it. Call this before there is a topic.

        `only`: what the node has had until now is moved there; else it has a second directory.
        """
        self._run = run
        self.node = node
        config = Path(run.cluster.node(node).config_file)
        self.file_system = config.parent / "small"
        self.directory = self.file_system / "data"
        run.ended.add(node)
        run.cluster.kill(node, "TERM", timeout_s=run.parameters.leave_s)
        before = log_directories(run, node)
        mount_small(self.file_system, SIZE_BYTES)
        run.afterwards.callback(unmount, self.file_system)
        if only:
            copytree(before[0], self.directory)
        directories = [self.directory] if only else [*before, self.directory]
        _set_directories(config, directories)
        run.cluster.start_node(node, timeout_s=run.parameters.start_s)
        run.ended.discard(node)
        run.note(f"{self} lies on a file system of {SIZE_BYTES >> 20} MiB")

    def __str__(self) -> str:
        return f"log directory {self.file_system.name}/{self.directory.name} of node {self.node}"

    def holds(self, partition: int) -> bool:
        """Whether the node has the topic's partition here."""
        return self.replica(partition).is_dir()

    def replica(self, partition: int) -> Path:
        """Where the node has the topic's partition, if it has it here."""
        return self.directory / f"{self._run.topic}-{partition}"

    def fill(self, spare_bytes: int = 0) -> None:
        """Take all the room there is, but for so much."""
        take_room(self.file_system / FILLER, spare_bytes)
        self._run.note(f"{self}: another program leaves {spare_bytes:,} bytes free")

    def make_room(self) -> None:
        (self.file_system / FILLER).unlink()
        self._run.note(f"{self}: there is room again")


def take_room(filler: Path, spare_bytes: int) -> None:
    """Let a file take all the room of its file system, but for so much, while others write there.

    LabError: they always come first.
    """
    with filler.open("wb") as file:
        for _ in range(FILLS_MAX):
            found = os.statvfs(filler)
            taken = found.f_bavail * found.f_frsize - spare_bytes
            try:
                os.posix_fallocate(file.fileno(), 0, taken)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
            else:
                return
    raise LabError(f"{filler.parent} can't be filled: others write into it all the while")


def _set_directories(config: Path, directories: list[Path]) -> None:
    lines = config.read_text(encoding="utf-8").splitlines()
    kept = [line for line in lines if line.partition("=")[0].strip() != PROPERTY]
    named = ",".join(map(str, directories))
    config.write_text("\n".join([*kept, f"{PROPERTY}={named}"]) + "\n", encoding="utf-8")
