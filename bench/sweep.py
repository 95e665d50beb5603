"""A raw producer over all partitions of some topics: one record to each, until every one of them is
acknowledged by all in sync.

One connection and one thread for each leader, some hundred partitions a request. What is refused
is sent again to whoever leads by then. Metadata of everything is asked for when something was
refused and the leaders may have changed, and not all the time: at 10,000 partitions that alone
would keep a broker busy.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from holdfast.clients.blocking_driver import Driver, DriverError
from holdfast.wire.batch import Record, build_batch
from holdfast.wire.errors import error_name
from holdfast.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

_VERSION = 9  # of Produce: the topic by its name
_CHUNK = 500  # partitions a request
_IN_FLIGHT = 4
_PAUSE_S = 0.05
_ALL = -1

Partition = tuple[str, int]


@dataclass(slots=True)
class Swept:
    """What became of one sweep."""

    seconds: float = 0.0  # until the last partition was acknowledged
    median_s: float = 0.0  # until half of them were
    cpu_s: float = 0.0  # of the producer itself
    refused: Counter[str] = field(default_factory=Counter)
    missing: int = 0  # never acknowledged within the bound


class Sweep:
    """Knows where partitions are led, and sends to all of them."""

    def __init__(self, bootstrap: str, topics: Mapping[str, int], bound_s: float) -> None:
        """`topics`: how many partitions each has."""
        self._bootstrap = bootstrap
        self._topics = topics
        self._all = [(name, index) for name in topics for index in range(topics[name])]
        self._bound_s = bound_s
        self._leaders: dict[Partition, int] = {}
        self._lock = threading.Lock()
        self._refused: Counter[str] = Counter()
        batch = build_batch([Record(value=b"x" * 100, timestamp=int(time.time() * 1000))])
        self._batch = bytes(batch)

    def learn(self) -> None:
        """Ask who leads what. DriverError: nobody answers."""
        with Driver(self._bootstrap, timeout_s=self._bound_s) as driver:
            answer = driver.metadata([*self._topics])
        alive = {broker.node_id for broker in answer.brokers}
        self._leaders = {
            (str(topic.name), each.partition_index): each.leader_id
            for topic in answer.topics
            for each in topic.partitions
            if each.leader_id in alive
        }

    def run(self, began: float, without: Iterable[int] = ()) -> Swept:
        """Send to every partition, until all are acknowledged or the bound has passed.

        `began`, monotonic: what the seconds count from. `without`: brokers that are known to be
        dead, so that it is not tried there.
        """
        cpu_s, dead = time.process_time(), set(without)
        self._refused.clear()
        done: dict[Partition, float] = {}
        workers: dict[int, threading.Thread] = {}
        under_way: set[Partition] = set()
        deadline = began + self._bound_s
        while len(done) < len(self._all) and time.monotonic() < deadline:
            by_leader: dict[int, list[Partition]] = defaultdict(list)
            for each in self._all:
                leader = self._leaders.get(each, -1)
                if each not in done and each not in under_way and leader not in dead | {-1}:
                    by_leader[leader].append(each)
            for leader, found in by_leader.items():
                if leader in workers and workers[leader].is_alive():
                    continue
                under_way.update(found)
                thread = threading.Thread(
                    target=self._send_all, args=(leader, found, done, under_way, deadline)
                )
                workers[leader] = thread
                thread.start()
            self._look_again(done, under_way, dead)
        for thread in workers.values():
            thread.join()
        # Who never was acknowledged took the whole of the time at least: it is no quick sweep that
        # gave up on some.
        missing = len(self._all) - len(done)
        times = sorted([*done.values(), *[deadline] * missing])
        return Swept(
            seconds=times[-1] - began,
            median_s=times[len(times) // 2] - began,
            cpu_s=time.process_time() - cpu_s,
            refused=Counter(self._refused),
            missing=missing,
        )

    def _look_again(
        self, done: dict[Partition, float], under_way: set[Partition], dead: set[int]
    ) -> None:
        """Wait a little; ask for the leaders once those who are dead are not shown any more."""
        time.sleep(_PAUSE_S)
        lost = [
            each
            for each in self._all
            if each not in done
            and each not in under_way
            and self._leaders.get(each, -1) in dead | {-1}
        ]
        try:
            if lost:
                with Driver(self._bootstrap, timeout_s=self._bound_s) as driver:
                    if dead & driver.nodes().keys():
                        return
            elif len(done) == len(self._all) or under_way:
                return
            self.learn()
        except DriverError:
            return

    def _send_all(
        self,
        leader: int,
        partitions: list[Partition],
        done: dict[Partition, float],
        under_way: set[Partition],
        deadline: float,
    ) -> None:
        """Send to what one broker leads, some requests at a time."""
        chunks = [partitions[begin : begin + _CHUNK] for begin in range(0, len(partitions), _CHUNK)]
        try:
            with Driver(self._bootstrap, timeout_s=deadline - time.monotonic()) as driver:
                peer = driver.peer(leader)
                sent = 0
                for taken in range(len(chunks)):
                    while sent < len(chunks) and sent < taken + _IN_FLIGHT:
                        peer.post(self._request(chunks[sent]), version=_VERSION)
                        sent += 1
                    self._note(peer.take(), done)
        except DriverError as error:
            with self._lock:
                self._refused[type(error).__name__] += 1
        finally:
            under_way.difference_update(partitions)

    def _note(self, answer: ProduceResponse, done: dict[Partition, float]) -> None:
        now = time.monotonic()
        with self._lock:
            for topic in answer.responses:
                for each in topic.partition_responses:
                    if each.error_code:
                        self._refused[error_name(each.error_code)] += 1
                    else:
                        done[topic.name, each.index] = now

    def _request(self, partitions: list[Partition]) -> ProduceRequest:
        topics: dict[str, TopicProduceData] = {}
        for name, index in partitions:
            topic = topics.setdefault(name, TopicProduceData(name=name))
            topic.partition_data.append(PartitionProduceData(index=index, records=self._batch))
        return ProduceRequest(acks=_ALL, timeout_ms=30_000, topic_data=[*topics.values()])
