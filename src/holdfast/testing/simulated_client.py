"""A small client for simulations: requests to a cluster, one record or batch, a whole read.

Owns retries and what they may mean: what it calls acknowledged was acknowledged. Must never reach
into a node; the Kafka protocol is the only door.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

from holdfast.runtime.dial import Connection, dial
from holdfast.runtime.ports import Runtime
from holdfast.wire.administration import (
    AdminError,
    AdminRequest,
    create_topic,
    delete_records,
    reassign,
)
from holdfast.wire.batch import Record, batches, build_batch, read_records
from holdfast.wire.errors import RETRIABLE, ErrorCode
from holdfast.wire.frame import encode_request_buffers
from holdfast.wire.messages import fetch as fetching
from holdfast.wire.messages.init_producer_id import InitProducerIdRequest
from holdfast.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from holdfast.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from holdfast.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from holdfast.wire.schema import Request
from holdfast.wire.well_known import EARLIEST, LATEST

T = TypeVar("T")

_TIMEOUT_MS = 2_000
_PAUSE_S = 0.05
FETCH_VERSION: Final = 17
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
    timestamp: int


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
        self._dialled: dict[tuple[str, int], asyncio.Future[Connection]] = {}
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
        return await self._ask_at(self._address(node), message, version)

    def _address(self, node: int) -> tuple[str, int]:
        if node not in self._nodes:
            raise ConnectionError(f"node {node} is not known")
        return self._nodes[node]

    async def reach(self, node: int) -> Connection:
        """Have a connection to a node; OSError when there is none to be had."""
        return await self._connection(self._address(node))

    async def tell(self, message: Request, *, node: int, version: int) -> None:
        """Send one request that nobody answers; OSError when there is no connection."""
        connection = await self._connection(self._address(node))
        if not connection.is_open:  # since it was had: a node that is killed, say
            raise ConnectionError(f"the connection to node {node} has ended")
        buffers = encode_request_buffers(message, version, 0, self._client_id)
        connection._write(buffers)  # noqa: SLF001 - nodes await an answer to all that they send

    async def perform(self, asked: AdminRequest[T], what: str, *, node: int | None = None) -> T:
        """Ask once for something administrative. RetryError and RefusedError: it was refused."""
        try:
            return asked.read(await self.ask(asked.message, node=node))
        except AdminError as error:
            raise refusal(what, error.code) from error

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
        is_awaited: Callable[[str, int], bool] = lambda *_: True,
    ) -> None:
        """Create a topic and wait until each partition has a leader that the metadata names.

        With `assignments`, each partition's replicas, the two numbers are not used. Where the topic
        may be there already, `is_awaited` says of which partitions a leader can come.
        """
        if assignments is not None:
            partitions = len(assignments)
        asked = create_topic(
            name,
            partitions=partitions,
            replication_factor=replication_factor,
            assignment=dict(enumerate(assignments or ())),
            configs=configs,
            timeout_ms=5000,
        )

        async def create() -> None:
            try:
                await self.perform(asked, f"create {name}")
            except RefusedError as error:
                if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                    raise  # else it was made by an attempt whose answer was lost

        async def lead() -> None:
            for partition in range(partitions):
                if is_awaited(name, partition):
                    await self.leader(name, partition)

        await self.until(create)
        await self.until(lead)

    async def reassign(self, topic: str, partition: int, replicas: Sequence[int] | None) -> None:
        """Ask once that a partition moves to these brokers; None: that it stays where it was.

        The answer says that it has begun. RefusedError when it may not be, RetryError when a
        controller is missing.
        """
        await self.perform(
            reassign({(topic, partition): replicas}, self._timeout_ms),
            f"reassign {topic}-{partition}",
        )

    async def delete_records(self, topic: str, partition: int, offset: int) -> int:
        """Ask the leader once to forget all before `offset` (-1: all that is committed).

        Returns the low watermark: no replica that is alive keeps anything before it.
        """
        asked = delete_records(topic, partition, offset, self._timeout_ms // 2)
        return await self.perform(
            asked,
            f"delete records of {topic}-{partition}",
            node=await self.leader(topic, partition),
        )

    async def refresh(self, topic: str) -> Any:
        """Fetch a topic's metadata, remember it, return it."""
        response = await self.ask(
            MetadataRequest(
                topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False
            )
        )
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
        return await self.until(lambda: self.offset_at(topic, partition, timestamp))

    async def offset_at(self, topic: str, partition: int, timestamp: int) -> int:
        """Ask the leader once for the offset of a timestamp."""
        asked = ListOffsetsPartition(partition_index=partition, timestamp=timestamp)
        request = ListOffsetsRequest(
            replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[asked])]
        )
        response = await self.ask(request, node=await self.leader(topic, partition))
        found = response.topics[0].partitions[0]
        check(f"offsets of {topic}-{partition}", found.error_code)
        return int(found.offset)

    async def read(self, topic: str, partition: int) -> list[Stored]:
        """Read a partition from its beginning to its high watermark, through its leader."""
        offset = await self.end(topic, partition, timestamp=EARLIEST)
        end = await self.end(topic, partition)
        stored: list[Stored] = []
        while offset < end:
            data = await self.until(lambda at=offset: self.fetch(topic, partition, at))  # type: ignore[misc]
            stored += records_of(data.records or b"", offset)
            offset = max(offset, behind(data.records or b""))
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
        (outcome,) = await self.produce_batches(topic, [(partition, batch)], acks=acks, node=node)
        if isinstance(outcome, AnswerError):
            raise outcome
        return outcome

    async def produce_batches(
        self, topic: str, parts: Sequence[tuple[int, bytes]], *, acks: int, node: int
    ) -> list[int | AnswerError]:
        """Send prepared batches in one request, once; of each the offset, or why it was refused.

        A partition may be there several times, as no client has it and none is refused.
        """
        data = [PartitionProduceData(index=index, records=batch) for index, batch in parts]
        request = ProduceRequest(
            acks=acks,
            timeout_ms=self._timeout_ms // 2,
            topic_data=[TopicProduceData(name=topic, partition_data=data)],
        )
        if acks == 0:  # is not answered
            await self.tell(request, node=node, version=_PRODUCE_VERSION)
            return [-1] * len(parts)
        response = await self.ask(request, node=node, version=_PRODUCE_VERSION)
        return [
            refusal(f"produce to {topic}-{answer.index}", answer.error_code)
            if answer.error_code
            else int(answer.base_offset)
            for answer in response.responses[0].partition_responses
        ]

    async def producer_id(self) -> tuple[int, int]:
        """Ask once for a producer's id and epoch."""
        response = await self.ask(
            InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        )
        check("producer id", response.error_code)
        return response.producer_id, response.producer_epoch

    async def fetch(
        self,
        topic: str,
        partition: int,
        offset: int,
        *,
        node: int | None = None,
        rack: str = "",
        wait_ms: int = 500,
        partition_bytes: int = _FETCH_BYTES,
    ) -> fetching.PartitionData:
        """Fetch once, from a given node; None: from whom it takes for the leader."""
        leader = await self.leader(topic, partition)  # whose metadata tell the topic's id, too
        asked = fetching.FetchPartition(
            partition=partition, fetch_offset=offset, partition_max_bytes=partition_bytes
        )
        request = fetching.FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=_FETCH_BYTES,
            rack_id=rack,
            topics=[fetching.FetchTopic(topic_id=self.topic_ids[topic], partitions=[asked])],
        )
        response = await self.ask(
            request, node=leader if node is None else node, version=FETCH_VERSION
        )
        check(f"fetch of {topic}-{partition}", response.error_code)
        data: fetching.PartitionData = response.responses[0].partitions[0]
        check(f"fetch of {topic}-{partition} at {offset}", data.error_code)
        return data

    def forget(self) -> None:
        """Ask anew who leads before the next request, and somebody else: who was asked last may
        be cut off from the others and not know it.
        """
        self._leaders.clear()
        self._bootstrap.append(self._bootstrap.pop(0))

    def close(self) -> None:
        for dialled in self._dialled.values():
            dialled.cancel()
        for connection in self._connections.values():
            connection.close()

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
        connection = await self._connection(address)
        return await connection.send(message, version=version)

    async def _connection(self, address: tuple[str, int]) -> Connection:
        connection = self._connections.get(address)
        if connection is None or not connection.is_open:
            # One for all that need it now: each on its own, requests would overtake one another.
            dialled = self._dialled.get(address)
            if dialled is None:
                dialled = self._dialled[address] = asyncio.ensure_future(
                    dial(self.runtime, *address, self._client_id, timeout_ms=self._timeout_ms)
                )
                dialled.add_done_callback(partial(self._has_dialled, address))
            connection = await asyncio.shield(dialled)
        return connection

    def _has_dialled(self, address: tuple[str, int], dialled: asyncio.Future[Connection]) -> None:
        del self._dialled[address]
        if not dialled.cancelled() and dialled.exception() is None:
            self._connections[address] = dialled.result()


def records_of(data: bytes | memoryview, offset: int) -> list[Stored]:
    """Records of an answer from `offset` on."""
    found: list[Stored] = []
    view = memoryview(data)
    for position, header in batches(view):
        if not header.is_control and header.last_offset >= offset:
            found += [
                Stored(record.offset, record.value, header.leader_epoch, record.timestamp)
                for record in read_records(view[position:])
                if record.offset >= offset
            ]
    return found


def behind(data: bytes | memoryview) -> int:
    """Return the offset behind the last whole batch of an answer, 0 without any."""
    return max((header.next_offset for _, header in batches(memoryview(data))), default=0)


def check(what: str, code: int) -> None:
    """RetryError or RefusedError, unless the code says that all went well."""
    if code != ErrorCode.NONE:
        raise refusal(what, code)


def refusal(what: str, code: int) -> AnswerError:
    """Return the error of a code, by whether it may pass."""
    return RetryError(what, code) if code in RETRIABLE else RefusedError(what, code)
