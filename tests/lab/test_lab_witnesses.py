"""Goal: what a client can't learn of one partition hides nothing of another one, nor its own end;
and a timestamp is a broker's only where the topic says so.

Method: the real clients on connections made up here, whose partitions fall silent, on a clock of
their own. Seen to fail: with a question that takes longer than its share of the time, with a lost
position that is asked for until all time is over, with a client whose end nobody is told of,
and with a broker's timestamp that is believed wherever it comes from.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.clients.blocking_driver import AnswerLostError
from holdfast.clients.workload import verifiable_consumer
from holdfast.clients.workload.raw_consumer import RawConsumer
from holdfast.clients.workload.raw_producer import drive
from holdfast.clients.workload.recorder import Recorder
from holdfast.clients.workload.verifiable_consumer import Options, VerifiableConsumer
from holdfast.judge.history import Delivered, Event, Note, Position, ReadEnd, read_events
from holdfast.lab.run import RAW_READER, Run
from holdfast.lab.workload_processes import Process
from holdfast.wire.batch import Record, build_batch
from holdfast.wire.batch_header import assign_log_append_time
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from holdfast.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from holdfast.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from holdfast.wire.well_known import EARLIEST, LATEST

CREATED, APPENDED = 1, 2  # whose a timestamp is, as librdkafka says it
Answer = tuple[int, PartitionData | None]  # the leader epoch, and what its leader says
RESET = -140  # librdkafka's _AUTO_OFFSET_RESET: the cluster does not know the position


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def monotonic(self) -> float:
        return self.now_s

    def monotonic_ns(self) -> int:
        return int(self.now_s * 1e9)


@dataclass
class Message:
    """What librdkafka hands out: a record, or what became of a position."""

    number: int
    at: int
    code: int | None = None
    stamp: tuple[int, int] = (CREATED, 0)

    def partition(self) -> int:
        return self.number

    def offset(self) -> int:
        return self.at

    def error(self) -> Any:
        code = self.code
        if code is None:
            return None
        return SimpleNamespace(code=lambda: code, str=lambda: "the position is lost")

    def value(self) -> bytes:
        return f"p:{self.at} ".encode()

    def key(self) -> None:
        return None

    def headers(self) -> None:
        return None

    def leader_epoch(self) -> int:
        return 0

    def timestamp(self) -> tuple[int, int]:
        return self.stamp


@dataclass
class Client:
    """A client of partitions with so many records each; the silent ones answer no question."""

    clock: Clock
    records: Mapping[int, int]
    silent: set[int]
    stamp: tuple[int, int] = (CREATED, 0)
    lost: set[int] = field(default_factory=set)  # whose position is not there when it is read
    place: dict[int, int] = field(default_factory=dict)

    def get_watermark_offsets(self, at: Any, timeout: float) -> tuple[int, int]:
        import confluent_kafka  # noqa: PLC0415 - slow

        if at.partition in self.silent:
            self.clock.now_s += timeout
            raise confluent_kafka.KafkaException(SimpleNamespace())
        self.clock.now_s += 0.01
        return 0, self.records[at.partition]

    def poll(self, timeout: float) -> None:
        self.clock.now_s += timeout

    def assign(self, places: list[Any]) -> None:
        self.place = {at.partition: at.offset for at in places}

    def consume(self, _count: int, timeout: float) -> list[Message]:
        """Give one record of each partition, or say that its position is lost."""
        self.clock.now_s += timeout
        told = []
        for number, offset in sorted(self.place.items()):
            if number in self.lost:
                told.append(Message(number, offset, RESET))
                del self.place[number]
            elif offset < self.records[number]:
                told.append(Message(number, offset, stamp=self.stamp))
                self.place[number] += 1
        return told


def read(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    client: Client,
    *,
    create_time: bool = False,
    until_end: bool = True,
) -> tuple[bool, list[Event]]:
    """Let a reader read to the end; return whether it got there, and what it wrote down."""
    monkeypatch.setattr("confluent_kafka.Consumer", lambda *_, **__: client)
    monkeypatch.setattr(verifiable_consumer, "time", client.clock)
    options = Options(
        bootstrap="nowhere:1",
        topic="foo",
        history=tmp_path / "end.jsonl",
        process="end",
        partitions=tuple(client.records),
        until_end=until_end,
        timeout_s=40.0,
        create_time=create_time,
    )
    with Recorder(options.history, "end") as recorder:
        done = VerifiableConsumer(options, recorder).run()
    with options.history.open("rb") as file:
        return done, list(read_events(file))


def read_to_end(events: list[Event]) -> dict[int, int]:
    return {each.partition: each.end for each in events if isinstance(each, ReadEnd)}


def test_partitions_that_do_not_tell_their_ends_hide_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    client = Client(clock, dict.fromkeys(range(12), 3), silent=set(range(10)))
    done, events = read(tmp_path, monkeypatch, client)
    assert not done
    assert read_to_end(events) == {10: 3, 11: 3}
    assert clock.now_s < 100 + 45


def test_a_position_that_is_lost_for_good_hides_no_other_partition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first two fall silent when their positions are lost; the third's is found again."""
    client = Client(Clock(), {0: 9, 1: 9, 2: 9, 3: 300}, silent=set())
    consume = client.consume

    def consume_then_lose(count: int, timeout: float) -> list[Message]:
        told = consume(count, timeout)
        if client.place.get(0) == 4:
            client.lost, client.silent = {0, 1, 2}, {0, 1}
        elif client.silent:
            client.lost = {0, 1}
        return told

    monkeypatch.setattr(client, "consume", consume_then_lose)
    done, events = read(tmp_path, monkeypatch, client)
    assert not done
    assert read_to_end(events) == {2: 9, 3: 300}
    places = [(each.partition, each.offset) for each in events if isinstance(each, Position)]
    assert places[4:] == [(2, 4)]
    got = [each.offset for each in events if isinstance(each, Delivered) and each.partition == 2]
    assert got == list(range(9))


def make_reader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, client: Client, *, until_end: bool
) -> tuple[VerifiableConsumer, Callable[[], list[Event]]]:
    """Return a reader of two partitions, and what returns all that it has written down."""
    monkeypatch.setattr("confluent_kafka.Consumer", lambda *_, **__: client)
    monkeypatch.setattr(verifiable_consumer, "time", client.clock)
    history = tmp_path / "reader.jsonl"
    options = Options(
        bootstrap="nowhere:1",
        topic="foo",
        history=history,
        process="reader",
        partitions=(0, 1),
        until_end=until_end,
    )
    recorder = Recorder(history, "reader")

    def events() -> list[Event]:
        recorder.close()
        with history.open("rb") as file:
            return list(read_events(file))

    return VerifiableConsumer(options, recorder), events


@pytest.mark.parametrize(("until_end", "well"), [(False, True), (True, False)])
def test_a_reader_that_is_stopped_before_it_knows_where_to_begin_has_not_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, until_end: bool, well: bool
) -> None:
    """Goal: a run that ends early is judged by what was read; only who was to reach an end failed.

    Seen to fail: "the end was not reached in 60 s" of a reader that has none, and no verdict.
    """
    client = Client(Clock(), {0: 3, 1: 3}, silent={1})
    reader, written = make_reader(tmp_path, monkeypatch, client, until_end=until_end)
    monkeypatch.setattr(client, "poll", lambda _timeout: reader.stop())
    assert reader.run() is well
    events = written()
    assert [each.partition for each in events if isinstance(each, Position)] == [0]
    assert [each.text for each in events if isinstance(each, Note)] == [
        "reader ends before it is told where foo-1 begins"
    ]


def test_a_partition_that_does_not_tell_where_it_begins_hides_no_other_from_who_reads_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen to fail: nothing at all was read for a minute, and a run was kept by what came last."""
    client = Client(Clock(), {0: 3, 1: 2}, silent={1})
    reader, written = make_reader(tmp_path, monkeypatch, client, until_end=False)
    consume = client.consume

    def read(count: int, timeout: float) -> list[Message]:
        told = consume(count, timeout)
        if client.place[0] == 3:
            client.silent.clear()
        if client.place.get(1) == 2:
            reader.stop()
        return told

    monkeypatch.setattr(client, "consume", read)
    assert reader.run()
    events = written()
    got = [(each.partition, each.offset) for each in events if isinstance(each, Delivered)]
    assert got == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)]
    places = [(each.partition, each.reason) for each in events if isinstance(each, Position)]
    assert places == [(0, "beginning"), (1, "beginning")]
    assert not [each for each in events if isinstance(each, Note)]


def test_of_several_that_do_not_tell_each_is_asked_while_others_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen to fail: there was time for one question a turn, and it went to the same one always."""
    client = Client(Clock(), {0: 10**6, 1: 1}, silent={1, 2})
    reader, written = make_reader(tmp_path, monkeypatch, client, until_end=False)
    reader._options = replace(reader._options, partitions=(0, 1, 2))
    client.records = {**client.records, 2: 1}
    consume = client.consume

    def read(count: int, timeout: float) -> list[Message]:
        if client.clock.now_s > 120:
            client.silent = {1}
        if client.clock.now_s > 150 or client.place.get(2) == 1:
            reader.stop()
        return consume(count, timeout)

    monkeypatch.setattr(client, "consume", read)
    assert reader.run()
    assert {each.partition for each in written() if isinstance(each, Delivered)} == {0, 2}


def test_a_reader_that_is_never_told_where_to_begin_has_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = Client(Clock(), {0: 3, 1: 3}, silent={1})
    done, events = read(tmp_path, monkeypatch, client, until_end=False)
    assert not done
    assert [each.partition for each in events if isinstance(each, Delivered)] == [0, 0, 0]


@pytest.mark.parametrize(
    ("kind", "create_time", "told"),
    [(CREATED, True, 7), (CREATED, False, 7), (APPENDED, True, 7), (APPENDED, False, None)],
)
def test_a_brokers_timestamp_is_left_out_only_where_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: int, create_time: bool, told: int | None
) -> None:
    client = Client(Clock(), {0: 1}, silent=set(), stamp=(kind, 7))
    _, events = read(tmp_path, monkeypatch, client, create_time=create_time)
    assert [each.timestamp for each in events if isinstance(each, Delivered)] == [told]
    batch = build_batch([Record(value=b"p:0 ", timestamp=7 if kind == CREATED else 5)])
    if kind == APPENDED:
        assign_log_append_time(batch, 7)
    answer = PartitionData(partition_index=0, error_code=0, high_watermark=1, records=bytes(batch))
    (raw,) = read_raw(tmp_path, [(1, answer)], create_time=create_time)
    assert isinstance(raw, Delivered)
    assert raw.timestamp == told


def read_raw(path: Path, answers: Sequence[Answer], **options: bool) -> list[Event]:
    """Let a raw reader ask once an answer, each in the leader epoch that it names; -1: unknown."""
    epoch, answer = answers[0]

    def send(request: FetchRequest, *, version: int) -> FetchResponse:
        assert version == 12
        assert request.topics[0].partitions[0].current_leader_epoch == epoch
        if answer is None:
            raise AnswerLostError
        return FetchResponse(responses=[FetchableTopicResponse(partitions=[answer])])

    history = path / "raw.jsonl"
    with Recorder(history, "raw") as recorder:
        reader = RawConsumer("nowhere:1", "foo", 0, recorder, **options)
        reader._driver = led_by(SimpleNamespace(send=send, version_of=lambda _: 12), lambda: epoch)
        for epoch, answer in answers:  # noqa: B007 - `send` and `led_by` read them
            reader._fetch()
        reader._write_down(None)  # as at its end
    with history.open("rb") as file:
        return list(read_events(file))


def led_by(peer: object, epoch: Callable[[], int] = lambda: 0) -> Any:
    """Return what asks a cluster of one broker."""

    def metadata(_topics: Sequence[str]) -> MetadataResponse:
        led = MetadataResponsePartition(leader_id=1, leader_epoch=epoch())
        return MetadataResponse(topics=[MetadataResponseTopic(name="foo", partitions=[led])])

    return SimpleNamespace(metadata=metadata, peer=lambda _: peer, close=lambda: None)


RECORDS = PartitionData(
    high_watermark=0, records=bytes(build_batch([Record(value=b"p:0 "), Record(value=b"p:1 ")]))
)
REFUSED = PartitionData(error_code=ErrorCode.FENCED_LEADER_EPOCH)
OUT = PartitionData(error_code=ErrorCode.OFFSET_OUT_OF_RANGE, high_watermark=9, log_start_offset=9)


def committed(end: int) -> PartitionData:
    return PartitionData(high_watermark=end)


@pytest.mark.parametrize(
    ("answers", "bound"),
    [
        ([(4, RECORDS), (4, committed(1))], 1),
        ([(4, RECORDS), (4, committed(2)), (4, committed(3))], 2),
        ([(4, RECORDS)], None),
        ([(4, RECORDS), (4, None), (4, committed(2))], None),
        ([(4, RECORDS), (4, REFUSED), (5, committed(2))], None),
        ([(4, RECORDS), (4, OUT), (4, committed(2))], None),
        ([(-1, RECORDS), (-1, committed(2))], None),
    ],
)
def test_the_next_answer_of_a_leader_epoch_bounds_what_was_read_where_a_watermark_is_early(
    tmp_path: Path, answers: list[Answer], bound: int | None
) -> None:
    """Seen to fail: with what an answer names beside its records, and with another epoch's."""
    events = read_raw(tmp_path, answers, early_watermark=True)
    given = [each for each in events if isinstance(each, Delivered)]
    assert events[: len(given)] == given  # before the position that a refusal tells
    assert [each.committed_end for each in given] == [bound, bound]


def test_an_answers_own_watermark_bounds_what_was_read_where_it_is_not_early(
    tmp_path: Path,
) -> None:
    events = read_raw(tmp_path, [(4, RECORDS), (4, committed(2))])
    assert [each.committed_end for each in events if isinstance(each, Delivered)] == [0, 0]


@pytest.mark.parametrize(("at", "goes_to"), [(0, 40), (50, 50), (99, 60)])
def test_a_raw_reader_asks_where_the_log_is_if_the_refusal_does_not_say(
    tmp_path: Path, at: int, goes_to: int
) -> None:
    """Seen to fail: on Apache Kafka it went to 0 for ever, and read nothing any more."""
    ends = {EARLIEST: 40, LATEST: 60}

    def send(request: Any, **_version: int) -> Any:
        if isinstance(request, ListOffsetsRequest):
            (asked,) = request.topics[0].partitions
            told = ListOffsetsPartitionResponse(offset=ends[asked.timestamp])
            return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(partitions=[told])])
        refusal = PartitionData(
            error_code=ErrorCode.OFFSET_OUT_OF_RANGE, high_watermark=-1, log_start_offset=-1
        )
        return FetchResponse(responses=[FetchableTopicResponse(partitions=[refusal])])

    peer = SimpleNamespace(send=send, version_of=lambda _request: 12)
    with Recorder(tmp_path / "raw.jsonl", "raw") as recorder:
        reader = RawConsumer("nowhere:1", "foo", 0, recorder)
        reader._driver = led_by(peer)
        reader._next = at
        assert not reader._fetch()
    with (tmp_path / "raw.jsonl").open("rb") as file:
        (position,) = read_events(file)
    assert isinstance(position, Position)
    assert (position.offset, position.told) == (goes_to, True)


def test_a_runs_readers_are_told_whose_timestamps_they_read_and_what_a_watermark_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: dict[str, Mapping[str, object]] = {}
    monkeypatch.setattr(
        Run, "start_client", lambda _, name, _module, flags, *_rest: told.update({name: flags})
    )
    run: Any = object.__new__(Run)
    run.topic = "foo"
    run.parameters = SimpleNamespace(early_watermark=True)
    run.allowed = SimpleNamespace(has_create_time=lambda topic: topic == "foo")
    run.start_reader("a", until_end=True)
    run.start_reader("b", topic="appended")
    run.start_readers(statistics="c")
    run.start_reader("raw-beside", module=RAW_READER)
    own = {"create_time": True}
    given = {
        name: {k: v for k, v in flags.items() if v is not False} for name, flags in told.items()
    }
    assert given == {
        "a": {"until_end": True, **own},
        "b": {"topic": "appended"},
        "consumer": {"statistics": "c", **own},
        "raw-reader": {"early_watermark": True, **own},
        "raw-beside": {"early_watermark": True, **own},
    }


def test_a_raw_reader_that_breaks_says_so_and_stops_the_others(tmp_path: Path) -> None:
    """Method: an answer that lacks the partition that was asked for."""
    stopping = threading.Event()
    peer = SimpleNamespace(
        version_of=lambda _: 12, send=lambda *_, **__: FetchResponse(responses=[])
    )
    with Recorder(tmp_path / "raw.jsonl", "raw") as recorder:
        reader = RawConsumer("nowhere:1", "foo", 0, recorder)
        reader._driver = led_by(peer)
        with pytest.raises(IndexError):
            reader.run(stopping)
    assert stopping.is_set()
    assert reader.failure is not None
    assert "foo-0" in reader.failure


def test_a_raw_producer_that_breaks_says_so_and_stops_the_others() -> None:
    stopping, broken, closed = threading.Event(), [7], []

    def send(_partition: int, _key: str) -> None:
        raise IndexError

    producer: Any = SimpleNamespace(send=send, close=lambda: closed.append(True))
    with pytest.raises(IndexError):
        drive(producer, 1, 1000.0, 5, stopping, broken)
    assert (stopping.is_set(), broken, closed) == (True, [7, 1], [True])


@pytest.mark.slow
@pytest.mark.process
def test_no_file_of_the_folder_that_somebody_stands_in_is_taken_for_pythons(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "argparse.py").write_text("raise SystemExit('a file of my own')")
    monkeypatch.chdir(tmp_path)
    module = "holdfast.clients.workload.raw_producer"
    process = Process("raw", module, ["--help"], tmp_path / "raw.log", {})
    process.wait()
    assert "--bootstrap-server" in process.log.read_text()


def test_a_raw_producer_that_is_stopped_is_not_broken() -> None:
    stopping, broken = threading.Event(), [7]
    producer: Any = SimpleNamespace(send=lambda *_: stopping.set(), close=lambda: None)
    drive(producer, 1, 1000.0, 5, stopping, broken)
    assert broken == [7]
