"""Goal: the judge names what a group may not do, and nothing that an event allows it.

Method: a hand-made history for each rule and each excuse, compared over all anomalies, by the judge
and by the naive one; made histories cut and mangled at random, over which both must agree.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.judge.group_naive import naive
from tests.judge.group_stories import ROWS, STUCK_MS, GroupStory, S, said, two
from tests.judge.group_world import PLANTS, GroupWorld

from holdfast.judge.findings import FINDINGS_MAX
from holdfast.judge.groups import gaps
from holdfast.judge.groups.checker import GroupChecker, judge_groups
from holdfast.judge.groups.history import (
    Assigned,
    CommitAcknowledged,
    CommitRefused,
    CommitUnknown,
    GroupExpected,
    Started,
    encode_any,
    read_any_runs,
)
from holdfast.judge.groups.ranges import Range, Ranges, without
from holdfast.judge.groups.verdict import Commits, GroupAnomaly, group_promise_for
from holdfast.judge.history import Event, HistoryError, in_runs

EVERY = frozenset(GroupAnomaly)


@pytest.mark.parametrize(("name", "story", "expected"), ROWS, ids=[row[0] for row in ROWS])
def test_each_rule_and_each_excuse(
    name: str, story: Callable[[], GroupStory], expected: dict[str, int]
) -> None:
    made = story()
    judgement = made.judged()
    assert said(judgement) == expected, name
    for finding in judgement.findings:
        assert finding.events, finding
        assert set(map(id, finding.events)) <= set(map(id, made.events)), finding
    if isinstance(made.events[0], GroupExpected):
        assert naive(sorted(made.events, key=lambda event: event.at_ms)) == expected


@pytest.mark.parametrize("first", range(0, 60, 15))
def test_true_histories_hold_nothing(first: int) -> None:
    for seed in range(first, first + 15):
        world = GroupWorld(seed)
        judgement = judge_groups(world.history)
        allowed = {GroupAnomaly.SKIPPED} if world.before else set[GroupAnomaly]()
        assert not judgement.broken(EVERY - allowed), (seed, judgement.findings)
        assert judgement.decided, (seed, judgement.undecided)
        assert world.skipped() in {None, judgement.count(GroupAnomaly.SKIPPED)}, seed


@pytest.mark.parametrize("plant", PLANTS)
def test_what_was_planted_is_found(plant: str) -> None:
    planted = 0
    for seed in range(30):
        world = GroupWorld(seed, plant)
        if not world.planted:
            continue
        judgement = judge_groups(world.history)
        if PLANTS[plant] is GroupAnomaly.SKIPPED:  # somebody may have read it after all
            skipped = world.skipped()
            planted += bool(skipped)
            assert judgement.count(GroupAnomaly.SKIPPED) == skipped, seed
        else:
            planted += 1
            assert judgement.count(PLANTS[plant]), seed
    assert planted >= 3


def test_commits_before_processing_lose() -> None:
    """The control: without it nobody knows that the rule finds anything in a run."""
    lost = [
        judge_groups(world.history).count(GroupAnomaly.SKIPPED)
        for world in map(GroupWorld, range(60))
        if world.before
    ]
    assert sum(map(bool, lost)) >= 3


@pytest.mark.parametrize("plant", [None, *PLANTS])
def test_two_judges_agree_over_runs(plant: str | None) -> None:
    for seed in range(3):
        agree(GroupWorld(seed, plant, steps=60).history)


@pytest.mark.slow
@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.integers(0, 10_000), st.data())
def test_two_judges_agree_over_what_makes_no_sense(seed: int, data: st.DataObject) -> None:
    """Events are left out, or come twice, and what follows from that is judged."""
    history = GroupWorld(seed, steps=40).history
    lost = data.draw(st.sets(st.integers(1, len(history) - 1), max_size=25))
    agree([event for place, event in enumerate(history) if place not in lost or keeps(event)])


def keeps(event: Event) -> bool:
    """Whether the history contradicts itself without it."""
    return isinstance(event, Assigned | GroupExpected) or event.KIND == "group_commit"


def agree(history: Sequence[Event]) -> None:
    assert said(judge_groups(history)) == naive(history)


def test_runs_of_any_length_give_one_verdict() -> None:
    for seed in range(5):
        history = GroupWorld(seed).history
        whole = judge_groups(history)
        for length in (1, 7):
            checker = GroupChecker()
            for run in in_runs(history, length):
                checker.feed(run)
            assert checker.finish() == whole


def test_what_is_written_is_what_is_read() -> None:
    history = GroupWorld(3).history
    data = "".join(map(encode_any, history)).encode()
    for size in (1000, len(data)):
        blocks = [data[begin : begin + size] for begin in range(0, len(data), size)]
        assert [each for run in read_any_runs([*blocks, b'{"event"']) for each in run] == history
    with pytest.raises(HistoryError, match="here:2"):
        list(read_any_runs([encode_any(history[0]).encode() + b"{}\n"], "here"))


def test_a_history_that_contradicts_itself_is_refused() -> None:
    stories: list[Callable[[], GroupStory]] = [
        lambda: S().yes("c"),
        lambda: two().ask("a", 3, "c").ask("a", 4, "c"),
        lambda: two().ask("a", 3, "c").yes("c").no("c"),
        lambda: S().start("a"),
        lambda: S().fault("a", "HUG"),
    ]
    for story in stories:
        with pytest.raises(HistoryError):
            story().judged()


def test_what_cannot_be_decided_is_said() -> None:
    assert S().join("a").judged().undecided == ("g: foo-0: nobody began to read it",)
    assert len(two().judged().undecided) == 1
    assert S(0).judged().undecided == ("g: nothing is known of what it reads",)
    idle = S(0).ack(0).own("a", offset=1, reset="latest").calm().uncalm().judged()
    assert idle.undecided == ("g: its members processed nothing",)
    many = two()
    for number in range(600):
        many.commit("a", 2 + number % 2)
    assert "was forgotten" in many.seen(9, began=5000.0).judged().undecided[0]


@pytest.mark.parametrize(
    ("story", "decided"),
    [
        (lambda: two().calm(), False),
        (lambda: two().calm().uncalm(), False),
        (lambda: two().calm().do("a", 4).uncalm(), True),
        (lambda: two().calm().pause(STUCK_MS + 1).uncalm(), True),
        (lambda: two().calm().pause(STUCK_MS - 1).uncalm(), False),
        (lambda: two(6, 6).calm().uncalm(), True),
        (lambda: two().leave("a").leave("b").calm().pause(STUCK_MS + 1).uncalm(), False),
        (lambda: two().fault("a", "STOP").fault("b", "STOP").calm().do("a", 4).uncalm(), False),
        (lambda: two().calm().node_fault().do("a", 4).uncalm(), False),
    ],
)  # fmt: skip
def test_a_calm_that_shows_nothing_is_none(story: Callable[[], GroupStory], decided: bool) -> None:
    """Goal: who is stuck is not taken for well because nobody looked for long enough."""
    judgement = story().judged()
    assert judgement.decided is decided or judgement.count(GroupAnomaly.STUCK)
    assert decided or "never left in peace" in judgement.undecided[0]


def test_what_is_passed_over_again_and_again_is_not_looked_at_again_and_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Goal: a run in which all is skipped is judged, too. Method: every other record of many."""
    looks: list[int] = []
    real = without

    def counted(ranges: Iterable[Range], other: Ranges) -> Iterator[Range]:
        looks.append(1)
        return real(ranges, other)

    monkeypatch.setattr(gaps, "without", counted)
    records = 6_000
    story = S(records).own("a").do("a", *range(1, records, 2))
    judgement = story.judged()
    assert judgement.count(GroupAnomaly.SKIPPED) == records // 2
    assert len(judgement.findings) == FINDINGS_MAX
    assert len(looks) < 4 * records


def test_what_is_promised() -> None:
    assert group_promise_for(Commits.AFTER).forbids == EVERY
    for control in (Commits.BEFORE, Commits.AUTOMATIC):
        assert group_promise_for(control).forbids == EVERY - {GroupAnomaly.SKIPPED}


def test_counts_tell_the_price() -> None:
    story = two(2, 4).ask("a", 9).doubt("a9").ask("a", 5).no("a5").revoke("a").own("b", 2, 2)
    counts = story.pause(30).do("b", 2, 3).judged().counts
    assert (counts.repeated, counts.repeated_after_release, counts.owners) == (2, 2, 2)
    assert (counts.commits, counts.commits_unknown, counts.commits_refused) == (1, 1, 1)
    assert counts.commits_ahead == 2
    assert counts.longest_wait_ms > 30


def test_the_worlds_are_varied() -> None:
    seen: Counter[str] = Counter()
    for seed in range(40):
        seen.update(event.KIND for event in GroupWorld(seed).history)
    wanted: list[type[Event]] = [CommitAcknowledged, CommitRefused, CommitUnknown, Started]
    assert all(seen[kind.KIND] > 20 for kind in wanted), seen


@settings(deadline=None)
@given(st.lists(st.integers(0, 40)), st.sets(st.integers(0, 40)))
def test_ranges_are_sets(offsets: list[int], others: set[int]) -> None:
    ranges, other, known = Ranges(), Ranges(), set[int]()
    for offset in offsets:
        assert ranges.add(offset) is (offset not in known)
        known.add(offset)
    for offset in others:
        other.add(offset)
    flat = [offset for begin, end in ranges for offset in range(begin, end)]
    assert flat == sorted(known)
    assert all((offset in ranges) is (offset in known) for offset in range(42))
    assert all(left[1] < right[0] for left, right in zip(ranges, list(ranges)[1:], strict=False))
    rest = [o for begin, end in without(ranges.within(3, 30), other) for o in range(begin, end)]
    assert rest == sorted({offset for offset in known if 3 <= offset < 30} - others)
