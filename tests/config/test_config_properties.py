"""Goal: a properties file means what it means to Java. Method: a table, and a round trip."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.config.key import ConfigError
from holdfast.config.properties import format_properties, parse_properties


@pytest.mark.parametrize(
    ("text", "properties"),
    [
        ("", {}),
        ("# a=b\n! c=d\n\n  \t\n", {}),
        ("a=b", {"a": "b"}),
        ("  a = b c  \r\n", {"a": "b c"}),
        ("a:b=c", {"a": "b=c"}),
        ("a b", {"a": "b"}),
        ("a", {"a": ""}),
        ("a=1\na=2", {"a": "2"}),
        ("a=1,\\\n   2,\\\n   3", {"a": "1,2,3"}),
        ("a=b\\\\\nc=d", {"a": "b\\", "c": "d"}),
        ("a=b\\", {"a": "b"}),
        ("a=b\\\\\\\n  c", {"a": "b\\c"}),
        ("a\\=b=c", {"a=b": "c"}),
        ("a=\\u00e9\\t\\q", {"a": "é\tq"}),
        ("listeners=PLAINTEXT://:9092", {"listeners": "PLAINTEXT://:9092"}),
    ],
)
def test_lines(text: str, properties: dict[str, str]) -> None:
    assert parse_properties(text) == properties


@pytest.mark.parametrize("text", ["ok=1\n=b", "ok=1\na=\\u12"])
def test_broken_lines_are_named(text: str) -> None:
    with pytest.raises(ConfigError, match="line 2"):
        parse_properties(text)


@pytest.mark.slow
@given(
    st.dictionaries(
        st.text(st.characters(codec="ascii", min_codepoint=33), min_size=1),
        st.text(st.characters(codec="utf-8", categories=("L", "N", "P", "S"))),
    )
)
def test_what_is_written_is_read_back(properties: dict[str, str]) -> None:
    assert parse_properties(format_properties(properties)) == properties
