"""Goal: the cache keeps as many sessions as it may, and gives up the one that is missed least.

Rules: fetch.md#fetch-sessions.
"""

from __future__ import annotations

from itertools import count

import pytest

from holdfast.core.replica import session_cache
from holdfast.core.replica.session_cache import EPOCH_MAX, STALE_MS, CachedSession, SessionCache
from holdfast.wire.errors import ErrorCode

CLIENT, FOLLOWER = -1, 1
LATER_MS = STALE_MS + 1


class Session(CachedSession):
    def __init__(self, size: int = 1, owner: int = CLIENT) -> None:
        super().__init__(owner)
        self._size = size
        self.is_closed = False

    @property
    def size(self) -> int:
        return self._size

    def close(self) -> None:
        self.is_closed = True


def cache(slots: int = 1) -> SessionCache:
    ids = count()
    return SessionCache(slots, lambda _: next(ids))


def admitted(sessions: SessionCache, session: Session, now_ms: int = 0) -> bool:
    sessions.admit(session, now_ms)
    return session.session_id != 0


@pytest.mark.parametrize(
    ("kept", "new", "now_ms", "goes"),
    [
        # One that was used lately, of the same rank: nobody takes its slot.
        (Session(1), Session(9), STALE_MS, False),
        (Session(9), Session(1, FOLLOWER), 0, True),  # a follower goes before every client
        (Session(1, FOLLOWER), Session(9), STALE_MS, False),
        (Session(9), Session(1), LATER_MS, True),  # it has not been used for long
        (Session(9, FOLLOWER), Session(1), LATER_MS, True),
    ],
)
def test_who_has_to_go(kept: Session, new: Session, now_ms: int, goes: bool) -> None:
    sessions = cache()
    assert admitted(sessions, kept)
    assert admitted(sessions, new, now_ms) is goes
    assert (kept.is_closed, len(sessions)) == (goes, 1)


@pytest.mark.parametrize(("size", "goes"), [(9, True), (5, False)])
def test_a_larger_one_takes_the_slot_of_one_that_has_been_there_for_long(
    size: int, goes: bool
) -> None:
    sessions, kept = cache(), Session(5)
    assert admitted(sessions, kept)
    assert sessions.resume(kept.session_id, 1, CLIENT, LATER_MS) is kept
    assert admitted(sessions, Session(size), LATER_MS) is goes
    assert kept.is_closed is goes


@pytest.mark.parametrize(
    ("new", "goes"),
    [
        (Session(1, FOLLOWER), 2),  # clients go before followers, and of them the smallest
        (Session(9), 2),
        (Session(4), None),  # not one that is as large
    ],
)
def test_of_several_the_one_that_is_worth_least_has_to_go(new: Session, goes: int | None) -> None:
    """However old each of them is: nobody has been silent for long."""
    sessions = cache(slots=4)
    kept = [Session(3, FOLLOWER), Session(7), Session(4), Session(2, FOLLOWER)]
    for now_ms, each in enumerate(kept):
        assert admitted(sessions, each, now_ms)
    now_ms = LATER_MS + len(kept)
    for each in kept:
        assert sessions.resume(each.session_id, 1, each.owner, now_ms) is each
    assert admitted(sessions, new, now_ms) is (goes is not None)
    assert [each.is_closed for each in kept] == [index == goes for index in range(4)]


def test_partitions_are_bounded_over_all_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_cache, "PARTITIONS_MAX", 10)
    sessions = cache(slots=100)
    assert admitted(sessions, Session(6))
    assert not admitted(sessions, Session(5))
    assert admitted(sessions, Session(4))
    assert not sessions.is_crowded(Session(1))


def test_what_clients_keep_gives_way_to_followers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asks for thousands of partitions must not have followers name all of theirs."""
    monkeypatch.setattr(session_cache, "PARTITIONS_MAX", 10)
    sessions = cache(9)
    small, large, follower = Session(2), Session(8), Session(5, FOLLOWER)
    assert all(admitted(sessions, each) for each in (small, large, follower))
    assert (small.is_closed, large.is_closed) == (False, True), "the largest one goes first"
    grown = Session(3, FOLLOWER)
    assert admitted(sessions, grown)
    follower._size = 7
    assert not sessions.is_crowded(follower)
    assert small.is_closed
    assert not admitted(sessions, Session(1))
    grown._size = 4
    assert sessions.is_crowded(grown), "followers do not give way to each other"


def test_epochs_count_up_and_begin_again_at_one() -> None:
    sessions, kept = cache(), Session()
    assert admitted(sessions, kept)
    for epoch in (1, 2):
        assert sessions.resume(kept.session_id, epoch, CLIENT, 0) is kept
    wrong = sessions.resume(kept.session_id, 2, CLIENT, 0)
    assert wrong is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    kept.next_epoch = EPOCH_MAX
    assert sessions.resume(kept.session_id, EPOCH_MAX, CLIENT, 0) is kept
    assert sessions.resume(kept.session_id, 1, CLIENT, 0) is kept
    for session_id, owner in ((kept.session_id + 1, CLIENT), (kept.session_id, FOLLOWER)):
        found = sessions.resume(session_id, 2, owner, 0)
        assert found is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_ids_are_never_given_twice() -> None:
    drawn = iter([5, 5, 6])
    sessions = SessionCache(10, lambda _: next(drawn))
    first, second = Session(), Session()
    assert admitted(sessions, first)
    assert admitted(sessions, second)
    assert (first.session_id, second.session_id) == (6, 7)
