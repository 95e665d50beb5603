"""What is committed in one partition of `__consumer_offsets`, and when it came to be so.

Owns who has led it, and what each moment's state was. It goes by the chain that `truth` judges:
what that one lets a new leader lose is not so from then on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from math import inf
from typing import Any, Final, NamedTuple, TypeAlias

from holdfast.testing.simulation.chain import Entry, Name, entries_of
from holdfast.testing.simulation.groups.shard_state import Fact, ShardState, records_in
from holdfast.testing.simulation.groups.timeline import Timeline
from holdfast.testing.simulation.invariants import Invariant
from holdfast.testing.simulation.truth import PartitionTruth
from holdfast.wire.batch_header import batches
from holdfast.wire.errors import WireError
from holdfast.wire.records.group_tables import GroupKey

Record: TypeAlias = tuple[GroupKey, Any]
Told: TypeAlias = Callable[["ShardTruth", Iterable[Record]], None]


class Change(NamedTuple):
    """What one record has changed. None: it is not there."""

    fact: Fact
    before: Any
    after: Any


class _Led(NamedTuple):
    """A leader epoch, and when it began."""

    at_s: float
    node: int
    epoch: int


class ShardTruth:
    """One partition."""

    def __init__(
        self,
        truth: PartitionTruth,
        fail: Callable[[Invariant, str], None],
        commits: Told,
        loses: Callable[[], None],
    ) -> None:
        """`commits` takes in each committed batch: it applies the records to `state`.

        `loses` is told when something of it is lost, as allowed.
        """
        self.truth: Final = truth
        self.state = ShardState()
        self.lost_s = -inf  # when something of it was last lost as allowed, as far as was noticed
        # When it first was seen, of each epoch, that its leader has read the log.
        self._loaded_s: dict[int, float] = {}
        self._fail: Final = fail
        self._commits: Final = commits
        self._loses: Final = loses
        self._payloads: dict[Name, bytes] = {}
        self._taken: list[Entry] = []  # the committed batches that `state` is made of
        self._timelines: dict[Fact, Timeline] = {}
        self._led: list[_Led] = []
        self._given = 0  # how much has been forgiven
        truth.commits = self._committed

    @property
    def name(self) -> str:
        return self.truth.name

    # -- what the log does -----------------------------------------------------------------------

    def keep(self, records: memoryview) -> None:
        """Remember what a leader has appended."""
        places = batches(records)
        for entry, (at, header) in zip(entries_of(records), places, strict=True):
            self._payloads[entry.name] = bytes(records[at : at + header.size])

    def _committed(self, entry: Entry) -> None:
        self.look()
        payload = self._payloads.get(entry.name)
        if payload is None:
            self._fail(Invariant.ALL_SEEN, f"{self.name} [{entry}]")
            return
        self._taken.append(entry)
        self.has_loaded(entry.epoch)
        try:
            self._commits(self, records_in(payload))
        except WireError as error:
            self._fail(Invariant.GROUPS_READABLE, f"{self.name} [{entry}]: {error}")

    def apply(self, key: GroupKey, value: Any) -> Change | None:
        """Make true what a committed record says, from now on. None: it is nothing we look at."""
        fact = self.state.apply(key, value)
        if fact is None:
            return None
        before = self.since(fact, inf)[-1]
        self._put(fact)
        return Change(fact, before, self.state.facts.get(fact))

    def _put(self, fact: Fact) -> None:
        now_s = asyncio.get_running_loop().time()
        self._timelines.setdefault(fact, Timeline()).put(now_s, self.state.facts.get(fact))

    def look(self) -> None:
        """See whether something of it was lost since: then what is left is what is so."""
        given = self.truth.allowances.given
        if len(given) == self._given:
            return
        self._given = len(given)
        self.lost_s = asyncio.get_running_loop().time()
        self._loses()
        chain = self.truth.committed.entries
        before = len(self._taken)
        while self._taken and (
            len(self._taken) > len(chain) or chain[len(self._taken) - 1] is not self._taken[-1]
        ):
            self._taken.pop()
        if len(self._taken) < before:
            self._rebuild()

    def _rebuild(self) -> None:
        was = self.state.facts
        self.state = ShardState()
        for entry in self._taken:
            for key, value in records_in(self._payloads[entry.name]):
                self.state.apply(key, value)
        for fact in dict.fromkeys([*was, *self.state.facts]):
            if was.get(fact) != self.state.facts.get(fact):
                self._put(fact)

    # -- who leads -------------------------------------------------------------------------------

    def elected(self, epoch: int, node: int) -> None:
        """A leader epoch begins, as is committed in the metadata."""
        self._led.append(_Led(asyncio.get_running_loop().time(), node, epoch))

    @property
    def epoch(self) -> int:
        """The leader epoch; -1: nobody has led it yet."""
        return self._led[-1].epoch if self._led else -1

    def leads(self, node: int) -> bool:
        """Whether it was elected last."""
        return bool(self._led) and self._led[-1].node == node

    def has_loaded(self, epoch: int) -> None:
        """A leader has written in its epoch, or said what only the log can tell."""
        self._loaded_s.setdefault(epoch, asyncio.get_running_loop().time())

    def may_load(self, node: int, asked_s: float) -> bool:
        """Whether a node that was asked then may have answered before it had read the log."""
        ends = [*(each.at_s for each in self._led[1:]), inf]
        return any(
            each.node == node and end_s >= asked_s and self._loaded_s.get(each.epoch, inf) > asked_s
            for each, end_s in zip(self._led, ends, strict=True)
        )

    def led_until(self, node: int, asked_s: float) -> float | None:
        """Until when a node has led in the epoch in which it was asked then, or in its last one.

        Infinity: it leads, or was elected since. None: it has never led.
        """
        until_s: float | None = None
        ends = [*(each.at_s for each in self._led[1:]), inf]
        for each, end_s in zip(self._led, ends, strict=True):
            if each.node != node:
                continue
            if each.at_s <= asked_s:
                until_s = end_s
            elif until_s is None:
                until_s = inf
        return until_s

    def said_since(self, node: int, asked_s: float) -> float | None:
        """From when on what a node says now, asked then, may be so. None: it has never led.

        Who has not heard that it leads no longer says what was so when it did.
        """
        until_s = self.led_until(node, asked_s)
        return None if until_s is None else min(asked_s, until_s)

    def may_have_lost(self, node: int) -> bool:
        """Whether what this node wrote as a leader may be gone: it may have said that it is there.

        The place of what was said is not known, so an epoch of which anything may be gone counts.
        """
        self.look()
        epochs = [epoch for epoch, leader in self.truth.leaders.items() if leader == node]
        return self.truth.allowances.cover_any_of(epochs)

    # -- what was so -----------------------------------------------------------------------------

    def since(self, fact: Fact, begin_s: float) -> list[Any]:
        """Return all that is known of something from then on; None: it was not there."""
        self.look()
        timeline = self._timelines.get(fact)
        return [None] if timeline is None else timeline.since(begin_s)
