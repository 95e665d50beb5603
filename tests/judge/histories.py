"""Short histories made by hand, for tests of the judge: any producer, partition and reader."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from holdfast.judge.history import (
    Acknowledged,
    Compaction,
    DeleteRecords,
    DeletionRefused,
    Delivered,
    Event,
    Expected,
    LeaderChange,
    Position,
    ReadEnd,
    Refused,
    Replica,
    ReplicaBatch,
    ReplicaRecord,
    Retention,
    Send,
    Unknown,
)

WALL_MS = 1_700_000_000_000  # of the wall's clock, when that of `at_ms` is at 0


class Story:
    """Builds a history in which one thing follows the other, a millisecond apart."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.now_ms = 1000.0

    def _add(self, kind: type[Event], process: str, **values: Any) -> Story:
        self.now_ms += 1.0
        partition = {"topic": "foo", "partition": values.pop("partition", 0)}
        self.events.append(
            kind(
                at_ms=self.now_ms + values.pop("skew", 0.0),
                wall_ms=self.wall_ms,
                process=process,
                **partition,
                **values,
            )
        )
        return self

    def pause(self, ms: float) -> Story:
        self.now_ms += ms
        return self

    def then(self, other: Story) -> Story:
        """Let all of another story follow, as far apart as it was."""
        offset_ms = self.now_ms - 1000.0
        self.events += [
            replace(event, at_ms=event.at_ms + offset_ms, wall_ms=event.wall_ms + int(offset_ms))
            for event in other.events
        ]
        self.now_ms += other.now_ms - 1000.0
        return self

    @property
    def wall_ms(self) -> int:
        """The wall's clock, at the latest event."""
        return int(self.now_ms) + WALL_MS

    def expect(self, **more: Any) -> Story:
        return self._add(Expected, "lab", **more)

    def retention(self, ms: int | None = None, size: int | None = None, **more: Any) -> Story:
        return self._add(Retention, "lab", retention_ms=ms, retention_bytes=size, **more)

    def compact(self, **more: Any) -> Story:
        return self._add(Compaction, "lab", **more)

    def delete(self, offset: int, **more: Any) -> Story:
        return self._add(DeleteRecords, more.pop("by", "lab"), offset=offset, **more)

    def deny(self, offset: int, **more: Any) -> Story:
        """What was asked for with `delete` is refused."""
        return self._add(DeletionRefused, more.pop("by", "lab"), offset=offset, **more)

    def lead(self, leader: int, epoch: int, *, by: str = "observer", **more: Any) -> Story:
        return self._add(LeaderChange, by, leader=leader, epoch=epoch, **more)

    def send(self, *numbers: int, by: str = "p", digest: str = "d", **more: Any) -> Story:
        for number in numbers:
            self._add(Send, by, id=f"{by}:{number}", digest=digest, size=10, **more)
        return self

    def ack(self, number: int, offset: int | None, *, by: str = "p", **more: Any) -> Story:
        return self._add(Acknowledged, by, id=f"{by}:{number}", offset=offset, **more)

    def refuse(self, number: int, *, by: str = "p", **more: Any) -> Story:
        return self._add(Refused, by, id=f"{by}:{number}", error="NOT_ENOUGH_REPLICAS", **more)

    def doubt(self, number: int, *, by: str = "p", **more: Any) -> Story:
        return self._add(Unknown, by, id=f"{by}:{number}", error="_MSG_TIMED_OUT", **more)

    def read(
        self,
        offset: int,
        number: int | None,
        *,
        by: str = "live",
        of: str = "p",
        digest: str = "d",
        **more: Any,
    ) -> Story:
        """A reader is given the record that producer `of` sent under this number."""
        name = None if number is None else f"{of}:{number}"
        return self._add(Delivered, by, offset=offset, id=name, digest=digest, **more)

    def position(self, offset: int, *, by: str = "live", told: bool = False, **more: Any) -> Story:
        reason = "position lost" if told else "seek"
        return self._add(Position, by, offset=offset, reason=reason, told=told, **more)

    def final(self, *numbers: int, begin: int = 0, **more: Any) -> Story:
        """A whole read that finds these, from `begin` on."""
        for offset, number in enumerate(numbers, start=begin):
            self.read(offset, number, by="final", **more)
        more.pop("epoch", None)
        return self.end(begin, begin + len(numbers), **more)

    def end(self, begin: int, end: int, *, by: str = "final", **more: Any) -> Story:
        return self._add(ReadEnd, by, begin=begin, end=end, **more)

    def replica(self, node: int, begin: int, end: int, **more: Any) -> Story:
        return self._add(Replica, "replicas", node=node, begin=begin, end=end, **more)

    def batch(self, node: int, offset: int, last: int, digest: str = "b", **more: Any) -> Story:
        values = {"epoch": 0, "digest": digest, "size": 100, **more}
        return self._add(
            ReplicaBatch, "replicas", node=node, offset=offset, last_offset=last, **values
        )

    def record(self, node: int, offset: int, number: int, *, of: str = "p", **more: Any) -> Story:
        """A replica holds the record that producer `of` sent under this number."""
        values = {"epoch": 0, "digest": "d", "id": f"{of}:{number}", **more}
        return self._add(ReplicaRecord, "replicas", node=node, offset=offset, **values)
