"""Topics: made, grown, deleted, described, elected, moved."""

from __future__ import annotations

from typing import Final

from compare.asking import Side
from holdfast.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from holdfast.wire.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from holdfast.wire.messages.create_topics import CreateTopicsRequest, new_topic
from holdfast.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from holdfast.wire.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from holdfast.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from holdfast.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from holdfast.wire.messages.metadata import MetadataRequest, MetadataRequestTopic

BAD_NAMES: Final = ("", ".", "..", "a b", "é", "x" * 249, "y" * 250, "a/b", "ok.name", "ok_name")
# What a topic is made with, and what each side says of it.
CONFIGS: Final = (
    {"cleanup.policy": "compact"},
    {"cleanup.policy": "compact,delete"},
    {"cleanup.policy": "delete,delete"},
    {"cleanup.policy": ""},
    {"cleanup.policy": "keep"},
    {"compression.type": "lz4"},
    {"compression.type": "brotli"},
    {"compression.gzip.level": "10"},
    {"retention.ms": "-1"},
    {"retention.ms": "-2"},
    {"retention.bytes": "1e3"},
    {"segment.bytes": "13"},
    {"segment.bytes": "1048576"},
    {"max.message.bytes": "0"},
    {"max.message.bytes": "-1"},
    {"min.insync.replicas": "0"},
    {"min.insync.replicas": "2"},
    {"unclean.leader.election.enable": "yes"},
    {"unclean.leader.election.enable": "TRUE"},
    {"message.timestamp.type": "LogAppendTime"},
    {"message.timestamp.type": "logappendtime"},
    {"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "9"},
    {"min.cleanable.dirty.ratio": "1.5"},
    {"min.cleanable.dirty.ratio": "0.1"},
    {"preallocate": "true"},
    {"flush.messages": "1"},
    {"flush.messages": "0"},
    {"flush.ms": "0"},
    {"flush.ms": "1000"},
    {"remote.storage.enable": "true"},
    {"local.retention.ms": "5", "retention.ms": "4"},
    {"leader.replication.throttled.replicas": "*"},
    {"leader.replication.throttled.replicas": "0:0,1"},
    {"nobody.knows": "this"},
    {"segment.index.bytes": "3"},
    {"delete.retention.ms": "0"},
    {"file.delete.delay.ms": "-1"},
    {"message.format.version": "3.0"},
)


def steps(side: Side) -> None:
    """Put them."""
    _made(side)
    _configs(side)
    _grown(side)
    _described(side)
    _elected(side)
    _moved(side)
    _deleted(side)


def _made(side: Side) -> None:
    def made(version: int) -> CreateTopicsRequest:
        return CreateTopicsRequest(topics=[new_topic(f"made-{version}", 2, 1)])

    side.ask_in_each("create", made)
    for version in range(CreateTopicsRequest.MIN_VERSION, CreateTopicsRequest.MAX_VERSION + 1):
        side.wait_for(f"made-{version}", 2)
    side.ask_in_each("create again", made)
    side.ask_in_each(
        "create, to be looked at only",
        CreateTopicsRequest(topics=[new_topic("not-made", 3, 1)], validate_only=True),
    )
    for number, name in enumerate(BAD_NAMES):
        request = CreateTopicsRequest(topics=[new_topic(name, 1, 1)], validate_only=True)
        side.ask(f"create name {number} {name[:10]!r}", request)
    for partitions, replicas in ((0, 1), (-2, 1), (-1, -1), (1, 0), (1, 2), (1, -2), (-1, 3)):
        request = CreateTopicsRequest(
            topics=[new_topic("numbers", partitions, replicas)], validate_only=True
        )
        side.ask(f"create {partitions} partitions, {replicas} replicas", request)
    assignments: tuple[dict[int, list[int]], ...] = (
        {0: [side.node]},
        {1: [side.node]},
        {0: [side.node], 2: [side.node]},
        {0: [side.node, side.node]},
        {0: [77]},
        {0: []},
        {0: [-1]},
    )
    for number, assignment in enumerate(assignments):
        topic = new_topic("assigned", assignment=assignment)
        request = CreateTopicsRequest(topics=[topic], validate_only=True)
        side.ask(f"create with assignment {number} {sorted(assignment)}", request)
    both = new_topic("assigned", assignment={0: [side.node]})
    both.num_partitions = 1
    side.ask(
        "create with both",
        CreateTopicsRequest(topics=[both], validate_only=True),
    )
    twice = [new_topic("twice", 1, 1), new_topic("twice", 1, 1), new_topic("once", 1, 1)]
    side.ask("create one twice", CreateTopicsRequest(topics=twice, validate_only=True))
    side.create("a.b")
    collides = CreateTopicsRequest(topics=[new_topic("a_b", 1, 1)], validate_only=True)
    side.ask("create a colliding name", collides)
    side.ask("create nothing", CreateTopicsRequest(topics=[]))


def _configs(side: Side) -> None:
    for number, configs in enumerate(CONFIGS):
        topic = new_topic("configured", 1, 1, None, configs)
        shown = ", ".join(f"{key}={value}" for key, value in configs.items())
        request = CreateTopicsRequest(topics=[topic], validate_only=True)
        side.ask(f"create with {number} {shown}", request)


def _grown(side: Side) -> None:
    side.create("grown", 2)

    def grown(count: int, *brokers: int) -> CreatePartitionsRequest:
        assignments = [CreatePartitionsAssignment(broker_ids=[one]) for one in brokers] or None
        topic = CreatePartitionsTopic(name="grown", count=count, assignments=assignments)
        return CreatePartitionsRequest(topics=[topic], timeout_ms=5000, validate_only=True)

    side.ask_in_each("grow, to be looked at only", grown(3))
    for count in (-1, 0, 1, 2, 3, 1_000_000):
        side.ask(f"grow to {count}", grown(count))
    side.ask("grow with an assignment", grown(3, side.node))
    side.ask("grow with too many assignments", grown(3, side.node, side.node))
    side.ask("grow to an unknown broker", grown(3, 77))
    unknown = CreatePartitionsTopic(name="absent", count=3, assignments=None)
    side.ask("grow an unknown topic", CreatePartitionsRequest(topics=[unknown], timeout_ms=5000))
    again = CreatePartitionsTopic(name="grown", count=3, assignments=None)
    twice = CreatePartitionsRequest(topics=[again, again], timeout_ms=5000, validate_only=True)
    side.ask("grow one twice", twice)
    side.ask("grow for good", CreatePartitionsRequest(topics=[again], timeout_ms=5000))
    side.wait_for("grown", 3)


def _described(side: Side) -> None:
    topic_id = side.create("described", 3)

    def named(*names: str) -> list[MetadataRequestTopic]:
        return [MetadataRequestTopic(name=name) for name in names]

    side.ask_in_each("metadata of one", MetadataRequest(topics=named("described")), since=0)
    side.ask_in_each(
        "metadata of an unknown one",
        MetadataRequest(topics=named("absent"), allow_auto_topic_creation=False),
        since=4,
    )
    side.ask_in_each(
        "metadata with operations",
        lambda version: MetadataRequest(
            topics=named("described"),
            include_topic_authorized_operations=True,
            include_cluster_authorized_operations=version <= 10,
        ),
        since=8,
    )
    side.ask_in_each("metadata of none", MetadataRequest(topics=[]), since=1)
    for name in BAD_NAMES[:5]:
        side.ask(
            f"metadata of a bad name {name!r}",
            MetadataRequest(topics=named(name), allow_auto_topic_creation=True),
        )
    by_id = MetadataRequest(topics=[MetadataRequestTopic(topic_id=topic_id, name=None)])
    side.ask_in_each("metadata by id", by_id, since=12)
    unknown = MetadataRequest(topics=[MetadataRequestTopic(topic_id=b"x" * 16, name=None)])
    side.ask_in_each("metadata by an unknown id", unknown, since=12)
    both = MetadataRequest(topics=[MetadataRequestTopic(topic_id=topic_id, name="described")])
    side.ask_in_each("metadata by id and name", both, since=10)
    side.ask("metadata of one twice", MetadataRequest(topics=named("described", "described")))
    side.ask(
        "metadata makes a topic",
        MetadataRequest(topics=named("made-by-asking"), allow_auto_topic_creation=True),
    )
    side.wait_for("made-by-asking")

    def described(*names: str, limit: int = 2000, cursor: Cursor | None = None) -> None:
        request = DescribeTopicPartitionsRequest(
            topics=[TopicRequest(name=name) for name in names],
            response_partition_limit=limit,
            cursor=cursor,
        )
        side.ask(f"describe partitions of {names} {limit} {cursor}", request)

    described("described")
    described("described", "absent", "a.b")
    described("described", limit=2)
    described("described", limit=0)
    described("described", limit=-1)
    described("described", cursor=Cursor(topic_name="described", partition_index=1))
    described("described", cursor=Cursor(topic_name="described", partition_index=9))
    described("described", cursor=Cursor(topic_name="absent", partition_index=0))
    described("described", cursor=Cursor(topic_name="described", partition_index=-1))
    described("described", "described")


def _elected(side: Side) -> None:
    side.create("elected", 2)

    def elect(kind: int, *topics: tuple[str, list[int]]) -> ElectLeadersRequest:
        asked = [TopicPartitions(topic=name, partitions=indexes) for name, indexes in topics]
        return ElectLeadersRequest(election_type=kind, topic_partitions=asked, timeout_ms=5000)

    side.ask_in_each("elect the preferred", elect(0, ("elected", [0, 1])))
    side.ask_in_each("elect uncleanly", elect(1, ("elected", [0])), since=1)
    side.ask("elect in an unknown way", elect(7, ("elected", [0])))
    side.ask("elect for an unknown partition", elect(0, ("elected", [0, 9, -1])))
    side.ask("elect for an unknown topic", elect(0, ("absent", [0])))
    side.ask("elect for no topic", elect(0))
    side.ask("elect for a partition twice", elect(0, ("elected", [0, 0])))
    everything = ElectLeadersRequest(election_type=0, topic_partitions=None, timeout_ms=5000)
    side.ask("elect for all", everything)


def _moved(side: Side) -> None:
    side.create("moved", 2)

    def move(topic: str, index: int, replicas: list[int] | None) -> None:
        request = AlterPartitionReassignmentsRequest(
            timeout_ms=5000,
            topics=[
                ReassignableTopic(
                    name=topic,
                    partitions=[ReassignablePartition(partition_index=index, replicas=replicas)],
                )
            ],
        )
        side.ask_in_each(f"move {topic}-{index} to {replicas}", request)

    move("moved", 0, [side.node])
    move("moved", 0, [])
    move("moved", 0, [side.node, side.node])
    move("moved", 0, [77])
    move("moved", 0, [-1])
    move("moved", 0, None)
    move("moved", 9, [side.node])
    move("absent", 0, [side.node])
    side.ask("move nothing", AlterPartitionReassignmentsRequest(timeout_ms=5000, topics=[]))
    side.ask("list what moves", ListPartitionReassignmentsRequest(topics=None))
    for topic, index in (("moved", 0), ("moved", 9), ("absent", 0)):
        listed = ListPartitionReassignmentsTopics(name=topic, partition_indexes=[index])
        side.ask(f"list {topic}-{index}", ListPartitionReassignmentsRequest(topics=[listed]))


def _deleted(side: Side) -> None:
    for version in range(1, 6):
        side.create(f"deleted-{version}")
        request = DeleteTopicsRequest(topic_names=[f"deleted-{version}", "absent"], timeout_ms=5000)
        side.ask(f"delete v{version}", request, version=version)
    by_id = side.create("deleted-by-id")
    side.create("deleted-by-name")
    topics = [
        DeleteTopicState(name="deleted-by-name"),
        DeleteTopicState(topic_id=by_id),
        DeleteTopicState(topic_id=b"x" * 16),
        DeleteTopicState(name="absent"),
    ]
    side.ask("delete by name and id", DeleteTopicsRequest(topics=topics, timeout_ms=5000))
    side.create("deleted-twice")
    twice = [DeleteTopicState(name="deleted-twice")] * 2
    side.ask("delete one twice", DeleteTopicsRequest(topics=twice, timeout_ms=5000))
    neither = DeleteTopicsRequest(topics=[DeleteTopicState()], timeout_ms=5000)
    side.ask("delete without name and id", neither)
    side.ask("delete nothing", DeleteTopicsRequest(topics=[], timeout_ms=5000))
