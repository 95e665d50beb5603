"""Produce (key 0): append one batch to each of several partitions.

Served: 3 to 13; advertised from 0 (KAFKA-18659). Version 7 brought zstd, 8 the message beside the
error, 10 the current leader beside NOT_LEADER_OR_FOLLOWER (KIP-951), 13 topic ids (KIP-516).
acks=0 has no answer: when anything failed, the connection closes, which is its only signal.

Rules: produce.md#acks, produce.md#no-answer, produce.md#a-client-that-leaves,
produce.md#internal-topics.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

from holdfast.core.metadata.topic_names import INTERNAL_TOPICS
from holdfast.core.refusal import Refusal
from holdfast.node.api.leader import name_leaders
from holdfast.node.broker.append_validation import (
    RecordRefusal,
    Unopened,
    check_and_prepare,
)
from holdfast.node.broker.broker import Broker
from holdfast.node.broker.leading_replica import LeadingReplica
from holdfast.node.broker.replica import Partition
from holdfast.node.door.api_table import WRITE_ID
from holdfast.node.door.request_bounds import check_produce
from holdfast.node.door.request_context import Deferred, RequestContext, refusal
from holdfast.runtime.sliced_work import Effort, Steps
from holdfast.wire import hot
from holdfast.wire.batch_header import (
    HEADER_SIZE,
    MAGIC,
    Codec,
    assign_log_append_time,
    read_header,
)
from holdfast.wire.errors import ErrorCode, WireError
from holdfast.wire.messages import produce as wire

ADMIN_CLIENT = "__admin_client"
FIRST_VERSION_WITH_IDS = 13
UNCHECKED_BYTES_MAX = 256 * 1024  # a smaller request can't be made of too many parts

Answer = wire.PartitionProduceResponse
Part = tuple[Partition, int, Answer]  # what was appended, and the end that acks=all waits for


def decode_request(version: int, frame: memoryview, offset: int) -> wire.ProduceRequest:
    """Decode by hand: this is the hot path."""
    if version < 3:
        raise WireError(f"Produce version {version}: record batches of magic 2 need version 3")
    if len(frame) > UNCHECKED_BYTES_MAX:
        check_produce(version, frame, offset)
    return hot.decode_produce(version, frame, offset)


class ProduceWait:
    """A request with acks=all, until the high watermark has passed what it appended.

    Or until this replica leads no longer: another one does, it was stopped, or its disk is offline.
    """

    __slots__ = (
        "_broker",
        "_deadline_ms",
        "_deferred",
        "_listener",
        "_parts",
        "_response",
        "finished",
    )

    def __init__(
        self,
        broker: Broker,
        deferred: Deferred,
        response: wire.ProduceResponse,
        parts: list[Part],
        listener: str,
    ) -> None:
        self.finished = False
        self._broker = broker
        self._deferred = deferred
        self._response = response
        self._parts = dict(enumerate(parts))
        self._listener = listener
        self._deadline_ms = -1

    def begin(self, timeout_ms: int) -> None:
        """Register with every partition, then look again."""
        self._deadline_ms = self._broker.waiting.expire_after(self, timeout_ms)
        for number, (partition, required, _) in list(self._parts.items()):
            if not self._is_settled(number):
                partition.acknowledgements.add(required, self, number)
        if not self.finished:
            self._deferred.lost = self._give_up

    @property
    def sender(self) -> Hashable:
        return self._deferred.sender

    def settle(self, part: int) -> None:
        settled = self._is_settled(part)
        assert settled, "woken while this replica leads and the offset is not committed"

    def _is_settled(self, part: int) -> bool:
        """Settle a part if that is due; False: it has to wait."""
        if part in self._parts:
            partition, required, answer = self._parts[part]
            error = partition.acknowledgement(required)
            if error is None:
                return False
            self._answer(part, answer, error)
        return True

    def _answer(self, part: int, answer: Answer, error: ErrorCode) -> None:
        del self._parts[part]
        if error:
            _refuse(answer, error)
        if not self._parts:
            self.finished = True
            self._broker.waiting.keep(self, self._deadline_ms)
            _name_leaders(self._broker, self._response, self._listener)
            self._deferred.answer(self._response)
            del self._deferred  # a partition that stands still lets go of this a while later

    def _give_up(self) -> None:
        """Nobody is there to be answered. What was appended stays."""
        self.finished = True
        self._parts.clear()
        self._broker.waiting.keep(self, self._deadline_ms)
        del self._deferred

    def expire(self) -> None:
        """The request's own time-out: what is not committed yet has an unknown outcome."""
        for part, (_, _, answer) in list(self._parts.items()):
            self._answer(part, answer, ErrorCode.REQUEST_TIMED_OUT)


def handle(
    broker: Broker, context: RequestContext, request: wire.ProduceRequest
) -> wire.ProduceResponse | Deferred | None:
    """Append what may be appended; answer now, or when it is replicated."""
    parts: list[Part] = []
    unread: list[Unread] = []
    behind: set[tuple[str, int]] | None = None  # their partitions
    response = wire.ProduceResponse()
    by_id = context.version >= FIRST_VERSION_WITH_IDS
    for topic in request.topic_data:
        answers: list[Answer] = []
        name = broker.image.name_of(topic.topic_id) if by_id else topic.name
        refusal = _topic_refusal(context, request, name)
        for data in topic.partition_data:
            answer = Answer(index=data.index, base_offset=-1)
            answers.append(answer)
            if refusal is not None:
                _refuse(answer, refusal)
            else:
                # What is behind a batch that is not appended yet waits for that.
                acks = None if behind and (name, data.index) in behind else request.acks
                part = _append(broker, context, acks, topic, data, answer)
                if isinstance(part, Unread):
                    unread.append(part)
                    behind = behind or set()
                    behind.add((name, data.index))
                elif part is not None:
                    parts.append(part)
        response.responses.append(
            wire.TopicProduceResponse(
                name=name, topic_id=topic.topic_id, partition_responses=answers
            )
        )
    listener = context.client.listener
    if unread:
        return _read(Served(broker, listener, request, response, parts), context, unread)
    if request.acks == -1 and parts:
        deferred = context.defer(partitions=len(parts))
        ProduceWait(broker, deferred, response, parts, listener).begin(request.timeout_ms)
        return deferred
    return _answer_now(broker, listener, request.acks, response)


def _answer_now(
    broker: Broker, listener: str, acks: int, response: wire.ProduceResponse
) -> wire.ProduceResponse | None:
    if acks == 0:
        if any(
            each.error_code for topic in response.responses for each in topic.partition_responses
        ):
            raise WireError("a produce request with acks=0 failed; closing is the only answer")
        return None
    _name_leaders(broker, response, listener)
    return response


def _topic_refusal(
    context: RequestContext, request: wire.ProduceRequest, name: str
) -> ErrorCode | None:
    """Return why nothing is appended to this topic. Its name is empty where its id is unknown."""
    if not name and context.version >= FIRST_VERSION_WITH_IDS:
        # Nobody may be refused an id that stands for nothing: it is unknown.
        return ErrorCode.UNKNOWN_TOPIC_ID
    if request.acks not in {-1, 0, 1}:
        return ErrorCode.INVALID_REQUIRED_ACKS
    refused = None
    if request.transactional_id is not None:
        refused = refusal(context, request.transactional_id, WRITE_ID)
    refused = refused or refusal(context, name)
    if refused is not None:
        return refused.code
    if name in INTERNAL_TOPICS and context.header.client_id != ADMIN_CLIENT:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    if request.transactional_id is not None:
        return ErrorCode.INVALID_TXN_STATE  # there are no transactions yet, so none is open
    return None


def _append(
    broker: Broker,
    context: RequestContext,
    acks: int | None,
    topic: wire.TopicProduceData,
    data: wire.PartitionProduceData,
    answer: Answer,
) -> Part | Unread | None:
    """Append one batch, unless its records are to be looked at before; None: it was refused.

    Without `acks` it has to wait for another one, and is looked at, too.
    """
    if context.version >= FIRST_VERSION_WITH_IDS:
        partition = broker.partitions.find_by_id(topic.topic_id, data.index)
    else:
        partition = broker.partitions.find(topic.name, data.index)
    if not isinstance(partition, Partition):
        _refuse(answer, partition)
        return None
    leading = partition.as_leader()
    if not isinstance(leading, LeadingReplica):
        _refuse(answer, leading)
        return None
    now_ms = broker.runtime.clock.wall_ms()
    batch = check_and_prepare(data.records, partition.settings, context.version, now_ms)
    if isinstance(batch, memoryview):
        if acks is not None:
            return _append_to(partition, leading, batch, acks, answer, now_ms)
        batch = Unopened(batch, Codec(read_header(batch).codec), partition.settings, now_ms)
    if isinstance(batch, Unopened):
        return Unread(partition, answer, batch)
    answer.error_code = batch.code
    answer.error_message = batch.message
    if _is_a_batch(data.records):
        _tell_start(answer, leading)
    return None


def _append_to(
    partition: Partition,
    leading: LeadingReplica,
    batch: memoryview,
    acks: int,
    answer: Answer,
    now_ms: int,
) -> Part | None:
    """Append one batch that is ready, and return what acks=all waits for; None: refused."""
    appended = leading.append(batch, acks)
    if appended.error:
        _refuse(answer, appended.error)
        _tell_start(answer, leading)
        return None
    answer.base_offset = appended.base_offset
    answer.log_start_offset = leading.log.start
    if partition.settings.message_timestamp_type == "LogAppendTime":
        first_time = appended.append_time_ms
        answer.log_append_time_ms = first_time if first_time != -1 else now_ms
    return partition, appended.required, answer


# -- batches whose records are looked at before they are appended ------------------------------


class Unread:
    """One partition's batch, and what its records turn out to be."""

    __slots__ = ("answer", "batch", "outcome", "partition")

    def __init__(self, partition: Partition, answer: Answer, batch: Unopened) -> None:
        self.partition = partition
        self.answer = answer
        self.batch = batch
        self.outcome: memoryview | Refusal | RecordRefusal | None = None  # None: not known yet


class Served(NamedTuple):
    """A request as far as it was served until now."""

    broker: Broker
    listener: str  # on which it came
    request: wire.ProduceRequest
    response: wire.ProduceResponse
    parts: list[Part]

    def answer(self, deferred: Deferred | None) -> wire.ProduceResponse | Deferred | None:
        """Answer now, or when all is replicated; a promise, if one was given, is kept."""
        broker, listener, request, response, parts = self
        if request.acks != -1 or not parts:
            return _answer_now(broker, listener, request.acks, response)
        assert deferred is not None
        ProduceWait(broker, deferred, response, parts, listener).begin(request.timeout_ms)
        return deferred


def _read(
    served: Served, context: RequestContext, unread: list[Unread]
) -> wire.ProduceResponse | Deferred | None:
    """Look at the records of these batches and append them: now, if that is done in a slice.

    Else by turns with what others want, and meanwhile nothing more is done for this client. What
    was received is gone by then, so what is left of it is copied. It is appended also when its
    client has gone meanwhile, as who wants no answers does after a flush; but not when the node had
    to close on the client, then or later, because too much is held.
    """
    effort = served.broker.sliced_work.first_effort()
    is_late = next(_outcomes(unread, effort), None) is not None
    _append_read(served, [each for each in unread if each.outcome is not None])
    if not is_late:
        waits = served.request.acks == -1 and bool(served.parts)
        return served.answer(context.defer() if waits else None)
    rest = [each for each in unread if each.outcome is None]
    size = sum(len(each.batch.batch) for each in rest)
    for each in rest:
        each.batch = each.batch._replace(batch=memoryview(bytearray(each.batch.batch)))
    served.request.topic_data = []
    deferred = context.defer_effect(size)
    deferred.outlives = True
    effort.spent = 1  # others have their turn before it goes on
    steps = _outcomes(rest, effort)

    def done(_: None) -> None:
        _append_read(served, rest)
        deferred.outlives = False  # from here on only the answer is due
        if deferred.is_left:
            deferred.answer_nothing()
        else:
            _keep_promise(served, deferred)
        deferred.proceed()

    queue = ("appends", context.sender)
    deferred.lost = served.broker.sliced_work.begin(
        steps, next(steps), queue=queue, done=done, failed=deferred.abandon
    )
    return deferred


def _keep_promise(served: Served, deferred: Deferred) -> None:
    try:
        answer = served.answer(deferred)
    except WireError:
        deferred.abandon()
    else:
        if answer is None:
            deferred.answer_nothing()
        elif answer is not deferred:
            deferred.answer(answer)


def _outcomes(unread: list[Unread], effort: Effort) -> Steps[None]:
    from holdfast.node.broker.record_validation import opened

    for each in unread:
        each.outcome = yield from opened(each.batch, effort)


def _append_read(served: Served, unread: list[Unread]) -> None:
    """Append what is in order, on a leader that is one still."""
    now_ms = served.broker.runtime.clock.wall_ms()
    for each in unread:
        outcome, answer, partition = each.outcome, each.answer, each.partition
        leading = partition.as_leader()
        if not isinstance(leading, LeadingReplica):
            _refuse(answer, leading)
        elif isinstance(outcome, memoryview):
            if partition.settings.message_timestamp_type == "LogAppendTime":
                assign_log_append_time(outcome, now_ms)
            part = _append_to(partition, leading, outcome, served.request.acks, answer, now_ms)
            if part is not None:
                served.parts.append(part)
        else:
            assert outcome is not None, "its records were looked at"
            answer.error_code, answer.error_message = outcome[:2]
            answer.record_errors = [
                wire.BatchIndexAndErrorMessage(batch_index=at, batch_index_error_message=text)
                for at, text in (outcome.records if isinstance(outcome, RecordRefusal) else ())
            ]
            _tell_start(answer, leading)


OF_THE_BATCH = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_TIMESTAMP,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    }
)
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
    ErrorCode.KAFKA_STORAGE_ERROR: (
        "The log directory of this partition is offline, or a file of its log is damaged."
    ),
}


def _refuse(answer: Answer, error: ErrorCode) -> None:
    answer.error_code = error
    answer.error_message = MESSAGES.get(error)
    answer.base_offset = -1
    answer.log_append_time_ms = -1
    answer.log_start_offset = -1


def _is_a_batch(records: memoryview | bytes | None) -> bool:
    """Whether this is one batch, be it wrong; what is none is refused before a log is looked at."""
    if records is None or len(records) < HEADER_SIZE:
        return False
    header = read_header(records)
    return header.magic == MAGIC and header.size == len(records)


def _tell_start(answer: Answer, leading: LeadingReplica) -> None:
    """Tell where the log starts beside an error of the batch itself, as Apache Kafka does."""
    if answer.error_code in OF_THE_BATCH:
        answer.log_start_offset = leading.log.start


def _name_leaders(broker: Broker, response: wire.ProduceResponse, listener: str) -> None:
    """Tell whoever came to the wrong broker where the leader is (KIP-951)."""
    refused = []
    for topic in response.responses:
        for answer in topic.partition_responses:
            if answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                refused.append((topic.name, answer.index, answer))  # noqa: PERF401 - a call less
    if refused:
        response.node_endpoints = name_leaders(broker, refused, listener)
