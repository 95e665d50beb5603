"""UUIDs as Kafka writes them: 16 raw bytes on the wire, 22 characters in text."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from collections.abc import Callable
from typing import Final

NULL_UUID: Final = bytes(16)
"""All zeros: no id."""

METADATA_TOPIC_ID: Final = bytes(15) + b"\x01"
"""The id of `__cluster_metadata`, the same in every cluster."""

_SIZE: Final = 16
_TEXT_SIZE: Final = 22
_DASH: Final = 62  # what '-' stands for in URL-safe base64


def new_uuid(random_bytes: Callable[[int], bytes]) -> bytes:
    """Return a version 4 UUID whose text does not begin with a dash, as an option would."""
    while True:
        raw = bytearray(random_bytes(_SIZE))
        raw[6] = raw[6] & 0x0F | 0x40
        raw[8] = raw[8] & 0x3F | 0x80
        if raw[0] >> 2 != _DASH:
            return bytes(raw)


def uuid_text(uuid: bytes) -> str:
    """Return the unpadded URL-safe base64 form, such as `AAAAAAAAAAAAAAAAAAAAAA`."""
    assert len(uuid) == _SIZE, "a UUID has 16 bytes"
    return urlsafe_b64encode(uuid)[:_TEXT_SIZE].decode("ascii")


def parse_uuid(text: str) -> bytes:
    """Return the 16 bytes of a text form. ValueError: it is not one."""
    if len(text) != _TEXT_SIZE or not text.isascii():
        raise ValueError(f"not a UUID in Kafka's form (22 characters of base64): {text!r}")
    try:
        uuid = urlsafe_b64decode(text + "==")
    except Base64Error as error:
        raise ValueError(f"not a UUID in Kafka's form: {text!r}") from error
    if len(uuid) != _SIZE or uuid_text(uuid) != text:
        raise ValueError(f"not a UUID in Kafka's form: {text!r}")
    return uuid
