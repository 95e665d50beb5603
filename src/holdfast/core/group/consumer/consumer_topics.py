"""What groups of the consumer protocol know of topics, and how they notice that one has changed.

A group keeps one hash over all topics that it subscribes to: names, ids, numbers of partitions and
racks. Another hash means another group epoch, and so a new assignment. Nobody else's topics count:
an index says which groups subscribe to a topic, so that a change reaches those and no others.

The hash is opaque: only a coordinator compares it, with one of its own. So it need not be the one
that Apache Kafka computes; a group that was Kafka's gets one new epoch.

Rules: consumer-groups.md#metadata-hash.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import blake2b
from struct import Struct as Layout
from typing import Final, Protocol

NO_TOPICS_HASH: Final = 0
"""The hash of a group whose topics are all not there, as in Kafka."""

_HASH_BYTES: Final = 8
_INT64: Final = Layout(">q")
_INT32: Final = Layout(">i")


class KnownTopic(Protocol):
    """One topic that exists."""

    @property
    def name(self) -> str: ...

    @property
    def topic_id(self) -> bytes: ...

    @property
    def partition_count(self) -> int: ...

    def racks(self, index: int) -> Sequence[str]:
        """Return the racks that have a replica of a partition, always in the same order."""


class KnownTopics(Protocol):
    """All topics, at one version of the metadata. Versions grow."""

    @property
    def version(self) -> int: ...

    def named(self, name: str) -> KnownTopic | None: ...

    def with_id(self, topic_id: bytes) -> KnownTopic | None: ...


class TopicIndex:
    """Which groups of a shard subscribe to which topics, and the hashes of those topics."""

    __slots__ = ("_groups", "_hashes")

    def __init__(self) -> None:
        self._groups: dict[str, dict[str, None]] = {}
        self._hashes: dict[str, int] = {}

    def subscribe(self, group_id: str, name: str) -> None:
        self._groups.setdefault(name, {})[group_id] = None

    def unsubscribe(self, group_id: str, name: str) -> None:
        groups = self._groups[name]
        del groups[group_id]
        if not groups:
            del self._groups[name]
            self._hashes.pop(name, None)

    def changed(self, names: Iterable[str]) -> list[str]:
        """Note that topics have changed, come or gone. Return the groups that this concerns."""
        concerned: dict[str, None] = {}
        if not self._groups:  # thousands may come at once, and each shard is told
            return []
        for name in names:
            self._hashes.pop(name, None)
            concerned.update(self._groups.get(name, {}))
        return list(concerned)

    def hash_of(self, names: Iterable[str], topics: KnownTopics) -> int:
        """Return the hash of these topics. One that isn't there is left out."""
        known = [
            (name, topic_hash)
            for name in sorted(names)
            if (topic_hash := self._hash(name, topics)) is not None
        ]
        if not known:
            return NO_TOPICS_HASH
        digest = blake2b(digest_size=_HASH_BYTES)
        for name, topic_hash in known:
            _put(digest, name)
            digest.update(_INT64.pack(topic_hash))
        return _number(digest)

    def _hash(self, name: str, topics: KnownTopics) -> int | None:
        remembered = self._hashes.get(name)
        if remembered is None:
            topic = topics.named(name)
            if topic is None:
                return None
            remembered = _topic_hash(topic)
            if name in self._groups:  # others are not heard of again
                self._hashes[name] = remembered
        return remembered


def _topic_hash(topic: KnownTopic) -> int:
    digest = blake2b(digest_size=_HASH_BYTES)
    digest.update(topic.topic_id)
    _put(digest, topic.name)
    digest.update(_INT32.pack(topic.partition_count))
    for index in range(topic.partition_count):
        racks = topic.racks(index)
        digest.update(_INT32.pack(len(racks)))
        for rack in racks:
            _put(digest, rack)
    return _number(digest)


def _put(digest: blake2b, text: str) -> None:
    """Add a text with its length, so that two of them are not taken for one."""
    data = text.encode()
    digest.update(_INT32.pack(len(data)))
    digest.update(data)


def _number(digest: blake2b) -> int:
    number: int = _INT64.unpack(digest.digest())[0]
    return number
