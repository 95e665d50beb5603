"""Goal: charts show what was: no peak cut in silence, anomalies where they happened, and why
partitions with a leader stood still.

Method: figures and marks of made-up histories, by their values and their SVG.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from tests.lab import made_up
from tests.lab.made_up import BEGIN_MS, KILLED_MS, SESSION_MS, SETTINGS, MadeUp

from holdfast.judge.checker import Evidence
from holdfast.judge.history import Acknowledged, Delivered, Event, Fault, Send
from holdfast.judge.timeline import Timeline, TopicPartition
from holdfast.judge.verdict import Anomaly, Finding
from holdfast.lab.report import Lag
from holdfast.lab.report.charts import lag_chart, latency, throughput
from holdfast.lab.report.cluster_charts import LANES_MAX, cluster_state, strip
from holdfast.lab.report.drawing import LAYOUTS, Drawing, Frame, Label, Lanes, beside, fitted
from holdfast.lab.report.marks import marks_of, moment_of, not_marked
from holdfast.lab.report.scene import Scene
from holdfast.lab.report.standstill import explained, where, why
from holdfast.lab.report.views import broken_on_purpose, scene_of


def scene(evidence: Evidence, lag: Lag | None = None) -> Scene:
    return scene_of(evidence, lag, {"lost"})


def uprights(drawing: str) -> list[str]:
    """Where upright lines stand: those of a kind are one shape."""
    return re.findall(r"M([\d.]+) [\d.]+V[\d.]+", drawing)


# -- axes --------------------------------------------------------------------------------------


def test_a_backlog_that_comes_in_at_once_is_named_with_its_number_and_place() -> None:
    evidence = made_up.run()
    figure = throughput(evidence, scene(evidence))
    peak = max(rate for each in evidence.points for rate in each.acknowledged.values())
    assert peak > 5 * 30, "the backlog is no peak"
    assert f"Highest: {peak:,.0f}/s in 100 ms, P" in figure.note
    assert "at 7.0 s." in figure.note  # 7 s after the beginning the session ended
    (said,) = figure.said
    assert f"{peak:,.0f}/s (P0, at 7.0 s)" in said
    assert f"{peak:,.0f}/s (P1, at 7.0 s)" in said
    for drawing in figure.drawings:
        assert f">{peak:,.0f}/s P0<" in drawing
        assert f">{peak:,.0f}/s P1<" in drawing
        assert 'class="peak"' in drawing


def test_where_nothing_stands_out_nothing_is_said_to() -> None:
    story = MadeUp()
    for number in range(100):
        at_ms = BEGIN_MS + 50 * number
        name = f"p:{number}"
        story.of(Send, at_ms, 0, process="p", id=name, digest="d", size=1)
        story.of(Acknowledged, at_ms + 1, 0, process="p", id=name, offset=number)
    figure = throughput(story.evidence(), scene(story.evidence()))
    assert not figure.said
    assert "peak" not in "".join(figure.drawings)


def test_the_slowest_event_of_all_is_inside_the_latency_axis() -> None:
    story = MadeUp()
    for number, took_ms in enumerate((2.0, 3.0, 2_500_000.0)):
        name = f"p:{number}"
        story.of(Send, BEGIN_MS + number, 0, process="p", id=name, digest="d", size=1)
        story.of(Acknowledged, BEGIN_MS + number + took_ms, 0, process="p", id=name, offset=number)
    evidence = story.evidence()
    figure = latency(evidence, scene(evidence))
    assert figure is not None
    assert "Highest: 41 min 40 s" in figure.note
    assert ">10,000 s<" in figure.drawings[0]


def test_the_highest_lag_is_inside_the_axis() -> None:
    steps = [(BEGIN_MS + number, 7 if number != 1234 else 9000) for number in range(4000)]
    lag = Lag(title="Behind", points=steps, marks=[(BEGIN_MS + 500, "driver killed")])
    evidence = made_up.run()
    figure = lag_chart(lag, scene(evidence, lag))
    assert figure is not None
    assert "Highest: 9,000 events, at 1.2 s; at the end 7." in figure.note
    for drawing in figure.drawings:
        assert ">10,000<" in drawing
        assert ">driver killed<" in drawing


def test_a_table_without_a_point_has_no_chart() -> None:
    evidence = made_up.run()
    assert lag_chart(Lag(title="Behind", points=[]), scene(evidence)) is None


# -- anomalies ---------------------------------------------------------------------------------


def test_losses_are_marked_where_they_were_acknowledged_in_their_partition() -> None:
    evidence = made_up.run(lost=3)
    (mark,) = marks_of(evidence.judgement, 14_000, {"lost"})
    assert (mark.anomaly, mark.partition, mark.count) == (Anomaly.LOST, ("foo", 1), 3)
    assert KILLED_MS - 130 < mark.begin_ms <= mark.end_ms < KILLED_MS
    assert mark.forbidden

    drawn = scene(evidence)
    for drawing in throughput(evidence, drawn).drawings:
        assert drawing.count('class="cross anomaly"><title>3 lost, P1</title>') == 1

    words = strip(drawn)
    assert words is not None
    state = cluster_state(drawn)
    assert state is not None
    for layout, above, below in zip(LAYOUTS, words.drawings, state.drawings, strict=True):
        x = Drawing(drawn.frame, layout, 10, "").x(mark.at_ms)
        assert ">✗ 3 lost, P1<" in above
        assert f"{x:.1f}" in uprights(above)
        crosses = re.findall(r'd="M([\d.]+) ([\d.]+)l8 8m0 -8l-8 8" class="cross anomaly"', below)
        (cross,) = crosses
        assert float(cross[0]) == pytest.approx(x - 4, abs=0.11)
        first, last = (below.index(f">{name}<") for name in ("P1", "P2"))
        assert first < below.index("cross anomaly") < last


@pytest.mark.parametrize(
    ("kinds", "at_ms"),
    [
        ((Send, Acknowledged, Delivered), 2.0),  # its outcome
        ((Delivered, Delivered), 1.0),  # read, and then gone: when it was read
        ((Send, Send, Delivered), 1.0),
        ((), None),
    ],
)
def test_an_anomaly_happened_at_its_outcome_or_at_the_first_that_is_known(
    kinds: tuple[type[Event], ...], at_ms: float | None
) -> None:
    values: dict[type[Event], dict[str, Any]] = {
        Send: {"id": "p:1", "digest": "d", "size": 1},
        Acknowledged: {"id": "p:1", "offset": 1},
        Delivered: {"id": "p:1", "digest": "d", "offset": 1},
    }
    story = MadeUp()
    for moment, kind in enumerate(kinds, start=1):
        story.of(kind, float(moment), 0, process="p", **values[kind])
    finding = Finding(anomaly=Anomaly.LOST, topic="foo", partition=0, text="",
                      events=tuple(story.events))  # fmt: skip
    assert moment_of(finding) == at_ms


def test_of_many_partitions_those_with_anomalies_are_drawn() -> None:
    evidence = made_up.run(lost=2)
    one_leader = next(iter(evidence.timeline.leaders.values()))
    one_isr = next(iter(evidence.timeline.isrs.values()))
    many = [("foo", number) for number in range(100, 130)]
    before = [("foo", number) for number in range(-30, 0)]  # they sort before the one that lost
    timeline = replace(
        evidence.timeline,
        leaders={**evidence.timeline.leaders, **dict.fromkeys(before + many, one_leader)},
        isrs={**evidence.timeline.isrs, **dict.fromkeys(before + many, one_isr)},
    )
    figure = cluster_state(scene(replace(evidence, timeline=timeline)))
    assert figure is not None
    assert "51 more partitions are not drawn" in figure.note
    assert ">P1</text>" in figure.drawings[0]
    assert "cross anomaly" in figure.drawings[0]


def test_what_lies_apart_is_marked_apart() -> None:
    evidence = made_up.run(lost=40)
    marks = marks_of(evidence.judgement, 100, ())
    assert len(marks) > 1
    assert sum(mark.count for mark in marks) == 20  # of which the judge keeps evidence
    assert not any(mark.forbidden for mark in marks)
    assert {mark.words("P1") for mark in marks} == {"1 of 40 lost, P1"}
    assert not_marked(evidence.judgement) == {Anomaly.LOST: 20}


# -- why partitions stand still ----------------------------------------------------------------


def test_a_partition_whose_isr_names_the_dead_stands_still_and_the_report_says_why() -> None:
    (found,) = made_up.story().still()
    assert found.partition == ("foo", 0)  # P1 has no leader, P2 no replica on the dead node
    assert (found.leader, found.absent) == (0, ((1, "KILL"),))
    assert found.begin_ms == KILLED_MS + 20  # the first event that was sent into the silence
    assert found.end_ms == SESSION_MS + 1  # the ISR has shrunk
    assert where(found, "P0", BEGIN_MS) == (
        "P0: led by node 0, nothing acknowledged from 4.0 to 7.0 s (2.98 s), while the ISR named "
        "node 1, which had been killed."
    )
    assert explained([found], SETTINGS) == [found]
    assert "broker.session.timeout.ms, here 3.00 s" in why(SETTINGS)
    assert "high watermark waits" in why(SETTINGS)


@pytest.mark.parametrize("hours", [-2, 2])
def test_a_long_run_says_as_much_as_a_short_one(hours: int) -> None:
    """Method: hours of quiet before or after it, so that the points of the charts are wide."""
    story = made_up.story()
    far_ms = BEGIN_MS + hours * 3_600_000
    story.of(Send, far_ms, 2, process="far", id="far:0", digest="d", size=1)
    assert story.evidence().point_ms > SESSION_MS - KILLED_MS
    assert story.still() == made_up.story().still()


@pytest.mark.parametrize("settings", [{**SETTINGS, "acks": "1"}, {}], ids=["acks=1", "unknown"])
def test_where_nobody_waits_for_the_dead_nothing_is_explained(settings: dict[str, str]) -> None:
    assert not explained(made_up.story().still(), settings)


def test_where_the_isr_shrinks_at_once_nothing_stands_still() -> None:
    assert made_up.story(isr_at_kill=False).still() == ()


def acknowledge(story: MadeUp, *moments: float) -> None:
    """Let another client's events to P0 be acknowledged then."""
    for number, at_ms in enumerate(moments):
        story.of(Acknowledged, at_ms, 0, process="a", id=f"a:{number}", offset=10_000 + number)


def test_a_partition_that_goes_on_does_not_stand_still() -> None:
    story = made_up.story()
    acknowledge(story, *range(int(KILLED_MS), int(SESSION_MS), 250))
    assert story.still() == ()


def test_a_standstill_that_one_client_breaks_with_acks_1_is_two() -> None:
    story = made_up.story()
    middle_ms = (KILLED_MS + SESSION_MS) / 2
    acknowledge(story, middle_ms)
    first, second = story.still()
    assert (first.partition, second.partition) == (("foo", 0), ("foo", 0))
    assert first.end_ms == middle_ms
    assert middle_ms < second.begin_ms <= middle_ms + 40
    assert second.end_ms == SESSION_MS + 1


def test_a_partition_to_which_nobody_writes_does_not_stand_still() -> None:
    story = made_up.story()
    story.events = [
        event for event in story.events if not (isinstance(event, Send) and event.partition == 0)
    ]
    assert story.still() == ()


def test_whoever_is_answered_at_once_and_sends_seldom_does_not_wait() -> None:
    story = made_up.story()
    story.events = [
        event
        for event in story.events
        if not (isinstance(event, Send | Acknowledged) and event.partition == 0)
    ]
    for number in range(6):
        at_ms = KILLED_MS + 100 + 500 * number
        story.of(Send, at_ms, 0, process="s", id=f"s:{number}", digest="d", size=1)
        story.of(Acknowledged, at_ms + 3, 0, process="s", id=f"s:{number}", offset=number)
    assert story.still() == ()


@pytest.mark.parametrize("action", ["start", "CONT"])
def test_a_standstill_ends_when_the_dead_is_back(action: str) -> None:
    story = made_up.story()
    back_ms = KILLED_MS + 1000
    story.add(Fault, back_ms, "lab", action=action, node=1)
    (found,) = story.still()
    assert found.end_ms == back_ms


@pytest.mark.parametrize("action", ["STOP", "KILL"])
def test_who_is_stopped_is_not_back_when_its_links_are_whole(action: str) -> None:
    """Method: a node that was cut off meanwhile is healed, and stays as it was."""
    story = made_up.story()
    story.events = [
        msgspec.structs.replace(event, action=action)
        if isinstance(event, Fault) and event.node == 1
        else event
        for event in story.events
    ]
    (before,) = story.still()
    story.add(Fault, KILLED_MS + 500, "lab", action="CUT", node=1)
    story.add(Fault, KILLED_MS + 1000, "lab", action="HEAL", node=1)
    (found,) = story.still()
    assert found == before
    assert found.absent == ((1, action),)


def test_a_standstill_that_nothing_ends_lasts_as_long_as_the_run() -> None:
    story = made_up.story()
    story.events = [event for event in story.events if event.at_ms <= SESSION_MS - 500]
    (found,) = story.still()
    assert found.end_ms == max(event.at_ms for event in story.events)


def test_a_standstill_ends_with_its_leader() -> None:
    story = made_up.story()
    story.add(Fault, SESSION_MS - 1000, "lab", action="KILL", node=0)
    (found,) = story.still()
    assert (found.leader, found.end_ms) == (0, SESSION_MS - 1000)


# -- words and lanes ---------------------------------------------------------------------------


def faults(*actions: tuple[str, int]) -> list[Fault]:
    return [
        Fault(at_ms=index, wall_ms=1, process="lab", action=action, node=node)
        for index, (action, node) in enumerate(actions)
    ]


@pytest.mark.parametrize(
    ("actions", "words"),
    [
        ([], "no node was hurt"),
        ([("start", 1)], "no node was hurt"),
        ([("TERM", 2), ("exit", 2), ("start", 2), ("KILL", 2)],
         "SIGTERM of node 2, SIGKILL of node 2"),
        ([("KILL", 1), ("DISK", 1), ("start", 1)], "SIGKILL of node 1, data loss of node 1"),
        ([("KILL", 1), ("KILL", 1)], "SIGKILL of node 1 (2 times)"),
        ([("STOP", 0), ("STOP", 2), ("KILL", 1)], "SIGSTOP of nodes 0 and 2, SIGKILL of node 1"),
        ([("KILL", node) for node in (0, 1, 2, 0, 1, 2)],
         "SIGKILL of nodes 0, 1 and 2 (2 times each)"),
    ],
)  # fmt: skip
def test_what_was_broken_on_purpose_is_one_line(actions: list[tuple[str, int]], words: str) -> None:
    assert broken_on_purpose(faults(*actions)) == words


def test_what_was_broken_beside_nodes_is_told_with_it() -> None:
    spark = "SIGKILL of the Spark driver"
    assert broken_on_purpose([], spark) == spark
    told = broken_on_purpose(faults(("KILL", 1)), spark)
    assert told == "SIGKILL of node 1, SIGKILL of the Spark driver"


def test_labels_never_overlap_and_find_room_or_are_left_out() -> None:
    lanes = Lanes(2)
    places = [lanes.place(begin, begin + 50) for begin in (0, 10, 20, 55, 70)]
    assert places == [0, 1, None, 0, 1]
    assert lanes.count == 2


def test_what_is_done_to_several_nodes_at_once_is_one_label() -> None:
    story = MadeUp()
    done = [(0, "KILL", 100), (3, "KILL", 101), (500, "KILL", 2), (501, "start", 2),
            (9_990, "start", 100), (9_991, "start", 100)]  # fmt: skip
    for at_ms, action, node in done:
        story.add(Fault, BEGIN_MS + at_ms, "lab", action=action, node=node)
    figure = strip(scene(story.evidence()))
    assert figure is not None
    for drawing in figure.drawings:
        words = re.findall(r">([^<>]+)</text>", drawing)
        assert sorted(words) == ["SIGKILL node 2", "SIGKILL nodes 100 and 101",
                                 "start node 100", "start node 2"]  # fmt: skip
        assert len(uprights(drawing)) == 4


def test_a_label_at_the_end_stands_left_of_its_line() -> None:
    layout = LAYOUTS[-1]
    assert beside(100, "words", layout) == Label(100, 148, 104, "start")
    assert beside(330, "words", layout) == Label(282, 330, 326, "end")
    assert beside(170, fitted("words" * 20, layout), layout).begin == 0
    assert fitted("words" * 20, layout).endswith("…")
    assert fitted("words", layout) == "words"


def test_many_faults_keep_their_lines_when_there_is_no_room_for_words() -> None:
    story = MadeUp()
    for number in range(60):
        action = ("KILL", "start")[number % 2]
        story.add(Fault, BEGIN_MS + number, "lab", action=action, node=number)
    story.add(Fault, BEGIN_MS + 100_000, "lab", action="start", node=1)
    figure = strip(scene(story.evidence()))
    assert figure is not None
    narrow = figure.drawings[-1]
    assert len(uprights(narrow)) == 61
    assert narrow.count("<text") <= LANES_MAX + 1


def test_a_point_alone_is_drawn() -> None:
    drawing = Drawing(Frame(0, 1), LAYOUTS[0], 100, "points")
    drawing.path([(1, 2), None, (3, 4), (5, 6), None, None, (7, 8)], "line")
    dot = "m-1.5 0h3"
    assert f'd="M1.0 2.0 {dot} M3.0 4.0 L5.0 6.0 M7.0 8.0 {dot}"' in drawing.render()


def test_names_from_outside_are_escaped_in_drawings() -> None:
    drawing = Drawing(Frame(0, 1), LAYOUTS[0], 100, '"<label>')
    drawing.text(0, 0, "<b>", "name")
    drawing.box(0, 0, 1, 1, "leads", "<title>")
    drawing.cross(0, 0, "anomaly", "<cross>")
    text = drawing.render()
    for words in ('"&lt;label', "<b>", "<title><title>", "<cross>", '""<'):
        assert words not in text


class Counted(Timeline):
    """Counts how often its partitions are asked for: each time all of them are sorted."""

    asked = 0

    @property
    def partitions(self) -> Sequence[TopicPartition]:
        self.asked += 1
        return super().partitions


def test_the_name_of_a_partition_does_not_cost_a_look_at_all_of_them() -> None:
    """Goal: a report of a thousand partitions takes seconds. Method: count the looks.

    Seen to take a minute: every mark and every standstill of every drawing has a name.
    """
    timeline = Counted()
    for number in range(20):
        timeline.leaders["foo", number] = []
    scene = Scene(frame=Frame(0.0, 1.0), timeline=timeline)
    assert [scene.place(partition) for partition in list(timeline.leaders)[:2]] == ["P0", "P1"]
    assert timeline.asked == 1
