"""UnregisterBroker (key 64), versions 0 to 0.

Takes a broker that is gone for good out of the metadata.
"""

from __future__ import annotations

from holdfast.wire.schema import ExplainedResponse, Request, int32


class UnregisterBrokerRequest(Request, key=64, versions=(0, 0), flexible=0):
    broker_id: int = int32()


class UnregisterBrokerResponse(ExplainedResponse, key=64, versions=(0, 0), flexible=0):
    """Says what became of it."""
