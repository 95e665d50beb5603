"""Goal: the bench of groups and of compaction says what was done, and whether that is enough.

Method: made figures; options; engines that only count; a small log; clients that take a commit at
once, refuse it or lose it.
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


@pytest.fixture(scope="module")
def groups() -> Iterator[ModuleType]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCH))
        yield import_module("groups")


@pytest.fixture(scope="module")
def loads(groups: ModuleType) -> ModuleType:
    del groups  # it has found the others
    return import_module("group_loads")


def rounds(*values: float) -> dict[str, Any]:
    return {"median": sorted(values)[len(values) // 2], "rounds": list(values)}


def test_each_goal_stands_beside_what_was_measured(groups: ModuleType) -> None:
    """Goal: met or not by ours alone, the loop by its worst round; what wasn't measured is none."""
    cases = {
        groups.JOINING["classic"]: {
            "holdfast": {"stable_after_last_join_s": rounds(9.0, 3.0, 5.0)},
            "apache": {"stable_after_last_join_s": rounds(7.0)},
        },
        groups.HEARTBEATS["consumer"]: {"holdfast": {"cores": rounds(0.21)}},
        groups.COMMITS: {"holdfast": {"offsets_per_s": rounds(19_799.0)}},
        groups.LOADING: {
            "holdfast": {"loaded_s": rounds(1, 1, 99), "held_ms_max": rounds(1, 1, 51)},
        },
    }
    rows = groups.goals.judged(groups.GOALS, cases)
    assert [(row["measured"], row.get("apache"), row["met"]) for row in rows] == [
        (5.0, 7.0, True),
        (None, None, None),
        (None, None, None),
        (0.21, None, False),
        (19_799.0, None, False),
        (1.0, None, True),
        (51.0, None, False),
    ]
    lines = groups.goals.render(rows).splitlines()[2:]
    assert lines[0] == (
        "| groups: joining, classic: s from the last of 500 joins to stable | <= 5 | 5 | 7 | met |"
    )
    assert lines[4].endswith("| >= 19,800 | 19,799 |  | NOT MET |")
    assert lines[1].endswith("| not measured |")


def test_compaction_is_held_against_its_goals_compiled_and_in_python(groups: ModuleType) -> None:
    del groups  # it has found the others
    compaction = import_module("compaction")
    cases = {
        "compaction: 1 KB, none": {
            "holdfast": {"mb_per_core_s": rounds(61.0)},
            "in Python": {"mb_per_core_s": rounds(14.9)},
        },
        compaction.MEMORY: {"in Python": {"beside_map_mb": rounds(1.0, 16.1, 1.0)}},
    }
    rows = compaction.goals.judged(compaction.GOALS, cases)
    found = {(row["case"], row["of"]): row["met"] for row in rows if row["met"] is not None}
    assert found == {
        ("compaction: 1 KB, none", "holdfast"): True,
        ("compaction: 1 KB, none", "in Python"): False,
        (compaction.MEMORY, "in Python"): False,
    }


def test_a_round_of_compaction_is_measured(groups: ModuleType, tmp_path: Path) -> None:
    """Goal: of a log with each key twice half is left; nothing of it stays on the disk."""
    del groups
    compaction = import_module("compaction")
    results = import_module("rounds").Results()
    compaction.measure(tmp_path, 1, results.add, "1 KB, none", megabytes=1)
    (found,) = results.summary().values()
    for engine in compaction.COMPACTORS:
        assert 0.4 < found[engine]["left_share"]["median"] < 0.6
        speed = found[engine]["mb_per_core_s"]["median"]
        assert speed == found[engine]["log_mb_per_core_s"]["median"] > 0
    assert not list(tmp_path.iterdir())


def test_the_first_round_warms_up_and_engines_take_turns(groups: ModuleType) -> None:
    loads = import_module("group_loads")
    targets = [loads.Target(name, "127.0.0.1:1", ()) for name in ("a", "b")]
    asked: list[str] = []
    noted: list[tuple[str, str, float]] = []

    def once(target: Any) -> dict[str, float]:
        asked.append(target.name)
        return {"number": len(asked)}

    groups._in_turn(
        "case", targets, 2, lambda case, name, got: noted.append((case, name, got["number"])), once
    )
    assert asked == ["a", "b"] * 3
    assert noted == [("case", name, 3 + place) for place, name in enumerate("abab")]


@pytest.mark.parametrize(
    ("line", "full"),
    [
        ("", True),
        ("--members 500", True),
        ("--members 499", False),
        ("--only commits", False),
        ("--rounds 2", False),
        ("--no-apache", True),
        ("--no-holdfast", False),
        ("--bootstrap-server 127.0.0.1:1", False),
        ("--quick", False),
    ],
)
def test_only_a_whole_run_leaves_figures(groups: ModuleType, line: str, full: bool) -> None:
    assert groups._is_full(groups.parse(line.split())) is full


def test_a_quick_run_may_have_sizes_of_its_own(groups: ModuleType) -> None:
    options = groups.parse(["--quick", "--members", "7", "--pids", "1,22"])
    assert (options.sizes.members, options.sizes.groups, options.pids) == (7, 10, (1, 22))
    assert options.rounds == 1


def test_a_group_has_members_of_its_protocol_and_a_name_of_its_own(loads: ModuleType) -> None:
    target = loads.Target("e", "127.0.0.1:1,127.0.0.1:2", ())
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
