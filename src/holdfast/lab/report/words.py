"""What happened, as a person would say it: faults, changes, notes, and events in full."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from holdfast.judge.groups.history import ConsumerFault
from holdfast.judge.history import Event, Fault, IsrChange, LeaderChange, LeaderClaim, Note
from holdfast.judge.timeline import CUT, DISK, HEAL, Timeline

ACTION_WORDS = {
    "KILL": "SIGKILL",
    "TERM": "SIGTERM",
    "STOP": "SIGSTOP",
    "CONT": "SIGCONT",
    "start": "start",
    "exit": "exit",
    DISK: "data loss",
    CUT: "network cut",
    HEAL: "network healed",
}
# What is wrong with a link, beside its being cut.
SLOW, LOSSY, SWALLOWED = "SLOW", "LOSSY", "SWALLOWED"
LINK_WORDS = {
    CUT: "cut",
    SLOW: "slowed",
    LOSSY: "packets lost",
    SWALLOWED: "answers swallowed",
}
# Done to a process of consumers; signals are called as those of nodes are.
CONSUMER_WORDS = {
    "CUT": "network cut",
    "HEAL": "network healed",
    "SLOW": "overload",
}


def describe(event: Event, previous: Event | None = None) -> str:
    """A fault, a change or a note, as a person would say it."""
    if isinstance(event, Fault):
        words = ACTION_WORDS.get(event.action, event.action)
        if event.action in {"exit", DISK, CUT, HEAL}:
            is_clean = event.action == "exit" and not event.detail
            words = f"clean {words} of" if is_clean else f"{words} of"
        return f"{words} node {event.node}" + (f": {event.detail}" if event.detail else "")
    if isinstance(event, ConsumerFault):
        return f"{consumer_action(event.action)} of consumer {event.consumer}"
    if isinstance(event, LeaderChange):
        place = f"{event.topic}-{event.partition}"
        before = ""
        if isinstance(previous, LeaderChange):
            stays = previous.leader == event.leader
            before = "stays " if stays else f"{_leader(previous.leader)} → "
        return f"{place}: leader {before}{_leader(event.leader)}, epoch {event.epoch}"
    if isinstance(event, LeaderClaim):
        place = f"{event.topic}-{event.partition}"
        return f"{place}: leader {_leader(event.leader)}, epoch {event.epoch}, says {event.node}"
    if isinstance(event, IsrChange):
        before = f"{_nodes(previous.isr)} → " if isinstance(previous, IsrChange) else ""
        return f"{event.topic}-{event.partition}: ISR {before}{_nodes(event.isr)}"
    return event.text if isinstance(event, Note) else event.KIND


def consumer_action(action: str) -> str:
    return CONSUMER_WORDS.get(action) or ACTION_WORDS.get(action, action)


def nodes_text(nodes: Iterable[int]) -> str:
    """Nodes as a sentence names them: "node 1", "nodes 0 and 2"."""
    names = [str(node) for node in dict.fromkeys(nodes)]
    if len(names) == 1:
        return f"node {names[0]}"
    return f"nodes {', '.join(names[:-1])} and {names[-1]}"


def _leader(node: int) -> str:
    return "none" if node < 0 else str(node)


def _nodes(nodes: Sequence[int]) -> str:
    return "{" + ",".join(str(node) for node in nodes) + "}"


def described_moments(timeline: Timeline) -> list[tuple[Event, str]]:
    """Every moment with its sentence; changes say from what to what."""
    latest: dict[tuple[str, str, int], Event] = {}
    for table in (timeline.leaders, timeline.isrs):
        for (topic, partition), changes in table.items():
            latest[changes[0].KIND, topic, partition] = changes[0]
    described = []
    for event in timeline.moments():
        previous = None
        if isinstance(event, LeaderChange | IsrChange):
            key = (event.KIND, event.topic, event.partition)
            previous, latest[key] = latest.get(key), event
        described.append((event, describe(event, previous)))
    return described


def plain(event: Event) -> str:
    """An event as its name and fields, on one line."""
    skip = {"at_ms", "wall_ms", "process", "topic"}
    values = ((name, getattr(event, name)) for name in event.__struct_fields__)
    shown = (f"{name}={value}" for name, value in values if name not in skip and value is not None)
    return f"{event.KIND} {' '.join(shown)}"
