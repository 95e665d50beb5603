"""A cluster in the place of a driver's: it answers as it is told to, and notes what it was asked.

Owns no socket: who asks through it gets what real nodes would have answered.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast.clients.blocking_driver import UnreachableError, UnsupportedError
from holdfast.wire.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from holdfast.wire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from holdfast.wire.schema import Request

Answer = Callable[[int, Any], Any]


class ScriptedPeer:
    """One node of it."""

    def __init__(self, cluster: Scripted, node: int) -> None:
        self.name = f"node {node}"
        self._cluster = cluster
        self._node = node

    def version_of(self, message: Request | type[Request]) -> int:
        cls = message if isinstance(message, type) else type(message)
        if cls not in self._cluster.answers:
            raise UnsupportedError(f"{self.name}: {cls.__name__}: the peer does not serve it")
        return self._cluster.versions.get(cls, cls.MAX_VERSION)

    def send(self, message: Request, *, version: int | None = None, **_: object) -> Any:
        assert (self.version_of(message) if version is None else version) >= 0
        self._cluster.asked.append((self._node, message))
        return self._cluster.answers[type(message)](self._node, message)


class Scripted:
    """The cluster. `leaders`: its partitions; `coordinator`: that of all groups."""

    def __init__(self) -> None:
        self.answers: dict[type[Request], Answer] = {
            FindCoordinatorRequest: self._find,
            MetadataRequest: lambda node, request: self._describe(
                node, request.topics and [topic.name for topic in request.topics]
            ),
        }
        self.versions: dict[type[Request], int] = {}
        self.asked: list[tuple[int, Any]] = []
        self.leaders: dict[tuple[str, int], int] = {}
        self.coordinator = 0
        self.alive = {0, 1, 2}

    def peer(self, node: int | None = None) -> ScriptedPeer:
        if node is not None and node not in self.alive:
            raise UnreachableError(f"can't connect to node {node}")
        return ScriptedPeer(self, min(self.alive) if node is None else node)

    def send(self, message: Request, *, node: int | None = None, **more: Any) -> Any:
        return self.peer(node).send(message, **more)

    def metadata(self, topics: list[str] | None = None) -> MetadataResponse:
        return self._describe(0, topics)

    def nodes(self) -> dict[int, tuple[str, int]]:
        return {node: ("h", node) for node in sorted(self.alive)}

    def asked_for(self, cls: type[Request]) -> list[tuple[int, Any]]:
        """Whom this was asked of, and what, in order."""
        return [(node, message) for node, message in self.asked if isinstance(message, cls)]

    def _describe(self, _node: int, topics: Any) -> MetadataResponse:
        names = {topic for topic, _ in self.leaders} if topics is None else topics
        return MetadataResponse(
            brokers=[MetadataResponseBroker(node_id=node, host="h") for node in sorted(self.alive)],
            topics=[self._topic(name) for name in names],
        )

    def _topic(self, name: str) -> MetadataResponseTopic:
        partitions = [
            MetadataResponsePartition(partition_index=index, leader_id=leader, leader_epoch=3)
            for (topic, index), leader in self.leaders.items()
            if topic == name
        ]
        return MetadataResponseTopic(
            error_code=0 if partitions else 3, name=name, partitions=partitions
        )

    def _find(self, _node: int, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
        if self.versions.get(FindCoordinatorRequest, 6) < 4:
            return FindCoordinatorResponse(node_id=self.coordinator, host="h", port=9)
        return FindCoordinatorResponse(
            coordinators=[
                Coordinator(key=key, node_id=self.coordinator, host="h", port=9)
                for key in request.coordinator_keys
            ]
        )
