"""One module per API, imported when its classes are first asked for.

Owns the table of API keys. Must never import a message module by itself: a node starts with the
few it serves first.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Final

from holdfast.wire.errors import WireError
from holdfast.wire.schema import VERSION_MAX, Request, Response

API_NAMES: Final[dict[int, str]] = {
    0: "Produce",
    1: "Fetch",
    2: "ListOffsets",
    3: "Metadata",
    8: "OffsetCommit",
    9: "OffsetFetch",
    10: "FindCoordinator",
    11: "JoinGroup",
    12: "Heartbeat",
    13: "LeaveGroup",
    14: "SyncGroup",
    15: "DescribeGroups",
    16: "ListGroups",
    18: "ApiVersions",
    19: "CreateTopics",
    20: "DeleteTopics",
    21: "DeleteRecords",
    22: "InitProducerId",
    23: "OffsetForLeaderEpoch",
    28: "TxnOffsetCommit",
    32: "DescribeConfigs",
    33: "AlterConfigs",
    35: "DescribeLogDirs",
    37: "CreatePartitions",
    42: "DeleteGroups",
    43: "ElectLeaders",
    44: "IncrementalAlterConfigs",
    45: "AlterPartitionReassignments",
    46: "ListPartitionReassignments",
    47: "OffsetDelete",
    52: "Vote",
    53: "BeginQuorumEpoch",
    54: "EndQuorumEpoch",
    55: "DescribeQuorum",
    56: "AlterPartition",
    57: "UpdateFeatures",
    58: "Envelope",
    59: "FetchSnapshot",
    60: "DescribeCluster",
    61: "DescribeProducers",
    62: "BrokerRegistration",
    63: "BrokerHeartbeat",
    64: "UnregisterBroker",
    67: "AllocateProducerIds",
    68: "ConsumerGroupHeartbeat",
    69: "ConsumerGroupDescribe",
    70: "ControllerRegistration",
    73: "AssignReplicasToDirs",
    74: "ListConfigResources",
    75: "DescribeTopicPartitions",
    80: "AddRaftVoter",
    81: "RemoveRaftVoter",
    82: "UpdateRaftVoter",
}
"""The APIs whose messages are known here, by key."""
FLEXIBLE_SINCE: Final[dict[int, int]] = {
    0: 9,
    1: 12,
    2: 6,
    3: 9,
    8: 8,
    9: 6,
    10: 3,
    11: 6,
    12: 4,
    13: 4,
    14: 4,
    15: 5,
    16: 3,
    18: 3,
    19: 5,
    20: 4,
    21: 2,
    22: 2,
    23: 4,
    28: 3,
    32: 4,
    33: 2,
    35: 2,
    37: 2,
    42: 2,
    43: 2,
    44: 1,
    45: 0,
    46: 0,
    47: VERSION_MAX,
    52: 0,
    53: 1,
    54: 1,
    55: 0,
    56: 0,
    57: 0,
    58: 0,
    59: 0,
    60: 0,
    61: 0,
    62: 0,
    63: 0,
    64: 0,
    67: 0,
    68: 0,
    69: 0,
    70: 0,
    73: 0,
    74: 0,
    75: 0,
    80: 0,
    81: 0,
    82: 0,
}
"""The first version of each API whose requests and responses are flexible.

Here too, so that a header is read without importing the message; a test compares.
"""


@cache
def request_class(key: int) -> type[Request]:
    """Return the request class of an API. WireError: its messages are not known here."""
    return _load(key, "Request")


@cache
def response_class(key: int) -> type[Response]:
    """Return the response class of an API. WireError: its messages are not known here."""
    return _load(key, "Response")


def api_name(key: int) -> str:
    """Return the API's name as Kafka spells it; `API 99` for one not known here."""
    return API_NAMES.get(key, f"API {key}")


def module_name(key: int) -> str:
    """Return the module of an API within this package: `list_offsets` for ListOffsets."""
    return "".join("_" + c.lower() if c.isupper() else c for c in API_NAMES[key]).removeprefix("_")


def _load(key: int, suffix: str) -> type:
    if key not in API_NAMES:
        raise WireError(f"API key {key} is not known here")
    module = import_module(f"{__name__}.{module_name(key)}")
    found: type = getattr(module, API_NAMES[key] + suffix)
    return found
