"""What scenarios do with reassignments, and how they tell what came of them.

Owns the waits for moves, the throttle around them, and the table of who holds how much. What is
moved where is the scenario's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from holdfast.clients import reassigning
from holdfast.lab.report import Table
from holdfast.lab.run import Run
from holdfast.lab.steps.mishaps import asking, must_come
from holdfast.lab.steps.wants import lists_text
from holdfast.wire.administration import reassign, reassignments

MOVE_S = 90.0
Assignment = Mapping[int, Sequence[int]]


class Mover:
    """The moves of one topic. Errors of the cluster are LabErrors."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._throttled: list[int] = []
        self._before: dict[int, tuple[int, ...]] = {}  # who held what was to be moved

    def begin(self, target: Assignment, *, rate: int | None = None) -> None:
        """Begin to move to these replicas; `rate`: bytes a second that each broker may spend."""
        run = self._run
        wanted = {(run.topic, p): list(nodes) for p, nodes in target.items()}
        words = "" if rate is None else f", throttled to {rate:,} bytes a second"
        run.note(f"reassigning to {lists_text(target)}{words}")
        refused = "the partitions can't be reassigned"
        if rate is not None:
            with asking(refused):
                current = reassigning.assignment(run.driver, [run.topic])
                self._throttled = reassigning.throttle(run.driver, current, wanted, rate)
        run.ask(reassign(wanted), refused)
        placement = run.placement[run.topic]
        self._before |= {partition: placement[partition] for partition in target}
        placement.update({partition: tuple(nodes) for partition, nodes in target.items()})

    def set_rate(self, rate: int) -> None:
        """Change what the moves that are under way may spend."""
        self._run.note(f"the throttle is {rate:,} bytes a second now")
        reassigning.set_rates(self._run.driver, self._throttled, rate)

    def moving(self) -> list[int]:
        """Partitions whose move is under way. LabError: nobody says."""
        moves = self._run.ask(reassignments(), "reassignments can't be listed")
        return sorted(p for topic, p in moves if topic == self._run.topic)

    def cancel(self) -> list[int]:
        """Call back what is under way, and return which partitions that were."""
        run = self._run
        called_back = self.moving()
        run.note(f"calling back the moves of {len(called_back)} partitions")
        run.ask(
            reassign({(run.topic, p): None for p in called_back}),
            "the moves can't be called back",
        )
        run.placement[run.topic].update({p: self._before[p] for p in called_back})
        return called_back

    def wait(self) -> None:
        """Wait until nothing moves any more, and take the throttle off."""
        run = self._run
        must_come(run, "the moves to be done", lambda: not self.moving(), MOVE_S)
        reassigning.clear_throttle(run.driver, [run.topic], self._throttled)
        self._throttled = []
        run.note("nothing moves any more")


def shares(run: Run) -> tuple[Counter[int], Counter[int]]:
    """How many partitions each broker holds, and how many it leads."""
    held: Counter[int] = Counter(dict.fromkeys(run.cluster.broker_ids, 0))
    led = held.copy()
    for state in run.view.partitions.values():
        held.update(state.replicas)
        led[state.leader] += 1
    return held, led


def expect_even(run: Run, name: str) -> None:
    """Check that no broker holds or leads more than one partition more than another."""
    held, led = shares(run)
    run.check(
        name,
        "replicas and leaders differ by one at most",
        f"replicas {_counts(held)}; leaders {_counts(led)}",
        kept=_spread(held) <= 1 and _spread(led) <= 1,
    )


def share_table(run: Run, title: str) -> Table:
    held, led = shares(run)
    return Table(
        title=title,
        header=["broker", "replicas", "leads"],
        rows=[[str(node), str(held[node]), str(led[node])] for node in sorted(held)],
    )


def _counts(counter: Counter[int]) -> str:
    return ", ".join(f"{node}: {count}" for node, count in sorted(counter.items()))


def _spread(counter: Counter[int]) -> int:
    return max(counter.values()) - min(counter.values())
