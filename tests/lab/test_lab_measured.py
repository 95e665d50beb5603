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
from holdfast.judge.history import Acknowledged, Delivered, Send
from holdfast.lab.scenarios.arrival_times import arrivals, expect_peace_read
from holdfast.lab.scenarios.replication_price import latencies
from holdfast.lab.steps.measures import between, bytes_between, grown, spell_of


def test_what_arrives_belongs_to_the_window_in_which_it_was_sent() -> None:
    """Method: two windows by hand; one event is read twice, one first by one that waits, one by
    nobody.

    How many were sent is said beside how many were read: figures are of the latter alone.
    """
    place: dict[str, Any] = {"wall_ms": 0, "topic": "foo", "partition": 0, "digest": ""}

    def sent(number: int, at_ms: float) -> Send:
        return Send(at_ms=at_ms, process="p", id=f"p:{number}", size=1, **place)

    def read(number: int, at_ms: float, process: str = "raw-reader") -> Delivered:
        return Delivered(at_ms=at_ms, process=process, id=f"p:{number}", offset=number, **place)

    events = [
        *(sent(0, 10.0), sent(1, 20.0), sent(2, 30.0), read(0, 12.0), read(1, 23.0)),
        *(sent(3, 110.0), read(2, 111.0, "consumer"), read(2, 130.0), read(0, 190.0)),
    ]
    rows = arrivals(events, {"calm": (0.0, 100.0), "busy": (100.0, 200.0)})
    assert rows == [
        ["calm", "30", "3", "3", "3.0", "98.1", "99.8", "100.0"],
        ["busy", "10", "1", "0", "-", "-", "-", "-"],
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
    assert spell_of(events) == (100.0, 2100.0, 2)


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
    assert latencies(events, 100.0) == [21.0, 40.5]


def broker(number: int, port: int, pid: int | None) -> NodeRecord:
    return NodeRecord(
        id=number, roles=("broker",), host="127.0.0.1", port=port, pid=pid, log_file="",
        config_file="",
    )  # fmt: skip


def test_bytes_between_brokers_are_those_of_who_dialled() -> None:
    """Method: lines as `ss` writes them; a client's and a controller's connection among them."""
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
    assert between(lines, brokers) == {(0, 1): 1005, (1, 0): 0}


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
            after = bytes_between(run)
    assert grown(before, after) == 1234


def test_what_an_ended_connection_has_got_is_not_counted() -> None:
    """Another one that was opened in its place has begun at nought."""
    before = Counter({(0, 1): 100, (1, 0): 5})
    assert grown(before, Counter({(0, 1): 100, (1, 0): 45, (2, 0): 7})) == 47
    assert grown(before, Counter({(0, 1): 90, (1, 0): 500})) is None
    assert grown(before, Counter({(0, 1): 900})) is None
    assert grown(None, before) is None
    assert grown(before, None) is None
