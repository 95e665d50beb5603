"""A reader that writes down every record it receives; a process of its own.

`python -m holdfast.clients.workload.verifiable_consumer --help`. Assigns itself all partitions from
their beginning; no group, no commits. With `--until-end` it notes where each partition ends, reads
all of it, says so in the history, and ends: the read that verdicts about loss rest on. Never resets
a position silently: what the client reports becomes a `position` event.
"""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from holdfast.clients.workload.command import client_parser, on_stop
from holdfast.clients.workload.payload import digest_of, id_of
from holdfast.clients.workload.recorder import Recorder
from holdfast.judge.history import Delivered, Note, Position, ReadEnd

POLL_S = 0.05
STATISTICS_MS = 250
BATCH = 500
CREATE_TIME = "timestamps are the producers' own: a broker's is written down as one that differs"
ASK_S = 5.0
ASK_LEAST_S = 0.5  # for an answer of a slow machine, however many others are to be asked


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    bootstrap: str
    topic: str
    history: Path
    process: str
    partitions: tuple[int, ...]
    until_end: bool = False
    until_eof: bool = False
    ends: tuple[tuple[int, int], ...] = ()  # (partition, offset): read at least so far
    timeout_s: float = 60.0  # of a read to the end
    create_time: bool = False  # the topic's timestamps are its producers', so any is written down
    statistics: Path | None = None  # where to write, now and then, whom its bytes came from
    config: tuple[tuple[str, str], ...] = ()

    def client_config(self) -> dict[str, Any]:
        values: dict[str, Any] = {
            "bootstrap.servers": self.bootstrap,
            "client.id": self.process,
            "group.id": self.process,  # librdkafka asks for one; it is never used
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            "check.crcs": True,
            "fetch.wait.max.ms": 100,
            "topic.metadata.refresh.interval.ms": 1000,
        }
        if self.statistics is not None:
            values["statistics.interval.ms"] = STATISTICS_MS
        values.update(self.config)
        return values


def _append_statistics(path: Path, text: str) -> None:
    """Append a line: how many bytes have come from each broker since the beginning."""
    brokers = json.loads(text)["brokers"].values()
    received = {b["nodeid"]: b["rxbytes"] for b in brokers if b["nodeid"] >= 0}
    row = {"at_ms": time.monotonic() * 1000, "received": received}
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")


class VerifiableConsumer:
    """Reads by assignment until stopped, or to the end."""

    def __init__(self, options: Options, recorder: Recorder) -> None:
        import confluent_kafka  # noqa: PLC0415 - `Options` is for the lab, cheaply

        self._kafka = confluent_kafka
        self._options = options
        self._recorder = recorder
        config = options.client_config()
        if options.statistics is not None:
            config["stats_cb"] = partial(_append_statistics, options.statistics)
        self._consumer = confluent_kafka.Consumer(config, logger=None)
        # Of partitions that are still to be read: begin, end, and when these were asked for.
        self._ends: dict[int, tuple[int, int, float]] = {}
        self._next: dict[int, int] = {}
        self._at_eof: set[int] = set()
        # Partitions whose position the cluster no longer knows; asked last, last in order.
        self._lost: dict[int, None] = {}
        self._untold: list[int] = []  # partitions of which the cluster never said where they end
        self._stopping = False

    def stop(self) -> None:
        self._stopping = True

    def run(self) -> bool:
        """Read. False: where to begin was not told in time, or the end was not reached."""
        options = self._options
        deadline = time.monotonic() + options.timeout_s
        self._begin(deadline)
        done = False
        while not self._stopping:
            messages = self._consumer.consume(BATCH, POLL_S)
            for message in messages:
                self._received(message)
            # To ask takes its time: a read to the end reads the other partitions first.
            if self._lost and not (options.until_end and messages):
                self._find_positions(time.monotonic() + (ASK_LEAST_S if messages else ASK_S))
            self._recorder.flush()
            if self._untold and not options.until_end and time.monotonic() >= deadline:
                return False
            if options.until_end or options.until_eof:
                at_eof = self._at_eof >= self._next.keys()
                done = self._all_read() if options.until_end else at_eof
                if done or time.monotonic() >= deadline:
                    break
        self._tell_untold()
        return (done and not self._untold) or not (options.until_end or options.until_eof)

    def _tell_untold(self) -> None:
        """Say of which partitions it read nothing, for it was stopped before it could."""
        if self._untold:
            where = ", ".join(f"{self._options.topic}-{partition}" for partition in self._untold)
            text = f"{self._options.process} ends before it is told where {where} begins"
            self._recorder.record(Note, text=text)
            self._recorder.flush()

    def _begin(self, deadline: float) -> None:
        """Find where each partition begins.

        A read to the end asks those that have not told in turn, for half of its time. Of who tells
        nothing no end is ever said; the others are read all the same, for what is lost there must
        not stay unseen. Who reads on asks each again while it reads the others.
        """
        silent = list(self._options.partitions)
        if self._options.until_end:
            last = (time.monotonic() + deadline) / 2
            while silent and not self._stopping and time.monotonic() < last:
                silent = self._ask_begins(silent, last)
        else:
            silent = self._ask_begins(silent, min(time.monotonic() + ASK_S, deadline))
            self._lost.update(dict.fromkeys(silent))
            self._next.update(dict.fromkeys(silent, 0))
        self._untold = silent
        self._recorder.flush()
        self._assign()

    def _ask_begins(self, partitions: list[int], last: float) -> list[int]:
        """Ask each once, until then, where it begins; return which have not told."""
        silent = []
        for number, partition in enumerate(partitions):
            share_s = max(0.0, last - time.monotonic()) / (len(partitions) - number)
            if not self._has_begun(partition, time.monotonic() + share_s):
                silent.append(partition)
        return silent

    def _has_begun(self, partition: int, deadline: float) -> bool:
        """Whether it is known where to begin. Under min ISR the end is asked for only if needed."""
        begin = 0
        if not self._options.until_eof:
            ends = self._ask_ends(partition, deadline)
            if ends is None:
                return False
            self._ends[partition] = ends
            begin = ends[0]
        self._next[partition] = begin
        # Where it begins was asked for, but for a read to wherever there is no more.
        told = not self._options.until_eof
        self._position(partition, begin, "beginning", told=told)
        return True

    def _assign(self) -> None:
        places = [self._at(*place) for place in self._next.items() if place[0] not in self._lost]
        self._consumer.assign(places)

    def _ask_ends(self, partition: int, deadline: float) -> tuple[int, int, float] | None:
        """Where a partition begins and ends (the high watermark); None: not told in time.

        The third is when that was asked for: what is acknowledged from then on may be missing.
        """
        at = self._kafka.TopicPartition(self._options.topic, partition)
        wanted = dict(self._options.ends).get(partition, 0)
        while not self._stopping and (left_s := deadline - time.monotonic()) > 0:
            asked_ms = time.monotonic_ns() // 1000 / 1000  # as the events have it
            try:
                low, high = self._consumer.get_watermark_offsets(
                    at, timeout=min(max(left_s, ASK_LEAST_S), ASK_S)
                )
            except self._kafka.KafkaException:
                self._consumer.poll(POLL_S)
                continue
            if high >= wanted:
                return int(low), int(high), asked_ms
            self._consumer.poll(POLL_S)  # what is not committed yet can't be read yet
        return None

    def _at(self, partition: int, offset: int) -> Any:
        return self._kafka.TopicPartition(self._options.topic, partition, offset)

    def _received(self, message: Any) -> None:
        error = message.error()
        if error is not None:
            self._told(message.partition(), message.offset(), error)
            return
        value = message.value()
        key = message.key()
        offset = message.offset()
        epoch = message.leader_epoch()
        kind, timestamp = message.timestamp()
        is_brokers = kind == self._kafka.TIMESTAMP_LOG_APPEND_TIME
        self._next[message.partition()] = offset + 1
        self._recorder.record(
            Delivered,
            topic=self._options.topic,
            partition=message.partition(),
            offset=offset,
            id=id_of(value),
            digest=digest_of(value, message.headers() or ()),
            key=None if key is None else key.decode(errors="replace"),
            timestamp=None if is_brokers and not self._options.create_time else timestamp,
            epoch=epoch if epoch is not None and epoch >= 0 else None,
        )

    def _told(self, partition: int, offset: int | None, error: Any) -> None:
        """End of partition: how far we are, holes included. Position lost: say so, go on."""
        kafka_error = self._kafka.KafkaError
        code = error.code()
        if code == kafka_error._PARTITION_EOF:  # noqa: SLF001 - that is its public name
            self._at_eof.add(partition)
            if offset is not None and offset >= 0:
                self._next[partition] = max(self._next[partition], offset)
        elif code in (kafka_error._AUTO_OFFSET_RESET, kafka_error._LOG_TRUNCATION):  # noqa: SLF001
            self._recorder.record(Note, text=f"{self._options.process} was told: {error.str()}")
            self._lost[partition] = None

    def _find_positions(self, deadline: float) -> None:
        """Go on as near as can be to where we were, where the cluster has lost our position.

        Who does not tell is asked again after the next messages, behind the others, and keeps no
        other from going on.
        """
        lost = list(self._lost)
        for number, partition in enumerate(lost):
            left_s = deadline - time.monotonic()
            if number and left_s <= 0:
                break
            del self._lost[partition]
            ends = self._ask_ends(partition, time.monotonic() + left_s / (len(lost) - number))
            if ends is None:
                self._lost[partition] = None
                continue
            here = min(max(self._next[partition], ends[0]), ends[1])
            self._next[partition] = here
            reason = "beginning" if partition in self._untold else "position lost"
            self._position(partition, here, reason, told=True)
            self._untold = [each for each in self._untold if each != partition]
            if partition in self._ends:
                # What is gone by now is no part of the read any more.
                _, end, asked_ms = self._ends[partition]
                self._ends[partition] = (min(here, end), end, asked_ms)
        if len(self._lost) < len(lost):
            self._assign()

    def _position(self, partition: int, offset: int, reason: str, *, told: bool) -> None:
        self._recorder.record(
            Position,
            topic=self._options.topic,
            partition=partition,
            offset=offset,
            reason=reason,
            told=told,
        )

    def _all_read(self) -> bool:
        """Say of each partition that is read to its end that it is; True once all are."""
        for partition, (begin, end, asked_ms) in list(self._ends.items()):
            if self._next[partition] >= end:
                self._recorder.record(
                    ReadEnd,
                    topic=self._options.topic,
                    partition=partition,
                    begin=begin,
                    end=end,
                    asked_ms=asked_ms,
                )
                del self._ends[partition]
        self._recorder.flush()
        return not self._ends


def parse(arguments: list[str]) -> Options:
    parser = client_parser("verifiable_consumer", __doc__, process="consumer")
    add = parser.add_argument
    add("--partition", type=int, action="append", help="read this one only; may be repeated")
    add("--until-end", action="store_true", help="read to the present end, say so, and stop")
    add(
        "--end",
        action="append",
        default=[],
        metavar="PARTITION:OFFSET",
        help="the end is not before this; wait for it",
    )
    add("--until-eof", action="store_true", help="stop where there is no more; says no end")
    add("--timeout", dest="timeout_s", type=float, default=60.0, help="seconds for that")
    add("--create-time", action="store_true", help=CREATE_TIME)
    add("--statistics", type=Path, help="file of JSON lines: bytes received, by broker")
    add("--config", action="append", default=[], metavar="KEY=VALUE", help="for librdkafka")
    found = parser.parse_args(arguments)
    return Options(
        bootstrap=found.bootstrap_server,
        topic=found.topic,
        history=found.history,
        process=found.process,
        partitions=tuple(found.partition or range(found.partitions)),
        until_end=found.until_end,
        until_eof=found.until_eof,
        ends=tuple(
            (int(partition), int(offset))
            for partition, _, offset in (item.partition(":") for item in found.end)
        ),
        timeout_s=found.timeout_s,
        create_time=found.create_time,
        statistics=found.statistics,
        config=tuple(
            (key, value) for key, _, value in (item.partition("=") for item in found.config)
        ),
    )


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    with Recorder(options.history, options.process) as recorder:
        consumer = VerifiableConsumer(options, recorder)
        on_stop(consumer.stop)
        if consumer.run():
            return 0
    sys.stderr.write(f"{options.process}: the end was not reached in {options.timeout_s:g} s\n")
    return 1


if __name__ == "__main__":
    STATUS = main(sys.argv[1:])
    # What it has read is written. There is no group to leave, and librdkafka's way of closing was
    # seen to take for ever behind elections, with all brokers alive.
    sys.stderr.flush()
    os._exit(STATUS)
