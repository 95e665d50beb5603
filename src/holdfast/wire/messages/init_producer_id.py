"""InitProducerId (key 22), versions 0 to 5.

From 3 on a client may ask for the next epoch of a producer id that it has.
"""

from __future__ import annotations

from holdfast.wire.schema import RefusableResponse, Request, int16, int32, int64, string


class InitProducerIdRequest(Request, key=22, versions=(0, 5), flexible=2):
    transactional_id: str | None = string(nullable=0)
    transaction_timeout_ms: int = int32()
    producer_id: int = int64(since=3, default=-1)
    producer_epoch: int = int16(since=3, default=-1)


class InitProducerIdResponse(RefusableResponse, key=22, versions=(0, 5), flexible=2):
    producer_id: int = int64(default=-1)
    producer_epoch: int = int16()
