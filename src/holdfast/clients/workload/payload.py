"""What the verifiable clients put into records, and how they recognise it again.

A value is its id, a space, and filler up to the size asked for; or a JSON object, without blanks,
whose first member is its id. The id names the sending process and counts its sends, so a reader can
say of any record who sent it and in which place.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable

Header = tuple[str, bytes | None]
ID_BYTES_MAX = 200
NO_VALUE = 0xFFFFFFFF  # digest of a null; that of no bytes is 0
_FILLER = b"holdfast."
_JSON_HEAD = b'{"id":"'


def value_for(process: str, number: int, size: int) -> bytes:
    """Make the value of one record; longer than `size` only when the id alone is."""
    head = f"{process}:{number} ".encode()
    missing = size - len(head)
    if missing <= 0:
        return head
    return head + (_FILLER * (missing // len(_FILLER) + 1))[:missing]


def id_of(value: bytes | None) -> str | None:
    """Return the id in a value; None when it was not made here."""
    if not value:
        return None
    begin = value[:ID_BYTES_MAX]
    if begin.startswith(_JSON_HEAD):
        head, end, _ = begin.removeprefix(_JSON_HEAD).partition(b'"')
    else:
        head, end, _ = begin.partition(b" ")
    if not end or b":" not in head:
        return None
    try:
        return head.decode()
    except UnicodeDecodeError:
        return None


def digest_of(value: bytes | None, headers: Iterable[Header] = ()) -> str:
    """Return the digest of a record's value, and of its headers where there are any."""
    digest = NO_VALUE if value is None else zlib.crc32(value)
    for name, content in headers:
        head = name.encode()
        sizes = f"{len(head)}:{'' if content is None else len(content)}:".encode()
        digest = zlib.crc32(sizes + head + (content or b""), digest)
    return f"{digest:08x}"


def headers_for(number: int) -> tuple[Header, ...]:
    """Give every fourth record a header, so that a header lost on the way is noticed."""
    return (("number", str(number).encode()),) if number % 4 == 3 else ()


def key_for(number: int, keys: int, topic: str) -> str:
    """Return foo_1, foo_2, ... in turn, beginning again after `keys` of them."""
    return f"{topic}_{number % keys + 1}"


def partition_for(number: int, keys: int, partitions: int) -> int:
    """Return the partition of a record: always the same for one key, and none without keys."""
    return number % keys % partitions
