"""Goal: slow links are slow, swallowed answers are gone, doors lead in, and the agent stays.

Method: as in `test_network_cuts.py`. Of time only what can't be shorter is asserted.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.network.conftest import (
    MARK,
    marked_processes,
    nothing_is_left,
    record,
    small_plan,
)
from tests.cluster.network.talkers import RefusedError, Talker

from holdfast.cluster import processes
from holdfast.cluster.layout import BROKER, ClusterError
from holdfast.cluster.network import ground, possible
from holdfast.cluster.network.addresses import plan_network
from holdfast.cluster.network.ground import Network
from holdfast.cluster.network.links import link_agent
from holdfast.cluster.network.links.link_calls import Links
from holdfast.cluster.network.possible import Possibility
from holdfast.cluster.ports import free_ports

pytestmark = pytest.mark.process

IN_VAIN_S = 0.3
LONG_S = 30.0
PORT = 9092
PRODUCE, METADATA = 0, 3


class Two:
    """A client and a node with a connection between them."""

    def __init__(self, network: Network, client: Talker, node: Talker) -> None:
        self.network, self.client, self.node = network, client, node

    def connect(self, name: str = "c") -> float:
        """Connect anew; return how long that took the client."""
        address = self.network.plan.place("1").address
        begun = time.monotonic()
        self.client.do("connect", name=name, address=address, port=PORT, timeout=LONG_S)
        took = time.monotonic() - begun
        self.node.do("accept", name=name, listener="door", timeout=LONG_S)
        return took

    def request(self, api: int, correlation: int) -> str:
        return (struct.pack(">ihhi", 10, api, 1, correlation) + b"ab").decode()

    def answer(self, correlation: int) -> str:
        return (struct.pack(">ii", 6, correlation) + b"xy").decode()

    def ask(self, api: int, correlation: int) -> str:
        """Send a request of this API and an answer to it, and return what the client gets."""
        request = self.request(api, correlation)
        self.client.do("send", name="c", text=request)
        assert self.node.do("receive", name="c", timeout=LONG_S) == request
        self.node.do("send", name="c", text=self.answer(correlation))
        return str(self.client.do("receive", name="c", timeout=IN_VAIN_S))


@pytest.fixture(scope="module")
def two(network: Network) -> Iterator[Two]:
    with ExitStack() as stack:
        client = stack.enter_context(Talker(network.prefix("client-a")))
        node = stack.enter_context(Talker(network.prefix("1")))
        node.do("listen", name="door", port=PORT)
        yield Two(network, client, node)


@pytest.mark.slow
def test_a_slow_link_is_slow_and_no_other(network: Network, two: Two, links: Links) -> None:
    assert len(links.slow("client-a", "1", latency="150ms", one_way=True)) == 1
    assert two.connect() >= 0.15  # its SYN was late
    with Talker(network.prefix("0")) as other:
        address = network.plan.place("1").address
        two.node.do("datagrams", name="datagrams", port=PORT)
        for place in (two.client, other):
            place.do("datagrams", name="datagrams")
        throw = {"name": "datagrams", "address": address, "port": PORT, "count": 1}
        two.client.do("throw", **throw, first=1)
        other.do("throw", **throw, first=2)
        got = two.node.do("catch", name="datagrams", count=2, timeout=LONG_S)
        assert got == [2, 1], "what was sent later by a link that is not slow is there first"
    two.client.do("send", name="c", text="in flight")
    links.cut("client-a", "1")  # judged where it leaves
    with pytest.raises(RefusedError, match="ETIMEDOUT"):
        two.node.do("receive", name="c", timeout=2 * IN_VAIN_S)
    links.heal()
    assert two.node.do("receive", name="c", timeout=LONG_S) == "in flight"


@pytest.mark.slow
def test_a_rate_and_packets_out_of_order(network: Network, two: Two, links: Links) -> None:
    two.connect()
    links.slow("1", "client-a", rate="1MB/s", one_way=True)
    size = 400_000
    begun = time.monotonic()
    two.node.begin("send", name="c", text="x" * size)
    got = 0
    while got < size:
        got += len(two.client.do("receive", name="c", timeout=LONG_S))
    assert time.monotonic() - begun >= 0.3  # the first packets pass as a burst
    two.node.end()
    links.slow("1", "client-a", latency="30ms", reorder="20%", one_way=True)
    port = two.client.do("datagrams", name="caught")
    address = network.plan.place("client-a").address
    two.node.do("datagrams", name="thrown")
    two.node.do("throw", name="thrown", address=address, port=port, first=0, count=100)
    numbers = two.client.do("catch", name="caught", count=100, timeout=LONG_S)
    assert sorted(numbers) == [*range(100)]
    assert numbers != sorted(numbers)


@pytest.mark.slow
def test_what_the_switch_could_not_read_is_counted(
    network: Network, two: Two, links: Links
) -> None:
    """Goal: of a slowed link each packet arrives or is counted.

    Method: more than the kernel keeps for a switch that stands still; behind it a rate, so that who
    catches them misses none. Seen to fail: what the kernel dropped was counted nowhere.
    """
    sent = 40_000
    links.slow("client-a", "1", rate="100kB/s", one_way=True)
    (switch,) = (
        process
        for process in marked_processes(str(network.directory))
        if b"links.switch" in Path(f"/proc/{process}/cmdline").read_bytes()
    )
    before = links.status()["found_no_room"]
    port = two.node.do("datagrams", name="counted")
    two.client.do("datagrams", name="counted")
    address = network.plan.place("1").address
    os.kill(switch, signal.SIGSTOP)
    try:
        throw = {"name": "counted", "address": address, "port": port}
        two.client.do("throw", **throw, first=0, count=sent)
    finally:
        os.kill(switch, signal.SIGCONT)
    caught = two.node.do("catch", name="counted", count=sent, timeout=4.0)
    assert 0 < len(caught) < sent
    assert len(caught) + links.status()["found_no_room"] - before == sent


@pytest.mark.slow
def test_swallowed_answers(two: Two, links: Links) -> None:
    two.connect("old")
    assert links.drop_responses("client-a", "1", "Produce") == [("1", "client-a")]
    with pytest.raises(RefusedError, match="ECONNRESET"):  # what there was is reset
        two.client.do("receive", name="old", timeout=LONG_S)
    two.connect()
    with pytest.raises(RefusedError, match="ETIMEDOUT"):
        two.ask(PRODUCE, 1)
    with pytest.raises(RefusedError, match="ETIMEDOUT"):
        two.ask(METADATA, 2)  # nothing comes behind what is lacking
    two.connect()
    assert two.ask(METADATA, 2).endswith("xy")
    assert two.ask(PRODUCE, 3).endswith("xy"), "one was to be swallowed"
    (link,) = (each for each in links.status()["links"] if each["answers"])
    assert link["answers"] == {"api": "Produce", "count": 1, "close": False, "swallowed": 1}
    links.drop_responses("client-a", "1", "Produce", close=True)
    with pytest.raises(RefusedError, match="ECONNRESET"):  # what is relayed, as well
        two.client.do("receive", name="c", timeout=LONG_S)
    two.connect()
    with pytest.raises(RefusedError, match="ECONNRESET"):
        two.ask(PRODUCE, 4)
    links.heal()
    two.connect()
    assert two.ask(PRODUCE, 5).endswith("xy")


@pytest.mark.slow
def test_a_node_whose_answers_are_swallowed_dials_its_client(
    network: Network, two: Two, links: Links
) -> None:
    """Between two nodes only one direction is led, and what was begun before is reset in both.
    Seen to fail: all that the node dialled was refused.
    """
    two.client.do("listen", name="door", port=PORT)
    client = {"address": network.plan.place("client-a").address, "port": PORT, "timeout": LONG_S}
    two.connect()
    links.drop_responses("client-a", "1", "Produce")
    for name in ("first", "second"):
        two.node.do("connect", name=name, **client)
        two.client.do("accept", name=name, listener="door", timeout=LONG_S)
        two.client.do("send", name=name, text="heard")
        assert two.node.do("receive", name=name, timeout=LONG_S) == "heard"
        links.cut("0", "1")  # which leaves it as it is
    two.node.do("send", name="first", text="goes on")
    assert two.client.do("receive", name="first", timeout=LONG_S) == "goes on"
    with pytest.raises(RefusedError, match="ECONNRESET"):
        two.client.do("receive", name="c", timeout=LONG_S)
    two.connect()
    with pytest.raises(RefusedError, match="ETIMEDOUT"):
        two.ask(PRODUCE, 1)


@pytest.mark.slow
def test_connections_in_the_relay_outlive_a_heal(two: Two, links: Links) -> None:
    """Goal: `heal` resets nobody, also where nobody's answers are swallowed any more.

    Method: a connection of the one pair that was led. Seen to fail: its next request did not come
    to the node, and was reset.
    """
    links.drop_responses("client-a", "1", "Heartbeat")
    two.connect()
    assert two.ask(METADATA, 1).endswith("xy")
    links.heal()
    assert two.ask(METADATA, 2).endswith("xy")
    links.drop_responses("100", "1", "Heartbeat")
    links.heal()
    assert two.ask(PRODUCE, 3).endswith("xy")
    two.connect()
    assert two.ask(METADATA, 1).endswith("xy")


@pytest.mark.slow
def test_packets_of_connections_in_the_relay_are_not_said_to_be_lost(
    two: Two, links: Links
) -> None:
    """Goal: a fault that is reported is in force. A relay sees no packets.

    Method: both orders of the two commands, both directions. Seen to fail: it was taken, status had
    it, and nothing was lost; also on a connection that was in the relay since before a heal.
    """
    links.drop_responses("client-a", "1", "Heartbeat", count=1000)
    refused = "answers of 1 to client-a takes a relay.*by `holdfast heal client-a 1` first"
    for one_way in (False, True):
        for a, b in (("client-a", "1"), ("1", "client-a"), ("brokers", "clients")):
            with pytest.raises(ClusterError, match=refused):
                links.lose(a, b, "5%", one_way=one_way)
            with pytest.raises(ClusterError, match=refused):
                links.slow(a, b, latency="1ms", reorder="5%", one_way=one_way)
    with pytest.raises(ClusterError, match=refused):
        links.hold([{"do": "lose", "a": "client-a", "b": "1", "share": "5%"}])
    links.lose("0", "1", "5%")
    assert {each["lose"] for each in links.status()["links"] if each["answers"]} == {0}
    two.connect()
    assert two.ask(METADATA, 1).endswith("xy")
    links.heal("client-a", "1")
    assert two.ask(METADATA, 2).endswith("xy"), "it goes on in the relay"
    links.lose("1", "client-a", "0.01%", one_way=True)
    assert links.reset == [("client-a", "1")], "and is said to be reset as packets are to be lost"
    with pytest.raises(RefusedError, match="ECONNRESET"):
        two.client.do("receive", name="c", timeout=LONG_S)
    with pytest.raises(ClusterError, match=refused):
        links.drop_responses("client-a", "1", "Heartbeat")
    links.heal()
    assert links.reset == []


@pytest.mark.slow
@pytest.mark.parametrize("healed", [False, True], ids=["led", "left"])
def test_what_is_cut_or_slowed_is_so_for_connections_in_the_relay(
    two: Two, links: Links, healed: bool
) -> None:
    """Those whose answers are swallowed, and those that a heal left there."""
    links.drop_responses("client-a", "1", "Heartbeat", count=1000)
    two.connect()
    if healed:
        links.heal()
    there = ("client-a", "1", two.client, two.node, two.request(METADATA, 1))
    back = ("1", "client-a", two.node, two.client, two.answer(1))
    for a, b, sender, receiver, said in (there, back):
        links.cut(a, b, one_way=True)
        sender.do("send", name="c", text=said)
        with pytest.raises(RefusedError, match="ETIMEDOUT"):
            receiver.do("receive", name="c", timeout=IN_VAIN_S)
        links.hold([])
        assert receiver.do("receive", name="c", timeout=LONG_S) == said
    links.slow("client-a", "1", latency="200ms", one_way=True)
    begun = time.monotonic()
    assert two.ask(METADATA, 2).endswith("xy")
    assert time.monotonic() - begun >= 0.2
    links.hold([])
    links.isolate("1", reset=True)
    with pytest.raises(RefusedError, match="ECONNRESET"):
        two.client.do("receive", name="c", timeout=LONG_S)


def raw(network: Network, data: bytes) -> bytes:
    """Send something to the agent, and return all that it says until it closes or waits."""
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as asked:
        asked.settimeout(LONG_S)
        asked.connect(str(network.socket))
        asked.sendall(data)
        asked.shutdown(socket.SHUT_WR)
        said = b""
        while part := asked.recv(1 << 16):
            said += part
        return said


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"cut 0 1\n", "one line of JSON"),
        (b"[" * 30_000 + b"\n", "one line of JSON"),
        (b"\xff\xfe\n", "one line of JSON"),
        (b"[]\n", "a JSON object"),
        (b'{"do": "cut", "a": "0", "b": "9"}\n', "There are 0, 1, 100"),
        (b'{"do": "cut", "id": 7}\n', "'id' is a text"),
        (b'{"do": "cut", "until_s": "7"}\n', "'until_s' is a time"),
        (b'{"do": "' + b"x" * 70_000 + b'"}\n', "at most 65536 bytes"),
    ],
    ids=["words", "deep", "bytes", "list", "node", "id", "time", "long"],
)
def test_bad_input_is_answered_and_survived(
    network: Network, links: Links, line: bytes, words: str
) -> None:
    answer = json.loads(raw(network, line))
    assert words in answer["error"]
    assert answer["usage"]
    assert links.status()["agrees"]


def test_one_request_sent_twice_is_done_once(network: Network, links: Links) -> None:
    line = b'{"do": "cut", "a": "0", "b": "1", "id": "same"}\n'
    first, second = (json.loads(each) for each in raw(network, line + line).splitlines())
    assert first == second == {"changed": [["0", "1"], ["1", "0"]]}
    links.heal()
    assert json.loads(raw(network, line)) == first
    cut = [each for each in links.status()["links"] if each["cut"]]
    assert cut == [], "it was done before"


def test_too_many_connections_are_refused(network: Network, links: Links) -> None:
    with ExitStack() as stack:
        for _ in range(link_agent.CONNECTIONS_MAX):
            idle = stack.enter_context(closing(socket.socket(socket.AF_UNIX)))
            idle.connect(str(network.socket))
        assert b"others are asking" in raw(network, b"{}\n")
    processes.wait_until(
        lambda: b"others are asking" not in raw(network, b"{}\n"), timeout_s=LONG_S, what="room"
    )
    assert links.status()["agrees"]


@pytest.mark.slow
def test_who_does_not_ask_holds_no_place(network: Network, links: Links) -> None:
    """Method: as many connections as are served say nothing, or half a request, and stay open.

    Seen to fail: nobody else was heard as long as they did.
    """
    with ExitStack() as stack:
        for number in range(link_agent.CONNECTIONS_MAX):
            idle = stack.enter_context(closing(socket.socket(socket.AF_UNIX)))
            idle.connect(str(network.socket))
            idle.sendall(b'{"do"' if number % 2 else b"")
        processes.wait_until(
            lambda: b"others are asking" not in raw(network, b"{}\n"),
            timeout_s=3 * link_agent.REQUEST_S,
            what="room",
        )
        assert links.status()["agrees"]


def test_what_comes_too_late_is_not_done(network: Network, links: Links) -> None:
    """Goal: a change that somebody has given up is no surprise later. Method: a time that is over.

    One of which the answer was lost was done in time, and says so however late it is asked again.
    """
    now_s = time.monotonic()
    cut = {"do": "cut", "a": "0", "b": "1", "id": "late"}

    def said(until_s: float) -> dict[str, Any]:
        line = json.dumps({**cut, "until_s": until_s}).encode() + b"\n"
        return dict(json.loads(raw(network, line)))

    assert "came too late" in said(now_s - 1)["error"]
    assert not any(each["cut"] for each in links.status()["links"])
    assert said(now_s + LONG_S)["changed"] == [["0", "1"], ["1", "0"]]
    assert said(now_s - 1)["changed"] == [["0", "1"], ["1", "0"]]


@pytest.fixture
def own(
    possibility: Possibility, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Network, int]]:
    """A network of one test's own, and a door to place 1."""
    if possibility.how != possible.NAMESPACES:
        pytest.skip(f"no network namespaces here: {possibility.reason}")
    monkeypatch.setenv(MARK, str(tmp_path))
    (port,) = free_ports(1)
    doors = {port: f"{small_plan().place('1').address}:{PORT}"}
    with ground.make(tmp_path, small_plan(), doors=doors) as made:
        yield made, port
    nothing_is_left(str(tmp_path), tmp_path)


ALONE = """#!/bin/sh
mkdir "$0.$$"
for wait in $(seq 100); do
    test $(ls -d "$0".[0-9]* | wc -l) -ge 2 && exit
    sleep 0.01
done
touch "$0.alone"
"""


@pytest.mark.slow
def test_connections_of_all_nodes_are_ended_at_once(
    possibility: Possibility, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: the agent, which is the relay as well, stands still for one node's time, not for all's.

    Method: what ends a node's connections waits until another one does. Seen to fail: each waited
    in vain.
    """
    if possibility.how != possible.NAMESPACES:
        pytest.skip(f"no network namespaces here: {possibility.reason}")
    folder = tmp_path / "network"
    folder.mkdir()
    monkeypatch.setenv(MARK, str(folder))
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "ss").write_text(ALONE)
    (tools / "ss").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}{os.pathsep}{os.environ['PATH']}")
    with ground.make(folder, small_plan()):
        assert len(Links(folder).drop_responses("host", "brokers", "Produce")) == 2
    assert len([*tools.glob("ss.[0-9]*")]) == 2
    assert not (tools / "ss.alone").exists()
    nothing_is_left(str(folder), folder)


@pytest.mark.slow
def test_answers_over_a_network_for_replication_alone_are_swallowed(
    possibility: Possibility, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second address is in its broker's place. Seen to fail: the agent knew no place for it, and
    did not answer.
    """
    if possibility.how != possible.NAMESPACES:
        pytest.skip(f"no network namespaces here: {possibility.reason}")
    monkeypatch.setenv(MARK, str(tmp_path))
    plan = plan_network([record(0, BROKER), record(1, BROKER)], replicates_apart=True)
    with ground.make(tmp_path, plan) as network, ExitStack() as stack:
        links = Links(tmp_path)
        zero, one = (stack.enter_context(Talker(network.prefix(each))) for each in ("0", "1"))
        one.do("listen", name="door", port=PORT)
        address = plan.place("replication-1").address
        zero.do("connect", name="c", address=address, port=PORT, timeout=LONG_S)
        one.do("accept", name="c", listener="door", timeout=LONG_S)
        changed = links.drop_responses("replication-0", "replication-1", "Fetch")
        assert changed == [("replication-1", "replication-0")]
        with pytest.raises(RefusedError, match="ECONNRESET"):
            zero.do("receive", name="c", timeout=LONG_S)
    nothing_is_left(str(tmp_path), tmp_path)


@pytest.mark.slow
def test_doors_and_an_agent_that_begins_anew(own: tuple[Network, int]) -> None:
    network, port = own
    links = Links(network.directory)
    with ExitStack() as stack:
        outside = stack.enter_context(Talker([]))
        node = stack.enter_context(Talker(network.prefix("1")))
        door: dict[str, Any] = {"address": "127.0.0.1", "port": port, "timeout": LONG_S}
        with pytest.raises(RefusedError, match="ECONNRESET"):  # as it was refused inside
            outside.dial_and_hear(**door)
        node.do("listen", name="door", port=PORT)
        outside.do("connect", name="c", **door)
        seen = node.do("accept", name="c", listener="door", timeout=LONG_S)
        assert seen == network.plan.place("host").address
        outside.do("send", name="c", text="in")
        assert node.do("receive", name="c", timeout=LONG_S) == "in"
        links.cut("host", "1")
        node.do("send", name="c", text="out")
        with pytest.raises(RefusedError, match="ETIMEDOUT"):
            outside.do("receive", name="c", timeout=IN_VAIN_S)
        links.cut("0", "1")
        links.heal("0", "1", watch=True)
        (agent,) = (each for each in network.servants if each.name == "links.link_agent")
        os.kill(agent.pid, 9)
        with pytest.raises(ClusterError, match="does not answer"):
            links.heal()
        network.servants += (
            ground.start_servant(network, "links.link_agent", [str(network.directory)]),
        )
        assert [each["cut"] for each in links.status()["links"]] == ["drop", "drop"]
        assert links.first_bytes() == [], "of what was waited for before nobody knows"
        assert len(links.heal(watch=True)) == 2
        assert len(links.first_bytes()) == 2
        assert outside.do("receive", name="c", timeout=LONG_S) == "out"
        node.do("close", name="c")
        assert outside.do("receive", name="c", timeout=LONG_S) == ""
