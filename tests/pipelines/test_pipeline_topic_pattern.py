"""Goal: a pattern means whole names and never the brokers' own topics. Method: a table."""

from __future__ import annotations

import sys

import pytest

from holdfast.pipelines.intake.option_values import OptionError
from holdfast.pipelines.intake.topic_pattern import INTERNAL, matcher


@pytest.mark.parametrize(
    ("pattern", "name", "meant"),
    [
        ("a", "a", True),
        ("a", "ab", False),
        ("a", "ba", False),
        ("a|b-.*", "b-1", True),
        ("a|b", "ab", False),
        (r"pay\.(eu|us)", "pay.eu", True),
        (r"pay\.(eu|us)", "payxeu", False),
        ("(?i)A", "a", True),
        ("a$", "a\n", False),
    ],
)
def test_the_whole_name_has_to_match(pattern: str, name: str, *, meant: bool) -> None:
    assert matcher(pattern)(name) is meant


def test_the_brokers_own_topics_never_do() -> None:
    assert {"__consumer_offsets", "__transaction_state"} <= INTERNAL
    for pattern in (".*", "__.*", *INTERNAL):
        assert not any(matcher(pattern)(name) for name in INTERNAL)
    assert matcher("__.*")("__mine")


@pytest.mark.parametrize("pattern", ["(", "a(?!b)", r"(a)\1", "[z-a]", "(?:a{999}){999}", "\ud800"])
def test_what_re2_does_not_know_is_refused(pattern: str) -> None:
    with pytest.raises(OptionError, match=r"subscribePattern: .* is not in RE2's syntax: ."):
        matcher(pattern)


def test_without_re2_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "re2", None)
    matcher.cache_clear()
    with pytest.raises(OptionError, match="pip install google-re2"):
        matcher("a-pattern-of-its-own")
