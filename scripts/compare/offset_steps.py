"""Committed offsets: written, read and deleted, by whoever is in no group."""

from __future__ import annotations

from functools import partial
from typing import Final

from compare import group_requests as ask
from compare.asking import Side
from compare.cluster_steps import SET, TOPIC
from compare.coordinator_steps import serve
from holdfast.wire.messages.delete_groups import DeleteGroupsRequest
from holdfast.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from holdfast.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from holdfast.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from holdfast.wire.messages.offset_commit import OffsetCommitRequest
from holdfast.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
)

BY_ID_SINCE: Final = 10
NAMED: Final = "committed"
NOBODY: Final = b"x" * 16
OFFSETS_TOPIC: Final = "__consumer_offsets"


def steps(side: Side) -> None:
    """Put them."""
    serve(side)
    topic_id = side.create(NAMED, 3)
    _committed(side, topic_id)
    _metadata(side)
    _refused(side, topic_id)
    _fetched(side, topic_id)
    _several(side)
    _deleted(side)
    _of_topics_gone(side)
    _too_large(side)


def _committed(side: Side, topic_id: bytes) -> None:
    def named(version: int) -> ask.Topic:
        return topic_id if version >= BY_ID_SINCE else NAMED

    def one(version: int) -> OffsetCommitRequest:
        leader_epoch = 3 if version >= 6 else -1
        return ask.commit(
            f"offsets-{version}",
            {named(version): {0: 10 + version, 2: 0}},
            metadata=f"in {version}",
            committed_leader_epoch=leader_epoch,
        )

    side.ask_in_each("commit", one)
    for version in range(OffsetCommitRequest.MIN_VERSION, OffsetCommitRequest.MAX_VERSION + 1):
        side.ask(f"fetch what v{version} committed", ask.fetch(f"offsets-{version}"), version=9)
    side.ask_in_each(
        "commit some that are not there",
        lambda version: ask.commit("some", {named(version): {0: 1, 9: 1, -1: 1}}),
    )
    side.ask("fetch of some", ask.fetch("some"), version=9)
    for offset in (-1, -5, 1 << 62, (1 << 63) - 1):
        request = ask.commit(f"offset {offset}", {NAMED: {0: offset}})
        side.ask(f"commit {offset}", request, version=9)
        side.ask(f"fetch {offset}", ask.fetch(f"offset {offset}"), version=9)
    for retention in (0, 1, 3_600_000, -7):
        request = ask.commit(f"kept {retention}", {NAMED: {0: 4}}, retention_time_ms=retention)
        side.ask(f"commit for {retention} ms", request, version=4)
    side.ask("commit to no name", ask.commit("", {NAMED: {0: 4}}), version=9)
    side.ask("fetch of no name", ask.fetch("", {NAMED: [0]}), version=9)
    side.ask("commit nothing", ask.commit("nothing", {}), version=9)
    side.ask("commit no partition", ask.commit("nothing", {NAMED: {}}), version=9)
    side.ask("fetch of nothing", ask.fetch("nothing"), version=9)
    twice = ask.commit("twice-committed", {NAMED: {0: 4, 1: 5}})
    twice.topics *= 2
    side.ask("commit a topic twice", twice, version=9)
    same = ask.commit("twice-committed", {NAMED: {0: 4}})
    same.topics[0].partitions += ask.commit("", {NAMED: {0: 7}}).topics[0].partitions
    side.ask("commit a partition twice", same, version=9)
    side.ask("fetch what was committed twice", ask.fetch("twice-committed"), version=9)


def _metadata(side: Side) -> None:
    for step, metadata in (
        ("none", None),
        ("that is empty", ""),
        ("of the most", "x" * 4096),
        ("too long", "x" * 4097),
        ("of the most in two bytes", "é" * 4096),
        ("too long in surrogates", "\N{GRINNING FACE}" * 2049),
        ("of the most in surrogates", "\N{GRINNING FACE}" * 2048),
    ):
        group = f"metadata {step}"
        request = ask.commit(group, {NAMED: {0: 4}}, metadata=metadata)
        side.ask(f"commit metadata {step}", request, version=9)
        side.ask(f"fetch metadata {step}", ask.fetch(group), version=9)
    mixed = ask.commit("mixed", {NAMED: {0: 4, 1: 5}})
    mixed.topics[0].partitions[0].committed_metadata = "x" * 5000
    side.ask("commit metadata too long beside another", mixed, version=9)
    side.ask("fetch metadata too long beside another", ask.fetch("mixed"), version=9)
    for step in ("too long", "too long in surrogates"):  # which else are listed by one side
        request_of = DeleteGroupsRequest(groups_names=[f"metadata {step}"])
        side.ask(f"delete metadata {step}", request_of)


def _refused(side: Side, topic_id: bytes) -> None:
    side.ask_in_each(
        "commit for a topic unknown",
        lambda version: ask.commit(
            "unknown-topic", {NOBODY if version >= BY_ID_SINCE else "absent": {0: 1}}
        ),
    )
    side.ask("commit for no id", ask.commit("g", {bytes(16): {0: 1}}), version=10)
    both = ask.commit("both", {topic_id: {0: 1}, NOBODY: {0: 2, 1: 3}})
    side.ask("commit for ids known and unknown", both)
    side.ask("commit for a bad name", ask.commit("g", {"a b": {0: 1}, "": {0: 1}}), version=9)
    side.ask("fetch of a group for an unknown topic", ask.fetch("unknown-topic"), version=9)

    def as_member(epoch: int, member: str, version: int) -> OffsetCommitRequest:
        topic: ask.Topic = topic_id if version >= BY_ID_SINCE else NAMED
        return ask.commit("nobody-there", {topic: {0: 1}}, member=member, epoch=epoch)

    for epoch, member in ((0, "m"), (5, "m"), (5, ""), (-5, "m"), (-1, "m"), (-1, "")):
        side.ask_in_each(
            f"commit to no group as {member!r} in {epoch}",
            partial(as_member, epoch, member),
        )
    # The last one made the group: it is empty.
    for epoch, member in ((0, "m"), (5, "m"), (-5, "m"), (-1, "m")):
        side.ask_in_each(
            f"commit to an empty group as {member!r} in {epoch}",
            partial(as_member, epoch, member),
            since=8,
        )
    instance = ask.commit("nobody-there", {NAMED: {0: 1}}, group_instance_id="i")
    side.ask("commit to an empty group as an instance", instance, version=9)
    named = ask.commit("nobody-there", {NAMED: {0: 1}}, epoch=3, member="m", group_instance_id="i")
    side.ask("commit to an empty group as a member with one", named, version=9)


def _fetched(side: Side, topic_id: bytes) -> None:
    request = ask.commit("read", {NAMED: {0: 7, 1: 8}}, metadata="here")
    side.ask("commit to read", request, version=9)

    def named(version: int) -> ask.Topic:
        return topic_id if version >= BY_ID_SINCE else NAMED

    side.ask_in_each(
        "fetch some",
        lambda version: ask.fetch("read", {named(version): [0, 2, 9, -1]}, version=version),
    )
    side.ask_in_each("fetch all", lambda version: ask.fetch("read", version=version), since=2)
    side.ask_in_each("fetch no topic", lambda version: ask.fetch("read", {}, version=version))
    side.ask_in_each(
        "fetch no partition",
        lambda version: ask.fetch("read", {named(version): []}, version=version),
    )
    side.ask_in_each(
        "fetch of an unknown group",
        lambda version: ask.fetch("unknown", {named(version): [0]}, version=version),
    )
    side.ask_in_each(
        "fetch all of an unknown group",
        lambda version: ask.fetch("unknown", version=version),
        since=2,
    )
    side.ask_in_each(
        "fetch for an unknown topic",
        lambda version: ask.fetch(
            "read", {NOBODY if version >= BY_ID_SINCE else "absent": [0, 1]}, version=version
        ),
    )
    side.ask_in_each(
        "fetch what is stable",
        lambda version: ask.fetch(
            "read", {named(version): [0]}, version=version, require_stable=True
        ),
        since=7,
    )
    side.ask("fetch for no id", ask.fetch("read", {bytes(16): [0]}), version=10)
    both = ask.fetch("read", {topic_id: [0], NOBODY: [0, 1]})
    side.ask("fetch for ids known and unknown", both, version=10)
    side.ask("fetch a partition twice", ask.fetch("read", {NAMED: [0, 0]}), version=9)
    for member, epoch in ((None, 5), ("m", 5), ("m", -1), ("", 0), ("", -1), (None, -7)):
        as_member = ask.fetch("read", {NAMED: [0]}, member_id=member, member_epoch=epoch)
        side.ask(f"fetch as {member!r} in {epoch}", as_member, version=9)


def _several(side: Side) -> None:
    def group(name: str, *partitions: int) -> OffsetFetchRequestGroup:
        topics = [OffsetFetchRequestTopic(name=NAMED, partition_indexes=list(partitions))]
        return OffsetFetchRequestGroup(group_id=name, topics=topics if partitions else None)

    for number, groups in enumerate(
        (
            [],
            [group("read"), group("mixed", 1)],
            [group("read", 0), group("unknown", 0), group("", 0)],
            [group("read", 0), group("read", 1)],
            [group("read"), group("read")],
        )
    ):
        side.ask(f"fetch of several {number} v8", OffsetFetchRequest(groups=groups), version=8)
        side.ask(f"fetch of several {number} v9", OffsetFetchRequest(groups=groups), version=9)


def _deleted(side: Side) -> None:
    side.ask("commit to delete", ask.commit("less", {NAMED: {0: 7, 1: 8, 2: 9}}), version=9)
    for step, group, topics in (
        ("one", "less", {NAMED: [0]}),
        ("one again", "less", {NAMED: [0]}),
        ("what is not there", "less", {NAMED: [9, -1, 1]}),
        ("of an unknown topic", "less", {"absent": [0]}),
        ("of topics known and unknown", "less", {NAMED: [0], "absent": [0]}),
        ("no partition", "less", {NAMED: []}),
        ("nothing", "less", {}),
        ("of an unknown group", "unknown", {NAMED: [0]}),
        ("of an unknown group and topic", "unknown", {"absent": [0]}),
        ("nothing of an unknown group", "unknown", {}),
        ("of no name", "", {NAMED: [0]}),
        ("nothing of no name", "", {}),
        ("twice", "less", {NAMED: [2, 2]}),
    ):
        side.ask(f"delete offsets: {step}", ask.delete_offsets(group, topics))
    side.ask("fetch what was left", ask.fetch("less", {NAMED: [0, 1, 2]}), version=9)
    side.ask("fetch all that was left", ask.fetch("less"), version=9)


def _of_topics_gone(side: Side) -> None:
    """Offsets of a topic that is deleted, and of another one with its name."""
    first = side.create("gone")
    side.ask("commit by name", ask.commit("by-name", {"gone": {0: 7}}), version=9)
    side.ask("commit by id", ask.commit("by-id", {first: {0: 7}}), version=10)
    gone = DeleteTopicsRequest(topics=[DeleteTopicState(name="gone")], timeout_ms=5000)
    side.driver.send(gone, node=side.node)
    for group in ("by-name", "by-id"):
        side.until(partial(_is_forgotten, side, group), "a topic's offsets to go")
        side.ask(f"fetch {group} of a topic gone", ask.fetch(group, {"gone": [0]}), version=9)
        side.ask(f"fetch all {group} of a topic gone", ask.fetch(group), version=9)
    side.ask("fetch of an id gone", ask.fetch("by-id", {first: [0]}), version=10)
    side.ask("commit for an id gone", ask.commit("by-id", {first: {0: 7}}), version=10)
    side.ask("commit for a name gone", ask.commit("by-name", {"gone": {0: 7}}), version=9)
    second = side.create("gone")
    side.ask("fetch of a name back", ask.fetch("by-name", {"gone": [0]}), version=9)
    side.ask("commit for an id back", ask.commit("by-id", {second: {0: 1}}), version=10)
    side.ask("fetch of an id back", ask.fetch("by-id", {second: [0], first: [0]}), version=10)


def _is_forgotten(side: Side, group: str) -> bool:
    (found,) = side.driver.send(ask.fetch(group), node=side.node, version=9).groups
    return all(one.committed_offset < 0 for topic in found.topics for one in topic.partitions)


def _too_large(side: Side) -> None:
    """A commit that the log does not take."""

    def bound(value: str) -> None:
        changed = AlterableConfig(config_operation=SET, name="max.message.bytes", value=value)
        resource = AlterConfigsResource(
            resource_type=TOPIC, resource_name=OFFSETS_TOPIC, configs=[changed]
        )
        side.driver.send(IncrementalAlterConfigsRequest(resources=[resource]), node=side.node)
        described = DescribeConfigsRequest(
            resources=[
                DescribeConfigsResource(
                    resource_type=TOPIC,
                    resource_name=OFFSETS_TOPIC,
                    configuration_keys=["max.message.bytes"],
                )
            ]
        )
        side.until(
            lambda: (
                side.driver.send(described, node=side.node).results[0].configs[0].value == value
            ),
            "the bound to be there",
        )

    joined = side.ask("join to assign too much", ask.join("assigning"), version=3)
    side.names[joined.member_id] = "who assigns"
    bound("1000")
    large = ask.commit("large", {NAMED: {0: 7}}, metadata="x" * 2000)
    side.ask_in_each("commit too much for the log", large, until=9)
    many = ask.commit("large", {NAMED: {0: 7, 1: 7, 2: 7}}, metadata="x" * 500)
    side.ask("commit too many for the log", many, version=9)
    parts = {joined.member_id: b"x" * 2000}
    request = ask.sync("assigning", 1, joined.member_id, parts)
    side.ask("assign too much for the log", request)
    side.ask("beat after that", ask.beat("assigning", 1, joined.member_id))
    bound("1048588")
    side.ask("leave after that", ask.leave("assigning", (joined.member_id, None)))
    side.ask("fetch of a group too large", ask.fetch("large"), version=9)
