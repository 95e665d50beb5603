"""Goal: `make groups-bench` counts what its members did, and says so beside what is asked of us.

Method: a made report; options; clients that take a commit at once, refuse it or lose it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from holdfast.clients.group_member.light_classic import ClassicMember
from holdfast.clients.group_member.light_consumer import ConsumerMember
from holdfast.clients.group_member.light_member import Topic

BENCH = Path(__file__).resolve().parents[2] / "bench"
TOPICS = (Topic("t", b"t" * 16, 2),)
REPORT: dict[str, Any] = {
    "joining, classic": {
        "members": 500,
        "stable_after_last_join_s": 3.21,
        "stable_after_leave_s": 2.0,
    },
    "heartbeats, consumer": {"groups": 1000, "cores": 0.1234, "idle_cores": 0.01},
    "commits": {
        "asked_commits_per_s": 2000,
        "offsets_a_commit": 10,
        "offsets_per_s": 19_999.6,
        "p50_ms": 1.0,
        "p99_ms": 2.0,
        "refused": 3,
        "not_sent": 4,
        "cpu_us_a_commit": 123.4,
    },
}
COMMITS = (
    "20,000 offsets/s in commits of 10 (asked 20,000): 123 us of CPU each, of all brokers;"
    " p50 1.0 ms, p99 2.0 ms, 3 refused, 4 not sent"
)


@pytest.fixture(scope="module")
def groups() -> Iterator[ModuleType]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCH))
        yield import_module("groups")


@pytest.fixture(scope="module")
def loads(groups: ModuleType) -> ModuleType:
    del groups  # it has found the others
    return import_module("group_loads")


def test_each_figure_stands_beside_its_goal(groups: ModuleType) -> None:
    lines = groups.render(REPORT).splitlines()
    assert lines == [
        "500 classic members: stable 3.2 s after the last join (goal 5), 2.0 s after one leaves",
        "1,000 consumer groups: 0.123 cores (goal 0.2), 0.010 without them",
        COMMITS,
    ]
    without = {"heartbeats, classic": {"groups": 2}}
    assert groups.render(without) == "2 classic groups: CPU is not known\n"


@pytest.mark.parametrize(
    ("line", "full"),
    [
        ("", True),
        ("--members 500", True),
        ("--members 499", False),
        ("--only commits", False),
        ("--quick", False),
    ],
)
def test_only_a_whole_run_leaves_figures(groups: ModuleType, line: str, full: bool) -> None:
    assert groups._is_full(groups.parse(line.split())) is full


def test_a_quick_run_may_have_sizes_of_its_own(groups: ModuleType) -> None:
    options = groups.parse(["--quick", "--members", "7", "--pids", "1,22"])
    assert (options.members, options.groups, options.pids) == (7, 10, (1, 22))


def test_a_group_has_members_of_its_protocol_and_a_name_of_its_own(loads: ModuleType) -> None:
    target = loads.Target("127.0.0.1:1,127.0.0.1:2", ())
    assert target.place == ("127.0.0.1", 1)
    kinds = {"classic": ClassicMember, "consumer": ConsumerMember}
    made = {each: loads.group_of(target, each, TOPICS, 3) for each in loads.PROTOCOLS}
    names = set()
    for protocol, group in made.items():
        assert all(isinstance(member, kinds[protocol]) for member in group.members())
        assert len(group.clients) == 3
        assert not group.is_whole()
        names |= {member.plan.group_id for member in group.members()}
    assert len(names) == 2


class Taken:
    """A client that answers at once."""

    def __init__(self, refusals: Mapping[Any, int] | None) -> None:
        self.refusals = refusals
        self.committed: list[dict[Any, int]] = []

    async def commit(self, offsets: dict[Any, int]) -> Mapping[Any, int]:
        self.committed.append(offsets)
        if self.refusals is None:
            raise ConnectionResetError("the connection was lost")
        return self.refusals


def test_commits_go_round_and_are_counted(loads: ModuleType) -> None:
    clients = [Taken({}), Taken({("t", 1): 27}), Taken(None)]
    owned = [("t", 0), ("t", 1)]
    found = asyncio.run(loads._commits(clients, owned, 9_000, 100, 0.01))
    assert [len(client.committed) for client in clients] == [30, 30, 30]
    assert (len(found.latencies_s), found.refused, found.late) == (30, 60, 0)
    assert clients[0].committed[1] == {("t", 0): 3, ("t", 1): 3}
    assert min(found.latencies_s) >= 0


def test_commits_that_nobody_answers_are_bounded(loads: ModuleType) -> None:
    class Slow(Taken):
        async def commit(self, offsets: dict[Any, int]) -> Mapping[Any, int]:
            await asyncio.sleep(0.05)
            return await super().commit(offsets)

    found = asyncio.run(loads._commits([Slow({})], [("t", 0)], 10_000, 5, 0.002))
    assert (len(found.latencies_s), found.late) == (5, 15)
