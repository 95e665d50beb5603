"""A consumer of KIP-848 as librdkafka 2.16 takes answers (rdkafka_cgrp.c, by reading it).

It keeps what it has, what it is moving to, and what it was told meanwhile. A heartbeat whose answer
it gave up on changes nothing, and an assignment that is what it has is nothing to it: it does not
say that it has it. After an error of the coordinator it tells everything.
"""

from __future__ import annotations

from tests.group.consumer_kit import Coordinator, assigned

from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse

Indexes = tuple[int, ...]


class LibrdkafkaConsumer:
    """A member of one topic. `is_at_work`: its application has not come back from the callback."""

    def __init__(self, coordinator: Coordinator, name: str, topic_id: bytes) -> None:
        self.coordinator = coordinator
        self.name = name
        self.topic_id = topic_id
        self.epoch = 0
        self.held: Indexes = ()
        self.moving_to: Indexes | None = None
        self.behind: Indexes | None = None  # what it will move to next
        self.is_at_work = False
        self.tells_everything = False

    @property
    def reads(self) -> Indexes:
        return self.held if self.moving_to is None or self.is_at_work else self.moving_to

    def beat(self, *, lost: bool = False) -> ConsumerGroupHeartbeatResponse:
        confirms = self.moving_to is not None and not self.is_at_work
        response = self._send(confirms=confirms)
        if lost:
            return response
        self.tells_everything = response.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        if self.tells_everything:
            return response
        assert not response.error_code, response
        self.epoch = response.member_epoch
        self._hear(response)
        if confirms:
            assert self.moving_to is not None
            self.held, self.moving_to = self.moving_to, None
        if self.behind is not None and self.moving_to is None:
            self.moving_to, self.behind = self.behind, None
            if self.moving_to == self.held:
                self.moving_to = None
        return response

    def _send(self, *, confirms: bool) -> ConsumerGroupHeartbeatResponse:
        if self.epoch == 0:
            return self.coordinator.join(self.name, "t")
        owned = {self.topic_id: self.reads} if self.reads else {}
        if self.tells_everything:
            return self.coordinator.heartbeat(
                self.name,
                self.epoch,
                owned=owned,
                subscribed_topic_names=["t"],
                rebalance_timeout_ms=60_000,
            )
        return self.coordinator.heartbeat(self.name, self.epoch, owned=owned if confirms else None)

    def _hear(self, response: ConsumerGroupHeartbeatResponse) -> None:
        told = assigned(response)
        if told is None:
            return
        indexes = told.get(self.topic_id, ())
        has = self.held if self.moving_to is None else self.moving_to
        self.behind = None if indexes == has else indexes
