"""Goal: who is registered, fenced, unfenced and let go follows the rules.

Method: brokers are driven with requests and a clock that is a number.
Rules: brokers.md#registration, brokers.md#heartbeats, brokers.md#fencing,
brokers.md#controlled-shutdown.
"""

from __future__ import annotations

import pytest
from tests.core.control_kit import SESSION_MS, Cluster, identity

from holdfast.core.controller.broker_sessions import (
    PRODUCER_ID_BLOCK,
    allocate_producer_ids,
    next_expiry_ms,
)
from holdfast.core.controller.decisions import ControllerState
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest

E = ErrorCode


def test_a_broker_epoch_is_the_offset_of_the_registration() -> None:
    cluster = Cluster()
    expected = cluster.state.next_offset
    assert cluster.register(0).broker_epoch == expected
    assert cluster.state.image.brokers[0].fenced


def test_it_is_unfenced_once_it_has_read_its_own_registration() -> None:
    cluster = Cluster()
    epoch = cluster.register(0).broker_epoch
    answer = cluster.beat(0, current_metadata_offset=epoch - 1)
    assert (answer.is_fenced, answer.is_caught_up) == (True, False)
    assert cluster.beat(0, current_metadata_offset=epoch, want_fence=True).is_fenced
    answer = cluster.beat(0, current_metadata_offset=epoch)
    assert (answer.is_fenced, answer.is_caught_up) == (False, True)
    assert cluster.state.image.is_active(0)


def test_another_start_has_to_wait_until_the_session_is_over() -> None:
    cluster = Cluster().start(0)
    cluster.incarnations[0] = 9
    assert cluster.register(0).error_code == E.DUPLICATE_BROKER_REGISTRATION
    cluster.now_ms += SESSION_MS
    assert cluster.register(0).error_code == E.DUPLICATE_BROKER_REGISTRATION
    cluster.now_ms += 1
    assert cluster.register(0).error_code == E.NONE


def test_a_start_that_comes_before_the_sweep_takes_the_old_one_out_of_its_partitions() -> None:
    cluster = Cluster().start(0, 1)
    cluster.create("t", [0, 1])
    cluster.now_ms += SESSION_MS + 1
    cluster.beat(1)
    cluster.incarnations[0] = 9
    assert cluster.register(0).error_code == E.NONE
    partition = cluster.partition("t")
    assert (partition.leader, partition.isr, partition.leader_epoch) == (1, (1,), 1)
    assert cluster.state.image.brokers[0].fenced


def test_registering_again_after_a_lost_answer_keeps_the_epoch() -> None:
    cluster = Cluster().start(0)
    epoch = cluster.epoch(0)
    assert cluster.register(0).broker_epoch == epoch
    assert cluster.state.image.is_active(0)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"cluster_id": "another"}, E.INCONSISTENT_CLUSTER_ID),
        ({"listeners": []}, E.INVALID_REGISTRATION),
        ({"is_migrating_zk_broker": True}, E.INVALID_REGISTRATION),
        ({"log_dirs": [identity(1, 0xD0)]}, E.INVALID_REGISTRATION),  # a copy of broker 1's disk
        ({"features": []}, E.UNSUPPORTED_VERSION),
    ],
)
def test_registrations_that_are_refused(changes: dict[str, object], expected: ErrorCode) -> None:
    cluster = Cluster().start(1)
    before = cluster.state.image.offset
    assert cluster.register(0, **changes).error_code == expected
    assert cluster.state.image.offset == before


def test_heartbeats_of_strangers() -> None:
    cluster = Cluster().start(0)
    assert cluster.beat(7).error_code == E.BROKER_ID_NOT_REGISTERED
    assert cluster.beat(0, broker_epoch=cluster.epoch(0) - 1).error_code == E.STALE_BROKER_EPOCH


def test_a_session_that_runs_out_fences_and_a_word_unfences() -> None:
    cluster = Cluster().start(0, 1)
    cluster.create("t", [0, 1])
    cluster.die(0)
    cluster.advance(SESSION_MS)
    assert cluster.state.image.is_active(0)
    cluster.advance(1)
    assert not cluster.state.image.is_active(0)
    assert cluster.partition("t").isr == (1,)
    assert not cluster.beat(0).is_fenced  # it was only stopped: its epoch is still good
    assert cluster.state.image.is_active(0)


def test_the_next_expiry_is_the_moment_when_the_sweep_finds_it() -> None:
    cluster = Cluster().start(0)
    assert next_expiry_ms(Cluster().state) is None
    due = next_expiry_ms(cluster.state)
    assert due is not None
    cluster.die(0)
    cluster.now_ms = due - 1
    cluster.sweep()
    assert cluster.state.image.is_active(0)
    cluster.now_ms = due
    cluster.sweep()
    assert not cluster.state.image.is_active(0)


@pytest.mark.parametrize("last", [1, 2])
def test_of_two_that_die_together_the_one_heard_last_stays_in_the_isr(last: int) -> None:
    """Both are found in one sweep: each is fenced as if the other one had gone before."""
    cluster = Cluster().start(0, 1, 2)
    cluster.create("t", [1, 2])
    for broker_id in (0, 3 - last, last):
        cluster.now_ms += 1
        cluster.beat(broker_id)
    cluster.now_ms += SESSION_MS + 1
    cluster.beat(0)
    cluster.sweep()
    assert [broker.broker_id for broker in cluster.state.image.active_brokers()] == [0]
    partition = cluster.partition("t")
    assert (partition.leader, partition.isr) == (-1, (last,))


def test_a_new_controller_gives_everybody_a_whole_session() -> None:
    cluster = Cluster().start(0)
    cluster.now_ms += 10 * SESSION_MS
    cluster.state.activate(cluster.now_ms)
    cluster.sweep()
    assert cluster.state.image.is_active(0)


def test_a_broker_leaves_once_the_others_know() -> None:
    """Controlled shutdown: leadership first, then the others' knowledge, then the permission."""
    cluster = Cluster().start(0, 1, 2)
    cluster.create("t", [0, 1, 2])
    cluster.create("u", [1, 0])
    for other in (1, 2):
        cluster.beat(other)
    answer = cluster.beat(0, want_shut_down=True)
    assert (answer.should_shut_down, answer.is_fenced) == (False, False)
    assert cluster.state.image.brokers[0].in_controlled_shutdown
    assert (cluster.partition("t").leader, cluster.partition("t").isr) == (1, (1, 2))
    assert cluster.partition("u").isr == (1,)
    assert not cluster.beat(0, want_shut_down=True).should_shut_down
    cluster.beat(1)
    assert not cluster.beat(0, want_shut_down=True).should_shut_down  # 2 has not read it yet
    cluster.beat(2)
    answer = cluster.beat(0, want_shut_down=True)
    assert (answer.should_shut_down, answer.is_fenced) == (True, True)
    assert cluster.state.image.brokers[0].fenced


def test_a_broker_that_was_let_go_may_come_back_at_once() -> None:
    cluster = Cluster().start(0)
    assert not cluster.beat(0, want_shut_down=True).should_shut_down
    assert cluster.beat(0, want_shut_down=True).should_shut_down
    cluster.incarnations[0] = 9
    assert cluster.register(0).error_code == E.NONE
    assert not cluster.state.image.brokers[0].in_controlled_shutdown


def test_a_broker_that_was_let_go_stays_out_until_it_registers_again() -> None:
    """It changes its mind, or an old heartbeat is late: it must not lead on its way out."""
    cluster = Cluster().start(0)
    cluster.create("t", [0])
    cluster.beat(0, want_shut_down=True)
    assert cluster.beat(0, want_shut_down=True).should_shut_down
    assert cluster.beat(0).is_fenced
    assert cluster.partition("t").leader == -1
    cluster.start(0)
    assert cluster.partition("t").leader == 0


def test_a_stopped_neighbour_does_not_hold_a_departure_up_for_ever() -> None:
    cluster = Cluster().start(0, 1)
    cluster.die(1)
    cluster.beat(0, want_shut_down=True)
    assert not cluster.beat(0, want_shut_down=True).should_shut_down
    cluster.now_ms += SESSION_MS + 1
    cluster.sweep()
    cluster.incarnations[0] = 1
    assert cluster.beat(0, want_shut_down=True).should_shut_down


def test_a_fenced_broker_may_go_at_once() -> None:
    cluster = Cluster()
    cluster.register(0)
    assert cluster.beat(0, want_shut_down=True).should_shut_down
    cluster.incarnations[0] = 9
    assert cluster.register(0).error_code == E.NONE, "nor need its next start wait"


def test_producer_ids_come_in_blocks_that_never_overlap() -> None:
    cluster = Cluster().start(0, 1)
    starts = []
    for broker_id in (0, 1, 0):
        request = AllocateProducerIdsRequest(
            broker_id=broker_id, broker_epoch=cluster.epoch(broker_id)
        )
        answer = cluster.decide(allocate_producer_ids, request)
        assert (answer.error_code, answer.producer_id_len) == (E.NONE, PRODUCER_ID_BLOCK)
        starts.append(answer.producer_id_start)
    assert starts == [0, 1000, 2000]
    assert cluster.state.image.next_producer_id == 3000
    stale = AllocateProducerIdsRequest(broker_id=0, broker_epoch=-1)
    assert cluster.decide(allocate_producer_ids, stale).error_code == E.STALE_BROKER_EPOCH


def test_presences_of_an_older_epoch_do_not_count() -> None:
    cluster = Cluster().start(0)
    state: ControllerState = cluster.state
    state.presences[0].epoch -= 1
    assert not state.session_lives(0, cluster.now_ms)
