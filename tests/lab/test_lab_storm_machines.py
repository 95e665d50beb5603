"""Goal: in a storm a disk really runs full, and a clock is really wrong.

Method: a real broker with a real controller, hurt by a process of its own, which may mount. Where
this machine lets nobody mount, that is said, and the rest is done.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.process, pytest.mark.slow]

PROGRAM = """
import json, sys, time
from pathlib import Path
from confluent_kafka import Producer
from holdfast.lab.parameters import LabError, Parameters
from holdfast.lab.run import Run
from holdfast.lab.scenarios.networks import storm_machines
from holdfast.lab.steps import mounts
from holdfast.lab.steps.dead_disks import replace_disk
from holdfast.lab.steps.storm_plan import Deed

def nobody(flags):
    raise LabError("not here")

if sys.argv[2] == "denied":
    mounts._unshare = nobody
said = []
one = dict(brokers=1, controllers=1, replication_factor=1, min_isr=1, partitions=1)
with Run(Parameters(**one), Path(sys.argv[1]), said.append) as run:
    machines = storm_machines.Machines(run)
    run.make_topic()
    run.alter_topic(message_timestamp_type="LogAppendTime")

    def ahead_min():
        "By how much the broker stamps an event, once it has heard that it is to."
        told = []
        producer = Producer({"bootstrap.servers": run.cluster.bootstrap_servers})
        told_of = lambda _, each: told.append(each.timestamp())
        producer.produce(run.topic, b"event", on_delivery=told_of)
        assert producer.flush(30) == 0
        (kind, stamp_ms), = told
        return round((stamp_ms / 1000 - time.time()) / 60) if kind == 2 else None

    run.wait("the topic to be stamped by its broker", lambda: ahead_min() is not None, 30)
    clocks = [ahead_min()]
    for minutes in (-30, 5, 0):
        machines.set_clock(0, minutes)
        clocks.append((machines.is_wrong(0), ahead_min()))
    full = {}
    if Deed.FULL not in machines.cannot:
        for node, writes in ((0, True), (0, False)):
            machines.fill(node)
            producer = Producer(
                {"bootstrap.servers": run.cluster.bootstrap_servers, "message.timeout.ms": 1000}
            )
            if writes:
                producer.produce(run.topic, bytes(100_000))
                producer.flush(5)
                run.wait("its end", lambda: run.cluster.state(node) == "dead", 30)
            full[f"{node} {writes}"] = machines.make_room(node)
            run.start_node(node)
            full[f"{node} {writes}, later"] = ahead_min()
        assert not any(not each.kept for each in run.checks)
        machines.fill(0)
        run.cluster.kill(0, "KILL")  # it ends for a reason of its own
        machines.make_room(0)
        full["failed"] = [each.name for each in run.checks if not each.kept]
        replace_disk(run, 0)
        full["new"] = machines.fill(0)
print(json.dumps({"clocks": clocks, "full": full, "said": [each[12:] for each in said]}))
"""


def ran(directory: Path, how: str) -> Any:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(directory / "run"), how],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


CLOCKS = [0, [True, -30], [True, 5], [False, 0]]


def test_disks_run_full_and_clocks_are_wrong(tmp_path: Path) -> None:
    told = ran(tmp_path, "allowed")
    assert told["clocks"] == CLOCKS
    if not told["full"]:
        pytest.skip(next(each for each in told["said"] if each.startswith("no disk runs full")))
    assert told["full"] == {
        "0 True": "and it ended by itself",
        "0 True, later": 0,
        "0 False": "which it had not met: killed",
        "0 False, later": 0,
        "failed": ["0, whose disk is full"],
        "new": False,
    }
    ends = "exit of node 0: by itself, its disk is full"
    assert sum(each.startswith(ends) for each in told["said"]) == 2
    assert sum(each.startswith("SIGKILL node 0") for each in told["said"]) == 1


def test_where_nobody_may_mount_no_disk_runs_full(tmp_path: Path) -> None:
    told = ran(tmp_path, "denied")
    assert told["clocks"] == CLOCKS
    assert told["full"] == {}
    assert "no disk runs full: not here" in told["said"]
