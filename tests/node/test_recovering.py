"""A leader that was elected uncleanly says that it has recovered, until the controller knows.

Seen to fail: with the proposal made once only. A change of another kind (a replica that told where
it lies) overtook it, and a partition of one replica was shown as recovering for ever.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

from tests.log.log_kit import TOPIC_ID, open_directories, virtual

from holdfast.config.topic import TopicSettings
from holdfast.core import image
from holdfast.core.image import RecoveryState
from holdfast.core.replication import Change, Proposal, Reaction
from holdfast.node.partition import Partition
from holdfast.node.waiting import WaitingRoom
from holdfast.runtime.ports import Runtime
from holdfast.wire.errors import ErrorCode


def test_it_is_said_again_when_another_change_came_first() -> None:
    async def body(runtime: Runtime) -> None:
        directories = open_directories(runtime)
        proposals: list[Proposal] = []
        partition = Partition(
            node=0,
            topic="t",
            topic_id=TOPIC_ID,
            index=0,
            log=directories.create("t", 0, TOPIC_ID, TopicSettings()),
            settings=TopicSettings(),
            lag_ms_max=1000,
            clock=runtime.clock,
            waiting=WaitingRoom(asyncio.get_running_loop(), runtime.clock),
            propose=lambda _partition, proposal: proposals.append(proposal),
        )
        decided = image.Partition(
            topic="t",
            topic_id=TOPIC_ID,
            index=0,
            replicas=(0,),
            isr=(0,),
            leader=0,
            leader_epoch=4,
            partition_epoch=6,
            recovery_state=RecoveryState.RECOVERING,
        )
        partition.lead(decided, {})
        assert [each.change for each in proposals] == [Change.RECOVER]
        leader = partition.leader
        assert leader is not None
        refused = leader.refused(proposals[0], ErrorCode.INVALID_UPDATE_VERSION)
        assert refused is Reaction.AWAIT_METADATA
        partition.lead(replace(decided, partition_epoch=7), {})
        assert [each.partition_epoch for each in proposals] == [6, 7]
        partition.lead(replace(decided, partition_epoch=7), {})
        done = replace(decided, partition_epoch=8, recovery_state=RecoveryState.RECOVERED)
        partition.lead(done, {})
        assert len(proposals) == 2
        assert leader.pending is None
        await directories.close()

    virtual(body)
