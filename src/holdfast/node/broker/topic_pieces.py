"""Parts of answers about topics, encoded once and kept until what they tell of has changed.

Owns what is kept, and lets go of it as the image changes. What a piece looks like is the business
of the API that asks (`api/metadata_answer.py`).
"""

from __future__ import annotations

from typing import Final, TypeAlias
from weakref import WeakValueDictionary

from holdfast.core.metadata.image import ImageDelta, Topic

CHUNK: Final = 100  # partitions of a topic that are one piece
WHOLE: Final = -1  # in place of a chunk's number: a topic that has no more than one
VIEWS_MAX: Final = 6  # versions and listeners that pieces are kept for, besides those in use

PieceKey: TypeAlias = tuple[bytes, int]  # topic id, number of the chunk


class Pieces(dict[PieceKey, bytes]):
    """Of one view."""

    __slots__ = ("__weakref__",)


class TopicPieces:
    """Of one broker."""

    def __init__(self) -> None:
        self._views: dict[tuple[str, int], Pieces] = {}
        # And those of answers that are being made, or many versions asked for at once would take
        # each other's pieces away, and each answer be made anew in one go.
        self._used: WeakValueDictionary[tuple[str, int], Pieces] = WeakValueDictionary()

    def view(self, listener: str, version: int) -> Pieces:
        """Return the pieces of one version as clients of one listener see them.

        They are kept true for as long as somebody holds them, or until brokers change: then those
        who go on have to ask for them again.
        """
        key = listener, version
        found = self._used.get(key)
        if found is None:
            found = self._used[key] = Pieces()
        self._views.pop(key, None)
        self._views[key] = found  # the last one used goes last
        while len(self._views) > VIEWS_MAX:
            del self._views[next(iter(self._views))]
        return found

    def changed(self, delta: ImageDelta) -> None:
        """Let go of what is not so any more."""
        if delta.brokers_changed:  # who can be reached stands in every piece
            self._views.clear()
            self._used.clear()
            return
        gone = {(topic_id, index // CHUNK) for topic_id, index in delta.partitions_changed}
        gone.update([(topic_id, WHOLE) for topic_id, _ in delta.partitions_changed])
        for topic in delta.topics_deleted:
            gone.update((topic.topic_id, chunk) for chunk in (WHOLE, *chunks_of(topic)))
        for pieces in self._used.values():
            for key in gone:
                pieces.pop(key, None)


def chunks_of(topic: Topic) -> range:
    """Numbers of a topic's chunks."""
    return range(-(-len(topic.partitions) // CHUNK))
