"""Free ports of this machine, which no other process takes between the search and the use.

Between finding a port free and a node's listening there is time, and a node that was killed needs
its port again later: so a process takes a block of ports for its whole life, and gives out those.
"""

from __future__ import annotations

import os
import random
import socket
from dataclasses import dataclass
from typing import Final

from holdfast.cluster.layout import ClusterError
from holdfast.cluster.plan import HOST

# Below the range from which Linux takes the ports of outgoing connections: a node that is killed
# finds its port free again.
FREE_PORTS: Final = range(10_240, 32_000)
BLOCK: Final = 256


@dataclass(slots=True)
class _Block:
    """Ports of one process. The kernel gives the block back when the process has gone.

    The first of them is bound as long as the process lives, and nothing listens there: no other
    process can bind it.
    """

    process: int
    ports: list[int]
    next: int = 0


_own: _Block | None = None


def free_ports(count: int) -> list[int]:
    """Return ports of the loopback address on which nothing listens now.

    They come in turn: one that was given out before comes again after all others.
    """
    global _own  # noqa: PLW0603 - a block belongs to the process
    if _own is None or _own.process != os.getpid():
        _own = _take_block()
    found: list[int] = []
    for _ in _own.ports:
        if len(found) == count:
            break
        port = _own.ports[_own.next]
        _own.next = (_own.next + 1) % len(_own.ports)
        if is_free(port):
            found.append(port)
    if len(found) < count:
        raise ClusterError(f"{count} ports are wanted, and {len(found)} of a block are free.")
    return found


def is_free(port: int, host: str = HOST) -> bool:
    """Return whether a node could listen there now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
        # As a node does: a port whose last connections linger counts as free.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
            listener.listen(1)
        except OSError:
            return False
    return True


def _take_block() -> _Block:
    starts = [*FREE_PORTS[::BLOCK]]
    random.shuffle(starts)  # others may run whose process has gone: their nodes go on
    for start in starts:
        guard = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            guard.bind((HOST, start))
        except OSError:
            guard.close()
            continue
        guard.detach()  # the kernel closes it
        return _Block(os.getpid(), [*range(start + 1, min(start + BLOCK, FREE_PORTS.stop))])
    raise ClusterError(f"No block of {BLOCK} ports from {FREE_PORTS.start} on is to be had.")
