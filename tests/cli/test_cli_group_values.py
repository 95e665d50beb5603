"""What options of `holdfast groups` are given as: times, partitions, CSV.

Goal: what Kafka's tool reads is read alike; what it can't read names the option. Method: tables.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from holdfast.cli.command_table import filled
from holdfast.cli.consumer_groups import patterns
from holdfast.cli.consumer_groups.groups_command import parse_words
from holdfast.cli.consumer_groups.reset_values import (
    csv_lines,
    parse_datetime,
    parse_duration,
    parse_topics,
    read_plan,
)
from holdfast.cli.exit_status import CommandError

if TYPE_CHECKING:
    from tests.cli.conftest import Run

HOUR_MS = 3_600_000


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("PT1H", HOUR_MS),
        ("P7D", 168 * HOUR_MS),
        ("P1DT2H3M4.5S", 26 * HOUR_MS + 184_500),
        ("pt0.001s", 1),
        ("PT-1.5S", -1500),
        ("-PT1M", -60_000),
        ("PT1,25S", 1250),
        ("PT+5M", 300_000),
        ("PT0.0005S", 0),
    ],
)
def test_durations(text: str, ms: int) -> None:
    """As Java reads them."""
    assert parse_duration(text) == ms


@pytest.mark.parametrize("text", ["", "P", "PT", "P1", "1H", "P1H", "P1DT", "PT1S1M", "P1Y", "PTS"])
def test_durations_that_are_none(text: str) -> None:
    with pytest.raises(CommandError, match="--by-duration"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("1970-01-01T00:00:00.000", 0),
        ("1970-01-01T01:00:00.250", HOUR_MS + 250),
        ("1970-01-01T01:00:00.250Z", HOUR_MS + 250),
        ("1970-01-01T01:00:00.250+01:00", 250),
        ("1970-01-01T01:00:00.250+01", 250),
        ("1969-12-31T23:00:00.000-01", 0),
        ("1970-01-01T00:00:01", 1000),
    ],
)
def test_moments(text: str, ms: int) -> None:
    """Without a time zone it is UTC's, wherever this runs."""
    assert parse_datetime(text) == ms


@pytest.mark.parametrize("text", ["", "1970-01-01", "yesterday", "1970-13-01T00:00:00.000", "T"])
def test_moments_that_are_none(text: str) -> None:
    with pytest.raises(CommandError, match="--to-datetime"):
        parse_datetime(text)


def test_topics() -> None:
    assert parse_topics(["a", "b:2,0", "b:1,2", "c:1"]) == {"a": None, "b": [2, 0, 1], "c": [1]}
    assert parse_topics(["a:1", "a"]) == {"a": None}
    assert parse_topics(["a", "a:1"]) == {"a": None}


@pytest.mark.parametrize("text", ["", ":1", "a:", "a:x", "a:-1", "a:1,,2", "a:1:2", "a:2147483648"])
def test_topics_that_are_none(text: str) -> None:
    with pytest.raises(CommandError, match="--topic"):
        parse_topics([text])


@pytest.mark.parametrize(
    ("text", "groups", "plan"),
    [
        ("t,0,5\nt,1,6\n\n", ["g"], {"g": {("t", 0): 5, ("t", 1): 6}}),
        ('"a,b",0,-5\n', ["g"], {"g": {("a,b", 0): -5}}),
        ("g,t,0,5\nh,t,0,6", ["g", "h"], {"g": {("t", 0): 5}, "h": {("t", 0): 6}}),
        ("h,t,0,5", ["g"], {"h": {("t", 0): 5}}),
        (" t , 0 , 5 ", ["g"], {"g": {("t", 0): 5}}),
    ],
)
def test_plans_of_a_file(
    text: str, groups: list[str], plan: dict[str, object], tmp_path: Path
) -> None:
    path = tmp_path / "plan.csv"
    path.write_text(text)
    assert read_plan(path, groups) == plan


@pytest.mark.parametrize(
    ("text", "groups"),
    [
        ("", ["g"]),
        ("t,0,5", ["g", "h"]),  # of which group?
        ("t,0", ["g"]),
        ("t,x,5", ["g"]),
        ("t,0,5.5", ["g"]),
        ("t,0,99999999999999999999", ["g"]),
        (",0,5", ["g"]),
        ("t,0,5\nt,0,6", ["g"]),
        (f"{'x' * 200_000},0,5", ["g"]),
        ("a,b,c,d,e", ["g"]),
    ],
)
def test_plans_that_are_none(text: str, groups: list[str], tmp_path: Path) -> None:
    path = tmp_path / "plan.csv"
    path.write_text(text)
    with pytest.raises(CommandError, match=f"--from-file {path}"):
        read_plan(path, groups)


def test_a_plan_of_a_spreadsheet(tmp_path: Path) -> None:
    """Goal: the mark that some programs put before text is no part of a name. Method: one.

    Seen to end in "refused (INVALID_TOPIC_EXCEPTION)" of a topic whose first letter nobody sees.
    """
    path = tmp_path / "plan.csv"
    path.write_text("t,0,5\r\n", encoding="utf-8-sig")
    assert read_plan(path, ["g"]) == {"g": {("t", 0): 5}}


def test_a_plan_that_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "plan.csv"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(CommandError, match="--from-file"):
        read_plan(path, ["g"])
    with pytest.raises(CommandError, match="No such file"):
        read_plan(tmp_path / "none", ["g"])


def test_a_plan_is_written_as_kafkas_tool_writes_it(tmp_path: Path) -> None:
    """Quotes stand around what is longer than 24 letters, or has a letter before the dash."""
    long = "tb-long-topic-name-for-widths"
    plan = {"g": {("ta", 2): 7, (long, 0): 10}, "a b": {("t", 0): 1}, 'q"': {("t", 0): 2}}
    assert csv_lines({"g": plan["g"]}, of_one=True) == ["ta,2,7", f'"{long}",0,10']
    lines = csv_lines(plan, of_one=False)
    assert lines == ["g,ta,2,7", f'g,"{long}",0,10', '"a b",t,0,1', '"q""",t,0,2']
    path = tmp_path / "plan.csv"
    path.write_text("\n".join(lines))
    assert read_plan(path, list(plan)) == plan


def test_words() -> None:
    known = ("Stable", "Empty", "PreparingRebalance")
    assert parse_words("--state", None, known) is None
    assert parse_words("--state", "", known) == []
    assert parse_words("--state", "stable, EMPTY,stable", known) == ["Stable", "Empty"]
    with pytest.raises(CommandError, match=r"--state stabel.*Did you mean Stable"):
        parse_words("--state", "stabel", known)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("--list --state", ["--list", "--state="]),
        ("--list --state --type", ["--list", "--state=", "--type="]),
        ("--list --state stable,empty", ["--list", "--state", "stable,empty"]),
        ("--describe --state --group g", ["--describe", "--state=", "--group", "g"]),
        ("--list --state=x", ["--list", "--state=x"]),
    ],
)
def test_a_value_may_be_left_out(line: str, words: list[str]) -> None:
    """Goal: `--state` alone, as in Kafka's tool. Method: what typer is given then."""
    assert filled("groups", line.split()) == words
    assert filled("topics", line.split()) == line.split()


def test_patterns(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: Kafka's sentences, and status 1 for a pattern that is none. Method: RE2's stand-in."""

    class BadPatternError(Exception):
        pass

    def compile_(pattern: str, options: object) -> None:
        assert options is not None
        if pattern == "a(b":
            raise BadPatternError(b"missing closing )")

    stand_in = SimpleNamespace(compile=compile_, error=BadPatternError, Options=SimpleNamespace)
    monkeypatch.setitem(sys.modules, "re2", stand_in)
    good, bad = run("groups", "--validate-regex", "a.*"), run("groups", "--validate-regex", "a(b")
    assert (good.status, good.output) == (0, "The regular expression `a.*` is valid.\n")
    said = "The regular expression `a(b` is invalid: missing closing ).\n"
    assert (bad.status, bad.output) == (1, said)


def test_patterns_without_re2(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_name: str) -> object:
        raise ImportError

    monkeypatch.setattr(patterns, "import_module", missing)
    outcome = run("groups", "--validate-regex", "a")
    assert (outcome.status, outcome.output) == (1, "")
    assert "google-re2" in outcome.errors
