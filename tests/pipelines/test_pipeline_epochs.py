"""Goal: a reader believes no leader of before, and never takes a log that was cut for the old one.

Method: canned brokers with leader epochs. One was cut off and believes that it leads; elections cut
the log before, between and behind what was read. Both ways of reading see the same brokers.
Seen to fail: with an end that is believed whoever tells it, with fetches that name no epoch, with
batches whose epochs are not looked at, and with metadata that come from the first broker alone.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Generator, Iterator
from contextlib import ExitStack, closing, suppress
from itertools import cycle
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable
from tests.pipelines.canned_log import NUMBER, TOPIC, CannedLog, CutOff, Entry, old_message

from holdfast.clients.blocking_driver import NoLeaderError
from holdfast.pipelines import listing as listing_module
from holdfast.pipelines import read_range as read_module
from holdfast.pipelines import source, topic_ids
from holdfast.pipelines.listing import Listing, ListingError, UnknownTopicError
from holdfast.pipelines.offsets import DataLossError, Partition, TopicMadeAnewError
from holdfast.pipelines.options import parse
from holdfast.pipelines.planner import Planner, RangePartition
from holdfast.pipelines.read_range import Access, Plan, ReadError, read_range
from holdfast.pipelines.reading import leaders, told_offsets, wire_client
from holdfast.pipelines.reading import wire_range as wire_module
from holdfast.pipelines.reading.range_rows import RangeRows
from holdfast.pipelines.reading.wire_client import WireClient
from holdfast.pipelines.source import BatchReader, StreamReader
from holdfast.wire.batch import Record, build_batch
from holdfast.wire.errors import ErrorCode
from holdfast.wire.uuids import uuid_text

CANNED = Partition(TOPIC, NUMBER)
A_BATCH = 250  # bytes: a little more than one of `write` takes
WAYS = {"ours": (), "librdkafka": (("socket.keepalive.enable", "true"),)}


@pytest.fixture
def log() -> Iterator[CannedLog]:
    with CannedLog(nodes=2, epoch=1) as made:
        yield made
        forget_clients()


_planners: list[Planner] = []  # whose clients would go on talking to brokers that are gone


def forget_clients() -> None:
    while _planners:
        _planners.pop().close()
    for kept in (wire_module._idle, read_module._idle):
        while kept:
            kept.popitem()[1].close()
    told_offsets.admins.clear()


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> tuple[tuple[str, str], ...]:
    return WAYS[request.param]


def write(log: CannedLog, batches: int, epoch: int, at_ms: int = 5) -> None:
    """Write so many batches of ten records, each a fetch of its own."""
    for _ in range(batches):
        records = [Record(b"%d" % epoch, b"%d" % number, at_ms) for number in range(10)]
        log.add(build_batch(records, base_offset=log.end, leader_epoch=epoch))


def access(log: CannedLog, way: Any = (), **values: Any) -> Access:
    client = (("bootstrap.servers", log.bootstrap), *way)
    return Access(client=client, **{"silence_ms_max": 8_000, "fetch_bytes": A_BATCH, **values})


def rows(batches: Any) -> list[tuple[int, int]]:
    """Return offsets, and the epoch that wrote each."""
    return [(row["offset"], int(row["key"])) for batch in batches for row in batch.to_pylist()]


@pytest.mark.slow
@pytest.mark.parametrize("fails", [True, False])
def test_a_leader_that_was_cut_off_is_not_believed(
    log: CannedLog, way: Any, *, fails: bool
) -> None:
    """It is asked first, its metadata name it, and it says that the log ends at 30."""
    write(log, 6, 1)
    log.elect(1, 2)
    log.cut_off[0] = CutOff(epoch=1, readable=30)
    how = access(log, way, fail_on_data_loss=fails, silence_ms_max=2_500 if way else 8_000)
    if not way:
        assert rows(read_range(CANNED, 0, 60, how, Plan(end_epoch=2))) == [
            (offset, 1) for offset in range(60)
        ]
        assert {one.node for one in log.fetched} == {1}
        return
    # librdkafka may find the real leader, or wait for it in vain; it gives nothing up.
    try:
        found = rows(read_range(CANNED, 0, 60, how, Plan(end_epoch=2)))
    except ReadError as error:
        assert "pollTimeoutMs" in str(error)  # noqa: PT017 - either will do
    else:
        assert found == [(offset, 1) for offset in range(60)]


@pytest.mark.slow
@pytest.mark.parametrize("fails", [True, False])
def test_nothing_is_given_up_while_nobody_newer_says_so(
    log: CannedLog, way: Any, *, fails: bool
) -> None:
    """Not even in the epoch of the plan, nor where no epoch was planned: rows are there."""
    write(log, 6, 1)
    log.readable = 30
    for plan in (Plan(end_epoch=1), Plan()):
        how = access(log, way, fail_on_data_loss=fails, silence_ms_max=2_500 if way else 600)
        with pytest.raises(ReadError, match=r"at offset 30 of a range that ends at 60"):
            rows(read_range(CANNED, 0, 60, how, plan))


@pytest.mark.slow
def test_a_log_that_a_newer_leader_has_shorter_is_loss(log: CannedLog, way: Any) -> None:
    write(log, 6, 1)
    log.elect(1, 2, cut_at=30)
    with pytest.raises(DataLossError, match="goneData"):
        rows(read_range(CANNED, 0, 60, access(log, way), Plan(end_epoch=1)))
    lenient = access(log, way, fail_on_data_loss=False)
    found = rows(read_range(CANNED, 0, 60, lenient, Plan(end_epoch=1)))
    assert found == [(offset, 1) for offset in range(30)]
    assert rows(read_range(CANNED, 40, 60, lenient, Plan(end_epoch=1))) == []


def test_what_a_shorter_log_still_has_is_read(log: CannedLog, way: Any) -> None:
    """Its new leader shows less at first, until it knows what its followers have."""
    write(log, 6, 1)
    log.elect(1, 2, cut_at=30)
    lenient = access(log, way, fail_on_data_loss=False)
    for start in (0, 10):
        log.lagging = 1
        found = rows(read_range(CANNED, start, 60, lenient, Plan(end_epoch=1)))
        assert found == [(offset, 1) for offset in range(start, 30)]


@pytest.mark.parametrize("fails", [True, False])
@pytest.mark.parametrize("version", [11, 18])
def test_an_election_in_the_middle_of_a_range_mixes_no_histories(
    *, version: int, fails: bool
) -> None:
    """Rows up to 30 were read, and then the log is cut at 20 and grows past the range's end."""
    with CannedLog(nodes=2, epoch=1, fetch_version_max=version) as log:
        write(log, 6, 1)
        how = access(log, fail_on_data_loss=fails)
        rows_then_an_election(log, how, DataLossError if fails else ReadError)
        # Read anew, as Spark's next attempt does, it is one history: that of now.
        if not fails:
            found = rows(read_range(CANNED, 0, 60, how, Plan(end_epoch=1)))
            assert found == [(offset, 1 if offset < 20 else 2) for offset in range(60)]
        forget_clients()


def rows_then_an_election(log: CannedLog, how: Access, refused: type[Exception]) -> None:
    log.bytes_in_time = None
    client = WireClient(how.client)
    reading = wire_module._Reading(
        client, CANNED, RangeRows(CANNED, 0, 60, how), how, Plan(end_epoch=1)
    )
    for _ in range(2):
        assert not rows(reading._take(reading._next()))  # the columns are not full
    assert reading._rows.position == 20
    assert client.is_asking, "for offset 20 on"
    assert not rows(reading._take(reading._next()))
    assert reading._rows.position == 30
    client.take(10)
    log.elect(1, 2, cut_at=20)
    write(log, 6, 2)
    with pytest.raises(refused, match="cut the log at offset 20, when it was read up to 30"):
        list(reading.batches())
    client.close()


def test_an_epoch_that_a_log_has_nothing_of_was_cut_though_it_is_as_long() -> None:
    """The new epoch begins exactly where the reader stands: the end alone shows nothing.

    Brokers of before Fetch 12 do not look at it themselves.
    """
    with CannedLog(nodes=2, epoch=2, fetch_version_max=11) as log:
        write(log, 1, 1)
        write(log, 5, 2)
        how = access(log, fail_on_data_loss=False)
        client = WireClient(how.client)
        reading = wire_module._Reading(
            client, CANNED, RangeRows(CANNED, 0, 60, how), how, Plan(end_epoch=2)
        )
        for _ in range(2):
            assert not rows(reading._take(reading._next()))  # the columns are not full
        client.take(10)
        log.elect(1, 3, cut_at=10)
        write(log, 1, 1)
        write(log, 4, 3)
        with pytest.raises(ReadError, match="cut the log at offset 20, when it was read up to 20"):
            list(reading.batches())
        client.close()
        forget_clients()


def test_librdkafka_goes_on_from_what_our_own_client_has_read(log: CannedLog) -> None:
    """Seen to fail: it held the range's first epoch against where the other had come to."""
    log.epoch = 2
    write(log, 1, 1)
    write(log, 2, 2)
    log.entries += [Entry(offset, offset, old_message(1, offset)) for offset in range(30, 33)]
    batches = read_range(CANNED, 5, 33, access(log), Plan(start_epoch=1, end_epoch=2))
    assert [n for batch in batches for n in batch.column("offset").to_pylist()] == [*range(5, 33)]


def test_what_was_cut_between_planning_and_reading_is_told(log: CannedLog) -> None:
    """The log is as long as the plan: offsets alone would show nothing."""
    write(log, 6, 1)
    log.elect(1, 2, cut_at=30)
    write(log, 6, 2)
    cut = r"cut the log: from offset 30 on, up to 60, are other records"
    with pytest.raises(DataLossError, match=cut):
        rows(read_range(CANNED, 0, 60, access(log), Plan(end_epoch=1)))
    before = r"cut the log: from offset 30 on, up to 40, are other records"
    with pytest.raises(DataLossError, match=before):
        rows(read_range(CANNED, 40, 60, access(log), Plan(start_epoch=1, end_epoch=2)))
    lenient = access(log, fail_on_data_loss=False)
    found = rows(read_range(CANNED, 0, 60, lenient, Plan(end_epoch=1)))
    assert found == [(offset, 1 if offset < 30 else 2) for offset in range(60)]
    # Under `reset` the query ends as well: it does not go back behind what was read.
    resets = access(log, fail_on_data_loss=False, resets=True)
    with pytest.raises(DataLossError, match=cut):
        rows(read_range(CANNED, 0, 60, resets, Plan(end_epoch=1)))
    # What was planned of the log as it is, or of what nobody cut, is no loss.
    for plan in (Plan(end_epoch=2), Plan(start_epoch=2, end_epoch=2)):
        assert len(rows(read_range(CANNED, 0, 60, access(log), plan))) == 60
    assert len(rows(read_range(CANNED, 0, 30, access(log), Plan(end_epoch=1)))) == 30


@pytest.mark.slow
def test_librdkafka_holds_the_range_s_beginning_against_the_log(log: CannedLog) -> None:
    write(log, 6, 1)
    log.elect(1, 2, cut_at=30)
    write(log, 6, 2)
    plan = Plan(start_epoch=1, end_epoch=2)
    with pytest.raises(DataLossError, match="truncation"):
        rows(read_range(CANNED, 40, 60, access(log, WAYS["librdkafka"]), plan))
    lenient = access(log, WAYS["librdkafka"], fail_on_data_loss=False)
    assert len(rows(read_range(CANNED, 40, 60, lenient, plan))) == 20
    resets = access(log, WAYS["librdkafka"], fail_on_data_loss=False, resets=True)
    with pytest.raises(DataLossError, match="truncation"):
        rows(read_range(CANNED, 40, 60, resets, plan))


def test_epochs_that_go_back_are_of_two_histories(log: CannedLog, way: Any) -> None:
    write(log, 2, 1)
    write(log, 2, 2)
    write(log, 2, 1)
    log.epoch = 2
    for how in (access(log, way), access(log, way, fail_on_data_loss=False)):
        with pytest.raises(ReadError, match=r"offset 40 is of leader epoch 1, behind one of"):
            rows(read_range(CANNED, 0, 60, how, Plan(end_epoch=2)))
    assert len(rows(read_range(CANNED, 0, 40, access(log, way), Plan(end_epoch=2)))) == 40


@pytest.mark.slow
def test_ends_of_a_leader_that_was_cut_off_are_no_answer(
    log: CannedLog, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    write(log, 6, 1)
    log.elect(1, 3)
    log.cut_off[0] = CutOff(epoch=1, readable=30)
    listing = Listing((("bootstrap.servers", log.bootstrap),))
    assert listing.ends([CANNED]).epochs[CANNED] in {1, 3}, "who knows of nothing takes what comes"
    told = listing.ends([CANNED], {CANNED: 3})
    assert told in (({}, {}), ({CANNED: 60}, {CANNED: 3}))
    log.cut_off.clear()
    assert listing.ends([CANNED], {CANNED: 3}, all_of_them=True) == ({CANNED: 60}, {CANNED: 3})
    monkeypatch.setattr(listing_module, "REQUEST_S", 0.3)
    assert listing.reaching({CANNED: 61}).offsets == {CANNED: 60}, "it was asked for long enough"
    assert listing.reaching({CANNED: 59}).offsets == {CANNED: 60}
    # One that comes after all that the query has read in: it is told, once, what that may mean; and
    # who has looked twice, however long there was between, has met two cuts perhaps.
    monkeypatch.setattr(listing_module, "OLD_LEADER_S", 0.0)
    assert [listing.ends([CANNED], {CANNED: 9}) for _ in range(2)] == [({}, {})] * 2
    assert sum("one of epoch 9 is known of" in line for line in caplog.messages) == 1
    # It stays: that is an error, and no query that stands still for good. Seen to fail: only told.
    with pytest.raises(
        ListingError, match=r"epoch 9 is known of; no other one was found .* fresh checkpoint"
    ):
        listing.ends([CANNED], {CANNED: 9})
    assert listing.ends([CANNED], {CANNED: 3}).offsets == {CANNED: 60}, "a new one is taken"
    monkeypatch.setattr(listing_module, "OLD_LEADER_S", 300.0)
    assert listing.ends([CANNED], {CANNED: 9}) == ({}, {}), "and the next old one waited for anew"
    listing.close()


@pytest.mark.parametrize("policy", ["fail", "skip"])
def test_a_planner_tells_where_a_log_was_cut_that_has_grown_since(
    log: CannedLog, policy: str
) -> None:
    """Between two batches: as long as before, and longer, it looks whole to who counts offsets."""
    write(log, 4, 1)
    reader = planning(log, goneData=policy)
    begin = reader.latestOffset(at(0, 1, log), ReadAllAvailable())
    assert begin == at(40, 1, log)
    log.elect(1, 2)
    assert reader.latestOffset(begin, ReadAllAvailable()) == begin, "an election cuts nothing"
    asked = len(log.epochs_asked)
    assert reader.latestOffset(begin, ReadAllAvailable()) == begin
    assert len(log.epochs_asked) == asked == 1, "and it is asked for once"
    log.elect(0, 3, cut_at=30)
    log.refusals_of_epochs = 1  # who does not say yet is waited for
    write(log, 2, 3)
    assert reader.latestOffset(begin, ReadAllAvailable()) == begin
    if policy == "fail":
        with pytest.raises(DataLossError, match="from offset 30 on, up to 40, are other records"):
            reader.latestOffset(begin, ReadAllAvailable())
        return
    told = reader.latestOffset(begin, ReadAllAvailable())
    assert told == at(50, 3, log, cuts=[[30, 40]])
    (task,) = reader.partitions(begin, told)
    assert rows(reader.read(task)) == [(offset, 3) for offset in range(40, 50)]
    assert reader.latestOffset(told, ReadAllAvailable()) == told


def test_a_run_that_ends_waits_for_who_says_whether_a_log_was_cut(log: CannedLog) -> None:
    write(log, 4, 1)
    log.elect(0, 2, cut_at=30)
    write(log, 2, 2)
    reader = planning(log, goneData="skip")
    reader.prepareForTriggerAvailableNow()
    log.refusals_of_epochs = 2
    told = reader.latestOffset(at(40, 1, log), ReadAllAvailable())
    assert told == at(50, 2, log, cuts=[[30, 40]])


@pytest.mark.parametrize("option", ["startingOffsets", "endingOffsets", "assigned", "available"])
def test_the_end_of_a_log_is_asked_of_its_newest_leader(log: CannedLog, option: str) -> None:
    """The only address that is known is that of a broker which was cut off, and says 30."""
    write(log, 6, 1)
    log.elect(1, 2)
    log.cut_off[0] = CutOff(epoch=1, readable=30)
    if option == "endingOffsets":
        (task,) = batching(log).partitions()
        assert (task.start, task.end, task.end_epoch) == (0, 60, 2)
    elif option == "assigned":
        end = {TOPIC: {str(NUMBER): 50}}
        (task,) = batching(log, goneData="skip", endingOffsets=json.dumps(end)).partitions()
        assert (task.start, task.end) == (0, 50)
    elif option == "startingOffsets":
        assert planning(log).initialOffset() == at(60, 2, log)
    else:
        reader = planning(log)
        reader.prepareForTriggerAvailableNow()
        assert reader.latestOffset(at(0, 1, log), ReadAllAvailable()) == at(60, 2, log)


@pytest.mark.slow
@pytest.mark.parametrize(("at_ms", "offset"), [(5, 0), (9, 30), (10, 60)])
def test_a_time_is_looked_up_by_the_newest_leader_whose_records_are_older(
    log: CannedLog, monkeypatch: pytest.MonkeyPatch, at_ms: int, offset: int
) -> None:
    """With a record its own epoch is told: that of its leader at the time, not of who leads now.

    Who was cut off lacks what came since, and says of its time that no record is that late. Seen to
    fail: each record of before the last election was waited for in vain; and that was believed.
    """
    monkeypatch.setattr(listing_module, "WAIT_S", 5.0)
    write(log, 3, 1)
    log.elect(1, 2)
    write(log, 3, 2, at_ms=9)
    late = {"startingTimestamp": str(at_ms), "startingOffsetsByTimestampStrategy": "latest"}
    for cut_off in ({}, {0: CutOff(epoch=1, readable=30)}):
        log.cut_off = cut_off
        assert planning(log, **late).initialOffset()[TOPIC][str(NUMBER)] == offset


def test_epochs_of_another_topic_make_nobody_an_old_leader(log: CannedLog) -> None:
    """One that lags tells of the topic that was deleted, whose epoch was higher."""
    write(log, 6, 1)
    client = (("bootstrap.servers", log.bootstrap),)
    assert leaders.newest(client, [CANNED]).epochs == {CANNED: 1}
    log.cut_off[1] = CutOff(epoch=7, readable=60)
    assert leaders.newest(client, [CANNED]).epochs == {CANNED: 7}
    log.ids_on[1] = bytes(reversed(log.topic_id))
    assert leaders.newest(client, [CANNED]).epochs == {}
    nobody = (("bootstrap.servers", "127.0.0.1:1"),)
    assert leaders.newest(nobody, [CANNED]) == leaders.Newest({})


SILENT, LOOKS_MAX = 12, 100


@pytest.fixture
def silent(log: CannedLog, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[socket.socket]]:
    """Brokers that metadata name before the others: they can be connected to, and say nothing."""
    for module, name in ((leaders, "_CONNECT_S"), (wire_client, "CONNECT_S")):
        monkeypatch.setattr(module, name, 0.1)
    monkeypatch.setattr(leaders, "ASK_S", 0.35)
    with ExitStack() as stack:
        made = [socket.create_server(("127.0.0.1", 0)) for _ in range(SILENT)]
        for one in made:
            stack.enter_context(one)
            one.setblocking(False)
        log.silent_ports = [one.getsockname()[1] for one in made]
        yield made


def asked(silent: list[socket.socket]) -> int:
    """Return how many of them somebody has connected to since this was asked last."""
    count = 0
    for one in silent:
        with suppress(BlockingIOError):
            one.accept()[0].close()
            count += 1
    return count


@pytest.mark.slow
@pytest.mark.parametrize("who", ["task", "planner"])
def test_brokers_that_say_nothing_hide_no_leader_and_hold_nobody_up(
    log: CannedLog, silent: list[socket.socket], who: str
) -> None:
    """Node 0 was cut off and is asked first; only node 1, the last in metadata, knows better.

    Seen to fail: a task asked each broker, however many said nothing, and had no silence but theirs
    left; and a planner asked the same first ones each time, so it never came to the last one.
    """
    write(log, 4, 1)
    log.elect(1, 2)
    log.cut_off[0] = CutOff(epoch=1, readable=30)
    how = (("bootstrap.servers", log.bootstrap),)
    counts: list[int] = []
    with closing(WireClient(how)) as client:
        found: Any = None
        while not found:
            assert len(counts) < LOOKS_MAX, "nobody comes to the last broker"
            if who == "planner":
                found = leaders.epoch_ends(how, {CANNED: leaders.Question(1, 2)})
            else:
                with suppress(NoLeaderError):
                    found = client.leader(TOPIC, NUMBER, refresh=True, least_epoch=2)
            counts.append(asked(silent))
        assert found == {CANNED: 40} if who == "planner" else found.node == 1
    assert max(counts) < SILENT, "each look has a bound"


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.UNKNOWN_LEADER_EPOCH])
def test_a_leader_that_stumbles_has_not_said_that_its_log_is_whole(
    log: CannedLog, code: ErrorCode
) -> None:
    """What may pass is asked again; seen to fail: the cut was never told."""
    write(log, 4, 1)
    log.elect(0, 2, cut_at=30)
    write(log, 2, 2)
    log.refusals_of_epochs, log.epoch_refusal = 1, code
    reader = planning(log, goneData="skip")
    assert reader.latestOffset(at(40, 1, log), ReadAllAvailable()) == at(40, 1, log)
    told = reader.latestOffset(at(40, 1, log), ReadAllAvailable())
    assert told == at(50, 2, log, cuts=[[30, 40]])


def batching(log: CannedLog, **options: str) -> BatchReader:
    named = {"kafka.bootstrap.servers": log.bootstrap, "subscribe": TOPIC}
    reader = BatchReader(parse(named | options, "batch"))
    _planners.append(reader._planner)
    return reader


def planning(log: CannedLog, **options: str) -> StreamReader:
    named = {"kafka.bootstrap.servers": log.bootstrap, "subscribe": TOPIC} | options
    reader = StreamReader(parse({name: value for name, value in named.items() if value}, "stream"))
    _planners.append(reader._planner)
    return reader


def at(offset: int, epoch: int, log: CannedLog, **beside: Any) -> dict[str, Any]:
    """Return Spark's form of a position."""
    name, more = str(NUMBER), {key: {str(NUMBER): value} for key, value in beside.items()}
    told = {"id": uuid_text(log.topic_id), name: offset, "epochs": {name: epoch}}
    return {TOPIC: told | more}


@pytest.mark.slow
def test_a_topic_that_was_deleted_is_gone_when_all_brokers_say_so(
    log: CannedLog, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(wire_module, "UNKNOWN_S", 0.3)
    write(log, 6, 1)
    how, lenient = access(log), access(log, fail_on_data_loss=False)
    log.deleted_on, log.leader = {0}, 1
    assert len(rows(read_range(CANNED, 0, 60, how))) == 60, "the other one leads to it"
    forget_clients()
    log.leader = -1  # the other one knows the topic, and nobody leads it just now
    with pytest.raises(ReadError, match="UNKNOWN_TOPIC_OR_PARTITION"):
        rows(read_range(CANNED, 0, 60, lenient))
    log.deleted_on = {0, 1}
    with pytest.raises(DataLossError, match="no broker knows the topic: it was deleted"):
        rows(read_range(CANNED, 0, 60, how))
    assert rows(read_range(CANNED, 0, 60, lenient)) == []
    assert "canned-0: no broker knows the topic: it was deleted" in caplog.text


def test_the_planned_topic_is_read_and_no_other(log: CannedLog) -> None:
    write(log, 6, 1)
    planned = Plan(uuid_text(bytes(16)[1:] + b"x"))
    with pytest.raises(
        TopicMadeAnewError, match=f"now there is the one with id {uuid_text(log.topic_id)}"
    ):
        rows(read_range(CANNED, 0, 60, access(log), planned))
    assert rows(read_range(CANNED, 0, 60, access(log, fail_on_data_loss=False), planned)) == []
    assert len(rows(read_range(CANNED, 0, 60, access(log), Plan(uuid_text(log.topic_id))))) == 60
    # Its epochs begin at 0 again: who leads it is no leader of before.
    old = Plan(uuid_text(log.topic_id), 1, 1)
    log.topic_id, log.epoch = bytes(reversed(log.topic_id)), 0
    for is_kept in (True, False):
        if not is_kept:
            forget_clients()
        with pytest.raises(TopicMadeAnewError):
            rows(read_range(CANNED, 0, 60, access(log), old))


def test_a_client_that_was_kept_does_not_take_a_topic_made_anew_for_the_planned_one(
    log: CannedLog,
) -> None:
    """Who led the old topic is remembered by its name. Under `skip` all of the new one was lost."""
    write(log, 6, 1)
    for how in (access(log), access(log, fail_on_data_loss=False)):
        for _ in range(2):
            planned = Plan(uuid_text(log.topic_id), 1, 1)
            assert len(rows(read_range(CANNED, 0, 60, how, planned))) == 60
            assert wire_module._idle, "a client is kept"
            log.topic_id = bytes(reversed(log.topic_id))


def test_a_consumer_that_was_kept_does_not_wait_for_a_topic_that_is_gone(log: CannedLog) -> None:
    """It ignores leaders of older epochs than it has seen, and the new topic's begin at 0."""
    log.epoch = 5
    write(log, 3, 5)
    how = access(log, WAYS["librdkafka"])
    assert len(rows(read_range(CANNED, 0, 30, how, Plan(uuid_text(log.topic_id), 5, 5)))) == 30
    assert read_module._idle, "a consumer is kept"
    log.topic_id, log.epoch, log.entries = bytes(reversed(log.topic_id)), 0, []
    write(log, 3, 0)
    assert len(rows(read_range(CANNED, 0, 30, how, Plan(uuid_text(log.topic_id), 0, 0)))) == 30


@pytest.mark.parametrize("is_led", [True, False])
def test_a_broker_that_has_not_heard_of_the_planned_topic_yet_is_not_believed(
    log: CannedLog, *, is_led: bool
) -> None:
    """It names one that was deleted; only where nobody knows the planned one it is gone."""
    write(log, 6, 1)
    planned = Plan(uuid_text(log.topic_id), 1, 1)
    log.ids_on[0] = bytes(reversed(log.topic_id))
    log.leader = 1 if is_led else -1
    log.cut_off[0] = CutOff(epoch=7, readable=60)
    lenient = access(log, fail_on_data_loss=False, silence_ms_max=8_000 if is_led else 400)
    if is_led:
        assert len(rows(read_range(CANNED, 0, 60, lenient, planned))) == 60
        return
    with pytest.raises(ReadError, match=f"with id {planned.topic_id}"):
        rows(read_range(CANNED, 0, 60, lenient, planned))
    log.ids_on[1] = log.ids_on[0]
    assert rows(read_range(CANNED, 0, 60, lenient, planned)) == []


@pytest.mark.parametrize("lagging", [0, 1])
def test_a_broker_that_lags_makes_no_topic_anew(
    log: CannedLog, way: Any, lagging: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever is asked: one of them knows the topic of before still, which another one followed.

    Method: librdkafka asks whom a broker calls the controller, by lot as with KRaft.
    Seen to fail: a batch of the topic was made without its rows, and the query went back to what
    the deleted one was called.
    """
    write(log, 6, 1)
    log.ids_on[lagging] = bytes(reversed(log.topic_id))
    monkeypatch.setattr(topic_ids, "PAUSE_S", 0.01)
    monkeypatch.setattr(topic_ids, "LOOKS", 5)
    log.controllers = cycle((0, 1, 1, 0, 1, 0, 0))
    reader = planning(log, goneData="skip", **{f"kafka.{name}": value for name, value in way})
    begin, end = at(20, 1, log), at(60, 1, log)
    for _ in range(2):
        assert reader.latestOffset(begin, ReadAllAvailable()) in (begin, end)
        (task,) = reader.partitions(begin, end)
        assert (task.start, task.end, task.topic_id) == (20, 60, uuid_text(log.topic_id))


def test_a_topic_is_another_one_when_all_brokers_say_so(
    log: CannedLog,
    way: Any,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """And then what it was before does not come back, whatever somebody says who lags."""
    write(log, 6, 1)
    reader = planning(log, goneData="skip", **{f"kafka.{name}": value for name, value in way})
    monkeypatch.setattr(topic_ids, "PAUSE_S", 0.01)
    monkeypatch.setattr(topic_ids, "LOOKS", 5)
    before, old = at(20, 1, log), log.topic_id
    log.topic_id = bytes(reversed(old))
    anew = reader.latestOffset(before, ReadAllAvailable())
    assert anew == at(0, 1, log)
    assert reader.partitions(before, anew) == []
    log.ids_on = {0: old, 1: old}
    for _ in range(2):
        assert reader.latestOffset(anew, ReadAllAvailable()) == anew
    assert caplog.text.count("brokers do not agree which topic canned is") == 1


def test_a_topic_is_gone_when_all_brokers_say_so_and_does_not_come_back(
    log: CannedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen to fail: its offsets stayed, and were asked for at each trigger."""
    monkeypatch.setattr(listing_module, "REQUEST_S", 1.0)
    monkeypatch.setattr(topic_ids, "GONE_LOOK_S", 0.0)
    # The canned brokers know no question for all topics.
    monkeypatch.setattr(Listing, "matching", lambda self, _: self.existing([CANNED]))
    write(log, 6, 1)
    reader = planning(log, goneData="skip", subscribePattern="can.*", subscribe="")
    begin = at(20, 1, log)
    log.deleted_on = {0}
    assert TOPIC in reader.latestOffset(begin, ReadAllAvailable()), "one of them knows it"
    log.deleted_on = {0, 1}
    assert reader.latestOffset(begin, ReadAllAvailable()) == {}
    # One that was cut off comes back, and says what was there before.
    log.deleted_on = set()
    assert reader.latestOffset({}, ReadAllAvailable()) == {}
    log.topic_id = bytes(reversed(log.topic_id))
    assert reader.latestOffset({}, ReadAllAvailable()) == at(0, 1, log)


class Clock:
    """Time that passes as somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_topics_that_were_deleted_are_waited_for_together(
    log: CannedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen to fail: a run that ends waited for each of them in turn."""
    clock = Clock()
    monkeypatch.setattr(listing_module, "time", clock)
    gone = [f"gone{number}" for number in range(5)]
    reader = planning(log, subscribe=",".join([*gone, TOPIC]), goneData="skip")
    assert reader._planner.still_there() == [CANNED]
    assert clock.now < 1.5 * topic_ids.REQUEST_S
    with pytest.raises(UnknownTopicError, match="gone0"):
        reader._planner.partitions()


def test_a_topic_whose_id_is_told_only_now_is_the_same(log: CannedLog) -> None:
    """A cluster that is brought to Kafka 2.8 begins to tell ids while its leaders move."""
    write(log, 6, 1)
    with_id, without = log.topic_id, bytes(16)
    lenient = access(log, fail_on_data_loss=False)
    for before, after, plan in ((without, with_id, None), (with_id, without, uuid_text(with_id))):
        log.topic_id = before
        client = WireClient(lenient.client)
        reading = wire_module._Reading(
            client, CANNED, RangeRows(CANNED, 0, 60, lenient), lenient, Plan(plan, 1, 1)
        )
        assert not rows(reading._take(reading._next()))  # the columns are not full
        log.topic_id = after
        log.refusals.append((0, ErrorCode.NOT_LEADER_OR_FOLLOWER))
        client.take(10)
        assert len(rows(reading.batches())) == 60
        assert not reading.is_held, "some of it was asked for by name"
        client.close()


def test_brokers_with_an_old_fetch_are_read_over_librdkafka(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    with CannedLog(fetch_version_max=3) as log:
        write(log, 6, 1)
        found = rows(read_range(CANNED, 15, 55, access(log)))
        assert found == [(offset, 1) for offset in range(15, 55)]
        assert "canned-0: reading on over librdkafka: " in caplog.text
        forget_clients()


@pytest.mark.slow
def test_librdkafka_mixes_no_histories_either(log: CannedLog) -> None:
    """The rest is fetched only when the first rows were taken: by then the log is another one."""
    for number in range(6):
        log.add(
            build_batch(
                [Record(b"1", bytes(100_000), 5)] * 10, base_offset=number * 10, leader_epoch=1
            )
        )
    how = access(log, WAYS["librdkafka"], fail_on_data_loss=False, fetch_bytes=1_000_000)
    log.readable = 30
    reading = read_range(CANNED, 0, 60, how, Plan(end_epoch=1))
    read = 0
    while read < 30:
        read += next(reading).num_rows
    log.elect(1, 2, cut_at=10)
    log.readable = None
    write(log, 6, 2)
    with pytest.raises(ReadError, match=r"truncation detected at|is of leader epoch 1, behind"):
        rows(reading)


@pytest.mark.slow
def test_a_topic_that_goes_after_it_was_read_takes_no_rows_with_it(
    log: CannedLog, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(topic_ids, "REQUEST_S", 0.2)
    write(log, 6, 1)
    task = RangePartition(TOPIC, NUMBER, 0, 60, uuid_text(log.topic_id), 1, 1)
    options = {
        "kafka.bootstrap.servers": log.bootstrap,
        "subscribe": TOPIC,
        "kafkaConsumer.pollTimeoutMs": "900",
    }
    reader = StreamReader(parse(options, "stream"))
    assert len(rows(reader.read(task))) == 60
    # Its records are there, and its brokers do not name it any more.
    monkeypatch.setattr(source, "read_range", lambda *_: was_read(is_certain=True))
    log.deleted_on = {0, 1}
    with pytest.raises(ReadError, match=r"canned: no id told .* within 900 ms"):
        rows(reader.read(task))
    lenient = StreamReader(parse({**options, "goneData": "skip"}, "stream"))
    assert rows(lenient.read(task)) == []
    assert "'canned' was deleted after it was read" in caplog.text
    # By name somebody may have read another one meanwhile: it is told, and soon.
    monkeypatch.setattr(source, "read_range", lambda *_: was_read(is_certain=False))
    with pytest.raises(ReadError, match="was deleted while it was read by its name"):
        rows(lenient.read(task))


def was_read(*, is_certain: bool) -> Generator[Any, None, bool]:
    """Stand for a range that was read without a row, and say whose it is."""
    yield from ()
    return is_certain


@pytest.mark.slow
def test_librdkafka_passes_over_a_topic_that_was_deleted_before_it_was_read(
    log: CannedLog, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Seen to wait for the whole silence, and to end the query, at each start again."""
    monkeypatch.setattr(topic_ids, "REQUEST_S", 0.2)
    write(log, 6, 1)
    task = RangePartition(TOPIC, NUMBER, 0, 60, uuid_text(log.topic_id), 1, 1)
    log.deleted_on = {0, 1}
    by_name = {"kafka.socket.keepalive.enable": "true", "kafkaConsumer.pollTimeoutMs": "3000"}
    assert rows(planning(log, goneData="skip", **by_name).read(task)) == []
    assert "it was deleted" in caplog.text
    with pytest.raises(ReadError):
        rows(planning(log, **by_name).read(task))


@pytest.mark.parametrize("version", [12, 18])
def test_rows_that_were_fetched_by_name_may_be_another_topics(
    version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Brokers of before Kafka 3.1 have ids of topics, and take none in a fetch."""
    with CannedLog(fetch_version_max=version, epoch=1) as log:
        write(log, 6, 1)

        def made_anew(*given: Any) -> Generator[Any, None, bool]:
            is_certain = yield from read_range(*given)
            log.topic_id = bytes(reversed(log.topic_id))
            return is_certain

        monkeypatch.setattr(source, "read_range", made_anew)
        task = RangePartition(TOPIC, NUMBER, 0, 60, uuid_text(log.topic_id), 1, 1)
        reader = planning(log, goneData="skip")
        if version == 18:
            assert len(rows(reader.read(task))) == 60
        else:
            with pytest.raises(TopicMadeAnewError, match="was deleted and made anew"):
                rows(reader.read(task))
        forget_clients()


def test_a_follower_whose_log_parts_is_no_proof(log: CannedLog) -> None:
    """It may be behind: what it does not know of is asked of the leader, who has it."""
    write(log, 3, 1)
    write(log, 3, 2)
    log.epoch, log.follower = 2, 1
    log.lacks_epochs[1] = 2
    how = access(log, (("client.rack", "r"),))
    assert len(rows(read_range(CANNED, 0, 60, how, Plan(end_epoch=2)))) == 60
    assert {one.node for one in log.fetched} == {0, 1}
