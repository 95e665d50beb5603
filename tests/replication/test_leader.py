"""The rules of a partition's leader, one by one.

Goal: each rule that keeps acknowledged records safe holds by itself. Method: a leader is driven
with numbers, as the node drives it; no log, no clock, no network. Each test names the trap that it
guards; each was seen to fail with its rule taken out.
Rules: replication.md#caught-up, replication.md#high-watermark, replication.md#joining-the-isr,
replication.md#leaving-the-isr, replication.md#a-refused-isr, produce.md#acknowledgement.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.core.metadata.image import LOST_DIRECTORY, Broker, Partition
from holdfast.core.replica.replication import Change, LastFetch, Leader, Proposal, Reaction
from holdfast.wire.errors import ErrorCode

LAG_MS = 1000


def registered(
    node: int, epoch: int, *, fenced: bool = False, directories: tuple[bytes, ...] = ()
) -> Broker:
    return Broker(
        broker_id=node,
        epoch=epoch,
        incarnation_id=bytes(16),
        fenced=fenced,
        directories=directories,
    )


HERE, THERE = b"here" * 4, b"else" * 4
ALIVE = {node: registered(node, 10 + node) for node in (1, 2, 3)}


def decided(
    replicas: tuple[int, ...], isr: tuple[int, ...], directories: tuple[bytes, ...] = ()
) -> Partition:
    return Partition(
        topic="t",
        topic_id=bytes(16),
        index=0,
        replicas=replicas,
        isr=isr,
        leader=1,
        leader_epoch=5,
        partition_epoch=7,
        directories=directories,
    )


def elected(
    *,
    replicas: tuple[int, ...] = (1, 2, 3),
    isr: tuple[int, ...] = (1, 2, 3),
    min_insync: int = 2,
    log_end: int = 0,
    high_watermark: int = 0,
    now_ms: int = 0,
    directories: tuple[bytes, ...] = (),
) -> Leader:
    leader = Leader.elected(
        decided(replicas, isr, directories),
        min_insync=min_insync,
        lag_ms_max=LAG_MS,
        log_end=log_end,
        high_watermark=high_watermark,
        now_ms=now_ms,
    )
    leader.registered(ALIVE)
    return leader


def fetch(leader: Leader, node: int, offset: int, now_ms: int = 0) -> bool:
    return leader.fetched(node, offset, 0, ALIVE[node].epoch, now_ms)


def test_the_high_watermark_is_what_every_member_of_the_isr_has() -> None:
    leader = elected()
    leader.appended(10, 0)
    assert leader.high_watermark == 0
    assert not fetch(leader, 2, 10)
    assert fetch(leader, 3, 4)
    assert leader.high_watermark == 4
    assert fetch(leader, 3, 10)
    assert leader.high_watermark == 10


def test_a_partition_of_one_replica_is_committed_at_once() -> None:
    leader = elected(replicas=(1,), isr=(1,), min_insync=2)
    assert leader.min_insync == 1, "min ISR is at most the number of replicas"
    assert leader.appended(3, 0)
    assert leader.acknowledgement(3) is ErrorCode.NONE


def test_under_min_isr_the_high_watermark_stands_still() -> None:
    """KIP-966: what acks=1 wrote while too few are in sync stays invisible."""
    leader = elected(isr=(1,))
    assert not leader.appended(5, 0)
    assert leader.high_watermark == 0
    assert not leader.has_enough_replicas


def test_lowering_min_isr_lets_the_high_watermark_move() -> None:
    leader = elected(isr=(1,), now_ms=10_000)
    leader.appended(5, 10_000)
    leader.set_min_insync(1)
    assert leader.advance(10_000)
    assert leader.high_watermark == 5


def test_a_joiner_in_flight_counts_and_a_leaver_in_flight_still_counts() -> None:
    """The maximal ISR: between the proposal and its answer both sets have to hold a record."""
    leader = elected(isr=(1, 2), log_end=4, high_watermark=4)
    fetch(leader, 2, 4)
    fetch(leader, 3, 4, now_ms=0)
    assert leader.propose_join(3, 0) is not None
    leader.appended(8, 0)
    fetch(leader, 2, 8, now_ms=2 * LAG_MS)
    assert leader.high_watermark == 4, "the joiner has only 4, however long ago it fetched"
    leader = elected()
    fetch(leader, 2, 0)
    leader.appended(8, 0)
    fetch(leader, 2, 8, now_ms=5000)
    proposal = leader.propose_leave(5000)
    assert proposal is not None
    assert proposal.isr == (1, 2)
    assert not leader.advance(5000), "3 is out of sync, and until the controller agrees it counts"
    assert leader.granted((1, 2), 8, 5000)
    assert leader.high_watermark == 8


def test_a_replica_that_may_join_is_not_overtaken() -> None:
    """The controller may have granted it already, and this leader not know yet."""
    leader = elected(isr=(1, 2))
    fetch(leader, 2, 0)
    fetch(leader, 3, 0)  # at the log end: caught up
    leader.appended(6, 10)
    fetch(leader, 2, 6, now_ms=10)
    assert leader.high_watermark == 0
    assert leader.advance(LAG_MS + 11), "it has not been near for too long"
    assert leader.high_watermark == 6


@pytest.mark.parametrize("alive", [{**ALIVE, 3: registered(3, 13, fenced=True)}, {2: ALIVE[2]}])
def test_a_replica_that_may_not_join_is_not_waited_for(alive: dict[int, Broker]) -> None:
    """KAFKA-15021: the high watermark stalled on a replica in controlled shutdown."""
    leader = elected(isr=(1, 2))
    fetch(leader, 2, 0)
    fetch(leader, 3, 0)
    leader.registered(alive)
    leader.appended(6, 10)
    assert fetch(leader, 2, 6, now_ms=10)
    assert leader.high_watermark == 6


@pytest.mark.parametrize("recorded", [HERE, LOST_DIRECTORY])
def test_a_replica_whose_disk_is_lost_is_not_waited_for(recorded: bytes) -> None:
    """Its broker lives and was near until just now: acks=all stood still for the whole lag time."""
    leader = elected(directories=(HERE, HERE, recorded))
    fetch(leader, 2, 0)
    fetch(leader, 3, 0)
    leader.appended(6, 10)
    fetch(leader, 2, 6, now_ms=10)
    leader.registered({**ALIVE, 3: registered(3, 13, directories=(THERE,))})
    assert leader.high_watermark == 0, "it is in the ISR still"
    assert leader.granted((1, 2), 8, 10)
    assert leader.high_watermark == 6
    assert leader.propose_join(3, 10) is None


def test_a_replica_that_has_moved_to_another_disk_counts_again() -> None:
    leader = elected(isr=(1, 2), directories=(HERE, HERE, HERE))
    alive = {**ALIVE, 3: registered(3, 13, directories=(THERE,))}
    leader.registered(alive)
    fetch(leader, 3, 0)
    assert leader.propose_join(3, 0) is None
    leader.reassigned(decided((1, 2, 3), (1, 2), (HERE, HERE, THERE)))
    leader.registered(alive)
    assert leader.propose_join(3, 0) is not None


def test_a_follower_joins_only_with_all_that_is_committed() -> None:
    leader = elected(isr=(1, 2), log_end=10, high_watermark=8)
    fetch(leader, 2, 10)
    fetch(leader, 3, 7)
    assert leader.propose_join(3, 0) is None


def test_a_follower_joins_only_past_the_start_of_the_epoch() -> None:
    """KAFKA-7128: a new leader's watermark may lag behind what its predecessor committed."""
    leader = elected(isr=(1, 2), log_end=10, high_watermark=4)
    fetch(leader, 3, 6)
    assert leader.high_watermark == 4
    assert leader.propose_join(3, 0) is None
    fetch(leader, 3, 10)
    proposal = leader.propose_join(3, 0)
    assert proposal == Proposal(Change.EXPAND, (1, 2, 3), 5, 7)


@pytest.mark.parametrize(
    ("alive", "epoch"),
    [({3: registered(3, 13, fenced=True)}, 13), ({3: registered(3, 14)}, 13), ({}, 13)],
    ids=["fenced", "another broker epoch", "unregistered"],
)
def test_a_fenced_or_replaced_follower_may_not_join(alive: dict[int, Broker], epoch: int) -> None:
    """KIP-841, KIP-903: a fetch sent before a reboot must not bring an empty disk in."""
    leader = elected(isr=(1, 2))
    leader.registered(alive)
    leader.fetched(3, 0, 0, epoch, 0)
    assert leader.propose_join(3, 0) is None


def test_under_min_isr_a_laggard_may_not_join() -> None:
    """KAFKA-19996: the watermark stands still there, so to hold all below it says nothing."""
    leader = elected(isr=(1,), log_end=0)
    leader.appended(100, 0)
    fetch(leader, 2, 50, now_ms=10)
    assert leader.propose_join(2, 10) is None
    fetch(leader, 2, 100, now_ms=20)
    assert leader.propose_join(2, 20) is not None


def test_a_follower_that_is_always_one_batch_behind_stays_in_sync() -> None:
    """It is caught up as of its previous fetch when it has what the leader had then."""
    leader = elected(replicas=(1, 2), isr=(1, 2))
    for turn in range(1, 20):
        now_ms = turn * (LAG_MS // 2)
        leader.appended(turn * 10, now_ms)
        fetch(leader, 2, (turn - 1) * 10, now_ms)
        assert leader.propose_leave(now_ms) is None, f"turn {turn}"


def test_a_follower_that_stops_fetching_leaves_after_the_lag_time() -> None:
    leader = elected()
    fetch(leader, 2, 0)
    fetch(leader, 3, 0)
    leader.appended(5, 1)
    fetch(leader, 2, 5, now_ms=LAG_MS)
    assert leader.propose_leave(LAG_MS) is None
    proposal = leader.propose_leave(LAG_MS + 1)
    assert proposal == Proposal(Change.SHRINK, (1, 2), 5, 7)
    assert leader.propose_leave(LAG_MS + 2) is None, "one proposal at a time"


def test_an_idle_follower_at_the_log_end_stays_however_long() -> None:
    leader = elected()
    fetch(leader, 2, 0)
    fetch(leader, 3, 0)
    assert leader.propose_leave(100 * LAG_MS) is None


@pytest.mark.parametrize(
    ("error", "reaction", "still_pending"),
    [
        (ErrorCode.INELIGIBLE_REPLICA, Reaction.FORGET, False),
        (ErrorCode.OPERATION_NOT_ATTEMPTED, Reaction.FORGET, False),
        (ErrorCode.INVALID_UPDATE_VERSION, Reaction.AWAIT_METADATA, True),
        (ErrorCode.FENCED_LEADER_EPOCH, Reaction.AWAIT_METADATA, True),
        (ErrorCode.NEW_LEADER_ELECTED, Reaction.AWAIT_METADATA, True),
        (ErrorCode.INVALID_REQUEST, Reaction.AWAIT_METADATA, True),
        (ErrorCode.UNKNOWN_TOPIC_ID, Reaction.AWAIT_METADATA, True),
        (ErrorCode.NOT_CONTROLLER, Reaction.RETRY, True),
        (ErrorCode.UNKNOWN_SERVER_ERROR, Reaction.RETRY, True),
    ],
)
def test_what_a_refusal_means(error: ErrorCode, reaction: Reaction, *, still_pending: bool) -> None:
    leader = elected(isr=(1, 2))
    fetch(leader, 3, 0)
    proposal = leader.propose_join(3, 0)
    assert proposal is not None
    assert leader.refused(proposal, error) is reaction
    assert (leader.pending is proposal) is still_pending


def test_the_larger_partition_epoch_wins_whichever_way_it_comes() -> None:
    leader = elected()
    assert not leader.granted((1, 2), 7, 0), "an equal partition epoch changes nothing"
    assert leader.isr == (1, 2, 3)
    leader.granted((1, 3), 9, 0)
    leader.granted((1, 2), 8, 0)
    assert sorted(leader.isr) == [1, 3]


def test_acknowledgements() -> None:
    leader = elected()
    leader.appended(5, 0)
    assert leader.acknowledgement(5) is None
    fetch(leader, 2, 5)
    fetch(leader, 3, 5)
    assert leader.acknowledgement(5) is ErrorCode.NONE
    leader.set_min_insync(3)
    leader.granted((1, 2), 8, 0)
    assert leader.acknowledgement(5) is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND


@pytest.mark.slow
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["append", "fetch", "leave", "join", "grant", "refuse"]),
            st.integers(2, 3),
            st.integers(0, 40),
            st.integers(0, 700),
        ),
        max_size=60,
    ),
    st.integers(1, 3),
)
@settings(max_examples=200, deadline=None, derandomize=True)
def test_nothing_is_committed_that_a_member_lacks(
    steps: list[tuple[str, int, int, int]], min_insync: int
) -> None:
    """Goal: whatever happens, each member of the committed ISR holds what is committed, the
    watermark never falls, and under min ISR it does not move. Method: random steps.
    """
    leader = elected(min_insync=min_insync)
    held = {2: 0, 3: 0}
    now_ms = 0
    for action, node, amount, wait_ms in steps:
        now_ms += wait_ms
        before, size_before = leader.high_watermark, len(leader.isr)
        if action == "append":
            leader.appended(leader.log_end + amount, now_ms)
        elif action == "fetch":
            held[node] = min(leader.log_end, held[node] + amount)
            fetch(leader, node, held[node], now_ms)
        elif action == "leave":
            leader.propose_leave(now_ms)
        elif action == "join":
            leader.propose_join(node, now_ms)
        elif leader.pending is not None and action == "grant":
            leader.granted(leader.pending.isr, leader.partition_epoch + 1, now_ms)
        elif leader.pending is not None:
            leader.refused(leader.pending, ErrorCode.INELIGIBLE_REPLICA)
        assert leader.high_watermark >= before
        if min(size_before, len(leader.isr)) < leader.min_insync:
            assert leader.high_watermark == before or len(leader.isr) >= leader.min_insync
        for member in leader.isr:
            assert member == 1 or held[member] >= leader.high_watermark


@given(
    st.lists(
        st.tuples(st.sampled_from(["append", "fetch", "stuck", "shrink"]), st.integers(0, 700)),
        max_size=60,
    )
)
@settings(max_examples=300, deadline=None, derandomize=True)
def test_a_session_that_leaves_out_what_is_the_same_says_what_naming_it_says(
    steps: list[tuple[str, int]],
) -> None:
    """Goal: who is caught up, and when it last was, is the same for a follower that names the
    partition in each fetch and for one whose session leaves it out while nothing has changed.

    Seen to fail: with the times of named fetches alone, a follower of a partition that had been
    quiet for the lag time was thrown out of the ISR by the next append.
    """
    named, session = elected(), LastFetch()
    in_session = elected()
    offset, changed, now_ms = 0, True, 1
    for action, wait_ms in steps:
        now_ms += wait_ms
        if action == "append":
            for leader in (named, in_session):
                leader.appended(leader.log_end + 1, now_ms)
            changed = True
        elif action != "shrink":
            if action == "fetch" and offset < named.log_end:
                offset, changed = named.log_end, True
            fetch(named, 2, offset, now_ms)
            if changed or offset < in_session.log_end:
                in_session.fetched(2, offset, 0, ALIVE[2].epoch, now_ms, session)
            session.at_ms = now_ms
            changed = False
        one, other = named.followers[2], in_session.followers[2]
        assert one.last_caught_up_ms == other.last_caught_up_ms
        assert one.last_fetch_ms == other.last_fetch_ms
        assert named.is_caught_up(2, now_ms) is in_session.is_caught_up(2, now_ms)
        assert named.high_watermark == in_session.high_watermark


def test_a_partition_that_a_session_has_set_aside_is_not_kept_in_sync_by_it() -> None:
    """Seen to fail: it stayed in the ISR for ever, and no acks=all came to its end."""
    leader, session = elected(), LastFetch()
    leader.fetched(2, 0, 0, ALIVE[2].epoch, 0, session)
    fetch(leader, 3, 0, 0)
    leader.left_out(2)
    leader.appended(1, 100)
    session.at_ms = 5000
    fetch(leader, 3, 1, 5000)
    assert not leader.is_caught_up(2, 5000)
    proposal = leader.propose_leave(5000)
    assert proposal is not None
    assert proposal.isr == (1, 3)
