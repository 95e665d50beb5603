"""Goal: what is refused, or out of the ordinary, is answered as Apache Kafka 4.3.1 answers it.

Method: a simulated cluster, asked what `make compare` asks both. Each was seen to fail before.
"""

from __future__ import annotations

import pytest
from tests.control.control_world import play

from holdfast.testing.simulated_cluster import SimulatedCluster
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.init_producer_id import InitProducerIdRequest

E = ErrorCode


@pytest.mark.parametrize(
    "request_",
    [
        InitProducerIdRequest(transactional_id=None, producer_id=-1, producer_epoch=5),
        InitProducerIdRequest(transactional_id=None, producer_id=5, producer_epoch=-1),
        InitProducerIdRequest(transactional_id=""),
    ],
)
def test_a_producer_that_says_half_of_what_it_is(request_: InitProducerIdRequest) -> None:
    async def story(cluster: SimulatedCluster) -> None:
        client = cluster.client()
        await client.create_topic("t")
        answer = await client.ask(request_, node=0)
        assert answer.error_code == E.INVALID_REQUEST
        assert (answer.producer_id, answer.producer_epoch) == (-1, -1)

    play(story)
