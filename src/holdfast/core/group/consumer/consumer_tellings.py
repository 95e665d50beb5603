"""What members were told that they have, until they say that they have it.

An answer may be lost and its member not know that: librdkafka asks again as if nothing new had been
said. So who has not confirmed what it was told is told again. Soft: a new coordinator does not know
who has heard what, and tells each member once; one that has to give something up, until it has.

Rules: consumer-groups.md#answers.
"""

from __future__ import annotations

from typing import Final, NamedTuple

SILENT_MAX: Final = 2
"""How often a member is told again and says nothing of it, before it is made to tell everything."""


class _Telling(NamedTuple):
    at_ms: int
    # How often it was told again and said nothing. None: it has said what it has. That is more than
    # what it is told, so it sees the difference as soon as it hears.
    silent: int | None


class Tellings:
    """The members of one group that are to be told again what they have."""

    __slots__ = ("_loaded", "_unconfirmed")

    def __init__(self) -> None:
        self._unconfirmed: dict[str, _Telling] = {}
        # Who may have been told by another coordinator. Not iterated.
        self._loaded: set[str] = set()

    @property
    def unconfirmed(self) -> frozenset[str]:
        return frozenset(self._unconfirmed)

    def loaded(self, member_id: str, now_ms: int, *, gives_up: bool) -> None:
        """Note a member that the log has. `gives_up`: it has not let go of what it has to yet."""
        self._loaded.add(member_id)
        if gives_up:
            self._unconfirmed[member_id] = _Telling(now_ms, 0)

    def has_to_hear(self, member_id: str, now_ms: int, interval_ms: int) -> bool:
        """Whether a member that beats each `interval_ms` is to be told again.

        Half of that is enough: who beats a moment early would be passed over each other time.
        """
        if member_id in self._loaded:
            return True
        telling = self._unconfirmed.get(member_id)
        return telling is not None and now_ms - telling.at_ms >= interval_ms // 2

    def is_deaf(self, member_id: str) -> bool:
        """Whether a member was told again and again, and has said nothing of it."""
        telling = self._unconfirmed.get(member_id)
        return telling is not None and (telling.silent or 0) >= SILENT_MAX

    def told(self, member_id: str, now_ms: int, *, news: bool, silent: bool) -> None:
        """Note that a member is told what it has.

        `news`: what it may not have heard yet, so it has to confirm it. `silent`: it has said
        nothing of what it has.
        """
        self._loaded.discard(member_id)
        before = self._unconfirmed.get(member_id)
        if before is None and not news:
            return
        if not silent:
            count = None
        elif before is None or news:
            count = 0
        else:
            count = None if before.silent is None else before.silent + 1
        self._unconfirmed[member_id] = _Telling(now_ms, count)

    def asked_for_all(self, member_id: str, now_ms: int) -> None:
        """Note that a member was made to tell everything: its silence is counted anew."""
        self._unconfirmed[member_id] = _Telling(now_ms, 0)

    def confirmed(self, member_id: str) -> None:
        self._loaded.discard(member_id)
        self._unconfirmed.pop(member_id, None)
