"""A consumer of KIP-848 as its client library would be: it joins, beats, revokes, and may be cut.

`held` is what it may be reading: it is there as soon as the consumer is told of it, and until it
has let it go. So what two of them hold at once is read twice.
"""

from __future__ import annotations

from typing import Any

from tests.group.consumer_kit import Coordinator, assigned

from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse

FENCED = (
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.FENCED_INSTANCE_ID,
)
Held = set[tuple[bytes, int]]


class Consumer:
    def __init__(self, coordinator: Coordinator, name: str, instance_id: str | None = None) -> None:
        self.coordinator = coordinator
        self.name = name
        self.instance_id = instance_id
        self.topics: list[str] = []
        self.starts = 0
        self.member_id = ""
        self.epoch = 0
        self.held: Held = set()
        self.told: Held = set()
        self.reported: Held | None = None  # what the coordinator was told last; None: tell all
        self.subscribed: list[str] | None = None
        self.heard_ms = 0
        self.is_running = False

    def start(self, *topics: str) -> None:
        """Begin with a new member id, as a process that was started."""
        assert not self.is_running
        self.starts += 1
        self.member_id = f"{self.name}{self.starts}"
        self.topics = list(topics)
        self.is_running = True
        self._begin_again()

    def _begin_again(self) -> None:
        self.epoch = 0
        self.held, self.told = set(), set()
        self.reported = self.subscribed = None

    @property
    def is_member(self) -> bool:
        """Whether the group knows it as it is now: a member that came back is another one."""
        group = self.coordinator.shard._groups.get("g")
        return (
            self.is_running
            and self.epoch > 0
            and group is not None
            and self.member_id in self.coordinator.group().state.members
        )

    def beat(self, *, lost: bool = False) -> ErrorCode:
        """Send a heartbeat; `lost`: its answer does not come."""
        response = self.coordinator.heartbeat(self.member_id, self.epoch, **self._request())
        code = ErrorCode(response.error_code)
        if code is ErrorCode.NONE:
            self.heard_ms = self.coordinator.now_ms
        if lost:
            self.reported = self.subscribed = None
        else:
            self._take(response, code)
        return code

    def _request(self) -> dict[str, Any]:
        told: dict[str, Any] = {"instance_id": self.instance_id}
        is_full = self.reported is None
        if is_full or self.subscribed != self.topics:
            told["subscribed_topic_names"] = self.topics
        if is_full:
            told["rebalance_timeout_ms"] = 60_000
        if is_full or self.reported != self.held:
            told["owned"] = self._by_topic()
        return told

    def _by_topic(self) -> dict[bytes, tuple[int, ...]]:
        topics = sorted({topic_id for topic_id, _ in self.held})
        return {
            topic_id: tuple(sorted(index for each, index in self.held if each == topic_id))
            for topic_id in topics
        }

    def _take(self, response: ConsumerGroupHeartbeatResponse, code: ErrorCode) -> None:
        if code in FENCED:
            self._begin_again()
        elif code is not ErrorCode.NONE:
            self.reported = self.subscribed = None
        else:
            self.reported, self.subscribed = set(self.held), list(self.topics)
            self.epoch = response.member_epoch
            given = assigned(response)
            if given is not None:
                self.told = {
                    (topic, index) for topic, numbers in given.items() for index in numbers
                }
                self.held |= self.told

    def revoke(self) -> None:
        """Let go of what it is not to have any more."""
        self.held &= self.told

    def leave(self) -> None:
        """Go: for good, or a static one for the time being."""
        self.held = set()
        epoch = -1 if self.instance_id is None else -2
        self.coordinator.heartbeat(self.member_id, epoch, instance_id=self.instance_id)
        self.is_running = False

    def die(self) -> None:
        """Stop without a word."""
        self.held = set()
        self.is_running = False
