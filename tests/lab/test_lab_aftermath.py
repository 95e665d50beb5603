"""What is reckoned beside the judgement: exact losses, what expired, how long recovery took.

Goal: a figure of a report is that of the history, and a check with an exact number is exact.
Method: histories by hand; checks and tables are compared whole, words included.
"""

from __future__ import annotations

from typing import Any

import pytest
from tests.judge.histories import Story

from holdfast.judge.checker import judge
from holdfast.judge.history import Acknowledged, Event, Fault, LinkChange, Refused, Send
from holdfast.judge.timeline import CUT, HEAL, WHOLE
from holdfast.lab.aftermath import (
    FAULTS_MAX,
    Errors,
    Missing,
    Recoveries,
    expired_check,
    lost_check,
)
from holdfast.lab.report import Check, Table

GOOD = Story().send(0, 1).ack(0, 0).ack(1, 1).final(0, 1)
LOSSY = Story().send(0, 1).ack(0, 0).ack(1, 1).final(0)


@pytest.mark.parametrize(
    ("expected", "kept", "beyond"),
    [(0, False, "1 lost, where 0 may be"), (1, True, ""), (2, False, "")],
)
def test_an_exact_loss_is_exact(expected: int, kept: bool, beyond: str) -> None:
    assert lost_check(expected, judge(LOSSY.events).judgement) == Check(
        name="acknowledged events lost",
        expected=f"exactly {expected}",
        seen="1",
        kept=kept,
        beyond=beyond,
    )


@pytest.mark.parametrize(
    ("expected", "kept"),
    [
        ([(0, 1, "p:1")], True),
        ([], False),
        ([(0, 2, "p:1")], False),
        ([(0, 1, "p:1"), (0, 0, "p:0")], False),
    ],
)
def test_a_loss_is_named_offset_by_offset(expected: list[tuple[int, int, str]], kept: bool) -> None:
    missing = Missing()
    for event in LOSSY.events:
        missing.feed(event)
    check = missing.check(expected)
    assert check.name == "acknowledged events lost, offset by offset"
    assert check.kept is kept
    assert check.seen == ("the same" if kept else "P0: 1")


def test_offsets_that_are_lost_are_said_as_ranges() -> None:
    named = [(0, 3, "a"), (0, 4, "b"), (0, 5, "c"), (0, 9, "d"), (1, 6, "e")]
    assert Missing().check(named).expected == "P0: 3 to 5, P0: 9, P1: 6"
    assert Missing().check([]).expected == "none"


def test_what_expired_is_exact_by_what_allowed_it() -> None:
    story = Story().send(0, 1, 2).ack(0, 0).ack(1, 1).ack(2, 2).delete(2).final(2, begin=2)
    judgement = judge(story.events).judgement
    allowed = "DeleteRecords before offset 2"
    assert expired_check({allowed: 2}, judgement) == Check(
        name="acknowledged events expired, and why that was allowed",
        expected=f"2 by {allowed}",
        seen=f"2 by {allowed}",
        kept=True,
    )
    for wrong in ({}, {allowed: 1}, {"retention.ms=1": 2}):
        assert not expired_check(wrong, judgement).kept
    assert expired_check({"b": 1, "a": 2}, judgement).expected == "2 by a, 1 by b"
    none = expired_check({}, judge(LOSSY.events).judgement)
    assert (none.expected, none.seen, none.kept) == ("none", "none", True)


def faults(*moments: tuple[float, str, int]) -> list[Any]:
    return [
        Fault(at_ms=at_ms, wall_ms=0, process="lab", action=action, node=node)
        for at_ms, action, node in moments
    ]


def fed(*events: Event) -> Recoveries:
    recoveries = Recoveries()
    for event in sorted(events, key=lambda event: event.at_ms):
        recoveries.feed(event)
    recoveries.finish()
    return recoveries


def recovered(*events: Event) -> Table | None:
    return fed(*events).table()


def cells(*events: Event) -> list[list[str]]:
    table = recovered(*events)
    assert table is not None
    return [list(row) for row in table.rows]


def test_recovery_counts_only_what_was_sent_after_the_fault() -> None:
    story = Story().send(0).pause(100).send(1).ack(0, 0).pause(397).ack(1, 1)
    table = recovered(*story.events, *faults((1050, "KILL", 2)))
    assert table == Table(
        title="How long clients waited after each fault",
        header=["fault", "client", "P0"],
        rows=[["SIGKILL 2", "p", "451 ms"]],
        note="Until the first event that was sent after the fault was acknowledged, or behind a "
        "healing any event: from that moment on for who waited for an answer then, for others from "
        "what they sent next. What breaks later is in the longest gap. A dash: they sent nothing "
        "before the next fault. Never: as long as it could be seen. The raw client has no back-off "
        "of its own; the other is librdkafka, which waits between its attempts.",
    )


def test_a_fault_has_a_row_for_each_client_and_a_column_for_each_partition() -> None:
    story = Story().send(0, by="q").send(1, partition=3).ack(0, 0, by="q").ack(1, 0, partition=3)
    story.pause(100).send(2, by="q").refuse(2, by="q").send(3, by="q").ack(3, 1, by="q")
    story.send(4, by="q").ack(4, 2, by="q")  # the first one counts
    table = recovered(*story.events, *faults((1000, "TERM", 1), (1050, "STOP", 0)))
    assert table is not None
    assert list(table.header) == ["fault", "client", "P0", "P3"]
    assert [list(row) for row in table.rows] == [
        ["SIGTERM 1", "p", "-", "2.0 ms"],
        ["SIGTERM 1", "q", "2.0 ms", "-"],
        ["SIGSTOP 0", "p", "-", "-"],
        ["SIGSTOP 0", "q", "3.0 ms", "-"],
    ]


def test_who_is_acknowledged_between_the_word_and_the_cut_waits_from_the_cut_on() -> None:
    """Goal: twelve seconds without an acknowledgement are not a dash. Method: 20 ms in between."""
    story = Story().send(0).ack(0, 0).pause(10).send(1).ack(1, 1).pause(20).send(2).pause(12_000)
    events = story.ack(2, 2).events
    told_ms, sent_ms, end_ms = events[1].at_ms + 5, events[4].at_ms, events[5].at_ms
    recoveries = fed(*events, *faults((told_ms, CUT, 1)), links(sent_ms - 10))
    assert recoveries.longest_ms == end_ms - sent_ms


def test_who_is_never_acknowledged_again_has_a_column_and_counts() -> None:
    """Goal: a partition that is refused to the end is not left out. Method: another one is well."""
    story = Story().send(0).ack(0, 0).send(1, partition=3).ack(1, 0, partition=3).pause(50)
    fault_ms = story.now_ms
    story.pause(10).send(2, partition=3).ack(2, 1, partition=3)
    story.send(3).pause(1000).refuse(3).send(4).pause(59_000).refuse(4)
    events = (*story.events, *faults((fault_ms, "KILL", 2)))
    table = recovered(*events)
    assert table is not None
    assert list(table.header) == ["fault", "client", "P0", "P3"]
    assert [list(row) for row in table.rows] == [["SIGKILL 2", "p", "never, 1 min 0 s", "1.0 ms"]]
    assert fed(*events).longest_ms == 60_003


def test_a_healing_counts_until_anything_is_acknowledged_and_is_no_fault() -> None:
    """Goal: from healing to the first acknowledgement, apart from the time the links were cut."""
    story = Story().send(0).ack(0, 0).send(1).pause(5000)
    cut_ms, healed_ms = story.events[-1].at_ms + 1, story.now_ms
    story.pause(300).ack(1, 1).send(2).ack(2, 2)
    first_ms, second_ms = story.events[3].at_ms, story.events[5].at_ms
    done = [*faults((cut_ms - 0.5, CUT, 1), (healed_ms, HEAL, 1), (healed_ms + 0.1, HEAL, 2))]
    recoveries = fed(*story.events, *done, links(cut_ms), links(healed_ms + 1, WHOLE))
    table = recoveries.table()
    assert table is not None
    assert [list(row) for row in table.rows] == [
        ["network cut 1", "p", f"{(second_ms - cut_ms) / 1000:.2f} s"],
        ["network healed 1, 2", "p", f"{first_ms - healed_ms:.0f} ms"],
    ]
    assert recoveries.longest_ms == second_ms - cut_ms


def test_who_came_or_sent_long_after_a_fault_has_not_waited_since_it() -> None:
    """Goal: five minutes in which nobody sent anything are no time to recover.

    So it was said of Apache Kafka without controllers: a client of the lab's had come that late.
    """
    story = Story().send(0).ack(0, 0).pause(300_000)
    story.send(1).ack(1, 1).send(2, by="late").ack(2, 2, by="late")
    events = (*story.events, *faults((1010, "TERM", 2)))
    assert cells(*events) == [["SIGTERM 2", "late", "1.0 ms"], ["SIGTERM 2", "p", "1.0 ms"]]
    assert fed(*events).longest_ms == 1.0


def test_who_waits_over_a_second_fault_has_waited_since_the_first() -> None:
    story = Story().send(0).ack(0, 0).send(1).pause(1000).send(2).pause(1000).ack(1, 1).ack(2, 2)
    began_ms = story.events[2].at_ms
    told_ms = story.events[-1].at_ms
    first, second = began_ms + 10, began_ms + 500
    events = (*story.events, *faults((first, "KILL", 2), (second, "KILL", 1)))
    assert fed(*events).longest_ms == told_ms - first
    assert [row[:2] for row in cells(*events)] == [["SIGKILL 2", "p"], ["SIGKILL 1", "p"]]
    assert [row[2] for row in cells(*events)] == ["1.99 s", "1.50 s"]


def test_faults_that_do_not_fit_the_table_count_for_the_longest() -> None:
    story = Story()
    hurt = []
    for number in range(FAULTS_MAX + 1):
        story.send(number)
        hurt.append((story.now_ms + 0.5, "KILL", 0))
        story.pause(10 * number).ack(number, number).send(100 + number).ack(100 + number, number)
    recoveries = fed(*story.events, *faults(*hurt))
    assert recoveries.longest_ms == 10 * FAULTS_MAX + 2.5


def links(at_ms: float, state: str = CUT) -> LinkChange:
    return LinkChange(at_ms=at_ms, wall_ms=0, process="lab", pairs=(("1", "2"),), state=state)


def test_who_has_something_in_flight_waits_from_the_fault_on() -> None:
    """Method: two in flight, of which one is answered before the fault; half a millisecond."""
    story = Story().send(0).send(1).ack(0, 0).pause(10).send(2).pause(100).ack(2, 2)
    fault_ms = story.events[2].at_ms + 5
    assert fed(*story.events, *faults((fault_ms, "KILL", 0))).longest_ms == 107
    quick = Story().send(0).ack(0, 0)
    assert fed(*quick.events, *faults((1001, "KILL", 0))).longest_ms == 1.0
    at_once = Acknowledged(
        at_ms=1001.5, wall_ms=0, process="p", topic="foo", partition=0, id="p:0", offset=0
    )
    assert fed(quick.events[0], at_once, *faults((1001, "KILL", 0))).longest_ms == 0.5


def test_an_outcome_of_what_was_never_sent_is_no_recovery() -> None:
    events = [each for each in GOOD.events if not isinstance(each, Send)]
    assert fed(*faults((900, "KILL", 0)), *events).longest_ms is None


def test_a_wait_that_a_cut_meets_is_counted_from_each_fault() -> None:
    """Goal: of the cut since it is made, of the kill since that. No other event makes a cut."""
    story = Story().send(0).pause(99).send(1).pause(99).ack(1, 1)
    end_ms = story.events[-1].at_ms
    told = faults((1010, CUT, 1))
    assert fed(*story.events, *told, links(1050)).longest_ms == end_ms - 1050
    assert fed(*story.events, *told, links(1050, WHOLE)).longest_ms == end_ms - 1010
    killed = faults((1005, "KILL", 2))
    events = (*story.events, *killed, *told, links(1050))
    assert fed(*events).longest_ms == end_ms - 1005
    assert [row[::2] for row in cells(*events)] == [
        ["SIGKILL 2", f"{end_ms - 1005:.0f} ms"],
        ["network cut 1", f"{end_ms - 1050:.0f} ms"],
    ]


def test_a_cut_that_nobody_makes_before_the_next_fault_has_begun_as_it_was_told() -> None:
    """Method: a link that is cut later is another one's."""
    story = Story().send(0).pause(99).send(1).pause(99).ack(1, 1)
    events = (*story.events, *faults((1010, CUT, 1), (1020, "KILL", 2)), links(1050))
    recoveries = fed(*events)
    assert recoveries.longest_ms == recoveries.longest_ms == story.events[-1].at_ms - 1010
    assert [row[0] for row in cells(*events)] == ["network cut 1", "SIGKILL 2"]


def test_two_cuts_that_are_made_one_after_the_other_are_two() -> None:
    story = Story().send(0).pause(300).send(1).ack(1, 1)
    told = faults((1010, CUT, 1), (1100, CUT, 2))
    events = (*story.events, *told, links(1020), links(1110))
    assert [row[0] for row in cells(*events)] == ["network cut 1", "network cut 2"]
    assert fed(*events).longest_ms == story.events[-1].at_ms - 1020


def test_an_error_that_a_process_met_is_not_missing() -> None:
    errors = Errors()
    for event in (*Story().send(0, by="q").refuse(0, by="q").events, *GOOD.events):
        errors.feed(event)
    (refused,) = (each for each in Story().send(0).refuse(0).events if isinstance(each, Refused))
    assert errors.missing("q", refused.error) is None
    assert errors.missing("p", refused.error) == (
        f"nothing that 'p' wrote was answered with {refused.error}"
    )
    assert errors.missing("q", "OTHER") is not None


def test_what_slips_through_before_a_cut_is_made_is_no_wait() -> None:
    cut = links(1050)
    story = Story().send(0).ack(0, 0).pause(25).send(1).ack(1, 1)
    recoveries = fed(*story.events, *faults((1010, CUT, 1)), cut)
    assert recoveries.longest_ms is None
    assert cells(*story.events, *faults((1010, CUT, 1)), cut) == [["network cut 1", "p", "-"]]
    assert fed(*story.events, *faults((1010, CUT, 1))).longest_ms == 1.0  # nobody tells of links


def test_what_was_sent_at_the_moment_of_a_fault_was_sent_after_it() -> None:
    story = Story().send(0).ack(0, 0)
    table = recovered(*faults((1001, "KILL", 2)), *story.events)
    assert table is not None
    assert [list(row) for row in table.rows] == [["SIGKILL 2", "p", "1.0 ms"]]


def test_only_what_hurts_is_a_fault_and_no_more_than_fit_the_table() -> None:
    calm = faults((1000, "start", 2), (1000, "CONT", 2), (1000, "exit", 2), (1000, "DISK", 2))
    assert recovered(*calm, *GOOD.events) is None
    many = faults(*((900, "KILL", node) for node in range(FAULTS_MAX + 1)))
    table = recovered(*many, *calm, *GOOD.events)
    assert table is not None
    assert FAULTS_MAX == 12
    assert [row[0] for row in table.rows] == [f"SIGKILL {node}" for node in range(FAULTS_MAX)]


def test_a_cut_is_told_before_it_is_made_and_counts_from_then_on() -> None:
    """Goal: what slips through meanwhile is no recovery; nodes that are cut at once are one."""
    cut = LinkChange(at_ms=1050, wall_ms=0, process="lab", pairs=(("1", "2"),), state=CUT)
    whole = LinkChange(at_ms=1300, wall_ms=0, process="lab", pairs=(("1", "2"),), state=WHOLE)
    story = Story().send(0).ack(0, 0).pause(25).send(1).ack(1, 1).pause(100).send(2).pause(100)
    events = [*story.ack(2, 2).events, *faults((1010, CUT, 1), (1011, CUT, 2)), cut, whole]
    assert cells(*events) == [["network cut 1, 2", "p", "101 ms"]]


def test_no_fault_no_table() -> None:
    assert recovered(*GOOD.events) is None
