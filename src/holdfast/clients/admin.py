"""A few administrative requests, for those who drive a cluster from Python.

Each asks once. A refusal is an `AdminError` with the code's name and the node's own words.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from holdfast.clients.driver import Driver, DriverError
from holdfast.wire.errors import ErrorCode, error_name
from holdfast.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from holdfast.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from holdfast.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from holdfast.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from holdfast.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from holdfast.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from holdfast.wire.messages.list_partition_reassignments import ListPartitionReassignmentsRequest

TIMEOUT_MS = 10_000
_TOPIC, _BROKER = 2, 4  # resource types
_SET, _DELETE = 0, 1
_ELECTION = {"preferred": 0, "unclean": 1}
_NOTHING_TO_DO = ErrorCode.ELECTION_NOT_NEEDED


TopicPartition = tuple[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A reassignment that is under way. `replicas`: all who hold the partition meanwhile."""

    replicas: list[int]
    adding: list[int]
    removing: list[int]

    @property
    def target(self) -> list[int]:
        return [node for node in self.replicas if node not in self.removing]


class AdminError(Exception):
    """The cluster refused; the text says what and why."""

    def __init__(self, what: str, code: int, message: str | None) -> None:
        super().__init__(f"{what}: {error_name(code)}" + (f" ({message})" if message else ""))
        self.code = code


def create_topic(
    driver: Driver,
    name: str,
    assignment: Mapping[int, Sequence[int]],
    configs: Mapping[str, str] | None = None,
) -> None:
    """Create a topic whose partitions have exactly these replicas, the preferred leader first."""
    topic = CreatableTopic(
        name=name,
        num_partitions=-1,
        replication_factor=-1,
        assignments=[
            CreatableReplicaAssignment(partition_index=partition, broker_ids=list(replicas))
            for partition, replicas in sorted(assignment.items())
        ],
    )
    _create(driver, topic, configs)


def place_topic(
    driver: Driver,
    name: str,
    partitions: int,
    replication_factor: int,
    configs: Mapping[str, str] | None = None,
) -> None:
    """Create a topic whose replicas the cluster places, by its racks."""
    topic = CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=replication_factor
    )
    _create(driver, topic, configs)


def _create(driver: Driver, topic: CreatableTopic, configs: Mapping[str, str] | None) -> None:
    topic.configs = [CreatableTopicConfig(name=k, value=v) for k, v in (configs or {}).items()]
    response = driver.send(CreateTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS))
    for result in response.topics:
        if result.error_code:
            raise AdminError(
                f"creating topic {topic.name}", result.error_code, result.error_message
            )


def alter_topic(driver: Driver, name: str, configs: Mapping[str, str | None]) -> None:
    """Set a topic's configs at run time; None takes one back to its default."""
    _alter(driver, f"topic {name}", _TOPIC, name, configs)


def topic_configs(
    driver: Driver, node: int, name: str, keys: Iterable[str]
) -> dict[str, str | None]:
    """Return these configs of a topic as one broker has them."""
    resource = DescribeConfigsResource(
        resource_type=_TOPIC, resource_name=name, configuration_keys=list(keys)
    )
    (result,) = driver.send(DescribeConfigsRequest(resources=[resource]), node=node).results
    if result.error_code:
        raise AdminError(f"describing topic {name}", result.error_code, result.error_message)
    return {each.name: each.value for each in result.configs}


def all_have(driver: Driver, nodes: Iterable[int], name: str, configs: Mapping[str, str]) -> bool:
    """Whether each of these brokers answers, and has these configs of a topic."""
    try:
        return all(topic_configs(driver, node, name, configs) == configs for node in nodes)
    except (AdminError, DriverError):
        return False


def alter_broker(driver: Driver, broker: int | None, configs: Mapping[str, str | None]) -> None:
    """Set configs of one broker at run time, or with None the default of all of them."""
    what = "the brokers' defaults" if broker is None else f"broker {broker}"
    _alter(driver, what, _BROKER, "" if broker is None else str(broker), configs)


def _alter(
    driver: Driver, what: str, kind: int, name: str, configs: Mapping[str, str | None]
) -> None:
    resource = AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[
            AlterableConfig(
                name=key, config_operation=_DELETE if value is None else _SET, value=value
            )
            for key, value in configs.items()
        ],
    )
    response = driver.send(IncrementalAlterConfigsRequest(resources=[resource]))
    for result in response.responses:
        if result.error_code:
            raise AdminError(f"altering {what}", result.error_code, result.error_message)


def elect_leaders(
    driver: Driver,
    kind: Literal["preferred", "unclean"],
    topic: str,
    partitions: Sequence[int],
) -> dict[int, int]:
    """Ask for an election in these partitions; error codes of those where none was held."""
    request = ElectLeadersRequest(
        election_type=_ELECTION[kind],
        topic_partitions=[TopicPartitions(topic=topic, partitions=list(partitions))],
        timeout_ms=TIMEOUT_MS,
    )
    response = driver.send(request)
    if response.error_code:
        raise AdminError(f"{kind} election", response.error_code, None)
    return {
        one.partition_id: one.error_code
        for result in response.replica_election_results
        for one in result.partition_result
        if one.error_code and one.error_code != _NOTHING_TO_DO
    }


def reassign(driver: Driver, moves: Mapping[TopicPartition, Sequence[int] | None]) -> None:
    """Begin to move partitions to these brokers; None calls a partition's move back.

    Raises the first refusal; what was not refused goes on. `reassignments` says when it is done.
    """
    topics: dict[str, ReassignableTopic] = {}
    for (name, partition), replicas in moves.items():
        topic = topics.setdefault(name, ReassignableTopic(name=name))
        topic.partitions.append(
            ReassignablePartition(
                partition_index=partition, replicas=None if replicas is None else list(replicas)
            )
        )
    response = driver.send(
        AlterPartitionReassignmentsRequest(timeout_ms=TIMEOUT_MS, topics=list(topics.values()))
    )
    if response.error_code:
        raise AdminError("reassigning", response.error_code, response.error_message)
    for answered in response.responses:
        for one in answered.partitions:
            if one.error_code:
                what = f"reassigning {answered.name}-{one.partition_index}"
                raise AdminError(what, one.error_code, one.error_message)


def reassignments(driver: Driver, *, timeout_s: float | None = None) -> dict[TopicPartition, Move]:
    """What is being moved at present. The controller answers: without one it takes `timeout_s`."""
    request = ListPartitionReassignmentsRequest(timeout_ms=TIMEOUT_MS, topics=None)
    response = driver.send(request, timeout_s=timeout_s)
    if response.error_code:
        raise AdminError("listing reassignments", response.error_code, response.error_message)
    return {
        (topic.name, one.partition_index): Move(
            replicas=list(one.replicas),
            adding=list(one.adding_replicas),
            removing=list(one.removing_replicas),
        )
        for topic in response.topics
        for one in topic.partitions
    }


def delete_records(
    driver: Driver, offsets: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Forget everything before these offsets (-1: all that is committed); the low watermarks.

    Each partition's leader is asked by itself. Raises the first refusal.
    """
    found: dict[TopicPartition, int] = {}
    for (name, partition), offset in offsets.items():
        wanted = DeleteRecordsPartition(partition_index=partition, offset=offset)
        request = DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name=name, partitions=[wanted])], timeout_ms=TIMEOUT_MS
        )
        result = driver.send_to_leader(request, name, partition).topics[0].partitions[0]
        if result.error_code:
            raise AdminError(f"deleting records of {name}-{partition}", result.error_code, None)
        found[name, partition] = result.low_watermark
    return found
