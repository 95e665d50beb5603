"""A metadata log that was thrown away for a snapshot goes on from there, whatever a crash left.

Goal: a voter that fetched a snapshot takes what its leader sends behind it, also when it dies while
a job of before the new beginning still writes.
"""

from __future__ import annotations

import asyncio

import pytest
from tests.log.log_kit import (
    after_crash,
    append,
    crash,
    new_log,
    reopened,
    virtual,
)

from holdfast.node.metadata.metadata_log import MetadataLog
from holdfast.runtime.ports import Runtime
from holdfast.wire.errors import ErrorCode


def batch_at(offset: int, *, epoch: int) -> bytes:
    """One record as a leader sends it."""

    async def body(runtime: Runtime) -> bytes:
        _, leader = new_log(runtime)
        leader.reset_to(offset)
        append(leader, epoch=epoch)
        return leader.read(offset, 1 << 20, leader.end).records

    return virtual(body)


@pytest.mark.parametrize("settled", [True, False], ids=["all jobs done", "the first job done"])
def test_a_later_epoch_of_what_was_thrown_away_is_not_left(settled: bool) -> None:
    """A flush under way writes the old epochs once more, of which an uncommitted one is too late.

    Seen to fail: the leader's batches were refused for an epoch that goes backwards, for ever; and
    with nothing that flushed the new epochs.
    """
    sent = batch_at(5, epoch=6)

    async def body(runtime: Runtime) -> None:
        directories, replica = new_log(runtime)
        append(replica, epoch=6)
        append(replica, epoch=7)
        under_way = replica.flush()
        log = MetadataLog(runtime, replica)
        log.restart_at(5, 6)
        await under_way
        if settled:
            await asyncio.sleep(1)  # virtual
        assert log.durable_end == log.end == 5
        crash(directories)
        after = after_crash(runtime)
        _, replica = reopened(after)
        log = MetadataLog(after, replica)
        assert (log.start, log.end) == (5, 5)
        assert log.goes_on_from(5, 6) is settled
        if not log.goes_on_from(5, 6):
            log.restart_at(5, 6)
        assert log.append_fetched(sent) is ErrorCode.NONE
        assert log.end == 6

    virtual(body)


@pytest.mark.parametrize(("epoch", "goes_on"), [(5, False), (6, True), (7, False)])
def test_a_tail_that_was_never_committed_is_not_what_a_snapshot_says(
    epoch: int, goes_on: bool
) -> None:
    """A crash came between the snapshot and the log. Of a later epoch, too: an ex-leader's.

    Seen to fail: what it had written alone was taken for committed, and the controller ended with
    an assertion as soon as its leader told it to cut that off, at every start.
    """

    async def body(runtime: Runtime) -> None:
        _, replica = new_log(runtime)
        append(replica, epoch=3)
        append(replica, epoch=epoch)
        assert MetadataLog(runtime, replica).goes_on_from(2, 6) is goes_on

    virtual(body)
