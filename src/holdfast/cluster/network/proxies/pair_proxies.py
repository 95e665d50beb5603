"""The process that stands in for a network where namespaces are denied: a relay on each listener.

Each place has an address of the loopback device, and a node's listener a port there that is
advertised, which is ours, and another that is its own. Who dials is known by the address that it
dials from; whoever dials from none of ours counts as `host`. The links' agent is part of it, and
takes the same requests. It reads its task from standard input, which is its maker's lifeline:

    {"places": [...], "listeners": {"0": [[advertised port, own port]]}}     answer: ready
    settle                                                                 answer: settled

It owns the files beside it (`ground.DESCRIPTION`, `ground.SOCKET`), and removes them as it ends.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from holdfast.cluster import processes
from holdfast.cluster.layout import ClusterError
from holdfast.cluster.network import addresses, ground
from holdfast.cluster.network.addresses import Plan
from holdfast.cluster.network.holder import claim
from holdfast.cluster.network.link_table import Pair, Table, newly_swallowed
from holdfast.cluster.network.links import link_agent
from holdfast.cluster.network.links.link_rules import InForce
from holdfast.cluster.network.relays import relay
from holdfast.cluster.network.relays.pair_relays import Relays

_BACKLOG: Final = 128


class ProxyLinks:
    """The links as relays can have them. ClusterError: what only packets could show."""

    def __init__(self, plan: Plan, seed: str) -> None:
        self._plan = plan
        self._table: Table = {}
        self._relays = Relays(seed, 2 * relay.take_room())
        self._listeners: list[tuple[socket.socket, str, int]] = []

    def listen(self, name: str, advertised: int, own: int) -> None:
        """Take a node's advertised port, and lead from there to its own. OSError: it is taken."""
        address = self._plan.place(name).address
        listener = socket.create_server((address, advertised), backlog=_BACKLOG)
        self._listeners.append((listener, name, own))

    async def serve(self) -> None:
        for listener, name, own in self._listeners:

            async def take_in(
                reader: asyncio.StreamReader,
                writer: asyncio.StreamWriter,
                name: str = name,
                own: int = own,
            ) -> None:
                near = relay.End(reader, writer)
                peer = writer.get_extra_info("peername")
                if peer is None:  # it has gone already
                    near.reset()
                    return
                pair = (self._who(peer[0]), name)
                await self._relays.carry(pair, near, self._plan.place(name).address, own)

            await asyncio.start_server(take_in, sock=listener, limit=relay.CHUNK_BYTES)

    def _who(self, address: str) -> str:
        names = {place.address: place.name for place in self._plan.places}
        return names.get(address, addresses.HOST)

    def change(self, before: Table, after: Table, *, watch: bool = False) -> list[Pair]:
        """Make `after` of `before`, all of it or nothing. Nothing is watched: no packet is seen."""
        del watch
        if any(link.picks_packets for link in after.values()):
            raise ClusterError(
                "Single packets can be lost or reordered only in a network of its own, and "
                "proxies stand in for one here: they see TCP. Cut the link, or slow it."
            )
        self._table = after
        self._relays.change(after)
        for node, client in newly_swallowed(before, after):
            self._relays.end((client, node))
        return []

    def first_bytes(self) -> list[dict[str, Any]]:
        return []

    def look(self) -> InForce:
        return InForce(self._table, {}, self._relays.swallowed())

    def close(self) -> None:
        for listener, _, _ in self._listeners:
            listener.close()


async def run(enforcer: ProxyLinks, plan: Plan, listener: socket.socket) -> None:
    """Serve until the maker has gone, or, once it was settled, until SIGTERM."""
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, ended.set)

    def hear() -> None:
        said = os.read(0, 100)
        if said:
            os.write(1, b"settled\n")
        else:
            ended.set()
        loop.remove_reader(0)

    loop.add_reader(0, hear)
    agent = link_agent.Agent(plan, enforcer, {})
    await link_agent.serve(agent, enforcer, listener, ended)
    # The loop takes its handler back: one more would end us before our files are removed.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})


def describe(directory: Path, plan: Plan) -> None:
    """Write down who stands in for a network here."""
    values = {
        "format": ground.FORMAT,
        "how": "proxies",
        "proxies": {"pid": os.getpid(), "process": processes.identify(os.getpid())},
        "places": addresses.to_json(plan),
    }
    new = directory / f"{ground.DESCRIPTION}.new"
    new.write_text(json.dumps(values, indent=2) + "\n")
    new.replace(directory / ground.DESCRIPTION)


def main() -> int:
    directory = Path(sys.argv[1])
    line = ground.read_line(0, ground.MAKE_TIMEOUT_S)
    if not line.endswith(b"\n"):
        return 1
    task = json.loads(line)
    plan = addresses.from_json(task["places"])
    enforcer = ProxyLinks(plan, link_agent.SEED)
    try:
        claim(str(directory))  # until we end
    except OSError as error:
        sys.stdout.write(f"error: {error}\n")
        return 1
    try:
        ground.remove_files(directory)
        for name, ports in task["listeners"].items():
            for advertised, own in ports:
                enforcer.listen(name, advertised, own)
        listener = link_agent.bind(directory)
        describe(directory, plan)
        asyncio.run(run(enforcer, plan, listener))
    except OSError as error:
        sys.stdout.write(f"error: {error}\n")
        return 1
    finally:
        enforcer.close()
        for name in (ground.DESCRIPTION, ground.SOCKET, f"{ground.DESCRIPTION}.new"):
            with suppress(OSError):
                (directory / name).unlink(missing_ok=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
