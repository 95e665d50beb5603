"""Goal: patterns are RE2's or refused, and what they match is found out with little work.

Method: the library itself; a stand-in for what is around it.
Rules: consumer-groups.md#patterns, consumer-groups.md#pattern-refresh.
"""

from __future__ import annotations

import re
from typing import Any

import pytest
from tests.group.consumer_kit import Coordinator, match_by_prefix

from holdfast.core.group.consumer import consumer_patterns, consumer_step
from holdfast.core.group.consumer.consumer_patterns import (
    PatternRefresh,
    PatternScan,
    ResolvedPattern,
    TooManyNamesError,
    TopicJournal,
    compile_pattern,
)
from holdfast.core.refusal import Refusal
from holdfast.wire.errors import ErrorCode


@pytest.mark.parametrize(
    ("pattern", "name", "expected"),
    [
        ("a.*", "abc", True),
        ("a.*", "xabc", False),
        ("a", "ab", False),
        ("", "a", False),
        ("^a|b$", "b", True),
        ("(?i)A", "a", True),
        (r"\d+", "42", True),
    ],
)
def test_a_pattern_matches_whole_names(pattern: str, name: str, expected: bool) -> None:
    matches = compile_pattern(pattern)
    assert not isinstance(matches, Refusal)
    assert matches(name) is expected


@pytest.mark.parametrize(
    "pattern", ["(", "a{1001}", "(?=a)", r"(a)\1", "((a{100}){100}){100}", "\ud800"]
)
def test_what_re2_does_not_take_is_refused(pattern: str) -> None:
    refusal = compile_pattern(pattern)
    assert isinstance(refusal, Refusal)
    assert refusal.code is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert refusal.message.startswith(f"SubscribedTopicRegex `{pattern}` is not a valid regular")


def test_a_pattern_that_keeps_others_busy_takes_no_time() -> None:
    """Goal: the pattern on which Python's `re` would work for years is answered."""
    matches = compile_pattern("(a*)*b")
    assert not isinstance(matches, Refusal)
    assert not matches("a" * 249)


def test_without_the_library_patterns_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(consumer_patterns, "import_module", missing)
    refusal = compile_pattern("a.*")
    assert isinstance(refusal, Refusal)
    assert refusal.code is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert "google-re2" in refusal.message


def test_python_s_own_patterns_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*_: object) -> Any:
        raise AssertionError("a stranger's pattern was given to re")

    for name in ("compile", "match", "fullmatch", "search"):
        monkeypatch.setattr(re, name, forbidden)
    compile_pattern("a.*")


# -- which names are looked at -----------------------------------------------------------------


def scan(refresh: PatternRefresh, names: list[str], **options: Any) -> PatternScan:
    options.setdefault("exists", lambda _: True)
    return PatternScan(refresh, names, compiled=match_by_prefix, **options)


def finish(each: PatternScan) -> None:
    while not each.advance(10):
        pass


def test_a_scan_goes_in_slices() -> None:
    refresh = PatternRefresh(group_id="g", patterns=("a*", "*"), call=1)
    names = [f"{letter}{number}" for number in range(5) for letter in "ab"]
    each = scan(refresh, names)
    slices = 0
    while not each.advance(3):
        slices += 1
    assert slices == 2 * (1 + 4), "each pattern is compiled, and then held to three names at a time"
    outcome = each.outcome(7, 99)
    assert outcome["a*"] == ResolvedPattern(("a0", "a1", "a2", "a3", "a4"), 7, 99)
    assert outcome["*"].topics == tuple(sorted(names))


def test_a_scan_of_new_names_keeps_what_was_matched_and_is_still_there() -> None:
    known = {"a*": ResolvedPattern(("a1", "a2"), 3, 0)}
    refresh = PatternRefresh(group_id="g", patterns=("a*",), call=1, since=3, known=known)
    each = scan(refresh, ["a3", "b1"], exists=lambda name: name != "a2")
    finish(each)
    assert each.outcome(4, 1)["a*"].topics == ("a1", "a3")


def test_topics_that_may_not_be_described_are_left_out() -> None:
    refresh = PatternRefresh(group_id="g", patterns=("a*",), call=1)
    each = scan(refresh, ["a1", "a2"], allowed=lambda name: name == "a2")
    finish(each)
    assert each.outcome(1, 1)["a*"].topics == ("a2",)


def test_a_pattern_that_is_no_good_any_more_matches_nothing() -> None:
    refresh = PatternRefresh(group_id="g", patterns=("a*", "bad"), call=1)
    each = scan(refresh, ["a1", "bad"])
    finish(each)
    assert each.outcome(1, 1)["bad"].topics == ()


def test_the_journal_knows_what_came_since() -> None:
    journal = TopicJournal(5, names_max=3)
    assert (journal.newest, journal.since(5), journal.since(4)) == (5, [], None)
    journal.note(6, ["a", "b"])
    journal.note(9, [])
    journal.note(9, ["c"])
    assert journal.newest == 9
    assert journal.since(5) == ["a", "b", "c"]
    assert journal.since(6) == ["c"]
    journal.note(10, ["d"])
    assert journal.since(5) is None
    assert journal.since(6) == ["c", "d"]


# -- what a group asks for -----------------------------------------------------------------------


def subscribed(**settings: Any) -> Coordinator:
    """Return a coordinator with one member, whose pattern was resolved just now."""
    coordinator = Coordinator(**settings)
    coordinator.create("a1")
    coordinator.join("m", subscribed_topic_regex="a*", subscribed_topic_names=None)
    assert [each.since for each in coordinator.resolve()] == [None]
    return coordinator


def beat(coordinator: Coordinator, milliseconds: int) -> list[PatternRefresh]:
    """Let time pass, in steps that keep the session alive; return what is asked at the end."""
    asked: list[PatternRefresh] = []
    while milliseconds:
        step = min(milliseconds, 40_000)
        milliseconds -= step
        coordinator.advance(step)
        coordinator.heartbeat("m", coordinator.group().state.members["m"].epoch)
        asked += coordinator.resolve()
    return asked


def test_nothing_is_asked_before_ten_seconds_are_over() -> None:
    coordinator = subscribed()
    coordinator.create("a2")
    assert beat(coordinator, 10_000) == []
    assert [each.since for each in beat(coordinator, 1)] == [2]


def test_nothing_is_asked_while_nothing_is_new() -> None:
    coordinator = subscribed()
    coordinator.grow("a1", 2)
    coordinator.delete("a1")
    assert beat(coordinator, 600_000) == []
    assert [each.since for each in beat(coordinator, 1)] == [None]


def test_new_names_alone_are_looked_at_until_the_interval_is_over() -> None:
    coordinator = subscribed(regex_refresh_interval_ms=60_000)
    coordinator.create("a2")
    assert [each.since for each in beat(coordinator, 40_000)] == [2]
    coordinator.create("a3")
    assert [each.since for each in beat(coordinator, 20_001)] == [None]


def test_all_names_are_looked_at_where_the_journal_does_not_reach() -> None:
    coordinator = subscribed()
    coordinator.fail_over()
    coordinator.create("a2")
    assert [each.since for each in beat(coordinator, 10_001)] == [None]
    assert coordinator.group().state.patterns["a*"].topics == ("a1", "a2")


def test_one_refresh_at_a_time() -> None:
    coordinator = subscribed()
    coordinator.heartbeat("m", 1)
    coordinator.create("a2")
    coordinator.advance(10_001)
    coordinator.heartbeat("m", 2)
    refresh = coordinator.shard.take_refresh()
    assert refresh is not None
    coordinator.heartbeat("m", 2)
    assert coordinator.shard.take_refresh() is None
    coordinator.shard.patterns_unresolved(refresh)
    coordinator.heartbeat("m", 2)
    assert coordinator.shard.take_refresh() == PatternRefresh(
        group_id="g",
        patterns=("a*",),
        call=coordinator.calls,
        since=refresh.since,
        known=refresh.known,
    )


@pytest.mark.parametrize("leave", [True, False])
def test_an_outcome_that_comes_too_late_is_left_alone(leave: bool) -> None:
    """Goal: the pattern, or the group, is gone when its outcome comes."""
    coordinator = Coordinator()
    coordinator.create("a1")
    coordinator.join("m", subscribed_topic_regex="a*", subscribed_topic_names=None)
    refresh = coordinator.shard.take_refresh()
    assert refresh is not None
    if leave:
        coordinator.heartbeat("m", -1)
    else:
        call = coordinator.call(2)
        coordinator.heartbeat("m", -1)
        coordinator.perform(coordinator.shard.delete_group(call, "g", coordinator.now_ms))
    written = len(coordinator.log)
    outcome = coordinator.scan(refresh)
    decision = coordinator.shard.patterns_resolved(refresh, outcome, coordinator.now_ms)
    coordinator.perform(decision)
    coordinator.shard.patterns_unresolved(refresh)
    assert len(coordinator.log) == written


def test_an_unchanged_outcome_is_no_new_epoch() -> None:
    coordinator = subscribed()
    epoch = coordinator.group().state.epoch
    coordinator.create("b1")
    assert len(beat(coordinator, 10_001)) == 1
    assert coordinator.group().state.epoch == epoch


def test_a_refresh_that_the_log_refuses_is_asked_again() -> None:
    coordinator = Coordinator()
    coordinator.create("a1")
    coordinator.join("m", subscribed_topic_regex="a*", subscribed_topic_names=None)
    coordinator.refuses = ErrorCode.NOT_ENOUGH_REPLICAS
    assert len(coordinator.resolve()) == 1
    coordinator.refuses = None
    assert coordinator.group().state.patterns == {}
    coordinator.heartbeat("m", 1)
    assert len(coordinator.resolve()) == 1
    assert coordinator.group().state.patterns["a*"].topics == ("a1",)


def test_names_and_a_pattern_together() -> None:
    coordinator = Coordinator()
    both = [coordinator.create("a1"), coordinator.create("x")]
    coordinator.join("m", "x", "a1", subscribed_topic_regex="a*")
    coordinator.resolve()
    coordinator.heartbeat("m", 1)
    assert sorted(coordinator.group().state.members["m"].assigned) == both


def test_a_clock_that_was_ahead_holds_up_no_refresh() -> None:
    """Goal: patterns are held to new topics, whenever the last coordinator says it has done so.

    Method: another one leads, whose clock is an hour behind.
    """
    coordinator = subscribed()
    coordinator.now_ms -= 60 * 60 * 1000
    coordinator.fail_over()
    coordinator.create("a2")
    assert len(beat(coordinator, 1)) == 1
    assert coordinator.group().state.patterns["a*"].topics == ("a1", "a2")
    assert beat(coordinator, 1) == [], "once, and not with each heartbeat"


def test_patterns_are_compiled_one_at_a_time_and_let_go() -> None:
    """Goal: members that bring a hundred dear patterns hold up nobody, and take no memory.

    A pattern may take ten milliseconds and a megabyte. Seen to fail when all are compiled at once.
    """
    alive: set[int] = set()

    class Compiled:
        def __init__(self) -> None:
            alive.add(id(self))

        def __call__(self, name: str) -> bool:
            return name == "a"

        def __del__(self) -> None:
            alive.discard(id(self))

    made = 0

    def compiled(_: str) -> Compiled:
        nonlocal made
        made += 1
        return Compiled()

    patterns = tuple(map(str, range(20)))
    refresh = PatternRefresh(group_id="g", patterns=patterns, call=1)
    each = PatternScan(refresh, ["a", "b"], exists=lambda _: True, compiled=compiled)
    seen, is_over = 0, False
    while not is_over:
        assert made - seen <= 1, "one in a step"
        seen = made
        is_over = each.advance(10)
        assert len(alive) <= 1
    assert {one.topics for one in each.outcome(1, 1).values()} == {("a",)}
    assert made == len(patterns)


def test_patterns_that_match_more_than_a_batch_takes_are_given_up() -> None:
    """Goal: a hundred patterns that match all topics are neither sorted nor encoded to no end."""
    refresh = PatternRefresh(group_id="g", patterns=("a*", "*"), call=1)
    finish(scan(refresh, ["aaa", "bbb"], bytes_max=9))
    with pytest.raises(TooManyNamesError, match="group g match more topics"):
        finish(scan(refresh, ["aaa", "bbb"], bytes_max=8))


@pytest.mark.parametrize("is_refused_by_the_log", [True, False])
def test_what_can_t_be_written_is_not_found_out_again_with_each_heartbeat(
    is_refused_by_the_log: bool,
) -> None:
    coordinator = Coordinator()
    coordinator.create("a1")
    coordinator.join("m", subscribed_topic_regex="a*", subscribed_topic_names=None)
    refresh = coordinator.shard.take_refresh()
    assert refresh is not None
    if is_refused_by_the_log:
        coordinator.refuses = ErrorCode.RECORD_LIST_TOO_LARGE
        outcome = coordinator.scan(refresh)
        decision = coordinator.shard.patterns_resolved(refresh, outcome, coordinator.now_ms)
        coordinator.perform(decision)
        coordinator.refuses = None
    else:
        coordinator.shard.patterns_refused(refresh, coordinator.now_ms)
    assert beat(coordinator, 10_000) == []
    assert len(beat(coordinator, 1)) == 1


def test_a_group_has_so_many_different_patterns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: members can't have each topic looked at a thousand times over."""
    monkeypatch.setattr(consumer_step, "PATTERNS_MAX", 2)
    coordinator = Coordinator()

    def join(member: str, pattern: str) -> ErrorCode:
        told = {"subscribed_topic_regex": pattern, "subscribed_topic_names": None}
        return ErrorCode(coordinator.join(member, **told).error_code)

    assert [join("A", "a*"), join("B", "b*"), join("C", "a*")] == [ErrorCode.NONE] * 3
    assert join("D", "d*") is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert join("B", "d*") is ErrorCode.NONE, "its own goes for it"
