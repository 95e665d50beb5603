"""Groups of the consumer protocol when topics, patterns, static members or settings change."""

from __future__ import annotations

from typing import Any, Final

from compare import group_requests as ask
from compare.asking import Side
from compare.classic_steps import described
from compare.cluster_steps import GROUP, SET
from compare.consumer_steps import beaten, group_of, settled
from compare.coordinator_steps import serve
from holdfast.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from holdfast.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from holdfast.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from holdfast.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest

ONE: Final = "changing"
PATTERNS: Final = (
    "chang.*",
    "^changing$",
    "hanging",
    "nothing-is-named-so",
    "[",
    "(",
    "a{2000}",
    "(?i)CHANGING",
    "(?=changing)",
    "(c)\\1",
    "\\p{Ll}+ing",
    "",
    " ",
)
MATCHING: Final = ("chang.*", "^changing$", "(?i)CHANGING", "\\p{Ll}+ing")


def steps(side: Side) -> None:
    """Put them."""
    serve(side)
    one = side.create(ONE, 4)
    _topics_change(side)
    _patterns(side)
    _static(side, one)
    _static_refused(side)
    _assignors(side)
    _full(side)
    _settings(side)
    _served(side)
    # The last steps of all: who is never answered is waited for, and stays in its group.
    request = ask.join("lying", protocols={"range": b"metadata"})
    side.begin("join with a list that is not there", request, version=3).take()
    request = ask.join("repeating")
    request.protocols *= 2
    side.begin("join with a protocol twice", request, version=3).take()


def _topics_change(side: Side) -> None:
    group = "watchful"
    side.ask("watchful: joins", ask.consume(group, "m", 0, ["comes-and-goes"]))
    side.create("comes-and-goes")
    _follow(side, group, "a topic that came")
    again = CreatePartitionsTopic(name="comes-and-goes", count=3, assignments=None)
    side.driver.send(CreatePartitionsRequest(topics=[again], timeout_ms=5000), node=side.node)
    side.wait_for("comes-and-goes", 3)
    _follow(side, group, "partitions that came")
    gone = DeleteTopicsRequest(topics=[DeleteTopicState(name="comes-and-goes")], timeout_ms=5000)
    side.driver.send(gone, node=side.node)
    _follow(side, group, "a topic that went")
    side.ask("watchful: leaves", ask.consume(group, "m", -1))


def _follow(side: Side, group: str, what: str) -> None:
    """Beat until a group has another epoch and is stable, and look at it."""
    before = group_of(side, group)
    (member,) = before.members

    def is_new() -> bool:
        beaten(side, ask.consume(group, "m", member.member_epoch))
        return bool(group_of(side, group).group_epoch > before.group_epoch)

    side.until(is_new, f"{group} to see {what}")
    settled(side, group, "m", member.member_epoch)
    described(side, f"{group} with {what}", group)


def _patterns(side: Side) -> None:
    for number, pattern in enumerate(PATTERNS):
        group = f"pattern-{number}"
        joins = ask.consume(group, "m", 0, None, subscribed_topic_regex=pattern)
        answer = side.ask(f"consume what matches {pattern!r}", joins)
        if answer is None or answer.error_code:
            continue
        if pattern in MATCHING:
            _await_topics(side, group)
        settled(side, group, "m", group_of(side, group).members[0].member_epoch)
        described(side, f"who reads {pattern!r}", group)
        side.ask(f"who reads {pattern!r} leaves", ask.consume(group, "m", -1))
    both = ask.consume("pattern-and-names", "m", 0, [ONE], subscribed_topic_regex="nothing.*")
    side.ask("consume names and a pattern", both)
    changed = ask.consume("pattern-and-names", "m", 2, None, subscribed_topic_regex="[")
    side.ask("consume another pattern that is none", changed)
    without = ask.consume("pattern-and-names", "m", 2, None, subscribed_topic_regex="")
    side.ask("consume no pattern any more", without)
    settled(
        side, "pattern-and-names", "m", group_of(side, "pattern-and-names").members[0].member_epoch
    )
    described(side, "who reads names and no pattern", "pattern-and-names")


def _await_topics(side: Side, group: str) -> None:
    def known() -> bool:
        (member,) = group_of(side, group).members
        beaten(side, ask.consume(group, "m", member.member_epoch))
        return bool(group_of(side, group).members[0].assignment.topic_partitions)

    side.until(known, f"{group}'s pattern to be known")


def _static(side: Side, one: bytes) -> None:
    group = "instances"

    def say(step: str, member: str, epoch: int, **more: Any) -> None:
        topics = [ONE] if epoch == 0 else None
        request = ask.consume(group, member, epoch, topics, **more)
        side.ask(f"instances: {step}", request)

    say("first joins", "m1", 0, instance_id="i")
    say("another with its instance", "m2", 0, instance_id="i")
    say("another speaks for it", "m2", 2, instance_id="i")
    say("it speaks without its instance", "m1", 2)
    say("it speaks as another instance", "m1", 2, instance_id="j")
    say("it joins again", "m1", 0, instance_id="i")
    say("it goes away without its instance", "m1", -2)
    say("it goes away", "m1", -2, instance_id="i")
    described(side, "an instance that is away", group)
    say("it speaks while it is away", "m1", 2, instance_id="i")
    say("it goes away again", "m1", -2, instance_id="i")
    say("another comes meanwhile", "m3", 0)
    described(side, "an instance that is away, and another", group)
    say("it comes back as another", "m2", 0, instance_id="i")
    described(side, "an instance that is back", group)
    say("its old self speaks", "m1", 2, instance_id="i")
    say("its old self leaves", "m1", -1, instance_id="i")
    commits = ask.commit(group, {ONE: {0: 5}}, member="m2", epoch=2, group_instance_id="i")
    side.ask("instances: it commits", commits, version=9)
    commits = ask.commit(group, {ONE: {0: 6}}, member="m2", epoch=1, group_instance_id="i")
    side.ask("instances: it commits in an epoch before the part was its", commits, version=9)
    commits = ask.commit(group, {ONE: {0: 5}}, member="m1", epoch=2, group_instance_id="i")
    side.ask("instances: its old self commits", commits, version=9)
    say("it leaves by another instance", "m2", -1, instance_id="j")
    leaves = ask.leave(group, ("", "i"), ("", "j"), ("m3", None))
    side.ask("instances: leave as classic members", leaves)
    described(side, "instances that left", group)
    say("its part is free", "m4", 0)
    say("who has what", "m4", 2)
    assert one


def _static_refused(side: Side) -> None:
    group = "instance"
    joins = ask.consume(group, "m", 0, [ONE], instance_id="i")
    side.ask("instance: joins", joins)
    side.ask("instance: leaves for good", ask.consume(group, "m", -1, instance_id="i"))
    described(side, "an instance that left for good", group)
    side.ask("instance: joins again", joins)
    side.ask("instance: leaves without it", ask.consume(group, "m", -1))
    described(side, "an instance that left without its name", group)


def _assignors(side: Side) -> None:
    """What each assignor gives to members that want different things."""
    side.create("one-of-three", 5)
    for assignor in ("uniform", "range", None):
        group = f"by-{assignor}"
        for member, topics in (
            ("a", [ONE, "one-of-three"]),
            ("b", [ONE]),
            ("c", [ONE, "one-of-three"]),
        ):
            joins = ask.consume(group, member, 0, topics, server_assignor=assignor)
            side.ask(f"{group}: {member} joins", joins)
            described(side, f"{group} with {member}", group)
    for member in ("a", "b", "c"):
        request = ask.consume("by-range", member, 0, [ONE], server_assignor="uniform")
        side.ask(f"by-range: {member} asks for another assignor", request)
        described(side, f"by-range when {member} wants another", "by-range")
    for member in ("a", "b", "c"):
        side.ask(f"by-range: {member} leaves", ask.consume("by-range", member, -1))
        described(side, f"by-range without {member}", "by-range")


def _full(side: Side) -> None:
    """More than may be in a group (group.consumer.max.size is 3)."""
    group = "full-of-consumers"
    for member in ("a", "b", "c", "d"):
        side.ask(f"full: {member} joins", ask.consume(group, member, 0, [ONE]))
    side.ask("full: a says it again", ask.consume(group, "a", 0, [ONE]))
    side.ask("full: d with an epoch", ask.consume(group, "d", 1))


def _settings(side: Side) -> None:
    """A group with settings of its own."""
    group = "with-its-own"
    changed = AlterableConfig(
        config_operation=SET, name="consumer.heartbeat.interval.ms", value="7000"
    )
    resource = AlterConfigsResource(resource_type=GROUP, resource_name=group, configs=[changed])
    side.ask("settings of a group to come", IncrementalAlterConfigsRequest(resources=[resource]))

    def told() -> bool:
        answer = beaten(side, ask.consume(group, "m", 0, [ONE]))
        return bool(answer.heartbeat_interval_ms == 7000)

    side.until(told, "a group's interval to be told")
    side.ask("a group's own interval", ask.consume(group, "m", 0, [ONE]))
    side.ask("a group's own interval, v0", ask.consume(group, "m", 0, [ONE]), version=0)


def _served(side: Side) -> None:
    """Without group.version there is no such protocol."""

    def level(step: str, number: int, kind: int) -> None:
        update = FeatureUpdateKey(
            feature="group.version", max_version_level=number, upgrade_type=kind
        )
        request = UpdateFeaturesRequest(feature_updates=[update], timeout_ms=5000)
        side.ask(f"group.version {step}", request)

    level("down", 0, 1)
    level("down safely", 0, 2)
    side.until(
        lambda: bool(beaten(side, ask.consume("unserved", "m", 0, [ONE])).error_code),
        "the protocol to be refused",
    )
    for step, request in {
        "joins": ask.consume("unserved", "m", 0, [ONE]),
        "beats": ask.consume("by-uniform", "a", 2),
        "leaves": ask.consume("by-uniform", "a", -1),
        "wrongly": ask.consume("", "", 0),
    }.items():
        side.ask_in_each(f"unserved: {step}", request)
    described(side, "who is not served", "by-uniform", "unserved")
    level("up", 1, 1)
    side.until(
        lambda: not beaten(side, ask.consume("unserved", "m", 0, [ONE])).error_code,
        "the protocol to be served",
    )
    described(side, "who is served again", "by-uniform")
