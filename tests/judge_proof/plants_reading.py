"""Plants in what readers are given: too early, not at all, or again without a word."""

from __future__ import annotations

from functools import partial

import msgspec
from tests.judge_proof.journal import TOPIC
from tests.judge_proof.planting import Planting, replace_event
from tests.judge_proof.plants_begin import must_stand
from tests.judge_proof.reading import Standing
from tests.judge_proof.replicated import Partition
from tests.judge_proof.truth import deliveries_of, log_of

from holdfast.judge.history import Delivered, Event, Expected, Position, ReadEnd
from holdfast.judge.verdict import Anomaly


def uncommitted(planting: Planting) -> bool:
    """Let a reader be given a record at or past the high watermark of the same answer."""
    for partition in planting.partitions():
        told = [d for d in deliveries_of(planting.world, partition) if d.committed_end is not None]
        for delivered in planting.chance.sample(told, len(told)):
            if (partition.number, delivered.offset) in planting.touched:
                continue
            planting.touched.add((partition.number, delivered.offset))
            end = max(0, delivered.offset - planting.chance.choice([0, 0, 1, 5]))
            replace_event(planting.world, delivered, committed_end=end)
            subject = f"{delivered.process}@{delivered.offset}"
            planting.truth.must(Anomaly.UNCOMMITTED, partition, subject)
            return True
    return False


def skipped(planting: Planting) -> bool:
    """Let a reader pass over a record that stands."""
    for partition in planting.partitions():
        standing = {each.offset for each in planting.free(partition)}
        for process, file in planting.world.journal.files.items():
            if process in planting.readers:
                continue  # what it is given follows another plan
            stretch: list[Delivered] = []
            begin: int | None = None
            for event in [*file, None]:
                if isinstance(event, Delivered) and event.partition == partition.number:
                    stretch.append(event)
                if event is None or isinstance(event, Position):
                    if _skip(planting, partition, process, stretch, begin, standing):
                        return True
                    stretch, begin = [], None if event is None else event.offset
    return False


def _skip(
    planting: Planting,
    partition: Partition,
    process: str,
    stretch: list[Delivered],
    begin: int | None,
    standing: set[int],
) -> bool:
    """Take one delivery out of a stretch that goes on after it. False: there is none."""
    earlier = stretch[:-1] if begin is not None and stretch else []
    for delivered in planting.chance.sample(earlier, len(earlier)):
        mine = [d for d in planting.read(partition, delivered.offset) if d.process == process]
        file = planting.world.journal.files[process]
        times = sum(isinstance(e, Delivered) and _same_place(e, delivered) for e in file)
        if delivered.offset not in standing or times > 1 or not mine or "early" in process:
            continue
        file.remove(delivered)
        planting.touched.add((partition.number, delivered.offset))
        planting.truth.must(Anomaly.SKIPPED, partition, f"{process}@{delivered.offset}")
        return True
    return False


def _same_place(left: Delivered, right: Delivered) -> bool:
    return (left.partition, left.offset) == (right.partition, right.offset)


def reset_in_silence(planting: Planting) -> bool:
    """Let a reader's first record stand behind its position."""
    for partition in planting.partitions():
        log = log_of(partition)
        free = {each.offset for each in planting.free(partition)}
        count = planting.chance.randint(1, 3)
        if len(log) <= count or not {each.offset for each in log[:count]} <= free:
            continue
        position = planting.chance.choice([0, log[0].offset])
        reader = _Reader(planting, partition, "silent")
        reader.position(position)
        for each in log[count:]:
            reader.give(each.offset, each)
        for each in log[:count]:
            planting.touched.add((partition.number, each.offset))
            planting.truth.must(Anomaly.SKIPPED, partition, f"silent@{each.offset}")
        return True
    return False


def taken_back(planting: Planting) -> bool:
    """Let a reader be given a record again that it has had, without its position being set."""
    for partition in planting.partitions():
        log = log_of(partition)
        free = planting.free(partition)
        if len(log) < 2 or not free:
            continue
        again = free[0]
        behind = [each for each in log if each.offset > again.offset]
        if not behind:
            continue
        reader = _Reader(planting, partition, "back")
        reader.position(again.offset)
        reader.give(again.offset, again)
        for each in log:
            if again.offset < each.offset <= behind[-1].offset:
                reader.give(each.offset, each)
        reader.give(again.offset, again)
        planting.touched.add((partition.number, again.offset))
        planting.truth.must(Anomaly.REORDERED, partition, f"back@{again.offset}")
        return True
    return False


class _Reader:
    """One more consumer, which is given whatever a plant says."""

    def __init__(self, planting: Planting, partition: Partition, process: str) -> None:
        self._journal = planting.world.journal
        self._tells_time = planting.world.reading.tells_time
        self._partition = partition
        self._process = process
        assert process not in self._journal.files, "a plant is planted once"
        planting.readers.add(process)

    def position(self, offset: int, *, told: bool = False) -> None:
        self._record(Position, offset=offset, reason="as planted", told=told)

    def give(self, offset: int, each: Standing) -> None:
        self._record(
            Delivered,
            offset=offset,
            id=each.record.name,
            digest=each.record.digest,
            key=each.record.key,
            timestamp=each.record.timestamp if self._tells_time else None,
            epoch=each.epoch,
        )

    def _record(self, kind: type[Event], **values: object) -> None:
        where = {"topic": TOPIC, "partition": self._partition.number}
        self._journal.record(kind, self._process, **where, **values)


def read_too_late(planting: Planting) -> bool:
    """Let a consumer be given what does not stand there, on a clock behind the last whole read."""
    for partition in planting.partitions():
        log = log_of(partition)
        offsets = {each.offset: each for each in planting.free(partition)}
        sends = planting.world.sending.sends
        known = {each.record.name for each in log}
        gone = [
            record
            for name, record in planting.world.sending.records.items()
            if sends[name].partition == partition.number
            and name not in known
            and planting.may_stand(name)
        ]
        plain = {d.offset for d in deliveries_of(planting.world, partition) if d.epoch is None}
        places = sorted(offsets.keys() - plain)
        if not gone or not places:
            continue
        place = planting.chance.choice(places)
        planting.touched.add((partition.number, place))
        record = planting.chance.choice(gone)

        epoch = offsets[place].epoch + 1
        planting.afterwards.append(
            partial(_give_late, planting, partition, Standing(place, record, epoch))
        )
        planting.truth.must(Anomaly.VANISHED, partition, f"late@{place}")
        return True
    return False


def _give_late(planting: Planting, partition: Partition, each: Standing) -> None:
    reader = _Reader(planting, partition, "late")
    reader.position(each.offset)
    reader.give(each.offset, each)


def never_seen(planting: Planting) -> bool:
    """Let a partition be expected of which nobody writes anything down."""
    number = len(planting.world.partitions)
    planting.world.journal.record(Expected, "lab", topic=TOPIC, partition=number)
    planting.truth.undecided.add(number)
    return True


def not_read_back(planting: Planting) -> bool:
    """Let nobody read a partition to its end, of which all else is as it should be."""
    planted = {number for number, _ in planting.touched} | planting.on_files.keys()
    known = planting.truth.findings.keys() | planting.truth.may
    spoken = {number for _, number, _ in known} | planted
    ends = {
        event.partition
        for file in planting.world.journal.files.values()
        for event in file
        if isinstance(event, ReadEnd)
    }
    for partition in planting.partitions():
        if partition.number not in spoken | ends:
            planting.unread.add(partition.number)
            planting.truth.undecided.add(partition.number)
            return True
    return False


def misled(planting: Planting) -> bool:
    """Let the cluster tell a reader that the log begins further on than it does."""
    for partition in planting.partitions():
        log = log_of(partition)
        must = must_stand(planting, partition, log)
        if len(must) < 2:
            continue
        reader = _Reader(planting, partition, "misled")
        reader.position(must[0].offset)
        reader.give(must[0].offset, must[0])
        reader.position(must[-1].offset, told=True)
        for each in must[1:-1]:
            planting.touched.add((partition.number, each.offset))
            planting.truth.must(Anomaly.SKIPPED, partition, f"misled@{each.offset}")
        planting.touched |= {(partition.number, each.offset) for each in (must[0], must[-1])}
        return len(must) > 2
    return False


def metadata_go_back(planting: Planting) -> bool:
    """Let the metadata name an earlier leader epoch than before."""
    partition = planting.chance.choice(planting.world.partitions)
    seen = max(partition.epoch, planting.world.seen_epochs.get(partition.number, 0))
    for epoch in (seen + 2, seen + 1):
        planting.world.witness(partition, epoch)
    planting.truth.must(Anomaly.DIVERGED, partition, f"leader@{seen + 1}")
    return True


def clock_behind(planting: Planting) -> bool:
    """Let a reader's clock be so far behind that it has read records before they were sent."""
    world = planting.world
    for process, file in sorted(world.journal.files.items()):
        given = [event for event in file if isinstance(event, Delivered)]
        moved = [event for event in file if isinstance(event, Position) and event.told]
        if not process.startswith("c") or not given or any(event.offset for event in moved):
            continue
        if world.settings.unclean or given[0].partition in planting.unread:
            continue
        world.journal.files[process] = [
            msgspec.structs.replace(event, at_ms=event.at_ms - 100_000) for event in file
        ]
        planting.truth.undecided.add(given[0].partition)
        planting.touched |= {(event.partition, event.offset) for event in given}
        return True
    return False
