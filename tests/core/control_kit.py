"""A cluster that exists only as the controller's state: decisions are applied, time is a number.

Every record makes the trip through its bytes before it is applied, so that nothing is decided that
the metadata log could not carry.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from holdfast.config.node import NodeSettings
from holdfast.core.controller.broker_sessions import expire_sessions, heartbeat, register
from holdfast.core.controller.decisions import ControllerState, Decision
from holdfast.core.controller.isr_changes import alter_partition
from holdfast.core.controller.topic_changes import create_topics
from holdfast.core.metadata.feature_levels import BOOTSTRAP, SUPPORTED, bootstrap_records
from holdfast.core.metadata.image import ImageDelta, Partition
from holdfast.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
    RequestPartitionData,
    RequestTopicData,
)
from holdfast.wire.messages.broker_heartbeat import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
)
from holdfast.wire.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)
from holdfast.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from holdfast.wire.records import decode_record, encode_record
from holdfast.wire.structs import ConfigValue, RegisteredEndpoint, RegisteredFeature
from holdfast.wire.well_known import ELIGIBLE_LEADER_REPLICAS

CLUSTER_ID = "S6zsVBQdQz6WrYmHb7WaQQ"
CONTROLLER_ID = 100
SESSION_MS = 3000
BEAT_MS = 500


def identity(number: int, salt: int = 0) -> bytes:
    """A UUID that says what it is for."""
    return bytes([salt]) + number.to_bytes(15, "big")


class Counted(str):
    """A name that counts how often one was held against another."""

    __slots__ = ()
    compared = 0

    def __eq__(self, other: object) -> bool:
        Counted.compared += 1
        return str.__eq__(self, other) is True

    __hash__ = str.__hash__


class Cluster:
    """The controller's state and the brokers that talk to it."""

    def __init__(self, *, elr: bool = False, **settings: Any) -> None:
        """`elr`: the cluster keeps eligible leader replicas."""
        values = {
            "node_id": CONTROLLER_ID,
            "broker_session_timeout_ms": SESSION_MS,
            "broker_heartbeat_interval_ms": BEAT_MS,
        }
        self.state = ControllerState(NodeSettings(**(values | settings)), CLUSTER_ID)
        self.now_ms = 1_000_000
        self.incarnations: dict[int, int] = {}
        self.alive: dict[int, None] = {}
        self.clean: dict[int, int] = {}  # broker -> epoch of a clean shutdown, for who wants it
        self.deltas: list[ImageDelta] = []
        self.topics_made = 0
        levels = {**BOOTSTRAP, ELIGIBLE_LEADER_REPLICAS: int(elr)}
        self.apply(
            Decision(None, bootstrap_records(self.state.settings.min_insync_replicas, levels))
        )
        self.state.activate(self.now_ms)

    # -- applying ------------------------------------------------------------------------------

    def decide(self, decide: Callable[..., Decision], *arguments: Any, **keywords: Any) -> Any:
        """Decide and apply; return the response."""
        return self.apply(decide(self.state, *arguments, **keywords))

    def apply(self, decision: Decision) -> Any:
        if decision.records:
            records = [decode_record(encode_record(record)) for record in decision.records]
            last = self.state.image.offset + len(records)
            self.deltas.append(self.state.apply(records, offset=last, epoch=1))
        return decision.response

    # -- brokers -------------------------------------------------------------------------------

    def registration(self, broker_id: int, **changes: Any) -> BrokerRegistrationRequest:
        """A request as the broker would send it, or with a lie in it."""
        values: dict[str, Any] = {
            "broker_id": broker_id,
            "cluster_id": CLUSTER_ID,
            "incarnation_id": identity(broker_id, self.incarnations.get(broker_id, 1)),
            "listeners": [
                RegisteredEndpoint(name="PLAINTEXT", host="127.0.0.1", port=9092 + broker_id)
            ],
            "features": [
                RegisteredFeature(name=name, min_supported_version=low, max_supported_version=high)
                for name, (low, high) in SUPPORTED.items()
            ],
            "rack": None,
            "log_dirs": [identity(broker_id, 0xD0)],
            "previous_broker_epoch": -1,
        }
        return BrokerRegistrationRequest(**(values | changes))

    def register(self, broker_id: int, **changes: Any) -> BrokerRegistrationResponse:
        response: BrokerRegistrationResponse = self.decide(
            register, self.registration(broker_id, **changes), self.now_ms
        )
        return response

    def beat(self, broker_id: int, **changes: Any) -> BrokerHeartbeatResponse:
        values = {
            "broker_id": broker_id,
            "broker_epoch": self.epoch(broker_id),
            "current_metadata_offset": self.state.image.offset,
        }
        response: BrokerHeartbeatResponse = self.decide(
            heartbeat, BrokerHeartbeatRequest(**(values | changes)), self.now_ms
        )
        return response

    def start(self, *broker_ids: int, racks: Sequence[str | None] = ()) -> Cluster:
        """Register and unfence."""
        for position, broker_id in enumerate(broker_ids):
            self.incarnations[broker_id] = self.incarnations.get(broker_id, 0) + 1
            rack = racks[position] if racks else None
            response = self.register(broker_id, rack=rack)
            assert response.error_code == 0, response
            assert not self.beat(broker_id).is_fenced
            self.alive[broker_id] = None
        return self

    def epoch(self, broker_id: int) -> int:
        broker = self.state.image.brokers.get(broker_id)
        return -1 if broker is None else broker.epoch

    def die(self, broker_id: int) -> None:
        """SIGKILL: no word any more."""
        del self.alive[broker_id]

    def advance(self, milliseconds: int) -> None:
        """Let time pass, in beats: who is alive is heard, whose session is over is fenced."""
        until = self.now_ms + milliseconds
        while self.now_ms < until:
            self.now_ms = min(until, self.now_ms + BEAT_MS)
            for broker_id in self.alive:
                self.beat(broker_id)
            self.sweep()

    def sweep(self) -> None:
        while (decision := expire_sessions(self.state, self.now_ms)).records:
            self.apply(decision)

    # -- topics --------------------------------------------------------------------------------

    def create(self, name: str, *replicas: Sequence[int], **configs: str) -> None:
        """A topic with replicas by hand; configuration keys with underscores for dots."""
        response = self.create_by_request(
            CreatableTopic(
                name=name,
                num_partitions=-1,
                replication_factor=-1,
                assignments=[
                    CreatableReplicaAssignment(partition_index=index, broker_ids=list(brokers))
                    for index, brokers in enumerate(replicas)
                ],
                configs=[
                    ConfigValue(name=key.replace("_", "."), value=value)
                    for key, value in configs.items()
                ],
            )
        )
        assert response.topics[0].error_code == 0, response

    def create_by_request(
        self, *topics: CreatableTopic, validate_only: bool = False
    ) -> CreateTopicsResponse:
        ids = []
        for _ in topics:
            self.topics_made += 1
            ids.append(identity(self.topics_made, 0xA0))
        request = CreateTopicsRequest(topics=list(topics), validate_only=validate_only)
        response: CreateTopicsResponse = self.decide(
            create_topics, request, topic_ids=ids, seeds=list(range(len(topics)))
        )
        return response

    def partition(self, name: str, index: int = 0) -> Partition:
        found = self.state.image.partition(name, index)
        assert found is not None, f"no partition {name}-{index}"
        return found

    def alter(
        self, requester: int, name: str, index: int, isr: Sequence[int], **changes: Any
    ) -> AlterPartitionResponse:
        """AlterPartition as a leader that knows everything would send it, or with a lie in it."""
        partition = self.partition(name, index)
        epochs = changes.pop("broker_epochs", {})
        values: dict[str, Any] = {
            "partition_index": index,
            "leader_epoch": partition.leader_epoch,
            "partition_epoch": partition.partition_epoch,
            "leader_recovery_state": int(partition.recovery_state),
            "new_isr_with_epochs": [
                BrokerState(broker_id=node, broker_epoch=epochs.get(node, self.epoch(node)))
                for node in isr
            ],
        }
        topic_id = changes.pop("topic_id", partition.topic_id)
        request = AlterPartitionRequest(
            broker_id=requester,
            broker_epoch=changes.pop("broker_epoch", self.epoch(requester)),
            topics=[
                RequestTopicData(
                    topic_id=topic_id, partitions=[RequestPartitionData(**(values | changes))]
                )
            ],
        )
        response: AlterPartitionResponse = self.decide(alter_partition, request)
        return response
