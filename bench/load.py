"""The load: a raw client with nothing of its own in the way. One run, one line of JSON.

It sends the same prepared frame again and again over non-blocking sockets, keeps a number of them
in flight on each connection, reads the answers' lengths and error codes, and notes how long each
took. It says what the brokers' processes used of the CPU in the same window.

    python bench/load.py '{"mode": "produce", "targets": [["127.0.0.1", 9092, 0]], ...}'
"""

from __future__ import annotations

import json
import os
import select
import socket
import sys
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from struct import Struct
from typing import Any

from holdfast.wire.batch import Codec, Record, batches, build_batch
from holdfast.wire.errors import ErrorCode
from holdfast.wire.frame import encode_request
from holdfast.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from holdfast.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)

PRODUCE_VERSION = 7
FETCH_VERSION = 11
_I16 = Struct(">h")
_I32 = Struct(">i")
_I64 = Struct(">q")
_TICKS = os.sysconf("SC_CLK_TCK")
_STALL_S = 20.0
_REQUESTS_MIN = 20
_INBOX_BYTES = 4 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What to do. `targets`: host, port and partition of each leader."""

    mode: str
    topic: str
    targets: tuple[tuple[str, int, int], ...]
    seconds: float
    connections: int = 1
    in_flight: int = 1
    acks: int = 1
    message_bytes: int = 100
    batch_records: int = 1
    bytes_max: int = 1 << 62
    fetch_bytes: int = 1 << 20
    rate: int = 1000
    codec: str = "NONE"
    warmup_s: float = 0.2
    pids: tuple[int, ...] = ()


class Channel:
    """One connection with requests in flight."""

    def __init__(self, target: tuple[str, int, int]) -> None:
        host, port, self.partition = target
        self.socket = socket.create_connection((host, port), 5)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setblocking(False)
        self.sent_at: deque[float] = deque()
        self.unsent: deque[memoryview] = deque()
        self.inbox = bytearray(_INBOX_BYTES)
        self.filled = self.rest = 0

    def send(self, frame: bytes, now: float) -> None:
        """Put one frame on the way; what the socket doesn't take waits in `unsent`."""
        self.sent_at.append(now)
        self.unsent.append(memoryview(frame))
        if len(self.unsent) == 1:
            self.flush()

    def flush(self) -> None:
        """Send what waits, as far as the socket takes it."""
        while self.unsent:
            front = self.unsent[0]
            try:
                taken = self.socket.send(front)
            except BlockingIOError:
                return
            if taken < len(front):
                self.unsent[0] = front[taken:]
            else:
                self.unsent.popleft()

    def receive(self) -> list[memoryview]:
        """Return the whole answers that have arrived, without their length.

        They are views into the inbox, good until the next call of `keep_rest`.
        """
        view = memoryview(self.inbox)
        try:
            count = self.socket.recv_into(view[self.filled :])
        except BlockingIOError:
            return []
        if not count:
            raise ConnectionError("the broker closed the connection")
        self.filled += count
        answers = []
        start = 0
        while self.filled - start >= 4:
            (size,) = _I32.unpack_from(view, start)
            if size > _INBOX_BYTES - 4:
                raise RuntimeError(f"an answer of {size} bytes is more than was asked for")
            if self.filled - start - 4 < size:
                break
            answers.append(view[start + 4 : start + 4 + size])
            start += 4 + size
        self.rest = start
        return answers

    def keep_rest(self) -> None:
        """Move the beginning of an answer that isn't whole yet to the front."""
        if self.rest:
            rest = bytes(memoryview(self.inbox)[self.rest : self.filled])
            self.inbox[: len(rest)] = rest
            self.filled = len(rest)
            self.rest = 0


class Window:
    """The measured part of a run: opens after the warm-up, closes at the end."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.began = time.perf_counter()
        self.opens = self.began + job.warmup_s
        self.closes = self.opens + job.seconds
        self.is_open = False
        self.latencies: list[float] = []
        self.bytes = 0
        self.requests = 0
        self.records = 0
        self.progress = self.began

    def note(self, now: float, latency: float, size: int, records: int) -> None:
        """One answer has come."""
        self.progress = now
        if not self.is_open and now >= self.opens:
            self.is_open = True
            self.opened_at = now
            self.cpu = cpu_seconds(self.job.pids)
            return
        if self.is_open:
            self.requests += 1
            self.bytes += size
            self.records += records
            self.latencies.append(latency)

    def over(self, now: float) -> bool:
        """Whether the run ends now: time or bytes are used up. TimeoutError: nothing moves.

        A few answers are waited for in any case: a median of one is none.
        """
        if now - self.progress > _STALL_S:
            raise TimeoutError(f"no answer for {_STALL_S:.0f} s")
        if self.requests < _REQUESTS_MIN:
            return False
        return now >= self.closes or self.bytes >= self.job.bytes_max

    def result(self) -> dict[str, Any]:
        """What was measured."""
        assert self.requests, "a run ends after some answers"
        wall = time.perf_counter() - self.opened_at
        used = sum(cpu_seconds(self.job.pids)) - sum(self.cpu)
        ordered = sorted(self.latencies)
        return {
            "wall_s": wall,
            "requests_per_s": self.requests / wall,
            "records_per_s": self.records / wall,
            "mb_per_s": self.bytes / wall / 1e6,
            "p50_ms": at_share(ordered, 0.5) * 1e3,
            "p99_ms": at_share(ordered, 0.99) * 1e3,
            "p999_ms": at_share(ordered, 0.999) * 1e3,
            "cpu_share": used / wall,
            "cpu_ms_per_mb": used * 1e3 / (self.bytes / 1e6),
            "cpu_us_per_request": used * 1e6 / self.requests,
        }


def at_share(ordered: list[float], share: float) -> float:
    """Return the value below which `share` of the ordered values lie."""
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]


def cpu_seconds(pids: tuple[int, ...]) -> list[float]:
    """User and system time of each process."""
    times = []
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(") ")[2].split()
        times.append((int(fields[11]) + int(fields[12])) / _TICKS)
    return times


def produce_frame(job: Job, partition: int) -> bytes:
    """Return a whole Produce request with one batch for one partition."""
    now_ms = int(time.time() * 1000)
    codec = Codec[job.codec]
    size = job.message_bytes
    values = os.urandom(size * job.batch_records)
    if codec:  # to half its size, as text may be
        values = values[: (len(values) + 1) // 2].hex().encode()
    records = [
        Record(value=values[index * size : (index + 1) * size], timestamp=now_ms)
        for index in range(job.batch_records)
    ]
    request = ProduceRequest(
        acks=job.acks,
        timeout_ms=30000,
        topic_data=[
            TopicProduceData(
                name=job.topic,
                partition_data=[
                    PartitionProduceData(
                        index=partition, records=bytes(build_batch(records, codec=codec))
                    )
                ],
            )
        ],
    )
    return _framed(request, PRODUCE_VERSION)


def fetch_frame(job: Job, partition: int, offset: int, *, wait_ms: int = 500) -> bytes:
    """Return a whole Fetch request for one partition."""
    request = FetchRequest(
        replica_id=-1,
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=job.fetch_bytes,
        session_id=0,
        session_epoch=-1,
        topics=[
            FetchTopic(
                topic=job.topic,
                partitions=[
                    FetchPartition(
                        partition=partition,
                        fetch_offset=offset,
                        partition_max_bytes=job.fetch_bytes,
                    )
                ],
            )
        ],
    )
    return _framed(request, FETCH_VERSION)


def _framed(request: ProduceRequest | FetchRequest, version: int) -> bytes:
    data = encode_request(request, version, 0, "bench")
    return bytes(data)


def produce_error_at(topic: str) -> int:
    """Position of the partition's error code in an answer to Produce 7."""
    return 4 + 4 + 2 + len(topic.encode()) + 4 + 4


def fetch_records_at(topic: str) -> int:
    """Position of the records' length in an answer to Fetch 11 without aborted transactions."""
    return 4 + 4 + 2 + 4 + 4 + 2 + len(topic.encode()) + 4 + 4 + 2 + 8 + 8 + 8 + 4 + 4


def check(code: int) -> None:
    """Stop at the first refusal: a run with errors is no measurement."""
    if code:
        raise RuntimeError(f"the broker answered {ErrorCode(code).name}")


def run_produce(job: Job) -> dict[str, Any]:
    """Send the same batch over all connections as fast as the answers allow."""
    channels = _open(job)
    frames = {
        channel.partition: produce_frame(job, channel.partition) for channel in channels.values()
    }
    error_at = produce_error_at(job.topic)
    payload = job.message_bytes * job.batch_records
    poll = _poll(channels)
    window = Window(job)
    now = time.perf_counter()
    for channel in channels.values():
        for _ in range(job.in_flight):
            channel.send(frames[channel.partition], now)
    clock = time.perf_counter
    while not window.over(now):
        _arm(poll, channels)
        for descriptor, event in poll.poll(1):
            channel = channels[descriptor]
            if event & select.EPOLLOUT:
                channel.flush()
            if event & ~select.EPOLLOUT:
                answers = channel.receive()
                now = clock()
                for answer in answers:
                    check(_I16.unpack_from(answer, error_at)[0])
                    window.note(now, now - channel.sent_at.popleft(), payload, job.batch_records)
                    channel.send(frames[channel.partition], now)
                channel.keep_rest()
        now = clock()
    return window.result()


def run_fetch(job: Job) -> dict[str, Any]:
    """Read the partition from its start to its end, over and over, one fetch in flight each."""
    channels = _open(job)
    offsets = dict.fromkeys(channels, 0)
    records_at = fetch_records_at(job.topic)
    poll = _poll(channels)
    window = Window(job)
    now = time.perf_counter()
    for channel in channels.values():
        channel.send(fetch_frame(job, channel.partition, 0, wait_ms=0), now)
    while not window.over(now):
        _arm(poll, channels)
        for descriptor, event in poll.poll(1):
            channel = channels[descriptor]
            if event & select.EPOLLOUT:
                channel.flush()
            if not event & ~select.EPOLLOUT:
                continue
            for answer in channel.receive():
                now = time.perf_counter()
                check(_I16.unpack_from(answer, records_at - 34)[0])
                following = offsets[descriptor]
                for _, header in batches(answer[records_at + 4 :]):
                    following = header.next_offset
                count = following - offsets[descriptor]
                payload = count * job.message_bytes
                window.note(now, now - channel.sent_at.popleft(), payload, count)
                offsets[descriptor] = following if count else 0
                frame = fetch_frame(job, channel.partition, offsets[descriptor], wait_ms=0)
                channel.send(frame, now)
            channel.keep_rest()
        now = time.perf_counter()
    return window.result()


def run_end_to_end(job: Job) -> dict[str, Any]:
    """Produce one record at a time at a fixed rate; a waiting fetch sees it: that is the latency.

    A record is due at its time whether or not the one before was acknowledged, so that a stall is
    counted for every record that it delays.
    """
    (target,) = job.targets
    producer, consumer = Channel(target), Channel(target)
    channels = {each.socket.fileno(): each for each in (producer, consumer)}
    frame = produce_frame(job, producer.partition)
    error_at, records_at = produce_error_at(job.topic), fetch_records_at(job.topic)
    poll = _poll(channels)
    window = Window(job)
    start = window.began
    due: dict[int, float] = {}
    first = sent = following = 0
    base = -1
    consumer.send(fetch_frame(job, consumer.partition, 0), start)
    now = start
    while not window.over(now):
        while now >= start + sent / job.rate:
            producer.send(frame, now)
            due[sent] = start + sent / job.rate
            sent += 1
        wait = max(start + sent / job.rate - time.perf_counter(), 0)
        _arm(poll, channels)
        for descriptor, event in poll.poll(wait):
            channel = channels[descriptor]
            if event & select.EPOLLOUT:
                channel.flush()
            if not event & ~select.EPOLLOUT:
                continue
            for answer in channel.receive():
                now = time.perf_counter()
                channel.sent_at.popleft()
                if channel is producer:
                    check(_I16.unpack_from(answer, error_at)[0])
                    if base < 0:
                        (base,) = _I64.unpack_from(answer, error_at + 2)
                    continue
                check(_I16.unpack_from(answer, records_at - 34)[0])
                for _, header in batches(answer[records_at + 4 :]):
                    following = header.next_offset
                while first < following:
                    window.note(now, now - due.pop(first), job.message_bytes, 1)
                    first += 1
                consumer.send(fetch_frame(job, consumer.partition, following), now)
            channel.keep_rest()
        now = time.perf_counter()
    assert base <= 0, "the topic was not empty, so offsets and records don't match"
    return window.result()


def _open(job: Job) -> dict[int, Channel]:
    channels = [Channel(job.targets[index % len(job.targets)]) for index in range(job.connections)]
    return {channel.socket.fileno(): channel for channel in channels}


def _poll(channels: dict[int, Channel]) -> select.epoll:
    poll = select.epoll()
    for descriptor in channels:
        poll.register(descriptor, select.EPOLLIN)
    return poll


def _arm(poll: select.epoll, channels: dict[int, Channel]) -> None:
    """Ask for room to write only where something waits to be written."""
    for descriptor, channel in channels.items():
        wants = bool(channel.unsent)
        if wants or descriptor in _ARMED:
            poll.modify(descriptor, select.EPOLLIN | (select.EPOLLOUT if wants else 0))
            if wants:
                _ARMED.add(descriptor)
            else:
                _ARMED.discard(descriptor)


_ARMED: set[int] = set()
_MODES = {"produce": run_produce, "fetch": run_fetch, "end-to-end": run_end_to_end}


def main() -> None:
    """Run the job on the command line."""
    given = json.loads(sys.argv[1])
    given["targets"] = tuple((host, port, partition) for host, port, partition in given["targets"])
    given["pids"] = tuple(given.get("pids", ()))
    job = Job(**given)
    try:
        result = _MODES[job.mode](job)
    except (OSError, RuntimeError) as error:
        sys.exit(f"load: {error}")
    sys.stdout.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
