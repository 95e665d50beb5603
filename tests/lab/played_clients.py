"""The clients of a run that is played, and the ways in which it may lie."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast.judge.history import Acknowledged, Delivered, Event, Refused, Send, Unknown

if TYPE_CHECKING:
    from tests.lab.played import Played

READ = 100  # records that a consumer is given at a time, of each partition


@dataclass(frozen=True, slots=True, kw_only=True)
class Lie:
    """What is not as it must be: in a word, and how. Of clients by their names' beginnings."""

    name: str
    acknowledges: bool | None = None  # whatever the cluster looks like; None: as it looks
    since: tuple[str, ...] = ()  # from what begins so on, a fault say; none: from the beginning
    clients: tuple[str, ...] = ("",)
    is_stale: bool = False  # leader epochs never rise
    is_deaf: bool = False  # consumers receive nothing
    is_hasty: bool = False  # who is asked to leave hands nothing over
    is_crowded: bool = False  # replicas are placed without a thought of racks
    is_hoarding: bool = False  # what is too much stays
    is_unheard: bool = False  # not every broker hears of a topic's settings
    is_leaky: bool = False  # what is cut drops no packet
    is_humble: bool = False  # who is cut off knows that it leads no more
    is_unled: bool = False  # a controller is active without a majority
    is_restless: bool = False  # there is an election at each look
    is_forgetful: bool = False  # a broker does not say all, a move does nothing
    is_frozen: bool = False  # no metadata change is made
    is_slow: bool = False  # each wait takes a minute
    is_vacant: bool = False  # no controller follows one that is lost
    adds: type[Event] | None = None  # what reliable producers are told besides
    fails: str | None = None  # what is expected with these words in its name does not come


BALANCER = "balancer:1"  # which leads nobody to the leader that is asked for
HONEST = Lie(name="honest")


@dataclass(slots=True)
class Post:
    """A record that is on its way, and who led when it was sent."""

    partition: int
    leader: int
    was_enough: bool  # in sync


class Client:
    """A raw producer in the run's own process."""

    def __init__(self, played: Played, name: str, acks: str) -> None:
        self.topic = played.topic
        self.name = name
        self.log: list[Event] = []
        self._played, self._acks = played, acks
        self._posted: deque[Post] = deque()

    def send(self, partition: int, _key: str | None = None) -> Event:
        self.post(partition)
        return self.take()

    def post(self, partition: int) -> None:
        self._played.now_ms += 0.01
        leader, enough = self._played.leader_of(partition), self._played.has_enough(partition)
        self._posted.append(Post(partition, leader, enough))

    def take(self) -> Event:
        post = self._posted.popleft()
        outcome = self._played.outcome(
            self.name, self._acks, post.partition, post.leader, was_enough=post.was_enough
        )
        self.log += [self._played.sent(self.name, post.partition, outcome), outcome]
        return outcome


class Told:
    """What a workload's history says so far."""

    def __init__(self) -> None:
        self.latest_ms = 0.0
        self.counts: Counter[tuple[str, int]] = Counter()
        self.errors: Counter[tuple[str, int]] = Counter()
        self.acknowledged_ms: dict[int, float] = {}
        self.delivered_ms: dict[int, float] = {}
        self.ends: dict[int, int] = {}

    def poll(self) -> Told:
        return self

    def count(self, kind: type[Event], partition: int | None = None) -> int:
        return sum(
            count
            for (name, where), count in self.counts.items()
            if name == kind.KIND and partition in {None, where}
        )


class Worker:
    """A client in a process of its own."""

    def __init__(
        self, played: Played, name: str, acks: str, place: str | None = None, *, reads: bool
    ) -> None:
        self.name = name
        self.place = place
        self.log: list[Event] = []
        self.history = played.history / f"{name}.jsonl"
        self.tail = Told()
        self.running = True
        self.wanted = 1  # records
        self.gives_up = False  # what is not answered in time; others wait
        self.is_ended = False
        self._played, self._acks, self._reads = played, acks, reads

    def flow(self) -> None:
        """Send one record to each partition, or read one of each."""
        if self.is_ended or (self.place in self._played.cut_clients and not self.gives_up):
            return
        self.tail.latest_ms = self._played.now_ms
        for partition in self._played.partitions:
            if not self._reads:
                self._send(partition)
            elif not (self._played.lie.is_deaf and self._played.is_lying):
                self.tail.counts[Delivered.KIND, partition] += READ
                self.tail.delivered_ms[partition] = self._played.now_ms

    def _send(self, partition: int, number: int = 1) -> None:
        """Send so many records, which all fare alike; one of them is written down."""
        leader = self._played.asks(self.place, partition)
        outcome = self._played.outcome(self.name, self._acks, partition, leader)
        if (
            self._played.swallows
            and self.name.startswith("never")
            and not self._played.lie.is_hoarding
        ):
            self._played.swallows -= 1
            outcome = self._played.unanswered(self.name, partition)
        self.log += [self._played.sent(self.name, partition, outcome), outcome]
        self.tail.counts[Send.KIND, partition] += number
        self.tail.counts[outcome.KIND, partition] += number
        if self._played.is_lying and self._played.lie.adds is not None:
            self.tail.counts[self._played.lie.adds.KIND, partition] += 1
        if isinstance(outcome, Acknowledged):
            self.tail.acknowledged_ms[partition] = self._played.now_ms
            self.tail.ends[partition] = self.tail.ends.get(partition, 0) + number
        elif isinstance(outcome, Refused | Unknown):
            self.tail.errors[outcome.error, partition] += 1

    def wait(self, _bound_s: float = 0.0) -> None:
        for partition in self._played.partitions:
            self._send(partition, self.wanted // len(self._played.partitions))
        self.is_ended = True

    def stop(self) -> None:
        self.is_ended = True

    def kill(self) -> None:
        self.is_ended = True

    def signal(self, _number: int) -> None: ...

    def may_end(self) -> None: ...
