"""A balancer as people put before brokers: one address, and each connection goes to the next one.

Owns its thread, its listener, and the connections it carries. It knows nothing of Kafka.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from holdfast.cluster.layout import LOOPBACK
from holdfast.cluster.network.relays import relay

CONNECTIONS_MAX: Final = 1000
DIAL_S: Final = 10.0
START_S: Final = 10.0


class Balancer:
    """Listens on a port of its own from its making to `close`."""

    def __init__(self, targets: Sequence[tuple[str, int]]) -> None:
        """`targets`: host and port of each, taken in turn. OSError: it can't listen."""
        self._turns = itertools.cycle(targets)
        self._loop = asyncio.new_event_loop()
        self._server = self._loop.run_until_complete(
            asyncio.start_server(self._take_in, LOOPBACK, 0, limit=relay.CHUNK_BYTES)
        )
        self.address = f"{LOOPBACK}:{self._server.sockets[0].getsockname()[1]}"
        self._open: set[asyncio.Task[Any] | None] = set()
        self.led: Counter[tuple[str, int]] = Counter()  # connections, by target
        self._thread = threading.Thread(target=self._loop.run_forever, name="balancer", daemon=True)
        self._thread.start()

    async def _take_in(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry one connection to whose turn it is. Who can't be led on is reset."""
        near = relay.End(reader, writer)
        if len(self._open) >= CONNECTIONS_MAX:
            near.reset()
            return
        task = asyncio.current_task()
        self._open.add(task)
        try:
            target = next(self._turns)
            far = await relay.dial(*target, DIAL_S)
        except OSError:  # a TimeoutError, too
            near.reset()
        else:
            self.led[target] += 1
            await relay.join(near, far, relay.Straight(), relay.Straight())
        finally:
            self._open.discard(task)

    def close(self) -> None:
        """End every connection, and the thread. It may be called twice."""
        if self._loop.is_closed():
            return
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(START_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(START_S)
        self._loop.close()

    async def _end(self) -> None:
        self._server.close()
        carried = [task for task in self._open if task is not None]
        for task in carried:
            task.cancel()
        await asyncio.gather(*carried, return_exceptions=True)
