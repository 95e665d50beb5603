"""What the controller decides from, and the shape of what it decides.

Owns the controller's image, which runs ahead of the committed one up to the end of its log, and
what it knows of brokers beyond the log: when each was last heard and how far it has read. A
decision is the records to append and the answer to give once they are committed
(docs/design/control-plane.md). Nothing here appends or waits.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Final

from holdfast.config.node import NodeSettings
from holdfast.core.metadata.feature_levels import MIN_INSYNC
from holdfast.core.metadata.image import ImageDelta, MetadataImage, MetadataRecord, Partition
from holdfast.wire.structs import ResourceType
from holdfast.wire.well_known import ELIGIBLE_LEADER_REPLICAS

# Partitions that one decision of the controller's own changes. A controller that stands still while
# it decides on thousands loses its quorum, and the next one has the same to decide.
CHANGES_MAX: Final = 500
RECORDS_PER_REQUEST_MAX: Final = 10_000  # as Kafka's, for requests that make records

UNCLEAN_ELECTION: Final = "unclean.leader.election.enable"


@dataclass(slots=True)
class Decision:
    """Records to append, and the answer that may leave once they are committed."""

    response: Any
    records: list[MetadataRecord] = field(default_factory=list)


@dataclass(slots=True)
class Presence:
    """What the controller knows of a broker beyond the log; it is lost with the controller."""

    epoch: int  # the broker epoch it was heard with
    heard_ms: int
    metadata_offset: int = -1  # the last offset it says it has applied
    shutdown_offset: int = -1  # the log's end when its controlled shutdown began; -1: none
    departing: bool = False  # it shuts down, and not all of its partitions were taken from it yet
    left: bool = False  # it was told to shut down: its next incarnation need not wait


class ControllerState:
    """The controller's memory. `core` functions decide on it; applying a decision changes it."""

    __slots__ = ("cluster_id", "image", "leaderless", "node_id", "presences", "settings")

    def __init__(self, settings: NodeSettings, cluster_id: str) -> None:
        self.settings = settings
        self.cluster_id = cluster_id
        self.node_id = settings.node_id
        self.image = MetadataImage()
        self.presences: dict[int, Presence] = {}
        # True: a broker has come, and there may be more partitions that could have a leader now.
        self.leaderless = False

    @property
    def is_unfinished(self) -> bool:
        """Whether something that was begun goes on with the next decision."""
        return self.leaderless or any(each.departing for each in self.presences.values())

    @property
    def next_offset(self) -> int:
        """Where the next record will stand: the image is applied up to the log's end."""
        return self.image.offset + 1

    def apply(
        self, records: Iterable[MetadataRecord], *, offset: int = -1, epoch: int = -1
    ) -> ImageDelta:
        """Take over records that were appended (or replayed)."""
        return self.image.apply(records, offset=offset, epoch=epoch)

    def activate(self, now_ms: int) -> None:
        """Begin to decide: every broker that the log says is alive gets one whole session."""
        self.presences = {
            node: Presence(self.image.brokers[node].epoch, now_ms)
            for node in sorted(self.image.brokers)
            if not self.image.brokers[node].fenced
        }
        self.leaderless = True  # an earlier controller may have ended in the middle of it

    def presence(self, broker_id: int) -> Presence | None:
        """What is known of the registered incarnation; None when only an older one was heard."""
        broker = self.image.brokers.get(broker_id)
        presence = self.presences.get(broker_id)
        if broker is None or presence is None or presence.epoch != broker.epoch:
            return None
        return presence

    def session_lives(self, broker_id: int, now_ms: int) -> bool:
        """Whether the registered incarnation was heard within the session time-out."""
        presence = self.presence(broker_id)
        if presence is None or presence.left:
            return False
        return now_ms - presence.heard_ms <= self.settings.broker_session_timeout_ms

    def unclean_allowed(self, topic: str) -> bool:
        """Whether a replica outside the ISR may lead this topic's partitions.

        Strongest first: the topic's own, this controller's dynamic one, the dynamic default of the
        cluster, the properties file. Rules: elections.md#unclean-election.
        """
        value = self._dynamic(topic, UNCLEAN_ELECTION)
        if value is not None:
            return value.strip().lower() == "true"
        return self.settings.unclean_leader_election_enable

    @property
    def elr_enabled(self) -> bool:
        """Whether this cluster keeps eligible leader replicas.

        Rules: elections.md#eligible-leader-replicas.
        """
        return self.image.features.get(ELIGIBLE_LEADER_REPLICAS, 0) > 0

    def min_insync(self, topic: str) -> int:
        """min.insync.replicas of a topic; with eligible leader replicas all nodes agree on it."""
        value = self._dynamic(topic, MIN_INSYNC)
        return int(value) if value is not None else self.settings.min_insync_replicas

    def _dynamic(self, topic: str, name: str) -> str | None:
        configs = self.image.configs
        for resource in (
            (ResourceType.TOPIC, topic),
            (ResourceType.BROKER, str(self.node_id)),
            (ResourceType.BROKER, ""),
        ):
            source = configs.get(resource)
            if source is not None and name in source:
                return source[name]
        return None

    def may_lead(self, partition: Partition, broker_id: int) -> bool:
        """Whether a replica's broker is active and the disk it lies on is there (KIP-858)."""
        broker = self.image.brokers.get(broker_id)
        return (
            broker is not None
            and broker.active
            and broker.has_directory(partition.directory_of(broker_id))
        )

    def rehearse(self, records: Iterable[MetadataRecord]) -> ControllerState:
        """A copy in which configuration records have been applied; what hangs in it is shared."""
        copy = ControllerState(self.settings, self.cluster_id)
        copy.presences = self.presences
        copy.image = replace(
            self.image, configs={key: dict(value) for key, value in self.image.configs.items()}
        )
        copy.image.apply(records)
        return copy
