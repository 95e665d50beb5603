"""BrokerRegistration (key 62), versions 0 to 4.

What a broker says of itself when it starts. Security protocols: 0 PLAINTEXT, 1 SSL,
2 SASL_PLAINTEXT, 3 SASL_SSL. A previous broker epoch of -1: the last shutdown was not clean.
"""

from __future__ import annotations

from holdfast.wire.schema import (
    RefusableResponse,
    Request,
    array,
    boolean,
    int32,
    int64,
    string,
    uuid,
)
from holdfast.wire.structs import RegisteredEndpoint, RegisteredFeature


class BrokerRegistrationRequest(Request, key=62, versions=(0, 4), flexible=0):
    broker_id: int = int32()
    cluster_id: str = string()
    incarnation_id: bytes = uuid()
    listeners: list[RegisteredEndpoint] = array(RegisteredEndpoint)
    features: list[RegisteredFeature] = array(RegisteredFeature)
    rack: str | None = string(nullable=0)
    is_migrating_zk_broker: bool = boolean(since=1)
    log_dirs: list[bytes] = array(uuid, since=2, ignorable=True)
    previous_broker_epoch: int = int64(since=3, ignorable=True, default=-1)


class BrokerRegistrationResponse(RefusableResponse, key=62, versions=(0, 4), flexible=0):
    broker_epoch: int = int64(default=-1)
