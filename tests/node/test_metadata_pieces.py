"""Goal: Metadata of all topics says what the table's own encoder would, whatever has changed, and
makes anew only what has.

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
from holdfast.node.api import metadata, metadata_answer
from holdfast.node.api.partition_view import Reachable
from holdfast.node.broker import topic_pieces
from holdfast.node.broker.topic_pieces import TopicPieces
from holdfast.node.door.api_table import DESCRIBE_TOPIC
from holdfast.node.door.request_context import AllowAll, Client, Deferred, RequestContext
from holdfast.testing.ground.loop import run
from holdfast.wire.frame import RequestHeader, encode_response
from holdfast.wire.messages.metadata import MetadataRequest, MetadataResponse

CHUNK = 4
SIZES = (0, 1, CHUNK, CHUNK + 1, 3 * CHUNK, 200)
VERSIONS = range(MetadataResponse.MAX_VERSION + 1)


class Cluster:
    """An image, a broker's cache of it, and the changes that come."""

    def __init__(self) -> None:
        self.image = MetadataImage()
        self.topic_pieces = TopicPieces()
        self.cluster_id = "a-cluster"
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


async def answered(cluster: Any, version: int) -> tuple[bytes, bytes, int]:
    """What the handler says, what the table's encoder says of the same, and in how many turns."""
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
    request = MetadataRequest(topics=[] if version == 0 else None)
    deferred = metadata.handle(cluster, context, request)
    assert isinstance(deferred, Deferred)
    turns = 0
    while not delivered:
        turns += 1
        await asyncio.sleep(0)
    whole = metadata._answer(
        cluster, context, request, list(metadata._topics(cluster, context, request))
    )
    return b"".join(deferred.buffers), b"".join(encode_response(7, whole, version)), turns


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
            told, wanted, _ = await answered(cluster, version)
            assert told == wanted

    run(story)


@pytest.mark.usefixtures("_small")
def test_only_what_has_changed_is_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at: list[Partition] = []
    view = Reachable.view

    def counted(self: Reachable, partition: Partition) -> Any:
        looked_at.append(partition)
        return view(self, partition)

    async def story() -> None:
        cluster = Cluster()
        monkeypatch.setattr(metadata_answer, "BYTES_A_TURN", 200)
        _, _, turns = await answered(cluster, 12)
        assert turns > 10, "a few in each turn"
        monkeypatch.setattr(metadata, "_topics", lambda *_: ())
        monkeypatch.setattr(Reachable, "view", counted)
        await answered(cluster, 12)
        assert looked_at == []
        cluster.change("t5", 7)
        await answered(cluster, 12)
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
