"""The block of producer ids that this broker hands out, and the asking for the next one.

Owns the block; the controller owns which blocks exist. An id is handed out once, even across
restarts: what is left of a block when the broker stops is never used.

Rules: producers.md#producer-ids.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from holdfast.node.broker.registration import Registration
from holdfast.runtime.ports import never
from holdfast.wire.errors import ErrorCode, error_code
from holdfast.wire.messages import allocate_producer_ids as wire

if TYPE_CHECKING:
    from holdfast.node.broker.controller_channel import ControllerChannel

logger = logging.getLogger("holdfast.producer_ids")

REFILL_BELOW = 100  # ids left when the next block is asked for
WAITING_MAX = 10_000  # requests that wait for a block; more are refused at once
RETRY_SECONDS = 0.1


class ProducerIds:
    """Ids from the current block, with the next one fetched before it ends."""

    def __init__(
        self,
        channel: ControllerChannel,
        registration: Registration,
        provoke: Callable[[str], bool] = never,
    ) -> None:
        self._channel = channel
        self._registration = registration
        self._provoke = provoke
        self._blocks: deque[range] = deque()
        self._waiting: deque[Callable[[int | None], None]] = deque()
        self._asking = False
        self._closed = False

    def take(self) -> int | None:
        """The next id, or None when the block is used up and another is on its way."""
        if sum(map(len, self._blocks)) < REFILL_BELOW:
            self._ask()
        while self._blocks:
            block = self._blocks[0]
            if block:
                self._blocks[0] = block[1:]
                return block[0]
            self._blocks.popleft()
        return None

    def take_later(self, answer: Callable[[int | None], None]) -> None:
        """Call `answer` with an id once there is one; with None when none can be had."""
        if self._closed or len(self._waiting) >= WAITING_MAX:
            answer(None)
            return
        self._waiting.append(answer)
        self._ask()

    def close(self) -> None:
        """Hand out nothing more."""
        self._closed = True
        self._refuse_all()

    def _ask(self) -> None:
        if self._asking or self._closed:
            return
        self._asking = True
        future = self._channel.send(
            wire.AllocateProducerIdsRequest(
                broker_id=self._registration.node, broker_epoch=self._registration.epoch
            )
        )
        future.add_done_callback(self._answered)

    def _answered(self, done: asyncio.Future[wire.AllocateProducerIdsResponse]) -> None:
        self._asking = False
        if done.cancelled():
            return
        failure = done.exception()  # looked at in any case, or the loop complains of it
        if failure is None and self._provoke("producer-ids.answer-lost"):
            failure = ConnectionResetError("the answer is lost, and a block of ids with it")
        if self._closed:
            return
        if failure is not None:
            logger.warning("no block of producer ids: %s", failure)
            self._refuse_all()
            return
        response = done.result()
        if response.error_code != ErrorCode.NONE:
            logger.warning("no block of producer ids: %s", error_code(response.error_code).name)
            asyncio.get_running_loop().call_later(RETRY_SECONDS, self._retry)
            return
        first, length = response.producer_id_start, response.producer_id_len
        self._blocks.append(range(first, first + length))
        while self._waiting:
            producer_id = self.take()
            if producer_id is None:
                self._ask()
                return
            self._waiting.popleft()(producer_id)

    def _retry(self) -> None:
        if self._waiting:
            self._ask()

    def _refuse_all(self) -> None:
        while self._waiting:
            self._waiting.popleft()(None)
