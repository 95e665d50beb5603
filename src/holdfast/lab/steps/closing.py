"""The end of every run: workloads end, all is read back, replicas are compared byte by byte."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

from holdfast.clients.blocking_driver import DriverError
from holdfast.clients.replica_files import (
    DamagedFileError,
    ReplicaTail,
    StoredRecord,
    StoredReplica,
    segments_of,
    stored_records,
    stored_replica,
)
from holdfast.clients.workload.payload import digest_of, id_of
from holdfast.clients.workload.raw_consumer import BY_NAME_VERSION_MAX
from holdfast.clients.workload.recorder import Recorder
from holdfast.judge.history import (
    Acknowledged,
    Delivered,
    Fault,
    Position,
    Replica,
    ReplicaBatch,
    ReplicaRecord,
)
from holdfast.judge.timeline import DISK
from holdfast.lab.aftermath import LAST_READ, LOST_WHERE_IT_BROKE_OFF
from holdfast.lab.evidence import events_of, history_files
from holdfast.lab.parameters import LabError
from holdfast.lab.run import SETTLE_S, WORK_S, Run
from holdfast.lab.steps.mishaps import expect_running, must_come
from holdfast.lab.steps.wants import lists_text, names
from holdfast.wire.batch import batches, crc_matches, read_records
from holdfast.wire.errors import WireError
from holdfast.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from holdfast.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from holdfast.wire.well_known import LATEST

FINAL_READ_S = 40.0
LOOK_S = 10.0  # for files to be whole that nodes still write
FETCH_BYTES = 1 << 20
HALF = ".half"  # of a file that is no history yet
READ_RATE = 5_000  # records a second that the slowest machine reads and writes down


def conclude(run: Run) -> None:
    """Leave in the history what the verdict rests on, of every topic that the run has made.

    LabError: a log could not be read to its end. What is there by then is in the history.
    """
    run.stop_workers()
    for topic in run.placement:
        told = run.ends_told
        ends = settled_ends(run, topic) if told is None else told(topic)
        check_placement(run, topic)
        try:
            final_read(run, topic, ends)
        except Exception:  # replicas that differ are broken, whatever became of the read
            if told is None:
                note_replicas(run, topic)
            raise
        if told is None:
            note_replicas(run, topic)
    expect_running(run, "at the end", only_failed=True)


def expect_kept_somewhere(run: Run) -> None:
    """Check, where a run breaks off, that each acknowledged event is in some replica's files.

    Nothing is read back then, so the judge can't say what is lost; but what is in no file at all
    nobody will ever read. Nor is any file damaged, but on disks that the run has hurt. All clients
    end here. Topics of which something was let go are passed over, and partitions of which a file
    can't be read.
    """
    if run.ends_told is not None:  # the files are out of sight
        return
    run.kill_workers()
    wanted: dict[tuple[str, int], set[str]] = {}
    hurt = set[int]()
    for event in events_of(history_files(run.history)):
        if isinstance(event, Acknowledged) and run.allowed.keeps_all(event.topic):
            wanted.setdefault((event.topic, event.partition), set()).add(event.id)
        elif isinstance(event, Fault) and event.action == DISK:
            hurt.add(event.node)
    count = sum(map(len, wanted.values()))
    unreadable = set[tuple[str, int]]()
    damaged: list[str] = []

    def all_there() -> bool:
        """Look once more at what is missing; a file that is being written may be there in part."""
        for where in list(wanted):
            try:
                wanted[where] -= _stored_ids(run, *where)
            except (OSError, DamagedFileError):
                unreadable.add(where)
                continue
            unreadable.discard(where)
            if not wanted[where]:
                del wanted[where]
        damaged[:] = _damaged(run, [node for node in run.cluster.broker_ids if node not in hurt])
        return not wanted and not damaged

    run.soon(all_there, LOOK_S)
    if damaged:
        more = f", and {len(damaged) - 1} more files" if len(damaged) > 1 else ""
        seen = f"{damaged[0]}{more}"
        run.check("files of replicas, where the run broke off", "whole", seen, kept=False)
    lost = sum(len(ids) for where, ids in wanted.items() if where not in unreadable)
    if lost:
        run.check(
            LOST_WHERE_IT_BROKE_OFF,
            "each in some replica's files",
            f"{lost:,} of {count:,} in none",
            kept=False,
        )


def _damaged(run: Run, nodes: Sequence[int]) -> list[str]:
    """Say of each damaged file that these nodes have of the run's topics what is wrong with it."""
    return [
        wrong
        for node in nodes
        for root in log_directories(run, node)
        for topic, partitions in run.placement.items()
        for partition in partitions
        if (wrong := _wrong_in(root / f"{topic}-{partition}")) is not None
    ]


def _wrong_in(directory: Path) -> str | None:
    """Say which batch of a replica's files is damaged; None: none, or they can't be read.

    The very last one may be written just now. Processes of a machine share its page cache, so what
    stands before it was written whole, whatever has ended its node.
    """
    paths = sorted(directory.glob("*.log"))
    with suppress(OSError):  # it was put aside, or compacted, meanwhile
        for path in paths:
            data = memoryview(path.read_bytes())
            try:
                for position, header in batches(data):
                    is_last = position + header.size == len(data) and path == paths[-1]
                    if not is_last and not crc_matches(data, position):
                        return f"{path}: wrong CRC in the batch at byte {position}"
            except WireError as error:
                return f"{path}: {error}"
    return None


def _stored_ids(run: Run, topic: str, partition: int) -> set[str]:
    """Return the ids of all events in the files of a partition, on all nodes and disks.

    Those too that a node has put aside. DamagedFileError, OSError.
    """
    name = f"{topic}-{partition}"
    return {
        found
        for node in run.cluster.broker_ids
        for root in log_directories(run, node)
        for directory in (root / name, *root.glob(f"{name}.*"))
        for record in stored_records(directory)
        if (found := id_of(record.value)) is not None
    }


def replicas_of(run: Run, topic: str) -> dict[int, list[int]]:
    """Who holds each partition of a topic now. LabError, behind a failed check: nobody says."""
    states = must_come(
        run, f"the partitions of {topic}", lambda: run.cluster.partitions(topic), SETTLE_S
    )
    return {partition: list(state.replicas) for partition, state in sorted(states.items())}


def check_placement(run: Run, topic: str) -> None:
    """Check that the metadata name every replica that was made: no other would be looked at."""
    wanted = {p: tuple(sorted(nodes)) for p, nodes in run.placement[topic].items()}
    seen = {p: tuple(sorted(nodes)) for p, nodes in replicas_of(run, topic).items()}
    if seen != wanted:
        run.check(
            f"who holds {topic}", lists_text(wanted), lists_text(seen) or "nobody", kept=False
        )


def settled_ends(run: Run, topic: str) -> dict[int, int]:
    """Wait until all replicas of each partition end at one offset; those that do.

    As long as they come nearer to each other they are waited for: a machine that is only slow
    breaks nothing. A failed check: they don't.
    """
    looks = _Looks(run, topic)
    apart = looks.apart()
    while not run.soon(lambda: looks.apart() == 0, SETTLE_S):
        if looks.distance >= apart:
            run.check(f"replicas of {topic}", "end at one offset", str(looks.ends), kept=False)
            break
        apart = looks.distance
    return {
        p: next(iter(each.values()))
        for p, each in looks.ends.items()
        if len(set(each.values())) == 1
    }


class _Looks:
    """How far apart the replicas of a topic end, each time that one looks."""

    def __init__(self, run: Run, topic: str) -> None:
        self._run = run
        self._topic = topic
        self._tail = cache(ReplicaTail)  # each goes on reading where it ended
        self.ends: dict[int, dict[int, int]] = {}  # by partition and node; -1: nobody can say
        self.distance = 0

    def apart(self) -> int:
        """Look: how many offsets all partitions' replicas end apart, together."""
        self.ends = {
            partition: {
                node: end_of(self._run, node, partition, self._topic, self._tail) for node in nodes
            }
            for partition, nodes in replicas_of(self._run, self._topic).items()
        }
        self.distance = sum(max(e.values()) - min(e.values()) for e in self.ends.values())
        return self.distance


def final_read(run: Run, topic: str, ends: Mapping[int, int]) -> None:
    """Read all partitions to their end in a new process. LabError: it can't, or takes too long.

    So nothing is decided then: what can't be read may be lost, or the machine too slow. But where
    leaders don't tell such an end, or the reader was given nothing for long, or what is no record,
    that is a failed check: the cluster stands still, or hands out damaged bytes. The end is the
    high watermark, once it has come to where the replicas end: with acks=1 it may lag behind what
    was acknowledged, and that is no loss.
    """
    own = topic == run.topic
    run.note("reading everything back" if own else f"reading {topic} back")
    bound_s = FINAL_READ_S + sum(ends.values()) / READ_RATE
    begin_s = time.monotonic()
    worker = run.start_reader(
        LAST_READ if own else f"{LAST_READ}-{topic}",
        topic=topic,
        partitions=len(replicas_of(run, topic)),
        until_end=True,
        timeout=bound_s,
        end=[f"{partition}:{end}" for partition, end in ends.items()],
    )
    try:
        worker.wait(bound_s + WORK_S)
    except LabError as error:
        still_s = time.monotonic() - max(begin_s, worker.tail.poll().latest_ms / 1000)
        if still_s >= SETTLE_S:
            since = f"given nothing for {still_s:.0f} s"
            run.check(f"the last read of {topic}", "comes to its end", since, kept=False, late=True)
        _expect_records(run, topic, ends, worker.history)
        _expect_told(run, topic, ends)
        raise LabError(
            f"the last read did not read {names(ends)} of {topic} to its end, so nobody can say "
            f"what is lost: {error}"
        ) from error


def _expect_records(run: Run, topic: str, ends: Iterable[int], history: Path) -> None:
    """Check that where a reader has come to it is given records: librdkafka only asks again."""
    reached = dict.fromkeys(ends, 0)
    with suppress(OSError):  # it may never have begun
        for event in events_of([history]):
            if isinstance(event, Delivered | Position) and event.partition in reached:
                reached[event.partition] = event.offset + isinstance(event, Delivered)
    for partition, offset in reached.items():
        wrong = _wrong_at(run, topic, partition, offset)
        if wrong is not None:
            seen = f"{topic}-{partition} at offset {offset}: {wrong}"
            run.check("what brokers hand out", "records", seen, kept=False)


def _wrong_at(run: Run, topic: str, partition: int, offset: int) -> str | None:
    """Say what is wrong with the bytes that a leader hands out; None: nothing that is seen."""
    asked = FetchPartition(
        partition=partition, fetch_offset=offset, partition_max_bytes=FETCH_BYTES
    )
    request = FetchRequest(min_bytes=1, topics=[FetchTopic(topic=topic, partitions=[asked])])
    try:
        leader = run.driver.leader(topic, partition, refresh=True)
        peer = run.driver.peer(leader)
        version = min(BY_NAME_VERSION_MAX, peer.version_of(FetchRequest))
        answer = peer.send(request, version=version).responses[0].partitions[0]
    except DriverError:
        return None
    view = memoryview(answer.records or b"")
    try:
        for position, header in batches(view):
            if not crc_matches(view, position):
                return "wrong CRC"
            for _ in read_records(view[position : position + header.size]):
                pass
    except WireError as error:
        return str(error)
    return None


def _expect_told(run: Run, topic: str, ends: Mapping[int, int]) -> None:
    """Check that leaders tell everybody the ends that their replicas have come to."""

    def behind() -> dict[int, int]:
        told = {partition: high_watermark(run, topic, partition) for partition in ends}
        return {partition: end for partition, end in told.items() if end < ends[partition]}

    if not run.soon(lambda: not behind(), SETTLE_S):
        left = behind()
        run.check(
            f"high watermarks of {topic}, as leaders tell them",
            ", ".join(f"P{partition}: {ends[partition]}" for partition in left),
            ", ".join(f"P{p}: {end}" if end >= 0 else f"P{p}: not told" for p, end in left.items()),
            kept=not left,
            late=True,
        )


def high_watermark(run: Run, topic: str, partition: int) -> int:
    """Return up to where a partition can be read, as its leader says; -1: nobody does."""
    asked = ListOffsetsPartition(partition_index=partition, timestamp=LATEST)
    request = ListOffsetsRequest(topics=[ListOffsetsTopic(name=topic, partitions=[asked])])
    try:
        leader = run.driver.leader(topic, partition, refresh=True)
        (found,) = run.driver.send(request, node=leader).topics[0].partitions
    except DriverError:
        return -1
    return -1 if found.error_code else int(found.offset)


def note_replicas(run: Run, topic: str) -> None:
    """Write what every replica of a topic holds into the history: all of that, or nothing.

    Half of it would say that replicas differ. So it is no part of the history before it is whole,
    whatever ends the run meanwhile, and whoever judges a run that still goes on.
    """
    own = topic == run.topic
    whole = run.history / ("replicas.jsonl" if own else f"replicas-{topic}.jsonl")
    half = whole.with_suffix(HALF)
    try:
        with Recorder(half, "replicas") as recorder:
            for partition, nodes in replicas_of(run, topic).items():
                for node in nodes:
                    _note_replica(run, recorder, node, partition, topic)
        half.rename(whole)
    finally:
        half.unlink(missing_ok=True)


def end_of(
    run: Run,
    node: int,
    partition: int,
    topic: str | None = None,
    tail: Callable[[Path], ReplicaTail] = ReplicaTail,
) -> int:
    """Where a replica's files end; -1 while they can't be read."""
    try:
        return tail(replica_directory(run, node, partition, topic)).end()
    except (OSError, DamagedFileError):
        return -1


def replica_directory(run: Run, node: int, partition: int, topic: str | None = None) -> Path:
    """Where a node keeps a partition. FileNotFoundError: nowhere."""
    name = f"{topic or run.topic}-{partition}"
    for root in log_directories(run, node):
        if (root / name).is_dir():
            return root / name
    raise FileNotFoundError(f"node {node} has no directory {name}")


def _note_replica(run: Run, recorder: Recorder, node: int, partition: int, topic: str) -> None:
    """Write down what one replica holds, also if that is nothing."""
    look = _Look(run, node, partition, topic)
    if not look.is_whole() and not (look.may_change and run.soon(look.is_whole, SETTLE_S)):
        run.check(f"{topic}-{partition}, files of {node}", "whole", look.wrong, kept=False)
        return
    stored = look.stored
    recorder.record(
        Replica, topic=topic, partition=partition, node=node, begin=stored.begin, end=stored.end
    )
    for batch in stored.batches:
        recorder.record(
            ReplicaBatch,
            topic=topic,
            partition=partition,
            node=node,
            offset=batch.offset,
            last_offset=batch.last_offset,
            epoch=batch.epoch,
            digest=batch.digest,
            size=batch.size,
        )

    for record in look.records:
        recorder.record(
            ReplicaRecord,
            topic=topic,
            partition=partition,
            node=node,
            offset=record.offset,
            epoch=record.epoch,
            id=id_of(record.value),
            digest=digest_of(record.value, record.headers),
            key=None if record.key is None else record.key.decode(errors="replace"),
            timestamp=record.timestamp,
        )


class _Look:
    """What one replica's files hold, all of it at one moment.

    Where replicas compact, files come and go at any time: a look during which some did counts for
    nothing. Where they don't, what can't be read is damaged.
    """

    def __init__(self, run: Run, node: int, partition: int, topic: str) -> None:
        self._run = run
        self._where = node, partition, topic
        self.may_change = run.allowed.compacts(topic)
        self.stored = StoredReplica(0, 0, [])
        self.records: list[StoredRecord] = []  # only where replicas compact
        self.wrong = ""

    def is_whole(self) -> bool:
        """Read the files. False: they can't be read now, and `wrong` says why."""
        try:
            directory = replica_directory(self._run, *self._where)
            before = segments_of(directory) if self.may_change else []
            self.stored = stored_replica(directory)
            if not self.may_change:
                return True
            self.records = list(stored_records(directory))
            after = segments_of(directory)
        except (OSError, DamagedFileError) as error:
            self.wrong = str(error)
            return False
        self.wrong = "its segments change all the time"
        return before is not None and before == after


def log_directories(run: Run, node: int) -> list[Path]:
    """Every log directory of a node, as its properties name them. FileNotFoundError: none."""
    config = Path(run.cluster.node(node).config_file)
    for line in config.read_text(encoding="utf-8").splitlines():
        key, _, value = line.partition("=")
        if key.strip() in {"log.dirs", "log.dir"}:
            return [Path(each.strip()) for each in value.split(",")]
    raise FileNotFoundError(f"{config} names no log.dirs")
