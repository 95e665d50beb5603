"""Goal: where namespaces are denied, the same commands cut the same links, as far as TCP allows.

Method: relays on the listeners of two nodes; processes that dial from each place's address.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.cluster.network.conftest import MARK, marked_processes, nothing_is_left, small_plan
from tests.cluster.network.talkers import RefusedError, Talker

from holdfast.cluster import processes
from holdfast.cluster.layout import ClusterError, UsageError
from holdfast.cluster.network import ground, possible
from holdfast.cluster.network.links.link_calls import Links
from holdfast.cluster.network.proxies import proxy_ground
from holdfast.cluster.network.proxies.proxy_ground import Proxies
from holdfast.cluster.ports import free_ports

pytestmark = pytest.mark.process

IN_VAIN_S = 0.3
LONG_S = 30.0
ROOT = Path(__file__).resolve().parents[3]


class Nodes:
    """A process for each place, and relays before the listeners of 0 and 1."""

    def __init__(self, proxies: Proxies, talkers: dict[str, Talker], port: int) -> None:
        self.proxies, self.talkers, self.port = proxies, talkers, port
        self.links = Links(proxies.directory)

    def connect(self, a: str, b: str) -> None:
        """Connect from a to b, by its advertised port, and from a's own address."""
        place = self.proxies.plan.place
        dialled = {"address": place(b).address, "port": self.port, "timeout": LONG_S}
        self.talkers[a].do("connect", name=b, source=place(a).address, **dialled)

    def accept(self, a: str, b: str, timeout: float = LONG_S) -> None:
        self.talkers[b].do("accept", name=a, listener="door", timeout=timeout)

    def say(self, a: str, b: str, text: str, timeout: float = LONG_S) -> None:
        """Say something over the connection between them, and hear it there."""
        self.talkers[a].do("send", name=b, text=text)
        assert self.talkers[b].do("receive", name=a, timeout=timeout) == text


@pytest.fixture
def nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Nodes]:
    monkeypatch.setenv(MARK, str(tmp_path))
    advertised, own = free_ports(2)
    listeners = {"0": [(advertised, own)], "1": [(advertised, own)]}
    with ExitStack() as stack:
        stack.callback(nothing_is_left, str(tmp_path), tmp_path)
        proxies = stack.enter_context(proxy_ground.make(tmp_path, small_plan(), listeners))
        talkers = {name: stack.enter_context(Talker([])) for name in ("0", "1", "host")}
        for name in ("0", "1"):
            address = proxies.plan.place(name).address
            talkers[name].do("listen", name="door", address=address, port=own)
        yield Nodes(proxies, talkers, advertised)


@pytest.mark.slow
def test_pairs_are_told_apart_and_cut(nodes: Nodes) -> None:
    nodes.connect("0", "1")
    nodes.accept("0", "1")
    nodes.say("0", "1", "before")
    assert nodes.links.cut("0", "1") == [("0", "1"), ("1", "0")]
    nodes.connect("host", "1")
    nodes.accept("host", "1")
    nodes.say("host", "1", "not cut")
    for a, b in (("0", "1"), ("1", "0")):
        with pytest.raises(RefusedError, match="ETIMEDOUT"):
            nodes.say(a, b, f"from {a}", IN_VAIN_S)
    nodes.links.cut("host", "0")
    nodes.connect("host", "0")  # the kernel accepts it, and nobody else does
    with pytest.raises(RefusedError, match="ETIMEDOUT"):
        nodes.accept("host", "0", IN_VAIN_S)
    nodes.talkers["host"].do("send", name="0", text="anybody?")
    nodes.talkers["host"].do("finish", name="0")  # whoever gives up is not led on later
    assert nodes.talkers["host"].do("receive", name="0", timeout=LONG_S) == ""
    nodes.connect("host", "0")
    nodes.talkers["host"].do("send", name="0", text="this one")
    nodes.links.heal()
    nodes.accept("host", "0")
    assert nodes.talkers["0"].do("receive", name="host", timeout=LONG_S) == "this one"
    assert nodes.talkers["1"].do("receive", name="0", timeout=LONG_S) == "from 0"


@pytest.mark.slow
def test_one_way_and_reset(nodes: Nodes) -> None:
    nodes.connect("0", "1")
    nodes.accept("0", "1")
    nodes.links.cut("0", "1", one_way=True)
    nodes.say("1", "0", "heard")
    with pytest.raises(RefusedError, match="ETIMEDOUT"):
        nodes.say("0", "1", "unheard", IN_VAIN_S)
    nodes.links.cut("0", "1", reset=True)
    for a, b in (("0", "1"), ("1", "0")):
        with pytest.raises(RefusedError, match="ECONNRESET"):
            nodes.talkers[a].do("receive", name=b, timeout=LONG_S)


def test_who_dials_from_no_place_is_the_host(nodes: Nodes) -> None:
    nodes.links.isolate("host", reset=True)
    nodes.connect("0", "1")
    nodes.accept("0", "1")
    nodes.say("0", "1", "not cut")
    dialled = {"address": nodes.proxies.plan.place("0").address, "port": nodes.port}
    for source in ("127.0.0.1", "127.2.0.1"):  # which is where namespaces have clients of a zone
        with pytest.raises(RefusedError, match="ECONNRESET"):
            nodes.talkers["host"].dial_and_hear(timeout=LONG_S, source=source, **dialled)


def test_nothing_is_said_of_places_from_which_nobody_dials(nodes: Nodes) -> None:
    """Goal: no fault is reported that can't be in force. All clients are `host` to proxies.

    Method: each command on clients of a zone; groups leave them out. Seen to fail: it was said that
    their answers are swallowed, and none was; and that they are cut.
    """
    why = "no 'client-a' in this network.* Behind proxies all clients are host"
    with pytest.raises(UsageError, match=why):
        nodes.links.drop_responses("client-a", "1", "Produce", count=2)
    with pytest.raises(UsageError, match=why):
        nodes.links.cut("client-a", "1")
    with pytest.raises(UsageError, match=why):
        nodes.links.isolate("client-a")
    with pytest.raises(UsageError, match=why):
        nodes.links.cut("1,client-a", "0")
    assert nodes.links.status()["links"] == []
    assert nodes.links.cut("a", "1", one_way=True) == [("0", "1"), ("100", "1")]
    assert nodes.links.cut("clients", "0") == [("host", "0"), ("0", "host")]
    named = {name for pair in nodes.links.isolate("1") for name in pair}
    assert named == {"0", "1", "100", "host"}


def test_what_relays_can_t_do_is_said_and_nothing_changes(nodes: Nodes) -> None:
    with pytest.raises(ClusterError, match="only in a network of its own"):
        nodes.links.lose("0", "1", "5%")
    assert nodes.links.status() == {"links": [], "found_no_room": 0, "agrees": True}
    assert len(nodes.links.slow("0", "1", latency="20ms", rate="1MB/s")) == 2
    nodes.connect("0", "1")
    nodes.accept("0", "1")
    nodes.say("0", "1", "late, but it comes")


SETTLER = """
import sys
from pathlib import Path
from tests.cluster.network.conftest import small_plan
from holdfast.cluster.network.proxies import proxy_ground
listeners = {"0": [(int(sys.argv[2]), int(sys.argv[3]))]}
proxy_ground.make(Path(sys.argv[1]), small_plan(), listeners, settle=sys.argv[4] == "settle")
"""


@pytest.mark.slow
def test_they_end_with_their_maker_unless_they_are_settled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(MARK, str(tmp_path))
    command = [sys.executable, "-c", SETTLER, str(tmp_path), *map(str, free_ports(2))]
    subprocess.run([*command, "not"], check=True, cwd=ROOT)
    nothing_is_left(str(tmp_path), tmp_path)
    with pytest.raises(ClusterError, match="no proxies"):
        proxy_ground.open_proxies(tmp_path)
    subprocess.run([*command, "settle"], check=True, cwd=ROOT)
    with proxy_ground.open_proxies(tmp_path) as proxies:
        assert len(Links(tmp_path).cut("0", "1")) == 2
        with pytest.raises(ground.StandInError, match="has no places"):
            ground.open_network(tmp_path)
        os.kill(proxies.pid, 9)
        processes.wait_until(
            lambda: not marked_processes(str(tmp_path)), timeout_s=LONG_S, what="its end"
        )
        with pytest.raises(ClusterError, match="does not answer"):
            Links(tmp_path).heal()
        with pytest.raises(ClusterError, match="have gone"):
            proxy_ground.open_proxies(tmp_path)
    subprocess.run([*command, "not"], check=True, cwd=ROOT)  # what was left is in nobody's way
    nothing_is_left(str(tmp_path), tmp_path)


@pytest.mark.slow
def test_there_is_one_network_in_a_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, possibility: possible.Possibility
) -> None:
    """Seen to fail: who was refused a port took the files of those that had it; and proxies that
    had been killed were in the way of a network for good.
    """
    monkeypatch.setenv(MARK, str(tmp_path))
    advertised, own = free_ports(2)
    listeners = {"0": [(advertised, own)]}
    with proxy_ground.make(tmp_path, small_plan(), listeners) as proxies:
        for another in (listeners, {"0": [(own, advertised)]}):
            with pytest.raises(ClusterError, match="another network is made or stands there"):
                proxy_ground.make(tmp_path, small_plan(), another)
        assert len(Links(tmp_path).cut("0", "1")) == 2
        if possibility.how == possible.NAMESPACES:
            with pytest.raises(ClusterError, match="another network is made or stands there"):
                ground.make(tmp_path, small_plan())
        ground.clear(tmp_path)
        assert Links(tmp_path).status()["agrees"]
        os.kill(proxies.pid, 9)
        processes.wait_until(
            lambda: not marked_processes(str(tmp_path)), timeout_s=LONG_S, what="its end"
        )
    if possibility.how == possible.NAMESPACES:
        with ground.make(tmp_path, small_plan()):
            assert len(Links(tmp_path).cut("0", "1")) == 2
    ground.clear(tmp_path)
    nothing_is_left(str(tmp_path), tmp_path)


@pytest.mark.slow
def test_whoever_else_ends_them_meanwhile_they_leave_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen to fail: SIGTERM came when the loop had ended, and their socket stayed."""
    monkeypatch.setenv(MARK, str(tmp_path))
    advertised, own = free_ports(2)
    proxies = proxy_ground.make(tmp_path, small_plan(), {"0": [(advertised, own)]})
    assert proxies.lifeline is not None
    os.close(proxies.lifeline)

    def ended() -> bool:
        processes.send(proxies.pid, proxies.process, signal.SIGTERM)
        return processes.state(proxies.pid, proxies.process) is processes.State.DEAD

    processes.wait_until(ended, timeout_s=LONG_S, what="their end", poll_s=0)
    nothing_is_left(str(tmp_path), tmp_path)


def test_namespaces_that_are_asked_for_by_name_are_no_proxies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen to fail: proxies stood in for them, as where nothing is asked for.

    Method: a machine on which a program that they take is not to be found.
    """
    monkeypatch.setenv("PATH", str(tmp_path))
    assert possible.look({}).how == possible.PROXIES
    with pytest.raises(ClusterError, match=r"HOLDFAST_NETWORK=namespaces: .* install Debian's"):
        possible.look({possible.VARIABLE: possible.NAMESPACES})


def test_they_can_be_asked_for() -> None:
    found = possible.look({possible.VARIABLE: possible.PROXIES})
    assert found.how == possible.PROXIES
    assert "HOLDFAST_NETWORK=proxies" in str(found)
    assert "all clients are one" in str(found)
