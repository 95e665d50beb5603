"""Goal: what is cut is cut, nothing else is, and healing heals.

Method: real sockets of real processes, each in a place of a real network. A packet that vanishes is
seen by waiting for it in vain, half a second at most; all else answers at once.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from itertools import pairwise

import pytest
from tests.cluster.network.talkers import RefusedError, Talker

from holdfast.cluster.layout import UsageError
from holdfast.cluster.network import addresses, ground
from holdfast.cluster.network.ground import Network
from holdfast.cluster.network.links import link_rules
from holdfast.cluster.network.links.link_calls import Links
from holdfast.cluster.network.links.link_requests import Request
from holdfast.cluster.processes import wait_until

pytestmark = pytest.mark.process

IN_VAIN_S = 0.3
LONG_S = 30.0
Talkers = dict[str, Talker]
PORT = 9092


@pytest.fixture(scope="module")
def talkers(network: Network) -> Iterator[Talkers]:
    """One process in each of these places, which listens on PORT."""
    with ExitStack() as stack:
        found = {
            name: stack.enter_context(Talker(network.prefix(name)))
            for name in ("0", "1", "client-a", "client-b", "observer")
        }
        for each in found.values():
            each.do("listen", name="door", port=PORT)
        yield found


def connect(network: Network, talkers: Talkers, a: str, b: str) -> None:
    """Connect from a to b: what it has as `b` is what that has as `a`."""
    address = network.plan.place(b).address
    talkers[a].do("connect", name=b, address=address, port=PORT, timeout=LONG_S)
    seen = talkers[b].do("accept", name=a, listener="door", timeout=LONG_S)
    assert seen == network.plan.place(a).address


def fails(network: Network, talkers: Talkers, a: str, b: str, how: str) -> None:
    """Try to connect from a to b, which ends so; in vain where it would end by time alone."""
    address = network.plan.place(b).address
    timeout = IN_VAIN_S if how == "ETIMEDOUT" else LONG_S
    with pytest.raises(RefusedError, match=how):
        talkers[a].do("connect", name="failed", address=address, port=PORT, timeout=timeout)


def say(talkers: Talkers, a: str, b: str, text: str, timeout: float = LONG_S) -> None:
    """Say something over a connection that is there, and hear it there."""
    talkers[a].do("send", name=b, text=text)
    assert talkers[b].do("receive", name=a, timeout=timeout) == text


@pytest.mark.slow
def test_what_is_cut_is_cut_and_nothing_else(
    network: Network, talkers: Talkers, links: Links
) -> None:
    connect(network, talkers, "0", "1")
    assert links.cut("0", "1") == [("0", "1"), ("1", "0")]
    for a, b in (("0", "1"), ("1", "0")):
        fails(network, talkers, a, b, "ETIMEDOUT")
    connect(network, talkers, "client-a", "1")
    connect(network, talkers, "client-a", "0")
    # What stood before is not closed: it is silent, and goes on when the link is whole again.
    talkers["0"].do("send", name="1", text="still there?")
    with pytest.raises(RefusedError, match="ETIMEDOUT"):
        talkers["1"].do("receive", name="0", timeout=IN_VAIN_S)
    assert links.heal("1", "0") == [("0", "1"), ("1", "0")]
    assert talkers["1"].do("receive", name="0", timeout=LONG_S) == "still there?"
    connect(network, talkers, "1", "0")


@pytest.mark.slow
def test_one_way(network: Network, talkers: Talkers, links: Links) -> None:
    connect(network, talkers, "0", "1")
    links.cut("0", "1", one_way=True)
    say(talkers, "1", "0", "heard")  # it is not acknowledged, but it is heard
    talkers["0"].do("send", name="1", text="unheard")
    with pytest.raises(RefusedError, match="ETIMEDOUT"):
        talkers["1"].do("receive", name="0", timeout=IN_VAIN_S)
    links.heal()
    assert talkers["1"].do("receive", name="0", timeout=LONG_S) == "unheard"


def test_reset(network: Network, talkers: Talkers, links: Links) -> None:
    connect(network, talkers, "0", "1")
    links.cut("0", "1", reset=True)
    talkers["0"].do("send", name="1", text="anybody?")
    with pytest.raises(RefusedError, match="ECONNRESET"):
        talkers["0"].do("receive", name="1", timeout=LONG_S)
    fails(network, talkers, "1", "0", "ECONNREFUSED")
    links.heal()
    connect(network, talkers, "1", "0")


@pytest.mark.slow
def test_a_zone_is_isolated_and_the_observer_is_not(
    network: Network, talkers: Talkers, links: Links
) -> None:
    links.isolate("a")
    connect(network, talkers, "client-a", "0")  # both in a
    connect(network, talkers, "client-b", "1")  # both in b
    for place in ("0", "1"):
        connect(network, talkers, "observer", place)
    for a, b in (("client-a", "1"), ("1", "0")):
        fails(network, talkers, a, b, "ETIMEDOUT")
    links.heal("a")
    connect(network, talkers, "1", "0")
    connect(network, talkers, "client-a", "1")


def test_a_port_on_which_nobody_listens_refuses_at_once(network: Network, talkers: Talkers) -> None:
    """A node that was killed leaves its address: who dials is refused, and need not wait."""
    address = network.plan.place("100").address
    with pytest.raises(RefusedError, match="ECONNREFUSED"):
        talkers["0"].do("connect", name="100", address=address, port=PORT, timeout=LONG_S)


@pytest.mark.slow
def test_lost_packets_are_counted(network: Network, talkers: Talkers, links: Links) -> None:
    sent, share = 1000, 0.5
    port = talkers["1"].do("datagrams", name="datagrams")
    talkers["0"].do("datagrams", name="datagrams")
    links.lose("0", "1", "50%", one_way=True)
    address = network.plan.place("1").address
    arrived = 0
    for first in range(0, sent, 100):  # a socket's buffer has room for so many
        talkers["0"].do(
            "throw", name="datagrams", address=address, port=port, first=first, count=100
        )
        (link,) = (each for each in links.status()["links"] if each["lose"])
        lost = link["dropped"]["lost"]
        expected = first + 100 - lost - arrived
        got = talkers["1"].do("catch", name="datagrams", count=expected, timeout=LONG_S)
        assert len(got) == expected
        arrived += len(got)
    assert (link["from"], link["to"], link["lose"]) == ("0", "1", share)
    # Ten standard deviations from the middle: whoever loses none, or all, is found.
    assert abs(lost - sent * share) < 160


def test_all_packets_can_be_lost(network: Network, talkers: Talkers, links: Links) -> None:
    """Seen to fail: nft refused what no draw can miss."""
    port = talkers["1"].do("datagrams", name="all")
    talkers["0"].do("datagrams", name="all")
    assert links.lose("0", "1", "100%", one_way=True) == [("0", "1")]
    address = network.plan.place("1").address
    thrown = {"name": "all", "address": address, "port": port}
    (before,) = (each for each in links.status()["links"] if each["lose"])
    talkers["0"].do("throw", **thrown, first=1, count=50)
    seen = links.status()
    (link,) = (each for each in seen["links"] if each["lose"])
    assert (link["lose"], seen["agrees"]) == (1.0, True)
    assert link["dropped"]["lost"] == before["dropped"]["lost"] + 50
    links.lose("0", "1", "0%", one_way=True)
    talkers["0"].do("throw", **thrown, first=0, count=1)
    assert talkers["1"].do("catch", name="all", count=1, timeout=LONG_S) == [0]


# What a link is told to be, and as what a packet over it is counted that does not arrive.
STATES: dict[str, tuple[list[Request], str | None]] = {
    "whole": ([], None),
    "cut": ([{"do": "cut"}], "cut"),
    "reset": ([{"do": "cut", "reset": True}], "cut"),
    "lossy": ([{"do": "lose", "share": "100%"}], "lost"),
    "cut and lossy": ([{"do": "cut"}, {"do": "lose", "share": "100%"}], "cut"),
    "slow": ([{"do": "slow", "latency": "1ms"}], None),
    "slow and lossy": ([{"do": "slow", "latency": "1ms"}, {"do": "lose", "share": "100%"}], "lost"),
}


@pytest.mark.slow
def test_whatever_a_link_was_it_does_what_it_is_told_now(
    network: Network, talkers: Talkers, links: Links
) -> None:
    """Method: a link goes from each state to each other one; a packet in each, and its count.

    Its way back is cut all along, in the same changes, and stays so.
    """
    port = talkers["1"].do("datagrams", name="states")
    talkers["0"].do("datagrams", name="states")
    address = network.plan.place("1").address
    link = {"a": "0", "b": "1", "one_way": True}
    back = {"do": "cut", "a": "1", "b": "0", "one_way": True}

    def dropped() -> dict[str, int]:
        seen = links.status()
        assert seen["agrees"]
        assert [e["cut"] for e in seen["links"] if (e["from"], e["to"]) == ("1", "0")] == ["drop"]
        found = [e["dropped"] for e in seen["links"] if (e["from"], e["to"]) == ("0", "1")]
        return dict(found[0]) if found else {"cut": 0, "lost": 0}

    names = list(STATES)
    walk = [  # from each to each
        name
        for at, one in enumerate(names)
        for name in [*(each for other in names[at + 1 :] for each in (one, other)), one]
    ]
    for number, (was, name) in enumerate(pairwise(["whole", *walk])):
        faults, counted = STATES[name]
        links.hold([back, *({**fault, **link} for fault in faults)])
        before = dropped()
        thrown = {"name": "states", "address": address, "port": port}
        talkers["0"].do("throw", **thrown, first=number, count=1)
        if counted is None:
            caught = talkers["1"].do("catch", name="states", count=1, timeout=LONG_S)
            assert caught == [number], f"{was}, and then {name}"
        else:
            expected = {**before, counted: before[counted] + 1}
            wait_until(  # what slowed links lose is lost in a process
                partial(lambda wanted: dropped() == wanted, expected),
                timeout_s=LONG_S,
                what=f"{expected}: {was}, and then {name}",
            )


@pytest.mark.slow
def test_what_a_cut_dropped_is_counted_and_stays(
    network: Network, talkers: Talkers, links: Links
) -> None:
    def dropped() -> dict[tuple[str, str], int]:
        return {(e["from"], e["to"]): e["dropped"]["cut"] for e in links.status()["links"]}

    before = dropped().get(("client-b", "0"), 0)
    talkers["client-b"].do("datagrams", name="datagrams")
    links.cut("client-b", "0")
    address = network.plan.place("0").address
    throw = {"name": "datagrams", "address": address, "port": 9, "first": 0}
    talkers["client-b"].do("throw", **throw, count=7)
    assert dropped()["client-b", "0"] == before + 7
    assert links.status()["agrees"]
    links.heal()
    talkers["client-b"].do("throw", **throw, count=3)
    links.cut("client-b", "0")
    talkers["client-b"].do("throw", **throw, count=2)
    assert dropped()["client-b", "0"] == before + 9


@pytest.mark.slow
@pytest.mark.parametrize("reset", [False, True])
def test_a_cut_holds_though_nobody_counts_for_it(
    network: Network, talkers: Talkers, links: Links, *, reset: bool
) -> None:
    """Goal: what is cut does not hang on its counter. Method: the map leads to it no more.

    Seen to fail: all passed, of a link that status called cut.
    """
    port = talkers["1"].do("datagrams", name="uncounted")
    talkers["0"].do("datagrams", name="uncounted")
    thrown = {"name": "uncounted", "address": network.plan.place("1").address, "port": port}
    links.cut("0", "1", one_way=True)  # so that it has one
    nft = [*network.prefix(addresses.ROUTER), ground.find_tools()["nft"]]
    key, counter = link_rules.addresses_of(network.plan, ("0", "1")), '"cut/0/1"'
    subprocess.run([*nft, f"delete element ip holdfast cut {{ {key} }}"], check=True)
    try:
        links.heal()
        links.cut("0", "1", reset=reset, one_way=True)
        talkers["0"].do("throw", **thrown, first=1, count=3)
        fails(network, talkers, "0", "1", "ECONNREFUSED" if reset else "ETIMEDOUT")
        assert links.status()["agrees"]
    finally:
        subprocess.run([*nft, f"add element ip holdfast cut {{ {key} : {counter} }}"], check=True)
    links.heal()
    talkers["0"].do("throw", **thrown, first=0, count=1)
    assert talkers["1"].do("catch", name="uncounted", count=1, timeout=LONG_S) == [0]


@pytest.mark.slow
def test_what_is_still_held_lets_nothing_through_when_another_fault_ends(
    network: Network, talkers: Talkers, links: Links
) -> None:
    """Method: datagrams one behind the other, while one of two faults ends and begins again.

    Healing all and cutting what is left, by two requests, lets dozens through each time.
    """
    port = talkers["1"].do("datagrams", name="held")
    talkers["0"].do("datagrams", name="held")
    isolated, cut = {"do": "isolate", "a": "1"}, {"do": "cut", "a": "0", "b": "1"}
    links.hold([isolated, cut])
    throw = {"name": "held", "address": network.plan.place("1").address, "port": port}
    talkers["0"].begin("throw", **throw, first=1, count=200_000)
    for _ in range(10):
        links.hold([cut])
        links.hold([isolated, cut])
        links.hold([isolated])
        links.hold([isolated, cut])
    talkers["0"].end()
    links.hold([])
    talkers["0"].do("throw", **throw, first=0, count=1)
    assert talkers["1"].do("catch", name="held", count=1, timeout=LONG_S) == [0]
    assert links.status()["agrees"]


@pytest.mark.slow
def test_the_first_byte_after_a_heal_is_told_by_link(
    network: Network, talkers: Talkers, links: Links
) -> None:
    """Method: one that speaks while it is cut, one that does so later, one that never does.

    How long it took is only bounded from below, by what was waited for.
    """
    connect(network, talkers, "0", "1")
    connect(network, talkers, "client-a", "1")
    links.cut("0", "1")
    links.cut("client-a", "1")
    talkers["0"].do("send", name="1", text="in vain, at first")
    told = len(links.first_bytes())
    links.heal(watch=True)
    assert talkers["1"].do("receive", name="0", timeout=LONG_S) == "in vain, at first"
    with pytest.raises(RefusedError, match="ETIMEDOUT"):
        talkers["1"].do("receive", name="client-a", timeout=IN_VAIN_S)
    say(talkers, "client-a", "1", "late")
    say(talkers, "client-a", "1", "and later")
    seen = {(each["from"], each["to"]): each for each in links.first_bytes()[told:]}
    assert {*seen} == {("0", "1"), ("1", "0"), ("client-a", "1"), ("1", "client-a")}
    assert seen["0", "1"]["after_s"] is not None
    assert seen["client-a", "1"]["after_s"] >= IN_VAIN_S / 2
    # What only acknowledges has no data.
    assert [seen[pair]["after_s"] for pair in (("1", "0"), ("1", "client-a"))] == [None, None]
    links.cut("1", "0")
    seen = {(each["from"], each["to"]): each for each in links.first_bytes()[told:]}
    assert seen["1", "0"]["cut_again"]
    assert not seen["0", "1"]["cut_again"]
    links.heal(watch=True)
    say(talkers, "1", "0", "once more")
    say(talkers, "0", "1", "once more")
    again = links.first_bytes()[told + 4 :]
    assert {(each["from"], each["to"]) for each in again} == {("0", "1"), ("1", "0")}
    assert None not in [each["after_s"] for each in again]
    assert links.status()["agrees"]


def watching(network: Network) -> bool:
    """Say whether the router has rules that wait for a first byte."""
    listing = [ground.find_tools()["nft"], "list", "chains", "ip"]
    command = [*network.prefix(addresses.ROUTER), *listing]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "chain pass" in listed
    return "chain watch" in listed


@pytest.mark.slow
def test_rules_that_wait_go_with_the_last_link_that_is_waited_for(
    network: Network, talkers: Talkers, links: Links
) -> None:
    """Goal: whole links carry as much as ever. Method: one link speaks, the other is cut again."""
    links.cut("all", "all")
    links.first_bytes()  # nothing of other tests is waited for any more
    links.heal()
    assert not watching(network), "nobody has asked"
    connect(network, talkers, "0", "1")
    links.cut("0", "1")
    links.heal(watch=True)
    say(talkers, "0", "1", "here")
    links.first_bytes()
    assert watching(network), "1 has not said anything"
    links.cut("0", "1")
    links.first_bytes()
    assert not watching(network)
    links.heal(watch=True)
    say(talkers, "0", "1", "here")
    say(talkers, "1", "0", "here")
    assert watching(network)
    links.first_bytes()
    assert not watching(network)
    links.cut("client-a", "host")
    links.heal(watch=True)
    assert not watching(network), "clients say nothing to each other"


def test_asked_twice_it_is_done_once(links: Links) -> None:
    assert len(links.isolate("0")) == 10  # 1, 100, client-a, client-b, host: both ways
    assert links.isolate("0") == []
    assert links.cut("0", "1") == []
    assert len(links.heal("0", "brokers")) == 2
    assert links.heal("0", "brokers") == []
    assert len(links.heal("0")) == 8


def test_errors_name_what_there_is(links: Links) -> None:
    with pytest.raises(UsageError, match=r"no '7' in this network. There are 0, 1, 100, client-a"):
        links.cut("0", "7")
    with pytest.raises(UsageError, match=r"\(is brokers meant\?\)"):
        links.isolate("broker")
    with pytest.raises(UsageError, match="they are one place"):
        links.cut("0", "0")
    with pytest.raises(UsageError, match="nothing is done to it"):
        links.isolate("observer")
    with pytest.raises(UsageError, match="more than all"):
        links.lose("0", "1", "101%")
    assert links.status()["agrees"]
