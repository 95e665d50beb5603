"""The transaction index of a segment: which of the transactions that end in it were aborted.

Owns the file's bytes, which are Apache Kafka's. A segment without such a file has none. Only
compaction reads and writes it so far: until there are transactions, no broker of ours makes one,
but a directory of Apache Kafka's may have them.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from struct import Struct as Layout
from typing import Final, NamedTuple

from holdfast.log.errors import CorruptFileError
from holdfast.runtime.ports import Disk, Files

_ENTRY: Final = Layout(">hqqqq")
_VERSION: Final = 0


class AbortedTransaction(NamedTuple):
    """An entry of a transaction index."""

    producer_id: int
    first_offset: int
    last_offset: int  # its marker's
    last_stable_offset: int  # when the marker was written


def read_transactions(disk: Disk, path: str) -> list[AbortedTransaction]:
    """Return what a transaction index says; nothing if there is none.

    CorruptFileError: it makes no sense, so which records count is not known.
    """
    if not disk.exists(path):
        return []
    data = disk.read(path)
    if len(data) % _ENTRY.size:
        raise CorruptFileError(f"{path} is cut in an entry")
    found = []
    for version, *fields in _ENTRY.iter_unpack(data):
        if version != _VERSION:
            raise CorruptFileError(f"{path}: version {version}, only {_VERSION} is known")
        found.append(AbortedTransaction(*fields))
    return found


def write_transactions(files: Files, path: str, aborted: Sequence[AbortedTransaction]) -> None:
    """Write a transaction index anew, durably. Slow: in a job."""
    with closing(files.open(path, create=True)) as file:
        file.truncate(0)
        file.append(b"".join(_ENTRY.pack(_VERSION, *each) for each in aborted))
        file.sync()
