"""Goal: a storm's full disks and wrong clocks excuse nothing but what they lead to.

Method: a run of one node whose state, log and file system are what they are told to be. That real
nodes meet real full disks is `test_lab_storm_machines.py`'s.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from holdfast.cluster import own_code
from holdfast.cluster.layout import APACHE, EMBEDDED
from holdfast.cluster.processes import START_MARK
from holdfast.lab.parameters import LabError, Parameters
from holdfast.lab.run import Run
from holdfast.lab.scenarios.networks import storm_machines
from holdfast.lab.scenarios.networks.storm_machines import Machines
from holdfast.lab.steps.storm_plan import Deed

MET = f"No space left on device\n{START_MARK}\nERROR the disk is full: No space left on device\n"
EARLIER = f"No space left on device\n{START_MARK}\nit serves\n"
PAGE = 4096


class Hurt:
    """As much of a run as a node's disk touches."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, directory: Path, *, engine: str = EMBEDDED
    ) -> None:
        self.parameters = Parameters(engine=engine, duration_s=600.0)
        self.ended: set[int] = set()
        self.now_s = 100.0
        self.did: list[str] = []
        self.failed: list[tuple[str, str, bool]] = []
        self.state = "running"
        self.used = 3  # pages
        self.sizes: list[int] = []
        self.history = directory / "history"
        self.observer = SimpleNamespace(avoid=lambda node: self.did.append(f"avoid {node}"))
        self.log = directory / "node.log"
        self.log.write_text(EARLIER)
        record = SimpleNamespace(
            id=0, log_file=str(self.log), config_file=str(directory / "server.properties")
        )
        self.cluster: Any = SimpleNamespace(
            nodes=[record],
            node=lambda _node: record,
            state=lambda _node: self.state,
            kill=self._kill,
            start_node=lambda *_, **__: self.did.append("start"),
            environment={},
        )
        monkeypatch.setattr(storm_machines, "time", SimpleNamespace(monotonic=lambda: self.now_s))
        monkeypatch.setattr(storm_machines, "resize", self._resize)
        statvfs = SimpleNamespace(statvfs=self._statvfs, pathsep=":", environ=os.environ)
        monkeypatch.setattr(storm_machines, "os", statvfs)

    def _statvfs(self, _path: Path) -> Any:
        return SimpleNamespace(f_blocks=9, f_bfree=9 - self.used, f_frsize=PAGE)

    def _resize(self, _path: Path, size_bytes: int) -> None:
        self.sizes.append(size_bytes)

    def _kill(self, _node: int, signal: str, **_: object) -> None:
        self.did.append(f"kill {signal}")
        self.state = "dead" if signal == "KILL" else self.state

    def note(self, text: str) -> None:
        self.did.append(text)

    def record_fault(self, action: str, node: int, detail: str = "") -> None:
        self.did.append(f"{action} {node}: {detail}")

    def check(self, name: str, _wanted: str, seen: str, *, kept: bool, late: bool = False) -> None:
        assert not kept
        self.failed.append((name, seen, late))

    def machines(self) -> Machines:
        """Return its machines, as they are where disks can be full."""
        with pytest.MonkeyPatch.context() as patched:
            for name in ("mount_small", "unmount", "refuse_too_much"):
                patched.setattr(storm_machines, name, lambda *_: None, raising=False)
            patched.setattr(Machines, "_why_no_disks", lambda _machines: None)
            patched.setattr(Machines, "_make_settable", lambda _machines: None)
            disk = SimpleNamespace(file_system=Path("small"))
            patched.setattr(storm_machines, "SmallDisk", lambda *_, **__: disk)
            return Machines(cast("Run", self))


def made_room(run: Hurt, machines: Machines) -> tuple[str, float]:
    """Ask for room until it is there; return what became of the node, and how long that took."""
    begun_s = run.now_s
    while (met := machines.make_room(0)) is None:
        run.now_s += 1.0
    return str(getattr(met, "name", met)), run.now_s - begun_s


@pytest.mark.parametrize("engine", [EMBEDDED, APACHE])
def test_who_has_met_its_full_disk_and_never_ends_is_broken(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, engine: str
) -> None:
    """Seen to fail: it was killed as one that had not met it, and the storm was kept.

    One of Apache Kafka may say so of what it can do without: that is counted.
    """
    run = Hurt(monkeypatch, tmp_path, engine=engine)
    machines = run.machines()
    machines.fill(0)
    run.log.write_text(MET)
    assert made_room(run, machines) == ("STAYED", 45.0)
    assert "KILL 0: it had met the full disk and did not end" in run.did
    wanted = ("0, whose disk is full", "it had met the full disk and did not end", True)
    assert run.failed == ([wanted] if engine == EMBEDDED else [])
    assert run.sizes[-1] == storm_machines.ROOM_BYTES
    run.state = "running"
    machines.fill(0)
    assert made_room(run, machines) == ("STAYED", 45.0)  # and has as much time the next time


def test_who_has_met_it_is_given_the_time_to_end(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Goal: what it leads it hands over first, and it is no failure of its own to be killed then.

    Method: it ends half a minute after it was looked at; its disk is full until then.
    """
    run = Hurt(monkeypatch, tmp_path)
    machines = run.machines()
    machines.fill(0)
    before = len(run.sizes)
    run.log.write_text(MET)
    for _ in range(30):
        assert machines.make_room(0) is None
        run.now_s += 1.0
    assert len(run.sizes) == before
    run.state = "dead"
    assert made_room(run, machines) == ("ENDED", 0.0)
    assert run.failed == []
    assert not any(each.startswith("KILL") for each in run.did)


def test_who_has_not_met_it_is_killed_at_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Goal: what its log says of an earlier life is nothing of this one."""
    run = Hurt(monkeypatch, tmp_path)
    machines = run.machines()
    machines.fill(0)
    assert made_room(run, machines) == ("NOT", 0.0)
    assert "KILL 0: its disk was full, and it had not met that" in run.did
    assert run.failed == []


@pytest.mark.parametrize(("log", "failed"), [(MET, []), (EARLIER, ["0, whose disk is full"])])
def test_when_a_node_ended_on_its_full_disk_is_in_the_history_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, log: str, failed: list[str]
) -> None:
    """Goal: the report draws it as a node that runs up to then, not until it is started again."""
    run = Hurt(monkeypatch, tmp_path)
    machines = run.machines()
    machines.fill(0)
    assert not machines.look(0)
    run.state = "dead"
    run.log.write_text(log)
    assert machines.look(0)
    assert machines.look(0)
    assert made_room(run, machines)[0] == "ENDED"
    assert run.did.count("exit 0: by itself, its disk is full") == 1
    assert [name for name, *_ in run.failed] == failed
    run.state = "running"
    machines.fill(0)
    run.state = "dead"
    made_room(run, machines)
    assert run.did.count("exit 0: by itself, its disk is full") == 2


def test_who_may_end_on_a_full_disk_has_not_ended_by_itself(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Goal: its end is the run's doing, and the observer asks others; both before it can end."""
    run = Hurt(monkeypatch, tmp_path)
    run.machines().fill(0)
    assert run.ended == {0}
    assert run.did[-2:] == ["avoid 0", "the disk of 0 is full"]
    assert run.sizes[-1] == 3 * PAGE


def test_a_disk_that_holds_nothing_is_not_made_as_small_as_that(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Goal: a size of 0 is no bound at all, so that the disk would not be full."""
    run = Hurt(monkeypatch, tmp_path)
    machines = run.machines()
    run.used, before = 0, len(run.sizes)
    assert machines.fill(0) is False
    assert len(run.sizes) == before
    assert run.ended == set()


SHORT = 30 * 60_000 + 600_000  # ms: half an hour, and the storm
APART = 2 * 30 * 60_000 + 600_000  # as far as two wrong clocks are apart, and the storm
LATE = {"log.message.timestamp.type": "LogAppendTime"}


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({}, None),
        ({"log.retention.ms": "-1"}, None),
        ({"log.retention.ms": str(SHORT)}, None),
        ({"log.retention.ms": str(SHORT - 1)}, "a retention of 2,399,999 ms would delete"),
        ({"log.retention.minutes": "10"}, "a retention of 600,000 ms would delete"),
        # One stamps what another one deletes: each may be wrong.
        ({**LATE, "log.retention.ms": str(SHORT)}, "a retention of"),
        ({**LATE, "log.retention.ms": str(2 * SHORT)}, None),
        ({"producer.id.expiration.ms": "3600000"}, "would forget producers"),
        # One may be silent for as long as the storm, and is forgotten once it has been for so long.
        ({"producer.id.expiration.ms": str(APART)}, "of 4,200,000 would forget producers"),
        ({"producer.id.expiration.ms": str(APART + 1)}, None),
        ({"log.message.timestamp.after.max.ms": "1799999"}, "after.max.ms is less than"),
        ({"log.message.timestamp.after.max.ms": "1800000"}, None),
        ({"log.message.timestamp.before.max.ms": "1799999"}, "before.max.ms is less than"),
        ({"log.message.timestamp.before.max.ms": "1800000"}, None),
    ],
)
def test_no_clock_is_wrong_where_a_broker_must_delete_or_refuse_by_it(
    config: Mapping[str, str], words: str | None
) -> None:
    """Goal: what is gone before its time, or refused, because of a clock is no broken promise.

    Seen to fail: producers that were forgotten after exactly an hour were let pass.
    """
    found = storm_machines.why_no_clocks(Parameters(duration_s=600.0, config=config))
    assert found is None if words is None else words in str(found)


@pytest.mark.parametrize("config", [{}, {"log.retention.ms": "1000"}])
def test_nodes_are_started_anew_only_where_that_gives_them_something(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, config: Mapping[str, str]
) -> None:
    """Seen to fail: where nobody may mount, and no clock is set, each node was started anew."""
    run = Hurt(monkeypatch, tmp_path)
    run.parameters = Parameters(config=config)
    run.history.mkdir()
    monkeypatch.setattr(Machines, "_why_no_disks", lambda _machines: "not here")
    machines = Machines(cast("Run", run))
    assert ("start" in run.did) == (not config)
    assert set(machines.cannot) == ({Deed.FULL, Deed.CLOCK} if config else {Deed.FULL})
    assert "no disk runs full: not here" in run.did


@pytest.mark.parametrize("own", ["of-the-lab", None])
def test_what_sets_a_clock_hides_no_code_from_nodes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, own: str | None
) -> None:
    """Goal: nodes have the code that the run gives them, and what sets the clock before it."""
    run = Hurt(monkeypatch, tmp_path)
    run.history.mkdir()
    run.cluster.environment = {"A": "b"} if own is None else {"A": "b", "PYTHONPATH": own}
    monkeypatch.setattr(Machines, "_why_no_disks", lambda _machines: "not here")
    Machines(cast("Run", run))
    path = ":".join(filter(None, [str(tmp_path / "hook"), own]))
    assert run.cluster.environment == {"A": "b", "PYTHONPATH": path}
    found = own_code.environment(run.cluster.environment)["PYTHONPATH"]
    assert found.startswith(f"{path}:{own_code.SOURCE}"), "nodes have the code of the lab behind it"


@pytest.mark.parametrize(
    ("changes", "free_gib", "words"),
    [
        ({}, 1.0, None),  # 280 events a second for ten minutes, three times
        ({}, 0.4, r"280 events a second for 600 s \(180 .* more than the 0.4 GiB .* machine has"),
        ({"replication_factor": 1, "min_isr": 1}, 0.4, None),
        ({"duration_s": 3600.0}, 64.0, None),
        ({"rate": 20_000.0}, 64.0, "more than the 8 GiB of memory that a node's disk has"),
        ({"duration_s": 86_400.0}, 64.0, "more than the 8 GiB of memory that a node's disk has"),
        ({"partitions": 1000}, 640.0, "more than the 8 GiB of memory that a node's disk has"),
    ],
)
def test_what_memory_can_t_hold_is_refused(
    changes: Mapping[str, Any], free_gib: float, words: str | None
) -> None:
    """Goal: neither is a disk full that nobody has filled, nor the machine's memory."""
    parameters = Parameters(**{"rate": 100.0, "duration_s": 600.0, **changes})
    with nullcontext() if words is None else pytest.raises(LabError, match=words):
        storm_machines.refuse_too_much(parameters, int(free_gib * (1 << 30)))


@pytest.mark.skipif(not storm_machines.MEMORY.exists(), reason="Linux tells it there")
def test_free_memory_is_what_the_system_says() -> None:
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert 0 < storm_machines.memory_free_bytes() <= pages


@pytest.mark.parametrize(
    ("line", "folder", "names"),
    [
        ("0::/a/b", "a", ("memory.max", "memory.current", "inactive_file")),
        ("0::/", ".", ("memory.max", "memory.current", "inactive_file")),
        (
            *("4:cpu,memory:/a/b", "memory/a/b"),
            ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
        ),
    ],
)
def test_a_container_may_have_less_memory_than_its_machine(
    tmp_path: Path, line: str, folder: str, names: tuple[str, str, str]
) -> None:
    """Goal: no node of a storm is ended for memory that only the machine around it has."""
    limited = tmp_path / folder
    limited.mkdir(parents=True, exist_ok=True)
    (limited / names[0]).write_text("3000\n")
    (limited / names[1]).write_text("2500\n")
    (limited / "memory.stat").write_text(f"anon 1700\n{names[2]} 300\n")
    within = tmp_path / "a" / "b"
    within.mkdir(parents=True, exist_ok=True)
    (within / "memory.max").write_text("max\n")
    membership = tmp_path / "cgroup"
    membership.write_text(f"9:name=systemd:/\n8:pids:/x\n{line}\n")
    assert list(storm_machines.left_in_groups(membership, tmp_path)) == [800]


def test_a_storm_that_memory_can_t_hold_has_no_disks_made(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    run = Hurt(monkeypatch, tmp_path)
    monkeypatch.setattr(Machines, "_why_no_disks", lambda _machines: None)
    monkeypatch.setattr(Machines, "_make_settable", lambda _machines: None)
    monkeypatch.setattr(storm_machines, "memory_free_bytes", lambda: 1 << 20)
    with pytest.raises(LabError, match="this machine has free"):
        Machines(cast("Run", run))
