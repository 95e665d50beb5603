"""The coordinator of a broker: which shards it leads, and what all of them are told.

Goal: a group finds its coordinator wherever it went, and finds it as it was; what happens while a
shard is loaded is made good; a shard that can't go on is begun anew; nothing stays of a client that
has gone. Method: whole clusters in virtual time, killed, stopped, and with clocks that are set.
Rules: group-records.md#where-a-group-lives, committed-offsets.md#deleted-topics.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from tests.coordinator.coordinator_world import (
    GroupClient,
    coordinator_of,
    led,
    play_groups,
)
from tests.group.shard_kit import Offsets

from holdfast.config.topic import TopicSettings
from holdfast.core.group.consumer_shard import ConsumerShard
from holdfast.core.log_machine import Answer
from holdfast.core.metadata.image import ImageDelta
from holdfast.node.coordinator import coordinator
from holdfast.node.coordinator.calls import Calls
from holdfast.node.coordinator.coordinator import LOAD_AGAIN_S, GroupCoordinator
from holdfast.node.coordinator.led_shard import LedShard
from holdfast.node.coordinator.offsets_topic import GROUP_OFFSETS
from holdfast.node.coordinator.shard_loading import Load, LoadError
from holdfast.node.coordinator.shard_time import APART_MS_MAX
from holdfast.node.door.request_context import NOT_REQUESTED
from holdfast.runtime.sliced_work import REST
from holdfast.testing.simulated_cluster import SimulatedCluster
from holdfast.wire.administration import delete_topic
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from holdfast.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from holdfast.wire.messages.describe_groups import DescribeGroupsRequest
from holdfast.wire.messages.list_groups import ListGroupsRequest
from holdfast.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
)
from holdfast.wire.structs import ResourceType

E = ErrorCode
OFFSETS = {("t", 0): 10, ("t", 3): 13}


@contextmanager
def held_loads(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have no load that is done in here be over before the end of it."""
    loaded = GroupCoordinator._loaded
    done: list[tuple[Any, ...]] = []
    with monkeypatch.context() as patch:
        patch.setattr(GroupCoordinator, "_loaded", lambda *each: done.append(each))
        yield
    for each in done:
        loaded(*each)


# -- groups that move ----------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["killed", "stopped"])
def test_a_group_is_found_at_another_broker_as_it_was(ending: str) -> None:
    async def story(cluster: SimulatedCluster, groups: GroupClient) -> None:
        await groups.commit("g", OFFSETS)
        member, generation = await groups.join("h", session_ms=30_000)
        before = {group: await groups.coordinator(group) for group in "gh"}
        if ending == "killed":
            cluster.crash(before["g"])
        else:
            await cluster.stop(before["g"])
        assert await groups.offsets("g") == OFFSETS
        assert await groups.coordinator("g") != before["g"]
        code = E.NOT_COORDINATOR
        while code in (E.NOT_COORDINATOR, E.COORDINATOR_LOAD_IN_PROGRESS):
            code = await groups.beat("h", member, generation)
        assert code is E.NONE, "its session began anew"

    play_groups(story)


def test_a_group_comes_back_with_its_broker_and_is_told_by_one_alone() -> None:
    async def story(cluster: SimulatedCluster, groups: GroupClient) -> None:
        await groups.commit("g", OFFSETS)
        for _ in range(2):
            node = await groups.coordinator("g")
            await cluster.stop(node)
            assert await groups.offsets("g") == OFFSETS
            cluster.start_node(node)
            await cluster.until_ready(node)
        await groups.client.refresh("t")
        node = await groups.coordinator("g")
        told = {each: await groups.listed(each) for each in cluster.brokers}
        assert told == {each: ["g"] if each == node else [] for each in cluster.brokers}

    play_groups(story)


def test_all_brokers_killed_keep_what_was_committed() -> None:
    async def story(cluster: SimulatedCluster, groups: GroupClient) -> None:
        await groups.commit("g", OFFSETS)
        for node in cluster.brokers:
            cluster.crash(node)
        for node in cluster.brokers:
            cluster.start_node(node)
        await cluster.until_ready(*cluster.brokers)
        assert await groups.offsets("g") == OFFSETS

    play_groups(story)


def test_who_asks_is_told_what_may_be_done_to_a_group() -> None:
    """Read, delete, describe, and describe and alter its settings; of none that is refused."""
    may_all = 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11

    async def story(cluster: SimulatedCluster, groups: GroupClient) -> None:
        del cluster
        await groups.join("g")
        asked = DescribeGroupsRequest(groups=["g"], include_authorized_operations=True)
        (found,) = (await groups.ask("g", asked, version=6)).groups
        assert (found.error_code, found.authorized_operations) == (E.NONE, may_all)
        beat = ConsumerGroupHeartbeatRequest(
            group_id="h",
            member_id="m",
            member_epoch=0,
            rebalance_timeout_ms=60_000,
            subscribed_topic_names=["t"],
            topic_partitions=[],
        )
        assert (await groups.ask("h", beat, version=1)).error_code == E.NONE
        modern = ConsumerGroupDescribeRequest(
            group_ids=["h", "none"], include_authorized_operations=True
        )
        there, absent = (await groups.ask("h", modern, version=1)).groups
        assert (there.error_code, there.authorized_operations) == (E.NONE, may_all)
        assert absent.error_code != E.NONE
        assert absent.authorized_operations == NOT_REQUESTED

    play_groups(story)


# -- while a shard is loaded ---------------------------------------------------------------------


def test_who_asks_while_a_shard_is_loaded_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(cluster: SimulatedCluster, groups: GroupClient) -> None:
        await groups.commit("g", OFFSETS)
        node = await groups.coordinator("g")
        with held_loads(monkeypatch):
            coordinator_of(cluster, node)._load_again(led(cluster, node, "g").partition)
            assert led(cluster, node, "g").refusal() is E.COORDINATOR_LOAD_IN_PROGRESS
            assert await groups.beat("g", "m", 1) is E.NONE, "a member would look for another"
            response = await groups.ask("g", groups.joining("g"), version=9)
            assert response.error_code == E.COORDINATOR_LOAD_IN_PROGRESS
            listed = await groups.client.ask(ListGroupsRequest(), node=node, version=4)
            assert listed.error_code == E.COORDINATOR_LOAD_IN_PROGRESS
        assert await groups.offsets("g") == OFFSETS

    play_groups(story)


def test_offsets_of_a_topic_that_is_deleted_while_a_shard_is_loaded_go_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story(cluster: SimulatedCluster, groups: GroupClient) -> None:
        await groups.client.create_topic("u", replication_factor=1)
        await groups.commit("g", {**OFFSETS, ("u", 0): 7})
        node = await groups.coordinator("g")
        with held_loads(monkeypatch):
            coordinator_of(cluster, node)._load_again(led(cluster, node, "g").partition)
            await groups.client.perform(delete_topic("u"), "delete u")
            image = cluster.nodes[node].broker.image  # type: ignore[union-attr]
            await cluster.until(lambda: "u" not in image.topics, "u is deleted")
        await _until_offsets(groups, "g", OFFSETS)

    play_groups(story)


@pytest.mark.parametrize("why", ["a load that failed", "a clock that was set", "a mistake"])
def test_offsets_of_a_deleted_topic_go_whatever_has_a_shard_begun_anew(
    why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The topic is told of once: before the load that counts, and while nothing can be written."""

    async def story(cluster: SimulatedCluster, groups: GroupClient) -> None:
        await groups.client.create_topic("u", replication_factor=1)
        await groups.commit("g", {**OFFSETS, ("u", 0): 7})
        node = await groups.coordinator("g")
        first = led(cluster, node, "g")
        image = cluster.nodes[node].broker.image  # type: ignore[union-attr]
        with held_loads(monkeypatch), monkeypatch.context() as patch:
            patch.setattr(LedShard, "_append_batch", lambda *_: E.NOT_ENOUGH_REPLICAS)
            if why == "a load that failed":
                coordinator_of(cluster, node)._load_again(first.partition)
            elif why == "a mistake":
                coordinator_of(cluster, node)._broken(first)
            await groups.client.perform(delete_topic("u"), "delete u")
            await cluster.until(lambda: "u" not in image.topics, "u is deleted")
            if why == "a clock that was set":
                coordinator_of(cluster, node)._clock_was_set(first)
            else:
                coordinator_of(cluster, node)._load_again(first.partition)
        assert led(cluster, node, "g") is not first
        await _until_offsets(groups, "g", OFFSETS)

    play_groups(story)


def test_offsets_of_a_deleted_topic_go_in_all_groups() -> None:
    async def story(cluster: SimulatedCluster, groups: GroupClient) -> None:
        names = [f"g{number}" for number in range(8)]
        for group in names:
            await groups.commit(group, OFFSETS)
        await groups.client.perform(delete_topic("t"), "delete t")
        for group in names:
            await _until_offsets(groups, group, {})
        assert len(cluster.brokers) == 3

    play_groups(story)


async def _until_offsets(groups: GroupClient, group: str, expected: Offsets) -> None:
    found: Offsets = {}
    for _ in range(100):
        found = await groups.offsets(group)
        if found == expected:
            return
        await asyncio.sleep(0.1)
    raise AssertionError(found)


def test_a_load_that_is_not_wanted_any_more_serves_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its broker led again in the meantime, in another epoch: another load is on its way."""

    async def story(cluster: SimulatedCluster, groups: GroupClient) -> None:
        await groups.commit("g", OFFSETS)
        node = await groups.coordinator("g")
        partition = led(cluster, node, "g").partition
        first = led(cluster, node, "g")
        with held_loads(monkeypatch):
            coordinator_of(cluster, node)._load_again(partition)
            second = led(cluster, node, "g")
            coordinator_of(cluster, node)._load_again(partition)
            third = led(cluster, node, "g")
        assert await groups.offsets("g") == OFFSETS
        assert [each.is_loaded for each in (first, second, third)] == [True, False, True]
        assert [each.is_current for each in (first, second, third)] == [False, False, True]

    play_groups(story)


def test_a_shard_that_is_over_is_freed_a_little_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: who lost a shard of a million offsets serves others while these are freed.

    Method: an offset a slice. Seen to fail: all of it was freed with the last reference, in 60 ms.
    """
    monkeypatch.setattr(coordinator, "FREED_A_SLICE", 1)
    emptied = coordinator._emptied
    rests: list[object] = []

    def noted(shard: ConsumerShard) -> Iterator[object]:
        for wanted in emptied(shard):
            rests.append(wanted)
            yield wanted

    monkeypatch.setattr(coordinator, "_emptied", noted)

    async def story(cluster: SimulatedCluster, groups: GroupClient) -> None:
        await groups.commit("g", OFFSETS)
        node = await groups.coordinator("g")
        over = led(cluster, node, "g")
        coordinator_of(cluster, node)._load_again(over.partition)
        assert not rests, "nothing of it at once"
        assert over.shard._offsets.has_any("g")
        await cluster.until(lambda: not len(over.shard._groups), "all of it is freed")
        assert rests == [REST] * (len(OFFSETS) + 1)
        assert not over.shard._offsets.has_any("g")
        assert await groups.offsets("g") == OFFSETS

    play_groups(story)


@pytest.mark.parametrize("how", [LoadError("no such bytes"), AssertionError("ours")])
def test_a_load_that_fails_is_tried_again(
    how: Exception, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    replay_all = Load._replay_all
    failures = [how, how]

    def failing(self: Load, effort: Any) -> Any:
        yield REST
        if failures and self._end:
            raise failures.pop()
        yield from replay_all(self, effort)

    async def story(cluster: SimulatedCluster, groups: GroupClient) -> None:
        await groups.commit("g", OFFSETS)
        node = await groups.coordinator("g")
        monkeypatch.setattr(Load, "_replay_all", failing)
        coordinator_of(cluster, node)._load_again(led(cluster, node, "g").partition)
        began = asyncio.get_running_loop().time()
        if isinstance(how, AssertionError):
            await _unhandled(cluster)
        assert await groups.offsets("g") == OFFSETS
        assert asyncio.get_running_loop().time() - began >= 2 * LOAD_AGAIN_S

    with caplog.at_level(logging.ERROR, "holdfast.groups"):
        play_groups(story)
    told = [each.getMessage() for each in caplog.records if "can't be loaded" in each.getMessage()]
    assert len(told) == 2


async def _unhandled(_cluster: SimulatedCluster) -> None:
    """What a loop would only log is told to the run; here it is meant."""
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _loop, _context: None)


# -- shards that are begun anew ------------------------------------------------------------------


def test_a_clock_that_was_set_costs_a_load_and_no_member(caplog: pytest.LogCaptureFixture) -> None:
    async def story(cluster: SimulatedCluster, groups: GroupClient) -> None:
        await groups.commit("g", OFFSETS)
        member, generation = await groups.join("h", session_ms=30_000)
        node = await groups.coordinator("h")
        for by_ms in (3 * APART_MS_MAX, -5 * APART_MS_MAX):
            cluster.machine(node).clock.step(by_ms)
            code = E.NOT_COORDINATOR
            while code in (E.NOT_COORDINATOR, E.COORDINATOR_LOAD_IN_PROGRESS):
                code = await groups.beat("h", member, generation)
            assert code is E.NONE
        assert await groups.coordinator("h") == node
        assert await groups.offsets("g") == OFFSETS

    with caplog.at_level(logging.WARNING, "holdfast.groups"):
        play_groups(story)
    assert any("the clock was set" in each.getMessage() for each in caplog.records)


def test_a_shard_that_is_half_decided_is_loaded_a_while_later(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story(cluster: SimulatedCluster, groups: GroupClient) -> None:
        await groups.commit("g", OFFSETS)
        node = await groups.coordinator("g")
        broken = led(cluster, node, "g")

        def mistake(_shard: Any, _now_ms: int) -> Any:
            raise AssertionError("ours")

        with pytest.raises(AssertionError, match="ours"):
            broken.change(mistake)
        assert broken.refusal() is E.NOT_COORDINATOR
        assert await groups.offsets("g") == OFFSETS
        assert led(cluster, node, "g") is not broken

    with caplog.at_level(logging.ERROR, "holdfast.groups"):
        play_groups(story)


# -- what all shards are told --------------------------------------------------------------------


def test_settings_of_a_group_reach_it_whenever_they_come() -> None:
    async def story(cluster: SimulatedCluster, groups: GroupClient) -> None:
        await groups.commit("g", OFFSETS)
        node = await groups.coordinator("g")
        broker = cluster.nodes[node].broker
        assert broker is not None
        key = (ResourceType.GROUP, "g")

        def configure(value: str | None) -> None:
            broker.image.configs.pop(key, None)
            if value is not None:
                broker.image.configs[key] = {"consumer.session.timeout.ms": value}
            broker.groups.metadata_changed(ImageDelta(configs_changed={key: None}))

        def session_ms() -> int:
            around = led(cluster, node, "g").shard.around
            return around.of_group("g").session_timeout_ms

        usual = session_ms()
        configure("50000")
        assert session_ms() == 50_000
        coordinator_of(cluster, node)._load_again(led(cluster, node, "g").partition)
        assert await groups.offsets("g") == OFFSETS
        assert session_ms() == 50_000, "also of a shard that begins later"
        configure(None)
        assert session_ms() == usual

    play_groups(story)


# -- answers that are held ------------------------------------------------------------------------


def test_who_asks_by_an_id_is_answered_with_it_whatever_has_become_of_the_topic(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its answer was held; another topic has the name when it leaves."""
    held: list[tuple[Calls, list[Answer]]] = []

    async def story(cluster: SimulatedCluster, groups: GroupClient) -> None:
        await groups.client.create_topic("u", replication_factor=1)
        await groups.commit("g", {("u", 0): 7})
        node = await groups.coordinator("g")
        image = cluster.nodes[node].broker.image  # type: ignore[union-attr]
        topic_id = image.topics["u"].topic_id
        topic = OffsetFetchRequestTopic(topic_id=topic_id, partition_indexes=[0])
        group = OffsetFetchRequestGroup(group_id="g", topics=[topic])
        request = OffsetFetchRequest(groups=[group])
        with monkeypatch.context() as patch:
            patch.setattr(Calls, "send", lambda calls, answers: held.append((calls, answers)))
            asked = asyncio.ensure_future(groups.client.ask(request, node=node, version=10))
            await cluster.until(lambda: bool(held), "it is held")
        await groups.client.perform(delete_topic("u"), "delete u")
        await groups.client.create_topic("u", replication_factor=1)
        await cluster.until(lambda: image.topics["u"].topic_id != topic_id, "another u is there")
        for calls, answers in held:
            calls.send(answers)
        (told,) = (await asked).groups[0].topics
        assert (told.topic_id, told.partitions[0].committed_offset) == (topic_id, 7)

    play_groups(story)


# -- clients that go -----------------------------------------------------------------------------


def test_nothing_stays_of_a_client_that_has_gone() -> None:
    async def story(cluster: SimulatedCluster, groups: GroupClient) -> None:
        node = await groups.coordinator("g")
        await groups.commit("g", OFFSETS)
        calls = coordinator_of(cluster, node).calls
        others = [GroupClient(cluster.client(f"c{number}")) for number in range(5)]
        tasks = []
        for other in others:
            first = await other.ask("h-g", other.joining("h-g"), version=9)
            where = await other.coordinator("h-g")
            asked = other.joining("h-g", first.member_id)
            tasks.append(asyncio.ensure_future(other.client.ask(asked, node=where, version=9)))
        where = await groups.coordinator("h-g")
        calls = coordinator_of(cluster, where).calls
        await cluster.until(lambda: len(calls) == len(others), "all of them wait")
        for other in others:
            for connection in other.client._connections.values():
                connection.close()
        await cluster.until(lambda: not len(calls), "nobody waits", seconds=2)
        await asyncio.gather(*tasks, return_exceptions=True)

    play_groups(story, group_initial_rebalance_delay_ms="30000")


# -- the topic goes ------------------------------------------------------------------------------


def test_groups_begin_anew_where_their_topic_was_deleted() -> None:
    async def story(cluster: SimulatedCluster, groups: GroupClient) -> None:
        await groups.commit("g", OFFSETS)
        node = await groups.coordinator("g")
        old = led(cluster, node, "g")
        await groups.client.perform(delete_topic(GROUP_OFFSETS), "delete")
        await cluster.until(lambda: not old.is_current, "the shard is over")
        assert await groups.offsets("g") == {}
        await groups.commit("g", {("t", 1): 1})
        assert await groups.offsets("g") == {("t", 1): 1}
        for each in cluster.brokers:
            found = coordinator_of(cluster, each)
            assert all(shard.is_current for shard in found._shards.values())
            assert not found._retries

    play_groups(story)


def test_patterns_that_match_too_much_are_named_and_cost_one_look(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Goal: the group gets nothing, its operator is told why, and nobody looks again and again."""

    async def story(cluster: SimulatedCluster, groups: GroupClient) -> None:
        await groups.commit("g", OFFSETS)
        shard = led(cluster, await groups.coordinator("g"), "g")
        shard.partition.settings = TopicSettings(max_message_bytes=600)
        for number in range(3):  # of 201 bytes each
            await groups.client.create_topic(
                "t" * 200 + str(number), partitions=1, replication_factor=1
            )
        caplog.clear()
        first = {"subscribed_topic_regex": "t.*", "topic_partitions": []}
        epoch = 0
        told: dict[str, Any] = {**first, "rebalance_timeout_ms": 60_000}
        for _ in range(6):
            beat = ConsumerGroupHeartbeatRequest(
                group_id="g", member_id="m", member_epoch=epoch, **told
            )
            answered = await groups.ask("g", beat)
            assert answered.error_code == E.NONE
            epoch, told = answered.member_epoch, {}
            await asyncio.sleep(1)
        said = [each for each in caplog.messages if "match more topics" in each]
        assert len(said) == 1
        assert "group g" in said[0]

    play_groups(story)


def test_a_topic_that_is_made_anew_while_nobody_leads_has_no_offsets_of_the_one_before() -> None:
    """Goal: who reads a new topic by its name does not begin where the old one was read up to.

    Method: the coordinator dies before it has heard that the topic is deleted, and the next one
    leads when another has its name. Seen to fail: it told the old offsets, so records were skipped.
    """

    async def story(cluster: SimulatedCluster, groups: GroupClient) -> None:
        await groups.commit("g", OFFSETS)
        cluster.crash(await groups.coordinator("g"))
        await groups.client.perform(delete_topic("t"), "delete t")
        await groups.client.create_topic("t", partitions=4, replication_factor=1)
        assert await groups.offsets("g") == {}
        named = OffsetFetchRequestTopic(name="t", partition_indexes=[0])
        asked = OffsetFetchRequestGroup(group_id="g", topics=[named])
        (found,) = (await groups.ask("g", OffsetFetchRequest(groups=[asked]), version=9)).groups
        assert [each.committed_offset for each in found.topics[0].partitions] == [-1]
        await groups.commit("g", {("t", 0): 1})
        assert await groups.offsets("g") == {("t", 0): 1}

    play_groups(story)
