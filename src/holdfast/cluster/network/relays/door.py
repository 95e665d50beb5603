"""The process that lets in what comes from outside: from ports of 127.0.0.1 to listeners inside.

It opens its ports outside, and then enters a place for good: what it dials, it dials from there.
Clients come by the place `host`, over links like any other; who watches the cluster by `observer`,
whose links nothing cuts. It ends when the network's holder does.

    door DIRECTORY PLACE PORT=ADDRESS:PORT...
"""

from __future__ import annotations

import asyncio
import socket
import sys
from pathlib import Path
from typing import Any, Final

from holdfast.cluster.layout import ClusterError
from holdfast.cluster.network import enter, ground
from holdfast.cluster.network.holding import watch_holder
from holdfast.cluster.network.relays import relay
from holdfast.cluster.plan import HOST

CONNECTIONS_MAX: Final = 1000  # of one door
DIAL_TIMEOUT_S: Final = 60.0  # whoever is outside gives up sooner
BACKLOG: Final = 128


class Door:
    """One port outside, and where it leads."""

    def __init__(self, target: tuple[str, int], connections_max: int = CONNECTIONS_MAX) -> None:
        self._target, self._connections_max = target, connections_max
        # A task that waits for an end whose other side is half-closed is known to nobody else, and
        # would be collected as garbage.
        self._open: set[asyncio.Task[Any] | None] = set()

    @property
    def connections(self) -> int:
        """How many are let in now."""
        return len(self._open)

    async def let_in(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry one connection. Who can't be led on is reset."""
        near = relay.End(reader, writer)
        if self.connections >= self._connections_max:
            near.reset()
            return
        task = asyncio.current_task()
        self._open.add(task)
        try:
            far = await relay.dial(*self._target, DIAL_TIMEOUT_S)
        except OSError:  # a TimeoutError, too
            near.reset()
        else:
            await relay.join(near, far, relay.Straight(), relay.Straight())
        finally:
            self._open.discard(task)


def open_port(port: int) -> socket.socket:
    """Return a listener of the loopback address. OSError: the port is taken."""
    return socket.create_server((HOST, port), backlog=BACKLOG)


async def run(doors: list[tuple[socket.socket, Door]], watched: int) -> None:
    """Let in until the process behind `watched` has ended."""
    ended = asyncio.Event()
    asyncio.get_running_loop().add_reader(watched, ended.set)
    servers = [
        await asyncio.start_server(door.let_in, sock=listener, limit=relay.CHUNK_BYTES)
        for listener, door in doors
    ]
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    await ended.wait()
    for server in servers:
        server.close()


def main() -> int:
    directory, name, *leads = sys.argv[1:]
    try:
        network = ground.open_network(Path(directory))
        watched = watch_holder(network.holder)
        # A door whose node takes nothing in fills up, and must leave the others theirs.
        most = min(CONNECTIONS_MAX, relay.take_room() // max(1, len(leads)))
        doors = []
        for lead in leads:
            port, _, target = lead.partition("=")
            address, _, inside = target.rpartition(":")
            doors.append((open_port(int(port)), Door((address, int(inside)), most)))
        holder = network.holder
        place = str(holder.descriptors[name])
        enter.enter(str(holder.pid), holder.process, place, holder.user)
    except (ClusterError, enter.EnterError, OSError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    asyncio.run(run(doors, watched))
    return 0


if __name__ == "__main__":
    sys.exit(main())
