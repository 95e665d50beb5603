"""Clients that mean harm, or do it all the same: a function for each kind of event.

Each talks to one broker over connections of its own, from a machine of its own, and brings its own
end. Nothing is held against what they are answered: others must be served meanwhile as ever, and
that is what all other checks are for. True: somebody was there to talk to.

Rules: connections.md#what-is-named-twice.
"""

from __future__ import annotations

import asyncio
import random
import struct
from collections.abc import Awaitable, Callable
from typing import Final, cast

from holdfast.testing.simulated_cluster import BROKER_PORT
from holdfast.testing.simulation.conductor import Conductor, Perform
from holdfast.testing.simulation.metadata import Key
from holdfast.testing.simulation.plan import Event
from holdfast.wire.batch import Record, build_batch
from holdfast.wire.checksum import crc32c
from holdfast.wire.frame import encode_request
from holdfast.wire.messages import fetch, list_offsets, produce
from holdfast.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from holdfast.wire.schema import Request
from holdfast.wire.well_known import LATEST

MACHINE: Final = "stranger"
NAMED: Final = 10_000  # times, one partition in one request
_CONNECT_S: Final = 3.0
_CONNECTIONS: Final = 4
_PARKED: Final = 12
_PIPELINED: Final = 20
_FETCH_VERSION: Final = 17
_LIST_OFFSETS_VERSION: Final = 7
_METADATA_VERSION: Final = 12
_FOR_EVER_MS: Final = 30_000
_SIP_S: Final = 0.3  # a slow client reads once in so long
_LARGE: Final = (1 << 31) - 1
_PRODUCE_VERSION: Final = 9
_CRC_AT, _LAST_OFFSET_DELTA_AT, _COUNT_AT = 17, 23, 57  # in a batch


class _Peer(asyncio.Protocol):
    """One end of a connection: what came of it, and no more."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport
        self.received = 0
        self.lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self.received += len(data)

    def connection_lost(self, _error: Exception | None) -> None:
        self.lost = True


Act = Callable[[Conductor, Event, list[_Peer], random.Random], Awaitable[None]]


def _hostile(act: Act) -> Perform:
    """Connect to the event's broker, let it have what `act` thinks of, and vanish."""

    async def perform(hand: Conductor, event: Event) -> bool:
        node = hand.resolve(event.target)
        if node is None or node not in hand.cluster.brokers:
            return False
        peers: list[_Peer] = []
        try:
            await _connect(hand, node, peers)
            if peers:
                await act(hand, event, peers, random.Random(event.amount))
        finally:
            for peer in peers:
                hand.counts["connections of hostile clients that a broker ended"] += peer.lost
                hand.counts["hostile clients that got an answer"] += peer.received > 0
                peer.transport.abort()  # without a word, and whatever is on its way
        return bool(peers)

    return perform


async def _connect(hand: Conductor, node: int, peers: list[_Peer]) -> None:
    world = hand.cluster.world
    machine = world.machine(MACHINE)
    runtime = machine.runtime or machine.boot()
    for _ in range(_CONNECTIONS):
        try:
            async with asyncio.timeout(_CONNECT_S):
                _, peer = await runtime.network.connect(
                    _Peer, hand.cluster.machine(node).name, BROKER_PORT
                )
        except OSError:
            return
        peers.append(peer)


async def _frames(hand: Conductor, event: Event, peers: list[_Peer], draw: random.Random) -> None:
    """Frames that are cut short, too large, or no frames at all."""
    for peer in peers:
        whole = _frame(_named_often(hand, event, "metadata", 3), _METADATA_VERSION)
        peer.transport.write(
            {
                "truncated": whole[: draw.randrange(1, len(whole))],
                "oversized": draw.choice((_LARGE, 200 << 20)).to_bytes(4, "big") + whole,
                # A length that is believed, then an API, a version and a body as chance has them.
                "garbage": (size := draw.randrange(9, 300)).to_bytes(4, "big")
                + b"\0"
                + draw.randbytes(size - 1),
            }[event.detail]
        )
    await asyncio.sleep(event.seconds)


async def _names(hand: Conductor, event: Event, peers: list[_Peer], _draw: random.Random) -> None:
    """A partition, or a topic, that is named ten thousand times in one request."""
    request = _named_often(hand, event, event.detail, NAMED)
    version = {"fetch": _FETCH_VERSION, "offsets": _LIST_OFFSETS_VERSION}.get(
        event.detail, _METADATA_VERSION
    )
    peers[0].transport.write(_frame(request, version))
    await asyncio.sleep(event.seconds)


async def _parked(hand: Conductor, event: Event, peers: list[_Peer], draw: random.Random) -> None:
    """Fetches that wait for what never comes, and whose connection ends before they do."""
    key = _partition(hand, event)
    for number in range(_PARKED):
        asked = _fetch(key, [_end(hand, key)], max_wait_ms=_FOR_EVER_MS, min_bytes=_LARGE)
        peers[number % len(peers)].transport.write(_frame(asked, _FETCH_VERSION))
    await asyncio.sleep(event.seconds * draw.random())


async def _slow(hand: Conductor, event: Event, peers: list[_Peer], _draw: random.Random) -> None:
    """Asks for all there is, many times at once, and reads a sip now and then, or never."""
    key = _partition(hand, event)
    request = _frame(_fetch(key, [0], max_wait_ms=0, min_bytes=1), _FETCH_VERSION)
    for peer in peers:
        peer.transport.pause_reading()
        peer.transport.write(request * _PIPELINED)
    loop = asyncio.get_running_loop()
    ends = loop.time() + event.seconds
    while loop.time() < ends:
        await asyncio.sleep(_SIP_S)
        if event.detail == "slow":
            for peer in peers:
                peer.transport.resume_reading()
            await asyncio.sleep(0)
            for peer in peers:
                peer.transport.pause_reading()


async def _records(hand: Conductor, event: Event, peers: list[_Peer], draw: random.Random) -> None:
    """Batches under a right CRC whose records are not what their headers say."""
    topic, _, partition = event.target.partition(":")[2].partition("/")
    for peer in peers:
        batch = build_batch([Record(value=draw.randbytes(20), timestamp=0) for _ in range(3)])
        if event.detail == "garbage":
            batch[-50:] = draw.randbytes(50)
        else:  # one record more is announced than there is, of which the last offset knows
            struct.pack_into(">i", batch, _LAST_OFFSET_DELTA_AT, 3)
            struct.pack_into(">i", batch, _COUNT_AT, 4)
        struct.pack_into(">I", batch, _CRC_AT, crc32c(memoryview(batch)[_CRC_AT + 4 :]))
        data = produce.PartitionProduceData(index=int(partition), records=bytes(batch))
        named = produce.TopicProduceData(name=topic, partition_data=[data])
        asked = produce.ProduceRequest(acks=1, timeout_ms=1000, topic_data=[named])
        peer.transport.write(_frame(asked, _PRODUCE_VERSION))
        hand.counts["batches of false records sent"] += 1
    await asyncio.sleep(event.seconds)
    key = hand.oracle.metadata.find(topic, int(partition))
    state = None if key is None else hand.oracle.metadata.partitions.get(key)
    if state is not None and state.leader == hand.resolve(event.target):
        hand.counts["answers about false records"] += sum(peer.received > 0 for peer in peers)


# -- requests ------------------------------------------------------------------------------------


def _partition(hand: Conductor, event: Event) -> Key:
    """A partition of the plan that there is; none: one that nobody knows."""
    topic = hand.plan.topics[int(event.amount) % len(hand.plan.topics)]
    key = hand.oracle.metadata.find(topic.name, int(event.amount) % topic.partitions)
    return key or (b"\1" * 16, 0)


def _end(hand: Conductor, key: Key) -> int:
    return hand.oracle.truth(key).committed.end if key in hand.oracle.metadata.partitions else 0


def _fetch(key: Key, offsets: list[int], *, max_wait_ms: int, min_bytes: int) -> Request:
    partitions = [
        fetch.FetchPartition(partition=key[1], fetch_offset=offset, partition_max_bytes=1 << 20)
        for offset in offsets
    ]
    return fetch.FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=_LARGE,
        topics=[fetch.FetchTopic(topic_id=key[0], partitions=partitions)],
    )


def _named_often(hand: Conductor, event: Event, what: str, times: int) -> Request:
    key = _partition(hand, event)
    name = hand.oracle.metadata.topics.get(key[0], "nobody's")
    if what == "fetch":
        offsets = [_end(hand, key)] * times
        return _fetch(key, offsets, max_wait_ms=_FOR_EVER_MS, min_bytes=_LARGE)
    if what == "offsets":
        asked = list_offsets.ListOffsetsPartition(partition_index=key[1], timestamp=LATEST)
        topic = list_offsets.ListOffsetsTopic(name=name, partitions=[asked] * times)
        return list_offsets.ListOffsetsRequest(replica_id=-1, topics=[topic])
    return MetadataRequest(
        topics=[MetadataRequestTopic(name=name)] * times, allow_auto_topic_creation=False
    )


def _frame(request: Request, version: int) -> bytes:
    return encode_request(request, version, 1, MACHINE)


HOSTILE: Final[dict[str, Perform]] = {
    "hostile_frames": _hostile(_frames),
    "hostile_names": _hostile(_names),
    "hostile_parked": _hostile(_parked),
    "hostile_records": _hostile(_records),
    "slow_client": _hostile(_slow),
}
