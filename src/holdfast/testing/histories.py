"""Short histories made by hand, for tests of the judge: one producer, any partition, any reader."""

from __future__ import annotations

from typing import Any

from holdfast.judge.history import (
    Acknowledged,
    Delivered,
    Event,
    Position,
    ReadEnd,
    Refused,
    ReplicaBatch,
    Send,
    Unknown,
)


class Story:
    """Builds a history in which one thing follows the other, a millisecond apart."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.now_ms = 1000.0

    def _add(self, kind: type[Event], process: str, **values: Any) -> Story:
        self.now_ms += 1.0
        partition = {"topic": "foo", "partition": values.pop("partition", 0)}
        wall = int(self.now_ms) + 1_700_000_000_000
        self.events.append(
            kind(at_ms=self.now_ms, wall_ms=wall, process=process, **partition, **values)
        )
        return self

    def pause(self, ms: float) -> Story:
        self.now_ms += ms
        return self

    def send(self, *numbers: int, digest: str = "d", **more: Any) -> Story:
        for number in numbers:
            self._add(Send, "p", id=f"p:{number}", digest=digest, size=10, **more)
        return self

    def ack(self, number: int, offset: int | None, **more: Any) -> Story:
        return self._add(Acknowledged, "p", id=f"p:{number}", offset=offset, **more)

    def refuse(self, number: int, **more: Any) -> Story:
        return self._add(Refused, "p", id=f"p:{number}", error="NOT_ENOUGH_REPLICAS", **more)

    def doubt(self, number: int, **more: Any) -> Story:
        return self._add(Unknown, "p", id=f"p:{number}", error="_MSG_TIMED_OUT", **more)

    def read(
        self, offset: int, number: int | None, *, by: str = "live", digest: str = "d", **more: Any
    ) -> Story:
        name = None if number is None else f"p:{number}"
        return self._add(Delivered, by, offset=offset, id=name, digest=digest, **more)

    def position(self, offset: int, *, by: str = "live", **more: Any) -> Story:
        return self._add(Position, by, offset=offset, reason="seek", **more)

    def final(self, *numbers: int, begin: int = 0, **more: Any) -> Story:
        """A whole read that finds these, from `begin` on."""
        for offset, number in enumerate(numbers, start=begin):
            self.read(offset, number, by="final", **more)
        more.pop("epoch", None)
        return self.end(begin, begin + len(numbers), **more)

    def end(self, begin: int, end: int, *, by: str = "final", **more: Any) -> Story:
        return self._add(ReadEnd, by, begin=begin, end=end, **more)

    def batch(self, node: int, offset: int, last: int, digest: str = "b", **more: Any) -> Story:
        return self._add(
            ReplicaBatch,
            "replicas",
            node=node,
            offset=offset,
            last_offset=last,
            epoch=0,
            digest=digest,
            **more,
        )
