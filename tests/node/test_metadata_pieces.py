"""Goal: Metadata says what the table's own encoder would, whatever is asked for and has changed,
and makes anew only what has.

Method: an image and the handler alone; the answer of every version beside one that is encoded
whole, after each kind of change; and a count of partitions that are looked at.
Seen to fail: with a piece that a change left behind, with all made at once, and with all made anew.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.core.metadata.image import (
    Broker,
    Endpoint,
    ImageDelta,
    MetadataImage,
    Partition,
    Topic,
)
from holdfast.core.metadata.image_records import freeze, replace_image
from holdfast.node.api import metadata, metadata_answer
from holdfast.node.api.partition_view import Reachable
from holdfast.node.broker import topic_pieces
from holdfast.node.broker.topic_pieces import TopicPieces
from holdfast.node.door.api_table import DESCRIBE_TOPIC
from holdfast.node.door.request_context import (
    OPERATIONS,
    AllowAll,
    Client,
    Deferred,
    RequestContext,
    ResourceType,
)
from holdfast.runtime.sliced_work import PAUSE_S, SlicedWork
from holdfast.testing.ground.loop import run
from holdfast.testing.ground.worker import MemoryWorker
from holdfast.wire.codec import decode, encode
from holdfast.wire.errors import ErrorCode
from holdfast.wire.frame import RequestHeader, encode_response
from holdfast.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)

CHUNK = 4
SIZES = (0, 1, CHUNK, CHUNK + 1, 3 * CHUNK, 200)
VERSIONS = range(MetadataResponse.MAX_VERSION + 1)
OPERATIONS_SINCE = 8
MAY_ALL = sum(1 << operation for operation in OPERATIONS[ResourceType.TOPIC])
EVERYTHING = MetadataRequest(topics=None)


class Cluster:
    """An image, a broker's cache of it, and the changes that come."""

    def __init__(self) -> None:
        self.image = MetadataImage()
        self.topic_pieces = TopicPieces()
        self.metadata_work = SlicedWork(asyncio.get_running_loop(), MemoryWorker(1))
        self.cluster_id = "a-cluster"
        self.settings = SimpleNamespace(auto_create_topics_enable=False)
        self.forwarding = SimpleNamespace(topics_under_way={})
        self.runtime = SimpleNamespace(random=SimpleNamespace(below=lambda _: 0))
        for node in range(3):
            self.image.brokers[node] = broker(node)
        for number, size in enumerate(SIZES):
            self.create(f"t{number}", size)

    def create(self, name: str, size: int) -> None:
        topic = Topic(name, name.encode().rjust(16, b"."))
        self.image.topics[name] = self.image.topics_by_id[topic.topic_id] = topic
        self.topic_pieces.changed(ImageDelta(topics_created=[topic]))
        for _ in range(size):
            self.grow(name)

    def grow(self, name: str) -> None:
        topic = self.image.topics[name]
        index = len(topic.partitions)
        made = Partition(
            topic=name,
            topic_id=topic.topic_id,
            index=index,
            replicas=(0, 1, 2),
            isr=(0, 1),
            leader=index % 3,
        )
        topic.partitions.append(made)
        self.topic_pieces.changed(ImageDelta(partitions_changed={made.key: None}))

    def change(self, name: str, index: int) -> None:
        topic = self.image.topics[name]
        before = topic.partitions[index]
        topic.partitions[index] = replace(before, leader_epoch=before.leader_epoch + 1, isr=(2,))
        self.topic_pieces.changed(ImageDelta(partitions_changed={before.key: before}))

    def delete(self, name: str) -> None:
        topic = self.image.topics.pop(name)
        del self.image.topics_by_id[topic.topic_id]
        self.topic_pieces.changed(ImageDelta(topics_deleted=[topic]))

    def fence(self, node: int) -> None:
        before = self.image.brokers[node]
        self.image.brokers[node] = replace(before, fenced=not before.fenced)
        self.topic_pieces.changed(ImageDelta(brokers_changed={node: before}))


def broker(node: int) -> Broker:
    return Broker(
        broker_id=node,
        epoch=node,
        incarnation_id=bytes(16),
        fenced=False,
        in_controlled_shutdown=False,
        rack=None,
        endpoints=(Endpoint("PLAINTEXT", f"host-{node}", 9092),),
        directories=(),
    )


async def told(
    cluster: Any, version: int, request: MetadataRequest = EVERYTHING
) -> tuple[bytes, int, RequestContext]:
    """What the handler says, in how many turns, and what it was told of the one who asks."""
    header = RequestHeader(key=3, version=version, correlation_id=7, client_id="")
    delivered: list[Deferred] = []
    context = RequestContext(
        header,
        DESCRIBE_TOPIC,
        b"",
        Client("User:any", "", "PLAINTEXT"),
        AllowAll(),
        delivered.append,
    )
    deferred = metadata.handle(cluster, context, request)
    turns = 0
    while not delivered:
        turns += 1
        await asyncio.sleep(PAUSE_S)
    return b"".join(deferred.buffers), turns, context


async def answered(
    cluster: Any, version: int, request: MetadataRequest = EVERYTHING
) -> tuple[bytes, bytes, int]:
    """What the handler says, what the table's encoder says of the same, and in how many turns."""
    if version == 0 and request is EVERYTHING:
        request = MetadataRequest(topics=[])
    answer, turns, context = await told(cluster, version, request)
    views = metadata._views(cluster, context)
    topics: list[MetadataResponseTopic] = []
    for each in metadata._entries(cluster, context, request):
        if not isinstance(each, Topic):
            topics.append(each)
            continue
        known = metadata._known(each, each.partitions, views)
        if request.include_topic_authorized_operations:
            known = MetadataResponseTopic(
                name=known.name,
                topic_id=known.topic_id,
                is_internal=known.is_internal,
                partitions=known.partitions,
                topic_authorized_operations=MAY_ALL,
            )
        topics.append(known)
    whole = metadata._answer(cluster, context, request, topics)
    return answer, b"".join(encode_response(7, whole, version)), turns


@pytest.fixture
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_pieces, "CHUNK", CHUNK)
    monkeypatch.setattr(metadata_answer, "CHUNK", CHUNK)


@pytest.mark.usefixtures("_small")
@pytest.mark.parametrize("version", VERSIONS)
def test_it_says_what_is_so_after_every_kind_of_change(version: int) -> None:
    async def story() -> None:
        cluster = Cluster()
        changes: list[Callable[[], object]] = [
            lambda: None,
            lambda: cluster.change("t1", 0),
            lambda: cluster.change("t4", 2 * CHUNK),
            lambda: cluster.grow("t0"),
            lambda: cluster.grow("t2"),
            lambda: cluster.grow("t4"),
            lambda: cluster.fence(2),
            lambda: cluster.fence(2),
            lambda: cluster.delete("t3"),
            lambda: cluster.create("t3", 2),
            lambda: cluster.delete("t5"),
        ]
        for change in changes:
            change()
            answer, wanted, _ = await answered(cluster, version)
            assert answer == wanted

    run(story)


def asked_for(*names: str, ids: tuple[bytes, ...] = ()) -> MetadataRequest:
    by_id = [MetadataRequestTopic(name=None, topic_id=topic_id) for topic_id in ids]
    return MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names] + by_id)


@pytest.mark.usefixtures("_small")
@pytest.mark.parametrize("version", [each for each in VERSIONS if each >= OPERATIONS_SINCE])
def test_what_may_be_done_stands_in_the_answer_and_in_no_piece(
    version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen to fail: all of it was made in one go, which took 100 ms of 10,000 partitions."""

    async def story() -> None:
        monkeypatch.setattr(metadata, "BYTES_A_TURN", 200)
        cluster = Cluster()
        asks = MetadataRequest(topics=None, include_topic_authorized_operations=True)
        answer, wanted, turns = await answered(cluster, version, asks)
        assert answer == wanted
        assert turns > 1
        answer, wanted, turns = await answered(cluster, version)
        assert answer == wanted, "who does not ask for it is not told"
        assert turns == 0
        topics = asked_for("t4", "not-there", "t0").topics
        named = MetadataRequest(topics=topics, include_topic_authorized_operations=True)
        answer, wanted, turns = await answered(cluster, version, named)
        assert answer == wanted

    run(story)


@pytest.mark.usefixtures("_small")
@pytest.mark.parametrize("version", VERSIONS)
def test_it_says_of_what_is_named_what_is_so(version: int) -> None:
    async def story() -> None:
        cluster = Cluster()
        ids = (b"t4".rjust(16, b"."), b"nobody".rjust(16, b".")) if version >= 12 else ()
        request = asked_for("t1", "not-there", "t4", "t1", "no such/name", "t5", "t0", ids=ids)
        changes: list[Callable[[], object]] = [
            lambda: None,
            lambda: cluster.change("t4", 1),
            lambda: cluster.delete("t1"),
        ]
        for change in changes:
            change()
            answer, wanted, _ = await answered(cluster, version, request)
            assert answer == wanted

    run(story)


def in_a_while(change: Callable[[], object]) -> asyncio.Task[None]:
    """Change something while an answer is being made."""

    async def wait() -> None:
        await asyncio.sleep(5 * PAUSE_S)
        change()

    return asyncio.get_running_loop().create_task(wait())


@pytest.mark.usefixtures("_small")
def test_who_is_deleted_meanwhile_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "BYTES_A_TURN", 200)

    async def story(request: MetadataRequest, code: ErrorCode) -> None:
        cluster = Cluster()
        turns = in_a_while(lambda: cluster.delete("t5"))
        answer, _, _ = await answered(cluster, 12, request)
        await turns
        kept = cluster.topic_pieces.view("PLAINTEXT", 12)
        assert {topic_id for topic_id, _ in kept} == {b"t1".rjust(16, b".")}, "left behind"
        header = len(b"".join(encode_response(7, MetadataResponse(), 12))) - len(
            encode(MetadataResponse(), 12)
        )
        topics = decode(MetadataResponse, 12, answer, header).topics
        assert [each.error_code for each in topics] == [code, ErrorCode.NONE]
        assert [len(each.partitions) for each in topics] == [0, 1]

    run(lambda: story(asked_for("t5", "t1"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    t5, t1 = (name.rjust(16, b".") for name in (b"t5", b"t1"))
    run(lambda: story(asked_for(ids=(t5, t1)), ErrorCode.UNKNOWN_TOPIC_ID))


@pytest.mark.usefixtures("_small")
@pytest.mark.parametrize("request_for", [EVERYTHING, asked_for("t5", "t1", "t4")])
def test_a_snapshot_that_is_loaded_meanwhile_leaves_nothing_old(
    request_for: MetadataRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen to fail: what it replaced was told for good, until it changed the next time."""
    monkeypatch.setattr(metadata, "BYTES_A_TURN", 200)

    async def story() -> None:
        cluster = Cluster()

        def load() -> None:
            loaded = freeze(cluster.image)
            partitions = loaded.topics["t5"].partitions
            partitions[:] = [replace(each, leader=2, leader_epoch=9) for each in partitions]
            del loaded.topics_by_id[loaded.topics.pop("t4").topic_id]
            loaded.offset += 1
            cluster.topic_pieces.changed(replace_image(cluster.image, loaded))

        loads = in_a_while(load)
        answer, wanted, turns = await answered(cluster, 12, request_for)
        assert turns > 10, "a few in each turn"
        assert loads.done()
        assert answer == wanted
        answer, wanted, _ = await answered(cluster, 12, request_for)
        assert answer == wanted

    run(story)


@pytest.mark.usefixtures("_small")
@pytest.mark.parametrize("change", [None, Cluster.fence])
def test_no_answer_is_made_anew_in_one_go(
    change: Callable[[Cluster, int], None] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not when more versions are asked for at once than are kept, nor when a broker changes."""
    monkeypatch.setattr(metadata, "BYTES_A_TURN", 200)
    described: list[MetadataResponseTopic] = []
    most = 0
    known, join = metadata._known, metadata_answer.Maker.join

    def counted(topic: Topic, *others: Any) -> MetadataResponseTopic:
        described.append(known(topic, *others))
        return described[-1]

    def looked_at(self: metadata_answer.Maker, *others: Any) -> bytes:
        nonlocal most
        described.clear()
        whole = join(self, *others)
        # What is described of no partition stands around the pieces of a large topic.
        most = max(most, sum(bool(each.partitions) for each in described))
        return whole

    monkeypatch.setattr(metadata, "_known", counted)
    monkeypatch.setattr(metadata_answer.Maker, "join", looked_at)

    async def story() -> None:
        cluster = Cluster()
        if change is not None:
            in_a_while(lambda: change(cluster, 2))
        versions = [each for each in VERSIONS if each]
        assert len(versions) > topic_pieces.VIEWS_MAX
        await asyncio.gather(*(told(cluster, version) for version in versions))

    run(story)
    assert most == 0


@pytest.mark.usefixtures("_small")
def test_many_who_ask_at_once_are_answered_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen to fail: 200 clients had 10,000 topics put together for them in one turn, seconds."""
    monkeypatch.setattr(metadata, "BYTES_A_TURN", 200)
    turns: list[float] = []
    join = metadata_answer.Maker.join

    def counted(self: metadata_answer.Maker, *others: Any) -> bytes:
        turns.append(asyncio.get_running_loop().time())
        return join(self, *others)

    monkeypatch.setattr(metadata_answer.Maker, "join", counted)

    async def story() -> None:
        cluster = Cluster()
        answers = await asyncio.gather(*(told(cluster, 12) for _ in range(20)))
        assert len({answer for answer, _, _ in answers}) == 1

    run(story)
    assert len(set(turns)) == len(turns) == 20

    # Whoever leaves is not waited for.
    async def left() -> None:
        cluster = Cluster()
        header = RequestHeader(key=3, version=12, correlation_id=7, client_id="")
        client = Client("User:any", "", "PLAINTEXT")
        context = RequestContext(
            header, DESCRIBE_TOPIC, b"", client, AllowAll(), lambda _: turns.clear()
        )
        metadata.handle(cluster, context, EVERYTHING).lost()  # type: ignore[arg-type]
        await asyncio.sleep(1)
        assert cluster.metadata_work.pieces == 0

    run(left)
    assert len(turns) == 20


@pytest.mark.usefixtures("_small")
def test_only_what_has_changed_is_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at: list[Partition] = []
    view = Reachable.view

    def counted(self: Reachable, partition: Partition) -> Any:
        looked_at.append(partition)
        return view(self, partition)

    async def story() -> None:
        cluster = Cluster()
        monkeypatch.setattr(metadata, "BYTES_A_TURN", 200)
        _, _, turns = await answered(cluster, 12)
        assert turns > 10, "a few in each turn"
        monkeypatch.setattr(Reachable, "view", counted)
        await told(cluster, 12)
        assert looked_at == []
        cluster.change("t5", 7)
        await told(cluster, 12)
        assert {each.index for each in looked_at} == set(range(CHUNK, 2 * CHUNK))

    run(story)


def test_what_is_deleted_leaves_nothing_behind() -> None:
    async def story() -> None:
        cluster = Cluster()
        await answered(cluster, 12)
        pieces = cluster.topic_pieces.view("PLAINTEXT", 12)
        assert len(pieces) >= len(SIZES)
        for name in list(cluster.image.topics):
            cluster.delete(name)
        assert pieces == {}
        for version in VERSIONS:
            await answered(cluster, version)
        assert len(cluster.topic_pieces._views) == topic_pieces.VIEWS_MAX

    run(story)
