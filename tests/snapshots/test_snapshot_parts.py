"""What is not a whole snapshot yet never gets a snapshot's name, and does not stay."""

from __future__ import annotations

import asyncio
import contextlib

from tests.log.log_kit import TOPIC_ID, open_directories, small_settings, virtual

from holdfast.core.metadata.image import MetadataImage
from holdfast.core.metadata.image_records import snapshot_id
from holdfast.log.log import Log
from holdfast.node.metadata.metadata_snapshots import SnapshotStore
from holdfast.node.metadata.snapshot_format import snapshot_batches
from holdfast.runtime.ports import Runtime

IMAGE = MetadataImage(offset=9, epoch=1)
PARTS = [bytes(part) for part in snapshot_batches(IMAGE, 1)]


def metadata_log(runtime: Runtime) -> Log:
    directories = open_directories(runtime)
    return directories.create("__cluster_metadata", 0, TOPIC_ID, small_settings())


def files(log: Log) -> list[str]:
    return [name for name in log.home.runtime.disk.list(log.directory) if ".checkpoint" in name]


def test_the_same_snapshot_may_be_made_while_it_is_fetched() -> None:
    """Seen to fail: half of what was fetched got the name of the one that was whole."""

    async def body(runtime: Runtime) -> None:
        log = metadata_log(runtime)
        store = SnapshotStore(log)
        made, fetched = store.create(snapshot_id(IMAGE)), store.create(snapshot_id(IMAGE))
        await made.append(PARTS[0])
        await fetched.append(b"".join(PARTS)[:50])
        for part in PARTS[1:]:
            await made.append(part)
        await made.finish(1)
        fetched.abandon()
        await asyncio.sleep(1)  # virtual
        assert files(log) == [snapshot_id(IMAGE).file_name]
        loaded = SnapshotStore(log).load()
        assert loaded is not None
        assert loaded.identity == snapshot_id(IMAGE)

    virtual(body)


def test_a_snapshot_given_up_at_its_first_bytes_leaves_nothing() -> None:
    """Seen to fail: the first write came after it was given up, and its file stayed open."""

    async def body(runtime: Runtime) -> None:
        log = metadata_log(runtime)
        writer = SnapshotStore(log).create(snapshot_id(IMAGE))
        first = asyncio.ensure_future(writer.append(PARTS[0]))
        await asyncio.sleep(0)
        first.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await first
        writer.abandon()
        await asyncio.sleep(1)  # virtual
        assert files(log) == []

    virtual(body)
