"""A small language for stories of a group of the consumer protocol, and how they are written down.

A transcript is a text of blocks: commands, a line of dashes, what happened, an empty line. Lines
that begin with # tell the reader what is going on. The commands are the methods of `Story`. What
happened is the answer to each command, and the records that it put into the log.
"""

from __future__ import annotations

from typing import Any

from tests.group.consumer_kit import GROUP, Coordinator, assigned
from tests.transcripts import retold

from holdfast.core.group.any_group import Caller
from holdfast.core.group.assignors import Partitions
from holdfast.core.group.consumer.consumer_member import MemberState, partitions_of
from holdfast.core.group.consumer.consumer_settings import MigrationPolicy
from holdfast.wire.errors import ErrorCode
from holdfast.wire.groups.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    ConsumerTopicPartitions,
    decode_assignment,
    encode_assignment,
    encode_subscription,
)
from holdfast.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from holdfast.wire.messages.heartbeat import HeartbeatRequest
from holdfast.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from holdfast.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from holdfast.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

STATES = {each.value: each.name for each in MemberState}


def run(text: str) -> str:
    """Run a transcript; return it with what really happened."""
    return retold(text, Story().command)


class Story:
    def __init__(self) -> None:
        self.coordinator = Coordinator()
        self.epochs: dict[str, int] = {}  # what each member was told last
        self.generations: dict[str, tuple[str, int]] = {}  # classic ones: their id and generation
        self.calls: dict[int, str] = {}  # what waits: its number, and what it is
        self.written = 0

    def command(self, words: list[str]) -> list[str]:
        name, *arguments = words
        plain = [each for each in arguments if "=" not in each]
        options = dict(each.split("=", 1) for each in arguments if "=" in each)
        said: str | None = getattr(self, "do_" + name)(*plain, **options)
        lines = [said] if said else []
        lines += [f"  {line}" for line in self.records()]
        held = self.coordinator.held
        for call in sorted(held):
            lines.append(f"{self.calls[call]}: {self.told(self.calls[call], held.pop(call))}")
        return lines

    # -- commands --------------------------------------------------------------------------------

    def do_settings(self, **settings: str) -> None:
        """First of all: `settings max_size=2 assignors=range`."""
        values: dict[str, Any] = {
            key: int(value) if value.isdigit() else value for key, value in settings.items()
        }
        if "assignors" in values:
            values["assignors"] = tuple(values["assignors"].split(","))
        if "migration_policy" in values:
            values["migration_policy"] = MigrationPolicy(values["migration_policy"])
        self.coordinator = Coordinator(**values)

    def do_topic(self, name: str, partitions: str = "1") -> None:
        self.coordinator.create(name, int(partitions))

    def do_grow(self, name: str, partitions: str) -> None:
        self.coordinator.grow(name, int(partitions))

    def do_delete(self, name: str) -> None:
        self.coordinator.delete(name)

    def do_join(self, member: str, *topics: str, **told: str) -> str:
        """`join A t u instance=i`: a first heartbeat. What is `key=value` is told as well."""
        names = list(topics) if topics or "pattern" not in told else None
        options = self.options({"timeout": "60000", "owned": "", **told})
        if names is not None:
            options["subscribed_topic_names"] = names
        return self.beat(member, 0, options)

    def do_beat(self, member: str, **told: str) -> str:
        """`beat A owned=t-0,t-1`: a heartbeat with the epoch that it was told, or with `epoch=`."""
        epoch = int(told.pop("epoch", self.epochs.get(member, 0)))
        return self.beat(member, epoch, self.options(told))

    def do_subscribe(self, member: str, *topics: str, **told: str) -> str:
        """A heartbeat with another subscription."""
        options = {**self.options(told), "subscribed_topic_names": list(topics)}
        return self.beat(member, self.epochs[member], options)

    def do_leave(self, member: str, **told: str) -> str:
        return self.beat(member, -1, self.options(told))

    def do_away(self, member: str, **told: str) -> str:
        """A static member goes, and means to come back."""
        return self.beat(member, -2, self.options(told))

    def beat(self, member: str, epoch: int, options: dict[str, Any]) -> str:
        response = self.coordinator.heartbeat(member.strip("-"), epoch, **options)
        if not response.error_code:
            self.epochs[member] = response.member_epoch
        return f"{member}: {self.told(member, response)}"

    def options(self, told: dict[str, str]) -> dict[str, Any]:
        """Translate what is told into fields of the request."""
        names = {"instance": "instance_id", "assignor": "server_assignor", "rack": "rack_id"}
        result: dict[str, Any] = {}
        for key, value in told.items():
            if key == "owned":
                result["owned"] = self.parsed(value)
            elif key == "timeout":
                result["rebalance_timeout_ms"] = int(value)
            elif key == "pattern":
                result["subscribed_topic_regex"] = value.strip('"')
            elif key == "version":
                result["version"] = int(value)
            else:
                result[names[key]] = value
        return result

    def do_advance(self, milliseconds: str) -> None:
        self.coordinator.advance(int(milliseconds))

    def do_live(self, milliseconds: str, *members: str) -> None:
        """Let time pass while these beat every five seconds, and tell nothing."""
        for _ in range(int(milliseconds) // 5_000):
            self.coordinator.advance(5_000)
            for member in members:
                self.do_beat(member)

    def do_fail_over(self) -> None:
        self.coordinator.fail_over()

    def do_refuse(self, code: str = "") -> None:
        """From now on the log refuses records with this code; with none it takes them again."""
        self.coordinator.refuses = ErrorCode[code] if code else None

    def do_resolve(self) -> str:
        asked = self.coordinator.resolve()
        for refresh in asked:
            since = "all topics" if refresh.since is None else f"topics since {refresh.since}"
            return f"resolve {' '.join(refresh.patterns)} over {since}"
        return "resolve nothing"

    def do_describe(self) -> str:
        found = self.coordinator.group().described()
        epochs = f"epoch {found.group_epoch}, targets for {found.assignment_epoch}"
        lines = [f"describe: {found.group_state}, {epochs}, {found.assignor_name}"]
        for each in found.members:
            has, target = (
                " ".join(
                    f"{topic.topic_name}-{index}"
                    for topic in which.topic_partitions
                    for index in topic.partitions
                )
                for which in (each.assignment, each.target_assignment)
            )
            kind = "classic" if each.member_type == 0 else "consumer"
            lines.append(
                f"  {each.member_id} ({kind}) at {each.member_epoch}: {has or '-'};"
                f" target {target or '-'}"
            )
        return "\n".join(lines)

    # -- the classic protocol --------------------------------------------------------------------

    def do_cjoin(self, name: str, *topics: str, **told: str) -> str | None:
        """`cjoin C t owned=t-0`: a JoinGroup, with the id that C was given, if it has one."""
        member_id = self.generations.get(name, ("", 0))[0]
        owned = [
            ConsumerTopicPartitions(topic=self.name(topic_id), partitions=list(numbers))
            for topic_id, numbers in self.parsed(told.get("owned", "")).items()
        ]
        subscription = ConsumerProtocolSubscription(topics=list(topics), owned_partitions=owned)
        request = JoinGroupRequest(
            group_id=GROUP,
            member_id=member_id,
            group_instance_id=told.get("instance"),
            session_timeout_ms=int(told.get("session", 45_000)),
            rebalance_timeout_ms=60_000,
            protocol_type=told.get("type", "consumer"),
            protocols=[
                JoinGroupRequestProtocol(name=each, metadata=encode_subscription(subscription, 1))
                for each in told.get("protocols", "range").split(",")
            ],
        )
        caller = self.caller(name, "join", int(told.get("version", 9)))
        decision = self.coordinator.shard.join(caller, request, self.coordinator.now_ms)
        return self.classic(name, decision, caller)

    def do_csync(self, name: str, **given: str) -> str | None:
        """`csync C C=t-0 D=t-1`: a SyncGroup; the leader of a classic group says who gets what."""
        member_id, generation = self.generations[name]
        request = SyncGroupRequest(
            group_id=GROUP,
            member_id=member_id,
            generation_id=int(given.pop("generation", generation)),
            group_instance_id=given.pop("instance", None),
            protocol_type=given.pop("type", "consumer"),
            protocol_name=given.pop("protocol", "range"),
            assignments=[
                SyncGroupRequestAssignment(
                    member_id=self.generations[each][0], assignment=self.assignment(what)
                )
                for each, what in given.items()
            ],
        )
        caller = self.caller(name, "sync", 5)
        decision = self.coordinator.shard.sync(caller, request, self.coordinator.now_ms)
        return self.classic(name, decision, caller)

    def do_cbeat(self, name: str, **told: str) -> str | None:
        member_id, generation = self.generations[name]
        request = HeartbeatRequest(
            group_id=GROUP,
            member_id=member_id,
            generation_id=int(told.get("generation", generation)),
            group_instance_id=told.get("instance"),
        )
        caller = self.caller(name, "heartbeat", 4)
        decision = self.coordinator.shard.heartbeat(caller, request, self.coordinator.now_ms)
        return self.classic(name, decision, caller)

    def do_cleave(self, *names: str, **told: str) -> str | None:
        """`cleave C`, or `cleave instance=i`, as an operator does."""
        members = [
            MemberIdentity(member_id=self.generations.get(name, (name, 0))[0]) for name in names
        ]
        if "instance" in told:
            members.append(MemberIdentity(member_id="", group_instance_id=told["instance"]))
        request = LeaveGroupRequest(group_id=GROUP, members=members)
        if "version" in told:
            request.member_id = members[0].member_id
        caller = self.caller("leave", "leave", int(told.get("version", 5)))
        decision = self.coordinator.shard.leave(caller, request, self.coordinator.now_ms)
        return self.classic("leave", decision, caller)

    def caller(self, name: str, what: str, version: int) -> Caller:
        caller = self.coordinator.call(version, name)
        self.calls[caller.call] = f"{name} {what}"
        return caller

    def classic(self, _name: str, decision: Any, caller: Caller) -> str | None:
        self.coordinator.answer(self.coordinator.perform(decision))
        self.coordinator.advance(0)  # a new classic group waits for others, here for no time
        if caller.call not in self.coordinator.held:
            return f"{self.calls[caller.call]}: waits"
        return None

    def assignment(self, what: str) -> bytes:
        listed = [
            ConsumerTopicPartitions(topic=self.name(topic_id), partitions=list(numbers))
            for topic_id, numbers in self.parsed(what).items()
        ]
        return encode_assignment(ConsumerProtocolAssignment(assigned_partitions=listed), 1)

    # -- what happened ---------------------------------------------------------------------------

    def told(self, who: str, response: Any) -> str:
        code = ErrorCode(response.error_code)
        if isinstance(response, ConsumerGroupHeartbeatResponse):
            if code is not ErrorCode.NONE:
                message = response.error_message
                return f"{code.name}{': ' + message if message else ''}"
            has = assigned(response)
            given = "" if has is None else f", gets {self.shown(has) or 'nothing'}"
            return f"epoch {response.member_epoch}{given}"
        name, what = who.rsplit(" ", 1)
        if what == "join":
            if response.member_id:
                self.generations[name] = (response.member_id, response.generation_id)
            members = f", leads {len(response.members)}" if response.members else ""
            told = f"{response.member_id} in {response.generation_id}{members}"
            return f"{code.name}, {told}" if response.member_id else code.name
        if what == "sync" and code is ErrorCode.NONE:
            partitions = decode_assignment(response.assignment).assigned_partitions
            return "gets " + " ".join(
                f"{each.topic}-{index}" for each in partitions for index in each.partitions
            )
        if what == "leave" and response.members:
            codes = [ErrorCode(each.error_code).name for each in response.members]
            return f"{code.name}: {' '.join(codes)}"
        return code.name

    def records(self) -> list[str]:
        batches = self.coordinator.batches
        lines = [
            self.record(type(key).__name__.removesuffix("Key"), key, value)
            for batch in batches[self.written :]
            for key, value in batch
        ]
        self.written = len(batches)
        return lines

    def record(self, kind: str, key: Any, value: Any) -> str:
        member = getattr(key, "member_id", "")
        if value is None:
            which = member or getattr(key, "regular_expression", "")
            return f"- {SHORT[kind]} {which}".rstrip()
        if kind == "ConsumerGroupMetadata":
            return f"group: epoch {value.epoch}"
        if kind == "ConsumerGroupTargetAssignmentMetadata":
            return f"targets: for epoch {value.assignment_epoch}"
        if kind == "ConsumerGroupTargetAssignmentMember":
            target = partitions_of(value.topic_partitions)
            return f"target {member}: {self.shown(target) or 'nothing'}"
        if kind == "ConsumerGroupCurrentMemberAssignment":
            has = self.shown(partitions_of(value.assigned_partitions)) or "nothing"
            revokes = self.shown(partitions_of(value.partitions_pending_revocation))
            gives = f", gives up {revokes}" if revokes else ""
            epochs = f"{value.member_epoch} (was {value.previous_member_epoch})"
            return f"current {member}: {epochs} {STATES[value.state]}: {has}{gives}"
        if kind == "ConsumerGroupRegularExpression":
            return f"pattern {key.regular_expression}: {' '.join(value.topics) or 'nothing'}"
        if kind == "ConsumerGroupMemberMetadata":
            asked = " ".join(value.subscribed_topic_names)
            pattern = f" {value.subscribed_topic_regex}" if value.subscribed_topic_regex else ""
            classic = " (classic)" if value.classic_member_metadata is not None else ""
            return f"member {member}{classic}: {asked}{pattern}"
        members = " ".join(
            f"{each.member_id}[{self.from_bytes(each.assignment)}]" for each in value.members
        )
        return (
            f"classic group: generation {value.generation}, {value.protocol},"
            f" leader {value.leader}, {members}".rstrip()
        )

    def from_bytes(self, data: bytes) -> str:
        if not data:
            return ""
        listed = decode_assignment(data).assigned_partitions
        return " ".join(f"{each.topic}-{index}" for each in listed for index in each.partitions)

    # -- names -----------------------------------------------------------------------------------

    def parsed(self, text: str) -> dict[bytes, tuple[int, ...]]:
        found: dict[bytes, tuple[int, ...]] = {}
        for each in text.split(",") if text else ():
            name, _, index = each.rpartition("-")
            topic_id = self.coordinator.topics.by_name[name].topic_id
            found[topic_id] = (*found.get(topic_id, ()), int(index))
        return found

    def shown(self, partitions: Partitions) -> str:
        return " ".join(
            f"{self.name(topic_id)}-{index}"
            for topic_id, numbers in partitions.items()
            for index in numbers
        )

    def name(self, topic_id: bytes) -> str:
        topic = self.coordinator.topics.by_id.get(topic_id)
        return f"deleted{topic_id[-1]}" if topic is None else topic.name


SHORT = {
    "GroupMetadata": "classic group",
    "ConsumerGroupMetadata": "group",
    "ConsumerGroupPartitionMetadata": "old metadata",
    "ConsumerGroupMemberMetadata": "member",
    "ConsumerGroupTargetAssignmentMetadata": "targets",
    "ConsumerGroupTargetAssignmentMember": "target",
    "ConsumerGroupCurrentMemberAssignment": "current",
    "ConsumerGroupRegularExpression": "pattern",
}
