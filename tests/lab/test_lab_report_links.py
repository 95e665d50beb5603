"""Goal: the report shows who could not reach whom, and who took itself for a leader meanwhile.

Method: timelines by hand; rows by their values, and what stands in the SVG.
"""

from __future__ import annotations

from holdfast.judge.history import Event, Fault, LeaderChange, LeaderClaim, LinkChange
from holdfast.judge.timeline import CUT, HEAL, WHOLE, Span, Timeline
from holdfast.lab.report.cluster_charts import cluster_state, node_kinds
from holdfast.lab.report.drawing import Frame
from holdfast.lab.report.link_chart import Band, Spell, bands_of, links, links_hurt
from holdfast.lab.report.scene import Scene
from holdfast.lab.report.words import LOSSY, SLOW, SWALLOWED, describe

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
    assert bands_of(timeline) == [Band(("d", "e"), ("a", "b", "c"), True, (Spell(0, 100, CUT),))]
    figure = links(scene(timeline))
    assert figure is not None
    assert "d, e ↔ a, b, c" in figure.drawings[0]
    assert [key.name for key in figure.legend] == ["whole", "cut both ways"]


def test_one_way_is_told_apart_and_what_is_never_healed_lasts() -> None:
    timeline = told(link(0, CUT, (("a", "b"), ("a", "c"))), leader(50, 1, 0))
    assert bands_of(timeline) == [Band(("a",), ("b", "c"), False, (Spell(0, 50, CUT),))]
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
    assert [(band.sources, band.spells) for band in bands] == [
        (("a",), (Spell(0, 10, CUT), Spell(40, 60, CUT))),
        (("b",), (Spell(20, 30, CUT),)),
    ]


def test_slow_and_lossy_links_and_swallowed_answers_are_drawn_and_told() -> None:
    """Goal: a link that was slowed is neither green nor "no node was hurt"."""
    one_way = (("0", "client-a"),)
    timeline = told(
        link(0, SLOW, split("a", "b")),
        link(10, CUT, split("a", "b")),
        link(20, SLOW, split("a", "b")),
        link(30, WHOLE, split("a", "b")),
        link(40, LOSSY, split("c", "d")),
        link(50, SWALLOWED, one_way),
        link(60, WHOLE, one_way),
        leader(90, 1, 0),
    )
    assert [(band.name, band.spells) for band in bands_of(timeline)] == [
        ("a ↔ b", (Spell(0, 10, SLOW), Spell(10, 30, CUT))),
        ("c ↔ d", (Spell(40, 90, LOSSY),)),
        ("0 → client-a", (Spell(50, 60, SWALLOWED),)),
    ]
    figure = links(scene(timeline))
    assert figure is not None
    names = ["whole", "cut both ways", "slowed", "packets lost", "answers swallowed"]
    assert [key.name for key in figure.legend] == names
    for key in figure.legend:
        assert f'class="{key.kind}"' in figure.drawings[0], key
    words = "slowed on a ↔ b; packets lost on c ↔ d; answers swallowed on 0 → client-a"
    assert links_hurt(timeline) == f"cut on a ↔ b; {words}"
    timeline.feed(Fault(at_ms=10, wall_ms=0, process="lab", action=CUT, node=1))
    assert links_hurt(timeline) == words  # the node is named for the cut
    many = told(*(link(0, SLOW, split(*sides)) for sides in ("ab", "bc", "de", "fg", "hi")))
    assert links_hurt(many).endswith("1 more")
    assert links_hurt(told()) == ""


def test_a_node_is_cut_off_and_down_by_itself() -> None:
    """Goal: who comes back before its links do is not up. Method: each order of the two."""

    def kinds(*actions: str) -> list[str]:
        done = [
            Fault(at_ms=at, wall_ms=0, process="lab", action=action, node=1)
            for at, action in enumerate(actions)
        ]
        return [kind.removeprefix("node-") for _, kind in node_kinds(done)]

    assert kinds(CUT, "KILL", "start", HEAL) == ["cut", "down", "cut", "up"]
    assert kinds("KILL", CUT, "start", HEAL) == ["down", "down", "cut", "up"]
    assert kinds(CUT, "STOP", "CONT", HEAL) == ["cut", "stopped", "cut", "up"]
    assert kinds("STOP", CUT, HEAL, "CONT") == ["stopped", "stopped", "stopped", "up"]
    assert kinds("TERM", "exit", "DISK", "start") == ["up", "down", "down", "up"]


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
