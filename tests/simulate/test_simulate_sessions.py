"""Readers in fetch sessions: what is left out of an answer, or answered to a stranger, is found.

Goal: a broker that forgets what a session has not read yet, or takes a request that is not the next
one, breaks an invariant of the run. Method: short runs without faults, whose readers are all in
sessions; the node's own session is spoilt in one place, and left as it is in the first test.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace

import pytest

from holdfast.core.replica import session_cache
from holdfast.core.replica.session_cache import CachedSession, SessionCache
from holdfast.node.api.fetch_session import FetchSession
from holdfast.testing.simulation.drawing import LIGHT, draw_plan
from holdfast.testing.simulation.invariants import Invariant
from holdfast.testing.simulation.plan import Plan
from holdfast.testing.simulation.run import run_plan
from holdfast.testing.simulation.session_reader import SessionReader, _Place, _Session
from holdfast.wire.errors import ErrorCode

_SLOTS = "max.incremental.fetch.session.cache.slots"


@pytest.fixture
def plan() -> Plan:
    drawn = draw_plan(1001, LIGHT)
    readers = tuple(replace(one, in_sessions=True, rack="", pause_ms=20) for one in drawn.readers)
    config = {**drawn.config, _SLOTS: "1000"}
    return replace(
        drawn, readers=readers, config=config, seconds=8.0, events=(), broken=(), provoked=False
    )


@pytest.mark.slow
def test_readers_in_sessions_read_and_are_refused_as_strangers(plan: Plan) -> None:
    outcome = run_plan(plan)
    assert outcome.violation is None, outcome.violation
    for name in (
        "records read in sessions",
        "requests in a fetch session",
        "requests of a strange fetch session",
    ):
        assert outcome.counts[name], name


def test_a_session_that_forgets_a_change_is_found(
    plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    def touched(_session: FetchSession, _key: Hashable) -> bool:
        return False

    monkeypatch.setattr(FetchSession, "touched", touched)
    # Followers have sessions too: with one replica there are none.
    topics = tuple(
        replace(one, replication_factor=1, configs={**one.configs, "min.insync.replicas": "1"})
        for one in plan.topics
    )
    outcome = run_plan(replace(plan, topics=topics))
    assert outcome.violation is not None
    assert outcome.violation.invariant == Invariant.SESSION_TELLS_ALL


@pytest.mark.slow
def test_a_session_that_takes_any_epoch_is_found(
    plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    def resume(
        cache: SessionCache, session_id: int, _epoch: int, _owner: int, now_ms: int
    ) -> CachedSession | ErrorCode:
        session = cache._sessions.get(session_id)
        if session is None:
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        session.next_epoch = min(session.next_epoch + 1, session_cache.EPOCH_MAX)
        session.used_ms = now_ms
        return session

    monkeypatch.setattr(SessionCache, "resume", resume)
    outcome = run_plan(plan)
    assert outcome.violation is not None
    assert outcome.violation.invariant == Invariant.SESSION_IS_HELD


def test_what_was_left_out_is_named_first() -> None:
    """Goal: who gets no session reads all the same. Method: one partition had no turn yet.

    Only the first partition of an answer is given a batch that is larger than asked for.
    """
    reader = SessionReader.__new__(SessionReader)
    session = _Session(left_out={2: 3})
    wanted = {n: _Place(b"\1" * 16, 0) for n in range(4)}
    named = reader._request(session, wanted).topics[0].partitions
    assert [one.partition for one in named] == [2, 0, 1, 3]


def test_there_is_room_for_few_sessions_in_some_plans() -> None:
    drawn = [draw_plan(seed) for seed in range(200)]
    in_sessions = [plan for plan in drawn if any(one.in_sessions for one in plan.readers)]
    slots = {plan.config[_SLOTS] for plan in in_sessions}
    assert {"1", "1000"} <= slots
    assert len(in_sessions) < len(drawn)
    assert all(_SLOTS not in plan.config for plan in drawn if plan not in in_sessions)
