"""The demo's events: payments that anyone can make again, and lines of a user's file.

Pure: numbers and text in, bytes out. The checker makes the payments a second time from the same
seed and compares, so what is in the table is held against what was sent, not against itself.
"""

from __future__ import annotations

import json
import random
import zlib
from dataclasses import dataclass
from typing import Any

from holdfast.clients.payload import digest_of

PROCESS = "producer"
AMOUNT_MAX = 50_000  # hundredths
ID_FIELD = "id"


@dataclass(frozen=True, slots=True)
class DemoEvent:
    """One record to send. `number` is unique in a run: a payment's, counted from 0, or a line's."""

    number: int
    partition: int
    key: str | None
    value: bytes

    @property
    def id(self) -> str:
        return event_id(self.number)

    @property
    def digest(self) -> str:
        return digest_of(self.value)


@dataclass(frozen=True, slots=True)
class Payment:
    id: str
    source: str
    target: str
    amount: int

    def value(self) -> bytes:
        """Return the record's value: one JSON object, fields always in this order."""
        fields = {
            ID_FIELD: self.id,
            "source": self.source,
            "target": self.target,
            "amount": self.amount,
        }
        return json.dumps(fields, separators=(",", ":")).encode()


def event_id(number: int) -> str:
    return f"{PROCESS}:{number}"


def account_name(number: int) -> str:
    return f"account-{number:03d}"


def payment(number: int, *, seed: int, accounts: int) -> Payment:
    """Return payment `number` of a run: always the same for the same seed."""
    assert accounts > 1, "money needs somewhere to go"
    dice = random.Random(f"{seed}:{number}")  # noqa: S311 - a story, not a secret
    source = dice.randrange(accounts)
    target = (source + 1 + dice.randrange(accounts - 1)) % accounts
    return Payment(
        event_id(number), account_name(source), account_name(target), dice.randint(1, AMOUNT_MAX)
    )


def payment_event(number: int, *, seed: int, accounts: int, partitions: int) -> DemoEvent:
    """Return the event of a payment. Payments of one account stay in order: it is the key."""
    made = payment(number, seed=seed, accounts=accounts)
    return DemoEvent(number, partition_of(made.source, partitions), made.source, made.value())


def line_event(number: int, text: str, key: str | None, *, partitions: int) -> DemoEvent:
    """Return the event of one line of a file: its number and its text as it stands there."""
    value = json.dumps({"line": number, "text": text}, ensure_ascii=False).encode()
    partition = number % partitions if key is None else partition_of(key, partitions)
    return DemoEvent(number, partition, key, value)


def partition_of(key: str, partitions: int) -> int:
    """CRC-32, as librdkafka's own partitioner does it."""
    return zlib.crc32(key.encode()) % partitions


def id_in_payment(value: bytes | None) -> str | None:
    """Return the id that a payment's value carries; None when it is no payment of ours."""
    found = _object(value).get(ID_FIELD)
    return found if isinstance(found, str) else None


def id_in_line(value: bytes | None) -> str | None:
    """Return the id of a line's event; None when it is none of ours."""
    found = _object(value).get("line")
    return event_id(found) if isinstance(found, int) else None


def _object(value: bytes | None) -> dict[str, Any]:
    try:
        found = json.loads(value or b"")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
