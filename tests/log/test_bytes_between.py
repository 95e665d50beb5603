"""How many bytes a reader would get: asked by a fetch that waits for many.

Goal: for every pair of offsets the answer is what a read of everything between them returns.
Method: a log of several segments in memory, all pairs.
"""

from __future__ import annotations

from tests.log.log_kit import append, new_log, small_settings, virtual

from holdfast.runtime.ports import Runtime


def test_it_is_the_size_of_what_would_be_read() -> None:
    async def body(runtime: Runtime) -> None:
        _, log = new_log(runtime, settings=small_settings(segment_bytes=500))
        for count in range(1, 12):
            append(log, count % 4 + 1)
        for offset in range(log.end):
            for bound in range(offset + 1, log.end + 1):
                size, at = 0, offset
                while at < bound:
                    records, following, _ = log.read(at, 1 << 20, bound)
                    if following == at:
                        break  # the batch that holds `bound` is not below it as a whole
                    size, at = size + len(records), following
                if at <= bound:
                    assert log.bytes_between(offset, bound) == size, (offset, bound)

    virtual(body)
