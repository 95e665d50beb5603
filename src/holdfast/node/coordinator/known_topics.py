"""The topics of the cluster as groups see them: a view of the image, which changes under it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from holdfast.core.metadata.image import MetadataImage, Topic


class ImageTopic(NamedTuple):
    """One topic, and the image that knows where its replicas are."""

    image: MetadataImage
    topic: Topic

    @property
    def name(self) -> str:
        return self.topic.name

    @property
    def topic_id(self) -> bytes:
        return self.topic.topic_id

    @property
    def partition_count(self) -> int:
        return len(self.topic.partitions)

    def racks(self, index: int) -> Sequence[str]:
        """Return the racks that have a replica of a partition, in their order."""
        brokers = self.image.brokers
        racks = {
            brokers[node].rack for node in self.topic.partitions[index].replicas if node in brokers
        }
        return sorted(rack for rack in racks if rack is not None)


class ImageTopics:
    """All topics, at the version that the image has by now."""

    __slots__ = ("_image",)

    def __init__(self, image: MetadataImage) -> None:
        self._image = image

    @property
    def version(self) -> int:
        return self._image.offset

    def named(self, name: str) -> ImageTopic | None:
        topic = self._image.topics.get(name)
        return None if topic is None else ImageTopic(self._image, topic)

    def with_id(self, topic_id: bytes) -> ImageTopic | None:
        topic = self._image.topics_by_id.get(topic_id)
        return None if topic is None else ImageTopic(self._image, topic)
