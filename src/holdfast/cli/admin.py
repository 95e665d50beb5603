"""What the administrative commands ask of a cluster: topics, settings, elections, in plain values.

Owns the requests and the reading of their answers, for any Kafka. A code that comes back becomes a
`CommandError` with the broker's own message. Prints nothing but a warning; knows no options.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from types import TracebackType
from typing import Any, Self

from holdfast.cli import CommandError
from holdfast.clients.admin import AdminError, reassignments
from holdfast.clients.driver import AnswerLostError, Driver, NodeChoice, UnsupportedError
from holdfast.wire.errors import ErrorCode, error_code
from holdfast.wire.uuids import NULL_UUID, uuid_text

REQUEST_TIMEOUT_MS = 30_000
ANSWER_TIMEOUT_S = REQUEST_TIMEOUT_MS / 1000 + 5
CONTROLLER_MOVES_TIMEOUT_S = 10.0
MOVES_TIMEOUT_S = 3.0  # of what a description only adds: without a controller nobody answers
PAUSE_S = 0.1
PAGES_MAX = 10_000

_SENTENCES = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "there is no such topic or partition",
    ErrorCode.TOPIC_ALREADY_EXISTS: "the topic exists already",
    ErrorCode.NOT_CONTROLLER: "no controller answered for the cluster",
    ErrorCode.REQUEST_TIMED_OUT: "the cluster didn't do it in time; it may still happen",
    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE: "the preferred replica is not in sync or not alive",
    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE: "no replica that may lead is alive",
}


class ResourceType(IntEnum):
    """What a configuration belongs to."""

    TOPIC = 2
    BROKER = 4


class Operation(IntEnum):
    """What IncrementalAlterConfigs does with one key."""

    SET = 0
    DELETE = 1


class Source(IntEnum):
    """Where a value of a configuration comes from."""

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
class Partition:
    """One partition; leader -1: none; ELR None: the broker doesn't tell.

    While it is being moved, `replicas` holds those `adding` and those `removing`, too.
    """

    index: int
    leader: int
    replicas: list[int]
    isr: list[int]
    elr: list[int] | None = None
    last_known_elr: list[int] | None = None
    adding: list[int] = field(default_factory=list)
    removing: list[int] = field(default_factory=list)

    @property
    def is_moving(self) -> bool:
        return bool(self.adding or self.removing)

    @property
    def replication_factor(self) -> int:
        """How many replicas it has when none are being added, as Kafka counts."""
        return len(self.replicas) - len(self.adding)


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """One topic as metadata shows it; the id in Kafka's text form, "" when there is none."""

    name: str
    topic_id: str
    internal: bool
    partitions: list[Partition] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigEntry:
    """One value of a configuration, and where it comes from."""

    name: str
    value: str | None
    source: str
    read_only: bool
    sensitive: bool
    synonyms: list[tuple[str, str, str | None]]  # source, name, value

    @property
    def is_default(self) -> bool:
        return self.source == Source.DEFAULT_CONFIG.name


class Admin:
    """Requests to one cluster. Every method may raise `CommandError` or `DriverError`."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._driver.close()

    def brokers(self) -> list[int]:
        """Ids of the brokers alive."""
        return sorted(self._driver.nodes())

    def topic_names(self) -> dict[str, bool]:
        """All topics by name, sorted; true for internal ones."""
        from holdfast.wire.messages.metadata import MetadataRequest  # noqa: PLC0415 - start-up

        request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
        response = self._driver.send(request)
        return {topic.name: topic.is_internal for topic in sorted(response.topics, key=_name)}

    def topics(self, names: Sequence[str]) -> list[Topic]:
        """Describe topics, sorted by name; those that aren't there are left out."""
        if not names:
            return []
        try:
            topics = self._described(sorted(names))
        except UnsupportedError:
            topics = self._from_metadata(sorted(names))
        self._note_moves(topics)
        return topics

    def _note_moves(self, topics: Sequence[Topic]) -> None:
        """Say of each partition whether it is being moved, if the cluster tells us."""
        try:
            moves = reassignments(self._driver, timeout_s=MOVES_TIMEOUT_S)
        except UnsupportedError:
            return
        except (AdminError, AnswerLostError) as error:
            why = f"no controller says what is being moved ({error})"
            print(f"warning: {why}; the rest is as brokers last knew it", file=sys.stderr)
            return
        for topic in topics:
            for position, partition in enumerate(topic.partitions):
                move = moves.get((topic.name, partition.index))
                if move is not None:
                    topic.partitions[position] = replace(
                        partition, adding=move.adding, removing=move.removing
                    )

    def _described(self, names: Sequence[str]) -> list[Topic]:
        """Ask DescribeTopicPartitions, page by page; a topic may go on in the next page."""
        from holdfast.wire.messages import describe_topic_partitions as api  # noqa: PLC0415

        found: dict[str, Topic] = {}
        cursor = None
        for _ in range(PAGES_MAX):
            request = api.DescribeTopicPartitionsRequest(
                topics=[api.TopicRequest(name=name) for name in names], cursor=cursor
            )
            response = self._driver.send(request)
            for topic in response.topics:
                if topic.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    _raise_for(topic.error_code, None, f"topic {topic.name}")
                    known = found.setdefault(topic.name, _topic(topic))
                    known.partitions.extend(
                        Partition(
                            index=partition.partition_index,
                            leader=partition.leader_id,
                            replicas=partition.replica_nodes,
                            isr=partition.isr_nodes,
                            elr=partition.eligible_leader_replicas or [],
                            last_known_elr=partition.last_known_elr or [],
                        )
                        for partition in topic.partitions
                    )
            cursor = response.next_cursor
            if cursor is None:
                return list(found.values())
            names = [name for name in names if name >= cursor.topic_name]
        raise CommandError(f"The description of the topics doesn't end after {PAGES_MAX} pages.")

    def _from_metadata(self, names: Sequence[str]) -> list[Topic]:
        response = self._driver.metadata(names)
        topics: list[Topic] = []
        for topic in sorted(response.topics, key=_name):
            if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                continue
            described = _topic(topic)
            described.partitions.extend(
                Partition(
                    index=partition.partition_index,
                    leader=partition.leader_id,
                    replicas=partition.replica_nodes,
                    isr=partition.isr_nodes,
                )
                for partition in sorted(topic.partitions, key=lambda found: found.partition_index)
            )
            topics.append(described)
        return topics

    def create_topic(
        self,
        name: str,
        *,
        partitions: int | None,
        replication_factor: int | None,
        assignment: Mapping[int, Sequence[int]] | None,
        config: Mapping[str, str],
    ) -> bool:
        """Create a topic; what is None is the cluster's default. False: it exists already."""
        from holdfast.wire.messages import create_topics as api  # noqa: PLC0415

        topic = api.CreatableTopic(
            name=name,
            num_partitions=-1 if partitions is None else partitions,
            replication_factor=-1 if replication_factor is None else replication_factor,
            assignments=[
                api.CreatableReplicaAssignment(partition_index=index, broker_ids=list(brokers))
                for index, brokers in (assignment or {}).items()
            ],
            configs=[api.CreatableTopicConfig(name=key, value=config[key]) for key in config],
        )
        request = api.CreateTopicsRequest(topics=[topic], timeout_ms=REQUEST_TIMEOUT_MS)
        (result,) = self._to_controller(request, lambda response: response.topics).topics
        if result.error_code == ErrorCode.TOPIC_ALREADY_EXISTS:
            return False
        _raise_for(result.error_code, result.error_message, f"topic {name}")
        return True

    def delete_topic(self, name: str) -> None:
        """Delete a topic."""
        from holdfast.wire.messages import delete_topics as api  # noqa: PLC0415

        request = api.DeleteTopicsRequest(
            topics=[api.DeleteTopicState(name=name)],
            topic_names=[name],
            timeout_ms=REQUEST_TIMEOUT_MS,
        )
        (result,) = self._to_controller(request, lambda response: response.responses).responses
        _raise_for(result.error_code, getattr(result, "error_message", None), f"topic {name}")

    def add_partitions(
        self, name: str, count: int, assignment: Sequence[Sequence[int]] | None
    ) -> None:
        """Raise a topic's number of partitions to `count`; `assignment` is of the new ones."""
        from holdfast.wire.messages import create_partitions as api  # noqa: PLC0415

        assignments = None
        if assignment is not None:
            assignments = [
                api.CreatePartitionsAssignment(broker_ids=list(brokers)) for brokers in assignment
            ]
        topic = api.CreatePartitionsTopic(name=name, count=count, assignments=assignments)
        request = api.CreatePartitionsRequest(topics=[topic], timeout_ms=REQUEST_TIMEOUT_MS)
        (result,) = self._to_controller(request, lambda response: response.results).results
        _raise_for(result.error_code, result.error_message, f"topic {name}")

    def describe_configs(
        self, kind: ResourceType, names: Sequence[str], *, keys: Sequence[str] | None = None
    ) -> dict[str, list[ConfigEntry]]:
        """Return every value of each resource, in the broker's order. A broker is asked itself."""
        found: dict[str, list[ConfigEntry]] = {}
        for node, group in _by_node(kind, names).items():
            found |= self._configs_of(kind, group, keys, node)
        return found

    def _configs_of(
        self, kind: ResourceType, names: Sequence[str], keys: Sequence[str] | None, node: NodeChoice
    ) -> dict[str, list[ConfigEntry]]:
        from holdfast.wire.messages import describe_configs as api  # noqa: PLC0415

        wanted = None if keys is None else list(keys)
        request = api.DescribeConfigsRequest(
            resources=[
                api.DescribeConfigsResource(
                    resource_type=kind, resource_name=name, configuration_keys=wanted
                )
                for name in names
            ],
            include_synonyms=True,
        )
        found: dict[str, list[ConfigEntry]] = {}
        for result in self._driver.send(request, node=node).results:
            what = f"{kind.name.lower()} {result.resource_name}"
            _raise_for(result.error_code, result.error_message, what)
            found[result.resource_name] = [_entry(config) for config in result.configs]
        return found

    def alter_config(
        self, kind: ResourceType, name: str, *, add: Mapping[str, str], delete: Iterable[str]
    ) -> None:
        """Set some keys of a resource and take others back to their defaults."""
        from holdfast.wire.messages import incremental_alter_configs as api  # noqa: PLC0415

        changes = [
            api.AlterableConfig(name=key, config_operation=Operation.SET, value=value)
            for key, value in add.items()
        ]
        changes += [
            api.AlterableConfig(name=key, config_operation=Operation.DELETE, value=None)
            for key in delete
        ]
        resource = api.AlterConfigsResource(resource_type=kind, resource_name=name, configs=changes)
        request = api.IncrementalAlterConfigsRequest(resources=[resource])
        (node,) = _by_node(kind, [name])
        if node is None:
            response = self._to_controller(request, lambda response: response.responses)
        else:
            response = self._driver.send(request, node=node, timeout_s=ANSWER_TIMEOUT_S)
        for result in response.responses:
            what = f"{kind.name.lower()} {name}" if name else "the brokers' default"
            _raise_for(result.error_code, result.error_message, what)

    def elect_leaders(
        self, election: int, partitions: Mapping[str, Sequence[int]] | None
    ) -> dict[tuple[str, int], tuple[ErrorCode, str]]:
        """Elect (0 preferred, 1 unclean) for partitions, None: all. Returns each one's outcome.

        For all of them, partitions that needed no election don't appear.
        """
        from holdfast.wire.messages import elect_leaders as api  # noqa: PLC0415

        asked = None
        if partitions is not None:
            asked = [
                api.TopicPartitions(topic=topic, partitions=list(indexes))
                for topic, indexes in partitions.items()
            ]
        request = api.ElectLeadersRequest(
            election_type=election, topic_partitions=asked, timeout_ms=REQUEST_TIMEOUT_MS
        )
        response = self._to_controller(request, lambda response: [response])
        _raise_for(response.error_code, None, "the election")
        return {
            (topic.topic, result.partition_id): _outcome(result.error_code, result.error_message)
            for topic in response.replica_election_results
            for result in topic.partition_result
        }

    def _to_controller(self, request: Any, results: Callable[[Any], Iterable[Any]]) -> Any:
        """Send to the controller; while it moves, ask again: such a refusal has changed nothing."""
        deadline = time.monotonic() + CONTROLLER_MOVES_TIMEOUT_S
        while True:
            response = self._driver.send(request, node="controller", timeout_s=ANSWER_TIMEOUT_S)
            codes = {result.error_code for result in results(response)}
            if codes != {ErrorCode.NOT_CONTROLLER} or time.monotonic() >= deadline:
                return response
            time.sleep(PAUSE_S)


def _name(topic: Any) -> str:
    return topic.name or ""


def _topic(topic: Any) -> Topic:
    return Topic(
        name=topic.name,
        topic_id="" if topic.topic_id == NULL_UUID else uuid_text(topic.topic_id),
        internal=topic.is_internal,
    )


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


def _by_node(kind: ResourceType, names: Sequence[str]) -> dict[int | None, list[str]]:
    """Group resources by the node that must answer: a broker for itself, anyone for the rest."""
    groups: dict[int | None, list[str]] = {}
    for name in names:
        node = int(name) if kind is ResourceType.BROKER and name else None
        groups.setdefault(node, []).append(name)
    return groups


def _outcome(code: int, message: str | None) -> tuple[ErrorCode, str]:
    known = error_code(code)
    return known, message or _SENTENCES.get(known, "")


def _raise_for(code: int, message: str | None, what: str) -> None:
    if code != ErrorCode.NONE:
        known, text = _outcome(code, message)
        raise CommandError(f"{what}: {text or 'refused'} ({known.name})")
