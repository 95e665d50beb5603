"""The process that keeps a network's links: takes requests, and puts the table in force.

It runs in the router's namespace, listens on a Unix socket beside the network's description, and
ends when the network's holder does. A request is one line of JSON, and so is its answer. Requests
are dealt with one after the other, each as a whole. It must survive whatever is sent to it.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
import time
from collections.abc import Awaitable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

from holdfast.cluster.layout import ClusterError, UsageError
from holdfast.cluster.network import ground, link_table
from holdfast.cluster.network.addresses import Plan
from holdfast.cluster.network.holding import watch_holder
from holdfast.cluster.network.link_table import Pair, Table
from holdfast.cluster.network.links import link_requests
from holdfast.cluster.network.links.link_calls import LOOKS
from holdfast.cluster.network.links.link_kernel import KernelLinks
from holdfast.cluster.network.links.link_requests import Request
from holdfast.cluster.network.links.link_rules import InForce

LINE_BYTES_MAX: Final = 64 << 10
CONNECTIONS_MAX: Final = 64
TURN_AWAY_S: Final = 1.0
# Until when a connection has sent a request, and taken the answer: who holds one of the places
# without asking would keep everybody else out.
REQUEST_S: Final = 2.0
ANSWERS_KEPT: Final = 1000
ID_LENGTH_MAX: Final = 100
SEED: Final = "0"  # of jitter and reordering: the same packets wait the same times

T = TypeVar("T")


class Enforcer(Protocol):
    """What puts a table of links in force: the kernel's rules, or relays."""

    def change(self, before: Table, after: Table, *, watch: bool = False) -> list[Pair]:
        """Make `after` of `before`, all of it or nothing. ClusterError says why it can't be.

        Return whose connections (who dialled, whom) had to be reset for it to be in force.
        `watch`: from now on `first_bytes` tells of links that were cut and are not any more.
        """

    def first_bytes(self) -> list[dict[str, Any]]:
        """Return when the first byte passed over healed links, where packets can be seen."""

    def look(self) -> InForce:
        """Return what is in force, and what was dropped."""

    async def serve(self) -> None:
        """Begin what has to run beside."""

    def close(self) -> None:
        """End what runs beside."""


class Agent:
    """The table of one network, and the answers of late."""

    def __init__(self, plan: Plan, enforcer: Enforcer, table: Table) -> None:
        self._plan, self._enforcer, self._table = plan, enforcer, table
        self._answers: dict[str, dict[str, Any]] = {}  # by request id, the oldest first
        self._connections = 0

    def answer(self, line: bytes) -> dict[str, Any]:
        """Do what a line asks for, and return the answer. Never raises."""
        try:
            asked = json.loads(line)
        except (ValueError, RecursionError):
            return _refusal("A request is one line of JSON.", usage=True)
        if not isinstance(asked, dict):
            return _refusal("A request is a JSON object.", usage=True)
        name = asked.get("id")
        if name is not None and not (isinstance(name, str) and len(name) <= ID_LENGTH_MAX):
            return _refusal(f"'id' is a text of at most {ID_LENGTH_MAX} characters.", usage=True)
        if name is not None and name in self._answers:
            return self._answers[name]
        until_s = asked.pop("until_s", None)
        if until_s is not None and not isinstance(until_s, (int, float)):
            return _refusal("'until_s' is a time of the monotonic clock.", usage=True)
        if until_s is not None and time.monotonic() > until_s:
            return _refusal("It came too late: who asked for it has given up.", usage=False)
        try:
            said = self._do(asked)
        except UsageError as error:
            said = _refusal(str(error), usage=True)
        except ClusterError as error:
            said = _refusal(str(error), usage=False)
        # A look is as large as the network, and does nothing that must not be done twice.
        if name is not None and asked.get("do") not in LOOKS:
            self._answers[name] = said
            if len(self._answers) > ANSWERS_KEPT:
                del self._answers[next(iter(self._answers))]
        return said

    def _do(self, asked: Request) -> dict[str, Any]:
        if asked.get("do") == "status":
            return link_requests.status(self._table, self._enforcer.look())
        if asked.get("do") == "first-bytes":
            return {"links": self._enforcer.first_bytes()}
        after = link_requests.decide(self._plan, self._table, asked)
        changed = link_table.changed_pairs(self._table, after)
        reset = self._enforcer.change(self._table, after, watch=link_requests.watches(asked))
        self._table = after
        said = {"changed": [list(pair) for pair in changed]}
        return {**said, "reset": [list(pair) for pair in reset]} if reset else said

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one connection's requests in their order, until it ends."""
        self._connections += 1
        try:
            if self._connections > CONNECTIONS_MAX:
                text = f"{CONNECTIONS_MAX} others are asking."
                await _turn_away(reader, writer, _refusal(text, usage=False))
                return
            while line := await _in_time(reader.readline()):
                _write(writer, self.answer(line))
                await _in_time(writer.drain())
        except ValueError:  # of readline
            most = f"A request has at most {LINE_BYTES_MAX} bytes."
            await _turn_away(reader, writer, _refusal(most, usage=True))
        except OSError:
            pass  # who asked has gone, or does not ask in time (a TimeoutError)
        finally:
            self._connections -= 1
            writer.close()


async def _in_time(doing: Awaitable[T]) -> T:
    async with asyncio.timeout(REQUEST_S):
        return await doing


async def _turn_away(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, said: dict[str, Any]
) -> None:
    """Say this, and read what still comes: who leaves it unread takes the words back."""
    _write(writer, said)
    with suppress(OSError):  # a TimeoutError, too
        writer.write_eof()
        async with asyncio.timeout(TURN_AWAY_S):
            while await reader.read(LINE_BYTES_MAX):
                pass


def _write(writer: asyncio.StreamWriter, values: dict[str, Any]) -> None:
    writer.write(json.dumps(values).encode() + b"\n")


def _refusal(text: str, *, usage: bool) -> dict[str, Any]:
    return {"error": text, "usage": usage}


def bind(directory: Path) -> socket.socket:
    """Return the listening socket in a directory, however long its path is."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        folder = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        os.umask(0o077)
        try:
            (directory / ground.SOCKET).unlink(missing_ok=True)
            listener.bind(f"/proc/self/fd/{folder}/{ground.SOCKET}")
        finally:
            os.close(folder)
        listener.listen(CONNECTIONS_MAX)
        return socket.socket(fileno=listener.detach())


async def serve(
    agent: Agent, enforcer: Enforcer, listener: socket.socket, ended: asyncio.Event
) -> None:
    """Say that it is ready, and serve until it is to end."""
    await enforcer.serve()
    server = await asyncio.start_unix_server(agent.serve, sock=listener, limit=LINE_BYTES_MAX)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    await ended.wait()
    server.close()


async def run(agent: Agent, enforcer: Enforcer, listener: socket.socket, watched: int) -> None:
    """Serve until the process behind `watched` has ended."""
    ended = asyncio.Event()
    asyncio.get_running_loop().add_reader(watched, ended.set)
    await serve(agent, enforcer, listener, ended)


def main() -> int:
    directory = Path(sys.argv[1])
    try:
        network = ground.open_network(directory)
        watched = watch_holder(network.holder)
        enforcer = KernelLinks(network.plan, ground.find_tools(), network.holder, SEED)
        agent = Agent(network.plan, enforcer, enforcer.begin())
        listener = bind(directory)
        ours = _which(directory)
    except (ClusterError, OSError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    try:
        asyncio.run(run(agent, enforcer, listener, watched))
    finally:
        enforcer.close()
        with suppress(OSError):
            if _which(directory) == ours:  # and not one of the next network there
                (directory / ground.SOCKET).unlink(missing_ok=True)
    return 0


def _which(directory: Path) -> tuple[int, int, int]:
    """Tell a directory's socket from any other that was or will be there."""
    found = (directory / ground.SOCKET).stat()
    return found.st_dev, found.st_ino, found.st_ctime_ns


if __name__ == "__main__":
    sys.exit(main())
