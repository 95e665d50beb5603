"""A small client for simulations: requests to a cluster, a careful producer, a whole read.

Owns retries and what they may mean: what it calls acknowledged was acknowledged. Must never reach
into a node; the Kafka protocol is the only door.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from holdfast.runtime.dial import Connection, dial
from holdfast.runtime.ports import Runtime
from holdfast.wire.batch import Record, batches, build_batch, read_records
from holdfast.wire.errors import RETRIABLE, ErrorCode
from holdfast.wire.messages import fetch as fetching
from holdfast.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from holdfast.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from holdfast.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from holdfast.wire.messages.init_producer_id import InitProducerIdRequest
from holdfast.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from holdfast.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    OngoingPartitionReassignment,
)
from holdfast.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from holdfast.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from holdfast.wire.schema import Request

T = TypeVar("T")

EARLIEST, LATEST = -2, -1
_TIMEOUT_MS = 2_000
_PAUSE_S = 0.05
_FETCH_VERSION = 17
_PRODUCE_VERSION = 12
_FETCH_BYTES = 1024 * 1024


class AnswerError(Exception):
    """The cluster answered with an error code."""

    def __init__(self, what: str, code: int) -> None:
        super().__init__(f"{what}: {ErrorCode(code).name}")
        self.code = ErrorCode(code)


class RefusedError(AnswerError):
    """Trying again would not help."""


class RetryError(AnswerError):
    """Not now: what comes with it may pass."""


class Stored(NamedTuple):
    """One record as a consumer gets it."""

    offset: int
    value: bytes | None
    leader_epoch: int
    timestamp: int = -1  # where it is asked for


class ClusterClient:
    """Requests to the nodes of one cluster, over one connection to each."""

    def __init__(
        self,
        runtime: Runtime,
        bootstrap: Sequence[tuple[str, int]],
        *,
        client_id: str = "client",
        timeout_ms: int = _TIMEOUT_MS,
    ) -> None:
        self.runtime = runtime
        self._bootstrap = list(bootstrap)
        self._client_id = client_id
        self._timeout_ms = timeout_ms
        self._connections: dict[tuple[str, int], Connection] = {}
        self._nodes: dict[int, tuple[str, int]] = {}
        self._leaders: dict[tuple[str, int], int] = {}
        self.topic_ids: dict[str, bytes] = {}

    async def ask(
        self, message: Request, *, node: int | None = None, version: int | None = None
    ) -> Any:
        """Send one request to a node; OSError when it does not answer.

        None: to one after another until one answers; those before may carry it out all the same.
        """
        if node is None:
            return await self._ask_any(message, version)
        if node not in self._nodes:
            raise ConnectionError(f"node {node} is not known")
        return await self._ask_at(self._nodes[node], message, version)

    async def until(self, attempt: Callable[[], Awaitable[T]], *, seconds: float = 60.0) -> T:
        """Attempt again and again while the reason for failing may pass; then raise the last."""
        loop = asyncio.get_running_loop()
        give_up = loop.time() + seconds
        while True:
            try:
                return await attempt()
            except (OSError, RetryError):
                if loop.time() >= give_up:
                    raise
                await asyncio.sleep(_PAUSE_S)
                self.forget()

    async def create_topic(
        self,
        name: str,
        *,
        partitions: int = 1,
        replication_factor: int = 3,
        assignments: Sequence[Sequence[int]] | None = None,
        configs: Mapping[str, str] | None = None,
    ) -> None:
        """Create a topic and wait until each partition has a leader that the metadata names.

        With `assignments`, each partition's replicas, the two numbers are not used.
        """
        partitions = partitions if assignments is None else len(assignments)
        topic = CreatableTopic(
            name=name,
            num_partitions=partitions if assignments is None else -1,
            replication_factor=replication_factor if assignments is None else -1,
            assignments=[
                CreatableReplicaAssignment(partition_index=n, broker_ids=list(replicas))
                for n, replicas in enumerate(assignments or [])
            ],
            configs=[CreatableTopicConfig(name=k, value=v) for k, v in (configs or {}).items()],
        )

        async def create() -> None:
            response = await self.ask(CreateTopicsRequest(topics=[topic], timeout_ms=5000))
            code = response.topics[0].error_code
            if code != ErrorCode.TOPIC_ALREADY_EXISTS:  # by an attempt whose answer was lost
                check(f"create {name}", code)

        async def lead() -> None:
            for partition in range(partitions):
                await self.leader(name, partition)

        await self.until(create)
        await self.until(lead)

    async def reassign(self, topic: str, partition: int, replicas: Sequence[int] | None) -> None:
        """Ask once that a partition moves to these brokers; None: that it stays where it was.

        The answer says that it has begun. RefusedError when it may not be, RetryError when a
        controller is missing.
        """
        wanted = ReassignablePartition(
            partition_index=partition, replicas=None if replicas is None else list(replicas)
        )
        response = await self.ask(
            AlterPartitionReassignmentsRequest(
                timeout_ms=self._timeout_ms,
                topics=[ReassignableTopic(name=topic, partitions=[wanted])],
            )
        )
        check(f"reassign {topic}-{partition}", response.error_code)
        check(f"reassign {topic}-{partition}", response.responses[0].partitions[0].error_code)

    async def reassignments(self) -> dict[tuple[str, int], OngoingPartitionReassignment]:
        """Ask once what is being moved at present."""
        response = await self.ask(ListPartitionReassignmentsRequest(topics=None))
        check("list reassignments", response.error_code)
        return {
            (topic.name, each.partition_index): each
            for topic in response.topics
            for each in topic.partitions
        }

    async def delete_records(self, topic: str, partition: int, offset: int) -> int:
        """Ask the leader once to forget all before `offset` (-1: all that is committed).

        Returns the low watermark: no replica that is alive keeps anything before it.
        """
        wanted = DeleteRecordsPartition(partition_index=partition, offset=offset)
        request = DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name=topic, partitions=[wanted])],
            timeout_ms=self._timeout_ms // 2,
        )
        response = await self.ask(request, node=await self.leader(topic, partition))
        found = response.topics[0].partitions[0]
        check(f"delete records of {topic}-{partition}", found.error_code)
        return int(found.low_watermark)

    async def refresh(self, topic: str) -> Any:
        """Fetch a topic's metadata, remember it, return it."""
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False
        )
        response = await self.ask(request)
        self._nodes = {one.node_id: (one.host, one.port) for one in response.brokers}
        found = response.topics[0]
        check(f"metadata of {topic}", found.error_code)
        self.topic_ids[topic] = bytes(found.topic_id)
        for partition in found.partitions:
            self._leaders[topic, partition.partition_index] = partition.leader_id
        return found

    async def leader(self, topic: str, partition: int) -> int:
        """Leader of a partition as last heard, asked for when that is nobody."""
        if self._leaders.get((topic, partition), -1) < 0:
            await self.refresh(topic)
        leader = self._leaders.get((topic, partition), -1)
        if leader < 0:
            raise RetryError(f"{topic}-{partition}", ErrorCode.LEADER_NOT_AVAILABLE)
        return leader

    async def end(self, topic: str, partition: int, *, timestamp: int = LATEST) -> int:
        """Offset that ListOffsets gives for a timestamp: by default the high watermark."""

        async def look() -> int:
            asked = ListOffsetsPartition(partition_index=partition, timestamp=timestamp)
            request = ListOffsetsRequest(
                replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[asked])]
            )
            response = await self.ask(request, node=await self.leader(topic, partition))
            found = response.topics[0].partitions[0]
            check(f"offsets of {topic}-{partition}", found.error_code)
            return int(found.offset)

        return await self.until(look)

    async def read(self, topic: str, partition: int) -> list[Stored]:
        """Read a partition from its beginning to its high watermark, through its leader."""
        offset = await self.end(topic, partition, timestamp=EARLIEST)
        end = await self.end(topic, partition)
        stored: list[Stored] = []
        while offset < end:
            data = await self.until(lambda at=offset: self._fetch(topic, partition, at))  # type: ignore[misc]
            for record, epoch in _records(data.records or b""):
                if record.offset >= offset:
                    stored.append(Stored(record.offset, record.value, epoch))
                    offset = record.offset + 1
        return stored

    async def produce(
        self, topic: str, partition: int, values: Sequence[bytes], *, acks: int, node: int
    ) -> int:
        """Produce once, to a given node, without idempotence; the offset of the first record.

        RefusedError or RetryError say what the answer's code was, OSError that none came.
        """
        stamp = self.runtime.clock.wall_ms()
        batch = bytes(build_batch([Record(value=value, timestamp=stamp) for value in values]))
        return await self.produce_batch(topic, partition, batch, acks=acks, node=node)

    async def produce_batch(
        self, topic: str, partition: int, batch: bytes, *, acks: int, node: int
    ) -> int:
        """Send one prepared batch, once."""
        data = PartitionProduceData(index=partition, records=batch)
        request = ProduceRequest(
            acks=acks,
            timeout_ms=self._timeout_ms // 2,
            topic_data=[TopicProduceData(name=topic, partition_data=[data])],
        )
        response = await self.ask(request, node=node, version=_PRODUCE_VERSION)
        answer = response.responses[0].partition_responses[0]
        check(f"produce to {topic}-{partition}", answer.error_code)
        return int(answer.base_offset)

    async def peek(self, topic: str, partition: int, offset: int) -> list[Stored]:
        """Fetch once, at `offset`, from whom it takes for the leader."""
        data = await self._fetch(topic, partition, offset)
        return [
            Stored(record.offset, record.value, epoch)
            for record, epoch in _records(data.records or b"")
            if record.offset >= offset
        ]

    def forget(self) -> None:
        """Ask anew who leads before the next request, and somebody else: who was asked last may
        be cut off from the others and not know it.
        """
        self._leaders.clear()
        self._bootstrap.append(self._bootstrap.pop(0))

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()

    async def _fetch(self, topic: str, partition: int, offset: int) -> fetching.PartitionData:
        leader = await self.leader(topic, partition)
        asked = fetching.FetchPartition(
            partition=partition, fetch_offset=offset, partition_max_bytes=_FETCH_BYTES
        )
        request = fetching.FetchRequest(
            max_wait_ms=500,
            min_bytes=1,
            max_bytes=_FETCH_BYTES,
            topics=[fetching.FetchTopic(topic_id=self.topic_ids[topic], partitions=[asked])],
        )
        response = await self.ask(request, node=leader, version=_FETCH_VERSION)
        check(f"fetch of {topic}-{partition}", response.error_code)
        data: fetching.PartitionData = response.responses[0].partitions[0]
        check(f"fetch of {topic}-{partition} at {offset}", data.error_code)
        return data

    async def _ask_any(self, message: Request, version: int | None) -> Any:
        last: OSError = ConnectionError("there is no address to ask")
        for address in list(dict.fromkeys([*self._bootstrap, *self._nodes.values()])):
            try:
                return await self._ask_at(address, message, version)
            except OSError as error:
                last = error
                if address in self._bootstrap:  # whoever is silent is asked last from now on
                    self._bootstrap.remove(address)
                    self._bootstrap.append(address)
        raise last

    async def _ask_at(self, address: tuple[str, int], message: Request, version: int | None) -> Any:
        connection = self._connections.get(address)
        if connection is None or not connection.is_open:
            connection = await dial(
                self.runtime, *address, self._client_id, timeout_ms=self._timeout_ms
            )
            self._connections[address] = connection
        return await connection.send(message, version=version)


class Producer:
    """Sends batches with acks=all, each until it is acknowledged; idempotent, so that it may.

    One batch at a time for each partition: what comes after an acknowledgement came after it.
    """

    def __init__(self, client: ClusterClient, topic: str, *, acks: int = -1) -> None:
        self._client = client
        self._topic = topic
        self._acks = acks
        self._producer: tuple[int, int] | None = None
        self._sequences: dict[int, int] = {}
        self.attempts = 0

    async def send(self, partition: int, values: Sequence[bytes], *, seconds: float = 60.0) -> int:
        """Return the offset of the first record, -1 if the cluster knows it only as a duplicate.

        Raises what the last attempt did when `seconds` have passed: the outcome is unknown then,
        and the same values must be sent next, for they keep their sequence.
        """
        if self._producer is None:
            self._producer = await self._client.until(self._begin, seconds=seconds)
        producer_id, producer_epoch = self._producer
        sequence = self._sequences.get(partition, 0)
        stamp = self._client.runtime.clock.wall_ms()
        batch = build_batch(
            [Record(value=value, timestamp=stamp) for value in values],
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=sequence,
        )
        offset = await self._client.until(
            lambda: self._attempt(partition, bytes(batch)), seconds=seconds
        )
        self._sequences[partition] = sequence + len(values)
        return offset

    async def _begin(self) -> tuple[int, int]:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        response = await self._client.ask(request)
        check("producer id", response.error_code)
        return response.producer_id, response.producer_epoch

    async def _attempt(self, partition: int, batch: bytes) -> int:
        self.attempts += 1
        leader = await self._client.leader(self._topic, partition)
        try:
            return await self._client.produce_batch(
                self._topic, partition, batch, acks=self._acks, node=leader
            )
        except RefusedError as error:
            if error.code is ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
                return -1
            if error.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
                # So says an old leader that is cut off and lacks what the new one acknowledged.
                raise RetryError(str(error), error.code) from error
            raise


def _records(data: memoryview | bytes) -> list[tuple[Record, int]]:
    found: list[tuple[Record, int]] = []
    view = memoryview(data)
    for position, header in batches(view):
        if not header.is_control:
            found += [(record, header.leader_epoch) for record in read_records(view[position:])]
    return found


def check(what: str, code: int) -> None:
    """RetryError or RefusedError, unless the code says that all went well."""
    if code in RETRIABLE:
        raise RetryError(what, code)
    if code != ErrorCode.NONE:
        raise RefusedError(what, code)
