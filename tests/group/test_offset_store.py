"""Goal: what millions of offsets are kept in costs what it must, no more. Method: the store."""

from __future__ import annotations

import gc

from holdfast.core.group.offsets.offset_store import OffsetStore
from holdfast.wire.records.offset_records import CommittedOffset


def test_the_collector_looks_at_no_offset() -> None:
    """A million objects that it does look at hold up everybody for a third of a second."""
    store = OffsetStore()
    committed = CommittedOffset(5, 1, "where I was", 7, 8, b"i" * 16)
    store.put("g", "t", 0, committed)
    gc.collect()
    (kept,) = store.offsets_of("g", "t").values()
    assert not gc.is_tracked(kept)
    assert store.get("g", "t", 0) == committed
    assert store.get("g", "t", 1) is None
