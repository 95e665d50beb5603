"""The protocol's index: which API a broker and a controller serve, in which versions, and where.

Each row names a module of this folder. A broker's row calls its `handle(broker, context, request)`;
a controller's row its `handle_on_controller(controller, context, request)`. A forwarded API is not
looked at by the broker at all: it travels to the controller in an Envelope. A controller that is
not the active one answers NOT_CONTROLLER, but where a row says that any controller serves it. What
is advertised is what stands here; Produce alone is advertised from 0 although 0-2 are refused.

Rules: connections.md#advertised-versions, connections.md#produce-from-version-0.
"""

from __future__ import annotations

from typing import NamedTuple


class Api(NamedTuple):
    """One API: the inclusive range of versions per role; None where the role does not serve it."""

    key: int
    module: str
    broker: tuple[int, int] | None = None
    controller: tuple[int, int] | None = None
    forwarded: bool = False
    any_controller: bool = False  # served by those that are not active, too


APIS: tuple[Api, ...] = (
    Api(0, "produce", broker=(0, 12)),
    Api(1, "fetch", broker=(4, 17)),
    Api(1, "fetch_metadata_log", controller=(12, 17), any_controller=True),
    Api(2, "list_offsets", broker=(1, 11)),
    Api(3, "metadata", broker=(0, 13)),
    Api(10, "find_coordinator", broker=(0, 6)),
    Api(11, "join_group", broker=(0, 9)),
    Api(18, "api_versions", broker=(0, 4), controller=(0, 4), any_controller=True),
    Api(19, "create_topics", broker=(2, 7), controller=(2, 7), forwarded=True),
    Api(20, "delete_topics", broker=(1, 6), controller=(1, 6), forwarded=True),
    Api(21, "delete_records", broker=(0, 2)),
    Api(22, "init_producer_id", broker=(0, 5)),
    Api(23, "offset_for_leader_epoch", broker=(2, 4)),
    Api(32, "describe_configs", broker=(1, 4)),
    Api(33, "alter_configs", broker=(0, 2), controller=(0, 2), forwarded=True),
    Api(35, "describe_log_dirs", broker=(1, 4)),
    Api(37, "create_partitions", broker=(0, 3), controller=(0, 3), forwarded=True),
    Api(43, "elect_leaders", broker=(0, 2), controller=(0, 2), forwarded=True),
    Api(44, "incremental_alter_configs", broker=(0, 1), controller=(0, 1), forwarded=True),
    Api(
        45,
        "alter_partition_reassignments",
        broker=(0, 1),
        controller=(0, 1),
        forwarded=True,
    ),
    Api(46, "list_partition_reassignments", broker=(0, 0), controller=(0, 0), forwarded=True),
    Api(52, "vote", controller=(0, 2), any_controller=True),
    Api(53, "begin_quorum_epoch", controller=(0, 1), any_controller=True),
    Api(54, "end_quorum_epoch", controller=(0, 1), any_controller=True),
    Api(
        55,
        "describe_quorum",
        broker=(0, 2),
        controller=(0, 2),
        forwarded=True,
        any_controller=True,
    ),
    Api(56, "alter_partition", controller=(2, 3)),
    Api(57, "update_features", broker=(0, 2), controller=(0, 2), forwarded=True),
    Api(58, "envelope", controller=(0, 0)),
    Api(59, "fetch_snapshot", controller=(0, 1), any_controller=True),
    Api(60, "describe_cluster", broker=(0, 2), controller=(0, 2), any_controller=True),
    Api(62, "broker_registration", controller=(0, 4)),
    Api(63, "broker_heartbeat", controller=(0, 1)),
    Api(64, "unregister_broker", broker=(0, 0), controller=(0, 0), forwarded=True),
    Api(67, "allocate_producer_ids", controller=(0, 0)),
    Api(68, "consumer_group_heartbeat", broker=(0, 1)),
    Api(73, "assign_replicas_to_dirs", controller=(0, 0)),
    Api(80, "add_raft_voter", broker=(0, 1), controller=(0, 1), forwarded=True),
    Api(81, "remove_raft_voter", broker=(0, 0), controller=(0, 0), forwarded=True),
    Api(82, "update_raft_voter", controller=(0, 0)),
    Api(75, "describe_topic_partitions", broker=(0, 0)),
)

BROKER: dict[int, Api] = {api.key: api for api in APIS if api.broker is not None}
CONTROLLER: dict[int, Api] = {api.key: api for api in APIS if api.controller is not None}
