"""The simulator sees: a broker that refuses consumers what they may read, or serves them no more.

Goal: what nobody was given is no loss for the judge, so that a broker which refuses all reads would
pass for the safest one. Method: a leader of one partition is made up; each error beside what allows
it, and beside what doesn't.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest

from holdfast.testing.ground.disk import DiskFault
from holdfast.testing.simulated_client import ClusterClient
from holdfast.testing.simulated_cluster import SimulatedCluster
from holdfast.testing.simulation import workload
from holdfast.testing.simulation.allowances import Election
from holdfast.testing.simulation.chain import Entry
from holdfast.testing.simulation.clients import History
from holdfast.testing.simulation.metadata import State
from holdfast.testing.simulation.oracle import Oracle
from holdfast.testing.simulation.plan import Plan, ReaderPlan
from holdfast.testing.simulation.readable import is_refused_rightly, true_leader
from holdfast.testing.simulation.readers import SimulatedReader
from holdfast.testing.simulation.replica_seen import Replica
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.fetch import PartitionData

TOPIC_ID = bytes(range(16))
KEY = TOPIC_ID, 0
NO_CLIENT = cast("ClusterClient", None)  # nothing is sent


@pytest.fixture
def oracle() -> Oracle:
    """Node 1 leads t-0, in which four records are committed, since epoch 1."""
    made = Oracle()
    made.metadata.topics[TOPIC_ID] = "t"
    made.metadata.partitions[KEY] = State(
        replicas=(1, 2), isr=(1, 2), leader=1, leader_epoch=1, partition_epoch=1
    )
    truth = made.truth(KEY)
    truth.elections[1] = Election(
        leader=1, isr_before=(1, 2), elr_before=(), elr_after=(), last_known=(), elr_on=False,
        unclean_allowed=False,
    )  # fmt: skip
    replica = Replica(1, SimpleNamespace(recovery_point=0))
    truth.opened(replica, (), start=0, high_watermark=0, cause="")
    truth.led(replica, 1)
    truth.appended(replica, Entry(0, 3, 1, 10), leads=True)
    truth.committed_until(replica, 4, 4)
    assert made.violation is None
    return made


def is_right(oracle: Oracle, code: ErrorCode, *, at: int = 0, node: int = 1) -> bool:
    before = true_leader(oracle, "t", 0, node)
    return is_refused_rightly(oracle, "t", 0, node, before=before, at=at, code=code)


OF_OTHERS = [
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.LEADER_NOT_AVAILABLE,
]


@pytest.mark.parametrize("code", OF_OTHERS)
def test_who_leads_knows_it(oracle: Oracle, code: ErrorCode) -> None:
    assert not is_right(oracle, code)
    assert is_right(oracle, code, node=2)
    metadata = oracle.metadata
    later = replace(metadata.partitions[KEY], leader_epoch=2)  # of which it has not heard
    before = true_leader(oracle, "t", 0, 1)
    metadata.partitions[KEY] = later
    assert is_right(oracle, code)
    assert is_refused_rightly(oracle, "t", 0, 1, before=before, at=0, code=code)


def test_who_stops_lets_go_before_the_controller_says_so(oracle: Oracle) -> None:
    """Seen in seed 780015: no controller was active, and its open connections heard of it."""
    code = ErrorCode.NOT_LEADER_OR_FOLLOWER
    oracle.stopping.add(1)
    assert is_right(oracle, code)
    assert not is_right(oracle, ErrorCode.UNKNOWN_SERVER_ERROR)
    oracle.died(1)
    assert not oracle.stopping


def test_a_process_that_has_not_begun_to_lead_is_no_leader(oracle: Oracle) -> None:
    """Not even in the first epoch."""
    metadata, truth = oracle.metadata, oracle.truth(KEY)
    metadata.partitions[KEY] = replace(metadata.partitions[KEY], leader_epoch=0)
    truth.died(1)
    again = Replica(1, SimpleNamespace(recovery_point=0))
    truth.opened(again, truth.committed.entries, start=0, high_watermark=4, cause="")
    assert true_leader(oracle, "t", 0, 1) is None


@pytest.mark.parametrize(
    "code", [ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_REQUEST]
)
def test_what_nobody_may_say(oracle: Oracle, code: ErrorCode) -> None:
    assert not is_right(oracle, code)
    assert not is_right(oracle, code, node=2)


def test_a_disk_fails_a_reader_only_if_it_has_failed(oracle: Oracle) -> None:
    """Seen to fail: a session that answered so for ever, for every other partition."""
    code = ErrorCode.KAFKA_STORAGE_ERROR
    fault = DiskFault(operations={"read"})
    assert not is_right(oracle, code)
    oracle.faults.laid_in(1, fault)
    assert not is_right(oracle, code)
    fault.struck = 1
    assert is_right(oracle, code)
    assert not is_right(oracle, code, node=2)


def test_what_is_committed_is_in_range(oracle: Oracle) -> None:
    code = ErrorCode.OFFSET_OUT_OF_RANGE
    assert [is_right(oracle, code, at=at) for at in (0, 4, 5)] == [False, False, True]
    assert is_right(oracle, code, node=2)
    replica = oracle.truth(KEY).replicas[1]
    replica.start = 3  # as by retention
    assert [is_right(oracle, code, at=at) for at in (2, 3)] == [True, False]


def test_a_reader_that_never_ends_is_named(oracle: Oracle, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen to fail: producers only were, and nobody was late where none was named."""
    monkeypatch.setattr(workload, "STOP_S", 0.01)
    reader = SimulatedReader(0, ReaderPlan(topic="t"), 2, NO_CLIENT, History(), oracle)
    plan = Plan(seed=0, brokers=1, controllers=1, combined=True, elr=False)

    async def stop() -> list[str]:
        work = workload.Workload(plan, cast("SimulatedCluster", None), oracle)
        work._running.append(reader)
        work._tasks.append(asyncio.get_running_loop().create_task(asyncio.sleep(60.0)))
        late = await work.stop()
        work.cancel()
        return late

    assert asyncio.run(stop()) == ["reader-0 of t"]


def test_a_reader_has_to_come_on(oracle: Oracle) -> None:
    """Or to be answered at the end. Not to reach it: more may be written than it reads."""
    reader = SimulatedReader(0, ReaderPlan(topic="t"), 2, NO_CLIENT, History(), oracle)
    reader.expect({0: 100, 1: 0})
    assert len(reader.behind()) == 2
    nothing = PartitionData(partition_index=0, high_watermark=0)
    reader.take(1, nothing)
    reader.take(0, nothing)
    assert reader.behind() == ["reader-0 of t does not come on in 0: at 0, to pass 1"]
    reader._next[0] = 1
    reader.came(0)
    assert reader.behind() == []
