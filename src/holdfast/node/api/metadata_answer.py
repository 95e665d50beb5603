"""An answer to Metadata that tells of all topics, put together of pieces. Not an API.

Owns how a piece is cut out of what the table's own encoder writes, and how pieces are joined. They
are made a few in each turn of the loop: ten thousand partitions at once would hold up everybody.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from holdfast.core.metadata.image import Partition, Topic
from holdfast.node.broker.topic_pieces import CHUNK, WHOLE, Pieces, chunks_of
from holdfast.wire.codec import encode
from holdfast.wire.messages.metadata import MetadataResponse, MetadataResponseTopic
from holdfast.wire.primitives import uvarint

FLEXIBLE: Final = MetadataResponse.FLEXIBLE
BYTES_A_TURN: Final = 4 * 1024  # some 100 partitions, two milliseconds

# A topic with some of its partitions.
Describe = Callable[[Topic, Sequence[Partition]], MetadataResponseTopic]


class Maker:
    """Of one view: a version, for the clients of a listener."""

    def __init__(self, pieces: Pieces, version: int, describe: Describe) -> None:
        self._pieces = pieces
        self._version = version
        self._describe = describe
        self._nothing = encode(MetadataResponse(), version)
        # What stands behind the topics in an answer, and behind the partitions in a topic.
        is_flexible = version >= FLEXIBLE
        self._tail = 4 * (8 <= version <= 10) + 2 * (version >= 13) + is_flexible
        self._topic_tail = 4 * (version >= 8) + is_flexible

    def fill(self, topics: Iterable[Topic], done: Callable[[], None]) -> None:
        """Make what is missing, in as many turns as it takes; at once when it is little."""
        missing = (
            (topic, chunk)
            for topic in topics
            for chunk in _chunks(topic)
            if (topic.topic_id, chunk) not in self._pieces
        )

        def go_on() -> None:
            made = 0
            for topic, chunk in missing:
                made += len(self._piece(topic, chunk))
                if made >= BYTES_A_TURN:
                    asyncio.get_running_loop().call_soon(go_on)
                    return
            done()

        go_on()

    def join(self, answer: MetadataResponse, topics: Sequence[Topic]) -> bytes:
        """Return the whole answer, with all partitions of these topics."""
        head = encode(answer, self._version)
        at = len(head) - self._tail
        parts = [head[: at - len(self._count(0))], self._count(len(topics))]
        for topic in topics:
            whole = self._pieces.get((topic.topic_id, WHOLE))
            if whole is not None:
                parts.append(whole)
                continue
            pieces = [self._piece(topic, chunk) for chunk in _chunks(topic)]
            if len(pieces) == 1:
                parts += pieces
                continue
            empty = self._topic(topic, ())
            end = len(empty) - self._topic_tail
            parts += (empty[: end - len(self._count(0))], self._count(len(topic.partitions)))
            parts += (*pieces, empty[end:])
        parts.append(head[at:])
        return b"".join(parts)

    def _piece(self, topic: Topic, chunk: int) -> bytes:
        key = topic.topic_id, chunk
        piece = self._pieces.get(key)
        if piece is None:
            piece = self._pieces[key] = (
                self._topic(topic, topic.partitions)
                if chunk == WHOLE
                else self._chunk(topic, topic.partitions[chunk * CHUNK : (chunk + 1) * CHUNK])
            )
        return piece

    def _chunk(self, topic: Topic, some: Sequence[Partition]) -> bytes:
        empty, whole = self._topic(topic, ()), self._topic(topic, some)
        begin = len(empty) - self._topic_tail - len(self._count(0)) + len(self._count(len(some)))
        return whole[begin : len(whole) - self._topic_tail]

    def _topic(self, topic: Topic, partitions: Sequence[Partition]) -> bytes:
        """Return a topic as it stands in an answer, with these partitions."""
        told = MetadataResponse(topics=[self._describe(topic, partitions)])
        whole = encode(told, self._version)
        begin = len(self._nothing) - self._tail - len(self._count(0)) + len(self._count(1))
        return whole[begin : len(whole) - self._tail]

    def _count(self, count: int) -> bytes:
        """How an array of so many begins."""
        return uvarint(count + 1) if self._version >= FLEXIBLE else count.to_bytes(4, "big")


def _chunks(topic: Topic) -> Sequence[int]:
    """What pieces a topic has: a small one is one, with its name and all."""
    return chunks_of(topic) if len(topic.partitions) > CHUNK else (WHOLE,)
