"""UUIDs as Kafka writes them: 16 raw bytes on the wire, 22 characters in text."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from typing import Final

NULL_UUID: Final = bytes(16)
"""All zeros: no id."""

METADATA_TOPIC_ID: Final = bytes(15) + b"\x01"
"""The id of `__cluster_metadata`, the same in every cluster."""

_SIZE: Final = 16
_TEXT_SIZE: Final = 22


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
