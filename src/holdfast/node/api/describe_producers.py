"""DescribeProducers (key 61), version 0: which producers the replicas here remember.

Any replica answers, not a leader alone: who looks for what hangs asks each of them. What is named
twice is answered once (rules: connections.md#what-is-named-twice). A partition may remember as many
producers as there were in a day, so the answer is made in slices, and is bounded.

Rules: producers.md#who-is-remembered.
"""

from __future__ import annotations

from typing import Final

from holdfast.core.metadata.topic_names import refuse_name
from holdfast.log.log import Log
from holdfast.node.broker.broker import Broker
from holdfast.node.broker.replica import Partition
from holdfast.node.door.request_context import Deferred, RequestContext, refusal
from holdfast.runtime.sliced_work import HOLD, Effort, Steps
from holdfast.wire.errors import ErrorCode
from holdfast.wire.messages import describe_producers as wire

PRODUCERS_MAX: Final = 100_000
"""In an answer. To encode so many holds the loop for 50 ms."""

_PRODUCER_BYTES: Final = 37  # in an answer
_PRODUCER_EFFORT: Final = 1 / 500
_ASKED_EFFORT: Final = 1 / 500  # of each partition that is named

Answer = wire.DescribeProducersPartitionResponse

# Without the topic's name: a few bytes each would be answered with all of it for each partition.
_WORDS: Final = {
    ErrorCode.INVALID_TOPIC_EXCEPTION: "No topic can have this name.",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "There is no such topic.",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "The topic may not be read.",
}


def handle(
    broker: Broker, context: RequestContext, request: wire.DescribeProducersRequest
) -> wire.DescribeProducersResponse | Deferred:
    """Answer at once, if it is no more than a slice."""
    response = wire.DescribeProducersResponse()
    steps = _fill(broker, context, request, response)
    try:
        wanted = next(steps)
    except StopIteration:
        return response
    deferred = context.defer(
        PRODUCERS_MAX * _PRODUCER_BYTES,
        sum(len(topic.partition_indexes) for topic in request.topics),
    )
    deferred.lost = broker.sliced_work.begin(
        steps,
        wanted,
        queue=("producers", context.sender),
        done=lambda _: deferred.answer(response),
        failed=deferred.abandon,
    )
    return deferred


def _fill(
    broker: Broker,
    context: RequestContext,
    request: wire.DescribeProducersRequest,
    response: wire.DescribeProducersResponse,
) -> Steps[None]:
    """Fill the response with the answers to all that is asked, one after the other."""
    effort = broker.sliced_work.first_effort()
    answered: set[tuple[str, int]] = set()
    left = PRODUCERS_MAX
    for topic in request.topics:
        refused = _topic_refusal(broker, context, topic.name)
        told = wire.DescribeProducersTopicResponse(name=topic.name)
        response.topics.append(told)
        for index in topic.partition_indexes:
            if (topic.name, index) in answered:
                continue
            answered.add((topic.name, index))
            if refused is not None:
                answer = _refused(index, refused, _WORDS[refused])
            else:
                answer = yield from _answer(broker, topic.name, index, left, effort)
            left -= len(answer.active_producers)
            told.partitions.append(answer)
            effort.spent += _ASKED_EFFORT
            if effort.is_over:
                yield HOLD
                effort.spent = 0


def _topic_refusal(broker: Broker, context: RequestContext, name: str) -> ErrorCode | None:
    if refuse_name(name) is not None:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    refused = refusal(context, name)
    if refused is not None:
        return refused.code
    return None if name in broker.image.topics else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _answer(broker: Broker, topic: str, index: int, left: int, effort: Effort) -> Steps[Answer]:
    """Tell what one replica remembers, of `left` producers at most."""
    log = _log_of(broker, topic, index)
    if not isinstance(log, Log):
        return _refused(index, log)
    remembered = log.remembered_producers()
    if len(remembered) > left:
        return _refused(
            index,
            ErrorCode.INVALID_REQUEST,
            f"It remembers {len(remembered)} producers, and an answer has {PRODUCERS_MAX} at most:"
            " ask for fewer partitions at a time.",
        )
    answer = Answer(partition_index=index)
    for producer_id, producer in remembered:
        last = producer.batches[-1] if producer.batches else None
        answer.active_producers.append(
            wire.ProducerState(
                producer_id=producer_id,
                producer_epoch=producer.epoch,
                last_sequence=-1 if last is None else last.last_sequence,
                last_timestamp=-1 if last is None else last.timestamp,
                coordinator_epoch=producer.coordinator_epoch,
                current_txn_start_offset=producer.transaction,
            )
        )
        effort.spent += _PRODUCER_EFFORT
        if effort.is_over:
            yield HOLD
            effort.spent = 0
    return answer


def _log_of(broker: Broker, topic: str, index: int) -> Log | ErrorCode:
    found = broker.partitions.find(topic, index)
    if not isinstance(found, Partition):
        return found
    return ErrorCode.KAFKA_STORAGE_ERROR if found.log is None else found.log


def _refused(index: int, error: ErrorCode, words: str | None = None) -> Answer:
    return Answer(partition_index=index, error_code=error, error_message=words)
