"""A network in memory: hosts, links with a delay each way, cuts, resets, hosts that go away.

Owns when bytes arrive, and whether. Every chance comes from the seed. As over TCP, a cut holds
bytes back and loses none; a connection ends only by its ends, by a reset, or with a host.
"""

from __future__ import annotations

import asyncio
import contextvars
import errno
import os
import random
from collections import deque
from collections.abc import Callable
from enum import Enum, auto
from typing import Any, Final

from holdfast.runtime.ports import Listener, ProtocolT
from holdfast.testing.loop import current_process
from holdfast.testing.stream import MemoryTransport

_CONNECT_TIMEOUT_S = 127.0  # Linux gives up on a connection that nobody answers
_EPHEMERAL_PORT = 40_000
_LOOPBACK_S = 1e-5
_SELF = frozenset({"", "localhost", "127.0.0.1", "0.0.0.0", "::1", "::"})  # noqa: S104 - names
_SPLIT_CHANCE = 0.2

Fold = Callable[..., None]


class _Mark(Enum):
    OPEN = auto()
    REFUSED = auto()
    END = auto()
    RESET = auto()


class _Link:
    """From one host to another: whether it is cut, and what it holds back meanwhile."""

    def __init__(self) -> None:
        self.cut = False
        self.held: list[Callable[[], None]] = []


class _Pipe:
    """One direction of one connection: pieces arrive in order, each by a timer of its own."""

    def __init__(self, fabric: Fabric, source: str, target: str) -> None:
        self._fabric = fabric
        self._source = source
        self._target = target
        self._pieces: deque[bytes | _Mark] = deque()
        self._last_s = 0.0
        self._ended = False
        self.opened: Callable[[bool], MemoryTransport | None] | None = None
        self._to: MemoryTransport | None = None
        self.back: _Pipe | None = None

    def open(self, *, accepted: bool = True) -> None:
        """Carry the first packet; `opened` is called when it arrives, and makes the end there."""
        self._put(_Mark.OPEN if accepted else _Mark.REFUSED)

    def carry(self, data: bytes) -> None:
        draw = self._fabric.draw
        # Boundaries between sends mean nothing to TCP, so they must not survive here.
        if len(data) > 1 and draw.random() < _SPLIT_CHANCE:
            at = draw.randrange(1, len(data))
            self._put(data[:at])
            self._put(data[at:])
        else:
            self._put(data)

    def finish(self) -> None:
        if not self._ended:
            self._ended = True
            self._put(_Mark.END)

    def reset(self) -> None:
        self._ended = True
        self._pieces.clear()
        self._put(_Mark.RESET)

    def clear(self) -> None:
        """Forget what is under way: the sender has lost power."""
        self._ended = True
        self._pieces.clear()

    def _put(self, piece: bytes | _Mark) -> None:
        self._pieces.append(piece)
        now = asyncio.get_running_loop().time()
        self._last_s = max(self._last_s, now + self._fabric.delay_s(self._source, self._target))
        self._fabric.at(self._last_s, self._arrive)

    def _arrive(self) -> None:
        if self._fabric.holds(self._source, self._target, self._arrive) or not self._pieces:
            return
        piece = self._pieces.popleft()
        if piece is _Mark.OPEN or piece is _Mark.REFUSED:
            assert self.opened is not None, "somebody opens it"
            self._to = self.opened(piece is _Mark.OPEN)
        elif self._to is None or self._to.vanished:
            # The host is up and knows nothing of this connection.
            if piece is not _Mark.RESET and self.back is not None:
                self.back.reset()
        elif piece is _Mark.END:
            self._to.arrive_end()
        elif piece is _Mark.RESET:
            self._to.arrive_reset()
        else:
            assert isinstance(piece, bytes)
            self._to.arrive(piece)


class _Attempt:
    """One connection being made: a packet there, an answer back, then an end at each side."""

    def __init__(self, fabric: Fabric, here: str, there: str, port: int) -> None:
        self._fabric = fabric
        self._here = here
        self._there = there
        self._port = port
        self._local_port = fabric.take_port(here)
        self._context = contextvars.copy_context()
        self._process = current_process()
        self._client: MemoryTransport | None = None
        self._server: MemoryTransport | None = None
        self._out = _Pipe(fabric, here, there)
        self._in = _Pipe(fabric, there, here)
        self._out.back, self._in.back = self._in, self._out
        self._out.opened, self._in.opened = self._accept, self._answer
        self.factory: Callable[[], asyncio.BaseProtocol] = asyncio.Protocol
        self.done: asyncio.Future[MemoryTransport] = asyncio.get_running_loop().create_future()

    def begin(self, factory: Callable[[], asyncio.BaseProtocol]) -> None:
        self.factory = factory
        self._out.open()

    def time_out(self) -> None:
        if not self.done.done():
            self.done.set_exception(_error(errno.ETIMEDOUT))

    def _accept(self, _accepted: bool) -> MemoryTransport | None:
        """At the host that is called."""
        listener = self._fabric.listeners.get((self._there, self._port))
        if listener is None:
            self._in.open(accepted=False)
            return None
        context = listener.context.copy()
        self._server = MemoryTransport(
            context.run(listener.factory),
            self._in,
            context,
            self._names(self._there, self._port, self._here, self._local_port),
            self._fabric.fold,
        )
        self._fabric.enter(self._server, self._there, self._here, self._in)
        self._server.open()
        self._in.open()
        return self._server

    def _answer(self, accepted: bool) -> MemoryTransport | None:
        """Back at the host that calls."""
        alive = self._process is None or self._process.alive
        if not alive or self.done.done():
            if accepted:
                self._out.reset()
            return None
        if not accepted:
            self.done.set_exception(_error(errno.ECONNREFUSED))
            return None
        client = MemoryTransport(
            self._context.run(self.factory),
            self._out,
            self._context,
            self._names(self._here, self._local_port, self._there, self._port),
            self._fabric.fold,
        )
        self._fabric.enter(client, self._here, self._there, self._out)
        assert self._server is not None, "who accepts has made its end"
        client.other, self._server.other = self._server, client
        client.open(lambda: self._finish(client))
        return client

    def _finish(self, client: MemoryTransport) -> None:
        if self.done.done():
            client.abort()
        else:
            self.done.set_result(client)

    def _names(self, here: str, here_port: int, there: str, there_port: int) -> dict[str, Any]:
        return {
            "sockname": (self._fabric.address(here), here_port),
            "peername": (self._fabric.address(there), there_port),
        }


class _MemoryListener:
    def __init__(
        self, fabric: Fabric, host: str, port: int, factory: Callable[[], asyncio.BaseProtocol]
    ) -> None:
        self._fabric = fabric
        self._host = host
        self._port = port
        self.factory = factory
        self.context = contextvars.copy_context()

    @property
    def port(self) -> int:
        return self._port

    def close(self) -> None:
        if self._fabric.listeners.get((self._host, self._port)) is self:
            del self._fabric.listeners[self._host, self._port]


class Fabric:
    """All hosts and the links between them; one for each run."""

    def __init__(
        self,
        seed: int | str = 0,
        *,
        delay_us: tuple[int, int] = (50, 500),
        fold: Fold = lambda *_: None,
    ) -> None:
        self.draw: Final = random.Random(f"network/{seed}")
        self.delay_us = delay_us  # bounds of a link's delay; may change at any time
        self.fold: Final = fold
        self.listeners: dict[tuple[str, int], _MemoryListener] = {}
        self._links: dict[tuple[str, str], _Link] = {}
        self._hosts: dict[str, int] = {}  # name -> number, which gives the address
        self._next_port: dict[str, int] = {}
        self._dark: set[str] = set()  # without power; asked for members only
        self._ends: dict[MemoryTransport, tuple[str, str, _Pipe]] = {}

    def host(self, name: str) -> HostNetwork:
        """Return the network port of a host; made anew for each process on it.

        A host that was dark is lit again: connections from before the power cut get a reset
        when their other ends next send, or have sent.
        """
        assert name not in _SELF, "those names mean the host that asks"
        self._hosts.setdefault(name, len(self._hosts) + 1)
        if name in self._dark:
            self._dark.discard(name)
            for (_, target), link in list(self._links.items()):
                if target == name and not link.cut:
                    self._release(link)
        return HostNetwork(self, name)

    # What goes wrong.

    def cut(self, source: str, target: str) -> None:
        """From now on nothing gets from `source` to `target`; it waits."""
        self._link(source, target).cut = True
        self.fold("cut", source, target)

    def heal(self, source: str, target: str) -> None:
        """Let through again what waited, and all that follows."""
        link = self._link(source, target)
        link.cut = False
        self.fold("heal", source, target)
        self._release(link)

    def isolate(self, name: str) -> None:
        """Cut a host from all others, both ways."""
        for other in self._hosts:
            if other != name:
                self.cut(name, other)
                self.cut(other, name)

    def heal_all(self) -> None:
        for source, target in list(self._links):
            self.heal(source, target)

    def reset(self, one: str, other: str) -> None:
        """Reset every connection between two hosts, as a firewall that forgets them would."""
        self.fold("reset", one, other)
        for end, (here, there, _) in list(self._ends.items()):
            if {here, there} == {one, other} and not end.vanished:
                end.arrive_reset()

    def kill(self, name: str, *, silently: bool = False) -> None:
        """The process on a host is gone. Its kernel ends the connections, unless `silently`:
        the power is gone too, and others hear nothing until the host is made again.
        """
        self.fold("kill", name, int(silently))
        for where in [where for where in self.listeners if where[0] == name]:
            del self.listeners[where]
        if silently:
            self._dark.add(name)
        for end, (here, _, pipe) in list(self._ends.items()):
            if here != name or end.vanished:
                continue
            unread = end.vanish()
            if silently:
                pipe.clear()
            elif unread:
                pipe.reset()
            else:
                pipe.finish()

    # For the other classes of this module.

    def holds(self, source: str, target: str, arrive: Callable[[], None]) -> bool:
        """True if a link lets nothing through now; `arrive` is called when it does again."""
        link = self._link(source, target)
        if link.cut or target in self._dark:
            link.held.append(arrive)
            return True
        return False

    def delay_s(self, source: str, target: str) -> float:
        return _LOOPBACK_S if source == target else self.draw.randint(*self.delay_us) / 1e6

    def at(self, when: float, callback: Callable[[], None]) -> None:
        """Schedule for the network itself: what is under way outlives the process that sent it."""
        asyncio.get_running_loop().call_at(when, callback, context=contextvars.Context())

    def resolve(self, name: str, asking: str) -> str:
        """Name of the host that a name or an address means to the host `asking`."""
        if name in _SELF:
            return asking
        for known in self._hosts:
            if name in {known, self.address(known)}:
                return known
        raise OSError(errno.EHOSTUNREACH, f"no host {name!r} in this network")

    def address(self, name: str) -> str:
        return f"10.0.0.{self._hosts[name]}"

    def take_port(self, name: str) -> int:
        port = self._next_port.get(name, _EPHEMERAL_PORT)
        while (name, port) in self.listeners:
            port += 1
        self._next_port[name] = port + 1
        return port

    def enter(self, end: MemoryTransport, here: str, there: str, pipe: _Pipe) -> None:
        """Remember an end of a connection, and forget those that are over."""
        for old in [old for old in self._ends if old.is_over]:
            del self._ends[old]
        self._ends[end] = (here, there, pipe)

    def _link(self, source: str, target: str) -> _Link:
        found = self._links.get((source, target))
        if found is None:
            found = self._links[source, target] = _Link()
        return found

    def _release(self, link: _Link) -> None:
        held, link.held = link.held, []
        now = asyncio.get_running_loop().time()
        for arrive in held:
            self.at(now + self.draw.randint(*self.delay_us) / 1e6, arrive)


class HostNetwork:
    """The network port as the process on one host has it."""

    def __init__(self, fabric: Fabric, name: str) -> None:
        self._fabric = fabric
        self.name: Final = name

    async def listen(
        self, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int
    ) -> Listener:
        if self._fabric.resolve(host, self.name) != self.name:
            raise _error(errno.EADDRNOTAVAIL)
        port = port or self._fabric.take_port(self.name)
        if (self.name, port) in self._fabric.listeners:
            raise _error(errno.EADDRINUSE)
        listener = _MemoryListener(self._fabric, self.name, port, factory)
        self._fabric.listeners[self.name, port] = listener
        return listener

    async def connect(
        self, factory: Callable[[], ProtocolT], host: str, port: int
    ) -> tuple[asyncio.Transport, ProtocolT]:
        there = self._fabric.resolve(host, self.name)
        made: list[ProtocolT] = []

        def make() -> ProtocolT:
            made.append(factory())
            return made[-1]

        attempt = _Attempt(self._fabric, self.name, there, port)
        attempt.begin(make)
        loop = asyncio.get_running_loop()
        give_up = loop.call_later(_CONNECT_TIMEOUT_S, attempt.time_out)
        try:
            transport = await attempt.done
        finally:
            give_up.cancel()
        return transport, made[-1]


def _error(code: int) -> OSError:
    return OSError(code, os.strerror(code))
