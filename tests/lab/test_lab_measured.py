"""Goal: figures are of what their tables say. Method: histories made up."""

from __future__ import annotations

import os
import shutil
import socket
from collections import Counter
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.lab.checked import Scene

from holdfast.cluster.layout import NodeRecord
from holdfast.judge.groups.history import Processed
from holdfast.judge.history import Acknowledged, Delivered, Event, Refused, Send
from holdfast.lab.parameters import GROUP_SESSION
from holdfast.lab.run import Run
from holdfast.lab.scenarios import busy_topic, payload_curve, throughput
from holdfast.lab.scenarios.arrival_times import arrivals, expect_peace_read
from holdfast.lab.scenarios.networks import broker_isolated
from holdfast.lab.scenarios.replication_price import latencies
from holdfast.lab.steps import measures
from holdfast.lab.steps.measures import Went, between, bytes_between, grown, spell_of


def test_what_arrives_belongs_to_the_window_in_which_it_was_sent() -> None:
    """Method: two windows by hand; one event is read twice, one first by one that waits, one by
    nobody.

    Who is never read has waited until the reader's last event, at least; who is refused has not.
    Seen to fail: who was never read was in no percentile.
    """
    place: dict[str, Any] = {"wall_ms": 0, "topic": "foo", "partition": 0, "digest": ""}

    refusal: dict[str, Any] = {**place, "error": "e", "message": ""}
    refusal.pop("digest")

    def sent(number: int, at_ms: float) -> Send:
        return Send(at_ms=at_ms, process="p", id=f"p:{number}", size=1, **place)

    def read(number: int, at_ms: float, process: str = "raw-reader") -> Delivered:
        return Delivered(at_ms=at_ms, process=process, id=f"p:{number}", offset=number, **place)

    events = [
        *(sent(0, 10.0), sent(1, 20.0), sent(2, 30.0), read(0, 12.0), read(1, 23.0)),
        *(sent(3, 110.0), read(2, 111.0, "consumer"), read(2, 130.0), read(0, 190.0)),
        *(sent(4, 191.0), Refused(at_ms=192.0, process="p", id="p:4", **refusal)),
    ]
    found = arrivals(events, {"calm": (0.0, 100.0), "busy": (100.0, 200.0)})
    assert [each.row(name) for name, each in found.items()] == [
        ["calm", "30", "3", "3", "3.0", "-", "-", "100.0"],
        ["busy", "20", "2", "0", "-", "-", "-", "≥ 80.0"],
    ]


@pytest.mark.parametrize(("read", "kept"), [("3", True), ("2", False)], ids=["all", "one is lost"])
def test_what_is_lost_in_peace_is_excused_by_nothing(read: str, kept: bool) -> None:
    """Goal: with acks=1 losses are counted, because a leader dies; before that none does."""
    scene = Scene()
    rows = [["in peace, 50 a second", "50", "3", read, "1.0"], ["it is dead", "50", "3", "1", "-"]]
    expect_peace_read(cast("Any", scene), rows)
    assert scene.kept == [kept]


def test_a_size_s_spell_is_from_its_first_event_to_its_last_acknowledgement() -> None:
    place: dict[str, Any] = {"wall_ms": 0, "process": "p", "topic": "foo", "partition": 0}
    events = [
        Send(at_ms=100.0, id="p:0", digest="", size=1, **place),
        Send(at_ms=150.0, id="p:1", digest="", size=1, **place),
        Acknowledged(at_ms=600.0, id="p:1", offset=0, **place),
        Acknowledged(at_ms=2100.0, id="p:0", offset=1, **place),
        Send(at_ms=3000.0, id="p:2", digest="", size=1, **place),
    ]
    assert spell_of(events, 0.0) == (100.0, 2100.0, 2)


def test_a_spell_is_of_what_was_sent_once_its_gate_was_open() -> None:
    """Goal: what a client takes to begin, and to find its leaders, is no price of an event.

    Method: an event of the gate, which is acknowledged amid the spell; two behind it.
    """
    place: dict[str, Any] = {"wall_ms": 0, "process": "p", "topic": "foo", "partition": 0}
    events = [
        Send(at_ms=100.0, id="p:0", digest="", size=1, **place),
        Send(at_ms=710.0, id="p:1", digest="", size=1, **place),
        Acknowledged(at_ms=711.0, id="p:0", offset=0, **place),
        Send(at_ms=712.0, id="p:2", digest="", size=1, **place),
        Acknowledged(at_ms=730.0, id="p:1", offset=1, **place),
        Acknowledged(at_ms=750.0, id="p:2", offset=2, **place),
    ]
    assert spell_of(events, 700.0) == (710.0, 750.0, 2)


@pytest.mark.parametrize("answer", [Acknowledged, Refused], ids=["acknowledged", "refused"])
def test_a_stretch_begins_once_its_client_has_an_answer_of_every_partition(answer: Any) -> None:
    """Goal: a client is measured, and not its start. One that is refused has begun, too.

    Method: a producer by hand that answers at the third look and never ends by itself.
    """
    done: list[str] = []
    looks = 0

    def count(kind: type[Event]) -> int:
        return 4 if kind is answer and looks > 2 else 0

    def wait(_what: str, condition: Any, _bound_s: float) -> None:
        nonlocal looks
        while not condition():
            looks += 1
        done.append("waited")

    def start(name: str, **flags: Any) -> Any:
        assert flags["gated"] is True
        assert flags["max_messages"] == 4 + 10
        assert "duration" not in flags, "it would begin with the process"
        done.append(name)
        tail: Any = SimpleNamespace(count=count)
        tail.poll = lambda: tail
        return SimpleNamespace(
            name=name, tail=tail, tell=done.append, running=True,
            may_end=lambda: done.append("may end"), stop=lambda _: done.append("stopped"),
        )  # fmt: skip

    run: Any = SimpleNamespace(partitions=range(4), wait=wait, start_producer=start)
    went = measures.send_gated(run, "a", events=10, duration_s=0.0, bound_s=1.0)
    assert done == ["a", "4", "waited", "may end", "14", "waited", "stopped"]
    assert went.since_ms > 0


def test_how_long_acknowledgements_take_is_told_of_what_was_sent_since() -> None:
    place: dict[str, Any] = {"wall_ms": 0, "process": "p", "topic": "foo", "partition": 0}
    events = [
        Send(at_ms=90.0, id="p:0", digest="", size=1, **place),
        Send(at_ms=100.0, id="p:1", digest="", size=1, **place),
        Send(at_ms=110.0, id="p:2", digest="", size=1, **place),
        Acknowledged(at_ms=130.0, id="p:0", offset=0, **place),
        Acknowledged(at_ms=131.0, id="p:2", offset=2, **place),
        Acknowledged(at_ms=140.5, id="p:1", offset=1, **place),
    ]
    assert latencies(events, 100.0) == ([21.0, 40.5], [])


def broker(number: int, port: int, pid: int | None) -> NodeRecord:
    return NodeRecord(
        id=number, roles=("broker",), host="127.0.0.1", port=port, pid=pid, log_file="",
        config_file="",
    )  # fmt: skip


def test_bytes_between_brokers_are_those_of_who_dialled_both_ways() -> None:
    """Method: lines as `ss` writes them; a client's and a controller's connection among them.

    Seen to fail: what the dialler sent was left out.
    """
    brokers = [broker(0, 9092, 10), broker(1, 9093, 11), broker(2, 9094, None)]
    rest = "cubic wscale:7,7 rto:201"
    counts = "bytes_sent:3 bytes_acked:4 bytes_received:1000 segs_out:1"
    lines = [
        f'0 0 127.0.0.1:5000 127.0.0.1:9093 users:(("python",pid=10,fd=7)) {rest} {counts}',
        '0 0 127.0.0.1:5001 [::ffff:127.0.0.1]:9093 users:(("java",pid=10,fd=8)) bytes_received:5',
        '0 0 127.0.0.1:9093 127.0.0.1:5000 users:(("python",pid=11,fd=7)) bytes_received:70',
        f'0 0 127.0.0.1:5002 127.0.0.1:9092 users:(("python",pid=11,fd=8)) {rest}',
        f'0 0 127.0.0.1:5003 127.0.0.1:9092 users:(("kcat",pid=12,fd=8)) {rest} bytes_received:9',
        '0 0 127.0.0.1:5004 127.0.0.1:7000 users:(("python",pid=11,fd=9)) bytes_received:9',
        f"0 0 127.0.0.1:5005 127.0.0.1:9092 {rest} bytes_received:9",
    ]
    assert between(lines, brokers) == {
        (0, "127.0.0.1:5000", 1): 1003,
        (0, "127.0.0.1:5001", 1): 5,
        (1, "127.0.0.1:5002", 0): 0,
    }


@pytest.mark.process
@pytest.mark.skipif(shutil.which("ss") is None, reason="this system has no ss (iproute2)")
def test_the_kernel_counts_what_one_broker_sends_another() -> None:
    """Method: a real connection of this process, in the place of two brokers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as dialled, server.accept()[0] as other:
            nodes = (broker(0, port, None), broker(1, 1, os.getpid()))
            run: Any = SimpleNamespace(cluster=SimpleNamespace(nodes=nodes))
            before = bytes_between(run)
            other.sendall(b"x" * 1234)
            assert len(dialled.recv(1234, socket.MSG_WAITALL)) == 1234
            dialled.sendall(b"x" * 100)
            assert len(other.recv(100, socket.MSG_WAITALL)) == 100
            after = bytes_between(run)
    assert grown(before, after) == 1334


def test_what_an_ended_connection_has_got_is_not_counted() -> None:
    """Another one that was opened in its place has begun at nought, and may have got more since."""
    old, other, new, third = (0, "a:1", 1), (1, "b:1", 0), (0, "a:2", 1), (2, "c:1", 0)
    before = Counter({old: 100, other: 5})
    assert grown(before, Counter({old: 100, other: 45, third: 7})) == 47
    assert grown(before, Counter({old: 90, other: 500})) is None
    assert grown(before, Counter({old: 900})) is None
    assert grown(before, Counter({new: 900, other: 5})) is None
    assert grown(None, before) is None
    assert grown(before, None) is None


class Measured:
    """As much of a run as looks on a starved machine do: what is late is noted as such."""

    def __init__(self, *leaders: int) -> None:
        self.replicas = {p: (p % 2, 1 - p % 2) for p in range(len(leaders))}
        self.partitions, self.topic = range(len(leaders)), "foo"
        self.parameters = SimpleNamespace(
            servers=None, noticed_s=1.0, duration_s=2.0, engine="embedded"
        )
        self.cluster = SimpleNamespace(broker_ids=(0, 1))
        self.view = SimpleNamespace(
            partitions={
                p: SimpleNamespace(leader=leader, leader_epoch=0, replicas=list(self.replicas[p]))
                for p, leader in enumerate(leaders)
            }
        )
        self.tables: list[Any] = []
        self.failed: list[str] = []  # whatever the machine was like
        self.late: list[str] = []  # excused where it starved the nodes
        self.started: list[dict[str, Any]] = []
        self.events = 0  # that whoever is started sends, and is told are kept
        self.expected: list[str] = []
        self.in_time = True  # what is expected

    @property
    def as_run(self) -> Run:
        return cast("Run", self)

    def check(self, name: str, _want: str, _seen: str, *, kept: bool, **excused: bool) -> bool:
        if not kept:
            is_late = excused.get("late", False) or not excused.get("given", True)
            (self.late if is_late else self.failed).append(name)
        return kept

    def expect(self, when: str, *_: Any) -> bool:
        self.expected.append(when)
        return self.in_time

    def expect_flow(self, *_: Any) -> bool:
        return False

    def start_producer(self, name: str = "producer", **flags: Any) -> Any:
        self.started.append({"name": name, **flags})
        tail: Any = SimpleNamespace(count=lambda _kind: self.events)
        tail.poll = lambda: tail
        return SimpleNamespace(name=name, tail=tail, wait=self._wait)

    def _wait(self, bound_s: float = 60.0) -> None:
        self.started[-1]["bound_s"] = bound_s

    def start_raw(self) -> None: ...

    def start_readers(self, **_: Any) -> None: ...

    def make_topic(self) -> None: ...

    def must_flow(self, _worker: Any) -> None: ...

    def steady(self, _worker: Any) -> None: ...


def sized(monkeypatch: pytest.MonkeyPatch, run: Measured) -> None:
    sizes = {(node, p): 100 for p in run.partitions for node in (0, 1)}
    monkeypatch.setattr(busy_topic, "replica_sizes", lambda _: sizes)


@pytest.mark.parametrize("leaders", [(0, 1, 0, 1), (0, 0, 0, 0)], ids=["as placed", "fenced once"])
def test_leaders_that_a_slow_machine_has_moved_are_not_placed_unevenly(
    monkeypatch: pytest.MonkeyPatch, leaders: tuple[int, ...]
) -> None:
    """Goal: a broker whose session ended while the machine starved it leads nothing: late."""
    run = Measured(*leaders)
    sized(monkeypatch, run)
    busy_topic.measure(run.as_run)
    assert run.failed == []
    assert run.late == ([] if len(set(leaders)) == 2 else [busy_topic.LED_BYTES])
    assert run.expected == ["in peace"], "that those lead who should, is a check of its own"


def test_leaders_that_are_placed_on_one_broker_are_excused_by_no_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = Measured(0, 0, 0, 0)
    run.replicas = dict.fromkeys(run.partitions, (0, 1))
    sized(monkeypatch, run)
    busy_topic.measure(run.as_run)
    assert run.failed == [busy_topic.LEADERS]
    assert run.late == [busy_topic.LED_BYTES]


@pytest.mark.parametrize("short", [0, 1])
def test_a_slow_filling_is_no_uneven_load(monkeypatch: pytest.MonkeyPatch, short: int) -> None:
    """Goal: the wait for it ends sooner than its events are given up, and one that is not there is
    said before bytes are held against each other.
    """
    run = Measured(0, 1, 0, 1)
    sized(monkeypatch, run)
    run.events = busy_topic.EACH * 4 - short
    busy_topic.load(run.as_run)
    filling = run.started[0]
    assert filling["delivery_timeout_ms"] > 1000 * filling["bound_s"]
    assert run.late == [busy_topic.FILLED] * short
    assert run.failed == []


def test_a_producer_of_a_dozen_gives_nothing_up_before_the_wait_for_all_is_over() -> None:
    """Goal: too slow a machine is a run that could not be made. Each is waited for in its turn."""
    run = Measured(0)
    throughput.start(run.as_run, 1)
    bound_s = throughput.PRODUCERS * throughput.SEND_S
    assert run.started[0]["delivery_timeout_ms"] >= 1000 * bound_s


def test_producers_are_let_go_together_once_each_has_an_answer_of_every_partition() -> None:
    """Goal: none is measured while processes of others are still being started.

    Method: three, of which the last is slow to start; what each is told, look after look.
    """
    looks = 0
    told: list[list[int]] = [[], [], []]

    def sender(number: int) -> Any:
        tail: Any = SimpleNamespace(count=lambda _kind: 4 if looks >= number else 3)
        tail.poll = lambda: tail
        return SimpleNamespace(tail=tail, tell=lambda line: told[number].append(int(line)))

    def wait(_what: str, condition: Any, _bound_s: float) -> None:
        nonlocal looks
        while not condition():
            looks += 1
            assert [each[-1] for each in told] == [4] * 3

    run: Any = SimpleNamespace(partitions=range(4), wait=wait)
    throughput.begin_together(run, [sender(number) for number in range(3)])
    assert looks == 2, "the last one is ready by then"
    assert told == [[4, throughput.EVENTS_MAX]] * 3


def test_a_producer_of_a_dozen_waits_to_be_let_go() -> None:
    run = Measured(0)
    throughput.start(run.as_run, 1)
    assert run.started[0]["gated"] is True


def test_both_sides_figures_end_with_events_and_not_when_the_lab_looked() -> None:
    """Method: one event before they are let go; two behind it, one of them processed twice."""
    place: dict[str, Any] = {"wall_ms": 0, "topic": "foo", "partition": 0}
    of_group: dict[str, Any] = {**place, "process": "c", "group": "g", "member": "m"}

    def one(number: int, sent_ms: float, answered_ms: float, *done_ms: float) -> list[Event]:
        there: dict[str, Any] = {**place, "process": "p", "id": f"p:{number}"}
        return [
            Send(at_ms=sent_ms, digest="", size=1, **there),
            Acknowledged(at_ms=answered_ms, offset=number, **there),
            *(Processed(at_ms=ms, id=f"p:{number}", offset=number, **of_group) for ms in done_ms),
        ]

    events = [*one(0, 50, 800, 990), *one(1, 100, 600, 700, 950), *one(2, 110, 500, 900)]
    events.sort(key=lambda event: event.at_ms)
    producers, consumers = throughput.spells(events, 100.0)
    assert producers == throughput.Spell(100.0, [500.0, 600.0])
    assert consumers == throughput.Spell(100.0, [700.0, 900.0])


def gated(run: Any, name: str, *, events: int, **flags: Any) -> Went:
    del events
    return Went(run.start_producer(name, **flags), 0.0)


def test_sizes_are_gone_through_up_and_down_on_warm_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: neither the order nor a cold start looks like what a size costs."""
    run = Measured(0)
    run.events = 1
    rates = iter([100.0, 200.0, 210.0])
    monkeypatch.setattr(measures, "rate_of", lambda _: next(rates))
    monkeypatch.setattr(payload_curve, "send_gated", gated)
    _, senders = payload_curve.send_all(run.as_run)
    sizes = [flags["size"] for flags in run.started]
    warm, up, down = sizes[:3], sizes[3:9], sizes[9:]
    assert warm == [payload_curve.WARM_UP] * 3
    assert tuple(up) == payload_curve.SIZES
    assert down == up[::-1]
    assert {size: len(each) for size, each in senders.items()} == dict.fromkeys(up, 2)
    assert len({flags["name"] for flags in run.started}) == len(run.started) == 15
    assert run.failed == []


@pytest.mark.parametrize(
    ("rates", "bound_s", "count", "told"),
    [
        ([100.0, 104.0], 60.0, 2, "until two in a row"),
        ([100.0, 115.0, 150.0, 149.0, 1.0], 60.0, 4, "until two in a row"),
        ([149.0, 100.0, 150.0], 0.0, 2, "for 0 s, and not until two in a row"),
        ([0.0, 0.0, 5.0], 0.0, 2, "for 0 s, and not until two in a row"),
    ],
)
def test_nodes_are_warm_once_they_get_no_faster(
    monkeypatch: pytest.MonkeyPatch, rates: list[float], bound_s: float, count: int, told: str
) -> None:
    """Goal: what is said of nodes is what was seen: a JVM is not warm after a second."""
    names: list[str] = []
    monkeypatch.setattr(measures, "rate_of", lambda _: rates[len(names) - 1])
    said = measures.warm_up(lambda name: cast("Any", names.append(name)), bound_s)
    assert len(set(names)) == len(names) == count
    assert said.startswith(f"{count} stretches that are not counted went before, {told}")
    assert f"had {rates[count - 2]:,.0f} and {rates[count - 1]:,.0f} events a second" in said


@pytest.mark.parametrize(("short", "late"), [(0, 0), (1, 1)])
def test_what_producers_never_sent_is_not_acknowledged(short: int, late: int) -> None:
    """Goal: all that had to be sent is counted, not all that was."""
    run = Measured(0)
    run.events = throughput.EVENTS_MAX - short
    senders = [throughput.start(run.as_run, number) for number in (1, 2)]
    assert throughput.expect_taken(run.as_run, senders) == 2 * run.events
    assert (run.failed, len(run.late)) == ([], late)


@pytest.mark.parametrize(
    ("processed", "taken_away", "kept"),
    [(10, 0, True), (10, 2, True), (11, 0, False), (11, 1, True), (9, 0, False), (9, 1, False)],
)
def test_a_group_in_peace_does_nothing_twice(processed: int, taken_away: int, kept: bool) -> None:
    """Goal: of a repeat the excuse is a partition that was lost since, not while they began."""
    told = SimpleNamespace(processed=Counter({0: processed}), revocations=5 + taken_away)
    group: Any = SimpleNamespace(all=[SimpleNamespace(told=told)])
    run = Measured(0)
    throughput.expect_once(run.as_run, group, 10, 5)
    assert (not run.late) is kept


def test_members_give_no_connection_up_on_which_a_commit_waits() -> None:
    """Goal: no offset goes back because a client sent a commit again, and the first came last.

    Seen: heartbeats half a second apart, a commit of four seconds, and three copies of it in the
    log, the last one behind two later ones. librdkafka waits for two intervals.
    """
    config = throughput.SCENARIO.defaults.node_config
    assert 2 * int(config[throughput.HEARTBEAT]) >= 10_000
    assert int(config[throughput.HEARTBEAT]) < int(config[GROUP_SESSION])


@pytest.mark.parametrize("servers", [None, "there:9092"], ids=["the lab's own", "elsewhere"])
def test_a_leader_that_is_cut_off_too_late_is_late_in_all(
    monkeypatch: pytest.MonkeyPatch, servers: str | None
) -> None:
    """Goal: the epoch of a leader that a starved controller has not replaced is no other failure.

    Elsewhere leadership may go back by itself, at any moment.
    """
    cut_off = SimpleNamespace(begin=lambda: None, end=lambda: None)
    monkeypatch.setattr(broker_isolated, "CutOff", lambda *_: cut_off)
    monkeypatch.setattr(broker_isolated, "elect_preferred", lambda *_: None)
    run = Measured(0, 1)
    run.parameters.servers, run.in_time = servers, False
    broker_isolated.steps(run.as_run)
    assert (run.failed, run.late) == ([], ["leader epoch"])
    assert ("1 leads no more" in run.expected) is (servers is None)
