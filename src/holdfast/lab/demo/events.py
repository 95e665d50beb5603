"""The demo's events: payments that anyone can make again, and lines of a user's file.

Pure: numbers and text in, bytes out. The check makes the value of each row of the table a second
time and compares its digest with the log's, and the judge compares the log's with what was sent.
"""

from __future__ import annotations

import json
import random
import zlib
from dataclasses import dataclass

from holdfast.clients.workload.verifiable_producer import Record

PROCESS = "producer"
AMOUNT_MAX = 50_000  # hundredths
ID_FIELD = "id"
DIGITS_MAX = 18  # of an event's number, which has 64 bits


@dataclass(frozen=True, slots=True)
class Payment:
    id: str
    source: str
    target: str
    amount: int

    def value(self) -> bytes:
        """Return the record's value: one JSON object, fields always in this order."""
        return _compact(
            {
                ID_FIELD: self.id,
                "source": self.source,
                "target": self.target,
                "amount": self.amount,
            }
        )


def event_id(number: int) -> str:
    return f"{PROCESS}:{number}"


def event_number(name: str) -> int | None:
    """Return which event has this id; None: none has."""
    _, _, digits = name.partition(":")
    is_one = digits.isascii() and digits.isdigit() and len(digits) <= DIGITS_MAX
    return int(digits) if is_one and event_id(int(digits)) == name else None


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


def payment_record(number: int, *, seed: int, accounts: int, partitions: int) -> Record:
    """Return the record of a payment. Payments of one account stay in order: it is the key."""
    made = payment(number, seed=seed, accounts=accounts)
    return Record(made.id, partition_of(made.source, partitions), made.source, made.value())


def line_record(number: int, text: str, key: str | None, *, partitions: int) -> Record:
    """Return the record of one line of a file: its number, and its text as it stands there."""
    partition = number % partitions if key is None else partition_of(key, partitions)
    return Record(event_id(number), partition, key, line_value(number, text))


def line_value(number: int, text: str) -> bytes:
    return _compact({ID_FIELD: event_id(number), "line": number, "text": text})


def partition_of(key: str, partitions: int) -> int:
    """CRC-32, as librdkafka's own partitioner does it."""
    return zlib.crc32(key.encode()) % partitions


def _compact(fields: dict[str, str | int]) -> bytes:
    """Return JSON as `clients.workload.payload` finds ids in it: without blanks, the id first."""
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode()
