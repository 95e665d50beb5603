"""Committed offsets out of their records, quickly: nearly all that `__consumer_offsets` holds.

Owns a second way to read the layout in which they are written now; whatever has another one is left
to `group_records`, which says what is wrong with it, too. A coordinator reads a million of them
before it serves.

Rules: group-records.md#frame, group-records.md#written-versions.
"""

from __future__ import annotations

from struct import Struct as Layout
from struct import error as LayoutError  # noqa: N812 - an alias for a class
from typing import Final, NamedTuple

from holdfast.wire.primitives import MORE
from holdfast.wire.uuids import NULL_UUID

_KEY_TYPE: Final = 1
_VERSION: Final = 4
_TOPIC_ID: Final = b"\x01\x00\x10"  # one tagged field, the first, of 16 bytes
_NO_TAGS: Final = b"\x00"

_two_shorts: Final = Layout(">hh").unpack_from
_short: Final = Layout(">h").unpack_from
_int: Final = Layout(">i").unpack_from
_long: Final = Layout(">q").unpack_from
_head: Final = Layout(">hqi").unpack_from
_HEAD_SIZE: Final = 14


class OffsetKey(NamedTuple):
    """Whose offset of which partition."""

    group: str
    topic: str
    partition: int


class OffsetValue(NamedTuple):
    """What was committed; the fields are those of `OffsetCommitValue` that its version has."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp: int
    topic_id: bytes


class OffsetReader:
    """Reads keys and values. Names and ids that come again are the same objects.

    It keeps what it has met, so it is let go when what it reads has been read.
    """

    __slots__ = ("_ids", "_names")

    def __init__(self) -> None:
        self._names: dict[bytes, str] = {}
        self._ids: dict[bytes, bytes] = {NULL_UUID: NULL_UUID}

    def key(self, data: bytes) -> OffsetKey | None:
        """Return what a key names; None: it is another one, or not to be read so."""
        try:
            kind, size = _two_shorts(data)
            if kind != _KEY_TYPE or size < 0:
                return None
            end = 4 + size
            group = self._name(data[4:end])
            (size,) = _short(data, end)
            begin = end + 2
            end = begin + size
            if size < 0 or len(data) != end + 4:
                return None
            topic = self._name(data[begin:end])
            (partition,) = _int(data, end)
        except (LayoutError, UnicodeDecodeError):
            return None
        return OffsetKey(group, topic, partition)

    def value(self, data: bytes) -> OffsetValue | None:
        """Return what a value says; None: it is of another version, or not to be read so."""
        try:
            version, offset, epoch = _head(data)
            size = data[_HEAD_SIZE] - 1
            if version != _VERSION or not 0 <= size < MORE - 1:
                return None
            begin = _HEAD_SIZE + 1
            end = begin + size
            metadata = data[begin:end].decode() if size else ""
            (stamp,) = _long(data, end)
        except (LayoutError, IndexError, UnicodeDecodeError):
            return None
        end += 8
        if data[end : end + 3] == _TOPIC_ID and len(data) == end + 19:
            topic_id = data[end + 3 :]
            return OffsetValue(
                offset, epoch, metadata, stamp, self._ids.setdefault(topic_id, topic_id)
            )
        if data[end:] == _NO_TAGS:
            return OffsetValue(offset, epoch, metadata, stamp, NULL_UUID)
        return None

    def _name(self, data: bytes) -> str:
        name = self._names.get(data)
        if name is None:
            name = self._names[data] = data.decode()
        return name
