"""What members were told that they have, until they say that they have it.

An answer may be lost and its member not know that: librdkafka asks again as if nothing new had been
said. So who has not confirmed what it was told is told again: after each time twice as long, or as
often where others wait for what it has to give up. Who has what it is told may never say so, and
costs little that way. Soft: a new coordinator does not know who has heard what, and takes it that
nobody has.

It must never take silence for an answer: who says nothing may be busy with what it was told before,
and read that in the end.

Rules: consumer-groups.md#answers.
"""

from __future__ import annotations

from typing import Final, NamedTuple

GAP_MAX: Final = 16
"""So many intervals of heartbeats are at most between two times that a member is told."""


class _Telling(NamedTuple):
    due_ms: int  # when it is told again
    gap_ms: int  # so long after the last time
    # It was told something else before, and had not confirmed that: what it says next may be its
    # word of something older that happens to be the same.
    is_unclear: bool


class Tellings:
    """The members of one group that are to be told again what they have."""

    __slots__ = ("_unconfirmed",)

    def __init__(self) -> None:
        self._unconfirmed: dict[str, _Telling] = {}

    @property
    def unconfirmed(self) -> frozenset[str]:
        return frozenset(self._unconfirmed)

    def loaded(self, member_id: str, now_ms: int) -> None:
        """Note a member that the log has."""
        self._unconfirmed[member_id] = _Telling(now_ms, 0, is_unclear=True)

    def is_due(self, member_id: str, now_ms: int) -> bool:
        """Whether a member is to be told again."""
        telling = self._unconfirmed.get(member_id)
        return telling is not None and telling.due_ms <= now_ms

    def is_unclear(self, member_id: str) -> bool:
        """Whether what a member says that it has may be its word of what it was told earlier."""
        telling = self._unconfirmed.get(member_id)
        return telling is not None and telling.is_unclear

    def told(
        self,
        member_id: str,
        now_ms: int,
        interval_ms: int,
        *,
        is_news: bool,
        is_awaited: bool,
        says_so: bool,
    ) -> None:
        """Note that a member that beats each `interval_ms` is told what it has.

        `is_news`: what it may not have been told yet. `is_awaited`: it holds up others until it has
        said what it has. `says_so`: it has just said that, as far as one can know.
        """
        # Half of an interval: who beats a moment early would be passed over each other time.
        gap_ms = interval_ms // 2
        before = self._unconfirmed.get(member_id)
        if before is not None and not (is_news or is_awaited):
            gap_ms = min(max(gap_ms, 2 * before.gap_ms), GAP_MAX * interval_ms)
        is_unclear = before is not None and (is_news or before.is_unclear) and not says_so
        self._unconfirmed[member_id] = _Telling(now_ms + gap_ms, gap_ms, is_unclear)

    def confirmed(self, member_id: str) -> None:
        self._unconfirmed.pop(member_id, None)
