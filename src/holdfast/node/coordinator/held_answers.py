"""Answers of one decision, until all is committed that it tells of.

They wait in the queue of their partition's high watermark, beside what is produced with acks=all.
Whoever waits too long is told that the coordinator is not available: what it asked for may come
true all the same, as with a produce request that timed out.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

from holdfast.core.log_machine import Answer
from holdfast.node.coordinator.calls import Calls
from holdfast.node.door.waiting_room import WaitingRoom
from holdfast.wire.errors import ErrorCode


class HeldAnswers:
    """Some answers that leave together."""

    __slots__ = ("_answers", "_calls", "_deadline_ms", "_let_go", "_waiting", "finished")

    def __init__(
        self,
        calls: Calls,
        answers: Sequence[Answer],
        let_go: Callable[[HeldAnswers], ErrorCode],
    ) -> None:
        """`let_go` is asked, once they wait no longer, whether they hold: NONE: they do."""
        self.finished = False
        self._answers = answers
        self._calls = calls
        self._let_go = let_go
        self._waiting: WaitingRoom | None = None
        self._deadline_ms = -1

    def begin(self, waiting: WaitingRoom, timeout_ms: int) -> None:
        self._waiting = waiting
        self._deadline_ms = waiting.expire_after(self, timeout_ms)

    @property
    def sender(self) -> Hashable:
        return self  # they are no client's alone

    def settle(self, _part: int) -> None:
        """The high watermark has passed them, or this replica leads no longer."""
        code = self._let_go(self)
        if code is ErrorCode.NONE:
            answers = self._finish()
            self._calls.send(answers)
        else:
            self.refuse(code)

    def expire(self) -> None:
        """They were held for long enough."""
        self._let_go(self)
        self.refuse(ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def refuse(self, code: ErrorCode) -> None:
        """Give up: each is told so."""
        for call, _ in self._finish():
            self._calls.refuse(call, code)

    def _finish(self) -> Sequence[Answer]:
        answers, self._answers = self._answers, ()
        if not self.finished and self._waiting is not None:
            self._waiting.keep(self, self._deadline_ms)
        self.finished = True
        return answers
