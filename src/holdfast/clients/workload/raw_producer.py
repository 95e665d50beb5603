"""A producer without back-offs of its own: one record a request, every answer as it came.

It measures availability where librdkafka would measure its own patience, and it is the tool for
schedules that must be exact: `RawProducer.post` returns before the answer. As a process (`python -m
holdfast.clients.workload.raw_producer --help`) it sends at a steady rate to every partition at
once. It never sends a record twice, so a refusal is certain (see `outcomes`).
"""

from __future__ import annotations

import itertools
import sys
import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import Any, TypeVar

from holdfast.clients.blocking_driver import (
    AnswerLostError,
    Driver,
    DriverError,
    NoLeaderError,
    Peer,
    UnreachableError,
    UnsupportedError,
)
from holdfast.clients.outcomes import is_certain
from holdfast.clients.workload.command import client_parser, on_stop
from holdfast.clients.workload.payload import digest_of, headers_for, value_for
from holdfast.clients.workload.recorder import Recorder
from holdfast.judge.history import Acknowledged, Refused, Send, Unknown
from holdfast.wire.batch import Record, build_batch
from holdfast.wire.errors import error_name
from holdfast.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

BY_NAME_VERSION_MAX = 12  # from 13 on a topic has no name, only an id
ACKS = {"0": 0, "1": 1, "all": -1}
POSTED_MAX = 10_000

Outcome = Acknowledged | Refused | Unknown
OutcomeT = TypeVar("OutcomeT", bound=Outcome)


@dataclass(frozen=True, slots=True)
class _Posted:
    name: str
    partition: int
    peer: Peer


class RawProducer:
    """Sends single records to partitions' leaders. For one thread."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        recorder: Recorder,
        *,
        acks: str = "all",
        timeout_ms: int = 10_000,
        size: int = 100,
        timestamp: int | None = None,
        numbers: itertools.count[int] | None = None,
    ) -> None:
        """`timeout_ms` bounds the node's wait and, half a second later, ours.

        `timestamp` is that of every record: None: the time of sending, NO_TIMESTAMP: none.
        """
        self._driver = Driver(bootstrap, recorder.process, timeout_s=timeout_ms / 1000 + 0.5)
        self.topic = topic
        self._recorder = recorder
        self._acks = acks
        self._timeout_ms = timeout_ms
        self._size = size
        self._timestamp = timestamp
        self._numbers = numbers if numbers is not None else itertools.count()
        self._posted: deque[_Posted] = deque()
        self._refresh = True

    def send(self, partition: int, key: str | None = None) -> Outcome:
        """Send one record and wait for what becomes of it."""
        assert not self._posted, "something else is in flight"
        refused = self.post(partition, key)
        return refused if refused is not None else self.take()

    def post(self, partition: int, key: str | None = None) -> Outcome | None:
        """Send one record without waiting; its outcome if it is known at once, else `take` it."""
        assert len(self._posted) < POSTED_MAX, "too much in flight"
        number = next(self._numbers)
        name = f"{self._recorder.process}:{number}"
        value = value_for(self._recorder.process, number, self._size)
        headers = headers_for(number)
        send = self._recorder.record(
            Send,
            topic=self.topic,
            partition=partition,
            id=name,
            digest=digest_of(value, headers),
            size=len(value),
            key=key,
            timestamp=self._timestamp,
        )
        self._recorder.flush()
        try:
            leader = self._driver.leader(self.topic, partition, refresh=self._refresh)
            self._refresh = False
            peer = self._driver.peer(leader)
            version = min(BY_NAME_VERSION_MAX, peer.version_of(ProduceRequest))
            record = Record(
                key=None if key is None else key.encode(),
                value=value,
                # The time of sending is that of the event, so that a changed one is seen.
                timestamp=send.wall_ms if send.timestamp is None else send.timestamp,
                headers=headers,
            )
            request = self._request(partition, record)
            peer.post(request, version=version, answered=self._acks != "0")
        except (UnreachableError, NoLeaderError, UnsupportedError) as error:
            return self._end(Refused, name, partition, **_of(error))
        except AnswerLostError as error:
            return self._end(Unknown, name, partition, **_of(error))
        if self._acks == "0":
            return self._end(Acknowledged, name, partition, offset=None)
        self._posted.append(_Posted(name, partition, peer))
        return None

    def take(self) -> Outcome:
        """Wait for the oldest record that is in flight."""
        posted = self._posted.popleft()
        name, partition = posted.name, posted.partition
        try:
            response = posted.peer.take()
        except DriverError as error:
            return self._end(Unknown, name, partition, **_of(error))
        assert isinstance(response, ProduceResponse)
        answer = response.responses[0].partition_responses[0]
        if not answer.error_code:
            return self._end(Acknowledged, name, partition, offset=answer.base_offset)
        code = answer.error_code
        word = error_name(code)
        kind: type[Refused | Unknown] = Refused if is_certain(code, word, retries=0) else Unknown
        message = answer.error_message or ""
        return self._end(kind, name, partition, error=word, message=message)

    def close(self) -> None:
        """Take what is in flight as unknown, and let go of all connections."""
        while self._posted:
            posted = self._posted.popleft()
            why = {"error": "CLOSED", "message": "not waited for"}
            self._end(Unknown, posted.name, posted.partition, **why)
        self._recorder.flush()
        self._driver.close()

    def _request(self, partition: int, record: Record) -> ProduceRequest:
        data = PartitionProduceData(index=partition, records=bytes(build_batch([record])))
        return ProduceRequest(
            acks=ACKS[self._acks],
            timeout_ms=self._timeout_ms,
            topic_data=[TopicProduceData(name=self.topic, partition_data=[data])],
        )

    def _end(self, kind: type[OutcomeT], name: str, partition: int, **values: Any) -> OutcomeT:
        """Write down what became of a record. After a failure somebody else may lead."""
        self._refresh |= kind is not Acknowledged
        outcome = self._recorder.record(
            kind, topic=self.topic, partition=partition, id=name, **values
        )
        self._recorder.flush()
        return outcome


def _of(error: DriverError) -> dict[str, str]:
    """What a history says of an error of ours."""
    return {"error": type(error).__name__, "message": str(error)}


def drive(
    producer: RawProducer,
    partition: int,
    rate: float,
    keys: int,
    stopping: threading.Event,
    broken: list[int],
) -> None:
    """Send to one partition at this rate until told to stop; a late answer delays the next send.

    Whatever ends it before stops all others, too: then the partition is among the `broken`.
    """
    begin = time.monotonic()
    sent = 0
    broken.append(partition)
    try:
        while not stopping.wait(max(0.0, begin + sent / rate - time.monotonic())):
            producer.send(partition, f"raw_{sent % keys + 1}")
            # What was missed while waiting is not caught up: an outage is one gap, not a burst.
            sent = max(sent + 1, int((time.monotonic() - begin) * rate))
        broken.remove(partition)
    finally:
        if partition in broken:
            stopping.set()
        producer.close()


def main(arguments: list[str]) -> int:
    parser = client_parser(
        "raw_producer", __doc__, process="raw", named="name in the history and in every value"
    )
    add = parser.add_argument
    add("--acks", choices=list(ACKS), default="all")
    add("--rate", type=float, default=50.0, help="records a second for each partition")
    add("--timeout-ms", type=int, default=10_000)
    add("--size", type=int, default=100)
    add(
        "--timestamp",
        type=int,
        help="of every record, in ms; -1: it carries none",
    )
    found = parser.parse_args(arguments)
    stopping = threading.Event()
    on_stop(stopping.set)
    numbers = itertools.count()
    broken: list[int] = []
    with Recorder(found.history, found.process) as recorder:
        threads = []
        for partition in range(found.partitions):
            producer = RawProducer(
                found.bootstrap_server,
                found.topic,
                recorder,
                acks=found.acks,
                timeout_ms=found.timeout_ms,
                size=found.size,
                timestamp=found.timestamp,
                numbers=numbers,
            )
            arguments_of = (producer, partition, found.rate, 5, stopping, broken)
            threads.append(threading.Thread(target=drive, args=arguments_of))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    sys.stderr.writelines(
        f"{found.topic}-{partition}: the producer broke\n" for partition in broken
    )
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
