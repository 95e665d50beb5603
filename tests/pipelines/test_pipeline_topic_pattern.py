"""Goal: a pattern means names that have it, and never the brokers' own topics. Method: a table.

tests/apache/test_apache_spark_connector.py holds it against Spark's own connector.
"""

from __future__ import annotations

import sys

import pytest

from holdfast.pipelines.intake.option_values import OptionError
from holdfast.pipelines.intake.topic_pattern import INTERNAL, matcher


@pytest.mark.parametrize(
    ("pattern", "name", "meant"),
    [
        ("a", "a", True),
        ("a", "ab", True),
        ("a", "ba", True),
        ("^a$", "ba", False),
        ("a|b-.*", "b-1", True),
        ("^(a|b)$", "ab", False),
        (r"pay\.(eu|us)", "pay.eu", True),
        (r"pay\.(eu|us)", "payxeu", False),
        ("(?i)A", "a", True),
        ("^a$", "a\n", False),
    ],
)
def test_some_part_of_the_name_has_to_match(pattern: str, name: str, *, meant: bool) -> None:
    assert matcher(pattern)(name) is meant


def test_the_brokers_own_topics_never_do() -> None:
    assert {"__consumer_offsets", "__transaction_state", "__share_group_state"} == INTERNAL
    for pattern in (".*", "__.*", *INTERNAL):
        assert not any(matcher(pattern)(name) for name in INTERNAL)
    assert matcher("__.*")("__mine")


@pytest.mark.parametrize("pattern", ["(", "a(?!b)", r"(a)\1", "[z-a]", "(?:a{999}){999}", "\ud800"])
def test_what_re2_does_not_know_is_refused(pattern: str, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(OptionError, match=r"subscribePattern: .* is not in RE2's syntax: ."):
        matcher(pattern)
    assert capfd.readouterr().err == "", "what is raised is not written, too"


def test_re2_s_reason_is_told() -> None:
    with pytest.raises(OptionError) as refused:
        matcher("a(b")
    assert str(refused.value) == (
        "subscribePattern: 'a(b' is not in RE2's syntax: missing ): a(b "
        "(https://github.com/google/re2/wiki/Syntax)"
    )


def test_without_re2_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "re2", None)
    matcher.cache_clear()
    said = (
        r"^subscribePattern: this needs the Python package google-re2 where the query is planned "
        r"\(pip install google-re2\); or name the topics with subscribe$"
    )
    with pytest.raises(OptionError, match=said):
        matcher("a-pattern-of-its-own")
