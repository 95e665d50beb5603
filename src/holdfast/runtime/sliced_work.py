"""Work for a request that would hold the loop for too long: done in slices, by turns.

Owns whose turn it is: kinds of work by turns, clients within a kind, the pieces of a client in
their order, so that who begins thousands waits for himself. A piece of work is a generator that
yields whenever it has done as much as may be done in one go: `REST` where it holds nothing that is
large, `HOLD` in the middle of something, or a job for the worker, whose outcome it goes on with. So
many pieces at most are in the middle of something, which bounds what all of them hold; the others
wait for their turn.

Work in Python stays on the loop, and leaves it to others for longer than it takes itself; only
native code that lets the interpreter go, as inflating does, is a job.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import Callable, Generator, Hashable
from functools import partial
from typing import Any, Final, TypeAlias, TypeVar

from holdfast.runtime.own_time import OwnTime
from holdfast.runtime.ports import Worker, WorkerFullError
from holdfast.runtime.turns import Turns
from holdfast.wire.compression import Buffer, decompress
from holdfast.wire.errors import InflatedError, WireError

logger = logging.getLogger("holdfast.requests")

T = TypeVar("T")

REST: Final = None
HOLD: Final = "hold"
Job: TypeAlias = Callable[[], Any]
Steps: TypeAlias = Generator[Job | str | None, Any, T]
Queue: TypeAlias = tuple[str, Hashable]
"""What kind of work it is, and whose: a connection."""

LANE: Final = "requests"
HOLDING_MAX: Final = 4
PAUSE_S: Final = 0.001  # at least, between two slices
_PAUSE_FACTOR: Final = 2  # and so many times what the last one took: two thirds are for others

_CROWD: Final = 16  # under way; then another one does so small a part of a slice at once

BYTES_A_SLICE: Final = 1 << 20  # read, inflated or compressed
_INLINE_BYTES_MAX: Final = 128 * 1024  # inflated on the loop, in half a millisecond at worst
_INLINE_RATIO: Final = 8  # what honest batches inflate to; a bomb's cost is not paid on the loop


class Effort:
    """What was done since others last had their turn; from 1 on it is their turn again."""

    __slots__ = ("spent",)

    def __init__(self) -> None:
        self.spent = 0.0

    @property
    def is_over(self) -> bool:
        return self.spent >= 1


def inflated(codec: int, packed: Buffer, size_max: int, effort: Effort) -> Steps[Buffer]:
    """Return what a batch's body holds: at once if that is little, else from the worker.

    WireError: it does not inflate; its kind InflatedError: to more than `size_max` bytes.
    """
    size = len(packed)
    if not codec:
        effort.spent += size / BYTES_A_SLICE
        return bytes(packed)
    inline = min(_INLINE_BYTES_MAX, size_max)
    is_small = _INLINE_RATIO * size <= _INLINE_BYTES_MAX
    if is_small and effort.spent + inline / BYTES_A_SLICE <= 1:
        try:
            body = decompress(codec, packed, inline)
        except WireError as error:
            effort.spent += inline / BYTES_A_SLICE
            if inline == size_max or not isinstance(error, InflatedError):
                raise
        else:
            # A thousand empty members in a row inflate to nothing, and take as long as much does.
            effort.spent += max(len(body), _INLINE_RATIO * size) / BYTES_A_SLICE
            return body
    done: Buffer = yield partial(decompress, codec, bytes(packed), size_max)
    effort.spent = 0
    return done


class _Piece:
    """One piece of work, and what is to be called at its end."""

    __slots__ = ("done", "failed", "is_over", "is_running", "queue", "steps", "wanted")

    def __init__(
        self,
        steps: Steps[Any],
        wanted: Job | str | None,
        queue: Queue,
        done: Callable[[Any], None],
        failed: Callable[[], None],
    ) -> None:
        self.steps = steps
        self.wanted = wanted  # what they have yielded last
        self.queue = queue
        self.done = done
        self.failed = failed
        self.is_over = False
        self.is_running = False


class _Pieces:
    """Pieces that wait for their turn."""

    def __init__(self) -> None:
        # By kind. The first has the next turn, and is the last one then.
        self._kinds: OrderedDict[str, Turns[_Piece]] = OrderedDict()
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def add(self, piece: _Piece) -> None:
        kind, client = piece.queue
        self._kinds.setdefault(kind, Turns()).add(piece, client)
        self._size += 1

    def take(self) -> _Piece:
        """Return the piece whose turn it is."""
        kind, pieces = next(iter(self._kinds.items()))
        self._kinds.move_to_end(kind)
        piece = pieces.take()
        self._took(kind)
        return piece

    def remove(self, piece: _Piece) -> None:
        """Forget a piece, if it is here."""
        kind, _ = piece.queue
        pieces = self._kinds.get(kind)
        if pieces is not None and piece in pieces:
            pieces.remove(piece)
            self._took(kind)

    def _took(self, kind: str) -> None:
        """One of this kind is here no longer."""
        self._size -= 1
        if not self._kinds[kind]:
            del self._kinds[kind]

    def clear(self) -> list[_Piece]:
        """Return all, and forget them."""
        return [self.take() for _ in range(self._size)]


class SlicedWork:
    """All such work of one node."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, worker: Worker, *, rests: bool = True
    ) -> None:
        """Without `rests` others have a turn of the loop between two slices, and no longer."""
        self._rests = rests
        self._loop = loop
        self._worker = worker
        self._holding = 0  # pieces in `_active` and those that wait for a job
        self._active: deque[_Piece] = deque()
        self._waiting = _Pieces()
        self._timer: asyncio.TimerHandle | None = None
        self._own_time = OwnTime()
        self._free_from = 0.0  # when the loop has been with others for long enough

    @property
    def pieces(self) -> int:
        """How many are not over yet (a metric)."""
        return self._holding + len(self._waiting)

    def first_effort(self) -> Effort:
        """Return what a request may do at once: the less, the more of them are under way.

        A client may send a hundred long ones together, and each would have a slice at once.
        """
        effort = Effort()
        effort.spent = min(self.pieces / _CROWD, 1 - 1 / _CROWD)
        return effort

    def begin(
        self,
        steps: Steps[T],
        wanted: Job | str | None,
        *,
        queue: Queue,
        done: Callable[[T], None],
        failed: Callable[[], None],
    ) -> Callable[[], None]:
        """Go on with `steps`, which have yielded `wanted` in their first slice.

        `done` is called with what they return, `failed` when they end by a mistake of ours.
        Returns what ends them before that, for when nobody waits for them any more.
        """
        piece = _Piece(steps, wanted, queue, done, failed)
        self._waiting.add(piece)
        if callable(wanted) and len(self._waiting) == 1 and self._holding < HOLDING_MAX:
            self._take_turn()  # a worker is free, so nobody needs to wait for anything
        self._schedule()
        return partial(self._end, piece)

    def close(self) -> None:
        """The node stops: nothing goes on."""
        for piece in (*self._active, *self._waiting.clear()):
            self._end(piece)
        if self._timer is not None:
            self._timer.cancel()

    def _schedule(self) -> None:
        if self._timer is None and (
            self._active or (self._waiting and self._holding < HOLDING_MAX)
        ):
            due = self._free_from - self._loop.time()
            self._timer = self._loop.call_later(max(due, 0), self._timed)

    def _timed(self) -> None:
        self._timer = None
        self._take_turn()
        self._schedule()

    def _take_turn(self) -> None:
        if self._waiting and self._holding < HOLDING_MAX:
            self._active.append(self._waiting.take())
            self._holding += 1
        if not self._active:
            return
        piece = self._active.popleft()
        if callable(piece.wanted) and not piece.is_over:
            job = self._worker.submit(piece.wanted, lane=LANE)
            job.add_done_callback(partial(self._job_done, piece))
        else:
            self._step(piece, next)

    def _job_done(self, piece: _Piece, job: asyncio.Future[Any]) -> None:
        failure = None if job.cancelled() else job.exception()
        if failure is not None:
            self._step(piece, lambda steps: steps.throw(failure))
        else:
            self._step(piece, lambda steps: steps.send(job.result()))

    def _step(self, piece: _Piece, advance: Callable[[Steps[Any]], Job | str | None]) -> None:
        """Let a piece do one slice."""
        finish: Callable[[], None] | None = None
        began = self._own_time.begin(self._loop.time())
        piece.is_running = True
        try:
            if not piece.is_over:
                piece.wanted = advance(piece.steps)
        except StopIteration as end:
            finish = partial(piece.done, end.value)
        except WorkerFullError as error:
            logger.error("a request is given up: %s", error)  # noqa: TRY400 - no mistake of ours
            finish = piece.failed
        except BaseException:
            finish = piece.failed
            raise
        finally:
            piece.is_running = False
            ended = self._loop.time()
            pause = max(PAUSE_S, _PAUSE_FACTOR * self._own_time.took(began, ended))
            self._free_from = ended + pause * self._rests
            self._put_away(piece, finish)

    def _put_away(self, piece: _Piece, finish: Callable[[], None] | None) -> None:
        """Put a piece that has had its turn where it belongs, or end it."""
        if piece.is_over or finish is not None:
            self._holding -= 1
            piece.steps.close()
        elif piece.wanted is REST:
            self._holding -= 1
            self._waiting.add(piece)
        else:
            self._active.append(piece)
        self._schedule()
        if finish is not None and not piece.is_over:
            piece.is_over = True
            finish()

    def _end(self, piece: _Piece) -> None:
        """Nobody waits for it any more: let go of what it holds, and of its place in the queue.

        Where it is in the middle of something its place is free at its turn.
        """
        piece.is_over = True
        self._waiting.remove(piece)
        if not piece.is_running:
            piece.steps.close()
