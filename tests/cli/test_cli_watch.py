"""Goal: `holdfast watch` shows what is, in 80 columns, and what came before it.

Rates, elections and time without a leader are reckoned from earlier looks.

Method: samples by hand; lines compared whole where they are what people read.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import pty
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from rich.cells import cell_len

from holdfast.cli.exit_status import CommandError
from holdfast.cli.watch.group_watch import GroupLag
from holdfast.cli.watch.recording import Recording, as_json, changes
from holdfast.cli.watch.samples import (
    Partition,
    Sample,
    in_words,
    lag_of,
    latest_first,
    latest_of,
)
from holdfast.cli.watch.screen import PARTITIONS_MAX, UNSEEN, WIDTH, Memory, clock, fitted, frame
from holdfast.cli.watch.watch_command import BACK, CLEAR_BELOW
from holdfast.cluster import LocalCluster
from holdfast.cluster.layout import NodeRecord
from holdfast.cluster.probe import PartitionState, Snapshot
from holdfast.cluster.quorum import QuorumReplica, QuorumState
from holdfast.lab.soak.killed_campaigns import hearing

if TYPE_CHECKING:
    from tests.cli.conftest import Run

WELL = Partition(leader=1, epoch=0, isr=(1, 0, 2), replicas=(1, 0, 2), end=1000)
FIRST = Sample(
    at_s=1000.0,
    monotonic_s=50.0,
    nodes={0: "running", 1: "running", 100: "running"},
    active=(100, 3),
    answered=(0, 1),
    partitions={("foo", 0): WELL},
)


def after(seconds: float, partition: Partition, **changes: object) -> Sample:
    values = {
        "at_s": FIRST.at_s + seconds,
        "monotonic_s": FIRST.monotonic_s + seconds,
        "partitions": {("foo", 0): partition},
        **changes,
    }
    return replace(FIRST, **values)  # type: ignore[arg-type]


def shown(*samples: Sample) -> list[str]:
    memory = Memory()
    for sample in samples:
        memory.take(sample)
    return frame(samples[-1], memory)


def test_all_is_well() -> None:
    assert shown(FIRST, after(2, replace(WELL, end=1400))) == [
        f"{clock(1002)}  controller 100 is active, epoch 3",
        "3 of 3 nodes run",
        "",
        "PARTITION                LEADER  EPOCH  IN SYNC            END   PER S NO LEADER",
        "foo-0                         1      0  1,0,2            1,400     200         -",
    ]


def test_a_leader_is_gone_and_replaced() -> None:
    gone = replace(WELL, leader=-1, epoch=1, isr=(0, 2), end=None)
    back = replace(WELL, leader=0, epoch=2, isr=(0, 2), end=1200)
    lines = shown(
        FIRST,
        after(1, gone, nodes={0: "running", 1: "dead", 100: "running"}),
        after(3, back, nodes={0: "running", 1: "dead", 100: "running"}),
    )
    assert lines[1] == "2 of 3 nodes run; 1 dead"
    assert lines[4] == (
        "foo-0                         0      2  0,2 (-1)         1,200      67     2.0 s"
    )
    assert lines[-3:] == [
        "ELECTIONS, the last first",
        f"{clock(1003)}  foo-0: none → 0, epoch 2",
        f"{clock(1001)}  foo-0: 1 → none, epoch 1",
    ]


@pytest.mark.parametrize("state", ["dead", "stopped"])
def test_who_is_named_and_can_not_lead_is_no_leader(state: str) -> None:
    """Metadata name a dead leader until its session ends; the outage begins when it dies.

    Method: 9 s in which metadata name it, and half a second until the next one leads.
    """
    down = {"nodes": {0: "running", 1: state, 100: "running"}}
    named = replace(WELL, end=None)
    nobody = replace(WELL, leader=-1, epoch=1, isr=(0, 2), end=None)
    led = replace(WELL, leader=0, epoch=2, isr=(0, 2), end=1100)
    died = [FIRST, after(1, named, **down), after(10, named, **down)]
    assert shown(*died)[4] == (
        "foo-0                    1 down      0  1,0,2                -       -     9.0 s"
    )
    over = [after(10, nobody, **down), after(10.5, led, **down), after(99, led, **down)]
    assert "9.5 s" in shown(*died, *over)[4]
    assert shown(*died, *over)[4].split()[:2] == ["foo-0", "0"]


def test_a_named_leader_that_is_down_comes_first() -> None:
    many = {("foo", n): WELL for n in range(40)} | {("z", 0): replace(WELL, leader=0)}
    down = {0: "dead", 1: "running", 100: "running"}
    assert shown(replace(FIRST, partitions=many, nodes=down))[4].startswith("z-0 ")


def test_what_no_broker_tells_of_has_no_leader() -> None:
    """Goal: 30 s in which no broker answers are an outage. A topic that was deleted has none."""
    nothing: dict[str, Any] = {"partitions": {}, "answered": ()}
    dead = {"nodes": {0: "dead", 1: "dead", 100: "running"}, **nothing}
    lines = shown(FIRST, after(5, WELL), after(6, WELL, **dead), after(36, WELL, **dead))
    assert lines[0].endswith("controller 100 is active, epoch 3; no broker answers")
    assert lines[4:] == [
        "foo-0                      none      0  -                    -       -    30.0 s",
    ]
    back = after(37, WELL)
    lines = shown(FIRST, after(5, WELL), after(6, WELL, **dead), back, after(40, WELL))
    assert "31.0 s" in lines[4]
    assert lines[4:] == lines[4:5], "the same leader in the same epoch is no election"
    deleted = after(6, WELL, partitions={})
    assert shown(FIRST, deleted)[4] == "none: there are no topics"
    # Without a controller nothing can be deleted: who answers does not know of it yet.
    starting: dict[str, Any] = {"partitions": {}, "active": None}
    assert "4.0 s" in shown(FIRST, after(6, WELL, **starting), after(10, WELL, **starting))[4]


def test_a_clock_that_is_set_changes_no_duration() -> None:
    gone = replace(WELL, leader=-1, epoch=1, end=None)
    back = {"at_s": FIRST.at_s - 3600}
    lines = shown(after(0, gone), after(1, gone, **back), after(3, gone, **back))
    assert "3.0 s" in lines[4]
    lines = shown(after(0, WELL), after(2, replace(WELL, end=1400), **back))
    assert lines[4].split()[-2] == "200"


def test_where_nobody_says_how_far_a_log_is_there_is_no_rate() -> None:
    memory = Memory()
    for sample in (FIRST, after(1, replace(WELL, end=1100))):
        memory.take(sample)
    assert memory.rate(("foo", 0)) == 100.0
    memory.take(after(1.5, replace(WELL, end=None)))
    assert memory.rate(("foo", 0)) is None
    memory.take(after(2, replace(WELL, end=1200)))
    assert memory.rate(("foo", 0)) == 100.0


def test_a_controller_elected_while_none_was_seen_is_an_election() -> None:
    lines = shown(FIRST, after(1, WELL, active=None), after(2, WELL, active=(101, 4)))
    assert lines[-1] == f"{clock(1002)}  controller 100 → 101, epoch 4"


def test_another_controller_broken_links_and_groups() -> None:
    lines = shown(
        FIRST,
        after(1, WELL, active=(101, 4), links=["1 → 0"], lags={"readers": known(12_000)}),
    )
    assert f"{clock(1001)}  controller 100 → 101, epoch 4" in lines
    assert lines[lines.index("BROKEN LINKS") + 1] == "1 → 0"
    assert f"{'readers':<52}{'12,000':>12}" in lines
    assert shown(replace(FIRST, active=None))[0].endswith("no controller is active")


def known(lag: int | None, unknown: int = 0, age_s: float = 1.0) -> GroupLag:
    told_s = FIRST.monotonic_s - age_s
    return GroupLag(lag=lag, unknown_partitions=unknown, told_monotonic_s=told_s)


def test_what_is_not_known_of_a_lag_is_shown() -> None:
    told = {
        "a-group-with-a-name-that-is-longer-than-there-is-room-for": known(5000, 1, 1234.5),
        "before": known(12_000, age_s=7.2),
        "nothing": known(None, 2),
        "part": known(5000, 1),
        "whole": known(5000),
    }
    lines = shown(replace(FIRST, lags=told))
    assert lines[-5:] == [
        "a-group-with-a-name-that-is-longer-than-there-is-r        ≥5,000     1,234 s old",
        "before                                                    12,000         7 s old",
        "nothing                                                        -",
        "part                                                      ≥5,000",
        "whole                                                      5,000",
    ]
    assert max(map(len, lines)) <= WIDTH
    recorded = as_json(replace(FIRST, lags={"part": known(5000, 1)}))["lags"]
    assert recorded == {"part": {"lag": 5000, "unknown_partitions": 1, "told_monotonic_s": 49.0}}


def test_what_is_wrong_comes_first_and_no_line_is_too_long() -> None:
    many = {("a-topic-with-a-name-that-is-far-too-long", n): WELL for n in range(40)}
    bad = replace(WELL, isr=(1,), replicas=tuple(range(1, 30)))
    lines = shown(replace(FIRST, partitions={**many, ("z", 0): bad}))
    assert lines[4].startswith("z-0 ")
    assert lines[4 + PARTITIONS_MAX] == f"and {41 - PARTITIONS_MAX} more"
    assert max(map(len, lines)) <= WIDTH
    assert lines[5].startswith("a-topic-with-a-name…-0 ")  # each has its number, whatever its topic
    assert lines[16].startswith("a-topic-with-a-nam…-11 ")


def test_names_can_neither_steer_a_terminal_nor_break_the_table() -> None:
    """Goal: whoever names a group or a topic writes text, and no orders, in its own columns.

    Method: escapes, a line's end, an overriding direction, half a surrogate; wide characters.

    Seen to fail: the terminal was cleared, and a name of 50 wide characters made 114 columns.
    """
    hostile = ["\x1b[2J\x1b[31mred", "two\nlines", "\u202eright", "\ud800half", "漢" * 50]
    wide = [("漢" * 30, 1), ("\x1b[2J", 0)]
    lines = shown(
        replace(FIRST, partitions=dict.fromkeys(wide, WELL), lags=dict.fromkeys(hostile, known(7)))
    )
    assert all(line.isprintable() for line in lines)
    assert max(map(cell_len, lines)) <= WIDTH
    groups = lines[-len(hostile) :]
    assert {cell_len(line) for line in groups} == {64}, "each lag stands where it has its title"
    assert groups[0].startswith(r"\x1b[2J\x1b[31mred  ")
    assert groups[-1].startswith("漢" * 25 + "  ")
    assert lines[4].startswith(r"\x1b[2J-0 ")
    assert lines[5].startswith(f"{'漢' * 9}…-1  ")


def test_what_can_not_be_seen_is_not_told() -> None:
    """Goal: a door that ended is no outage of a leader. Method: a minute of blindness amid looks.

    What is wrong is named first; what came before is not shown as if it were so.
    """
    text = "network: the door by which nodes are watched, process 7, has ended: " + 20 * "so. "
    blind: dict[str, Any] = {"partitions": {}, "active": None, "answered": ()}
    blind |= {"is_blind": True, "troubles": [text]}
    lines = shown(FIRST, after(1, WELL), after(2, WELL, **blind), after(62, WELL, **blind))
    assert lines[0] == f"{clock(1062)}  nodes can't be seen from here"
    assert lines[1].startswith("network: the door by which nodes are watched, process 7, has")
    assert " ".join(lines[1:3]) == text.strip()
    assert lines[3:] == ["3 of 3 nodes run", "", UNSEEN]
    seen = shown(FIRST, after(1, WELL), after(2, WELL, **blind), after(62, WELL))
    assert seen[4].split()[-1] == "-", "nobody knows of a moment without a leader"
    gone = replace(WELL, leader=-1, epoch=1, isr=(), end=None)
    seen = shown(FIRST, after(1, gone), after(3, gone, **blind), after(63, gone), after(64, gone))
    assert seen[4].endswith(" 3.0 s"), "as long as it was seen"


def test_a_look_is_recorded_by_what_has_changed(tmp_path: Path) -> None:
    """Goal: a recording of many partitions is read as it was, and does not fill a disk.

    Method: put together from its lines it is each look; one partition of 656 grows.
    """
    many = {("foo", number): WELL for number in range(656)}
    grown = many | {("foo", 7): replace(WELL, end=1001)}
    fewer = {place: found for place, found in grown.items() if place[1] != 9}
    looks = [replace(FIRST, partitions=each) for each in (many, grown, many, fewer)]
    looks[1:] = [replace(each, lags={"readers": known(5)}) for each in looks[1:]]
    looks[2] = replace(looks[2], monotonic_s=FIRST.monotonic_s + 1)
    with Recording(tmp_path / "looks") as recording:
        for sample in looks:
            recording.take(sample)
    lines = (tmp_path / "looks").read_bytes().splitlines()
    assert json.loads(lines[2])["lags"] == {}, "what is told once is recorded once"
    assert json.loads(lines[1])["partitions"] == {"foo-7": {"end": 1001}}
    assert json.loads(lines[3])["partitions"] == {"foo-7": {"end": 1001}, "foo-9": None}
    assert max(map(len, lines[1:])) < len(lines[0]) / 100
    assert [json.loads(line)["whole"] for line in lines] == [True, False, False, False]
    for line, sample in zip(read(lines), looks, strict=True):
        assert line == json.loads(json.dumps(as_json(sample)))


def read(lines: list[bytes]) -> Iterator[dict[str, Any]]:
    """Yield the looks of a recording, each whole."""
    known: dict[str, dict[str, Any]] = {"partitions": {}, "lags": {}}
    for line in lines:
        values = json.loads(line)
        del values["whole"]
        for kind, names in known.items():
            for name, changed in values[kind].items():
                if changed is None:
                    del names[name]
                else:
                    names[name] = {**names.get(name, {}), **changed}
            values[kind] = dict(names)
        yield values


def test_what_is_new_of_a_name_is_recorded_though_it_is_none() -> None:
    """A partition that comes without an end is told with all that is known of it."""
    known = {"leader": 1, "end": None}
    assert changes({}, {"t-0": known}) == {"t-0": known}
    assert changes({"t-0": known}, {"t-0": known}) == {}
    assert changes({"t-0": {"end": 5}}, {"t-0": {"end": None}}) == {"t-0": {"end": None}}


class Full:
    """A file that has room for some bytes, as a disk may."""

    def __init__(self, path: Path, room: int) -> None:
        self._file, self._room = path.open("ab", buffering=0), room

    def write(self, data: bytes) -> int:
        if not self._room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written = self._file.write(data[: self._room])
        self._room -= written
        return written

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def test_of_a_look_that_has_no_room_nothing_stays(tmp_path: Path) -> None:
    """Goal: half a line does not spoil a recording. Method: room for one look and a half."""
    path = tmp_path / "looks"
    with Recording(path) as recording:
        recording.take(FIRST)
    whole = path.read_bytes()
    full = Full(path, len(whole) // 2)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Path, "open", lambda *_, **__: full)
        recording = Recording(path)
    with recording, pytest.raises(CommandError, match="No space left"):
        recording.take(FIRST)
    assert path.read_bytes() == whole


def test_a_full_disk_is_told_with_the_file_s_name(tmp_path: Path) -> None:
    """Seen to fail: it said "[Errno 28]", and not of what."""
    with (
        Recording(Path("/dev/full")) as full,
        pytest.raises(CommandError, match=r"--record /dev/full: No space left on device\."),
    ):
        full.take(FIRST)
    with pytest.raises(CommandError, match=r"--record .*: Is a directory\."):
        Recording(tmp_path)


@pytest.mark.parametrize("every", ["1e300", "nan", "0", "3601"])
def test_how_often_is_bounded(run: Run, tmp_path: Path, every: str) -> None:
    """Seen to fail: 1e300 ended in a traceback, and nan looked without a pause."""
    outcome = run("watch", "--data-dir", str(tmp_path), "--every", every)
    assert outcome.status == 2
    assert f"--every {every}" in outcome.errors.replace("1e+300", "1e300")


def told_by(terminal: int) -> bytes:
    """Return what came next on a terminal."""
    ready, _, _ = select.select([terminal], [], [], 60)
    assert ready, "it says nothing, and does not end"
    return os.read(terminal, 1 << 16)


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_terminal_is_put_right_when_a_signal_ends_it(tmp_path: Path, number: int) -> None:
    """Method: on a terminal of its own, over a cluster that does not run.

    Seen to fail: it stayed on the other screen, without a cursor.
    """
    directory = tmp_path / "cluster"
    LocalCluster.create(directory, brokers=1, combined=True, port=0)
    master, terminal = pty.openpty()
    words = [sys.executable, "-m", "holdfast.cli", "watch", "--data-dir", str(directory)]
    begin = partial(subprocess.Popen, words, stdin=terminal, stdout=terminal, stderr=terminal)
    # Under nohup, or as a shell's background job, it would pass over some of them.
    with hearing(signal.Signals(number)), begin() as watching:
        os.close(terminal)
        said = b""
        while CLEAR_BELOW.encode() not in said:
            said += told_by(master)
        watching.send_signal(number)
        with contextlib.suppress(OSError):  # its end
            while part := told_by(master):
                said += part
        assert watching.wait(60) == 128 + number
    os.close(master)
    assert said.endswith(BACK.encode())


def test_without_partitions_that_is_said() -> None:
    """Goal: no topics, not the one asked for, and brokers that are silent are told apart."""
    nothing = replace(FIRST, partitions={})
    assert shown(nothing)[-1] == "none: there are no topics"
    assert shown(replace(nothing, answered=()))[-1] == "none: no broker answers"
    memory = Memory()
    memory.take(FIRST)
    told = frame(FIRST, memory, topics=["no\nsuch", "foo", "neither"])[5:]
    assert told == [r"no\nsuch: there is no such topic", "neither: there is no such topic"]
    assert frame(FIRST, memory, topics=["foo"])[5:] == []
    memory = Memory()
    memory.take(nothing)
    assert frame(nothing, memory, topics=["foo"])[4:] == ["foo: there is no such topic"]
    silent = replace(nothing, answered=())
    assert frame(silent, memory, topics=["foo"])[4:] == ["none: no broker answers"]


def test_a_cluster_that_is_cut_in_half_is_one_line() -> None:
    """Goal: 42 links of an isolated zone are told as what they are. Method: links by hand."""
    whole: dict[str, Any] = {"cut": None, "lose": 0.0, "slow": None, "answers": None}
    zone, others = ["0", "100", "client-a"], ["1", "2", "101", "102", "observer"]
    pairs = [(a, b) for a in zone for b in others]
    cut = [{"from": a, "to": b, **whole, "cut": "drop"} for a, b in pairs]
    back = [{"from": b, "to": a, **whole, "cut": "drop"} for a, b in pairs]
    healed = {"from": "1", "to": "2", **whole}
    assert in_words([*cut, *back, healed]) == ["0, 100, client-a ↔ 5 places: cut"]
    one_way = {"from": "1", "to": "2", **whole, "cut": "drop", "lose": 0.05}
    slow = {"from": "2", "to": "1", **whole, "slow": {"latency_s": 0.2}}
    assert in_words([one_way, slow]) == ["1 → 2: cut, lossy", "2 → 1: slow"]
    assert in_words([healed]) == []


def test_what_has_no_room_in_the_terminal_is_counted() -> None:
    lines = [str(number) for number in range(30)]
    assert fitted(lines, 30) == lines
    assert fitted(lines, 24) == [*lines[:23], "7 more lines: the terminal has 24"]


def test_partitions_leave_room_for_what_stands_below_them() -> None:
    memory = Memory()
    memory.elections.extend(["one", "two"])
    many = replace(FIRST, partitions={("foo", n): WELL for n in range(40)}, links=["1 → 0: cut"])
    memory.take(many)
    for rows in (24, 16):
        shown = frame(many, memory, rows)
        assert len(shown) == rows
        assert {"BROKEN LINKS", "one", "two"} < set(shown)
    assert frame(many, memory, 5)[4:9] == [*frame(many, memory)[4:8], "and 36 more"]


def test_of_brokers_that_know_of_the_same_election_the_latest_metadata_count() -> None:
    """An ISR changes within a leader epoch, and who is cut off still shows the one before."""

    def told(isr: tuple[int, ...], epoch: int) -> Snapshot:
        state = PartitionState(
            leader=1, leader_epoch=epoch, replicas=(1, 0, 2), isr=isr, offline=(), error=0
        )
        return Snapshot(cluster_id="c", brokers={}, topics={"foo": {0: state}, "__x": {0: state}})

    def seen(*answers: Snapshot) -> Partition:
        found = latest_of(answers, [], first_knows=True)
        assert list(found) == [("foo", 0)]
        return found["foo", 0]

    cut_off, latest, newer = told((1, 0, 2), 3), told((1, 2), 3), told((2,), 4)
    assert seen(latest, cut_off).isr == (1, 2)
    assert seen(cut_off, newer).isr == (2,)
    assert set(latest_of([latest], ["__x", "foo"], first_knows=True)) == {("__x", 0), ("foo", 0)}
    quorum = QuorumState(
        leader=100,
        epoch=1,
        high_watermark=9,
        voters=(replica(100, 9),),
        observers=(replica(0, 4), replica(1, 9), replica(2, -1)),
    )
    brokers = [
        NodeRecord(id=node, roles=("broker",), host="", port=9, log_file="", config_file="")
        for node in range(4)
    ]
    assert [node.id for node in latest_first(brokers, quorum)] == [1, 0, 2, 3]
    assert latest_first(brokers, None) == brokers
    assert lag_of(None, 1) == lag_of(quorum, 2)


def test_what_a_broker_that_is_cut_off_still_tells_of_a_deleted_topic_is_not_shown() -> None:
    """Goal: which topics there are says who lacks least; only one topic's epochs are compared.

    Method: a topic that was deleted, and made anew with its epochs beginning anew, and brokers that
    heard of neither. Seen to fail: the highest epoch of a name was shown, and it was well.
    """

    def told(**topics: tuple[bytes, int]) -> Snapshot:
        return Snapshot(
            cluster_id="c",
            brokers={},
            topics={name: {0: state(epoch)} for name, (_, epoch) in topics.items()},
            topic_ids={name: topic_id.ljust(16) for name, (topic_id, _) in topics.items()},
        )

    def state(epoch: int) -> PartitionState:
        return PartitionState(
            leader=1, leader_epoch=epoch, replicas=(1,), isr=(1,), offline=(), error=0
        )

    def epochs(*answers: Snapshot, first_knows: bool = True) -> dict[str, int]:
        found = latest_of(answers, [], first_knows=first_knows)
        return {topic: each.epoch for (topic, _), each in found.items()}

    other, before, anew = told(u=(b"u", 1)), told(t=(b"old", 5), u=(b"u", 3)), told(t=(b"new", 0))
    assert epochs(other, before) == {"u": 3}
    assert epochs(anew, before) == {"t": 0}
    assert epochs(replace(before, topic_ids={}), told(t=(b"new", 7))) == {"t": 7, "u": 3}
    refused = Snapshot(cluster_id="c", brokers={}, topics={"t": {}})
    assert epochs(refused, before) == {}, "a topic that was asked for and is not there"
    assert epochs(other, before, first_knows=False) == {"t": 5, "u": 3}
    assert epochs() == {}


def replica(node: int, log_end: int) -> QuorumReplica:
    return QuorumReplica(
        id=node, directory_id=b"", log_end=log_end, last_fetch_ms=0, last_caught_up_ms=0
    )


@pytest.mark.process
@pytest.mark.slow
def test_a_cluster_is_watched_and_recorded(tmp_path: Path, run: Run) -> None:
    """Method: a broker of our own with a topic; what is shown, and what is kept of it."""
    directory, kept = tmp_path / "cluster", tmp_path / "looks.jsonl"
    watching = ("watch", "--data-dir", str(directory), "--every", "0.1")
    with LocalCluster.create(directory, brokers=1, combined=True, port=0) as cluster:
        cluster.start()
        servers = cluster.bootstrap_servers
        made = run("topics", "--bootstrap-server", servers, "--create", "--topic", "seen")
        assert made.status == 0, made.errors
        shown = run(*watching, "--looks", "2", "--record", str(kept))
        assert shown.status == 0, shown.errors
        looks = [json.loads(line) for line in kept.read_text().splitlines()]
        other = run(*watching, "--looks", "1", "no-such-topic")
    assert "no-such-topic: there is no such topic\n" in other.output
    assert len(looks) == 2
    assert looks[-1]["active"][0] == 0
    assert [look["whole"] for look in looks] == [True, False]
    *_, last = read(kept.read_bytes().splitlines())
    assert last["partitions"]["seen-0"] == {
        "leader": 0,
        "epoch": 0,
        "isr": [0],
        "replicas": [0],
        "end": 0,
        "topic_id": last["partitions"]["seen-0"]["topic_id"],
    }
    assert len(last["partitions"]["seen-0"]["topic_id"]) == 22, "as Kafka writes it"
    assert shown.output.count("PARTITION ") == 2
    assert "1 of 1 nodes run" in shown.output
    assert run(*watching, "--looks", "0").status == 2
    assert "--record" in run(*watching, "--record", str(tmp_path), "--looks", "1").errors
