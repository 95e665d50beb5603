"""Produce (key 0): append one batch to each of several partitions.

Served: 3 to 12; advertised from 0 (KAFKA-18659). Version 7 brought zstd, 8 the message beside the
error, 10 the current leader beside NOT_LEADER_OR_FOLLOWER (KIP-951). Topic ids (13) are not served.
acks=0 has no answer: when anything failed, the connection closes, which is its only signal.

Rules: produce.md#acks, produce.md#no-answer, produce.md#internal-topics.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.node.api.leader import current_leader, endpoints
from holdfast.node.bounds import check_produce
from holdfast.node.context import Deferred, Operation, RequestContext, ResourceType
from holdfast.node.partition import Partition
from holdfast.node.validation import prepare
from holdfast.wire import hot
from holdfast.wire.errors import ErrorCode, WireError
from holdfast.wire.messages import produce as wire

if TYPE_CHECKING:
    from holdfast.node.broker import Broker

INTERNAL_TOPICS = ("__consumer_offsets", "__transaction_state")
ADMIN_CLIENT = "__admin_client"
UNCHECKED_BYTES_MAX = 1024 * 1024  # a smaller request can't be made of too many parts

Answer = wire.PartitionProduceResponse


def decode_request(version: int, frame: memoryview, offset: int) -> wire.ProduceRequest:
    """Decode by hand: this is the hot path."""
    if version < 3:
        raise WireError(f"Produce version {version}: record batches of magic 2 need version 3")
    if len(frame) > UNCHECKED_BYTES_MAX:
        check_produce(version, frame, offset)
    return hot.decode_produce(version, frame, offset)


class ProduceWait:
    """A request with acks=all, until the high watermark has passed what it appended."""

    __slots__ = (
        "_broker",
        "_deferred",
        "_left",
        "_listener",
        "_parts",
        "_response",
        "_step",
        "finished",
    )

    def __init__(
        self,
        broker: Broker,
        deferred: Deferred,
        response: wire.ProduceResponse,
        parts: list[tuple[Partition, int, Answer]],
        listener: str,
    ) -> None:
        self.finished = False
        self._broker = broker
        self._deferred = deferred
        self._response = response
        self._parts: list[tuple[Partition, int, Answer] | None] = list(parts)
        self._left = len(parts)
        self._listener = listener
        self._step = -1

    def begin(self, timeout_ms: int) -> None:
        """Register with every partition, then look again."""
        self._step = self._broker.waiting.expire_after(self, timeout_ms)
        for number, entry in enumerate(list(self._parts)):
            assert entry is not None
            partition, required, _ = entry
            if partition.acknowledgement(required) is None:
                partition.acknowledgements.add(required, self, number)
            else:
                self.reached(number)

    def reached(self, part: int) -> None:
        entry = self._parts[part]
        if entry is None:
            return
        partition, required, answer = entry
        error = partition.acknowledgement(required)
        assert error is not None, "woken for an offset that is not committed"
        self._settle(part, answer, error)

    def _settle(self, part: int, answer: Answer, error: ErrorCode) -> None:
        self._parts[part] = None
        if error is not ErrorCode.NONE:
            _refuse(answer, error)
        self._left -= 1
        if not self._left:
            self.finished = True
            self._broker.waiting.keep(self, self._step)
            _name_leaders(self._broker, self._response, self._listener)
            self._deferred.answer(self._response)

    def expire(self) -> None:
        """The request's own time-out: what is not committed yet has an unknown outcome."""
        for part, entry in enumerate(list(self._parts)):
            if entry is not None:
                self._settle(part, entry[2], ErrorCode.REQUEST_TIMED_OUT)


def handle(
    broker: Broker, context: RequestContext, request: wire.ProduceRequest
) -> wire.ProduceResponse | Deferred | None:
    """Append what may be appended; answer now, or when it is replicated."""
    parts: list[tuple[Partition, int, Answer]] = []
    response = wire.ProduceResponse()
    failed = False
    for topic in request.topic_data:
        answers = []
        refusal = _topic_refusal(context, request, topic.name)
        for data in topic.partition_data:
            answer = Answer(index=data.index, base_offset=-1)
            answers.append(answer)
            if refusal is not ErrorCode.NONE:
                _refuse(answer, refusal)
            else:
                _append(broker, context, request.acks, topic.name, data, answer, parts)
            failed = failed or answer.error_code != ErrorCode.NONE
        response.responses.append(
            wire.TopicProduceResponse(name=topic.name, partition_responses=answers)
        )
    if request.acks == 0:
        if failed:
            raise WireError("a produce request with acks=0 failed; closing is the only answer")
        return None
    if request.acks == -1 and parts:
        return _answer_when_replicated(broker, context, request.timeout_ms, response, parts)
    _name_leaders(broker, response, context.listener)
    return response


def _answer_when_replicated(
    broker: Broker,
    context: RequestContext,
    timeout_ms: int,
    response: wire.ProduceResponse,
    parts: list[tuple[Partition, int, Answer]],
) -> Deferred:
    deferred = context.defer()
    ProduceWait(broker, deferred, response, parts, context.listener).begin(timeout_ms)
    return deferred


def _topic_refusal(context: RequestContext, request: wire.ProduceRequest, name: str) -> ErrorCode:
    if request.acks not in {-1, 0, 1}:
        return ErrorCode.INVALID_REQUIRED_ACKS
    if not context.allows(Operation.WRITE, ResourceType.TOPIC, name):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if name in INTERNAL_TOPICS and context.client_id != ADMIN_CLIENT:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    if request.transactional_id is not None:
        return ErrorCode.INVALID_TXN_STATE  # there are no transactions yet, so none is open
    return ErrorCode.NONE


def _append(
    broker: Broker,
    context: RequestContext,
    acks: int,
    topic: str,
    data: wire.PartitionProduceData,
    answer: Answer,
    parts: list[tuple[Partition, int, Answer]],
) -> None:
    partition, error = broker.partitions.find(topic, data.index)
    if partition is None:
        _refuse(answer, error)
        return
    refusal = partition.refusal()
    if refusal is not ErrorCode.NONE:
        _refuse(answer, refusal)
        return
    now_ms = broker.runtime.clock.wall_ms()
    batch, problem = prepare(data.records, partition.settings, context.version, now_ms)
    if batch is None:
        assert problem is not None
        answer.error_code = problem.error
        answer.error_message = problem.message
        return
    appended = partition.append(batch, acks)
    if appended.error is not ErrorCode.NONE:
        _refuse(answer, appended.error)
        return
    assert partition.log is not None
    answer.base_offset = appended.base_offset
    answer.log_start_offset = partition.log.start
    if partition.settings.message_timestamp_type == "LogAppendTime":
        first_time = appended.append_time_ms
        answer.log_append_time_ms = first_time if first_time != -1 else now_ms
    if acks == -1:
        parts.append((partition, appended.required, answer))


MESSAGES = {
    ErrorCode.NOT_ENOUGH_REPLICAS: (
        "The in-sync replicas are fewer than min.insync.replicas; nothing was appended."
    ),
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: (
        "Appended, but the in-sync replicas became fewer than min.insync.replicas."
    ),
    ErrorCode.REQUEST_TIMED_OUT: "Appended, but not replicated within the request's time-out.",
    ErrorCode.INVALID_REQUIRED_ACKS: "acks must be -1 (all), 0 or 1.",
    ErrorCode.INVALID_TXN_STATE: "Transactions are not served by this cluster yet.",
    ErrorCode.KAFKA_STORAGE_ERROR: "The log directory of this partition is offline.",
}


def _refuse(answer: Answer, error: ErrorCode) -> None:
    answer.error_code = error
    answer.error_message = MESSAGES.get(error)
    answer.base_offset = -1
    answer.log_append_time_ms = -1
    answer.log_start_offset = -1


def _name_leaders(broker: Broker, response: wire.ProduceResponse, listener: str) -> None:
    """Tell whoever came to the wrong broker where the leader is (KIP-951)."""
    leaders: dict[int, None] = {}
    for topic in response.responses:
        for answer in topic.partition_responses:
            if answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                found = current_leader(broker, topic.name, answer.index)
                if found is not None:
                    answer.current_leader = wire.LeaderIdAndEpoch(
                        leader_id=found[0], leader_epoch=found[1]
                    )
                    leaders[found[0]] = None
    if leaders:
        response.node_endpoints = [
            wire.NodeEndpoint(node_id=node, host=host, port=port, rack=rack)
            for node, host, port, rack in endpoints(broker, leaders, listener)
        ]
