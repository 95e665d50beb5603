"""Goal: a row's name is no other row's, its values are texts that say what they were, and versions
compare as Spark's do. Method: pure functions; each type's values in order, and names from chance.
"""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as some

from holdfast.pipelines.sinks.key_value.address import checked, connect
from holdfast.pipelines.sinks.key_value.task import WriteTask
from holdfast.pipelines.sinks.key_value.values import (
    key_texts,
    marker_name,
    name_of,
    query_name,
    row_names,
    table_name,
    texts,
    versions,
)
from holdfast.pipelines.sinks.target import Mode, Target, TargetError

UTC = dt.UTC
PARTS = some.lists(some.binary(max_size=3) | some.sampled_from([b":", b"%", b"%3A", b"a:b"]))


@given(PARTS, PARTS)
def test_names_of_other_parts_are_other_names(one: list[bytes], other: list[bytes]) -> None:
    """No part and one that is empty make one name, but a table's keys are never none."""
    if one and other:
        assert (name_of(*one) == name_of(*other)) is (one == other)


def test_a_row_is_no_row_of_another_table_and_nothing_of_ours() -> None:
    text = pa.array(["b:c", "b", "b%3Ac"])
    assert row_names("a", [text]) == [b"a:b%3Ac", b"a:b", b"a:b%253Ac"]
    assert row_names("a:b", [pa.array(["c"])]) == [b"a%3Ab:c"]
    ours = {query_name("a"), table_name("a"), marker_name(b"a:b")}
    assert all(name.startswith(b"holdfast_") for name in ours)
    assert len(ours) == 3


@pytest.mark.parametrize(
    ("kind", "values", "said"),
    [
        (pa.int64(), [-(2**63), 0, None], [b"-9223372036854775808", b"0", None]),
        (pa.bool_(), [True, False], [b"true", b"false"]),
        (pa.string(), ["a\n\u00e9", ""], ["a\n\u00e9".encode(), b""]),
        (pa.binary(), [b"\x00\xff", b""], [b"\x00\xff", b""]),
        (pa.float64(), [0.1, float("inf"), 5e-324], [b"0.1", b"inf", b"5e-324"]),
        (pa.float32(), [0.1], [b"0.1"]),
        (pa.decimal128(38, 20), [Decimal("1E-20")], [b"0.00000000000000000001"]),
        (pa.date32(), [dt.date(26, 2, 28)], [b"0026-02-28"]),
        (
            pa.timestamp("us", tz="Europe/Vienna"),
            [dt.datetime(2026, 3, 29, 1, 30, tzinfo=UTC)],
            [b"2026-03-29T01:30:00.000000Z"],
        ),
        (
            pa.timestamp("us"),
            [dt.datetime(2026, 3, 29, 2, 30, 0, 1)],  # noqa: DTZ001 - what is told
            [b"2026-03-29T02:30:00.000001"],
        ),
    ],
)
def test_values_are_texts(kind: pa.DataType, values: list[Any], said: list[bytes | None]) -> None:
    assert texts(pa.array(values, kind)) == said


def test_zeros_of_both_signs_are_one_key() -> None:
    for kind in (pa.float32(), pa.float64()):
        plus, minus = key_texts(pa.array([0.0, -0.0], kind))
        assert plus == minus == b"0"


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.int8(), [-128, -1, 0, 1, 127]),
        (pa.int64(), [-(2**63), -1, 0, 2**53, 2**53 + 1, 2**63 - 1]),
        (pa.bool_(), [False, True]),
        (pa.decimal128(20, 4), [Decimal("-10.5"), Decimal("-9.5"), Decimal(0), Decimal("0.0001")]),
        (pa.float64(), [float("-inf"), -1.5, -1e-300, 0.0, 1e-300, float("inf"), float("nan")]),
        (pa.float32(), [-2.0, -1.0, 1.0, 2.0]),
        (pa.string(), ["", "A", "Z", "a", "a\x00", "aa", "\u00e9", "\uffff", "\U0001f600"]),
        (pa.binary(), [b"", b"\x00", b"\x00\x00", b"\x7f", b"\x80", b"\xff"]),
        (pa.date32(), [dt.date(1, 1, 1), dt.date(1969, 12, 31), dt.date(1970, 1, 1)]),
        (
            pa.timestamp("us", tz="America/New_York"),
            [dt.datetime(1969, 12, 31, tzinfo=UTC), dt.datetime(2026, 1, 1, tzinfo=UTC)],
        ),
    ],
)
def test_versions_compare_byte_by_byte(kind: pa.DataType, values: list[Any]) -> None:
    found = [text.encode() for text in versions(pa.array(values, kind))]
    assert all(one < other for one, other in pairwise(found))


def test_a_version_of_zero_has_one_text() -> None:
    assert len(set(versions(pa.array([0.0, -0.0])))) == 1


@pytest.mark.parametrize(
    "url",
    [
        "redis://host",
        "redis://host:6380/3",
        "redis://ann:env:NAME@host/0",
        "redis://:file:%2Frun%2Fsecret@host",
        "rediss://host?ssl_ca_certs=/etc/ca.pem",
        "unix:///run/redis.sock?db=2",
    ],
)
def test_a_url_that_names_a_server_is_taken(url: str) -> None:
    assert checked(url) == url


@pytest.mark.parametrize(
    ("url", "told"),
    [("redis://:env:SECRET@host", ()), ("redis://ann:env:SECRET@host", ("ann",))],
)
def test_each_connection_is_made_with_the_secret_of_now(
    monkeypatch: pytest.MonkeyPatch, url: str, told: tuple[str, ...]
) -> None:
    """Seen to fail: a client kept the one with which it was made."""
    monkeypatch.setenv("SECRET", "first")
    settings = connect(url).connection_pool.connection_kwargs
    for word in ("first", "second"):
        monkeypatch.setenv("SECRET", word)
        assert settings["credential_provider"].get_credentials() == (*told, word)
    assert "first" not in repr(settings)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("redis://:swordfish@host", "is not written into a query"),
        ("redis://host?password=swordfish", "it has password behind"),
        ("redis://:sword\u2100fish@swordfish", "it is no URL"),  # seen to fail: it was quoted
        ("redis://[swordfish@host", "it is no URL"),
        ("rediss://host?ssl_cert_reqs=none", "it has ssl_cert_reqs behind"),
        ("redis://host/orders", "a database that is no number"),
        ("redis://host:port", "its port is no number"),
        ("redis:///0", "names no server"),
        ("unix:", "names no server"),
        ("unix://redis.example/run/redis.sock", "it names a host"),
        ("unix://:6379/run/redis.sock", "it names a host"),
    ],
)
def test_another_url_is_refused_and_no_secret_is_told(url: str, said: str) -> None:
    with pytest.raises(TargetError, match=said) as refused:
        checked(url)
    assert "swordfish" not in str(refused.value)


LAST_US = 253402300799999999  # of 9999, in UTC
FIRST_US = -62135596800000000  # of year 1


@pytest.mark.parametrize("name", ["at", "id"])
@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.date32(), 2932897),
        (pa.date32(), 23_950_000),  # of the year 67543, whose last 16 bits are 2007
        (pa.timestamp("us"), FIRST_US - 1),
        (pa.timestamp("us", "America/New_York"), LAST_US + 1),
        (pa.timestamp("us", "UTC"), LAST_US + 1),
    ],
    ids=str,
)
def test_a_year_of_more_digits_is_refused_by_the_column_s_name(
    name: str, kind: pa.DataType, value: int
) -> None:
    """Seen to fail: `date value out of range`, and nobody knew of which column."""
    target = Target(table="t", mode=Mode.UPSERT, keys=("id",))
    task = WriteTask("redis://127.0.0.1:1/0", query="q", epoch=1, commit=1, target=target)
    other = "id" if name == "at" else "at"
    bits = pa.int32() if pa.types.is_date(kind) else pa.int64()
    rows = {name: pa.array([None, value], bits).cast(kind), other: pa.array([1, 2])}
    with pytest.raises(TargetError, match=f"column '{name}': it has a year .* after 9999"):
        list(task(iter([pa.record_batch(rows)])))


def test_the_first_and_the_last_moment_are_texts() -> None:
    moments = pa.array([FIRST_US, LAST_US]).cast(pa.timestamp("us", "America/New_York"))
    assert texts(moments) == [b"0001-01-01T00:00:00.000000Z", b"9999-12-31T23:59:59.999999Z"]
