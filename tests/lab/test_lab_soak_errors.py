"""Goal: an error of ours in a long run takes nothing along that was seen broken, nor other runs.

Method: runs without a process whose steps or whose end raise an error of ours; a look for a
network, and a lab, that fail as on a busy machine.
"""

from __future__ import annotations

import signal
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.lab.test_lab_crashed import CHECK, EndsBadly, broken, has_read, of_ours
from tests.lab.test_lab_gave_up import NoCluster
from tests.lab.test_lab_verdict import PHANTOM, UNREAD, by_network

from holdfast.cluster import ClusterError
from holdfast.cluster.network import possible
from holdfast.cluster.network.possible import NAMESPACES, PROXIES, Possibility
from holdfast.lab.background import COMMIT
from holdfast.lab.parameters import LabError
from holdfast.lab.prove import CRASH
from holdfast.lab.run import Run
from holdfast.lab.soak import campaign as counting
from holdfast.lab.soak import group_campaigns, killed_campaigns, scenario_campaigns
from holdfast.lab.soak.campaign import NETWORK, Campaign
from holdfast.lab.soak.killed_campaigns import Left, end_lab, ended_at_random, has_nodes, is_started

OURS = "this is an error of ours, please report it"


@pytest.fixture(autouse=True)
def _runs_stay_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv(COMMIT, "of a test")  # git is not asked


def kills(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    steps: Callable[[Run], None],
    kind: type[Run] = NoCluster,
) -> dict[str, Any]:
    """Return the row of a run of random kills of which these are the steps."""
    monkeypatch.setattr(scenario_campaigns, "Run", kind)
    monkeypatch.setattr(scenario_campaigns, "expect_kept_somewhere", lambda _run: None)
    monkeypatch.setattr(scenario_campaigns, "_kill_at_random", lambda run, *_: steps(run))
    return scenario_campaigns.random_kills(tmp_path / "run")


def failed(run: Run) -> None:
    has_read(run, UNREAD)
    broken(run)


def phantom(run: Run) -> None:
    has_read(run, PHANTOM)


def unread(run: Run) -> None:
    has_read(run, UNREAD)


SEEN = pytest.mark.parametrize(
    ("seen", "kept"), [(failed, False), (phantom, False), (unread, None)]
)


@pytest.mark.slow
@pytest.mark.process
@SEEN
def test_an_error_of_ours_in_the_steps_leaves_what_was_seen(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    seen: Callable[[Run], None],
    kept: bool | None,
) -> None:
    """Seen to fail: it went through all campaigns as a traceback, and there was no row."""

    def steps(run: Run) -> None:
        seen(run)
        of_ours()

    row = kills(tmp_path, monkeypatch, steps)
    assert row["kept"] is kept, row
    assert OURS in row["verdict"]
    assert "KeyError: 'of ours'" in (tmp_path / "run" / CRASH).read_text()
    assert "seed" in row


@pytest.mark.slow
@pytest.mark.process
@SEEN
@pytest.mark.parametrize("kind", [NoCluster, EndsBadly])
def test_an_error_of_ours_amid_a_group_leaves_what_was_seen(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    seen: Callable[[Run], None],
    kept: bool | None,
    kind: type[Run],
) -> None:
    """Seen to fail: a failed check of a group that was killed and hurt for minutes left no row."""

    def hurt(run: Run, *_: object) -> None:
        seen(run)
        of_ours()

    monkeypatch.setattr(group_campaigns, "Run", kind)
    monkeypatch.setattr(group_campaigns, "_hurt", hurt)
    monkeypatch.setattr(group_campaigns, "expect_kept_somewhere", lambda _run: None)
    monkeypatch.setattr(group_campaigns, "offsets_left", of_ours)
    row = group_campaigns.kill_for(tmp_path / "run", "classic", 1.0)
    assert row["kept"] is kept, row
    assert OURS in row["verdict"]
    assert "seed" in row


class EndsBusy(NoCluster):
    """A run whose cluster can't be taken down."""

    def __exit__(self, kind: object, reason: BaseException | None, trace: object) -> None:
        super().__exit__(kind, reason, trace)
        raise ClusterError("it can't be taken down")


@pytest.mark.slow
@pytest.mark.process
@SEEN
@pytest.mark.parametrize(("kind", "words"), [(EndsBadly, OURS), (EndsBusy, "taken down")])
def test_an_error_at_the_end_of_random_kills_leaves_what_was_seen(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    seen: Callable[[Run], None],
    kept: bool | None,
    kind: type[Run],
    words: str,
) -> None:
    """Seen to fail: what the history shows was not looked at then, or there was no row."""

    def steps(run: Run) -> None:
        seen(run)
        raise LabError("busy")

    row = kills(tmp_path, monkeypatch, steps, kind)
    assert row["kept"] is kept, row
    assert "busy; " in row["verdict"]
    assert words in row["verdict"]


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.parametrize(("seen", "kept"), [(failed, False), (unread, None)])
def test_an_error_of_ours_in_judging_leaves_checks_that_failed(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    seen: Callable[[Run], None],
    kept: bool | None,
) -> None:
    monkeypatch.setattr(scenario_campaigns, "evidence_of", of_ours)
    row = kills(tmp_path, monkeypatch, seen)
    assert row["kept"] is kept, row
    assert OURS in row["verdict"]
    assert (CHECK in row["verdict"]) is (kept is False)


def test_an_error_of_ours_ends_its_campaign_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Seen to fail: none behind it was begun. It is not kept, nor passed over as not made."""
    found = [
        Campaign(name=name, text="Made up.", runs=1, run=run)
        for name, run in (("first", of_ours), ("second", lambda _d: {"kept": True}))
    ]
    monkeypatch.setattr(counting, "campaigns", lambda: found)
    before = signal.getsignal(signal.SIGTERM)
    try:
        assert counting.main(["--results", str(tmp_path / "results")]) == 1
    finally:
        signal.signal(signal.SIGTERM, before)
    said = capsys.readouterr().out
    assert f"first: {OURS}: KeyError: 'of ours'" in said
    assert 'raise KeyError("of ours")' in said, "where it was met"
    assert f"first 1: what there is of it stays in {tmp_path}" in said
    assert "second: 1 of 1 runs kept what was promised." in said
    assert (tmp_path / "results" / "first.jsonl").read_text() == ""


# -- the lab is ended --------------------------------------------------------------------------

GOOD = Left(before=3, processes=(), files=(), status=-signal.SIGKILL)
BAD = Left(before=3, processes=("python -m holdfast.node",), files=(), status=-signal.SIGKILL)


def ended(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    left: Left,
    look: Callable[[], Possibility],
    network: str | None,
) -> tuple[dict[str, Any], list[str]]:
    """Return the row of a lab that left this, and what was done; `network`: what it had made."""
    did: list[str] = []

    def looks() -> Possibility:
        did.append("look")
        if "lab" in did:  # it keeps the machine busy
            raise ClusterError(NO_NETWORK)
        return look()

    def ends(directory: Path, *_: object) -> Left:
        did.append("lab")
        if network is not None:
            by_network(network)(directory)
        return left

    monkeypatch.setattr(possible, "look", looks)
    monkeypatch.setattr(killed_campaigns, "end_lab", ends)
    monkeypatch.setattr(killed_campaigns, "STAGES", (has_nodes if network else is_started,))
    monkeypatch.setattr(killed_campaigns, "SIGNALS", (signal.SIGKILL,))
    return ended_at_random(tmp_path / "run"), did


NO_NETWORK = "HOLDFAST_NETWORK=namespaces: no answer in 20 s."


@pytest.mark.parametrize(("left", "kept"), [(GOOD, True), (BAD, False)], ids=["good", "bad"])
def test_what_an_ended_lab_has_left_does_not_hang_on_a_later_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: Left, kept: bool
) -> None:
    """Seen to fail: a look for a network, behind all else, took what had been seen along."""
    row, did = ended(tmp_path, monkeypatch, left, lambda: Possibility(NAMESPACES), None)
    assert (row["kept"], row[NETWORK], did) == (kept, NAMESPACES, ["look", "lab"])


def test_no_lab_is_started_where_no_network_can_be_had_that_was_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def look() -> Possibility:
        raise ClusterError(NO_NETWORK)

    row, did = ended(tmp_path, monkeypatch, GOOD, look, None)
    assert row["kept"] is None
    assert NO_NETWORK in row["verdict"]
    assert did == ["look"]


@pytest.mark.parametrize(
    ("left", "network", "kept", "told"),
    [
        (GOOD, NAMESPACES, True, NAMESPACES),
        (GOOD, PROXIES, True, PROXIES),
        (BAD, None, False, PROXIES),
        (GOOD, None, None, None),
    ],
    ids=["namespaces", "proxies", "broken without any", "kept without any"],
)
def test_a_lab_that_was_ended_before_it_had_a_network_shows_nothing_of_proxies(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    left: Left,
    network: str | None,
    kept: bool | None,
    told: str | None,
) -> None:
    """Goal: a look that has failed ends no campaign as if every run were by proxies.

    Seen to fail: the row said so of a run that had no network. What is broken is broken.
    """
    row, _ = ended(
        tmp_path, monkeypatch, left, lambda: Possibility(PROXIES, "No answer in 20 s."), network
    )
    assert (row["kept"], row.get(NETWORK)) == (kept, told)
    assert kept is not None or "No answer in 20 s." in row["verdict"]


@pytest.mark.slow
@pytest.mark.process
def test_a_lab_that_does_not_end_is_one_that_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Method: a signal that ends nobody. Seen to fail: an error of ours, and no row."""
    monkeypatch.setattr(killed_campaigns, "GONE_S", 0.2)
    left = end_lab(tmp_path / "lab", signal.SIGCONT, lambda: None)
    assert left.status is None
    assert any(" holdfast.cli prove " in each for each in left.processes)
