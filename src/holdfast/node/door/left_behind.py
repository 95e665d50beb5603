"""What a client asked that has gone since, and what is still to be done: as Kafka does it.

Owns the place and the bytes of such a request until its work is over: it counts as if its
connection were open. So a client that comes, asks and leaves, over and over, has no more under way
than one that stays. Where that is too much it is closed on like one, and ends with nothing done.

Rules: produce.md#a-client-that-leaves, connections.md#what-a-client-may-owe.
"""

from __future__ import annotations

from typing import Protocol

from holdfast.node.door.admission import Admission, Guest
from holdfast.node.door.ledger import Debtor, Ledger
from holdfast.node.door.request_context import Deferred


class Visitor(Guest, Debtor, Protocol):
    """A connection, as both count it."""


class LeftBehind:
    """One request without its connection."""

    is_owed = True
    is_protected = False  # nobody is there any more

    def __init__(
        self, answer: Deferred, who: Visitor, admission: Admission, ledger: Ledger
    ) -> None:
        """Take the place of `who`, which has given it back just now."""
        assert answer.is_before_effect, "what is behind it was looked at"
        self.host = who.host
        self.peer = who.peer
        self.active_at = who.active_at
        self._answer = answer
        self._admission = admission
        self._ledger = ledger
        answer.leave_to(self._settle)
        if admission.admit(self):
            ledger.note(self, answer.kept)  # every byte; it may be closed on right here
        else:  # fewer may be here than before
            self.abort()

    def abort(self) -> None:
        """End it: nothing is done."""
        self._settle(self._answer)
        self._answer.lost()

    def _settle(self, _: Deferred) -> None:
        """Nothing is left to be done."""
        self._ledger.note(self, 0)
        self._admission.leave(self)
