"""Brokers come, stay and go: registration, heartbeats, sessions, controlled shutdown.

Owns who is fenced and when. The clock comes in as a number. What a broker's coming
or going means for partitions is for `elections`.

Rules: brokers.md#registration, brokers.md#heartbeats, brokers.md#fencing,
brokers.md#controlled-shutdown.
"""

from __future__ import annotations

from typing import Final

from holdfast.core.controller.decisions import (
    CHANGES_MAX,
    ControllerState,
    Decision,
    Presence,
)
from holdfast.core.controller.elections import elect_leaderless, leave_all
from holdfast.core.controller.replica_directories import go_offline
from holdfast.core.metadata.image import Broker, MetadataRecord
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from holdfast.wire.messages.broker_heartbeat import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
)
from holdfast.wire.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)
from holdfast.wire.messages.unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)
from holdfast.wire.records.metadata import (
    BrokerRegistrationChangeRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)
from holdfast.wire.structs import RegisteredEndpoint, RegisteredFeature

PRODUCER_ID_BLOCK: Final = 1000
PRODUCER_ID_MAX: Final = 2**63 - 1

FENCE: Final = 1
UNFENCE: Final = -1


def register(state: ControllerState, request: BrokerRegistrationRequest, now_ms: int) -> Decision:
    """Admit one start of a broker. Its epoch is the offset of its registration record.

    Rules: brokers.md#registration, brokers.md#broker-epoch.
    """
    refusal = _refuse_registration(state, request, now_ms)
    if refusal is not ErrorCode.NONE:
        return Decision(BrokerRegistrationResponse(error_code=refusal))
    known = state.image.brokers.get(request.broker_id)
    again = known is not None and known.incarnation_id == bytes(request.incarnation_id)
    records: list[MetadataRecord] = []
    epoch = state.next_offset
    if known is not None and again:
        epoch = known.epoch  # its first answer was lost: nothing has happened to it meanwhile
    record = RegisterBrokerRecord(
        broker_id=request.broker_id,
        incarnation_id=bytes(request.incarnation_id),
        broker_epoch=epoch,
        end_points=[
            RegisteredEndpoint(
                name=listener.name,
                host=listener.host,
                port=listener.port,
                security_protocol=listener.security_protocol,
            )
            for listener in request.listeners
        ],
        features=[
            RegisteredFeature(
                name=feature.name,
                min_supported_version=feature.min_supported_version,
                max_supported_version=feature.max_supported_version,
            )
            for feature in request.features
        ],
        rack=request.rack,
        fenced=known.fenced if known is not None and again else True,
        in_controlled_shutdown=known.in_controlled_shutdown if known and again else False,
        log_dirs=[bytes(directory) for directory in request.log_dirs],
    )
    records.append(record)
    if not again:
        # A crash may be noticed by the next start before the session has run out. Who can't prove
        # that it stopped in good order may have lost what it had not synced (rules:
        # elections.md#proof-of-a-clean-stop).
        clean = known is not None and request.previous_broker_epoch == known.epoch
        records.extend(leave_all(state, request.broker_id, lost=state.elr_enabled and not clean))
    state.presences[request.broker_id] = Presence(epoch, now_ms)
    return Decision(BrokerRegistrationResponse(broker_epoch=epoch), records)


def _refuse_registration(
    state: ControllerState, request: BrokerRegistrationRequest, now_ms: int
) -> ErrorCode:
    if request.cluster_id != state.cluster_id:
        return ErrorCode.INCONSISTENT_CLUSTER_ID
    if request.is_migrating_zk_broker or request.broker_id < 0 or not request.listeners:
        return ErrorCode.INVALID_REGISTRATION
    known = state.image.brokers.get(request.broker_id)
    if (
        known is not None
        and known.incarnation_id != bytes(request.incarnation_id)
        and not known.in_controlled_shutdown
        and state.session_lives(request.broker_id, now_ms)
    ):
        return ErrorCode.DUPLICATE_BROKER_REGISTRATION
    supported = {
        feature.name: (feature.min_supported_version, feature.max_supported_version)
        for feature in request.features
    }
    for name, level in state.image.features.items():
        low, high = supported.get(name, (0, 0))
        if not low <= level <= high:
            return ErrorCode.UNSUPPORTED_VERSION
    taken = {
        directory
        for broker in state.image.brokers.values()
        if broker.broker_id != request.broker_id
        for directory in broker.directories
    }
    if any(bytes(directory) in taken for directory in request.log_dirs):
        return ErrorCode.INVALID_REGISTRATION  # a copied data directory
    return ErrorCode.NONE


def heartbeat(state: ControllerState, request: BrokerHeartbeatRequest, now_ms: int) -> Decision:
    """A broker is alive and says how far it has read and what it wants."""
    broker = state.image.brokers.get(request.broker_id)
    if broker is None:
        return Decision(BrokerHeartbeatResponse(error_code=ErrorCode.BROKER_ID_NOT_REGISTERED))
    if broker.epoch != request.broker_epoch:
        return Decision(BrokerHeartbeatResponse(error_code=ErrorCode.STALE_BROKER_EPOCH))
    presence = state.presence(broker.broker_id)
    if presence is None:
        presence = state.presences[broker.broker_id] = Presence(broker.epoch, now_ms)
    presence.heard_ms = now_ms
    presence.metadata_offset = max(presence.metadata_offset, request.current_metadata_offset)
    records = go_offline(state, broker, request.offline_log_dirs)
    fenced, leaves = broker.fenced, False
    if records:
        pass  # one thing at a time: what else it wants it says again
    elif broker.fenced:
        leaves = request.want_shut_down
        # Who was leaving has left: only a new registration brings it back.
        wants_in = not (leaves or request.want_fence or broker.in_controlled_shutdown)
        if wants_in and presence.metadata_offset >= broker.epoch:
            records, fenced = _unfence(state, broker), False
    elif request.want_fence:
        records, fenced, leaves = fence(state, broker), True, request.want_shut_down
    elif request.want_shut_down:
        records, leaves = _shut_down(state, broker, presence)
        fenced = leaves
    presence.left = leaves
    return Decision(
        BrokerHeartbeatResponse(
            is_caught_up=presence.metadata_offset >= broker.epoch,
            is_fenced=fenced,
            should_shut_down=leaves,
        ),
        records,
    )


def _unfence(state: ControllerState, broker: Broker) -> list[MetadataRecord]:
    elected = elect_leaderless(state, joining=broker.broker_id, changes_max=CHANGES_MAX)
    state.leaderless = len(elected) == CHANGES_MAX
    return [
        BrokerRegistrationChangeRecord(
            broker_id=broker.broker_id, broker_epoch=broker.epoch, fenced=UNFENCE
        ),
        *elected,
    ]


def fence(state: ControllerState, broker: Broker) -> list[MetadataRecord]:
    """Records that fence a broker; its partitions first lose it, as in Kafka's own log."""
    return [*leave_all(state, broker.broker_id), _fenced(broker)]


def _fenced(broker: Broker) -> MetadataRecord:
    return BrokerRegistrationChangeRecord(
        broker_id=broker.broker_id, broker_epoch=broker.epoch, fenced=FENCE
    )


def _shut_down(
    state: ControllerState, broker: Broker, presence: Presence
) -> tuple[list[MetadataRecord], bool]:
    """A broker asks to leave: move its partitions first, let it go once everybody knows.

    Until the others have read that it is out of their ISRs, their high watermarks wait for it.
    """
    if presence.shutdown_offset < 0:
        left = leave_all(state, broker.broker_id, changes_max=CHANGES_MAX)
        departures: list[MetadataRecord] = [
            BrokerRegistrationChangeRecord(
                broker_id=broker.broker_id, broker_epoch=broker.epoch, in_controlled_shutdown=1
            ),
            *left,
        ]
        if broker.in_controlled_shutdown:  # it began before, perhaps under an earlier controller
            del departures[0]
        presence.departing = len(left) == CHANGES_MAX
        if not presence.departing:
            presence.shutdown_offset = state.image.offset + len(departures)
        return departures, False
    if any(partition.leader == broker.broker_id for partition in state.image.partitions()):
        return list(leave_all(state, broker.broker_id)), False
    for other in state.image.active_brokers():
        known = state.presence(other.broker_id)
        if known is None or known.metadata_offset < presence.shutdown_offset:
            return [], False
    return fence(state, broker), True


def expire_sessions(state: ControllerState, now_ms: int) -> Decision:
    """Fence the broker whose session ran out first, if any has: one at a time.

    Of two that died at one instant, the one heard last therefore stays in the ISR. What it leads
    and is in sync with goes first, some partitions in each decision: a controller that stands still
    while it decides on thousands loses its quorum. Whoever is heard in the middle of it stays, and
    is let in again where it was put out.
    """
    expired = [
        (presence.heard_ms, broker_id)
        for broker_id, presence in state.presences.items()
        if not state.session_lives(broker_id, now_ms)
    ]
    records: list[MetadataRecord] = []
    for _, broker_id in sorted(expired):
        broker = state.image.brokers.get(broker_id)
        if broker is not None and not broker.fenced:
            records.extend(leave_all(state, broker_id, changes_max=CHANGES_MAX))
            if len(records) < CHANGES_MAX:
                del state.presences[broker_id]
                records.append(_fenced(broker))
            break
        del state.presences[broker_id]
    return Decision(None, records)


def go_on(state: ControllerState, now_ms: int) -> Decision:
    """Take the next share of what a broker's coming or leaving changes."""
    del now_ms
    for broker_id, presence in state.presences.items():
        if presence.departing:
            broker = state.image.brokers.get(broker_id)
            if broker is None or broker.fenced or broker.epoch != presence.epoch:
                presence.departing = False
                continue
            return Decision(None, _shut_down(state, broker, presence)[0])
    elected: list[MetadataRecord] = []
    if state.leaderless:
        elected.extend(elect_leaderless(state, changes_max=CHANGES_MAX))
        state.leaderless = len(elected) == CHANGES_MAX
    return Decision(None, elected)


def next_expiry_ms(state: ControllerState) -> int | None:
    """When the next session runs out if nobody is heard until then; None without brokers."""
    heard = [
        presence.heard_ms
        for broker_id, presence in state.presences.items()
        if broker_id in state.image.brokers
    ]
    return min(heard) + state.settings.broker_session_timeout_ms + 1 if heard else None


def unregister_broker(state: ControllerState, request: UnregisterBrokerRequest) -> Decision:
    """Take a broker that is gone for good out of the cluster, alive or not.

    Its replicas stay in the assignments, as in Kafka; the answer says how many. A broker that
    still runs registers again.
    """
    broker = state.image.brokers.get(request.broker_id)
    if broker is None:
        return Decision(
            UnregisterBrokerResponse(
                error_code=ErrorCode.BROKER_ID_NOT_REGISTERED,
                error_message=f"Broker ID {request.broker_id} is not currently registered",
            )
        )
    state.presences.pop(broker.broker_id, None)
    held = sum(broker.broker_id in each.replicas for each in state.image.partitions())
    message = None
    if held:
        message = (
            f"{held} replicas are still assigned to broker {broker.broker_id}: reassign them, or "
            "their partitions stay under-replicated."
        )
    records: list[MetadataRecord] = [
        *leave_all(state, broker.broker_id),
        UnregisterBrokerRecord(broker_id=broker.broker_id, broker_epoch=broker.epoch),
    ]
    return Decision(UnregisterBrokerResponse(error_message=message), records)


def allocate_producer_ids(state: ControllerState, request: AllocateProducerIdsRequest) -> Decision:
    """Hand out the next block of producer ids; it is in the log before anybody may use it.

    Rules: producers.md#producer-ids.
    """
    broker = state.image.brokers.get(request.broker_id)
    if broker is None or broker.epoch != request.broker_epoch:
        return Decision(AllocateProducerIdsResponse(error_code=ErrorCode.STALE_BROKER_EPOCH))
    start = state.image.next_producer_id
    if start > PRODUCER_ID_MAX - PRODUCER_ID_BLOCK:
        return Decision(AllocateProducerIdsResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR))
    record = ProducerIdsRecord(
        broker_id=request.broker_id,
        broker_epoch=request.broker_epoch,
        next_producer_id=start + PRODUCER_ID_BLOCK,
    )
    response = AllocateProducerIdsResponse(
        producer_id_start=start, producer_id_len=PRODUCER_ID_BLOCK
    )
    return Decision(response, [record])
