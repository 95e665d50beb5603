"""Goal: who may do nothing is told nothing, by every API, with the code at that API's own place.

Method: a whole cluster in memory, and dispatchers on one of its brokers and its controller whose
authorizer denies all. Each row of the table is asked in every version, about a topic that is there
and about one that isn't: the answers must be alike, and must name nothing that was not asked for.

Rules: errors.md#a-right-that-is-missing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.control.control_world import controller, creation, play

from holdfast.node.door.api_table import APIS, BROKER, CONTROLLER, ON_BROKER, ON_CONTROLLER, Api
from holdfast.node.door.api_table import Role as ServedBy
from holdfast.node.door.dispatch import Dispatcher
from holdfast.node.door.request_context import (
    Client,
    Deferred,
    Operation,
    RequestContext,
    ResourceType,
)
from holdfast.testing.simulated_cluster import SimulatedCluster
from holdfast.wire.errors import ErrorCode
from holdfast.wire.frame import LENGTH_SIZE, decode_request_header, decode_response, encode_request
from holdfast.wire.messages import request_class, response_class
from holdfast.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from holdfast.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from holdfast.wire.messages.init_producer_id import InitProducerIdRequest
from holdfast.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from holdfast.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from holdfast.wire.schema import Struct
from holdfast.wire.structs import ResourceType as ConfigResourceType

SECRET, ABSENT = "secret", "absent"  # as long as each other
TOPIC = ErrorCode.TOPIC_AUTHORIZATION_FAILED
GROUP = ErrorCode.GROUP_AUTHORIZATION_FAILED
CLUSTER = ErrorCode.CLUSTER_AUTHORIZATION_FAILED

# Where each API says so, of all places at which an answer can carry an error.
TOP = {"error_code": CLUSTER}
PLACES: dict[str, dict[str, ErrorCode]] = {
    "produce": {"responses.partition_responses.error_code": TOPIC},
    "fetch": {"responses.partitions.error_code": TOPIC},
    "list_offsets": {"topics.partitions.error_code": TOPIC},
    "metadata": {"topics.error_code": TOPIC},
    "offset_commit": {"topics.partitions.error_code": GROUP},
    # Version 1 has no other place for it; from 2 on no topic is named.
    "offset_fetch-1": {"topics.partitions.error_code": GROUP},
    "offset_fetch": {"error_code": GROUP, "groups.error_code": GROUP},
    "find_coordinator": {"error_code": GROUP, "coordinators.error_code": GROUP},
    "join_group": {"error_code": GROUP},
    "heartbeat": {"error_code": GROUP},
    "leave_group": {"error_code": GROUP},
    "sync_group": {"error_code": GROUP},
    "describe_groups": {"groups.error_code": GROUP},
    "api_versions": {},
    "create_topics": {"topics.error_code": TOPIC},
    "delete_topics": {"responses.error_code": TOPIC},
    "delete_records": {"topics.partitions.error_code": TOPIC},
    "init_producer_id": TOP,
    "offset_for_leader_epoch": {"topics.partitions.error_code": TOPIC},
    "describe_configs": {"results.error_code": TOPIC},
    "alter_configs": {"responses.error_code": TOPIC},
    "create_partitions": {"results.error_code": TOPIC},
    "delete_groups": {"results.error_code": GROUP},
    "elect_leaders": {
        "error_code": CLUSTER,
        "replica_election_results.partition_result.error_code": CLUSTER,
    },
    "incremental_alter_configs": {"responses.error_code": TOPIC},
    "offset_delete": {"error_code": GROUP},
    "describe_producers": {"topics.partitions.error_code": TOPIC},
    "consumer_group_heartbeat": {"error_code": GROUP},
    "consumer_group_describe": {"groups.error_code": GROUP},
    "describe_topic_partitions": {"topics.error_code": TOPIC},
}

ROWS = [
    pytest.param(api, version, id=f"{api.module}-{api.role.name}-{version}")
    for api in APIS
    for version in range(max(api.versions[0], 3 if api.key == 0 else 0), api.versions[1] + 1)
]


class _DenyAll:
    def allows(
        self, _context: RequestContext, _operation: Operation, _kind: ResourceType, _name: str
    ) -> bool:
        return False


class _World:
    """A cluster with a topic, and what its nodes answer to somebody who may do nothing."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        broker = cluster.nodes[0].broker
        assert broker is not None
        topic = broker.image.topics[SECRET]
        self.topic_id = bytes(topic.topic_id)
        self._doors = {
            ON_BROKER: Dispatcher(broker, ON_BROKER, _DenyAll()),
            ON_CONTROLLER: Dispatcher(controller(cluster), ON_CONTROLLER, _DenyAll()),
        }

    def ask(self, request: Any, version: int, side: ServedBy) -> tuple[Any, bytes]:
        """Return an answer and its bytes; what is decided on the controller is decided at once."""
        frame = encode_request(request, version, 7, "client")[LENGTH_SIZE:]
        header, body = decode_request_header(frame)
        delivered: list[Deferred] = []
        client = Client("User:mallory", "10.0.0.66", "PLAINTEXT")
        answer = self._doors[side].serve(header, body, frame, client, delivered.append)
        if isinstance(answer, Deferred):
            assert answer.is_answered, "nothing is decided, so it waits for nothing"
            answer = answer.buffers
        assert answer is not None
        data = b"".join(answer)[LENGTH_SIZE:]
        _, response = decode_response(request.KEY, version, data)
        return response, data


Answers = dict[tuple[str, str | None, int], list[tuple[Any, bytes]]]


@pytest.fixture(scope="module")
def answers() -> Answers:
    """Ask all rows in one cluster, each about both topics."""
    found: Answers = {}

    async def story(cluster: SimulatedCluster) -> None:
        await cluster.client().create_topic(SECRET)
        world = _World(cluster)
        for row in ROWS:
            api, version = row.values
            assert isinstance(api, Api)
            assert isinstance(version, int)
            side = ON_BROKER if ServedBy.BROKER in api.role else ON_CONTROLLER
            found[api.module, api.role.name, version] = [
                world.ask(_asking(api, version, name, world.topic_id), version, side)
                for name in (SECRET, ABSENT)
            ]

    play(story)
    return found


def _asking(api: Api, version: int, name: str, topic_id: bytes) -> Any:
    """Ask for one of each thing there can be in the request, all with the same name."""
    request = _filled(request_class(api.key), version, name, topic_id)
    if api.module == "produce":
        request.acks = -1  # with 0 there is no answer
    if api.module == "init_producer_id":
        request.transactional_id = None
    if api.module == "api_versions" and version >= 3:
        request.client_software_name = request.client_software_version = "v1"
    if api.module == "sync_group" and version >= 5:
        request.protocol_type = request.protocol_name = "p"
    if api.module == "delete_topics" and version >= 6:
        request.topics[0].topic_id = bytes(16)  # by its name, that is
    if api.module == "metadata":
        for topic in request.topics:
            topic.topic_id = bytes(16)
    if api.module == "describe_cluster" and api.role is ServedBy.CONTROLLER and version >= 1:
        request.endpoint_type = 2
    return request


def _filled(cls: type[Any], version: int, name: str, topic_id: bytes) -> Any:
    made = cls()
    for field in [each for each in cls.FIELDS if each.present(version)]:
        if field.kind == "array" and isinstance(field.element, type):
            setattr(made, field.name, [_filled(field.element, version, name, topic_id)])
        elif field.kind == "array":
            values = {"int8": 2, "int32": 0, "uuid": topic_id, "string": name}
            setattr(made, field.name, [values[field.element.name]])
        elif field.name in ("name", "topic", "topic_name", "key", "group_id", "resource_name"):
            setattr(made, field.name, name)
        elif field.name == "topic_id":
            setattr(made, field.name, topic_id)
        elif field.name == "resource_type":
            setattr(made, field.name, ResourceType.TOPIC)
    return made


def _codes(value: Any, path: str = "") -> Iterator[tuple[str, int]]:
    """Yield every error in an answer, with its place."""
    for field in type(value).FIELDS:
        found = getattr(value, field.name)
        place = f"{path}{field.name}"
        if field.name == "error_code" and found != ErrorCode.NONE:
            yield place, found
        for each in found if isinstance(found, list) else [found]:
            if isinstance(each, Struct):
                yield from _codes(each, f"{place}.")


def _has(cls: type[Any], version: int, path: str) -> bool:
    """Whether answers of this version have such a place."""
    name, _, rest = path.partition(".")
    field = next(each for each in cls.FIELDS if each.name == name)
    return field.present(version) and (not rest or _has(field.element, version, rest))


@pytest.mark.parametrize(("api", "version"), ROWS)
def test_each_api_refuses_who_may_do_nothing_at_its_own_place(
    answers: Answers, api: Api, version: int
) -> None:
    (response, data), (_, other) = answers[api.module, api.role.name, version]
    places = PLACES.get(f"{api.module}-{version}", PLACES.get(api.module, TOP))
    expected = {} if api.need is None else places
    response_type = response_class(api.key)
    assert dict(_codes(response)) == {
        place: code for place, code in expected.items() if _has(response_type, version, place)
    }
    if api.module not in ("metadata", "describe_cluster"):  # who leads is drawn for each answer
        assert data == other.replace(ABSENT.encode(), SECRET.encode())


def test_every_api_has_a_row_with_what_it_takes_and_they_stand_in_order() -> None:
    assert [api.key for api in APIS] == sorted(api.key for api in APIS)
    assert {api.key for api in APIS} == BROKER.keys() | CONTROLLER.keys()
    assert [api.module for api in APIS if api.need is None] == [
        "list_groups",
        "api_versions",
        "describe_cluster",
    ]
    for api in APIS:
        assert api.role in ON_BROKER or api.role in ON_CONTROLLER or len(api.role) == 2
        internal = api.need is not None and api.need.operation is Operation.CLUSTER_ACTION
        assert not (internal and api.role & ON_BROKER), "what nodes say to controllers"


def test_what_lists_topics_hides_them() -> None:
    async def story(cluster: SimulatedCluster) -> None:
        await cluster.client().create_topic(SECRET)
        world = _World(cluster)
        for version in range(14):
            every = MetadataRequest(topics=[] if version == 0 else None)
            every.include_cluster_authorized_operations = 8 <= version <= 10
            response, data = world.ask(every, version, ON_BROKER)
            assert response.topics == []
            assert SECRET.encode() not in data
            if every.include_cluster_authorized_operations:
                assert response.cluster_authorized_operations == 0
        for key in (35, 75):
            request = _filled(request_class(key), BROKER[key].versions[1], SECRET, b"")
            request.topics = None if key == 35 else []
            _, data = world.ask(request, BROKER[key].versions[1], ON_BROKER)
            assert SECRET.encode() not in data

    play(story)


def test_an_id_does_not_give_its_topics_name_away() -> None:
    async def story(cluster: SimulatedCluster) -> None:
        await cluster.client().create_topic(SECRET)
        world = _World(cluster)
        topic_id, unknown = world.topic_id, bytes(range(16))
        deletion = DeleteTopicsRequest(topics=[DeleteTopicState(name=None, topic_id=topic_id)])
        response, data = world.ask(deletion, 6, ON_CONTROLLER)
        assert [each.error_code for each in response.responses] == [TOPIC]
        assert SECRET.encode() not in data
        asked = [MetadataRequestTopic(name=None, topic_id=each) for each in (topic_id, unknown)]
        response, data = world.ask(MetadataRequest(topics=asked), 12, ON_BROKER)
        codes = [each.error_code for each in response.topics]
        assert codes == [TOPIC, ErrorCode.UNKNOWN_TOPIC_ID]
        assert SECRET.encode() not in data

    play(story)


def test_a_transactional_id_is_refused_as_such() -> None:
    async def story(cluster: SimulatedCluster) -> None:
        await cluster.client().create_topic(SECRET)
        world = _World(cluster)
        response, _ = world.ask(InitProducerIdRequest(transactional_id="tx"), 5, ON_BROKER)
        assert response.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED

    play(story)


def test_a_transaction_is_refused_before_its_topics() -> None:
    async def story(cluster: SimulatedCluster) -> None:
        await cluster.client().create_topic(SECRET)
        world = _World(cluster)
        topic = TopicProduceData(name=SECRET, partition_data=[PartitionProduceData(index=0)])
        request = ProduceRequest(transactional_id="tx", acks=-1, topic_data=[topic])
        response, _ = world.ask(request, 9, ON_BROKER)
        (answer,) = response.responses[0].partition_responses
        assert answer.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED

    play(story)


def test_a_follower_that_may_not_follow_hears_it_of_each_partition() -> None:
    async def story(cluster: SimulatedCluster) -> None:
        await cluster.client().create_topic(SECRET)
        world = _World(cluster)
        partitions = [FetchPartition(partition=0)]
        topics = [FetchTopic(topic=SECRET, topic_id=world.topic_id, partitions=partitions)]
        for version in range(4, 18):
            request = FetchRequest(topics=topics)
            if version < 15:
                request.replica_id = 1
            else:
                request.replica_state = ReplicaState(replica_id=1, replica_epoch=1)
            response, _ = world.ask(request, version, ON_BROKER)
            assert dict(_codes(response)) == {"responses.partitions.error_code": TOPIC}

    play(story)


def test_an_id_that_stands_for_nothing_is_unknown_to_whoever_asks() -> None:
    """A client that is told so asks for metadata again; a missing right would end it."""

    async def story(cluster: SimulatedCluster) -> None:
        await cluster.client().create_topic(SECRET)
        world = _World(cluster)
        topic = FetchTopic(topic_id=bytes(range(16)), partitions=[FetchPartition(partition=0)])
        response, _ = world.ask(FetchRequest(topics=[topic]), 13, ON_BROKER)
        assert [code for _, code in _codes(response)] == [ErrorCode.UNKNOWN_TOPIC_ID]

    play(story)


def test_nothing_is_made_for_who_may_not() -> None:
    async def story(cluster: SimulatedCluster) -> None:
        client = cluster.client()
        await client.create_topic(SECRET)
        world = _World(cluster)
        world.ask(creation("made"), 7, ON_CONTROLLER)
        asked = MetadataRequest(topics=[MetadataRequestTopic(name="made")])
        world.ask(asked, 12, ON_BROKER)
        await client.create_topic("after")
        assert set(controller(cluster).image.topics) == {SECRET, "after"}

    play(story)


@pytest.mark.parametrize("key", [32, 33, 44])
def test_a_groups_settings_take_a_right_over_the_group(key: int) -> None:
    async def story(cluster: SimulatedCluster) -> None:
        await cluster.client().create_topic(SECRET)
        world = _World(cluster)
        version = BROKER[key].versions[1]
        request = _filled(request_class(key), version, "g", b"")
        request.resources[0].resource_type = ConfigResourceType.GROUP
        response, _ = world.ask(request, version, ON_BROKER if key == 32 else ON_CONTROLLER)
        assert list(dict(_codes(response)).values()) == [ErrorCode.GROUP_AUTHORIZATION_FAILED]

    play(story)
