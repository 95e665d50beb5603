"""Compacted topics: what they take, and what can be read of them once a cleaner has been there.

A log is rolled by its records' own timestamps, and both sides look for work all the time. When a
round was is their affair: the steps wait until what they read is what a round leaves, and then hold
all of it against the other side.
"""

from __future__ import annotations

from typing import Any, Final

from compare.asking import BASE_MS, Side, made_batch
from compare.cluster_steps import SET, TOPIC
from compare.record_steps import fetch
from holdfast.wire.batch import Codec, batches, read_records
from holdfast.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from holdfast.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from holdfast.wire.messages.init_producer_id import InitProducerIdRequest
from holdfast.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)

Pair = tuple[bytes | None, bytes | None]

ROLL_MS: Final = 1000
LONG_MS: Final = str(100 * 365 * 86_400_000)
COMPACTED: Final = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "segment.ms": str(ROLL_MS),
    "retention.ms": "-1",
}
# Of each segment the records; the last one stays active.
SEGMENTS: Final[tuple[tuple[Pair, ...], ...]] = (
    ((b"a", b"1"), (b"b", b"1"), (b"c", b"1")),
    ((b"a", b"2"), (b"d", b"1")),
    ((b"b", None), (b"", b"no key's text"), (b"e", b"")),
    ((b"a", b"3"),),
    ((b"e", b"2"), (b"", b"later")),
    ((b"last", b"1"),),
)
KEPT: Final = 7  # of these records, when a round has been there: c d b '' a e last


def steps(side: Side) -> None:
    """Put them."""
    _taken(side)
    _round(side, "plain", {})
    _round(side, "zipped", {}, codec=Codec.GZIP)
    _round(side, "both", {"cleanup.policy": "compact,delete"})
    _round(side, "by-lag", {"min.cleanable.dirty.ratio": "1", "max.compaction.lag.ms": "1"})
    _not_yet(side)
    _tombstones(side)
    _producers(side)
    _changed(side)
    _removed(side)


def _taken(side: Side) -> None:
    """Records without a key, and what else a compacted topic does not take."""
    side.create("keyed", configs=COMPACTED)
    side.create("keyed-too", configs=COMPACTED | {"cleanup.policy": "compact,delete"})
    for topic in ("keyed", "keyed-too"):
        for step, records, more in (
            ("a key", [(b"k", b"v")], {}),
            ("no key", [(None, b"v")], {}),
            ("no key and no value", [(None, None)], {}),
            ("an empty key", [(b"", b"v")], {}),
            ("no value", [(b"k", None)], {}),
            ("no key in the midst", [(b"k", b"v"), (None, b"v"), (b"k", b"v")], {}),
            ("none with a key", [(None, b"v"), (None, b"v")], {}),
            ("no key, zipped", [(b"k", b"v"), (None, b"v")], {"codec": Codec.GZIP}),
            ("no key, in lz4", [(None, b"v")], {"codec": Codec.LZ4}),
        ):
            batch = made_batch(*records, **more)
            side.ask(f"append {step} to {topic}", side.produce_request(topic, batch))
            for version in (3, 8):
                request = side.produce_request(topic, batch, version=version)
                side.ask(f"append {step} to {topic} v{version}", request, version=version)
        read_whole(side, f"what {topic} has taken", topic)


def fill(side: Side, topic: str, *segments: tuple[Pair, ...], first: int = 0, **more: Any) -> None:
    """Append batches, each of which begins a segment."""
    for number, records in enumerate(segments, first):
        batch = made_batch(*records, since_ms=number * ROLL_MS * 10, **more)
        side.ask(f"(prepare) {topic} {number}", side.produce_request(topic, batch))


def stored(side: Side, topic: str) -> list[tuple[int, bytes | None]]:
    """Return offsets and keys of all that is readable. An answer has records of one segment."""
    found: list[tuple[int, bytes | None]] = []
    topic_id, offset = side.driver.topic_id(topic), 0
    while True:
        request = fetch(topic, topic_id, 17, offset=offset)
        answer = side.driver.send(request, node=side.node, version=17)
        data = answer.responses[0].partitions[0].records if answer.responses else None
        if not data:
            return found
        for position, header in batches(data):
            body = memoryview(data)[position : position + header.size]
            records = read_records(body) if header.record_count else ()
            found += [(one.offset, one.key) for one in records]
            offset = header.base_offset + header.last_offset_delta + 1


def read(side: Side, step: str, topic: str, **more: Any) -> None:
    """Read a topic from an offset as far as one answer goes."""
    topic_id = side.driver.topic_id(topic)
    side.ask(step, fetch(topic, topic_id, 17, **more), version=17)


def read_whole(side: Side, step: str, topic: str) -> None:
    """Read a topic from each of its records, and from its end."""
    for offset in dict.fromkeys([0, *(offset for offset, _ in stored(side, topic))]):
        read(side, f"{step}, {offset}", topic, offset=offset)


def _round(side: Side, name: str, configs: dict[str, str], *, codec: Codec = Codec.NONE) -> None:
    """One round over segments, and how the log is read then: whole, from holes, by time."""
    topic = f"compact-{name}"
    side.create(topic, configs=COMPACTED | configs)
    fill(side, topic, *SEGMENTS, codec=codec)
    side.until(lambda: len(stored(side, topic)) <= KEPT, f"{topic} to be compacted")
    _look(side, f"{topic} compacted", topic)
    fill(side, topic, ((b"a", b"4"), (b"last", b"2")), ((b"end", b""),), first=len(SEGMENTS))
    side.until(
        lambda: len({offset for offset, key in stored(side, topic) if key == b"a"}) < 2,
        f"{topic} to be compacted again",
    )
    _look(side, f"{topic} compacted again", topic)


def _look(side: Side, when: str, topic: str) -> None:
    for offset in (0, 1, 4, 5, 7, 9, 12):
        read(side, f"read {when} from {offset}", topic, offset=offset)
    times = [BASE_MS + number * ROLL_MS * 10 + more for number in range(5) for more in (0, 1, 2)]
    for timestamp in (-1, -2, -3, *times):
        asked = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
        named = ListOffsetsTopic(name=topic, partitions=[asked])
        shown = timestamp - BASE_MS if timestamp > 0 else timestamp
        side.ask(f"look up {shown} in {when}", ListOffsetsRequest(topics=[named]))


def _not_yet(side: Side) -> None:
    """Logs that are not to be compacted yet, beside one that is and was filled later."""
    for name, configs in (
        ("young", {"min.compaction.lag.ms": LONG_MS}),
        ("clean", {"min.cleanable.dirty.ratio": "1"}),
        ("open", {"segment.ms": LONG_MS}),
        ("deleted", {"cleanup.policy": "delete"}),
    ):
        side.create(f"not-{name}", configs=COMPACTED | configs)
        fill(side, f"not-{name}", *SEGMENTS)
    side.create("but-this", configs=COMPACTED)
    fill(side, "but-this", *SEGMENTS)
    side.until(lambda: len(stored(side, "but-this")) <= KEPT, "the last one to be compacted")
    for name in ("young", "clean", "open", "deleted"):
        read_whole(side, f"what is not {name}", f"not-{name}")


def _tombstones(side: Side) -> None:
    """They go with the round after the one that found them, when their time is over."""
    for name, configs in (("gone", {"delete.retention.ms": "0"}), ("left", {})):
        topic = f"tombstones-{name}"
        side.create(topic, configs=COMPACTED | configs)
        fill(side, topic, ((b"a", b"1"), (b"b", b"1")), ((b"a", None),), ((b"z", b""),))
        _await_gone(side, topic, b"a", before=2)
        fill(side, topic, ((b"c", b"1"),), ((b"b", b"2"),), ((b"z", b""),), first=3)
        _await_gone(side, topic, b"b", before=2)
        if name == "gone":
            fill(side, topic, ((b"c", b"2"),), ((b"z", b""),), first=6)
            _await_left(side, topic, 5, 6, 7, 8)  # b, z, c, and z again, which is active
        read_whole(side, f"read tombstones {name}", topic)


def _await_gone(side: Side, topic: str, key: bytes, *, before: int = 1 << 62) -> None:
    """Wait until no record before an offset has this key."""
    side.until(
        lambda: not any(offset < before and found == key for offset, found in stored(side, topic)),
        f"{key!r} to go from {topic}",
    )


def _await_left(side: Side, topic: str, *offsets: int) -> None:
    """Wait until these offsets alone are there: however many rounds that takes."""
    side.until(
        lambda: [offset for offset, _ in stored(side, topic)] == [*offsets],
        f"{topic}'s last round",
    )


def _producers(side: Side) -> None:
    """What a producer's batches leave: one without records, and its sequences."""
    topic = "compact-sequenced"
    side.create(topic, configs=COMPACTED)
    given = side.ask("init to compact", InitProducerIdRequest(transactional_id=None))

    def put(step: str, sequence: int, number: int, *records: Pair) -> None:
        batch = made_batch(
            *records,
            since_ms=number * ROLL_MS * 10,
            producer_id=given.producer_id,
            producer_epoch=given.producer_epoch,
            base_sequence=sequence,
        )
        side.ask(f"compact-sequenced: {step}", side.produce_request(topic, batch))

    put("first", 0, 0, (b"a", b"1"), (b"b", b"1"))
    put("second", 2, 1, (b"a", b"2"), (b"b", b"2"))
    fill(side, topic, ((b"a", b"3"), (b"b", b"3")), ((b"z", b""),), first=2)
    side.until(
        lambda: [offset for offset, _ in stored(side, topic)] == [4, 5, 6], f"{topic}'s round"
    )
    read_whole(side, "read what a producer left", topic)
    put("second again", 2, 1, (b"a", b"2"), (b"b", b"2"))
    put("first again", 0, 0, (b"a", b"1"), (b"b", b"1"))
    put("third after a gap", 9, 4, (b"a", b"4"))
    put("third", 4, 4, (b"a", b"4"))


def _changed(side: Side) -> None:
    """A topic that becomes a compacted one, with records that have no key."""
    topic = "becomes-compacted"
    side.create(topic, configs=COMPACTED | {"cleanup.policy": "delete"})
    fill(side, topic, ((b"a", b"1"), (None, b"lost")), ((None, b"lost"),), ((b"a", b"2"),))
    fill(side, topic, ((b"z", b""),), first=3)
    changed = AlterableConfig(config_operation=SET, name="cleanup.policy", value="compact")
    resource = AlterConfigsResource(resource_type=TOPIC, resource_name=topic, configs=[changed])
    side.ask("become compacted", IncrementalAlterConfigsRequest(resources=[resource]))
    side.until(lambda: (0, b"a") not in stored(side, topic), f"{topic}'s round")
    read_whole(side, "read what became compacted", topic)
    keyless = side.produce_request(topic, made_batch((None, b"v")))
    side.ask("append no key to what became compacted", keyless)


def _removed(side: Side) -> None:
    """DeleteRecords, of topics that are compacted too."""
    side.create("remove-too", configs=COMPACTED | {"cleanup.policy": "compact,delete"})
    side.create("remove-not", configs=COMPACTED)
    for topic in ("remove-too", "remove-not"):
        fill(side, topic, ((b"a", b"1"), (b"b", b"1")), ((b"z", b""),))
        for offset in (1, -1):
            one = DeleteRecordsPartition(partition_index=0, offset=offset)
            named = DeleteRecordsTopic(name=topic, partitions=[one])
            request = DeleteRecordsRequest(topics=[named], timeout_ms=5000)
            side.ask(f"remove before {offset} from {topic}", request)
