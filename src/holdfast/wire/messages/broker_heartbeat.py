"""BrokerHeartbeat (key 63), versions 0 to 1.

A broker's sign of life, and how it asks to be unfenced or to shut down.
"""

from __future__ import annotations

from holdfast.wire.schema import (
    BrokerRequest,
    RefusableResponse,
    array,
    boolean,
    int64,
    uuid,
)


class BrokerHeartbeatRequest(BrokerRequest, key=63, versions=(0, 1), flexible=0):
    current_metadata_offset: int = int64()
    want_fence: bool = boolean()
    want_shut_down: bool = boolean()
    offline_log_dirs: list[bytes] = array(uuid, since=1, tag=0)


class BrokerHeartbeatResponse(RefusableResponse, key=63, versions=(0, 1), flexible=0):
    is_caught_up: bool = boolean()
    is_fenced: bool = boolean(default=True)
    should_shut_down: bool = boolean()
