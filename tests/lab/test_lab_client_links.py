"""Goal: producers are told of each record, and members that are out commit nothing.

Method: what the scenario checks, with counts made up.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.lab.checked import Scene, wrote

from holdfast.judge.history import Acknowledged, Event, Refused, Send, Unknown
from holdfast.lab.parameters import LabError
from holdfast.lab.scenarios.clients_cut_off import expect_late_commit_refused, expect_told
from holdfast.lab.scenarios.networks.client_links_cut import (
    ZONES,
    expect_in_vain,
    refuse_heard,
)
from holdfast.lab.steps.controllers import counts_of
from holdfast.lab.workload_processes import Worker

EARLIER = {"REBALANCE_IN_PROGRESS": 2}  # as members came


@dataclass(frozen=True, eq=False)
class Member:
    """As much of a group's member as is asked here."""

    name: str
    told: SimpleNamespace


def told(sent: int, acknowledged: int, refused: int = 0, unknown: int = 0) -> Worker:
    counts: dict[type[Event], int] = {
        Send: sent,
        Acknowledged: acknowledged,
        Refused: refused,
        Unknown: unknown,
    }
    return wrote("producer-a", counts)


@pytest.mark.parametrize(
    ("producer", "all_acknowledged", "kept"),
    [
        (told(9, 9), True, True),
        (told(9, 8), True, False),
        (told(0, 0), True, False),
        (told(9, 6, 1, 2), False, True),
        (told(9, 6, 1, 1), False, False),
        (told(9, 8, 1), False, False),
    ],
    ids=["all", "one silent", "nothing sent", "all told", "one of them silent", "none in doubt"],
)
def test_a_producer_must_be_told_of_each(
    producer: Worker, all_acknowledged: bool, kept: bool
) -> None:
    scene = Scene()
    expect_told(cast("Any", scene), producer, all_acknowledged=all_acknowledged)
    assert scene.kept == [kept]


@pytest.mark.parametrize(
    ("in_vain", "kept"),
    [({"UNKNOWN_MEMBER_ID": 1, **EARLIER}, True), (EARLIER, False)],
    ids=["refused", "taken"],
)
def test_a_member_that_is_out_must_not_commit(in_vain: dict[str, int], kept: bool) -> None:
    """Goal: what was refused as members came is no proof that a late commit is."""
    victim = Member(name="g-a", told=SimpleNamespace(in_vain=Counter(in_vain)))
    scene = Scene()
    found = SimpleNamespace(run=scene, in_vain={victim: Counter(EARLIER)})
    expect_in_vain(cast("Any", found))
    assert scene.kept == [kept]


@pytest.mark.parametrize(
    ("in_vain", "kept"),
    [
        ({"UNKNOWN_MEMBER_ID": 3}, True),
        ({"UNKNOWN_MEMBER_ID": 2}, False),
        ({"UNKNOWN_MEMBER_ID": 3, "NOT_COORDINATOR": 1}, False),
    ],
    ids=["refused", "taken", "refused for another reason"],
)
def test_a_member_that_stood_still_commits_in_vain(in_vain: dict[str, int], kept: bool) -> None:
    """Goal: as above, of one that was stopped: two were refused before that."""
    victim = Member(name="g-a", told=SimpleNamespace(in_vain=Counter(in_vain), commits=5))
    scene = Scene()
    before = Counter({"UNKNOWN_MEMBER_ID": 2})
    expect_late_commit_refused(cast("Any", scene), cast("Any", victim), before)
    assert scene.kept == [kept]


def test_a_cut_through_which_producers_are_heard_is_none() -> None:
    producers = {zone: wrote(f"producer-{zone}", {Acknowledged: 7}) for zone in ZONES}
    scene = cast("Any", SimpleNamespace(producers=producers))
    counts = counts_of(producers.values())
    refuse_heard(scene, counts)
    producers["b"].tail.counts[Acknowledged.KIND, 0] += 1
    with pytest.raises(LabError, match="producer-b is unheard, and 1 events are acknowledged"):
        refuse_heard(scene, counts)
