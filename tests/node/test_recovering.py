"""A leader that was elected uncleanly says that it has recovered, until the controller knows.

Seen to fail: with the proposal made once only. A change of another kind (a replica that told where
it lies) overtook it, and a partition of one replica was shown as recovering for ever.
"""

from __future__ import annotations

from dataclasses import replace

from tests.log.log_kit import TOPIC_ID, open_directories, virtual
from tests.node.replica_kit import decided, leading, replica

from holdfast.config.topic import TopicSettings
from holdfast.core.metadata.image import RecoveryState
from holdfast.core.replica.replication import Change, Proposal, Reaction
from holdfast.runtime.ports import Runtime
from holdfast.wire.errors import ErrorCode


def test_it_is_said_again_when_another_change_came_first() -> None:
    async def body(runtime: Runtime) -> None:
        directories = open_directories(runtime)
        proposals: list[Proposal] = []
        log = directories.create("t", 0, TOPIC_ID, TopicSettings())
        partition = replica(
            runtime, log, propose=lambda _leading, proposal: proposals.append(proposal)
        )
        uncleanly = decided(
            leader_epoch=4, partition_epoch=6, recovery_state=RecoveryState.RECOVERING
        )
        partition.lead(uncleanly, {})
        assert [each.change for each in proposals] == [Change.RECOVER]
        leader = leading(partition).state
        refused = leader.refused(proposals[0], ErrorCode.INVALID_UPDATE_VERSION)
        assert refused is Reaction.AWAIT_METADATA
        partition.lead(replace(uncleanly, partition_epoch=7), {})
        assert [each.partition_epoch for each in proposals] == [6, 7]
        partition.lead(replace(uncleanly, partition_epoch=7), {})
        done = replace(uncleanly, partition_epoch=8, recovery_state=RecoveryState.RECOVERED)
        partition.lead(done, {})
        assert len(proposals) == 2
        assert leader.pending is None
        await directories.close()

    virtual(body)
