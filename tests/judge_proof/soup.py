"""Small histories without any sense: events at random, of which most should never be seen together.

True histories are tame. Here everything contradicts everything, in few events, so that two judges
who read the same rules come to each corner of them.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence

from tests.judge_proof.journal import TOPIC, Journal
from tests.judge_proof.naive import naive

from holdfast.judge.checker import judge
from holdfast.judge.history import (
    Acknowledged,
    DeleteRecords,
    DeletionRefused,
    Delivered,
    Event,
    HistoryError,
    LeaderChange,
    Position,
    ReadEnd,
    Refused,
    Replica,
    ReplicaBatch,
    Retention,
    Send,
    Unknown,
)
from holdfast.judge.verdict import Anomaly

OFFSETS = 6
READERS = ("a", "b", "final")


class Soup:
    """One history, from a seed."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self._journal = Journal(1.0)
        self._waiting: list[Send] = []
        self._names: list[Send] = []
        self._asked: list[int] = []  # offsets before which all was to be deleted
        self._tells_time = self._chance.random() < 0.7

    def made(self) -> list[Event]:
        chance = self._chance
        moves: dict[Callable[[], None], float] = {
            self._send: 6,
            self._answer: 5,
            self._give: chance.choice([4, 10]),
            self._position: 2,
            self._end: 0.7,
            self._retain: chance.choice([0, 1]),
            self._delete: chance.choice([0, 1]),
            self._replica: chance.choice([0, 1]),
            self._deny: 0.5,
            self._lead: chance.choice([0, 0, 1]),
        }
        for move in chance.choices(list(moves), list(moves.values()), k=chance.randint(8, 40)):
            self._journal.now_ms += chance.choice([0, 0, 1, 5])
            move()
        self._journal.tick()
        if chance.random() < 0.5:  # a last read that makes sense
            begin = chance.choice([0, 0, 2])
            self._record(Position, "final", offset=begin, reason="beginning", told=True)
            for offset in range(begin, OFFSETS):
                if chance.random() < 0.8:
                    self._given("final", offset)
        self._end()
        return self._journal.history()

    def _record(self, kind: type[Event], process: str, **values: object) -> None:
        self._journal.record(kind, process, topic=TOPIC, partition=0, **values)

    def _send(self) -> None:
        process = self._chance.choice(["p", "q"])
        number = sum(send.process == process for send in self._names)
        send = self._journal.record(
            Send,
            process,
            topic=TOPIC,
            partition=0,
            id=f"{process}:{number}",
            digest=self._chance.choice(["00000001", "00000002", "odd"]),
            size=10,
            key=self._chance.choice([None, None, "k"]),
            timestamp=self._chance.choice([None, None, -1, 0, self._journal.wall_ms + 50]),
        )
        self._waiting.append(send)
        self._names.append(send)

    def _answer(self) -> None:
        if not self._waiting:
            return
        send = self._waiting.pop(self._chance.randrange(len(self._waiting)))
        if self._chance.random() < 0.6:
            offset = self._chance.choice([None, *range(OFFSETS)])
            self._record(Acknowledged, send.process, id=send.id, offset=offset)
        elif self._chance.random() < 0.5:
            self._record(Refused, send.process, id=send.id, error="E")
        else:
            self._record(Unknown, send.process, id=send.id, error="E")

    def _give(self) -> None:
        self._given(self._chance.choice(READERS), self._chance.randrange(OFFSETS))

    def _given(self, process: str, offset: int) -> None:
        chance = self._chance
        name, digest, key = None, "00000001", None
        stamp: int | None = self._journal.wall_ms
        if self._names:
            near = self._names[offset % len(self._names)]
            send = near if chance.random() < 0.7 else chance.choice(self._names)
            name, digest, key = send.id, send.digest, send.key
            stamp = send.wall_ms if send.timestamp is None else send.timestamp
        if chance.random() < 0.1:
            name = chance.choice([None, "p:77", "stranger", "stranger"])
        if chance.random() < 0.05:
            digest = chance.choice(["00000001", "00000002", "odd"])
        if chance.random() < 0.05:
            key = chance.choice([None, "k", "l"])
        if chance.random() < 0.05:
            stamp = chance.choice([None, -1, 0, 7])
        self._record(
            Delivered,
            process,
            offset=offset,
            id=name,
            digest=digest,
            key=key,
            timestamp=stamp if self._tells_time else None,
            epoch=chance.choice([None, 0, 0, 1]),
            committed_end=chance.choice([None, None, offset, offset + 1]),
        )

    def _position(self) -> None:
        offset = self._chance.randrange(OFFSETS)
        process, told = self._chance.choice(READERS), self._chance.random() < 0.5
        self._record(Position, process, offset=offset, reason="seek", told=told)

    def _end(self) -> None:
        begin = self._chance.choice([0, 0, 1, 3])
        end = self._chance.randint(begin, OFFSETS)
        asked = self._chance.choice([None, self._journal.at_ms - 3])
        process = self._chance.choice(["final", "final", "b"])
        self._record(ReadEnd, process, begin=begin, end=end, asked_ms=asked)

    def _retain(self) -> None:
        self._record(
            Retention,
            "lab",
            retention_ms=self._chance.choice([None, 5, 30]),
            retention_bytes=self._chance.choice([None, None, 0, 10, 25, 150, 300]),
        )

    def _delete(self) -> None:
        self._asked.append(self._chance.randrange(OFFSETS))
        self._record(DeleteRecords, "lab", offset=self._asked[-1])

    def _deny(self) -> None:
        if self._asked:
            offset = self._asked.pop(self._chance.randrange(len(self._asked)))
            self._record(DeletionRefused, "lab", offset=offset)

    def _lead(self) -> None:
        process, epoch = self._chance.choice(["a", "lab"]), self._chance.randrange(4)
        leader = self._chance.choice([-1, 0, 0, 0, 1])
        self._record(LeaderChange, process, leader=leader, epoch=epoch)

    def _replica(self) -> None:
        node, begin = self._chance.randrange(3), self._chance.choice([0, 0, 2])
        end = self._chance.choice([begin, OFFSETS, OFFSETS])
        self._record(Replica, "replicas", node=node, begin=begin, end=end)
        offset = begin
        while offset < end:
            last = min(end - 1, offset + self._chance.choice([0, 0, 1]))
            if self._chance.random() < 0.9:
                self._record(
                    ReplicaBatch,
                    "replicas",
                    node=node,
                    offset=offset,
                    last_offset=last,
                    epoch=self._chance.choice([0, 0, 0, 1]),
                    digest=self._chance.choice(["00000001", "00000001", "odd"]),
                    size=10,
                )
            offset = last + (1 if last == offset or self._chance.random() < 0.9 else 0)


Said = tuple[Counter[Anomaly], bool]  # what is found, and whether all is decided


def verdicts(events: Sequence[Event]) -> tuple[Said, Said]:
    """Return what the judge and what the naive one say."""
    (partition,) = judge(events).judgement.partitions
    return (+Counter(partition.anomalies), not partition.undecided), naive(events)


def disagree(events: Sequence[Event]) -> bool:
    """Whether they differ over a history; what is none, or has no end, nobody can differ over."""
    if not any(isinstance(event, ReadEnd) for event in events):
        return False
    try:
        left, right = verdicts(events)
    except HistoryError:
        return False
    return left != right


def shortest(events: Sequence[Event]) -> list[Event]:
    """Leave out every event without which they still differ."""
    kept = list(events)
    while True:
        for event in kept:
            fewer = [other for other in kept if other is not event]
            if disagree(fewer):
                kept = fewer
                break
        else:
            return kept
