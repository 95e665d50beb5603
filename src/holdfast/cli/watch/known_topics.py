"""Which topics there are, as far as brokers show it where nobody is known to know. Pure.

Never asks anybody: it is told what brokers answer, look for look.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from holdfast.cluster.probe import Snapshot
from holdfast.wire.uuids import uuid_text

Place = tuple[str, int]  # a topic and the number of a partition


@dataclass(frozen=True, slots=True)
class Latest:
    """The latest that is known of a partition, and which brokers have told of it."""

    topic_id: str | None
    epoch: int
    tellers: frozenset[int] = frozenset()

    def is_told_by(self, answer: Snapshot, place: Place) -> bool:
        """Say whether a broker knows as much, or more of the same topic."""
        topic, number = place
        state = answer.topics.get(topic, {}).get(number)
        is_same = id_in(answer, topic) == self.topic_id
        return state is not None and is_same and state.leader_epoch >= self.epoch


class KnownTopics:
    """The latest of each partition. It lasts from look to look."""

    def __init__(self) -> None:
        self._latest: dict[Place, Latest] = {}

    @property
    def ids(self) -> dict[str, str]:
        """The ids of topics, as far as they are known."""
        return {
            topic: each.topic_id
            for (topic, _), each in self._latest.items()
            if each.topic_id is not None
        }

    def agree(self, answers: Mapping[int, Snapshot], running: Collection[int]) -> bool:
        """Say whether the topics of which these brokers tell are those that there are.

        They are where all brokers that run tell alike, and lack nothing that was known. What they
        lack is over where one of them has told of it: a broker does not go back to what was
        before. Else all of them may have been cut off, and who told of it is dead.
        """
        if not answers or not answers.keys() >= set(running):
            return False
        if any(node not in answer.brokers for node, answer in answers.items()):
            return False  # it has just started: nobody has told it anything yet, not even of itself
        first, *others = map(ids_in, answers.values())
        return all(each == first for each in others) and all(
            not latest.tellers.isdisjoint(answers)
            or any(latest.is_told_by(answer, place) for answer in answers.values())
            for place, latest in self._latest.items()
        )

    def take(
        self,
        answers: Mapping[int, Snapshot],
        found: Mapping[Place, Latest],
        *,
        is_all: bool,
    ) -> None:
        """Note what counts of these answers. `is_all`: what is not among it is not there."""
        before = self._latest
        if not is_all:
            found = before | {
                place: each
                for place, each in found.items()
                if place not in before or each.epoch >= before[place].epoch
            }
        self._latest = {
            place: replace(
                each,
                tellers=_tellers_before(before.get(place), each)
                | {node for node, answer in answers.items() if each.is_told_by(answer, place)},
            )
            for place, each in found.items()
        }


def _tellers_before(before: Latest | None, now: Latest) -> frozenset[int]:
    is_same = before is not None and (before.topic_id, before.epoch) == (now.topic_id, now.epoch)
    return before.tellers if before is not None and is_same else frozenset()


def ids_in(answer: Snapshot) -> dict[str, str | None]:
    """Return the topics of which a broker tells, with their ids, where it has them."""
    return {name: id_in(answer, name) for name, found in answer.topics.items() if found}


def id_in(answer: Snapshot, topic: str) -> str | None:
    """Return a topic's id as a broker tells it; None: it has none."""
    told = answer.topic_ids.get(topic)
    return None if told is None else uuid_text(told)


def put_aside(answers: Iterable[Snapshot], counted: AbstractSet[Place]) -> frozenset[Place]:
    """Return the partitions of which brokers tell, but nothing that counts."""
    told = {
        (topic, number)
        for answer in answers
        for topic, found in answer.topics.items()
        for number in found
    }
    return frozenset(told - counted)
