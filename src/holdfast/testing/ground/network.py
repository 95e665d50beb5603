"""A network in memory: hosts, links with a delay each way, cuts, resets, hosts that go away.

Owns when bytes arrive, and whether. Every chance comes from the seed. As over TCP, a cut holds
bytes back and loses none; a connection ends only by its ends, by a reset, with a host, or because
its sender waited for an acknowledgement for too long.
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
from holdfast.testing.ground.links import GIVE_UP_S, Link, Weather
from holdfast.testing.ground.loop import VirtualLoop, current_process
from holdfast.testing.ground.stream import MemoryTransport

_CONNECT_TIMEOUT_S = 127.0  # Linux gives up on a connection that nobody answers
_EPHEMERAL_PORT = 40_000
_LOOPBACK_S = 1e-5
_SELF = frozenset({"", "localhost", "127.0.0.1", "0.0.0.0", "::1", "::"})  # noqa: S104 - names
_HEADER_BYTES = 66  # of a segment, as a throttled link counts them

Fold = Callable[..., None]


class _Mark(Enum):
    OPEN = auto()
    REFUSED = auto()
    END = auto()
    RESET = auto()


class _Pipe:
    """One direction of one connection: pieces arrive in order, each at a time of its own."""

    def __init__(self, fabric: Fabric, source: str, target: str) -> None:
        self._fabric = fabric
        self._source = source
        self._target = target
        self._link = fabric.link(source, target)
        self._loop = fabric.loop
        self._pieces: deque[tuple[float, bytes | _Mark]] = deque()  # when each is due
        self._last_s = 0.0
        self._ended = False
        self._swallowed = False
        self._stalls = 0  # numbers the times when nothing got through
        self._stalled = False
        self.opened: Callable[[bool], MemoryTransport | None] | None = None
        self._to: MemoryTransport | None = None
        self.back: _Pipe | None = None
        self.sender: MemoryTransport | None = None

    def open(self, *, accepted: bool = True) -> None:
        """Carry the first packet; `opened` is called when it arrives, and makes the end there."""
        self._put(_Mark.OPEN if accepted else _Mark.REFUSED)

    def carry(self, data: bytes) -> None:
        fabric = self._fabric
        # Boundaries between sends mean nothing to TCP, so they must not survive here.
        if len(data) > 1 and fabric.draw.random() < fabric.split:
            at = fabric.draw.randrange(1, len(data))
            self._put(data[:at])
            self._put(data[at:])
        else:
            self._put(data)

    def acknowledge(self, count: int) -> None:
        """What came the other way was read: its sender's window opens, once he can be told."""
        if self._fabric.is_cut(self._link, self._target):
            self._link.held.append(lambda: self.acknowledge(count))
        elif self._to is not None:
            self._to.was_read(count)

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

    def swallow(self) -> None:
        """From now on nothing of this connection gets through, and nobody is told."""
        self._swallowed = True
        if self._pieces:
            self._pieces.clear()
            self._stall()

    def _put(self, piece: bytes | _Mark) -> None:
        if self._swallowed:
            self._stall()
            return
        fabric = self._fabric
        now = self._loop.now
        size = _HEADER_BYTES + (len(piece) if isinstance(piece, bytes) else 0)
        transit_s = fabric.transit_s(self._link, self._source == self._target, now, size)
        if transit_s is None:
            fabric.fold("give up", self._source, self._target)
            self._swallowed = True
            self._stall()
            return
        arrives = max(self._last_s, now + transit_s)
        waiting = bool(self._pieces) and self._pieces[-1][0] == arrives
        self._pieces.append((arrives, piece))
        if not waiting:  # or the timer of the one before takes it along
            self._last_s = arrives
            self._loop.at(arrives, self._arrive)

    def _arrive(self) -> None:
        if self._fabric.is_cut(self._link, self._target):
            self._link.held.append(self._arrive)
            self._stall()
            return
        now = self._loop.now
        self._stalled = False
        pieces = self._pieces
        while pieces and pieces[0][0] <= now:
            piece = pieces.popleft()[1]
            to = self._to
            if type(piece) is bytes and to is not None and not to.vanished:
                to.arrive(piece)
            else:
                self._deliver(piece)

    def _deliver(self, piece: bytes | _Mark) -> None:
        if piece is _Mark.OPEN or piece is _Mark.REFUSED:
            assert self.opened is not None, "somebody opens it"
            self._to = self.opened(piece is _Mark.OPEN)
        elif self._to is None or self._to.vanished:
            # The host is up and knows nothing of this connection.
            if piece is not _Mark.RESET and self.back is not None:
                self.back.reset()
        elif piece is _Mark.END:
            self._to.arrive_end()
        else:
            assert piece is _Mark.RESET, "data was looked at before"
            self._to.arrive_reset()

    def _stall(self) -> None:
        """Nothing gets through. If that lasts, the sender's kernel gives up."""
        if not self._stalled:
            self._stalled = True
            self._stalls += 1
            loop = self._loop
            loop.at(loop.now + self._fabric.give_up_s, self._give_up, self._stalls)

    def _give_up(self, stall: int) -> None:
        if self._stalled and stall == self._stalls and self.sender is not None:
            self._swallowed = True
            self._pieces.clear()
            if not self.sender.vanished:
                self.sender.arrive_failure(_error(errno.ETIMEDOUT))


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
        self._server = self._in.sender = MemoryTransport(
            listener.factory,
            self._in,
            listener.context.copy(),
            self._names(self._there, self._port, self._here, self._local_port),
            self._fabric,
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
        client = self._out.sender = MemoryTransport(
            self.factory,
            self._out,
            self._context,
            self._names(self._here, self._local_port, self._there, self._port),
            self._fabric,
        )
        self._fabric.enter(client, self._here, self._there, self._out)
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
        self.port = port
        self.factory = factory
        self.context = contextvars.copy_context()

    def close(self) -> None:
        if self._fabric.listeners.get((self._host, self.port)) is self:
            del self._fabric.listeners[self._host, self.port]


class Fabric:
    """All hosts and the links between them; one for each run."""

    def __init__(
        self,
        seed: int | str = 0,
        *,
        weather: Weather | None = None,
        fold: Fold = lambda *_: None,
    ) -> None:
        self.draw: Final = random.Random(f"network/{seed}")
        self.weather = weather or Weather()  # of all links that have none of their own
        self.split = 0.1  # chance that what was sent at once arrives in two pieces
        self.give_up_s = GIVE_UP_S  # after which a sender that nobody acknowledges gives up
        self.fold: Final = fold
        self.listeners: dict[tuple[str, int], _MemoryListener] = {}
        self._links: dict[tuple[str, str], Link] = {}
        self._hosts: dict[str, int] = {}  # name -> number, which gives the address
        self._next_port: dict[str, int] = {}
        self._dark: set[str] = set()  # without power; asked for members only
        self._ends: dict[MemoryTransport, tuple[str, str, _Pipe]] = {}
        self.over: list[MemoryTransport] = []  # ends at which nothing can arrive any more
        self._loop: VirtualLoop | None = None

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

    @property
    def loop(self) -> VirtualLoop:
        found = self._loop
        if found is None:
            found = self._loop = VirtualLoop.running()
        return found

    # What goes wrong.

    def cut(self, source: str, target: str) -> None:
        """From now on nothing gets from `source` to `target`; it waits."""
        self.link(source, target).cut = True
        self.fold("cut", source, target)

    def heal(self, source: str, target: str) -> None:
        """Let through again what waited, and all that follows."""
        link = self.link(source, target)
        link.cut = False
        self.fold("heal", source, target)
        self._release(link)

    def change_weather(self, source: str, target: str, weather: Weather | None) -> None:
        """Give one direction of a link a weather of its own; None: as everywhere again."""
        self.link(source, target).weather = weather
        self.fold("weather", source, target, str(weather))

    def clog(self, source: str, target: str, seconds: float) -> None:
        """Whatever is sent within the next seconds arrives after them, all at once."""
        until_s = self.loop.now + seconds
        link = self.link(source, target)
        link.clogged_until_s = max(link.clogged_until_s, until_s)
        self.fold("clog", source, target, f"{until_s:.6f}")

    def forget(self, one: str, other: str) -> None:
        """Swallow all that the present connections between two hosts carry, both ways.

        Neither end is told, as when a firewall between them forgets: half-open connections. New
        ones work. Who has sent something learns of it when his kernel gives up.
        """
        self.fold("forget", one, other)
        for here, there, pipe in list(self._ends.values()):
            if {here, there} == {one, other}:
                pipe.swallow()

    def isolate(self, name: str) -> None:
        """Cut a host from all others, both ways."""
        for other in self._hosts:
            if other != name:
                self.cut(name, other)
                self.cut(other, name)

    def heal_all(self) -> None:
        """Mend every cut. The weather stays."""
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

    def is_cut(self, link: Link, target: str) -> bool:
        """True if a link lets nothing through now; what it holds then comes when it is mended."""
        return link.cut or target in self._dark

    def transit_s(self, link: Link, loopback: bool, now: float, size: int) -> float | None:
        """Seconds until a segment arrives; None: never, its sender gives up."""
        if loopback:
            return _LOOPBACK_S
        return link.transit_s(link.weather or self.weather, now, size, self.draw, self.give_up_s)

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
        for old in self.over:
            self._ends.pop(old, None)
        self.over.clear()
        self._ends[end] = (here, there, pipe)

    def link(self, source: str, target: str) -> Link:
        return self._links.setdefault((source, target), Link())

    def _release(self, link: Link) -> None:
        held, link.held = link.held, []
        low, high = (link.weather or self.weather).delay_us
        for arrive in held:
            self.loop.at(self.loop.now + self.draw.randint(low, high) / 1e6, arrive)


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
        give_up = asyncio.get_running_loop().call_later(_CONNECT_TIMEOUT_S, attempt.time_out)
        try:
            transport = await attempt.done
        finally:
            give_up.cancel()
        return transport, made[-1]


def _error(code: int) -> OSError:
    return OSError(code, os.strerror(code))
