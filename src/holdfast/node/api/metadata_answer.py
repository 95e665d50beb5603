"""An answer to Metadata, put together of pieces. Not an API.

Owns how a piece is cut out of what the table's own encoder writes, and how pieces are joined. They
are made a few in each turn of the loop: ten thousand partitions at once would hold up everybody.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, TypeAlias

from holdfast.core.metadata.image import Partition, Topic
from holdfast.node.broker.topic_pieces import CHUNK, WHOLE, Pieces, chunks_of
from holdfast.wire.codec import encode
from holdfast.wire.messages.metadata import MetadataResponse, MetadataResponseTopic
from holdfast.wire.primitives import uvarint

FLEXIBLE: Final = MetadataResponse.FLEXIBLE


# A topic, or what is said of what is none.
Entry: TypeAlias = Topic | MetadataResponseTopic
# A topic with some of its partitions.
Describe = Callable[[Topic, Sequence[Partition]], MetadataResponseTopic]


class Operations:
    """What whoever asks may do with each topic: in no piece, for it is theirs alone.

    From version 8 on there is a place for it.
    """

    EFFORT: Final = 64  # to find out of one topic, as if so many bytes were made

    def __init__(self, operations: Callable[[Topic], int]) -> None:
        self._operations = operations
        self._known: dict[bytes, bytes] = {}

    def knows(self, topic: Topic) -> bool:
        """Whether that was found out already."""
        return topic.topic_id in self._known

    def of(self, topic: Topic) -> bytes:
        """Return it as it stands in an answer."""
        known = self._known.get(topic.topic_id)
        if known is None:
            known = self._operations(topic).to_bytes(4, "big", signed=True)
            self._known[topic.topic_id] = known
        return known


class Maker:
    """Of one view: a version, for the clients of a listener."""

    def __init__(
        self,
        pieces: Pieces,
        version: int,
        describe: Describe,
        find: Callable[[bytes], Topic | None],
        operations: Operations | None = None,
    ) -> None:
        """`find` a topic by its id as it is now; `operations` are told of each, if asked for."""
        self._pieces = pieces
        self._find = find
        self._version = version
        self._describe = describe
        self._operations = operations
        self._nothing = encode(MetadataResponse(), version)
        # What stands behind the topics in an answer, and behind the partitions in a topic.
        is_flexible = version >= FLEXIBLE
        self._tail = 4 * (8 <= version <= 10) + 2 * (version >= 13) + is_flexible
        self._topic_tail = 4 * (version >= 8) + is_flexible

    def missing(self, topics: Iterable[Topic]) -> Iterator[int]:
        """Make what is missing, and yield the effort of each piece, in bytes.

        A topic may be deleted, or be another object by a snapshot, whenever others have their
        turn: a piece of it that was made then would never be let go of.
        """
        for topic in topics:
            if self._operations is not None and not self._operations.knows(topic):
                self._operations.of(topic)
                yield Operations.EFFORT
            for chunk in _chunks(topic):
                if self._find(topic.topic_id) is not topic:
                    break
                if (topic.topic_id, chunk) not in self._pieces:
                    yield len(self._piece(topic, chunk))

    def join(self, answer: MetadataResponse, entries: Sequence[Entry]) -> bytes:
        """Return the whole answer, with all partitions of each topic."""
        head = encode(answer, self._version)
        at = len(head) - self._tail
        parts: list[bytes] = [head[: at - len(self._count(0))], self._count(len(entries))]
        for each in entries:
            if isinstance(each, Topic):
                found = self._parts(each)
                parts += found if self._operations is None else self._allowed(each, found)
            else:
                parts.append(self._encoded(each))
        parts.append(head[at:])
        return b"".join(parts)

    def _parts(self, topic: Topic) -> Sequence[bytes]:
        whole = self._pieces.get((topic.topic_id, WHOLE))
        if whole is not None:
            return (whole,)
        pieces = [self._piece(topic, chunk) for chunk in _chunks(topic)]
        if len(pieces) == 1:
            return pieces
        empty = self._topic(topic, ())
        end = len(empty) - self._topic_tail
        count = self._count(len(topic.partitions))
        return (empty[: end - len(self._count(0))], count, *pieces, empty[end:])

    def _allowed(self, topic: Topic, parts: Sequence[bytes]) -> Sequence[bytes]:
        """Return a topic's parts, in the last of which stands what may be done with it."""
        assert self._operations is not None
        last = parts[-1]
        at = len(last) - self._topic_tail
        return (*parts[:-1], last[:at], self._operations.of(topic), last[at + 4 :])

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
        return self._encoded(self._describe(topic, partitions))

    def _encoded(self, told: MetadataResponseTopic) -> bytes:
        whole = encode(MetadataResponse(topics=[told]), self._version)
        begin = len(self._nothing) - self._tail - len(self._count(0)) + len(self._count(1))
        return whole[begin : len(whole) - self._tail]

    def _count(self, count: int) -> bytes:
        """How an array of so many begins."""
        return uvarint(count + 1) if self._version >= FLEXIBLE else count.to_bytes(4, "big")


def _chunks(topic: Topic) -> Sequence[int]:
    """What pieces a topic has: a small one is one, with its name and all."""
    return chunks_of(topic) if len(topic.partitions) > CHUNK else (WHOLE,)
