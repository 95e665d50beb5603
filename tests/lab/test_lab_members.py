"""Goal: a member of a group does what a careful user's would, and writes it down in time.

Method: a client in librdkafka's place, whose polls and answers stand in a script; what is compared
is the history, what was committed, and what was on disk by then.
"""

from __future__ import annotations

import fcntl
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, KafkaError, TopicPartition
from tests.lab.fake_group_client import (
    FakeConsumer,
    Step,
    give,
    install,
    nothing,
    records,
    revoke,
    told,
)

from holdfast.clients.blocking_driver import DriverError
from holdfast.clients.workload import member_commits, member_sink, verifiable_member
from holdfast.clients.workload.group_diary import Membership
from holdfast.clients.workload.member_options import Options, parse
from holdfast.clients.workload.member_sink import Sink
from holdfast.clients.workload.recorder import Recorder
from holdfast.clients.workload.verifiable_member import VerifiableMember, membership_of
from holdfast.judge.groups.history import Processed, Revoked, Started
from holdfast.judge.history import Note

Live = Callable[..., FakeConsumer]


@contextmanager
def sleeping(instead: Callable[[float], None]) -> Iterator[None]:
    """Have this done where a member sleeps, and only there: other threads of this process go on."""
    with pytest.MonkeyPatch.context() as patched:
        stand_in = SimpleNamespace(**(vars(time) | {"sleep": instead}))
        patched.setattr(verifiable_member, "time", stand_in)
        yield


@pytest.fixture
def live(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Live:
    """Return a function that lets a member live through a script."""

    def run(script: Sequence[Step], *, codes: Sequence[int] = (), **flags: Any) -> FakeConsumer:
        history = tmp_path / "m.jsonl"
        told = {"bootstrap": "b", **flags}
        options = Options(topic="foo", history=history, process="m", group="g", **told)
        consumer = FakeConsumer(script, history)
        consumer.commit_codes.extend(codes)
        install(monkeypatch, consumer)
        with Recorder(history, "m") as recorder:
            member = VerifiableMember(options, recorder)
            consumer.ended = member.stop
            member.run()
        return consumer

    return run


def kinds(consumer: FakeConsumer) -> list[str]:
    return [event.KIND.removeprefix("group_") for event in consumer.events()]


def processed(consumer: FakeConsumer) -> list[tuple[int, int]]:
    done = [event for event in consumer.events() if isinstance(event, Processed)]
    return [(event.partition, event.offset) for event in done]


def test_who_commits_afterwards_has_it_on_disk_before(live: Live) -> None:
    consumer = live([give(0, 1), *records(0, 3, 4), *records(1, 3), nothing])
    assert kinds(consumer) == [
        "joined", "assigned", "assigned", "started", "started",
        "processed", "processed", "processed", "commit", "commit", "committed", "committed",
        "revoked", "revoked", "left",
    ]  # fmt: skip
    assert consumer.commits == [{0: 5, 1: 4}]
    assert consumer.on_disk[0][-5:] == ["group_processed"] * 3 + ["group_commit"] * 2
    assert consumer.closed


def test_what_was_done_is_on_disk_before_the_next_is_begun(live: Live, tmp_path: Path) -> None:
    """Goal: what a killed member had done is known, or its repeats are not seen as such."""
    on_disk: list[int] = []

    def work(_seconds: float) -> None:
        on_disk.append((tmp_path / "m.jsonl").read_bytes().count(b"group_processed"))

    with sleeping(work):
        live([give(0), *records(0, 3, 4, 5), nothing], work_ms=1.0)
    assert on_disk == [0, 1, 2]


def test_who_commits_before_says_so_before(live: Live) -> None:
    consumer = live([give(0), *records(0, 3, 4), nothing], commits="before")
    assert kinds(consumer)[3:7] == ["commit", "committed", "processed", "processed"]
    assert consumer.commits == [{0: 5}]


def test_it_begins_where_it_was_committed_or_as_the_reset_says(live: Live) -> None:
    for reset, offset in (("earliest", 3), ("latest", 50)):
        consumer = live([give(0)], reset=reset)
        (started,) = [event for event in consumer.events() if isinstance(event, Started)]
        assert (started.committed, started.offset, started.reset) == (None, offset, reset)
        assert consumer.closed

    def commits(consumer: FakeConsumer) -> None:
        consumer.committed_offsets[0] = 7

    consumer = live([commits, give(0), *records(0, 6, 7), nothing])
    started = next(event for event in consumer.events() if isinstance(event, Started))
    assert (started.committed, started.offset, started.reset) == (7, 7, "")
    assert processed(consumer) == [(0, 7)], "what is before its place is not its own"
    consumer = live([commits, give(0), *records(0, 6), nothing], commits="before")
    assert consumer.commits == []


def refused(*codes: int) -> Step:
    """Refuse the next questions of what is committed."""
    return lambda consumer: consumer.ask_codes.extend(codes)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_what_it_is_given_it_takes_before_it_asks_where_to_begin(live: Live, protocol: str) -> None:
    """Goal: no other is given what it has been told to be its own.

    Seen to fail: on Apache Kafka its question was refused for 2 s behind a standstill. Until a
    member has taken what it is given, librdkafka tells a new coordinator that it has nothing, so
    two others were given the same partitions.
    """
    not_yet = [KafkaError.NOT_COORDINATOR, KafkaError.NOT_COORDINATOR]

    def commits(consumer: FakeConsumer) -> None:
        consumer.committed_offsets[0] = 7
        consumer.seek_codes.append(KafkaError._STATE)

    script = [refused(*not_yet), commits, give(0), *records(0, 7), nothing, *records(0, 8), nothing,
              *records(0, 9), nothing, *records(0, 6, 7, 8), nothing]  # fmt: skip
    consumer = live(script, protocol=protocol)
    assert consumer.asked == [{0: OFFSET_BEGINNING}] * 4, "from where nothing is skipped"
    assert processed(consumer) == [(0, 7), (0, 8)], "what came meanwhile comes again"
    assert kinds(consumer).count("assigned") == kinds(consumer).count("started") == 1
    assert consumer.commits[-1] == {0: 9}


@pytest.mark.parametrize(
    ("code", "bound_s"), [(KafkaError.UNKNOWN_MEMBER_ID, 1e9), (KafkaError.NOT_COORDINATOR, 0.0)]
)
def test_who_is_never_told_where_to_begin_joins_anew(
    live: Live, monkeypatch: pytest.MonkeyPatch, code: int, bound_s: float
) -> None:
    monkeypatch.setattr(verifiable_member, "BEGIN_S", bound_s)
    consumer = live([refused(code), give(0), nothing, give(0), nothing, *records(0, 3), nothing])
    notes = [event.text for event in consumer.events() if isinstance(event, Note)]
    assert notes[1:] == ["m joins anew: nobody has told where to begin"]
    assert processed(consumer) == [(0, 3)]
    revoked = [event.lost for event in consumer.events() if isinstance(event, Revoked)]
    assert revoked == [True, False], "what it had and could not use is given up as well"


def test_what_it_gave_up_untold_is_asked_for_no_more(live: Live) -> None:
    code = KafkaError._TIMED_OUT
    consumer = live([refused(code), give(0), revoke(0), nothing, nothing], protocol="consumer")
    assert len(consumer.asked) == 1
    assert kinds(consumer).count("revoked") == 1


def test_nothing_of_what_it_gave_up_is_processed(live: Live) -> None:
    """Method: a rebalance comes while a batch is put together."""
    script = [give(0, 1), *records(0, 3), *records(1, 3), revoke(0), *records(0, 4), nothing]
    consumer = live(script, protocol="consumer")
    assert processed(consumer) == [(1, 3)]
    consumer = live(script, protocol="consumer", commits="before")
    assert consumer.commits == [{1: 4}], "nor committed"


@pytest.mark.parametrize(
    ("flags", "lost", "commits"),
    [({}, False, [{0: 5}]), ({"careless": True}, False, []), ({}, True, [])],
)
def test_what_was_done_is_committed_before_it_is_given_up(
    live: Live, flags: dict[str, Any], lost: bool, commits: list[dict[int, int]]
) -> None:
    script = [give(0), *records(0, 3, 4), nothing, revoke(0, lost=lost)]
    consumer = live(script, commit_every=9, **flags)
    assert consumer.commits == commits
    revoked = [event for event in consumer.events() if isinstance(event, Revoked)]
    assert [event.lost for event in revoked] == [lost]


@pytest.mark.parametrize(
    ("code", "certain_s", "kind"),
    [
        (KafkaError.REBALANCE_IN_PROGRESS, 9.0, "commit_refused"),
        (KafkaError.REBALANCE_IN_PROGRESS, 0.0, "commit_unknown"),
        (KafkaError.NOT_COORDINATOR, 9.0, "commit_unknown"),
        (KafkaError._TIMED_OUT, 9.0, "commit_unknown"),
    ],
)
def test_only_the_first_answer_is_a_certain_refusal(
    live: Live, monkeypatch: pytest.MonkeyPatch, code: int, certain_s: float, kind: str
) -> None:
    """Goal: what librdkafka sent again by itself may have taken effect the first time."""
    monkeypatch.setattr(member_commits, "CERTAIN_S", certain_s)
    consumer = live([give(0), *records(0, 3), nothing], codes=[code])
    assert kinds(consumer)[3:6] == ["processed", "commit", kind]
    assert consumer.commits == [{0: 4}], "it is committed again when it leaves"


def test_who_is_no_member_any_more_processes_nothing_until_it_is_one(live: Live) -> None:
    again = give(0, epoch=4, member="m2")
    script = [give(0), *records(0, 3), nothing, *records(0, 4), nothing,
              revoke(0, lost=True), again, *records(0, 3), nothing]  # fmt: skip
    consumer = live(script, codes=[KafkaError.UNKNOWN_MEMBER_ID])
    assert processed(consumer) == [(0, 3), (0, 3)]
    revoked = [event for event in consumer.events() if isinstance(event, Revoked)]
    assert [(event.member, event.lost) for event in revoked] == [("m1", True), ("m2", False)]


def test_who_is_behind_waits_for_its_new_generation(live: Live) -> None:
    """Method: a commit is refused; records come before it is told that it keeps its partition."""
    at: list[tuple[set[int], int]] = []

    def look(consumer: FakeConsumer) -> None:
        at.append((set(consumer.paused), len(processed(consumer))))

    def next_generation(consumer: FakeConsumer) -> None:
        consumer.epoch = 2

    script = [give(0), *records(0, 3), nothing, *records(0, 4), nothing, look, next_generation]
    consumer = live(script, codes=[KafkaError.ILLEGAL_GENERATION], protocol="consumer")
    assert at == [({0}, 1)]
    assert processed(consumer) == [(0, 3), (0, 4)]
    assert not consumer.paused


@pytest.mark.parametrize(
    ("alone_s", "brokers", "times"),
    [(0.0, {0: ("h", 1)}, 1), (0.0, {}, 0), (0.0, None, 0), (1e9, {0: ("h", 1)}, 0)],
)
def test_whose_client_has_lost_brokers_that_are_there_takes_another_client(
    live: Live,
    monkeypatch: pytest.MonkeyPatch,
    alone_s: float,
    brokers: dict[int, tuple[str, int]] | None,
    times: int,
) -> None:
    """Goal: a client that lost its brokers for good keeps no partition from being shared.

    Seen to fail: on Apache Kafka, whose brokers were all fenced behind a standstill, an answer
    named none of them; librdkafka asked nobody for a minute, and its group was called stuck. And
    with another client in an outage, whose member's partitions were nobody's until its session was
    over.
    """

    def nodes(_driver: object) -> dict[int, tuple[str, int]]:
        if brokers is None:
            raise DriverError("nobody listens")
        return brokers

    monkeypatch.setattr(verifiable_member, "ALONE_S", alone_s)
    monkeypatch.setattr("holdfast.clients.blocking_driver.Driver.nodes", nodes)

    def loses_them(consumer: FakeConsumer) -> None:
        consumer.reaches.extend([False] * 2)

    script = [give(0), *records(0, 3), nothing, loses_them, *[nothing] * 5]
    consumer = live(script, bootstrap="h:1")
    notes = [event.text for event in consumer.events() if isinstance(event, Note)]
    assert notes == ["m joins anew: its client knows no broker any more"] * times
    revoked = [event.lost for event in consumer.events() if isinstance(event, Revoked)]
    assert revoked == ([True] if times else [False])


@pytest.mark.parametrize("back", ["its own client", "a record"])
def test_whose_brokers_are_back_meanwhile_keeps_its_client(
    live: Live, monkeypatch: pytest.MonkeyPatch, back: str
) -> None:
    """Seen to fail: a standstill ended between the question to this client and that to another."""
    monkeypatch.setattr(verifiable_member, "ALONE_S", 0.0)
    monkeypatch.setattr("holdfast.clients.blocking_driver.Driver.nodes", lambda _: {0: ("h", 1)})

    def loses_them(consumer: FakeConsumer) -> None:
        consumer.reaches.extend([False, True] if back == "its own client" else [False] * 9)

    def record_comes(consumer: FakeConsumer) -> Any:
        if back == "a record":
            monkeypatch.setattr(verifiable_member, "ALONE_S", 1e9)
        return records(0, 3)[0](consumer)

    script = [give(0), loses_them, nothing, record_comes, *[nothing] * 4]
    consumer = live(script, bootstrap="h:1")
    assert not [event for event in consumer.events() if isinstance(event, Note)]
    assert processed(consumer) == [(0, 3)]


def test_a_leader_that_does_not_tell_what_it_holds_keeps_no_other_partition_waiting(
    live: Live,
) -> None:
    """Seen to fail: nothing was processed of a partition beside one with nothing committed."""

    def falls_silent(consumer: FakeConsumer) -> None:
        consumer.silent.add(0)

    def tells(consumer: FakeConsumer) -> None:
        consumer.silent.clear()

    script = [falls_silent, give(0, 1), *records(1, 3), nothing, tells, nothing, *records(0, 3),
              nothing]  # fmt: skip
    assert processed(live(script)) == [(1, 3), (0, 3)]


@pytest.mark.parametrize("heard", ["by a record", "by an answer"])
def test_who_has_heard_from_a_broker_does_not_ask(
    live: Live, monkeypatch: pytest.MonkeyPatch, heard: str
) -> None:
    monkeypatch.setattr(verifiable_member, "ALONE_S", 50.0)
    now = [1e6]
    stand_in = SimpleNamespace(**(vars(time) | {"monotonic": lambda: now[0]}))
    monkeypatch.setattr(verifiable_member, "time", stand_in)

    def later(consumer: FakeConsumer) -> Any:
        now[0] += 40.0
        return records(0, 3)[0](consumer) if heard == "by a record" else None

    consumer = live([give(0), later, nothing, later, nothing, later, nothing])
    assert consumer.listed == (0 if heard == "by a record" else 1)


def test_who_has_no_instance_is_fenced_by_nobody_and_joins_anew(live: Live) -> None:
    """Seen to fail: librdkafka left for polling too late while nobody coordinated, and then sent a
    heartbeat that Apache Kafka calls invalid; its member ended, and the run was not made.
    """
    script = [give(0), nothing, told(KafkaError._FATAL), nothing, give(0), nothing, *records(0, 3),
              nothing]  # fmt: skip
    consumer = live(script, protocol="consumer")
    assert processed(consumer) == [(0, 3)]
    notes = [event.text for event in consumer.events() if isinstance(event, Note)]
    assert any(text.startswith("m joins anew: ") for text in notes), notes


def test_whose_clients_all_end_by_a_fatal_error_ends(live: Live) -> None:
    """Seen to fail: of a cluster without its protocol it made a thousand clients in ten seconds."""
    consumer = live([told(KafkaError._FATAL)] * 9)
    assert len(consumer.script) == 5


def test_a_fatal_error_counts_until_it_begins(live: Live) -> None:
    lives = [told(KafkaError._FATAL), give(0), nothing] * 9
    consumer = live([*lives, *records(0, 3), nothing])
    assert processed(consumer) == [(0, 3)]


def test_its_leader_is_asked_before_a_seek_also_where_something_is_committed(live: Live) -> None:
    """Seen to fail: a seek that overtook the client's own question to it was undone for 0.6 s."""

    def commits(consumer: FakeConsumer) -> None:
        consumer.committed_offsets |= {0: 7, 1: 7}
        consumer.silent.add(1)

    consumer = live([commits, give(0, 1), nothing, *records(0, 7), *records(1, 7), nothing])
    assert consumer.sought == [(0, True), (1, True)]
    assert processed(consumer) == [(0, 7), (1, 7)], "and who does not answer keeps none waiting"
    assert not [event for event in consumer.events() if isinstance(event, Note)], (
        "nor is asked again"
    )


def test_whose_epoch_is_behind_asks_again_where_to_begin(live: Live) -> None:
    consumer = live(
        [refused(KafkaError.STALE_MEMBER_EPOCH), give(0), nothing, *records(0, 3), nothing],
        protocol="consumer",
    )
    assert processed(consumer) == [(0, 3)]
    assert not [event for event in consumer.events() if isinstance(event, Revoked) and event.lost]


def test_who_hears_that_it_is_out_begins_with_nothing_that_it_was_given(live: Live) -> None:
    script = [give(0), nothing, *records(0, 3), give(1), nothing, *records(1, 3), nothing]
    consumer = live(script, codes=[KafkaError.UNKNOWN_MEMBER_ID], protocol="consumer")
    assert processed(consumer) == [(0, 3)]


def test_another_one_has_its_instance(live: Live) -> None:
    consumer = live([give(0), told(KafkaError._FATAL), *records(0, 3)], instance="i")
    assert processed(consumer) == []
    assert consumer.closed


@pytest.mark.parametrize("outcome", ["commit_refused", "commit_unknown"])
def test_what_the_client_commits_by_itself_is_told_before_and_after(
    live: Live, monkeypatch: pytest.MonkeyPatch, outcome: str
) -> None:
    """What was stored long before the answer may have been sent, and be sent once more later.

    Seen to fail: it was refused for certain, and when the client had sent it again behind a later
    one a judge said that the broker had moved the place back.
    """
    wait_ms = 1e9 if outcome == "commit_refused" else 0
    monkeypatch.setattr(member_commits, "AUTO_COMMIT_MS", wait_ms)

    def commits(offset: int, code: int = 0) -> Step:
        def step(consumer: FakeConsumer) -> None:
            error = KafkaError(code) if code else None
            consumer.on_commit(error, [TopicPartition("foo", 0, offset)])

        return step

    script = [give(0), *records(0, 3), nothing, *records(0, 4), nothing, commits(5),
              *records(0, 5), nothing, commits(6, KafkaError._TIMED_OUT)]  # fmt: skip
    consumer = live(script, commits="automatic")
    found = kinds(consumer)
    assert found[3:5] == ["commit", "processed"]
    assert consumer.stored == [{0: 4}, {0: 5}, {0: 6}]
    assert [each for each in found if each.startswith("commit")] == [
        "commit", "commit", outcome, "committed", "commit", "commit_unknown",
    ]  # fmt: skip


def test_it_stands_still_where_it_is_told_to(live: Live, tmp_path: Path) -> None:
    hold = tmp_path / "hold"
    hold.write_text("2")

    def let_go(_seconds: float) -> None:
        hold.unlink()

    with sleeping(let_go):
        consumer = live([give(0), *records(0, 3, 4, 5), nothing], hold=hold)
    notes = [event.text for event in consumer.events() if isinstance(event, Note)]
    assert notes == ["m holds with 2 of 3 records processed"]
    assert kinds(consumer)[3:7] == ["processed", "processed", "note", "processed"]


def test_it_stands_still_only_in_a_batch_of_which_some_is_left(live: Live, tmp_path: Path) -> None:
    hold = tmp_path / "hold"
    hold.write_text("2+")
    with sleeping(lambda _: hold.unlink()):
        script = [give(0), *records(0, 3, 4), nothing, *records(0, 5, 6, 7), nothing]
        consumer = live(script, hold=hold)
    notes = [event.text for event in consumer.events() if isinstance(event, Note)]
    assert notes == ["m holds with 2 of 3 records processed"]


# -- results ---------------------------------------------------------------------------------------


def test_results_and_the_place_behind_them_are_one(live: Live, tmp_path: Path) -> None:
    sink = tmp_path / "sink"
    flags = {"sink": sink, "sink_mode": "transaction", "commits": "never"}
    live([give(0), *records(0, 0, 1), nothing], **flags)
    consumer = live([give(0), *records(0, 1, 2), nothing], **flags)
    with Sink(sink) as table:
        assert [row.offset for row in table.rows()] == [0, 1, 2]
        assert table.position(0) == 3
    assert consumer.commits == []


def test_a_member_that_stands_still_as_it_opens_the_table_holds_nobody_up_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen to fail: one was stopped with the lock, and each other one waited without a word."""
    sink = tmp_path / "sink"
    monkeypatch.setattr(member_sink, "BUSY_S", 0.0)
    with (tmp_path / "sink.opening").open("a") as another:
        fcntl.flock(another, fcntl.LOCK_EX)
        with pytest.raises(TimeoutError, match=r"sink\.opening has been locked for 0 s"):
            Sink(sink)
        assert not sink.exists(), "what it can't open yet it does not make"
    with Sink(sink) as table:
        assert table.rows() == []


def test_who_was_replaced_puts_nothing_in(live: Live, tmp_path: Path) -> None:
    sink = tmp_path / "sink"

    def another_goes_on(_consumer: FakeConsumer) -> None:
        with Sink(sink) as table:
            table.put("g", [], {})
            table._connection.execute("INSERT INTO positions VALUES (0, 9)")

    flags = {"sink": sink, "sink_mode": "transaction", "commits": "never"}
    script = [give(0), *records(0, 0), another_goes_on, *records(0, 1), nothing]
    consumer = live(script, **flags)
    with Sink(sink) as table:
        assert table.rows() == []
    assert any("goes on at 9, not at 0" in e.text for e in consumer.events() if isinstance(e, Note))
    assert processed(consumer) == [(0, 0)]


def test_a_group_that_may_not_write_waits_and_takes_over_where_results_end(
    live: Live, tmp_path: Path
) -> None:
    sink = tmp_path / "sink"
    with Sink(sink) as table:
        table.switch("other")
        table._connection.execute("INSERT INTO positions VALUES (0, 2)")
    at: list[dict[int, int]] = []

    def switch(consumer: FakeConsumer) -> None:
        at.append(dict(consumer.assigned))
        with Sink(sink) as table:
            table._connection.execute("UPDATE positions SET next = 5")
            table.switch("g")

    script = [give(0), *records(0, 0), nothing, switch, *records(0, 4, 5), nothing]
    consumer = live(
        script, sink=sink, sink_mode="transaction", commits="never", protocol="consumer"
    )
    assert at == [{0: 2}], "it reads along from where results end"
    assert processed(consumer) == [(0, 5)]
    with Sink(sink) as table:
        assert [row.offset for row in table.rows()] == [5]


def test_what_is_thrown_away_keeps_nobody_from_taking_over(live: Live, tmp_path: Path) -> None:
    """Method: records of another's partition come without an end, until it has taken over."""
    sink = tmp_path / "sink"
    with Sink(sink) as table:
        table.switch("other")
    until_s = time.monotonic() + 30

    def switch(_consumer: FakeConsumer) -> None:
        with Sink(sink) as table:
            table.switch("g")

    def foreign(consumer: FakeConsumer) -> Any:
        if b"group_started" not in consumer.history.read_bytes() and time.monotonic() < until_s:
            consumer.script.append(foreign)
        return records(1, 0)[0](consumer)

    consumer = live([give(0), switch, foreign], sink=sink, sink_mode="transaction", commits="never")
    assert any(isinstance(event, Started) for event in consumer.events())


def test_a_key_is_put_in_once_and_without_one_all_is(live: Live, tmp_path: Path) -> None:
    for mode, offsets in (("key", [3, 4]), ("plain", [3, 4, 3, 4])):
        sink = tmp_path / mode
        for _ in range(2):
            live([give(0), *records(0, 3, 4), nothing], sink=sink, sink_mode=mode, commits="never")
        with Sink(sink, mode) as table:
            assert [row.offset for row in table.rows()] == offsets


@pytest.mark.parametrize(("mode", "there"), [("key", 2), ("plain", 2), ("transaction", 0)])
def test_who_dies_in_a_batch_has_put_in_what_it_had_done(
    live: Live, tmp_path: Path, mode: str, there: int
) -> None:
    """Goal: a death between a result and its commit happens, or nothing shows what it costs."""
    hold, sink, seen = tmp_path / "hold", tmp_path / "sink", list[int]()
    hold.write_text("2")

    def look(_seconds: float) -> None:
        with Sink(sink, mode) as table:
            seen.append(len(table.rows()))
        hold.unlink()

    with sleeping(look):
        live([give(0), *records(0, 3, 4, 5), nothing], hold=hold, sink=sink, sink_mode=mode,
             commits="never")  # fmt: skip
    assert seen == [there]


# -- words -----------------------------------------------------------------------------------------


def test_a_membership_is_read_as_librdkafka_writes_it() -> None:
    assert membership_of(b"CGMDv2:\x02\x00\x00\x00g\x00a-1\x00\x01") == Membership("a-1", 2)
    assert not membership_of(b"CGMDv2:\xff\xff\xff\xffg\x00\x00\x01").is_known
    assert not membership_of(b"CGMDv2:\xff\xff\xff\xffg\x00a\x00\x01").is_known
    assert not membership_of(b"CGMDv2:\x00\x00\x00\x00g\x00a\x00\x01").is_known


def test_options_reach_the_client() -> None:
    told = ["--bootstrap-server", "b", "--topic", "foo", "--partitions", "3", "--history", "h",
            "--group", "g", "--protocol", "consumer", "--assignor", "range",
            "--instance", "i"]  # fmt: skip
    config = parse(told).client_config()
    assert config["group.remote.assignor"] == "range"
    assert config["group.instance.id"] == "i"
    assert "session.timeout.ms" not in config
    classic = parse([*told, "--protocol", "classic", "--assignor", "cooperative-sticky"])
    assert classic.client_config()["session.timeout.ms"] == 6000
    assert classic.is_incremental
    assert not parse([*told, "--protocol", "classic"]).is_incremental
