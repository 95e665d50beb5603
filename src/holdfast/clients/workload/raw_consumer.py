"""A reader that believes nothing: it fetches by hand and notes the high watermark it was told.

librdkafka shows records, not the watermark that stood in the same answer; with it the judge can
say whether a record was handed out before it was committed. (Apache Kafka's brokers take that
watermark before they read: there the next answer of the same leader epoch bounds what was read.)
One thread a partition, from the beginning; a position that the cluster no longer knows becomes a
`position` event. A process of its own: `python -m holdfast.clients.workload.raw_consumer --help`.
"""

from __future__ import annotations

import sys
import threading

from msgspec.structs import replace

from holdfast.clients.blocking_driver import Driver, DriverError, Peer
from holdfast.clients.workload.command import client_parser, on_stop
from holdfast.clients.workload.payload import digest_of, id_of
from holdfast.clients.workload.recorder import Recorder
from holdfast.clients.workload.verifiable_consumer import CREATE_TIME
from holdfast.judge.history import Delivered, Position
from holdfast.wire.batch import BatchHeader, batches, crc_matches, read_records
from holdfast.wire.errors import ErrorCode, WireError
from holdfast.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from holdfast.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from holdfast.wire.messages.metadata import MetadataResponsePartition
from holdfast.wire.well_known import EARLIEST, LATEST

BY_NAME_VERSION_MAX = 12  # from 13 on a topic has no name, only an id
EPOCH_VERSION_MIN = 9  # from here on a request names the leader epoch that it means
WAIT_MS = 200
PARTITION_BYTES = 1 << 20
RETRY_S = 0.02  # after a refusal: often enough to see everything, not a busy loop
TIMEOUT_S = 3.0


class RawConsumer:
    """Reads one partition. For one thread."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        partition: int,
        recorder: Recorder,
        *,
        create_time: bool = False,
        early_watermark: bool = False,
    ) -> None:
        """`create_time`: the topic's timestamps are its producers', so any is written down.

        `early_watermark`: brokers note the high watermark that they answer with before they read,
        up to a newer one if there is one by then (Apache Kafka's `Partition.readRecords`). A leader
        takes none back in its epoch, so what the next answer of that epoch names was to be had.
        """
        self._driver = Driver(bootstrap, recorder.process, timeout_s=TIMEOUT_S)
        self._topic = topic
        self._partition = partition
        self._recorder = recorder
        self._create_time = create_time
        self._early_watermark = early_watermark
        self._next = 0
        self._leader: MetadataResponsePartition | None = None  # None: to be asked for
        self._unbounded: list[Delivered] = []  # read, and not written down before the next answer
        self.failure: str | None = None

    def run(self, stopping: threading.Event) -> None:
        """Read until told to stop. Whatever ends it before stops all readers: see `failure`."""
        self._position("beginning", told=False)
        why = "the reader broke"
        try:
            while not stopping.is_set():
                if not self._fetch():
                    stopping.wait(RETRY_S)
                self._recorder.flush()
            why = ""
        except WireError as error:  # bytes that are no records
            why = str(error)
        finally:
            self._write_down(None)
            if why:
                self.failure = f"{self._topic}-{self._partition} at offset {self._next}: {why}"
                stopping.set()
            self._driver.close()

    def _fetch(self) -> bool:
        """Ask once. False: nothing came of it."""
        try:
            leader = self._leader = self._leader or self._who_leads()
            peer = self._driver.peer(leader.leader_id)
            version = min(BY_NAME_VERSION_MAX, peer.version_of(FetchRequest))
            response = peer.send(self._request(leader.leader_epoch), version=version)
            assert isinstance(response, FetchResponse)
            answer = response.responses[0].partitions[0]
            if answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE and answer.log_start_offset < 0:
                # Apache Kafka does not say then what there is.
                answer.log_start_offset = self._offset_at(peer, EARLIEST)
                answer.high_watermark = self._offset_at(peer, LATEST)
        except DriverError:
            self._start_over()
            return False
        is_good = self._received(answer)
        if version < EPOCH_VERSION_MIN or leader.leader_epoch < 0:
            self._write_down(None)  # no epoch was checked: the next answer may be another's
        return is_good

    def _who_leads(self) -> MetadataResponsePartition:
        """Ask the cluster. DriverError: it does not answer, or names nobody."""
        for topic in self._driver.metadata([self._topic]).topics:
            for one in topic.partitions:
                if one.partition_index == self._partition and one.leader_id >= 0:
                    return one
        raise DriverError(f"nobody leads {self._topic}-{self._partition}")

    def _start_over(self) -> None:
        """Ask who leads, next time: another epoch's high watermark bounds nothing read in this."""
        self._leader = None
        self._write_down(None)

    def _offset_at(self, peer: Peer, timestamp: int) -> int:
        """Return where the log begins or ends; -1: this broker does not say. DriverError."""
        partition = ListOffsetsPartition(partition_index=self._partition, timestamp=timestamp)
        topic = ListOffsetsTopic(name=self._topic, partitions=[partition])
        answer = peer.send(ListOffsetsRequest(topics=[topic]))
        assert isinstance(answer, ListOffsetsResponse)
        found = answer.topics[0].partitions[0]
        return -1 if found.error_code else found.offset

    def _request(self, leader_epoch: int) -> FetchRequest:
        partition = FetchPartition(
            partition=self._partition,
            current_leader_epoch=leader_epoch,  # so the answer is of this one, or a refusal
            fetch_offset=self._next,
            partition_max_bytes=PARTITION_BYTES,
        )
        return FetchRequest(
            max_wait_ms=WAIT_MS,
            min_bytes=1,
            topics=[FetchTopic(topic=self._topic, partitions=[partition])],
        )

    def _received(self, answer: PartitionData) -> bool:
        if answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            # The end is the nearest place that there is; the watermark may be unknown (-1).
            self._next = max(answer.log_start_offset, min(self._next, answer.high_watermark), 0)
            self._write_down(None)
            self._position("OFFSET_OUT_OF_RANGE", told=True)
            return False
        if answer.error_code:
            self._start_over()
            return False
        self._write_down(answer.high_watermark)
        view = memoryview(answer.records or b"")
        for at, header in batches(view):
            if not crc_matches(view, at):
                raise WireError("wrong CRC")
            if not header.is_control:
                self._deliver(view[at:], header)
            self._next = max(self._next, header.base_offset + header.last_offset_delta + 1)
        if not self._early_watermark:
            self._write_down(answer.high_watermark)
        return True

    def _write_down(self, committed_end: int | None) -> None:
        """Keep what was read and awaits it, with the first offset that was not committed then."""
        for each in self._unbounded:
            self._recorder.keep(replace(each, committed_end=committed_end))
        self._unbounded.clear()

    def _deliver(self, batch: memoryview, header: BatchHeader) -> None:
        for record in read_records(batch):
            if record.offset < self._next:
                continue  # a batch is sent whole, though it begins before the offset asked for
            read = self._recorder.event(
                Delivered,
                topic=self._topic,
                partition=self._partition,
                offset=record.offset,
                id=id_of(record.value),
                digest=digest_of(record.value, record.headers),
                key=None if record.key is None else record.key.decode(errors="replace"),
                timestamp=self._timestamp(header, record.timestamp),
                epoch=header.leader_epoch,
            )
            self._unbounded.append(read)

    def _timestamp(self, header: BatchHeader, of_record: int) -> int | None:
        """Return a record's timestamp as any reader is told it; None: it is a broker's own."""
        if not header.is_log_append_time:
            return of_record
        return header.max_timestamp if self._create_time else None

    def _position(self, reason: str, *, told: bool) -> None:
        self._recorder.record(
            Position,
            topic=self._topic,
            partition=self._partition,
            offset=self._next,
            reason=reason,
            told=told,
        )


def main(arguments: list[str]) -> int:
    parser = client_parser("raw_consumer", __doc__, process="raw-reader")
    parser.add_argument("--create-time", action="store_true", help=CREATE_TIME)
    parser.add_argument(
        "--early-watermark",
        action="store_true",
        help="an answer's high watermark may be older than its records, as Apache Kafka's",
    )
    found = parser.parse_args(arguments)
    stopping = threading.Event()
    on_stop(stopping.set)
    with Recorder(found.history, found.process) as recorder:
        readers = [
            RawConsumer(
                found.bootstrap_server,
                found.topic,
                partition,
                recorder,
                create_time=found.create_time,
                early_watermark=found.early_watermark,
            )
            for partition in range(found.partitions)
        ]
        threads = [threading.Thread(target=reader.run, args=(stopping,)) for reader in readers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    failures = [reader.failure for reader in readers if reader.failure]
    sys.stderr.writelines(f"{failure}\n" for failure in failures)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
