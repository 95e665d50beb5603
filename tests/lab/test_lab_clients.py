"""Goal: what verifiable clients write can be trusted: ids, certainty, lines that survive a kill.

Method: the pieces without a cluster, and a real process that is killed in the middle of writing.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from threading import Thread

import pytest

from holdfast.clients.outcomes import is_certain
from holdfast.clients.replica_files import (
    DamagedFileError,
    ReplicaTail,
    StoredBatch,
    stored_batches,
)
from holdfast.clients.workload.payload import digest_of, id_of, key_for, partition_for, value_for
from holdfast.clients.workload.recorder import Recorder
from holdfast.clients.workload.verifiable_consumer import parse as parse_consumer
from holdfast.clients.workload.verifiable_producer import Options, VerifiableProducer, parse
from holdfast.judge.history import Acknowledged, Note, Refused, Send, read_events
from holdfast.lab.workload_processes import HistoryTail
from holdfast.wire.batch import Record, build_batch


@pytest.mark.parametrize("size", [0, 5, 40, 100, 5000])
def test_a_value_carries_its_id_and_has_the_size(size: int) -> None:
    value = value_for("producer", 17, size)
    assert id_of(value) == "producer:17"
    assert len(value) == max(size, len(b"producer:17 "))


@pytest.mark.parametrize("value", [None, b"", b"no-id", b"noid here", b"\xff:\xff x", b"x" * 999])
def test_a_strangers_value_has_no_id(value: bytes | None) -> None:
    assert id_of(value) is None
    assert len(digest_of(value)) == 8


def test_no_value_is_not_an_empty_one() -> None:
    header = [("name", b"content")]
    assert digest_of(None) != digest_of(b"")
    assert digest_of(None, header) != digest_of(b"", header)


@pytest.mark.parametrize("partitions", [1, 3, 6, 7])
def test_one_key_goes_to_one_partition_and_none_is_left_out(partitions: int) -> None:
    keys = max(5, partitions)
    places: dict[str, set[int]] = {}
    for number in range(100):
        place = partition_for(number, keys, partitions)
        places.setdefault(key_for(number, keys, "foo"), set()).add(place)
    assert all(len(each) == 1 for each in places.values())
    assert set().union(*places.values()) == set(range(partitions))
    assert list(places)[:2] == ["foo_1", "foo_2"]


@pytest.mark.parametrize(
    ("code", "name", "retries", "certain"),
    [
        (19, "NOT_ENOUGH_REPLICAS", 0, True),
        (19, "NOT_ENOUGH_REPLICAS", 5, False),  # an earlier attempt may be in the log
        (20, "NOT_ENOUGH_REPLICAS_AFTER_APPEND", 0, False),
        (6, "NOT_LEADER_FOR_PARTITION", 0, False),
        (7, "REQUEST_TIMED_OUT", 0, False),
        (56, "KAFKA_STORAGE_ERROR", 0, False),
        (-1, "UNKNOWN", 0, False),
        (10, "MSG_SIZE_TOO_LARGE", 0, True),
        (-192, "_MSG_TIMED_OUT", 0, False),
        (-195, "_TRANSPORT", 0, False),
        (-184, "_QUEUE_FULL", 5, True),  # it never left the client
        (-152, "_PURGE_INFLIGHT", 0, False),
    ],
)
def test_which_refusals_are_certain(code: int, name: str, retries: int, certain: bool) -> None:
    assert is_certain(code, name, retries=retries) is certain


REQUIRED = ["--bootstrap-server", "b:1", "--topic", "foo", "--history", "h", "--partitions", "3"]


def test_idempotence_and_retries_decide_what_is_certain() -> None:
    assert parse(REQUIRED).retries_effective == 1
    assert parse([*REQUIRED, "--retries", "0"]).retries_effective == 0
    assert parse([*REQUIRED, "--config", "retries=0"]).retries_effective == 0
    options: Options = parse([*REQUIRED, "--acks", "1", "--no-idempotence"])
    assert options.client_config()["acks"] == "1"
    assert options.client_config()["enable.idempotence"] is False


def test_a_reader_never_resets_or_commits_by_itself() -> None:
    options = parse_consumer([*REQUIRED, "--partition", "1", "--partition", "2"])
    assert options.partitions == (1, 2)
    assert parse_consumer([*REQUIRED, "--end", "0:7", "--end", "2:9"]).ends == ((0, 7), (2, 9))
    config = options.client_config()
    assert config["auto.offset.reset"] == "error"
    assert config["enable.auto.commit"] is False


WRITER = """
import sys
from pathlib import Path
from threading import Thread
from holdfast.clients.workload.recorder import Recorder
from holdfast.judge.history import Note
recorder = Recorder(Path(sys.argv[1]), "writer")
number = 0
while True:
    recorder.record(Note, text=str(number))
    recorder.flush()
    print(number, flush=True)
    number += 1
"""


@pytest.mark.process
def test_what_was_flushed_survives_a_sigkill(tmp_path: Path) -> None:
    path = tmp_path / "writer.jsonl"
    command = [sys.executable, "-c", WRITER, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        said = [int(process.stdout.readline()) for _ in range(200)]
        process.send_signal(signal.SIGKILL)
        said += [int(line) for line in process.stdout.read().splitlines() if line]
    with path.open("rb") as file:
        found = [event.text for event in read_events(file) if isinstance(event, Note)]
    assert [int(text) for text in found[: len(said)]] == said


def send(recorder: Recorder, number: int) -> None:
    recorder.record(Send, topic="foo", partition=number % 2, id=f"p:{number}", digest="d", size=1)


def test_a_tail_follows_a_growing_file_and_waits_for_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    tail = HistoryTail(path)
    assert tail.poll().count(Send) == 0
    with Recorder(path, "p") as recorder:
        send(recorder, 0)
        recorder.flush()
        assert tail.poll().count(Send) == 1
        send(recorder, 1)
        recorder.record(Acknowledged, topic="foo", partition=1, id="p:1", offset=0)
    whole = path.read_bytes()
    path.write_bytes(whole[:-5])
    assert tail.poll().count(Acknowledged) == 0
    assert (tail.count(Send), tail.count(Acknowledged)) == (2, 0)
    path.write_bytes(whole)
    assert tail.poll().count(Acknowledged, 1) == 1
    assert (tail.count(Send), tail.count(Acknowledged)) == (2, 1)
    assert tail.acknowledged_ms.keys() == {1}
    assert tail.latest_ms == tail.acknowledged_ms[1]


def batch(offset: int, *values: bytes) -> bytes:
    records = [Record(value=value, timestamp=1) for value in values]
    return bytes(build_batch(records, base_offset=offset, leader_epoch=3))


def test_replica_files_are_read_in_order_and_a_torn_end_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "00000000000000000002.log").write_bytes(batch(2, b"c") + batch(3, b"d")[:-1])
    (tmp_path / "00000000000000000000.log").write_bytes(batch(0, b"a", b"b"))
    found = list(stored_batches(tmp_path))
    assert [(each.offset, each.last_offset, each.epoch) for each in found] == [(0, 1, 3), (2, 2, 3)]


def test_other_bytes_give_another_digest(tmp_path: Path) -> None:
    digests = set()
    for name, value in (("a", b"x"), ("b", b"y")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "0.log").write_bytes(batch(0, value))
        (found,) = stored_batches(tmp_path / name)
        assert isinstance(found, StoredBatch)
        digests.add(found.digest)
    assert len(digests) == 2


def test_damage_is_not_passed_over(tmp_path: Path) -> None:
    data = bytearray(batch(0, b"abc") + batch(1, b"d"))
    data[70] ^= 1
    (tmp_path / "0.log").write_bytes(data)
    with pytest.raises(DamagedFileError, match="CRC"):
        list(stored_batches(tmp_path))


def test_a_look_at_where_a_replica_ends_reads_what_is_new(tmp_path: Path) -> None:
    """Method: what was seen before is spoilt behind the tail's back, and nothing notices."""
    segment = tmp_path / f"{7:020d}.log"
    tail = ReplicaTail(tmp_path)
    with pytest.raises(DamagedFileError, match="no segment"):
        tail.end()
    segment.write_bytes(b"")
    assert tail.end() == 7
    first, second, third = batch(7, b"a", b"b"), batch(9, b"c"), batch(10, b"d")
    segment.write_bytes(first + second + third[:-1])
    assert tail.end() == 10
    segment.write_bytes(bytes(len(first)) + second + third)
    assert tail.end() == 11
    with pytest.raises(DamagedFileError, match="byte 0"):
        ReplicaTail(tmp_path).end()


def test_a_replica_that_was_cut_back_or_has_rolled_is_looked_at_anew(tmp_path: Path) -> None:
    segment = tmp_path / f"{0:020d}.log"
    first, second = batch(0, b"a"), batch(1, b"b", b"c")
    segment.write_bytes(first + second)
    tail = ReplicaTail(tmp_path)
    assert tail.end() == 3
    segment.write_bytes(first)
    assert tail.end() == 1
    segment.write_bytes(first + second)
    assert tail.end() == 3
    segment.write_bytes(first + batch(1, b"longer than both were"))
    assert tail.end() == 2
    (tmp_path / f"{5:020d}.log").write_bytes(b"")
    assert tail.end() == 5


def test_a_producer_that_is_stopped_waits_for_no_room(tmp_path: Path) -> None:
    """Method: nobody is there to send to, and the client's queue has room for a few events.

    Seen to fail: each of a batch's events waited for room, and nobody asked whether to stop.
    """
    path = tmp_path / "p.jsonl"
    options = Options(
        bootstrap="127.0.0.1:1",
        topic="foo",
        history=path,
        process="p",
        partitions=1,
        queue_wait_s=60,
        flush_timeout_s=0,
        config=(("message.timeout.ms", "0"), ("queue.buffering.max.messages", "5")),
    )
    tail = HistoryTail(path)
    with Recorder(path, "p") as recorder:
        producer = VerifiableProducer(options, recorder)
        sending = Thread(target=producer.run, daemon=True)
        sending.start()
        while tail.poll().count(Send) <= 5:
            assert sending.is_alive()
        producer.stop()
        sending.join(30)
        assert not sending.is_alive()
    sent = tail.poll().count(Send)
    assert tail.count(Refused) == sent - 5 > 0
