"""Goal: each command makes of a table what it says, and the kernel's words say the same.

Method: a model that knows of each pair what is wrong with it, and random commands; what is read
back of nft's own listing. Rules in force are seen in `test_network_cuts.py`.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cluster.network.conftest import record, small_plan

from holdfast.cluster.layout import BROKER, ClusterError, UsageError
from holdfast.cluster.network import amounts, link_table
from holdfast.cluster.network.addresses import plan_network
from holdfast.cluster.network.entering import Holder
from holdfast.cluster.network.link_table import Answers, Cut, Link, Slow, Table
from holdfast.cluster.network.links import link_requests, link_rules
from holdfast.cluster.network.links.first_bytes import FirstBytes
from holdfast.cluster.network.links.link_agent import Agent
from holdfast.cluster.network.links.link_kernel import KernelLinks

PLAN = small_plan()
NAMES = ["0", "1", "100", "client-a", "client-b", "host", "a", "b", "brokers", "clients", "all"]
FAULTS: list[dict[str, Any]] = [
    {"do": "cut"},
    {"do": "cut", "reset": True},
    {"do": "lose", "share": "5%"},
    {"do": "slow", "latency": "200ms", "jitter": "50ms", "rate": "1MB/s", "reorder": "1%"},
    {"do": "heal"},
]


def fields(fault: dict[str, Any]) -> Link:
    slow = Slow(latency_us=200_000, jitter_us=50_000, rate=1_000_000, reorder=100)
    return {
        "cut": Link(cut=Cut.RESET if fault.get("reset") else Cut.DROP),
        "lose": Link(lose=500),
        "slow": Link(slow=slow),
        "heal": Link(),
    }[fault["do"]]


@pytest.mark.slow
@given(
    st.lists(
        st.tuples(
            st.sampled_from(FAULTS), st.sampled_from(NAMES), st.sampled_from(NAMES), st.booleans()
        ),
        max_size=12,
    )
)
def test_each_pair_is_by_itself(
    commands: list[tuple[dict[str, Any], str, str, bool]],
) -> None:
    model: dict[tuple[str, str], Link] = {}
    table: Table = {}
    for fault, a, b, one_way in commands:
        request = {**fault, "a": a, "b": b}
        if fault["do"] != "heal":
            request["one_way"] = one_way
        one, other = ([place.name for place in PLAN.members(name)] for name in (a, b))
        pairs = {(x, y) for x in one for y in other if x != y}
        if fault["do"] == "heal" or not one_way:
            pairs |= {(y, x) for x, y in pairs}
        if not pairs:
            with pytest.raises(UsageError, match="one place"):
                link_requests.decide(PLAN, table, request)
            continue
        for pair in pairs:
            was, becomes = model.get(pair, Link()), fields(fault)
            model[pair] = (
                becomes
                if fault["do"] == "heal"
                else Link(
                    cut=becomes.cut or was.cut,
                    lose=becomes.lose or was.lose,
                    slow=becomes.slow or was.slow,
                )
            )
        after = link_requests.decide(PLAN, table, request)
        assert after == {pair: link for pair, link in model.items() if link != Link()}
        assert link_requests.decide(PLAN, after, request) == after, "twice is once"
        table = after


def test_names_joined_by_commas_are_one_side() -> None:
    together = link_table.isolate(PLAN, {}, "client-b,0")
    by_one = {**link_table.isolate(PLAN, {}, "0"), **link_table.isolate(PLAN, {}, "client-b")}
    inside = {("0", "client-b"), ("client-b", "0")}
    assert together == {pair: link for pair, link in by_one.items() if pair not in inside}
    assert [place.name for place in PLAN.members("client-b,0,b")] == ["0", "1", "client-b"]


def test_isolating_leaves_the_inside_and_the_observer() -> None:
    table = link_table.isolate(PLAN, {}, "a", reset=True)
    inside, outside = {"0", "100", "client-a"}, {"1", "client-b", "host"}
    expected = {(x, y) for x in inside for y in outside} | {(y, x) for x in inside for y in outside}
    assert table == dict.fromkeys(expected, Link(cut=Cut.RESET))
    with pytest.raises(UsageError, match="nothing to isolate it from"):
        link_table.isolate(PLAN, {}, "all")


def test_healing_one_heals_all_its_links() -> None:
    table = link_table.cut(PLAN, {}, "0", "1")
    table = link_table.lose(PLAN, table, "0", "host", 100)
    table = link_table.cut(PLAN, table, "1", "client-a", one_way=True)
    assert link_table.heal(PLAN, table, "0") == {("1", "client-a"): Link(cut=Cut.DROP)}
    assert link_table.heal(PLAN, table) == {}


slows = st.builds(
    lambda latency_us, less, rate, reorder: Slow(
        latency_us=latency_us, jitter_us=latency_us // less, rate=rate, reorder=reorder
    ),
    st.integers(1, 60_000_000),
    st.integers(1, 9),
    st.integers(0, 10**12),
    st.integers(0, 10_000),
)
LINKS = st.builds(
    lambda cut, lose, slow: Link(cut=cut, lose=lose, slow=slow),
    st.none() | st.sampled_from(Cut),
    st.integers(0, 10_000),
    st.none() | slows,
)


@given(LINKS)
def test_a_link_in_words_and_back(link: Link) -> None:
    text = link_table.text_of(link)
    assert link_table.from_text(text) == link
    assert len(text) <= 127, "nft's comments have at most 128 bytes"


@pytest.mark.parametrize("text", ["cut=off", "slow=1,2", "hold=1", "cut"])
def test_words_that_are_no_link(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - any of its kinds
        link_table.from_text(text)


def test_only_swallowing_ends_connections() -> None:
    """Seen to fail: to cut a link whose answers are swallowed reset what was to be silent."""
    what = Answers(api=0, count=1)
    swallowed = link_table.drop_answers(PLAN, {}, "client-a", "1", what)
    again = link_table.drop_answers(PLAN, swallowed, "client-a", "1", what)
    assert link_table.newly_swallowed({}, swallowed) == [("1", "client-a")]
    assert link_table.newly_swallowed(swallowed, again) == [("1", "client-a")]
    cut = link_table.cut(PLAN, swallowed, "client-a", "1")
    assert link_table.newly_swallowed(swallowed, cut) == []
    assert link_table.newly_swallowed(swallowed, {}) == []


def test_only_nodes_answer() -> None:
    """Seen to fail: with its two names swapped it was to swallow what `host` answers, which is
    nothing, and said that it would; of two zones it swallowed what clients answer each other.
    """
    asked = {"do": "drop-responses", "api": "Produce"}
    of_zone = link_requests.decide(PLAN, {}, {**asked, "a": "a", "b": "b"})
    assert {*of_zone} == {("1", "0"), ("1", "100"), ("1", "client-a")}
    for node in ("host", "client-a", "clients"):
        with pytest.raises(
            UsageError, match=f"^{node} answers nothing; CLIENT comes first, then NODE."
        ):
            link_requests.decide(PLAN, {}, {**asked, "a": "1", "b": node})
    apart = plan_network([record(0, BROKER), record(1, BROKER)], replicates_apart=True)
    second = {**asked, "a": "replication-0", "b": "replication-1"}
    assert {*link_requests.decide(apart, {}, second)} == {("replication-1", "replication-0")}
    with pytest.raises(UsageError, match="they are one place"):
        link_requests.decide(PLAN, {}, {**asked, "a": "0", "b": "0"})


def test_a_transaction_has_what_differs_and_no_more() -> None:
    cut = link_table.cut(PLAN, {}, "0", "1", one_way=True)
    both = link_table.slow(PLAN, cut, "0", "1", Slow(latency_us=1000), one_way=True)
    lossy: Table = {("0", "1"): Link(lose=500)}
    key = "10.1.0.1 . 10.1.0.2"
    known = link_rules.names(cut) | link_rules.names(lossy)
    assert link_rules.transaction(PLAN, cut, cut) == ""
    assert link_rules.transaction(PLAN, {}, cut).splitlines() == [
        "add counter ip holdfast cut/0/1",
        f'add element ip holdfast cut {{ {key} : "cut/0/1" }}',
        f'add element ip holdfast links {{ {key} comment "cut=drop" : jump cut/drop }}',
    ]
    slow, drawn = "slow=1000,0,0,0", "numgen random mod 10000 < 500"
    assert link_rules.transaction(PLAN, cut, both, known).splitlines() == [
        f"delete element ip holdfast links {{ {key} }}",
        f'add element ip holdfast links {{ {key} comment "cut=drop {slow}" : jump cut/drop }}',
        f"add element ip holdfast slowed {{ {key} }}",
    ]
    assert link_rules.transaction(PLAN, both, lossy).splitlines() == [
        "add counter ip holdfast lost/0/1",
        f'add element ip holdfast lost {{ {key} : "lost/0/1" }}',
        "add chain ip holdfast lost/500",
        f"add rule ip holdfast lost/500 {drawn} counter name ip saddr . ip daddr map @lost drop",
        f"delete element ip holdfast links {{ {key} }}",
        f'add element ip holdfast links {{ {key} comment "lose=500" : jump lost/500 }}',
        f"delete element ip holdfast slowed {{ {key} }}",
    ]
    assert link_rules.transaction(PLAN, lossy, {}, known).splitlines() == [
        f"delete element ip holdfast links {{ {key} }}",
    ]


def test_a_lossy_link_that_is_cut_counts_as_cut_from_then_on() -> None:
    """Method: one that was never cut before, so that it has no counter for that."""
    lossy: Table = {("0", "1"): Link(lose=500)}
    both = link_table.cut(PLAN, lossy, "0", "1", one_way=True)
    key = "10.1.0.1 . 10.1.0.2"
    assert link_rules.transaction(PLAN, lossy, both, link_rules.names(lossy)).splitlines() == [
        "add counter ip holdfast cut/0/1",
        f'add element ip holdfast cut {{ {key} : "cut/0/1" }}',
        f"delete element ip holdfast links {{ {key} }}",
        f'add element ip holdfast links {{ {key} comment "cut=drop lose=500" : jump cut/drop }}',
    ]


@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_many_links_are_no_more_commands_than_one(fault: dict[str, Any]) -> None:
    """Most of a change's time is nft's, which reads it. Seen to fail: three commands a link."""
    lines = []
    for names in (("0", "1"), ("all", "all")):
        asked = fault if fault["do"] == "heal" else {**fault, "a": names[0], "b": names[1]}
        cut = link_table.cut(PLAN, {}, *names)
        after = link_requests.decide(PLAN, cut, asked)
        known = link_rules.names(cut) | link_rules.names(after)
        lines.append(link_rules.transaction(PLAN, cut, after, known).count("\n"))
    assert lines[0] == lines[1]


REQUESTS: list[tuple[dict[str, Any], str]] = [
    ({}, "'do' is None; it can be cut, isolate"),
    ({"do": ["cut"]}, "'do' is"),
    ({"do": "cut", "a": "0"}, "cut needs 'b'"),
    ({"do": "cut", "a": "0", "b": 1}, "'b' is a text, not 1"),
    ({"do": "cut", "a": "0", "b": "1", "one_way": "yes"}, "true or false"),
    ({"do": "cut", "a": "0", "b": "1", "share": "5%"}, "cut does not know 'share'"),
    ({"do": "heal", "b": "1"}, "'b' is there without 'a'"),
    ({"do": "lose", "a": "0", "b": "1", "share": "5"}, "'5' is not a share such as 5%"),
    ({"do": "slow", "a": "0", "b": "1"}, "takes --latency, --rate or both"),
    ({"do": "slow", "a": "0", "b": "1", "latency": "1s", "jitter": "2s"}, "more than --latency"),
    ({"do": "slow", "a": "0", "b": "1", "rate": "1MB/s", "reorder": "1%"}, "needs a --latency"),
    ({"do": "slow", "a": "0", "b": "1", "rate": "0.1kB/s"}, "less than 1kB/s"),
    ({"do": "slow", "a": "0", "b": "1", "latency": "2h"}, "not a time"),
    ({"do": "slow", "a": "0", "b": "1", "latency": "61s"}, "more than a minute"),
    # Seen to fail: they became none, so that what was lost before ended, and other words were said.
    ({"do": "lose", "a": "0", "b": "1", "share": "0.004%"}, "'0.004%' is less than 0.01%"),
    ({"do": "lose", "a": "0", "b": "1", "share": "0.0099%"}, "'0.0099%' is less than 0.01%"),
    ({"do": "slow", "a": "0", "b": "1", "latency": "1s", "reorder": "0.004%"}, "than 0.01%"),
    ({"do": "slow", "a": "0", "b": "1", "latency": "1s", "jitter": "0.4us"}, "less than 1us"),
]


@pytest.mark.parametrize(("request_", "words"), REQUESTS, ids=[words for _, words in REQUESTS])
def test_what_is_not_understood_is_named(request_: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        link_requests.decide(PLAN, {}, request_)


def test_amounts() -> None:
    assert [amounts.time_us(text) for text in ("200ms", "1.5s", "50us")] == [200_000, 1_500_000, 50]
    rates = [amounts.rate(text) for text in ("1MB/s", "500kbit/s", "1.5 GB/s")]
    assert rates == [1_000_000, 62_500, 1_500_000_000]
    assert [amounts.share(text) for text in ("5%", "0.01%", "100%")] == [500, 1, 10_000]
    assert [amounts.share("0%"), amounts.share("0.000%"), amounts.time_us("0ms")] == [0, 0, 0]


class DyingSwitch(KernelLinks):
    """The kernel takes every rule, and the switch ends just behind the first that it took."""

    def __init__(self) -> None:
        super().__init__(PLAN, {}, Holder(pid=1, process="", user=False, descriptors={}), "0")
        self.orders = 0

    def _nft(self, *_words: str, text: str = "", check: bool = True) -> str:
        del text, check
        return ""

    def _configure_switch(self, table: Table) -> None:
        del table
        self.orders += 1
        if self.orders == 2:
            raise ClusterError("the switch has ended")


def test_what_the_kernel_has_taken_is_so_whatever_becomes_of_the_switch() -> None:
    """The next call starts it again. Seen to fail: the agent believed that nothing had changed, and
    healing that link changed nothing for good.
    """
    agent = Agent(PLAN, DyingSwitch(), {})
    pair = [["0", "1"]]
    slow = b'{"do": "slow", "a": "0", "b": "1", "one_way": true, "latency": "5ms"}'
    assert agent.answer(slow) == {"changed": pair}
    assert agent.answer(b'{"do": "heal", "a": "0", "b": "1"}') == {"changed": pair}


class Nft(KernelLinks):
    """An nft that does what it is told, and says that it failed, as one does that is too slow."""

    def __init__(self, listed: str = "") -> None:
        super().__init__(PLAN, {}, Holder(pid=1, process="", user=False, descriptors={}), "0")
        self.listed, self.told = listed, [""]

    def _nft(self, *_words: str, text: str = "", check: bool = True) -> str:
        del check
        if not text:
            return self.listed
        self.told.append(text)
        if len(self.told) == 2:
            raise ClusterError("nft: timed out")
        return ""


def test_a_wait_for_first_bytes_that_could_not_be_ended_is_in_nobody_s_way() -> None:
    """Goal: links can be cut, whatever became of the rules that waited for a heal's first byte.

    Method: nft fails as it is to remove them. Whether they are there nobody knows then, so that the
    next change that needs them makes them anew.
    """
    kernel = Nft(json.dumps({"nftables": []}))
    agent = Agent(PLAN, kernel, {("0", "1"): Link(cut=Cut.DROP)})
    kernel.told.append("what failed is another one")
    assert "error" not in agent.answer(b'{"do": "heal", "watch": true}')
    assert "add chain ip holdfast watch" in kernel.told[-1]
    since = "10.1.0.1 . 10.1.0.2 timeout 1d expires 23h59m58s"
    kernel.listed, kernel.told = f"elements = {{ {since}500ms }}", [""]
    assert "timed out" in agent.answer(b'{"do": "first-bytes"}')["error"]
    assert "delete chain ip holdfast watch" in kernel.told[-1]
    assert "error" not in agent.answer(b'{"do": "cut", "a": "0", "b": "1", "one_way": true}')
    assert "add chain ip holdfast watch" in kernel.told[-1]
    assert "error" not in agent.answer(b'{"do": "heal", "watch": true}')
    (first, _) = agent.answer(b'{"do": "first-bytes"}')["links"]
    assert first == {"from": "0", "to": "1", "after_s": 0.0, "cut_again": False}


def test_a_heal_that_is_watched_has_one_command_for_each_set_and_verb() -> None:
    """Goal: its time does not grow with five commands a link. Method: all links of a network, cut.

    Seen to fail: it had five commands for each link.
    """
    cut = link_table.cut(PLAN, {}, "all", "all")
    waiting = FirstBytes(PLAN)
    text = waiting.change(cut, {}, watch=True)
    waiting.changed(cut, {}, watch=True)
    healed = [each for each in text.splitlines() if " element " in each]
    assert [each.split(" {")[0] for each in healed] == [
        "add element ip holdfast watched",
        "delete element ip holdfast watched",
        "add element ip holdfast first",
        "delete element ip holdfast first",
        "add element ip holdfast watched",
    ]
    key = "10.1.0.1 . 10.1.0.2"
    assert healed[0].startswith(f"add element ip holdfast watched {{ {key}, ")
    assert healed[-1].startswith(f"add element ip holdfast watched {{ {key} timeout 1d, ")
    assert len({each.count(" . ") for each in healed}) == 1, "each has every link"
    again = waiting.change({}, cut, watch=False)
    assert again.splitlines() == healed[:-1]
    assert FirstBytes(PLAN).change({}, cut, watch=True) == "", "nobody waited"


def leading(comment: str, *sources: str) -> dict[str, Any]:
    """What nft lists of a map that leads from the links of 0, or these, to 1 to their chain."""
    keys = [
        {"elem": {"val": {"concat": [source, "10.1.0.2"]}, "comment": comment}}
        for source in sources or ("10.1.0.1",)
    ]
    elements = [[key, {"jump": {"target": "cut/drop"}}] for key in keys]
    return {"map": {"name": "links", "elem": elements}}


def test_what_nft_did_without_saying_so_can_be_healed() -> None:
    """Seen to fail: the agent believed the link whole, so that healing it changed nothing for good,
    and every later cut of it was refused.
    """
    counters = [{"counter": {"name": f"{kind}/0/1", "packets": 0}} for kind in ("cut", "lost")]
    listed = {"nftables": [leading("cut=drop"), *counters]}
    kernel = Nft(json.dumps(listed))
    agent = Agent(PLAN, kernel, {})
    cut = b'{"do": "cut", "a": "0", "b": "1", "one_way": true}'
    assert "timed out" in agent.answer(cut)["error"]
    assert not agent.answer(b'{"do": "status"}')["agrees"]
    assert "error" not in agent.answer(b'{"do": "heal"}')
    assert "delete element ip holdfast links { 10.1.0.1 . 10.1.0.2 }" in kernel.told[-1]
    assert "error" not in agent.answer(cut)
    assert "add counter" not in kernel.told[-1], "it has a counter, as the kernel said"


def test_an_agent_on_a_table_of_other_code_says_what_to_do() -> None:
    """Goal: whatever is in it, as long as it is a table at all.

    Method: one with a broken link, of today's form and of a former one, whose chains had comments;
    one whose links are all whole.

    Seen to fail: it began, and what it said of the first cut was nft's and helped nobody. Later,
    with a broken link of the former form, it said that the table was not ours, and why in Python.
    """
    chain = {"chain": {"name": "link/0/1"}}
    to_chain = [{"concat": ["10.1.0.1", "10.1.0.2"]}, {"jump": {"target": "link/0/1"}}]
    former = {"map": {"name": "links", "elem": [to_chain]}}
    for listed in ([chain, former], [chain, leading("cut=drop")], []):
        with pytest.raises(ClusterError, match=r"another version.*`holdfast down`, `holdfast up`"):
            Nft(json.dumps({"nftables": listed})).begin()
    for listed_ in ("", "{}"):
        with pytest.raises(ClusterError, match="not ours any more"):
            Nft(listed_).begin()
    chains = [{"chain": {"name": f"cut/{how}"}} for how in Cut]
    ours = {"nftables": [*chains, leading("cut=drop")]}
    assert Nft(json.dumps(ours)).begin() == {("0", "1"): Link(cut=Cut.DROP)}


def test_links_are_told_in_their_places_order_by_an_agent_that_starts_anew() -> None:
    """What nft lists has none."""
    chains = [{"chain": {"name": f"cut/{how}"}} for how in Cut]
    sources = [PLAN.place(name).address for name in ("host", "client-a", "100", "0")]
    kernel = Nft(json.dumps({"nftables": [*chains, leading("cut=drop", *sources)]}))
    agent = Agent(PLAN, kernel, kernel.begin())
    links = agent.answer(b'{"do": "status"}')["links"]
    assert [each["from"] for each in links] == ["0", "100", "client-a", "host"]


STRANGER: dict[str, Any] = {"map": {"name": "links", "elem": [3]}}
STRANGE = [leading("hers"), leading("cut=drop", "10.9.9.9"), STRANGER]


@pytest.mark.parametrize(
    "listed", ["", "{}", *(json.dumps({"nftables": [each]}) for each in STRANGE)]
)
def test_a_table_that_is_not_ours_is_said(listed: str) -> None:
    answer = Agent(PLAN, Nft(listed), {}).answer(b'{"do": "status"}')
    assert "not ours any more" in answer["error"]


def test_of_status_nothing_is_kept() -> None:
    """Its answers are as large as the network: a thousand of them were hundreds of megabytes."""
    kernel = Nft(json.dumps({"nftables": []}))
    agent = Agent(PLAN, kernel, {})
    ask = b'{"do": "status", "id": "same"}'
    assert agent.answer(ask)["agrees"]
    kernel.listed = json.dumps({"nftables": [leading("cut=drop")]})
    assert not agent.answer(ask)["agrees"]
