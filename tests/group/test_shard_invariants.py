"""Goal: whatever clients, time, coordinators and the log do, a shard keeps what it promises.

- No call is answered twice, and each is answered in the end, unless its connection went.
- A member that asks for its part of a generation always gets the same, from any coordinator.
- A generation grows, and its leader is the same as long as one coordinator leads.
- What was committed is what is fetched, until it is committed anew, deleted or expired.
- A shard that is loaded from the log knows what the one knows that wrote it.

Method: random lives. Behind each step `shard_checks` works out anew what is kept up to date.
Rules: classic-groups.md#states, classic-groups.md#rebalances, classic-groups.md#what-the-log-keeps,
committed-offsets.md#committing.

Seen to fail: without the answer to a call that another one supersedes; with parked calls that are
not told when a member leaves; with a load that forgets the generation; with a member that keeps
what it said before an older record; with a leader that is lost when it gets another id; with the
index of topics not kept; with a refused assignment that does not rebalance.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from tests.group.shard_kit import Coordinator

from holdfast.core.group.classic.classic_group import ClassicGroup
from holdfast.core.group.classic.classic_state import GroupState
from holdfast.core.group.shard import GroupShard
from holdfast.core.log_machine import Answer, Decision
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.join_group import JoinGroupResponse
from holdfast.wire.messages.sync_group import SyncGroupResponse
from holdfast.wire.records.group_tables import GroupMetadataKey
from holdfast.wire.uuids import NULL_UUID

CLIENTS = st.integers(0, 4)
GROUPS = ("g", "h")
PROTOCOLS: tuple[dict[str, bytes], ...] = (
    {"range": b""},
    {"range": b"x"},
    {"sticky": b"", "range": b""},
    {"range": b"", "rr": b""},
)
RESTED = (GroupState.STABLE, GroupState.EMPTY)
DAY_MS = 24 * 60 * 60 * 1000


class Watched(Coordinator):
    """A coordinator whose answers are held against what was answered before."""

    def __init__(self, **more: Any) -> None:
        self.assigned: dict[tuple[str, int, str], bytes] = {}
        self.leaders: dict[tuple[str, int], str] = {}
        self.asked: dict[int, tuple[str, int, str]] = {}  # SyncGroup: group, generation, member
        self.joined: dict[int, str] = {}  # JoinGroup: group
        self.refuse_next: ErrorCode | None = None
        self.behind: set[str] = set()  # groups whose last record the log did not take
        super().__init__(**more)

    def perform(self, decision: Decision) -> None:
        if decision.records:
            self.refusal, self.refuse_next = self.refuse_next, None
        keys = [key.group for key, _ in decision.records if isinstance(key, GroupMetadataKey)]
        if self.refusal is None:
            self.behind.difference_update(keys)
        else:
            self.behind.update(keys)
        for key, value in decision.records:
            if isinstance(key, GroupMetadataKey) and value is None and self.refusal is None:
                self.forget_group(key.group)
        super().perform(decision)

    def move(self) -> None:
        self.behind.clear()
        self.leaders.clear()
        super().move()

    def forget_group(self, group_id: str) -> None:
        for key in [key for key in self.assigned if key[0] == group_id]:
            del self.assigned[key]
        for generation in [key for key in self.leaders if key[0] == group_id]:
            del self.leaders[generation]

    def _give(self, answers: list[Answer]) -> None:
        super()._give(answers)
        for call, response in answers:
            if isinstance(response, SyncGroupResponse) and not response.error_code:
                key = self.asked[call]
                assert self.assigned.setdefault(key, response.assignment) == response.assignment
            elif isinstance(response, JoinGroupResponse) and not response.error_code:
                self.check_leader(self.joined[call], response)

    def check_leader(self, group_id: str, response: JoinGroupResponse) -> None:
        if response.members and not response.skip_assignment:
            assert response.leader == response.member_id, "only a leader sees the members"
            key = (group_id, response.generation_id)
            assert self.leaders.setdefault(key, response.leader) == response.leader


class Client:
    def __init__(self, index: int) -> None:
        self.name = f"c{index}"
        self.group = GROUPS[0] if index < 4 else GROUPS[1]
        self.instance = f"i{index}" if index >= 2 else None
        self.member_id = ""
        self.generation = -1
        self.calls: list[int] = []


class Life(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.coordinator = Watched(offsets_retention_ms=DAY_MS, members_max=4)
        self.clients = [Client(index) for index in range(5)]
        self.offsets: dict[tuple[str, tuple[str, int]], int] = {}
        self.generations: dict[str, int] = {}
        self.forgotten: set[int] = set()
        self.rounds = 0

    def learn(self, client: Client) -> None:
        """Take over what a client was told."""
        for call in client.calls:
            response = self.coordinator.answers.get(call)
            if not isinstance(response, JoinGroupResponse):
                continue
            if response.error_code in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
                client.member_id, client.generation = response.member_id, response.generation_id
            elif response.error_code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
                client.member_id, client.generation = "", -1
        client.calls = [each for each in client.calls if each not in self.coordinator.answers]

    # -- members -----------------------------------------------------------------------------------

    @rule(
        index=CLIENTS,
        protocols=st.sampled_from(PROTOCOLS),
        version=st.sampled_from([2, 5, 9]),
        rebalance_ms=st.sampled_from([0, 5000, 60_000]),
    )
    def join(
        self, index: int, protocols: dict[str, bytes], version: int, rebalance_ms: int
    ) -> None:
        client, coordinator = self.clients[index], self.coordinator
        self.learn(client)
        coordinator.joined[coordinator.calls + 1] = client.group
        call = coordinator.join(
            client.group,
            client.member_id,
            client=client.name,
            version=version,
            instance=client.instance if version >= 5 else None,
            protocols=protocols,
            rebalance_ms=rebalance_ms,
        )
        client.calls.append(call)
        self.learn(client)

    def of_group(self, group: str) -> list[int]:
        return [index for index, client in enumerate(self.clients) if client.group == group]

    @rule(group=st.sampled_from(GROUPS), protocols=st.sampled_from(PROTOCOLS))
    def gather(self, group: str, protocols: dict[str, bytes]) -> None:
        """All clients of a group join, as they do: with the id that the first answer gave."""
        for _ in range(3):
            for index in self.of_group(group):
                if not self.clients[index].calls:
                    self.join(index, protocols, 9, 60_000)
        for index in self.of_group(group):
            self.learn(self.clients[index])

    @rule(group=st.sampled_from(GROUPS), absent=CLIENTS)
    def sync_all(self, group: str, absent: int) -> None:
        for index in self.of_group(group):
            if index != absent and self.clients[index].generation >= 0:
                self.sync(index, others=True)

    @rule(group=st.sampled_from(GROUPS), protocols=st.sampled_from(PROTOCOLS))
    def rebalance(self, group: str, protocols: dict[str, bytes]) -> None:
        self.gather(group, protocols)
        self.sync_all(group, absent=-1)

    @rule(milliseconds=st.sampled_from([6000, 12_000, 30_000]))
    def live(self, milliseconds: int) -> None:
        """Let time pass in which all members show signs of life."""
        for _ in range(0, milliseconds, 3000):
            self.coordinator.pass_time(3000)
            for index in range(len(self.clients)):
                self.beat(index)

    @rule(index=CLIENTS, others=st.booleans())
    def sync(self, index: int, others: bool) -> None:
        client, coordinator = self.clients[index], self.coordinator
        self.learn(client)
        key = (client.group, client.generation, client.member_id)
        coordinator.asked[coordinator.calls + 1] = key
        self.rounds += 1
        assignments = {
            each.member_id: f"{self.rounds}-{each.name}".encode()
            for each in self.clients
            if each.group == client.group and (others or each is client)
        }
        client.calls.append(coordinator.sync(*key[:1], key[2], key[1], assignments))

    @rule(index=CLIENTS)
    def beat(self, index: int) -> None:
        client = self.clients[index]
        self.learn(client)
        if not client.member_id:
            return
        code = self.coordinator.beat(client.group, client.member_id, client.generation)
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
            client.member_id, client.generation = "", -1

    @rule(index=CLIENTS)
    def leave(self, index: int) -> None:
        client = self.clients[index]
        self.learn(client)
        self.coordinator.leave(client.group, (client.member_id, client.instance))

    @rule(index=CLIENTS)
    def ask_twice(self, index: int) -> None:
        """Ask again, as after a time-out, although the first answer may still come."""
        for _ in range(2):
            self.join(index, PROTOCOLS[0], 9, 60_000)
        for _ in range(2):
            self.sync(index, others=True)

    @rule(index=st.integers(2, 4), protocols=st.sampled_from(PROTOCOLS))
    def come_back(self, index: int, protocols: dict[str, bytes]) -> None:
        """A client with an instance is started anew, and joins."""
        self.start_anew(index, goes=True)
        self.join(index, protocols, 9, 60_000)

    @rule(index=CLIENTS, goes=st.booleans())
    def start_anew(self, index: int, goes: bool) -> None:
        """Forget what a client knew; the coordinator may learn that its connection went, or not."""
        client = self.clients[index]
        self.learn(client)
        for call in client.calls if goes else []:
            self.coordinator.shard.forget(call)
            self.forgotten.add(call)
        client.member_id, client.generation, client.calls = "", -1, []

    @rule(milliseconds=st.sampled_from([1, 1000, 5000, 10_000, 60_000]))
    def pass_time(self, milliseconds: int) -> None:
        self.coordinator.pass_time(milliseconds)

    # -- offsets -----------------------------------------------------------------------------------

    @rule(index=CLIENTS, topic=st.sampled_from("tu"), offset=st.integers(0, 9))
    def commit(self, index: int, topic: str, offset: int) -> None:
        client = self.clients[index]
        self.learn(client)
        results = self.coordinator.commit(
            client.group,
            {(topic, index): offset},
            member_id=client.member_id,
            generation=client.generation,
        )
        if results[(topic, index)] is ErrorCode.NONE:
            self.offsets[(client.group, (topic, index))] = offset

    @rule(group=st.sampled_from(GROUPS), index=CLIENTS, what=st.integers(0, 8))
    def delete(self, group: str, index: int, what: int) -> None:
        """Delete an offset of u, or, less often, a whole group or a topic."""
        if what == 0:
            if self.coordinator.delete_group(group) is ErrorCode.NONE:
                self.offsets = {key: each for key, each in self.offsets.items() if key[0] != group}
                self.generations.pop(group, None)
        elif what == 1 and self.coordinator.refuse_next is None:
            self.coordinator.shard.topics_deleted([("t", NULL_UUID)], self.coordinator.now_ms)
            self.coordinator.run_due()
            self.offsets = {key: each for key, each in self.offsets.items() if key[1][0] != "t"}
        else:
            response = self.coordinator.delete_offsets(group, ("u", index))
            if not response.error_code and not response.topics[0].partitions[0].error_code:
                self.offsets.pop((group, ("u", index)), None)

    # -- the world ---------------------------------------------------------------------------------

    @rule(code=st.sampled_from([ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.MESSAGE_TOO_LARGE]))
    def the_log_will_refuse(self, code: ErrorCode) -> None:
        """What is to be appended next is not taken."""
        self.coordinator.refuse_next = code

    @rule()
    def move(self) -> None:
        self.coordinator.move()
        self.generations.clear()

    # -- what holds --------------------------------------------------------------------------------

    @invariant()
    def generations_grow(self) -> None:
        for group in GROUPS:
            found = self.coordinator.shard._groups.get(group)
            if isinstance(found, ClassicGroup):
                generation = found.state.generation
                assert generation >= self.generations.get(group, 0)
                self.generations[group] = generation
            else:
                self.generations.pop(group, None)

    @invariant()
    def offsets_are_kept(self) -> None:
        for group in GROUPS:
            wanted = {key: each for (of, key), each in self.offsets.items() if of == group}
            assert self.coordinator.offsets(group) == wanted

    @invariant()
    def the_log_knows(self) -> None:
        coordinator = self.coordinator
        loaded = coordinator.load()
        for group in GROUPS:
            was, now = of(coordinator.shard, group), of(loaded, group)
            assert loaded._offsets._by_group.get(group) == coordinator.shard._offsets._by_group.get(
                group
            )
            if was is None or now is None:
                assert was is now
            elif group not in coordinator.behind:
                assert now.generation <= was.generation
                if was.state in RESTED:
                    assert summary(now) == summary(was), (summary(now), summary(was))

    def teardown(self) -> None:
        """In the end all is quiet: everybody was answered, and all groups are forgotten."""
        coordinator = self.coordinator
        coordinator.pass_time(60 * 60 * 1000)
        unanswered = set(range(1, coordinator.calls + 1)) - coordinator.answers.keys()
        assert unanswered <= self.forgotten, "somebody waits for ever"
        assert {each.group_state for each in coordinator.list_groups()} <= {"Empty"}
        coordinator.pass_time(2 * DAY_MS)
        assert coordinator.list_groups() == []
        assert coordinator.shard._offsets.count == 0


def of(shard: GroupShard, group_id: str) -> Any:
    found = shard._groups.get(group_id)
    return found.state if isinstance(found, ClassicGroup) else None


def summary(group: Any) -> tuple[object, ...]:
    """What the log has to know of a group that rests."""
    members = [
        (
            each.member_id,
            each.instance_id,
            each.client_id,
            each.client_host,
            each.session_timeout_ms,
            each.rebalance_timeout_ms,
            each.protocols[group.protocol],
            each.assignment,
        )
        for each in group.roster.members.values()
    ]
    return (
        group.state,
        group.generation,
        group.protocol_type,
        group.protocol,
        group.roster.leader_id,
        members,
        group.subscribed,
    )


Life.TestCase.settings = settings(
    derandomize=True,
    max_examples=100,
    stateful_step_count=40,
    deadline=None,
    phases=[Phase.generate],  # shrinking takes minutes; a failure prints its steps anyway
    suppress_health_check=list(HealthCheck),
)
TestLife = pytest.mark.slow(Life.TestCase)
