"""A small language for stories of a shard, and how their outcome is written down.

A transcript is a text of blocks: commands, a line of dashes, what happened, an empty line. Lines
that begin with # tell the reader what is going on. The commands are the methods of `Story`.

Clients have one letter or more. A client knows the id and the generation that it was told last, and
what it says comes from these. What happened is what was appended (`log`), who was answered what,
and how the states of groups changed.
"""

from __future__ import annotations

from typing import Any

from tests.group.shard_kit import Coordinator, subscription
from tests.transcripts import retold

from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.join_group import JoinGroupResponse
from holdfast.wire.messages.sync_group import SyncGroupResponse
from holdfast.wire.records.group_records import decode_key, decode_value
from holdfast.wire.records.group_tables import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from holdfast.wire.uuids import NULL_UUID


def run(text: str) -> str:
    """Run a transcript; return it with what really happened."""
    return retold(text, Story().command)


class Client:
    """What a client remembers."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.group = ""
        self.member_id = ""
        self.generation = -1
        self.instance: str | None = None


class Story:
    def __init__(self) -> None:
        self.coordinator = Coordinator()
        self.clients: dict[str, Client] = {}
        self.waiting: dict[int, Client] = {}  # whose call was not answered yet
        self.logged = 0
        self.states: dict[str, str] = {}

    def command(self, words: list[str]) -> list[str]:
        name, *rest = words
        method = getattr(self, "do_" + name.replace("-", "_"))
        positional = [word for word in rest if "=" not in word or name in ("commit", "sync")]
        named = dict(word.split("=", 1) for word in rest if word not in positional)
        self.before: list[str] = []
        said: str | None = method(*positional, **named)
        return self.before + ([said] if said else []) + self._happened()

    def client(self, name: str) -> Client:
        return self.clients.setdefault(name, Client(name))

    # -- what happened -----------------------------------------------------------------------------

    def _happened(self) -> list[str]:
        lines = [self._record(*each) for each in self.coordinator.log[self.logged :]]
        self.logged = len(self.coordinator.log)
        for call, client in list(self.waiting.items()):
            response = self.coordinator.answers.get(call)
            if response is not None:
                del self.waiting[call]
                lines.append(f"{client.name} {self._answer(client, response)}")
        listed = self.coordinator.list_groups()
        states = {each.group_id: each.group_state for each in listed}
        for group in {**self.states, **states}:
            was, now = self.states.get(group, "Dead"), states.get(group, "Dead")
            if was != now:
                lines.append(f"{group}: {was} -> {now}")
        self.states = states
        return lines

    def _answer(self, client: Client, response: Any) -> str:
        code = ErrorCode(response.error_code).name
        if isinstance(response, SyncGroupResponse):
            return f"sync: {code} {bytes(response.assignment).decode()}".rstrip()
        assert isinstance(response, JoinGroupResponse)
        if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            client.member_id = response.member_id
            return f"join: {code} {response.member_id}"
        if response.error_code:
            named = f" {response.member_id}" if response.member_id else ""
            return f"join: {code}{named}"
        client.member_id, client.generation = response.member_id, response.generation_id
        said = f"join: generation {response.generation_id} {response.protocol_name}"
        said += f", is {response.member_id}, leader {response.leader}"
        if response.members:
            said += ", members " + " ".join(each.member_id for each in response.members)
        return said + (", skip assignment" if response.skip_assignment else "")

    def _record(self, key_bytes: bytes, value_bytes: bytes | None) -> str:
        key = decode_key(key_bytes)
        value = None if value_bytes is None else decode_value(key, value_bytes)
        if isinstance(key, OffsetCommitKey):
            what = f"log: {key.group} {key.topic}-{key.partition}"
            if value is None:
                return f"{what} gone"
            assert isinstance(value, OffsetCommitValue)
            return f"{what} at {value.offset}"
        assert isinstance(key, GroupMetadataKey)
        if value is None:
            return f"log: {key.group} gone"
        assert isinstance(value, GroupMetadataValue)
        said = f"log: {key.group} generation {value.generation}"
        if not value.members:
            return f"{said}, no members"
        members = " ".join(f"{each.member_id}={_text(each.assignment)}" for each in value.members)
        return f"{said} {value.protocol}, leader {value.leader}: {members}"

    # -- members -----------------------------------------------------------------------------------

    def do_set(self, **settings: str) -> None:
        """First of all: settings of the shard."""
        self.coordinator = Coordinator(**{name: int(value) for name, value in settings.items()})

    def do_join(
        self,
        name: str,
        group: str = "",
        *,
        instance: str = "",
        protocols: str = "range",
        type: str = "consumer",  # noqa: A002 - a word of the language
        session: str = "10000",
        rebalance: str = "60000",
        version: str = "9",
        topics: str = "t",
    ) -> None:
        """`join a g`: a joins g, with the id that it has, if it has one."""
        client = self.client(name)
        client.group = group or client.group
        client.instance = instance or client.instance
        call = self.coordinator.join(
            client.group,
            client.member_id,
            client=name,
            version=int(version),
            instance=client.instance,
            protocols=dict.fromkeys(protocols.split(","), subscription(*topics.split(","))),
            protocol_type=type,
            session_ms=int(session),
            rebalance_ms=int(rebalance),
        )
        self.waiting[call] = client

    def do_come(self, name: str, group: str, **named: str) -> None:
        """Join in two steps."""
        client = self.client(name)
        self.do_join(name, group, **named)
        self.before = self._happened()
        assert client.member_id, "it was given no id"
        self.do_join(name, group, **named)

    def do_sync(self, name: str, *assignments: str) -> None:
        """`sync a a=1 b=2`: a leads, and assigns 1 to itself and 2 to b."""
        client = self.client(name)
        assigned: dict[str, bytes] = {}
        for each in assignments:
            to, _, what = each.partition("=")
            member_id = self.client(to).member_id if to in self.clients else to
            assigned[member_id] = what.encode()
        call = self.coordinator.sync(
            client.group, client.member_id, client.generation, assigned, instance=client.instance
        )
        self.waiting[call] = client

    def do_beat(self, name: str) -> str:
        client = self.client(name)
        code = self.coordinator.beat(
            client.group, client.member_id, client.generation, client.instance
        )
        return f"{name} beat: {code.name}"

    def do_leave(self, name: str) -> str:
        client = self.client(name)
        return self._left(client.group, (client.member_id, client.instance))

    def do_remove(self, group: str, instance: str) -> str:
        """Remove a static member by its instance's id, as an operator does."""
        return self._left(group, ("", instance))

    def _left(self, group: str, member: tuple[str, str | None]) -> str:
        response = self.coordinator.leave(group, member)
        code = response.error_code or response.members[0].error_code
        return f"leave: {ErrorCode(code).name}"

    def do_reborn(self, name: str) -> None:
        """Forget what the client knows but its instance: it was started anew."""
        client = self.client(name)
        client.member_id, client.generation = "", -1

    def do_gone(self, name: str) -> None:
        """Let the connection go on which the client waits."""
        for call, client in list(self.waiting.items()):
            if client.name == name:
                self.coordinator.shard.forget(call)
                del self.waiting[call]

    # -- groups and offsets ------------------------------------------------------------------------

    def do_commit(self, name: str, *offsets: str) -> str:
        """`commit a t-0=5`; `commit @g t-0=5` is nobody's commit to group g."""
        parsed = {_partition(each.split("=")[0]): int(each.split("=")[1]) for each in offsets}
        if name.startswith("@"):
            results = self.coordinator.commit(name[1:], parsed)
        else:
            client = self.client(name)
            results = self.coordinator.commit(
                client.group,
                parsed,
                member_id=client.member_id,
                generation=client.generation,
                instance=client.instance,
            )
        codes = [f"{topic}-{index} {code.name}" for (topic, index), code in results.items()]
        return "commit: " + ", ".join(codes)

    def do_fetch(self, group: str) -> str:
        offsets = self.coordinator.offsets(group)
        found = [f"{topic}-{index} {offset}" for (topic, index), offset in offsets.items()]
        return f"fetch {group}: " + (", ".join(found) or "nothing")

    def do_delete_offset(self, group: str, partition: str) -> str:
        response = self.coordinator.delete_offsets(group, _partition(partition))
        code = response.error_code or response.topics[0].partitions[0].error_code
        return f"delete offset: {ErrorCode(code).name}"

    def do_delete(self, group: str) -> str:
        return f"delete: {self.coordinator.delete_group(group).name}"

    def do_describe(self, group: str) -> str:
        described = self.coordinator.describe(group)
        if described.error_code:
            return f"describe: {ErrorCode(described.error_code).name}"
        said = f"describe: {described.group_state} '{described.protocol_data}'"
        members = [
            f"{each.member_id}={_text(each.member_assignment)}" for each in described.members
        ]
        return " ".join([said, *members])

    def do_delete_topic(self, topic: str) -> None:
        self.coordinator.shard.topics_deleted([(topic, NULL_UUID)], self.coordinator.now_ms)
        self.coordinator.run_due()

    # -- the world ---------------------------------------------------------------------------------

    def do_pass(self, milliseconds: str) -> None:
        self.coordinator.pass_time(int(milliseconds))

    def do_refuse(self, code: str) -> None:
        """From now on the log says this to every append; NONE: it takes them again."""
        refusal = ErrorCode[code]
        self.coordinator.refusal = None if refusal is ErrorCode.NONE else refusal

    def do_move(self) -> None:
        """Have another coordinator lead, which knows what is in the log."""
        self.coordinator.move()


def _partition(text: str) -> tuple[str, int]:
    topic, _, index = text.rpartition("-")
    return topic, int(index)


def _text(data: bytes) -> str:
    return bytes(data).decode() or "-"
