"""Goal: a run in which nothing was done to a network, or could be, is none.

Method: steps that find no place for their clients, no listener, or nothing planned.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.lab.played_stage import play

from holdfast.lab.parameters import LabError
from holdfast.lab.scenarios.networks import storm
from holdfast.lab.scenarios.networks.client_links_cut import place_of
from holdfast.lab.scenarios.networks.partial_bootstrap import behind_balancer


def test_a_storm_in_which_nothing_was_done_is_none(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Goal: a cluster that nobody has hurt has withstood nothing."""
    monkeypatch.setattr(storm, "plan_storm", lambda *_: [])
    played = play(monkeypatch, tmp_path, "storm", "main")
    assert played.broke_off == "nothing was done in 600 s: --duration more"
    assert played.checks == []


def test_clients_that_stand_nowhere_are_not_cut_off() -> None:
    """Goal: behind proxies no client is cut off, so nothing is proven of one that is."""
    with pytest.raises(LabError, match="can't be told apart"):
        place_of(cast("Any", None), cast("Any", SimpleNamespace(has_places=False)), "a")


def test_brokers_without_a_listener_for_clients_advertise_no_balancer() -> None:
    """Goal: where there is nothing to change, that all is reached shows nothing."""
    record = SimpleNamespace(
        brokers=[SimpleNamespace(outside_port=9092), SimpleNamespace(outside_port=None)]
    )
    run = SimpleNamespace(make_topic=lambda _: None, cluster=SimpleNamespace(record=record))
    with pytest.raises(LabError, match="a listener of their own"):
        behind_balancer(cast("Any", run))
