"""One side of the comparison: a cluster that steps are put to, and what it answered to each."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from compare.answers import NO_ANSWER, plain
from holdfast.clients.blocking_driver import Driver, DriverError, Peer
from holdfast.node.door.api_table import BROKER
from holdfast.wire.batch import Codec, Record, build_batch
from holdfast.wire.messages.create_topics import CreateTopicsRequest, new_topic
from holdfast.wire.messages.init_producer_id import InitProducerIdRequest
from holdfast.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from holdfast.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from holdfast.wire.schema import Request
from holdfast.wire.uuids import NULL_UUID

PATIENCE_S: Final = 30.0
BASE_MS: Final = 1_700_000_000_000  # of every timestamp that a step sends
LATEST: Final = -1
_PAUSE_S: Final = 0.05
NAMED_BY_ID_SINCE: Final = 13  # topics in Produce and in Fetch


class Side:
    """What a cluster of one broker answers. Steps are named, and each name is used once."""

    def __init__(self, address: str) -> None:
        self.driver = Driver(address, client_id="compare")
        (self.node,) = self.driver.nodes()
        self.answers: dict[str, dict[str, str]] = {}
        # Of topics by their ids, and of members of groups by theirs.
        self.names: dict[bytes | str, str] = {}
        self._free: list[Peer] = []
        producer = InitProducerIdRequest(transactional_id=None)
        self.until(
            lambda: not self.driver.send(producer, node=self.node).error_code,
            "ids of producers to be given out",
        )

    def ask(self, step: str, message: Request, *, version: int | None = None) -> Any:
        """Put one request and keep its answer under the step's name; None: it had no answer.

        Without a version it goes in the newest that we serve, to both; of Produce in the newest
        that names topics.
        """
        version = _version_of(message, version)
        return self._kept(
            step, version, lambda: self.driver.peer(self.node).send(message, version=version)
        )

    def begin(self, step: str, message: Request, *, version: int | None = None) -> Waiting:
        """Put a request whose answer will take its time, on a connection of its own."""
        version = _version_of(message, version)
        peer = self._free.pop() if self._free else self._connect()
        peer.post(message, version=version)

        def take() -> Any:
            answer = self._kept(step, version, peer.take)
            if peer.is_open:
                self._free.append(peer)
            return answer

        return Waiting(take)

    def _connect(self) -> Peer:
        return Peer(*self.driver.nodes()[self.node], client_id="compare", timeout_s=PATIENCE_S)

    def _kept(self, step: str, version: int, answered: Callable[[], Any]) -> Any:
        assert step not in self.answers, f"two steps are named {step!r}"
        try:
            answer = answered()
        except DriverError as error:
            self.answers[step] = {NO_ANSWER: f"none: {type(error).__name__}"}
            return None
        self.answers[step] = plain(answer, version, self.names)
        return answer

    def ask_in_each(
        self,
        step: str,
        message: Request | Callable[[int], Request],
        *,
        since: int = 0,
        until: int = 99,
    ) -> None:
        """Ask in each version that ours knows; `message` may be made for each."""
        kind = message if isinstance(message, Request) else message(max(since, 4))
        for version in range(max(kind.MIN_VERSION, since), min(kind.MAX_VERSION, until) + 1):
            made = message if isinstance(message, Request) else message(version)
            self.ask(f"{step} v{version}", made, version=version)

    def create(
        self, name: str, partitions: int = 1, *, configs: Mapping[str, str] | None = None
    ) -> bytes:
        """Make a topic that steps need, and wait until it is served; its id.

        One that is refused is answered with the null id: the steps that follow show it.
        """
        topic = new_topic(name, partitions, 1, None, configs)
        answer = self.driver.send(CreateTopicsRequest(topics=[topic]), node=self.node)
        return NULL_UUID if answer.topics[0].error_code else self.wait_for(name, partitions)

    def wait_for(self, name: str, partitions: int = 1) -> bytes:
        """Wait until each partition of a topic is led and serves, and remember its id."""
        asked = [
            ListOffsetsPartition(partition_index=partition, timestamp=LATEST)
            for partition in range(partitions)
        ]
        request = ListOffsetsRequest(topics=[ListOffsetsTopic(name=name, partitions=asked)])
        self.until(
            lambda: (
                not any(
                    partition.error_code
                    for topic in self.driver.send(request, node=self.node).topics
                    for partition in topic.partitions
                )
            ),
            f"{name} to be served",
        )
        topic_id = self.driver.topic_id(name)
        self.names[topic_id] = name
        return topic_id

    def produce(
        self, topic: str, *records: tuple[bytes | None, bytes | None], **batch: Any
    ) -> None:
        """Append one batch that steps need."""
        self.ask(
            f"(prepare) append {len(self.answers)}",
            self.produce_request(topic, made_batch(*records, **batch)),
            version=9,
        )

    def produce_request(
        self,
        topic: str,
        batch: bytes | bytearray | None,
        *,
        partition: int = 0,
        acks: int = -1,
        version: int = 9,
    ) -> ProduceRequest:
        """Return a request that appends a batch to one partition."""
        by_id = version >= NAMED_BY_ID_SINCE
        return ProduceRequest(
            acks=acks,
            timeout_ms=5000,
            topic_data=[
                TopicProduceData(
                    name=topic,
                    topic_id=self.driver.topic_id(topic) if by_id else bytes(16),
                    partition_data=[
                        PartitionProduceData(
                            index=partition, records=None if batch is None else bytes(batch)
                        )
                    ],
                )
            ],
        )

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for a condition. TimeoutError: it did not come."""
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            if time.monotonic() > deadline:
                raise TimeoutError(f"waited {PATIENCE_S:.0f} s for {what}")
            time.sleep(_PAUSE_S)


def _version_of(message: Request, version: int | None) -> int:
    if version is None:
        version = BROKER[message.KEY].versions[1]
        if message.KEY == ProduceRequest.KEY:
            version = min(version, NAMED_BY_ID_SINCE - 1)
    return version


class Waiting(NamedTuple):
    """A request that was put, and whose answer has not been looked at."""

    take: Callable[[], Any]
    """Wait for the answer, and keep it under the step's name. None: there was none."""


def made_batch(
    *records: tuple[bytes | None, bytes | None],
    codec: Codec = Codec.NONE,
    since_ms: int = 0,
    **batch: Any,
) -> bytearray:
    """Return a batch of (key, value) pairs, a millisecond from one to the next."""
    return build_batch(
        [
            Record(timestamp=BASE_MS + since_ms + number, key=key, value=value)
            for number, (key, value) in enumerate(records)
        ],
        codec=codec,
        **batch,
    )
