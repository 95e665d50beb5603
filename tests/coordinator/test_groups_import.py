"""A broker imports its coordinator a part at a time, once it has a shard, and before it needs it.

Goal: a broker without a shard imports none of it; one that has got a shard is not held up by the
import of fifty modules in one go, and leads what it was told of meanwhile; who asks does not wait.
Method: a fresh interpreter, which counts what each turn of its loop has imported, and a coordinator
that takes note of what it is told.
Rules: docs/design/groups.md#2-a-state-machine-over-a-log.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

pytestmark = [pytest.mark.process, pytest.mark.slow]

MODULES_A_TURN = 20
STORY = """
import asyncio, json, sys
from types import SimpleNamespace
import holdfast.node.__main__
from holdfast.node.coordinator.groups import Groups

ROOM = "holdfast.node.coordinator.coordinator"
told = []

def replica(index, leading, topic="__consumer_offsets"):
    return SimpleNamespace(topic=topic, index=index, leading=leading)

class Coordinator:
    def __init__(self, around, topic):
        assert around == "around"
    def role_changed(self, partition):
        told.append(partition.index)
    def close(self):
        told.append("closed")

def ask(groups):
    import holdfast.node.coordinator.coordinator as room
    room.GroupCoordinator = Coordinator
    return groups.coordinator

async def turns(groups):
    counts = []
    while ROOM not in sys.modules:
        before = len(sys.modules)
        await asyncio.sleep(0)
        counts.append(len(sys.modules) - before)
        assert len(counts) < 1000, "it is never imported"
    import holdfast.node.coordinator.coordinator as room
    room.GroupCoordinator = Coordinator
    await asyncio.sleep(0)
    return counts

async def story():
    groups = Groups("around")
{body}
    groups.close()
    print(json.dumps([told, counts]))

asyncio.run(story())
"""


def _told(body: str) -> Any:
    """Return what a coordinator was told, and how much each turn has imported."""
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    done = subprocess.run(
        [sys.executable, "-c", STORY.replace("{body}", lines)],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_who_has_no_shard_imports_nothing() -> None:
    told, counts = _told(
        """
groups.role_changed(replica(0, "leads", topic="payments"))
before = set(sys.modules)
for _ in range(100):
    await asyncio.sleep(0)
counts = sorted(set(sys.modules) - before) + [ROOM] * (ROOM in sys.modules)
"""
    )
    assert (told, counts) == ([], [])


def test_who_follows_a_shard_has_imported_all_by_turns_before_it_leads() -> None:
    """Seen to fail: the import took 24 ms, when a broker that took over had groups to load."""
    told, counts = _told(
        """
before = len(sys.modules)
groups.role_changed(replica(0, None))
counts = [len(sys.modules) - before, *await turns(groups)]
groups.role_changed(replica(1, None))
assert told == []
groups.role_changed(replica(2, "leads"))
groups.role_changed(replica(2, None))
"""
    )
    assert told == [2, 2, "closed"]
    assert max(counts) <= MODULES_A_TURN, counts
    assert sum(counts) > 3 * MODULES_A_TURN, "this has to be all of it"


def test_who_leads_meanwhile_is_told_of_at_the_end_or_when_somebody_asks() -> None:
    roles = """
lost = replica(3, "leads")
for each in (replica(1, "leads"), replica(2, None), lost, replica(4, "leads")):
    groups.role_changed(each)
lost.leading = None
"""
    told, counts = _told(f"{roles}counts = await turns(groups)")
    assert told[0] == 1
    assert told[-2:] == [4, "closed"]
    assert max(counts) <= MODULES_A_TURN, counts
    asks = "ask(groups)\nat_once = list(told)\ncounts = at_once\n"
    told, at_once = _told(f"{roles}{asks}for _ in range(100):\n    await asyncio.sleep(0)")
    assert at_once == [1, 2, 3, 4], "who asks is answered by who leads here"
    assert told == [*at_once, "closed"], "each once"


def test_who_stops_in_the_middle_imports_no_more() -> None:
    _, counts = _told(
        """
groups.role_changed(replica(0, None))
groups.close()
before = set(sys.modules)
for _ in range(100):
    await asyncio.sleep(0)
counts = sorted(set(sys.modules) - before) + [ROOM] * (ROOM in sys.modules)
"""
    )
    assert counts == []
