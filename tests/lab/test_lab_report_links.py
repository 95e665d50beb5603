"""Goal: the report shows who could not reach whom, and who took itself for a leader meanwhile.

Method: timelines by hand; rows by their values, and what stands in the SVG.
"""

from __future__ import annotations

from holdfast.judge.history import Event, LeaderChange, LeaderClaim, LinkChange
from holdfast.judge.timeline import CUT, WHOLE, Span, Timeline
from holdfast.lab.report.cluster_charts import cluster_state
from holdfast.lab.report.drawing import Frame
from holdfast.lab.report.link_chart import Band, bands_of, links
from holdfast.lab.report.scene import Scene
from holdfast.lab.report.words import describe

Pairs = tuple[tuple[str, str], ...]


def link(at_ms: float, state: str, pairs: Pairs) -> LinkChange:
    return LinkChange(at_ms=at_ms, wall_ms=0, process="lab", pairs=pairs, state=state)


def split(*sides: str) -> Pairs:
    """Each of the first side's letters from each of the second's, both ways."""
    first, second = sides
    return tuple(pair for a in first for b in second for pair in ((a, b), (b, a)))


def claim(at_ms: float, leader: int, epoch: int) -> LeaderClaim:
    return LeaderClaim(
        at_ms=at_ms,
        wall_ms=0,
        process="observer",
        topic="foo",
        partition=0,
        node=1,
        leader=leader,
        epoch=epoch,
    )


def leader(at_ms: float, node: int, epoch: int) -> LeaderChange:
    return LeaderChange(
        at_ms=at_ms,
        wall_ms=0,
        process="observer",
        topic="foo",
        partition=0,
        leader=node,
        epoch=epoch,
    )


def told(*events: Event) -> Timeline:
    timeline = Timeline()
    for event in events:
        timeline.reach(event)
        timeline.feed(event)
    return timeline


def scene(timeline: Timeline) -> Scene:
    return Scene(frame=Frame(timeline.begin_ms, timeline.end_ms), timeline=timeline)


def test_a_split_is_one_row_named_by_its_smaller_side() -> None:
    timeline = told(
        link(0, CUT, split("abc", "de")), link(100, WHOLE, split("abc", "de")), leader(200, 1, 0)
    )
    assert bands_of(timeline) == [Band(("d", "e"), ("a", "b", "c"), True, ((0, 100),))]
    figure = links(scene(timeline))
    assert figure is not None
    assert "d, e ↔ a, b, c" in figure.drawings[0]
    assert [key.name for key in figure.legend] == ["whole", "cut both ways"]


def test_one_way_is_told_apart_and_what_is_never_healed_lasts() -> None:
    timeline = told(link(0, CUT, (("a", "b"), ("a", "c"))), leader(50, 1, 0))
    assert bands_of(timeline) == [Band(("a",), ("b", "c"), False, ((0, 50),))]
    figure = links(scene(timeline))
    assert figure is not None
    assert "a → b, c" in figure.drawings[0]


def test_what_is_cut_at_other_times_is_another_row() -> None:
    events = [
        link(at, state, split(*sides))
        for at, state, sides in [
            (0, CUT, "ab"),
            (10, WHOLE, "ab"),
            (20, CUT, "bc"),
            (30, WHOLE, "bc"),
            (40, CUT, "ab"),
        ]
    ]
    bands = bands_of(told(*events, leader(60, 1, 0)))
    assert [(band.sources, band.cut) for band in bands] == [
        (("a",), ((0, 10), (40, 60))),
        (("b",), ((20, 30),)),
    ]


def test_without_any_cut_there_is_no_chart() -> None:
    assert links(scene(told(leader(0, 1, 0), leader(10, 0, 1)))) is None


def test_two_who_lead_are_both_drawn() -> None:
    timeline = told(leader(0, 1, 0), claim(10, 1, 0), leader(30, 0, 1), claim(70, 0, 1))
    assert timeline.claimed(("foo", 0), 1) == [Span(10, 70, 1, 0)]
    assert timeline.claimed(("foo", 0), 0) == []
    figure = cluster_state(scene(timeline))
    assert figure is not None
    assert "takes itself for the leader" in [key.name for key in figure.legend]
    assert describe(claim(10, 1, 0)) == "foo-0: leader 1, epoch 0, says 1"
