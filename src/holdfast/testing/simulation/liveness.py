"""After healing: who still waits, and for what. Owns the list of what must come by itself.

Every broker serves and is unfenced; every partition that somebody eligible lives for has a leader;
every follower that lives is in sync; the high watermark reaches the log's end on all of them; a
topic can be made. A sentence for each that has not come yet; none: all is well.
"""

from __future__ import annotations

from holdfast.testing.simulation.conductor import Conductor
from holdfast.testing.simulation.metadata import Key, State


def waiting(hand: Conductor, *, drained: bool) -> list[str]:
    """Who waits for what. `drained`: no producer writes any more, so watermarks must arrive."""
    metadata = hand.oracle.metadata
    alive = {node for node in hand.cluster.brokers if hand.held.get(node) != "broken"}
    found = [
        f"broker {node} does not serve" for node in sorted(alive) if not hand.cluster.is_ready(node)
    ]
    if hand.cluster.active_controller() is None:
        found.append("no controller is active")
    for node in sorted(alive):
        broker = metadata.brokers.get(node)
        if broker is None or not broker.active:
            found.append(f"broker {node} is not active for the controller: {broker}")
    return found + [
        text
        for key, state in metadata.partitions.items()
        for text in _of_partition(hand, key, state, alive, drained=drained)
    ]


def _of_partition(
    hand: Conductor, key: Key, state: State, alive: set[int], *, drained: bool
) -> list[str]:
    metadata = hand.oracle.metadata
    name = metadata.name(key)
    living = [node for node in state.replicas if node in alive]
    if not can_lead(hand, key, state, alive):
        return []
    if state.leader not in alive:
        return [f"{name} has no leader that lives: {state}"]
    found = []
    target = [node for node in state.replicas if node not in state.removing]
    if (state.adding or state.removing) and alive.issuperset(target):
        found.append(f"{name} is still being moved: {state}")
    lagging = [node for node in living if node not in state.isr]
    if lagging:
        found.append(f"{name}: {lagging} have not joined the ISR: {state}")
    if not drained or len(state.isr) < metadata.copies.get(key, 1):
        return found
    logs = {
        node: hand.cluster.nodes[node].directories.get(metadata.topics[key[0]], key[1])
        for node in living
    }
    found += [f"{name}: broker {node} has no replica" for node in living if logs[node] is None]
    ends = {node: (log.high_watermark, log.end) for node, log in logs.items() if log is not None}
    if len({number for pair in ends.values() for number in pair}) > 1:
        found.append(f"{name}: high watermarks and log ends differ: {ends}; {state}")
    return found


def can_lead(hand: Conductor, key: Key, state: State, alive: set[int]) -> bool:
    """Whether somebody lives who must be able to lead.

    Not one whose disk was replaced: the new one is empty, and nobody elects him for it.
    """
    eligible = {*state.isr, *state.elr}
    if hand.oracle.metadata.allows_unclean(key):
        eligible |= set(state.replicas)
    return bool((eligible - hand.replaced.keys()) & alive)


def can_acknowledge(hand: Conductor, topic: str, partition: int) -> bool:
    """Whether enough replicas live for acks=all."""
    metadata = hand.oracle.metadata
    alive = {node for node in hand.cluster.brokers if hand.held.get(node) != "broken"}
    key = metadata.find(topic, partition)
    if key is None:
        return False
    state = metadata.partitions[key]
    living = len(alive.intersection(state.replicas))
    return can_lead(hand, key, state, alive) and living >= metadata.min_isr(key)
