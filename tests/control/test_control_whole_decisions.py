"""Goal: a decision of the controller is in the metadata log as a whole, or not at all.

Method: more records than a request may make are appended, and the batches that came of them are
counted. Seen failing when ten thousand records fill a batch.
"""

from __future__ import annotations

import pytest
from tests.log.log_kit import open_directories, virtual

from holdfast.config.node import NodeSettings
from holdfast.core.controller.decisions import RECORDS_PER_REQUEST_MAX
from holdfast.node.metadata import metadata_log
from holdfast.node.metadata.metadata_log import CommittedBatch, MetadataLog, decode_batches
from holdfast.runtime.ports import Runtime
from holdfast.wire.batch import batches
from holdfast.wire.records.metadata import NoOpRecord


def appended(count: int) -> tuple[list[CommittedBatch], list[int]]:
    """What the batches of so many records hold, and their sizes."""

    async def story(runtime: Runtime) -> bytes:
        log = MetadataLog.open(runtime, NodeSettings(), open_directories(runtime))
        assert log.append([NoOpRecord()] * count, 1) == log.end - 1 == count - 1
        read, offset = b"", 0
        while offset < count:
            part = log.read(offset, 1, log.end)
            read, offset = read + part.records, part.next_offset
        return read

    data = virtual(story)
    return list(decode_batches(data)), [header.size for _, header in batches(memoryview(data))]


def test_a_decision_is_one_batch() -> None:
    """Also one that no request asks for, as when a broker is lost that had many replicas."""
    count = RECORDS_PER_REQUEST_MAX + 1
    (batch,), _ = appended(count)
    assert len(batch.records) == count


def test_one_that_no_replica_would_take_is_several(monkeypatch: pytest.MonkeyPatch) -> None:
    bound = 2000
    monkeypatch.setattr(metadata_log, "BATCH_BYTES_MAX", bound)
    found, sizes = appended(300)
    assert sum(len(batch.records) for batch in found) == 300
    assert len(found) > 1
    assert max(sizes) <= bound
