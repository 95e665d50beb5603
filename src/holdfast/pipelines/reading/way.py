"""Which of the two ways a range is read: over our own client, or over librdkafka.

Owns the list of what our client understands. Whatever else a connection is asked to have goes
through librdkafka, which has it: a setting must never be without effect.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from holdfast.clients.blocking_driver import parse_addresses
from holdfast.wire.walker.record_columns import DECODER

Client = tuple[tuple[str, str], ...]

_ADDRESSES: Final = "bootstrap.servers"
_CLIENT_ID: Final = "holdfast-reader"
_WAIT_MS: Final = 100
_PLAIN: Final = "PLAINTEXT://"
_SIZE_MAX: Final = 2**31 - 1


class Way(NamedTuple):
    """One of the two, and why it is that one."""

    is_ours: bool
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WireSettings:
    """What our client takes of a connection's settings."""

    bootstrap: str
    client_id: str
    rack: str
    is_committed: bool
    wait_ms: int
    min_bytes: int
    response_bytes_max: int
    partition_bytes_max: int


def way_of(client: Client) -> Way:
    """Return which way a connection with these settings takes."""
    for name, value in client:
        is_understood = _UNDERSTOOD.get(name)
        if is_understood is None:
            return Way(False, f"kafka.{name} is librdkafka's")
        if not is_understood(value):
            return Way(False, f"kafka.{name} is {value!r}, which our client does not have")
    if _ADDRESSES not in dict(client):
        return Way(False, f"kafka.{_ADDRESSES} is missing")
    return Way(True, f"our client has all that is asked of it; its decoder is {DECODER.name}")


def wire_settings(client: Client) -> WireSettings:
    """Return the settings of a connection that takes our way."""
    given = dict(client)
    partition_bytes = [given.get(name) for name in _PARTITION_BYTES]
    return WireSettings(
        bootstrap=_addresses(given[_ADDRESSES]),
        client_id=given.get("client.id", _CLIENT_ID),
        rack=given.get("client.rack", ""),
        is_committed=given.get("isolation.level") == "read_committed",
        wait_ms=_number(given, "fetch.wait.max.ms", _WAIT_MS),
        min_bytes=_number(given, "fetch.min.bytes", 1),
        response_bytes_max=_number(given, "fetch.max.bytes", _SIZE_MAX),
        partition_bytes_max=min([int(size) for size in partition_bytes if size] or [_SIZE_MAX]),
    )


def _addresses(value: str) -> str:
    """Return addresses without the protocol that librdkafka lets stand before each."""
    return ",".join(part.strip().removeprefix(_PLAIN) for part in value.split(","))


def _number(given: Mapping[str, str], name: str, default: int) -> int:
    return int(given[name]) if name in given else default


def _are_addresses(value: str) -> bool:
    try:
        parse_addresses(_addresses(value))
    except ValueError:  # a host without its port, for one
        return False
    return True


def _is_size(value: str) -> bool:
    return value.isascii() and value.isdigit() and 0 < int(value) <= _SIZE_MAX


def _is_anything(_value: str) -> bool:
    return True


def _is_plain(value: str) -> bool:
    return value.lower() == "plaintext"


def _is_level(value: str) -> bool:
    return value in {"read_committed", "read_uncommitted"}


def _is_wait(value: str) -> bool:
    return value.isascii() and value.isdigit() and int(value) <= 300_000  # librdkafka's bound


def _is_checked(value: str) -> bool:
    return value.lower() == "true"  # it is, always


_PARTITION_BYTES: Final = ("fetch.message.max.bytes", "max.partition.fetch.bytes")
_UNDERSTOOD: Final[Mapping[str, Callable[[str], bool]]] = {
    _ADDRESSES: _are_addresses,
    "client.id": _is_anything,
    "group.id": _is_anything,  # our client joins none, and asks nobody about one
    "client.rack": _is_anything,
    "isolation.level": _is_level,
    "security.protocol": _is_plain,
    "check.crcs": _is_checked,
    "fetch.wait.max.ms": _is_wait,
    "fetch.min.bytes": _is_size,
    "fetch.max.bytes": _is_size,
    **dict.fromkeys(_PARTITION_BYTES, _is_size),
}
