"""Goal: the history says of each partition that it is judged, and what of it may go, as configured;
and of each replica what it holds, also where that is nothing.

Method: what is configured is compared with the events; replicas are files written by hand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from holdfast.clients.blocking_driver import DriverError
from holdfast.clients.replica_files import (
    LOG_STARTS,
    DamagedFileError,
    StoredReplica,
    stored_replica,
)
from holdfast.clients.workload.recorder import Recorder
from holdfast.judge.history import (
    Compaction,
    DeleteRecords,
    DeletionRefused,
    Event,
    Expected,
    Retention,
    read_events,
)
from holdfast.lab.allowed import Allowed
from holdfast.lab.parameters import LabError
from holdfast.lab.run import Run
from holdfast.lab.steps.usual import delete_records
from holdfast.wire.administration import AdminError
from holdfast.wire.batch import Record, build_batch

WEEK_MS = 7 * 24 * 3600 * 1000


class Written:
    """What `Allowed` writes, with these settings of every node."""

    def __init__(self, directory: Path, **node_config: str) -> None:
        self._path = directory / "lab.jsonl"
        config = {key.replace("_", "."): value for key, value in node_config.items()}
        self._recorder = Recorder(self._path, "lab")
        self.allowed = Allowed(self._recorder, config)

    def events(self) -> list[Event]:
        self._recorder.flush()
        with self._path.open("rb") as file:
            return list(read_events(file))

    def limits(self) -> list[tuple[int | None, int | None]]:
        """Age and size of each policy, of partition 0."""
        return [
            (event.retention_ms, event.retention_bytes)
            for event in self.events()
            if isinstance(event, Retention) and event.partition == 0
        ]

    def compactions(self) -> list[bool]:
        """Each word on compaction, of partition 0."""
        return [
            event.is_on
            for event in self.events()
            if isinstance(event, Compaction) and event.partition == 0
        ]

    def close(self) -> None:
        self._recorder.close()


@pytest.fixture
def written(tmp_path: Path) -> Iterator[Written]:
    found = Written(tmp_path)
    yield found
    found.close()


def test_every_partition_is_expected_and_has_its_policy(written: Written) -> None:
    written.allowed.expect("foo", 2, {"retention.ms": "5", "retention.bytes": "7"})
    events = written.events()
    assert [e.partition for e in events if isinstance(e, Expected)] == [0, 1]
    assert [e.partition for e in events if isinstance(e, Retention)] == [0, 1]
    assert written.limits() == [(5, 7)]


@pytest.mark.parametrize(
    ("node", "topic", "limits"),
    [
        ({}, {}, (WEEK_MS, None)),
        ({}, {"retention.ms": "-1"}, (None, None)),
        ({"log_retention_ms": "3"}, {}, (3, None)),
        ({"log_retention_hours": "1"}, {"retention.bytes": "0"}, (3_600_000, 0)),
        ({"log_retention_ms": "3"}, {"cleanup.policy": ""}, (None, None)),
    ],
)
def test_what_is_not_set_is_the_node_s(
    tmp_path: Path,
    node: dict[str, str],
    topic: dict[str, str],
    limits: tuple[int | None, int | None],
) -> None:
    written = Written(tmp_path, **node)
    written.allowed.expect("foo", 1, topic)
    assert written.limits() == [limits]
    written.close()


@pytest.mark.parametrize(
    ("node", "topic", "is_on"),
    [
        ({}, {}, []),
        ({}, {"cleanup.policy": "compact"}, [True]),
        ({}, {"cleanup.policy": "compact,delete"}, [True]),
        ({"log_cleanup_policy": "compact"}, {}, [True]),
        ({"log_cleanup_policy": "compact"}, {"cleanup.policy": "delete"}, []),
    ],
)
def test_that_a_topic_is_compacted_is_said_before_it_is_made(
    tmp_path: Path, node: dict[str, str], topic: dict[str, str], is_on: list[bool]
) -> None:
    written = Written(tmp_path, **node)
    written.allowed.expect("foo", 1, topic)
    assert written.compactions() == is_on
    assert written.allowed.compacts("foo") is bool(is_on)
    written.close()


def test_that_a_topic_is_compacted_no_longer_is_said_when_all_have_heard_of_it(
    written: Written,
) -> None:
    """Seen to fail: said at once, it blames a broker that has not heard of the change."""
    written.allowed.expect("foo", 1, {"cleanup.policy": "delete"})
    assert not written.allowed.change("foo", {"cleanup.policy": "compact,delete"})
    assert written.compactions() == [True]
    assert written.allowed.change("foo", {"cleanup.policy": "delete"})
    assert written.compactions() == [True, True]
    written.allowed.settled("foo")
    assert written.compactions() == [True, True, False]
    assert written.allowed.compacts("foo")


@pytest.mark.parametrize(
    ("node", "topic", "own"),
    [
        ({}, {}, True),
        ({}, {"message.timestamp.type": "LogAppendTime"}, False),
        ({"log_message_timestamp_type": "LogAppendTime"}, {}, False),
        (
            {"log_message_timestamp_type": "LogAppendTime"},
            {"message.timestamp.type": "CreateTime"},
            True,
        ),
    ],
)
def test_whose_timestamps_a_topic_has_is_as_configured(
    tmp_path: Path, node: dict[str, str], topic: dict[str, str], own: bool
) -> None:
    written = Written(tmp_path, **node)
    written.allowed.expect("foo", 1, topic)
    assert written.allowed.has_create_time("foo") is own
    assert written.allowed.has_create_time("another") is (node == {})
    written.close()


def test_a_change_leaves_what_was_allowed_before(written: Written) -> None:
    """Nobody knows when the last broker has heard of it."""
    written.allowed.expect("foo", 1, {"retention.ms": "50"})
    written.allowed.change("foo", {"retention.ms": "5", "retention.bytes": "100"})
    written.allowed.change("foo", {"retention.ms": "-1"})
    written.allowed.change("foo", {"retention.bytes": "-1"})
    assert written.limits() == [(50, None), (5, 100), (5, 100), (None, 100)]


def test_when_all_have_heard_only_what_is_configured_is_allowed(written: Written) -> None:
    written.allowed.expect("foo", 1, {"retention.ms": "50"})
    assert not written.allowed.change("foo", {"retention.ms": "5"})
    assert written.allowed.change("foo", {"retention.ms": "500"})
    written.allowed.settled("foo")
    assert not written.allowed.change("foo", {"min.insync.replicas": "1"})
    assert written.limits() == [(50, None), (5, None), (5, None), (500, None), (500, None)]


class Altered:
    """As much of a run as a change of configs touches: two brokers, of which one may not hear."""

    def __init__(self, written: Written, nodes: list[int]) -> None:
        self.topic = "foo"
        self.allowed = written.allowed
        self.driver: Any = None
        self.cluster = SimpleNamespace(broker_ids=nodes)
        self.notes: list[str] = []
        self.note = self.notes.append

    def ask(self, _asked: object, _otherwise: str) -> None:
        """Every change is granted."""

    def soon(self, condition: Callable[[], bool], _bound_s: float) -> bool:
        return condition()


@pytest.mark.parametrize(
    ("second", "limits"),
    [
        ({"retention.ms": "500"}, [(5, None), (5, None), (500, None)]),
        ({"retention.ms": "5"}, [(5, None), (5, None)]),
        (None, [(5, None), (5, None)]),
    ],
    ids=["both have heard", "one has the old value", "one does not answer"],
)
def test_a_policy_is_lifted_once_every_broker_has_heard(
    written: Written,
    second: dict[str, str | None] | None,
    limits: list[tuple[int | None, int | None]],
) -> None:
    heard: dict[int, dict[str, str | None] | None] = {0: {"retention.ms": "500"}, 1: second}

    def told(_asked: object, *, node: int) -> dict[str, list[SimpleNamespace]]:
        found = heard[node]
        if found is None:
            raise DriverError("nobody answers")
        return {"foo": [SimpleNamespace(name=key, value=found[key]) for key in found]}

    written.allowed.expect("foo", 1, {"retention.ms": "5"})
    run = Altered(written, [0, 1])
    run.driver = SimpleNamespace(perform=told)
    assert Run.alter_topic(cast("Run", run), retention_ms="500") == (len(limits) == 3)
    assert written.limits() == limits
    assert any("still is" in note for note in run.notes) == (len(limits) == 2)


def test_configs_that_no_topic_can_have_are_the_run_s_mistake(written: Written) -> None:
    with pytest.raises(LabError, match=r"segment\.bytes"):
        written.allowed.expect("foo", 1, {"segment.bytes": "1"})


def test_a_deletion_is_named(written: Written) -> None:
    written.allowed.delete("foo", 1, 7)
    written.allowed.refused("foo", 1, 7)
    asked, refused = written.events()
    assert isinstance(asked, DeleteRecords)
    assert isinstance(refused, DeletionRefused)
    assert (asked.partition, asked.offset) == (refused.partition, refused.offset) == (1, 7)


@pytest.mark.parametrize(
    ("error", "kinds"),
    [
        (AdminError("deleting", 1, None), [DeleteRecords, DeletionRefused]),  # out of range
        (AdminError("deleting", 7, None), [DeleteRecords]),  # timed out: followers may be late
        (AdminError("deleting", 6, None), [DeleteRecords]),  # not the leader any more
        (DriverError("nobody answers"), [DeleteRecords]),
    ],
    ids=["refused", "late", "no leader", "no answer"],
)
def test_only_a_certain_refusal_takes_the_excuse_back(
    written: Written, error: Exception, kinds: list[type[Event]]
) -> None:
    """And what was not asked for any more was never said."""

    def fail(*_: object, **__: object) -> None:
        raise error

    run = Altered(written, [0])
    run.driver = SimpleNamespace(leader=lambda *_: 0, perform=fail)
    with pytest.raises(LabError, match="can't be deleted"):
        delete_records(cast("Run", run), {0: 5, 1: 5})
    assert [type(event) for event in written.events()] == kinds


def test_nothing_goes_of_a_topic_that_nobody_has_let_go(tmp_path: Path) -> None:
    """Goal: what a default lets go in a week is there in a run of minutes."""
    written = Written(tmp_path, min_insync_replicas="2")
    for topic in ("kept", "aged", "compacted", "deleted", "altered"):
        configs = {"aged": {"retention.ms": "5"}, "compacted": {"cleanup.policy": "compact"}}
        written.allowed.expect(topic, 1, configs.get(topic, {"min.insync.replicas": "2"}))
    assert written.allowed.keeps_all("deleted")
    written.allowed.delete("deleted", 0, 3)
    written.allowed.change("altered", {"retention.bytes": "5"})
    written.allowed.change("altered", {"retention.bytes": "-1"})  # what has gone stays so
    kept = [t for t in ("kept", "aged", "compacted", "deleted", "altered")
            if written.allowed.keeps_all(t)]  # fmt: skip
    assert kept == ["kept"]
    written.close()
    written = Written(tmp_path, log_retention_hours="1")
    written.allowed.expect("kept", 1, {})
    assert not written.allowed.keeps_all("kept")
    written.close()


def directory_with(root: Path, **segments: bytes) -> Path:
    directory = root / "foo-0"
    directory.mkdir()
    for base, data in segments.items():
        (directory / f"{int(base[1:]):020}.log").write_bytes(data)
    return directory


def batch(base: int, count: int) -> bytes:
    records = [Record(value=b"v", timestamp=1) for _ in range(count)]
    return bytes(build_batch(records, base_offset=base))


def extent(stored: StoredReplica) -> tuple[int, int, list[tuple[int, int, int]]]:
    return stored.begin, stored.end, [(b.offset, b.last_offset, b.size) for b in stored.batches]


def test_a_replica_holds_what_its_files_do(tmp_path: Path) -> None:
    one, two = batch(4, 2), batch(6, 1)
    directory = directory_with(tmp_path, b4=one, b6=two)
    found = extent(stored_replica(directory))
    assert found == (4, 7, [(4, 5, len(one)), (6, 6, len(two))])


def test_a_replica_that_holds_nothing_has_a_place_all_the_same(tmp_path: Path) -> None:
    assert extent(stored_replica(directory_with(tmp_path, b9=b""))) == (9, 9, [])


def test_a_replica_begins_where_its_checkpoint_says(tmp_path: Path) -> None:
    directory = directory_with(tmp_path, b0=batch(0, 3))
    (tmp_path / LOG_STARTS).write_text("0\n2\nbar 0 1\nfoo 0 2\n")
    assert stored_replica(directory).begin == 2


def test_a_directory_without_a_segment_is_damaged(tmp_path: Path) -> None:
    with pytest.raises(DamagedFileError):
        stored_replica(directory_with(tmp_path))
