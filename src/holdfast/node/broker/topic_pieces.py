"""Parts of answers about topics, encoded once and kept until what they tell of has changed.

Owns what is kept, and lets go of it as the image changes. What a piece looks like is the business
of the API that asks (`api/metadata_answer.py`).
"""

from __future__ import annotations

from typing import Final, TypeAlias

from holdfast.core.metadata.image import ImageDelta, Topic

CHUNK: Final = 100  # partitions of a topic that are one piece
WHOLE: Final = -1  # in place of a chunk's number: a topic that has no more than one
VIEWS_MAX: Final = 6  # versions and listeners that pieces are kept for

Pieces: TypeAlias = dict[tuple[bytes, int], bytes]
"""By topic and number of the chunk."""


class TopicPieces:
    """Of one broker."""

    def __init__(self) -> None:
        self._views: dict[tuple[str, int], Pieces] = {}

    def view(self, listener: str, version: int) -> Pieces:
        """Return the pieces of one version as clients of one listener see them."""
        key = listener, version
        found = self._views.pop(key, None)
        if found is None:
            found = {}
            while len(self._views) >= VIEWS_MAX:
                del self._views[next(iter(self._views))]
        self._views[key] = found  # the last one used goes last
        return found

    def changed(self, delta: ImageDelta) -> None:
        """Let go of what is not so any more."""
        if delta.brokers_changed:  # who can be reached stands in every piece
            self._views.clear()
            return
        gone = {(topic_id, index // CHUNK) for topic_id, index in delta.partitions_changed}
        gone.update([(topic_id, WHOLE) for topic_id, _ in delta.partitions_changed])
        for topic in delta.topics_deleted:
            gone.update((topic.topic_id, chunk) for chunk in (WHOLE, *chunks_of(topic)))
        for pieces in self._views.values():
            for key in gone:
                pieces.pop(key, None)


def chunks_of(topic: Topic) -> range:
    """Numbers of a topic's chunks."""
    return range(-(-len(topic.partitions) // CHUNK))
