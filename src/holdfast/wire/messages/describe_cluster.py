"""DescribeCluster (key 60), versions 0 to 2.

Endpoint types: 1 brokers, 2 controllers.
"""

from __future__ import annotations

from holdfast.wire.schema import (
    RefusableResponse,
    Request,
    Struct,
    array,
    boolean,
    int8,
    int32,
    string,
)


class DescribeClusterRequest(Request, key=60, versions=(0, 2), flexible=0):
    include_cluster_authorized_operations: bool = boolean()
    endpoint_type: int = int8(since=1, default=1)
    include_fenced_brokers: bool = boolean(since=2)


class DescribeClusterBroker(Struct):
    broker_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(nullable=0, default=None)
    is_fenced: bool = boolean(since=2)


class DescribeClusterResponse(RefusableResponse, key=60, versions=(0, 2), flexible=0):
    error_message: str | None = string(nullable=0, default=None)
    endpoint_type: int = int8(since=1, default=1)
    cluster_id: str = string()
    controller_id: int = int32(default=-1)
    brokers: list[DescribeClusterBroker] = array(DescribeClusterBroker)
    cluster_authorized_operations: int = int32(default=-2_147_483_648)
