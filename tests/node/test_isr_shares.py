"""Goal: a broker that proposes thousands of ISRs asks for a bearable share of them at a time, in
the order in which they came, and forgets none.

Method: the proposals of a broker's return, and a controller that is answered for by hand.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from holdfast.core.replica.replication import Change, Proposal
from holdfast.node.broker.isr_changes import ASKED_MAX, IsrChanges
from holdfast.wire.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse

TOPIC = b"t" * 16
COUNT = 2 * ASKED_MAX + 7


def proposing(index: int) -> Any:
    proposal = Proposal(isr=(0, 1), change=Change.EXPAND, leader_epoch=1, partition_epoch=1)
    state = SimpleNamespace(pending=proposal, followers={1: SimpleNamespace(broker_epoch=5)})
    return SimpleNamespace(key=(TOPIC, index), is_current=True, state=state)


def test_proposals_go_out_in_shares_in_their_order() -> None:
    asked: list[list[int]] = []

    async def main() -> None:
        changes = IsrChanges(SimpleNamespace(), SimpleNamespace(node=0, epoch=5))  # type: ignore[arg-type]

        def ask(request: AlterPartitionRequest, came: Callable[..., None]) -> None:
            found = [each.partition_index for topic in request.topics for each in topic.partitions]
            asked.append(found)
            came(AlterPartitionResponse(), None)

        changes._ask = ask  # type: ignore[method-assign,assignment]
        leading = [proposing(index) for index in range(COUNT)]
        for each in leading:
            changes.propose(each, each.state.pending)
        for each in leading[:ASKED_MAX]:
            each.is_current = False  # their epochs are over before anybody could ask
        while sum(map(len, asked)) < COUNT - ASKED_MAX:
            await asyncio.sleep(0)

    asyncio.run(asyncio.wait_for(main(), 30))
    assert [len(each) for each in asked] == [ASKED_MAX, 7]
    assert [index for each in asked for index in each] == list(range(ASKED_MAX, COUNT))
