"""What consumers of classic groups tell each other through JoinGroup and SyncGroup.

Owns the two formats that the broker carries as opaque bytes: a consumer's subscription, and what
the group's leader assigned to it. Each begins with its version in 16 bits. Whoever reads one takes
a version that it doesn't know for the last that it does, and leaves what stands behind it.

Rules: group-records.md#embedded-consumer-protocol.
"""

from __future__ import annotations

from struct import Struct as Layout
from struct import error as LayoutError  # noqa: N812 - an alias for a class
from typing import Final, TypeAlias

from holdfast.wire.codec import decode, encode
from holdfast.wire.errors import WireError
from holdfast.wire.schema import Message, Struct, array, blob, int32, string

Buffer: TypeAlias = bytes | bytearray | memoryview

PROTOCOL_TYPE: Final = "consumer"
"""The protocol type of groups whose members are consumers."""

_INT16: Final = Layout(">h")
_INT32: Final = Layout(">i")


class ConsumerTopicPartitions(Struct):
    topic: str = string()
    partitions: list[int] = array(int32)


class ConsumerProtocolSubscription(Message, versions=(0, 3)):
    """What a consumer wants, and what it still has."""

    topics: list[str] = array(string)
    user_data: bytes | None = blob(nullable=0, default=None)
    owned_partitions: list[ConsumerTopicPartitions] = array(
        ConsumerTopicPartitions, since=1, ignorable=True
    )
    generation_id: int = int32(since=2, default=-1, ignorable=True)
    rack_id: str | None = string(since=3, nullable=3, default=None, ignorable=True)


class ConsumerProtocolAssignment(Message, versions=(0, 3)):
    """What a consumer gets."""

    assigned_partitions: list[ConsumerTopicPartitions] = array(ConsumerTopicPartitions)
    user_data: bytes | None = blob(nullable=0, default=None)


def encode_subscription(
    subscription: ConsumerProtocolSubscription, version: int | None = None
) -> bytes:
    """Return a subscription with its version in front; by default the last."""
    return _encode(subscription, version)


def encode_assignment(assignment: ConsumerProtocolAssignment, version: int | None = None) -> bytes:
    """Return an assignment with its version in front; by default the last."""
    return _encode(assignment, version)


def decode_subscription(data: Buffer) -> ConsumerProtocolSubscription:
    """Return a subscription of any version, in the form of the last that is known here.

    WireError: it is damaged, or its version is negative.
    """
    version = _version(data, ConsumerProtocolSubscription)
    try:
        end = _subscription_end(data, version)
    except LayoutError as error:
        raise WireError("ConsumerProtocolSubscription: truncated") from error
    return decode(ConsumerProtocolSubscription, version, data[:end], _INT16.size)


def decode_assignment(data: Buffer) -> ConsumerProtocolAssignment:
    """Return an assignment of any version, in the form of the last that is known here.

    WireError: it is damaged, or its version is negative.
    """
    version = _version(data, ConsumerProtocolAssignment)
    try:
        end = _bytes_end(data, _partitions_end(data, _INT16.size))
    except LayoutError as error:
        raise WireError("ConsumerProtocolAssignment: truncated") from error
    return decode(ConsumerProtocolAssignment, version, data[:end], _INT16.size)


def _encode(message: Message, version: int | None) -> bytes:
    if version is None:
        version = message.MAX_VERSION
    return _INT16.pack(version) + encode(message, version)


def _version(data: Buffer, cls: type[Message]) -> int:
    if len(data) < _INT16.size:
        raise WireError(f"{cls.__name__} has {len(data)} bytes: too few for its version")
    version: int = _INT16.unpack_from(data)[0]
    if version < cls.MIN_VERSION:
        raise WireError(f"{cls.__name__} version {version} is negative")
    return min(version, cls.MAX_VERSION)


# --- where the fields end that are known here ------------------------------------------------
# What is negative where it may not be, or ends behind the data, is found by the decoder.


def _subscription_end(data: Buffer, version: int) -> int:
    (count,) = _INT32.unpack_from(data, _INT16.size)
    end = _INT16.size + _INT32.size
    for _ in range(count):
        end = _string_end(data, end)
    end = _bytes_end(data, end)
    if version >= 1:
        end = _partitions_end(data, end)
    if version >= 2:  # the generation
        end += _INT32.size
    if version >= 3:  # the rack
        end = _string_end(data, end)
    return end


def _partitions_end(data: Buffer, start: int) -> int:
    (count,) = _INT32.unpack_from(data, start)
    end = start + _INT32.size
    for _ in range(count):
        end = _string_end(data, end)
        (partitions,) = _INT32.unpack_from(data, end)
        end += _INT32.size * (1 + max(partitions, 0))
    return end


def _string_end(data: Buffer, start: int) -> int:
    (size,) = _INT16.unpack_from(data, start)
    return start + _INT16.size + max(int(size), 0)


def _bytes_end(data: Buffer, start: int) -> int:
    (size,) = _INT32.unpack_from(data, start)
    return start + _INT32.size + max(int(size), 0)
