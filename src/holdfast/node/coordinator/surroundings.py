"""What a coordinator needs of the broker that it is a part of.

The broker has it, and is above it: so what it knows of replicas stands here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from holdfast.config.node import NodeSettings
from holdfast.config.topic import TopicSettings
from holdfast.core.metadata.image import MetadataImage
from holdfast.log.log import Log
from holdfast.node.door.waiting_room import OffsetQueue, WaitingRoom
from holdfast.runtime.ports import Runtime
from holdfast.wire.errors import ErrorCode


class Outcome(Protocol):
    """What came of a batch: with NONE it is committed once the high watermark is at `required`."""

    @property
    def error(self) -> ErrorCode: ...

    @property
    def required(self) -> int: ...


class Leading(Protocol):
    """A replica that leads, in one leader epoch."""

    log: Log

    @property
    def is_current(self) -> bool: ...

    def append(self, batch: memoryview, acks: int) -> Outcome: ...


class Replica(Protocol):
    """A replica of `__consumer_offsets`, whatever its role."""

    topic: str
    index: int
    settings: TopicSettings
    acknowledgements: OffsetQueue

    @property
    def leading(self) -> Leading | None: ...

    def acknowledgement(self, required: int) -> ErrorCode | None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What is around a coordinator."""

    runtime: Runtime
    image: MetadataImage
    waiting: WaitingRoom
    settings: Callable[[], NodeSettings]  # as they are now
    # A request of this broker's own to the active controller, in a version: the answer.
    ask_controller: Callable[[Any, int], asyncio.Future[Any]]
