"""What every state machine over a log shares: what it decides, and how that takes effect.

Decide, append, apply at once, hold each answer until it is committed (docs/design/groups.md). A
machine turns a request, or the time, into a `Decision`. Whoever performs it appends the records as
one batch and then, in the same synchronous step, applies the decision; or, when the log takes no
append, refuses it. Nothing may be decided in between. Either gives the answers. They are sent once
everything is committed that was in the log by then, under the same leader epoch.

What a record says becomes true in `replay` only, which is the same code after an append and at a
load. So a refused decision has nothing to undo there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

from holdfast.wire.errors import ErrorCode
from holdfast.wire.schema import Struct

RecordPart: TypeAlias = Struct | tuple[Any, ...]
"""A record's key or its value: what a table declares, or a named tuple where there are many."""

KeyedRecord: TypeAlias = tuple[Struct, Struct | None]
"""A record's key and its value. A value of None is a tombstone: what the key names is gone."""

Replay: TypeAlias = Callable[[Any, Any], None]


class Answer(NamedTuple):
    """A response, and the number of the call that waits for it."""

    call: int
    response: Any


class Decision:
    """Records to append as one batch, and what follows from their being in the log, or not.

    It is applied or refused once. A decision without records is applied too: that gives its
    answers.
    """

    __slots__ = ("_answers", "_once_applied", "_once_refused", "may_share_batch", "records")

    def __init__(self, *, may_share_batch: bool = False) -> None:
        self.records: list[tuple[Any, Any]] = []  # each a `RecordPart`; a value may be None
        # Whether it holds for the same state whatever others like it say: several of them may be
        # decided first, appended as one batch, and applied (or refused) one after the other.
        self.may_share_batch = may_share_batch
        self._answers: list[tuple[int, Any, Callable[[ErrorCode], Any] | None]] = []
        self._once_applied: list[Callable[[], None]] = []
        self._once_refused: list[Callable[[ErrorCode], None]] | None = []

    def append(self, key: RecordPart, value: RecordPart | None) -> None:
        assert self._once_refused is not None, "a decision that is done takes no more records"
        self.records.append((key, value))

    def answer(
        self, call: int, response: Any, refused: Callable[[ErrorCode], Any] | None = None
    ) -> None:
        """Answer a call. `refused` makes its response when the log does not take the records.

        Without `refused` the same is said either way: it does not depend on the records.
        """
        self._answers.append((call, response, refused))

    def once_applied(self, effect: Callable[[], None]) -> None:
        """Have this called behind the replay of the records. It may add answers, not records."""
        self._once_applied.append(effect)

    def once_refused(self, effect: Callable[[ErrorCode], None]) -> None:
        """Have this called when the log takes no append. It may add answers, not records."""
        assert self._once_refused is not None, "a decision that is done can't be refused"
        self._once_refused.append(effect)

    def apply(self, replay: Replay) -> list[Answer]:
        """Take effect: the records are in the log. Return the answers, to be held."""
        self._finish()
        for key, value in self.records:
            replay(key, value)
        for effect in self._once_applied:
            effect()
        return [Answer(call, response) for call, response, _ in self._answers]

    def refuse(self, code: ErrorCode) -> list[Answer]:
        """Take the other effect: the log did not take the records, as `code` says."""
        assert self.records, "nothing was appended, so nothing can be refused"
        for effect in self._finish():
            effect(code)
        return [
            Answer(call, response if refused is None else refused(code))
            for call, response, refused in self._answers
        ]

    def _finish(self) -> list[Callable[[ErrorCode], None]]:
        effects = self._once_refused
        assert effects is not None, "a decision is applied or refused once"
        self._once_refused = None
        return effects
