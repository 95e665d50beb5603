"""A raw producer over all partitions of a topic: one record to each, and how long until every one
is acknowledged by all in sync.

One connection and one thread for each leader, some hundred partitions a request. What is refused
is sent again to whoever leads by then. Metadata of everything is asked for when something was
refused and the leaders may have changed, and not all the time: at 10,000 partitions that alone
would keep a broker busy.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterable
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


@dataclass(slots=True)
class Swept:
    """What became of one sweep."""

    seconds: float = 0.0  # until the last partition was acknowledged
    median_s: float = 0.0  # until half of them were
    cpu_s: float = 0.0  # of the producer itself
    refused: Counter[str] = field(default_factory=Counter)
    missing: int = 0  # never acknowledged within the bound


class Sweep:
    """Knows where a topic's partitions are led, and sends to all of them."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, bound_s: float) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._partitions = partitions
        self._bound_s = bound_s
        self._leaders: dict[int, int] = {}
        self._lock = threading.Lock()
        self._refused: Counter[str] = Counter()
        batch = build_batch([Record(value=b"x" * 100, timestamp=int(time.time() * 1000))])
        self._batch = bytes(batch)

    def learn(self) -> None:
        """Ask who leads what. DriverError: nobody answers."""
        with Driver(self._bootstrap, timeout_s=self._bound_s) as driver:
            answer = driver.metadata([self._topic])
        alive = {broker.node_id for broker in answer.brokers}
        self._leaders = {
            each.partition_index: each.leader_id
            for each in answer.topics[0].partitions
            if each.leader_id in alive
        }

    def run(self, began: float, without: Iterable[int] = ()) -> Swept:
        """Send to every partition, until all are acknowledged or the bound has passed.

        `began`, monotonic: what the seconds count from. `without`: brokers that are known to be
        dead, so that it is not tried there.
        """
        cpu_s, dead = time.process_time(), set(without)
        self._refused.clear()
        done: dict[int, float] = {}
        workers: dict[int, threading.Thread] = {}
        under_way: set[int] = set()
        deadline = began + self._bound_s
        while len(done) < self._partitions and time.monotonic() < deadline:
            by_leader: dict[int, list[int]] = defaultdict(list)
            for index in range(self._partitions):
                leader = self._leaders.get(index, -1)
                if index not in done and index not in under_way and leader not in dead | {-1}:
                    by_leader[leader].append(index)
            for leader, indexes in by_leader.items():
                if leader in workers and workers[leader].is_alive():
                    continue
                under_way.update(indexes)
                thread = threading.Thread(
                    target=self._send_all, args=(leader, indexes, done, under_way, deadline)
                )
                workers[leader] = thread
                thread.start()
            self._look_again(done, under_way, dead)
        for thread in workers.values():
            thread.join()
        times = sorted(done.values()) or [deadline]
        return Swept(
            seconds=times[-1] - began,
            median_s=times[len(times) // 2] - began,
            cpu_s=time.process_time() - cpu_s,
            refused=Counter(self._refused),
            missing=self._partitions - len(done),
        )

    def _look_again(self, done: dict[int, float], under_way: set[int], dead: set[int]) -> None:
        """Wait a little; ask for the leaders once those who are dead are not shown any more."""
        time.sleep(_PAUSE_S)
        lost = [
            index
            for index in range(self._partitions)
            if index not in done
            and index not in under_way
            and self._leaders.get(index, -1) in dead | {-1}
        ]
        try:
            if lost:
                with Driver(self._bootstrap, timeout_s=self._bound_s) as driver:
                    if dead & driver.nodes().keys():
                        return
            elif len(done) == self._partitions or under_way:
                return
            self.learn()
        except DriverError:
            return

    def _send_all(
        self,
        leader: int,
        indexes: list[int],
        done: dict[int, float],
        under_way: set[int],
        deadline: float,
    ) -> None:
        """Send to what one broker leads, some requests at a time."""
        chunks = [indexes[begin : begin + _CHUNK] for begin in range(0, len(indexes), _CHUNK)]
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
            under_way.difference_update(indexes)

    def _note(self, answer: ProduceResponse, done: dict[int, float]) -> None:
        now = time.monotonic()
        with self._lock:
            for each in answer.responses[0].partition_responses:
                if each.error_code:
                    self._refused[error_name(each.error_code)] += 1
                else:
                    done[each.index] = now

    def _request(self, indexes: list[int]) -> ProduceRequest:
        data = [PartitionProduceData(index=index, records=self._batch) for index in indexes]
        topic = TopicProduceData(name=self._topic, partition_data=data)
        return ProduceRequest(acks=_ALL, timeout_ms=30_000, topic_data=[topic])
