"""One client's connection: frames in, answers out in the order of the requests.

Owns the receive buffer, the queue of answers, and the bounds on both. A frame is parsed in place
and handled at once, inside the callback that received it; views into it die when the handler
returns. It knows nothing of any API: `dispatch` does.

Rules: connections.md#order-of-answers.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from math import inf
from struct import Struct
from typing import cast

from holdfast.node.door.admission import Admission
from holdfast.node.door.budget import LIGHT_BYTES, Budget
from holdfast.node.door.left_behind import LeftBehind
from holdfast.node.door.line import DEAR_BYTES, DEAR_S, PIECE_REST_S, REST_S, SLICE_S, Line
from holdfast.node.door.request_bounds import (
    HOT,
    PRODUCE,
    SMALL_BYTES_MAX,
    frame_bytes_max,
)
from holdfast.node.door.request_context import ANONYMOUS, Buffers, Client, Deferred
from holdfast.runtime.own_time import OwnTime
from holdfast.wire.errors import WireError
from holdfast.wire.messages import api_name

logger = logging.getLogger("holdfast.connection")

BUFFER_BYTES = 4 * 1024  # of a connection that begins; most never need more
BUFFER_FULL_BYTES = 64 * 1024  # one that receives as much as there is room for gets up to this
BUFFER_GROWTH = 4
BUFFER_KEPT_BYTES = 2 * 1024 * 1024  # a larger one is given back once its frame is handled
BUFFER_SILENT_S = 5.0  # and any other one of who says nothing for so long
JOINED_BYTES_MAX = 32 * 1024  # answers up to this go out in one write
FLOOD_REQUESTS = 16  # received and not looked at yet; clients have five on their way, as a rule
PIECE_BYTES = 1024  # a frame that comes in smaller ones than this
PIECES_MAX = 4  # and in more of them than so many has to wait between them
REFUSALS_LOGGED_MAX = 100  # in one stretch of so many seconds: a scanner must not fill the log
REFUSALS_STRETCH_S = 60.0

NO_BUFFER = bytearray()
_LENGTH = Struct(">i")
_KEY = Struct(">h")

# Handles one frame: returns what to send, a Deferred for later, or None when there is no answer.
Handle = Callable[["Connection", memoryview], Buffers | Deferred | None]


class Connections:
    """All connections of one listener, and what they share."""

    def __init__(
        self,
        *,
        listener: str,
        handle: Handle,
        frame_bytes_max: int,
        admission: Admission | None = None,
        budget: Budget | None = None,
        dear_s: float = DEAR_S,
        is_protected: bool = False,
    ) -> None:
        """`dear_s` is how long a request may take before its connection has to let others go.

        `is_protected`: where a node is full, clients go first.
        """
        self.listener = listener
        self.is_protected = is_protected
        self.dear_s = dear_s
        self.handle = handle
        self.frame_bytes_max = frame_bytes_max
        self.admission = Admission() if admission is None else admission
        self.budget = budget or Budget()
        self.bounds = self.budget.bounds
        self.held = True  # until the node is ready, requests stay unread
        self.open: dict[Connection, None] = {}
        self.buffered: dict[Connection, None] = {}  # those of them that have a receive buffer
        self.refused = 0  # connections closed on because they don't speak the protocol (a metric)
        self.hot = Line()  # those that have more records to move than a slice of the loop allows
        self.many = Line()  # those that ask much else at once, or send it byte by byte
        self.dear = Line()  # those that ask what takes long
        self.own_time = OwnTime()
        self._stretch_began = float("-inf")  # loop time, seconds
        self._logged = 0  # in this stretch
        self._silent = 0

    @property
    def rests(self) -> bool:
        """Whether who asks much has to let others have the loop for longer than it had it."""
        return self.dear_s < inf

    def accept(self) -> Connection:
        """Make the protocol of one accepted connection."""
        return Connection(self)

    def refuse(self, peer: str, why: str) -> None:
        """Note that a connection is closed on; log it, unless too many were logged lately."""
        self.refused += 1
        now = asyncio.get_running_loop().time()
        if now - self._stretch_began >= REFUSALS_STRETCH_S:
            self._stretch_began, self._logged = now, 0
        if self._logged == REFUSALS_LOGGED_MAX:
            self._silent += 1
            return
        self._logged += 1
        silent, self._silent = self._silent, 0
        logger.warning(
            "closing the connection of %s on listener %s: %s%s",
            peer,
            self.listener,
            why,
            f" ({silent} more were closed on and not logged)" if silent else "",
        )

    def release(self) -> None:
        """The node is ready: answer everybody who has connected meanwhile."""
        self.held = False
        for connection in list(self.open):
            connection.resume()

    def close(self) -> None:
        """Close every connection, after sending what is ready."""
        for connection in list(self.open):
            connection.close()

    def close_idle(self, before: float) -> None:
        """Close every connection that has been silent since `before` (loop time, seconds)."""
        for connection in list(self.open):
            if connection.active_at < before and not connection.slots:
                connection.leave()

    def give_buffers_back(self) -> None:
        """Free the receive buffers of those who are silent; called every so often."""
        before = asyncio.get_running_loop().time() - BUFFER_SILENT_S
        for connection in list(self.buffered):
            if connection.active_at < before:
                connection.give_buffer_back()


class Connection(asyncio.BufferedProtocol):
    """One accepted connection."""

    def __init__(self, group: Connections) -> None:
        self.group = group
        self.peer = "?"
        # Anonymous until an authentication gate has established who it is.
        self.client = Client(ANONYMOUS, "?", group.listener)
        self.authenticated = True  # a PLAINTEXT listener has nothing to ask for
        self.slots: deque[Deferred] = deque()
        self._held_bytes = 0  # what the answers in them have, or may come to have
        self._held_partitions = 0  # that they wait for
        self._ready_bytes = 0  # what those of them have that wait for their turn only
        self._is_debtor = False
        self._kept_bytes = 0  # of requests that wait
        self._kept_told = 0  # of them, as the node was told last
        self.active_at = 0.0
        self.is_protected = group.is_protected
        self._muted = 0  # reasons why nothing is looked at: requests that wait, throttles
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._clogged = False  # the peer has not taken all that was sent
        self._reading = True
        self._parsing = False
        self._in_line = False  # others go first; nothing is read meanwhile
        self._pieces = 0  # small ones that a frame has come in
        self._buffer = NO_BUFFER
        self._view = memoryview(NO_BUFFER)
        self._filled = 0

    @property
    def host(self) -> str:
        """The address that it comes from."""
        return self.client.host

    @property
    def is_owed(self) -> bool:
        """Whether it waits for an answer, or is in the middle of taking one."""
        return bool(self.slots) or self._clogged

    # -- the transport's calls -----------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is of no such class
        self._transport.set_write_buffer_limits(high=LIGHT_BYTES)
        if name := transport.get_extra_info("peername"):
            self.client = self.client._replace(host=name[0])
            self.peer = f"{name[0]}:{name[1]}"
        self.active_at = self._loop.time()
        if self.group.admission.admit(self):
            self.group.open[self] = None
        else:
            self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        if exc is not None:
            logger.debug("connection %s lost: %s", self.peer, exc)
        has_left = self._transport is not None  # else it was closed on, and is to cost nothing more
        self._transport = None
        left = self.slots.pop() if has_left and self.slots and self.slots[-1].outlives else None
        self._forget()
        self._filled = 0
        self.give_buffer_back()
        if left is not None:
            LeftBehind(left, self, self.group.admission, self.group.budget.requests)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - asyncio's signature
        if not self._buffer:
            self._resize(BUFFER_BYTES)
            self.group.buffered[self] = None
        return self._view[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        if not self._filled:  # of a frame that never ends, no byte but the first counts
            self.active_at = self._loop.time()
        self._filled += nbytes
        size = len(self._buffer)
        is_full = self._filled == size
        self._parse()
        if is_full and size == len(self._buffer) < BUFFER_FULL_BYTES:
            self._resize(BUFFER_GROWTH * size)
        elif self._filled and nbytes < PIECE_BYTES:
            self._count_piece()

    def _count_piece(self) -> None:
        """Let a frame that comes byte by byte wait, so that more of it comes together."""
        self._pieces += 1
        if self._pieces > PIECES_MAX and self._may_read and self.group.rests:
            self.group.many.rest_after(0.0, PIECE_REST_S)
            self._stand_in(self.group.many)
            self._settle_reading()

    def pause_writing(self) -> None:
        self._clogged = True
        self._owe()
        self._settle_reading()

    def resume_writing(self) -> None:
        self._clogged = False
        self._owe()
        self.resume()

    # -- frames in -----------------------------------------------------------------------------

    @property
    def _may_read(self) -> bool:
        bounds = self.group.bounds
        return (
            not self._muted
            and not self._in_line
            and not self.group.held
            and len(self.slots) < bounds.requests
            and self._held_bytes <= bounds.answer_bytes
            and self._held_partitions <= bounds.partitions
            and not ((self._clogged or self._is_debtor) and self._owes_too_much)
        )

    @property
    def _owes_too_much(self) -> bool:
        """Whether the peer has to take answers before it is read again."""
        group = self.group
        return group.budget.answers.is_tight(self.host) or self._unsent > group.bounds.answer_bytes

    @property
    def _unsent(self) -> int:
        """Bytes of answers that the peer has not taken, if they are more than a few."""
        if not self._clogged or self._transport is None:
            return 0
        return self._transport.get_write_buffer_size()

    def _owe(self) -> None:
        """Tell the node how much is held for this peer, if it is more than a little."""
        size = self._ready_bytes + self._unsent
        is_debtor = size > LIGHT_BYTES
        if is_debtor or self._is_debtor:
            self._is_debtor = is_debtor
            self.group.budget.answers.note(self, size if is_debtor else 0)

    def _parse(self) -> None:
        """Handle every whole frame in the buffer, as far as the bounds and a slice's time allow."""
        if self._parsing:
            return  # an answer inside of a handler has made room: the loop below goes on
        self._parsing = True
        position = 0
        now = slice_began = self.group.own_time.begin(self._loop.time())
        try:
            while self._transport is not None and self._may_read:
                available = self._filled - position
                if available < 4:
                    break
                (length,) = _LENGTH.unpack_from(self._buffer, position)
                if not 8 <= length <= self.group.frame_bytes_max:
                    self._refuse(f"a frame of {length} bytes")
                    break
                if length > DEAR_BYTES:
                    if available < 6:
                        break  # what it asks is not known yet
                    (key,) = _KEY.unpack_from(self._buffer, position + 4)
                    if self._is_too_large(length, key):
                        break
                if available < 4 + length:
                    self._make_room(position, 4 + length)
                    position = 0
                    break
                if length > DEAR_BYTES and key not in HOT and self.group.dear.is_resting:
                    self._stand_in(self.group.dear)
                    break
                if position and now >= slice_began + SLICE_S:
                    self._give_way(position, length, self.group.own_time.took(slice_began, now))
                    break
                frame = self._view[position + 4 : position + 4 + length]
                position += 4 + length
                self._handle(frame)
                began, now = now, self._loop.time()
                if now - began > self.group.dear_s:
                    self._rest_behind(position - length, length, began, now)
        except BaseException:
            # A mistake of ours. Whoever called us may not close: then the next bytes would have
            # all these frames handled again, and what they append would be there twice.
            self.abort()
            raise
        finally:
            self._parsing = False
        self._keep_from(position)
        self._settle_reading()

    def _give_way(self, position: int, length: int, took: float) -> None:
        """It has had its slice: others go first, and have the loop for longer than that.

        But whoever moves records goes on as fast as turns come: who produces, as librdkafka does,
        by a request for each partition, hundreds at once; and who fetches, unless it asks for so
        many things that they can't be large.
        """
        (key,) = _KEY.unpack_from(self._buffer, position + 4)
        is_flood = key != PRODUCE and self._filled - position >= FLOOD_REQUESTS * (4 + length)
        if key in HOT and not is_flood:
            self._stand_in(self.group.hot)
        else:
            if self.group.rests:
                self.group.many.rest_after(took)
            self._stand_in(self.group.many)

    def _is_too_large(self, length: int, key: int) -> bool:
        """Close on a peer whose request is larger than what it asks may need."""
        if length <= frame_bytes_max(key, self.group.frame_bytes_max):
            return False
        self._refuse(
            f"a request of {length} bytes to {api_name(key)}: without records it "
            f"may have {SMALL_BYTES_MAX}; ask for less at a time"
        )
        return True

    def _rest_behind(self, start: int, length: int, began: float, now: float) -> None:
        """Let others go first if a request that took long is to blame for that itself."""
        (key,) = _KEY.unpack_from(self._buffer, start)
        took = self.group.own_time.took(began, now)
        if took > self.group.dear_s and (length > DEAR_BYTES or key not in HOT):
            self.group.dear.rest_after(took, REST_S * (length > DEAR_BYTES))
            self._stand_in(self.group.dear)

    def _stand_in(self, line: Line) -> None:
        """Let others go first; what is received meanwhile stays where it is."""
        self._in_line = True
        line.add(self)

    def take_turn(self) -> None:
        """It is this one's turn again."""
        self._in_line = False
        self.resume()

    def _handle(self, frame: memoryview) -> None:
        try:
            answer = self.group.handle(self, frame)
        except WireError as error:
            self._refuse(str(error))
            return
        finally:
            # Whoever keeps the request until it is answered must not keep what it was received in.
            frame.release()
        if answer is None:
            return
        if isinstance(answer, Deferred):
            self._held_bytes += answer.reserved
            self._held_partitions += answer.partitions
            self.slots.append(answer)
            if answer.is_before_effect and not answer.is_answered:
                self.mute()
                answer.proceed = self.unmute
            self._send_ready()
            if not answer.is_answered:
                answer.counted = answer.kept
                self._keep(answer.kept)
        elif self.slots:
            held = Deferred.answered(answer)
            self._hold(held)
            self.slots.append(held)
        else:
            self._write(answer)
            if self._clogged:
                self._owe()

    def _make_room(self, position: int, needed: int) -> None:
        """Make room for more of a frame of `needed` bytes that begins at `position`.

        The buffer grows with what has arrived, never with what is only announced: fifty peers that
        each announce 100 MB and send nothing would take 5 GB, and the time to clear it.
        """
        self._to_front(position)
        size = len(self._buffer)
        if needed > size and 2 * self._filled >= size:
            self._resize(min(needed, BUFFER_GROWTH * size))

    def _resize(self, size: int) -> None:
        other = bytearray(size)
        other[: self._filled] = self._view[: self._filled]
        self._replace(other)

    def _replace(self, buffer: bytearray) -> None:
        before, size = len(self._buffer), len(buffer)
        self._buffer = buffer
        self._view = memoryview(buffer)
        if size > LIGHT_BYTES or before > LIGHT_BYTES:
            self._tell_kept()

    def _keep(self, more: int) -> None:
        """Take note of what requests that wait keep; the node hears of more than a little."""
        kept = self._kept_bytes = self._kept_bytes + more
        told = self._kept_told
        if abs(kept - told) > LIGHT_BYTES or (told and not kept):
            self._tell_kept()

    def _tell_kept(self) -> None:
        """Tell the node how much is kept of this peer's requests: received, or waiting."""
        size = len(self._buffer)
        self._kept_told = self._kept_bytes
        self.group.budget.requests.note(self, size * (size > LIGHT_BYTES) + self._kept_bytes)

    def _keep_from(self, position: int) -> None:
        """Move what is not handled yet to the front; give an unusually large buffer back."""
        self._to_front(position)
        size = len(self._buffer)
        if size > BUFFER_FULL_BYTES and self._filled <= BUFFER_BYTES:
            self._shrink(size)

    def _shrink(self, size: int) -> None:
        if size <= BUFFER_KEPT_BYTES and not self.group.budget.requests.is_tight(self.host):
            return
        if self._filled:
            self._resize(BUFFER_FULL_BYTES)
        else:
            self.give_buffer_back()

    def _to_front(self, position: int) -> None:
        rest = self._filled - position
        if position:
            if rest:
                self._buffer[:rest] = self._buffer[position : self._filled]
            self._filled = rest
            self._pieces = 0
            if rest:
                self.active_at = self._loop.time()  # another frame has begun

    def give_buffer_back(self) -> None:
        """Free the receive buffer, if there is nothing in it."""
        if not self._filled:
            self._replace(NO_BUFFER)
            self.group.buffered.pop(self, None)

    def _refuse(self, why: str) -> None:
        """Close on a peer that does not speak the protocol; everybody else goes on."""
        self.group.refuse(self.peer, why)
        self.abort()

    # -- answers out ---------------------------------------------------------------------------

    def deliver(self, answer: Deferred) -> None:
        """An answer has become ready: send it, and all that follow it, when it is their turn."""
        if answer.closes:
            self._refuse("a request that has no answer")
            return
        self._held_bytes -= answer.reserved
        if answer.counted and self._transport is not None:
            self._keep(-answer.counted)
        slots = self.slots
        if not slots or slots[0] is not answer:
            self._hold(answer)
        elif self._transport is not None:
            slots.popleft()
            self._held_partitions -= answer.partitions
            if answer.buffers:
                self._write(answer.buffers)
            self._send_ready()
            if not self._reading:
                # Later, not now: what was received here may answer what others wait for, and so on.
                self._loop.call_soon(self.resume)

    def _hold(self, answer: Deferred) -> None:
        """An answer is ready, and waits for its turn."""
        size = answer.size
        self._held_bytes += size
        self._ready_bytes += size
        if self._ready_bytes > LIGHT_BYTES and self.slots and not self.slots[0].is_answered:
            self._owe()

    def _send_ready(self) -> None:
        while self.slots and self.slots[0].is_answered:
            answer = self.slots.popleft()
            size = answer.size
            self._held_bytes -= size
            self._ready_bytes -= size
            self._held_partitions -= answer.partitions
            if answer.buffers:
                self._write(answer.buffers)
        if self._clogged or self._is_debtor:
            self._owe()

    def _write(self, buffers: Buffers) -> None:
        transport = self._transport
        if transport is None:
            return
        if len(buffers) == 1:
            transport.write(buffers[0])
        elif sum(map(len, buffers)) <= JOINED_BYTES_MAX:
            transport.write(b"".join(buffers))
        else:
            for buffer in buffers:  # large ones are not copied together
                transport.write(buffer)

    # -- bounds --------------------------------------------------------------------------------

    def mute(self) -> None:
        """A request waits before its effect: nothing behind it is looked at until `unmute`."""
        self._muted += 1
        self._settle_reading()

    def mute_for(self, seconds: float) -> None:
        """Look at nothing from this peer for a while: it is throttled (KIP-219)."""
        self.mute()
        self._loop.call_later(seconds, self.unmute)

    def unmute(self) -> None:
        assert self._muted > 0, "unmuted more often than muted"
        self._muted -= 1
        self.resume()

    def resume(self) -> None:
        """Something that held reading back may be over: handle what has been received."""
        if self._transport is not None and not self._parsing:
            self._parse()

    def _settle_reading(self) -> None:
        transport = self._transport
        if transport is None or transport.is_closing() or self._parsing:
            return
        # A peer that has sent nothing more is held back by nothing, and its end is heard of.
        may_read = self._may_read or not self._filled
        if may_read != self._reading:
            self._reading = may_read
            if may_read:
                transport.resume_reading()
            else:
                transport.pause_reading()

    def close(self) -> None:
        """Close after sending what has been written."""
        if self._transport is not None:
            self._transport.close()

    def leave(self) -> None:
        """Close on a peer that is silent; what it has not taken until now it never will."""
        if self._transport is not None and self._transport.get_write_buffer_size():
            self.abort()
        else:
            self.close()

    def abort(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()  # `connection_lost` comes later, and forgets what does, too
            self._transport = None
            self._forget()

    def _forget(self) -> None:
        """Nobody is there any more for whom anything should wait."""
        slots, self.slots = self.slots, deque()
        self._ready_bytes = self._kept_bytes = 0
        self._owe()
        self.group.budget.requests.note(self, 0)
        for answer in slots:
            answer.lost()
        self.group.open.pop(self, None)
        self.group.buffered.pop(self, None)
        self.group.admission.leave(self)
