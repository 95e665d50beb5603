"""What an operator asks of a cluster: each request made and read once, in plain values, pure.

A function returns the request together with the reading of its answer. Whoever talks to a cluster
carries it there: `driver.perform(create_topic(...))` blocks, a simulated client awaits. Must never
send anything, wait or try again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final, Generic, TypeVar

from holdfast import __version__
from holdfast.wire.errors import error_name
from holdfast.wire.messages.add_raft_voter import AddRaftVoterRequest
from holdfast.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from holdfast.wire.messages.api_versions import ApiVersionsRequest
from holdfast.wire.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from holdfast.wire.messages.create_topics import DEFAULT, CreateTopicsRequest, new_topic
from holdfast.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from holdfast.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from holdfast.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from holdfast.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from holdfast.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from holdfast.wire.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from holdfast.wire.messages.remove_raft_voter import RemoveRaftVoterRequest
from holdfast.wire.messages.unregister_broker import UnregisterBrokerRequest
from holdfast.wire.messages.update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpgradeType,
)
from holdfast.wire.schema import Request
from holdfast.wire.structs import ConfigOperation, QuorumEndpoint, ResourceType

T = TypeVar("T")

TIMEOUT_MS: Final = 10_000
TopicPartition = tuple[str, int]


class AdminError(Exception):
    """The cluster refused; the text says what and why."""

    def __init__(
        self, what: str, code: int, message: str | None = None, *, subject: str = ""
    ) -> None:
        """`what` was asked, `subject`: of what alone. `message`: the node's own words."""
        super().__init__(f"{what}: {error_name(code)}" + (f" ({message})" if message else ""))
        self.subject = subject or what
        self.code = code
        self.message = message


@dataclass(frozen=True, slots=True)
class AdminRequest(Generic[T]):
    """What to send, and what turns its answer into plain values. AdminError: it is a refusal."""

    message: Request
    read: Callable[[Any], T]


def refuse(result: Any, doing: str, subject: str) -> None:
    """AdminError, if an answer or a part of it holds an error code. Some APIs have no message."""
    if result.error_code:
        message = getattr(result, "error_message", None)
        raise AdminError(f"{doing} {subject}", result.error_code, message, subject=subject)


def granted(
    doing: str, subject: str, results: Callable[[Any], Iterable[Any]]
) -> Callable[[Any], None]:
    """Return a reader for answers that say no more than yes or no, once for each result."""

    def read(response: Any) -> None:
        for result in results(response):
            refuse(result, doing, subject)

    return read


# Topics.


def create_topic(
    name: str,
    *,
    partitions: int = DEFAULT,
    replication_factor: int = DEFAULT,
    assignment: Mapping[int, Sequence[int]] | None = None,
    configs: Mapping[str, str] | None = None,
    timeout_ms: int = TIMEOUT_MS,
) -> AdminRequest[None]:
    """Create a topic that the cluster places by its racks, or one with exactly these replicas.

    `assignment`: the brokers of each partition, the preferred leader first; the two numbers are
    not used then.
    """
    topic = new_topic(name, partitions, replication_factor, assignment, configs)
    return AdminRequest(
        CreateTopicsRequest(topics=[topic], timeout_ms=timeout_ms),
        granted("creating", f"topic {name}", lambda response: response.topics),
    )


def delete_topic(name: str, timeout_ms: int = TIMEOUT_MS) -> AdminRequest[None]:
    """Delete a topic with its records."""
    return AdminRequest(
        DeleteTopicsRequest(
            topics=[DeleteTopicState(name=name)], topic_names=[name], timeout_ms=timeout_ms
        ),
        granted("deleting", f"topic {name}", lambda response: response.responses),
    )


def add_partitions(
    name: str,
    count: int,
    assignment: Sequence[Sequence[int]] | None = None,
    timeout_ms: int = TIMEOUT_MS,
) -> AdminRequest[None]:
    """Raise a topic's number of partitions to `count`; `assignment` is of the new ones."""
    assignments = None
    if assignment is not None:
        assignments = [CreatePartitionsAssignment(broker_ids=list(each)) for each in assignment]
    topic = CreatePartitionsTopic(name=name, count=count, assignments=assignments)
    return AdminRequest(
        CreatePartitionsRequest(topics=[topic], timeout_ms=timeout_ms),
        granted("growing", f"topic {name}", lambda response: response.results),
    )


# Configs of topics and brokers.


class Source(IntEnum):
    """Where the value of a config comes from."""

    UNKNOWN = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    DYNAMIC_CLIENT_METRICS_CONFIG = 7
    DYNAMIC_GROUP_CONFIG = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigEntry:
    """One value of a config, and where it comes from."""

    name: str
    value: str | None
    source: str
    read_only: bool
    sensitive: bool
    synonyms: list[tuple[str, str, str | None]]  # source, name, value

    @property
    def is_default(self) -> bool:
        return self.source == Source.DEFAULT_CONFIG.name


def alter_configs(
    kind: ResourceType, name: str, configs: Mapping[str, str | None]
) -> AdminRequest[None]:
    """Set configs of a topic or broker; None takes one back to its default.

    `name` "" of a broker is the default of all of them.
    """
    resource = AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[
            AlterableConfig(
                name=key,
                config_operation=ConfigOperation.DELETE if value is None else ConfigOperation.SET,
                value=value,
            )
            for key, value in configs.items()
        ],
    )
    subject = f"{kind.name.lower()} {name}" if name else "the brokers' default"
    return AdminRequest(
        IncrementalAlterConfigsRequest(resources=[resource]),
        granted("altering", subject, lambda response: response.responses),
    )


def describe_configs(
    kind: ResourceType,
    names: Iterable[str],
    keys: Iterable[str] | None = None,
    *,
    synonyms: bool = False,
) -> AdminRequest[dict[str, list[ConfigEntry]]]:
    """Show every value of each resource, or these keys alone, in the node's order."""
    wanted = None if keys is None else list(keys)
    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(
                resource_type=kind, resource_name=name, configuration_keys=wanted
            )
            for name in names
        ],
        include_synonyms=synonyms,
    )

    def read(response: Any) -> dict[str, list[ConfigEntry]]:
        found: dict[str, list[ConfigEntry]] = {}
        for result in response.results:
            refuse(result, "describing", f"{kind.name.lower()} {result.resource_name}")
            found[result.resource_name] = [_entry(config) for config in result.configs]
        return found

    return AdminRequest(request, read)


def _entry(config: Any) -> ConfigEntry:
    return ConfigEntry(
        name=config.name,
        value=config.value,
        source=_source(config.config_source),
        read_only=config.read_only,
        sensitive=config.is_sensitive,
        synonyms=[(_source(other.source), other.name, other.value) for other in config.synonyms],
    )


def _source(number: int) -> str:
    try:
        return Source(number).name
    except ValueError:
        return Source.UNKNOWN.name


# Elections.


class Election(IntEnum):
    """Whom to elect."""

    PREFERRED = 0  # the first replica of the list, if it is in sync
    UNCLEAN = 1  # any replica alive where none in sync is left: what only the others had is lost


def elect_leaders(
    election: Election,
    partitions: Mapping[str, Sequence[int]] | None,
    timeout_ms: int = TIMEOUT_MS,
) -> AdminRequest[dict[TopicPartition, tuple[int, str | None]]]:
    """Elect leaders of partitions by topic, None: of all. Each one's error code and message.

    Of all of them, partitions that needed no election don't appear.
    """
    asked = None
    if partitions is not None:
        asked = [
            TopicPartitions(topic=topic, partitions=list(indexes))
            for topic, indexes in partitions.items()
        ]

    def read(response: Any) -> dict[TopicPartition, tuple[int, str | None]]:
        if response.error_code:
            what = f"{election.name.lower()} election"
            raise AdminError(what, response.error_code, subject="the election")
        return {
            (topic.topic, result.partition_id): (result.error_code, result.error_message)
            for topic in response.replica_election_results
            for result in topic.partition_result
        }

    return AdminRequest(
        ElectLeadersRequest(election_type=election, topic_partitions=asked, timeout_ms=timeout_ms),
        read,
    )


# Partitions on their way to other brokers.


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A reassignment that is under way. `replicas`: all who hold the partition meanwhile."""

    replicas: list[int]
    adding: list[int]
    removing: list[int]

    @property
    def target(self) -> list[int]:
        return [node for node in self.replicas if node not in self.removing]


def reassign(
    moves: Mapping[TopicPartition, Sequence[int] | None], timeout_ms: int = TIMEOUT_MS
) -> AdminRequest[None]:
    """Begin to move partitions to these brokers; None calls a partition's move back.

    The first refusal is raised; what was not refused goes on. `reassignments` says when it is done.
    """
    topics: dict[str, ReassignableTopic] = {}
    for (name, partition), replicas in moves.items():
        topic = topics.setdefault(name, ReassignableTopic(name=name))
        topic.partitions.append(
            ReassignablePartition(
                partition_index=partition, replicas=None if replicas is None else list(replicas)
            )
        )
    return AdminRequest(
        AlterPartitionReassignmentsRequest(timeout_ms=timeout_ms, topics=list(topics.values())),
        _begun,
    )


def _begun(response: Any) -> None:
    refuse(response, "reassigning", "partitions")
    for topic in response.responses:
        for one in topic.partitions:
            refuse(one, "reassigning", f"{topic.name}-{one.partition_index}")


def reassignments(timeout_ms: int = TIMEOUT_MS) -> AdminRequest[dict[TopicPartition, Move]]:
    """Ask what is being moved at present, of all topics."""
    request = ListPartitionReassignmentsRequest(timeout_ms=timeout_ms, topics=None)
    return AdminRequest(request, _under_way)


def _under_way(response: Any) -> dict[TopicPartition, Move]:
    refuse(response, "listing", "reassignments")
    return {
        (topic.name, one.partition_index): Move(
            replicas=list(one.replicas),
            adding=list(one.adding_replicas),
            removing=list(one.removing_replicas),
        )
        for topic in response.topics
        for one in topic.partitions
    }


# Records deleted from the beginning of a partition.


def delete_records(
    topic: str, partition: int, offset: int, timeout_ms: int = TIMEOUT_MS
) -> AdminRequest[int]:
    """Forget all before an offset (-1: all that is committed); its leader must be asked.

    The answer is the low watermark: no replica that is alive keeps anything before it.
    """
    wanted = DeleteRecordsPartition(partition_index=partition, offset=offset)

    def read(response: Any) -> int:
        result = response.topics[0].partitions[0]
        refuse(result, "deleting", f"records of {topic}-{partition}")
        return int(result.low_watermark)

    return AdminRequest(
        DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name=topic, partitions=[wanted])], timeout_ms=timeout_ms
        ),
        read,
    )


# Features and their levels.


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """One feature: levels that the cluster supports, and the one that it has. 0: it is off."""

    name: str
    low: int
    high: int
    level: int


def features() -> AdminRequest[tuple[int, list[Feature]]]:
    """Ask for all features, sorted by name, and the epoch of the levels in force; -1: none is."""
    request = ApiVersionsRequest(
        client_software_name="holdfast", client_software_version=__version__
    )
    return AdminRequest(request, _features)


def _features(response: Any) -> tuple[int, list[Feature]]:
    levels = {each.name: each.max_version_level for each in response.finalized_features}
    found = [
        Feature(
            name=each.name,
            low=each.min_version,
            high=each.max_version,
            level=levels.get(each.name, 0),
        )
        for each in response.supported_features
    ]
    return response.finalized_features_epoch, sorted(found, key=lambda feature: feature.name)


def update_features(
    levels: Mapping[str, int], kind: UpgradeType, *, validate_only: bool = False
) -> AdminRequest[dict[str, str | None]]:
    """Change levels of features, all or none. Why each one was refused; None: it was not.

    Before version 1 no kind could be said, but an upgrade.
    """
    request = UpdateFeaturesRequest(
        feature_updates=[
            FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind)
            for name, level in levels.items()
        ],
        validate_only=validate_only,
    )

    def read(response: Any) -> dict[str, str | None]:
        told = {each.feature: _refusal(each) for each in response.results}
        return dict.fromkeys(levels, _refusal(response)) | told

    return AdminRequest(request, read)


def _refusal(result: Any) -> str | None:
    return (result.error_message or error_name(result.error_code)) if result.error_code else None


# Who belongs to a cluster: brokers, and voters of the quorum (KIP-853).


def unregister_broker(broker: int) -> AdminRequest[None]:
    """Take a broker that is down out of the metadata."""
    return AdminRequest(
        UnregisterBrokerRequest(broker_id=broker),
        granted("unregistering", f"Broker {broker}", lambda response: [response]),
    )


def add_voter(
    cluster_id: str | None,
    voter: int,
    directory_id: bytes,
    listeners: Iterable[tuple[str, str, int]],
    timeout_ms: int,
) -> AdminRequest[None]:
    """Make a controller a voter. `directory_id`: of its metadata log; listeners: name, host, port.

    The active controller alone may answer.
    """
    request = AddRaftVoterRequest(
        cluster_id=cluster_id,
        timeout_ms=timeout_ms,
        voter_id=voter,
        voter_directory_id=directory_id,
        listeners=[
            QuorumEndpoint(name=name, host=host, port=port) for name, host, port in listeners
        ],
    )
    return AdminRequest(
        request, granted("Adding", f"controller {voter}", lambda response: [response])
    )


def remove_voter(cluster_id: str | None, voter: int, directory_id: bytes) -> AdminRequest[None]:
    """Take a voter out of the quorum; the active controller alone may answer."""
    request = RemoveRaftVoterRequest(
        cluster_id=cluster_id, voter_id=voter, voter_directory_id=directory_id
    )
    return AdminRequest(
        request, granted("Removing", f"controller {voter}", lambda response: [response])
    )
