"""Where steps are played: what they reach for beyond the run is replaced, and told of."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import pytest
from tests.lab.played import Played
from tests.lab.played_clients import BALANCER, HONEST, Lie
from tests.lab.played_cluster import FAR
from tests.lab.played_groups import PlayedGroup, PlayedSink, rows
from tests.lab.played_network import PlayedChanger, PlayedMachines, PlayedQuorum, PlayedSides
from tests.lab.played_pipelines import NoTable, PlayedPipeline, PlayedTopic, read_log, server

from holdfast.clients import replica_files, topic_descriptions
from holdfast.clients.blocking_driver import Driver
from holdfast.clients.workload import member_sink
from holdfast.cluster import probe, quorum
from holdfast.cluster.layout import EMBEDDED, ClusterError
from holdfast.cluster.processes import log_tail
from holdfast.judge.history import Acknowledged
from holdfast.lab import evidence, group
from holdfast.lab.parameters import LabError, Parameters
from holdfast.lab.pipelines import pipeline, plain_log, postgresql_server, tables
from holdfast.lab.scenario import Part, load_scenario
from holdfast.lab.scenarios import controller_down, disk_full, nearest_replica, read_anomaly
from holdfast.lab.scenarios.networks import replay, split_brain, storm_machines
from holdfast.lab.steps import (
    balancer,
    closing,
    controllers,
    dead_disks,
    expiry,
    group_results,
    measures,
    moving,
    sides,
    small_disks,
)
from holdfast.lab.steps.replay_plan import Schedule, replayable, schedule_of
from holdfast.lab.steps.sides import Event
from holdfast.testing.simulation.drawing import draw_plan
from holdfast.wire.administration import AdminError
from holdfast.wire.errors import ErrorCode

ADVERTISED = "advertised.listeners=OUTSIDE://host:1,INSIDE://host:2\n"
ROOM = 5  # events that fit into what a full disk has left
WHOLE = controllers.wait_quorum_whole
SEED = 7  # of what is drawn
SCHEDULE_SEED = 10  # of a schedule with a kill, a clean stop, a cut and a pause
LAST_WORDS = controller_down.PATIENCE[EMBEDDED].last_words
PLAYED = ("holdfast.lab.scenarios", "holdfast.lab.steps")


class PlayedMover:
    """What stands in for `Mover`: what it moves is there at once, or when it is waited for."""

    def __init__(self, played: Played) -> None:
        self._played = played
        self._target: dict[int, tuple[int, ...]] = {}
        self._before: dict[int, tuple[int, ...]] = {}

    def begin(self, target: Any, *, rate: int | None = None) -> None:
        self._played.do(f"move{'' if rate is None else f' at {rate}'}")
        self._target = {p: tuple(nodes) for p, nodes in target.items()}
        self._before = dict(self._played.replicas)

    def set_rate(self, rate: int) -> None:
        self._played.do(f"move at {rate}")

    def moving(self) -> list[int]:
        return [] if self._played.lie.is_hasty else sorted(self._target)

    def cancel(self) -> list[int]:
        self._played.do("call back")
        called, self._target = sorted(self._target), {}
        return called

    def wait(self) -> None:
        self._played.do("wait for moves")
        self._played.move(self._target)
        self._target = {}


class PlayedDriver:
    """A client for what is administrative: nobody answers it in time."""

    def __init__(self, played: Played) -> None:
        self._played = played

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def peer(self, node: int) -> int:
        return node

    def perform(self, _asked: object) -> None:
        if not self._played.lie.is_unled:
            raise AdminError("it", ErrorCode.REQUEST_TIMED_OUT, None, subject="that")


class PlayedDisk:
    """A small disk of a node, which has the even partitions on it."""

    def __init__(self, played: Played, node: int, *, only: bool) -> None:
        self._played, self._node, self._only = played, node, only
        self._played.do(f"a small disk for {node}{', its only one' if only else ''}")

    def holds(self, partition: int) -> bool:
        if self._played.lie.is_restless:
            return True
        return partition % 2 == 0 and not self._played.lie.is_crowded

    def replica(self, partition: int) -> Path:
        return Path(f"{self._node}-{partition}")

    def fill(self, spare_bytes: int = 0) -> None:
        self._played.do(f"fill the disk of {self._node}, but for {spare_bytes}")
        self._played.hindrances[f"a full disk of {self._node}"] = frozenset({self._node})
        if not spare_bytes and self._node in self._played.cluster.broker_ids:
            self._played.room = ROOM
        elif self._only:
            self._played.signal(self._node, "KILL")

    def make_room(self) -> None:
        self._played.do(f"make room for {self._node}")
        del self._played.hindrances[f"a full disk of {self._node}"]
        self._played.room = None


class PlayedSettings:
    """What stands in for `GroupSettings`: each change is made at once, if anybody can."""

    def __init__(self, played: Played) -> None:
        self._played = played

    def change(self) -> bool:
        return self._played.can_change

    def expect_kept(self) -> None:
        kept = not self._played.lie.is_forgetful
        self._played.check("changes of metadata", "all kept", "", kept=kept)


class PlayedBalancer:
    """A balancer through which nobody gets to each partition's leader."""

    address = BALANCER

    def __init__(self, played: Played, targets: Sequence[tuple[str, int]]) -> None:
        self.led = Counter() if played.lie.is_leaky else Counter(targets)

    def close(self) -> None: ...


def samples(played: Played) -> list[tuple[float, dict[int, int]]]:
    """Return what a consumer has received from each broker: of the near one alone, it says."""
    far = nearest_replica.NEAR if played.is_near and not played.lie.is_crowded else 0
    rate = 0 if played.lie.is_deaf else 1
    now = (played.now_ms, {far: int(played.now_ms) * rate, 2: 0})
    return [(0.0, {far: 0}), now]


@cache
def schedule() -> Schedule:
    """Return a schedule that the simulator has drawn."""
    row = json.loads(draw_plan(SCHEDULE_SEED).to_json())
    return schedule_of(replayable(row).plan)


def answer(played: Played) -> Any:
    """Return what a broker tells clients of the cluster's addresses."""
    brokers = played.cluster.broker_ids
    port = 1 if played.lie.is_forgetful else 9092
    return SimpleNamespace(brokers={node: (f"host-{node}", port) for node in brokers})


def named(played: Played, directory: Path) -> set[Event]:
    """Return what stands in a log: in the copy of one that is cut off all there is."""
    found = [each for sender in played.senders for each in sender.log]
    is_all = directory.name == "cut-leader" or played.lie.is_leaky
    return {
        Event(each.partition, each.offset or 0, each.id)
        for each in found
        if isinstance(each, Acknowledged) and (is_all or each.id not in played.lonely)
    }


def humble(played: Played) -> Any:
    """Return what a controller that was active says of itself."""
    told = (100, 0) if played.lie.is_unled else (-1, 99)
    return SimpleNamespace(leader=told[0], epoch=told[1])


def replaced(played: Played) -> dict[Any, Any]:
    """Return what stands in for what."""

    def word(value: object) -> str:
        if callable(value):
            return ""
        return value.name if isinstance(value, Path) else str(value)

    def takes(what: str) -> Callable[..., None]:
        return lambda _run, *told: played.do(f"{what} {' '.join(map(word, told))}")

    def replace_disk(_run: object, node: int) -> None:
        played.do(f"new disk {node}")
        played.doubted.add(node)

    def expect_begins(_run: object, when: str, wanted: dict[int, int]) -> None:
        played.begins |= wanted
        played.check(f"begins, {when}", str(wanted), "", kept=True)

    def wait_quorum_whole(run: Any) -> Any:
        played.do("wait for a whole quorum")
        return WHOLE(run)

    def expect_end(_run: object, node: int, meanwhile: Callable[[], object] = bool) -> None:
        """Let it end, but for a controller that has nothing to write."""
        is_met = node in played.cluster.broker_ids or bool(meanwhile())
        if is_met and not played.lie.is_hoarding:
            played.signal(node, "KILL")
        played.check(f"{node}, on a full disk", "ends", "", kept=is_met)

    return {
        time: played.time,
        closing.end_of: played.end_of,
        closing.replica_directory: lambda _run, node, partition: Path(f"{node}-{partition}"),
        dead_disks.replace_disk: replace_disk,
        dead_disks.lose_replicas: takes("copies lost"),
        dead_disks.cut_back: takes("cut back"),
        shutil: SimpleNamespace(copytree=takes("copied"), which=lambda _name: None),
        Driver: lambda *_, **__: PlayedDriver(played),
        log_tail: lambda *_: "" if played.lie.is_forgetful else f"so it goes {LAST_WORDS}",
        probe.ask: lambda *_, **__: answer(played),
        read_anomaly.fetch: lambda _run, _peer, offset: SimpleNamespace(
            records=b"", high_watermark=offset + played.lie.is_leaky
        ),
        small_disks.SmallDisk: PlayedDisk,
        storm_machines.Machines: lambda _run: PlayedMachines(played),
        balancer.Balancer: lambda targets: PlayedBalancer(played, targets),
        nearest_replica.samples: lambda _path: samples(played),
        replay.read_schedule: lambda _path: schedule(),
        replay.not_as_drawn: lambda _folder: [],
        replica_files.stored_replica: lambda _directory: SimpleNamespace(
            begin=0, end=0 if played.lie.is_hoarding else FAR
        ),
        controllers.wait_quorum_whole: wait_quorum_whole,
        disk_full.expect_told: takes("told"),
        disk_full.expect_end: expect_end,
        disk_full.GroupSettings: lambda _run: PlayedSettings(played),
        evidence.events_of: played.events_of,
        evidence.history_files: lambda _history: played.histories,
        split_brain.named: lambda directory: named(played, directory),
        expiry.begins: lambda _run, p: dict.fromkeys(
            played.cluster.broker_ids, played.begins.get(p, 1)
        ),
        expiry.expect_begins: expect_begins,
        measures.replica_sizes: lambda _run: {
            (node, p): played.sizes.get(p, 1000)
            for p, nodes in played.replicas.items()
            for node in nodes
        },
        pipeline.Pipeline: PlayedPipeline,
        plain_log.SideTopic: PlayedTopic,
        plain_log.read_log: lambda _servers, _topic, ends: read_log(played, ends),
        postgresql_server: SimpleNamespace(running=lambda _environment: server(played)),
        tables.SqlTable: NoTable,
        tables.FilesTable: lambda _folder: SimpleNamespace(rows=lambda: [1]),
        os: SimpleNamespace(kill=lambda process, _signal: played.do(f"kill {process}")),
        group.Group: PlayedGroup,
        group_results.rows_of: lambda *_: rows(played),
        member_sink.Sink: lambda *_: PlayedSink(played),
        controllers.MetadataChanger: lambda _servers: PlayedChanger(played),
        moving.Mover: PlayedMover,
        sides.Sides: PlayedSides,
        topic_descriptions.described: played.described,
        quorum.describe: lambda *_, **__: humble(played),
        quorum.ask_one: lambda *_, **__: humble(played),
    }


@cache
def spots(names: tuple[str, ...], wanted: frozenset[int]) -> list[tuple[Any, str, int]]:
    """Return where in these modules what is wanted stands, by its identity."""
    return [
        (sys.modules[name], key, id(value))
        for name in names
        for key, value in vars(sys.modules[name]).items()
        if id(value) in wanted
    ]


def stage(monkeypatch: pytest.MonkeyPatch, played: Played) -> None:
    """Let what steps reach for be what is played."""
    PlayedQuorum(played)
    found = {id(original): fake for original, fake in replaced(played).items()}
    names = tuple(name for name in sys.modules if name.startswith(PLAYED))
    for module, key, identity in spots(names, frozenset(found)):
        monkeypatch.setattr(module, key, found[identity])


def play(
    monkeypatch: pytest.MonkeyPatch, directory: Path, name: str, part_name: str, lie: Lie = HONEST
) -> Played:
    """Play one part of a scenario, and return what it came to."""
    scenario = load_scenario(name)
    part = next(each for each in scenario.parts if each.name == part_name)
    return play_with(monkeypatch, directory, name, part, part.parameters(scenario.defaults), lie)


def play_with(
    monkeypatch: pytest.MonkeyPatch,
    directory: Path,
    name: str,
    part: Part,
    parameters: Parameters,
    lie: Lie = HONEST,
) -> Played:
    """Play a part with these settings."""
    if name == "partial-bootstrap":
        for node in range(parameters.brokers):
            (directory / f"{node}.properties").write_text(ADVERTISED)
    played = Played(replace(parameters, seed=SEED), directory, lie)
    with monkeypatch.context() as patched:
        stage(patched, played)
        try:
            part.steps(played.as_run)
        except (LabError, ClusterError) as error:
            played.broke_off = str(error)
    return played
