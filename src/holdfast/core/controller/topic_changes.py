"""CreateTopics, DeleteTopics, CreatePartitions: which topics there are and how many partitions.

Owns the refusals, with messages that say what to do, and the records of what is granted. Where
replicas go is `placement`'s; chance and new ids come in as values.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from holdfast.config.registry import refuse_topic_configs, validate_topic_config
from holdfast.core.controller.assignment import (
    by_hand,
    nobody_to_lead,
    partition_record,
    placed,
    wrong_replicas,
)
from holdfast.core.controller.decisions import RECORDS_PER_REQUEST_MAX, ControllerState, Decision
from holdfast.core.controller.older_brokers import refuse_compaction
from holdfast.core.controller.shown_settings import ShownSettings
from holdfast.core.metadata.image import MetadataRecord, Topic
from holdfast.core.metadata.topic_names import INTERNAL_TOPICS, folded, refuse_name
from holdfast.core.refusal import Refusal
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from holdfast.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from holdfast.wire.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from holdfast.wire.records.metadata import (
    ConfigRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from holdfast.wire.structs import ResourceType, ShownConfig
from holdfast.wire.uuids import NULL_UUID

DEFAULT: Final = -1  # "the broker's default", in CreateTopics


class _Room:
    """How many records may still be worked out for a request, whether they are made in the end.

    Seventeen kilobytes can name a thousand topics of thousands of partitions each, to be refused.
    """

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = RECORDS_PER_REQUEST_MAX

    def holds(self, records: int) -> bool:
        """Whether so many more may be worked out; if so they count."""
        if records > self.left:
            return False
        self.left -= records
        return True

    def holds_topic(self, asked: CreatableTopic, partitions: int) -> bool:
        return self.holds(1 + len(asked.configs) + partitions)


def create_topics(
    state: ControllerState,
    request: CreateTopicsRequest,
    *,
    topic_ids: Sequence[bytes],
    seeds: Sequence[int],
    refusals: Mapping[str, Refusal] | None = None,
) -> Decision:
    """Create each topic that may be. One id and one seed per topic of the request.

    `refusals` holds topics that were refused before, for want of a permission.
    """
    assert len(topic_ids) == len(seeds) == len(request.topics), "one id and one seed per topic"
    counts = Counter(asked.name for asked in request.topics)
    room = _Room()
    shown = ShownSettings(state)
    records: list[MetadataRecord] = []
    results: dict[str, CreatableTopicResult] = {}
    taken = {folded(name): name for name in state.image.topics}
    for asked, topic_id, seed in zip(request.topics, topic_ids, seeds, strict=True):
        if asked.name in results:
            continue
        outcome: Refusal | list[MetadataRecord]
        if refusals is not None and asked.name in refusals:
            outcome = refusals[asked.name]
        elif counts[asked.name] > 1:
            outcome = Refusal(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
        else:
            outcome = _create_one(state, asked, topic_id, seed, taken, room)
        if isinstance(outcome, Refusal):
            results[asked.name] = CreatableTopicResult(
                name=asked.name,
                error_code=outcome.code,
                error_message=outcome.message,
                configs=[],
            )
            continue
        taken[folded(asked.name)] = asked.name
        records.extend(outcome)
        results[asked.name] = _creation_granted(asked, topic_id, outcome, shown.of(asked))
    if request.validate_only:
        records = []
        for result in results.values():
            result.topic_id = NULL_UUID  # there is no such topic
    return Decision(CreateTopicsResponse(topics=list(results.values())), records)


def _create_one(
    state: ControllerState,
    asked: CreatableTopic,
    topic_id: bytes,
    seed: int,
    taken: Mapping[str, str],
    room: _Room,
) -> Refusal | list[MetadataRecord]:
    illegal = refuse_name(asked.name)
    if illegal is not None:
        return Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, illegal)
    if asked.name in state.image.topics:
        return Refusal(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{asked.name}' already exists.")
    twin = taken.get(folded(asked.name))
    if twin is not None:
        return Refusal(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"Topic '{asked.name}' collides with existing topic '{twin}': '.' and '_' are the same "
            "in the names of metrics.",
        )
    configs = _check_configs(state, asked)
    if isinstance(configs, Refusal):
        return configs
    assignments = _assign(state, asked, seed, room)
    if isinstance(assignments, Refusal):
        return assignments
    records: list[MetadataRecord] = [TopicRecord(name=asked.name, topic_id=topic_id)]
    records.extend(
        ConfigRecord(
            resource_type=ResourceType.TOPIC, resource_name=asked.name, name=name, value=value
        )
        for name, value in configs.items()
    )
    for index, replicas in enumerate(assignments):
        record = partition_record(state, topic_id, index, replicas)
        if record is None:
            return nobody_to_lead(index, replicas)
        records.append(record)
    return records


def _check_configs(state: ControllerState, asked: CreatableTopic) -> Refusal | dict[str, str]:
    configs: dict[str, str] = {}
    for config in asked.configs:
        if config.name in configs:
            return Refusal(
                ErrorCode.INVALID_REQUEST, f"Config {config.name} is given more than once."
            )
        wrong = validate_topic_config(config.name, config.value)
        if wrong is not None:
            return Refusal(ErrorCode.INVALID_CONFIG, wrong)
        assert config.value is not None, "a null value was let through"
        configs[config.name] = config.value
    wrong = refuse_topic_configs(configs) or refuse_compaction(state, configs)
    return configs if wrong is None else Refusal(ErrorCode.INVALID_CONFIG, wrong)


def _assign(
    state: ControllerState, asked: CreatableTopic, seed: int, room: _Room
) -> Refusal | list[list[int]]:
    """Replica lists, as asked for or as placed."""
    if asked.assignments:
        if asked.num_partitions != DEFAULT or asked.replication_factor != DEFAULT:
            return Refusal(
                ErrorCode.INVALID_REQUEST,
                "Replicas are assigned by hand: the number of partitions and the replication "
                "factor must be -1.",
            )
        if not room.holds_topic(asked, len(asked.assignments)):
            return _too_many_records()
        return by_hand(state, asked.assignments)
    partitions = asked.num_partitions
    factor = asked.replication_factor
    if partitions == DEFAULT:
        partitions = state.settings.num_partitions
    if factor == DEFAULT:
        factor = state.settings.default_replication_factor
    if partitions <= 0:
        return Refusal(
            ErrorCode.INVALID_PARTITIONS,
            "Number of partitions must be larger than 0, or -1 for the broker's num.partitions.",
        )
    if partitions > RECORDS_PER_REQUEST_MAX:
        return Refusal(
            ErrorCode.INVALID_PARTITIONS,
            f"{partitions} partitions are more than one request can make "
            f"({RECORDS_PER_REQUEST_MAX}): create fewer and add more with CreatePartitions.",
        )
    if factor <= 0:
        return Refusal(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 for the broker's "
            "default.replication.factor.",
        )
    # A factor that no broker is there for is refused before anything is worked out.
    if factor <= len(state.image.brokers) and not room.holds_topic(asked, partitions):
        return _too_many_records()
    return placed(state, partitions, factor, seed)


def _too_many_records() -> Refusal:
    return Refusal(
        ErrorCode.POLICY_VIOLATION,
        f"One request can make {RECORDS_PER_REQUEST_MAX} records at most, with all its topics: ask "
        "for fewer partitions, and add more with CreatePartitions.",
    )


def _creation_granted(
    asked: CreatableTopic,
    topic_id: bytes,
    records: Sequence[MetadataRecord],
    configs: list[ShownConfig],
) -> CreatableTopicResult:
    partitions = [record for record in records if isinstance(record, PartitionRecord)]
    return CreatableTopicResult(
        name=asked.name,
        topic_id=topic_id,
        error_message=None,
        num_partitions=len(partitions),
        replication_factor=len(partitions[0].replicas),
        configs=configs,
    )


def delete_topics(
    state: ControllerState,
    request: DeleteTopicsRequest,
    *,
    refusals: Mapping[str, Refusal] | None = None,
) -> Decision:
    """Delete topics by name or by id; `refusals` by name, for want of a permission.

    What is named twice is refused, and answered once for each name.
    """
    asked = list(request.topics) or [DeleteTopicState(name=name) for name in request.topic_names]
    named = Counter((each.name, bytes(each.topic_id)) for each in asked)
    outcomes = {
        (name, topic_id): _find_for_deletion(
            state, DeleteTopicState(name=name, topic_id=topic_id), refusals or {}
        )
        for name, topic_id in named
    }
    times: Counter[bytes] = Counter()
    for each, found in outcomes.items():
        if isinstance(found, Topic):
            times[found.topic_id] += named[each]
    records: list[MetadataRecord] = []
    results = []
    for (name, topic_id), found in outcomes.items():
        outcome = found
        if isinstance(outcome, Topic) and times[outcome.topic_id] > 1:
            outcome = Refusal(ErrorCode.INVALID_REQUEST, "The topic is named more than once.")
        if isinstance(outcome, Refusal):
            results.append(
                DeletableTopicResult(
                    name=name,
                    topic_id=topic_id,
                    error_code=outcome.code,
                    error_message=outcome.message,
                )
            )
            continue
        records.append(RemoveTopicRecord(topic_id=outcome.topic_id))
        results.append(DeletableTopicResult(name=outcome.name, topic_id=outcome.topic_id))
    return Decision(DeleteTopicsResponse(responses=results), records)


def _find_for_deletion(
    state: ControllerState, asked: DeleteTopicState, refusals: Mapping[str, Refusal]
) -> Topic | Refusal:
    if asked.name is not None and asked.name in refusals:
        return refusals[asked.name]
    if not state.settings.delete_topic_enable:
        return Refusal(
            ErrorCode.TOPIC_DELETION_DISABLED,
            "Topic deletion is disabled: delete.topic.enable is false on the controller.",
        )
    by_id = bytes(asked.topic_id) != NULL_UUID
    if by_id and asked.name is not None:
        return Refusal(ErrorCode.INVALID_REQUEST, "Give the topic's name or its id, not both.")
    if by_id:
        topic = state.image.topics_by_id.get(bytes(asked.topic_id))
        if topic is None:
            return Refusal(ErrorCode.UNKNOWN_TOPIC_ID, "There is no topic with this id.")
    elif asked.name is None:
        return Refusal(ErrorCode.INVALID_REQUEST, "Neither a name nor an id was given.")
    else:
        topic = state.image.topics.get(asked.name)
        if topic is None:
            return Refusal(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic '{asked.name}'."
            )
    if topic.name in refusals:
        # Asking by id must not give the name away.
        return Refusal(refusals[topic.name].code, "This topic may not be deleted.")
    return topic


def create_partitions(
    state: ControllerState,
    request: CreatePartitionsRequest,
    *,
    seeds: Sequence[int],
    refusals: Mapping[str, Refusal] | None = None,
) -> Decision:
    """Add partitions to topics; one seed per topic of the request."""
    assert len(seeds) == len(request.topics), "one seed per topic"
    counts = Counter(asked.name for asked in request.topics)
    room = _Room()
    records: list[MetadataRecord] = []
    results: dict[str, CreatePartitionsTopicResult] = {}
    for asked, seed in zip(request.topics, seeds, strict=True):
        if asked.name in results:
            continue
        outcome: Refusal | list[MetadataRecord]
        if refusals is not None and asked.name in refusals:
            outcome = refusals[asked.name]
        elif counts[asked.name] > 1:
            outcome = Refusal(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
        else:
            outcome = _add_partitions(state, asked, seed, room)
        if isinstance(outcome, Refusal):
            results[asked.name] = CreatePartitionsTopicResult(
                name=asked.name, error_code=outcome.code, error_message=outcome.message
            )
        else:
            records.extend(outcome)
            results[asked.name] = CreatePartitionsTopicResult(name=asked.name)
    response = CreatePartitionsResponse(results=list(results.values()))
    return Decision(response, [] if request.validate_only else records)


def _add_partitions(
    state: ControllerState, asked: CreatePartitionsTopic, seed: int, room: _Room
) -> Refusal | list[MetadataRecord]:
    topic = state.image.topics.get(asked.name)
    if topic is None:
        return Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic '{asked.name}'.")
    present = len(topic.partitions)
    if asked.count == present:
        return Refusal(ErrorCode.INVALID_PARTITIONS, f"Topic already has {present} partition(s).")
    if asked.count < present:
        return Refusal(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic '{asked.name}' has {present} partition(s); {asked.count} would be fewer, "
            "and partitions can't be taken away.",
        )
    if asked.name in INTERNAL_TOPICS:
        return Refusal(
            ErrorCode.INVALID_PARTITIONS,
            f"What lies in '{asked.name}' lies where its number of partitions says: with more of "
            "them groups would be looked for where they are not, and begin anew.",
        )
    added = asked.count - present
    if asked.assignments is not None and len(asked.assignments) != added:
        return Refusal(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"{added} partition(s) are to be added, but {len(asked.assignments)} assignment(s) "
            "were given.",
        )
    if not room.holds(added):
        return Refusal(
            ErrorCode.INVALID_PARTITIONS,
            f"{added} partition(s) more, with those of the request's other topics, are more than "
            f"the {RECORDS_PER_REQUEST_MAX} that one request can make: add fewer at a time.",
        )
    factor = len(topic.partitions[0].replicas)
    if asked.assignments is None:
        found = placed(state, added, factor, seed)
        if isinstance(found, Refusal):
            return found
        lists = found
    else:
        lists = [list(assignment.broker_ids) for assignment in asked.assignments]
    records: list[MetadataRecord] = []
    for index, replicas in enumerate(lists, start=present):
        wrong = wrong_replicas(state, index, replicas, factor)
        if wrong is not None:
            return wrong
        record = partition_record(state, topic.topic_id, index, replicas)
        if record is None:
            return nobody_to_lead(index, replicas)
        records.append(record)
    return records
