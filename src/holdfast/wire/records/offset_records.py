"""Committed offsets as records, quickly: nearly all that `__consumer_offsets` holds.

Owns a second way to write and read the layout in which they are written now, and the two values
that it makes of them. Whatever has another layout is left to `group_records`, which says what is
wrong with it, too. A coordinator reads a million of them before it serves, and writes thousands a
second.

Rules: group-records.md#frame, group-records.md#written-versions.
"""

from __future__ import annotations

from struct import Struct as Layout
from struct import error as LayoutError  # noqa: N812 - an alias for a class
from typing import Final, NamedTuple

from holdfast.wire.errors import EncodeError
from holdfast.wire.primitives import MORE, uvarint
from holdfast.wire.uuids import NULL_UUID

NO_EXPIRY: Final = -1

_KEY_TYPE: Final = 1
_VERSION: Final = 4
_EXPIRING_VERSION: Final = 1  # no other has the field; leader epoch and topic id are not in it
_TOPIC_ID: Final = b"\x01\x00\x10"  # one tagged field, the first, of 16 bytes
_NO_TAGS: Final = b"\x00"

_two_shorts: Final = Layout(">hh").unpack_from
_short: Final = Layout(">h").unpack_from
_int: Final = Layout(">i").unpack_from
_long: Final = Layout(">q").unpack_from
_head: Final = Layout(">hqi").unpack_from
_HEAD_SIZE: Final = 14

_pack_short: Final = Layout(">h").pack
_pack_two_shorts: Final = Layout(">hh").pack
_pack_int: Final = Layout(">i").pack
_pack_long: Final = Layout(">q").pack
_pack_head: Final = Layout(">hqi").pack
_pack_expiring: Final = Layout(">hqh").pack
_pack_two_longs: Final = Layout(">qq").pack


class OffsetKey(NamedTuple):
    """Whose offset of which partition."""

    group: str
    topic: str
    partition: int


class CommittedOffset(NamedTuple):
    """Where a group goes on in one partition."""

    offset: int
    leader_epoch: int  # of the record before it; -1: not told
    metadata: str
    committed_ms: int
    expires_ms: int = NO_EXPIRY  # what the client asked for; else the broker's retention decides
    topic_id: bytes = NULL_UUID

    def is_of(self, topic_id: bytes) -> bool:
        """Return whether it may be of this topic: it is, or one of both ids is not known."""
        return self.topic_id == topic_id or NULL_UUID in (self.topic_id, topic_id)


def encode_offset_key(key: OffsetKey) -> bytes:
    """Return a record's key. EncodeError: it can't hold that."""
    group, topic = key.group.encode(), key.topic.encode()
    try:
        return b"".join(
            (
                _pack_two_shorts(_KEY_TYPE, len(group)),
                group,
                _pack_short(len(topic)),
                topic,
                _pack_int(key.partition),
            )
        )
    except LayoutError as error:
        raise EncodeError(f"a committed offset's key can't hold that: {error}") from error


def encode_offset(committed: CommittedOffset) -> bytes:
    """Return a record's value, as Apache Kafka 4.1 and later write it. EncodeError: as above."""
    offset, epoch, text, committed_ms, expires_ms, topic_id = committed
    metadata = text.encode()
    try:
        if expires_ms != NO_EXPIRY:
            head = _pack_expiring(_EXPIRING_VERSION, offset, len(metadata))
            return head + metadata + _pack_two_longs(committed_ms, expires_ms)
        head = _pack_head(_VERSION, offset, epoch) + uvarint(len(metadata) + 1)
        tail = _pack_long(committed_ms)
    except LayoutError as error:
        raise EncodeError(f"a committed offset can't hold that: {error}") from error
    return head + metadata + tail + (_NO_TAGS if topic_id == NULL_UUID else _TOPIC_ID + topic_id)


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

    def value(self, data: bytes) -> CommittedOffset | None:
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
            topic_id = self._ids.setdefault(topic_id, topic_id)
            return CommittedOffset(offset, epoch, metadata, stamp, NO_EXPIRY, topic_id)
        if data[end:] == _NO_TAGS:
            return CommittedOffset(offset, epoch, metadata, stamp)
        return None

    def _name(self, data: bytes) -> str:
        name = self._names.get(data)
        if name is None:
            name = self._names[data] = data.decode()
        return name
