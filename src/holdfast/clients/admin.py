"""A few administrative requests, for those who drive a cluster from Python.

Each asks once. A refusal is an `AdminError` with the code's name and the node's own words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from holdfast.clients.driver import Driver
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from holdfast.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from holdfast.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

TIMEOUT_MS = 10_000
_TOPIC = 2  # resource type
_SET, _DELETE = 0, 1
_ELECTION = {"preferred": 0, "unclean": 1}
_NOTHING_TO_DO = ErrorCode.ELECTION_NOT_NEEDED


class AdminError(Exception):
    """The cluster refused; the text says what and why."""

    def __init__(self, what: str, code: int, message: str | None) -> None:
        try:
            name = ErrorCode(code).name
        except ValueError:
            name = f"error {code}"
        super().__init__(f"{what}: {name}" + (f" ({message})" if message else ""))
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
        configs=[CreatableTopicConfig(name=k, value=v) for k, v in (configs or {}).items()],
    )
    response = driver.send(CreateTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS))
    for result in response.topics:
        if result.error_code:
            raise AdminError(f"creating topic {name}", result.error_code, result.error_message)


def alter_topic(driver: Driver, name: str, configs: Mapping[str, str | None]) -> None:
    """Set a topic's configs at run time; None takes one back to its default."""
    resource = AlterConfigsResource(
        resource_type=_TOPIC,
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
            raise AdminError(f"altering topic {name}", result.error_code, result.error_message)


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
