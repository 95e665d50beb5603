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

from holdfast.node.broker.controller_channel import ControllerChannel
from holdfast.node.broker.registration import Asking, Registration
from holdfast.runtime.ports import never
from holdfast.wire.messages import allocate_producer_ids as wire

logger = logging.getLogger("holdfast.producer_ids")

REFILL_BELOW = 100  # ids left when the next block is asked for
WAITING_MAX = 10_000  # requests that wait for a block; more are refused at once
RETRY_SECONDS = 0.1


class ProducerIds(Asking):
    """Ids from the current block, with the next one fetched before it ends."""

    def __init__(
        self,
        channel: ControllerChannel,
        registration: Registration,
        provoke: Callable[[str], bool] = never,
    ) -> None:
        super().__init__(channel, registration)
        self._provoke = provoke
        self._blocks: deque[range] = deque()
        self._waiting: deque[Callable[[int | None], None]] = deque()

    def take(self) -> int | None:
        """The next id, or None when the block is used up and another is on its way."""
        if sum(map(len, self._blocks)) < REFILL_BELOW:
            self._refill()
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
        self._refill()

    def close(self) -> None:
        """Hand out nothing more."""
        super().close()
        self._refuse_all()

    def _refill(self) -> None:
        if self._busy or self._closed:
            return
        self._busy = True
        request = wire.AllocateProducerIdsRequest(
            broker_id=self._registration.node, broker_epoch=self._registration.epoch
        )
        self._ask(request, self._answered)

    def _answered(self, response: wire.AllocateProducerIdsResponse | None, why: object) -> None:
        self._busy = False
        if response is not None and self._provoke("producer-ids.answer-lost"):
            response, why = None, "the answer is lost, and a block of ids with it"
        if self._closed:
            return
        if response is None or why is not None:
            logger.warning("no block of producer ids: %s", why)
            if response is None:
                self._refuse_all()
            else:
                asyncio.get_running_loop().call_later(RETRY_SECONDS, self._retry)
            return
        first, length = response.producer_id_start, response.producer_id_len
        self._blocks.append(range(first, first + length))
        while self._waiting:
            producer_id = self.take()
            if producer_id is None:
                self._refill()
                return
            self._waiting.popleft()(producer_id)

    def _retry(self) -> None:
        if self._waiting:
            self._refill()

    def _refuse_all(self) -> None:
        while self._waiting:
            self._waiting.popleft()(None)
