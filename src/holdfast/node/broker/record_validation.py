"""What Apache Kafka asks of the records in a client's batch, and the batch made ready by it.

Owns the rules that need the records: how many there are, their offsets, timestamps and keys, the
largest timestamp written into the header, and the batch in another codec where the topic wants
one. The records' own bytes stay as they came. It is a generator, so that what is large inflates in
the worker and is walked by turns (`runtime.sliced_work`).

Rules: batches.md#validation-of-records, batches.md#recompression.
"""

from __future__ import annotations

from functools import partial
from typing import TypeAlias

from holdfast.config.topic import TopicSettings
from holdfast.core.refusal import Refusal
from holdfast.node.broker.append_validation import RecordRefusal, Unopened, too_large
from holdfast.runtime.ports import Buffer
from holdfast.runtime.sliced_work import BYTES_A_SLICE, HOLD, Effort, Steps, inflated
from holdfast.wire.batch import Codec, assign_max_timestamp, read_header
from holdfast.wire.batch_header import (
    CODEC_MASK,
    HEADER,
    HEADER_SIZE,
    LENGTH_END,
    BatchHeader,
)
from holdfast.wire.compression import compress, inflated_bytes_max
from holdfast.wire.errors import ErrorCode, InflatedError, WireError
from holdfast.wire.walker.record_walker import (
    NOTHING,
    PROBLEMS,
    STEPS_A_SLICE,
    Walked,
    walk_on,
)

COMPRESSED_INLINE_MAX = 16 * 1024


Outcome: TypeAlias = memoryview | Refusal | RecordRefusal


def opened(unopened: Unopened, effort: Effort) -> Steps[Outcome]:
    """Return the batch to append, writable and in its topic's codec, or why it is refused."""
    batch, codec, settings, now_ms = unopened
    if effort.is_over:
        yield HOLD
        effort.spent = 0
    header = read_header(batch)
    body: Buffer = batch[HEADER_SIZE:]
    if header.codec:
        # Uncompressed, what it inflates to is what would be appended.
        size_max = settings.max_message_bytes
        if codec:
            size_max = inflated_bytes_max(size_max)
        try:
            body = yield from inflated(header.codec, body, size_max, effort)
        except InflatedError:
            return _inflates_too_much(size_max, settings)
        except WireError as damage:
            return Refusal(ErrorCode.INVALID_RECORD, f"The records do not inflate: {damage}.")
    walked = yield from _walked(header, body, effort)
    if isinstance(walked, Refusal):
        return walked
    refusal = _judge_records(walked, settings, now_ms)
    if refusal is not None:
        return refusal
    if codec != header.codec:
        packed = yield from _packed(body, codec, effort)
        # It is copied and counted through on the loop, so not before its size is known to be right.
        refused = too_large(HEADER_SIZE + len(packed), settings)
        return refused or _rebuilt(header, packed, codec, walked.largest)
    if walked.largest != header.max_timestamp:
        assign_max_timestamp(batch, walked.largest)
    return batch


def _walked(header: BatchHeader, body: Buffer, effort: Effort) -> Steps[Walked | Refusal]:
    """Walk all records, as many as the header counts; refuse what no reader could read."""
    count = header.record_count
    walked = NOTHING
    effort.spent += len(body) / BYTES_A_SLICE
    while walked.records < count and walked.position < len(body) and not walked.problem:
        if effort.is_over:
            yield HOLD
            effort.spent = 0
        walked = walk_on(body, walked, header.base_timestamp, count - walked.records)
        effort.spent += walked.steps / STEPS_A_SLICE
    problem = ""
    if walked.problem:
        problem = f"Record {walked.records} of the batch can't be read: {PROBLEMS[walked.problem]}."
    elif walked.records < count:
        problem = f"The batch has {walked.records} records, and its header counts {count}."
    elif walked.position < len(body):
        left = len(body) - walked.position
        problem = f"Behind the {count} records that the header counts there are {left} bytes."
    elif walked.uncounted_at >= 0:
        problem = f"The offsets of the records do not count up, from record {walked.uncounted_at}."
    return Refusal(ErrorCode.INVALID_RECORD, problem) if problem else walked


def _judge_records(walked: Walked, settings: TopicSettings, now_ms: int) -> RecordRefusal | None:
    """Hold the records against the topic's settings."""
    records: list[tuple[int, str]] = []
    code = ErrorCode.INVALID_RECORD
    if "compact" in settings.cleanup_policy and walked.keyless_at >= 0:
        records.append((walked.keyless_at, "A compacted topic takes no record without a key."))
    if settings.message_timestamp_type != "LogAppendTime":
        earliest = max(now_ms - settings.message_timestamp_before_max_ms, 0)
        latest = now_ms + settings.message_timestamp_after_max_ms
        bounds = f"It should be within [{earliest}, {latest}]: message.timestamp."
        if walked.least_at >= 0 and walked.least < earliest:
            code = ErrorCode.INVALID_TIMESTAMP
            text = f"Timestamp {walked.least} is out of range. {bounds}before.max.ms."
            records.append((walked.least_at, text))
        if walked.largest > latest:
            code = ErrorCode.INVALID_TIMESTAMP
            text = f"Timestamp {walked.largest} is out of range. {bounds}after.max.ms."
            records.append((walked.largest_at, text))
    if not records:
        return None
    named = dict(records)  # a record is named once
    texts = " ".join(f"Record {at}: {text}" for at, text in named.items())
    return RecordRefusal(code, f"Some records are refused. {texts}", tuple(named.items()))


def _packed(body: Buffer, codec: Codec, effort: Effort) -> Steps[Buffer]:
    """Return the records in the codec that compression.type asks for."""
    if not codec:
        return body
    if len(body) <= COMPRESSED_INLINE_MAX and not effort.is_over:
        effort.spent += len(body) / BYTES_A_SLICE
        return compress(codec, body)
    packed: Buffer = yield partial(compress, codec, body)
    effort.spent = 0
    return packed


def _rebuilt(header: BatchHeader, packed: Buffer, codec: Codec, largest: int) -> memoryview:
    """Return the same batch with its records in another codec."""
    fields = header._replace(
        batch_length=HEADER_SIZE - LENGTH_END + len(packed),
        attributes=header.attributes & ~CODEC_MASK | codec,
    )
    rebuilt = memoryview(bytearray(HEADER_SIZE + len(packed)))
    HEADER.pack_into(rebuilt, 0, *fields)
    rebuilt[HEADER_SIZE:] = packed
    assign_max_timestamp(rebuilt, largest)  # and with it the CRC
    return rebuilt


def _inflates_too_much(size_max: int, settings: TopicSettings) -> Refusal:
    return Refusal(
        ErrorCode.MESSAGE_TOO_LARGE,
        f"With record.validation={settings.record_validation} and"
        f" compression.type={settings.compression_type} the records are looked at, and these"
        f" inflate to more than {size_max} bytes: too much for"
        f" max.message.bytes={settings.max_message_bytes}.",
    )
