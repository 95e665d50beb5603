"""Where a group lives.

Goal: the partition is Apache Kafka's, or its tools look for a group where it is not. Method: hashes
that Java's own `String.hashCode` gave, among them the lowest number of 32 bits.

Rules: group-records.md#where-a-group-lives.
"""

from __future__ import annotations

import pytest

from holdfast.wire.groups import group_partition as module
from holdfast.wire.groups.group_partition import group_partition, java_hash

CRAB = "\U0001f980"  # two units of UTF-16: d83e dd80
HASHES = [
    ("", 0),
    ("a", 97),
    ("abc", 96_354),
    ("Aa", 2_112),
    ("BB", 2_112),
    ("hello", 99_162_322),
    ("é", 0xE9),
    ("\uffff", 0xFFFF),
    (CRAB, 31 * 0xD83E + 0xDD80),
    ("a" + CRAB, 31 * 31 * 97 + 31 * 0xD83E + 0xDD80),
    ("polygenelubricants", -(2**31)),
    ("hello world", 1_794_106_052),
    ("Hello, World!", 1_498_789_909),
]


@pytest.mark.parametrize(("text", "expected"), HASHES)
def test_hashes(text: str, expected: int) -> None:
    assert java_hash(text) == expected


def test_a_hash_is_the_sum_that_java_documents() -> None:
    """Goal: long texts and negative hashes. Method: powers of 31 over units, without 32 bits."""
    for text in ("group-" * 40, CRAB * 33, "x" * 249, "\u20ac\uffff" * 9):
        data = text.encode("utf-16-be")
        units = [int.from_bytes(data[at : at + 2], "big") for at in range(0, len(data), 2)]
        whole = sum(unit * 31**at for at, unit in enumerate(reversed(units)))
        assert java_hash(text) == (whole + 2**31) % 2**32 - 2**31


def test_half_a_character_has_a_hash() -> None:
    assert java_hash("\ud83e") == 0xD83E


@pytest.mark.parametrize(
    ("group", "count", "expected"),
    [
        ("", 50, 0),
        ("abc", 50, 4),
        ("hello", 50, 22),
        (CRAB, 50, 2),
        ("polygenelubricants", 50, 0),  # whose hash has no absolute value
        ("polygenelubricants", 7, 0),
        ("anything", 1, 0),
    ],
)
def test_partitions(group: str, count: int, expected: int) -> None:
    assert group_partition(group, count) == expected


def test_a_negative_hash_counts_by_its_absolute_value() -> None:
    text = next(f"group-{at}" for at in range(1_000) if java_hash(f"group-{at}") < 0)
    assert group_partition(text, 50) == -java_hash(text) % 50


def test_a_long_id_is_not_remembered() -> None:
    """Goal: a client that names groups of 32 KB has none of them kept here."""
    before = module._remembered.cache_info().currsize
    group = "g" * 129
    assert group_partition(group, 50) == abs(java_hash(group)) % 50
    assert module._remembered.cache_info().currsize == before
