"""Goal: what the commands for links print and refuse. Method: no cluster that runs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.cli import quick
from holdfast.cli.command_table import function_named
from holdfast.cli.links.links_table import lines
from holdfast.cluster import LocalCluster
from holdfast.cluster.network.links.link_calls import Links
from holdfast.cluster.network.possible import Possibility

if TYPE_CHECKING:
    from tests.cli.conftest import Run

LINES = (
    ["cut", "0", "1"],
    ["cut", "0", "1", "--one-way", "--reset"],
    ["isolate", "0"],
    ["heal"],
    ["heal", "0", "1"],
    ["slow", "0", "1", "--latency", "1ms"],
    ["lose", "0", "1", "5%"],
    ["drop-responses", "host", "0", "--api", "Produce"],
    ["status", "--links"],
    ["enter", "ls", "-l"],
)


def link(source: str, target: str, **trouble: Any) -> dict[str, Any]:
    whole: dict[str, Any] = {"cut": None, "lose": 0.0, "slow": None, "answers": None}
    dropped = {"cut": trouble.pop("dropped", 0), "lost": 0}
    return {"from": source, "to": target, **whole, **trouble, "dropped": dropped}


def test_the_table_of_links() -> None:
    """Two directions with the same trouble are one row; of several troubles each has a line."""
    how = {"latency_s": 0.2, "jitter_s": 0.05, "bytes_per_s": 1_500_000, "reorder": 0.05}
    answers = {"api": "Produce", "count": 3, "close": False, "swallowed": 1}
    seen = {
        "links": [
            link("0", "1", cut="drop", dropped=3),
            link("1", "0", cut="drop", dropped=4),
            link("0", "host", cut="reset", slow=how, answers=answers),
            link("host", "0", slow={**how, "latency_s": 2.0, "jitter_s": 0, "reorder": 0}),
            link("2", "0", lose=0.05, dropped=7),
            link("0", "2", dropped=1),
        ],
        "found_no_room": 0,
        "agrees": True,
    }
    assert lines(seen) == [
        "LINK       STATE                                  DROPPED",
        "0 <-> 1    cut                                    3 / 4",
        "0 -> host  cut, with resets",
        "           slow 200ms +-50ms 1.5MB/s 5% overtake",
        "           swallowed 1 of 3 Produce, then silent",
        "host -> 0  slow 2s 1.5MB/s",
        "2 -> 0     loses 5%                               7",
        "0 -> 2     whole again                            1",
        "",
        "5 links are broken; all others are whole.",
    ]


def test_a_network_without_trouble_and_one_that_is_not_as_asked() -> None:
    nothing = {"links": [], "found_no_room": 0, "agrees": True}
    assert lines(nothing) == ["All links are whole."]
    meddled = lines({"links": [], "found_no_room": 9, "agrees": False})
    assert meddled[1] == "9 packets found no room on slowed links."
    assert "`holdfast heal` makes all links whole" in meddled[2]


class Relaying(Links):
    """Links of which the last change reset a connection."""

    def change(self, request: Mapping[str, Any]) -> list[tuple[str, str]]:
        self.reset = [] if request["do"] == "drop-responses" else [("host", "1")]
        return [("1", "host")]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        # Seen to fail: only --help said so of them.
        (
            ["drop-responses", "host", "1", "--api", "Produce"],
            (
                "Swallowed: the next answer to Produce from 1 to host; the connection stays, "
                "silent; connections that there were between them have been reset (1 link).\n"
            ),
        ),
        (
            ["lose", "1", "host", "5%", "--one-way"],
            (
                "Lossy: of what 1 sends to host 5% of packets vanish; connections that "
                "`drop-responses` had left in its relay were reset: host to 1 (1 link).\n"
            ),
        ),
        (
            ["slow", "1", "host", "--latency", "5ms", "--reorder", "5%", "--one-way"],
            (
                "Slowed: what 1 sends to host takes 5ms, 5% of it overtakes; connections that "
                "`drop-responses` had left in its relay were reset: host to 1 (1 link).\n"
            ),
        ),
    ],
    ids=["drop-responses", "lose", "reorder"],
)
def test_what_resets_connections_says_so(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: list[str], said: str
) -> None:
    """Method: links that nobody has, in the place of those of a cluster that does not run."""
    LocalCluster.create(tmp_path, port=0, network=Possibility("namespaces"))
    monkeypatch.setattr(LocalCluster, "network", lambda _cluster: None)
    monkeypatch.setattr(LocalCluster, "links", lambda _cluster: Relaying(tmp_path))
    command = [line[0], "--data-dir", str(tmp_path), *line[1:]]
    outcome = run(*command)
    assert (outcome.status, outcome.output) == (0, said)
    told = json.loads(run(*command, "--json").output)
    assert told["changed"] == [{"from": "1", "to": "host"}]
    of_relay = None if line[0] == "drop-responses" else [{"from": "host", "to": "1"}]
    assert told.get("reset") == of_relay


@pytest.mark.process
@pytest.mark.slow
def test_what_proxies_can_t_do_is_said(run: Run, tmp_path: Path) -> None:
    """Goal: no command says that it did what can't be. Method: proxies before no node at all.

    Seen to fail: what has a client's place in it was said to be cut, and its answers swallowed.
    """
    made = Possibility("proxies")
    cluster = LocalCluster.create(tmp_path, port=0, network=made, zones=("a", "b", "c"))
    where = ["--data-dir", str(tmp_path)]
    with cluster.network().make(settle=False):
        for command in (
            ["drop-responses", *where, "client-a", "1", "--api", "Produce", "--count", "2"],
            ["cut", *where, "client-a", "1"],
        ):
            outcome = run(*command)
            assert (outcome.status, outcome.output) == (2, "")
            assert "Behind proxies all clients are host: who dials is known by" in outcome.errors
        for zone in ([], ["--zone", "a"]):
            outcome = run("enter", *where, *zone, "ls")
            assert (outcome.status, outcome.output) == (2, "")
            assert "no place to enter" in outcome.errors
        assert run("cut", *where, "clients", "1").output.endswith("(2 links).\n")


@pytest.mark.parametrize("line", LINES, ids=" ".join)
def test_a_cluster_without_a_network(run: Run, tmp_path: Path, line: list[str]) -> None:
    """One sentence that says what to do. Method: a plain cluster's directory."""
    LocalCluster.create(tmp_path, port=0)
    outcome = run(line[0], "--data-dir", str(tmp_path), *line[1:])
    assert outcome.status == 2
    assert outcome.errors.count("\n") == 1
    assert "has no network of its own" in outcome.errors
    assert "`holdfast up --network`" in outcome.errors
    assert outcome.output == ""


@pytest.mark.parametrize("line", LINES, ids=" ".join)
def test_no_cluster_at_all(run: Run, tmp_path: Path, line: list[str]) -> None:
    outcome = run(line[0], "--data-dir", str(tmp_path), *line[1:])
    assert (outcome.status, outcome.errors.count("\n")) == (2, 1)
    assert outcome.errors.startswith("holdfast: There is no cluster in")


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (["up", "--zones", "a,b"], "--zones a,b are those of a network: add --network"),
        (["up", "--network", "--zones", "a,,b"], "names with commas between"),
        (["enter", "--zone", "a", "--node", "1", "ls"], "both say where"),
        (["up", "--network", "--brokers", "3"], "`export XDG_STATE_HOME=/tmp/other` in each term"),
        (["up", "--network", "--zones", "a"], "holds a cluster already: --network, but it was ma"),
    ],
)
def test_what_makes_no_sense(run: Run, tmp_path: Path, line: list[str], reason: str) -> None:
    LocalCluster.create(tmp_path, port=0)
    outcome = run(line[0], "--data-dir", str(tmp_path), *line[1:])
    assert outcome.status == 2
    assert reason in outcome.errors
    assert outcome.errors.count("\n") == 1


def test_what_stands_behind_enter_is_not_ours() -> None:
    """`holdfast enter ls --zone x` is about ls. Method: who reads the line."""
    assert quick.values_of(function_named("enter"), ["ls", "--zone", "x"]) is None
    assert quick.values_of(function_named("cut"), ["0", "1", "--one-way"]) is not None


def test_a_cluster_made_otherwise_is_not_taken_for_one_with_proxies(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was asked for is not ignored: how a network is had was decided when it was made."""
    LocalCluster.create(tmp_path, port=0, network=Possibility("namespaces"))
    monkeypatch.setenv("HOLDFAST_NETWORK", "proxies")
    outcome = run("up", "--detach", "--data-dir", str(tmp_path))
    assert outcome.status == 2
    assert "its network was made with namespaces" in outcome.errors


def test_namespaces_are_asked_for_and_denied(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One sentence that says why, and no cluster. Seen to fail: one with proxies began."""
    monkeypatch.setenv("HOLDFAST_NETWORK", "namespaces")
    monkeypatch.setenv("PATH", str(tmp_path))
    outcome = run("up", "--network", "--detach", "--port", "0", "--data-dir", str(tmp_path / "new"))
    assert outcome.status == 1
    assert "HOLDFAST_NETWORK=namespaces: " in outcome.errors
    assert "install Debian's" in outcome.errors
    assert not (tmp_path / "new").exists()


def test_proxies_are_asked_for(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A value that there isn't is refused with those that there are."""
    monkeypatch.setenv("HOLDFAST_NETWORK", "bridges")
    outcome = run("up", "--network", "--detach", "--data-dir", str(tmp_path / "new"))
    assert outcome.status == 2
    assert "HOLDFAST_NETWORK=bridges: it can be namespaces or proxies" in outcome.errors
    assert not (tmp_path / "new").exists()
