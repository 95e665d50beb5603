"""What a report draws over time from the cluster's side: faults, leaders, replicas, nodes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from holdfast.judge.history import Fault
from holdfast.judge.timeline import CUT, DOWN_ACTIONS, HEAL, UP_ACTIONS, TopicPartition
from holdfast.lab.report.drawing import BOTTOM, LETTER, TOP, Drawing, Layout, State, in_lanes
from holdfast.lab.report.scales import duration
from holdfast.lab.report.scene import Figure, Key, Scene, direction, drawn
from holdfast.lab.report.words import ACTION_WORDS, nodes_text

PARTITIONS_DRAWN_MAX = 12
ROW, BLOCK_GAP, LANE = 16, 10, 17
LANES_MAX = 12
TOGETHER_SHARE = 0.01  # of the whole time: what is done within it is done at once
SHORT_NAME = 4  # letters that fit beside the numbers of replicas


def strip(scene: Scene) -> Figure | None:
    """Faults and anomalies in words, above all other charts; labels never overlap."""
    labels = _fault_labels(scene) + [
        (mark.at_ms, f"✗ {mark.words(scene.place(mark.partition))}",
         "anomaly" if mark.forbidden else "anomaly allowed")
        for mark in scene.marks
    ]  # fmt: skip
    labels.sort(key=lambda label: label[0])
    if not labels:
        return None

    def draw(layout: Layout) -> Drawing:
        names = [(at, words) for at, words, _ in labels]
        lanes, placed = in_lanes(names, scene.frame, layout, LANES_MAX)
        said = "; ".join(f"{words} at {scene.frame.said(at)}" for at, words in names[:20])
        drawing = Drawing(
            scene.frame, layout, LANE * lanes + 6, f"What was done and went wrong: {said}"
        )
        alike: dict[tuple[str, int], list[float]] = {}
        for (at, _place, lane, _words), (_, _, kind) in zip(placed, labels, strict=True):
            alike.setdefault((kind.replace("fault fault-", "mark-"), lane), []).append(at)
        for (line_kind, lane), places in alike.items():
            drawing.lines(places, LANE * lane + 4, drawing.height, f"mark {line_kind}")
        # Over the lines of the others.
        for (_at, place, lane, words), (_, _, kind) in zip(placed, labels, strict=True):
            if words:
                drawing.text(place.x, LANE * lane + 15, words, kind, place.anchor)
        return drawing

    return Figure(title="", note="", drawings=drawn(draw))


def _fault_labels(scene: Scene) -> list[tuple[float, str, str]]:
    """Faults in words; what was done to several nodes at once is one label."""
    near_ms = TOGETHER_SHARE * (scene.frame.end_ms - scene.frame.begin_ms)
    groups: list[list[Fault]] = []
    for fault in scene.timeline.faults:
        first = groups[-1][0] if groups else None  # all of a group had the same done to them
        if first and first.action == fault.action and fault.at_ms - first.at_ms <= near_ms:
            groups[-1].append(fault)
        else:
            groups.append([fault])
    labels = []
    for group in groups:
        action = ACTION_WORDS.get(group[0].action, group[0].action)
        kind = f"fault fault-{direction(group[0])}"
        labels.append((group[0].at_ms, f"{action} {nodes_text(f.node for f in group)}", kind))
    return labels


def cluster_state(scene: Scene) -> Figure | None:
    """Each partition's replicas: in sync or not, who leads, where nobody does, what went wrong."""
    timeline = scene.timeline
    partitions = _drawn_partitions(scene)
    if not partitions:
        return None
    long_names = any(len(scene.place(each)) > SHORT_NAME for each in partitions)

    def draw(layout: Layout) -> Drawing:
        rows = sum(max(1, len(timeline.replicas(partition))) for partition in partitions)
        rows += len(partitions) * long_names
        height = TOP + rows * ROW + len(partitions) * BLOCK_GAP + BOTTOM
        label = "Leaders and in-sync replicas over time, one row a replica."
        drawing = Drawing(scene.frame, layout, height, label)
        y = float(TOP)
        for partition in partitions:
            name = scene.place(partition)
            if long_names:
                drawing.text(2, y + ROW - 4, name, "name")
                y += ROW
            y = _draw_partition(drawing, scene, partition, "" if long_names else name, y)
            y += BLOCK_GAP
        scene.faults(drawing, TOP - 8, y)
        drawing.time_axis(y)
        return drawing

    left_out = len(timeline.partitions) - len(partitions)
    return Figure(
        title="Leaders and in-sync replicas",
        note="one row a replica, in the order of the replica list"
        + (f"; {left_out} more partitions are not drawn" if left_out else ""),
        legend=_state_legend(scene),
        drawings=drawn(draw),
    )


def _drawn_partitions(scene: Scene) -> list[TopicPartition]:
    """As many as can be drawn: those with anomalies first, then in their order."""
    wrong = {mark.partition for mark in scene.marks}
    ordered = sorted(scene.timeline.partitions, key=lambda each: each not in wrong)
    return sorted(ordered[:PARTITIONS_DRAWN_MAX])


def _state_legend(scene: Scene) -> list[Key]:
    legend = [
        Key("leader", "leads"),
        Key("in sync", "insync"),
        Key("out of sync", "outsync"),
        Key("no leader", "noleader"),
    ]
    if scene.timeline.claims:
        legend.append(Key("takes itself for the leader", "claims"))
    if scene.standstills:
        legend.append(Key("has a leader, acknowledges nothing", "standstill"))
    if any(mark.forbidden for mark in scene.marks):
        legend.append(Key("anomaly", "cross anomaly"))
    if any(not mark.forbidden for mark in scene.marks):
        legend.append(Key("anomaly, not forbidden here", "cross anomaly allowed"))
    return legend


def _draw_partition(
    drawing: Drawing, scene: Scene, partition: TopicPartition, name: str, top: float
) -> float:
    """Draw one partition's block; return where it ends."""
    timeline = scene.timeline
    replicas = timeline.replicas(partition) or (-1,)
    bottom = top + ROW * len(replicas)
    if name:
        drawing.text(2, (top + bottom) / 2 + 4, name, "name")
    for index, replica in enumerate(replicas):
        y1, y2 = top + index * ROW + 1, top + (index + 1) * ROW - 1
        drawing.text(drawing.left - 7, y2 - 2, "-" if replica < 0 else str(replica), "tick", "end")
        _draw_replica(drawing, scene, partition, replica, (y1, y2))
    place = scene.place(partition)
    leaderless = [
        State(begin, end, "noleader", f"{place}: no leader for {duration(end - begin)}")
        for begin, end in timeline.leaderless(partition)
    ]
    drawing.row(top, bottom, leaderless, least=1.5)
    still = [
        State(
            each.begin_ms,
            each.end_ms,
            "standstill",
            f"{place}: nothing acknowledged for {duration(each.end_ms - each.begin_ms)}",
        )
        for each in scene.standstills
        if each.partition == partition
    ]
    drawing.row(top, bottom, still)
    for mark in scene.marks:
        if mark.partition == partition:
            kind = "anomaly" if mark.forbidden else "anomaly allowed"
            x = drawing.x(mark.at_ms)
            drawing.line(x, top, x, bottom, f"mark {kind}")
            drawing.cross(x, (top + bottom) / 2, kind, mark.words(place))
    return bottom


def _draw_replica(
    drawing: Drawing,
    scene: Scene,
    partition: TopicPartition,
    replica: int,
    rows: tuple[float, float],
) -> None:
    """Draw when one replica was in sync, and when it led."""
    timeline, place = scene.timeline, scene.place(partition)
    changes = timeline.isrs.get(partition, [])
    in_sync = [
        State(
            change.at_ms,
            following.at_ms if following else timeline.end_ms,
            "insync" if replica in change.isr else "outsync",
        )
        for change, following in zip(changes, [*changes, None][1:], strict=True)
        if not change.replicas or replica in change.replicas  # else it doesn't hold it then
    ]
    claims = [
        State(
            claim.begin_ms,
            claim.end_ms,
            "claims",
            f"{place}: {replica} takes itself for the leader, in epoch {claim.epoch}",
        )
        for claim in timeline.claimed(partition, replica)
    ]
    leads = [
        State(
            span.begin_ms,
            span.end_ms,
            "leads",
            f"{place}: {replica} leads in epoch {span.epoch} for "
            f"{duration(span.end_ms - span.begin_ms)}",
        )
        for span in timeline.spans(partition)
        if span.leader == replica
    ]
    for states in (in_sync, claims, leads):
        drawing.row(*rows, states)


def node_state(scene: Scene) -> Figure | None:
    """When each node was up, stopped or down; nothing when no fault was done."""
    timeline = scene.timeline
    nodes = sorted(
        {fault.node for fault in timeline.faults}
        | {replica for partition in timeline.partitions for replica in timeline.replicas(partition)}
    )
    faults = timeline.faults
    if not faults or not nodes:
        return None

    def draw(layout: Layout) -> Drawing:
        drawing = Drawing(
            scene.frame,
            layout,
            TOP + len(nodes) * (ROW + 4) + BOTTOM,
            "Nodes over time: up, stopped or down.",
        )
        y = float(TOP)
        for node in nodes:
            words = f"node {node}"
            fits = LETTER * len(words) <= drawing.left - 7
            x, anchor = (drawing.left - 7, "end") if fits else (0, "start")
            drawing.text(x, y + ROW - 4, words, "tick", anchor)
            _draw_node(drawing, [f for f in faults if f.node == node], y)
            y += ROW + 4
        drawing.time_axis(y)
        return drawing

    return Figure(
        title="Nodes",
        note="processes, by what was done to them",
        legend=[
            Key("up", "node-up"),
            Key("stopped", "node-stopped"),
            Key("down", "node-down"),
            *([Key("cut off", "node-cut")] if any(f.action == CUT for f in faults) else []),
        ],
        drawings=drawn(draw),
    )


def _draw_node(drawing: Drawing, faults: Sequence[Fault], y: float) -> None:
    since, kind = drawing.frame.begin_ms, "node-up"
    states = []
    for at_ms, following in [*node_kinds(faults), (drawing.frame.end_ms, "")]:
        states.append(State(since, at_ms, kind))
        since, kind = at_ms, following
    drawing.row(y, y + ROW, states)


def node_kinds(faults: Iterable[Fault]) -> Iterator[tuple[float, str]]:
    """Yield how one node is drawn from each of its faults on: its process first, then its links.

    They are hurt and mended by themselves: a node that comes back while it is cut off is cut off.
    """
    process, is_cut = "node-up", False
    for fault in faults:
        if fault.action in {CUT, HEAL}:
            is_cut = fault.action == CUT
        elif fault.action in DOWN_ACTIONS:
            process = "node-stopped" if fault.action == "STOP" else "node-down"
        elif fault.action in UP_ACTIONS:
            process = "node-up"
        yield fault.at_ms, "node-cut" if is_cut and process == "node-up" else process
