"""Rare branches taken on purpose, in simulation only.

Owns the list of the points where a node asks `runtime.provoke(name)`, how likely each says yes,
and how often it did. Must never make a node do what could not happen to it anyway.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Final

# What happens at each point when it is provoked. A test holds the list against the code.
POINTS: Final[Mapping[str, str]] = {
    "acks.expire-early": "an acks=all append is answered REQUEST_TIMED_OUT within 50 ms",
    "answers.by-turns": "answers of a coordinator leave by turns, however few they are",
    "answers.none-at-once": "a request about groups waits for its answer, though that is known",
    "checkpoint.left-out": "a checkpoint of offsets is not written this time",
    "close.at-once": "a log directory is made durable by one sync of all when it is closed",
    "commits.alone": "a commit of offsets shares its batch with no other of its turn",
    "compaction.round": "a log is compacted although it isn't dirty enough",
    "compaction.small-map": "a round has room for nine keys",
    "fetch.one-batch": "a fetch is answered with one batch of one partition",
    "fetcher.answer-late": "a follower looks at an answer half a second later",
    "fetcher.answer-lost": "a follower loses its connection instead of the answer",
    "fetcher.part-unread": "a follower skips a partition in an answer",
    "flush.of-all": "a background flush takes the active segment along",
    "heartbeat.answer-lost": "a broker does not hear what its heartbeat was answered",
    "held.expire-early": "answers of a coordinator are held for 50 ms at most",
    "isr.answer-late": "a leader hears a second later what became of its AlterPartition",
    "isr.answer-lost": "a leader never hears it, and asks again",
    "job.slow": "a job of the worker takes a hundred times as long",
    "producer-ids.answer-lost": "a block of producer ids is lost",
    "segment.rolled-early": "a segment is sealed though it isn't full",
    "shard.append-refused": "the log takes no append of a coordinator: too few are in sync",
    "shard.due-by-turns": "what is due in a shard is done a part a turn",
    "shard.load-fails": "a shard can't be loaded, and that is tried again",
    "shard.load-late": "a shard begins to load a second late",
    "wait.expires-at-once": "a parked fetch is answered with what there is",
    "waits.are-crowds": "two who wait for one partition are a crowd, that is told by turns",
    "waits.in-reverse": "who waits is woken in another order",
}


class Provocations:
    """Chances for all points of one run; off until `chances` is set."""

    def __init__(self, seed: int | str, *, fold: Callable[..., None] = lambda *_: None) -> None:
        self._draw = random.Random(f"provoke/{seed}")
        self._fold = fold
        self._chances: dict[str, float] = {}
        self.counts: dict[str, int] = dict.fromkeys(POINTS, 0)  # how often each was provoked

    @property
    def chances(self) -> Mapping[str, float]:
        """How likely each point is provoked when it is passed; those not named never are."""
        return self._chances

    @chances.setter
    def chances(self, chances: Mapping[str, float]) -> None:
        unknown = chances.keys() - POINTS.keys()
        assert not unknown, f"no such points: {sorted(unknown)}"
        self._chances = dict(chances)

    def pick(self, *, share: float = 0.5, chance_max: float = 0.2) -> Mapping[str, float]:
        """Switch on a random share of the points, each with a chance of its own. Returns them."""
        self.chances = {
            name: self._draw.random() * chance_max
            for name in sorted(POINTS)
            if self._draw.random() < share
        }
        return self._chances

    def stop(self) -> None:
        """Provoke nothing any more."""
        self._chances = {}

    def port(self, machine: str) -> Callable[[str], bool]:
        """What a process on a machine gets as `Runtime.provoke`."""

        def provoke(point: str) -> bool:
            chance = self._chances.get(point)
            if chance is None or self._draw.random() >= chance:
                return False
            self.counts[point] += 1
            self._fold("provoke", machine, point)
            return True

        return provoke
