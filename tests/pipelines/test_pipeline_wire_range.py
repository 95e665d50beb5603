"""Goal: over our own client a range survives what brokers do, and says what it does not survive.

Method: canned brokers that move a leader, lose a session, hang up, send a reader to a follower or
lag behind; what they were asked is looked at beside what was read.
Seen to fail: with a session that is gone on with after its loss, with a leader that is not looked
for anew, with a next fetch that waits until the answer is decoded, and with a topic's new id taken
in the middle of a range.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any

import pyarrow as pa
import pytest
from tests.pipelines.canned_log import NUMBER, TOPIC, CannedLog

from holdfast.cluster.processes import wait_until
from holdfast.pipelines.offsets import DataLossError, Partition
from holdfast.pipelines.options import FETCH_BYTES
from holdfast.pipelines.reading import wire_client
from holdfast.pipelines.reading import wire_range as module
from holdfast.pipelines.reading.access import Access, ReadError
from holdfast.pipelines.reading.fetch_session import Asked, FetchSession, From, Limits
from holdfast.pipelines.reading.range_rows import ROWS_MAX
from holdfast.pipelines.reading.way import way_of, wire_settings
from holdfast.pipelines.reading.wire_range import wire_range
from holdfast.wire.batch import Record, build_batch
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from holdfast.wire.uuids import NULL_UUID

CANNED = Partition(TOPIC, NUMBER)
A_BATCH = 250  # bytes: a little more than one of `filled` takes


@pytest.fixture
def log() -> Iterator[CannedLog]:
    with CannedLog(nodes=2) as made:
        yield made
        forget_clients()


def forget_clients() -> None:
    while module._idle:
        module._idle.popitem()[1].close()


def filled(log: CannedLog, batches: int = 6) -> int:
    """Write so many batches of ten records; return the log's end."""
    for number in range(batches):
        records = [Record(b"k", b"%d" % (number * 10 + n), 5) for n in range(10)]
        log.add(build_batch(records, base_offset=log.end))
    assert len(log.entries[0].data) < A_BATCH < 2 * len(log.entries[0].data)
    return log.end


def filled_past_columns(log: CannedLog) -> int:
    """Write a batch that fills columns, and two more of five records, each a fetch of its own."""
    log.add(build_batch([Record(b"k", b"v", 5)] * (ROWS_MAX + 1)))
    for _ in range(2):
        log.add(build_batch([Record(b"k", b"v" * 40, 5)] * 5, base_offset=log.end))
    assert len(log.entries[1].data) > A_BATCH
    return log.end


def access(log: CannedLog, *more: tuple[str, str], **values: Any) -> Access:
    client = (("bootstrap.servers", log.bootstrap), *more)
    return Access(client=client, **{"silence_ms_max": 20_000, "fetch_bytes": A_BATCH, **values})


def offsets(batches: Iterator[pa.RecordBatch]) -> list[int]:
    return [offset for batch in batches for offset in batch.column("offset").to_pylist()]


def test_a_session_is_told_only_what_has_changed(log: CannedLog) -> None:
    end = filled(log)
    assert offsets(wire_range(CANNED, 0, end, access(log))) == [*range(end)]
    assert [one.session_epoch for one in log.fetched] == [0, 1, 2, 3, 4, 5]
    assert [one.offset for one in log.fetched] == [0, 10, 20, 30, 40, 50]
    # The next range goes on in it.
    assert offsets(wire_range(CANNED, 15, 18, access(log))) == [15, 16, 17]
    assert log.fetched[-1][1:4] == (15, 6, 1)
    # What does not change is not named again: the broker has nothing yet, and is asked anew.
    log.lagging = 2
    assert offsets(wire_range(CANNED, 15, 18, access(log))) == [15, 16, 17]
    assert [one.named for one in log.fetched[-3:]] == [0, 0, 0]


@pytest.mark.parametrize("grants", [True, False])
@pytest.mark.parametrize("version", [4, 6, 7, 11, 12, 13, 18])
def test_every_version_will_do(version: int, grants: bool) -> None:
    with CannedLog(fetch_version_max=version) as log:
        log.grants_sessions = grants
        end = filled(log)
        assert offsets(wire_range(CANNED, 3, end - 3, access(log))) == [*range(3, end - 3)]
        epochs = [one.session_epoch for one in log.fetched]
        if version < 7:
            assert set(epochs) == {-1}
        else:
            assert epochs == ([0, 1, 2, 3, 4, 5] if grants else [0] * 6)
        forget_clients()


@pytest.mark.parametrize(
    "code",
    [ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH],
)
def test_a_lost_session_is_begun_anew(log: CannedLog, code: ErrorCode) -> None:
    end = filled(log)
    reading = wire_range(CANNED, 0, end, access(log))
    log.session_refusals.append(code)
    assert offsets(reading) == [*range(end)]
    assert [one.session_epoch for one in log.fetched] == [0, 1, 2, 3, 4, 5]
    log.session_refusals.append(code)
    assert offsets(wire_range(CANNED, 0, end, access(log))) == [*range(end)]
    assert log.fetched[6][1:4] == (0, 0, 1), "all is named again"


def test_the_next_fetch_is_sent_before_an_answer_is_decoded(log: CannedLog) -> None:
    reading = wire_range(CANNED, 0, filled_past_columns(log), access(log))
    assert next(reading).num_rows == ROWS_MAX
    wait_until(lambda: len(log.fetched) == 2, timeout_s=10, what="the second fetch")
    assert log.fetched[1].offset == ROWS_MAX + 1
    assert sum(batch.num_rows for batch in reading) == 11
    # None was sent behind the last one: the client may be kept.
    assert len(log.fetched) == 3
    assert len(module._idle) == 1


def test_a_range_left_in_the_middle_leaves_nothing_behind(log: CannedLog) -> None:
    reading = wire_range(CANNED, 0, filled_past_columns(log), access(log))
    next(reading)
    assert isinstance(reading, Generator)
    reading.close()
    assert not module._idle
    assert offsets(wire_range(CANNED, log.end - 2, log.end, access(log))) == [20_009, 20_010]


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ],
)
def test_the_leader_is_looked_for_anew(log: CannedLog, code: ErrorCode) -> None:
    end = filled(log)
    how = access(log)
    assert offsets(wire_range(CANNED, 0, 20, how)) == [*range(20)]
    log.refusals.append((0, code))
    log.leader = 1
    assert offsets(wire_range(CANNED, 0, end, how)) == [*range(end)]
    assert [one.node for one in log.fetched] == [0, 0, 0, 1, 1, 1, 1, 1, 1]


def test_who_hangs_up_is_asked_again(log: CannedLog) -> None:
    end = filled(log)
    log.hang_ups.extend([0, 0])
    assert offsets(wire_range(CANNED, 0, end, access(log))) == [*range(end)]


def test_a_reader_in_a_rack_reads_from_whom_the_leader_names(log: CannedLog) -> None:
    end = filled(log)
    log.follower = 1
    how = access(log, ("client.rack", "r"))
    assert offsets(wire_range(CANNED, 0, end, how)) == [*range(end)]
    assert [one.node for one in log.fetched] == [0, 1, 1, 1, 1, 1, 1]
    assert {one.rack for one in log.fetched} == {"r"}
    # Refused there, it goes back to the leader; which names the follower again.
    del log.fetched[:]
    log.refusals.append((1, ErrorCode.OFFSET_OUT_OF_RANGE))
    assert offsets(wire_range(CANNED, 0, 20, how)) == [*range(20)]
    assert [one.node for one in log.fetched] == [0, 1, 0, 1, 1]
    # Without a rack nobody is sent away.
    assert offsets(wire_range(CANNED, 0, 20, access(log))) == [*range(20)]
    assert log.fetched[-1].node == 0


def test_a_fetch_is_bounded_and_a_larger_record_comes(log: CannedLog) -> None:
    filled(log, 2)
    log.add(build_batch([Record(b"k", b"v" * 50_000, 5)], base_offset=20))
    assert offsets(wire_range(CANNED, 15, 21, access(log))) == [15, 16, 17, 18, 19, 20]
    assert {one.bytes_max for one in log.fetched} == {A_BATCH}
    default = Access(client=(("bootstrap.servers", log.bootstrap),))
    assert offsets(wire_range(CANNED, 15, 21, default)) == [15, 16, 17, 18, 19, 20]
    assert log.fetched[-1].bytes_max == FETCH_BYTES == 4 * 1024 * 1024
    small = access(log, ("fetch.max.bytes", "1000"), ("client.id", "me"), fetch_bytes=2_000)
    assert offsets(wire_range(CANNED, 0, 5, small)) == [0, 1, 2, 3, 4]
    assert log.fetched[-1].bytes_max == 1_000


def test_what_does_not_come_in_time_is_asked_for_in_less(
    log: CannedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ANSWER_S", 0.2)
    end = filled(log)
    log.bytes_in_time = 200_000
    how = access(log, fetch_bytes=1_000_000)
    assert offsets(wire_range(CANNED, 0, end, how)) == [*range(end)]
    assert [one.bytes_max for one in log.fetched] == [1_000_000, 500_000, 250_000, 125_000]
    log.bytes_in_time = module.FETCH_BYTES_MIN - 1
    with pytest.raises(ReadError, match=r"pollTimeoutMs\): Fetch .*no answer in time"):
        offsets(wire_range(CANNED, 0, end, access(log, fetch_bytes=100_000, silence_ms_max=900)))
    assert log.fetched[-1].bytes_max == module.FETCH_BYTES_MIN


def test_who_leads_told_late_makes_no_fetch_smaller(
    log: CannedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not the size of an answer that keeps metadata waiting."""
    monkeypatch.setattr(wire_client, "_METADATA_S", 0.2)
    end = filled(log)
    log.silent_metadata = 2
    how = access(log, fetch_bytes=1_000_000)
    assert offsets(wire_range(CANNED, 0, end, how)) == [*range(end)]
    assert [one.bytes_max for one in log.fetched] == [1_000_000]


def test_a_topic_that_nobody_can_be_asked_for_is_waited_for_longer(
    log: CannedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One answered that it is unknown, and then none does: that says nothing more of the topic."""
    monkeypatch.setattr(module, "UNKNOWN_S", 0.5)
    end = filled(log)
    how = access(log, silence_ms_max=1_500)
    log.refusals.append((0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    log.hang_ups.extend([0] * 1_000)
    with pytest.raises(ReadError, match=r"1500 ms \(kafkaConsumer\.pollTimeoutMs"):
        offsets(wire_range(CANNED, 0, end, how))


def test_a_high_watermark_that_lags_is_waited_for(log: CannedLog) -> None:
    end = filled(log)
    log.lagging = 3
    assert offsets(wire_range(CANNED, 0, end, access(log))) == [*range(end)]


def test_silence_ends_after_its_time(log: CannedLog) -> None:
    end = filled(log)
    log.lagging = 1_000_000
    with pytest.raises(ReadError, match=r"at offset 0 .* 200 ms \(kafkaConsumer\.pollTimeoutMs"):
        offsets(wire_range(CANNED, 0, end, access(log, silence_ms_max=200)))
    log.lagging = 0
    log.refusals.extend([(0, ErrorCode.KAFKA_STORAGE_ERROR)] * 1_000)
    with pytest.raises(ReadError, match=r"pollTimeoutMs\): .*KAFKA_STORAGE_ERROR"):
        offsets(wire_range(CANNED, 0, end, access(log, silence_ms_max=200)))


def test_a_log_that_ends_in_a_hole_is_told_as_such(log: CannedLog) -> None:
    """Compacted, and cut before the record that compaction had kept behind: nothing comes there.

    A leader that has no time to read its disk says the same, so nothing is passed over.
    """
    log.readable = filled(log) + 10
    why = r"nothing came at offset 60 .*: its leader .* ends at 70: .* a record that is written"
    with pytest.raises(ReadError, match=why):
        offsets(wire_range(CANNED, 0, 70, access(log, silence_ms_max=300)))
    log.add(build_batch([Record(b"k", b"v", 5)], base_offset=70))
    log.readable = None
    assert offsets(wire_range(CANNED, 55, 70, access(log))) == [*range(55, 60)]


def test_what_is_refused_for_good_is_told_at_once(log: CannedLog) -> None:
    end = filled(log)
    log.refusals.append((0, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    with pytest.raises(ReadError, match=r"canned-0: .*TOPIC_AUTHORIZATION_FAILED"):
        offsets(wire_range(CANNED, 0, end, access(log)))


def test_a_topic_that_nobody_knows_is_waited_for_a_while(
    log: CannedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "UNKNOWN_S", 0.2)
    with pytest.raises(DataLossError, match="nobody-0: no broker knows the topic"):
        offsets(wire_range(Partition("nobody", 0), 0, 1, access(log)))


def test_a_log_that_begins_later_has_lost_what_was_before(log: CannedLog) -> None:
    end = filled(log)
    log.start = 20
    del log.entries[:2]
    with pytest.raises(DataLossError, match=r"offset 5 is outside of the log \[20, 60\)"):
        offsets(wire_range(CANNED, 5, end, access(log)))
    lenient = access(log, fail_on_data_loss=False)
    assert offsets(wire_range(CANNED, 5, 30, lenient)) == [*range(20, 30)]
    assert offsets(wire_range(CANNED, 5, 10, lenient)) == []


def test_a_topic_made_anew_in_the_middle_is_loss(log: CannedLog) -> None:
    """The range began in one topic: the records of another one of its name are not its rest."""
    end = filled_past_columns(log)
    for how in (access(log), access(log, fail_on_data_loss=False)):
        del log.fetched[:]
        reading = wire_range(CANNED, 0, end, how)
        assert next(reading).num_rows == ROWS_MAX
        wait_until(lambda: len(log.fetched) == 2, timeout_s=10, what="the second fetch")
        log.topic_id = bytes(reversed(log.topic_id))
        if how.fail_on_data_loss:
            with pytest.raises(DataLossError, match="made anew while it was read"):
                offsets(reading)
        else:
            assert offsets(reading) == [*range(ROWS_MAX, ROWS_MAX + 6)]
    # Before anything was read there is nothing to mix: whoever planned the range looks at ids.
    assert offsets(wire_range(CANNED, 0, 5, access(log))) == [*range(5)]
    log.topic_id = bytes(reversed(log.topic_id))
    assert offsets(wire_range(CANNED, 0, 5, access(log))) == [*range(5)]


def test_several_partitions_share_a_session() -> None:
    one, other = Asked("a", bytes([1] * 16), 0), Asked("b", NULL_UUID, 0)
    third = Asked("a", bytes([1] * 16), 1)
    session, limits = FetchSession(), Limits(1, 2, 3, 4, 1, "r")

    def named(request: FetchRequest) -> list[tuple[str, int, int]]:
        return [
            (t.topic, p.partition, p.fetch_offset) for t in request.topics for p in t.partitions
        ]

    first = session.request({one: From(5), other: From(6), third: From(7)}, limits)
    assert (first.session_id, first.session_epoch) == (0, 0)
    assert named(first) == [("a", 0, 5), ("a", 1, 7), ("b", 0, 6)]
    data = [PartitionData(partition_index=number, records=b"") for number in (0, 1)]
    by_id = FetchableTopicResponse(topic_id=one.topic_id, partitions=data)
    by_name = FetchableTopicResponse(topic="b", partitions=[PartitionData(high_watermark=9)])
    told = session.answered(FetchResponse(session_id=8, responses=[by_id, by_name]))
    assert told == {one: data[0], third: data[1], other: by_name.partitions[0]}
    second = session.request({one: From(5), third: From(9)}, limits)
    assert (second.session_id, second.session_epoch, named(second)) == (8, 1, [("a", 1, 9)])
    assert [(t.topic, t.partitions) for t in second.forgotten_topics_data] == [("b", [0])]
    assert session.answered(FetchResponse(session_id=8)) == {}
    session._epoch = 2**31 - 1
    assert named(session.request({one: From(5), third: From(9)}, limits)) == []
    session.answered(FetchResponse(session_id=8))
    assert session.request({one: From(5), third: From(9)}, limits).session_epoch == 1
    session.reset()
    assert named(session.request({one: From(5)}, limits)) == [("a", 0, 5)]


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({}, ""),
        ({"client.id": "a", "client.rack": "b", "isolation.level": "read_committed"}, ""),
        ({"security.protocol": "plaintext", "fetch.max.bytes": "5"}, ""),
        ({"bootstrap.servers": "PLAINTEXT://h:1,h:2"}, ""),
        ({"security.protocol": "SASL_SSL"}, "security.protocol"),
        ({"sasl.mechanism": "PLAIN"}, "sasl.mechanism"),
        ({"ssl.ca.location": "x"}, "ssl.ca.location"),
        ({"bootstrap.servers": "h"}, "bootstrap.servers"),
        ({"socket.timeout.ms": "5"}, "socket.timeout.ms"),
        ({"fetch.max.bytes": "many"}, "fetch.max.bytes"),
        ({"check.crcs": "false"}, "check.crcs"),
    ],
)
def test_which_way_and_why(more: dict[str, str], why: str) -> None:
    client = tuple(({"bootstrap.servers": "h:1"} | more).items())
    way = way_of(client)
    assert way.is_ours is not bool(why)
    assert why in way.why
    if way.is_ours:
        settings = wire_settings(client)
        assert settings.bootstrap in {"h:1", "h:1,h:2"}
        assert settings.is_committed is ("isolation.level" in more)
    assert not way_of(()).is_ours
