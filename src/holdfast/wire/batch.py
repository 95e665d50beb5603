"""Record batches: what other folders import.

`batch_header` is a broker's hot path; `batch_records`, which walks records, must not be on it.
"""

from __future__ import annotations

from holdfast.wire.batch_header import (
    HEADER_SIZE,
    MAGIC,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    BatchHeader,
    Codec,
    assign,
    assign_log_append_time,
    assign_max_timestamp,
    batches,
    crc_matches,
    read_header,
    validate_producer_batch,
)
from holdfast.wire.batch_records import (
    ControlType,
    Record,
    build_batch,
    control_key,
    read_control_type,
    read_records,
    transaction_marker,
)
from holdfast.wire.compression import INFLATED_SIZE_MAX, compress, decompress

__all__ = [
    "HEADER_SIZE",
    "INFLATED_SIZE_MAX",
    "MAGIC",
    "NO_PRODUCER_EPOCH",
    "NO_PRODUCER_ID",
    "NO_SEQUENCE",
    "NO_TIMESTAMP",
    "BatchHeader",
    "Codec",
    "ControlType",
    "Record",
    "assign",
    "assign_log_append_time",
    "assign_max_timestamp",
    "batches",
    "build_batch",
    "compress",
    "control_key",
    "crc_matches",
    "decompress",
    "read_control_type",
    "read_header",
    "read_records",
    "transaction_marker",
    "validate_producer_batch",
]
