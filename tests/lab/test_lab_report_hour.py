"""Goal: the report of an hour can be opened: it has no more shapes than can be seen, hiding none.

Method: rows of a drawing by hand; and an hour of faults made up, of which every shape is counted.
"""

from __future__ import annotations

import re
from bisect import bisect

import pytest
from tests.lab.made_up import MadeUp

from holdfast.judge.checker import Evidence
from holdfast.judge.history import Acknowledged, Fault, IsrChange, LeaderChange, LinkChange, Send
from holdfast.judge.timeline import CUT, HEAL, WHOLE
from holdfast.lab.report.cluster_charts import strip
from holdfast.lab.report.drawing import LAYOUTS, Drawing, Frame, State
from holdfast.lab.report.scene import Scene
from holdfast.lab.report.views import figures_of, scene_of

SHAPES_MAX = 8_000
HOUR_MS = 3_600_000.0
SHAPE = re.compile(r"<(?:rect|path|line|circle|text)\b")
BOX = re.compile(
    r'<rect x="([\d.]+)" y="[\d.]+" width="([\d.]+)" height="[\d.]+" class="([\w-]+)">'
    r"(?:<title>([^<]*)</title>)?"
)
BOX_SPAN = re.compile(r'x="([\d.]+)" y="[\d.]+" width="([\d.]+)"')
AREA = re.compile(r"M([\d.]+) [\d.]+H([\d.]+)V[\d.]+H[\d.]+Z")

Shown = list[tuple[float, float, str, str]]


def drawn(states: list[State], least: float = 0.5) -> tuple[Shown, list[tuple[str, int]]]:
    """Return what a row of states is drawn as, where a point is a second: boxes, and areas."""
    wide = LAYOUTS[0]
    seconds = wide.width - wide.left - wide.right
    drawing = Drawing(Frame(0.0, seconds * 1000.0), wide, 100, "")
    drawing.row(0, 10, states, least)
    picture = drawing.render()
    boxes = [
        (round(float(x) - wide.left, 1), float(width), kind, title)
        for x, width, kind, title in BOX.findall(picture)
    ]
    paths = re.findall(r'<path d="([^"]*)" class="([\w-]+)"/>', picture)
    return boxes, [(kind, len(AREA.findall(places))) for places, kind in paths]


def states(*spans: tuple[float, float, str, str]) -> list[State]:
    return [State(begin * 1000, end * 1000, kind, title) for begin, end, kind, title in spans]


def test_what_goes_on_unchanged_is_one_state() -> None:
    """Goal: that another replica comes or goes splits nothing."""
    same = states((0, 10, "insync", ""), (10, 20, "insync", ""), (25, 40, "insync", ""))
    assert drawn(same) == ([], [("insync", 2)])
    told = states((0, 10, "leads", "epoch 1"), (10, 20, "leads", "epoch 2"))
    assert drawn(told)[0] == [(0, 10, "leads", "epoch 1"), (10, 10, "leads", "epoch 2")]


def test_states_that_are_too_narrow_share_a_shape_that_says_so_and_looks_like_the_gravest() -> None:
    """Method: three within half a point between two wide ones; a fourth belongs to no other."""
    row = states(
        (0, 10, "node-up", ""),
        (10, 10.2, "node-cut", ""),
        (10.2, 10.4, "node-down", ""),
        (10.4, 10.6, "node-cut", ""),
        (10.6, 30, "node-up", ""),
        (30, 30.1, "node-stopped", ""),
        (30.1, 40, "node-up", ""),
    )
    boxes, areas = drawn(row)
    assert boxes == [(10, 0.6, "node-down", "3 states in 600 ms: 2 cut off, 1 down")]
    assert areas == [("node-up", 3), ("node-stopped", 1)]


def test_a_shape_of_few_states_says_what_each_of_them_says() -> None:
    row = states((5, 5.1, "noleader", "P0: no leader"), (5.3, 5.4, "noleader", "P0: again none"))
    boxes, _ = drawn(row, 1.5)
    assert boxes == [(5, 1.5, "noleader", "2 states in 400 ms: P0: no leader; P0: again none")]


@pytest.mark.parametrize("said", ["", "told"], ids=["areas", "boxes"])
@pytest.mark.parametrize("trouble", ["node-down", "link-cut"])
def test_a_short_trouble_lies_on_top_of_what_follows_it(trouble: str, said: str) -> None:
    """Goal: what was widened to be seen is not painted over.

    Method: a tenth of a second amid what is well, and again after a trouble of the same kind: what
    is painted last at its place. Seen to fail: it was what is well.
    """
    row = states(
        (0, 10, trouble, said),
        (10, 30, "link-slow", said),
        (30, 30.1, trouble, said),
        (30.1, 60, "link-slow", said),
    )
    wide = LAYOUTS[0]
    drawing = Drawing(Frame(0.0, (wide.width - wide.left - wide.right) * 1000.0), wide, 100, "")
    drawing.row(0, 10, row)
    on_top = ""
    for shape, kind in re.findall(r'<(?:path|rect) ([^>]*)class="([\w-]+)"', drawing.render()):
        spans = [(float(a), float(b)) for a, b in AREA.findall(shape)]
        spans += [(float(x), float(x) + float(w)) for x, w in BOX_SPAN.findall(shape)]
        if any(begin <= wide.left + 30.3 < end for begin, end in spans):
            on_top = kind
    assert on_top == trouble


@pytest.mark.parametrize("gap", [0.6, 5.0])
def test_narrow_states_with_room_between_them_stay_apart(gap: float) -> None:
    row = states((5, 5.1, "claims", "a"), (5.1 + gap, 5.2 + gap, "claims", "b"))
    boxes, _ = drawn(row)
    assert [(width, title) for _, width, _, title in boxes] == [(0.5, "a"), (0.5, "b")]


def test_many_narrow_states_are_no_wider_than_a_point_together() -> None:
    """Goal: a minute of trouble does not become one block in which nothing is told apart."""
    row = [
        State(100 * n, 100 * n + 100, ("insync", "outsync")[n % 2]) for n in range(600)
    ]  # a tenth of a second each: a minute of them
    boxes, areas = drawn(row)
    assert areas == []
    assert max(width for _, width, _, _ in boxes) <= 1.0
    assert sum(int(title.split()[0]) for *_, title in boxes) == 600
    assert {kind for _, _, kind, _ in boxes} == {"outsync"}


def an_hour() -> Evidence:
    """An hour of faults, twice as many as a storm has: one every three seconds, and its end.

    Every tenth one is a kill, and moves leaders; all others are cuts. Followers leave and return.
    """
    story, isr = MadeUp(), (0, 1, 2)
    for partition in range(3):
        _led(story, 0.0, partition, 0)
        _in_sync(story, 0.0, partition, isr)
    for number, at_ms in enumerate(range(3_000, int(HOUR_MS), 3_000)):
        node, is_killed = number % 3, number % 10 == 0
        hurt, mended = ("KILL", "start") if is_killed else (CUT, HEAL)
        story.add(Fault, at_ms, "lab", action=hurt, node=node)
        story.add(Fault, at_ms + 2_000, "lab", action=mended, node=node)
        pairs = ((f"node-{node}", f"node-{(node + 1) % 3}"),)
        story.add(LinkChange, at_ms, "lab", pairs=pairs, state=WHOLE if number % 2 else CUT)
        for partition in range(3):
            left = tuple(each for each in isr if each != node)
            _in_sync(story, at_ms + 200, partition, left)
            _in_sync(story, at_ms + 2_500, partition, isr)
            if is_killed:
                _led(story, at_ms + 200, partition, number // 10 + 1)
        there = {"process": "p", "id": f"p:{number}"}
        story.of(Send, at_ms, 0, digest="d", size=1, **there)
        story.of(Acknowledged, at_ms + 5, 0, offset=number, **there)
    return story.evidence()


def _led(story: MadeUp, at_ms: float, partition: int, epoch: int) -> None:
    story.of(LeaderChange, at_ms, partition, process="observer", leader=epoch % 3, epoch=epoch)


def _in_sync(story: MadeUp, at_ms: float, partition: int, isr: tuple[int, ...]) -> None:
    told = {"isr": isr, "replicas": (0, 1, 2)}
    story.of(IsrChange, at_ms, partition, process="observer", **told)


@pytest.fixture(scope="module")
def hour() -> tuple[Evidence, Scene]:
    evidence = an_hour()
    return evidence, scene_of(evidence, None, {"lost"})


@pytest.mark.slow
def test_an_hour_of_faults_has_no_more_shapes_than_a_page_can_bear(
    hour: tuple[Evidence, Scene],
) -> None:
    """Seen to fail: over a hundred thousand."""
    evidence, scene = hour
    figures = figures_of(evidence, scene, None)
    assert [figure.title for figure in figures][-3:] == [
        "Leaders and in-sync replicas",
        "Links",
        "Nodes",
    ]
    count = sum(len(SHAPE.findall(drawing)) for each in figures for drawing in each.drawings)
    assert count < SHAPES_MAX


@pytest.mark.slow
def test_no_fault_of_an_hour_is_hidden(hour: tuple[Evidence, Scene]) -> None:
    _, scene = hour
    figure = strip(scene)
    assert figure is not None
    faults = scene.timeline.faults
    assert len(faults) == 2 * 1_199
    for drawing, layout in zip(figure.drawings, LAYOUTS, strict=True):
        x = Drawing(scene.frame, layout, 10, "").x
        places = sorted(float(each) for each in re.findall(r"M([\d.]+) [\d.]+V", drawing))
        together = 10.0  # points: what is done within a hundredth of the time is done at once
        for at in (x(fault.at_ms) for fault in faults):
            assert places[bisect(places, at + 0.1) - 1] >= at - together
    state = figures_of(hour[0], scene, None)[-3].drawings[0]
    lines = re.findall(r"M[\d.]+ ([\d.]+)V([\d.]+)", state)
    assert len(lines) == len(faults)
    assert {float(end) - float(begin) for begin, end in lines} == {8.0}, "they hide the chart"
