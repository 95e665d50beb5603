"""The cases of `make fuzz`: a request of any API and version, spoilt or not, or no request at all.

Owns what is drawn; `fuzz` sends it, and knows what must hold meanwhile.
"""

from __future__ import annotations

import struct
import time
from contextlib import suppress
from random import Random
from typing import Any, Final, NamedTuple

from holdfast.node.api.forward import encode_principal
from holdfast.node.door.api_table import BROKER, Api, Role
from holdfast.wire.batch import Codec, Record, build_batch
from holdfast.wire.checksum import crc32c
from holdfast.wire.errors import EncodeError
from holdfast.wire.frame import encode_request
from holdfast.wire.messages import request_class
from random_messages import make_struct

NEIGHBOUR: Final = "neighbour"
KNOWN: Final = "t"
TOPICS: Final = (NEIGHBOUR, KNOWN, "nowhere", "", "x" * 249, "a/b", "__cluster_metadata")
GIANT: Final = (b"\xff\xff\xff\xff\x0f", b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\x80" * 5)
# What a client may rightly ask for, and ends the service that is watched, or makes it larger.
ENDS_THE_NEIGHBOUR: Final = (20, 21, 33, 37, 44, 45, 57)
ENVELOPE: Final = 58
FORWARDED: Final = tuple(key for key, api in BROKER.items() if Role.FORWARDING in api.role)


class Known(NamedTuple):
    """What is true of a cluster: who says it is believed, and gets further."""

    cluster_id: str  # "": what a member may rightly say is not to be believed here
    nodes: tuple[int, ...]
    topic_id: bytes


class Case(NamedTuple):
    """What goes over one connection, and how it was made."""

    kind: str
    key: int
    version: int
    data: bytes


def drawn(random: Random, apis: dict[int, Api], known: Known, *, careful: bool) -> Case:
    """Draw a case. With `careful` nothing is asked that would rightly end the neighbour's topic."""
    if random.random() < 0.03:
        return Case("noise", -1, -1, random.randbytes(random.randrange(1, 200)))
    api = random.choice(list(apis.values()))
    low, high = api.versions
    cls = request_class(api.key)
    version = random.randint(max(low, cls.MIN_VERSION), high)
    while True:
        message = make_struct(random, cls, version)
        _make_plausible(random, message, careful=careful and api.key in ENDS_THE_NEIGHBOUR)
        _make_known(random, message, known)
        if api.key == ENVELOPE and random.random() < 0.7:
            _fill_envelope(random, message, apis, known, careful=careful)
        try:
            frame = encode_request(message, version, random.randrange(1 << 31), "fuzz")
            break
        except EncodeError:
            continue
    if random.random() < 0.03:
        frame = frame[:6] + struct.pack(">h", random.randint(-3, 99)) + frame[8:]
    kind = random.choice(("whole", "whole", "changed", "changed", "giant", "cut", "short", "many"))
    return Case(kind, api.key, version, _spoilt(random, kind, frame))


def _fill_envelope(
    random: Random, message: Any, apis: dict[int, Api], known: Known, *, careful: bool
) -> None:
    """Put a request of any API into it, and mostly a principal that there may be."""
    inner = random.choice([each for each in (*apis, *FORWARDED) if each != ENVELOPE])
    api = apis.get(inner) or BROKER[inner]
    message.request_data = drawn(random, {inner: api}, known, careful=careful).data[4:]
    if random.random() < 0.8:
        message.request_principal = encode_principal("User:ANONYMOUS")
        message.client_host_address = bytes((127, 0, 0, 1))


def _make_plausible(random: Random, message: Any, *, careful: bool) -> None:
    """Give some of it what the node knows: names, indexes, records, so that it gets further."""
    for field in type(message).FIELDS:
        value = getattr(message, field.name)
        if field.kind == "records" and random.random() < 0.7:
            setattr(message, field.name, _records(random))
        elif "name" in field.name and isinstance(value, str) and random.random() < 0.6:
            names = TOPICS[1:] if careful else TOPICS
            setattr(message, field.name, random.choice(names))
        elif field.name.startswith("partition") and isinstance(value, int):
            setattr(message, field.name, random.choice((0, 0, 1, value)))
        elif field.name.endswith("_ms") and isinstance(value, int) and random.random() < 0.8:
            setattr(message, field.name, random.choice((0, 1, 50)))
        elif field.name in {"num_partitions", "count"} and isinstance(value, int):
            setattr(message, field.name, random.choice((1, 3, value)))
        parts = value if isinstance(value, list) else [value]
        for part in parts:
            if hasattr(type(part), "FIELDS"):
                _make_plausible(random, part, careful=careful)


def _make_known(random: Random, message: Any, known: Known) -> None:
    """Let some of it be true: identities, epochs and ids, behind which the rest is looked at."""
    for field in type(message).FIELDS:
        name, value = field.name, getattr(message, field.name)
        if name == "cluster_id" and known.cluster_id and random.random() < 0.8:
            setattr(message, name, known.cluster_id)
        elif name == "topic_id" and random.random() < 0.6:
            setattr(message, name, known.topic_id)
        elif name == "acks":
            setattr(message, name, random.choice((-1, 0, 1, value)))
        elif name == "transactional_id" and random.random() < 0.7:
            setattr(message, name, None)
        elif isinstance(value, int) and "epoch" in name:
            setattr(message, name, random.choice((-1, 0, 1, random.randrange(4, 9), value)))
        elif isinstance(value, int) and name.endswith("_id") and known.cluster_id:
            setattr(message, name, random.choice((*known.nodes, value)))
        for part in value if isinstance(value, list) else [value]:
            if hasattr(type(part), "FIELDS"):
                with suppress(AttributeError):  # a default is shared, and stays what it is
                    _make_known(random, part, known)


def _records(random: Random) -> bytes:
    """Return a batch that may be appended, or a wrong one, its CRC right or not."""
    records = [
        Record(random.choice((None, b"k")), random.randbytes(random.randrange(200)), timestamp)
        for timestamp in random.choices((-1, 0, int(time.time() * 1000), 1 << 62), k=3)
    ]
    codec = random.choice(list(Codec))
    batch = build_batch(records, codec=codec, producer_id=random.choice((-1, -1, 7)))
    if random.random() < 0.5:
        for _ in range(random.randrange(1, 4)):
            batch[random.randrange(len(batch))] = random.randrange(256)
        if random.random() < 0.7:
            struct.pack_into(">I", batch, 17, crc32c(memoryview(batch)[21:]))
    return bytes(batch)


def _spoilt(random: Random, kind: str, frame: bytes) -> bytes:
    body = bytearray(frame[4:])
    match kind:
        case "changed":
            for _ in range(random.randrange(1, 6)):
                body[random.randrange(len(body))] = random.randrange(256)
        case "giant":
            at = random.randrange(len(body))
            body[at : at + 4] = random.choice(GIANT)
        case "cut":
            del body[random.randrange(len(body)) :]
        case "short":  # more is announced than comes
            return frame[: random.randrange(4, len(frame) + 1)]
        case "many":
            return frame * random.randrange(2, 12)
    return struct.pack(">i", len(body)) + bytes(body)
