"""The protocol's index: which API is served, in which versions, by whom, and what it takes.

Each row names a module of `node/api`. A broker that serves an API itself calls the module's
`handle(broker, context, request)`; a controller its `handle_on_controller(controller, context,
request)`. A forwarded API is not looked at by the broker at all: it travels to the controller in an
Envelope. What is advertised is what stands here; Produce alone is advertised from 0 although 0-2
are refused.

Whatever needs the cluster is refused by `dispatch`; of topics, groups and transactional ids the
API's own module refuses those that the client has no right to (`request_context.refused`).

Rules: connections.md#advertised-versions, connections.md#produce-from-version-0.
"""

from __future__ import annotations

from enum import Flag, auto
from typing import Final, NamedTuple

from holdfast.node.door.request_context import Need, Operation, ResourceType


class Role(Flag):
    """Who serves an API: a way for brokers, a way for controllers, or one of each."""

    BROKER = auto()  # each broker, by itself
    FORWARDING = auto()  # each broker, by passing it on to the active controller
    ACTIVE = auto()  # the active controller; the others answer NOT_CONTROLLER
    CONTROLLER = auto()  # each controller, active or not


FORWARDED: Final = Role.FORWARDING | Role.ACTIVE
ON_BROKER: Final = Role.BROKER | Role.FORWARDING
ON_CONTROLLER: Final = Role.ACTIVE | Role.CONTROLLER


CREATE_CLUSTER: Final = Need(Operation.CREATE, ResourceType.CLUSTER)  # any topic of it, that is
CLUSTER_ACTION: Final = Need(Operation.CLUSTER_ACTION, ResourceType.CLUSTER)  # what nodes do
ALTER_CLUSTER: Final = Need(Operation.ALTER, ResourceType.CLUSTER)
DESCRIBE_CLUSTER: Final = Need(Operation.DESCRIBE, ResourceType.CLUSTER)
LIST_CONFIGS: Final = Need(Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER)
READ_TOPIC: Final = Need(Operation.READ, ResourceType.TOPIC)
WRITE_TOPIC: Final = Need(Operation.WRITE, ResourceType.TOPIC)
CREATE_TOPIC: Final = Need(Operation.CREATE, ResourceType.TOPIC)
DELETE_TOPIC: Final = Need(Operation.DELETE, ResourceType.TOPIC)
ALTER_TOPIC: Final = Need(Operation.ALTER, ResourceType.TOPIC)
DESCRIBE_TOPIC: Final = Need(Operation.DESCRIBE, ResourceType.TOPIC)
DESCRIBE_CONFIGS: Final = Need(Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC)
ALTER_CONFIGS: Final = Need(Operation.ALTER_CONFIGS, ResourceType.TOPIC)
READ_GROUP: Final = Need(Operation.READ, ResourceType.GROUP)
DELETE_GROUP: Final = Need(Operation.DELETE, ResourceType.GROUP)
DESCRIBE_GROUP: Final = Need(Operation.DESCRIBE, ResourceType.GROUP)
WRITE_ID: Final = Need(Operation.WRITE, ResourceType.TRANSACTIONAL_ID)
DESCRIBE_ID: Final = Need(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID)
IDEMPOTENT_WRITE: Final = Need(Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER)


class Api(NamedTuple):
    """One API: its range of versions (inclusive), who serves it, and what it takes.

    `need` is None where everybody is answered, with no more than they may see.
    """

    key: int
    module: str
    versions: tuple[int, int]
    role: Role
    need: Need | None

    @property
    def needs_cluster(self) -> bool:
        """Whether the client needs a right over the cluster itself."""
        return self.need is not None and self.need.kind is ResourceType.CLUSTER

    def serves(self, version: int) -> bool:
        low, high = self.versions
        return low <= version <= high


APIS: Final[tuple[Api, ...]] = (
    Api(0, "produce", (0, 13), Role.BROKER, WRITE_TOPIC),
    Api(1, "fetch", (4, 18), Role.BROKER, READ_TOPIC),
    Api(1, "fetch_metadata_log", (12, 18), Role.CONTROLLER, CLUSTER_ACTION),
    Api(2, "list_offsets", (1, 11), Role.BROKER, DESCRIBE_TOPIC),
    Api(3, "metadata", (0, 13), Role.BROKER, DESCRIBE_TOPIC),
    Api(8, "offset_commit", (2, 10), Role.BROKER, READ_GROUP),
    Api(9, "offset_fetch", (1, 10), Role.BROKER, DESCRIBE_GROUP),
    Api(10, "find_coordinator", (0, 6), Role.BROKER, DESCRIBE_GROUP),
    Api(11, "join_group", (0, 9), Role.BROKER, READ_GROUP),
    Api(12, "heartbeat", (0, 4), Role.BROKER, READ_GROUP),
    Api(13, "leave_group", (0, 5), Role.BROKER, READ_GROUP),
    Api(14, "sync_group", (0, 5), Role.BROKER, READ_GROUP),
    Api(15, "describe_groups", (0, 6), Role.BROKER, DESCRIBE_GROUP),
    Api(16, "list_groups", (0, 5), Role.BROKER, None),
    Api(18, "api_versions", (0, 4), Role.BROKER | Role.CONTROLLER, None),
    Api(19, "create_topics", (2, 7), FORWARDED, CREATE_TOPIC),
    Api(20, "delete_topics", (1, 6), FORWARDED, DELETE_TOPIC),
    Api(21, "delete_records", (0, 2), Role.BROKER, DELETE_TOPIC),
    Api(22, "init_producer_id", (0, 5), Role.BROKER, WRITE_ID),
    Api(23, "offset_for_leader_epoch", (2, 4), Role.BROKER, DESCRIBE_TOPIC),
    Api(32, "describe_configs", (1, 4), Role.BROKER | Role.CONTROLLER, DESCRIBE_CONFIGS),
    Api(33, "alter_configs", (0, 2), FORWARDED, ALTER_CONFIGS),
    Api(35, "describe_log_dirs", (1, 5), Role.BROKER, DESCRIBE_CLUSTER),
    Api(37, "create_partitions", (0, 3), FORWARDED, ALTER_TOPIC),
    Api(42, "delete_groups", (0, 2), Role.BROKER, DELETE_GROUP),
    Api(43, "elect_leaders", (0, 2), FORWARDED, ALTER_CLUSTER),
    Api(44, "incremental_alter_configs", (0, 1), FORWARDED, ALTER_CONFIGS),
    Api(45, "alter_partition_reassignments", (0, 1), FORWARDED, ALTER_CLUSTER),
    Api(46, "list_partition_reassignments", (0, 0), FORWARDED, DESCRIBE_CLUSTER),
    Api(47, "offset_delete", (0, 0), Role.BROKER, DELETE_GROUP),
    Api(52, "vote", (0, 2), Role.CONTROLLER, CLUSTER_ACTION),
    Api(53, "begin_quorum_epoch", (0, 1), Role.CONTROLLER, CLUSTER_ACTION),
    Api(54, "end_quorum_epoch", (0, 1), Role.CONTROLLER, CLUSTER_ACTION),
    Api(55, "describe_quorum", (0, 2), Role.FORWARDING | Role.CONTROLLER, DESCRIBE_CLUSTER),
    Api(56, "alter_partition", (2, 3), Role.ACTIVE, CLUSTER_ACTION),
    Api(57, "update_features", (0, 2), FORWARDED, ALTER_CLUSTER),
    Api(58, "envelope", (0, 0), Role.ACTIVE, CLUSTER_ACTION),
    Api(59, "fetch_snapshot", (0, 1), Role.CONTROLLER, CLUSTER_ACTION),
    Api(60, "describe_cluster", (0, 2), Role.BROKER, None),
    Api(60, "describe_cluster", (0, 2), Role.CONTROLLER, ALTER_CLUSTER),
    Api(61, "describe_producers", (0, 0), Role.BROKER, READ_TOPIC),
    Api(62, "broker_registration", (0, 4), Role.ACTIVE, CLUSTER_ACTION),
    Api(63, "broker_heartbeat", (0, 1), Role.ACTIVE, CLUSTER_ACTION),
    Api(64, "unregister_broker", (0, 0), FORWARDED, ALTER_CLUSTER),
    Api(67, "allocate_producer_ids", (0, 0), Role.ACTIVE, CLUSTER_ACTION),
    Api(68, "consumer_group_heartbeat", (0, 1), Role.BROKER, READ_GROUP),
    Api(69, "consumer_group_describe", (0, 1), Role.BROKER, DESCRIBE_GROUP),
    Api(73, "assign_replicas_to_dirs", (0, 0), Role.ACTIVE, CLUSTER_ACTION),
    Api(74, "list_config_resources", (0, 1), Role.BROKER, LIST_CONFIGS),
    Api(75, "describe_topic_partitions", (0, 0), Role.BROKER, DESCRIBE_TOPIC),
    Api(80, "add_raft_voter", (0, 1), FORWARDED, ALTER_CLUSTER),
    Api(81, "remove_raft_voter", (0, 0), FORWARDED, ALTER_CLUSTER),
    Api(82, "update_raft_voter", (0, 0), Role.ACTIVE, CLUSTER_ACTION),
)

BROKER: Final = {api.key: api for api in APIS if api.role & ON_BROKER}
CONTROLLER: Final = {api.key: api for api in APIS if api.role & ON_CONTROLLER}
