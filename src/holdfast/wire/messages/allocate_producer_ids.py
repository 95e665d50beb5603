"""AllocateProducerIds (key 67), versions 0 to 0.

A block of producer ids for one broker.
"""

from __future__ import annotations

from holdfast.wire.schema import BrokerRequest, RefusableResponse, int32, int64


class AllocateProducerIdsRequest(BrokerRequest, key=67, versions=(0, 0), flexible=0):
    """Asks for the next block."""


class AllocateProducerIdsResponse(RefusableResponse, key=67, versions=(0, 0), flexible=0):
    producer_id_start: int = int64()
    producer_id_len: int = int32()
